package spec

import (
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// retired checks what a control plane needs that runs without its legacy side.
func (v *validator) retired() {
	s := &v.file.Spec
	const at = "spec.legacy.retired"
	if s.Modern.Retired {
		v.addf("spec.modern.retired", "true: only the legacy side may be retired")
	}
	if !s.Legacy.Retired {
		return
	}
	if s.Layout == LayoutShared {
		v.addf(at, "true: layout shared has one store, in which the modern API server may not write all that it "+
			"would as the only one: want layout split")
	}
	if s.Modern.ControllerManager == nil {
		v.addf("spec.modern.controllerManager",
			"is missing; want {}: with the legacy side retired no other controllers "+
				"run")
	}
	if s.Modern.Scheduler == nil {
		v.addf("spec.modern.scheduler", "is missing; want {}: with the legacy side retired no other component places "+
			"pods")
	}
	if s.Kubelet.Modern == nil {
		v.addf("spec.kubelet.modern", "is missing; want the version of the kubelets: with the legacy side retired all "+
			"of them are connected to the modern API server")
	}
	for i, entry := range s.HandedOver {
		if namespace, resource := SplitHandOver(entry); namespace != "" {
			v.addf(index("spec.handedOver", i), "%q: with the legacy side retired no controllers are left for other "+
				"namespaces: hand %s over in all of them before, and name it without a namespace", entry, resource)
		}
	}
	if missing := v.rolesNotCopied(); len(missing) > 0 {
		v.addf("spec.handedOver",
			"%s: with the legacy side retired the modern API server authorizes by its own roles: "+
				"want those of the legacy side copied", strings.Join(missing, ", "))
	}
}

// rolesNotCopied are the roles and bindings that both versions have and of which the modern side has no copies.
func (v *validator) rolesNotCopied() (missing []string) {
	for _, set := range kubever.HandOvers() {
		for _, key := range set.Subjects {
			named := slices.ContainsFunc(v.file.Spec.HandedOver, func(pattern string) bool {
				r, found := kubever.ResourceFor(SplitResource(pattern))
				return found && r.Key == key
			})
			if set.Copied && v.bothHave(key) && !named {
				missing = append(missing, handOverName(key))
			}
		}
	}
	return missing
}
