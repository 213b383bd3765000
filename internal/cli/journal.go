package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// journalFile is a file of records as JSON lines. A record is on the disk when Append returns. Whoever has it open holds a lock on it, which
// the system drops with the process, however that ends.
type journalFile[T any] struct {
	file    *os.File
	records []T
}

// openJournal opens or creates a journal, and takes off a last line that was cut off.
// Errors: another process that goes by the journal has it open; a line is no record.
func openJournal[T any](name string) (*journalFile[T], error) {
	f, err := lockFile(name)
	if err != nil {
		return nil, err
	}
	j := &journalFile[T]{file: f}
	if err := j.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", name, err), f.Close())
	}
	if len(j.records) == 0 { // it may be new
		if err := syncDir(filepath.Dir(name)); err != nil {
			return nil, errors.Join(fmt.Errorf("creating %s: %w", name, err), f.Close())
		}
	}
	return j, nil
}

// lockFile opens or creates a file for this process alone, or refuses at once.
func lockFile(name string) (*os.File, error) {
	f, err := fileutil.TryLockFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	var opening *os.PathError
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return nil, withHint(fmt.Errorf("%s: another process goes by this journal", name), "wait until that one ends, or stop it: the journal knows how far it came")
	case errors.As(err, &opening):
		return nil, badInput(opening, "")
	case err != nil:
		return nil, fmt.Errorf("locking %s: %w", name, err)
	}
	return f.File, nil
}

func (j *journalFile[T]) recover() error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := data[:strings.LastIndexByte(string(data), '\n')+1]
	for i, line := range strings.Split(strings.TrimSuffix(string(whole), "\n"), "\n") {
		if line == "" {
			continue
		}
		var r T
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
		j.records = append(j.records, r)
	}
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		return err
	}
	_, err = j.file.Seek(0, io.SeekEnd)
	return err
}

func (j *journalFile[T]) close() { _ = j.file.Close() } // every record is on the disk already

// Records are those that were there when the journal was opened, and those appended since.
func (j *journalFile[T]) Records() []T { return j.records }

// Append adds a record and brings it to the disk.
func (j *journalFile[T]) Append(r T) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", j.file.Name(), err)
	}
	j.records = append(j.records, r)
	return nil
}
