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

// TestOneMachineIsOneHost: steps are done on hosts by name, so that of two names for one address the steps of one would
// take away what those of the other put; and members of stores are known by their addresses.
func TestOneMachineIsOneHost(t *testing.T) {
	text := example(t, haExample)
	at := func(pairs ...string) Setup {
		return Setup{Plan: planOf(t, haExample, strings.NewReplacer(pairs...).Replace(text)), Target: render.Systemd}
	}
	node := func(host string) Setup {
		return at("{version: 1.15.12}", "{version: 1.15.12, modern: {nodes: ["+host+"]}}")
	}
	for name, test := range map[string]struct {
		from, to Setup
		lost     []string
		says     string // "" where there is a transition
	}{
		"another name": {at(), at("cp-1,", "cp-9,"), nil, "host cp-9: 10.0.0.11 is the address of cp-1"},
		"names that are swapped": {at(), at("cp-1,", "cp-2,", "cp-2,", "cp-1,"), nil,
			"host cp-2: 10.0.0.11 is the address of cp-1"},
		"another address": {at(), at("10.0.0.11", "10.0.0.19"), nil, "host cp-1: 10.0.0.11 and 10.0.0.19"},
		"the address of one that is lost": {at(), at("cp-3,", "cp-4,"), []string{"cp-3"},
			"host cp-4: 10.0.0.13 is the address of cp-3"},
		"another name of a node": {node("{name: n-1, address: 10.0.0.21}"),
			node("{name: n-2, address: 10.0.0.21}"), nil, "host n-2: 10.0.0.21 is the address of n-1"},
		"another address of a node": {node("{name: n-1, address: 10.0.0.21}"),
			node("{name: n-1, address: 10.0.0.22, args: [{name: v, value: '2'}]}"), nil, ""},
		"the same address, in other letters": {node("{name: n-1, address: 'fd00::a'}"),
			node("{name: n-2, address: 'FD00:0::A'}"), nil, "is the address of n-1"},
		"another order": {at(), at("cp-1, address: 10.0.0.11", "cp-2, address: 10.0.0.12",
			"cp-2, address: 10.0.0.12", "cp-1, address: 10.0.0.11"), nil, ""},
	} {
		read := facts()
		read.Lost = test.lost
		tr, err := New(test.from, test.to, read)
		if name == "another address of a node" && !slices.Contains(tr.Hosts, Host{"n-1", "10.0.0.22"}) {
			t.Errorf("%s: it is reached at %v, want its address in TO", name, tr.Hosts)
		}
		if test.says == "" && err != nil ||
			test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: New = %v, want it refused: %q", name, err, test.says)
		}
	}
}
