package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// enumFlag adds a flag that takes one of a list of words; the list serves the help text, the check and the shell's
// completion. The first word is the default.
func enumFlag(cmd *cobra.Command, target *string, name, shorthand, usage string, words ...string) {
	*target = words[0]
	cmd.Flags().VarP(&enumValue{target: target, words: words}, name, shorthand, usage+": "+strings.Join(words, ", "))
	err := cmd.RegisterFlagCompletionFunc(
		name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return words, cobra.ShellCompDirectiveNoFileComp
		})
	if err != nil {
		panic("cli: internal error: " + err.Error())
	}
}

type enumValue struct {
	target *string
	words  []string
}

func (v *enumValue) String() string {
	if v.target == nil {
		return ""
	}
	return *v.target
}

func (v *enumValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("want one of %s", strings.Join(v.words, ", "))
	}
	*v.target = s
	return nil
}

func (v *enumValue) Type() string { return "string" }

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

// errorLines are the lines of an error: each of those that it joins begins one, and what follows a line break within
// one is indented, so that no text from elsewhere looks like a line of ours.
func errorLines(err error) []string {
	text := strings.TrimRight(err.Error(), "\n")
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var lines, texts []string
		for _, inner := range e.Unwrap() {
			lines, texts = append(lines, errorLines(inner)...), append(texts, inner.Error())
		}
		if strings.Join(texts, "\n") == err.Error() {
			return lines
		}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil && inner.Error() == err.Error() {
			return errorLines(inner)
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines[1:] {
		if !strings.HasPrefix(line, "  ") {
			lines[i+1] = "  " + line
		}
	}
	return lines
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

// checkStdinOnce refuses files of which several are standard input.
func checkStdinOnce(files []string) error {
	n := 0
	for _, file := range files {
		if file == "-" {
			n++
		}
	}
	if n > 1 {
		return usagef("standard input can be read once, and - is given %d times", n)
	}
	return nil
}

// readInput reads a whole file, or standard input for "-". A file that cannot be read is bad input.
func readInput(streams Streams, file string, limitBytes int64) ([]byte, error) {
	in, err := openInput(streams, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	tooLarge := usagef("%s: larger than %d bytes", file, limitBytes)
	if f, ok := in.(*os.File); ok { // not read to be refused
		if info, err := f.Stat(); err == nil && info.Size() > limitBytes {
			return nil, tooLarge
		}
	}
	data, err := io.ReadAll(io.LimitReader(in, limitBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if int64(len(data)) > limitBytes {
		return nil, tooLarge
	}
	return data, nil
}

// readPlan reads a plan that is carried out with the user's rights: journal.OpenPlan says whose file it may be.
func readPlan(file string, limitBytes int64, hint string) ([]byte, error) {
	in, err := journal.OpenPlan(file)
	if err != nil {
		return nil, badInput(err, hint)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, limitBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", file, err)
	case int64(len(data)) > limitBytes:
		return nil, usagef("%s: larger than %d bytes", file, limitBytes)
	}
	return data, nil
}

// openInput opens a file, or standard input for "-". What is no file, or cannot be opened, is bad input; a named pipe
// would block until a writer opens it.
func openInput(streams Streams, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(streams.In), nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, badInput(err, "")
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, usagef("%s: is a directory, want a file", file)
	case !mode.IsRegular():
		return nil, badInput(fmt.Errorf("%s: is a pipe or a device, want a file", file),
			"- reads standard input, which may be a pipe")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, badInput(err, "")
	}
	return f, nil
}

// inputFiles lists files as they were given, and those of directories that hold manifests, by name.
func inputFiles(names []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, name := range names {
			info, err := os.Stat(name)
			if name == "-" || err != nil || !info.IsDir() {
				if !yield(name, nil) { // opening it says what is wrong
					return
				}
				continue
			}
			found := false
			err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
				hidden := strings.HasPrefix(entry.Name(), ".") && path != name
				switch {
				case err != nil:
					return err
				case hidden && entry.IsDir():
					return fs.SkipDir
				case hidden || entry.IsDir() ||
					!slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
					return nil
				}
				found = true
				if !yield(path, nil) {
					return fs.SkipAll
				}
				return nil
			})
			if err == nil && !found {
				err = fmt.Errorf("%s: no .yaml, .yml or .json file in it", name)
			}
			if err != nil {
				yield(name, badInput(err, ""))
				return
			}
		}
	}
}

// confirm asks on a terminal; elsewhere it wants --yes.
func confirm(streams Streams, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := streams.In.(*os.File)
	if !ok || !isTerminal(in) {
		return usagef("not asked on a terminal: --yes is required")
	}
	visible.Fprintf(streams.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}

// writePlan writes a plan that apply and undo go by.
func writePlan(file string, data []byte) error {
	return planError(journal.WritePlan(file, func(w *bufio.Writer) error { _, err := w.Write(data); return err }))
}

// planError is an error of journal.WritePlan with its way out.
func planError(err error) error {
	if errors.Is(err, journal.ErrBegun) {
		return badInput(err, "give the new plan another name")
	}
	return err
}

// journalError is an error of journal.Open with its way out; other says how to name another journal.
func journalError(err error, other string) error {
	var opening *fs.PathError
	switch {
	case errors.Is(err, journal.ErrLocked):
		return withHint(err, "wait until that one ends, or stop it: the journal records its progress")
	case errors.Is(err, journal.ErrOtherPlan):
		return badInput(err, other)
	case errors.As(err, &opening) && opening.Op == "open":
		return badInput(opening, "")
	}
	return err
}

// parseVersionFlag reads the version that a flag names.
func parseVersionFlag(flag, value string) (kubever.Version, error) {
	version, err := kubever.Parse(value)
	if err != nil {
		return version, badInput(fmt.Errorf("--%s: %w", flag, err), "fusionctl versions lists the known ones")
	}
	return version, nil
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
