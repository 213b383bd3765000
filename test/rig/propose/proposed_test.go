//go:build e2e

package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/kubefusion/fusionctl/internal/golden"
)

// The newest minor is taken out of the tables and proposed anew, from its release. What comes is what was there, but
// for what people have decided: that is in testdata, and the report asks for each of it.
func TestTheNewestMinorIsProposedAsItIs(t *testing.T) {
	all, err := readTables(tablesDir)
	if err != nil {
		t.Fatal(err)
	}
	was := map[string]string{}
	for name, table := range all {
		was[name] = table.String()
	}
	releases := all["releases"].rows
	last := releases[len(releases)-1]
	minor, err := strconv.Atoi(last[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := fetch(t.Context(), "v"+last[1])
	if err != nil {
		t.Fatal(err)
	}
	all.remove(minor)
	if strings.Contains(all["kinds"].String(), "-"+last[0]+"\n") {
		t.Fatalf("kinds.tsv still has 1.%d: nothing was removed", minor)
	}
	f, err := r.read(t.Context())
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
				if subject, _, _ := strings.Cut(line[1:], "\t"); !strings.Contains(decide, subject) &&
					!strings.Contains(decide, gateOf(line)) {
					t.Errorf("%s: %s is not proposed, and nothing asks for it:\n%s", name, line, decide)
				}
			}
			if strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++") {
				left.WriteString(name + ": proposed: " + line[1:] + "\n")
			}
		}
	}
	golden.File(t, "testdata/decided.txt", []byte(left.String()))
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
