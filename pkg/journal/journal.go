// Package journal keeps what a run must remember that may be killed at any moment: how far it carried out a plan.
//
// A journal is a file of JSON lines. The first one names the plan that the journal belongs to, every other is a record.
// A record is on the disk when Append returns, so a run appends what it is about to do, does it, and appends that it is
// done. After a crash the next run opens the journal, reads how far the one before came, and goes on or goes back.
package journal

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/kubefusion/fusionctl/internal/filetree"
)

var (
	// ErrLocked is wrapped when another process has the journal open.
	ErrLocked = errors.New("is in use by another process")
	// ErrOtherPlan is wrapped when the journal belongs to another plan.
	ErrOtherPlan = errors.New("is the journal of another plan")
	// ErrBegun is wrapped when a plan would replace one that was begun.
	ErrBegun = errors.New("was begun")
)

// Of is the name of the journal beside a plan.
func Of(plan string) string { return plan + ".journal" }

// WritePlan writes a plan, whole or not at all, for its owner alone. A plan that was begun stays: its journal is bound
// to its text, and without it there is no way on and none back. A journal with a name of its own is not looked for.
// Errors: ErrBegun, wrapped; those of write, as they are; what the file system says.
func WritePlan(file string, write func(*bufio.Writer) error) error {
	if _, err := os.Lstat(Of(file)); err == nil {
		return fmt.Errorf("%s: %w, as %s says: undo and a second apply need it", file, ErrBegun, Of(file))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return filetree.Replace(file, mode, write)
}

// Journal is an open journal with records of one type. While it is open no other process can open it; the system drops
// the lock with the process, however that ends. It is not safe for concurrent use.
type Journal[T any] struct {
	file    *os.File
	head    head
	records []T
	broken  error // of the first Append that failed
}

// head is the first line.
type head struct {
	Plan string `json:"plan"`
	Run  string `json:"run"`
}

// ID is the identity of a plan that has no other: the SHA-256 of its text.
func ID(plan []byte) string {
	sum := sha256.Sum256(plan)
	return hex.EncodeToString(sum[:])
}

// Open opens the journal of a plan, or begins one. A last line without an end was being written when a run was killed:
// it is taken off. The file is its owner's alone, and no link; what is no journal of the plan stays as it is. Errors:
// ErrLocked and ErrOtherPlan, wrapped; *fs.PathError for a file that cannot be opened; a line that is no record.
func Open[T any](name, plan string) (*Journal[T], error) {
	locked, err := fileutil.TryLockFile(name, os.O_RDWR|os.O_CREATE|filetree.NoFollow, mode)
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return nil, fmt.Errorf("%s: %w", name, ErrLocked)
	case err != nil:
		return nil, fmt.Errorf("locking %s: %w", name, err)
	}
	j := &Journal[T]{file: locked.File}
	if err := j.recover(name, plan); err != nil {
		return nil, errors.Join(err, locked.Close())
	}
	return j, nil
}

// Read reads the records of a plan's journal, and leaves the file as it is: another process may have it open, and be
// in the midst of a record, which is then not among them. Errors: fs.ErrNotExist, wrapped, where no run was begun;
// ErrOtherPlan, wrapped; what the file system says; a line that is no record.
func Read[T any](name, plan string) ([]T, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|filetree.NoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, _, err := wholeLines(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(lines) == 0 {
		return nil, nil
	}
	_, records, err := read[T](name, lines, plan)
	return records, err
}

// wholeLines reads the lines that have an end, and what follows them.
func wholeLines(file *os.File) (lines [][]byte, torn []byte, err error) {
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, errors.New("is no regular file")
	case !filetree.Ours(info):
		return nil, nil, errors.New("belongs to another user, who can read and change it")
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, nil, err
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	return slices.Collect(bytes.Lines(data[:end])), data[end:], nil
}

// mode is that of the file: records may say what Secrets hold.
const mode = 0o600

// recover reads the whole lines and cuts off what follows them, once it is known whose they are.
func (j *Journal[T]) recover(name, plan string) error {
	lines, torn, err := wholeLines(j.file)
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", name, err)
	case len(lines) > 0:
		j.head, j.records, err = read[T](name, lines, plan)
	case !startsHead(torn, plan):
		err = fmt.Errorf("%s: %w, or no journal", name, ErrOtherPlan)
	}
	if err != nil {
		return err
	}
	if err := j.file.Chmod(mode); err != nil { // whatever the umask, and whichever process created it
		return fmt.Errorf("reading %s: %w", name, err)
	}
	var sizeBytes int64
	for _, line := range lines {
		sizeBytes += int64(len(line))
	}
	if err := j.file.Truncate(sizeBytes); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if _, err := j.file.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if len(lines) == 0 {
		return j.begin(plan)
	}
	return nil
}

// startsHead reports whether the text could be what reached the disk of the plan's first line.
func startsHead(text []byte, plan string) bool {
	text = bytes.TrimRight(text, "\x00") // a file system may have made room before it lost the text
	line, err := json.Marshal(head{Plan: plan})
	line = bytes.TrimSuffix(line, []byte(`"}`)) // the run follows, of letters and digits
	n := min(len(text), len(line))
	return err == nil && bytes.Equal(text[:n], line[:n]) && len(text) <= len(line)+len(rand.Text())+len(`"}`)
}

// begin writes the head of a new journal, which is there after a power failure.
func (j *Journal[T]) begin(plan string) error {
	j.head = head{Plan: plan, Run: rand.Text()}
	if err := j.write(j.head); err != nil {
		return err
	}
	if err := filetree.Sync(filepath.Dir(j.file.Name())); err != nil {
		return fmt.Errorf("creating %s: %w", j.file.Name(), err)
	}
	return nil
}

// read reads the head and the records.
func read[T any](name string, lines [][]byte, plan string) (h head, records []T, err error) {
	if err := json.Unmarshal(lines[0], &h); err != nil {
		return h, nil, fmt.Errorf("reading %s: line 1: %w", name, err)
	}
	if h.Plan != plan || h.Run == "" {
		return h, nil, fmt.Errorf("%s: %w", name, ErrOtherPlan)
	}
	for i, line := range lines[1:] {
		var r T
		if err := json.Unmarshal(line, &r); err != nil {
			return h, nil, fmt.Errorf("reading %s: line %d: %w", name, i+2, err)
		}
		records = append(records, r)
	}
	return h, records, nil
}

// Close closes the file and drops the lock.
func (j *Journal[T]) Close() error { return j.file.Close() }

// Name is the name of the file.
func (j *Journal[T]) Name() string { return j.file.Name() }

// Run is drawn when a journal is begun: it identifies the runs that go by this journal.
func (j *Journal[T]) Run() string { return j.head.Run }

// Records are those that were there when the journal was opened, and those appended since.
func (j *Journal[T]) Records() []T { return j.records }

// Append adds a record and brings it to the disk. A record of which that failed may or may not be found by the next
// run; what follows it would be behind a torn line, so the journal then takes no more.
func (j *Journal[T]) Append(r T) error {
	if j.broken == nil {
		j.broken = j.inPlace()
	}
	if j.broken != nil {
		return j.broken
	}
	if j.broken = j.write(r); j.broken != nil {
		return j.broken
	}
	j.records = append(j.records, r)
	return nil
}

// inPlace reports whether the open file is still the one of its name: what is written to another is not found by the
// next run.
func (j *Journal[T]) inPlace() error {
	open, err := j.file.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(j.file.Name()); err != nil || !os.SameFile(open, named) {
		return fmt.Errorf("%s: was replaced or removed while it was open", j.file.Name())
	}
	return nil
}

func (j *Journal[T]) write(value any) error {
	line, err := json.Marshal(value)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", j.file.Name(), err)
	}
	return nil
}
