//go:build e2e

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// A minor is taken out of the tables and proposed anew, from its release. What comes is what was there, but for what
// people have decided: that is in testdata, and the report asks for it. It is done for the newest minor whose
// servers are built with every change, as Go's build cache has its packages then, and for those on request that are
// built and newer.
func TestMinorsAreProposedAsTheyAre(t *testing.T) {
	releases, err := rig.Releases()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, release := range releases {
		if release.Minor < kubever.Suggested || !slices.Contains(release.Programs, kubever.APIServer) {
			continue
		}
		tried++
		t.Run(release.Minor.String(), func(t *testing.T) { isProposedAsItIs(t, int(release.Minor)) })
	}
	if tried == 0 {
		t.Error("no minor was proposed")
	}
}

func isProposedAsItIs(t *testing.T, minor int) {
	all, err := readTables(tablesDir)
	if err != nil {
		t.Fatal(err)
	}
	// It is the newest then, as when it was added.
	for newer := int(kubever.Newest); newer > minor; newer-- {
		all.remove(newer)
	}
	was := map[string]string{}
	for name, table := range all {
		was[name] = table.String()
	}
	version, ok := all.releaseOf(minor)
	if !ok {
		t.Fatalf("releases.tsv has no 1.%d", minor)
	}
	r, err := fetch(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	all.remove(minor)
	for _, row := range all["kinds"].rows {
		if holds(row[2], minor) {
			t.Fatalf("kinds.tsv still has 1.%d: nothing was removed", minor)
		}
	}
	f, err := r.read(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	decide := strings.Join(all.propose(r, f), "\n")
	var left strings.Builder
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		for _, line := range strings.Split(string(diff.Diff(name, []byte(was[name]), name, []byte(all[name].String()))),
			"\n") {
			if strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---") {
				left.WriteString(name + ": " + line[1:] + "\n")
				// For what is carried over the report has the sources that changed.
				if subject, _, _ := strings.Cut(line[1:], "\t"); carried[name] == nil &&
					!strings.Contains(decide, subject) && !strings.Contains(decide, gateOf(line)) {
					t.Errorf("%s: %s is not proposed, and nothing asks for it:\n%s", name, line, decide)
				}
			}
			if strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++") {
				left.WriteString(name + ": proposed: " + line[1:] + "\n")
			}
		}
	}
	golden.File(t, fmt.Sprintf("testdata/decided-1.%d.txt", minor), []byte(left.String()))
}

// gateOf is the feature gate that a row depends on: in a condition, or in its source.
func gateOf(line string) string {
	for _, word := range strings.Fields(line) {
		if gate, _, ok := strings.Cut(word, "="); ok && strings.HasSuffix(word, "=false") {
			return gate
		}
	}
	if _, rest, ok := strings.Cut(line, " gate "); ok {
		return strings.FieldsFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })[0]
	}
	return "no gate"
}
