package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// isBoot reports whether API servers write a key by themselves, each its own.
func (j *Job) isBoot(key string) bool {
	rest := strings.TrimPrefix(key, j.Prefix+"/")
	return slices.ContainsFunc(j.Boot, func(b pair.BootKey) bool { return b.Matches(rest) })
}

// kept reports whether every object has its copy, as it is; not on the way back, on which there are none.
func (j *Job) kept(ctx context.Context) error {
	if j.Back {
		return nil
	}
	items, err := j.items(ctx, new(Record))
	if err == nil {
		err = j.compare(ctx, items)
	}
	if err != nil {
		return err
	}
	var problems []error
	for k := range items {
		i := &items[k]
		if i.there == nil {
			problems = append(problems, fmt.Errorf("%s: has no copy in store %s: create one through the other side",
				storage.Printable(i.key), j.To.Name))
			continue
		}
		here, err := j.digest(i.resource, i.entry.Value)
		there, thereErr := j.digest(i.resource, i.there.Value)
		if err := errors.Join(err, thereErr); err != nil {
			return fmt.Errorf("%s: %w", storage.Printable(i.key), err)
		}
		if here != there {
			problems = append(problems, fmt.Errorf("%s: is another object than in store %s: make them the same",
				storage.Printable(i.key), j.To.Name))
		}
	}
	return errors.Join(problems...)
}

// copiesOf lists the copies that were made, in the store where they are. One that was written since stays, and is
// named, unless the original was written alike.
func (j *Job) copiesOf(ctx context.Context, rec *Record) ([]item, error) {
	items, err := j.items(ctx, rec)
	// What another one owns came with it, and is no copy.
	items = slices.DeleteFunc(items, func(i item) bool { return rec.of(i.uid) == nil })
	if err == nil {
		err = j.compare(ctx, items)
	}
	if err != nil {
		return nil, err
	}
	var refused RefusedError
	for k := range items {
		i, same := &items[k], ""
		if i.digest, err = j.digest(i.resource, i.entry.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", storage.Printable(i.key), err)
		}
		if i.there != nil {
			if same, err = j.digest(i.resource, i.there.Value); err != nil {
				return nil, fmt.Errorf("%s: in the other store: %w", storage.Printable(i.key), err)
			}
		}
		if o := rec.of(i.uid); i.digest != same && i.digest != o.Agreed && i.digest != o.Next {
			refused.Reasons = append(refused.Reasons, storage.Printable(i.key)+": was changed since it was copied: "+
				"change the original alike, or delete the copy")
		}
	}
	if len(refused.Reasons) > 0 {
		return nil, &refused
	}
	return items, nil
}

// removeCopies deletes the copies, as they were judged.
func (j *Job) removeCopies(ctx context.Context, items []item) error {
	for k := range items {
		i := &items[k]
		gone, err := j.From.Delete(ctx, []move.KeyAt{{Key: i.key, ModRevision: i.entry.ModRevision}})
		switch {
		case err != nil:
			return fmt.Errorf("%s: deleting the copy: %w", storage.Printable(i.key), err)
		case !gone:
			return fmt.Errorf("%s: was written meanwhile: run this again", storage.Printable(i.key))
		}
	}
	return nil
}
