package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// several are the rules that more than one engine reports: one danger, seen in different places. Every other rule is
// one engine's.
var several = map[string]string{
	"FUS001": "plans stores", "FUS002": "plans stores", "FUS003": "plans stores", "FUS004": "plans stores",
	"FUS010": "plans stores", "FUS030": "plans stores", "FUS031": "plans stores", "FUS040": "plans stores",
	"FUS050": "plans stores", "FUS051": "plans stores", "FUS052": "plans stores", "FUS053": "plans stores",
	"FUS060": "plans stores servers", "FUS061": "plans stores servers", "FUS062": "plans stores servers",
	"FUS065": "plans stores servers", "FUS070": "plans stores hosts", "FUS072": "plans stores",
	"FUS088": "plans stores",
	"FUS090": "plans stores", "FUS100": "plans stores", "FUS130": "plans stores", "FUS135": "plans servers",
	"FUS152": "plans policies", "FUS153": "plans policies", "FUS166": "plans hosts", "FUS251": "plans servers",
	"FUS259": "plans hosts",
}

func TestEveryRuleIsOneEnginesOrOpenlySeverals(t *testing.T) {
	engines := map[string]string{}
	for _, r := range Rules() {
		if slices.Contains(strings.Fields(engines[r.ID]), string(r.Engine)) {
			t.Errorf("%s stands twice among the rules of %s", r.ID, r.Engine)
		}
		engines[r.ID] = strings.TrimSpace(engines[r.ID] + " " + string(r.Engine))
		if !slices.Contains(finding.Engines(), r.Engine) || r.Engine.Verbs() == "" {
			t.Errorf("%s is reported by no engine", r.ID)
		}
		if !regexp.MustCompile(`^FUS\d{3}$`).MatchString(r.ID) || r.Title == "" || r.Why == "" || r.Severity == 0 {
			t.Errorf("%s lacks an ID, a title, a reason or a severity: %+v", r.ID, r)
		}
		if (r.Bad == "") != (r.Good == "") || r.Bad != "" && r.Bad == r.Good {
			t.Errorf("%s: want two different examples, or none", r.ID)
		}
	}
	for id := range engines {
		if !strings.Contains(engines[id], " ") {
			delete(engines, id)
		}
	}
	if diff := cmp.Diff(several, engines); diff != "" {
		t.Errorf("rules of several engines (-want +got):\n%s", diff)
	}
}

// TestEveryRuleThatIsNamedExists: in code, in help, in the documentation and in the examples.
func TestEveryRuleThatIsNamedExists(t *testing.T) {
	ids := IDs()
	named := map[string]bool{}
	for _, root := range []string{"../../cmd", "../../internal", "../../pkg", "../../templates", "../../docs",
		"../../examples", "../../README.md"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "testdata") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, id := range regexp.MustCompile(`\bFUS\d{3}\b`).FindAllString(string(text), -1) {
				named[id] = true
				if !slices.Contains(ids, id) {
					t.Errorf("%s names %s, which no engine reports", path, id)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(named) < len(ids) {
		t.Errorf("%d of %d rules are named anywhere", len(named), len(ids))
	}
}

func TestByIDTakesShortForms(t *testing.T) {
	want := ByID("FUS060")
	if len(want) == 0 {
		t.Fatal("there is no FUS060")
	}
	for _, id := range []string{"fus060", "60", "060", "FUS60"} {
		if diff := cmp.Diff(want, ByID(id)); diff != "" {
			t.Errorf("ByID(%q):\n%s", id, diff)
		}
	}
	for _, id := range []string{"", "FUS", "FUS06O", "1060", "-60"} {
		if got := ByID(id); len(got) > 0 {
			t.Errorf("ByID(%q) = %s", id, got[0].ID)
		}
	}
}

func of(found []finding.Finding, rule string) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return f.Rule != rule })
}

func example(t testing.TB, id string) finding.Rule {
	t.Helper()
	r, ok := Rule(finding.Plans, id)
	if !ok {
		t.Fatalf("there is no rule %s about plans", id)
	}
	return r
}

func TestAcceptSilencesOneSubject(t *testing.T) {
	bad := strings.Replace(example(t, "FUS152").Bad, "resources: [pods]", "resources: [pods, services]", 1)
	report := Check(plantest.Of(t, bad+`  accept: [{rule: FUS152, subject: pods, reason: "exec is wanted"}]`+"\n"))
	if len(report.Accepted) != 1 || report.Accepted[0].Subject != "pods" ||
		report.Accepted[0].Reason != "exec is wanted" {
		t.Errorf("accepted = %+v, want the one about pods", report.Accepted)
	}
	if left := of(report.Findings, "FUS152"); len(left) != 1 || left[0].Subject != "services" {
		t.Errorf("findings left = %+v, want the one about services", left)
	}
}

// TestUnusedEntriesOfAccept: what only stores, running servers and policy files show, no plan can tell to be unused.
func TestUnusedEntriesOfAccept(t *testing.T) {
	r := example(t, rules.UnusedAccept)
	if found := of(Check(plantest.Of(t, r.Bad)).Findings, r.ID); len(found) != 1 || found[0].Severity != r.Severity ||
		found[0].Fix == "" {
		t.Errorf("the bad example of %s: %+v", r.ID, found)
	}
	for rule, severity := range map[string]finding.Severity{
		"FUS073": finding.Warning, // plans alone show it
		"FUS999": finding.Warning, // no engine reports it
		"FUS060": finding.Info,    // stores show it too
		"FUS230": 0, "FUS240": 0, "FUS210": 0, "FUS304": 0,
	} {
		found := of(Check(plantest.Of(t, r.Good+"  accept: [{rule: "+rule+", reason: known}]\n")).Findings, r.ID)
		if got := finding.Worst(found); got != severity {
			t.Errorf("accepting %s: %+v, want severity %v", rule, found, severity)
		}
	}
}

// TestManyAcceptancesAreJudgedAtOnce: a spec may have thousands of them, and its author is not the only one whose specs
// are judged. For each of them every rule was made anew, a MiB of text.
func TestManyAcceptancesAreJudgedAtOnce(t *testing.T) {
	p := plantest.Example(t, "split-1.15-1.36.yaml")
	for i := range 2000 {
		p.Accept = append(p.Accept, finding.Acceptance{Rule: "FUS152", Subject: strconv.Itoa(i), Reason: "a test"})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report := Check(p)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 500 {
		t.Errorf("judging %d acceptances allocates %d MiB", len(p.Accept), took)
	}
	if len(report.Findings) < 2000 {
		t.Errorf("%d findings, want one about each", len(report.Findings))
	}
}
