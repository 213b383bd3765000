package transition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

func planOf(t *testing.T, name, text string) *plan.Plan {
	t.Helper()
	f, err := spec.Load(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func example(t *testing.T, name string) string {
	t.Helper()
	data, err := examples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var allJourneys = map[string][2]Setup{} // computed once

// journeys are pairs of setups between which there are transitions, by name.
func journeys(t *testing.T) map[string][2]Setup {
	t.Helper()
	if len(allJourneys) > 0 {
		return allJourneys
	}
	names, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	pairs := allJourneys
	for _, name := range names {
		p := planOf(t, name, example(t, name))
		pod, unit := Setup{Plan: p, Target: render.StaticPod}, Setup{Plan: p, Target: render.Systemd}
		flags := *p
		flags.Components = slices.Clone(p.Components)
		for i := range flags.Components {
			c := &flags.Components[i]
			c.Args = append(slices.Clone(c.Args), plan.Arg{Name: "v", Value: "4", Origin: plan.FromSpec})
		}
		pairs[name+" from nothing"] = [2]Setup{{}, pod}
		pairs[name+" from nothing to units"] = [2]Setup{{}, unit}
		pairs[name+" to nothing"] = [2]Setup{pod, {}}
		pairs[name+" pods to units"] = [2]Setup{pod, unit}
		pairs[name+" units to pods"] = [2]Setup{unit, pod}
		pairs[name+" flags"] = [2]Setup{pod, {Plan: &flags, Target: render.StaticPod}}
		pairs[name+" flags of units"] = [2]Setup{unit, {Plan: &flags, Target: render.Systemd}}
	}
	const split = "split-1.15-1.36.yaml"
	at := func(nodes string) Setup {
		return Setup{Plan: planOf(t, split, strings.Replace(example(t, split), "  kubelet: {", "  kubelet: {modern: {"+
			nodes+"}, ", 1)), Target: render.StaticPod}
	}
	const one, two = "{name: node-1.example.com, address: 10.0.0.21}", "{name: node-2, address: 10.0.0.22, " +
		"args: [{name: v, value: '2'}]}"
	none, first, both := at(""), at("nodes: ["+one+"]"), at("nodes: ["+one+", "+two+"]")
	pairs["a node over"] = [2]Setup{none, first}
	pairs["another node over"] = [2]Setup{first, both}
	pairs["nodes back"] = [2]Setup{both, none}
	pairs["install with nodes"] = [2]Setup{{}, both}
	pairs["a node to none"] = [2]Setup{first, {}}
	pairs["kubelets there newer"] = [2]Setup{at("version: 1.33.1, nodes: [" + one + "]"), first}
	for name, journey := range programJourneys(t) {
		pairs[name] = journey
	}
	pairs["hand over"] = [2]Setup{handing(t, splitExample, "", render.StaticPod),
		handing(t, splitExample, "deployments.apps", render.StaticPod)}
	pairs["hand over, of units"] = [2]Setup{handing(t, splitExample, "", render.Systemd),
		handing(t, splitExample, "deployments.apps", render.Systemd)}
	for name, target := range map[string]render.Target{"pods": render.StaticPod, "units": render.Systemd} {
		pairs["hand a namespace over, of "+name] = [2]Setup{handing(t, splitExample, "", target),
			handing(t, splitExample, "team-a/deployments.apps", target)}
	}
	pairs["hand all over after a namespace"] = [2]Setup{
		handing(t, splitExample, "team-a/deployments.apps", render.StaticPod),
		handing(t, splitExample, "deployments.apps", render.StaticPod)}
	pairs["hand definitions over"] = [2]Setup{handing(t, splitExample, "", render.StaticPod),
		handing(t, splitExample, definedAndKept, render.StaticPod)}
	for name, journey := range etcdJourneys(t) {
		if strings.Contains(name, splitExample) {
			pairs[name] = journey
		}
	}
	for _, name := range []string{"two hosts join, static-pod", "two hosts leave, systemd"} {
		pairs[name] = memberJourneys(t)[name]
	}
	pairs["certificates rotate"] = rotation(t, onHosts(t, render.StaticPod, 1, 2))
	pairs["certificates of units rotate"] = rotation(t, onHosts(t, render.Systemd, 1, 2))
	fused := beforeRetiring(t, "")
	for target, name := range map[render.Target]string{render.StaticPod: "retire", render.Systemd: "retire units"} {
		pairs[name] = [2]Setup{{Plan: planOf(t, split, fused), Target: target},
			{Plan: planOf(t, split, retired(fused)), Target: target}}
	}
	for _, from := range kubever.Minors() {
		for _, to := range []string{"1.24", "1.33", "1.36"} {
			if from < 24 {
				continue
			}
			a := planOf(
				t, split, strings.Replace(example(t, split), "version: 1.36.3", "version: 1."+fmt.Sprint(int(from)), 1))
			b := planOf(t, split, strings.Replace(example(t, split), "version: 1.36.3", "version: "+to, 1))
			pairs[fmt.Sprintf("modern 1.%d to %s", from, to)] = [2]Setup{{Plan: a, Target: render.StaticPod},
				{Plan: b, Target: render.StaticPod}}
		}
	}
	return pairs
}

func facts() Facts { return Facts{StoresAgree: true} }

func eachJourney(t *testing.T, test func(t *testing.T, from, to Setup, tr *Transition)) {
	pairs := journeys(t)
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			tr, err := New(pairs[name][0], pairs[name][1], facts())
			if err != nil {
				t.Fatal(err)
			}
			test(t, pairs[name][0], pairs[name][1], &tr)
		})
	}
}

// cluster is a Runner with files in memory, and a Journal. It dies before or after any call.
type cluster struct {
	files   map[place]render.File
	units   map[place]bool
	digests map[place]string // of programs
	records []Record
	left    int // calls until it dies; negative: never
	watch   func()
	did     []Kind
	stores  func(w *Watch) (map[string]witness.Sight, error) // what they show; nil: they are not looked at
	// kept is the record of a hand-over; nil: none is kept. judged is what a check of objects finds, nil for nothing.
	kept   *handover.Known
	asked  []*handover.Known // what was known when the record was asked for
	judged func(kind string, o *Objects) error
	byHand func(a *Action) error // nil: what a person does is done
	handed map[string]bool       // records of what is marked as handed over
	gone   func(c *Check) bool   // whether what a probe asks has ended; nil: never
}

var errKilled = errors.New("killed")

func (c *cluster) call() error {
	if c.left == 0 {
		return errKilled
	}
	c.left--
	return nil
}

func (c *cluster) Records() []Record { return c.records }

func (c *cluster) Append(r Record) error {
	if err := c.call(); err != nil {
		return err
	}
	c.records = append(c.records, r)
	return nil
}

func (c *cluster) Look(_ context.Context, host string, w *Watch) (map[string]witness.Sight, error) {
	if c.stores == nil {
		return nil, nil
	}
	return c.stores(w)
}

func (c *cluster) Keep(_ context.Context, _ string, o *Objects) (*handover.Known, error) {
	if c.asked = append(c.asked, o.Known); c.kept == nil {
		return nil, nil
	}
	kept := *c.kept
	return &kept, c.call()
}

func (c *cluster) Digest(_ context.Context, host, path string) (string, error) {
	return c.digests[place{host, path}], c.call()
}

func (c *cluster) Do(_ context.Context, host string, a *Action) error {
	if err := c.call(); err != nil {
		return err
	}
	if c.judged != nil && a.Objects != nil {
		if err := c.judged(string(a.Kind), a.Objects); err != nil {
			return err
		}
	}
	if c.byHand != nil && a.Kind == ByHand {
		if err := c.byHand(a); err != nil {
			return err
		}
	}
	c.did = append(c.did, a.Kind)
	switch a.Kind {
	case PutFile, ChangeKubelet:
		at := place{host, a.File.Path}
		now, there := c.files[at]
		switch {
		case there && sameFile(now, fileOf(a.File)):
		case there && a.Was != nil && sameFile(now, fileOf(a.Was)), !there && a.Was == nil:
			c.files[at] = fileOf(a.File)
		default:
			return fmt.Errorf("%s is neither what is put nor what it replaces", at)
		}
	case RemoveFile, RestoreKubelet:
		at := place{host, a.File.Path}
		if now, there := c.files[at]; there && !sameFile(now, fileOf(a.File)) {
			return fmt.Errorf("%s is not what is removed", at)
		}
		delete(c.files, at)
	case StartUnit:
		if _, there := c.files[place{host, "/etc/systemd/system/" + a.Unit}]; !there {
			return fmt.Errorf("no unit %s", a.Unit)
		}
		c.units[place{host, a.Unit}] = true
	case StopUnit:
		delete(c.units, place{host, a.Unit})
	case HandOver:
		if c.handed == nil {
			c.handed = map[string]bool{}
		}
		if !a.Objects.Plan.Kept {
			c.handed[a.Objects.Record] = true
		}
	case HandBack:
		if !a.Objects.Plan.Copy {
			delete(c.handed, a.Objects.Record)
		}
	case PutProgram, RemoveProgram:
		if err := c.program(host, a); err != nil {
			return err
		}
	}
	if c.watch != nil {
		c.watch()
	}
	return c.call() // killed after it was done, and before it is recorded
}

func (c *cluster) Check(_ context.Context, host string, check *Check) error {
	if err := c.call(); err != nil {
		return err
	}
	if c.judged != nil && check.Objects != nil {
		return c.judged(string(check.Kind), check.Objects)
	}
	if unit := strings.TrimPrefix(check.Path, unitDirectory); check.Kind == UnitOn && !c.units[place{host, unit}] {
		return fmt.Errorf("%s on %s is stopped: %s", unit, host, check.Hint)
	}
	if check.Kind == NoKeys && strings.HasSuffix(check.Keys[0], handover.MarksKey) && len(c.handed) > 0 {
		return fmt.Errorf("%v are handed over: %s", slices.Sorted(maps.Keys(c.handed)), check.Hint)
	}
	if check.Kind == Ready && c.gone != nil && c.gone(check) {
		return fmt.Errorf("%s is not ready: %s", check.Program, check.Hint)
	}
	if check.Kind == FileIs {
		now, there := c.files[place{host, check.Path}]
		if there != (check.File != nil) || there && !sameFile(now, fileOf(check.File)) {
			return fmt.Errorf("%s on %s is another: %s", check.Path, host, check.Hint)
		}
	}
	return nil
}

func fileOf(f *File) render.File { return render.File{Path: f.Path, Mode: f.Mode, Data: f.Data} }

func newCluster(t *testing.T, s Setup) *cluster {
	t.Helper()
	c := &cluster{files: map[place]render.File{}, units: map[place]bool{},
		digests: digestsOf(t, s), left: -1}
	parts, err := partsOf(s, c.files)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if p.Unit != "" {
			c.units[place{p.Component.Host, p.Unit}] = true
		}
	}
	return c
}

// differs says how two clusters differ, "" for not at all.
func differs(a, b *cluster) string {
	if !maps.Equal(a.units, b.units) {
		return fmt.Sprintf("units %v, want %v", a.units, b.units)
	}
	for at, f := range a.files {
		if other, there := b.files[at]; !there || !bytes.Equal(f.Data, other.Data) || f.Mode != other.Mode {
			return fmt.Sprintf("%s is there: %v", at, there)
		}
	}
	for at, digest := range b.digests {
		if a.digests[at] != digest {
			return fmt.Sprintf("program %s is %q, want %q", at, a.digests[at], digest)
		}
	}
	if len(a.files) != len(b.files) {
		return fmt.Sprintf("%d files, want %d", len(a.files), len(b.files))
	}
	return ""
}

func TestNothingChangesNothing(t *testing.T) {
	eachJourney(t, func(t *testing.T, from, to Setup, _ *Transition) {
		for _, s := range []Setup{from, to} {
			if tr, err := New(s, s, Facts{}); err != nil || len(tr.Steps) > 0 {
				t.Errorf("New(p, p) = %d steps, %v; want none", len(tr.Steps), err)
			}
		}
	})
}

func TestApplyLeadsToTheSecondPlanAndUndoBack(t *testing.T) {
	eachJourney(t, func(t *testing.T, from, to Setup, tr *Transition) {
		c, start, end := newCluster(t, from), newCluster(t, from), newCluster(t, to)
		if err := Apply(t.Context(), tr, c, c, nil); err != nil {
			t.Fatal(err)
		}
		if d := differs(c, end); d != "" {
			t.Fatalf("after apply: %s", d)
		}
		calls := len(c.records)
		if err := Apply(t.Context(), tr, c, c, nil); err != nil || len(c.records) != calls {
			t.Fatalf("a second apply: %v, %d records more, want none", err, len(c.records)-calls)
		}
		if err := Undo(t.Context(), tr, c, c, nil); err != nil {
			t.Fatal(err)
		}
		if d := differs(c, start); d != "" {
			t.Fatalf("after undo: %s", d)
		}
	})
}

// TestKilledAnywhereItGoesOnOrBack kills apply before and after calls, of some transitions every one, then goes on to
// the end, or goes back, itself killed anywhere once more.
func TestKilledAnywhereItGoesOnOrBack(t *testing.T) {
	points := 0
	eachJourney(t, func(t *testing.T, from, to Setup, tr *Transition) {
		start, end := newCluster(t, from), newCluster(t, to)
		stride := 11
		if strings.HasSuffix(t.Name(), "split-1.15-1.36.yaml_flags_of_units") ||
			strings.Contains(t.Name(), "modern_1.24_to_1.36") ||
			strings.HasSuffix(t.Name(), "/programs_in_their_places") || strings.HasSuffix(t.Name(), "/retire_units") {
			stride = 1
		}
		for at := 0; ; at += stride {
			killed := newCluster(t, from)
			killed.left = at
			err := Apply(t.Context(), tr, killed, killed, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, errKilled) {
				t.Fatalf("killed at call %d: %v", at, err)
			}
			points++
			copied := func() *cluster {
				return &cluster{files: maps.Clone(killed.files), units: maps.Clone(killed.units),
					digests: maps.Clone(killed.digests),
					records: slices.Clone(killed.records), left: -1}
			}
			on, back, twice := copied(), copied(), copied()
			if err := Apply(t.Context(), tr, on, on, nil); err != nil || differs(on, end) != "" {
				t.Fatalf("killed at call %d, then on: %v %s", at, err, differs(on, end))
			}
			if err := Undo(t.Context(), tr, back, back, nil); err != nil || differs(back, start) != "" {
				t.Fatalf("killed at call %d, then back: %v %s", at, err, differs(back, start))
			}
			twice.left = at % 7
			if err := Undo(t.Context(), tr, twice, twice, nil); err != nil && !errors.Is(err, errKilled) {
				t.Fatalf("killed at call %d, then back: %v", at, err)
			}
			twice.left = -1
			if err := Apply(t.Context(), tr, twice, twice, nil); err != nil || differs(twice, end) != "" {
				t.Fatalf("killed at call %d, back in part, then on: %v %s", at, err, differs(twice, end))
			}
		}
	})
	if points < 200 {
		t.Errorf("killed at %d points, want hundreds", points)
	}
}

// runs lists what a cluster runs: for every component, the sum of the files that start it.
func (c *cluster) runs(parts []render.Part) map[string]bool {
	running := map[string]bool{}
	for _, p := range parts {
		all := p.Unit == "" || c.units[place{p.Component.Host, p.Unit}]
		for _, f := range p.Start {
			now, there := c.files[place{p.Component.Host, f.Path}]
			all = all && there && sameFile(now, f)
		}
		if all {
			running[p.Component.Host+"/"+p.Component.Name] = true
		}
	}
	return running
}

// TestOrderHoldsAfterEveryStep: forth and back, a controller of the first plan never runs beside one of the second that
// both change, and what runs has what it depends on.
func TestOrderHoldsAfterEveryStep(t *testing.T) {
	eachJourney(t, func(t *testing.T, from, to Setup, tr *Transition) {
		old, err := partsOf(from, map[place]render.File{})
		if err != nil {
			t.Fatal(err)
		}
		anew, err := partsOf(to, map[place]render.File{})
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, from)
		last := c.runs(old)
		c.watch = func() {
			before, after := c.runs(old), c.runs(anew)
			acts := func(parts []render.Part, running, other map[string]bool) (names []string) {
				for _, p := range parts {
					id := p.Component.Host + "/" + p.Component.Name
					if p.Component.Kind != kubever.APIServer && p.Component.Kind != plan.Etcd && running[id] &&
						!other[id] {
						names = append(names, id)
					}
				}
				return names
			}
			if a, b := acts(old, before, after), acts(anew, after, before); len(a) > 0 && len(b) > 0 {
				t.Errorf("%v of the first plan beside %v of the second", a, b)
			}
			now := maps.Clone(before)
			maps.Copy(now, after)
			for _, parts := range [][]render.Part{old, anew} {
				for _, p := range parts {
					if id := p.Component.Host + "/" + p.Component.Name; now[id] && !last[id] {
						needs(t, p, parts, now)
					}
				}
			}
			last = now
		}
		if err := Apply(t.Context(), tr, c, c, nil); err != nil {
			t.Fatal(err)
		}
		if err := Undo(t.Context(), tr, c, c, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// needs: what has just started finds what it depends on: a controller the API server of its side, an API server the
// members on its host. What runs already may see them restart.
func needs(t *testing.T, p render.Part, all []render.Part, running map[string]bool) {
	t.Helper()
	for _, q := range all {
		below := q.Component.Kind == kubever.APIServer && q.Component.Side == p.Component.Side &&
			p.Component.Kind != kubever.APIServer || q.Component.Kind == plan.Etcd && p.Component.Side != ""
		if p.Component.Kind == plan.Etcd || !below || q.Component.Host != p.Component.Host {
			continue
		}
		if other := q.Component.Host + "/" + q.Component.Name; !running[other] {
			t.Errorf("%s/%s starts without %s", p.Component.Host, p.Component.Name, other)
		}
	}
}

func TestFileThatIsAnotherStopsItBeforeAnythingHappens(t *testing.T) {
	p := planOf(t, "split", example(t, "split-1.15-1.36.yaml"))
	tr, err := New(Setup{}, Setup{Plan: p, Target: render.StaticPod}, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, Setup{})
	at := place{p.Hosts[0].Name, "/etc/kubernetes/manifests/kube-apiserver-modern.yaml"}
	c.files[at] = render.File{Path: at.path, Data: []byte("theirs")}
	if err := Apply(t.Context(), &tr, c, c, nil); err == nil || len(c.records) > 0 || len(c.files) != 1 {
		t.Errorf("apply = %v, %d records, %d files; want it refused", err, len(c.records), len(c.files))
	}
}

func TestRefusals(t *testing.T) {
	base := example(t, "split-1.15-1.36.yaml")
	p := planOf(t, "base", base)
	with := func(change func(*plan.Plan)) *plan.Plan {
		other := planOf(t, "other", base)
		change(other)
		return other
	}
	for says, other := range map[string]*plan.Plan{
		"are two clusters":          with(func(p *plan.Plan) { p.Name = "another" }),
		"the keys lie below":        with(func(p *plan.Plan) { p.Prefix = "/other" }),
		"spec.network":              with(func(p *plan.Plan) { p.Network.ServiceCIDRs = []string{"10.1.0.0/16"} }),
		"look for these in another": with(func(p *plan.Plan) { p.Resource("pods").Modern.Store = "modern" }),
		"custom resources":          with(func(p *plan.Plan) { p.CustomResources.Modern.Store = "core" }),
		"may not decode":            with(func(p *plan.Plan) { p.Resource("pods").Legacy.Decodes = []string{"v2"} }),
		"have to be read first":     with(func(p *plan.Plan) { p.Legacy.Version.Minor = 16 }),
		"does not upgrade kubelets": with(func(p *plan.Plan) { p.Kubelet.Minor = 16 }),
		"existing in one":           with(func(p *plan.Plan) { p.Legacy.Existing = !p.Legacy.Existing }),
		"no endpoint is in both plans": with(func(p *plan.Plan) {
			p.Stores[1].Endpoints = []string{"https://10.9.9.9:1"}
		}),
		"want static-pod or systemd": with(func(p *plan.Plan) { p.Target = plan.Hosted }),
		"run by one of the plans":    with(func(p *plan.Plan) { p.Stores[1].Managed = nil }),
		"one minor at a time": with(func(p *plan.Plan) {
			m := *p.Stores[1].Managed
			m.Version = "3.4.1"
			p.Stores[1].Managed = &m
		}),
		"its data would stay behind": with(func(p *plan.Plan) {
			m := *p.Stores[1].Managed
			m.DataDir = "/x"
			p.Stores[1].Managed = &m
		}),
	} {
		_, err := New(Setup{Plan: p, Target: render.StaticPod}, Setup{Plan: other, Target: render.StaticPod}, Facts{})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("New = %v, want it refused: %q", err, says)
		}
	}
}

// TestWhatMovesMustHaveNoKeys: a resource that a side is to look for in another store moves when its keys were looked
// for and none was there; the servers of that side are all stopped before the first looks elsewhere, and the keys are
// looked for again meanwhile, in both directions.
func TestWhatMovesMustHaveNoKeys(t *testing.T) {
	base := example(t, "ha-three-hosts-1.15-1.36.yaml")
	shared := planOf(t, "shared", base)
	split := planOf(t, "split", strings.Replace(base, "  kubelet: {", "  kubelet: {modern: {}, ", 1))
	from, to := Setup{Plan: shared, Target: render.StaticPod}, Setup{Plan: split, Target: render.StaticPod}
	moves := Moves(from, to)
	want := []Move{{pair.Modern, "csinodes", "core", "modern"}}
	if !slices.Equal(moves, want) {
		t.Fatalf("Moves = %v, want %v", moves, want)
	}
	for _, read := range []Facts{{}, {StoresAgree: true},
		{StoresAgree: true, Empty: []Move{{pair.Modern, "csinodes", "modern", "core"}}}} {
		var refused *RefusedError
		if _, err := New(from, to, read); !errors.As(err, &refused) || !strings.Contains(err.Error(), "csinodes") {
			t.Errorf("New with %+v = %v, want it refused", read, err)
		}
	}
	tr, err := New(from, to, Facts{StoresAgree: true, Empty: moves})
	if err != nil {
		t.Fatal(err)
	}
	stopped, checked, started := 0, -1, -1
	for i, s := range tr.Steps {
		modern := strings.HasSuffix(s.Title, "/kube-apiserver-modern.yaml")
		switch {
		case modern && s.Do.Kind == RemoveFile && checked < 0:
			stopped++
		case modern && s.Do.Kind == PutFile && started < 0:
			started = i
		case s.Phase == Stop && s.Undo != nil && s.Undo.Kind == RunChecks && s.Undo.Before[0].Kind == NoKeys:
			checked = i
			for _, a := range []*Action{s.Do, s.Undo} {
				store := map[*Action]string{s.Do: "core", s.Undo: "modern"}[a]
				if c := a.Before[0]; c.Stores[0].Name != store ||
					!slices.Equal(c.Keys, []string{"/registry/csinodes/"}) {
					t.Errorf("the check is %+v, want csinodes in store %s", c, store)
				}
			}
		}
	}
	if stopped != len(shared.Hosts) || checked < 0 || started < checked {
		t.Errorf("%d servers stop before the keys are looked for in step %d, and start in step %d; want all %d",
			stopped,
			checked, started, len(shared.Hosts))
	}
	if first := tr.Steps[0]; !slices.ContainsFunc(tr.Steps, func(s Step) bool {
		return s.Phase == Prepare && s.Do != nil && len(s.Do.Before) > 0 && s.Do.Before[0].Kind == NoKeys
	}) {
		t.Errorf("the keys are not looked for before anything changes: %+v", first)
	}
	if err := tr.Validate(); err != nil {
		t.Error(err)
	}
}

// TestInstallEndsWhenPodsAreAdmitted: apply ends when the modern API server has the registration by which it changes
// pods, not when the process runs that will register it.
func TestInstallEndsWhenPodsAreAdmitted(t *testing.T) {
	const want = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/pods.kubefusion.dev"
	for _, name := range []string{"pods-1.10-1.36.yaml", "split-1.15-1.36.yaml"} {
		p := planOf(t, name, example(t, name))
		tr, err := New(Setup{}, Setup{Plan: p, Target: render.StaticPod}, Facts{})
		if err != nil {
			t.Fatal(err)
		}
		way := slices.DeleteFunc(slices.Clone(tr.Steps), func(s Step) bool { return s.Do == nil })
		last := way[len(way)-1]
		if p.Pods == nil {
			if last.Do.Kind == RunChecks {
				t.Errorf("%s: the last step is %s", name, last.Title)
			}
			continue
		}
		if last.Do.Kind != RunChecks || last.Do.Before[0].Probe.Path != want || last.Do.Before[0].Cert == "" ||
			last.Do.Before[0].Probe.Port != p.Modern.Port || last.Do.Before[0].CA == "" {
			t.Errorf("%s: the last step is %s: %+v", name, last.Title, last.Do.Before)
		}
	}
}

func TestAnotherMinorNeedsStoresThatWereRead(t *testing.T) {
	base := example(t, "split-1.15-1.36.yaml")
	modern, older := planOf(t, "a", base), planOf(t, "b", strings.Replace(base, "1.36.3", "1.24", 1))
	from, to := Setup{Plan: modern, Target: render.StaticPod}, Setup{Plan: older, Target: render.StaticPod}
	var refused *RefusedError
	if _, err := New(from, to, Facts{}); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "have to be read") {
		t.Fatalf("New = %v, want it refused", err)
	}
	up, err := New(to, from, facts())
	if err != nil {
		t.Fatal(err)
	}
	gate := slices.IndexFunc(up.Steps, func(s Step) bool {
		return s.Phase == Modern && s.Undo != nil && s.Undo.Kind == RunChecks && s.Undo.Before[0].Kind == StoresAgree &&
			s.Undo.Before[0].Map.Modern.Version == older.Modern.Version.String()
	})
	started := slices.IndexFunc(up.Steps, func(s Step) bool {
		return s.Phase == Modern && s.Do != nil && s.Do.Kind == PutFile
	})
	if gate < started || started < 0 {
		t.Errorf("the gate on the way back is step %d, the first of the newer server %d", gate, started)
	}
}

// TestGatesSayWhoseServersStart: those of another minor, and those of a side that comes back, repair what they need.
func TestGatesSayWhoseServersStart(t *testing.T) {
	base := example(t, "split-1.15-1.36.yaml")
	modern, older := planOf(t, "a", base), planOf(t, "b", strings.Replace(base, "1.36.3", "1.33.13", 1))
	up, err := New(Setup{Plan: older, Target: render.StaticPod}, Setup{Plan: modern, Target: render.StaticPod}, facts())
	if err != nil {
		t.Fatal(err)
	}
	gates := 0
	for _, s := range up.Steps {
		for _, a := range []*Action{s.Do, s.Undo} {
			if a == nil {
				continue
			}
			for _, c := range slices.Concat(a.Before, a.After) {
				if c.Kind != StoresAgree {
					continue
				}
				if gates++; !slices.Equal(c.Map.Starting, []pair.Side{pair.Modern}) {
					t.Errorf("step %s, %s: the servers of %q start", s.ID, s.Title, c.Map.Starting)
				}
			}
		}
	}
	if gates < 2 {
		t.Errorf("%d checks of the stores", gates)
	}
	if got := StoresCheck(Setup{Plan: modern}, Setup{Plan: modern}, nil).Map.Starting; got != nil {
		t.Errorf("without another minor %q start", got)
	}
	retired := *modern
	retired.Legacy.Retired = true
	if got := starting(modern, &retired); !slices.Equal(got, []pair.Side{pair.Legacy}) {
		t.Errorf("after the way back from a retired side %q start", got)
	}
	if got := starting(&retired, modern); got != nil {
		t.Errorf("when a side is retired %q start", got)
	}
}

// TestChecksSayWhoseProcessesAndFindingsCount: the modern side's manager on the same host is none of the legacy side's,
// and what the spec accepts does not stand in the way back.
func TestChecksSayWhoseProcessesAndFindingsCount(t *testing.T) {
	vendor := planOf(t, "vendor", example(t, "vendor-1.6-1.36.yaml"))
	tr, err := New(Setup{}, Setup{Plan: vendor, Target: render.StaticPod}, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range tr.Steps {
		if s.Do == nil || s.Do.Kind != RunChecks || len(s.Do.Before) == 0 || s.Do.Before[0].Kind != Runs {
			continue
		}
		seen++
		c := s.Do.Before[0]
		for _, o := range vendor.Components {
			if o.Host != s.Host || o.Kind != c.Program || o.Side != pair.Modern {
				continue
			}
			if len(c.Others) != 1 || len(c.Others[0]) != len(o.Args) {
				t.Errorf("%s on %s: others are %v, want the arguments of %s", s.Title, s.Host, c.Others, o.Name)
			}
		}
	}
	if seen == 0 {
		t.Error("no check of what runs already")
	}
	vendor.Accept = []finding.Acceptance{{Rule: "FUS004", Reason: "wanted"}}
	if len(storesCheck(vendor, nil).Accept) != 1 {
		t.Error("the check of the stores does not know what the spec accepts")
	}
}

func TestJournalOfAnother(t *testing.T) {
	tr := Transition{Steps: []Step{{ID: "001"}, {ID: "002"}}}
	for _, events := range [][][2]string{
		{{"002", "begun"}}, {{"001", "done"}}, {{"001", "undone"}}, {{"001", "begun"}, {"002", "done"}},
		{{"001", "x"}},
		{{"001", "begun"}, {"001", "done"}, {"002", "begun"}, {"002", "done"}, {"003", "begun"}},
	} {
		var records []Record
		for _, e := range events {
			records = append(records, Record{Step: e[0], Event: Event(e[1])})
		}
		if s, err := StateOf(&tr, records); !errors.Is(err, ErrJournal) {
			t.Errorf("StateOf(%v) = %v, %v; want ErrJournal", records, s, err)
		}
	}
}
