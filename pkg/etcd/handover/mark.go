package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// A store says by itself what was handed over to its side. Files and flags of what runs do not always: of single
// namespaces, Ingresses and custom resources none differs, and records lie with the steps that wrote them. A mark is
// where the objects are, in snapshots and backups, too.

// MarksKey is where marks are, below the prefix. No API server reads it.
const MarksKey = "/" + storage.MarksResource + "/"

// Mark is what lies there: an object, as everything else below the prefix, with who put it there.
func Mark(by string) []byte {
	text, _ := json.Marshal(by) // a string is always one
	return fmt.Appendf(nil, `{"apiVersion":"kubefusion.dev/v1alpha1","kind":"HandOver","by":%s}`, text)
}

// marks reports whether the hand-over leaves one: of what both sides keep, the other side misses nothing.
func (j *Job) marks() bool { return j.Mark != "" && !j.Kept }

func (j *Job) mark(ctx context.Context) error {
	key := j.Prefix + MarksKey + j.Mark
	found, err := j.To.Read(ctx, []string{key})
	if err == nil && found[0] == nil {
		_, err = j.To.Create(ctx, []etcd.Entry{{Key: []byte(key), Value: Mark(j.By)}}) // another run may have
	}
	if err != nil {
		return fmt.Errorf("store %s: marking what is handed over: %w", j.To.Name, err)
	}
	return nil
}

func (j *Job) unmark(ctx context.Context) error {
	key := j.Prefix + MarksKey + j.Mark
	found, err := j.From.Read(ctx, []string{key})
	if err == nil && found[0] != nil {
		var done bool
		done, err = j.From.Delete(ctx, []move.KeyAt{{Key: key, ModRevision: found[0].ModRevision}})
		if err == nil && !done {
			err = errors.New("it is written meanwhile: run this again")
		}
	}
	if err != nil {
		return fmt.Errorf("store %s: taking the mark of what was handed over: %w", j.From.Name, err)
	}
	return nil
}
