package validate

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		kinds:     []string{"CustomResourceDefinition"},
		behaviour: kubever.BehaviourCRDConversionPrunes,
		refuses: func(object *unstructured.Unstructured) field.ErrorList {
			spec := fields(object.Object["spec"])
			strategy := text(fields(spec["conversion"])["strategy"])
			if object.GroupVersionKind().Version == "v1" || spec["preserveUnknownFields"] == false ||
				strategy == "" || strategy == "None" {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("spec", "conversion", "strategy"), strategy,
				"must be None unless spec.preserveUnknownFields is false")}
		},
	},
	{
		kinds:     []string{"CustomResourceDefinition"},
		behaviour: kubever.BehaviourConversionReviewsV1beta1,
		refuses: func(object *unstructured.Unstructured) field.ErrorList {
			at, conversion := field.NewPath("spec", "conversion"), fields(fields(object.Object["spec"])["conversion"])
			if object.GroupVersionKind().Version == "v1" {
				at, conversion = at.Child("webhook"), fields(conversion["webhook"])
			}
			return withoutV1beta1(conversion, "conversionReviewVersions", at)
		},
	},
	{
		kinds:     []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"},
		behaviour: kubever.BehaviourAdmissionReviewsV1beta1,
		refuses: func(object *unstructured.Unstructured) (errs field.ErrorList) {
			for i, hook := range objectsIn(object.Object, "webhooks") {
				errs = append(errs,
					withoutV1beta1(hook, "admissionReviewVersions", field.NewPath("webhooks").Index(i))...)
			}
			return errs
		},
	},
	{
		kinds:     []string{"NetworkPolicy"},
		behaviour: kubever.BehaviourNetworkPeersSingle,
		refuses: func(object *unstructured.Unstructured) (errs field.ErrorList) {
			spec := fields(object.Object["spec"])
			for _, list := range []struct{ rules, peers string }{{"ingress", "from"}, {"egress", "to"}} {
				for i, rule := range objectsIn(spec, list.rules) {
					for j, peer := range objectsIn(rule, list.peers) {
						if peer["podSelector"] != nil && peer["namespaceSelector"] != nil {
							errs = append(errs, field.Forbidden(
								field.NewPath("spec", list.rules).Index(i).Child(list.peers).Index(j),
								"may not have both a podSelector and a namespaceSelector"))
						}
					}
				}
			}
			return errs
		},
	},
	{
		kinds:     []string{"Node"},
		behaviour: kubever.BehaviourNodeExternalIDRequired,
		refuses: func(object *unstructured.Unstructured) field.ErrorList {
			if object.GetAPIVersion() != "v1" || object.GetName() != "" ||
				text(fields(object.Object["spec"])["externalID"]) != "" {
				return nil
			}
			return field.ErrorList{field.Required(field.NewPath("spec", "externalID"), "where there is no name")}
		},
	},
	{
		kinds:     []string{"Endpoints"},
		behaviour: kubever.BehaviourEndpointsPortsRequired,
		refuses: func(object *unstructured.Unstructured) (errs field.ErrorList) {
			subsets, _, _ := unstructured.NestedSlice(object.Object, "subsets")
			for i, subset := range subsets {
				if fields, ok := subset.(map[string]any); ok && len(objectsIn(fields, "ports")) == 0 {
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
			if object.GetAPIVersion() != "v1" {
				return nil
			}
			return startsWithDigit(object.GetName(), field.NewPath("metadata", "name"))
		},
	},
	{
		kinds:     []string{"Ingress"},
		behaviour: kubever.BehaviourServiceNamesStrict,
		refuses: func(object *unstructured.Unstructured) (errs field.ErrorList) {
			name, whole := []string{"serviceName"}, "backend"
			if object.GroupVersionKind().Version == "v1" {
				name, whole = []string{"service", "name"}, "defaultBackend"
			}
			refused := func(backend any, at *field.Path) {
				service, _, _ := unstructured.NestedString(fields(backend), name...)
				errs = append(errs, startsWithDigit(service, at.Child(name[0], name[1:]...))...)
			}
			spec, at := fields(object.Object["spec"]), field.NewPath("spec")
			refused(spec[whole], at.Child(whole))
			for i, rule := range objectsIn(spec, "rules") {
				for j, path := range objectsIn(fields(rule["http"]), "paths") {
					paths := at.Child("rules").Index(i).Child("http", "paths")
					refused(path["backend"], paths.Index(j).Child("backend"))
				}
			}
			return errs
		},
	},
}

// startsWithDigit refuses the name of a Service that is a label of DNS, but not one of RFC 1035. What is none at all is
// refused by 1.36 too.
func startsWithDigit(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" || len(utilvalidation.IsDNS1123Label(name)) > 0 {
		return nil
	}
	for _, why := range utilvalidation.IsDNS1035Label(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	return errs
}

// withoutV1beta1 refuses a list of versions of reviews that servers know none of: they send v1beta1. A list that is not
// there is defaulted, or required.
func withoutV1beta1(of map[string]any, list string, at *field.Path) field.ErrorList {
	versions := stringsIn(of, list)
	if len(versions) == 0 || slices.Contains(versions, "v1beta1") {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child(list), versions, "servers send v1beta1 alone")}
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

// laterness is a part of a kind that older servers do not validate, up to a minor: what 1.36 requires there, they may
// do without.
type laterness struct {
	kind, part string
	until      kubever.Minor
	source     string
}

var laternesses = []laterness{
	{"TokenReview", "spec.token", 7, "pkg/registry/authentication/tokenreview/storage.go@1.7.0,1.8.15; run: 1.6.13 " +
		"answers one without a token"},
}

// podLaternesses are such parts of the pods of every kind that has some.
var podLaternesses = []struct {
	place  *regexp.Regexp
	until  kubever.Minor
	source string
}{
	{regexp.MustCompile(`spec\.affinity\.podAntiAffinity\.preferred\w+\[\d+\]\.podAffinityTerm\.topologyKey$`), 6,
		"validatePodAffinityTerm in pkg/api/validation/validation.go@1.6.13,1.7.0; run: 1.6.13 takes none for any"},
}

// maybeLater reports whether the error is about something that servers of a minor may do without.
func maybeLater(kind string, minor kubever.Minor, err *field.Error) bool {
	for _, l := range podLaternesses {
		if minor <= l.until && l.place.MatchString(err.Field) {
			return true
		}
	}
	return slices.ContainsFunc(laternesses, func(l laterness) bool {
		return l.kind == kind && within(err.Field, l.part) && minor <= l.until
	})
}

// within reports whether a path is that of a part, or leads into it.
func within(path, part string) bool {
	rest, inside := strings.CutPrefix(path, part)
	return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// ofPodsAlone reports whether an error is about something that servers of the minor do not look at until a controller
// creates a pod or a claim of it: the object is accepted.
func ofPodsAlone(gvk schema.GroupVersionKind, minor kubever.Minor, err *field.Error) bool {
	if gvk.Kind != "StatefulSet" || gvk.Group != "apps" ||
		!kubever.Behaves(kubever.BehaviourStatefulSetPodsUnjudged, minor) {
		return false
	}
	switch err.Field {
	case "spec.template.spec.restartPolicy", "spec.template.spec.activeDeadlineSeconds":
		return false // they are the StatefulSet's own
	}
	return within(err.Field, "spec.template.spec") || within(err.Field, "spec.volumeClaimTemplates")
}
