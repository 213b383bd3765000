package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/internal/yamltext"
)

// printJSON writes the value as indented JSON with a line break at the end.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// printYAML writes the value as YAML with the field names of its JSON.
func printYAML(w io.Writer, value any) error {
	text, err := yamltext.Marshal(value)
	if err == nil && visible.Text(string(text)) != string(text) {
		text, err = quotedYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// quotedYAML puts into double quotes what the stream will show by an escape, which has a meaning only there.
func quotedYAML(text []byte) ([]byte, error) {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	var quote func(n *yamlv3.Node)
	quote = func(n *yamlv3.Node) {
		if n.Kind == yamlv3.ScalarNode && visible.Text(n.Value) != n.Value {
			n.Style = yamlv3.DoubleQuotedStyle
		}
		for _, child := range n.Content {
			quote(child)
		}
	}
	quote(&document)
	var out bytes.Buffer
	encoder := yamlv3.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(&document)
	return out.Bytes(), err
}

// asData is where objects and values go that must stay what they are: past what makes characters visible, unless people
// look.
func asData(w io.Writer) io.Writer {
	if shown, ok := w.(*visible.Writer); ok && !isTerminal(w) {
		return shown.Unwrap()
	}
	return w
}

// printDocument writes the document where the format is JSON or YAML, and reports whether it is: a table, for people,
// is each verb's own.
func printDocument(w io.Writer, format string, document any) (printed bool, err error) {
	switch format {
	case "json":
		return true, printJSON(w, document)
	case "yaml":
		return true, printYAML(w, document)
	}
	return false, nil
}

// printTable writes rows with aligned columns, as wide as the terminal at most; cells are separated by tabs.
func printTable(w io.Writer, write func(table io.Writer)) error {
	table := newTable(w)
	write(table)
	return table.Flush()
}

// writeNew writes to standard output for "-", otherwise to a file that must not exist yet.
func writeNew(file string, text []byte, mode fs.FileMode, streams Streams) error {
	if file == "-" {
		_, err := asData(streams.Out).Write(text)
		return err
	}
	switch _, err := os.Lstat(file); {
	case err == nil:
		return badInput(fmt.Errorf("%s: exists already", file), "use another name for -o, or move the file away")
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return filetree.WriteFile(file, text, mode)
}

// printDocuments prints YAML documents.
func printDocuments(out io.Writer, documents []map[string]any) error {
	for _, document := range documents {
		if _, err := visible.Fprintln(out, "---"); err != nil {
			return err
		}
		if err := printYAML(out, document); err != nil {
			return err
		}
	}
	return nil
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cells joins the cells of a line; an empty one shows as a dash.
func cells(cells ...string) string {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	return joined(cells)
}

// lines are the rows as text.
func lines[T any](rows []T, line func(T) string) []string {
	var lines []string
	for _, row := range rows {
		lines = append(lines, line(row))
	}
	return lines
}

// isTerminal reports whether people look at the stream.
func isTerminal(stream any) bool {
	if shown, ok := stream.(*visible.Writer); ok {
		stream = shown.Unwrap()
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
