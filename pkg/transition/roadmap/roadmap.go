// Package roadmap recommends a sequence of transitions by which a cluster comes to a modern release: install, the
// modern side up, workloads handed over, nodes over. For each stage it says what changes in the spec, what is gained,
// which findings it brings, what starts again, and what has to be read or done before.
package roadmap

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/catalog"
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
	Name   string  `json:"name"`
	Legacy string  `json:"legacy"` // versions
	From   string  `json:"from"`   // of the modern side
	To     string  `json:"to"`
	Stages []Stage `json:"stages"`
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
	HandOver Kind = "hand over"
	Nodes    Kind = "nodes over"
	Retire   Kind = "retire"
)

// Stage is one transition, from the plan of the stage before it.
type Stage struct {
	Kind   Kind     `json:"kind"`
	Modern string   `json:"modern"` // version of the modern side afterwards
	Change []string `json:"change"` // of the spec, FIELD: VALUE
	Steps  int      `json:"steps"`
	ByHand int      `json:"byHand"` // of these, steps that a person does
	// Seconds is about how long the steps take beside what people do, and EachNode what each node takes in addition.
	Seconds  int      `json:"seconds"`
	EachNode int      `json:"eachNodeSeconds,omitempty"`
	Waits    int      `json:"waits"`   // components that are waited for, one after the other
	Started  []string `json:"started"` // components that start, or start again: HOST/NAME
	Gained   []string `json:"gained"`  // group/versions that clients reach in addition
	Lost     []string `json:"lost"`    // group/versions that the modern API server serves no more
	// Unread are keys of resources whose stored objects the next version may not decode, or has not: the stores have to
	// be read before.
	Unread []string `json:"unread"`
	// Rewrite are keys of resources of which the next version does not decode what this one writes.
	Rewrite []string `json:"rewrite"`
	// Migrate are keys of resources of which the next version decodes what this one writes, but not what a release
	// before it wrote: objects that were not written since have to be, before.
	Migrate []string `json:"migrate"`
	// Empty are keys of resources of which the legacy side must have no objects of its own before.
	Empty    []string          `json:"empty,omitempty"`
	Brought  []finding.Finding `json:"brought"` // findings of the plan that the stage before did not have
	Resolved []string          `json:"resolved"`
	Refused  []string          `json:"refused"` // why there is no transition, whatever the stores hold
}

// Blocked reports whether the stage cannot be done as it stands.
func (s *Stage) Blocked() bool {
	return len(s.Refused) > 0 || len(s.Rewrite) > 0 || len(s.Migrate) > 0 || finding.Worst(s.Brought) == finding.Error
}

// New computes the roadmap of a spec, as spec.Parse returns it, to a version of the modern side. Between the modern
// version of the spec and that one it takes the fewest releases such that each decodes what the one before it writes.
// Errors: a spec or a version that cannot be planned.
func New(file func() (*spec.File, error), target render.Target, to kubever.Version) (*Roadmap, error) {
	r := &router{file: file, target: target}
	first, err := r.plan(nil, false)
	if err != nil {
		return nil, err
	}
	r.kubelets = first.ModernKubelet
	modern := first.Modern.Version
	if !to.HasPatch {
		if to, err = newest(to.Minor, modern); err != nil {
			return nil, err
		}
	}
	if to.Minor < modern.Minor || to.Minor == modern.Minor && to.Patch < modern.Patch {
		return nil, fmt.Errorf("version %s: the modern side of the spec is at %s already: a transition to an older "+
			"version is fusionctl transition plan", to, modern)
	}
	m := &Roadmap{Name: first.Name, Legacy: first.Legacy.Version.String(), From: modern.String(), To: to.String(),
		Stages: []Stage{}}
	wantsNodes := first.ModernKubelet != nil
	stage, err := r.stage(Install, nil, first)
	if err != nil {
		return nil, err
	}
	m.Stages = append(m.Stages, stage)
	last := first
	if to != modern {
		hops, err := r.hops(modern, to)
		if err != nil {
			return nil, err
		}
		var earlier []*plan.Plan
		for _, v := range hops {
			next, err := r.plan(&v, wantsNodes)
			if err != nil {
				return nil, fmt.Errorf("with spec.modern.version %s: %w", v, err)
			}
			stage, err := r.stage(ModernUp, last, next)
			if err != nil {
				return nil, err
			}
			stage.Change = []string{"spec.modern.version: " + v.String()}
			if wantsNodes {
				stage.Change = append(stage.Change, "spec.kubelet.modern.version: "+r.kubelets.String()+
					", what they are")
			}
			if r.hasImages {
				stage.Change = append(stage.Change, "images of spec.modern: those of "+v.String())
			}
			for _, p := range earlier {
				for _, key := range rewrites(p, next) {
					if !slices.Contains(stage.Migrate, key) {
						stage.Migrate = append(stage.Migrate, key)
					}
				}
			}
			earlier = append(earlier, last)
			m.Stages, last = append(m.Stages, stage), next
		}
	}
	if handed, err := r.handOver(to, wantsNodes); err != nil {
		return nil, err
	} else if handed != nil {
		stage, err := r.stage(HandOver, last, handed)
		if err != nil {
			return nil, err
		}
		stage.Change = []string{"spec.handedOver: [" + strings.Join(r.handed, ", ") + "]"}
		m.Stages, last = append(m.Stages, stage), handed
	}
	behind := last.Kubelet.Minor < to.Minor
	if wantsNodes { // some are there already: they stay what they are until the servers are newer
		behind = last.ModernKubelet.Minor < to.Minor
	}
	if behind {
		r.kubelets = nil
		next, err := r.plan(&to, true)
		if err != nil {
			return nil, fmt.Errorf("with spec.kubelet.modern: %w", err)
		}
		stage, err := r.stage(Nodes, last, next)
		if err != nil {
			return nil, err
		}
		stage.Change = []string{"spec.kubelet.modern.version: " + next.ModernKubelet.String()}
		m.Stages, last = append(m.Stages, stage), next
	}
	m.Left = left(last)
	alone, why, err := r.retire(to)
	switch {
	case err != nil:
		return nil, err
	case alone == nil:
		m.NotRetired = why
		return m, nil
	}
	if stage, err = r.stage(Retire, last, alone); err != nil {
		return nil, err
	}
	stage.Change = []string{"spec.legacy.retired: true", "spec.modern.scheduler: {}"}
	if m.Stages = append(m.Stages, stage); len(stage.Refused) == 0 {
		m.Left = []string{}
	}
	return m, nil
}

// retire plans the spec without its legacy side; nil, and why, where there is no such plan.
func (r *router) retire(to kubever.Version) (alone *plan.Plan, why string, err error) {
	r.retired = true
	alone, err = r.plan(&to, true)
	if err != nil { // of a layout, of roles that are not copied, of a side without controllers
		return nil, err.Error(), nil
	}
	return alone, "", nil
}

// newest is the release of a minor that is meant: the one that the modern side has, where it has that minor.
func newest(minor kubever.Minor, modern kubever.Version) (kubever.Version, error) {
	if minor == modern.Minor {
		return modern, nil
	}
	return kubever.Parse(kubever.Release(minor))
}

// router plans a spec in other versions.
type router struct {
	file   func() (*spec.File, error) // a new one each time: its defaults follow from its versions
	target render.Target
	// hasImages: the modern side of the spec names images
	hasImages bool
	// kubelets is the version of those that are at the modern API server already, whatever its version will be; nil for
	// the default
	kubelets *kubever.Version
	handed   []string // resources that are handed over
	retired  bool     // the legacy side runs no more
}

// handOver plans the spec with everything handed over for which the modern side runs the controllers; nil where that is
// nothing.
func (r *router) handOver(modern kubever.Version, nodes bool) (last *plan.Plan, err error) {
	f, err := r.file()
	if err != nil || f.Spec.Layout == spec.LayoutShared {
		return nil, err
	}
	for _, set := range kubever.HandOvers() {
		before := r.handed
		for _, key := range set.Subjects {
			fact, _ := kubever.ResourceByKey(key)
			stored, _ := fact.StoredAs(kubever.Newest)
			r.handed = append(slices.Clone(r.handed), fact.Name+"."+stored.Group)
		}
		p, err := r.plan(&modern, nodes)
		if err != nil { // not there, or without controllers: it stays where it is
			r.handed = before
			continue
		}
		last = p
	}
	return last, nil
}

// plan plans the spec with another modern version, nil for its own, and with nodes at the modern API server.
func (r *router) plan(modern *kubever.Version, nodes bool) (*plan.Plan, error) {
	f, err := r.file()
	if err != nil {
		return nil, err
	}
	f.Spec.HandedOver = r.handed
	if r.retired {
		f.Spec.Legacy.Retired = true
		if f.Spec.Modern.Scheduler == nil {
			f.Spec.Modern.Scheduler = &spec.Component{}
		}
	}
	r.hasImages = slices.ContainsFunc(images(&f.Spec.Modern), func(image *string) bool { return *image != "" })
	if modern != nil && *modern != f.Spec.Modern.Version {
		f.Spec.Modern.Version = *modern
		for _, image := range images(&f.Spec.Modern) {
			*image = "" // its tag is that of the version before
		}
	}
	switch k := f.Spec.Kubelet.Modern; {
	case nodes && k == nil:
		f.Spec.Kubelet.Modern = &spec.ModernKubelet{}
	case k != nil && r.kubelets != nil:
		k.Version = *r.kubelets
	case k != nil && nodes && modern != nil:
		k.Version = *modern
	}
	f.Default()
	if err := spec.Validate(f, spec.Lines{}); err != nil {
		return nil, err
	}
	return plan.New(f, plan.OnHosts)
}

// images are those that a side names.
func images(s *spec.Side) []*string {
	list := []*string{&s.Image}
	if s.APIServer != nil {
		list = append(list, &s.APIServer.Image)
	}
	for _, c := range []*spec.Component{s.ControllerManager, s.Scheduler} {
		if c != nil {
			list = append(list, &c.Image)
		}
	}
	return list
}

// hops are the fewest versions that lead from one to another, each of which decodes what the one before it writes; the
// last one alone where there are none.
func (r *router) hops(from, to kubever.Version) ([]kubever.Version, error) {
	versions := []kubever.Version{from}
	for _, m := range kubever.Minors() {
		v, err := kubever.Parse(kubever.Release(m))
		if err == nil && m > from.Minor && m < to.Minor {
			versions = append(versions, v)
		}
	}
	versions = append(versions, to)
	plans := make([]*plan.Plan, len(versions))
	for i := range versions {
		p, err := r.plan(&versions[i], false)
		if err != nil && (i == 0 || i == len(versions)-1) {
			return nil, fmt.Errorf("with spec.modern.version %s: %w", versions[i], err)
		}
		plans[i] = p // nil: this version cannot be planned, so that no way leads through it
	}
	const never = -1
	before := make([]int, len(versions)) // breadth first: the first way found is one of the shortest
	for i := range before {
		before[i] = never
	}
	queue := []int{0}
	for len(queue) > 0 && before[len(versions)-1] == never {
		at := queue[0]
		queue = queue[1:]
		for next := len(versions) - 1; next > at; next-- {
			if before[next] == never && plans[next] != nil && len(rewrites(plans[at], plans[next])) == 0 {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	if before[len(versions)-1] == never {
		return []kubever.Version{to}, nil
	}
	var way []kubever.Version
	for at := len(versions) - 1; at != 0; at = before[at] {
		way = append(way, versions[at])
	}
	slices.Reverse(way)
	return way, nil
}

// rewrites are the resources of which the modern side of the second plan does not decode what that of the first writes.
func rewrites(a, b *plan.Plan) (keys []string) {
	for i := range a.Resources {
		was, is := a.Resources[i].Modern, b.Resource(a.Resources[i].Key)
		if was.StoredAs == "" || is == nil || is.Modern.Store == "" { // a kind that is gone is no longer read
			continue
		}
		if !slices.Contains(is.Modern.Decodes, was.StoredAs) {
			keys = append(keys, a.Resources[i].Key)
		}
	}
	return keys
}

// stage compares two plans; the first is nil where nothing runs yet.
func (r *router) stage(kind Kind, from, to *plan.Plan) (Stage, error) {
	s := Stage{Kind: kind, Modern: to.Modern.Version.String(), Change: []string{}, Started: []string{},
		Unread: []string{}, Rewrite: []string{}, Migrate: []string{},
		Brought: []finding.Finding{}, Resolved: []string{}, Refused: []string{}}
	setups := [2]transition.Setup{{Plan: from, Target: r.target}, {Plan: to, Target: r.target}}
	if from == nil {
		setups[0] = transition.Setup{}
	}
	facts := transition.Facts{StoresAgree: true, Empty: transition.Moves(setups[0], setups[1])}
	t, err := transition.New(setups[0], setups[1], facts)
	var refused *transition.RefusedError
	switch {
	case errors.As(err, &refused):
		s.Refused = refused.Reasons
	case err != nil:
		return s, err
	}
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
	if from != nil {
		served = groupVersions(from.Modern.Version.Minor)
		had = catalog.Check(from).Findings
		s.Rewrite = append(s.Rewrite, rewrites(from, to)...)
		for i := range from.Resources {
			row := &from.Resources[i]
			is := to.Resource(row.Key)
			gone := is == nil || is.Modern.Store == ""
			if row.Modern.Store != "" && !row.Pseudo && (gone || slices.ContainsFunc(row.Modern.Decodes,
				func(v string) bool { return !slices.Contains(is.Modern.Decodes, v) })) {
				s.Unread = append(s.Unread, row.Key)
			}
		}
		for _, m := range transition.Moves(transition.Setup{Plan: from}, transition.Setup{Plan: to}) {
			s.Unread = append(s.Unread, m.Resource)
		}
	}
	now := groupVersions(to.Modern.Version.Minor)
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
