package plan_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// splitSpec is a split pair with every default, plus what the test adds below spec.
func splitSpec(legacy, modern, more string) string {
	return fmt.Sprintf(`apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: test}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}]
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"], managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}}
  legacy: {version: %s, apiServer: {}, controllerManager: {}, scheduler: {}}
  modern: {version: %s, apiServer: {}, controllerManager: {}}
  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods]}
%s`, legacy, modern, more)
}

func sharedSpec(legacy, modern string) string {
	text := splitSpec(legacy, modern, "  layout: shared\n")
	text = strings.Replace(text,
		`  - {name: modern, endpoints: ["http://10.0.0.11:2479"], managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern}}`+"\n", "", 1)
	return strings.Replace(text, "apiServer: {}, controllerManager: {}}", "apiServer: {}}", 1)
}

func planOf(t *testing.T, text string) *plan.Plan {
	t.Helper()
	p, err := tryPlan(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryPlan(text string) (*plan.Plan, error) {
	f, err := spec.Load("spec.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return plan.New(f, plan.OnHosts)
}

// Whatever a plan refuses stands in the spec, and the error says where, and what to do.
func TestErrorsNameTheLine(t *testing.T) {
	base := splitSpec("1.15.12", "1.36.3", "")
	for name, test := range map[string]struct{ text, want string }{
		"an argument of the plan's own": {withModern(base, "etcd-servers=http://10.0.0.9:2379", ""),
			`spec.yaml:10: spec.modern.apiServer.extraArgs[0]: "etcd-servers" follows from the spec, and must be left out: spec.modern.store names the store`},
		"a second scheduler": {strings.Replace(base, "1.36.3, ", "1.36.3, scheduler: {}, ", 1),
			`spec.yaml:10: spec.modern.scheduler: must be left out`},
		"an owner": {base + "  owners:\n  - {resources: [pods], owner: shared}\n  - {resources: " +
			"[flowschemas.flowcontrol.apiserver.k8s.io], owner: split}\n",
			`spec.yaml:15: spec.owners[1]: flowschemas: split: 1.15 does not have it; its owner can only be modern`},
		"two ranges": {base + "  network:\n    serviceCIDRs: [10.96.0.0/16, fd00::/112]\n",
			`spec.yaml:14: spec.network.serviceCIDRs: the API server of 1.15 takes one range; want one`},
		"a large range": {base + "  network:\n    serviceCIDRs:\n    - 10.0.0.0/8\n",
			`spec.yaml:15: spec.network.serviceCIDRs[0]: "10.0.0.0/8": is too large for 1.15; want a mask of at least /12`},
		"an override": {strings.Replace(base, "apiServer: {}", "apiServer: {extraArgs: [{name: v, value: "+
			"2},\n    {name: etcd-servers-overrides, value: events}]}", 1),
			`spec.yaml:10: spec.legacy.apiServer.extraArgs[1].value: --etcd-servers-overrides: "events": want GROUP/RESOURCE#URL;URL`},
		"pods without webhooks": {splitSpec("1.6.13", "1.8.15", "  pods: {}\n"),
			`spec.yaml:13: spec.pods: the API server of 1.8 does not support admission webhooks for pods; leave the field out`},
	} {
		if _, err := tryPlan(test.text); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: New = %v, want %q", name, err, test.want)
		}
	}
}

// A member of a managed store may be called by the name of its host, or by loopback where there is one host; it listens
// on addresses.
func TestManagedMembersMayBeCalledByName(t *testing.T) {
	for endpoint, want := range map[string]struct{ listen, advertise string }{
		"http://10.0.0.11:2479":  {"http://10.0.0.11:2479,http://127.0.0.1:2479", "http://10.0.0.11:2479"},
		"http://10.0.0.11:2479/": {"http://10.0.0.11:2479,http://127.0.0.1:2479", "http://10.0.0.11:2479"},
		"http://cp-1:2479":       {"http://10.0.0.11:2479,http://127.0.0.1:2479", "http://cp-1:2479"},
		"http://localhost:2479":  {"http://127.0.0.1:2479", "http://localhost:2479"},
		"http://127.0.0.1:2479":  {"http://127.0.0.1:2479", "http://127.0.0.1:2479"},
		"http://[::1]:2479":      {"http://[::1]:2479,http://127.0.0.1:2479", "http://[::1]:2479"},
	} {
		p, err := tryPlan(strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "http://10.0.0.11:2479", endpoint, 1))
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
			continue
		}
		member := p.Components[slices.IndexFunc(p.Components, func(c plan.Component) bool {
			return c.Kind == plan.Etcd
		})]
		listen, _ := member.Arg("listen-client-urls")
		advertise, _ := member.Arg("advertise-client-urls")
		if listen != want.listen || advertise != want.advertise {
			t.Errorf("%s: listens on %s and advertises %s, want %s and %s", endpoint, listen, advertise, want.listen,
				want.advertise)
		}
	}
}

// withRules is the example whose golden file has the rules of its policy; no example has more controllers on the modern
// side. The files of the others have the number of rules and a hash of them: a changed grant is read in the one file,
// and changes one line of each other.
const withRules = "split-1.15-1.36"

// summary is what a reader compares in a golden file: the decisions, without what the version tables say of each row,
// in full for the first host and as differences for the others, and the rules of the policy or a hash of them. The
// reasons go to say, with what they are for.
func summary(t *testing.T, p *plan.Plan, rules bool, say func(why, place string)) []byte {
	t.Helper()
	var b strings.Builder
	line := func(why, place, format string, args ...any) {
		say(why, place)
		fmt.Fprintf(&b, format+"\n", args...)
	}
	for _, r := range p.Resources {
		if !r.Pseudo && len(r.Legacy.Serves) == 0 && len(r.Modern.Serves) == 0 {
			continue
		}
		line(r.Why, "resource "+string(r.Owner), "resource %s: %s, legacy %s:%s, modern %s:%s",
			r.Key, r.Owner, r.Legacy.Store, r.Legacy.StoredAs, r.Modern.Store, r.Modern.StoredAs)
	}
	for _, c := range p.Controllers {
		name := fmt.Sprintf("controller %s %s", c.Side, c.Name)
		line(c.Why, name, "%s: %v", name, c.On)
	}
	for _, side := range pair.Sides() {
		for _, l := range p.Side(side).Locks {
			fmt.Fprintf(&b, "lock %s %s: %s %s/%s\n", l.Side, l.Component, l.Resource, l.Namespace, l.Name)
		}
	}
	first := hostSummary(p, p.Hosts[0].Name, say)
	b.WriteString(first)
	for n, host := range p.Hosts[1:] {
		b.WriteString(hostDifference(p.Hosts, n+1, first, hostSummary(p, host.Name, say)))
	}
	sections, err := policy.Generate(p.Policy)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	n := 0
	for _, section := range sections {
		say(section.Comment, "policy of "+cmp.Or(section.Rules[0].User, section.Rules[0].Group))
		text.WriteString("policy")
		n += len(section.Rules)
		head := ""
		for _, r := range section.Rules {
			next := fmt.Sprintf("\n  user=%q group=%q namespace=%q readonly=%v:", r.User, r.Group, r.Namespace,
				r.Readonly)
			if head != next {
				text.WriteString(next)
			}
			head = next
			text.WriteString(" " + cmp.Or(r.NonResourcePath, strings.TrimSuffix(r.Resource+"."+r.APIGroup, ".")))
		}
		fmt.Fprintln(&text)
	}
	if rules {
		b.WriteString(text.String())
	} else {
		fmt.Fprintf(&b, "policy %d rules sha256:%x\n", n, sha256.Sum256([]byte(text.String())))
	}
	return []byte(b.String())
}

// hostSummary is what runs on a host, and the certificates there.
func hostSummary(p *plan.Plan, host string, say func(why, place string)) string {
	var b strings.Builder
	for _, c := range p.Components {
		if c.Host != host {
			continue
		}
		fmt.Fprintf(&b, "component %s on %s: %s %s\n", c.Name, c.Host, c.Image, strings.Join(c.Command, " "))
		for _, a := range c.Args {
			say(a.Why, c.Name+" --"+a.Name)
			fmt.Fprintf(&b, "  %s (%s)\n", a, a.Origin)
		}
		for _, m := range c.Mounts {
			fmt.Fprintf(&b, "  mount %s %s readonly=%v\n", m.Name, m.Path, m.ReadOnly)
		}
		fmt.Fprintf(&b, "  probe %s://%s:%d%s startup=%v\n", c.Liveness.Scheme, c.Liveness.Host, c.Liveness.Port,
			c.Liveness.Path, c.Startup != nil)
	}
	for _, c := range p.Certificates {
		if c.Host != host {
			continue
		}
		say(c.Why, "certificate "+c.Cert)
		fmt.Fprintf(&b, "certificate %s on %s: CN=%s O=%v %v %v %v existing=%v\n", c.Cert, c.Host, c.CommonName,
			c.Organizations, c.Usages, c.DNSNames, c.IPs, c.Existing)
	}
	return b.String()
}

// hostDifference is in which lines a host differs from the first one, once names and addresses are replaced there:
// those of the first host by its own, and those of the others, in their order, by those of all others.
func hostDifference(hosts []spec.Host, n int, first, own string) string {
	var b strings.Builder
	var renames []string
	for i, to := range slices.Concat(hosts[n:n+1], hosts[:n], hosts[n+1:]) {
		renames = append(renames, hosts[i].Name, to.Name, hosts[i].Address, to.Address)
	}
	fmt.Fprintf(&b, "host %s: as %s, with names and addresses of its own\n", hosts[n].Name, hosts[0].Name)
	renamed := strings.NewReplacer(renames...).Replace(first)
	unified := string(diff.Diff("first", []byte(renamed), "own", []byte(own)))
	if _, hunks, differ := strings.Cut(unified, "\n@@"); differ {
		for line := range strings.Lines(hunks) {
			if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// TestExamplesPlanAsGolden compares the decisions of each example with a file of its own, and the reasons of all of
// them with testdata/reasons.txt.
func TestExamplesPlanAsGolden(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var reasons golden.Texts
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := summary(t, planOf(t, string(data)), name == withRules, func(why, place string) {
			reasons.Add(why, place, name)
		})
		t.Run(name, func(t *testing.T) { golden.File(t, filepath.Join("testdata", name+".txt"), got) })
	}
	reasons.File(t, filepath.Join("testdata", "reasons.txt"))
}

// versionPair is a legacy and a modern minor with their default plan.
type versionPair struct {
	legacy, modern kubever.Minor
	plan           *plan.Plan
	err            error
}

// splitPairs are the default split plans of every pair of minors, made once for all tests.
var splitPairs = sync.OnceValue(func() []versionPair {
	var all []versionPair
	for _, legacy := range kubever.Minors() {
		for modern := max(legacy, 7); modern <= kubever.Newest; modern++ {
			p, err := tryPlan(splitSpec(legacy.String(), modern.String(), ""))
			all = append(all, versionPair{legacy, modern, p, err})
		}
	}
	return all
})

// pairs calls the test with the default split plan of every pair.
func pairs(t *testing.T, test func(legacy, modern kubever.Minor, p *plan.Plan)) {
	t.Helper()
	for _, each := range splitPairs() {
		if each.err != nil {
			t.Errorf("%s + %s: %v", each.legacy, each.modern, each.err)
			continue
		}
		test(each.legacy, each.modern, each.plan)
	}
}

func TestEveryArgumentExistsInItsVersion(t *testing.T) {
	argumentsExist := func(legacy, modern kubever.Minor, p *plan.Plan) {
		for _, c := range p.Components {
			if c.Side == "" {
				continue // no component of Kubernetes
			}
			for _, a := range c.Args {
				if m := p.Side(c.Side).Version.Minor; !kubever.Flag(c.Kind, a.Name).In(m) {
					t.Errorf("%s + %s: %s has no flag --%s in %s", legacy, modern, c.Name, a.Name, m)
				}
			}
		}
	}
	pairs(t, argumentsExist)
	for _, shared := range [][2]kubever.Minor{{6, 7}, {6, 10}, {6, 36}, {9, 10}, {14, 19}, {15, 36}, {24, 36}} {
		argumentsExist(shared[0], shared[1], planOf(t, sharedSpec(shared[0].String(), shared[1].String())))
	}
}
func TestControllerNamesExistInTheirVersion(t *testing.T) {
	pairs(t, func(legacy, modern kubever.Minor, p *plan.Plan) {
		for _, side := range pair.Sides() {
			manager := p.ComponentsOf(side, kubever.ControllerManager)[0]
			value, ok := manager.Arg("controllers")
			if !ok {
				continue
			}
			var known []string
			for _, c := range kubever.Controllers(p.Side(side).Version.Minor) {
				name, _ := c.NameIn(p.Side(side).Version.Minor)
				known = append(known, name)
			}
			for name := range strings.SplitSeq(value, ",") {
				if name = strings.TrimPrefix(name, "-"); name != "*" && !slices.Contains(known, name) {
					t.Errorf("%s + %s: --controllers of the %s side names %q, which %s does not know", legacy, modern,
						side, name, p.Side(side).Version)
				}
			}
			if side == pair.Modern && strings.Contains(value, "*") {
				t.Errorf("%s + %s: --controllers=%s: want a list without a star", legacy, modern, value)
			}
		}
	})
}

func TestSplitNeverSharesWhatOneSideCannotRead(t *testing.T) {
	pairs(t, func(legacy, modern kubever.Minor, p *plan.Plan) {
		for _, r := range p.Resources {
			if r.Pseudo || !r.VisibleToBoth() {
				continue
			}
			if writer := r.View(r.Route().Write); !writer.Reads(r.Legacy.StoredAs) {
				t.Errorf("%s + %s: %s is written through the %s side, which cannot watch %s", legacy, modern, r.Key,
					r.Route().Write, r.Legacy.StoredAs)
			}
			if r.Route().Read != pair.Modern {
				t.Errorf("%s + %s: %s is in one store and not read through the modern side", legacy, modern, r.Key)
			}
			if !slices.Contains(r.Modern.Decodes, r.Legacy.StoredAs) {
				t.Errorf("%s + %s: %s is in one store and the modern side cannot read %s", legacy, modern, r.Key,
					r.Legacy.StoredAs)
			}
			if r.Owner != pair.OwnerLegacy && (!slices.Contains(r.Legacy.Decodes, r.Modern.StoredAs) ||
				slices.Contains(r.Legacy.WatchBreaks, r.Modern.StoredAs)) {
				t.Errorf("%s + %s: the modern side may write %s as %s, which the legacy side cannot read", legacy,
					modern, r.Key, r.Modern.StoredAs)
			}
		}
	})
}

func TestLocksAreDistinct(t *testing.T) {
	pairs(t, func(legacy, modern kubever.Minor, p *plan.Plan) {
		for _, a := range p.Modern.Locks {
			for _, b := range p.Legacy.Locks {
				row := p.Resource(a.Resource)
				if a.Resource == b.Resource && a.Name == b.Name && row.Legacy.Store == row.Modern.Store {
					t.Errorf("%s + %s: both sides elect on %s %s", legacy, modern, a.Resource, a.Name)
				}
			}
		}
		if len(p.Modern.Locks) == 0 {
			t.Errorf("%s + %s: the modern controller manager elects on nothing", legacy, modern)
		}
	})
}

// What real servers did to pods of the other side decides; the runs were made with these pairs.
func TestCollectorsRunWhereTheyWereSeenToBeSafe(t *testing.T) {
	const deploymentsOnly = `  owners:
  - {resources: [statefulsets.apps, daemonsets.apps, jobs.batch, cronjobs.batch], owner: legacy}
`
	for _, test := range []struct {
		name, legacy, modern, more string
		wantLegacyGC, wantModernGC bool
	}{
		{"pods of both sides die at 1.15 and 1.36", "1.15.12", "1.36.3", "", false, false},
		{"1.10 deletes pods of modern Deployments", "1.10.13", "1.36.3", "", false, false},
		{"1.6 deletes pods of modern StatefulSets", "1.6.13", "1.36.3", "", false, false},
		{"1.6 does not know apps ReplicaSets", "1.6.13", "1.36.3", deploymentsOnly, true, false},
	} {
		p := planOf(t, splitSpec(test.legacy, test.modern, test.more))
		for side, want := range map[pair.Side]bool{pair.Legacy: test.wantLegacyGC, pair.Modern: test.wantModernGC} {
			got := p.Controller(side, "garbage-collector-controller")
			if got.On != want {
				t.Errorf("%s: the %s collector runs = %v, want %v (%s)", test.name, side, got.On, want, got.Why)
			}
		}
	}
}

func TestLegacySideOfThe1_6PairIsLeftAsItIsWithDeploymentsOnly(t *testing.T) {
	p := planOf(t, splitSpec("1.6.13", "1.36.3", `  owners:
  - {resources: [statefulsets.apps, daemonsets.apps, jobs.batch, cronjobs.batch], owner: legacy}
`))
	if value, ok := p.ComponentsOf(pair.Legacy, kubever.ControllerManager)[0].Arg("controllers"); ok {
		t.Errorf("--controllers=%s, want the legacy manager's own default", value)
	}
}

func TestRunningSideChangesOnlyWhatMustChange(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "apiServer: {}, controllerManager: {}, scheduler: {}}",
		`existing: true, apiServer: {extraArgs: [{name: etcd_servers, value: "http://10.0.0.11:2379"}, {name: secure-port, value: 6443}]},
    controllerManager: {extraArgs: [{name: v, value: 2}, {name: controllers, value: "*,-ttl,garbagecollector,tokencleaner"}, {name: kubeconfig, value: /k}]}}`, 1)
	p := planOf(t, text)
	if got, want := fmt.Sprint(p.ComponentsOf(pair.Legacy, kubever.APIServer)[0].Args),
		"[--etcd_servers=http://10.0.0.11:2379 --secure-port=6443]"; got != want {
		t.Errorf("API server runs with %s, want %s", got, want)
	}
	manager := p.ComponentsOf(pair.Legacy, kubever.ControllerManager)[0]
	if got, want := fmt.Sprint(manager.Args),
		"[--v=2 --controllers=*,-ttl,tokencleaner,-garbagecollector --kubeconfig=/k]"; got != want {
		t.Errorf("controller manager runs with %s, want %s", got, want)
	}
	if manager.Args[1].Origin != plan.FromBoth {
		t.Errorf("--controllers is from %s, want both", manager.Args[1].Origin)
	}
	if tokens := p.Controller(pair.Legacy, "token-cleaner-controller"); !tokens.On {
		t.Errorf("token cleaner is off, want on: the spec's --controllers names it")
	}
}

// An API server that reads from a member of etcd that lags behind answers 404 for owners that exist.
func TestEveryAPIServerReadsWithQuorum(t *testing.T) {
	for legacy, want := range map[string]string{"1.6.13": "true", "1.7.16": "true", "1.8.15": "true", "1.9.11": "",
		"1.12.10": "", "1.15.12": ""} {
		p := planOf(t, splitSpec(legacy, "1.36.3", ""))
		for _, c := range p.ComponentsOf(pair.Legacy, kubever.APIServer) {
			if value, _ := c.Arg("etcd-quorum-read"); value != want {
				t.Errorf("%s: --etcd-quorum-read=%q, want %q", legacy, value, want)
			}
		}
		if sides := p.StaleReaders(); len(sides) > 0 {
			t.Errorf("%s: %v read without quorum", legacy, sides)
		}
	}
	text := strings.Replace(splitSpec("1.6.13", "1.36.3", ""), "apiServer: {}, controllerManager: {}, scheduler: {}}",
		`existing: true, apiServer: {extraArgs: [{name: etcd_servers, value: "http://10.0.0.11:2379"}, {name: etcd_quorum_read, value: "false"}]}}`, 1)
	args := planOf(t, text).ComponentsOf(pair.Legacy, kubever.APIServer)[0].Args
	if got := args[1]; got.Name != "etcd_quorum_read" || got.Value != "true" || got.Origin != plan.FromBoth {
		t.Errorf("a running 1.6 is left with %+v, want quorum reads", got)
	}

	p := planOf(t, splitSpec("1.6.13", "1.36.3", "")) // as an older fusionctl planned
	for i := range p.Components {
		p.Components[i].Args = slices.DeleteFunc(p.Components[i].Args, func(a plan.Arg) bool {
			return a.Name == "etcd-quorum-read"
		})
	}
	if sides := p.StaleReaders(); len(sides) != 1 || sides[0] != pair.Legacy {
		t.Errorf("StaleReaders = %v, want the legacy side", sides)
	}
}

func TestLegacyOverridesAreFollowed(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "apiServer: {}, controllerManager: {}, scheduler: {}}",
		`apiServer: {extraArgs: [{name: etcd-servers-overrides, value: "/events#http://10.0.0.12:2379/"}]}}`, 1)
	if _, err := tryPlan(text); err == nil || !strings.Contains(err.Error(), "10.0.0.12:2379") {
		t.Errorf("override to an unknown store: %v, want an error that names it", err)
	}
	text = strings.Replace(text, "  - {name: modern,",
		"  - {name: events, endpoints: [\"http://10.0.0.12:2379\"]}\n  - {name: modern,", 1)
	p := planOf(t, text)
	events := p.Resource("events")
	if events.Legacy.Store != "events" || events.Modern.Store != "events" {
		t.Errorf("events lie in %s and %s, want both in store events", events.Legacy.Store, events.Modern.Store)
	}
	overrides, _ := p.ComponentsOf(pair.Modern, kubever.APIServer)[0].Arg("etcd-servers-overrides")
	if !strings.Contains(overrides, "/events#http://10.0.0.12:2379") {
		t.Errorf("--etcd-servers-overrides=%s, want events in their own store", overrides)
	}
}

func TestSharedLayoutDoesNotServeWhatPoisonsTheLegacySide(t *testing.T) {
	p := planOf(t, sharedSpec("1.24", "1.36"))
	server := p.ComponentsOf(pair.Modern, kubever.APIServer)[0]
	for name, want := range map[string]string{
		"runtime-config":               "flowcontrol.apiserver.k8s.io/v1=false",
		"enable-priority-and-fairness": "false",
		"endpoint-reconciler-type":     "none",
		"authorization-mode":           "ABAC",
	} {
		if got, _ := server.Arg(name); got != want {
			t.Errorf("--%s=%s, want %s", name, got, want)
		}
	}
	if row := p.Resource("flowschemas"); row.Modern.Store != "" {
		t.Errorf("flow schemas are served by the modern side in store %q, want not at all", row.Modern.Store)
	}
}

func TestPlanRefusesWhatItCannotHonour(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a second scheduler": {strings.Replace(splitSpec("1.15", "1.36", ""),
			"modern: {version: 1.36, apiServer: {}", "modern: {version: 1.36, scheduler: {}, apiServer: {}", 1),
			"spec.modern.scheduler"},
		"overrides of its own": {strings.Replace(splitSpec("1.15", "1.36", ""),
			"modern: {version: 1.36, apiServer: {}",
			`modern: {version: 1.36, apiServer: {extraArgs: [{name: etcd_servers_overrides, value: "/pods#http://x:1"}]}`, 1), "extraArgs[0]"},
		"legacy owner of what it lacks": {splitSpec("1.6", "1.36",
			"  owners: [{resources: [leases.coordination.k8s.io], owner: shared}]\n"), "leases"},
	} {
		if _, err := tryPlan(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error that names %q", name, err, test.want)
		}
	}
}

func TestTwoPlansOfOneSpecAreTheSameBytes(t *testing.T) {
	for _, text := range []string{splitSpec("1.6.13", "1.36.3", ""), sharedSpec("1.6.13", "1.10.13")} {
		first, _ := json.Marshal(planOf(t, text))
		for range 5 {
			if again, _ := json.Marshal(planOf(t, text)); string(again) != string(first) {
				t.Fatalf("two plans of one spec differ")
			}
		}
		var back plan.Plan
		asYAML, err := yaml.Marshal(planOf(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(asYAML, &back); err != nil {
			t.Fatalf("reading a printed plan: %v", err)
		}
		if again, _ := json.Marshal(back); string(again) != string(first) {
			t.Errorf("a plan that was printed and read is another plan")
		}
	}
}

func TestPolicyKnowsNoMasters(t *testing.T) {
	pairs(t, func(legacy, modern kubever.Minor, p *plan.Plan) {
		if _, err := policy.Generate(p.Policy); err != nil {
			t.Errorf("%s + %s: %v", legacy, modern, err)
		}
		for _, c := range p.Certificates {
			if slices.Contains(c.Organizations, "system:masters") {
				t.Errorf("%s + %s: %s is in system:masters", legacy, modern, c.Cert)
			}
		}
	})
}

func BenchmarkNew(b *testing.B) {
	f, err := spec.Load("spec.yaml", []byte(splitSpec("1.6.13", "1.36.3", "")))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := plan.New(f, plan.OnHosts); err != nil {
			b.Fatal(err)
		}
	}
}

func TestModernServerHasItsOwnServiceRange(t *testing.T) {
	p := planOf(t, splitSpec("1.15", "1.36", "  network: {serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: "+
		"[10.97.0.0/16]}\n"))
	for side, want := range map[pair.Side]string{pair.Legacy: "10.96.0.0/16", pair.Modern: "10.97.0.0/16"} {
		if got, _ := p.ComponentsOf(side, kubever.APIServer)[0].Arg("service-cluster-ip-range"); got != want {
			t.Errorf("the %s server gives out %s, want %s", side, got, want)
		}
	}
	if _, err := tryPlan(splitSpec("1.15", "1.36", "  network: {serviceCIDRs: [10.96.0.0/12], modernServiceCIDRs: "+
		"[10.97.0.0/16]}\n")); err == nil || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("overlapping ranges: %v, want an error that says so", err)
	}
}

func TestRunningSideAdvertisesEachHost(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "apiServer: {}, controllerManager: {}, scheduler: {}}",
		`existing: true, apiServer: {extraArgs: [{name: advertise-address, value: 10.0.0.11}, {name: etcd-servers, value: "http://10.0.0.11:2379"}]}}`, 1)
	text = strings.Replace(text, "hosts: [{name: cp-1, address: 10.0.0.11}]",
		"hosts: [{name: cp-1, address: 10.0.0.11}, {name: cp-2, address: 10.0.0.12}]", 1)
	text = strings.Replace(text, `"http://10.0.0.11:2479"`, `"http://10.0.0.11:2479", "http://10.0.0.12:2479"`, 1)
	servers := planOf(t, text).ComponentsOf(pair.Legacy, kubever.APIServer)
	for i, want := range []string{"10.0.0.11", "10.0.0.12"} {
		if got, _ := servers[i].Arg("advertise-address"); got != want {
			t.Errorf("the server on %s advertises %s, want %s", servers[i].Host, got, want)
		}
		if got, _ := servers[i].Arg("etcd-servers"); got != "http://10.0.0.11:2379" {
			t.Errorf("the server on %s uses etcd %s", servers[i].Host, got)
		}
	}
}

// TestHostsHaveTheirOwnImages: a host that was updated by itself keeps its image, on the side that runs already alone.
func TestHostsHaveTheirOwnImages(t *testing.T) {
	const own = "mirror.example.org/kube-apiserver:v1.15.9"
	running := strings.Replace(splitSpec("1.15.12", "1.36.3", ""),
		"apiServer: {}, controllerManager: {}, scheduler: {}}", `existing: true, apiServer: {extraArgs: [`+
			`{name: etcd-servers, value: "http://10.0.0.11:2379"}]}}`, 1)
	running = strings.Replace(running, "hosts: [{name: cp-1, address: 10.0.0.11}]", "hosts: [{name: cp-1, address: "+
		"10.0.0.11}, {name: cp-2, address: 10.0.0.12, legacy: {images: {apiServer: '"+own+"'}}}]", 1)
	running = strings.Replace(running, `"http://10.0.0.11:2479"`, `"http://10.0.0.11:2479", "http://10.0.0.12:2479"`, 1)
	p := planOf(t, running)
	for _, c := range p.Components {
		if (c.Image == own) != (c.Side == pair.Legacy && c.Kind == kubever.APIServer && c.Host == "cp-2") {
			t.Errorf("%s on %s has image %s", c.Name, c.Host, c.Image)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(running, "existing: true, ", "", 1): "legacy.images: goes with spec.legacy.existing: true",
		strings.Replace(running, "v1.15.9", "v1.14.9", 1):   "the tag is 1.14, and the side's version is 1.15",
		strings.Replace(running, own, "a b", 1):             "spec.hosts[1].legacy.images.apiServer",
	} {
		if _, err := spec.Load("spec.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("loading: %v, want %s", err, want)
		}
	}
}

func TestControllersWithoutAccountsOfTheirOwnAreTheManager(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""),
		"modern: {version: 1.36.3, apiServer: {}, controllerManager: {}}",
		"modern: {version: 1.36.3, apiServer: {}, controllerManager: {extraArgs: [{name: "+
			"use-service-account-credentials, value: false}]}}", 1)
	for _, g := range planOf(t, text).Policy.Grants {
		for _, s := range g.Subjects {
			if s.Kind == policy.KindServiceAccount {
				t.Fatalf("the policy knows service account %s, which nobody uses", s.Name)
			}
		}
	}
}

func TestDirectoriesOfTheImageAreNotHidden(t *testing.T) {
	text := strings.Replace(splitSpec("1.15.12", "1.36.3", ""), "modern: {version: 1.36.3, apiServer: {}",
		"modern: {version: 1.36.3, apiServer: {extraArgs: [{name: audit-policy-file, value: /etc/audit.yaml}]}", 1)
	server := planOf(t, text).ComponentsOf(pair.Modern, kubever.APIServer)[0]
	for _, m := range server.Mounts {
		if m.Path == "/etc" {
			t.Error("the host's /etc is mounted over the image's")
		}
	}
	if !slices.ContainsFunc(server.Mounts, func(m plan.Mount) bool {
		return m.Path == "/etc/audit.yaml" && !m.Directory
	}) {
		t.Errorf("mounts are %v, want /etc/audit.yaml among them", server.Mounts)
	}
}

// What runs on neither side is somebody's work: docs/controllers.md says whose.
func TestWhatRunsOnNeitherSideIsWrittenDown(t *testing.T) {
	text, err := os.ReadFile("../../docs/controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "## What plans switch off on both sides")
	if !found {
		t.Fatal("docs/controllers.md has no section about what plans switch off on both sides")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	neither := map[string]bool{}
	pairs(t, func(legacy, modern kubever.Minor, p *plan.Plan) {
		for _, c := range p.Controllers {
			if c.Side != pair.Modern || c.On || strings.Contains(c.Why, "does not run it by default") {
				continue
			}
			if other := p.Controller(pair.Legacy, c.ID); other == nil || !other.On {
				neither[strings.TrimSuffix(c.ID, "-controller")] = true
			}
		}
	})
	for name := range neither {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("%s runs on neither side of some plan, and docs/controllers.md does not say who does its work",
				name)
		}
	}
	for _, quoted := range regexp.MustCompile(`(?m)^\|[^|]*\|([^|]*)\|`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(quoted[1], -1) {
			if !neither[name[1]] {
				t.Errorf("docs/controllers.md says that %s runs on neither side, and every plan runs it on one",
					name[1])
			}
		}
	}
}

// Access that a spec may have is access that a policy can say: nothing is left for the writer of the policy to refuse.
// The one exception has a rule of its own, which says more (FUS153).
func TestWhatASpecAllowsAPolicyCanSay(t *testing.T) {
	words := []string{"alice", "*", "", " ", "a*", "A", "a b", "a\nb", "\x00", "\u0085", "a/b", "a.b", "v1", "core",
		"/", "/a*", "/*a", "/a b", "ä", `"`, `\`, strings.Repeat("x", 1024), strings.Repeat("x", 1025),
		"/" + strings.Repeat("x", 1024), strings.Repeat("x.y", 400)}
	taken := 0
	for _, shape := range []string{
		"{subjects: [{kind: User, name: %s}], apiGroups: [apps], resources: [deployments]}",
		"{subjects: [{kind: Group, name: %s}], apiGroups: [apps], resources: [deployments]}",
		"{subjects: [{kind: ServiceAccount, namespace: a, name: %s}], apiGroups: [apps], resources: [deployments]}",
		"{subjects: [{kind: ServiceAccount, namespace: %s, name: a}], apiGroups: [apps], resources: [deployments]}",
		"{subjects: [{kind: User, name: a}], apiGroups: [%s], resources: ['*']}",
		"{subjects: [{kind: User, name: a}], apiGroups: [example.org], resources: [%s]}",
		"{subjects: [{kind: User, name: a}], apiGroups: [apps], resources: ['*'], namespaces: [%s]}",
		"{subjects: [{kind: User, name: a}], nonResourcePaths: [%s]}",
	} {
		for _, word := range words {
			quoted, err := json.Marshal(word)
			if err != nil {
				t.Fatal(err)
			}
			p, err := tryPlan(splitSpec("1.15.12", "1.36.3", "  - "+fmt.Sprintf(shape, quoted)+"\n"))
			if err != nil {
				continue
			}
			taken++
			if _, err := policy.Generate(p.Policy); err != nil {
				t.Errorf("%s with %q is planned, and then: %v", shape, word, err)
			}
		}
	}
	if taken < 30 {
		t.Errorf("%d combinations were planned, want many more", taken)
	}
}

// TestAPlanSaysWhoWritesTheBitmap: as the modern API server is started, not as its minor is by default.
func TestAPlanSaysWhoWritesTheBitmap(t *testing.T) {
	const own = "  network: {serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]}\n"
	for _, test := range []struct{ modern, more, gates, allocates string }{
		{"1.32", "", "", pair.AllocatesBitmap},
		{"1.33", "", "", pair.AllocatesBoth},
		{"1.33", own, "DisableAllocatorDualWrite=true", pair.AllocatesAddresses},
		{"1.34", "", "DisableAllocatorDualWrite=false", pair.AllocatesBoth},
		{"1.34", own, "", pair.AllocatesAddresses},
		{"1.35", "", "", pair.AllocatesAddresses},
	} {
		p := planOf(t, splitSpec("1.15", test.modern, test.more))
		gates, _ := p.ComponentsOf(pair.Modern, kubever.APIServer)[0].Arg("feature-gates")
		if strings.Contains(gates, "DisableAllocatorDualWrite") != (test.gates != "") ||
			!strings.Contains(gates, test.gates) || p.Modern.Facts.Allocates != test.allocates ||
			p.Legacy.Facts.Allocates != pair.AllocatesBitmap {
			t.Errorf("%s %s: gates %q, %s beside %s", test.modern, test.more, gates, p.Modern.Facts.Allocates,
				p.Legacy.Facts.Allocates)
		}
	}
}
