package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// storageRules are about arguments with which a side stores or serves other than its version does by itself.
func storageRules() []rule {
	return []rule{{finding.Rule{
		ID: "FUS225", Title: "An argument changes what a side stores",
		Why: "The plan assumes the versions in which each side's release stores and serves its resources. " +
			"--storage-versions (up to 1.13), --emulated-version and --min-compatibility-version (new servers), a " +
			"group that --runtime-config disables, and feature gates of the allocators change them: what the plan " +
			"says about which side can decode which objects no longer holds.",
		Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
		Evidence: finding.Evidence{
			Seen: "1.36.3 with --emulated-version=kube=1.33 accepts gates that it refuses otherwise and writes the " +
				"ClusterIP bitmap again; 1.10.13 stored a role as --storage-versions said",
			Damage: []string{"TestArgumentsThatTheirPlanForbids"},
			Read: "storage_factory.go and pkg/kubeapiserver/options/storage_versions.go of 1.6 to 1.13; " +
				"default_storage_factory_builder.go of 1.10 to 1.36",
		},
		Bad:  example{modernServer: args("emulated-version=1.33")}.String(),
		Good: example{modernServer: args("emulated-version=1.36")}.String(),
	}, storedOtherwise}}
}

// storedOtherwise judges what the spec, not the plan, says about storing and serving.
func storedOtherwise(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, side := range pair.Sides() {
		seen := map[string]bool{}
		for _, c := range p.Components {
			if c.Side != side || seen[c.Kind] {
				continue // every host has the same
			}
			seen[c.Kind] = true
			for _, a := range c.Args {
				if a.Origin == plan.FromPlan {
					continue
				}
				for _, f := range judgeStorage(p, &c, a) {
					f.Subject = fmt.Sprintf("--%s of %s", a.Name, c.Name)
					found = append(found, f)
				}
			}
		}
	}
	return found
}

func judgeStorage(p *plan.Plan, c *plan.Component, a plan.Arg) []finding.Finding {
	name := kubever.FlagName(a.Name)
	if c.Kind != kubever.APIServer && name != "emulated-version" {
		return nil
	}
	switch name {
	case "storage-versions":
		return storageVersions(p, c.Side, a.Value)
	case "emulated-version", "min-compatibility-version":
		return emulated(p, c, name, a.Value)
	case "runtime-config":
		return takenAway(p, c.Side, a.Value)
	case "feature-gates":
		return allocatorGates(p, c.Side, a.Value)
	}
	return nil
}

// storageVersions judges GROUP/VERSION and GROUP=OTHERGROUP/VERSION entries by what the plan counts with.
func storageVersions(p *plan.Plan, side pair.Side, value string) []finding.Finding {
	var changed []string
	for entry := range strings.SplitSeq(value, ",") {
		group, stored, moved := strings.Cut(strings.TrimSpace(entry), "=")
		if !moved {
			group, stored = groupOf(group), group
		}
		for i := range p.Resources {
			r := &p.Resources[i]
			fact, known := kubever.ResourceByKey(r.Key)
			if known && !r.Pseudo && r.View(side).StoredAs != "" &&
				fact.ChosenGroup(p.Side(side).Version.Minor) == group && r.View(side).StoredAs != stored &&
				slices.Contains(r.View(side).Decodes, stored) {
				changed = append(changed, fmt.Sprintf("%s as %s, not %s", r.Name, stored, r.View(side).StoredAs))
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return []finding.Finding{{Message: fmt.Sprintf("it may store %s: the plan's stored versions no longer hold",
		strings.Join(first(changed, 3), "; ")), Related: changed,
		Fix: "remove it, and rewrite what was stored with it; or accept this when each of these resources is in a " +
			"store that the other side does not read"}}
}

// emulated judges a server, or a manager, that behaves like another version.
func emulated(p *plan.Plan, c *plan.Component, flag, value string) []finding.Finding {
	own := p.Side(c.Side).Version.Minor
	usual, what := own, "it stores, serves and enables what %s does, and the plan assumes %s"
	if flag == "min-compatibility-version" {
		usual, what = own-1, "it stores what servers from %s on can decode, and the plan assumes %s"
	}
	for entry := range strings.SplitSeq(strings.Trim(value, "[]"), ",") {
		component, text, named := strings.Cut(strings.TrimSpace(entry), "=")
		if !named {
			component, text = "kube", component
		}
		version, err := kubever.Parse(text)
		if component != "kube" || err == nil && version.Minor == usual {
			continue
		}
		f := finding.Finding{Message: fmt.Sprintf(what, text, usual),
			Fix: "remove it, or plan for that version: spec." + string(c.Side) + ".version"}
		if err == nil {
			f.Related = storedApart(p, c.Side, version.Minor)
		}
		if len(f.Related) > 0 {
			f.Message += fmt.Sprintf(": it stores %s in other versions", strings.Join(first(f.Related, 5), ", "))
		}
		return []finding.Finding{f}
	}
	return nil
}

// storedApart lists what a version stores otherwise than the plan has it for the side.
func storedApart(p *plan.Plan, side pair.Side, m kubever.Minor) []string {
	var names []string
	for i := range p.Resources {
		r := &p.Resources[i]
		fact, known := kubever.ResourceByKey(r.Key)
		if stored, ok := fact.StoredAs(m); known && !r.Pseudo && r.View(side).StoredAs != "" &&
			(!ok || stored.GroupVersion().String() != r.View(side).StoredAs) {
			names = append(names, r.Name)
		}
	}
	return names
}

// takenAway judges groups and versions that --runtime-config turns off: what the plan counts on is not served, and a
// resource that two groups keep moves to the other one. What is turned on besides is stored as the version stores it.
func takenAway(p *plan.Plan, side pair.Side, value string) []finding.Finding {
	var off []string
	for entry := range strings.SplitSeq(value, ",") {
		if api, on, _ := strings.Cut(strings.TrimSpace(entry), "="); on == "false" || on == "0" {
			off = append(off, api)
		}
	}
	isOff := func(gv string) bool {
		return slices.ContainsFunc(off, func(api string) bool { return turnsOff(api, gv) })
	}
	var missed, moved []string
	for i := range p.Resources {
		r := &p.Resources[i]
		here := r.View(side)
		fact, _ := kubever.ResourceByKey(r.Key)
		if r.Pseudo || !fact.OnByDefault(p.Side(side).Version.Minor) || !slices.ContainsFunc(here.Serves, isOff) {
			continue
		}
		missed = append(missed, r.Name)
		group := groupOf(here.StoredAs)
		left := slices.DeleteFunc(slices.Clone(here.Serves), isOff)
		if len(left) > 0 && !slices.ContainsFunc(left, func(gv string) bool { return groupOf(gv) == group }) {
			moved = append(moved, fmt.Sprintf("%s as one of %s, not %s", r.Name, strings.Join(left, ", "),
				here.StoredAs))
		}
	}
	f := finding.Finding{Severity: finding.Warning, Related: missed, Fix: "remove the entries that disable it"}
	switch {
	case len(missed) == 0:
		return nil
	case len(moved) > 0:
		f.Severity = finding.Error
		f.Message = fmt.Sprintf("it disables a group under which resources are stored: %s",
			strings.Join(first(moved, 3), "; "))
	default:
		f.Message = fmt.Sprintf("it disables %s, which the plan assumes for %s", strings.Join(off, ", "),
			strings.Join(first(missed, 5), ", "))
	}
	return []finding.Finding{f}
}

// turnsOff reports whether an entry of --runtime-config is about the group and version.
func turnsOff(api, gv string) bool {
	switch api {
	case "api/all":
		return true
	case "api/ga":
		return !strings.Contains(gv, "alpha") && !strings.Contains(gv, "beta")
	case "api/beta":
		return strings.Contains(gv, "beta")
	case "api/alpha":
		return strings.Contains(gv, "alpha")
	case "api/v1":
		return gv == "v1"
	}
	return api == gv
}

// storingGates are feature gates that decide what is written to the store; the value with which each release is counted
// is its default.
var storingGates = []string{"AllAlpha", "AllBeta", "DisableAllocatorDualWrite", "MultiCIDRServiceAllocator",
	"StorageVersionAPI"}

func allocatorGates(p *plan.Plan, side pair.Side, value string) []finding.Finding {
	minor := p.Side(side).Version.Minor
	var found []finding.Finding
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		name, is, _ := strings.Cut(entry, "=")
		allocators := kubever.AllocatorsIn(minor)
		if !slices.Contains(storingGates, name) || entry == allocators.KeepBitmap || entry == allocators.EndBitmap {
			continue
		}
		byDefault := false // AllAlpha and AllBeta
		if state, known := kubever.Gate(name).At(minor); known {
			byDefault = state.Default
		} else if !strings.HasPrefix(name, "All") {
			continue // FUS074 says that there is no such gate
		}
		if is == fmt.Sprint(byDefault) {
			continue
		}
		found = append(found, finding.Finding{Severity: finding.Warning, Message: fmt.Sprintf("%s: the plan assumes "+
			"what %s stores by default", entry, minor), Fix: "remove the gate"})
	}
	return found
}
