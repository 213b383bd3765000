package validate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// podStrictness is something in a pod that servers of some minors refuse and 1.36 accepts.
type podStrictness struct {
	behaviour kubever.Behaviour // of those servers
	refuses   func(spec map[string]any, at *field.Path) field.ErrorList
}

// podStrictnesses are what servers let go of since, in every pod and template of pods.
var podStrictnesses = []podStrictness{
	{kubever.BehaviourEnvNamesIdentifiers, variables(utilvalidation.IsCIdentifier)},
	{kubever.BehaviourEnvNamesStrict, variables(utilvalidation.IsEnvVarName)},
	{kubever.BehaviourDNSSearchesFew, func(spec map[string]any, at *field.Path) field.ErrorList {
		searches, _, _ := unstructured.NestedStringSlice(spec, "dnsConfig", "searches")
		const most, mostCharacters = 6, 256
		if len(searches) <= most && len(strings.Join(searches, " ")) <= mostCharacters {
			return nil
		}
		return field.ErrorList{field.Invalid(at.Child("dnsConfig", "searches"), len(searches),
			fmt.Sprintf("must not have more than %d search paths, or more than %d characters of them", most,
				mostCharacters))}
	}},
	{kubever.BehaviourDNSSearchesStrict, func(spec map[string]any, at *field.Path) (errs field.ErrorList) {
		searches, _, _ := unstructured.NestedStringSlice(spec, "dnsConfig", "searches")
		for i, search := range searches {
			for _, why := range utilvalidation.IsDNS1123Subdomain(strings.TrimSuffix(search, ".")) {
				errs = append(errs, field.Invalid(at.Child("dnsConfig", "searches").Index(i), search, why))
			}
		}
		return errs
	}},
	{kubever.BehaviourSysctlSlashesRefused, func(spec map[string]any, at *field.Path) (errs field.ErrorList) {
		for i, sysctl := range objectsIn(fields(spec["securityContext"]), "sysctls") {
			if name, _ := sysctl["name"].(string); strings.Contains(name, "/") {
				errs = append(errs, field.Invalid(at.Child("securityContext", "sysctls").Index(i).Child("name"), name,
					"must not have slashes"))
			}
		}
		return errs
	}},
	{kubever.BehaviourSleepZeroRefused, containers(func(container map[string]any, at *field.Path) (
		errs field.ErrorList) {
		for _, hook := range []string{"postStart", "preStop"} {
			sleep := fields(fields(fields(container["lifecycle"])[hook])["sleep"])
			if seconds, _ := sleep["seconds"].(int64); sleep != nil && seconds == 0 {
				errs = append(errs, field.Invalid(at.Child("lifecycle", hook, "sleep", "seconds"), seconds,
					"must be greater than 0"))
			}
		}
		return errs
	})},
	{kubever.BehaviourRestartPolicySidecarsAlone, containers(func(container map[string]any, at *field.Path) (
		errs field.ErrorList) {
		policy, ofInit := container["restartPolicy"], strings.Contains(at.String(), "initContainers")
		if policy == nil || ofInit && policy == "Always" {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.Child("restartPolicy"), "may only be Always, of init containers")}
	})},
	{kubever.BehaviourSpreadKeysDisjoint, func(spec map[string]any, at *field.Path) (errs field.ErrorList) {
		for i, constraint := range objectsIn(spec, "topologySpreadConstraints") {
			selector, selected := fields(constraint["labelSelector"]), map[string]bool{}
			for key := range fields(selector["matchLabels"]) {
				selected[key] = true
			}
			for _, requirement := range objectsIn(selector, "matchExpressions") {
				selected[text(requirement["key"])] = true
			}
			for j, key := range stringsIn(constraint, "matchLabelKeys") {
				if selected[key] {
					errs = append(errs, field.Invalid(at.Child("topologySpreadConstraints").Index(i).
						Child("matchLabelKeys").Index(j), key, "exists in both matchLabelKeys and labelSelector"))
				}
			}
		}
		return errs
	}},
	{kubever.BehaviourNodeTermsRequired, func(spec map[string]any, at *field.Path) (errs field.ErrorList) {
		affinity, at := fields(fields(spec["affinity"])["nodeAffinity"]), at.Child("affinity", "nodeAffinity")
		const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
			"preferredDuringSchedulingIgnoredDuringExecution"
		refused := func(term map[string]any, at *field.Path) {
			if len(objectsIn(term, "matchExpressions")) == 0 {
				errs = append(errs, field.Invalid(at.Child("matchExpressions"), 0,
					"must have at least one requirement"))
			}
		}
		for i, term := range objectsIn(fields(affinity[required]), "nodeSelectorTerms") {
			refused(term, at.Child(required, "nodeSelectorTerms").Index(i))
		}
		for i, preference := range objectsIn(affinity, preferred) {
			refused(fields(preference["preference"]), at.Child(preferred).Index(i).Child("preference"))
		}
		return errs
	}},
	{kubever.BehaviourHostAliasesOfPodNetwork, func(spec map[string]any, at *field.Path) field.ErrorList {
		if spec["hostNetwork"] != true || len(objectsIn(spec, "hostAliases")) == 0 {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.Child("hostAliases"), "may not be set when hostNetwork is true")}
	}},
	{kubever.BehaviourFieldSubscriptsRefused, func(spec map[string]any, at *field.Path) (errs field.ErrorList) {
		refused := func(source any, at *field.Path) {
			for i, item := range objectsIn(fields(source), "items") {
				if path := text(fields(item["fieldRef"])["fieldPath"]); subscripted.MatchString(path) {
					errs = append(errs, field.Invalid(at.Child("items").Index(i).Child("fieldRef", "fieldPath"), path,
						"must not name one label or annotation"))
				}
			}
		}
		for i, volume := range objectsIn(spec, "volumes") {
			in := at.Child("volumes").Index(i)
			refused(volume["downwardAPI"], in.Child("downwardAPI"))
			for j, source := range objectsIn(fields(volume["projected"]), "sources") {
				refused(source["downwardAPI"], in.Child("projected", "sources").Index(j).Child("downwardAPI"))
			}
		}
		return errs
	}},
	{kubever.BehaviourFieldSubscriptsRefused, containers(func(container map[string]any, at *field.Path) (
		errs field.ErrorList) {
		for i, variable := range objectsIn(container, "env") {
			path, _ := fields(fields(variable["valueFrom"])["fieldRef"])["fieldPath"].(string)
			if subscripted.MatchString(path) {
				errs = append(errs, field.Invalid(at.Child("env").Index(i).Child("valueFrom", "fieldRef", "fieldPath"),
					path, "must not name one label or annotation"))
			}
		}
		return errs
	})},
}

var subscripted = regexp.MustCompile(`^metadata\.(labels|annotations)\[`)

// variables are refused for names that have something wrong.
func variables(wrong func(string) []string) func(map[string]any, *field.Path) field.ErrorList {
	return containers(func(container map[string]any, at *field.Path) (errs field.ErrorList) {
		for _, list := range []struct{ name, of string }{{"env", "name"}, {"envFrom", "prefix"}} {
			for i, variable := range objectsIn(container, list.name) {
				name, _ := variable[list.of].(string)
				if name == "" { // required, or said by none
					continue
				}
				for _, why := range wrong(name) {
					errs = append(errs, field.Invalid(at.Child(list.name).Index(i).Child(list.of), name, why))
				}
			}
		}
		return errs
	})
}

// containers are all of a pod.
func containers(
	refuses func(map[string]any, *field.Path) field.ErrorList,
) func(map[string]any, *field.Path) field.ErrorList {
	return func(spec map[string]any, at *field.Path) (errs field.ErrorList) {
		for _, list := range []string{"initContainers", "containers"} {
			for i, container := range objectsIn(spec, list) {
				errs = append(errs, refuses(container, at.Child(list).Index(i))...)
			}
		}
		return errs
	}
}

// objectsIn are the elements of a list; empty for one that is no object.
func objectsIn(object map[string]any, name string) []map[string]any {
	list, _ := object[name].([]any)
	objects := make([]map[string]any, len(list))
	for i, element := range list {
		objects[i] = fields(element)
	}
	return objects
}

// stricterPods are the errors of servers of the minor about the pods of an object that 1.36 does not have any more.
func stricterPods(object *unstructured.Unstructured, minor kubever.Minor) (errs field.ErrorList) {
	gvk := object.GroupVersionKind()
	place := podPlace(gvk)
	if place == nil || len(kubever.LifecycleOf(gvk).Minors) == 0 { // a custom resource may be called so
		return nil
	}
	spec, _, _ := unstructured.NestedFieldNoCopy(object.Object, place...)
	for _, s := range podStrictnesses {
		if !kubever.Behaves(s.behaviour, minor) {
			continue
		}
		errs = append(errs, s.refuses(fields(spec), field.NewPath(place[0], place[1:]...))...)
	}
	place = append(slices.Clone(place[:len(place)-1]), "metadata", "annotations")
	annotations, _, _ := unstructured.NestedFieldNoCopy(object.Object, place...)
	return append(errs, stricterAnnotations(fields(annotations), minor, field.NewPath(place[0], place[1:]...))...)
}

// sysctlAnnotations are those in which pods named sysctls before there was a field.
var sysctlAnnotations = []string{
	"security.alpha.kubernetes.io/sysctls", "security.alpha.kubernetes.io/unsafe-sysctls",
}

// stricterAnnotations are the errors of servers of the minor about annotations of pods that 1.36 does not heed any
// more.
func stricterAnnotations(annotations map[string]any, minor kubever.Minor, at *field.Path) (errs field.ErrorList) {
	if len(annotations) == 0 {
		return nil
	}
	if kubever.Behaves(kubever.BehaviourAppArmorUnconfinedRefused, minor) {
		for _, name := range slices.Sorted(maps.Keys(annotations)) {
			if strings.HasPrefix(name, "container.apparmor.security.beta.kubernetes.io/") &&
				annotations[name] == "unconfined" {
				errs = append(errs, field.Invalid(at.Key(name), "unconfined", "is no profile of AppArmor there"))
			}
		}
	}
	if !kubever.Behaves(kubever.BehaviourSysctlAnnotationsJudged, minor) {
		return errs
	}
	seen := map[string]bool{}
	for _, name := range sysctlAnnotations {
		list := text(annotations[name])
		if list == "" {
			continue
		}
		for pair := range strings.SplitSeq(list, ",") {
			sysctl, value, ok := strings.Cut(pair, "=")
			switch {
			case !ok || sysctl == "" || strings.Contains(value, "="):
				errs = append(errs, field.Invalid(at.Key(name), list, "want name=value,name=value"))
			case !corevalidation.IsValidSysctlName(sysctl) || strings.Contains(sysctl, "/"):
				errs = append(errs, field.Invalid(at.Key(name), sysctl, "is no name of a sysctl there"))
			case name == sysctlAnnotations[1] && seen[sysctl]:
				errs = append(errs, field.Invalid(at.Key(name), sysctl, "can not be safe and unsafe"))
			}
			if name == sysctlAnnotations[0] {
				seen[sysctl] = true
			}
		}
	}
	return errs
}

// unjudged reports whether an error is about a part of pods that servers of the minor do not validate.
func unjudged(gvk schema.GroupVersionKind, minor kubever.Minor, err *field.Error) bool {
	return podPlace(gvk) != nil && envFrom.MatchString(err.Field) &&
		kubever.Behaves(kubever.BehaviourEnvFromUnjudged, minor)
}

var envFrom = regexp.MustCompile(`ontainers\[\d+\]\.envFrom\b`)

// podPlace is where a kind of Kubernetes has the spec of a pod; nil for one that has none.
func podPlace(kind schema.GroupVersionKind) []string {
	switch kind.Kind {
	case "Pod":
		return []string{"spec"}
	case "PodTemplate":
		return []string{"template", "spec"}
	case "Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "ReplicationController", "Job":
		return []string{"spec", "template", "spec"}
	case "CronJob", "ScheduledJob":
		return []string{"spec", "jobTemplate", "spec", "template", "spec"}
	}
	return nil
}
