package validate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// strictness is something that servers of some minors refuse and 1.36 accepts.
type strictness struct {
	kinds     []string
	behaviour kubever.Behaviour // of those servers
	refuses   func(object *unstructured.Unstructured) field.ErrorList
}

// strictnesses are what servers let go of since.
var strictnesses = []strictness{
	{
		kinds:     []string{"CustomResourceDefinition"},
		behaviour: kubever.BehaviourCRDVersionRequired,
		refuses: func(object *unstructured.Unstructured) field.ErrorList {
			if version, _, _ := unstructured.NestedString(object.Object, "spec", "version"); version == "" {
				return field.ErrorList{field.Required(field.NewPath("spec", "version"), "")}
			}
			return nil
		},
	},
	{
		kinds:     []string{"Endpoints"},
		behaviour: kubever.BehaviourEndpointsPortsRequired,
		refuses: func(object *unstructured.Unstructured) (errs field.ErrorList) {
			subsets, _, _ := unstructured.NestedSlice(object.Object, "subsets")
			for i, subset := range subsets {
				if fields, ok := subset.(map[string]any); ok && fields["ports"] == nil {
					errs = append(errs, field.Required(field.NewPath("subsets").Index(i).Child("ports"), ""))
				}
			}
			return errs
		},
	},
	{
		kinds:     []string{"Service"},
		behaviour: kubever.BehaviourMixedProtocolsRefused,
		refuses: func(object *unstructured.Unstructured) field.ErrorList {
			if kind, _, _ := unstructured.NestedString(object.Object, "spec", "type"); kind != "LoadBalancer" {
				return nil
			}
			protocols := map[string]bool{}
			ports, _, _ := unstructured.NestedSlice(object.Object, "spec", "ports")
			for _, port := range ports {
				if fields, ok := port.(map[string]any); ok {
					protocol, _ := fields["protocol"].(string)
					protocols[cmp.Or(protocol, "TCP")] = true
				}
			}
			if len(protocols) < 2 {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("spec", "ports"),
				strings.Join(slices.Sorted(maps.Keys(protocols)), ", "),
				"may not contain more than 1 protocol when type is 'LoadBalancer'")}
		},
	},
	{
		kinds:     []string{"Service"},
		behaviour: kubever.BehaviourServiceNamesStrict,
		refuses: func(object *unstructured.Unstructured) (errs field.ErrorList) {
			name := object.GetName()
			if object.GetAPIVersion() != "v1" || name == "" || len(utilvalidation.IsDNS1123Label(name)) > 0 {
				return nil
			}
			for _, why := range utilvalidation.IsDNS1035Label(name) {
				errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name, why))
			}
			return errs
		},
	},
}

// stricter are the errors of servers of the minor that 1.36 does not have any more; those of the words of schemas where
// they are asked for.
func stricter(object *unstructured.Unstructured, minor kubever.Minor, words bool) (errs field.ErrorList) {
	for _, s := range strictnesses {
		if slices.Contains(s.kinds, object.GetKind()) && kubever.Behaves(s.behaviour, minor) {
			errs = append(errs, s.refuses(object)...)
		}
	}
	errs = append(errs, stricterPods(object, minor)...)
	errs = append(errs, stricterEvents(object, minor)...)
	if gvk := object.GroupVersionKind(); words && isDefinition(gvk) && gvk.Version != "v1" {
		var refused field.ErrorList
		wordsRefused(object.Object, minor, func(_ schemaAt, _, at string) {
			refused = append(refused, field.Forbidden(field.NewPath(at), "may not be set"))
		})
		slices.SortFunc(refused, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
		errs = append(errs, refused...)
	}
	return errs
}

// laterness is a part of a kind that older servers do not validate, up to a minor or, with 0, until some minor that the
// table does not know: what 1.36 requires there, they may do without.
type laterness struct {
	kind, part string
	until      kubever.Minor
	source     string
}

var laternesses = []laterness{
	{"TokenReview", "spec.token", 7, "pkg/registry/authentication/tokenreview/storage.go@1.7.0,1.8.15; run: 1.6.13 " +
		"answers one without a token"},
	{"StatefulSet", "spec.template.spec", 0, "pkg/apis/apps/validation/validation.go@1.15.12,1.17.17 leaves its " +
		"PodSpec unvalidated; run: 1.10.13 and 1.15.12 accept a StatefulSet without containers"},
	{"StatefulSet", "spec.volumeClaimTemplates", 0,
		"the same files; run: 1.10.13 and 1.15.12 accept claims without access modes"},
}

// maybeLater reports whether the error is about something that servers of a minor may do without.
func maybeLater(kind string, minor kubever.Minor, err *field.Error) bool {
	return slices.ContainsFunc(laternesses, func(l laterness) bool {
		rest, inside := strings.CutPrefix(err.Field, l.part)
		inside = inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
		return l.kind == kind && inside && (l.until == 0 || minor <= l.until)
	})
}
