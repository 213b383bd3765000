package policy

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

func validate(t *testing.T, text string, options Options) Report {
	t.Helper()
	report, err := Validate("p.jsonl", strings.NewReader(text), options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestChecksTellBadFromGood runs the examples of every check, so that its documentation cannot be wrong.
func TestChecksTellBadFromGood(t *testing.T) {
	last := ""
	for _, c := range Checks() {
		t.Run(c.ID, func(t *testing.T) {
			if c.ID <= last || c.Title == "" || c.Why == "" || c.Fix == "" || c.Evidence.Read == "" ||
				c.Severity == 0 {
				t.Errorf("check %s: want IDs to ascend and every field filled in", c.ID)
			}
			last = c.ID
			options := Options{}
			if c.ID == "FUS212" {
				options.Forbidden = []Forbidden{
					{APIGroup: "apps", Resource: "deployments", Why: "the legacy side owns it"}}
			}
			report := validate(t, c.Bad, options)
			i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.Rule == c.ID })
			if i < 0 {
				t.Fatalf("the bad example of %s has only %+v", c.ID, report.Findings)
			}
			if f := report.Findings[i]; c.ID != "FUS215" && (f.Severity != c.Severity || f.Line == 0 || f.Column == 0) {
				t.Errorf("finding of the bad example = %+v, want severity %v and a place", f, c.Severity)
			}
			for _, f := range report.Findings {
				if f.Fix == "" {
					t.Errorf("%s: %s names no fix", f.Rule, f.Message)
				}
			}
			if good := validate(t, c.Good, options); len(good.Findings) > 0 {
				t.Errorf("the good example of %s has %+v", c.ID, good.Findings)
			}
		})
	}
}

// TestValidateGolden shows every finding with its place and fix, and the corrected file.
func TestValidateGolden(t *testing.T) {
	golden.Cases(t, "testdata/validate/*.txtar", func(t *testing.T, c *golden.Case) {
		report, err := Validate("p.jsonl", bytes.NewReader(c.Input("input")), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, f := range report.Findings {
			fmt.Fprintf(&out, "%s:%d:%d: %v %s %s: %s\n", f.File, f.Line, f.Column, f.Severity, f.Rule, f.Subject,
				f.Message)
			for line := range strings.Lines(f.Fix) {
				fmt.Fprintf(&out, "\tfix: %s\n", strings.TrimSuffix(line, "\n"))
			}
		}
		c.Want("findings", []byte(out.String()))
		c.Want("fixed", report.Fixed)
		if _, err := Parse("fixed", bytes.NewReader(report.Fixed)); err != nil &&
			!bytes.Contains(c.Input("input"), []byte("cannot be mended")) {
			t.Errorf("the corrected file: %v", err)
		}
	})
}

// TestFixedFilesStayFixed corrects damaged lines one by one: the result is read, and there is nothing left to correct
// in it.
func TestFixedFilesStayFixed(t *testing.T) {
	cases, err := os.ReadDir("testdata/validate")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range cases {
		data, err := os.ReadFile("testdata/validate/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			report := validate(t, string(line), Options{})
			if len(report.Rules) == 0 {
				continue // a line that the server refuses, or none
			}
			if _, err := Parse("fixed", bytes.NewReader(report.Fixed)); err != nil {
				t.Errorf("%s: fixed to %s: %v", line, report.Fixed, err)
			}
			if again := validate(t, string(report.Fixed), Options{}); again.FixedLines > 0 {
				t.Errorf("%s: fixed to %s, which would be fixed again to %s", line, report.Fixed, again.Fixed)
			}
		}
	}
}

// TestFixTakesRightsAway: where the server allows more than a line says, the corrected line allows only that.
func TestFixTakesRightsAway(t *testing.T) {
	for _, line := range []string{
		`{"kind":"Policy","spec":{"user":"alice","resource":"pods","namespace":"a"}}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","spec":{"user":"alice","resource":"pods","namespace":"a"}}`,
		`{}`, `null`, `{"kind":"Policy"}`,
		policyLine + `"spec":{"user":"alice","resource":"pods","namespace":"a","readOnly":true}}`,
		policyLine + `"spec":{"user":"alice","group":"*","resource":"pods","namespace":"a"}}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/__internal","kind":"Policy","Spec":{"User":"*","APIGroup":"*","Resource":"*","Namespace":"*"}}`,
	} {
		report := validate(t, line, Options{})
		after, err := Parse("fixed", bytes.NewReader(report.Fixed))
		if err != nil {
			t.Fatalf("%s: fixed to %s: %v", line, report.Fixed, err)
		}
		c := Compare(report.Rules, after)
		likely := slices.DeleteFunc(c.Gained, func(e Excess) bool { return e.Unlikely })
		if len(c.Lost) == 0 || len(likely) > 0 {
			t.Errorf("%s: fixed to %s: lost %v, gained %v, want to lose and to gain nothing", line, report.Fixed,
				c.Lost, likely)
		}
	}
}

// twiceSaid are lines that the server reads otherwise than their last fields, or their bytes, suggest.
var twiceSaid = []string{
	policyLine + `"spec":{"user":"eve","apiGroup":"apps","resource":"deployments","namespace":"*"},"spec":{"readonly":false}}`,
	policyLine + `"spec":{"apiGroup":"apps","resource":"deployments","namespace":"*"},"spec":{"user":"eve"}}`,
	policyLine + `"spec":{"user":"eve","apiGroup":"apps","resource":"deployments","namespace":"*"},"spec":null}`,
	policyLine + `"spec":{"user":"eve","apiGroup":"apps","resource":"deployments","namespace":"*","resource":null}}`,
	policyLine + `"spec":{"user":"eve","apiGroup":"apps","resource":"deployments","namespace":"*"},"readonly":true}`,
	policyLine + `"spec":{"user":"eve","apiGroup":"apps","resource":"deployments","namespace":"*","readOnly":true}}`,
	"\uFEFF" + policyLine + `"spec":{"user":"eve","apiGroup":"apps","resource":"deployments","namespace":"*"}}`,
	`{"apiVersion":"` + internalAPIVersion + `","kind":"Policy","Spec":{"User":"*","APIGroup":"apps","Resource":"deployments","Namespace":"*"}}`,
	"\uFEFF" + `{"apiVersion":"` + internalAPIVersion + `","kind":"Policy","Spec":{"User":"*","APIGroup":"apps","Resource":"deployments","Namespace":"*"}}`,
	`--- {"apiVersion":"` + internalAPIVersion + `","kind":"Policy","Spec":{"User":"*","APIGroup":"apps","Resource":"deployments","Namespace":"*"}}`,
	`{"user":"eve","kind":"Policy","spec":{"user":"alice","resource":"pods"}}`,
}

// TestValidateJudgesWhatTheServerReads: whatever a line is to become, its rule is in force today.
func TestValidateJudgesWhatTheServerReads(t *testing.T) {
	options := Options{
		Forbidden: []Forbidden{{APIGroup: "apps", Resource: "deployments", Why: "the legacy side owns it"}}}
	worst := func(line, id string) (worst finding.Severity) {
		for _, f := range validate(t, line, options).Findings {
			if f.Rule == id {
				worst = max(worst, f.Severity)
			}
		}
		return worst
	}
	for _, line := range twiceSaid {
		if got := worst(line, "FUS212"); got != finding.Error {
			t.Errorf("%s: FUS212 %v, want an error", line, got)
		}
		anonymous := strings.ReplaceAll(line, `"user":"eve"`, `"group":"system:unauthenticated"`)
		if strings.Contains(line, `"user":"eve","kind"`) {
			continue // of version 0
		}
		if got := worst(anonymous, "FUS209"); got != finding.Error {
			t.Errorf("%s: FUS209 %v, want an error", anonymous, got)
		}
		if got := worst(line, "FUS151"); strings.Contains(line, "__internal") && got != finding.Error {
			t.Errorf("%s: FUS151 %v, want an error", line, got)
		}
	}
	for line, want := range map[string]finding.Severity{
		twiceSaid[0]: finding.Error, twiceSaid[2]: finding.Error, twiceSaid[3]: finding.Error, twiceSaid[4]: 0,
		policyLine + `"spec":{"user":"a","user":"a"}}`: finding.Warning,
		policyLine + `"spec":{"user":"a","user":"b"}}`: finding.Error,
	} {
		if got := worst(line, "FUS213"); got != want {
			t.Errorf("%s: FUS213 %v, want %v", line, got, want)
		}
	}
}

// TestFixGivesNothing: a corrected line allows no more than what the server reads, unless the line has a field that the
// server ignores and that names more.
func TestFixGivesNothing(t *testing.T) {
	lines := slices.Concat(twiceSaid, []string{
		policyLine + `"spec":{"user":"eve","resource":"pods","namespace":"a","readonly":true,"readonly":null}}`,
		policyLine + `"spec":{"user":"eve","resource":"pods","namespace":"a","readonly":true,"readonly":null,"x":1}}`,
		policyLine + `"spec":{"user":"eve","resource":"pods","namespace":"a","readonly":true},"spec":{"resource":"secrets"}}`,
		policyLine + `"spec":{"user":"eve","resource":"pods","namespace":"a","readonly":true},"readonly":false}`,
		policyLine + `"spec":{"user":"eve","resource":"pods","namespace":"a","readonly":true},"Spec":{"readonly":false}}`,
		`{"apiVersion":"` + internalAPIVersion + `","kind":"Policy","Spec":{"User":"eve","Resource":"pods","Readonly":true},"spec":{"readonly":false}}`,
	})
	for _, c := range Checks() {
		if c.ID != "FUS200" {
			lines = append(lines, strings.Split(c.Bad, "\n")...)
		}
	}
	for _, line := range append(lines, strings.Join(lines, "\n")) {
		before, err := Parse("p", strings.NewReader(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		report := validate(t, line, Options{})
		after, err := Parse("fixed", bytes.NewReader(report.Fixed))
		if err != nil {
			t.Fatalf("%s: fixed to %s: %v", line, report.Fixed, err)
		}
		gained := slices.DeleteFunc(Compare(before, after).Gained, func(e Excess) bool { return e.Unlikely })
		if len(gained) > 0 {
			t.Errorf("%s: fixed to %s: gained %v, want nothing", line, report.Fixed, gained)
		}
	}
}

func TestValidateReportsALineThatIsTooLong(t *testing.T) {
	zeros := &endless{}
	report, err := Validate("zeros", zeros, Options{})
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Rule != "FUS200" || report.Fixed != nil {
		t.Errorf("Validate of an endless line = %+v, %v, want one FUS200 and no corrected file", report, err)
	}
	if zeros.bytes > 2*maxLineBytes {
		t.Errorf("Validate read %d bytes, want at most %d", zeros.bytes, 2*maxLineBytes)
	}
}

// TestValidateIsBounded: files of nothing but line breaks, or of another kind, are short lines without end.
func TestValidateIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report, err := Validate("breaks", &repeated{text: strings.Repeat("\n", 1000), times: 8000}, Options{})
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err != nil || len(report.Fixed) != 8_000_000 || taken > 128<<20 {
		t.Errorf("Validate of eight million line breaks: %v, fixed to %d bytes, takes %d bytes; want less than 128 MiB",
			err, len(report.Fixed), taken)
	}
	_, err = Validate("many", &repeated{text: strings.Repeat("[]\n", 1000), times: 1001}, Options{})
	if err == nil || !strings.Contains(err.Error(), "many:1000001: more than 1000000 lines") {
		t.Errorf("Validate of more than a million bad lines = %v, want that there are too many", err)
	}
	few, err := Validate("few", &repeated{text: "[]\n", times: maxKept + 7}, Options{})
	if err != nil || len(few.Findings) != maxKept+1 {
		t.Fatalf("Validate of %d bad lines: %d findings, %v", maxKept+7, len(few.Findings), err)
	}
	if last := few.Findings[maxKept]; last.Line != maxKept+7 || last.Message != "and 7 more like these" ||
		last.Severity != finding.Error || last.Rule != "FUS200" {
		t.Errorf("the last finding is %+v, want that there are 7 more", last)
	}
}

// TestValidateCorrectsEveryLine: also one whose finding is not kept, and beside lines that are blank.
func TestValidateCorrectsEveryLine(t *testing.T) {
	var text string
	for i := range maxKept + 3 {
		text += "# a\n\n" + policyLine +
			fmt.Sprintf(`"spec":{"user":"u%d","resource":"configmaps","namespace":"a","x":1}}`, i) + "\n"
	}
	report := validate(t, text, Options{})
	if report.FixedLines != maxKept+3 || bytes.Contains(report.Fixed, []byte(`"x"`)) ||
		bytes.Count(report.Fixed, []byte("# a\n\n")) != maxKept+3 {
		t.Errorf("%d lines are corrected, want %d", report.FixedLines, maxKept+3)
	}
}

func TestValidateWrapsTheErrorOfItsReader(t *testing.T) {
	if _, err := Validate("p", iotest.ErrReader(os.ErrClosed), Options{}); err == nil {
		t.Error("Validate of a broken reader passed, want an error")
	}
}

func TestValidateNamesForbiddenWrites(t *testing.T) {
	options := Options{
		Forbidden: []Forbidden{{APIGroup: "apps", Resource: "deployments", Why: "the legacy side owns it"},
			{APIGroup: "", Resource: "nodes", Why: "the legacy side owns it"}},
		Expected: []Rule{{User: "system:serviceaccount:kube-system:deployment-controller", APIGroup: "apps",
			Resource: "*", Namespace: "*"}},
	}
	for spec, want := range map[string][]string{
		`"group":"devs","apiGroup":"*","resource":"*","namespace":"a"`:                                                                {"deployments.apps", "nodes"},
		`"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"a"`:                                                   {"deployments.apps"},
		`"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"a","readonly":true`:                                   nil,
		`"user":"system:serviceaccount:kube-system:deployment-controller","apiGroup":"apps","resource":"deployments","namespace":"*"`: nil,
		`"user":"system:serviceaccount:kube-system:job-controller","apiGroup":"apps","resource":"deployments","namespace":"*"`:        {"deployments.apps"},
	} {
		var got []string
		for _, f := range validate(t, policyLine+`"spec":{`+spec+`}}`, options).Findings {
			if f.Rule == "FUS212" {
				got = f.Related
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: forbidden writes (-want +got):\n%s", spec, diff)
		}
	}
}

// TestValidateKnowsControllers: they read far, and only those that delete whatever there is may write everything.
func TestValidateKnowsControllers(t *testing.T) {
	for spec, want := range map[string]string{
		`"user":"system:serviceaccount:kube-system:generic-garbage-collector","apiGroup":"*","resource":"*","namespace":"*"`: "",
		`"user":"system:serviceaccount:kube-system:job-controller","apiGroup":"*","resource":"*","namespace":"*"`:            "FUS216",
		`"user":"system:serviceaccount:default:generic-garbage-collector","apiGroup":"*","resource":"*","namespace":"*"`:     "FUS216",
		`"user":"system:kube-controller-manager","resource":"secrets","namespace":"*","readonly":true`:                       "",
		`"user":"system:kube-controller-manager","resource":"*","namespace":"*","readonly":true`:                             "",
		`"user":"system:kube-controller-manager","resource":"*","namespace":"*"`:                                             "FUS211",
	} {
		got := ""
		for _, f := range validate(t, policyLine+`"spec":{`+spec+`}}`, Options{}).Findings {
			got += f.Rule
		}
		if got != want {
			t.Errorf("%s: findings %q, want %q", spec, got, want)
		}
	}
}

func TestValidateKnowsGivenDefinitions(t *testing.T) {
	catalog := NewCatalog()
	crds := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, scope: Cluster, names: {plural: widgets, kind: Widget}}
---
apiVersion: v1
kind: List
items:
- apiVersion: apiextensions.k8s.io/v1beta1
  kind: CustomResourceDefinition
  spec: {group: example.org, scope: Namespaced, names: {plural: gadgets}}
`
	if err := catalog.AddCRDs("crds.yaml", []byte(crds)); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		`"apiGroup":"example.com","resource":"widgets","namespace":"*"`: "",
		`"apiGroup":"example.com","resource":"widgets","namespace":"a"`: "FUS207",
		`"apiGroup":"example.com","resource":"wigets","namespace":"*"`:  "FUS206",
		`"apiGroup":"example.org","resource":"gadgets"`:                 "FUS207",
		`"apiGroup":"elsewhere.test","resource":"x","namespace":"*"`:    "FUS205",
	} {
		got := ""
		for _, f := range validate(t, policyLine+`"spec":{"user":"a",`+spec+`}}`, Options{Catalog: catalog}).Findings {
			got += f.Rule
		}
		if got != want {
			t.Errorf("%s: findings %q, want %q", spec, got, want)
		}
	}
	for _, bad := range []string{"", "kind: Pod", "a: [", `{"kind":"CustomResourceDefinition"}`} {
		if err := NewCatalog().AddCRDs("bad.yaml", []byte(bad)); err == nil ||
			!strings.HasPrefix(err.Error(), "bad.yaml: ") {
			t.Errorf("AddCRDs(%q) = %v, want an error that names the file", bad, err)
		}
	}
}

// FuzzValidate checks that no file upsets Validate, that its corrected file is read again, and that correcting it again
// changes nothing.
func FuzzValidate(f *testing.F) {
	for _, c := range Checks() {
		f.Add([]byte(c.Bad))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		report, err := Validate("fuzz", bytes.NewReader(data), Options{})
		if err != nil {
			t.Fatal(err)
		}
		rules, parseErr := Parse("fuzz", bytes.NewReader(data))
		if parseErr == nil && !cmp.Equal(rules, report.Rules) {
			t.Fatalf("Validate reads %v, Parse %v", report.Rules, rules)
		}
		stops := slices.ContainsFunc(report.Findings, func(f finding.Finding) bool { return f.Rule == "FUS200" })
		if stops != (parseErr != nil) {
			t.Fatalf("Validate: the server stops: %v, Parse: %v", stops, parseErr)
		}
		if parseErr == nil {
			if _, err := Parse("fixed", bytes.NewReader(report.Fixed)); err != nil {
				t.Fatalf("the corrected file is refused: %v\n%q", err, report.Fixed)
			}
		}
	})
}

// TestKeysSurviveOtherLines: what is written above a line changes its number, and not which finding it is.
func TestKeysSurviveOtherLines(t *testing.T) {
	const lines = `{"kind":"Policy","spec":{"user":"alice"}}
{"kind":"Policy","spec":{"user":"alice"}}
` + policyLine + `"spec":{"user":"alice","resource":"configmaps","namespace":"a","readOnly":true,"Group":"x"}}
`
	keys := func(text string) []string {
		var keys []string
		for _, f := range validate(t, text, Options{}).Findings {
			keys = append(keys, f.Key)
		}
		return keys
	}
	before := keys(lines)
	if len(before) < 5 || len(slices.Compact(slices.Sorted(slices.Values(before)))) != len(before) {
		t.Errorf("keys = %q, want at least five, no two alike", before)
	}
	if diff := cmp.Diff(before, keys("# a comment\n\n"+lines)); diff != "" {
		t.Errorf("keys below a comment (-without +with):\n%s", diff)
	}
}
