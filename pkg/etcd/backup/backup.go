// Package backup saves the stores of a control plane into a directory, and verifies what it saved.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/restore"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
)

// Source is what is saved, and what it is verified by. It holds no secret: certificates are named by their paths.
type Source struct {
	Stores []plan.Store         `json:"stores"`
	Map    pair.Map             `json:"map"`
	Accept []finding.Acceptance `json:"accept,omitempty"`
}

// SourceOf is the source of a plan.
func SourceOf(p *plan.Plan) Source {
	return Source{Stores: p.Stores, Map: p.Ownership(), Accept: p.Accept}
}

// Backup is what was saved at one time: a snapshot of each store. Its stores were saved one after the other.
type Backup struct {
	Name   string    `json:"name"` // of its directory
	At     time.Time `json:"at"`
	Stores []Store   `json:"stores"`
	// Findings counts what etcd check finds in the snapshots; each of them was read to its end.
	Findings finding.Summary `json:"findings"`
}

// Store is the snapshot of one store: the file NAME.db.
type Store struct {
	Name     string `json:"name"`
	Revision int64  `json:"revision"`
	Keys     int64  `json:"keys"`  // below the prefix
	Bytes    int64  `json:"bytes"` // of the file
}

const (
	nameLayout = "20060102T150405Z" // of a backup: its time in UTC
	recordFile = restore.RecordFile // in its directory, which is a backup by that
)

var (
	names    = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z$`)
	partials = regexp.MustCompile(`^\.[0-9]{8}T[0-9]{6}Z\.partial$`)
)

// IsName reports whether a text can be the name of a backup.
func IsName(name string) bool { return names.MatchString(name) }

// partialOf is the name of a backup that is not whole: it is being made, or removed.
func partialOf(name string) string { return "." + name + ".partial" }

// Save saves the stores into a directory of their own below dir, reads what it saved to its end, as etcd check does,
// and removes the oldest backups but keep. The backups that were there stay when the new one is not whole. Errors:
// restore.ErrBusy, wrapped; *local.IncompleteError, where a snapshot cannot be read.
func Save(ctx context.Context, s Source, dir string, keep int, now time.Time) (b *Backup, kept []string, err error) {
	if keep < 1 {
		return nil, nil, fmt.Errorf("%d backups are to be kept: want at least one", keep)
	}
	for _, store := range s.Stores { // a file is named after each
		if !spec.IsLabel(store.Name) {
			return nil, nil, fmt.Errorf("store %q: want a name of lower-case letters, digits and dashes", store.Name)
		}
	}
	// Its owner could exchange what lies there, which is restored one day, and have a lock be a link to another place.
	// The volumes of pods are root's, and of their group.
	if info, err := os.Stat(dir); err == nil && !filetree.Trusted(info) {
		return nil, nil, fmt.Errorf("%s: belongs to another user, who can write there: chown makes it yours", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	release, err := restore.Lock(dir)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	if err := removePartials(dir); err != nil {
		return nil, nil, err
	}
	b = &Backup{Name: now.UTC().Format(nameLayout), At: now.UTC().Truncate(time.Second)}
	if _, err := os.Lstat(filepath.Join(dir, b.Name)); err == nil {
		return nil, nil, fmt.Errorf("backup %s is there: %w", b.Name, fs.ErrExist)
	}
	partial := filepath.Join(dir, partialOf(b.Name))
	if err := os.Mkdir(partial, 0o700); err != nil {
		return nil, nil, err
	}
	if err := b.fill(ctx, s, partial); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, filepath.Join(dir, b.Name)); err != nil {
		return nil, nil, err
	}
	if err := filetree.Sync(dir); err != nil {
		return nil, nil, err
	}
	kept, err = prune(dir, keep, b)
	return b, kept, err
}

// fill saves and verifies, and writes the record.
func (b *Backup) fill(ctx context.Context, s Source, partial string) error {
	for i := range s.Stores {
		if err := local.Save(ctx, &s.Stores[i], partial); err != nil {
			return err
		}
	}
	var err error
	if b.Stores, b.Findings, err = verify(ctx, s, partial); err != nil {
		return err
	}
	r := record{Backup: b, SHA256: map[string]string{}}
	for _, store := range b.Stores {
		file := snapshotIn(partial, store.Name)
		if r.SHA256[filepath.Base(file)], err = restore.Digest(ctx, file); err != nil {
			return err
		}
	}
	record, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return filetree.WriteFile(filepath.Join(partial, recordFile), append(record, '\n'), 0o600)
}

// verify reads every snapshot to its end, and compares what is in it with the ownership map.
func verify(ctx context.Context, s Source, dir string) (list []Store, summary finding.Summary, err error) {
	var stores []etcdv3.Store
	for _, store := range s.Stores {
		name := snapshotIn(dir, store.Name)
		file, err := snapshot.Open(name)
		if err != nil {
			return nil, summary, fmt.Errorf("store %s: %w", store.Name, err)
		}
		defer file.Close()
		info, err := os.Stat(name)
		if err != nil {
			return nil, summary, err
		}
		list = append(list, Store{Name: store.Name, Bytes: info.Size()})
		stores = append(stores, etcdv3.Store{Store: etcd.Store{Name: store.Name, Walker: file}})
	}
	report, err := etcdv3.Scan(ctx, &s.Map, stores,
		scan.Options{Depth: scan.DepthEnvelope, Parallel: 1, Fields: &objects.Finder{}})
	if err != nil {
		return nil, summary, err
	}
	if !report.Complete {
		return nil, summary, &local.IncompleteError{Incomplete: report.Incomplete, Cause: report.Cause}
	}
	for i := range list {
		at := slices.IndexFunc(report.Stores, func(r scan.StoreReport) bool { return r.Name == list[i].Name })
		if at < 0 {
			return nil, summary, fmt.Errorf("store %s: was not read", list[i].Name)
		}
		list[i].Revision, list[i].Keys = report.Stores[at].Revision, report.Stores[at].Keys
	}
	judged, _ := finding.Accept(report.Findings, s.Accept)
	return list, finding.Summarize(judged.Findings), nil
}

func snapshotIn(dir, store string) string { return filepath.Join(dir, store+".db") }

// removePartials removes what a process left that was killed.
func removePartials(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && partials.MatchString(e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// List names the backups of a directory, the newest one first.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if !e.IsDir() || !IsName(e.Name()) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, e.Name(), recordFile)); err == nil {
			list = append(list, e.Name())
		}
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(b, a) })
	return list, nil
}

// prune removes the oldest backups. One that is removed halfway is none. Those of a time to come, of a clock that was
// ahead, do not count, and stay: one that is made since would be older than they are, and go at once. So do those of
// which a store has lost much since, or of which that is not known: they may be all that is left of it.
func prune(dir string, keep int, newest *Backup) (kept []string, err error) {
	all, err := List(dir)
	if err != nil {
		return nil, err
	}
	keep += max(slices.Index(all, newest.Name), 0)
	kept = slices.Clone(all)
	for _, name := range slices.Backward(all) {
		if len(kept) <= keep {
			break
		}
		if old, err := read(filepath.Join(dir, name)); err != nil || newest.lacks(old) {
			keep++ // beside the others
			continue
		}
		partial := filepath.Join(dir, partialOf(name))
		if err := os.Rename(filepath.Join(dir, name), partial); err != nil {
			return kept, err
		}
		kept = slices.DeleteFunc(kept, func(k string) bool { return k == name })
		if err := os.RemoveAll(partial); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// read is the record of a backup.
func read(directory string) (*Backup, error) {
	const limitBytes = 1 << 20 // far above what a record of all stores has
	name := filepath.Join(directory, recordFile)
	text, err := filetree.ReadFile(name, limitBytes)
	if err != nil {
		return nil, err
	}
	b := &Backup{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// lostMost is how many times as many keys a store had that has lost most of them.
const lostMost = 10

// lacks reports whether a store has lost what another backup has: it is at an older revision, or most of its keys are
// gone. It was exchanged, or emptied.
func (b *Backup) lacks(old *Backup) bool {
	return slices.ContainsFunc(old.Stores, func(was Store) bool {
		at := slices.IndexFunc(b.Stores, func(is Store) bool { return is.Name == was.Name })
		return at >= 0 && (b.Stores[at].Revision < was.Revision || b.Stores[at].Keys < was.Keys/lostMost)
	})
}

// Result is what fusionctl etcd backup prints, and what a pod tells by its end.
type Result struct {
	Schema  string `json:"schema"`
	*Backup        // nil where none was made
	// Kept names the backups that are there, the newest one first.
	Kept  []string `json:"kept,omitempty"`
	Error string   `json:"error,omitempty"`
}

// Schema of a Result.
const Schema = "fusionctl/etcd-backup/v1"

// mostErrorBytes bounds an error of a Result: a pod tells 4096 bytes.
const mostErrorBytes = 1024

// NewResult is the result of Save.
func NewResult(b *Backup, kept []string, err error) *Result {
	r := &Result{Schema: Schema, Backup: b, Kept: kept}
	if err != nil {
		text := err.Error()
		if len(text) > mostErrorBytes {
			text = strings.ToValidUTF8(text[:mostErrorBytes], "") + " ..."
		}
		r.Error = text
	}
	return r
}
