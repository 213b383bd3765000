package transition

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// world is a cluster whose files start processes: they read what is on the disk when they start, and listen. Managed
// stores have members with an identity, and kubelets are connected to an API server.
type world struct {
	*cluster
	setups    [2]Setup
	parts     [2][]render.Part
	processes map[place]*process // by host and name of the component
	stores    map[string]*worldStore
	next      int               // identity of a member
	kubelets  map[string]string // nodes that are connected to the modern side, and to which server
	serving   map[pair.Side]bool
	step      *Step
	problems  []string
}

// process is a component that runs.
type process struct {
	*render.Part
	*plan.Component
	setup *Setup
	read  map[string][]byte // what it has read, by path
	ports []int
}

type worldStore struct {
	members map[string]modelMember // by peer URL
	data    map[string]int         // by host, the identity
}

func newWorld(t *testing.T, from, to Setup) *world {
	t.Helper()
	w := &world{cluster: newCluster(t, from), setups: [2]Setup{from, to}, processes: map[place]*process{},
		stores: map[string]*worldStore{}, kubelets: map[string]string{}, serving: map[pair.Side]bool{}}
	for i := range w.setups {
		var err error
		if w.parts[i], err = partsOf(w.setups[i], map[place]render.File{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.parts[0] {
		p := &w.parts[0][i]
		w.processes[place{p.Component.Host, p.Component.Name}] = w.process(p, &w.setups[0])
		if c := p.Component; etcd(c) {
			peer, _ := c.Arg("initial-advertise-peer-urls")
			s := w.storeOf(c)
			s.data[c.Host] = s.members[peer].id
		}
	}
	if from.Plan != nil {
		for _, n := range from.Plan.Nodes {
			w.kubelets[n.Name] = n.Kubeconfig.Server
		}
	}
	return w
}

// begins is told of every step.
func (w *world) begins(s *Step, _ Event) { w.step = s }

func (w *world) problem(format string, args ...any) {
	at := "at first"
	if w.step != nil {
		at = fmt.Sprintf("step %s, %s on %s", w.step.ID, w.step.Title, w.step.Host)
	}
	w.problems = append(w.problems, at+": "+fmt.Sprintf(format, args...))
}

// storeOf is the store of a member, which begins with those that the first one lists.
func (w *world) storeOf(c *plan.Component) *worldStore {
	s := w.stores[c.Store]
	if s == nil {
		s = &worldStore{members: map[string]modelMember{}, data: map[string]int{}}
		w.stores[c.Store] = s
	}
	if len(s.members) == 0 {
		cluster, _ := c.Arg("initial-cluster")
		for _, peer := range peersOf(cluster) {
			w.next++
			s.members[peer] = modelMember{id: w.next}
		}
	}
	return s
}

func peersOf(cluster string) (peers []string) {
	for entry := range strings.SplitSeq(cluster, ",") {
		_, peer, _ := strings.Cut(entry, "=")
		peers = append(peers, peer)
	}
	slices.Sort(peers)
	return peers
}

var listensAt = regexp.MustCompile(`:([0-9]+)(,|$)`)

func (w *world) process(p *render.Part, s *Setup) *process {
	q := &process{Part: p, Component: p.Component, setup: s, read: map[string][]byte{}}
	files := slices.Concat(p.Start, p.Beside)
	for _, f := range s.Certificates[q.Host] {
		if reads(p, f.Path) {
			files = append(files, f)
		}
	}
	for _, f := range files {
		now, there := w.files[place{q.Host, f.Path}]
		if q.read[f.Path] = now.Data; !there {
			w.problem("%s starts without %s", q.Name, f.Path)
		}
	}
	q.ports = []int{q.Port}
	if q.Liveness != nil {
		q.ports = append(q.ports, q.Liveness.Port)
	}
	for _, a := range q.Args {
		if strings.Contains(a.Name, "listen") {
			for _, found := range listensAt.FindAllStringSubmatch(a.Value, -1) {
				port, _ := strconv.Atoi(found[1])
				q.ports = append(q.ports, port)
			}
		}
	}
	return q
}

// partOf is what a unit, or a manifest, starts now: a part of either plan, or a member as it is while others join.
func (w *world) partOf(host, unit, manifest string) (found *render.Part, of *Setup) {
	for i := range w.parts {
		for n := range w.parts[i] {
			p := &w.parts[i][n]
			if p.Component.Host != host || p.Unit != unit || unit == "" && p.Start[0].Path != manifest {
				continue
			}
			if !slices.ContainsFunc(slices.Concat(p.Start, p.Beside), func(f render.File) bool {
				return !bytes.Equal(w.files[place{host, f.Path}].Data, f.Data)
			}) {
				return p, &w.setups[i]
			}
			if etcd(p.Component) {
				found, of = p, &w.setups[i]
			}
		}
	}
	if found == nil {
		w.problem("%s%s on %s starts as neither plan has it", unit, manifest, host)
	}
	return found, of
}

func (w *world) starts(host, unit, manifest string) {
	p, s := w.partOf(host, unit, manifest)
	if p == nil {
		return
	}
	q := w.process(p, s)
	for at, o := range w.processes {
		for _, port := range q.ports {
			if at.host == host && o.Name != q.Name && slices.Contains(o.ports, port) {
				w.problem("%s listens on %d, as %s does", q.Name, port, o.Name)
			}
		}
	}
	w.processes[place{host, q.Name}] = q
	if etcd(q.Component) {
		w.memberStarts(q)
	}
	w.needs(q)
}

func (w *world) ends(host, unit, manifest string) {
	maps.DeleteFunc(w.processes, func(at place, q *process) bool {
		return at.host == host && q.Unit == unit && (unit != "" || q.Start[0].Path == manifest)
	})
}

var serverIn = regexp.MustCompile(`server"?: "?(https://[^"\s,]+)`)

// needs: what starts finds the API servers of its kubeconfigs, and an API server its stores.
func (w *world) needs(q *process) {
	for _, f := range q.Beside {
		for _, found := range serverIn.FindAllSubmatch(q.read[f.Path], -1) {
			if q.Kind != kubever.APIServer && !w.answers("", string(found[1]), q.Host) {
				w.problem("%s starts without an API server at %s", q.Name, found[1])
			}
		}
	}
	for _, s := range q.setup.Plan.Stores {
		if q.Kind == kubever.APIServer && slices.ContainsFunc(q.Args, func(a plan.Arg) bool {
			return strings.Contains(a.Value, s.Endpoints[0])
		}) {
			w.reaches(q.Name, s)
		}
	}
}

// answers reports whether an API server, of a side if one is given, serves at a URL, from a host.
func (w *world) answers(side pair.Side, server, from string) bool {
	u, err := url.Parse(server)
	for at, q := range w.processes {
		if err != nil || q.Kind != kubever.APIServer || side != "" && q.Side != side ||
			strconv.Itoa(q.Port) != u.Port() {
			continue
		}
		if u.Hostname() == "127.0.0.1" && at.host == from || slices.Contains(HostsOf(q.setup.Plan),
			Host{at.host, u.Hostname()}) {
			return true
		}
	}
	return false
}

// reaches: some endpoint of a store answers, where steps run the store.
func (w *world) reaches(who string, stores ...plan.Store) {
	for _, s := range stores {
		if s.Managed == nil || w.stores[s.Name] == nil {
			continue
		}
		runs := func(e string) bool { return w.member(s.Name, "advertise-client-urls", e) != nil }
		if !slices.ContainsFunc(s.Endpoints, runs) {
			w.problem("%s: none of %q of store %s answers", who, s.Endpoints, s.Name)
		}
	}
}

// member is a member of a store that runs with an argument.
func (w *world) member(store, arg, value string) *process {
	for _, q := range w.processes {
		if own, _ := q.Arg(arg); etcd(q.Component) && q.Store == store && own == value {
			return q
		}
	}
	return nil
}

// memberStarts: one without data is told of those that there are, and none has the data of one that was removed.
func (w *world) memberStarts(q *process) {
	text := ""
	for _, f := range q.Start {
		text += string(q.read[f.Path]) + "\n"
	}
	s := w.storeOf(q.Component)
	own, there := s.members[argOf(text, "initial-advertise-peer-urls")]
	if s.data[q.Host] == 0 {
		listed, known := peersOf(argOf(text, "initial-cluster")), slices.Sorted(maps.Keys(s.members))
		if !slices.Equal(listed, known) {
			w.problem("%s starts with members %q, and there are %q", q.Name, listed, known)
		}
		s.data[q.Host] = own.id
	}
	if there && s.data[q.Host] != own.id {
		w.problem("%s starts with the data of a member that was removed", q.Name)
	}
}

// majority reports whether enough voters of a store run, of all but one.
func (w *world) majority(store, without string) bool {
	voters, up := 0, 0
	for peer, m := range w.stores[store].members {
		if m.learner || peer == without {
			continue
		}
		voters++
		if q := w.member(store, "initial-advertise-peer-urls", peer); q != nil && w.stores[store].data[q.Host] == m.id {
			up++
		}
	}
	return 2*up > voters
}

func (w *world) joins(host string, a *Action) {
	s, j := w.stores[a.Joining.Store.Name], a.Joining
	own, there := s.members[j.PeerURL]
	switch a.Kind {
	case AddMember, PromoteMember:
		if !there {
			w.next++
			own = modelMember{id: w.next, learner: true}
			delete(s.data, host)
		}
		own.learner = own.learner && a.Kind == AddMember
		s.members[j.PeerURL] = own
		if q := w.member(j.Store.Name, "initial-advertise-peer-urls", j.PeerURL); q != nil {
			w.memberStarts(q)
		}
	case RemoveMember:
		if there && (!w.majority(j.Store.Name, j.PeerURL) || len(s.members) == 1) {
			w.problem("without %s there is no majority", j.Name)
		}
		delete(s.members, j.PeerURL)
	case SetDataAside:
		if w.processes[place{host, plan.Etcd + "-" + j.Store.Name}] != nil {
			w.problem("the data of %s is set aside while it runs", j.Name)
		}
		delete(s.data, host)
	}
}

func (w *world) Do(ctx context.Context, host string, a *Action) error {
	if err := w.cluster.Do(ctx, host, a); err != nil {
		return err
	}
	what := string(a.Kind)
	switch {
	case a.Store != nil:
		w.reaches(what, *a.Store)
	case a.Objects != nil:
		w.reaches(what, a.Objects.From, a.Objects.To)
	case a.Roles != nil:
		w.reaches(what, a.Roles.From, a.Roles.To)
	case a.Moving != nil:
		w.reaches(what, a.Moving.From, a.Moving.To)
	case a.Members != nil && a.Kind != LowerStore: // which is done when nobody answers
		w.reaches(what, a.Members.Store)
	case a.Joining != nil:
		w.reaches(what, a.Joining.Store)
		w.joins(host, a)
	case a.Marks != nil:
		w.asked(what, host, a.Marks.Namespaces, a.Marks.Modern)
	case a.Unit != "" && a.Kind == StartUnit:
		w.starts(host, a.Unit, "")
	case a.Unit != "" && a.Kind == StopUnit:
		w.ends(host, a.Unit, "")
	case a.Kind == ChangeKubelet:
		found := serverIn.FindSubmatch(w.files[place{host, "/etc/kubernetes/kubelet-modern.conf"}].Data)
		w.kubelets[host] = string(found[1])
	case a.Kind == RestoreKubelet:
		delete(w.kubelets, host)
	case a.File != nil && strings.HasPrefix(a.File.Path, render.ManifestDirectory+"/"):
		if w.ends(host, "", a.File.Path); a.Kind == PutFile {
			w.starts(host, "", a.File.Path)
		}
	}
	w.always()
	return nil
}

// asked: an API server that is queried serves.
func (w *world) asked(what, host string, accesses ...*Access) {
	for _, a := range accesses {
		if a != nil && a.Server != "" && !w.answers(a.Side, a.Server, host) {
			w.problem("%s: no %s API server serves at %s", what, a.Side, a.Server)
		}
	}
}

// always is what holds after every action.
func (w *world) always() {
	for side, serves := range w.serving {
		is := func(q *process) bool { return q.Kind == kubever.APIServer && q.Side == side }
		if serves && !slices.ContainsFunc(slices.Collect(maps.Values(w.processes)), is) {
			w.problem("no %s API server runs", side)
		}
	}
	for name, s := range w.stores {
		was, is := w.setups[0].Plan, w.setups[1].Plan
		stays := was != nil && is != nil && was.Store(name) != nil && is.Store(name) != nil
		if stays && len(s.members) > 2 && !w.majority(name, "") {
			w.problem("store %s has no majority", name)
		}
	}
	for node, server := range w.kubelets {
		while := []Phase{Stop, Stores, Legacy, LegacyMgr, HandingOver, Modern} // in which its server may start again
		if !slices.Contains(while, w.step.Phase) && !w.answers(pair.Modern, server, node) {
			w.problem("the kubelet of %s is connected to %s, where none serves", node, server)
		}
	}
}

func (w *world) Check(ctx context.Context, host string, c *Check) error {
	if err := w.cluster.Check(ctx, host, c); err != nil {
		return err
	}
	what := "check " + string(c.Kind)
	w.reaches(what, c.Stores...)
	for i := range c.Asked {
		w.asked(what, host, &c.Asked[i])
	}
	switch {
	case c.Members != nil && c.Kind != MayComeBack: // for which who does not answer has not agreed
		for _, e := range c.Members.Store.Endpoints {
			one := c.Members.Store
			one.Endpoints = []string{e}
			w.reaches(what, one)
		}
	case c.Marks != nil:
		w.asked(what, host, c.Marks.Namespaces, c.Marks.Modern)
	case c.Objects != nil:
		w.reaches(what, c.Objects.From, c.Objects.To)
	case c.Roles != nil:
		w.reaches(what, c.Roles.From, c.Roles.To)
	case c.Node != nil:
		w.asked(what, host, &c.Node.Legacy, &c.Node.Modern)
	case c.Kind == Ready || c.Kind == Gone:
		listens := func(q *process) bool { return q.Host == host && slices.Contains(q.ports, c.Probe.Port) }
		all := slices.Collect(maps.Values(w.processes))
		at := slices.IndexFunc(all, listens)
		switch {
		case (at >= 0) != (c.Kind == Ready):
			w.problem("%s, of %s: somebody listens on %d: %v", what, c.Program, c.Probe.Port, at >= 0)
		case at >= 0 && c.Version != "" && all[at].Name != c.Program:
			w.problem("%s, of %s: %s answers", what, c.Program, all[at].Name)
		case at >= 0 && etcd(all[at].Component) && !w.majority(all[at].Store, ""):
			w.problem("%s: store %s has no majority", what, all[at].Store)
		}
	}
	return nil
}

// is says how what runs is not that of a setup; "" for not at all.
func (w *world) is(t *testing.T, s Setup) string {
	t.Helper()
	if d := differs(w.cluster, newCluster(t, s)); d != "" {
		return d
	}
	want := newWorld(t, s, Setup{})
	if len(w.processes) != len(want.processes) || !maps.Equal(w.kubelets, want.kubelets) {
		return fmt.Sprintf("%d processes and kubelets %v, want %d and %v", len(w.processes), w.kubelets,
			len(want.processes), want.kubelets)
	}
	for at, q := range want.processes {
		own := w.processes[at]
		if own == nil {
			return fmt.Sprintf("%s on %s does not run", at.path, at.host)
		}
		for path, data := range own.read {
			if !bytes.Equal(data, w.files[place{at.host, path}].Data) {
				return fmt.Sprintf("%s on %s has read another %s", at.path, at.host, path)
			}
		}
		if peer, _ := q.Arg("initial-advertise-peer-urls"); etcd(q.Component) {
			of := w.stores[q.Store]
			if m, there := of.members[peer]; !there || m.learner || of.data[at.host] != m.id {
				return fmt.Sprintf("store %s has %v, data %v", q.Store, of.members, of.data)
			}
		}
	}
	return ""
}
