package rules

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// Run is a run of the end-to-end tests in which real servers of a pair did what a plan promises.
type Run struct {
	Layout         spec.Layout
	Legacy, Modern kubever.Version
	Day            string // of the run, as 2026-11-23
	Programs       string // the first 12 hexadecimal digits of the SHA-256 sum over the four programs that ran
}

// ProvenFile holds the runs, for whom has the repository: `make evidence-all` adds to it.
const ProvenFile = "pkg/rules/proven.tsv"

//go:embed proven.tsv
var provenTable string

// Runs are the runs of the repository, in the order of layouts and versions.
var Runs = sync.OnceValue(func() []Run {
	runs, err := ParseRuns(provenTable)
	if err != nil {
		panic("rules: internal error: " + err.Error())
	}
	return runs
})

// ParseRuns reads a table as FormatRuns writes it. Errors: the line that is not a run.
func ParseRuns(text string) ([]Run, error) {
	var runs []Run
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		run, err := parseRun(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", ProvenFile, i+1, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func parseRun(line string) (Run, error) {
	cells := strings.Split(line, "\t")
	if len(cells) != 5 {
		return Run{}, fmt.Errorf("%d columns, want layout, legacy, modern, day and programs", len(cells))
	}
	run := Run{Layout: spec.Layout(cells[0]), Day: cells[3], Programs: cells[4]}
	if !slices.Contains(spec.Layouts, cells[0]) {
		return Run{}, fmt.Errorf("layout %q: want one of %s", cells[0], strings.Join(spec.Layouts, ", "))
	}
	var err error
	if run.Legacy, err = kubever.Parse(cells[1]); err != nil {
		return Run{}, err
	}
	if run.Modern, err = kubever.Parse(cells[2]); err != nil {
		return Run{}, err
	}
	if _, err := time.Parse(time.DateOnly, run.Day); err != nil {
		return Run{}, err
	}
	if len(run.Programs) != 12 || strings.Trim(run.Programs, "0123456789abcdef") != "" {
		return Run{}, fmt.Errorf("programs %q: want 12 hexadecimal digits", run.Programs)
	}
	return run, nil
}

// FormatRuns writes the table: of each pair of a layout the newest run, sorted.
func FormatRuns(runs []Run) string {
	newest := map[string]Run{}
	for _, run := range runs {
		key := fmt.Sprintf("%s %04d %04d", run.Layout, run.Legacy.Minor, run.Modern.Minor)
		if before, ok := newest[key]; !ok || before.Day <= run.Day {
			newest[key] = run
		}
	}
	keys := make([]string, 0, len(newest))
	for key := range newest {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var b strings.Builder
	b.WriteString("# layout, legacy, modern, day of the run, SHA-256 over the programs that ran (its first 12 " +
		"digits)\n" +
		"# source: make evidence-all; test TestPairs says what the servers had to do\n")
	for _, key := range keys {
		run := newest[key]
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", run.Layout, run.Legacy, run.Modern, run.Day, run.Programs)
	}
	return b.String()
}

// proven are the pairs of minors of a layout that a run has shown.
func proven(layout spec.Layout) map[[2]kubever.Minor]bool {
	found := map[[2]kubever.Minor]bool{}
	for _, run := range Runs() {
		if run.Layout == layout {
			found[[2]kubever.Minor{run.Legacy.Minor, run.Modern.Minor}] = true
		}
	}
	return found
}
