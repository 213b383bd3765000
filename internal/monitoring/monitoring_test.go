package monitoring

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/golden"
)

func TestFiles(t *testing.T) {
	parts := Parts()
	board, err := Dashboard(parts)
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "../../examples/monitoring/dashboard.json", board)
	rules, err := Rules(parts)
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "../../examples/monitoring/rules.yaml", rules)
	metrics, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/metrics.json", append(metrics, '\n'))
}

// TestEveryMetricIsKnown holds the parts against the source: every package that makes metrics is among them, and so is
// every metric whose name stands there as a whole.
func TestEveryMetricIsKnown(t *testing.T) {
	known := map[string]bool{}
	for _, p := range Parts() {
		for _, m := range p.Metrics {
			known[m.Name] = true
			if m.Help == "" || m.Kind == Counter != strings.HasSuffix(m.Name, "_total") {
				t.Errorf("%s: %s, %q: a counter ends in _total, and every metric has a help", m.Name, m.Kind, m.Help)
			}
		}
	}
	sources := map[string]bool{}
	options := regexp.MustCompile(`prometheus\.(Gauge|Counter|Histogram|Summary)Opts`)
	name := regexp.MustCompile(`"(fusionctl_\w+[^_])"`)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return filepath.SkipDir // as the go command does: sources of other programs are below them
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			if imported,
				_ := strconv.Unquote(spec.Path.Value); imported == "github.com/prometheus/client_golang/prometheus" {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if !options.Match(text) {
					return nil
				}
				sources[filepath.ToSlash(filepath.Dir(path))] = true
				for _, found := range name.FindAllSubmatch(text, -1) {
					if !known[string(found[1])] {
						t.Errorf("%s makes %s, which no part has: Parts wants its Describe", path, found[1])
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"../../internal/webserver", "../../pkg/controllers", "../../pkg/etcd/watch",
		"../../pkg/gateway", "../../pkg/hub/webhook", "../../pkg/operator", "../../pkg/policy/webhook"}
	for dir := range sources {
		if !slices.Contains(want, dir) {
			t.Errorf("%s makes metrics: Parts wants its Describe, and this test its name", dir)
		}
	}
	if len(sources) != len(want) {
		t.Errorf("packages that make metrics: %v, want %v", sources, want)
	}
}

var metricName = regexp.MustCompile(`fusionctl_\w+`)

// TestEveryMetricIsShown: each metric has its panel, and neither panels nor alerts name one that does not exist.
func TestEveryMetricIsShown(t *testing.T) {
	parts := Parts()
	text, err := Dashboard(parts)
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	shown, alerted, cells := map[string]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				shown[family(parts, name)] = true
			}
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, taken := cells[at]; taken || at[0] >= columns {
					t.Errorf("panel %q is over %q", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
	}
	for _, a := range Alerts(parts) {
		for _, name := range metricName.FindAllString(a.Expr, -1) {
			alerted[family(parts, name)] = true
		}
	}
	for _, p := range parts {
		of := 0
		for _, m := range p.Metrics {
			if !shown[m.Name] {
				t.Errorf("no panel shows %s", m.Name)
			}
			delete(shown, m.Name)
			if alerted[m.Name] {
				of++
			}
			delete(alerted, m.Name)
		}
		if of < 2 {
			t.Errorf("%d metrics of %s have an alert, want more", of, p.Command)
		}
	}
	if len(shown)+len(alerted) > 0 {
		t.Errorf("no part has what is shown (%v) or alerted on (%v)", shown, alerted)
	}
}

// family is the name of the metric that a series belongs to.
func family(parts []Part, series string) string {
	for _, p := range parts {
		for _, m := range p.Metrics {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if m.Kind == Histogram && series == m.Name+suffix {
					return m.Name
				}
			}
		}
	}
	return series
}

// TestEveryAlertHasARunbook: the page has a section for each, with what to look at, and for no other.
func TestEveryAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for _, a := range Alerts(Parts()) {
		text, found := sections[a.Name]
		if !found {
			t.Errorf("docs/alerts.md has no section %s", a.Name)
		}
		for _, want := range []string{"**Means:**", "**Look at:**", "**Way out:**"} {
			if found && !strings.Contains(text, want) {
				t.Errorf("docs/alerts.md: %s lacks %s", a.Name, want)
			}
		}
		delete(sections, a.Name)
	}
	for name := range sections {
		t.Errorf("docs/alerts.md: there is no alert %s", name)
	}
}
