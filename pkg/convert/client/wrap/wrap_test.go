package wrap_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/convert/client/wrap"
)

var key = ctrl.ObjectKey{Namespace: "shop", Name: "web"}

func options(t *testing.T) wrap.Options {
	t.Helper()
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	return wrap.Options{Converter: c, Negotiator: wrap.ForMinor(c, 6)}
}

// pair is a client of a server that has Deployments as apps/v1beta1, and one of apps/v1 around it.
func pair(t *testing.T, o wrap.Options, calls interceptor.Funcs, objects ...ctrl.Object) (inner, outer ctrl.WithWatch) {
	t.Helper()
	inner = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&appsv1beta1.Deployment{}).WithInterceptorFuncs(calls).Build()
	outer, err := wrap.WithWatch(inner, o)
	if err != nil {
		t.Fatal(err)
	}
	return inner, outer
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}},
	}
}

func stored() *appsv1beta1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1beta1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: labels},
		Spec: appsv1beta1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			RollbackTo: &appsv1beta1.RollbackConfig{Revision: 3},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestClientWritesTheServersVersion(t *testing.T) {
	inner, outer := pair(t, options(t), interceptor.Funcs{})
	object := deployment()
	must(t, outer.Create(t.Context(), object))
	if object.ResourceVersion == "" {
		t.Error("what was created has no resource version")
	}
	var old appsv1beta1.Deployment
	must(t, inner.Get(t.Context(), key, &old))
	if old.Spec.Template.Spec.Containers[0].Image != "web:1" {
		t.Errorf("stored %+v", old.Spec)
	}
	object.Spec.Template.Spec.Containers[0].Image = "web:2"
	must(t, outer.Update(t.Context(), object))
	must(t, outer.Patch(t.Context(), object,
		ctrl.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`))))
	before := object.DeepCopy()
	object.Spec.Paused = true
	must(t, outer.Patch(t.Context(), object, ctrl.StrategicMergeFrom(before)))
	object.Status.ObservedGeneration = 7
	must(t, outer.Status().Update(t.Context(), object))
	must(t, inner.Get(t.Context(), key, &old))
	if old.Spec.Template.Spec.Containers[0].Image != "web:2" || *old.Spec.Replicas != 4 || !old.Spec.Paused ||
		old.Status.ObservedGeneration != 7 {
		t.Errorf("stored %+v, %+v", old.Spec, old.Status)
	}
	for name, err := range map[string]error{
		"update": outer.SubResource("scale").Update(t.Context(), object),
		"patch":  outer.SubResource("scale").Patch(t.Context(), object, ctrl.MergeFrom(before)),
	} {
		if err == nil || !strings.Contains(err.Error(), "SubResourceBody") {
			t.Errorf("%s of a subresource without a body of its own: %v, want it refused", name, err)
		}
	}
	must(t, outer.Delete(t.Context(), object))
	if err := inner.Get(t.Context(), key, &old); ctrl.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("after the deletion: %v", err)
	}
}

// A program's Go types may lack a field that the server has: what is written over the object keeps it.
func TestClientKeepsWhatItsTypesLack(t *testing.T) {
	kept := 0
	calls := interceptor.Funcs{
		Get: func(ctx context.Context, c ctrl.WithWatch, key ctrl.ObjectKey, object ctrl.Object,
			options ...ctrl.GetOption) error {
			err := c.Get(ctx, key, object, options...)
			if fields, ok := object.(*unstructured.Unstructured); ok && err == nil {
				err = unstructured.SetNestedField(fields.Object, "gold", "spec", "vendors")
			}
			return err
		},
		Update: func(ctx context.Context, c ctrl.WithWatch, object ctrl.Object, options ...ctrl.UpdateOption) error {
			if fields, ok := object.(*unstructured.Unstructured); ok {
				if value, _, _ := unstructured.NestedString(fields.Object, "spec", "vendors"); value == "gold" {
					kept++
				}
				unstructured.RemoveNestedField(fields.Object, "spec", "vendors") // the fake has no such field
			}
			return c.Update(ctx, object, options...)
		},
	}
	_, outer := pair(t, options(t), calls, stored())
	object := deployment()
	must(t, outer.Get(t.Context(), key, object))
	object.Spec.Paused = true
	must(t, outer.Update(t.Context(), object))
	must(t, outer.Patch(t.Context(), object,
		ctrl.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":false}}`))))
	if kept != 2 || object.Spec.Paused {
		t.Errorf("%d of 2 writes kept the field; paused: %v", kept, object.Spec.Paused)
	}
}

// What a program leaves out means what its version says of it.
func TestClientWritesTheDefaultsOfTheAskedVersion(t *testing.T) {
	inner, outer := pair(t, options(t), interceptor.Funcs{})
	must(t, outer.Create(t.Context(), deployment()))
	var old appsv1beta1.Deployment
	for _, written := range []func() error{
		func() error { return nil },
		func() error { return outer.Update(t.Context(), deployment()) },
	} {
		must(t, written())
		must(t, inner.Get(t.Context(), key, &old))
		if limit := old.Spec.RevisionHistoryLimit; limit == nil || *limit != 10 {
			t.Errorf("stored a history limit of %v, want the 10 of apps/v1", limit)
		}
		old.Spec.RevisionHistoryLimit = new(int32)
		must(t, inner.Update(t.Context(), &old))
	}
}

func TestClientReadsTheAskedVersion(t *testing.T) {
	_, outer := pair(t, options(t), interceptor.Funcs{}, stored())
	var typed appsv1.Deployment
	must(t, outer.Get(t.Context(), key, &typed))
	var list appsv1.DeploymentList
	must(t, outer.List(t.Context(), &list, ctrl.InNamespace("shop"), ctrl.MatchingLabels{"app": "web"}))
	if len(list.Items) != 1 || typed.Spec.Template.Spec.Containers[0].Name != "web" ||
		list.Items[0].Spec.Template.Spec.Containers[0].Name != "web" {
		t.Errorf("read %+v and %d items", typed.Spec, len(list.Items))
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	must(t, outer.Get(t.Context(), key, u))
	many := &unstructured.UnstructuredList{}
	many.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	must(t, outer.List(t.Context(), many))
	if len(many.Items) != 1 || u.GetAPIVersion() != "apps/v1" || many.Items[0].GetAPIVersion() != "apps/v1" {
		t.Errorf("read %v and %v", u.Object, many.Items)
	}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	must(t, outer.Get(t.Context(), key, metadata))
	if metadata.Labels["app"] != "web" || metadata.APIVersion != "apps/v1" {
		t.Errorf("metadata alone: %+v", metadata)
	}
	if err := outer.Get(t.Context(), key, &coordinationv1.Lease{}); !errors.As(err, new(*client.UnsupportedError)) {
		t.Errorf("a kind that the server does not have: %v", err)
	}
	custom := &unstructured.Unstructured{}
	custom.SetGroupVersionKind(schema.GroupVersionKind{Group: "boats.example", Version: "v1", Kind: "Boat"})
	if err := outer.Get(t.Context(), key, custom); errors.As(err, new(*client.UnsupportedError)) || err == nil {
		t.Errorf("a custom resource: %v, want the answer of the server", err)
	}
}

// A part of an object is applied in the server's version, and its manager owns what it said.
func TestClientAppliesParts(t *testing.T) {
	o := options(t)
	o.Negotiator = wrap.ForMinor(o.Converter, 36)
	inner := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithReturnManagedFields().Build()
	outer, err := wrap.Client(inner, o)
	must(t, err)
	const older = "extensions/v1beta1"
	part := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": older, "kind": "Deployment",
			"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name}, "spec": spec}}
	}
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}}}
	first := part(map[string]any{"replicas": int64(2), "template": template})
	must(t, outer.Apply(t.Context(), ctrl.ApplyConfigurationFromUnstructured(first), ctrl.FieldOwner("one")))
	if first.GetAPIVersion() != older || first.GetResourceVersion() == "" {
		t.Errorf("what was applied comes back as %v", first.Object)
	}
	var got appsv1.Deployment
	must(t, inner.Get(t.Context(), key, &got))
	if owns := string(got.ManagedFields[0].FieldsV1.Raw); *got.Spec.Replicas != 2 ||
		got.Spec.Selector.MatchLabels["app"] != "web" || got.ManagedFields[0].APIVersion != "apps/v1" ||
		!strings.Contains(owns, "f:selector") { // which the server requires
		t.Errorf("the server has %+v, owned %s", got.Spec, owns)
	}

	budget := func(spec map[string]any) *unstructured.Unstructured {
		object := part(spec)
		object.Object["apiVersion"], object.Object["kind"] = "policy/v1beta1", "PodDisruptionBudget"
		return object
	}
	must(t, outer.Apply(t.Context(), ctrl.ApplyConfigurationFromUnstructured(budget(map[string]any{
		"minAvailable": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}})),
		ctrl.FieldOwner("one")))
	second := budget(map[string]any{"unhealthyPodEvictionPolicy": "AlwaysAllow"})
	applied := second.DeepCopy()
	//nolint:staticcheck // clients still send it
	must(t, outer.Patch(t.Context(), applied, ctrl.RawPatch(types.ApplyPatchType, asJSON(t, second)),
		ctrl.FieldOwner("two")))
	if at, _, _ := unstructured.NestedFieldNoCopy(applied.Object, "spec", "minAvailable"); at != int64(2) ||
		applied.GetAPIVersion() != "policy/v1beta1" {
		t.Errorf("what was applied comes back as %v", applied.Object)
	}
	var kept policyv1.PodDisruptionBudget
	must(t, inner.Get(t.Context(), key, &kept))
	for _, entry := range kept.ManagedFields {
		owns := string(entry.FieldsV1.Raw)
		if entry.APIVersion != "policy/v1" || strings.Contains(owns, "f:minAvailable") != (entry.Manager == "one") ||
			strings.Contains(owns, "f:unhealthyPodEvictionPolicy") != (entry.Manager == "two") {
			t.Errorf("%s of %s owns %s", entry.Manager, entry.APIVersion, owns)
		}
	}
	bomb := "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nx: &x " +
		strings.Repeat("a", 100_000) + "\ny: [" + strings.Repeat("*x,", 1_000) + "]\n"
	//nolint:staticcheck // clients still send it
	err = outer.Patch(t.Context(), second.DeepCopy(), ctrl.RawPatch(types.ApplyPatchType, []byte(bomb)),
		ctrl.FieldOwner("two"))
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "its aliases make more than") {
		t.Errorf("a patch that is a bomb: %v", err)
	}
	conflict := budget(map[string]any{"minAvailable": int64(3)})
	err = outer.Apply(t.Context(), ctrl.ApplyConfigurationFromUnstructured(conflict), ctrl.FieldOwner("two"))
	if !apierrors.IsConflict(err) {
		t.Errorf("a field of another manager: %v, want a conflict", err)
	}
	scale := ctrl.ApplyConfigurationFromUnstructured(conflict)
	if err := outer.SubResource("scale").Apply(t.Context(), scale); err == nil ||
		!strings.Contains(err.Error(), "only statuses are converted") {
		t.Errorf("a part of a scale: %v", err)
	}
	_, old := pair(t, options(t), interceptor.Funcs{})
	part6 := ctrl.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}}})
	if err := old.Apply(t.Context(), part6, ctrl.FieldOwner("one")); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("on a server that does not have it: %v, want 415", err)
	}
}

func asJSON(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	must(t, err)
	return text
}

// What the asked version does not show stays, and what the server drops is named.
func TestClientLosesNothingInSilence(t *testing.T) {
	o := options(t)
	inner, outer := pair(t, o, interceptor.Funcs{}, stored())
	var object appsv1.Deployment
	must(t, outer.Get(t.Context(), key, &object))
	object.Spec.MinReadySeconds = 9
	must(t, outer.Update(t.Context(), &object))
	var old appsv1beta1.Deployment
	must(t, inner.Get(t.Context(), key, &old))
	if old.Spec.RollbackTo == nil || old.Spec.RollbackTo.Revision != 3 || old.Spec.MinReadySeconds != 9 {
		t.Errorf("stored %+v", old.Spec)
	}
	spread := deployment()
	spread.Name = "spread"
	spread.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone"}}
	err := outer.Create(t.Context(), spread)
	var lost *client.LossError
	if !errors.As(err, &lost) || lost.Losses[0].Path != "spec.template.spec.topologySpreadConstraints" {
		t.Errorf("a field that 1.6 drops: %v", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: spread.Spec.Template.Spec}
	if err := outer.Create(t.Context(), pod); !errors.As(err, &lost) {
		t.Errorf("a field that 1.6 drops, in a version that it has: %v", err)
	}
	told := 0
	o.OnLoss = func(*client.LossError) { told++ }
	_, lenient := pair(t, o, interceptor.Funcs{})
	if err := lenient.Create(t.Context(), spread); err != nil || told == 0 {
		t.Errorf("losses that are taken: %v, told %d times", err, told)
	}
}

// A deletion in apps/v1beta1 leaves dependents; in apps/v1 it does not.
func TestClientKeepsPropagation(t *testing.T) {
	var policy *metav1.DeletionPropagation
	_, outer := pair(t, options(t),
		interceptor.Funcs{Delete: func(ctx context.Context, next ctrl.WithWatch, object ctrl.Object,
			options ...ctrl.DeleteOption) error {
			policy = (&ctrl.DeleteOptions{}).ApplyOptions(options).PropagationPolicy
			return next.Delete(ctx, object, options...)
		}}, stored())
	must(t, outer.Delete(t.Context(), deployment()))
	if policy == nil || *policy != metav1.DeletePropagationBackground {
		t.Errorf("propagation %v, want what apps/v1 means", policy)
	}
}

func TestWatchConverts(t *testing.T) {
	inner, outer := pair(t, options(t), interceptor.Funcs{})
	events, err := outer.Watch(t.Context(), &appsv1.DeploymentList{})
	must(t, err)
	defer events.Stop()
	must(t, inner.Create(t.Context(), stored()))
	event := <-events.ResultChan()
	if object, ok := event.Object.(*appsv1.Deployment); !ok || object.Name != "web" {
		t.Errorf("%s %T, want a Deployment of apps/v1", event.Type, event.Object)
	}
}

// An event that does not convert is an error, and the last: the reader lists again, and misses nothing.
func TestAWatchEndsWithAnEventThatDoesNotConvert(t *testing.T) {
	server := watch.NewFakeWithChanSize(3, false)
	_, outer := pair(t, options(t), interceptor.Funcs{Watch: func(context.Context, ctrl.WithWatch, ctrl.ObjectList,
		...ctrl.ListOption) (watch.Interface, error) {
		return server, nil
	}})
	events, err := outer.Watch(t.Context(), &appsv1.DeploymentList{})
	must(t, err)
	server.Add(stored())
	server.Add(&corev1.ReplicationController{ // it has a text where a Deployment has labels
		Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"matchLabels": "web"}}})
	server.Add(stored())
	var types []watch.EventType
	for event := range events.ResultChan() {
		if types = append(types, event.Type); event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsInternalError(err) {
				t.Errorf("error %v, want an internal one", err)
			}
		}
	}
	if !slices.Equal(types, []watch.EventType{watch.Added, watch.Error}) || !server.IsStopped() {
		t.Errorf("events %v, the server's watch stopped: %t; want it to end with the error", types, server.IsStopped())
	}
}

func TestAWatchEndsWithItsReader(t *testing.T) {
	server := watch.NewFake()
	_, outer := pair(t, options(t), interceptor.Funcs{Watch: func(context.Context, ctrl.WithWatch, ctrl.ObjectList,
		...ctrl.ListOption) (watch.Interface, error) {
		return server, nil
	}})
	events, err := outer.Watch(t.Context(), &appsv1.DeploymentList{})
	must(t, err)
	server.Add(stored()) // it is converted, and not read
	events.Stop()
	for range events.ResultChan() {
	}
	if !server.IsStopped() {
		t.Error("the server's watch goes on")
	}
}

// informers keeps what is asked of a cache.
type informers struct {
	ctrlcache.Cache
	ctrlcache.Informer
	asked   ctrl.Object
	handler toolscache.ResourceEventHandler
	indexes toolscache.Indexers
	extract ctrl.IndexerFunc
}

func (i *informers) GetInformer(_ context.Context, of ctrl.Object, _ ...ctrlcache.InformerGetOption) (
	ctrlcache.Informer, error) {
	i.asked = of
	return i.Informer, nil
}

func (i *informers) IndexField(_ context.Context, of ctrl.Object, _ string, extract ctrl.IndexerFunc) error {
	i.asked, i.extract = of, extract
	return nil
}

type informer struct {
	ctrlcache.Informer
	of *informers
}

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, error) {
	i.of.handler = handler
	return nil, nil
}

func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	i.of.indexes = indexers
	return nil
}

func TestCacheConverts(t *testing.T) {
	next := &informers{}
	next.Informer = &informer{of: next}
	var failures []error
	c, err := wrap.Cache(next, scheme.Scheme, options(t), func(err error) { failures = append(failures, err) })
	must(t, err)
	found, err := c.GetInformer(t.Context(), &appsv1.Deployment{})
	must(t, err)
	if _, ok := next.asked.(*appsv1beta1.Deployment); !ok {
		t.Errorf("the cache was asked for %T", next.asked)
	}
	var names []string
	keep := func(object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		names = append(names, object.(*appsv1.Deployment).Name)
	}
	_, err = found.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: keep, DeleteFunc: keep,
		UpdateFunc: func(was, is any) { keep(was); keep(is) }})
	must(t, err)
	next.handler.OnAdd(stored(), true)
	next.handler.OnUpdate(stored(), stored())
	next.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/web", Obj: stored()})
	next.handler.OnAdd("no object", false)
	if !slices.Equal(names, []string{"web", "web", "web", "web"}) || len(failures) != 1 {
		t.Errorf("events of %v, failures %v", names, failures)
	}
	must(t, found.AddIndexers(toolscache.Indexers{"image": func(object any) ([]string, error) {
		return []string{object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image}, nil
	}}))
	images, err := next.indexes["image"](stored())
	must(t, err)
	must(t, c.IndexField(t.Context(), &appsv1.Deployment{}, "name", func(object ctrl.Object) []string {
		return []string{object.(*appsv1.Deployment).Name}
	}))
	if indexed := next.extract(stored()); !slices.Equal(indexed, []string{"web"}) ||
		!slices.Equal(images, []string{"web:1"}) {
		t.Errorf("indexed by %v and %v", indexed, images)
	}
	if _, err := wrap.Cache(next, scheme.Scheme, wrap.Options{}, nil); err == nil {
		t.Error("a cache without a converter was wrapped")
	}
}
