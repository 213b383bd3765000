package cli

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/move"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// The files of a move are JSON lines. Plans and backups end with a line that holds the SHA-256 of everything before it: a file
// that was cut off or changed is noticed, and a plan has a name that tells it from every other.

// movePlanEnd is the last line of a plan.
type movePlanEnd struct {
	move.Header
	Moves  int64  `json:"moves"`
	SHA256 string `json:"sha256,omitempty"` // of the moves and of this line without it
}

// sum is the hash of a plan, given that of its moves.
func (e movePlanEnd) sum(moves hash.Hash) (string, error) {
	e.SHA256 = ""
	line, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	moves.Write(line)
	return hex.EncodeToString(moves.Sum(nil)), nil
}

func writeMovePlan(file string, make func(emit func(move.Move) error) (move.Header, error)) error {
	if _, err := os.Stat(file + ".journal"); err == nil {
		return badInput(fmt.Errorf("%s: its move was begun, as %s.journal says: undo and a second apply need it", file, file), "give the new plan another name")
	}
	return keepFile(file, func(w *bufio.Writer) error {
		sum := sha256.New()
		encoder := json.NewEncoder(io.MultiWriter(w, sum))
		end := movePlanEnd{}
		header, err := make(func(m move.Move) error {
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

// readMovePlan checks a plan file once, hands every move to visit, and returns it for reading as often as needed.
func readMovePlan(file string, p *plan.Plan, visit func(move.Move)) (move.Plan, int64, error) {
	var end movePlanEnd
	moves, sum := int64(0), sha256.New()
	for line, err := range fileLines(file) {
		if err != nil {
			return move.Plan{}, 0, err
		}
		if end.Schema != "" {
			return move.Plan{}, 0, fmt.Errorf("%s: there is something behind its end", file)
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
		return move.Plan{}, 0, fmt.Errorf("%s: was changed after it was written; --resource makes a plan for a part", file)
	case end.Prefix != etcdsplit.NormalPrefix(p.Prefix):
		return move.Plan{}, 0, fmt.Errorf("%s: was made for the prefix %q, the spec has %q", file, end.Prefix, p.Prefix)
	}
	return move.Plan{Header: end.Header, ID: id, Moves: func() iter.Seq2[move.Move, error] {
		return func(yield func(move.Move, error) bool) {
			n := int64(0)
			for line, err := range fileLines(file) {
				var m move.Move
				if err == nil && n < moves {
					err = json.Unmarshal(line, &m)
				}
				if n++; n > moves || !yield(m, err) || err != nil {
					return
				}
			}
		}
	}}, moves, nil
}

// fileLines reads the lines of a file, with their ends, as often as it is asked. A line is valid until the next one.
func fileLines(file string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := os.Open(file)
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

// keepFile is replaceFile for a file that must be there after a power failure, and that only its owner may read.
func keepFile(file string, write func(*bufio.Writer) error) error {
	if err := replaceFile(file, 0o600, write); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

// syncDir makes a rename, or a new file, last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// moveFiles keeps the journal and the backup of a move on the disk.
type moveFiles struct {
	journal *journalFile[moveRecord]
	backup  string
	plan    string // its id
}

// moveRecord is a line of the journal. The first one says whose it is.
type moveRecord struct {
	*move.Record
	Plan string `json:"plan,omitempty"`
	Run  string `json:"run,omitempty"`
}

// moveBackup is the first or the last line of a backup, around those that hold a key each.
type moveBackup struct {
	Schema string `json:"schema,omitempty"` // fusionctl/etcd-move-backup/v1
	Plan   string `json:"plan,omitempty"`
	Keys   *int64 `json:"keys,omitempty"` // in the last line
	SHA256 string `json:"sha256,omitempty"`
}

const backupSchema = "fusionctl/etcd-move-backup/v1"

// openMoveFiles opens the journal of a plan, or begins one.
func openMoveFiles(journal, backup, planID string) (*moveFiles, error) {
	j, err := openJournal[moveRecord](journal)
	if err != nil {
		return nil, err
	}
	f := &moveFiles{journal: j, backup: backup, plan: planID}
	switch records := j.Records(); {
	case len(records) == 0:
		err = j.Append(moveRecord{Plan: planID, Run: rand.Text()})
	case records[0].Plan != planID || records[0].Run == "":
		err = badInput(fmt.Errorf("%s: is the journal of another plan", journal), "--journal and --backup name other files")
	}
	if err != nil {
		j.close()
		return nil, err
	}
	return f, nil
}

func (f *moveFiles) close() { f.journal.close() }

// run tells the runs that go by this journal from all others.
func (f *moveFiles) run() string { return f.journal.Records()[0].Run }

func (f *moveFiles) Journal() ([]move.Record, error) {
	var records []move.Record
	for i, r := range f.journal.Records()[1:] {
		if r.Record == nil {
			return nil, fmt.Errorf("%s: line %d: is no record", f.journal.file.Name(), i+2)
		}
		records = append(records, *r.Record)
	}
	return records, nil
}

func (f *moveFiles) Append(r move.Record) error { return f.journal.Append(moveRecord{Record: &r}) }

// Saved reports whether there is a backup of this plan. It is renamed into its place whole.
func (f *moveFiles) Saved() (bool, error) {
	for line, err := range fileLines(f.backup) {
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
func (f *moveFiles) start(line []byte) error {
	var start moveBackup
	if json.Unmarshal(line, &start) != nil || start.Schema != backupSchema || start.Plan != f.plan {
		return badInput(fmt.Errorf("%s: is not the backup of this plan", f.backup), "--journal and --backup name other files")
	}
	return nil
}

func (f *moveFiles) SaveBackup(keys iter.Seq2[move.SavedKey, error]) error {
	return keepFile(f.backup, func(w *bufio.Writer) error {
		sum := sha256.New()
		encoder := json.NewEncoder(io.MultiWriter(w, sum))
		if err := encoder.Encode(moveBackup{Schema: backupSchema, Plan: f.plan}); err != nil {
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
		return json.NewEncoder(w).Encode(moveBackup{Keys: &n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	})
}

// Backup reads the keys back. When it comes to the end, it has made sure that they are what was written.
func (f *moveFiles) Backup() iter.Seq2[move.SavedKey, error] {
	return func(yield func(move.SavedKey, error) bool) {
		n, sum, ended := int64(-1), sha256.New(), false
		for line, err := range fileLines(f.backup) {
			var key move.SavedKey
			switch {
			case err != nil:
			case ended:
				err = fmt.Errorf("%s: there is something behind its end", f.backup)
			case n < 0:
				if err = f.start(line); err == nil {
					n = 0
					sum.Write(line)
					continue
				}
			case bytes.HasPrefix(line, []byte(`{"keys":`)):
				var end moveBackup
				if err = json.Unmarshal(line, &end); err == nil && end.Keys != nil && *end.Keys == n && end.SHA256 == hex.EncodeToString(sum.Sum(nil)) {
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
