package render

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func gatewayPlan(t *testing.T, more string) *plan.Plan {
	t.Helper()
	return plantest.Of(t, `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: test}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}, {name: cp-2, address: 10.0.0.12}]
  stores: [{name: core, endpoints: ["http://10.0.0.9:2379"]}, {name: modern, endpoints: ["http://10.0.0.9:2479"]}]
  modern: {version: 1.36.3, apiServer: {}}
  controllers: {disabled: true}
  gateway: {hosts: [cp-2]}
  access: [{subjects: [{kind: User, name: alice}], apiGroups: [example.org], resources: ["*"]}]
`+more)
}

func fileNamed(t *testing.T, p *plan.Plan, o Options, name string) string {
	t.Helper()
	files, err := Files(p, o)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == name })
	if i < 0 {
		return ""
	}
	return string(files[i].Data)
}

// Without controllers of both sides, too, the legacy side is told what to allow to the gateway, in the words of its
// authorization, and the runbook has the step.
func TestGatewayStandsAlone(t *testing.T) {
	for mode, want := range map[string]struct{ file, has, says string }{
		"RBAC": {legacyRolesFile, "name: kubefusion:gateway", "legacy apply -f legacy-access.yaml"},
		"ABAC": {legacyPolicyFile, `"user":"fusionctl-gateway","apiGroup":"authentication.k8s.io",` +
			`"resource":"tokenreviews","namespace":"*"}`, "add them to the file of its `--authorization-policy-file`"},
		"AlwaysAllow": {"", "", "The legacy API server allows every request."},
	} {
		p := gatewayPlan(t, "  legacy: {version: 1.15.12, apiServer: {extraArgs: [{name: authorization-mode, value: "+
			mode+"}, {name: authorization-policy-file, value: /etc/kubernetes/abac.jsonl}]}}\n")
		if p.Joint != nil {
			t.Fatal("the plan has controllers of both sides")
		}
		for _, target := range []Target{StaticPod, Systemd} {
			o := Options{Target: target}
			if want.file != "" && !strings.Contains(fileNamed(t, p, o, want.file), want.has) {
				t.Errorf("%s: %s does not have %s:\n%s", mode, want.file, want.has, fileNamed(t, p, o, want.file))
			}
			book := fileNamed(t, p, o, RunbookFile)
			_, step, found := strings.Cut(book, "## 8. Start the gateway\n")
			step, _, _ = strings.Cut(step, "\n## ")
			if !found || !strings.Contains(step, want.says) || !strings.Contains(step, "On cp-2, in") {
				t.Errorf("%s, %s: step 8 of the runbook:\n%s", mode, target, step)
			}
			if !strings.Contains(book, "\nUndo step 8, then 6, then 5") {
				t.Errorf("%s, %s: the way back does not begin with step 8", mode, target)
			}
			for host, has := range map[string]bool{"cp-1": false, "cp-2": true} {
				o.Host = host
				if got := fileNamed(t, p, o, host+p.Gateway.Component.PlanFile) != ""; got != has {
					t.Errorf("%s: %s has a plan of the gateway: %v, want %v", mode, host, got, has)
				}
			}
		}
	}
}
