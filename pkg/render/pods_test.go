package render_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/graph"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestPodsAreInTheRunbookAndInThePicture: who changes pods, where they find the modern server, and how to see it.
func TestPodsAreInTheRunbookAndInThePicture(t *testing.T) {
	for pods, want := range map[string]struct {
		policies bool
		says     []string
	}{
		"{}": {false, []string{"to the controllers of its own host", "get " +
			"mutatingwebhookconfiguration pods.kubefusion.dev", "# 10.97.0.2"}},
		"{unknownFields: ignore}": {
			true, []string{"mutates them by admission policies", "get mutatingadmissionpolicybindings", "# 10.97.0.2"}},
		"{service: {name: modern, clusterIP: 10.96.0.9}}": {false, []string{"default/modern", "# 10.96.0.9"}},
	} {
		for _, target := range render.Targets {
			p := plantest.For(t, podsSpec+"  pods: "+pods+"\n", render.Target(target).Plan())
			files, err := render.Files(p, render.Options{Target: render.Target(target), Spec: "pods.yaml"})
			if err != nil {
				t.Fatal(err)
			}
			found := map[string][]byte{}
			for _, file := range files {
				found[file.Path] = file.Data
			}
			for _, text := range want.says {
				if !bytes.Contains(found["RUNBOOK.md"], []byte(text)) {
					t.Errorf("pods %s, %s: the runbook does not say %q", pods, target, text)
				}
			}
			policies := found["pods-admission.yaml"]
			if (policies != nil) != want.policies ||
				want.policies && !bytes.Contains(policies, []byte("kind: MutatingAdmissionPolicyBinding")) {
				t.Errorf("pods %s, %s: policies %.100s, want some: %v", pods, target, policies, want.policies)
			}
			if picture := graph.Mermaid(graph.New(p)); !strings.Contains(string(picture),
				p.Pods.Service.ClusterIP+":443") {
				t.Errorf("pods %s: the picture has no %s:443", pods, p.Pods.Service.ClusterIP)
			}
		}
	}
}

const podsSpec = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: pods}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}]
  network: {serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"]}
  legacy: {version: 1.15.12, apiServer: {}, controllerManager: {}}
  modern: {version: 1.36.3, apiServer: {}, controllerManager: {}}
  access:
  - {subjects: [{kind: User, name: alice}], apiGroups: [""], resources: [pods]}
`
