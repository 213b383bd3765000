package stream

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// reference is a field in which an object names another one, with its version.
type reference struct {
	path       string
	kind       schema.GroupVersionKind
	name       string
	anyVersion bool // of the group is found; otherwise it has to be served
}

// scaled are the minors whose controllers look for what an autoscaler scales by its group, in whatever version that is
// served; those before look for the kind alone. Source: pkg/controller/podautoscaler/horizontal.go of every minor.
var scaled = kubever.Ranges{{From: 9, To: kubever.Newest}}

// scaleTarget is what an autoscaler scales. Of other objects, and of those that name no kind, there is none.
func (c *Check) scaleTarget(object *unstructured.Unstructured) []reference {
	gvk := object.GroupVersionKind()
	if !c.scales(gvk) {
		return nil
	}
	spec, _ := object.Object["spec"].(map[string]any)
	target, _ := spec["scaleTargetRef"].(map[string]any)
	return referenceIn(target, "spec.scaleTargetRef", true)
}

// scales reports whether objects of a kind are autoscalers that name what they scale by its group.
func (c *Check) scales(gvk schema.GroupVersionKind) bool {
	return gvk.Kind == "HorizontalPodAutoscaler" && (gvk.Group == "autoscaling" || gvk.Group == "extensions") &&
		scaled.Has(c.minor)
}

// owners are those of an object. The garbage collector asks for them in the version in which they are named, and
// deletes nothing whose owner's version is not served (pkg/controller/garbagecollector/operations.go, apiResource).
func owners(object *unstructured.Unstructured) (named []reference) {
	metadata, _ := object.Object["metadata"].(map[string]any)
	list, _ := metadata["ownerReferences"].([]any)
	for i, owner := range list {
		owner, _ := owner.(map[string]any)
		named = append(named, referenceIn(owner, fmt.Sprintf("metadata.ownerReferences[%d]", i), false)...)
	}
	return named
}

// parameters are what an admission policy takes: a server looks for them in the version in which they are named, and
// does as its failurePolicy says where it does not serve that
// (apiserver pkg/admission/plugin/policy/generic/policy_source.go@0.36.3).
func parameters(object *unstructured.Unstructured) []reference {
	switch object.GroupVersionKind().GroupKind() {
	case admissionKind("ValidatingAdmissionPolicy"), admissionKind("MutatingAdmissionPolicy"):
		spec, _ := object.Object["spec"].(map[string]any)
		kind, _ := spec["paramKind"].(map[string]any)
		return referenceIn(kind, "spec.paramKind", false)
	}
	return nil
}

func referenceIn(of map[string]any, path string, anyVersion bool) []reference {
	version, _ := of["apiVersion"].(string)
	kind, _ := of["kind"].(string)
	name, _ := of["name"].(string)
	if kind == "" {
		return nil
	}
	return []reference{{path, schema.FromAPIVersionAndKind(version, kind), name, anyVersion}}
}

// judgeReferences lists the references of an object to versions that the release does not serve.
func (c *Check) judgeReferences(place string, object *unstructured.Unstructured, named []reference) (found []Verdict) {
	for _, to := range named {
		v := c.verdictOf(to.kind)
		if v.Status == "ok" || v.Status == "custom" || v.Status == "deprecated" ||
			to.anyVersion && c.inGroup(to.kind) {
			continue
		}
		v.Place, v.Path, v.Namespace, v.Name = place, to.path, object.GetNamespace(), to.name
		v.Why = fmt.Sprintf("%s %s names it", object.GetKind(), object.GetName())
		if v.Status == "unknown" {
			v.Why += ": " + c.converter.Misnamed(to.kind)
		}
		found = append(found, v)
	}
	return found
}

// inGroup reports whether the release serves a kind in some version of its group.
func (c *Check) inGroup(gvk schema.GroupVersionKind) bool {
	for _, kind := range append(c.converter.Equivalents(gvk), gvk) {
		if kind.GroupKind() == gvk.GroupKind() && kubever.LifecycleOf(kind).DefaultOn.Has(c.minor) {
			return true
		}
	}
	return false
}
