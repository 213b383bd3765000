// Package golden compares what a test computed with a txtar file that holds the input and every output, and rewrites
// the outputs under -update (make golden).
package golden

import (
	"bytes"
	"flag"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files with what the tests compute")

// Updating reports whether golden files are to be rewritten; for the tests that have another way to compare them.
func Updating() bool { return *update }

// Cases runs the test once for every txtar file that matches the pattern; finding none is a failure. The sentences that
// WantText takes out of the cases are compared with sentences.txt beside them, when all cases have run.
func Cases(t *testing.T, pattern string, run func(t *testing.T, c *Case)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no golden cases match %q", pattern)
	}
	var texts Texts
	ran := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := &Case{t: t, file: file, archive: archive, seen: map[string]bool{}, texts: &texts}
			run(t, c)
			c.finish()
			ran++
		})
	}
	if ran == len(files) && len(texts.places) > 0 {
		texts.File(t, filepath.Join(filepath.Dir(pattern), "sentences.txt"))
	}
}

// Case is one txtar file: sections that a test reads (inputs) and sections that it compares with (outputs).
type Case struct {
	t       *testing.T
	file    string
	archive *txtar.Archive
	seen    map[string]bool
	dirty   bool
	texts   *Texts
}

// Input returns a section that must exist.
func (c *Case) Input(name string) []byte {
	c.t.Helper()
	data, ok := c.Optional(name)
	if !ok {
		c.t.Fatalf("%s: no section %q", c.file, name)
	}
	return data
}

// Optional returns a section, and whether the file has it.
func (c *Case) Optional(name string) ([]byte, bool) {
	c.seen[name] = true
	for _, f := range c.archive.Files {
		if f.Name == name {
			return f.Data, true
		}
	}
	return nil, false
}

// Sections lists the names of all sections, in order.
func (c *Case) Sections() []string {
	names := make([]string, len(c.archive.Files))
	for i, f := range c.archive.Files {
		names[i] = f.Name
	}
	return names
}

// Want compares the section with what was computed, or rewrites it under -update.
func (c *Case) Want(name string, got []byte) {
	c.t.Helper()
	want, ok := c.Optional(name)
	if len(got) > 0 && got[len(got)-1] != '\n' {
		got = append(slices.Clone(got), '\n') // txtar ends every section with a line break
	}
	if ok && bytes.Equal(want, got) {
		return
	}
	if !*update {
		c.t.Errorf("%s: section %q differs (-want +got), make golden rewrites it:\n%s", c.file, name,
			cmp.Diff(string(want), string(got)))
		return
	}
	c.dirty = true
	for i, f := range c.archive.Files {
		if f.Name == name {
			c.archive.Files[i].Data = got
			return
		}
	}
	c.archive.Files = append(c.archive.Files, txtar.File{Name: name, Data: got})
}

// WantText is Want for a text whose sentences other cases have too: the section has a mark for each, and what they say
// is compared once for all cases.
func (c *Case) WantText(name string, got []byte, form Form) {
	c.t.Helper()
	c.Want(name, form(got, func(text, place string) { c.Text(text, path.Base(name)+", "+place) }))
}

// Text is a sentence that other cases have too.
func (c *Case) Text(text, place string) {
	c.texts.Add(text, place, strings.TrimSuffix(filepath.Base(c.file), ".txtar"))
}

// finish refuses unread sections, and writes the file back when it changed.
func (c *Case) finish() {
	for _, f := range c.archive.Files {
		if !c.seen[f.Name] && !c.t.Failed() {
			c.t.Errorf("%s: section %q is used by nothing", c.file, f.Name)
		}
	}
	if c.dirty && !c.t.Failed() {
		if err := os.WriteFile(c.file, txtar.Format(c.archive), 0o644); err != nil {
			c.t.Error(err)
		}
	}
}

// File compares a whole file with what was computed, or rewrites it under -update.
func File(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; make golden writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got), make golden rewrites it:\n%s", file, diff)
	}
}
