// Package roadmap recommends a sequence of transitions by which a cluster comes to a modern release: install, the
// modern side up, the legacy side up where that lets more of it go, workloads handed over, nodes over. For each stage
// it says what changes in the spec, what is gained, which findings it brings, what starts again, and what has to be
// read or done before. A spec that is in the middle of the way gets the stages that are left.
package roadmap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// Roadmap is plain data.
type Roadmap struct {
	Name   string `json:"name"`
	Legacy string `json:"legacy"` // versions
	From   string `json:"from"`   // of the modern side
	To     string `json:"to"`
	// Running is by which field the spec says that the modern side runs already, so that no stage installs it; "" where
	// it does not.
	Running string  `json:"running,omitempty"`
	Stages  []Stage `json:"stages"` // empty at the end of the way
	// Left are the keys of resources that the legacy side still writes after the last stage, by its own controllers or
	// clients.
	Left []string `json:"left"`
	// NotRetired is why the legacy side cannot be retired afterwards; "" where that is the last stage.
	NotRetired string `json:"notRetired,omitempty"`
}

// Kind is what a stage is for.
type Kind string

// Kinds in their order.
const (
	Install  Kind = "install"
	ModernUp Kind = "modern up"
	LegacyUp Kind = "legacy up"
	HandOver Kind = "hand over"
	Nodes    Kind = "nodes over"
	Retire   Kind = "retire"
)

// Stage is one transition, from the plan of the stage before it.
type Stage struct {
	Kind   Kind     `json:"kind"`
	Modern string   `json:"modern"` // version of the modern side afterwards
	Legacy string   `json:"legacy"` // version of the legacy side afterwards
	Change []string `json:"change"` // of the spec, FIELD: VALUE
	// Why is what the stage is needed for, of a legacy side that goes up, and Instead what would be done without it.
	Why     []string `json:"why,omitempty"`
	Instead []string `json:"instead,omitempty"`
	// Outside is what a person does in place of a transition, whose spec then says so; "" where there is a transition.
	Outside string `json:"outside,omitempty"`
	Steps   int    `json:"steps"`
	ByHand  int    `json:"byHand"` // of these, steps that a person does
	// Seconds is about how long the steps take beside what people do, and EachNode what each node takes in addition.
	Seconds  int      `json:"seconds"`
	EachNode int      `json:"eachNodeSeconds,omitempty"`
	Waits    int      `json:"waits"`   // components that are waited for, one after the other
	Started  []string `json:"started"` // components that start, or start again: HOST/NAME
	// Gained are group/versions that clients reach in addition, and Lost those that the modern API server, or the
	// legacy one that goes up, serves no more.
	Gained []string `json:"gained"`
	Lost   []string `json:"lost"`
	// Unread are keys of resources whose stored objects the next version may not decode, or has not: the stores have to
	// be read before.
	Unread []string `json:"unread"`
	// Prepare: the plan is made with --prepare, so that steps write objects again and move keys to the other store.
	Prepare bool `json:"prepare,omitempty"`
	// Rewrite are keys of resources of which the next version does not decode what this one writes.
	Rewrite []string `json:"rewrite"`
	// Migrate are keys of resources of which the next version decodes what this one writes, but not what a release
	// before it wrote: objects that were not written since have to be, before.
	Migrate []string `json:"migrate"`
	// Empty are keys of resources of which the legacy side must have no objects of its own before.
	Empty []string `json:"empty,omitempty"`
	// Stays is what the legacy side has and cannot hand over, with the reason.
	Stays    []string          `json:"stays,omitempty"`
	Brought  []finding.Finding `json:"brought"` // findings of the plan that the stage before did not have
	Resolved []string          `json:"resolved"`
	Refused  []string          `json:"refused"` // why there is no transition, whatever the stores hold
}

// Blocked reports whether the stage cannot be done as it stands.
func (s *Stage) Blocked() bool {
	return len(s.Refused) > 0 || s.Outside != "" || len(s.Rewrite) > 0 || len(s.Migrate) > 0 ||
		finding.Worst(s.Brought) == finding.Error
}

// New computes what is left of the roadmap of a spec, as spec.Parse returns it, to a version of the modern side.
// Between the modern version of the spec and that one it takes the fewest releases such that each decodes what the one
// before it writes. Without a spec that says so, installed tells that its plan runs already. Errors: a target that has
// no transitions; a spec or a version that cannot be planned.
func New(file func() (*spec.File, error), target render.Target, to kubever.Version, installed bool) (*Roadmap, error) {
	if target == render.Hosted {
		return nil, fmt.Errorf("target %q: want static-pod or systemd: another cluster runs the components of hosted "+
			"plans, which fusionctl operator changes", target)
	}
	r := &router{file: file, target: target}
	at, err := r.begin()
	if err != nil {
		return nil, err
	}
	w := &way{router: r, at: at}
	if w.last, err = r.plan(at); err != nil {
		return nil, err
	}
	modern := at.modern
	if !to.HasPatch {
		if to, err = newest(to.Minor, modern); err != nil {
			return nil, err
		}
	}
	if to.Minor < modern.Minor || to.Minor == modern.Minor && to.Patch < modern.Patch {
		return nil, fmt.Errorf("version %s: the modern side of the spec is at %s already: a transition to an older "+
			"version is fusionctl transition plan", to, modern)
	}
	w.m = &Roadmap{Name: w.last.Name, Legacy: at.legacy.String(), From: modern.String(), To: to.String(),
		Running: running(at), Stages: []Stage{}, Left: []string{}}
	if !installed && w.m.Running == "" {
		if err := w.install(); err != nil {
			return nil, err
		}
	}
	for _, next := range []func(kubever.Version) error{w.modernUp, w.legacyUp, w.handOver, w.nodesOver, w.retire} {
		if err := next(to); err != nil {
			return nil, err
		}
	}
	return w.m, nil
}

// running is the field by which a spec says that its modern side runs; "" for none.
func running(s state) string {
	switch {
	case s.retired:
		return "spec.legacy.retired"
	case len(s.handed) > 0:
		return "spec.handedOver"
	case s.nodes != nil:
		return "spec.kubelet.modern"
	}
	return ""
}

// way is how far the roadmap has come.
type way struct {
	*router
	m    *Roadmap
	at   state
	last *plan.Plan
}

// reach adds a stage and goes on from where it leads.
func (w *way) reach(stage Stage, next state, p *plan.Plan) {
	w.m.Stages, w.at, w.last = append(w.m.Stages, stage), next, p
}

func (w *way) install() error {
	stage, err := w.stage(Install, nil, w.last)
	if err == nil {
		w.reach(stage, w.at, w.last)
	}
	return err
}

func (w *way) modernUp(to kubever.Version) error {
	if to == w.at.modern {
		return nil
	}
	hops, err := w.hops(w.at, to)
	if err != nil {
		return err
	}
	var earlier []*plan.Plan
	for _, v := range hops {
		next := w.at
		next.modern = v
		p, err := w.plan(next)
		if err != nil {
			return fmt.Errorf("with spec.modern.version %s: %w", v, err)
		}
		stage, err := w.stage(ModernUp, w.last, p)
		if err != nil {
			return err
		}
		stage.Change = []string{"spec.modern.version: " + v.String()}
		if w.at.nodes != nil {
			stage.Change = append(stage.Change, "spec.kubelet.modern.version: "+w.at.nodes.String()+whatTheyAre)
		}
		if w.hasImages[pair.Modern] {
			stage.Change = append(stage.Change, "images of spec.modern: those of "+v.String())
		}
		for _, before := range earlier {
			for _, key := range rewrites(before, p) {
				if !slices.Contains(stage.Migrate, key) {
					stage.Migrate = append(stage.Migrate, key)
				}
			}
		}
		earlier = append(earlier, w.last)
		w.reach(stage, next, p)
	}
	return nil
}

// whatTheyAre ends a change that says of kubelets what holds already, where another version changes the default.
const whatTheyAre = ", what they are"

// nodesOver connects the kubelets to the modern API server. Some are there already: they stay what they are until the
// servers are newer.
func (w *way) nodesOver(to kubever.Version) error {
	switch {
	case w.at.nodes != nil && w.at.nodes.Minor >= to.Minor,
		w.at.nodes == nil && w.last.Layout == spec.LayoutShared && w.last.Kubelet.Minor >= to.Minor:
		return nil
	}
	next := w.at
	next.nodes = &to
	p, err := w.plan(next)
	if err != nil {
		return fmt.Errorf("with spec.kubelet.modern: %w", err)
	}
	stage := newStage(Nodes, p)
	if stage.Outside = transition.KubeletsByHand(w.last, p); stage.Outside != "" {
		stage.compare(w.last, p)
	} else if stage, err = w.stage(Nodes, w.last, p); err != nil {
		return err
	}
	stage.Change = []string{"spec.kubelet.modern.version: " + to.String()}
	w.reach(stage, next, p)
	return nil
}

// retire ends the legacy side; where there is no such plan, it says why: a layout, roles that are not copied, a side
// without controllers.
func (w *way) retire(kubever.Version) error {
	if w.at.retired {
		return nil
	}
	w.m.Left = left(w.last)
	next := w.at
	next.retired = true
	p, err := w.plan(next)
	if err != nil {
		w.m.NotRetired = err.Error()
		return nil
	}
	stage, err := w.stage(Retire, w.last, p)
	if err != nil {
		return err
	}
	if len(stage.Refused) > 0 {
		w.m.NotRetired = strings.Join(stage.Refused, "; ")
		return nil
	}
	stage.Change = []string{"spec.legacy.retired: true"}
	if !w.hasScheduler {
		stage.Change = append(stage.Change, "spec.modern.scheduler: {}")
	}
	w.m.Left = []string{}
	w.reach(stage, next, p)
	return nil
}

// newest is the release of a minor that is meant: the one that the modern side has, where it has that minor.
func newest(minor kubever.Minor, modern kubever.Version) (kubever.Version, error) {
	if minor == modern.Minor {
		return modern, nil
	}
	return kubever.Parse(kubever.Release(minor))
}

// left are the resources of which objects of the legacy side alone remain.
func left(p *plan.Plan) []string {
	keys := []string{}
	for i := range p.Resources {
		row := &p.Resources[i]
		if !row.Pseudo && !row.HandedOver && !row.Copied && row.Legacy.Store != "" &&
			(row.Owner == pair.OwnerLegacy || row.Owner == pair.OwnerSplit) {
			keys = append(keys, row.Key)
		}
	}
	return keys
}
