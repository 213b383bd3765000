package routes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

func planOf(t *testing.T, legacy, modern string) *plan.Runtime {
	t.Helper()
	f, err := spec.Load("spec.yaml", fmt.Appendf(nil, `apiVersion: kubefusion.dev/v1alpha1
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
`, legacy, modern))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	return p.Runtime()
}

// Half of a collection is never all of it, and nothing is written through a side that may not write it.
func TestNoRowHasHalfOfTheObjects(t *testing.T) {
	for _, versions := range [][2]string{{"1.6", "1.10"}, {"1.6", "1.36"}, {"1.10", "1.20"}, {"1.15", "1.36"},
		{"1.20", "1.25"}, {"1.30", "1.36"}} {
		p := planOf(t, versions[0], versions[1])
		sources := Facts(p)
		table := New(p, sources)
		if len(table.Rows) < 50 {
			t.Errorf("%v: %d rows", versions, len(table.Rows))
		}
		both := 0
		for i := range table.Rows {
			r := &table.Rows[i]
			if table.Row(r.GroupVersionResource()) != r || r.Why == "" {
				t.Errorf("%v: %s: no row of its own, or no reason", versions, r.GroupVersionResource())
			}
			j := slices.IndexFunc(p.Resources, func(s pair.Resource) bool {
				return s.Name == r.Name && slices.Contains(s.Groups, r.Group)
			})
			if j < 0 {
				continue
			}
			stored := &p.Resources[j]
			has := func(side pair.Side) bool {
				return stored.View(side).Store != "" && slices.ContainsFunc(sources.Of(side).Resources,
					func(s discovery.Resource) bool {
						return s.Name == stored.Name && slices.Contains(stored.Groups, s.Group)
					})
			}
			apart := !stored.VisibleToBoth() && stored.Owner == pair.OwnerSplit && has(pair.Legacy) && has(pair.Modern)
			switch r.Way {
			case Both:
				both++
				if !apart {
					t.Errorf("%v: %s is merged; the plan: %+v", versions, r.GroupVersionResource(), stored)
				}
			case Owner, Other:
				if apart {
					t.Errorf("%v: %s is served by %s alone, and both have it", versions, r.GroupVersionResource(),
						r.Read)
				}
				if r.Write != "" && !stored.WrittenBy(r.Write) {
					t.Errorf("%v: %s is written through %s, which may not", versions, r.GroupVersionResource(), r.Write)
				}
			}
			if (r.Way == None) != (len(r.Verbs) == 0) {
				t.Errorf("%v: %s: %s with verbs %q", versions, r.GroupVersionResource(), r.Way, r.Verbs)
			}
		}
		if both == 0 && versions[1] != "1.10" && versions[0] != "1.30" {
			t.Errorf("%v: nothing is merged", versions)
		}
	}
}

// served is what a side serves, beside what it has compiled in.
func served(at Served, more ...discovery.Resource) Served {
	result := *at.Result
	result.Resources = append(slices.Clone(result.Resources), more...)
	return Served{Result: &result}
}

func custom(version string, namespaced bool, verbs ...string) discovery.Resource {
	return discovery.Resource{GroupVersion: schema.GroupVersion{Group: "example.com", Version: version}, Name: "pizzas",
		Kind: "Pizza", Namespaced: namespaced, Verbs: verbs}
}

func TestCustomResourcesAreWhereServersServeThem(t *testing.T) {
	p := planOf(t, "1.15", "1.36")
	facts := Facts(p)
	v1, v2 := custom("v1", true, "get", "list", "delete", "deletecollection"), custom("v2", true, "get")
	extension := map[schema.GroupVersion]bool{v1.GroupVersion: true}
	for name, tc := range map[string]struct {
		legacy, modern Served
		version        string
		way            Way
		read           pair.Side
		verbs          string
		why            string
	}{
		"only the legacy side has them": {served(facts.Legacy, v1), facts.Modern, "v1", Owner, pair.Legacy,
			"get,list,delete,deletecollection", "only the legacy side has it"},
		"only the modern side has them": {facts.Legacy, served(facts.Modern, v1), "v1", Owner, pair.Modern,
			"get,list,delete,deletecollection", "only the modern side has it"},
		"both have them": {served(facts.Legacy, v1), served(facts.Modern, v1), "v1", Both, "",
			"get,list,delete,deletecollection", "both serve this version"},
		"both have them, in different versions": {served(facts.Legacy, v1), served(facts.Modern, v2), "v2", None, "",
			"", "half of them would be missing"},
		"two things of one name": {served(facts.Legacy, v1), served(facts.Modern, custom("v1", false, "get")), "v1",
			None, "", "", "different things"},
		"an extension API server on both sides": {
			Served{Result: served(facts.Legacy, v1).Result, Extensions: extension},
			Served{Result: served(facts.Modern, v1).Result, Extensions: extension},
			"v1", Owner, pair.Modern, "get,list,delete,deletecollection", "an extension API server has it"},
		"an extension API server on one side, custom resources on the other": {
			served(facts.Legacy, v1), Served{Result: served(facts.Modern, v1).Result, Extensions: extension},
			"v1", None, "", "", "an extension API server serves it on the modern side"},
	} {
		table := New(p, Sources{Legacy: tc.legacy, Modern: tc.modern})
		row := table.Row(schema.GroupVersionResource{Group: "example.com", Version: tc.version, Resource: "pizzas"})
		if row == nil {
			t.Errorf("%s: no row", name)
			continue
		}
		slices.Sort(row.Verbs)
		want := strings.Split(tc.verbs, ",")
		slices.Sort(want)
		if row.Way != tc.way || row.Read != tc.read || strings.Join(row.Verbs, ",") != strings.Join(want, ",") ||
			!strings.Contains(row.Why, tc.why) {
			t.Errorf("%s: %s, read %q, verbs %q, %q; want %s, %q, %q, %q", name, row.Way, row.Read, row.Verbs, row.Why,
				tc.way, tc.read, want, tc.why)
		}
	}
}

func TestSidesThatDoNotSayWhatTheyHaveHideNothing(t *testing.T) {
	p := planOf(t, "1.15", "1.36")
	facts := Facts(p)
	silent := served(facts.Legacy)
	silent.Failed = map[schema.GroupVersion]error{
		{Group: "example.com", Version: "v1"}: errors.New("timed out"),
		{Group: "apps", Version: "v1"}:        errors.New("timed out"),
		{Version: "v1"}:                       errors.New("timed out"),
	}
	table := New(p, Sources{Legacy: silent, Modern: served(facts.Modern, custom("v1", true, "get"))})
	for gvr, want := range map[schema.GroupVersionResource]Way{
		{Group: "example.com", Version: "v1", Resource: "pizzas"}: Unknown,
		{Group: "apps", Version: "v1", Resource: "deployments"}:   Unknown,
		{Version: "v1", Resource: "pods"}:                         Owner, // one store: the modern side has all of them
		{Group: "batch", Version: "v1", Resource: "jobs"}:         Both,
	} {
		if row := table.Row(gvr); row == nil || row.Way != want {
			t.Errorf("%s: %+v, want %s", gvr, row, want)
		}
	}
}

func TestStreamsOfOldKubeletsGoThroughTheLegacySide(t *testing.T) {
	for legacy, want := range map[string]pair.Side{"1.6": pair.Legacy, "1.15": pair.Modern} {
		p := planOf(t, legacy, "1.36")
		row := New(p, Facts(p)).Row(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
		redirects := kubever.Behaves(kubever.BehaviourKubeletRedirectsStreams, p.Kubelet.Minor)
		if got := row.Side("create", "exec"); got != want || redirects != (want == pair.Legacy) {
			t.Errorf("kubelet %s: exec goes through the %s side, want %s", p.Kubelet, got, want)
		}
		if row.Side("get", "log") != row.Write || row.Side("list", "") != row.Read ||
			row.Side("create", "") != row.Write {
			t.Errorf("sides of pods: %+v", row)
		}
	}
}

// Custom resources are served in every version that rules convert, whichever of them a side has.
func TestCustomResourcesAreConverted(t *testing.T) {
	p := planOf(t, "1.15", "1.36")
	facts := Facts(p)
	kind := func(v string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: v, Kind: "Pizza"}
	}
	versions := []string{"v1", "v1beta1", "v1alpha1"}
	conversions := Conversions{Equivalents: func(asked schema.GroupVersionKind) (others []schema.GroupVersionKind) {
		for _, v := range versions {
			if kind(v) != asked && asked.GroupKind() == kind(v).GroupKind() {
				others = append(others, kind(v))
			}
		}
		return others
	}, Custom: []Custom{{GroupResource: schema.GroupResource{Group: "example.com", Resource: "pizzas"}, Kind: "Pizza",
		Namespaced: true, Versions: versions}}}
	for _, tc := range []struct {
		name           string
		legacy, modern []discovery.Resource
		version        string
		way            Way
		as             string // side=version, sorted
	}{
		{"one version each: the modern one", []discovery.Resource{custom("v1alpha1", true, "get", "list")},
			[]discovery.Resource{custom("v1", true, "get", "list")}, "v1", Both, "legacy=v1alpha1"},
		{"one version each: the legacy one", []discovery.Resource{custom("v1alpha1", true, "get", "list")},
			[]discovery.Resource{custom("v1", true, "get", "list")}, "v1alpha1", Both, "modern=v1"},
		{"one version each: a third one", []discovery.Resource{custom("v1alpha1", true, "get", "list")},
			[]discovery.Resource{custom("v1", true, "get", "list")}, "v1beta1", Both, "legacy=v1alpha1 modern=v1"},
		{"of one side alone", nil, []discovery.Resource{custom("v1", true, "get", "list")}, "v1alpha1", Converted,
			"modern=v1"},
		{"of neither", nil, nil, "v1", "", ""},
		{"another scope", nil, []discovery.Resource{custom("v1", false, "get", "list")}, "v1alpha1", "", ""},
	} {
		table := New(p, Sources{Legacy: served(facts.Legacy, tc.legacy...), Modern: served(facts.Modern, tc.modern...),
			Conversions: conversions})
		row := table.Row(schema.GroupVersionResource{Group: "example.com", Version: tc.version, Resource: "pizzas"})
		if row == nil || tc.way == "" {
			if row != nil || tc.way != "" {
				t.Errorf("%s: %+v, want the way %q", tc.name, row, tc.way)
			}
			continue
		}
		var as []string
		for _, side := range pair.Sides() {
			if gvr, ok := row.As[side]; ok {
				as = append(as, string(side)+"="+gvr.Version)
			}
		}
		if row.Way != tc.way || strings.Join(as, " ") != tc.as || !slices.Equal(row.Verbs, []string{"get", "list"}) {
			t.Errorf("%s: %s, %q, %v; want %s, %q", tc.name, row.Way, as, row.Verbs, tc.way, tc.as)
		}
	}
	result := served(facts.Modern, custom("v1", true, "get", "list")).Result
	row := Alone("edge", result, conversions).Row(schema.GroupVersionResource{Group: "example.com",
		Version: "v1alpha1", Resource: "pizzas"})
	if row == nil || row.Way != Converted || row.As["edge"].Version != "v1" {
		t.Errorf("of a further cluster: %+v, want it converted to v1", row)
	}
}

// Each version of a side is served for all objects, where the other side's are converted.
func TestVersionsAreConverted(t *testing.T) {
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		legacy string
		gvr    schema.GroupVersionResource
		side   pair.Side // that has another version
		as     string
	}{
		{"1.6", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, pair.Legacy,
			"apps/v1beta1"},
		{"1.6", schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"},
			pair.Modern, "apps/v1"},
		{"1.15", schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"},
			pair.Modern, "apps/v1"},
		{"1.15", schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}, pair.Legacy,
			"batch/v1beta1"},
	} {
		p := planOf(t, tc.legacy, "1.36")
		sources := Facts(p)
		sources.Equivalents = converter.Equivalents
		row := New(p, sources).Row(tc.gvr)
		if row == nil || row.Way != Both || row.As[tc.side].GroupVersion().String() != tc.as || len(row.As) != 1 ||
			row.GroupVersionResource() != tc.gvr || len(row.Verbs) == 0 {
			t.Errorf("%s: %s: %+v, want the %s side's converted to %s", tc.legacy, tc.gvr, row, tc.side, tc.as)
		}
		sources.Legacy.Failed = map[schema.GroupVersion]error{{Group: tc.gvr.Group, Version: "v9"}: errors.New("x")}
		if row := New(p, sources).Row(tc.gvr); row.Way != Unknown {
			t.Errorf("%s: a side is silent, and the row is %+v", tc.gvr, row)
		}
	}
}

// The silence of an extension API server is not its absence: the group stays in discovery, and what it may have is not
// looked for elsewhere.
func TestSilentExtensionServersAreNotAbsent(t *testing.T) {
	p := planOf(t, "1.15", "1.36")
	facts := Facts(p)
	v1 := custom("v1", true, "get", "list")
	extension := map[schema.GroupVersion]bool{v1.GroupVersion: true}
	silence := map[schema.GroupVersion]error{v1.GroupVersion: errors.New("503")}
	speaks, silent := served(facts.Legacy, v1), served(facts.Modern)
	silent.Extensions, silent.Failed = extension, silence
	for name, sources := range map[string]Sources{
		"one has custom resources, the other's server is silent": {Legacy: speaks, Modern: silent},
		"one server answers, the other is silent": {Legacy: Served{Result: speaks.Result, Extensions: extension},
			Modern: silent},
		"no side lists it": {Legacy: served(facts.Legacy), Modern: silent},
	} {
		table := New(p, sources)
		row := table.Row(v1.GroupVersionResource())
		side, err := table.Silent(v1.GroupVersion)
		if row != nil && row.Way != Unknown || side != pair.Modern || err == nil {
			t.Errorf("%s: %+v, %s %v, want it unknown", name, row, side, err)
		}
		documents := table.Documents(nil)
		if group := documents.Group("example.com"); group == nil {
			t.Errorf("%s: the group is not shown", name)
		}
		if list, stale := documents.Version(v1.GroupVersion); list == nil || !stale {
			t.Errorf("%s: %v, stale %v, want it stale", name, list, stale)
		}
	}
}

// A version that no side serves is converted on every side that has objects, and stands behind the others.
func TestVersionsThatNoSideServes(t *testing.T) {
	p := planOf(t, "1.30", "1.36")
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	sources := Facts(p)
	beta := schema.GroupVersionResource{Group: "apps", Version: "v1beta2", Resource: "deployments"}
	if New(p, sources).Row(beta) != nil {
		t.Error("without conversion a version is served that no side has")
	}
	sources.Equivalents = converter.Equivalents
	table := New(p, sources)
	for asked, as := range map[schema.GroupVersionResource]string{
		{Group: "apps", Version: "v1beta1", Resource: "deployments"}:                     "apps/v1",
		{Group: "apps", Version: "v1beta2", Resource: "statefulsets"}:                    "apps/v1",
		{Group: "extensions", Version: "v1beta1", Resource: "daemonsets"}:                "apps/v1",
		{Group: "extensions", Version: "v1beta1", Resource: "ingresses"}:                 "networking.k8s.io/v1",
		{Group: "autoscaling", Version: "v2beta2", Resource: "horizontalpodautoscalers"}: "autoscaling/v2",
		{Group: "batch", Version: "v1beta1", Resource: "cronjobs"}:                       "batch/v1",
		{Group: "policy", Version: "v1beta1", Resource: "poddisruptionbudgets"}:          "policy/v1",
	} {
		row := table.Row(asked)
		if row == nil {
			t.Errorf("%s has no row", asked)
			continue
		}
		for _, side := range row.Sides() {
			if got := row.As[side].GroupVersion().String(); got != as {
				t.Errorf("%s is %s on the %s side, want %s", asked, got, side, as)
			}
		}
		if len(row.Sides()) == 0 || !slices.Contains(row.Verbs, "update") || row.Way != Both && row.Way != Converted ||
			len(row.ShortNames)+len(row.Categories) > 0 {
			t.Errorf("%s: %+v", asked, row)
		}
	}
	documents := table.Documents(nil)
	for _, group := range documents.Groups().Groups {
		if group.Name == "apps" && group.PreferredVersion.Version != "v1" {
			t.Errorf("apps: %s is preferred", group.PreferredVersion.Version)
		}
	}
	order := documents.Groups().Groups
	if last := order[len(order)-1].Name; last != "extensions" {
		t.Errorf("the last group is %s: a version that no side serves stands before one that is served", last)
	}
	// While a side does not say what it has, nothing is made of what it may have.
	sources.Legacy.Failed = map[schema.GroupVersion]error{{Group: "apps", Version: "v1"}: errors.New("starting")}
	if row := New(p, sources).Row(schema.GroupVersionResource{Group: "extensions", Version: "v1beta1",
		Resource: "deployments"}); row != nil {
		t.Errorf("a row of half a discovery: %+v", row)
	}
}
