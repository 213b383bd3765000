// Package statedir keeps what a witness remembers in a directory, outside of the stores that it is about. The process
// that watches the stores writes one file; a person's acknowledgement is another. Both are written as a whole, and
// their owner's alone.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// The files of the directory.
const (
	memoryFile          = "witness.json"
	acknowledgementFile = "acknowledged.json"
)

const (
	mode = 0o600
	// limitBytes is many times what a memory needs.
	limitBytes = 1 << 20
)

// Directory is where the files lie.
type Directory struct{ path string }

// Open makes the directory when it is missing. Errors: one that is a link, belongs to another user, or that other users
// can write to: who can put a memory or an acknowledgement there decides what is deleted.
func Open(path string) (*Directory, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s: is a link, which may lead elsewhere the next time: name the directory itself", path)
	}
	if err := filetree.Private(path); err != nil {
		return nil, err
	}
	return &Directory{path}, nil
}

// Load reads what is remembered; nil when nothing is.
// Errors: a file that cannot be read, or that is no memory.
func (d *Directory) Load() (*witness.Memory, error) {
	m := &witness.Memory{}
	found, err := d.read(memoryFile, m)
	if err == nil && found && m.Schema != witness.MemorySchema {
		err = fmt.Errorf("%s: schema %q: want %q", d.file(memoryFile), m.Schema, witness.MemorySchema)
	}
	if err != nil || !found {
		return nil, err
	}
	return m, nil
}

// Save replaces what is remembered.
func (d *Directory) Save(m *witness.Memory) error {
	m.Schema = witness.MemorySchema
	return d.write(memoryFile, m)
}

// Acknowledged reads the last word of a person; nil when there is none.
// Errors: a file that cannot be read, or that is none.
func (d *Directory) Acknowledged() (*witness.Acknowledgement, error) {
	a := &witness.Acknowledgement{}
	found, err := d.read(acknowledgementFile, a)
	if err == nil && found && a.Schema != witness.AcknowledgementSchema {
		err = fmt.Errorf("%s: schema %q: want %q", d.file(acknowledgementFile), a.Schema, witness.AcknowledgementSchema)
	}
	if err != nil || !found {
		return nil, err
	}
	return a, nil
}

// Acknowledge leaves a person's word.
func (d *Directory) Acknowledge(a witness.Acknowledgement) error {
	a.Schema = witness.AcknowledgementSchema
	return d.write(acknowledgementFile, &a)
}

func (d *Directory) file(name string) string { return filepath.Join(d.path, name) }

func (d *Directory) read(name string, into any) (found bool, err error) {
	file, err := os.Open(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limitBytes))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", d.file(name), err)
	}
	return true, nil
}

func (d *Directory) write(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return filetree.WriteFile(d.file(name), append(data, '\n'), mode)
}
