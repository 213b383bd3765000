package validate

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// podStrictness is something in a pod that servers of some minors refuse and 1.36 accepts.
type podStrictness struct {
	behaviour kubever.Behaviour // of those servers
	refuses   func(spec map[string]any, at *field.Path) field.ErrorList
}

// podStrictnesses are what servers let go of since, in every pod and template of pods. Of StatefulSets servers do not
// validate the template: their controllers cannot create the pods.
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
		for _, err := range s.refuses(fields(spec), field.NewPath(place[0], place[1:]...)) {
			if gvk.Kind == "StatefulSet" {
				err.Detail = "its pods are refused: " + err.Detail
			}
			errs = append(errs, err)
		}
	}
	return errs
}

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
