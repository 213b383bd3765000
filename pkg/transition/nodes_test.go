package transition

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// modernNodes is the example of a pair with more of spec.kubelet.modern.
func modernNodes(t *testing.T, more string) Setup {
	t.Helper()
	const split = "split-1.15-1.36.yaml"
	text := strings.Replace(example(t, split), "  kubelet: {", "  kubelet: {modern: {"+more+"}, ", 1)
	return Setup{Plan: planOf(t, split, text), Target: render.StaticPod}
}

const nodeOne = "nodes: [{name: node-1.example.com, address: 10.0.0.21, args: [{name: v, value: '2 $x'}]}]"

// TestANodeGoesOverWhenEverythingItNeedsServes: last of all, after its rights, its readiness and its budgets were
// looked at, and verified by its heartbeats and its pods; the kubeconfig is there before.
func TestANodeGoesOverWhenEverythingItNeedsServes(t *testing.T) {
	to := modernNodes(t, nodeOne)
	tr, err := New(Setup{}, to, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	changes := func(s Step) bool { return s.Do != nil && s.Do.Kind == ChangeKubelet }
	at := position(t, &tr, "that changes the kubelet", changes)
	config := position(t, &tr, "kubeconfig", func(s Step) bool {
		return strings.HasSuffix(s.Title, "/kubelet-modern.conf")
	})
	budgets := position(t, &tr, "budgets", func(s Step) bool { return checks(s.Do, Budgets) })
	for i, s := range tr.Steps {
		if s.Do != nil && s.Do.File != nil && s.Host != "node-1.example.com" && i > config {
			t.Errorf("%s comes after the node", s.Title)
		}
	}
	if config >= at || budgets >= at {
		t.Errorf("kubeconfig %d, budgets %d, kubelet %d: want them in this order", config, budgets, at)
	}
	s := tr.Steps[at]
	for kind, list := range map[CheckKind][]Check{NodeReady: s.Do.Before, Program: s.Do.Before, NodeRights: s.Do.Before,
		NodePods: s.Do.After} {
		if !slices.ContainsFunc(list, func(c Check) bool { return c.Kind == kind }) {
			t.Errorf("the step has no check %q: %+v", kind, list)
		}
	}
	node := s.Do.Node
	if before := s.Do.Before[0].Node; before.To != before.From || node.From.Minor != 15 || node.To.Minor != 36 {
		t.Errorf("before, the kubelet is looked for as %s; it goes from %s to %s", before.To, node.From, node.To)
	}
	if s.Undo.Kind != RestoreKubelet || s.Undo.Node.From.Minor != 36 || s.Undo.Node.To.Minor != 15 ||
		s.Undo.Node.Record == s.Do.Node.Record || len(s.Undo.Before) > 0 ||
		!checks(s.Undo, NodeReady) || !checks(s.Undo, NodePods) {
		t.Errorf("the inverse is %+v", s.Undo)
	}
	const want = "[Service]\nExecStart=\nExecStart=/opt/kubernetes/1.36.3/bin/kubelet \\\n" +
		"  --kubeconfig=/etc/kubernetes/kubelet-modern.conf \\\n  \"--v=2 $$x\"\n"
	if text := string(s.Do.File.Data); !strings.HasSuffix(text, want) {
		t.Errorf("the drop-in is\n%s\nwant at its end\n%s", text, want)
	}
	if err := tr.Validate(); err != nil {
		t.Error(err)
	}
}

// TestANodeComesBackBeforeItsRightsGo: its kubelet is restored before any server stops.
func TestANodeComesBackBeforeItsRightsGo(t *testing.T) {
	tr, err := New(modernNodes(t, nodeOne), Setup{}, Facts{})
	if err != nil {
		t.Fatal(err)
	}
	back := position(t, &tr, "that restores the kubelet", func(s Step) bool {
		return s.Do != nil && s.Do.Kind == RestoreKubelet
	})
	stops := position(t, &tr, "that stops", func(s Step) bool { return s.Phase == Stop })
	if back > stops {
		t.Errorf("the kubelet is restored in step %d, and what it needs stops from step %d on", back, stops)
	}
	if s := tr.Steps[back]; s.Undo.Kind != ChangeKubelet || !checks(s.Undo, NodeRights) || !checks(s.Do, NodeReady) {
		t.Errorf("the step is %+v, %+v", s.Do, s.Undo)
	}
}

func TestKubeletsThatAreNotChanged(t *testing.T) {
	over := modernNodes(t, nodeOne)
	for name, c := range map[string]struct {
		from, to Setup
		says     string
	}{
		"kubelets by hand": {modernNodes(t, "version: 1.33.1"), modernNodes(t, ""), "spec.kubelet.modern.nodes"},
		"a host of static pods": {Setup{}, Setup{Plan: withNodeOnHost(t, over.Plan), Target: render.StaticPod},
			"runs the control plane as static pods"},
	} {
		if _, err := New(c.from, c.to, Facts{StoresAgree: true}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: New = %v, want it refused: %q", name, err, c.says)
		}
	}
	if _, err := New(Setup{}, Setup{Plan: withNodeOnHost(t, over.Plan), Target: render.Systemd}, Facts{}); err != nil {
		t.Errorf("a host of units: %v", err)
	}
}

func withNodeOnHost(t *testing.T, p *plan.Plan) *plan.Plan {
	t.Helper()
	h := p.Hosts[0]
	return modernNodes(t, "nodes: [{name: "+h.Name+", address: "+h.Address+"}]").Plan
}

// TestNodesOfAFileAreValidated: a file of steps is another's word; names are parts of paths, a drop-in lies in the
// directory of its unit.
func TestNodesOfAFileAreValidated(t *testing.T) {
	for name, change := range map[string]func(a *Action){
		"another file": func(a *Action) { a.File.Path = "/etc/passwd" },
		"a record":     func(a *Action) { a.Node.Record = "../x" },
		"a name":       func(a *Action) { a.Node.Name = "../x" },
		"a unit":       func(a *Action) { a.Unit = "../x.service" },
		"no node":      func(a *Action) { a.Node = nil },
		"a check":      func(a *Action) { a.After[1].Node = &Node{Name: "n", Record: "/"} },
	} {
		tr, err := New(modernNodes(t, ""), modernNodes(t, nodeOne), Facts{})
		if err != nil {
			t.Fatal(err)
		}
		at := position(t, &tr, "kubelet", func(s Step) bool { return s.Do != nil && s.Do.Kind == ChangeKubelet })
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		change(tr.Steps[at].Do)
		if err := tr.Validate(); err == nil {
			t.Errorf("%s: Validate = nil", name)
		}
	}
}
