// Package files keeps the state of a move on the disk: its plan, its journal, and the backup of every key that it
// moves.
//
// The files are JSON lines, and only their owner may read them. Plans and backups end with a line that holds the
// SHA-256 of everything before it: a truncated or changed file is detected, and a plan has an identity.
package files

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// mode is that of the backup: it holds the values of Secrets.
const mode = 0o600

// BackupOf is the name of the backup beside the plan.
func BackupOf(plan string) string { return plan + ".backup" }

// ErrOtherBackup is wrapped when a backup belongs to another plan.
var ErrOtherBackup = errors.New("is not the backup of this plan")

// planEnd is the last line of a plan.
type planEnd struct {
	move.Header
	Moves  int64  `json:"moves"`
	SHA256 string `json:"sha256,omitempty"` // of the moves and of this line without it
}

// sum is the hash of a plan, given that of its moves.
func (e planEnd) sum(moves hash.Hash) (string, error) {
	e.SHA256 = ""
	line, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	moves.Write(line)
	return hex.EncodeToString(moves.Sum(nil)), nil
}

// WritePlan writes the moves that plan emits, and the header that it returns, whole or not at all.
// Errors: those of journal.WritePlan, and of plan, as they are.
func WritePlan(file string, plan func(emit func(move.Move) error) (move.Header, error)) error {
	return journal.WritePlan(file, func(w *bufio.Writer) error {
		sum := sha256.New()
		encoder := json.NewEncoder(io.MultiWriter(w, sum))
		end := planEnd{}
		header, err := plan(func(m move.Move) error {
			end.Moves++
			return encoder.Encode(m)
		})
		if err != nil {
			return err
		}
		end.Header = header
		if end.SHA256, err = end.sum(sum); err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(end)
	})
}

// ReadPlan checks a plan file once, calls visit with every move, and returns it for reading as often as needed, and how
// many moves it has. The prefix is that of the stores' keys.
// Errors: a file that is no plan, was changed, or is of another prefix.
func ReadPlan(file, prefix string, visit func(move.Move)) (move.Plan, int64, error) {
	var end planEnd
	moves, sum := int64(0), sha256.New()
	for line, err := range lines(file) {
		if err != nil {
			return move.Plan{}, 0, err
		}
		if end.Schema != "" {
			return move.Plan{}, 0, fmt.Errorf("%s: trailing data", file)
		}
		var m move.Move
		if err := json.Unmarshal(line, &m); err == nil && m.Key != "" {
			visit(m)
			moves++
			sum.Write(line)
			continue
		}
		if err := json.Unmarshal(line, &end); err != nil {
			return move.Plan{}, 0, fmt.Errorf("%s:%d: %w", file, moves+1, err)
		}
	}
	id, err := end.sum(sum)
	switch {
	case err != nil:
		return move.Plan{}, 0, err
	case end.Schema != move.Schema || end.Moves != moves:
		return move.Plan{}, 0, fmt.Errorf("%s: is no plan, or is cut off", file)
	case end.SHA256 != id:
		return move.Plan{}, 0, fmt.Errorf("%s: was changed after it was written; --resource makes a plan for a part",
			file)
	case end.Prefix != storage.NormalPrefix(prefix):
		return move.Plan{}, 0, fmt.Errorf("%s: was made for the prefix %q, the spec has %q", file, end.Prefix, prefix)
	}
	return move.Plan{Header: end.Header, ID: id, Moves: func() iter.Seq2[move.Move, error] {
		return func(yield func(move.Move, error) bool) {
			n, again := int64(0), sha256.New()
			for line, err := range lines(file) {
				var m move.Move
				if err == nil && n < moves {
					again.Write(line)
					err = json.Unmarshal(line, &m)
				}
				if n++; n > moves {
					break
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
			if now, err := end.sum(again); err != nil || now != id {
				yield(move.Move{}, fmt.Errorf("%s: was changed while it was read", file))
			}
		}
	}}, moves, nil
}

// lines reads the lines of a file, with their ends, as often as it is called. A line is valid until the next one.
func lines(file string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := journal.OpenPlan(file)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		r := bufio.NewReaderSize(f, 1<<16)
		var long []byte
		for {
			line, err := r.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				long = append(long, line...)
				continue
			}
			if len(long) > 0 {
				long = append(long, line...)
				line = long
			}
			if err != nil && err != io.EOF {
				yield(nil, fmt.Errorf("reading %s: %w", file, err))
				return
			}
			if len(line) > 0 && !yield(line, nil) || err != nil {
				return
			}
			long = long[:0]
		}
	}
}

// Files are the journal and the backup of a move.
type Files struct {
	journal *journal.Journal[move.Record]
	backup  string
	plan    string // its id
}

// backupEdge is the first or the last line of a backup, around those that hold a key each.
type backupEdge struct {
	Schema string `json:"schema,omitempty"` // fusionctl/etcd-move-backup/v1
	Plan   string `json:"plan,omitempty"`
	Keys   *int64 `json:"keys,omitempty"` // in the last line
	SHA256 string `json:"sha256,omitempty"`
}

const backupSchema = "fusionctl/etcd-move-backup/v1"

// Open opens the journal of a plan, or begins one. The backup need not be there yet.
// Errors: those of journal.Open.
func Open(journalFile, backup, planID string) (*Files, error) {
	j, err := journal.Open[move.Record](journalFile, planID)
	if err != nil {
		return nil, err
	}
	return &Files{journal: j, backup: backup, plan: planID}, nil
}

// Close releases the journal to other processes.
func (f *Files) Close() error { return f.journal.Close() }

// Run identifies the runs of this journal.
func (f *Files) Run() string { return f.journal.Run() }

// Journal returns the records of earlier runs.
func (f *Files) Journal() ([]move.Record, error) {
	for i, r := range f.journal.Records() {
		if r.Step == "" {
			return nil, fmt.Errorf("%s: line %d: is no record", f.journal.Name(), i+2)
		}
	}
	return f.journal.Records(), nil
}

// Append adds a record to the journal, and returns when it is on the disk.
func (f *Files) Append(r move.Record) error { return f.journal.Append(r) }

// Saved reports whether there is a backup of this plan. It is renamed into its place whole.
func (f *Files) Saved() (bool, error) {
	for line, err := range lines(f.backup) {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err == nil {
			err = f.start(line)
		}
		return err == nil, err
	}
	return false, fmt.Errorf("%s: is empty", f.backup)
}

// start checks the first line of the backup.
func (f *Files) start(line []byte) error {
	var start backupEdge
	if json.Unmarshal(line, &start) != nil || start.Schema != backupSchema || start.Plan != f.plan {
		return fmt.Errorf("%s: %w", f.backup, ErrOtherBackup)
	}
	return nil
}

// SaveBackup writes the keys, whole or not at all, and returns when they are on the disk.
func (f *Files) SaveBackup(keys iter.Seq2[move.SavedKey, error]) error {
	return filetree.Replace(f.backup, mode, func(w *bufio.Writer) error {
		sum := sha256.New()
		encoder := json.NewEncoder(io.MultiWriter(w, sum))
		if err := encoder.Encode(backupEdge{Schema: backupSchema, Plan: f.plan}); err != nil {
			return err
		}
		n := int64(0)
		for key, err := range keys {
			if err == nil {
				err = encoder.Encode(key)
			}
			if err != nil {
				return err
			}
			n++
		}
		return json.NewEncoder(w).Encode(backupEdge{Keys: &n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	})
}

// Backup reads the keys back. When it comes to the end, it has made sure that they are what was written.
func (f *Files) Backup() iter.Seq2[move.SavedKey, error] {
	return func(yield func(move.SavedKey, error) bool) {
		n, sum, ended := int64(-1), sha256.New(), false
		for line, err := range lines(f.backup) {
			var key move.SavedKey
			switch {
			case err != nil:
			case ended:
				err = fmt.Errorf("%s: trailing data", f.backup)
			case n < 0:
				if err = f.start(line); err == nil {
					n = 0
					sum.Write(line)
					continue
				}
			case bytes.HasPrefix(line, []byte(`{"keys":`)):
				var end backupEdge
				if err = json.Unmarshal(line, &end); err == nil && end.Keys != nil && *end.Keys == n &&
					end.SHA256 == hex.EncodeToString(sum.Sum(nil)) {
					ended = true
					continue
				}
				err = fmt.Errorf("%s: is damaged: what it holds is not what was written", f.backup)
			default:
				if err = json.Unmarshal(line, &key); err != nil {
					err = fmt.Errorf("%s: line %d: %w", f.backup, n+2, err)
				}
				sum.Write(line)
				n++
			}
			if !yield(key, err) || err != nil {
				return
			}
		}
		if !ended {
			yield(move.SavedKey{}, fmt.Errorf("%s: is cut off", f.backup))
		}
	}
}
