package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

type obj = map[string]any

// fake is an API server: what it serves, and objects by the path of their collection. It fails on what a server would
// refuse.
type fake struct {
	t       *testing.T
	version string
	groups  map[string]obj // by path: /api/v1, /apis/apps/v1
	objects map[string][]obj
	fails   map[string]error
	before  func(path string) // a read of one object: the cluster may have changed
	pages   map[string]string
}

var clock = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// kinds that the fakes serve, RESOURCE KIND, cluster-scoped with a star; by group/version.
var (
	core = []string{"namespaces* Namespace", "nodes* Node", "pods Pod", "services Service", "configmaps ConfigMap",
		"endpoints Endpoints", "replicationcontrollers ReplicationController", "componentstatuses* ComponentStatus",
		"bindings Binding"}
	apps = []string{"deployments Deployment", "replicasets ReplicaSet", "statefulsets StatefulSet",
		"daemonsets DaemonSet"}
	modern = map[string][]string{"v1": core, "apps/v1": apps, "batch/v1": {"jobs Job"},
		"policy/v1": {"poddisruptionbudgets PodDisruptionBudget"}, "coordination.k8s.io/v1": {"leases Lease"},
		"example.test/v1": {"widgets Widget"}}
	of1_10 = map[string][]string{"v1": core, "apps/v1": apps, "extensions/v1beta1": apps, "batch/v1": {"jobs Job"},
		"policy/v1beta1": {"poddisruptionbudgets PodDisruptionBudget"}}
	of1_6 = map[string][]string{"v1": core, "apps/v1beta1": {"deployments Deployment", "statefulsets StatefulSet"},
		"extensions/v1beta1": {"deployments Deployment", "replicasets ReplicaSet", "daemonsets DaemonSet"}}
	systems = obj{"metadata": obj{"name": "kube-system", "uid": "uid-of-kube-system"}}
)

func newFake(t *testing.T, version string, serves map[string][]string) *fake {
	f := &fake{t: t, version: version, groups: map[string]obj{},
		objects: map[string][]obj{"/api/v1/namespaces": {systems}}, fails: map[string]error{},
		pages: map[string]string{}}
	for gv, kinds := range serves {
		var list []obj
		for _, text := range kinds {
			resource, kind, _ := strings.Cut(text, " ")
			name, cluster := strings.CutSuffix(resource, "*")
			verbs := []string{"get", "list"}
			if kind == "Binding" {
				verbs = []string{"create"}
			}
			list = append(list, obj{"name": name, "kind": kind, "namespaced": !cluster, "verbs": verbs})
		}
		url := "/apis/" + gv
		if gv == "v1" {
			url = "/api/v1"
		}
		f.groups[url] = obj{"groupVersion": gv, "resources": list}
	}
	return f
}

// put adds an object written as YAML to a collection.
func (f *fake) put(collection, text string) {
	f.t.Helper()
	var o obj
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		f.t.Fatal(err)
	}
	f.objects[collection] = append(f.objects[collection], o)
}

func (f *fake) Identify(_ context.Context, system bool) (discovery.Identity, error) {
	if err := f.fails["/version"]; err != nil {
		return discovery.Identity{}, err
	}
	version, err := kubever.Parse(f.version)
	identity := discovery.Identity{GitVersion: f.version, Version: version, Date: clock}
	if system {
		metadata := f.objects["/api/v1/namespaces"][0]["metadata"].(obj)
		identity.SystemUID = metadata["uid"].(string)
	}
	return identity, err
}

func (f *fake) Discover(context.Context) (*discovery.Result, error) {
	result := &discovery.Result{Failed: map[schema.GroupVersion]error{}, Unready: f.fails["/readyz"]}
	for _, url := range slices.Sorted(maps.Keys(f.groups)) {
		gv, err := schema.ParseGroupVersion(f.groups[url]["groupVersion"].(string))
		if err != nil {
			return nil, err
		}
		if err := f.fails[url]; err != nil {
			result.Failed[gv] = err
			continue
		}
		for _, r := range f.groups[url]["resources"].([]obj) {
			result.Resources = append(result.Resources, discovery.Resource{
				GroupVersion: gv, Name: r["name"].(string), Kind: r["kind"].(string),
				Namespaced: r["namespaced"].(bool), Verbs: r["verbs"].([]string),
			})
		}
	}
	return result, f.fails["/apis"]
}

func (f *fake) Read(_ context.Context, at discovery.Path) ([]byte, error) {
	if err := at.Err(); err != nil {
		return nil, err
	}
	url := at.String()
	if f.before != nil {
		f.before(url)
	}
	if err := f.fails[url]; err != nil {
		return nil, err
	}
	if page, ok := f.pages[url]; ok {
		return []byte(page), nil
	}
	collection, namespace := path.Dir(url), at.Namespace()
	if namespace != "" {
		collection = strings.Replace(collection, "/namespaces/"+namespace, "", 1)
	}
	for _, o := range f.objects[collection] {
		m := o["metadata"].(obj)
		if m["name"] == at.Name() && (m["namespace"] == nil && namespace == "" || m["namespace"] == namespace) {
			return json.Marshal(o)
		}
	}
	return nil, discovery.ErrNotFound
}

func (f *fake) List(_ context.Context, at discovery.Path, _ discovery.ListOptions) iter.Seq2[[]byte, error] {
	url := at.String()
	return func(yield func([]byte, error) bool) {
		gv, resource := path.Dir(url), path.Base(url)
		served, _ := f.groups[gv]["resources"].([]obj)
		if !slices.ContainsFunc(served, func(r obj) bool { return r["name"] == resource }) {
			f.t.Errorf("%s lists %s, which it does not serve", f.version, url)
		}
		for _, o := range f.objects[url] {
			body, err := json.Marshal(o)
			if !yield(body, err) {
				return
			}
		}
		if err := f.fails[url]; err != nil {
			yield(nil, err)
		}
	}
}

// fakePair is a plan and its two servers.
type fakePair struct {
	t              *testing.T
	plan           *plan.Plan
	legacy, modern *fake
	options        Options
}

const specText = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: pair}
spec:
  layout: split
  hosts: [{name: cp-1, address: 192.0.2.1}]
  network: {serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}
  stores:
  - {name: core, endpoints: ["http://192.0.2.1:2379"]}
  - {name: modern, endpoints: ["http://192.0.2.1:2479"]}
  legacy: {version: LEGACY, apiServer: {}, controllerManager: {}}
  modern: {version: 1.36.3, apiServer: {}, controllerManager: {MANAGER}}
  access: [{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods]}]
  controllers: {disabled: DISABLED}
`

// newPair has no controllers of fusionctl; jointPair has.
func newPair(t *testing.T, legacy, manager string) *fakePair {
	return pairWith(t, legacy, manager, false)
}

func jointPair(t *testing.T, legacy string) *fakePair { return pairWith(t, legacy, "", true) }

func pairWith(t *testing.T, legacy, manager string, joint bool) *fakePair {
	t.Helper()
	p := plantest.Of(t, strings.NewReplacer("LEGACY", legacy, "MANAGER", manager, "DISABLED", fmt.Sprint(!joint)).
		Replace(specText))
	serves := of1_10
	if strings.HasPrefix(legacy, "1.6.") {
		serves = of1_6
	}
	made := &fakePair{t: t, plan: p, legacy: newFake(t, "v"+legacy, serves), modern: newFake(t, "v1.36.3", modern),
		options: Options{NoFlags: true}}
	for _, l := range slices.Concat(p.Legacy.Locks, p.Modern.Locks) {
		made.hold(l.Resource, l.Namespace, l.Name, l.Side, string(l.Side)+"-manager", clock)
	}
	return made
}

// shared puts an object where both sides see it.
func (p *fakePair) shared(collection, text string) {
	p.t.Helper()
	p.legacy.put(collection, text)
	p.modern.put(collection, text)
}

// hold makes somebody hold a lock.
func (p *fakePair) hold(resource, namespace, name string, side pair.Side, holder string, at time.Time) {
	record := fmt.Sprintf(`{"holderIdentity":%q,"leaseDurationSeconds":15,"renewTime":%q}`, holder,
		at.Format(time.RFC3339))
	switch resource {
	case "leases":
		server := p.modern
		if side == pair.Legacy {
			server = p.legacy
		}
		server.put("/apis/coordination.k8s.io/v1/leases",
			fmt.Sprintf(`{metadata: {name: %s, namespace: %s, uid: lease-%s}, spec: %s}`, name, namespace, name,
				record))
	default:
		collection := "/api/v1/" + strings.TrimPrefix(resource, "services/")
		p.shared(collection, fmt.Sprintf(`{metadata: {name: %s, namespace: %s, uid: %s-%s, annotations: {%q: %q}}}`,
			name, namespace, path.Base(resource), name, leaderAnnotation, record))
	}
}

func (p *fakePair) check() *Report {
	p.t.Helper()
	report, err := Check(p.t.Context(), p.plan, map[pair.Side]Server{pair.Legacy: p.legacy, pair.Modern: p.modern},
		p.options)
	if err != nil {
		p.t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, f := range report.Findings {
		if keys[f.Key] || !strings.HasPrefix(f.Key, f.Rule+"|"+f.Subject) {
			p.t.Errorf("the key %q is not that of %s alone: %s", f.Key, f.Rule, f.Message)
		}
		keys[f.Key] = true
		at := slices.IndexFunc(Rules(), func(r finding.Rule) bool { return r.ID == f.Rule })
		if at < 0 || Rules()[at].Severity < f.Severity {
			p.t.Errorf("%s at severity %s is not documented so", f.Rule, f.Severity)
		}
		if f.Subject == "" || f.Message == "" || f.Fix == "" {
			p.t.Errorf("a finding lacks subject, message or fix: %+v", f)
		}
	}
	return report
}

// lines are the findings, one a line.
func lines(r *Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %s %s: %s %q\n", f.Rule, f.Severity, f.Subject, f.Message, f.Related)
	}
	for _, text := range r.Incomplete {
		fmt.Fprintf(&b, "incomplete: %s\n", text)
	}
	return b.String()
}

// wants checks that the report has one line, with all the words; none for silence.
func (p *fakePair) wants(words ...string) {
	p.t.Helper()
	text := lines(p.check())
	if len(words) == 0 {
		if text != "" {
			p.t.Errorf("want silence, got\n%s", text)
		}
		return
	}
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return
		}
	}
	p.t.Errorf("no line has all of %q:\n%s", words, text)
}

func TestHealthyPairIsClean(t *testing.T) {
	for _, legacy := range []string{"1.6.13", "1.10.13"} {
		p := newPair(t, legacy, "")
		p.shared("/api/v1/pods", `{metadata: {name: web-1, namespace: shop, uid: p1, labels: {app: web}}}`)
		p.legacy.put("/apis/extensions/v1beta1/deployments",
			`{metadata: {name: web, namespace: shop, uid: d1}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}}}`)
		p.modern.put("/apis/example.test/v1/widgets", `{metadata: {name: one, namespace: shop, uid: w1}}`)
		if report := p.check(); lines(report) != "" || report.Objects < 4 {
			t.Errorf("%s: %d objects and\n%s", legacy, report.Objects, lines(report))
		}
	}
}

func TestWrongServersAreIncomplete(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	p.modern.version = "v1.10.13"
	p.wants("incomplete", "the modern side", `version "v1.10.13"`)
	p = newPair(t, "1.10.13", "")
	p.modern.objects["/api/v1/namespaces"] = []obj{{"metadata": obj{"name": "kube-system", "uid": "another"}}}
	p.wants("incomplete", "has UID another")
	p = newPair(t, "1.10.13", "")
	p.legacy.fails["/version"] = errors.New("connection refused")
	p.wants("incomplete", "the legacy side", "connection refused")
	p = newPair(t, "1.10.13", "")
	p.modern.fails["/apis/example.test/v1"] = errors.New("service unavailable")
	p.wants("incomplete", "example.test/v1", "service unavailable")
	p = newPair(t, "1.10.13", "")
	p.modern.fails["/api/v1/pods"] = errors.New("forbidden")
	p.wants("incomplete", "listing pods on the modern side", "forbidden")
}

func TestCheckEndsWithItsContext(t *testing.T) {
	p := newPair(t, "1.10.13", "")
	ctx, cancel := context.WithCancel(t.Context())
	p.modern.before = func(string) { cancel() }
	if _, err := Check(ctx, p.plan, map[pair.Side]Server{pair.Legacy: p.legacy, pair.Modern: p.modern},
		Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v, want it cancelled", err)
	}
}
