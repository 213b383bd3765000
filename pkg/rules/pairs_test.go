package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

func release(t testing.TB, m kubever.Minor) kubever.Version {
	t.Helper()
	v, err := kubever.Parse(kubever.Release(m))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The split layout is possible for every pair whose modern version can be told to leave the endpoints of the service
// kubernetes alone; the shared one for pairs that serve the same, and for 1.6, which keeps no APIServices.
func TestSkeletonsOfSafePairsHaveNoErrors(t *testing.T) {
	for _, legacy := range kubever.Minors() {
		for _, modern := range kubever.Minors() {
			if modern < 9 || modern < legacy {
				continue
			}
			safe := map[spec.Layout]bool{spec.LayoutSplit: true, spec.LayoutShared: legacy == modern || legacy == 6}
			for layout, safe := range safe {
				text, err := spec.Skeleton(layout, release(t, legacy), release(t, modern))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range Check(plantest.Of(t, string(text))) {
					if f.Severity == finding.Error && safe {
						t.Errorf("%s %s %s: %s %s: %s", layout, legacy, modern, f.Rule, f.Subject, f.Message)
					}
				}
			}
		}
	}
}

// Whatever pair and argument there is, a finding names its subject and the way out.
func TestFindingsOfEveryPairAreWhole(t *testing.T) {
	variants := []example{
		{access: `[{subjects: [{kind: Group, name: "system:authenticated"}], apiGroups: ["*"], resources: ["*"]}]`,
			legacyManager: "-", modernManager: args("controllers=*")},
		{layout: "shared",
			access:       `[{subjects: [{kind: Group, name: "system:authenticated"}], apiGroups: ["*"], resources: ["*"]}]`,
			modernServer: args("authorization-mode=AlwaysAllow"), modernManager: "-"},
	}
	for _, legacy := range kubever.Minors() {
		for _, modern := range kubever.Minors() {
			if (legacy+modern)%3 != 0 || modern < legacy {
				continue
			}
			for _, e := range variants {
				e.legacy, e.modern = release(t, legacy).String(), release(t, modern).String()
				f, err := spec.Load("example.yaml", []byte(e.String()))
				if err != nil {
					t.Fatal(err)
				}
				p, err := plan.New(f, plan.OnHosts)
				if err != nil {
					continue // what cannot be planned is said by the plan
				}
				keys := map[string]bool{}
				for _, f := range Check(p) {
					if keys[f.Key] || !strings.HasPrefix(f.Key, f.Rule+"|"+f.Subject) {
						t.Errorf("%s %s: the key %q is not that of one finding: %s", legacy, modern, f.Key, f.Message)
					}
					keys[f.Key] = true
					if f.Subject == "" || f.Message == "" || f.Fix == "" || strings.Contains(f.Message, "%!") {
						t.Errorf("%s %s: %+v", legacy, modern, f)
					}
				}
			}
		}
	}
}

func TestOnlyTheRefusedExampleHasErrors(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := Check(plantest.Of(t, string(text)))
		refused := strings.HasSuffix(file, "-refused.yaml")
		if got := finding.Worst(found) == finding.Error; got != refused {
			t.Errorf("%s: errors = %v, want %v: %s", file, got, refused, errorsOf(found))
		}
	}
}

func errorsOf(found []finding.Finding) string {
	var lines []string
	for _, f := range found {
		if f.Severity == finding.Error {
			lines = append(lines, fmt.Sprintf("%s %s: %s", f.Rule, f.Subject, f.Message))
		}
	}
	return strings.Join(lines, "\n")
}
