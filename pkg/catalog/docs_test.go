package catalog

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

const docsDirectory = "../../docs/rules"

func TestRulePagesAreCurrent(t *testing.T) {
	pages := map[string]bool{"README.md": true}
	golden.File(t, filepath.Join(docsDirectory, "README.md"), []byte(Index()))
	for _, id := range IDs() {
		pages[id+".md"] = true
		golden.File(t, filepath.Join(docsDirectory, id+".md"), []byte(finding.Markdown(ByID(id))))
	}
	entries, err := os.ReadDir(docsDirectory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !pages[e.Name()] {
			t.Errorf("docs/rules/%s is about no rule: delete it", e.Name())
		}
	}
}

func TestExplainGolden(t *testing.T) {
	for _, id := range []string{"FUS060", "FUS152", "FUS220", "FUS304"} {
		var texts []string
		for _, r := range ByID(id) {
			texts = append(texts, r.Text())
		}
		golden.File(t, filepath.Join("testdata", "explain-"+id+".txt"), []byte(strings.Join(texts, "\n")))
	}
}

// limitColumns is the width of the prose in fusionctl explain, with the line break.
const limitColumns = 101

func TestTextBreaksLines(t *testing.T) {
	for _, rule := range Rules() {
		prose, _, _ := strings.Cut(rule.Text(), "\nBad:\n")
		for line := range strings.Lines(prose) {
			if len(line) > limitColumns && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: a line of %d characters: %s", rule.ID, len(line), line)
			}
		}
	}
}

// What rules call their evidence is there.
func TestEvidenceNamesTestsThatExist(t *testing.T) {
	files, err := filepath.Glob("../../test/e2e/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the end-to-end tests: %v, %v", files, err)
	}
	tests := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[f.Name.Name] = true
			}
		}
	}
	named := 0
	for _, rule := range Rules() {
		for _, name := range slices.Concat(rule.Evidence.Damage, rule.Evidence.Prevention) {
			named++
			if !tests[name] {
				t.Errorf("%s: there is no test %s in test/e2e", rule.ID, name)
			}
		}
		if len(rule.Evidence.Damage) > 0 && rule.Evidence.Seen == "" {
			t.Errorf("%s: a test does the damage, and its evidence does not say what was seen", rule.ID)
		}
	}
	// A plan that is refused for a rule alone was run, and did what the rule says.
	for _, rule := range Rules() {
		if rule.Engine == finding.Plans && rule.Severity == finding.Error && len(rule.Evidence.Damage) == 0 {
			t.Errorf("%s: no test of test/e2e does the damage that it forbids", rule.ID)
		}
	}
	if named < 10 {
		t.Errorf("%d tests are named as evidence, want more", named)
	}
}
