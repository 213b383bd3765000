package transition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

const haExample = "ha-three-hosts-1.15-1.36.yaml"

// onHosts is the plan of the example of three hosts on some of them.
func onHosts(t *testing.T, target render.Target, hosts ...int) Setup {
	t.Helper()
	text := example(t, haExample)
	for i := 1; i <= 3; i++ {
		if !slices.Contains(hosts, i) {
			text = strings.Replace(text, fmt.Sprintf("  - {name: cp-%d, address: 10.0.0.1%d}\n", i, i), "", 1)
			text = strings.Replace(text, fmt.Sprintf(`"https://10.0.0.1%d:2479"`, i), "", 1)
		}
	}
	text = strings.NewReplacer("[, , ", "[", "[, ", "[", ", , ", ", ", ", , ]", "]", ", ]", "]").Replace(text)
	return Setup{Plan: planOf(t, haExample, text), Target: target}
}

func memberJourneys(t *testing.T) map[string][2]Setup {
	t.Helper()
	pairs := map[string][2]Setup{}
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		for name, hosts := range map[string][2][]int{"two hosts join": {{1}, {1, 2, 3}},
			"two hosts leave": {{1, 2, 3}, {1}}, "a host joins two": {{1, 3}, {1, 2, 3}},
			"a host leaves two": {{1, 2}, {2}}, "one for another": {{1, 2}, {2, 3}}} {
			pairs[name+", "+string(target)] = [2]Setup{onHosts(t, target, hosts[0]...), onHosts(t, target, hosts[1]...)}
		}
	}
	pairs["two hosts join, and pods become units"] = [2]Setup{onHosts(t, render.StaticPod, 1),
		onHosts(t, render.Systemd, 1, 2, 3)}
	pairs["two hosts leave, and pods become units"] = [2]Setup{onHosts(t, render.StaticPod, 1, 2, 3),
		onHosts(t, render.Systemd, 3)}
	return pairs
}

// memberModel is a cluster whose managed store is one: members have an identity, which their data has, too.
type memberModel struct {
	*cluster
	t        *testing.T
	next     int
	members  map[string]modelMember // by peer URL
	data     map[string]int         // by host, the identity
	minority []string               // what was done while too few ran
}

type modelMember struct {
	id      int
	learner bool
}

func newMemberModel(t *testing.T, s Setup) *memberModel {
	m := &memberModel{cluster: newCluster(t, s), t: t, members: map[string]modelMember{}, data: map[string]int{}}
	for _, c := range s.Plan.Components {
		if peers, ok := c.Arg("initial-advertise-peer-urls"); ok {
			m.next++
			m.members[peers], m.data[c.Host] = modelMember{id: m.next}, m.next
		}
	}
	return m
}

func (m *memberModel) copied() *memberModel {
	own := *m.cluster
	own.files, own.units, own.digests = maps.Clone(m.files), maps.Clone(m.units), maps.Clone(m.digests)
	own.records = slices.Clone(m.records)
	return &memberModel{cluster: &own, t: m.t, next: m.next, members: maps.Clone(m.members), data: maps.Clone(m.data)}
}

// running are the members that run, by host: those whose unit or manifest is there.
func (m *memberModel) running() map[string]string {
	texts := map[string]string{}
	for at, f := range m.files {
		unit := strings.TrimPrefix(at.path, "/etc/systemd/system/")
		if strings.HasSuffix(at.path, "/etcd-modern.yaml") || unit == "etcd-modern.service" &&
			m.units[place{at.host, unit}] {
			texts[at.host] = string(f.Data)
		}
	}
	return texts
}

func argOf(text, name string) string {
	_, value, _ := strings.Cut(text, "--"+name+"=")
	value, _, _ = strings.Cut(value, "\n")
	return strings.Trim(strings.TrimSuffix(strings.TrimSpace(value), `\`), `"' `)
}

// runs lets what runs be what its data and the others say.
func (m *memberModel) runs() error {
	for host, text := range m.running() {
		peer := argOf(text, "initial-advertise-peer-urls")
		own, there := m.members[peer]
		if m.data[host] == 0 {
			var listed, known []string
			for entry := range strings.SplitSeq(argOf(text, "initial-cluster"), ",") {
				_, url, _ := strings.Cut(entry, "=")
				listed = append(listed, url)
			}
			known = slices.Sorted(maps.Keys(m.members))
			if slices.Sort(listed); argOf(text, "initial-cluster-state") != "existing" || !slices.Equal(listed, known) {
				return fmt.Errorf("%s starts with %q as %q, and there are %q", host, listed,
					argOf(text, "initial-cluster-state"), known)
			}
			m.data[host] = own.id
		}
		if there && m.data[host] != own.id {
			return fmt.Errorf("%s starts with the data of a member that was removed", host)
		}
	}
	return nil
}

// majority reports whether enough voters run, without some.
func (m *memberModel) majority(without string) bool {
	voters, up, running := 0, 0, m.running()
	peers := map[string]string{}
	for host, text := range running {
		peers[argOf(text, "initial-advertise-peer-urls")] = host
	}
	for peer, member := range m.members {
		if member.learner || peer == without {
			continue
		}
		voters++
		if host, there := peers[peer]; there && m.data[host] == member.id {
			up++
		}
	}
	return 2*up > voters
}

func (m *memberModel) Do(ctx context.Context, host string, a *Action) error {
	if err := m.call(); err != nil {
		return err
	}
	if j := a.Joining; j != nil {
		own, there := m.members[j.PeerURL]
		if !there && (a.Kind == AddMember || a.Kind == PromoteMember) {
			m.next++
			own.id = m.next
			m.members[j.PeerURL] = modelMember{id: m.next, learner: true}
			delete(m.data, host)
			if err := m.runs(); err != nil { // it may run, and end and start all the time
				return err
			}
		}
		switch a.Kind {
		case PromoteMember:
			own.learner = false
			m.members[j.PeerURL] = own
			if !m.majority("") {
				return fmt.Errorf("%s would take away the majority", j.Name)
			}
		case RemoveMember:
			if there && (!m.majority(j.PeerURL) || len(m.members) == 1) {
				return fmt.Errorf("without %s there is no majority", j.Name)
			}
			delete(m.members, j.PeerURL)
		case SetDataAside:
			if _, runs := m.running()[host]; runs {
				return fmt.Errorf("%s runs", host)
			}
			delete(m.data, host)
		}
	}
	if err := m.cluster.Do(ctx, host, a); err != nil {
		return err
	}
	if err := m.runs(); err != nil {
		return err
	}
	if !m.majority("") && len(m.members) > 2 { // one of two that restarts is a majority lost for a moment
		m.minority = append(m.minority, fmt.Sprintf("%s %s", a.Kind, host))
	}
	return nil
}

func (m *memberModel) Check(ctx context.Context, host string, c *Check) error {
	if c.Kind == NoData && m.data[host] != 0 {
		return errors.New("there is data")
	}
	return m.cluster.Check(ctx, host, c)
}

// is says how the store is not that of a setup; "" for not at all.
func (m *memberModel) is(want *memberModel) string {
	if d := differs(m.cluster, want.cluster); d != "" {
		return d
	}
	if len(m.members) != len(want.members) || len(m.data) != len(want.data) || !m.majority("") {
		return fmt.Sprintf("members %v, data %v", m.members, m.data)
	}
	for peer := range want.members {
		if own, there := m.members[peer]; !there || own.learner {
			return fmt.Sprintf("members %v", m.members)
		}
	}
	return strings.Join(m.minority, ", ")
}

// TestMembersJoinAndLeave, killed at every call, and turned round there: each starts with the members that there are at
// that moment and without data of before, the majority runs at all times, and nothing is left of one that left but its
// data, set aside.
func TestMembersJoinAndLeave(t *testing.T) {
	pairs := memberJourneys(t)
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			from, to := pairs[name][0], pairs[name][1]
			tr, err := New(from, to, facts())
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Validate(); err != nil {
				t.Fatal(err)
			}
			start, end := newMemberModel(t, from), newMemberModel(t, to)
			finished := start.copied()
			if err := Apply(t.Context(), &tr, finished, finished, nil); err != nil {
				t.Fatal(err)
			}
			if d := finished.is(end); d != "" {
				t.Fatalf("at the end: %s", d)
			}
			points := 0
			for _, back := range []bool{false, true} {
				for at, dies := 1, true; dies; at += 5 {
					points++
					run, begin, back := Apply, start.copied(), back
					if back {
						run, begin = Undo, finished.copied()
					}
					begin.left = at
					err := run(t.Context(), &tr, begin, begin, nil)
					if dies = errors.Is(err, errKilled); !dies && err != nil {
						t.Fatalf("dying at call %d, back %t: %v", at, back, err)
					}
					on, again := begin.copied(), begin.copied()
					on.left, again.left = -1, -1
					if err := Apply(t.Context(), &tr, on, on, nil); err != nil || on.is(end) != "" {
						t.Fatalf("killed at call %d, back %t, then on: %v %s", at, back, err, on.is(end))
					}
					if err := Undo(t.Context(), &tr, again, again, nil); err != nil || again.is(start) != "" {
						t.Fatalf("killed at call %d, back %t, then back: %v %s", at, back, err, again.is(start))
					}
				}
			}
			t.Logf("%d steps, killed at %d points", len(tr.Steps), points)
		})
	}
}

// TestOtherEndpointsOfAStore that nobody manages are taken for it when they are of its cluster, which is looked at
// before anything changes.
func TestOtherEndpointsOfAStore(t *testing.T) {
	from := onHosts(t, render.Systemd, 1)
	other := strings.Replace(example(t, haExample), `"https://etcd-1.example.com:2379", `, "", 1)
	to := Setup{Plan: planOf(t, haExample, other), Target: render.Systemd}
	three := Setup{Plan: planOf(t, haExample, example(t, haExample)), Target: render.Systemd}
	tr, err := New(three, to, facts())
	if err != nil {
		t.Fatal(err)
	}
	looked := slices.IndexFunc(tr.Steps, func(s Step) bool {
		return s.Do != nil && len(s.Do.Before) == 1 && s.Do.Before[0].Kind == OneCluster
	})
	changes := slices.IndexFunc(tr.Steps, func(s Step) bool { return s.Do != nil && s.Do.changes() != "" })
	if looked < 0 || changes < looked || len(tr.Steps[looked].Do.Before[0].Stores[0].Endpoints) != 2 {
		t.Errorf("the endpoints are looked at in step %d of %d, the first change is %d", looked, len(tr.Steps), changes)
	}
	for says, change := range map[string]func(*plan.Plan){
		"no endpoint is in both plans": func(p *plan.Plan) {
			p.Stores[0].Endpoints = []string{"https://10.9.9.9:2379"}
		},
		"each is a transition of its own": func(p *plan.Plan) {
			own := *p.Stores[1].Managed
			own.Version = "3.6.9"
			p.Stores[1].Managed = &own
		},
	} {
		changed := onHosts(t, render.Systemd, 1, 2)
		change(changed.Plan)
		var refused *RefusedError
		if _, err := New(from, changed, facts()); !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("New = %v, want it refused: %q", err, says)
		}
	}
	was, is := onHosts(t, render.Systemd, 1), onHosts(t, render.Systemd, 1, 2)
	for _, setup := range []Setup{was, is} { // members of 3.3 have a vote at once
		own := *setup.Plan.Stores[1].Managed
		own.Version = "3.3.27"
		setup.Plan.Stores[1].Managed = &own
	}
	if _, err := New(was, is, facts()); err == nil || !strings.Contains(err.Error(), "with etcdctl member") {
		t.Errorf("New of etcd 3.3 = %v, want it refused", err)
	}
}
