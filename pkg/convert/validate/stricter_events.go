package validate

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// stricterEvents are the errors of servers that compare the namespace of an Event with that of the object it is about.
func stricterEvents(object *unstructured.Unstructured, minor kubever.Minor) (errs field.ErrorList) {
	gvk := object.GroupVersionKind()
	if gvk.Kind != "Event" || gvk.Group != "" && gvk.Group != "events.k8s.io" ||
		!kubever.Behaves(kubever.BehaviourEventNamespaceMatched, minor) {
		return nil
	}
	at, about := field.NewPath("involvedObject", "namespace"), fields(object.Object["involvedObject"])
	if about == nil { // as events.k8s.io calls it
		at, about = field.NewPath("regarding", "namespace"), fields(object.Object["regarding"])
	}
	namespace, named := object.GetNamespace(), text(about["namespace"])
	matches := named == namespace
	switch {
	case kubever.Behaves(kubever.BehaviourEventTimeHeeded, minor) && object.Object["eventTime"] != nil:
		matches = named != "" || namespace == metav1.NamespaceSystem
	case named == "":
		matches = namespace == metav1.NamespaceNone || namespace == metav1.NamespaceDefault
	}
	if !matches {
		errs = append(errs, field.Invalid(at, named, "does not match event.namespace"))
	}
	if !kubever.Behaves(kubever.BehaviourEventKindsKnown, minor) {
		return errs
	}
	group, err := schema.ParseGroupVersion(text(about["apiVersion"]))
	kind := text(about["kind"])
	if err != nil {
		return errs
	}
	resources := kubever.APIResources(minor)
	of := slices.IndexFunc(resources, func(r kubever.APIResource) bool {
		return r.Kind == kind && r.Group == group.Group && (group.Version == "" || r.Version == group.Version)
	})
	switch {
	case of < 0:
	case resources[of].Namespaced && named == "":
		errs = append(errs, field.Required(at, "required for kind "+kind))
	case !resources[of].Namespaced && named != "":
		errs = append(errs, field.Invalid(at, named, fmt.Sprintf("not allowed for kind %s", kind)))
	}
	return errs
}

func text(value any) string {
	s, _ := value.(string)
	return s
}
