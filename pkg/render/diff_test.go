package render

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// asRunning is what runs when a component runs as planned.
func asRunning(c *plan.Component) Running {
	r := Running{Name: c.Name, Kind: c.Kind, Place: c.Name + ".yaml:1", Image: c.Image, Env: c.Env}
	for _, a := range c.Args {
		r.Args = append(r.Args, spec.Arg{Name: a.Name, Value: a.Value})
	}
	return r
}

func allRunning(p *plan.Plan) []Running {
	var list []Running
	for i := range p.Components {
		list = append(list, asRunning(&p.Components[i]))
	}
	return list
}

func states(differences []Difference) map[string]State {
	m := map[string]State{}
	for _, d := range differences {
		m[d.Component] = d.State
	}
	return m
}

func TestDiffOfWhatRunsAsPlannedIsEmpty(t *testing.T) {
	p := handmade(36)
	running := allRunning(p)
	slices.Reverse(running[0].Args) // order does not count
	running[1].Args[0].Name = "bind_address"
	for _, d := range Diff(p, "cp-1", running) {
		if d.State != Same || len(d.Changes) != 0 {
			t.Errorf("%s: %s, %v; want no difference", d.Component, d.State, d.Changes)
		}
	}
}

func TestDiffNamesEveryChangeWithItsReason(t *testing.T) {
	p := handmade(36)
	c := &p.Components[1] // legacy 1.6.13
	c.Args = []plan.Arg{
		{Name: "controllers", Value: "*,-garbagecollector", Why: "it would delete pods", Origin: plan.FromBoth},
		{Name: "profiling", Value: "false", Why: "nothing needs it", Origin: plan.FromPlan},
		{Name: "service-account-key-file", Value: "/a.pub", Why: "tokens", Origin: plan.FromPlan},
		{Name: "service-account-key-file", Value: "/b.pub", Why: "tokens", Origin: plan.FromPlan},
	}
	c.Env = []spec.EnvVar{{Name: "SAME", Value: "1"}, {Name: "ADDED", Value: "2"}}
	running := allRunning(p)
	running[1].Image = "registry.example.com/hyperkube:v1.6.4"
	running[1].Env = []spec.EnvVar{{Name: "SAME", Value: "1"}, {Name: "GONE", Value: "3"}}
	running[1].Args = []spec.Arg{{Name: "v", Value: "2"}, {Name: "controllers", Value: "*"},
		{Name: "service-account-key-file", Value: "/a.pub"},
		{Name: "insecure-port", Value: "8080"}, {Name: "endpoint-reconciler-type", Value: "none"}}
	got := Diff(p, "cp-1", running)[1]
	want := Difference{Component: "kube-apiserver", Host: "cp-1", Place: "kube-apiserver.yaml:1", State: Changed,
		Changes: []Change{
			{What: "image", Old: []string{"registry.example.com/hyperkube:v1.6.4"}, New: []string{c.Image},
				Why: "from the spec, or the default of the release"},
			{What: "--v", Old: []string{"2"}, New: []string{}, Why: "not in the spec: add it to extraArgs to keep it"},
			{What: "--controllers", Old: []string{"*"}, New: []string{"*,-garbagecollector"},
				Why: "it would delete pods"},
			{What: "--service-account-key-file", Old: []string{"/a.pub"}, New: []string{"/a.pub", "/b.pub"},
				Why: "tokens"},
			{What: "--insecure-port", Old: []string{"8080"}, New: []string{}, Why: "the default of 1.6.13"},
			{What: "--endpoint-reconciler-type", Old: []string{"none"}, New: []string{},
				Why: "1.6.13 does not have it"},
			{What: "--profiling", Old: []string{}, New: []string{"false"}, Why: "nothing needs it"},
			{What: "$ADDED", Old: []string{}, New: []string{"2"}, Why: "the spec's extraEnv"},
			{What: "$GONE", Old: []string{"3"}, New: []string{}, Why: "not in the spec: add it to extraEnv to keep it"},
		}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDiffFindsTheProcessOfAComponent(t *testing.T) {
	p := handmade(36)
	legacy, modern := asRunning(&p.Components[1]), asRunning(&p.Components[2])
	legacy.Name = "apiserver" // before anybody thought of a second one
	other := legacy
	other.Name = "another-apiserver"
	for name, test := range map[string]struct {
		running []Running
		want    map[string]State
	}{
		"nothing": {nil, map[string]State{"kube-apiserver": New, "kube-apiserver-modern": New}},
		"legacy, other name": {[]Running{legacy},
			map[string]State{"kube-apiserver": Same, "kube-apiserver-modern": New}},
		"modern alone": {[]Running{modern},
			map[string]State{"kube-apiserver": New, "kube-apiserver-modern": Same}},
		"both": {[]Running{modern, legacy},
			map[string]State{"kube-apiserver": Same, "kube-apiserver-modern": Same}},
		"two of other names": {[]Running{legacy, other},
			map[string]State{"kube-apiserver": New, "kube-apiserver-modern": New}},
		"another kind's name": {[]Running{{Name: "kube-apiserver", Kind: kubever.Scheduler}},
			map[string]State{"kube-apiserver": New, "kube-apiserver-modern": New}},
	} {
		got := states(Diff(p, "cp-1", test.running))
		for component, want := range test.want {
			if got[component] != want {
				t.Errorf("%s: %s is %s, want %s", name, component, got[component], want)
			}
		}
	}
	p.Legacy.Existing = true
	if got := states(Diff(p, "cp-1", nil)); got["kube-apiserver"] != Missing || got["kube-apiserver-modern"] != New {
		t.Errorf("got %v, want that what runs already is missing", got)
	}
}
