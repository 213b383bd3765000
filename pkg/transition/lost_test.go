package transition

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/render"
)

// onOtherHost is the plan of the example of three hosts with another one in the place of the third.
func onOtherHost(t *testing.T, target render.Target) Setup {
	t.Helper()
	text := strings.NewReplacer("cp-3", "cp-4", "10.0.0.13", "10.0.0.14").Replace(example(t, haExample))
	return Setup{Plan: planOf(t, haExample, text), Target: target}
}

// withoutHost is a cluster of which one host is off.
func withoutHost(m *memberModel, host string) *memberModel {
	maps.DeleteFunc(m.files, func(at place, _ render.File) bool { return at.host == host })
	maps.DeleteFunc(m.units, func(at place, _ bool) bool { return at.host == host })
	delete(m.data, host)
	return m
}

// TestALostHostIsLeftOut, killed at every call, and turned round there: nothing is done on it, and its member leaves
// before others join or start again, so that the store keeps its majority. Undo brings all back but the lost host.
func TestALostHostIsLeftOut(t *testing.T) {
	for name, pair := range map[string]struct {
		lost     string
		from, to func(render.Target) Setup
	}{
		"the last one": {"cp-3", func(r render.Target) Setup { return onHosts(t, r, 1, 2, 3) },
			func(r render.Target) Setup { return onHosts(t, r, 1, 2) }},
		"the first one": {"cp-1", func(r render.Target) Setup { return onHosts(t, r, 1, 2, 3) },
			func(r render.Target) Setup { return onHosts(t, r, 2, 3) }},
		"replaced": {"cp-3", func(r render.Target) Setup { return onHosts(t, r, 1, 2, 3) },
			func(r render.Target) Setup { return onOtherHost(t, r) }},
	} {
		for _, target := range []render.Target{render.StaticPod, render.Systemd} {
			t.Run(strings.ReplaceAll(name, " ", "_")+","+string(target), func(t *testing.T) {
				from, to := pair.from(target), pair.to(target)
				read := facts()
				read.Lost = []string{pair.lost}
				tr, err := New(from, to, read)
				if err != nil {
					t.Fatal(err)
				}
				if err := tr.Validate(); err != nil {
					t.Fatal(err)
				}
				for _, s := range tr.Steps {
					if s.Host == pair.lost {
						t.Errorf("step %s, %s, is done on %s", s.ID, s.Title, s.Host)
					}
				}
				if s := tr.Steps[0]; s.Do == nil || s.Do.Before[0].Kind != Silent || len(s.Do.Before[0].Addresses) < 4 {
					t.Errorf("the first step is %q", s.Title)
				}
				start, end := withoutHost(newMemberModel(t, from), pair.lost), newMemberModel(t, to)
				back := start.copied() // as it is when all is taken back
				maps.DeleteFunc(back.members, func(peer string, _ modelMember) bool {
					return strings.Contains(peer, "10.0.0.1"+strings.TrimPrefix(pair.lost, "cp-")+":")
				})
				if len(back.members) != 2 {
					t.Fatalf("members without the lost one: %v", back.members)
				}
				points := 0
				for at, dies := 1, true; dies; at += 3 {
					points++
					begin := start.copied()
					begin.left = at
					err := Apply(t.Context(), &tr, begin, begin, nil)
					if dies = errors.Is(err, errKilled); !dies && err != nil {
						t.Fatalf("dying at call %d: %v", at, err)
					}
					on, again := begin.copied(), begin.copied()
					on.left, again.left = -1, -1
					if err := Apply(t.Context(), &tr, on, on, nil); err != nil || on.is(end) != "" {
						t.Fatalf("killed at call %d, then on: %v %s", at, err, on.is(end))
					}
					want := back
					if _, there := again.members[peerOf(start, back)]; there {
						want = start
					}
					if err := Undo(t.Context(), &tr, again, again, nil); err != nil || again.is(want) != "" {
						t.Fatalf("killed at call %d, then back: %v %s", at, err, again.is(want))
					}
				}
				t.Logf("%d steps, killed at %d points", len(tr.Steps), points)
			})
		}
	}
}

// peerOf is the peer URL of the lost member.
func peerOf(with, without *memberModel) string {
	for peer := range with.members {
		if _, there := without.members[peer]; !there {
			return peer
		}
	}
	return ""
}

// TestLostHostsThatAreRefused: what is lost was there before, and is not there afterwards.
func TestLostHostsThatAreRefused(t *testing.T) {
	three, two := onHosts(t, render.Systemd, 1, 2, 3), onHosts(t, render.Systemd, 1, 2)
	newer := onHosts(t, render.Systemd, 1, 2)
	own := *newer.Plan.Stores[1].Managed
	own.Version = "3.7.0"
	newer.Plan.Stores[1].Managed = &own
	for says, c := range map[string]struct {
		from, to Setup
		lost     []string
	}{
		`"cp-9": is none of FROM`:           {three, two, []string{"cp-9"}},
		`"cp-2": is in TO as well`:          {three, two, []string{"cp-3", "cp-2"}},
		"want the plan that they were part": {Setup{}, two, []string{"cp-3"}},
		"one without them":                  {three, Setup{}, []string{"cp-3"}},
		"a lost member, and etcd":           {three, newer, []string{"cp-3"}},
	} {
		read := facts()
		read.Lost = c.lost
		var refused *RefusedError
		if _, err := New(c.from, c.to, read); !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("New = %v, want it refused: %q", err, says)
		}
	}
}

// TestALostNodeIsLeftOut: the kubelet of a node that is gone is not brought back.
func TestALostNodeIsLeftOut(t *testing.T) {
	const nodes = "nodes: [{name: node-1, address: 10.0.1.1}, {name: node-2, address: 10.0.1.2}], program: /opt/kubelet"
	at := func(listed string) Setup {
		return Setup{Plan: planOf(t, splitExample, strings.Replace(example(t, splitExample), "  kubelet: {",
			"  kubelet: {modern: {"+listed+"}, ", 1)), Target: render.Systemd}
	}
	from, to := at(nodes), at(strings.Replace(nodes, ", {name: node-2, address: 10.0.1.2}", "", 1))
	read := facts()
	tr, err := New(from, to, read)
	if err != nil {
		t.Fatal(err)
	}
	on := func(s Step) bool { return s.Host == "node-2" }
	if !slices.ContainsFunc(tr.Steps, on) {
		t.Fatal("the kubelet of a node that leaves is not brought back")
	}
	read.Lost = []string{"node-2"}
	if tr, err = New(from, to, read); err != nil || slices.ContainsFunc(tr.Steps, on) {
		t.Errorf("%v; steps on the lost node: %v", err, tr.Steps)
	}
}
