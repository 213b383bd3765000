//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/convert"
	convertclient "github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// appController is a controller as people write them: of a config map it makes an application, in the versions of
// today. Nothing in it knows that there are other versions.
type appController struct {
	client.Client
	events record.EventRecorder
}

func (a *appController) setUp(manager ctrl.Manager) error {
	a.Client, a.events = manager.GetClient(), manager.GetEventRecorderFor("app")
	return ctrl.NewControllerManagedBy(manager).Named("app").
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).For(&corev1.ConfigMap{}).
		Owns(&appsv1.Deployment{}).Owns(&networkingv1.Ingress{}).Owns(&batchv1.CronJob{}).
		Owns(&autoscalingv2.HorizontalPodAutoscaler{}).
		Owns(&policyv1.PodDisruptionBudget{}).Owns(&rbacv1.Role{}).Owns(&rbacv1.RoleBinding{}).Complete(a)
}

func (a *appController) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	app := &corev1.ConfigMap{}
	if err := a.Get(ctx, request.NamespacedName, app); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if app.Data["image"] == "" {
		return reconcile.Result{}, nil
	}
	meta := metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: meta}, &networkingv1.Ingress{ObjectMeta: meta},
		&batchv1.CronJob{ObjectMeta: meta}, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta}, &rbacv1.Role{ObjectMeta: meta},
		&rbacv1.RoleBinding{ObjectMeta: meta},
	} {
		result, err := controllerutil.CreateOrUpdate(ctx, a, object, func() error {
			a.shape(app, object)
			return controllerutil.SetControllerReference(app, object, a.Scheme())
		})
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("%T: %w", object, err)
		}
		if result == controllerutil.OperationResultCreated {
			a.events.Eventf(app, corev1.EventTypeNormal, "Created", "%T", object)
		}
	}
	return reconcile.Result{}, nil
}

// shape sets what the controller wants and leaves the rest as it is.
func (a *appController) shape(app *corev1.ConfigMap, object client.Object) {
	labels := map[string]string{"app": app.Name}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	container := corev1.Container{Name: "web", Image: app.Data["image"]}
	switch object := object.(type) {
	case *appsv1.Deployment:
		object.Spec.Replicas, object.Spec.Selector = ptr.To[int32](3), selector
		object.Spec.Template.Labels = labels
		if len(object.Spec.Template.Spec.Containers) == 0 {
			object.Spec.Template.Spec.Containers = []corev1.Container{container}
		}
		object.Spec.Template.Spec.Containers[0].Image = container.Image
	case *networkingv1.Ingress:
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: app.Name,
			Port: networkingv1.ServiceBackendPort{Number: 80}}}
		path := networkingv1.HTTPIngressPath{Path: "/", PathType: ptr.To(networkingv1.PathTypeImplementationSpecific),
			Backend: backend}
		object.Spec.Rules = []networkingv1.IngressRule{{Host: app.Name + ".test",
			IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}}}}
	case *batchv1.CronJob:
		object.Spec.Schedule = "0 1 * * *"
		pod.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container}}
		if len(object.Spec.JobTemplate.Spec.Template.Spec.Containers) == 0 {
			object.Spec.JobTemplate.Spec.Template = pod
		}
		object.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image = container.Image
	case *autoscalingv2.HorizontalPodAutoscaler:
		object.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1",
			Kind: "Deployment", Name: app.Name}
		object.Spec.MaxReplicas = 9
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType,
			AverageUtilization: ptr.To[int32](70)}
		object.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: target}}}
	case *policyv1.PodDisruptionBudget:
		object.Spec.Selector, object.Spec.MinAvailable = selector, ptr.To(intstr.FromInt32(1))
	case *rbacv1.Role:
		object.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}}
	case *rbacv1.RoleBinding:
		object.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: app.Name}
		object.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: app.Namespace}}
	}
}

// storedAt is where each release has the kinds of the controller, in the versions that it serves.
var storedAt = map[kubever.Minor][]string{
	6: {"apps/v1beta1/%s/deployments/shop", "extensions/v1beta1/%s/ingresses/shop", "batch/v2alpha1/%s/cronjobs/shop",
		"autoscaling/v1/%s/horizontalpodautoscalers/shop",
		"policy/v1beta1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1beta1/%s/roles/shop",
		"rbac.authorization.k8s.io/v1beta1/%s/rolebindings/shop"},
	10: {"apps/v1/%s/deployments/shop", "extensions/v1beta1/%s/ingresses/shop", "batch/v1beta1/%s/cronjobs/shop",
		"autoscaling/v2beta1/%s/horizontalpodautoscalers/shop",
		"policy/v1beta1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1/%s/roles/shop",
		"rbac.authorization.k8s.io/v1/%s/rolebindings/shop"},
	15: {"apps/v1/%s/deployments/shop", "networking.k8s.io/v1beta1/%s/ingresses/shop", "batch/v1beta1/%s/cronjobs/shop",
		"autoscaling/v2beta2/%s/horizontalpodautoscalers/shop",
		"policy/v1beta1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1/%s/roles/shop",
		"rbac.authorization.k8s.io/v1/%s/rolebindings/shop"},
	36: {"apps/v1/%s/deployments/shop", "networking.k8s.io/v1/%s/ingresses/shop", "batch/v1/%s/cronjobs/shop",
		"autoscaling/v2/%s/horizontalpodautoscalers/shop",
		"policy/v1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1/%s/roles/shop",
		"rbac.authorization.k8s.io/v1/%s/rolebindings/shop"},
}

// One and the same controller, and one and the same client, do their work against servers of nine years; and what is
// read in another version is what the server itself says in that version.
func TestConvertOnServersOfOtherVersions(t *testing.T) {
	t.Parallel()
	for minor := range storedAt {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			server := startForConverting(r, minor)
			runsController(t, r, server)
			runsClient(t, server)
			convertsAsTheServer(t, server)
		})
	}
}

func runsController(t *testing.T, r *rig.Rig, server *rig.APIServer) {
	t.Helper()
	failures := &lastError{}
	manager, err := ctrl.NewManager(converting(t, server),
		ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.New(failures)})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&appController{}).setUp(manager); err != nil {
		t.Fatal(err)
	}
	runManager(t, manager)
	raw := server.Client("somebody", "system:masters")
	paths := storedAt[server.Minor]
	app := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "shop"},
		"data": map[string]any{"image": "shop:1"}}
	if err := raw.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/default/configmaps", app, nil); err != nil {
		t.Fatal(err)
	}
	r.Eventually("waiting for the objects of the controller", func(ctx context.Context) error {
		for _, path := range paths {
			if err := raw.Call(ctx, http.MethodGet, "/apis/"+fmt.Sprintf(path, "namespaces/default"), nil,
				&map[string]any{}); err != nil {
				return errors.Join(err, failures.get())
			}
		}
		return nil
	})
	// A change behind the controller's back comes to it as an event of the server's version.
	deployment := "/apis/" + fmt.Sprintf(paths[0], "namespaces/default")
	if err := raw.Call(t.Context(), http.MethodPatch, deployment, map[string]any{"spec": map[string]any{"replicas": 7}},
		nil); err != nil {
		t.Fatal(err)
	}
	app["data"] = map[string]any{"image": "shop:2"}
	if err := raw.Call(t.Context(), http.MethodPut, "/api/v1/namespaces/default/configmaps/shop", app,
		nil); err != nil {
		t.Fatal(err)
	}
	r.Eventually("waiting for the controller to repair and update", func(ctx context.Context) error {
		now := &appsv1.Deployment{} // the parts that are looked at have the same names in all versions
		if err := raw.Call(ctx, http.MethodGet, deployment, nil, now); err != nil {
			return err
		}
		if *now.Spec.Replicas != 3 || now.Spec.Template.Spec.Containers[0].Image != "shop:2" {
			return errors.Join(fmt.Errorf("%d replicas of %s, want 3 of shop:2", *now.Spec.Replicas,
				now.Spec.Template.Spec.Containers[0].Image), failures.get())
		}
		return nil
	})
}

// runsClient goes through the methods of a client that knows apps/v1 alone.
func runsClient(t *testing.T, server *rig.APIServer) {
	t.Helper()
	ctx := t.Context()
	c, err := client.NewWithWatch(converting(t, server), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %s: %v", server.Minor, what, err)
		}
	}
	labels := map[string]string{"of": "client"}
	deployment := func(name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}}}},
			}}
	}
	web := deployment("web")
	watcher, err := c.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace("default"), client.MatchingLabels(labels))
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	check("create", c.Create(ctx, web))
	check("create another", c.Create(ctx, deployment("cart")))
	if event, ok := <-watcher.ResultChan(); !ok || event.Object.(*appsv1.Deployment).Name != "web" {
		t.Errorf("%s: watch: %v, want the Deployment web", server.Minor, event)
	}
	if err := c.Create(ctx, deployment("web")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("%s: create again: %v", server.Minor, err)
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "none"}, web.DeepCopy()); !apierrors.IsNotFound(
		err) || !strings.Contains(err.Error(), `deployments.apps "none"`) {
		t.Errorf("%s: get what is absent: %v", server.Minor, err)
	}

	stale := web.DeepCopy()
	before := web.DeepCopy()
	web.Spec.Template.Spec.Containers[0].Image = "a:2"
	check("strategic patch", c.Patch(ctx, web, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})))
	before = web.DeepCopy()
	web.Spec.Replicas = ptr.To[int32](2)
	check("merge patch", c.Patch(ctx, web, client.MergeFrom(before)))
	check("JSON patch",
		c.Patch(ctx, web,
			client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/replicas","value":4}]`))))
	if web.Spec.Template.Spec.Containers[0].Image != "a:2" || *web.Spec.Replicas != 4 ||
		web.ResourceVersion == stale.ResourceVersion {
		t.Errorf("%s: after the patches %+v", server.Minor, web.Spec)
	}
	stale.Spec.Paused = true
	if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("%s: update of a stale object: %v, want a conflict", server.Minor, err)
	}
	web.Status.ObservedGeneration = web.Generation
	web.Status.Replicas = 4
	check("update of the status", c.Status().Update(ctx, web))
	scale := &autoscalingv1.Scale{}
	check("scale", c.SubResource("scale").Get(ctx, web, scale))
	scale.Spec.Replicas = 5
	check("rescale", c.SubResource("scale").Update(ctx, web, client.WithSubResourceBody(scale)))
	check("get", c.Get(ctx, client.ObjectKeyFromObject(web), web))
	if web.Status.Replicas != 4 || *web.Spec.Replicas != 5 {
		t.Errorf("%s: after status and scale: %d replicas, %d wanted; want 4 and 5", server.Minor, web.Status.Replicas,
			*web.Spec.Replicas)
	}

	list, seen := &appsv1.DeploymentList{}, 0
	for ok := true; ok; ok = list.Continue != "" {
		check("list", c.List(ctx, list, client.InNamespace("default"), client.MatchingLabels(labels), client.Limit(1),
			client.Continue(list.Continue)))
		seen += len(list.Items)
	}
	if seen != 2 {
		t.Errorf("%s: lists of all pages have %d Deployments, want 2", server.Minor, seen)
	}
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	check("metadata", c.List(ctx, metadata, client.InNamespace("default"), client.MatchingLabels(labels)))
	if len(metadata.Items) != 2 || metadata.ResourceVersion == "" {
		t.Errorf("%s: metadata of %d Deployments at %q, want 2", server.Minor, len(metadata.Items),
			metadata.ResourceVersion)
	}

	spread := deployment("spread")
	spread.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: spread.Spec.Selector}}
	if err := c.Create(ctx, spread); errors.As(err, new(*convertclient.LossError)) == (server.Minor == 36) {
		t.Errorf("%s: create with a new field: %v", server.Minor, err)
	}
	dry := deployment("dry")
	err = c.Create(ctx, dry, client.DryRunAll)
	if errors.As(err, new(*convertclient.UnfaithfulError)) != (server.Minor < 12) {
		t.Errorf("%s: dry run: %v", server.Minor, err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(dry), dry); !apierrors.IsNotFound(err) {
		t.Errorf("%s: after a dry run: %v, want not found", server.Minor, err)
	}
	applied := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "default"}, "spec": map[string]any{"paused": true}}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: applied}),
		client.FieldOwner("test"))
	if server.Minor == 36 {
		check("apply", err)
	} else if !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("%s: apply: %v, want that it is not supported", server.Minor, err)
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alone"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}},
			AutomountServiceAccountToken: ptr.To(false)}}
	serviceAccount(t, server)
	check("create a pod", c.Create(ctx, pod))
	check("evict", c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta}))
	check("delete", c.Delete(ctx, web))
	check("delete all", c.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace("default"),
		client.MatchingLabels(labels)))
	check("list", c.List(ctx, list, client.InNamespace("default"), client.MatchingLabels(labels)))
	if len(list.Items) != 0 {
		t.Errorf("%s: %d Deployments are left", server.Minor, len(list.Items))
	}
	if err := c.List(ctx, &coordinationv1.LeaseList{}); (err == nil) != (server.Minor > 10) {
		t.Errorf("%s: list of leases: %v", server.Minor, err)
	}
	if server.Minor == 10 { // what the client is kept from: the server does not know dryRun, and writes
		raw := server.Client("somebody", "system:masters")
		check("a dry run of the server's",
			raw.Call(ctx, http.MethodPost, "/apis/apps/v1/namespaces/default/deployments?dryRun=All",
				typed(deployment("written")), nil))
		check("what it wrote", raw.Call(ctx, http.MethodGet, "/apis/apps/v1/namespaces/default/deployments/written",
			nil, &map[string]any{}))
	}
}

func typed(object *appsv1.Deployment) *appsv1.Deployment {
	object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return object
}

// serviceAccount makes the account without which admission lets no pod in, and the token that older releases want for
// it; the controller manager would.
func serviceAccount(t *testing.T, server *rig.APIServer) {
	t.Helper()
	client := server.Client("somebody", "system:masters")
	create := func(resource string, object map[string]any) {
		err := client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/default/"+resource, object, nil)
		if err != nil && rig.Code(err) != http.StatusConflict {
			t.Fatal(err)
		}
	}
	create("serviceaccounts", map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"name": "default"}, "secrets": []any{map[string]any{"name": "token"}}})
	var account struct{ Metadata struct{ UID string } }
	must(t, client.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil,
		&account))
	create("secrets", map[string]any{"apiVersion": "v1", "kind": "Secret",
		"type": "kubernetes.io/service-account-token", "data": map[string]any{"token": "eA=="},
		"metadata": map[string]any{"name": "token", "annotations": map[string]any{
			"kubernetes.io/service-account.name": "default",
			"kubernetes.io/service-account.uid":  account.Metadata.UID}}})
}

// convertsAsTheServer reads what the controller made in every version that the server has of it, and holds each against
// the conversion of each other one.
func convertsAsTheServer(t *testing.T, server *rig.APIServer) {
	t.Helper()
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	raw := server.Client("somebody", "system:masters")
	compared := 0
	for _, name := range []string{"deployments", "ingresses", "cronjobs", "horizontalpodautoscalers",
		"poddisruptionbudgets", "roles", "rolebindings"} {
		said := map[schema.GroupVersionKind]map[string]any{}
		for _, api := range kubever.APIResources(server.Minor) {
			if api.Name != name || !api.DefaultOn.Has(server.Minor) {
				continue
			}
			object := map[string]any{}
			if err := raw.Call(t.Context(), http.MethodGet,
				"/apis/"+api.GroupVersion.String()+"/namespaces/default/"+name+"/shop", nil, &object); err != nil {
				t.Errorf("%s: %v", server.Minor, err)
				continue
			}
			said[api.WithKind(api.Kind)] = object
		}
		for from, object := range said {
			for to, want := range said {
				if from == to {
					continue
				}
				got, _, err := converter.Convert(&unstructured.Unstructured{Object: normalized(t, object)}, to)
				if err != nil {
					t.Errorf("%s: %v", server.Minor, err)
					continue
				}
				compared++
				if diff := cmp.Diff(withoutNothing(normalized(t, want)),
					withoutNothing(normalized(t, got.Object))); diff != "" {
					t.Errorf("%s: %s to %s (-the server +converted):\n%s", server.Minor, from, to.GroupVersion(), diff)
				}
			}
		}
	}
	if compared == 0 {
		t.Errorf("%s: nothing was compared", server.Minor)
	}
}

// normalized gives all objects the same kinds of numbers, and takes the path away that old servers write: it names the
// version.
func normalized(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	u.SetSelfLink("")
	return u.Object
}

// withoutNothing leaves out what says nothing: servers write empty objects, nulls, and zeros that other versions leave
// out.
func withoutNothing(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if value[key] = withoutNothing(inner); value[key] == nil {
				delete(value, key)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case int64:
		if value == 0 {
			return nil
		}
	case []any:
		for i := range value {
			value[i] = withoutNothing(value[i])
		}
		if len(value) == 0 {
			return nil
		}
	}
	return value
}

// startForConverting starts a server; 1.6 has CronJobs only when it is told to.
func startForConverting(r *rig.Rig, minor kubever.Minor) *rig.APIServer {
	args := r.APIServerArgs(minor, r.StartEtcd("core"))
	if minor == 6 {
		args = append(args, "--runtime-config=batch/v2alpha1=true")
	}
	server := r.StartAPIServer("apiserver", minor, args)
	server.WaitReady()
	admin := server.Client("admin", "system:masters")
	r.Eventually("the namespace default is there", func(ctx context.Context) error { // made after the server is ready
		return admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/default", nil, nil)
	})
	return server
}

func converting(t *testing.T, server *rig.APIServer) *rest.Config {
	t.Helper()
	config, err := convertclient.Config(server.RESTConfig("program", "system:masters"), convertclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// lastError is a log that keeps the last error alone: a controller tells why it does not get on by its log.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) Init(logr.RuntimeInfo)          {}
func (l *lastError) Enabled(int) bool               { return false }
func (l *lastError) Info(int, string, ...any)       {}
func (l *lastError) WithValues(...any) logr.LogSink { return l }
func (l *lastError) WithName(string) logr.LogSink   { return l }
func (l *lastError) Error(err error, m string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = fmt.Errorf("%s: %w", m, err)
}

func (l *lastError) get() error { l.mu.Lock(); defer l.mu.Unlock(); return l.err }

// runManager runs a manager until the test ends.
func runManager(t *testing.T, manager ctrl.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager: %v", err)
		}
	})
	if !manager.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches did not fill")
	}
}
