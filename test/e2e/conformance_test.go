//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

var (
	conformanceFile = flag.String("conformance", "", "run Kubernetes' conformance tests of the API's machinery, "+
		"and write what passed to this page")
	conformanceFocus = flag.String("conformance-focus", "", "run those alone whose names match; nothing is written")
)

// conformanceFocused are the specs of requests: those of conformance, and others of the same ideas. The program has
// specs of what they import, too.
const conformanceFocused = `\[sig-api-machinery\] (.*\[Conformance\]|ServerSideApply|OpenAPIV3|Generated clientset|` +
	`Servers with support for Table|client-go should negotiate|Server request timeout|` +
	`CustomResourceValidationRules|API Streaming)`

// conformanceSkipped are specs that run pods, which want nodes and images, or that are about more than requests.
const conformanceSkipped = `\[Slow\]|Sample API Server|Aggregated APIServer|sample-apiserver|AdmissionWebhook|CustomResourceConversionWebhook|` +
	`CustomResourceFieldSelectors|ResourceQuota|Garbage collector|OrderedNamespaceDeletion|all pods are removed|` +
	`capture the life|MutatingAdmissionPolicy|against a Deployment|refer variables`

// specReport is what of a report of Ginkgo is read.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	Failure                 struct{ Message string }
}

// conforms runs the specs with a kubeconfig and returns their reports by name.
func (g *gatewayed) conforms(name, kubeconfig string) map[string]specReport {
	g.t.Helper()
	program, err := rig.Program("conformance")
	must(g.t, err)
	kubectl, err := rig.Program("kubectl-" + g.client.String())
	must(g.t, err)
	report := filepath.Join(g.Dir(), name+".json")
	focus := conformanceFocused
	if *conformanceFocus != "" {
		focus = *conformanceFocus
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 25*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-kubeconfig", kubeconfig, "-provider", "skeleton",
		"-kubectl-path", kubectl, "-e2e-verify-service-account=false", "-disable-log-dump", "-ginkgo.focus", focus,
		"-ginkgo.skip", conformanceSkipped, "-ginkgo.timeout", "25m", "-ginkgo.no-color", "-ginkgo.json-report", report,
		"-test.timeout", "0")
	cmd.Dir = g.Dir()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run() // specs that fail are in the report
	text, readErr := os.ReadFile(report)
	if readErr != nil {
		g.t.Fatalf("%s: %v, %v\n%s", name, err, readErr, &out)
	}
	if os.Getenv("FUSIONCTL_KEEP") != "" {
		must(g.t, os.WriteFile(filepath.Join(os.Getenv("FUSIONCTL_KEEP"), name+".log"), out.Bytes(), 0o666))
	}
	var reports []struct{ SpecReports []specReport }
	must(g.t, json.Unmarshal(text, &reports))
	all := map[string]specReport{}
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType == "It" && s.State != "skipped" {
				of := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
				all[strings.TrimSpace(conformanceTags.ReplaceAllString(of, " "))] = s
			}
		}
	}
	return all
}

var conformanceTags = regexp.MustCompile(` ?\[(sig-api-machinery|Serial|Privileged:ClusterAdmin)\] ?`)

// TestConformance: Kubernetes' own tests of the machinery of the API pass through the gateway where they
// pass at the modern API server itself.
func TestConformance(t *testing.T) {
	if *conformanceFile == "" && *conformanceFocus == "" {
		t.Skip("make conformance runs it")
	}
	g := startGateway(t, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3"})
	of := map[string]map[string]specReport{}
	for name, url := range map[string]string{"modern": g.Modern.URL, "gateway": g.url} {
		kubeconfig, err := g.PKI.Kubeconfig("conformance-"+name, url, "admin", "system:masters")
		must(t, err)
		of[name] = g.conforms(name, kubeconfig)
	}
	var table strings.Builder
	for _, spec := range slices.Sorted(maps.Keys(of["modern"])) {
		direct, through := of["modern"][spec], of["gateway"][spec]
		fmt.Fprintf(&table, "| %s | %s | %s |\n", strings.ReplaceAll(spec, "|", `\|`), direct.State, through.State)
		if direct.State == "passed" && through.State != "passed" {
			t.Errorf("%s: %s through the gateway: %.600s", spec, through.State, through.Failure.Message)
		} else if direct.State != "passed" {
			t.Logf("%s: %s at the modern side: %.300s; gateway: %s %.300s", spec, direct.State, direct.Failure.Message,
				through.State, through.Failure.Message)
		}
	}
	if table.Len() == 0 {
		t.Fatal("no spec has run")
	}
	if *conformanceFocus == "" {
		page := fmt.Sprintf(conformancePage, len(of["modern"]), time.Now().UTC().Format(time.DateOnly)) + table.String()
		must(t, os.WriteFile(*conformanceFile, []byte(page), 0o666))
	}
}

const conformancePage = `# Kubernetes' tests of the API's machinery

%d of Kubernetes' own end-to-end tests (v1.36.3, test/e2e/apimachinery), with a client at the modern API server of a
pair of 1.15.12 and 1.36.3, and at the [gateway](gateway.md) over both: those of conformance, which are marked, and
others of the same ideas. Those that run pods are left out: they want nodes and images. ` + "`make conformance`" + ` wrote
this page on %s.

Resource versions of objects of both sides are of two numbers, and compare only as equal or not: a test that compares
them as numbers, as client-go can since 1.35, fails at the gateway.

| test | modern API server | gateway |
|---|---|---|
`
