package transition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

const threeHosts = "ha-three-hosts-1.15-1.36.yaml"

// etcdAt is an example with a release of the managed store.
func etcdAt(t *testing.T, name, release string, target render.Target) Setup {
	t.Helper()
	return Setup{Plan: planOf(t, name, strings.ReplaceAll(example(t, name), "version: 3.6.8", "version: "+release)),
		Target: target}
}

// etcdJourneys are changes of the minor of a store, of one and of three members.
func etcdJourneys(t *testing.T) map[string][2]Setup {
	pairs := map[string][2]Setup{}
	for _, releases := range [][2]string{{"3.4.21", "3.5.35"}, {"3.5.35", "3.6.8"}, {"3.6.8", "3.5.35"},
		{"3.6.8", "3.7.3"}} {
		for name, target := range map[string]render.Target{threeHosts: render.Systemd, splitExample: render.StaticPod} {
			pairs[fmt.Sprintf("etcd %s to %s, %s, %s", releases[0], releases[1], target, name)] = [2]Setup{
				etcdAt(t, name, releases[0], target), etcdAt(t, name, releases[1], target)}
		}
	}
	return pairs
}

// etcdModel is a store as etcd has it: its members agree on the newer minor when all of them run it, unless a downgrade
// is under way, and one of the older minor does not start after that.
type etcdModel struct {
	t           *testing.T
	was, is     []render.Part
	older       []render.Part // of the older minor: was, or is
	agreed      bool          // on the newer minor
	lowered     bool
	onlyMembers int
}

func modelOf(t *testing.T, from, to Setup, agreed bool) *etcdModel {
	t.Helper()
	m := &etcdModel{t: t, agreed: agreed}
	for _, of := range []struct {
		setup Setup
		parts *[]render.Part
	}{{from, &m.was}, {to, &m.is}} {
		parts, err := partsOf(of.setup, map[place]render.File{})
		if err != nil {
			t.Fatal(err)
		}
		*of.parts = slices.DeleteFunc(parts, func(p render.Part) bool { return p.Component.Kind != plan.Etcd })
	}
	m.older = m.was
	if agreed {
		m.older = m.is
	}
	m.onlyMembers = len(m.was)
	return m
}

// look follows what a cluster did last.
func (m *etcdModel) look(c *cluster) {
	newer := m.is
	if &m.older[0] == &m.is[0] {
		newer = m.was
	}
	old, anew := len(c.runs(m.older)), len(c.runs(newer))
	if old > 0 && m.agreed {
		m.t.Errorf("a member of the older minor runs, and they have agreed on the newer one, after %v", c.did)
		m.agreed = false // said once
	}
	if old+anew < m.onlyMembers-1 {
		m.t.Errorf("%d of %d members run after %v", old+anew, m.onlyMembers, c.did)
	}
	switch c.did[len(c.did)-1] {
	case LowerStore:
		if anew == m.onlyMembers {
			m.agreed, m.lowered = false, true
		} else if m.agreed {
			m.t.Errorf("only %d of %d members run what they have agreed on, and cannot agree on less", anew,
				m.onlyMembers)
		}
	case RaiseStore:
		m.lowered = false
	}
	if old == m.onlyMembers {
		m.lowered = false // etcd ends it by itself
	}
	m.agreed = m.agreed || anew == m.onlyMembers && !m.lowered
}

// TestMembersOfAnotherMinorChangeInOrder: whatever is killed, no member of an older minor starts once all have agreed
// on the newer one, no two members are away at a time, and it goes on or goes back.
func TestMembersOfAnotherMinorChangeInOrder(t *testing.T) {
	points := 0
	pairs := etcdJourneys(t)
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		from, to := pairs[name][0], pairs[name][1]
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			tr, err := New(from, to, Facts{})
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Validate(); err != nil {
				t.Fatal(err)
			}
			noWayBack := strings.HasPrefix(name, "etcd 3.4")
			start, end := newCluster(t, from), newCluster(t, to)
			members := modelOf(t, from, to, strings.Contains(name, "3.6.8 to 3.5"))
			for at := 0; ; at++ {
				model := *members
				c := &cluster{files: maps.Clone(start.files), units: maps.Clone(start.units), left: at}
				c.watch = func() { model.look(c) }
				err := Apply(t.Context(), &tr, c, c, nil)
				done := err == nil
				if !done && !errors.Is(err, errKilled) {
					t.Fatalf("killed at call %d: %v", at, err)
				}
				points++
				c.left = -1
				if noWayBack && model.agreed { // MayComeBack says so, and nothing is undone
					c.left = at
					if err := Apply(t.Context(), &tr, c, c, nil); done && err != nil {
						t.Fatal(err)
					}
				} else if err := Undo(t.Context(), &tr, c, c, nil); err != nil || differs(c, start) != "" {
					t.Fatalf("killed at call %d, then back: %v %s", at, err, differs(c, start))
				}
				c.left = -1
				if err := Apply(t.Context(), &tr, c, c, nil); err != nil || differs(c, end) != "" {
					t.Fatalf("killed at call %d, then on: %v %s", at, err, differs(c, end))
				}
				if done {
					break
				}
			}
		})
	}
	if t.Logf("killed at %d points", points); points < 200 {
		t.Errorf("killed at %d points, want hundreds", points)
	}
}

// TestOnlyTheLastMemberHasNoWayBack: what cannot be undone is asked before it is done, and checked before it is undone.
func TestOnlyTheLastMemberHasNoWayBack(t *testing.T) {
	for releases, ends := range map[[2]string]bool{{"3.4.21", "3.5.35"}: true, {"3.5.35", "3.6.8"}: false} {
		tr, err := New(etcdAt(t, threeHosts, releases[0], render.Systemd), etcdAt(t, threeHosts, releases[1],
			render.Systemd), Facts{})
		if err != nil {
			t.Fatal(err)
		}
		asked, started := -1, []int{}
		for i, s := range tr.Steps {
			switch {
			case s.Do != nil && s.Do.Kind == ByHand:
				asked = i
			case s.Do != nil && s.Do.Kind == StartUnit:
				started = append(started, i)
				guarded := s.Undo.First != nil && s.Undo.First.Kind == LowerStore
				if ends {
					guarded = len(s.Undo.Before) == 1 && s.Undo.Before[0].Kind == MayComeBack
				}
				if !guarded {
					t.Errorf("%v: step %s, %s may be undone at any time", releases, s.ID, s.Title)
				}
			}
		}
		if len(started) != 3 || (asked >= 0) != ends || ends && (asked < started[1] || asked > started[2]) {
			t.Errorf("%v: members start in steps %v, and somebody is asked in %d", releases, started, asked)
		}
		last := tr.Steps[len(tr.Steps)-1]
		if want := map[bool]CheckKind{true: MayComeBack, false: MembersAre}[ends]; last.Undo == nil ||
			last.Undo.Before[0].Kind != want {
			t.Errorf("%v: the way back begins with %+v, want the check %q", releases, last.Undo, want)
		}
	}
}

func TestRefusalsOfEtcd(t *testing.T) {
	for releases, says := range map[[2]string]string{
		{"3.4.21", "3.6.8"}:          "one minor at a time: first to a release of 3.5",
		{"3.7.1", "3.5.35"}:          "one minor at a time: first to a release of 3.6",
		{"3.5.21", "3.6.8"}:          "from 3.5.26 or later",
		{"3.5.35", "3.4.21"}:         "no way back to 3.4 but a snapshot",
		{"3.3.27", "3.4.21"}:         "no way from 3.3",
		{"3.6.8", "3.9.1"}:           "one minor at a time: first to a release of 3.7",
		{"3.7.3", "3.8.0"}:           "no way to 3.8",
		{"3.5.35-vendor.2", "3.6.8"}: "",
		{"3.5.26", "3.6.8"}:          "",
		{"3.6.8", "3.5.21"}:          "", // back is none of the problems of the way up
		{"3.6.8", "3.6.12"}:          "",
		{"3.5.35", "3.5.21-acme.1"}:  "",
	} {
		_, err := New(etcdAt(t, splitExample, releases[0], render.Systemd), etcdAt(t, splitExample, releases[1],
			render.Systemd), Facts{})
		var refused *RefusedError
		if says == "" && err != nil ||
			says != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), says)) {
			t.Errorf("from %s to %s: %v; want it refused: %q", releases[0], releases[1], err, says)
		}
	}
}
