package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// Definition is a CustomResourceDefinition as far as it says where its objects are.
type Definition struct {
	Name, UID, Group, Plural, Kind string
	Served                         []string // versions
	Established                    bool     // its names are its own: an API server serves it
}

// key is the part of the key that its objects have. Source: apiextensions-apiserver of every version, getCRDRegistry.
func (d *Definition) key() string { return d.Group + "/" + d.Plural }

// Definitions lists the definitions that a store has below a prefix. Errors: one that cannot be read; one whose objects
// would be those of a built-in resource; the store's.
func Definitions(ctx context.Context, store NamedStore, prefix, key string) ([]Definition, error) {
	var found []Definition
	j := Job{Plan: Plan{Prefix: prefix}}
	err := j.each(ctx, store, key, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
		object, err := objects.Decode(e.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
		}
		d := definitionOf(object)
		if d.Name, d.UID = string(m.Name), string(m.UID); d.Group == "" || d.Plural == "" || d.Kind == "" {
			return fmt.Errorf("%s: has no group, plural or kind", storage.Printable(string(e.Key)))
		}
		// API servers take a definition of any group with a dot, and serve nothing by it where they serve the group
		// by themselves.
		if builtin, known := kubever.ResourceByKey(d.key()); known {
			return fmt.Errorf("%s: would have API servers' own %s for its objects, and take these along: delete the "+
				"definition", storage.Printable(string(e.Key)), builtin.Name)
		}
		found = append(found, d)
		return nil
	})
	return found, err
}

// definitionOf reads the fields that v1beta1 and v1 share, and the one version of those before 1.11.
func definitionOf(object map[string]any) (d Definition) {
	spec, _ := object["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	d.Group, _ = spec["group"].(string)
	d.Plural, _ = names["plural"].(string)
	d.Kind, _ = names["kind"].(string)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if name, _ := version["name"].(string); version["served"] == true {
			d.Served = append(d.Served, name)
		}
	}
	if version, _ := spec["version"].(string); len(versions) == 0 && version != "" {
		d.Served = []string{version}
	}
	status, _ := object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	d.Established = slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
	return d
}

// define finds the resources of what goes: those that the definitions of the side that is left define until these have
// gone, then those of the definitions that have. On the way back all objects of a definition go with it.
func (j *Job) define(ctx context.Context, rec *Record) error {
	if j.Definitions == "" {
		return nil
	}
	went := new(Record)
	if j.DefinitionFiles != nil {
		switch r, err := j.DefinitionFiles.Load(); {
		case err != nil:
			return err
		case r != nil:
			went = r
		}
	}
	left, err := Definitions(ctx, j.From, j.Prefix, j.Definitions)
	if err != nil {
		return err
	}
	there, err := Definitions(ctx, j.To, j.Prefix, j.Definitions)
	if err != nil {
		return err
	}
	j.Resources, j.defined = nil, map[string][2]bool{}
	add := func(d *Definition) {
		in := func(list []Definition) bool {
			return slices.ContainsFunc(list, func(o Definition) bool { return o.key() == d.key() })
		}
		if _, known := j.defined[d.key()]; known {
			return
		}
		// Kind is of built-in objects alone: the names of others say nothing of their fields.
		j.Resources = append(j.Resources, Resource{Key: d.key(), By: ByAll})
		j.defined[d.key()] = [2]bool{in(left), in(there)}
		if kind := d.Kind + "." + d.Group; !slices.Contains(j.Kinds, kind) {
			j.Kinds = append(slices.Clip(j.Kinds), kind)
		}
	}
	for i := range left {
		if d := &left[i]; !j.Back || went.of(d.UID) != nil {
			add(d)
		}
	}
	for i := range there {
		d := &there[i]
		copied := j.Back && rec != nil && slices.ContainsFunc(rec.Objects, func(o Object) bool {
			return strings.HasPrefix(o.Key, j.Prefix+"/"+d.key()+"/")
		})
		if copied || went.of(d.UID) != nil {
			add(d)
		}
	}
	return nil
}

// forgotten reports whether an object was in both stores once, was not written since, and is in the other one no more,
// which has the definition: there a client has deleted it.
func (j *Job) forgotten(i *item, rec *Record) bool {
	in, custom := j.defined[i.resource.Key]
	o := rec.of(i.uid)
	return custom && !in[0] && in[1] && i.there == nil && !j.Copy && o != nil && i.digest != "" &&
		i.digest == o.Agreed
}

// strays looks for objects in the other store below the keys of a definition that is not there yet: with it they would
// be served again. What a run has put there for an original that is gone since goes, too; others are named.
func (j *Job) strays(ctx context.Context, rec *Record, items []item) (problems []string, gone []move.KeyAt, _ error) {
	here := map[string]bool{}
	for k := range items {
		here[items[k].key] = true
	}
	for k := range j.Resources {
		r := &j.Resources[k]
		if in, custom := j.defined[r.Key]; !custom || in[1] {
			continue
		}
		err := j.each(ctx, j.To, r.Key, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
			key := string(e.Key)
			if here[key] {
				return nil
			}
			digest, err := j.digest(r, e.Value)
			if o := rec.of(string(m.UID)); err == nil && o != nil && (digest == o.Agreed || digest == o.Next) {
				gone = append(gone, move.KeyAt{Key: key, ModRevision: e.ModRevision})
				return nil
			}
			problems = append(problems, storage.Printable(key)+": lies in store "+j.To.Name+" without a definition, "+
				"and would be served with it: delete the key there, when nothing needs it")
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return problems, gone, nil
}
