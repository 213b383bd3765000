package transition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// combo is what combinations of changes vary of a spec.
type combo struct {
	target                  render.Target
	hosts, endpoints        []int // in their order; endpoints are those of a store that nobody manages
	legacy, modern, kubelet string
	core, etcd              string // releases of managed members; core "" for a store that nobody manages
	peerPort                int
	ports                   [2]int  // of the API servers
	managers                [2]bool // there are controller managers
	scheduler               bool
	joint, gateway, pods    string // spec.controllers, spec.gateway and spec.pods
	kubelets                string // spec.kubelet.modern
	handedOver              []string
	access, audit           bool
	verbose                 [4]int // of the API servers, and of the controller managers
	encrypted, rotated      bool
	owners, key             string
	programs                int // which of some programs there are
}

func (c *combo) text() string {
	var b strings.Builder
	w := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	given := func(value, format string) {
		if value != "" {
			w(format, value)
		}
	}
	list := func(numbers []int, format string) string {
		var of []string
		for _, n := range numbers {
			of = append(of, fmt.Sprintf(format, n))
		}
		return strings.Join(of, ", ")
	}
	w("apiVersion: kubefusion.dev/v1alpha1\nkind: FusedControlPlane\nmetadata: {name: combo}\nspec:\n  layout: split")
	w("  hosts: [%s]", strings.ReplaceAll(list(c.hosts, "{name: cp-%[1]d, address: 10.0.0.1%[1]d}"), ", {", ", {"))
	modern := ""
	if c.kubelets != "" {
		modern = ", modern: " + c.kubelets
	}
	w("  kubelet: {version: %s%s}", c.kubelet, modern)
	w("  network: {serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16], podCIDR: 10.244.0.0/16}")
	w("  pki:\n    serviceAccountKey: %s", c.key)
	if c.encrypted {
		w("    encryptionConfiguration: /etc/kubernetes/encryption.yaml")
	}
	const tls = "tls: {ca: /etc/kubernetes/pki/etcd/ca.crt, cert: /etc/kubernetes/pki/etcd-client.crt, " +
		"key: /etc/kubernetes/pki/etcd-client.key}"
	w("  stores:")
	if c.core == "" {
		w("  - {name: core, %s, version: 3.4.23, endpoints: [%s]}", tls,
			list(c.endpoints, `"https://etcd-%d.example.com:2379"`))
	} else {
		w("  - {name: core, %s, managed: {version: %s, dataDir: /var/lib/etcd-core, peerPort: 2380}, endpoints: [%s]}",
			tls, c.core, list(c.hosts, `"https://10.0.0.1%d:2379"`))
	}
	w("  - {name: modern, %s, managed: {version: %s, dataDir: /var/lib/etcd-modern, peerPort: %d}, endpoints: [%s]}",
		tls, c.etcd, c.peerPort, list(c.hosts, `"https://10.0.0.1%d:2479"`))
	for i, side := range pair.Sides() {
		arguments := func(at int, more string) string {
			return fmt.Sprintf("extraArgs: [{name: v, value: '%d'}%s]", c.verbose[at], more)
		}
		more := ""
		if side == pair.Modern && c.audit {
			more = ", {name: audit-log-path, value: /var/log/audit.log}"
		}
		store := map[pair.Side]string{pair.Legacy: "core", pair.Modern: "modern"}[side]
		w("  %s:\n    version: %s\n    store: %s\n    apiServer: {port: %d, %s}", side, []string{c.legacy, c.modern}[i],
			store, c.ports[i], arguments(i, more))
		if c.managers[i] {
			w("    controllerManager: {%s}", arguments(2+i, ""))
		}
		if side == pair.Legacy && c.scheduler {
			w("    scheduler: {}")
		}
	}
	given(c.joint, "  controllers: %s")
	given(c.gateway, "  gateway: %s")
	given(c.pods, "  pods: %s")
	given(c.owners, "  owners: [%s]")
	given(strings.Join(c.handedOver, ", "), "  handedOver: [%s]")
	w("  access:\n  - {subjects: [{kind: Group, name: developers}], apiGroups: [apps], resources: ['*']}")
	if c.access {
		w("  - {subjects: [{kind: Group, name: operators}], apiGroups: [batch], resources: ['*']}")
	}
	if c.programs > 0 && c.target == render.Systemd {
		w("  programs: [{path: /opt/kubernetes/%s/bin/kube-apiserver, sha256: '%064d', file: /mnt/%d/kube-apiserver}]",
			c.modern, c.programs, c.programs)
	}
	return b.String()
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// changesOf are the kinds of changes, each as often as it is worth.
var changesOf = strings.Fields("join leave order replace legacy modern etcd etcd core endpoints peer port port " +
	"manager scheduler joint joint gateway gateway pods kubelets kubelets kubelets hand hand access flags flags " +
	"encrypt audit owners programs key kubelet target rotate")

// changed is the same but for one thing, which it names.
func (c *combo) changed(r *rand.Rand) (combo, string) {
	d, kind := *c, pick(r, changesOf...)
	d.hosts, d.handedOver = slices.Clone(c.hosts), slices.Clone(c.handedOver)
	another := slices.IndexFunc([]int{1, 2, 3, 4}, func(h int) bool { return !slices.Contains(d.hosts, h) }) + 1
	someHost := func() string { return fmt.Sprintf("{hosts: [cp-%d]}", pick(r, d.hosts...)) }
	switch kind {
	case "join":
		if another > 0 {
			d.hosts = slices.Insert(d.hosts, r.IntN(len(d.hosts)+1), another)
		}
	case "leave":
		if len(d.hosts) > 1 {
			at := r.IntN(len(d.hosts))
			d.hosts = slices.Delete(d.hosts, at, at+1)
		}
	case "replace":
		if another > 0 {
			d.hosts[r.IntN(len(d.hosts))] = another
		}
	case "order":
		r.Shuffle(len(d.hosts), func(i, j int) { d.hosts[i], d.hosts[j] = d.hosts[j], d.hosts[i] })
	case "legacy":
		d.legacy = pick(r, "1.10.13", "1.15.12", "1.15.11", "1.20.15", "1.24.17")
	case "modern":
		d.modern = pick(r, "1.24.17", "1.31.14", "1.33.13", "1.36.2", "1.36.3")
	case "etcd":
		d.etcd = pick(r, "3.5.26", "3.5.35", "3.6.8", "3.6.9")
	case "core":
		d.core = pick(r, "", "3.4.23", "3.5.26", "3.5.35")
	case "endpoints":
		d.endpoints = pick(r, []int{1, 2, 3}, []int{1, 2}, []int{3, 2, 1}, []int{2, 3, 4})
	case "peer":
		d.peerPort = pick(r, 2480, 2490)
	case "port":
		d.ports = pick(r, [2]int{6443, 7443}, [2]int{7443, 6443}, [2]int{6443, 7444}, [2]int{6444, 7443},
			[2]int{7444, 7443}, [2]int{7443, 7444})
	case "manager":
		d.managers[r.IntN(2)] = r.IntN(2) > 0
	case "scheduler":
		d.scheduler = !d.scheduler
	case "joint":
		d.joint = pick(r, "", someHost(), "{disabled: true}", "{port: 10280}",
			"{extraArgs: [{name: workers, value: '3'}]}")
	case "gateway":
		d.gateway = pick(r, "", "{}", someHost(), "{port: 9443}", "{create: legacy}", "{disabled: true}")
	case "pods":
		d.pods = pick(r, "", "{}", "{admission: {port: 10281}}", "{admission: {failurePolicy: Ignore}}",
			"{unknownFields: refuse}")
	case "kubelets":
		const one, two, own = "{name: node-1, address: 10.0.0.21}", "{name: node-2, address: 10.0.0.22}",
			"{name: cp-1, address: 10.0.0.11}"
		nodes := pick(r, one, one+", "+two, strings.Replace(two, "}", ", args: [{name: v, value: '3'}]}", 1),
			own+", "+two)
		more := pick(r, "", ", unit: kubelet-own.service", ", version: 1.33.1", ", program: /opt/kubelet")
		d.kubelets = pick(r, "", "{}", "{nodes: ["+nodes+"]}", "{nodes: ["+nodes+"]"+more+"}")
	case "hand":
		set := pick(r, "deployments.apps", "statefulsets.apps, daemonsets.apps", "jobs.batch, cronjobs.batch",
			"poddisruptionbudgets.policy", "team-a/*", "team-a/deployments.apps", "priorityclasses.scheduling.k8s.io",
			"ingresses.networking.k8s.io", strings.Join(rbacResources(), ", "),
			"customresourcedefinitions.apiextensions.k8s.io")
		if at := slices.Index(d.handedOver, set); at >= 0 {
			d.handedOver = slices.Delete(d.handedOver, at, at+1)
		} else {
			d.handedOver = append(d.handedOver, set)
		}
	case "access":
		d.access = !d.access
	case "flags":
		d.verbose[r.IntN(4)] = r.IntN(4)
	case "encrypt":
		d.encrypted = !d.encrypted
	case "audit":
		d.audit = !d.audit
	case "owners":
		d.owners = pick(r, "", "{resources: [configmaps], owner: split}", "{resources: [secrets], owner: modern}",
			"{resources: [networkpolicies.networking.k8s.io], owner: split}")
	case "programs":
		d.programs = r.IntN(3)
	case "key":
		d.key = pick(r, "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/other.key")
	case "kubelet":
		d.kubelet = pick(r, "1.15.12", "1.15.10")
	case "target":
		d.target = pick(r, render.StaticPod, render.Systemd)
	case "rotate":
		d.rotated = !d.rotated
	}
	return d, kind
}

func (c *combo) setup() (Setup, error) {
	f, err := spec.Load("combo", []byte(c.text()))
	if err != nil {
		return Setup{}, err
	}
	p, err := plan.New(f, plan.OnHosts)
	return Setup{Plan: p, Target: c.target}, err
}

// combination is a spec, and another one that differs in several things; ok is false where one of them is none.
func combination(t *testing.T, seed int) (from, to Setup, kinds []string, ok bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(seed), 7))
	was := combo{target: pick(r, render.StaticPod, render.Systemd), hosts: []int{1, 2, 3}[:1+r.IntN(3)],
		endpoints: []int{1, 2, 3}, legacy: "1.15.12", modern: "1.36.3", kubelet: "1.15.12", etcd: "3.6.8",
		peerPort: 2480, ports: [2]int{6443, 7443}, managers: [2]bool{true, true}, scheduler: true,
		key: "/etc/kubernetes/pki/sa.key"}
	for range r.IntN(8) {
		was, _ = was.changed(r)
	}
	is := was
	for range 1 + r.IntN(4) {
		var kind string
		is, kind = is.changed(r)
		kinds = append(kinds, kind)
	}
	var errFrom, errTo error
	from, errFrom = was.setup()
	to, errTo = is.setup()
	if errFrom != nil || errTo != nil {
		return from, to, kinds, false
	}
	switch r.IntN(24) {
	case 0:
		return from, Setup{}, append(kinds, "and to none"), true
	case 1:
		return Setup{}, to, append(kinds, "and from none"), true
	}
	if was.rotated != is.rotated {
		by := authority(t)
		from.Certificates, to.Certificates = issued(t, from.Plan, by), issued(t, to.Plan, by)
	}
	return from, to, kinds, true
}

// TestCombinationsOfChanges: what is planned for several changes at once, chosen by chance, leads to what the second
// spec renders, all of it started with what is on the disk, and back to the first. On both ways what starts finds what
// it needs, nobody else has its ports, stores keep their majority, a side that need not stop serves, nodes are
// connected to a server that is there, and what is asked of a server or a store is asked while it runs. More are tried
// with FUSIONCTL_COMBINATIONS=400, and others with FUSIONCTL_COMBINATIONS_FROM=1000.
func TestCombinationsOfChanges(t *testing.T) {
	first, count := 70, 40
	if given, err := strconv.Atoi(os.Getenv("FUSIONCTL_COMBINATIONS")); err == nil {
		count = given
	}
	if given, err := strconv.Atoi(os.Getenv("FUSIONCTL_COMBINATIONS_FROM")); err == nil {
		first = given
	}
	planned, refusals := 0, map[string]int{}
	for seed := first; seed < first+count; seed++ {
		from, to, kinds, ok := combination(t, seed)
		if !ok {
			continue
		}
		read := facts()
		read.Empty, read.Prepare = Moves(from, to), seed%3 == 0
		tr, err := New(from, to, read)
		var refused *RefusedError
		if errors.As(err, &refused) {
			for _, reason := range refused.Reasons {
				refusals[strings.Join(strings.Fields(reason)[:min(3, len(strings.Fields(reason)))], " ")]++
			}
			continue
		}
		if err != nil {
			t.Fatalf("combination %d, %v: %v", seed, kinds, err)
		}
		planned++
		if problems := walk(t, from, to, &tr); len(problems) > 0 {
			t.Errorf("combination %d, %v:\n  %s", seed, kinds, strings.Join(problems[:min(4, len(problems))], "\n  "))
		}
	}
	t.Logf("%d of %d were planned; refused: %v", planned, count, refusals)
	if 2*planned < count {
		t.Errorf("%d of %d were planned, want most", planned, count)
	}
}

// walk carries a transition out and takes it back, and lists what is wrong on the way.
func walk(t *testing.T, from, to Setup, tr *Transition) []string {
	if err := tr.Validate(); err != nil {
		return []string{err.Error()}
	}
	w := newWorld(t, from, to)
	for _, side := range pair.Sides() {
		b, stay := &builder{from: from, to: to}, 0
		for at, c := range w.processes {
			stays := func(p render.Part) bool { return at == place{p.Component.Host, p.Component.Name} }
			if server(side)(c.Component) && slices.ContainsFunc(w.parts[1], stays) {
				stay++
			}
		}
		w.serving[side] = stay > 1 && !b.minorChanges(side) && len(b.movesOf(side)) == 0
	}
	for _, way := range []struct {
		name string
		run  func() error
		end  Setup
	}{{"apply", func() error { return Apply(t.Context(), tr, w, w, w.begins) }, to},
		{"undo", func() error { return Undo(t.Context(), tr, w, w, w.begins) }, from}} {
		if err := way.run(); err != nil {
			return append(w.problems, way.name+": "+err.Error())
		}
		if d := w.is(t, way.end); d != "" {
			return append(w.problems, "after "+way.name+": "+d)
		}
	}
	return w.problems
}

// threeHostsWith is the example of three hosts with some of its words replaced.
func threeHostsWith(t *testing.T, pairs ...string) Setup {
	t.Helper()
	text := strings.NewReplacer(pairs...).Replace(example(t, haExample))
	return Setup{Plan: planOf(t, haExample, text), Target: render.Systemd}
}

// TestCombinationsThatAreRefused: each would start, and not come to its end, nor back.
func TestCombinationsThatAreRefused(t *testing.T) {
	const (
		nodes = "{version: 1.15.12, modern: {nodes: [{name: node-1, address: 10.0.0.21}]}}"
		cp1   = "  - {name: cp-1, address: 10.0.0.11}\n"
	)
	none := []string{}
	connected := []string{"{version: 1.15.12}", nodes}
	for name, c := range map[string]struct {
		from, to []string
		says     string // "" where there is a transition
	}{
		"another port of members": {none, []string{"peerPort: 2480", "peerPort: 2490"}, "peerPort 2480 and 2490"},
		"ports that are swapped": {none, []string{"port: 6443", "port: 7443", "port: 7443", "port: 6443"},
			"kube-apiserver on cp-1 would start on port 7443, on which kube-apiserver-modern"},
		"a port that the modern side gives up": {none, []string{"port: 6443", "port: 7443", "port: 7443", "port: 8443"},
			"kube-apiserver on cp-1 would start on port 7443"},
		"a port that the legacy side gives up": {none, []string{"port: 6443", "port: 6444", "port: 7443", "port: 6443"},
			""},
		"another order of endpoints, and another minor": {none, []string{`"https://10.0.0.11:2479", `, "",
			`"https://10.0.0.13:2479"]`, `"https://10.0.0.13:2479", "https://10.0.0.11:2479"]`, "3.6.8", "3.7.3"}, ""},
		"another unit of kubelets": {connected, []string{"{version: 1.15.12}", strings.Replace(nodes, "modern: {",
			"modern: {unit: kubelet-own.service, ", 1)}, "take node-1 out of the nodes first"},
		"another port under kubelets": {connected, append(connected, "port: 7443", "port: 7444"),
			"of TO no modern API server serves at https://10.0.0.11:7443: the kubelet of node-1"},
		"the host of kubelets leaves": {connected, append(connected, cp1, "", `"https://10.0.0.11:2479", `, ""),
			"put one that stays first"},
		"another host leaves": {connected, append(connected, "  - {name: cp-3, address: 10.0.0.13}\n", "",
			`, "https://10.0.0.13:2479"`, ""), ""},
	} {
		_, err := New(threeHostsWith(t, c.from...), threeHostsWith(t, c.to...), facts())
		var refused *RefusedError
		if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &refused) ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: New = %v, want it refused: %q", name, err, c.says)
		}
	}
}

// TestKubeletsOfALostHost are connected to another one first of all, though their nodes are not ready, and stay there.
func TestKubeletsOfALostHost(t *testing.T) {
	connected := []string{"{version: 1.15.12}", "{version: 1.15.12, modern: {nodes: [{name: node-1, " +
		"address: 10.0.0.21}]}}"}
	read := facts()
	read.Lost = []string{"cp-1"}
	tr, err := New(threeHostsWith(t, connected...), threeHostsWith(t, append(connected,
		"  - {name: cp-1, address: 10.0.0.11}\n", "", `"https://10.0.0.11:2479", `, "")...), read)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	changed := position(t, &tr, "that changes the kubelet", func(s Step) bool {
		return s.Do != nil && s.Do.Kind == ChangeKubelet
	})
	stops := position(t, &tr, "that stops a component", func(s Step) bool {
		return s.Do != nil && s.Do.Kind == StopUnit
	})
	s := tr.Steps[changed]
	if stops < changed || s.Undo != nil || slices.ContainsFunc(s.Do.Before, func(c Check) bool {
		return c.Kind == NodeReady
	}) {
		t.Errorf("step %d is the first to stop; %d changes the kubelet, after %+v, and back: %v", stops, changed,
			s.Do.Before, s.Undo)
	}
	if n := s.Do.Node; n.Modern.Server != "https://10.0.0.12:7443" || n.Legacy.Server != "https://10.0.0.12:6443" {
		t.Errorf("the node is looked at through %s and %s", n.Legacy.Server, n.Modern.Server)
	}
}

// TestWaysAndBack: what chance has found.
func TestWaysAndBack(t *testing.T) {
	const (
		nodes    = "{version: 1.15.12, modern: {nodes: [{name: node-1, address: 10.0.0.21}]}}"
		first    = "  - {name: cp-1, address: 10.0.0.11}\n"
		second   = "  - {name: cp-2, address: 10.0.0.12}\n"
		programs = "\nspec:\n  programs: [{path: /opt/kubernetes/1.36.3/bin/kube-apiserver, " +
			"file: /mnt/kube-apiserver, sha256: 4f0c1d0b7e0e8a8a3bb25c6ef1fbc2a5a4b6ff35c8b1a6ac6fd4a7ce3ad12a77}]\n"
	)
	connected, without := []string{"{version: 1.15.12}", nodes}, []string{first, "", `"https://10.0.0.11:2479", `, ""}
	rotates := rotation(t, onHosts(t, render.Systemd, 1, 2))
	for name, c := range map[string][2]Setup{
		// A kubelet starts with the kubeconfig of before.
		"another host is the first": {threeHostsWith(t, connected...), threeHostsWith(t, append(connected, first+second,
			second+first)...)},
		"a host joins as the first": {threeHostsWith(t, append(connected, without...)...),
			threeHostsWith(t, connected...)},
		// The host that joins has none of what FROM lists for all.
		"a program on a host that joins": {threeHostsWith(t, append(without, "\nspec:\n", programs)...),
			threeHostsWith(t, "\nspec:\n", programs)},
		// What reads one that another component reads, too, starts with that of before.
		"certificates": rotates,
	} {
		tr, err := New(c[0], c[1], facts())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if problems := walk(t, c[0], c[1], &tr); len(problems) > 0 {
			t.Errorf("%s:\n  %s", name, strings.Join(problems, "\n  "))
		}
	}
}
