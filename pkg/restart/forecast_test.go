package restart

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func forecastPod(name string, defaulted bool) *v1.Pod {
	container := v1.Container{Name: "main", Image: "example.test/web:1"}
	if defaulted {
		container.TerminationMessagePath, container.TerminationMessagePolicy = "/dev/termination-log", "File"
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       v1.PodSpec{NodeName: "node-" + name, Containers: []v1.Container{container}}}
}

// The sums of a forecast are those of its outcomes, and the notes name what these rest on.
func TestForecast(t *testing.T) {
	parse := func(text string) kubever.Version {
		v, err := kubever.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	route, err := NewRoute(parse("1.15"), parse("1.24"), parse("1.20"))
	if err != nil {
		t.Fatal(err)
	}
	f := NewForecast(route, nil, true)
	least := intstr.FromInt32(1)
	f.AddBudget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	var count Count
	for _, pod := range []*v1.Pod{forecastPod("a", true), forecastPod("b", false)} {
		outcomes, err := f.Add(pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			count.Add(o.Verdict)
		}
	}
	got := f.Totals()
	if got.Summary != count || got.Pods != 2 || len(got.Nodes) != 2 || len(got.Order) == 0 || len(got.Paths) == 0 {
		t.Errorf("Totals() = %+v; want 2 pods on 2 nodes with %+v, an order and paths", got, count)
	}
	for _, want := range []string{"no recorded hashes were given", "does not name a runtime: 2",
		"lack the defaults of an API server: 1"} {
		if !slices.ContainsFunc(got.Notes, func(note string) bool { return strings.Contains(note, want) }) {
			t.Errorf("the notes %q lack %q", got.Notes, want)
		}
	}
	if pods, restarts := f.Progress(); pods != 2 || restarts != int64(count.Restart) {
		t.Errorf("Progress() = %d, %d; want 2, %d", pods, restarts, count.Restart)
	}
	head, err := json.Marshal(route.Head())
	want := `{"schema":"fusionctl/restarts-plan/v1","from":"1.15","via":["1.20"],"to":"1.24"}`
	if err != nil || string(head) != want {
		t.Errorf("Head() = %s, %v; want %s", head, err, want)
	}
	broken := NewForecast(route, nil, false)
	broken.AddBudget(&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}}}})
	if _, err := broken.Add(forecastPod("a", true)); err == nil {
		t.Error("a budget with a selector that is none is taken")
	}
}
