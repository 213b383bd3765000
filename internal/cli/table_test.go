package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTablesFit prints tables that are wider than their terminal. No line is, and no word of a cell is lost.
func TestTablesFit(t *testing.T) {
	long := strings.Repeat("a reason that goes on, ", 12)
	list := strings.Repeat("NamespaceLifecycle,", 40)
	for name, rows := range map[string][]string{
		"two columns":              {"FLAG\tWHY", "  --enable-admission-plugins=" + list + "\t" + long},
		"six columns":              {"A\tB\tC\tD\tE\tF", "a\t" + long + "\tc\t" + list + "\te\t" + long},
		"no place to break":        {"A\tB", strings.Repeat("x", 500) + "\t" + strings.Repeat("é", 300)},
		"a line without a column":  {"A\tB", "a\tb", "kube-apiserver on cp-1: " + long, "c\t" + long},
		"rows of different length": {"A\tB\tC", "a", "a\t" + long, "a\tb\t" + long + "\td"},
		"empty cells":              {"A\tB\tC", "\t\t" + long, "\t" + long + "\t"},
	} {
		for _, columns := range []int{40, 80, 120, 160} {
			var out bytes.Buffer
			table := &table{out: &out, columns: columns, breaks: true}
			for _, row := range rows {
				if _, err := table.Write([]byte(row + "\n")); err != nil {
					t.Fatal(err)
				}
			}
			if err := table.Flush(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%s: %d columns, want at most %d: %q", name, n, columns, line)
				}
			}
			count := func(text string) (n int) {
				for _, r := range text {
					if r != ' ' && r != '\n' && r != '\t' {
						n++
					}
				}
				return n
			}
			if got, want := count(out.String()), count(strings.Join(rows, "")); got != want {
				t.Errorf("%s: %d characters of %d are printed:\n%s", name, got, want, &out)
			}
		}
	}
}

// TestTablesThatFitStayAsTheyAre: a table is broken only where it has to be.
func TestTablesThatFitStayAsTheyAre(t *testing.T) {
	var out bytes.Buffer
	table := &table{out: &out, columns: 40}
	if _, err := table.Write([]byte("A\tB\nlonger\tb\n")); err != nil {
		t.Fatal(err)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "A       B\nlonger  b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is no terminal gets a line for a row, as grep and awk want it, and no padding to the width of the longest cell.
func TestTablesElsewhereHaveALineForARow(t *testing.T) {
	long := strings.Repeat("a reason that goes on, ", 120)
	var out bytes.Buffer
	table := newTable(&out)
	if _, err := table.Write([]byte("PLACE\tWHY\tFIX\nhere\t" + long + "\tmend it\nthere\tshort\tleave it\n" +
		"a line of its own: " + long + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4:\n%s", len(lines), &out)
	}
	if !strings.HasPrefix(lines[1], "here   a reason") || !strings.HasSuffix(lines[1], "mend it") {
		t.Errorf("got %q, want the cells in one line", lines[1])
	}
	if len(lines[2]) > tableColumns || !strings.HasPrefix(lines[2], "there  short ") ||
		strings.Index(lines[2], "leave it") != strings.Index(lines[0], "FIX") {
		t.Errorf("got %q, want its cells below the header's, within %d columns", lines[2], tableColumns)
	}
}
