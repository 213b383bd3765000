package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

const (
	batchKeys  = 100
	batchBytes = 1 << 19
	rounds     = 10
)

// Begin leaves an empty record where there is none, before anything else remembers that the hand-over was begun, and
// returns the Digest of the record. Errors: those of Files; *RefusedError when there should be a record, and is none.
func (j *Job) Begin() (digest string, err error) {
	rec, err := j.load()
	if err == nil && rec == nil {
		rec = newRecord()
		err = j.Files.Save(rec)
	}
	if err != nil {
		return "", err
	}
	return rec.Digest(), nil
}

func newRecord() *Record { return &Record{Schema: Schema, Objects: []Object{}, Pods: []Pod{}} }

// Move does the hand-over, or the way back. Errors: *RefusedError; *GoneError; ErrBothWritten, wrapped;
// *move.LockedError; a store that fails. It can be called again.
func (j *Job) Move(ctx context.Context) error {
	release, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := j.move(ctx); err != nil || !j.Back || j.Copy || !j.marks() {
		return err
	}
	return j.unmark(ctx)
}

func (j *Job) move(ctx context.Context) error {
	rec, err := j.load()
	if err != nil {
		return err
	}
	for round := range rounds {
		items, err := j.judged(ctx, rec, true)
		if err != nil {
			return err
		}
		if rec == nil {
			rec = newRecord()
		}
		if round == 0 && !j.Back && j.marks() {
			if err := j.mark(ctx); err != nil {
				return err
			}
		}
		if j.Kept && j.Back {
			return j.removeCopies(ctx, items)
		}
		if err := j.remember(ctx, rec, items, round == 0); err != nil {
			return err
		}
		if _, gone, err := j.strays(ctx, rec, items); err != nil || len(items)+len(gone) == 0 {
			return err
		} else if err := j.removeStrays(ctx, gone); err != nil {
			return err
		}
		steps := []func(context.Context, []item, *Record) error{j.create, j.agree, j.rename, j.remove}
		if j.Copy {
			steps = steps[:2]
		}
		for _, step := range steps {
			if err := step(ctx, items, rec); err != nil {
				return err
			}
		}
		if j.Copy && j.allThere(items, rec) {
			rec.Copied = true
			return j.Files.Save(rec)
		}
	}
	return fmt.Errorf("after %d rounds there are still objects: something creates or writes them all the time; stop "+
		"it and run this again", rounds)
}

// remember writes the record before anything of these objects changes. Its pods are those of this run.
func (j *Job) remember(ctx context.Context, rec *Record, items []item, first bool) error {
	if rec.Back != j.Back { // it turns round
		rec.Back = j.Back
		if err := j.turn(ctx, rec, items); err != nil {
			return err
		}
	}
	if first {
		rec.Pods = []Pod{}
	}
	for _, i := range items {
		at, known := rec.at(i.uid)
		if !known {
			at, rec.index[i.uid] = len(rec.Objects), len(rec.Objects)
			rec.Objects = append(rec.Objects, Object{Key: i.key, UID: i.uid, Value: i.entry.Value})
		}
		o := &rec.Objects[at]
		if copied := sum(i.value); !j.Back && !slices.Contains(o.Copies, copied) {
			o.Value, o.Copies = i.entry.Value, append(o.Copies, copied)
		}
		o.Generation, o.Rolls = i.generation, o.Rolls || i.rolls
		o.Leaves = o.Leaves || !j.Copy
		if i.there == nil {
			o.Next = i.digest
		} else if from, err := j.newer(&i, rec); err == nil && from {
			o.Next = i.digest
		}
	}
	if !j.Copy && len(items) == 0 { // all originals are gone
		rec.Copied = false
	}
	if !rec.Copied {
		for k := range rec.Objects {
			rec.Objects[k].Leaves = false
		}
	}
	owned, err := j.podsOf(ctx, rec.steady())
	if err != nil {
		return err
	}
	rec.Pods = append(rec.Pods, without(owned, rec.Pods)...)
	return j.Files.Save(rec)
}

// turn begins the other direction: who rolls is seen anew. What went back and was deleted on the legacy side is no part
// of what is handed over once more.
func (j *Job) turn(ctx context.Context, rec *Record, items []item) error {
	for i := range rec.Objects {
		o := &rec.Objects[i]
		rec.Copied = rec.Copied && !o.Leaves // some originals may have been removed
		o.Rolls, o.Leaves = false, false
	}
	if j.Back {
		return nil
	}
	left, err := j.present(ctx, rec.Objects, items)
	if err == nil {
		rec.Objects = slices.DeleteFunc(rec.Objects, func(o Object) bool { return !left[o.UID] })
		rec.index = nil
	}
	return err
}

// create copies what is not there, and copies again what was written since, and reads all back.
func (j *Job) create(ctx context.Context, items []item, rec *Record) error {
	var missing []etcd.Entry
	for k := range items {
		i := &items[k]
		again := i.there != nil && !bytes.Equal(i.there.Value, i.value) && !j.Back
		if i.there != nil && i.resource.compared() {
			var err error
			if again, err = j.newer(i, rec); err != nil {
				return fmt.Errorf("%s: %w", storage.Printable(i.key), err)
			}
		}
		switch {
		case j.forgotten(i, rec):
		case i.there == nil:
			missing = append(missing, etcd.Entry{Key: []byte(i.key), Value: i.value})
		case again:
			changed := etcd.Entry{Key: []byte(i.key), Value: i.value, ModRevision: i.there.ModRevision}
			if _, err := j.To.Replace(ctx, []etcd.Entry{changed}); err != nil {
				return fmt.Errorf("%s: copying again: %w", storage.Printable(i.key), err)
			}
		}
	}
	for _, batch := range batches(missing) {
		// when one exists by now, an answer was lost, or it is in the next round
		if _, err := j.To.Create(ctx, batch); err != nil {
			return fmt.Errorf("%s and %d more: copying: %w", storage.Printable(string(batch[0].Key)), len(batch)-1, err)
		}
	}
	return j.compare(ctx, items)
}

// rename lets the pods of the objects name them in a version that is served.
func (j *Job) rename(ctx context.Context, items []item, _ *Record) error {
	if len(j.APIVersions) == 0 || !slices.ContainsFunc(items, func(i item) bool { return i.digest == "" }) {
		return nil // pods are owned by none that are compared
	}
	uids := map[string]bool{}
	for _, i := range items {
		uids[identity(i.key, i.uid)] = true
	}
	edits := storage.Edits{APIVersions: j.APIVersions}
	for range rounds {
		var changed []etcd.Entry
		err := j.each(ctx, j.Shared, j.Pods, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
			if !isOwned(e.Key, m, uids) {
				return nil
			}
			value, err := edits.Apply(e.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
			}
			if !bytes.Equal(value, e.Value) {
				changed = append(changed, etcd.Entry{Key: bytes.Clone(e.Key), Value: value,
					ModRevision: e.ModRevision, Lease: e.Lease})
			}
			return nil
		})
		if err != nil || len(changed) == 0 {
			return err
		}
		for _, e := range changed { // one by one: a kubelet writes the status of one, and not of the others
			if _, err := j.Shared.Replace(ctx, []etcd.Entry{e}); err != nil {
				return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
			}
		}
	}
	return errors.New("pods are written so often that their owners cannot be renamed: run this again")
}

// remove deletes the originals whose copies were read back. What was written meanwhile stays for the next round.
func (j *Job) remove(ctx context.Context, items []item, rec *Record) error {
	for k := range items {
		i := &items[k]
		if i.there == nil && !j.forgotten(i, rec) {
			continue
		}
		if i.there == nil {
			// nothing is copied: it was deleted there
		} else if i.resource.compared() {
			if written, err := j.newer(i, rec); err != nil || written || !isUID(i.there.Value, i.uid) {
				continue // the next round says why
			}
		} else if !bytes.Equal(i.there.Value, i.value) && (!j.Back || j.state(i, rec) != nil) {
			// On the way back from the middle the original is still there, and its copy was never written. What a
			// client has created under this key since it was judged is another object.
			continue
		}
		_, err := j.From.Delete(ctx, []move.KeyAt{{Key: i.key, ModRevision: i.entry.ModRevision}})
		if err != nil {
			return fmt.Errorf("%s: deleting what was copied: %w", storage.Printable(i.key), err)
		}
	}
	return nil
}

func (j *Job) removeStrays(ctx context.Context, keys []move.KeyAt) error {
	for _, key := range keys {
		if _, err := j.To.Delete(ctx, []move.KeyAt{key}); err != nil {
			return fmt.Errorf("%s: deleting the copy of what is gone: %w", storage.Printable(key.Key), err)
		}
	}
	return nil
}

// batches are the parts of a list that fit into a transaction.
func batches(entries []etcd.Entry) [][]etcd.Entry {
	var all [][]etcd.Entry
	size := 0
	for _, e := range entries {
		if n := len(all); n == 0 || len(all[n-1]) == batchKeys || size+len(e.Value) > batchBytes {
			all, size = append(all, nil), 0
		}
		size += len(e.Value)
		all[len(all)-1] = append(all[len(all)-1], e)
	}
	return all
}
