package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

const docsDirectory = "../../docs/rules"

func TestRulePagesAreCurrent(t *testing.T) {
	pages := map[string]bool{"README.md": true}
	golden.File(t, filepath.Join(docsDirectory, "README.md"), []byte(Index(All())))
	for _, rule := range All() {
		name := rule.ID + ".md"
		pages[name] = true
		golden.File(t, filepath.Join(docsDirectory, name), []byte(rule.Markdown()))
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
	for _, id := range []string{"FUS060", "FUS220"} {
		rule, ok := ByID(id)
		if !ok {
			t.Fatalf("no rule %s", id)
		}
		golden.File(t, filepath.Join("testdata", "explain-"+id+".txt"), []byte(rule.Text()))
	}
}

func TestTextBreaksLines(t *testing.T) {
	for _, rule := range All() {
		prose, _, _ := strings.Cut(rule.Text(), "\nBad:\n")
		for line := range strings.Lines(prose) {
			if len(line) > finding.TextWidth+1 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: a line of %d characters: %s", rule.ID, len(line), line)
			}
		}
	}
}
