package roadmap

import (
	"cmp"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// newStage is one that leads to a plan, with nothing in it yet.
func newStage(kind Kind, to *plan.Plan) Stage {
	return Stage{Kind: kind, Modern: to.Modern.Version.String(), Legacy: to.Legacy.Version.String(), Change: []string{},
		Started: []string{}, Unread: []string{}, Rewrite: []string{}, Migrate: []string{},
		Brought: []finding.Finding{}, Resolved: []string{}, Refused: []string{}, Prepare: kind == LegacyUp}
}

// stage compares two plans; the first is nil where nothing runs yet.
func (r *router) stage(kind Kind, from, to *plan.Plan) (Stage, error) {
	s := newStage(kind, to)
	t, refused, err := r.transition(from, to, s.Prepare)
	if err != nil {
		return s, err
	}
	s.Refused = append(s.Refused, refused...)
	s.count(&t)
	if kind == Nodes {
		s.EachNode = perNode
	}
	s.compare(from, to)
	if kind == Retire {
		s.Lost = without(groupVersions(to.Legacy.Version.Minor), groupVersions(to.Modern.Version.Minor))
	}
	return s, nil
}

// transition computes the steps between two plans, or why there are none, as if stores that were read had nothing in
// the way.
func (r *router) transition(from, to *plan.Plan, prepare bool) (transition.Transition, []string, error) {
	setups := [2]transition.Setup{{Plan: from, Target: r.target}, {Plan: to, Target: r.target}}
	if from == nil {
		setups[0] = transition.Setup{}
	}
	t, err := transition.New(setups[0], setups[1], transition.Facts{StoresAgree: true, Prepare: prepare,
		Empty: transition.Moves(setups[0], setups[1])})
	var refused *transition.RefusedError
	if errors.As(err, &refused) {
		return t, refused.Reasons, nil
	}
	return t, nil, err
}

// count reads what a transition does.
func (s *Stage) count(t *transition.Transition) {
	s.Steps = len(t.Steps)
	for i := range t.Steps {
		a := t.Steps[i].Do
		if a == nil {
			continue
		}
		s.Seconds += seconds(a)
		if a.Kind == transition.ByHand {
			s.ByHand++
		}
		for _, c := range slices.Concat(a.Before, a.After) {
			if c.Kind == transition.NothingLeft && len(s.Empty) == 0 {
				for _, row := range c.Left.Rows {
					s.Empty = append(s.Empty, row.Key)
				}
			}
			if c.Kind != transition.Ready {
				continue
			}
			s.Waits++
			if c.Cert != "" { // something that a component has, not the component
				continue
			}
			if name := t.Steps[i].Host + "/" + c.Program; !slices.Contains(s.Started, name) {
				s.Started = append(s.Started, name)
			}
		}
	}
}

// Measured by TestTheWholeWay on two cores, with few objects: what a step takes beyond its own second or less.
var (
	actionSeconds = map[transition.Kind]int{transition.HandOver: 1, transition.ChangeKubelet: 3,
		transition.AddRanges: 1}
	checkSeconds = map[transition.CheckKind]int{transition.Ready: 3, transition.Gone: 1, transition.StoresAgree: 1,
		transition.MayGo: 1, transition.Adopted: 4, transition.Beats: 8, transition.NodeReady: 5,
		transition.NodePods: 12, transition.MastersAre: 2, transition.Works: 25}
)

// perNode is what a node takes that goes over: its checks, its kubelet, and the time for which nothing may change.
const perNode = 25

// seconds is about how long an action takes.
func seconds(a *transition.Action) int {
	sum := actionSeconds[a.Kind]
	for _, c := range slices.Concat(a.Before, a.After) {
		sum += checkSeconds[c.Kind]
	}
	return sum
}

// compare says what the second plan brings.
func (s *Stage) compare(from, to *plan.Plan) {
	served := groupVersions(to.Legacy.Version.Minor)
	var had []finding.Finding
	side := pair.Modern
	if s.Kind == LegacyUp {
		side = pair.Legacy
	}
	now := groupVersions(to.Side(side).Version.Minor)
	if from != nil {
		served = groupVersions(from.Side(side).Version.Minor)
		had = catalog.Check(from).Findings
		if side == pair.Modern { // the steps of a legacy side that goes up write again what has to be
			s.Rewrite = append(s.Rewrite, rewrites(from, to)...)
		}
		s.reads(side, from, to)
	}
	s.Gained, s.Lost = without(now, served), without(served, now)
	if from == nil { // the legacy API server goes on serving them
		s.Lost = []string{}
	}
	type about struct {
		rule, subject, key string
		severity           finding.Severity
	}
	rules, known := map[string]bool{}, map[about]bool{}
	for _, f := range had {
		rules[f.Rule] = true
		known[about{f.Rule, f.Subject, f.Key, f.Severity}] = true
	}
	current := map[string]bool{}
	for _, f := range catalog.Check(to).Findings {
		current[f.Rule] = true
		// Of a rule that is known, what is not an error changes its subjects with the versions.
		if !rules[f.Rule] || f.Severity == finding.Error && !known[about{f.Rule, f.Subject, f.Key, f.Severity}] {
			s.Brought = append(s.Brought, f)
		}
	}
	for _, f := range had {
		if !current[f.Rule] && !slices.Contains(s.Resolved, f.Rule) {
			s.Resolved = append(s.Resolved, f.Rule)
		}
	}
}

// reads lists what a side may not decode in the second plan, and what moves.
func (s *Stage) reads(side pair.Side, from, to *plan.Plan) {
	add := func(key string) {
		if !slices.Contains(s.Unread, key) {
			s.Unread = append(s.Unread, key)
		}
	}
	for i := range from.Resources {
		row := &from.Resources[i]
		was, is := row.View(side), to.Resource(row.Key)
		gone := is == nil || is.View(side).Store == ""
		if was.Store != "" && !row.Pseudo && (gone || slices.ContainsFunc(was.Decodes,
			func(v string) bool { return !slices.Contains(is.View(side).Decodes, v) })) {
			add(row.Key)
		}
	}
	for _, m := range transition.Moves(transition.Setup{Plan: from}, transition.Setup{Plan: to}) {
		add(m.Resource)
	}
}

// groupVersions are those that a minor serves by default, sorted.
func groupVersions(m kubever.Minor) (list []schema.GroupVersion) {
	for _, r := range kubever.APIResources(m) {
		if r.DefaultOn.Has(m) && !slices.Contains(list, r.GroupVersion) {
			list = append(list, r.GroupVersion)
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
	return list
}

func without(list, other []schema.GroupVersion) []string {
	names := []string{}
	for _, gv := range list {
		if !slices.Contains(other, gv) {
			names = append(names, gv.String())
		}
	}
	return names
}
