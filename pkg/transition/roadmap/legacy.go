package roadmap

import (
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// prospect is how far the way leads from a version of the legacy side.
type prospect struct {
	stays  []staying         // what cannot be handed over
	errors []finding.Finding // that the plan has once the nodes are over, one of each rule
}

func (p *prospect) obstacles() int { return len(p.stays) + len(p.errors) }

// legacyUp takes the legacy side to the first minor from which more of it can be handed over, or with which the plan of
// the nodes has fewer errors.
func (w *way) legacyUp(to kubever.Version) error {
	if w.at.retired {
		return nil
	}
	had := w.errorsBefore()
	now, err := w.prospect(w.at, w.last, to, had)
	if err != nil || now.obstacles() == 0 {
		return err
	}
	best := now
	var reached *Stage
	var next state
	var last *plan.Plan
	for _, m := range kubever.Minors() {
		if m <= w.at.legacy.Minor || m > w.at.modern.Minor || best.obstacles() == 0 {
			continue
		}
		at := w.at
		if at.legacy, err = newest(m, w.at.modern); err != nil {
			return err
		}
		p, err := w.plan(at)
		if err != nil {
			continue // no spec has this version
		}
		then, err := w.prospect(at, p, to, had)
		if err != nil {
			continue
		}
		if then.only(now); then.obstacles() >= best.obstacles() {
			continue
		}
		stage, err := w.stage(LegacyUp, w.last, p)
		if err != nil {
			return err
		}
		if len(stage.Refused) == 0 {
			best, reached, next, last = then, &stage, at, p
		}
	}
	if reached == nil {
		return nil
	}
	reached.Change = w.legacyChange(next.legacy)
	reached.Why, reached.Instead = reasons(now, best, next.legacy)
	w.reach(*reached, next, last)
	return nil
}

// only leaves out what does not stand in the way of another prospect: kinds that the older version does not have are
// nowhere. Errors are all counted.
func (p *prospect) only(now *prospect) {
	p.stays = slices.DeleteFunc(p.stays, func(s staying) bool {
		return !slices.ContainsFunc(now.stays, func(o staying) bool { return o.set.Keys[0] == s.set.Keys[0] })
	})
}

// errorsBefore are the errors of the plan without nodes at the modern API server: what has them is changed in the spec,
// whatever the version of the legacy side.
func (w *way) errorsBefore() []finding.Finding {
	at, p := w.at, w.last
	if at.nodes != nil {
		at.nodes = nil
		var err error
		if p, err = w.plan(at); err != nil {
			return nil
		}
	}
	return errorsOf(p, nil)
}

// errorsOf are the errors of a plan, one of each rule, without those of rules that are known.
func errorsOf(p *plan.Plan, known []finding.Finding) (list []finding.Finding) {
	for _, f := range catalog.Check(p).Findings {
		same := func(o finding.Finding) bool { return o.Rule == f.Rule }
		if f.Severity == finding.Error && !slices.ContainsFunc(known, same) && !slices.ContainsFunc(list, same) {
			list = append(list, f)
		}
	}
	return list
}

// prospect looks ahead from a state; errors that the plan had before do not count.
func (w *way) prospect(at state, p *plan.Plan, to kubever.Version, had []finding.Finding) (*prospect, error) {
	var ahead prospect
	if h := w.handedOver(at, p); h != nil {
		at, p, ahead.stays = h.state, h.plan, h.stays
	}
	if at.nodes == nil || at.nodes.Minor < to.Minor {
		at.nodes = &to
		var err error
		if p, err = w.plan(at); err != nil {
			return nil, fmt.Errorf("with spec.kubelet.modern: %w", err)
		}
	}
	ahead.errors = errorsOf(p, had)
	return &ahead, nil
}

func (w *way) legacyChange(v kubever.Version) []string {
	change := []string{"spec.legacy.version: " + v.String()}
	if !w.hasKubelet {
		change = append(change, "spec.kubelet.version: "+w.at.kubelet.String()+whatTheyAre)
	}
	if w.hasImages[pair.Legacy] {
		change = append(change, "images of spec.legacy: those of "+v.String())
	}
	if w.last.Legacy.Existing {
		change = append(change, "extraArgs of spec.legacy: those with which "+v.String()+" runs")
	}
	return change
}

// reasons are what another version of the legacy side is for, and what is done without it.
func reasons(now, then *prospect, v kubever.Version) (why, instead []string) {
	for _, s := range now.stays {
		if slices.ContainsFunc(then.stays, func(o staying) bool { return o.set.Keys[0] == s.set.Keys[0] }) {
			continue
		}
		why = append(why, fmt.Sprintf("%s can be handed over from %s; without it %s", s.names(), v, s.why))
		instead = append(instead, fmt.Sprintf("delete the objects of %s, and create them again through the modern API "+
			"server, before the legacy side is retired: their pods are replaced", s.names()))
	}
	for _, f := range now.errors {
		if slices.ContainsFunc(then.errors, func(o finding.Finding) bool { return o.Rule == f.Rule }) {
			continue
		}
		why = append(why, fmt.Sprintf("%s is no error any more when the nodes are over: %s", f.Rule, f.Message))
		instead = append(instead, fmt.Sprintf("what fusionctl explain %s says, before the nodes go over", f.Rule))
	}
	return why, instead
}
