package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestRunsAreKnownAndPossible: the table reads and writes alike, and no run contradicts the matrix.
func TestRunsAreKnownAndPossible(t *testing.T) {
	if got := FormatRuns(Runs()); got != provenTable {
		t.Errorf("%s is not what FormatRuns writes of it:\n%s", ProvenFile, got)
	}
	if len(Runs()) < 6 {
		t.Errorf("%d runs, want at least those of every change", len(Runs()))
	}
	for _, layout := range spec.Layouts {
		pairs, err := Matrix(spec.Layout(layout))
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range pairs {
			if pair.Proven && !pair.Possible {
				t.Errorf("%s %s+%s was run, and %s forbids it", layout, pair.Legacy, pair.Modern, pair.Rule)
			}
		}
	}
}

func TestOfAPairTheNewestRunIsKept(t *testing.T) {
	const before = "split\t1.6.13\t1.36.3\t2026-01-02\t0123456789ab\n"
	runs, err := ParseRuns("split\t1.6.13\t1.36.4\t2026-01-03\tab0123456789\n" + before)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(strings.Split(FormatRuns(runs), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	})
	if want := []string{"split\t1.6.13\t1.36.4\t2026-01-03\tab0123456789"}; !slices.Equal(got, want) {
		t.Errorf("kept are %q, want %q", got, want)
	}
}

func TestRunsThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ line, want string }{
		"columns":  {"split\t1.6.13", "2 columns"},
		"layout":   {"both\t1.6.13\t1.36.3\t2026-01-02\t0123456789ab", `layout "both"`},
		"legacy":   {"split\tsix\t1.36.3\t2026-01-02\t0123456789ab", "six"},
		"modern":   {"split\t1.6.13\t\t2026-01-02\t0123456789ab", "version"},
		"day":      {"split\t1.6.13\t1.36.3\tyesterday\t0123456789ab", "yesterday"},
		"programs": {"split\t1.6.13\t1.36.3\t2026-01-02\tABC", `programs "ABC"`},
	} {
		if _, err := ParseRuns("\n" + test.line); err == nil || !strings.Contains(err.Error(), ProvenFile+":2: ") ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want the line and %s", name, err, test.want)
		}
	}
}
