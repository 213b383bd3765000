package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func (h *Host) handOver(ctx context.Context, o *transition.Objects) error {
	return h.withObjects(ctx, o, (*handover.Job).Move)
}

// withObjects does something with the stores and the record of a hand-over.
func (h *Host) withObjects(ctx context.Context, o *transition.Objects,
	do func(*handover.Job, context.Context) error) error {
	if err := filetree.Private(h.Snapshots); err != nil {
		return err
	}
	job := &handover.Job{Plan: o.Plan, Files: recordFile(filepath.Join(h.Snapshots, o.Record+".json")),
		Run: "transition " + o.Record, By: "fusionctl transition: " + strings.Join(o.Names, ", "), Convert: lossless}
	for _, of := range []struct {
		store *plan.Store
		as    *handover.NamedStore
	}{{&o.From, &job.From}, {&o.To, &job.To}} {
		client, err := open(*of.store, nil)
		if err != nil {
			return err
		}
		defer client.Close()
		*of.as = handover.NamedStore{Store: &etcdv3.Writer{Client: client}, Name: of.store.Name}
	}
	if job.Shared = job.From; o.Pods == o.To.Name {
		job.Shared = job.To
	}
	return do(job, ctx)
}

// recordFile keeps the record of a hand-over.
type recordFile string

func (f recordFile) Load() (*handover.Record, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r handover.Record
	if err := json.Unmarshal(data, &r); err != nil || r.Schema != handover.Schema {
		return nil, fmt.Errorf("%s: is no record of a hand-over", string(f))
	}
	return &r, nil
}

func (f recordFile) Save(r *handover.Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return filetree.WriteFile(string(f), data, 0o600)
}

// lossless converts a stored value, as it is encoded, where nothing of it is lost.
func lossless(value []byte, apiVersion string) ([]byte, error) {
	envelope, err := storage.ReadEnvelope(value)
	if err != nil {
		return nil, err
	}
	c, err := convert.New()
	if err != nil {
		return nil, err
	}
	to := schema.FromAPIVersionAndKind(apiVersion, string(envelope.Kind))
	var converted []byte
	var losses []convert.Loss
	switch envelope.Encoding {
	case storage.Protobuf:
		converted, losses, err = c.ConvertProtobuf(value, to)
	case storage.JSON:
		object := new(unstructured.Unstructured)
		if err := utiljson.Unmarshal(value, &object.Object); err != nil {
			return nil, err
		}
		if losses, err = c.ConvertInPlace(object, to); err == nil {
			converted, err = json.Marshal(object.Object)
		}
	default:
		err = fmt.Errorf("%s cannot be converted", envelope.Encoding)
	}
	if err != nil || len(losses) == 0 {
		return converted, err
	}
	var lost []string
	for _, l := range losses {
		lost = append(lost, l.Path+": "+l.Meaning)
	}
	return nil, fmt.Errorf("%s does not have %s", apiVersion, strings.Join(lost, "; "))
}
