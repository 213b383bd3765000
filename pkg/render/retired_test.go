package render_test

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// TestARetiredPlanIsRendered: as the modern side alone, and without findings that are about two sides.
func TestARetiredPlanIsRendered(t *testing.T) {
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const group = ".rbac.authorization.k8s.io"
	spec := strings.NewReplacer("\nspec:\n", "\nspec:\n  handedOver: [clusterroles"+group+", roles"+group+
		", clusterrolebindings"+group+", rolebindings"+group+"]\n", "\n  legacy:\n", "\n  legacy:\n    retired: true\n",
		"\n  modern:\n", "\n  modern:\n    scheduler: {}\n", "{version: 1.15.12}", "{version: 1.15.12, modern: {}}").
		Replace(string(text))
	p := plantest.Of(t, spec)
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		files, err := render.Files(p, render.Options{Target: target})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range files {
			for _, word := range []string{"policy.jsonl", "kube-scheduler-modern", "RUNBOOK.md", "legacy-access",
				"fusionctl-controllers", "kube-scheduler.", "kube-apiserver."} {
				found[word] = found[word] || strings.Contains(f.Path, word)
			}
			if f.Path == render.RunbookFile && !strings.Contains(string(f.Data), "fusionctl transition plan") {
				t.Errorf("the runbook is %s", f.Data)
			}
		}
		for word, want := range map[string]bool{"policy.jsonl": false, "kube-scheduler-modern": true,
			"RUNBOOK.md":    true,
			"legacy-access": false, "fusionctl-controllers": false, "kube-scheduler.": false,
			"kube-apiserver.": false} {
			if found[word] != want {
				t.Errorf("%s: a file with %s: %t, want %t", target, word, found[word], want)
			}
		}
	}
	withGateway := plantest.Of(t, strings.Replace(spec, "\nspec:\n", "\nspec:\n  gateway: {}\n", 1))
	for _, f := range append(rules.Check(p), rules.Check(withGateway)...) {
		t.Errorf("%s %s: %s", f.Rule, f.Subject, f.Message)
	}
}
