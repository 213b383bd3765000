package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func (h *Host) handOver(ctx context.Context, o *transition.Objects) error {
	return h.withObjects(ctx, o, (*handover.Job).Move)
}

// adopted waits until the controllers act for the objects; not for those that are gone.
func (h *Host) adopted(j *handover.Job, ctx context.Context) error {
	var gone *handover.GoneError
	err := h.wait(ctx, "the objects are not taken over", func(ctx context.Context) error {
		err := j.Adopted(ctx)
		if errors.As(err, &gone) {
			return nil
		}
		return err
	})
	if gone != nil {
		return gone
	}
	return err
}

// defined waits until the second of two API servers serves what the definitions define that went to its store, and the
// first one does not.
func (h *Host) defined(ctx context.Context, c *transition.Check) error {
	var left, there []handover.Definition
	err := h.withObjects(ctx, c.Objects, func(j *handover.Job, ctx context.Context) (err error) {
		key := c.Objects.Plan.Resources[0].Key
		if left, err = handover.Definitions(ctx, j.From, j.Prefix, key); err != nil {
			return err
		}
		there, err = handover.Definitions(ctx, j.To, j.Prefix, key)
		return err
	})
	if err != nil {
		return err
	}
	from, err := serverOf(&c.Asked[0])
	if err != nil {
		return err
	}
	to, err := serverOf(&c.Asked[1])
	if err != nil {
		return err
	}
	gone := false
	err = h.wait(ctx, "custom resources are not served where their definitions are", func(ctx context.Context) error {
		for _, d := range there {
			if err := servesAll(ctx, to, &d, d.Established); err != nil {
				return fmt.Errorf("the %s API server: %w", c.Asked[1].Side, err)
			}
			if slices.ContainsFunc(left, func(o handover.Definition) bool { return o.Name == d.Name }) {
				continue
			}
			if err := servesAll(ctx, from, &d, false); err != nil {
				return fmt.Errorf("the %s API server: %w", c.Asked[0].Side, err)
			}
			gone = true
		}
		return nil
	})
	if err != nil || !gone {
		return err
	}
	return pause.For(ctx, watchesEnd)
}

// watchesEnd is after how long an API server that serves a definition no more has ended the watches of its objects: it
// waits a second, and for requests that are being answered. Nothing that a client could ask shows it. Source: tearDown
// of apiextensions-apiserver, customresource_handler.go; run, 1.15.12 and 1.36.3: a watch that is open when the keys go
// sees every object deleted.
const watchesEnd = 3 * time.Second

// servesAll is an error when a server does not serve every version of a definition, or when it serves one and should
// not.
func servesAll(ctx context.Context, s *apiserver.Server, d *handover.Definition, want bool) error {
	versions, err := s.Versions(ctx, d.Group)
	if err != nil {
		return err
	}
	for _, version := range d.Served {
		serves := false
		if slices.Contains(versions, version) {
			resources, err := s.GroupVersion(ctx, schema.GroupVersion{Group: d.Group, Version: version})
			if err != nil && !errors.Is(err, discovery.ErrNotServed) {
				return err
			}
			serves = slices.ContainsFunc(resources, func(r discovery.Resource) bool { return r.Name == d.Plural })
		}
		if serves != want {
			return fmt.Errorf("serves %s of %s/%s: %t, want %t", d.Plural, d.Group, version, serves, want)
		}
	}
	return nil
}

// withObjects does something with the stores and the record of a hand-over.
func (h *Host) withObjects(ctx context.Context, o *transition.Objects,
	do func(*handover.Job, context.Context) error) error {
	job, err := h.job(o)
	if err != nil {
		return err
	}
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

// job is a hand-over with its record, without stores. The record lies in the directory of the snapshots, or where the
// journal says.
func (h *Host) job(o *transition.Objects) (*handover.Job, error) {
	if err := filetree.Private(h.Snapshots); err != nil {
		return nil, err
	}
	job := &handover.Job{Plan: o.Plan, Known: o.Known, Run: "transition " + o.Record, Now: time.Now(), Mark: o.Record,
		By: "fusionctl transition: " + strings.Join(o.Names, ", "),
		Convert: func(value []byte, apiVersion string) ([]byte, error) {
			return lossless(value, apiVersion, o.Plan.Words)
		}}
	file := recordFile(filepath.Join(h.Snapshots, o.Record+".json"))
	job.Files = file
	if o.Definitions != "" {
		defer func() {
			job.DefinitionFiles = recordFile(filepath.Join(filepath.Dir(string(job.Files.(recordFile))),
				o.Definitions+".json"))
		}()
	}
	if o.Known == nil || o.Known.Directory == "" {
		return job, nil
	}
	if !filetree.IsDir(o.Known.Directory) {
		return job, nil
	}
	if err := filetree.Private(o.Known.Directory); err != nil { // what lies there is moved, and deleted, by its word
		return nil, fmt.Errorf("the record of the hand-over: %w", err)
	}
	other := recordFile(filepath.Join(o.Known.Directory, o.Record+".json"))
	if r, err := file.Load(); err == nil && (r == nil || o.Known.Digest != "" && r.Digest() != o.Known.Digest) {
		if r, err := other.Load(); err == nil && r != nil {
			job.Files = other
		}
	}
	return job, nil
}

// Keep begins the record of a hand-over where there is none.
func (h *Host) Keep(_ context.Context, _ string, o *transition.Objects) (*handover.Known, error) {
	if h.Rehearsal != "" {
		return nil, nil
	}
	job, err := h.job(o)
	if err != nil {
		return nil, err
	}
	digest, err := job.Begin()
	if err != nil {
		return nil, err
	}
	directory, err := filepath.Abs(filepath.Dir(string(job.Files.(recordFile))))
	return &handover.Known{Directory: directory, Digest: digest}, err
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

// lossless converts a stored value, as it is encoded, where nothing of it is lost; in the words of a minor, unless
// that is 0.
func lossless(value []byte, apiVersion string, words kubever.Minor) ([]byte, error) {
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
	case storage.Protobuf: // never of definitions, whose words may be others
		converted, losses, err = c.ConvertProtobuf(value, to)
	case storage.JSON:
		object := new(unstructured.Unstructured)
		if err := utiljson.Unmarshal(value, &object.Object); err != nil {
			return nil, err
		}
		if losses, err = c.ConvertInPlace(object, to); err == nil {
			same := apiVersion == string(envelope.APIVersion)
			if words != 0 {
				changed, _ := c.Spell(object, words)
				same = same && !changed
			}
			if same {
				return value, nil
			}
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
