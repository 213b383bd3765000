package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// journalFile is a file of records as JSON lines. A record is on the disk when Append returns.
type journalFile[T any] struct {
	file    *os.File
	records []T
}

// openJournal opens or creates a journal, and takes off a last line that was cut off.
func openJournal[T any](name string) (*journalFile[T], error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, badInput(err, "")
	}
	j := &journalFile[T]{file: f}
	if err := j.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", name, err), f.Close())
	}
	return j, nil
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
