package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func TestLocksThatAreHeldTwice(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.hold("services/endpoints", "shop", "operator", pair.Legacy, "old", clock.Add(-5*time.Second))
	p.wants() // one holder
	p.hold("leases", "shop", "operator", pair.Modern, "new", clock.Add(-5*time.Second))
	p.wants("FUS065 warning", "lock shop/operator: has two holders", "leases of the modern side by new",
		"endpoints that both sides see by old")

	// A name of the legacy side's own components, held on the modern side as well: two of them place the same pods.
	p = newPair(t, "1.10.13", "")
	p.hold("leases", "kube-system", "kube-scheduler", pair.Modern, "new", clock)
	p.wants("FUS065 error", "lock kube-system/kube-scheduler")

	for name, arrange := range map[string]func(p *fakePair){
		"a lock that was left": func(p *fakePair) {
			p.hold("configmaps", "shop", "operator", pair.Legacy, "old", clock.Add(-time.Hour))
			p.hold("leases", "shop", "operator", pair.Modern, "new", clock)
		},
		"one holder with two objects": func(p *fakePair) {
			p.hold("services/endpoints", "shop", "operator", pair.Legacy, "one", clock)
			p.hold("leases", "shop", "operator", pair.Modern, "one", clock)
		},
		"one name in two namespaces": func(p *fakePair) {
			p.hold("services/endpoints", "shop", "operator", pair.Legacy, "one", clock)
			p.hold("leases", "office", "operator", pair.Modern, "two", clock)
		},
		"heartbeats of kubelets": func(p *fakePair) {
			p.hold("services/endpoints", nodeLeases, "n1", pair.Legacy, "one", clock)
			p.hold("leases", nodeLeases, "n1", pair.Modern, "two", clock)
		},
		"no record at all": func(p *fakePair) {
			p.shared("/api/v1/configmaps",
				`{metadata: {name: operator, namespace: shop, uid: c1, annotations: {"control-plane.alpha.kubernetes.io/leader": "{"}}}`)
			p.hold("leases", "shop", "operator", pair.Modern, "two", clock)
		},
	} {
		p := newPair(t, "1.10.13", "")
		arrange(p)
		if text := lines(p.check()); text != "" {
			t.Errorf("%s: want silence, got\n%s", name, text)
		}
	}
}

// Both managers elect under one name, each on another kind of object: that is how the plan keeps old versions apart.
func TestLocksOfThePlanAreNotHeldTwice(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.plan.Modern.Locks[0].Name = p.plan.Legacy.Locks[0].Name
	p.hold(p.plan.Modern.Locks[0].Resource, "kube-system", p.plan.Modern.Locks[0].Name, pair.Modern, "new", clock)
	p.wants()
}

func TestLocksThatNobodyHolds(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.modern.objects["/apis/coordination.k8s.io/v1/leases"] = nil
	p.wants("FUS242 warning", "kube-controller-manager of the modern side: its lock, leases "+
		"kube-system/kube-controller-manager-modern, has no holder")
	p.hold("leases", "kube-system", p.plan.Modern.Locks[0].Name, pair.Modern, "new", clock.Add(-time.Minute))
	p.wants() // clocks differ by less than that
	p.modern.fails["/apis/coordination.k8s.io/v1/leases"] = errors.New("forbidden")
	p.modern.objects["/apis/coordination.k8s.io/v1/leases"] = nil
	if text := lines(p.check()); strings.Contains(text, "FUS") {
		t.Errorf("want no finding about locks that could not be listed:\n%s", text)
	}
}

// mirror shows a component of the plan as a kubelet does.
func (p *fakePair) mirror(c *plan.Component, change func(args []string) []string) {
	p.t.Helper()
	var args []string
	for _, a := range c.Args {
		args = append(args, a.String())
	}
	if change != nil {
		args = change(args)
	}
	pod, err := yaml.Marshal(obj{"metadata": obj{"name": c.Name + "-node-1", "namespace": "kube-system",
		"uid": "mirror-" + c.Name, "annotations": obj{mirrorAnnotation: "x"}},
		"spec": obj{"nodeName": "node-1",
			"containers": []obj{{"name": c.Kind, "image": c.Image, "command": c.Command, "args": args}}},
		"status": obj{"hostIP": "192.0.2.1"}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.shared("/api/v1/pods", string(pod))
}

// withPods shows all components of the plan, one of them changed.
func withPods(t *testing.T, changed string, change func(args []string) []string) *fakePair {
	p := newPair(t, "1.10.13", "")
	p.options.NoFlags = false
	for i := range p.plan.Components {
		c := &p.plan.Components[i]
		if c.Name == changed {
			p.mirror(c, change)
		} else {
			p.mirror(c, nil)
		}
	}
	return p
}

// TestWordsThatAreNoArgumentsMakeTheCheckIncomplete: what they change is not known. A flag that a vendor's build may
// know is compared as any other.
func TestWordsThatAreNoArgumentsMakeTheCheckIncomplete(t *testing.T) {
	p := withPods(t, "kube-apiserver-modern", func(args []string) []string { return append(args, "more") })
	if text := strings.Join(p.check().Incomplete, "\n"); !strings.Contains(
		text, `"more" is no argument of kube-apiserver`) ||
		!strings.Contains(text, "kube-apiserver-modern-node-1") {
		t.Errorf("incomplete %q, want the word and its pod", text)
	}
	p = withPods(t, "kube-apiserver-modern", func(args []string) []string { return append(args, "--acme-cache=1") })
	if got := p.check().Incomplete; len(got) > 0 {
		t.Errorf("an argument of a vendor: incomplete %q", got)
	}
}

func TestStaticPodsThatRunAsPlanned(t *testing.T) {
	withPods(t, "", nil).wants()
	withPods(t, "kube-apiserver-modern", func(args []string) []string {
		slices.Reverse(args) // the order does not count, nor do underscores
		return append(args[:len(args)-1], strings.Replace(args[len(args)-1], "advertise-address", "advertise_address",
			1))
	}).wants()
}

func TestStaticPodsThatDiffer(t *testing.T) {
	const modernServer, modernManager = "kube-apiserver-modern", "kube-controller-manager-modern"
	with := func(arg string) func([]string) []string {
		name, _, _ := strings.Cut(arg, "=")
		return func(args []string) []string {
			return append(slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, name+"=") }), arg)
		}
	}
	withPods(t, modernServer, with("--endpoint-reconciler-type=lease")).
		wants("FUS242 error", "--endpoint-reconciler-type of kube-apiserver-modern on cp-1",
			`is "lease", and the plan has "none"`)
	withPods(t, modernServer, with("--audit-log-maxage=7")).
		wants("FUS242 warning", `is "7", and the plan does not set it`)
	withPods(t, modernManager, with("--controllers=*")).wants("FUS242 error", "has * beyond the plan, and lacks ")
	withPods(t, modernManager, func(args []string) []string {
		return slices.DeleteFunc(args, func(a string) bool {
			return strings.HasPrefix(a, "--leader-elect-resource-name=")
		})
	}).wants("FUS242 error", "--leader-elect-resource-name", "is not set, and the plan has")
}

func TestComponentsWithoutPods(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.options.NoFlags = false
	p.wants("incomplete", "the arguments of kube-apiserver-modern on cp-1")

	server := &p.plan.ComponentsOf(pair.Modern, kubever.APIServer)[0]
	flags := obj{"etcd-servers": ""}
	for _, a := range server.Args {
		flags[a.Name] = a.Value
	}
	flags["service-account-key-file"] = "[" + flags["service-account-key-file"].(string) + "]"
	page, err := yaml.Marshal(obj{"kind": "Flagz", "flags": flags})
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSON(page)
	if err != nil {
		t.Fatal(err)
	}
	p.modern.pages["/flagz"] = string(json)
	if text := lines(p.check()); strings.Contains(text, "FUS") || strings.Contains(text, "kube-apiserver-modern") {
		t.Errorf("want nothing about the server whose flags are the plan's:\n%s", text)
	}
	p.modern.pages["/flagz"] = strings.Replace(string(json), `"ABAC"`, `"ABAC,RBAC"`, 1)
	p.wants("FUS242 error", "--authorization-mode of kube-apiserver-modern", `"ABAC,RBAC"`, "/flagz")

	// Metrics show the gates alone.
	delete(p.modern.pages, "/flagz")
	p.modern.pages["/metrics"] = fmt.Sprintf("# HELP x\n%sname=\"WatchList\",stage=\"BETA\"} %s\n"+
		"%sname=\"CBORServingAndStorage\",stage=\"ALPHA\"} 1\n", gateMetric, gateDefault("WatchList"), gateMetric)
	p.wants("FUS242 error", "CBORServingAndStorage=true", "/metrics")
	if text := lines(p.check()); strings.Contains(text, "WatchList") {
		t.Errorf("want nothing about a gate at its default:\n%s", text)
	}
	p.wants("incomplete", "the arguments of kube-apiserver-modern on cp-1")
}

func gateDefault(name string) string {
	if state, _ := kubever.Gate(name).At(36); state.Default {
		return "1"
	}
	return "0"
}

func TestKubeletsOfOtherVersions(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.shared("/api/v1/nodes", `{metadata: {name: n1, uid: n1}, status: {nodeInfo: {kubeletVersion: v1.10.2}}}`)
	p.wants()
	p.shared("/api/v1/nodes", `{metadata: {name: n2, uid: n2}, status: {nodeInfo: {kubeletVersion: v1.17.17}}}`)
	p.wants("FUS242 warning", "kubelets of v1.17.17: 1 node", "n2")
}

func TestValuesAreComparedAsFlags(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{{"60s", "1m0s", true}, {"[a,b]", "b,a", true}, {"[]", "", true}, {"true", "false", false}, {"10", "1", false},
		{"a,b", "a", false}} {
		if got := sameValue(test.a, test.b); got != test.same {
			t.Errorf("sameValue(%q, %q) = %v, want %v", test.a, test.b, got, test.same)
		}
	}
}

// What the plan leaves to fusionctl's own controllers is done while they hold their lock.
func TestJointControllers(t *testing.T) {
	p := jointPair(t, "1.10.13")
	p.wants("FUS242 warning", "fusionctl-controllers: their lock, configmaps kube-system/fusionctl-controllers, has "+
		"no holder")
	p.shared("/api/v1/configmaps", owned("settings", "apps/v1", "StatefulSet", "db", "u9"))
	p.wants("FUS135 warning", "neither side has")
	p.hold("configmaps", "kube-system", "fusionctl-controllers", pair.Modern, "one", clock)
	p.wants() // they collect it
	p.options.NoFlags = false
	p.wants("incomplete", "the arguments of fusionctl-controllers on cp-1")
	for i := range p.plan.Components {
		p.mirror(&p.plan.Components[i], nil)
	}
	p.wants()
}

// A collector that the plan has off and that runs deletes what is a remark otherwise.
func TestCollectorsAreJudgedAsTheyRun(t *testing.T) {
	for _, args := range []struct {
		arg      string
		severity string
	}{{"--controllers=*", "FUS060 error"}, {"--controllers=*,-garbagecollector", "FUS060 info"}} {
		p := withPods(t, "kube-controller-manager", func(list []string) []string {
			return append(slices.DeleteFunc(list, func(a string) bool {
				return strings.HasPrefix(a, "--controllers=")
			}), args.arg)
		})
		p.modern.put("/apis/apps/v1/replicasets", `{metadata: {name: web, namespace: shop, uid: r2}}`)
		p.shared("/api/v1/pods", owned("web-1", "apps/v1", "ReplicaSet", "web", "r2"))
		p.wants(args.severity, "the legacy side (1.10) serves that kind")
	}
}
