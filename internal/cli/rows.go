package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/internal/visible"
)

// rowWriter prints rows as they come, so that an answer of any length needs no more memory than one row, or some of a
// table.
type rowWriter interface {
	// row prints one row: the value in JSON, the cells in a table, below the header that the first row brings.
	row(value any, header, cells []string) error
	// close ends the rows. In JSON the fields of the tail, which may be nil, follow them.
	close(tail any) error
}

// incomplete is the tail of an answer that ends early.
type incomplete struct {
	Incomplete string `json:"incomplete"` // why
}

// jsonRows prints an object: the fields of a head, an array of rows, the fields of a tail.
type jsonRows struct {
	w     io.Writer
	head  any
	array string
	count int
	err   error
}

func newJSONRows(w io.Writer, head any, array string) *jsonRows {
	return &jsonRows{w: w, head: head, array: array}
}

func (r *jsonRows) print(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format, args...)
	}
}

func (r *jsonRows) row(value any, _, _ []string) error {
	text, err := indented(value, "    ")
	if err != nil {
		return err
	}
	if r.count == 0 {
		r.printHead()
	} else {
		r.print(",")
	}
	r.count++
	r.print("\n    %s", text)
	return r.err
}

func (r *jsonRows) printHead() {
	fields, err := indented(r.head, "")
	if err != nil {
		r.err = err
		return
	}
	r.print("%s,\n  %q: [", strings.TrimSuffix(fields, "\n}"), r.array)
}

func (r *jsonRows) close(tail any) error {
	if r.count == 0 {
		r.printHead()
		r.print("]")
	} else {
		r.print("\n  ]")
	}
	if tail != nil {
		fields, err := indented(tail, "")
		if err != nil {
			return err
		}
		if fields != "{}" {
			r.print(",%s", strings.TrimPrefix(strings.TrimSuffix(fields, "\n}"), "{"))
		}
	}
	r.print("\n}\n")
	return r.err
}

// newDocumentRows prints rows of a document in a format that has one, JSON or YAML.
func newDocumentRows(w io.Writer, format string, head any, array string) rowWriter {
	if format == "yaml" {
		return &yamlRows{w: w, head: head, array: array}
	}
	return newJSONRows(w, head, array)
}

// yamlRows prints what jsonRows does, as YAML.
type yamlRows struct {
	w     io.Writer
	head  any
	array string
	count int
}

func (r *yamlRows) row(value any, _, _ []string) error {
	if r.count == 0 {
		if err := r.begin(":\n"); err != nil {
			return err
		}
	}
	r.count++
	return printYAML(r.w, []any{value})
}

// begin prints the fields of the head and the name of the array.
func (r *yamlRows) begin(array string) error {
	if err := printYAML(r.w, r.head); err != nil {
		return err
	}
	_, err := io.WriteString(r.w, r.array+array)
	return err
}

func (r *yamlRows) close(tail any) error {
	if r.count == 0 {
		if err := r.begin(": []\n"); err != nil {
			return err
		}
	}
	if text, err := indented(tail, ""); err != nil || text == "{}" || text == "null" {
		return err
	}
	return printYAML(r.w, tail)
}

// indented is a value as printJSON prints it, without the line break at the end.
func indented(value any, prefix string) (string, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent(prefix, "  ")
	err := encoder.Encode(value)
	return strings.TrimSuffix(buf.String(), "\n"), err
}

// tableRows aligns its columns over some rows at a time.
type tableRows struct {
	table *table
	count int
}

// alignedRows is how many rows of a table are aligned together.
const alignedRows = 1000

func newTableRows(w io.Writer) *tableRows {
	return &tableRows{table: newTable(w)}
}

func (r *tableRows) row(_ any, header, cells []string) error {
	if r.count == 0 {
		fmt.Fprintln(r.table, strings.Join(header, "\t"))
	}
	r.count++
	_, err := visible.Fprintln(r.table, joined(cells))
	if r.count%alignedRows == 0 {
		err = r.table.Flush()
	}
	return err
}

// lined are cells of which each stays in its line and in its column.
func lined(cells []string) []string {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		shown[i] = visible.Line(cell)
	}
	return shown
}

func joined(cells []string) string { return strings.Join(lined(cells), "\t") }

func (r *tableRows) close(any) error { return r.table.Flush() }

// abort ends rows after an error. When none was printed, none will be.
func abort(rows rowWriter, printed bool, err error) error {
	if printed {
		return errors.Join(err, rows.close(incomplete{err.Error()}))
	}
	return err
}

// csvRows prints comma-separated values.
type csvRows struct {
	w     *csv.Writer
	count int
}

func newCSVRows(w io.Writer) *csvRows { return &csvRows{w: csv.NewWriter(w)} }

func (r *csvRows) row(_ any, header, cells []string) error {
	if r.count == 0 {
		if err := r.w.Write(header); err != nil {
			return err
		}
	}
	r.count++
	return r.w.Write(inert(lined(cells)))
}

// inert keeps spreadsheets from taking a cell for a formula: one that begins as a formula does gets an apostrophe, by
// which they know text.
func inert(cells []string) []string {
	kept := slices.Clone(cells)
	for i, cell := range kept {
		if _, err := strconv.ParseFloat(cell, 64); err == nil || len(cell) < 2 {
			continue
		}
		if strings.ContainsRune("=+-@\t\r|%＝＋－＠", []rune(cell)[0]) {
			kept[i] = "'" + cell
		}
	}
	return kept
}

func (r *csvRows) close(any) error {
	r.w.Flush()
	return r.w.Error()
}

// markdownRows prints a table as Markdown does.
type markdownRows struct {
	w     io.Writer
	count int
}

func (r *markdownRows) row(_ any, header, cells []string) error {
	if r.count == 0 {
		visible.Fprintf(r.w, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	}
	r.count++
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = visible.Markdown(cell)
	}
	_, err := visible.Fprintf(r.w, "| %s |\n", strings.Join(escaped, " | "))
	return err
}

func (r *markdownRows) close(any) error { return nil }
