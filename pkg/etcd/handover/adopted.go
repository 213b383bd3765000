package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// Adopted reports whether the controllers of the side to which the objects went act for them, and for nothing else:
// each was observed again, each pod of before is there, and no other one was created. Errors: what is not so.
func (j *Job) Adopted(ctx context.Context) error {
	rec, err := j.Files.Load()
	if err != nil {
		return err
	}
	if rec == nil {
		if j.Back { // from before anything was handed over
			return nil
		}
		return errors.New("there is no record of what was handed over: put it back where it was")
	}
	uids := rec.uids()
	var problems []error
	for k := range j.Resources {
		r := &j.Resources[k]
		if observed[r.Kind] == 0 {
			continue
		}
		err := j.each(ctx, j.To, r.Key, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
			if uids[identity(string(e.Key), string(m.UID))] {
				problems = append(problems, unobserved(string(e.Key), e.Value))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if rec.Rolling {
		return errors.Join(problems...)
	}
	now, err := j.podsOf(ctx, rec.steady())
	if err != nil {
		return err
	}
	for _, p := range rec.Pods {
		if !slices.Contains(now, p) {
			problems = append(problems, fmt.Errorf("%s, UID %s: is gone, or about to go", storage.Printable(p.Key),
				p.UID))
		}
	}
	for _, p := range now {
		if !slices.Contains(rec.Pods, p) {
			problems = append(problems, fmt.Errorf("%s, UID %s: was created since", storage.Printable(p.Key), p.UID))
		}
	}
	return errors.Join(problems...)
}

// podsOf lists the pods that objects own and that do not end by themselves.
func (j *Job) podsOf(ctx context.Context, uids map[string]bool) ([]Pod, error) {
	var pods []Pod
	err := j.each(ctx, j.Shared, j.Pods, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
		if !isOwned(e.Key, m, uids) {
			return nil
		}
		key, uid := string(e.Key), string(m.UID)
		object, err := objects.Decode(e.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", storage.Printable(key), err)
		}
		meta, _ := object["metadata"].(map[string]any)
		status, _ := object["status"].(map[string]any)
		if meta["deletionTimestamp"] == nil && status["phase"] != "Succeeded" && status["phase"] != "Failed" {
			pods = append(pods, Pod{Key: key, UID: uid})
		}
		return nil
	})
	return pods, err
}
