package restart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func budgetOf(app string, change func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	change(b)
	return b
}

func maxUnavailable(text string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { n := intstr.Parse(text); b.Spec.MaxUnavailable = &n }
}

func minAvailable(text string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { n := intstr.Parse(text); b.Spec.MinAvailable = &n }
}

// waves puts pods named node/app[/notready|/kept] in order, as text: "n1 n2 | n3!".
func waves(t *testing.T, budgets []*policyv1.PodDisruptionBudget, pods ...string) string {
	t.Helper()
	o, err := NewOrder(budgets)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range pods {
		words := strings.Split(text, "/")
		pod := running(func(p *v1.Pod) {
			p.Name, p.Spec.NodeName, p.Labels = fmt.Sprint("p", i), words[0], map[string]string{"app": words[1]}
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		})
		verdict := Restart
		switch {
		case len(words) > 2 && words[2] == "notready":
			pod.Status.Conditions[0].Status = v1.ConditionFalse
		case len(words) > 2 && words[2] == "kept":
			verdict = Keep
		case len(words) > 2:
			verdict = Unknown
		}
		o.Add(pod, []Outcome{{Verdict: Keep}, {Verdict: verdict}})
	}
	var parts []string
	for _, w := range o.Waves() {
		part := strings.Join(w.Nodes, " ")
		if len(w.Breaks) > 0 {
			part += "!"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " | ")
}

func TestWavesKeepBudgetsWhole(t *testing.T) {
	one := []*policyv1.PodDisruptionBudget{budgetOf("web", maxUnavailable("1"))}
	for _, c := range []struct {
		name    string
		budgets []*policyv1.PodDisruptionBudget
		pods    string
		want    string
	}{
		{"one at a time", one, "n1/web n2/web n3/web n4/db", "n1 n4 | n2 | n3"},
		{"what is kept costs nothing", one, "n1/web n2/web/kept n3/web", "n1 n2 | n3"},
		{"what is unknown costs", one, "n1/web/unknown n2/web n3/web", "n1 | n2 | n3"},
		{"a node that breaks it alone", one, "n1/web n1/web n2/web n3/web", "n2 | n3 | n1!"},
		{"a pod that is not ready uses up the budget", one, "n1/web n2/web n3/web/notready", "n1! | n2! | n3!"},
		{"a part", []*policyv1.PodDisruptionBudget{budgetOf("web", maxUnavailable("50%"))},
			"n1/web n2/web n3/web n4/web", "n1 n2 | n3 n4"},
		{"a part, rounded up", []*policyv1.PodDisruptionBudget{budgetOf("web", maxUnavailable("50%"))},
			"n1/web n2/web n3/web", "n1 n2 | n3"},
		{"at least", []*policyv1.PodDisruptionBudget{budgetOf("web", minAvailable("2"))}, "n1/web n2/web n3/web",
			"n1 | n2 | n3"},
		{"at least all", []*policyv1.PodDisruptionBudget{budgetOf("web", minAvailable("100%"))}, "n1/web n2/db",
			"n2 | n1!"},
		{"two budgets", []*policyv1.PodDisruptionBudget{budgetOf("web", maxUnavailable("1")),
			budgetOf("db", maxUnavailable("1"))},
			"n1/web n1/db n2/web n3/db n4/web", "n1 | n2 n3 | n4"},
		{"what the disruption controller says counts",
			[]*policyv1.PodDisruptionBudget{budgetOf("web", func(b *policyv1.PodDisruptionBudget) {
				maxUnavailable("1")(b)
				b.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, DisruptionsAllowed: 2}
			})}, "n1/web n2/web n3/web", "n1 n2 | n3"},
		{"of another namespace", []*policyv1.PodDisruptionBudget{budgetOf("web", func(b *policyv1.PodDisruptionBudget) {
			maxUnavailable("0")(b)
			b.Namespace = "other"
		})}, "n1/web", "n1"},
		{"an empty selector of policy/v1",
			[]*policyv1.PodDisruptionBudget{budgetOf("web", func(b *policyv1.PodDisruptionBudget) {
				maxUnavailable("1")(b)
				b.Spec.Selector = &metav1.LabelSelector{}
			})}, "n1/web n2/db", "n1 | n2"},
		{"an empty selector of v1beta1",
			[]*policyv1.PodDisruptionBudget{budgetOf("web", func(b *policyv1.PodDisruptionBudget) {
				maxUnavailable("1")(b)
				b.APIVersion = "policy/v1beta1"
				b.Spec.Selector = &metav1.LabelSelector{}
			})}, "n1/web n2/db", "n1 n2"},
		{"no budgets", nil, "n2/web n1/web", "n1 n2"},
	} {
		if got := waves(t, c.budgets, strings.Fields(c.pods)...); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestNewOrderRefusesWhatIsNoNumber(t *testing.T) {
	for want, change := range map[string]func(*policyv1.PodDisruptionBudget){
		"shop/web: spec.maxUnavailable": maxUnavailable("some"),
		"shop/web: spec.minAvailable":   minAvailable("most"),
		"shop/web: spec.selector": func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
		},
	} {
		if _, err := NewOrder([]*policyv1.PodDisruptionBudget{budgetOf("web", change)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("NewOrder: %v, want an error with %q", err, want)
		}
	}
}

func TestTallyAddsUpByGroup(t *testing.T) {
	var tally Tally
	tally.Add([]Outcome{
		{Namespace: "b", Node: "n2", Owner: "Deployment/web", Verdict: Restart, Restarts: 2},
		{Namespace: "b", Node: "n2", Owner: "Deployment/web", Verdict: Keep},
	})
	tally.Add([]Outcome{{Namespace: "a", Node: "n1", Verdict: Unknown}})
	type groups = []Group
	for name, diff := range map[string]string{
		"all":        cmp.Diff(Count{1, 1, 1}, tally.All),
		"nodes":      cmp.Diff(groups{{"n1", Count{Unknown: 1}}, {"n2", Count{Restart: 1, Keep: 1}}}, tally.Nodes()),
		"namespaces": cmp.Diff(groups{{"a", Count{Unknown: 1}}, {"b", Count{Restart: 1, Keep: 1}}}, tally.Namespaces()),
		"owners": cmp.Diff(groups{{"", Count{Unknown: 1}}, {"b/Deployment/web", Count{Restart: 1, Keep: 1}}},
			tally.Owners()),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if tally.Pods != 2 || tally.Restarts != 2 {
		t.Errorf("%d pods, %d restarts, want 2 and 2", tally.Pods, tally.Restarts)
	}
}
