package transition

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// losing is a cluster that may lose a host.
type losing interface {
	Runner
	Journal
}

// withoutLost is a model of which a host is lost: nothing is done there, asked of it or looked for there.
type withoutLost struct {
	losing
	lost Host
	on   map[string]bool // where nothing answers was asked on
}

func (w *withoutLost) touches(host string, a *Action) error {
	if host == w.lost.Name {
		return fmt.Errorf("%s on %s, which is lost", a.Kind, host)
	}
	for ; a != nil; a = a.First {
		for _, s := range a.stores() {
			for _, e := range s.Endpoints {
				if strings.Contains(e, "/"+w.lost.Address+":") {
					return fmt.Errorf("%s on %s looks for %s", a.Kind, host, e)
				}
			}
		}
	}
	return nil
}

func (w *withoutLost) Do(ctx context.Context, host string, a *Action) error {
	return errors.Join(w.touches(host, a), w.losing.Do(ctx, host, a))
}

func (w *withoutLost) Check(ctx context.Context, host string, c *Check) error {
	if c.Kind == Silent {
		w.on[host] = true
		return nil
	}
	if c.Node != nil && c.Node.Name == w.lost.Name {
		return fmt.Errorf("%s of %s, which is lost", c.Kind, c.Node.Name)
	}
	return errors.Join(w.touches(host, &Action{Kind: RunChecks, Before: []Check{*c}}), w.losing.Check(ctx, host, c))
}

func (w *withoutLost) Keep(ctx context.Context, host string, o *Objects) (*handover.Known, error) {
	known, err := w.losing.Keep(ctx, host, o)
	return known, errors.Join(err, w.touches(host, &Action{Kind: HandOver, Objects: o}))
}

func (w *withoutLost) Digest(ctx context.Context, host, path string) (string, error) {
	digest, err := w.losing.Digest(ctx, host, path)
	return digest, errors.Join(err, w.touches(host, &Action{Kind: PutProgram}))
}

// TestAHostIsLostInAnOpenTransition at every call, forth and back: what is left is done without it, and the others end
// as the plan has them. Only what needs the record that lies on the host is refused, before anything is done.
func TestAHostIsLostInAnOpenTransition(t *testing.T) {
	setups := memberJourneys(t)
	maps.DeleteFunc(setups, func(name string, pair [2]Setup) bool { // a store of one or two goes with its host
		return len(pair[0].Plan.Hosts)+len(pair[1].Plan.Hosts) < 5 || strings.HasSuffix(name, ", static-pod")
	})
	three := func(more ...string) Setup {
		return Setup{Plan: planOf(t, haExample, strings.NewReplacer(more...).Replace(example(t, haExample))),
			Target: render.Systemd}
	}
	setups["another flag"] = [2]Setup{three(), three("controllers: {", "controllers: {logLevel: 4, ")}
	setups["pods become units"] = [2]Setup{onHosts(t, render.StaticPod, 1, 2, 3), onHosts(t, render.Systemd, 1, 2, 3)}
	ended := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(setups)) {
		from, to := setups[name][0], setups[name][1]
		tr, err := New(from, to, facts())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		start, end := newMemberModel(t, from), newMemberModel(t, to)
		for _, lost := range tr.Hosts {
			for at, dies := 20, true; dies; at += 23 {
				begin := start.copied()
				begin.left = at
				if err = Apply(t.Context(), &tr, begin, begin, nil); err != nil && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				if dies = err != nil; len(begin.Records()) == 0 {
					continue
				}
				for _, undo := range []bool{false, true} {
					run, want := Apply, end
					if undo {
						run, want = Undo, start
					}
					what := fmt.Sprintf("%s: %s lost at call %d, undo %t", name, lost.Name, at, undo)
					m := withoutHost(begin.copied(), lost.Name)
					m.left, m.minority = -1, nil
					r := &withoutLost{losing: m, lost: lost, on: map[string]bool{}}
					left, err := tr.Without(m.Records(), []string{lost.Name}, undo)
					if err == nil {
						err = errors.Join(Silence(t.Context(), &tr, r, []string{lost.Name}),
							run(t.Context(), left, r, m, nil))
					}
					if len(r.on) == 0 || r.on[lost.Name] {
						t.Fatalf("%s: %v look whether something answers", what, r.on)
					}
					switch lacks := (*WithoutError)(nil); {
					case errors.As(err, &lacks):
						t.Errorf("%s: %v", what, err)
					case err != nil && strings.Contains(err.Error(), "majority"):
						ended["no majority"]++
					case err != nil:
						t.Errorf("%s: %v", what, err)
					default:
						ended["done"]++
						if d := differs(m.cluster, withoutHost(want.copied(), lost.Name).cluster); d != "" {
							t.Errorf("%s: %s", what, d)
						}
						state, err := StateOf(&tr, m.Records())
						if err != nil || state.Open || undo != (state.Done == 0) {
							t.Errorf("%s: the journal is at %+v, %v", what, state, err)
						}
					}
				}
			}
		}
	}
	t.Log(ended)
}

// openAfter applies a transition up to the first step of some kind on a host, and a few calls more.
func openAfter(t *testing.T, from Setup, tr *Transition, kind Kind, host string, more int) *cluster {
	t.Helper()
	c := newCluster(t, from)
	c.watch = func() {
		if c.did[len(c.did)-1] == kind && c.left < 0 && c.records[len(c.records)-1].Step == stepOf(t, tr, kind, host) {
			c.left = more
		}
	}
	if err := Apply(t.Context(), tr, c, c, nil); !errors.Is(err, errKilled) {
		t.Fatalf("no step %q on %s is done: %v", kind, host, err)
	}
	c.left, c.watch = -1, nil
	return c
}

func stepOf(t *testing.T, tr *Transition, kind Kind, host string) string {
	t.Helper()
	at := slices.IndexFunc(tr.Steps, func(s Step) bool { return s.Do != nil && s.Do.Kind == kind && s.Host == host })
	if at < 0 {
		t.Fatalf("no step %q on %s", kind, host)
	}
	return tr.Steps[at].ID
}

// TestALostHostKeepsTheRecordOfAHandOver: without it nobody knows what went. Any other host may be lost.
func TestALostHostKeepsTheRecordOfAHandOver(t *testing.T) {
	from := onHosts(t, render.Systemd, 1, 2, 3)
	to := Setup{Plan: planOf(t, haExample, strings.Replace(example(t, haExample), "spec:\n",
		"spec:\n  handedOver: [deployments.apps]\n", 1)), Target: render.Systemd}
	tr, err := New(from, to, facts())
	if err != nil {
		t.Fatal(err)
	}
	c := openAfter(t, from, &tr, HandOver, "cp-1", 1)
	for _, test := range []struct {
		lost string
		undo bool
		says string
	}{
		{"cp-1", false, "it needs the record that lies on that host"},
		{"cp-1", true, "it needs the record that lies on that host"},
		{"cp-2", false, ""}, {"cp-2", true, ""},
		{"cp-9", false, `"cp-9" is none of its hosts`},
	} {
		_, err := tr.Without(c.Records(), []string{test.lost}, test.undo)
		if lacks := (*WithoutError)(nil); test.says == "" && err != nil ||
			test.says != "" && (!errors.As(err, &lacks) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("without %s, undo %t: %v, want %q", test.lost, test.undo, err, test.says)
		} else if lacks != nil {
			for _, why := range lacks.Reasons { // each is of a step of the lost host
				if strings.HasPrefix(why, "step ") && !strings.Contains(why, " on "+test.lost+":") {
					t.Errorf("without %s, undo %t: %s", test.lost, test.undo, why)
				}
			}
		}
	}
	if _, err := tr.Without(nil, []string{"cp-2"}, false); err == nil || !strings.Contains(err.Error(), "plan --lost") {
		t.Errorf("nothing was begun: %v", err)
	}
}

// TestANodeIsLostOnItsWay: the others go on, and nobody asks for the budgets of the pods that it had.
func TestANodeIsLostOnItsWay(t *testing.T) {
	at := func(nodes string) Setup {
		return Setup{Plan: planOf(t, splitExample, strings.Replace(example(t, splitExample), "  kubelet: {",
			"  kubelet: {modern: {nodes: ["+nodes+"], program: /opt/kubelet}, ", 1)), Target: render.Systemd}
	}
	nodes := "{name: node-1, address: 10.0.1.1}, {name: node-2, address: 10.0.1.2}, {name: node-3, address: 10.0.1.3}"
	from, to := at("{name: node-1, address: 10.0.1.1}"), at(nodes)
	tr, err := New(from, to, facts())
	if err != nil {
		t.Fatal(err)
	}
	for _, undo := range []bool{false, true} {
		c := openAfter(t, from, &tr, ChangeKubelet, "node-2", 0)
		r := &withoutLost{losing: c, lost: Host{"node-2", "10.0.1.2"}, on: map[string]bool{}}
		left, err := tr.Without(c.Records(), []string{"node-2"}, undo)
		if err := errors.Join(err, Silence(t.Context(), &tr, r, []string{"node-2"})); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(r.on, map[string]bool{to.Plan.Hosts[0].Name: true}) {
			t.Errorf("%v look whether it is silent, want the host of the control plane", r.on)
		}
		run, want := Apply, to
		if undo {
			run, want = Undo, from
		}
		if err := run(t.Context(), left, r, c, nil); err != nil {
			t.Fatalf("undo %t: %v", undo, err)
		}
		end := newCluster(t, want)
		for _, m := range []*cluster{c, end} {
			maps.DeleteFunc(m.files, func(at place, _ render.File) bool { return at.host == "node-2" })
		}
		if d := differs(c, end); d != "" {
			t.Errorf("undo %t: %s", undo, d)
		}
		lost := 0
		for _, record := range c.Records() {
			if record.Lost == "node-2" {
				lost++
			}
		}
		if lost == 0 {
			t.Error("the journal does not say what was not done")
		}
	}
}

// TestAnotherHostDoesIt: what one host was to do for the cluster, with its own API server and the members that are
// left.
func TestAnotherHostDoesIt(t *testing.T) {
	store := plan.Store{Name: "core", Endpoints: []string{"https://10.0.0.11:2379", "https://cp-2:2379"}}
	l := &leaving{Transition: &Transition{}, gone: []Host{{"cp-1", "10.0.0.11"}}, by: Host{"cp-2", "fd00::2"}}
	a := &Action{Kind: StartUnit, Unit: "x.service", First: &Action{Kind: LowerStore, Members: &Members{Store: store}},
		Before: []Check{{Kind: FileIs}, {Kind: NoKeys, Stores: []plan.Store{store}}},
		After: []Check{{Kind: Works, Asked: []Access{{Server: "https://10.0.0.11:6443"}, {Server: "https://lb:6443"},
			{Server: "https://127.0.0.1:6443"}}}, {Kind: MastersAre, Masters: &Masters{
			Endpoints: store, Addresses: []string{"10.0.0.11", "10.0.0.12"}}}}}
	got, err := l.instead(a)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []CheckKind
	for _, c := range got.Before {
		kinds = append(kinds, c.Kind)
	}
	var asked []string
	for _, access := range got.accesses() {
		asked = append(asked, access.Server)
	}
	if got.Kind != RunChecks || got.Unit != "" || got.First == nil || got.First.Kind != LowerStore ||
		!slices.Equal(kinds, []CheckKind{NoKeys, Works, MastersAre}) || len(got.After) > 0 {
		t.Errorf("instead it does %q with %q, first %+v", got.Kind, kinds, got.First)
	}
	want := []string{"https://[fd00::2]:6443", "https://lb:6443", "https://127.0.0.1:6443"}
	if !slices.Equal(asked, want) {
		t.Errorf("it asks %q, want %q", asked, want)
	}
	for _, s := range slices.Concat(got.stores(), got.First.stores()) {
		if s.Name != "" && !slices.Equal(s.Endpoints, store.Endpoints[1:]) {
			t.Errorf("it looks for the store at %q", s.Endpoints)
		}
	}
	if m := got.masters()[0].Addresses; !slices.Equal(m, []string{"10.0.0.12"}) {
		t.Errorf("the service kubernetes is to lead to %q", m)
	}
	for _, kind := range []Kind{AddMember, PromoteMember, RemoveMember} {
		if got, err := l.instead(&Action{Kind: kind, Joining: &Joining{Store: store}}); err != nil ||
			got.Kind != RemoveMember {
			t.Errorf("in the place of %q: %+v, %v", kind, got, err)
		}
	}
	alone := &leaving{Transition: &Transition{}, gone: l.gone}
	if _, err := alone.instead(a); err == nil || !strings.Contains(err.Error(), "no other host") {
		t.Errorf("with no other host: %v", err)
	}
	if got, err := alone.instead(&Action{Kind: StartUnit, Unit: "x.service"}); got != nil || err != nil {
		t.Errorf("what is of the machine alone: %+v, %v", got, err)
	}
}

// TestEveryKindKnowsWhatBecomesOfItOnALostHost, those of actions and those of checks.
func TestEveryKindKnowsWhatBecomesOfItOnALostHost(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "transition.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, is := n.(*ast.ValueSpec)
		if !is || len(v.Values) != 1 {
			return true
		}
		text, _ := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		known := true
		switch of, _ := v.Type.(*ast.Ident); of.Name {
		case "Kind":
			_, known = actionsOnLost[Kind(text)]
		case "CheckKind":
			_, known = checksOnLost[CheckKind(text)]
		default:
			return true
		}
		if found++; !known {
			t.Errorf("%s, %q: want it among actionsOnLost or checksOnLost", v.Names[0].Name, text)
		}
		return true
	})
	if found < 60 {
		t.Errorf("%d kinds are in transition.go", found)
	}
}

// TestNoStoreIsForgotten: an action that is full of everything has each of its stores, API servers and endpoints named.
func TestNoStoreIsForgotten(t *testing.T) {
	a := &Action{}
	count := map[reflect.Type]int{}
	var fill func(v reflect.Value, depth int)
	fill = func(v reflect.Value, depth int) {
		count[v.Type()]++
		switch v.Kind() {
		case reflect.Pointer:
			if v.Type() == reflect.TypeFor[*Action]() || v.Type() == reflect.TypeFor[*Node]() {
				return // First is gone through by itself, and nodes are of the host
			}
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth)
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Struct && depth < 6 {
				v.Set(reflect.MakeSlice(v.Type(), 2, 2))
				fill(v.Index(0), depth+1)
				fill(v.Index(1), depth+1)
			}
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[plan.Store]() {
				return
			}
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i), depth)
				}
			}
		}
	}
	fill(reflect.ValueOf(a).Elem(), 0)
	for what, got := range map[reflect.Type]int{reflect.TypeFor[plan.Store](): len(a.stores()),
		reflect.TypeFor[Access](): len(a.accesses()), reflect.TypeFor[Masters](): len(a.masters())} {
		if got != count[what] || got == 0 {
			t.Errorf("%d of %d %s are named", got, count[what], what)
		}
	}
}
