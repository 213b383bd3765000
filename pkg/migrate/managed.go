package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// ManagedField is an entry of metadata.managedFields, as JSON has it.
type ManagedField = map[string]any

// cleanObjects is how many objects are listed at a time with their managedFields.
const cleanObjects = 50

// clean takes a version out of the managedFields of all objects: a server that does not know the version any more fails
// to apply to them.
func (r *run) clean(ctx context.Context, version string) error {
	old, now := r.plan.Resource.APIVersion(version), r.plan.access(r.plan.Storage)
	strategy, _ := r.plan.Before.Conversion()
	if r.plan.With != nil {
		strategy, _ = r.plan.With.Conversion()
	}
	for range passes {
		r.walks++
		var left, cleaned atomic.Int64
		group, workers := errgroup.WithContext(ctx)
		group.SetLimit(r.Workers)
		list := List{APIVersion: now, Limit: min(cleanObjects, r.PageObjects), Managed: old}
		err := r.list(ctx, list, func(page Page, i int) error {
			fields, changed, err := cleanedText(page.ManagedFields[i], old, now, strategy == StrategyNone)
			if err != nil {
				return fmt.Errorf("%s: managedFields: %w", page.Objects[i], err)
			}
			if !changed {
				r.progress(Progress{Objects: 1})
				return nil
			}
			if err := workers.Err(); err != nil {
				return err
			}
			if r.Pace != nil {
				if err := r.Pace(workers); err != nil {
					return err
				}
			}
			left.Add(1)
			o := page.Objects[i]
			group.Go(func() error {
				_, err := r.Objects.Patch(workers, now, o, map[string]any{"managedFields": fields})
				switch {
				case err == nil:
					cleaned.Add(1)
				case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrGone): // the next pass looks again
					return fmt.Errorf("%s: %w", o, err)
				}
				r.progress(Progress{Objects: 1})
				return nil
			})
			return nil
		})
		if groupErr := group.Wait(); groupErr != nil {
			err = groupErr
		}
		r.report.Cleaned += cleaned.Load()
		if err != nil || left.Load() == 0 {
			return err
		}
	}
	return fmt.Errorf("objects have %s in managedFields after %d passes: something puts it there", old, passes)
}

// cleanedText is cleanedFields of a text, for one. Decoded, they are no longer held than it takes.
func cleanedText(managed []byte, old, now string, alike bool) (cleaned json.RawMessage, changed bool, err error) {
	if len(managed) == 0 {
		return nil, false, nil
	}
	var fields []ManagedField
	if err := utiljson.Unmarshal(managed, &fields); err != nil {
		return nil, false, err
	}
	entries, changed := cleanedFields(fields, old, now, alike)
	if !changed {
		return nil, false, nil
	}
	cleaned, err = json.Marshal(entries)
	return cleaned, true, err
}

// cleanedFields are the entries without those of an apiVersion. When versions differ in nothing but their name the
// entries move to the other version, and join those of the same manager that are there; otherwise their fields may have
// other names there, and they are dropped. An empty list would make a server forget that it ever kept one, so something
// stays.
func cleanedFields(fields []ManagedField, old, now string, alike bool) (cleaned []any, changed bool) {
	var moved []ManagedField
	for _, f := range fields {
		switch {
		case text(f, "apiVersion") != old:
			cleaned = append(cleaned, clone(f))
		case alike:
			entry := clone(f).(map[string]any)
			entry["apiVersion"] = now
			moved = append(moved, entry)
			changed = true
		default:
			changed = true
		}
	}
	if !changed {
		return nil, false
	}
	for _, entry := range moved {
		if same := sameManager(cleaned, entry); same != nil {
			united, _ := same["fieldsV1"].(map[string]any)
			more, _ := entry["fieldsV1"].(map[string]any)
			same["fieldsV1"] = unite(united, more)
		} else {
			cleaned = append(cleaned, entry)
		}
	}
	if len(cleaned) == 0 {
		cleaned = append(cleaned, map[string]any{
			"manager": "fusionctl", "operation": "Update", "apiVersion": now, "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:name": map[string]any{}}},
		})
	}
	return cleaned, true
}

// sameManager finds the entry that a server would put the fields of another one into.
func sameManager(entries []any, entry map[string]any) map[string]any {
	for _, e := range entries {
		other := e.(map[string]any)
		alike := true
		for _, name := range []string{"manager", "operation", "apiVersion", "subresource"} {
			alike = alike && text(other, name) == text(entry, name)
		}
		// Updates of one manager at different times are different entries.
		if alike && (text(entry, "operation") == "Apply" || text(other, "time") == text(entry, "time")) {
			return other
		}
	}
	return nil
}

// unite joins two sets of fields.
func unite(a, b map[string]any) map[string]any {
	if a == nil {
		return b
	}
	for name, more := range b {
		have, _ := a[name].(map[string]any)
		members, _ := more.(map[string]any)
		if have == nil {
			a[name] = more
		} else {
			a[name] = unite(have, members)
		}
	}
	return a
}
