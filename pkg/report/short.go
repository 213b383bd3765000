package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/graph"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// point is one thing that a reader wants to know before anything else, in sentences, and the part that has the details.
type point struct{ Title, Text, Part string }

// short says what will happen to the cluster, for a reader who reads no further.
func (in *Input) short() []point {
	list := []point{
		{"What starts", in.starts(), "components"},
		{"What changes on the legacy side", in.changesOfLegacy(), in.partOfChanges()},
		{"Pods and nodes", in.podsAndNodes(), "runbook"},
		{"What the sides share", in.shares(), "resources"},
		{"Who may use the modern API server", in.users(), "policy"},
	}
	if text := in.dangers(); text != "" {
		list = append(list, point{"What is lost, or may be", text, "findings"})
	}
	if text := in.acceptedRisks(); text != "" {
		list = append(list, point{"What was accepted", text, "findings"})
	}
	list = append(list, point{"The way back", in.wayBack(), "runbook"},
		point{"What this rests on", in.grounds(), "evidence"})
	if missing := in.notLookedAt(); len(missing) > 0 {
		list = append(list, point{"Not looked at", strings.Join(missing, " "), ""})
	}
	for i := range list {
		if list[i].Part == "runbook" && len(in.Runbook) == 0 {
			list[i].Part = ""
		}
	}
	return list
}

// starts names the processes that are not there today, and those of the modern side that run with other flags.
func (in *Input) starts() string {
	var names, hosts, again []string
	for _, c := range in.Plan.Components {
		if c.Side == pair.Legacy || c.Side != "" && in.Plan.Side(c.Side).Existing {
			continue
		}
		if d := in.difference(c.Name, c.Host); d != nil && d.State != render.New {
			if d.State == render.Changed {
				again = append(again, different(d))
			}
			continue
		}
		if name := strings.TrimSpace(c.Name + " " + c.Version); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !slices.Contains(hosts, c.Host) {
			hosts = append(hosts, c.Host)
		}
	}
	var text string
	switch {
	case len(names) == 0:
		text = "Nothing: every component runs already."
	case in.Plan.Target == plan.Hosted:
		text = enumerated(names) + ", as pods of the cluster that hosts them."
	default:
		text = enumerated(names) + ", on " + enumerated(hosts) + "."
	}
	if len(again) > 0 {
		text += " Started again with other flags: " + enumerated(again) + "."
	}
	if g := in.Plan.Gateway; g.Serves() {
		serves := "the objects of both sides"
		if in.Plan.Legacy.Retired {
			serves = "old clients, too,"
		}
		text += " The gateway serves " + serves + " at " + g.Component.Server + "."
	}
	return text
}

// difference is what --diff found of a component; nil without it.
func (in *Input) difference(component, host string) *render.Difference {
	at := slices.IndexFunc(in.Differences, func(d render.Difference) bool {
		return d.Component == component && d.Host == host
	})
	if at < 0 {
		return nil
	}
	return &in.Differences[at]
}

// different names a component that differs, and counts in what.
func different(d *render.Difference) string {
	return fmt.Sprintf("%s on %s (%s)", d.Component, d.Host, prose.Counted(len(d.Changes), "difference"))
}

func (in *Input) partOfChanges() string {
	if in.DiffOf != "" {
		return "changes"
	}
	return "components"
}

// changesOfLegacy says what becomes of the components that serve the cluster today.
func (in *Input) changesOfLegacy() string {
	var text strings.Builder
	servers := in.Plan.ComponentsOf(pair.Legacy, kubever.APIServer)
	restarted := false // the API server is
	switch {
	case in.DiffOf != "":
		said, of := in.differencesOfLegacy()
		text.WriteString(said)
		restarted = slices.Contains(of, kubever.APIServer)
	case in.Plan.Legacy.Existing:
		var changed []string
		for _, p := range in.processes() {
			if n := len(p.Removed) + flagsOfPlan(p.Args); p.Side == pair.Legacy && n > 0 {
				changed = append(changed, fmt.Sprintf("%s on %s (%s)", p.Name, enumerated(p.Hosts),
					prose.Counted(n, "flag")))
				restarted = restarted || p.Kind == kubever.APIServer
			}
		}
		if len(changed) == 0 {
			text.WriteString("No flag of it changes.")
		} else {
			text.WriteString("Started again with other flags, one host after the other: " + enumerated(changed) +
				". Every other flag stays as it is.")
		}
	default:
		var names []string
		for _, c := range in.Plan.Components {
			if c.Side == pair.Legacy && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
		if len(names) == 0 {
			return "This plan has no component of it."
		}
		text.WriteString("This plan has every flag of " + enumerated(names) + ": where they run already, they are " +
			"started again with these, " + in.rollout() + ".")
		restarted = len(servers) > 0
	}
	if restarted && len(servers) == 1 {
		text.WriteString(" There is one legacy API server: while it starts, nothing can be read or changed, and what " +
			"runs keeps running.")
	}
	for _, c := range in.Plan.Controllers {
		fact, known := kubever.ControllerByName(c.ID)
		if c.Side == pair.Legacy && !c.On && known && fact.DefaultOn(in.Plan.Legacy.Version.Minor) {
			text.WriteString(" Its controller " + c.Name + " is off: " + strings.TrimSuffix(c.Why, ".") + ".")
		}
	}
	if in.Plan.Joint != nil {
		text.WriteString(" The controllers of fusionctl see both sides and do what neither controller manager can.")
	}
	return text.String()
}

// rollout is how components of the plan are started again.
func (in *Input) rollout() string {
	if in.Plan.Target == plan.Hosted {
		return "as pods of the cluster that hosts them"
	}
	return "one host after the other"
}

// flagsOfPlan counts the arguments that a component has by the plan, and not by the spec alone.
func flagsOfPlan(args []plan.Arg) int {
	n := 0
	for _, a := range args {
		if a.Origin != plan.FromSpec {
			n++
		}
	}
	return n
}

// differencesOfLegacy counts what --diff found of the legacy side's components, and names the kinds of those that
// differ.
func (in *Input) differencesOfLegacy() (text string, kinds []string) {
	var changed, missing []string
	for _, c := range in.Plan.Components {
		if c.Side != pair.Legacy {
			continue
		}
		d := in.difference(c.Name, c.Host)
		switch {
		case d == nil:
		case d.State == render.Changed:
			changed = append(changed, different(d))
			kinds = append(kinds, c.Kind)
		case d.State != render.Same:
			missing = append(missing, c.Name+" on "+c.Host)
		}
	}
	text = "Against " + in.DiffOf + ", nothing differs."
	if len(changed) > 0 {
		text = "Against " + in.DiffOf + ", these differ and are started again, one host after the other: " +
			enumerated(changed) + "."
	}
	if len(missing) > 0 {
		text += " Not found there: " + enumerated(missing) + "."
	}
	return text, kinds
}

// podsAndNodes says what becomes of what runs.
func (in *Input) podsAndNodes() string {
	p := in.Plan
	var names []string
	for _, n := range p.Nodes {
		names = append(names, n.Name)
	}
	text := fmt.Sprintf("Kubelets %s and their pods stay with the legacy API server.", p.Kubelet)
	if len(names) > 0 {
		text = fmt.Sprintf("Kubelets %s stay with the legacy API server, but for those of %s: transitions take them "+
			"over to the modern one, one node after the other.", p.Kubelet, enumerated(names))
	}
	if p.ModernKubelet != nil && len(names) == 0 {
		text += fmt.Sprintf(" Others, %s, may be connected to the modern one: the plan gives them their permissions.",
			p.ModernKubelet)
	}
	if len(in.Runbook) > 0 {
		text += " The runbook notes every pod before its first step, and verifies afterwards that none is gone or " +
			"was replaced."
	}
	if r := in.Restarts; r != nil && r.Incomplete == "" {
		text += fmt.Sprintf(" Kubelets that go from %s to %s restart %s of %s, and keep %d.", r.From, r.To,
			prose.Counted(r.Summary.Restart, "container"), prose.Counted(r.Pods, "pod"), r.Summary.Keep)
		if r.Summary.Unknown > 0 {
			text += fmt.Sprintf(" Of %d it is not known.", r.Summary.Unknown)
		}
	}
	return text
}

// shares says what is one, and what each side has for itself.
func (in *Input) shares() string {
	var one, own, legacy []string
	for _, r := range in.Plan.Resources {
		name := r.Name
		if r.Pseudo || name == "" {
			continue
		}
		switch {
		case r.Owner == pair.OwnerShared && !slices.Contains(one, name):
			one = append(one, name)
		case r.Owner == pair.OwnerSplit && !slices.Contains(own, name):
			own = append(own, name)
		case r.Owner == pair.OwnerLegacy && r.Modern.Store != "" && !slices.Contains(legacy, name):
			legacy = append(legacy, name)
		}
	}
	var sentences []string
	if len(one) > 0 {
		sentences = append(sentences, "Seen and written through both API servers: "+best(one)+".")
	}
	if len(legacy) > 0 {
		sentences = append(sentences, "Seen through both, written through the legacy one alone: "+best(legacy)+".")
	}
	if len(own) > 0 {
		sentences = append(sentences, "Each side has its own "+best(own)+
			": what is created through one API server is not there through the other.")
	}
	if in.Plan.CustomResources.Owner == pair.OwnerSplit {
		sentences = append(sentences, "The same holds for custom resources.")
	}
	return strings.Join(append(sentences, "No key is moved: what the legacy side has stays where it is."), " ")
}

// best names the resources by which people know a cluster, and counts the others.
func best(names []string) string {
	const shown = 6
	names = graph.ByRenown(names)
	if len(names) > shown+1 {
		names = append(names[:shown:shown], fmt.Sprintf("%d more", len(names)-shown))
	}
	return enumerated(names)
}

// users names who may do something through the modern API server.
func (in *Input) users() string {
	var writers, readers []string
	risks := 0
	for _, g := range in.grants() {
		if g.Purpose != policy.ForUsers {
			continue
		}
		if g.Risk != "" {
			risks++
		}
		for _, s := range g.Subjects {
			who := strings.ToLower(string(s.Kind)[:1]) + string(s.Kind)[1:] + " " +
				strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")
			if who = strings.Replace(who, "serviceAccount", "service account", 1); g.ReadOnly {
				readers = append(readers, who)
			} else {
				writers = append(writers, who)
			}
		}
	}
	slices.Sort(writers)
	slices.Sort(readers)
	writers, readers = slices.Compact(writers), slices.Compact(readers)
	readers = slices.DeleteFunc(readers, func(who string) bool { return slices.Contains(writers, who) })
	var sentences []string
	if len(writers) > 0 {
		sentences = append(sentences, "May write: "+enumerated(writers)+".")
	}
	if len(readers) > 0 {
		sentences = append(sentences, "May read: "+enumerated(readers)+".")
	}
	if len(sentences) == 0 {
		sentences = append(sentences, "No user.")
	}
	if risks > 0 {
		sentences = append(sentences, prose.Plural(risks, "grant deserves", "grants deserve")+" a second look.")
	}
	return strings.Join(sentences, " ")
}

// dangers are the rules that found something which matters, with what they are about.
func (in *Input) dangers() string {
	titles := map[string]string{}
	for _, r := range in.explained() {
		titles[r.ID] = r.Title
	}
	var order []string
	times := map[string]int{}
	for _, f := range in.allFindings() {
		if f.Severity < finding.Warning {
			continue
		}
		if times[f.Rule] == 0 {
			order = append(order, f.Rule)
		}
		times[f.Rule]++
	}
	var parts []string
	for _, id := range order {
		part := strings.TrimSuffix(titles[id], ".") + " (" + id
		if n := times[id]; n > 1 {
			part += fmt.Sprintf(", %d times", n)
		}
		parts = append(parts, part+").")
	}
	return strings.Join(parts, " ")
}

// acceptedRisks are the rules whose findings the spec takes responsibility for, with the reasons that it gives.
func (in *Input) acceptedRisks() string {
	titles := map[string]string{}
	for _, r := range in.explained() {
		titles[r.ID] = r.Title
	}
	var parts []string
	for _, a := range in.accepted() {
		part := fmt.Sprintf("%s (%s), because: %s.", strings.TrimSuffix(titles[a.Rule], "."), a.Rule,
			strings.TrimSuffix(a.Reason, "."))
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// wayBack says what undoing the plan leaves behind.
func (in *Input) wayBack() string {
	p := in.Plan
	text := "Every step is verified, and each has its way back."
	if p.Joint != nil && p.Joint.Collects {
		text += " What the controllers of fusionctl have collected as garbage stays deleted."
	}
	if p.Modern.Store != p.Legacy.Store {
		return text + fmt.Sprintf(" What the modern side has for itself stays in store %s afterwards, which the "+
			"legacy side never reads.", p.Modern.Store)
	}
	return text + fmt.Sprintf(" Both sides keep everything in store %s: what was written through the modern API "+
		"server stays there, and the legacy side reads it.", p.Legacy.Store)
}

// grounds says what was run of this pair, and what is deduced.
func (in *Input) grounds() string {
	if n := len(in.proofs()); n > 0 {
		return fmt.Sprintf("Facts about each version, as of %s, and %s about this pair, each seen on real servers of "+
			"these two minors.", kubever.FactsOf, prose.Counted(n, "statement"))
	}
	return fmt.Sprintf("Facts about each version, as of %s. Real servers of these two minors were not run together.",
		kubever.FactsOf)
}

// notLookedAt lists what a reader could take for clean because nothing is said of it.
func (in *Input) notLookedAt() []string {
	var list []string
	if in.DiffOf == "" {
		list = append(list, "What runs today (--diff DIR).")
	}
	if in.Contents == nil {
		list = append(list, "What the stores hold (--contents, --snapshot STORE=FILE).")
	}
	if in.Restarts == nil {
		list = append(list, "Which containers newer kubelets restart (--restarts FILE).")
	}
	return list
}

// enumerated is a list in a sentence.
func enumerated(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
