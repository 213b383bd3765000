package validate

import (
	"fmt"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// endedKinds are kinds that ended, with what servers refuse of their objects: 1.36 has no validation of them.
var endedKinds = map[schema.GroupKind]func(v *validation, object *unstructured.Unstructured) (field.ErrorList, error){
	{Group: "policy", Kind: "PodSecurityPolicy"}:      (*validation).securityPolicy,
	{Group: "extensions", Kind: "PodSecurityPolicy"}:  (*validation).securityPolicy,
	{Group: "extensions", Kind: "ThirdPartyResource"}: (*validation).thirdPartyResource,
	{Group: "settings.k8s.io", Kind: "PodPreset"}:     (*validation).podPreset,
}

// ended are the errors of an object of a kind that ended, and those that its servers may not have; none for others.
func (v *validation) ended(object *unstructured.Unstructured) (refused, doubts field.ErrorList, _ error) {
	validate := endedKinds[object.GroupVersionKind().GroupKind()]
	if validate == nil {
		return nil, nil, nil
	}
	errs, err := validate(v, object)
	if object.GetKind() == "PodPreset" { // its parts are judged as 1.36 judges pods
		for _, err := range errs {
			if err.Type == field.ErrorTypeInvalid {
				doubts = append(doubts, err)
			} else {
				refused = append(refused, err)
			}
		}
		errs = refused
	}
	named := &metav1.ObjectMeta{Name: object.GetName(), Namespace: object.GetNamespace(), Labels: object.GetLabels(),
		Annotations: object.GetAnnotations()}
	if named.Name == "" && object.GetGenerateName() != "" {
		named.Name = object.GetGenerateName() + "xxxxx"
	}
	inNamespace := namespaced(object.GroupVersionKind())
	switch {
	case !inNamespace:
		named.Namespace = ""
	case named.Namespace == "":
		named.Namespace = metav1.NamespaceDefault
	}
	return append(errs, apivalidation.ValidateObjectMetaAccessor(named, inNamespace, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))...), doubts, err
}

// strategies are the rules of a policy, and the values that they may have. Values that came later are in the table of
// values. Source: validation.go in pkg/apis/extensions/validation@1.6.13 and pkg/apis/policy/validation@1.15.12.
var strategies = []struct {
	name     string
	optional bool
	rules    []string
}{
	{"runAsUser", false, []string{"MustRunAs", "MustRunAsNonRoot", "RunAsAny"}},
	{"runAsGroup", true, []string{"MayRunAs", "MustRunAs", "RunAsAny"}},
	{"seLinux", false, []string{"MustRunAs", "RunAsAny"}},
	{"supplementalGroups", false, []string{"MayRunAs", "MustRunAs", "RunAsAny"}},
	{"fsGroup", false, []string{"MayRunAs", "MustRunAs", "RunAsAny"}},
}

func (v *validation) securityPolicy(object *unstructured.Unstructured) (errs field.ErrorList, _ error) {
	spec, at := fields(object.Object["spec"]), field.NewPath("spec")
	for _, s := range strategies {
		strategy := fields(spec[s.name])
		if s.optional && strategy == nil {
			continue
		}
		if rule := text(strategy["rule"]); !slices.Contains(s.rules, rule) {
			errs = append(errs, field.NotSupported(at.Child(s.name, "rule"), rule, s.rules))
		}
		ranges := objectsIn(strategy, "ranges")
		if s.name == "runAsGroup" && (len(ranges) == 0) != (strategy["rule"] == "RunAsAny") {
			errs = append(errs, field.Invalid(at.Child(s.name, "ranges"), len(ranges),
				"must be given unless the rule is RunAsAny"))
		}
		if s.name != "seLinux" {
			errs = append(errs, idRanges(ranges, at.Child(s.name, "ranges"))...)
		}
	}
	errs = append(errs, v.policyProfiles(object.GetAnnotations())...)
	known := policyVolumes(v.minor)
	for i, volume := range stringsIn(spec, "volumes") {
		if !slices.Contains(known, volume) {
			errs = append(errs, field.NotSupported(at.Child("volumes").Index(i), volume, known))
		}
	}
	errs = append(errs, policyCapabilities(spec, at)...)
	if spec["defaultAllowPrivilegeEscalation"] == true && spec["allowPrivilegeEscalation"] == false {
		errs = append(errs, field.Invalid(at.Child("defaultAllowPrivilegeEscalation"), true,
			"may not be true where allowPrivilegeEscalation is false"))
	}
	for i, allowed := range objectsIn(spec, "allowedHostPaths") {
		switch prefix := text(allowed["pathPrefix"]); {
		case prefix == "":
			errs = append(errs, field.Required(at.Child("allowedHostPaths").Index(i).Child("pathPrefix"), ""))
		case slices.Contains(strings.Split(prefix, "/"), ".."):
			errs = append(errs, field.Invalid(at.Child("allowedHostPaths").Index(i).Child("pathPrefix"), prefix,
				"must not contain '..'"))
		}
	}
	for _, drivers := range []struct{ list, name string }{
		{"allowedFlexVolumes", "driver"}, {"allowedCSIDrivers", "name"},
	} {
		for i, driver := range objectsIn(spec, drivers.list) {
			if text(driver[drivers.name]) == "" {
				errs = append(errs, field.Required(at.Child(drivers.list).Index(i).Child(drivers.name), ""))
			}
		}
	}
	return errs, nil
}

// policyProfiles are the errors of the annotations that name profiles. Source:
// ValidatePodSecurityPolicySpecificAnnotations in pkg/apis/extensions/validation/validation.go@1.6.13,1.10.13 and
// pkg/apis/policy/validation/validation.go@1.15.12.
func (v *validation) policyProfiles(annotations map[string]string) (errs field.ErrorList) {
	seccomp := []string{"docker/default", "unconfined"}
	if kubever.Behaves(kubever.BehaviourSeccompRuntimeDefault, v.minor) {
		seccomp = append(seccomp, "runtime/default")
	}
	appArmor := []string{"", "runtime/default"}
	if !kubever.Behaves(kubever.BehaviourAppArmorUnconfinedRefused, v.minor) {
		appArmor = append(appArmor, "unconfined")
	}
	for _, of := range []struct {
		group string
		known []string
		any   bool // may be allowed
	}{
		{"apparmor.security.beta.kubernetes.io/", appArmor, false},
		{"seccomp.security.alpha.kubernetes.io/", seccomp, kubever.Behaves(kubever.BehaviourPolicyAnySeccomp, v.minor)},
	} {
		for _, name := range []string{"defaultProfileName", "allowedProfileNames"} {
			text, profiles := annotations[of.group+name], []string{annotations[of.group+name]}
			if name == "allowedProfileNames" {
				profiles = strings.Split(text, ",")
			}
			for _, profile := range profiles {
				local, isLocal := strings.CutPrefix(profile, "localhost/")
				isLocal = isLocal && (of.group[0] == 'a' || !strings.HasPrefix(local, "/") &&
					!slices.Contains(strings.Split(local, "/"), ".."))
				if text != "" && !isLocal && !slices.Contains(of.known, profile) &&
					!(of.any && profile == "*" && name == "allowedProfileNames") {
					at := field.NewPath("metadata", "annotations").Key(of.group + name)
					errs = append(errs, field.Invalid(at, profile, "is no profile there"))
				}
			}
		}
	}
	return errs
}

func policyCapabilities(spec map[string]any, at *field.Path) (errs field.ErrorList) {
	drops := stringsIn(spec, "requiredDropCapabilities")
	if len(drops) > 0 && slices.Contains(stringsIn(spec, "allowedCapabilities"), "*") {
		errs = append(errs, field.Invalid(at.Child("requiredDropCapabilities"), drops,
			"must be empty where all capabilities are allowed"))
	}
	for _, list := range []string{"defaultAddCapabilities", "allowedCapabilities"} {
		for i, capability := range stringsIn(spec, list) {
			if slices.Contains(drops, capability) {
				errs = append(errs, field.Invalid(at.Child(list).Index(i), capability,
					"is in requiredDropCapabilities, too"))
			}
		}
	}
	return errs
}

// policyVolumes are the names of the volumes of pods, as policies spell them, and of all.
func policyVolumes(minor kubever.Minor) []string {
	known := []string{"*"}
	for _, name := range kubever.Fields("v1.Volume", minor) {
		switch name {
		case "name":
		case "cephfs":
			known = append(known, "cephFS")
		default:
			known = append(known, name)
		}
	}
	return known
}

func idRanges(ranges []map[string]any, at *field.Path) (errs field.ErrorList) {
	for i, ids := range ranges {
		lowest, _ := ids["min"].(int64)
		highest, _ := ids["max"].(int64)
		for name, value := range map[string]int64{"min": lowest, "max": highest} {
			if value < 0 {
				errs = append(errs, field.Invalid(at.Index(i).Child(name), value, "cannot be negative"))
			}
		}
		if lowest > highest {
			errs = append(errs, field.Invalid(at.Index(i).Child("min"), lowest, "cannot be greater than max"))
		}
	}
	return errs
}

// Source: pkg/apis/extensions/validation/validation.go@1.6.13.
func (v *validation) thirdPartyResource(object *unstructured.Unstructured) (errs field.ErrorList, _ error) {
	if name := object.GetName(); strings.Count(name, ".") < 2 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name,
			"must be at least three segments long: <kind>.<domain>.<tld>"))
	}
	versions, at, seen := objectsIn(object.Object, "versions"), field.NewPath("versions"), map[string]bool{}
	if len(versions) == 0 {
		errs = append(errs, field.Required(at, "must specify at least one version"))
	}
	for i, version := range versions {
		name := text(version["name"])
		for _, why := range utilvalidation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), name, why))
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("name"), name))
		}
		seen[name] = true
	}
	return errs, nil
}

// podPreset judges what the preset brings into pods as it stands in one: servers validate it by the same functions.
// Source: pkg/apis/settings/validation/validation.go@1.6.13 and 1.10.13.
func (v *validation) podPreset(object *unstructured.Unstructured) (errs field.ErrorList, _ error) {
	spec, at := fields(object.Object["spec"]), field.NewPath("spec")
	ofContainer := []string{"env", "envFrom", "volumeMounts"}
	container := map[string]any{"name": "preset", "image": "preset"}
	some := spec["volumes"] != nil
	for _, name := range ofContainer {
		if value := spec[name]; value != nil {
			container[name], some = value, true
		}
	}
	if !some {
		errs = append(errs, field.Required(at, "must specify at least one of env, envFrom, volumeMounts, volumes"))
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "preset"},
		"spec":     map[string]any{"containers": []any{container}, "volumes": spec["volumes"]},
	}}
	within := validation{converter: v.converter, in: pod, out: pod, minor: v.minor}
	ofPod, err := within.errors(pod)
	if err != nil {
		return nil, fmt.Errorf("judging what it brings into pods: %w", err)
	}
	for _, err := range append(ofPod, stricterPods(pod, v.minor)...) {
		inside, ok := strings.CutPrefix(err.Field, "spec.containers[0].")
		name, _, _ := strings.Cut(inside, "[")
		switch {
		case ok && slices.Contains(ofContainer, name):
			err.Field = "spec." + inside
		case !strings.HasPrefix(err.Field, "spec.volumes"):
			continue
		}
		errs = append(errs, err)
	}
	return errs, nil
}

// stringsIn are the elements of a list of words.
func stringsIn(object map[string]any, name string) []string {
	list, _ := object[name].([]any)
	words := make([]string, len(list))
	for i, element := range list {
		words[i] = text(element)
	}
	return words
}
