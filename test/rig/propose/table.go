package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// table is the text of a table of pkg/kubever: its comments, and its rows as columns. It is changed as text, without
// pkg/kubever, which refuses tables that name a minor it does not have yet.
type table struct {
	comments []string
	rows     [][]string
}

// tables are all tables of a directory, by name without .tsv.
type tables map[string]*table

func readTables(dir string) (tables, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("reading the tables in %s: want *.tsv, found %d (%w)", dir, len(files), err)
	}
	all := tables{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(filepath.Base(file), ".tsv")] = parseTable(string(data))
	}
	return all, nil
}

func parseTable(text string) *table {
	t := &table{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			t.comments = append(t.comments, line)
		} else {
			t.rows = append(t.rows, strings.Split(line, "\t"))
		}
	}
	return t
}

func (t *table) String() string {
	var b strings.Builder
	for _, line := range t.comments {
		b.WriteString(line + "\n")
	}
	for _, row := range t.rows {
		b.WriteString(strings.Join(row, "\t") + "\n")
	}
	return b.String()
}

// find returns the row that starts with these columns.
func (t *table) find(columns ...string) ([]string, bool) {
	i := slices.IndexFunc(t.rows, func(row []string) bool { return slices.Equal(row[:len(columns)], columns) })
	if i < 0 {
		return nil, false
	}
	return t.rows[i], true
}

// insert puts a row where its first columns belong in a table that ascends by them.
func (t *table) insert(columns int, row []string) {
	i, _ := slices.BinarySearchFunc(t.rows, row, func(a, b []string) int {
		return slices.CompareFunc(a[:columns], b[:columns], compareNames)
	})
	t.rows = slices.Insert(t.rows, i, row)
}

// compareNames orders as the tables do: what is in no API group comes first.
func compareNames(a, b string) int {
	if isCore, other := a == "v1", b == "v1"; isCore != other {
		if isCore {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// span is a run of minors.
type span struct{ from, to int }

// parseMinors reads "6-9,12"; "-" is none.
func parseMinors(s string) []span {
	var spans []span
	for part := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if from == "" { // "-"
			continue
		}
		if !ranged {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil {
			return nil
		}
		spans = append(spans, span{a, b})
	}
	return spans
}

func printMinors(spans []span) string {
	if len(spans) == 0 {
		return "-"
	}
	words := make([]string, len(spans))
	for i, s := range spans {
		words[i] = strconv.Itoa(s.from)
		if s.to != s.from {
			words[i] += "-" + strconv.Itoa(s.to)
		}
	}
	return strings.Join(words, ",")
}

// holds reports whether minors such as "6-9,12" have the minor.
func holds(minors string, minor int) bool {
	return slices.ContainsFunc(parseMinors(minors), func(s span) bool { return s.from <= minor && minor <= s.to })
}

// with adds a minor to minors.
func with(minors string, minor int) string {
	spans := without(parseMinors(minors), minor)
	i := slices.IndexFunc(spans, func(s span) bool { return s.from > minor })
	if i < 0 {
		i = len(spans)
	}
	spans = slices.Insert(spans, i, span{minor, minor})
	var joined []span
	for _, s := range spans {
		if last := len(joined) - 1; last >= 0 && joined[last].to+1 == s.from {
			joined[last].to = s.to
		} else {
			joined = append(joined, s)
		}
	}
	return printMinors(joined)
}

// without takes a minor out.
func without(spans []span, minor int) []span {
	var left []span
	for _, s := range spans {
		if s.from <= min(s.to, minor-1) {
			left = append(left, span{s.from, min(s.to, minor-1)})
		}
		if max(s.from, minor+1) <= s.to {
			left = append(left, span{max(s.from, minor+1), s.to})
		}
	}
	return left
}

// holding sets in minors whether the minor is one of them.
func holding(minors string, minor int, is bool) string {
	if is {
		return with(minors, minor)
	}
	return printMinors(without(parseMinors(minors), minor))
}

// valueAt is the value of a column of "minors=value" words at a minor.
func valueAt(column string, minor int) (string, bool) {
	for _, word := range strings.Fields(column) {
		if minors, value, ok := strings.Cut(word, "="); ok && holds(minors, minor) {
			return value, true
		}
	}
	return "", false
}

// withValue sets the value of a minor in a column of "minors=value" words: a word goes on, or one is added.
func withValue(column string, minor int, value string) string {
	words := strings.Fields(withoutValue(column, minor))
	words = slices.DeleteFunc(words, func(w string) bool { return w == "-" })
	for i, word := range words {
		if minors, v, _ := strings.Cut(word, "="); v == value && (holds(minors, minor-1) || holds(minors, minor+1)) {
			words[i] = with(minors, minor) + "=" + v
			return strings.Join(words, " ")
		}
	}
	return strings.Join(append(words, strconv.Itoa(minor)+"="+value), " ")
}

// withoutValue takes a minor out of a column of "minors=value" words.
func withoutValue(column string, minor int) string {
	var words []string
	for _, word := range strings.Fields(column) {
		minors, value, ok := strings.Cut(word, "=")
		if ok {
			if minors = printMinors(without(parseMinors(minors), minor)); minors == "-" {
				continue
			}
			word = minors + "=" + value
		}
		words = append(words, word)
	}
	return cmp.Or(strings.Join(words, " "), "-")
}

// withName says in a column of "name=minors" words, which ascend, whether the minor has the name.
func withName(column, name string, minor int, has bool) string {
	words := strings.Fields(column)
	words = slices.DeleteFunc(words, func(w string) bool { return w == "-" })
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, name+"=") })
	minors := "-"
	if i >= 0 {
		minors = strings.TrimPrefix(words[i], name+"=")
		words = slices.Delete(words, i, i+1)
	}
	if minors = holding(minors, minor, has); minors != "-" {
		words = append(words, name+"="+minors)
	}
	slices.Sort(words)
	return cmp.Or(strings.Join(words, " "), "-")
}
