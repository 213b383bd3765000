package operator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// The labels of what belongs to a control plane, as pkg/render writes them.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "fusionctl"
	partOfLabel    = "app.kubernetes.io/part-of"
	nameLabel      = "app.kubernetes.io/name"
)

// FieldManager owns the fields that the operator applies.
const FieldManager = "fusionctl-operator"

// ErrForeign is wrapped when an object of the name of one of the control plane's belongs to something else.
var ErrForeign = errors.New("does not belong to this control plane")

// ours reports whether an object belongs to the control plane.
func ours(object client.Object, name string) bool {
	labels := object.GetLabels()
	return labels[managedByLabel] == managedBy && labels[partOfLabel] == name
}

func mark(object client.Object, name string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedByLabel], labels[partOfLabel] = managedBy, name
	object.SetLabels(labels)
}

func foreign(object client.Object, name string) error {
	at := object.GetName()
	if object.GetNamespace() != "" {
		at = object.GetNamespace() + "/" + at
	}
	return fmt.Errorf("%s %w: it is left alone; rename the control plane, or label it %s=%s and %s=%s if it is to "+
		"be taken over", at, ErrForeign, managedByLabel, managedBy, partOfLabel, name)
}

// namespace makes the namespace of a control plane; one that belongs to something else is not touched.
func (r *Reconciler) namespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{}
	err := r.Reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		mark(namespace, name)
		err = r.Client.Create(ctx, namespace)
	case err == nil && !ours(namespace, name):
		return fmt.Errorf("namespace %w", foreign(namespace, name))
	case err == nil && namespace.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s is being deleted: nothing is created there", name)
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// limitManifestBytes bounds the manifest of a workload: render writes a few kilobytes.
const limitManifestBytes = 1 << 20

// objectsOf reads the documents of a manifest.
func objectsOf(w *transition.Workload) ([]*unstructured.Unstructured, error) {
	if len(w.Manifest) > limitManifestBytes {
		return nil, fmt.Errorf("the manifest of %s is larger than %d bytes", w.Name, limitManifestBytes)
	}
	if err := yamltext.BoundAliases(w.Manifest); err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", w.Name, err)
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(w.Manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifest of %s: %w", w.Name, err)
		}
		if object.GetNamespace() != w.Namespace {
			return nil, fmt.Errorf("the manifest of %s has an object of namespace %q: %w", w.Name,
				object.GetNamespace(), errBeyond)
		}
		if err := confined(object); err != nil {
			return nil, fmt.Errorf("the manifest of %s: %w", w.Name, err)
		}
		objects = append(objects, object)
	}
}

// workloadKinds are what pkg/render writes.
var workloadKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
}

// shapes are the fields that pkg/render writes, of each kind, with those of lists among them. Below a name that ends in
// ".*" lies anything.
var shapes = map[string][]string{
	"ConfigMap": {"data.*"},
	"Service": {"spec.selector.*", "spec.type", "spec.clusterIP", "spec.publishNotReadyAddresses", "spec.ports.name",
		"spec.ports.port", "spec.ports.targetPort"},
	"PodDisruptionBudget": {"spec.*"},
	"Deployment":          {"spec.strategy.*"},
	"StatefulSet": {"spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates.metadata.name",
		"spec.volumeClaimTemplates.spec.accessModes.*", "spec.volumeClaimTemplates.spec.resources.*"},
}

// podShape are those of what has pods.
var podShape = []string{"spec.replicas", "spec.selector.*", "spec.template.metadata.labels.*",
	"spec.template.metadata.annotations.kubefusion.dev/config", "spec.template.spec.automountServiceAccountToken",
	"spec.template.spec.enableServiceLinks", "spec.template.spec.securityContext.runAsNonRoot",
	"spec.template.spec.securityContext.runAsUser", "spec.template.spec.securityContext.runAsGroup",
	"spec.template.spec.securityContext.fsGroup", "spec.template.spec.securityContext.seccompProfile.type",
	"spec.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.*",
	"spec.template.spec.topologySpreadConstraints.*",
	"spec.template.spec.volumes.name",
	"spec.template.spec.volumes.emptyDir", "spec.template.spec.volumes.secret.*",
	"spec.template.spec.volumes.projected.defaultMode", "spec.template.spec.volumes.projected.sources.secret.*",
	"spec.template.spec.volumes.projected.sources.configMap.*"}

// containerShape are those of a container.
var containerShape = []string{"name", "image", "imagePullPolicy", "command.*", "args.*", "env.*",
	"ports.containerPort", "resources.requests.*", "securityContext.allowPrivilegeEscalation",
	"securityContext.capabilities.*", "volumeMounts.name", "volumeMounts.mountPath", "volumeMounts.subPath",
	"volumeMounts.readOnly"}

// probeShape are those of each probe: none names a host that the kubelet would ask.
var probeShape = []string{"tcpSocket.port", "httpGet.path", "httpGet.port", "httpGet.scheme", "initialDelaySeconds",
	"timeoutSeconds", "periodSeconds", "failureThreshold"}

// shapeOf are the fields that an object of a kind may have.
func shapeOf(kind string) []string {
	shape := append([]string{"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.labels.*"},
		shapes[kind]...)
	if kind != "Deployment" && kind != "StatefulSet" {
		return shape
	}
	shape = append(shape, podShape...)
	const container = "spec.template.spec.containers."
	for _, field := range containerShape {
		shape = append(shape, container+field)
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		for _, field := range probeShape {
			shape = append(shape, container+probe+"."+field)
		}
	}
	return shape
}

// misshapen is the first field of a value that is none of the shape; "" for none.
func misshapen(value any, at string, shape []string) string {
	inner := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for name, each := range value {
			inner[strings.TrimPrefix(at+"."+name, ".")] = each
		}
	case []any:
		for _, each := range value {
			if field := misshapen(each, at, shape); field != "" {
				return field
			}
		}
		if len(value) > 0 {
			return ""
		}
	}
	if slices.Contains(shape, at) || slices.Contains(shape, at+".*") {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(inner)) {
		if field := misshapen(inner[name], name, shape); field != "" {
			return field
		}
	}
	if len(inner) > 0 {
		return ""
	}
	return at
}

// confined refuses what no component has, whatever a spec says: another kind of object, an account of the cluster, and
// everything by which a pod is more than a process of its own, and a Service more than its name: volumes of a node, its
// namespaces, ports and addresses, privileges, priorities. What pkg/render does not write, no component has.
func confined(object *unstructured.Unstructured) error {
	beyond := func(what string) error {
		return fmt.Errorf("%s %s has %s: %w", object.GetKind(), object.GetName(), what, errBeyond)
	}
	kind := object.GroupVersionKind()
	if !slices.Contains(workloadKinds, kind) {
		return beyond("the kind " + kind.String())
	}
	if field := misshapen(object.Object, "", shapeOf(kind.Kind)); field != "" {
		return beyond("the field " + field)
	}
	if address, found, err := unstructured.NestedString(object.Object, "spec", "clusterIP"); err != nil ||
		found && address != corev1.ClusterIPNone {
		return beyond("an address of its own choice")
	}
	if of, found, err := unstructured.NestedString(object.Object, "spec", "type"); err != nil ||
		found && of != string(corev1.ServiceTypeLoadBalancer) {
		return beyond("a type of its own choice")
	}
	if kind.Group != "apps" {
		return nil
	}
	workload := struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &workload); err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	pod := &workload.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		return beyond("a service account")
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool { return c != "NET_BIND_SERVICE" }) {
			return beyond("privileges")
		}
	}
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
		return beyond("the root user")
	}
	if s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		return beyond("system calls that are not confined")
	}
	return nil
}

// apply applies an object that is not there, or belongs to the control plane.
func (r *Reconciler) apply(ctx context.Context, object *unstructured.Unstructured, name string) error {
	mark(object, name)
	if !r.known(ctx, object, name) {
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(object.GroupVersionKind())
		err := r.Reader.Get(ctx, client.ObjectKeyFromObject(object), there)
		switch {
		case err == nil && !ours(there, name):
			return fmt.Errorf("%s %w", object.GetKind(), foreign(there, name))
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return r.write(ctx, object)
}

// write applies an object of the control plane.
func (r *Reconciler) write(ctx context.Context, object *unstructured.Unstructured) error {
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(FieldManager),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// known reports whether the cache has an object as one of the control plane. What it does not have may be there: it
// holds objects with the labels of fusionctl alone.
func (r *Reconciler) known(ctx context.Context, object *unstructured.Unstructured, name string) bool {
	var there client.Object
	switch object.GetKind() {
	case "Deployment":
		there = &appsv1.Deployment{}
	case "StatefulSet":
		there = &appsv1.StatefulSet{}
	default:
		return false
	}
	return r.Client.Get(ctx, client.ObjectKeyFromObject(object), there) == nil && ours(there, name)
}

func (r *Reconciler) applyWorkload(ctx context.Context, w *transition.Workload) error {
	objects, err := objectsOf(w)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := r.apply(ctx, object, w.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// removeWorkload deletes the objects of a workload that belong to the control plane, the one that has the pods first.
func (r *Reconciler) removeWorkload(ctx context.Context, w *transition.Workload) error {
	objects, err := objectsOf(w)
	if err != nil {
		return err
	}
	for i := len(objects) - 1; i >= 0; i-- {
		object := objects[i]
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(object.GroupVersionKind())
		err := r.Reader.Get(ctx, client.ObjectKeyFromObject(object), there)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if !ours(there, w.Namespace) {
			return fmt.Errorf("%s %w", object.GetKind(), foreign(there, w.Namespace))
		}
		uid := there.GetUID()
		err = r.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// pods are how many pods a workload wants, and how many are ready as they are to be.
type pods struct {
	wanted, ready int
	settled       bool // all of them are of the newest template, and no other is left
	why           string
}

// podsOf reads the state of a workload; false where there is none.
func podsOf(ctx context.Context, reader client.Reader, kind, namespace, name string) (pods, bool, error) {
	at := types.NamespacedName{Namespace: namespace, Name: name}
	var err error
	var p pods
	if kind == "StatefulSet" {
		set := &appsv1.StatefulSet{}
		if err = reader.Get(ctx, at, set); err == nil {
			s := &set.Status
			p = pods{wanted: int(wantedOf(set.Spec.Replicas)), ready: int(s.ReadyReplicas)}
			p.settled = s.ObservedGeneration >= set.Generation && s.UpdatedReplicas == wantedOf(set.Spec.Replicas) &&
				s.Replicas == s.UpdatedReplicas && s.CurrentRevision == s.UpdateRevision
		}
	} else {
		deployment := &appsv1.Deployment{}
		if err = reader.Get(ctx, at, deployment); err == nil {
			s := &deployment.Status
			p = pods{wanted: int(wantedOf(deployment.Spec.Replicas)), ready: int(s.AvailableReplicas)}
			p.settled = s.ObservedGeneration >= deployment.Generation &&
				s.UpdatedReplicas == wantedOf(deployment.Spec.Replicas) && s.Replicas == s.UpdatedReplicas
			for _, c := range s.Conditions {
				if c.Status == corev1.ConditionFalse || c.Type == appsv1.DeploymentReplicaFailure {
					p.why = c.Message
				}
			}
		}
	}
	if apierrors.IsNotFound(err) {
		return pods{}, false, nil
	}
	if err != nil {
		return pods{}, false, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	return p, true, nil
}

// mostPodsAsked bounds the pods of a component that are asked why it is not ready.
const mostPodsAsked = 10

// whyNotReady is what the newest pod of a component says of why it is not ready; "" where none says anything.
func (r *Reconciler) whyNotReady(ctx context.Context, namespace, name string) string {
	list := &corev1.PodList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{nameLabel: name,
		partOfLabel: namespace}, client.Limit(mostPodsAsked)); err != nil {
		return "" // it is a reason beside the one that is known
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i := range list.Items {
		if why := troubleOf(&list.Items[i]); why != "" {
			return "pod " + list.Items[i].Name + ": " + why
		}
	}
	return ""
}

// troubleOf is why a pod is not ready, as its kubelet or the scheduler says it; "" for none.
func troubleOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Ready {
			continue
		}
		var words []string
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			words = append(words, strings.TrimSpace(w.Reason+" "+w.Message))
		}
		ended := c.State.Terminated
		if ended == nil {
			ended = c.LastTerminationState.Terminated
		}
		if ended != nil {
			words = append(words, strings.TrimSpace(fmt.Sprintf("it ended with %d, %s %s", ended.ExitCode, ended.Reason,
				ended.Message)))
		}
		if len(words) > 0 {
			return strings.Join(words, "; ")
		}
	}
	return ""
}

func wantedOf(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}
