package kubever

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// The tables: one fact per line, columns divided by tabs, minors as bare numbers (15 is 1.15) in ranges such as
// "6-9,12", "-" for nothing. Lines that start with # are a header. tables/README.md says where each table comes from.
//
//go:embed tables/*.tsv
var tables embed.FS

// row is one line of a table, with the place that a broken promise is reported for.
type row struct {
	table  string
	line   int
	fields []string
}

// fail panics: an embedded table that cannot be read is a mistake of ours, never of the user.
func (r row) fail(format string, args ...any) {
	panic(fmt.Sprintf("kubever: internal error: %s:%d: %s", r.table, r.line, fmt.Sprintf(format, args...)))
}

// readTable reads an embedded table.
func readTable(name string, columns int) []row {
	content, err := tables.ReadFile("tables/" + name)
	if err != nil {
		panic("kubever: internal error: " + err.Error())
	}
	return splitTable("tables/"+name, string(content), columns)
}

// splitTable splits the text of a table into rows of exactly so many columns.
func splitTable(path, text string, columns int) []row {
	rows := make([]row, 0, strings.Count(text, "\n"))
	line := 0
	for len(text) > 0 {
		line++
		content, rest, ok := strings.Cut(text, "\n")
		text = rest
		if strings.HasPrefix(content, "#") {
			continue
		}
		r := row{table: path, line: line, fields: strings.Split(content, "\t")}
		if !ok {
			r.fail("the last line does not end")
		}
		if len(r.fields) != columns {
			r.fail("want %d columns, found %d", columns, len(r.fields))
		}
		rows = append(rows, r)
	}
	return rows
}

// text returns a column, "" where the table says "-".
func (r row) text(column int) string {
	if r.fields[column] == "-" {
		return ""
	}
	return r.fields[column]
}

// words returns a column as its blank-separated words.
func (r row) words(column int) []string { return strings.Fields(r.text(column)) }

// patches reads patch releases by their minors, written minor=patch.
func (r row) patches(column int) map[Minor]int {
	patches := make(map[Minor]int)
	for _, word := range r.words(column) {
		minor, patch, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(patch)
		if err != nil || n < 1 {
			r.fail("%q: want minor=patch", word)
		}
		patches[r.parseMinor(minor)] = n
	}
	return patches
}

// yes reads a column that holds "yes" or "-".
func (r row) yes(column int) bool {
	switch r.fields[column] {
	case "yes":
		return true
	case "-":
		return false
	}
	r.fail("column %d: want yes or -, found %q", column+1, r.fields[column])
	return false
}

// ranges reads a column as minors.
func (r row) ranges(column int) Ranges { return r.parseRanges(r.text(column)) }

// parseRanges reads "6-9,12": ascending spans of known minors that neither overlap nor touch.
func (r row) parseRanges(s string) Ranges {
	if s == "" {
		return nil
	}
	ranges := make(Ranges, 0, strings.Count(s, ",")+1)
	for part := range strings.SplitSeq(s, ",") {
		from, until, isSpan := strings.Cut(part, "-")
		if !isSpan {
			until = from
		}
		span := Range{From: r.parseMinor(from), To: r.parseMinor(until)}
		if span.From > span.To || (len(ranges) > 0 && span.From <= ranges[len(ranges)-1].To+1) {
			r.fail("minors %q do not ascend", s)
		}
		ranges = append(ranges, span)
	}
	return ranges
}

// parseMinor reads a bare minor.
func (r row) parseMinor(s string) Minor {
	n, err := strconv.Atoi(s)
	if err != nil || !Minor(n).Known() {
		r.fail("%q is not a minor from %d to %d", s, Oldest, Newest)
	}
	return Minor(n)
}

// during is a value that holds in some minors.
type during[T any] struct {
	minors Ranges
	value  T
}

// at finds the value that holds at a minor.
func at[T any](spans []during[T], m Minor) (T, bool) {
	for _, span := range spans {
		if span.minors.Has(m) {
			return span.value, true
		}
	}
	var none T
	return none, false
}

// timeline reads a column of blank-separated "minors=value" words whose minors do not overlap.
func timeline[T any](r row, column int, parse func(string) T) []during[T] {
	words := r.words(column)
	spans := make([]during[T], 0, len(words))
	for _, word := range words {
		minors, value, ok := strings.Cut(word, "=")
		if !ok {
			r.fail("%q: want minors=value", word)
		}
		span := during[T]{minors: r.parseRanges(minors), value: parse(value)}
		for _, earlier := range spans {
			if overlap(earlier.minors, span.minors) {
				r.fail("%q: a minor has two values", word)
			}
		}
		spans = append(spans, span)
	}
	return spans
}

func overlap(a, b Ranges) bool {
	for _, x := range a {
		for _, y := range b {
			if x.From <= y.To && y.From <= x.To {
				return true
			}
		}
	}
	return false
}

// verbatim keeps a value of a timeline as it is written.
func verbatim(s string) string { return s }

// remembered computes the value of each key once. What it returns is shared: callers that hand a part of it out copy
// that.
func remembered[K comparable, V any](compute func(K) V) func(K) V {
	var known sync.Map
	return func(key K) V {
		if value, ok := known.Load(key); ok {
			return value.(V)
		}
		value, _ := known.LoadOrStore(key, compute(key))
		return value.(V)
	}
}
