package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kubefusion/fusionctl/internal/visible"
)

// tableColumns is to how wide a table its columns are aligned where no terminal says it.
const tableColumns = 160

// table aligns cells that are separated by tabs. On a terminal it breaks those of its widest columns into several lines
// where a row would be wider. Elsewhere a row stays a line, for programs that read lines: a cell that is too wide for
// its column moves those behind it.
type table struct {
	out     io.Writer
	columns int
	breaks  bool
	text    bytes.Buffer
}

func newTable(out io.Writer) *table {
	columns, terminal := columnsOf(out)
	return &table{out: out, columns: columns, breaks: terminal}
}

// columnsOf is the width of a terminal, and tableColumns of everything else.
func columnsOf(out io.Writer) (columns int, terminal bool) {
	if shown, ok := out.(*visible.Writer); ok {
		out = shown.Unwrap()
	}
	if f, ok := out.(*os.File); ok && isTerminal(f) {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns >= minColumns {
			return columns, true
		}
	}
	return tableColumns, false
}

// minColumns is what a terminal has at least: in a narrower one a table could not be read either way.
const minColumns = 40

// Write takes rows as they come; Flush prints them.
func (t *table) Write(p []byte) (int, error) { return t.text.Write(p) }

// Flush prints the rows since the last one.
func (t *table) Flush() error {
	defer t.text.Reset()
	var aligned bytes.Buffer
	plain := tabwriter.NewWriter(&aligned, 0, 0, gapColumns, ' ', 0)
	if _, err := plain.Write(t.text.Bytes()); err != nil {
		return err
	}
	if err := plain.Flush(); err != nil {
		return err
	}
	text := aligned.String()
	if !fits(text, t.columns) {
		text = t.broken()
	}
	_, err := io.WriteString(t.out, text)
	return err
}

func fits(text string, columns int) bool {
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimRight(line, "\n ")) > columns {
			return false
		}
	}
	return true
}

// gapColumns stand between two columns.
const gapColumns = 2

// broken are the rows with cells broken into lines. A line without a tab begins a new table, as it does for tabwriter.
func (t *table) broken() string {
	var out strings.Builder
	var rows [][]string
	end := func() {
		t.rows(&out, rows)
		rows = nil
	}
	for line := range strings.Lines(t.text.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "\t") {
			rows = append(rows, strings.Split(line, "\t"))
			continue
		}
		end()
		if !t.breaks {
			out.WriteString(line + "\n")
			continue
		}
		for i, part := range breakCell(line, t.columns-gapColumns) {
			if i > 0 {
				part = "  " + part
			}
			out.WriteString(part + "\n")
		}
	}
	end()
	return out.String()
}

func (t *table) rows(out *strings.Builder, rows [][]string) {
	widths := t.widths(rows)
	for _, cells := range rows {
		if !t.breaks {
			out.WriteString(wholeRow(cells, widths) + "\n")
			continue
		}
		broken, height := make([][]string, len(cells)), 1
		for i, cell := range cells {
			broken[i] = breakCell(cell, widths[i])
			height = max(height, len(broken[i]))
		}
		for n := range height {
			var line strings.Builder
			for i := range cells {
				part := ""
				if n < len(broken[i]) {
					part = broken[i][n]
				}
				line.WriteString(part)
				if i+1 < len(cells) {
					line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(part)+gapColumns))
				}
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
}

// wholeRow is a row in one line, with its cells where their columns are, or behind a cell that is too wide.
func wholeRow(cells []string, widths []int) string {
	var line strings.Builder
	at, column := 0, 0
	for i, cell := range cells {
		if at < column {
			line.WriteString(strings.Repeat(" ", column-at))
			at = column
		}
		line.WriteString(cell)
		line.WriteString(strings.Repeat(" ", gapColumns))
		at += utf8.RuneCountInString(cell) + gapColumns
		column += widths[i] + gapColumns
	}
	return strings.TrimRight(line.String(), " ")
}

// widths gives every column what it needs, and cuts the widest ones where that is too much.
func (t *table) widths(rows [][]string) []int {
	var needs []int
	for _, cells := range rows {
		for i, cell := range cells {
			if i == len(needs) {
				needs = append(needs, 0)
			}
			needs[i] = max(needs[i], utf8.RuneCountInString(cell))
		}
	}
	available := t.columns - gapColumns*(len(needs)-1)
	limit := available
	for ; limit > 1 && sum(needs, limit) > available; limit-- {
	}
	for i := range needs {
		needs[i] = min(needs[i], limit)
	}
	for i, left := 0, available-sum(needs, limit); i < len(needs) && left > 0; i++ { // what the rounding left
		if needs[i] == limit {
			needs[i]++
			left--
		}
	}
	return needs
}

func sum(needs []int, limit int) int {
	total := 0
	for _, n := range needs {
		total += min(n, limit)
	}
	return total
}

// breakCell breaks a text into lines of a width, after a blank or a comma where there is one, and keeps its
// indentation.
func breakCell(text string, width int) []string {
	indent := len(text) - len(strings.TrimLeft(text, " "))
	if indent*2 > width {
		indent = 0
	}
	margin := strings.Repeat(" ", indent)
	var lines []string
	for rest := []rune(text); ; {
		if len(rest) <= width {
			return append(lines, string(rest))
		}
		at := width
		for i := width; i > indent+(width-indent)/3; i-- {
			if rest[i] == ' ' || strings.ContainsRune(",;", rest[i-1]) {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(margin + strings.TrimLeft(string(rest[at:]), " "))
	}
}
