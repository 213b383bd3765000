package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// digest is that of what an object and its copy have in common, in whichever version each is stored: all but the
// status, which programs write on each side, and what API servers write beside it. "" where nothing is compared.
func (j *Job) digest(r *Resource, value []byte) (string, error) {
	if !r.compared() {
		return "", nil
	}
	envelope, err := storage.ReadEnvelope(value)
	if err != nil {
		return "", err
	}
	if r.Compared != "" && string(envelope.APIVersion) != r.Compared {
		if value, err = j.Convert(value, r.Compared); err != nil {
			return "", fmt.Errorf("is stored as %s, which cannot be compared: %w", envelope.APIVersion, err)
		}
	}
	object, err := objects.Decode(value)
	if err != nil {
		return "", err
	}
	if r.By != ByAll {
		delete(object, "status")
	}
	meta, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"managedFields", "resourceVersion", "selfLink"} {
		delete(meta, field)
	}
	if j.Kept { // each side has its own
		delete(meta, "uid")
		delete(meta, "creationTimestamp")
	}
	if r.By == ByMetadata {
		object = map[string]any{"metadata": meta}
	} else {
		delete(meta, "generation")
	}
	owners, _ := meta["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, is := o.(map[string]any); is {
			delete(owner, "apiVersion") // becomes one that is served
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	return sum(text), nil
}

// newer reports whether the object was written since its copy was made, so that it is to be copied again; false where
// the two are the same, or the copy alone was written. Errors: ErrBothWritten; what cannot be compared. Of resources
// that are not compared it is false.
func (j *Job) newer(i *item, rec *Record) (bool, error) {
	if !i.resource.compared() {
		return false, nil
	}
	there, err := j.digest(i.resource, i.there.Value)
	if err != nil {
		return false, fmt.Errorf("in the other store: %w", err)
	}
	o := rec.of(i.uid)
	if o == nil {
		o = new(Object)
	}
	switch {
	case there == i.digest:
		return false, nil
	case there == o.Agreed, there == o.Next: // as a run put it there
		return true, nil
	case i.digest == o.Agreed, i.digest == o.Next:
		return false, nil
	}
	return false, ErrBothWritten
}

// agree remembers in which form the objects and their copies are the same.
func (j *Job) agree(_ context.Context, items []item, rec *Record) error {
	changed := false
	for k := range items {
		i := &items[k]
		if i.digest == "" || i.there == nil {
			continue
		}
		there, err := j.digest(i.resource, i.there.Value)
		if err != nil {
			return fmt.Errorf("in the other store, %s: %w", storage.Printable(i.key), err)
		}
		if o := rec.of(i.uid); o != nil && there == i.digest && (o.Agreed != there || o.Next != "") {
			o.Agreed, o.Next, changed = there, "", true
		}
	}
	if !changed {
		return nil
	}
	return j.Files.Save(rec)
}

// allThere reports whether every object has its copy, and none was written since.
func (j *Job) allThere(items []item, rec *Record) bool {
	for k := range items {
		i := &items[k]
		if i.there == nil || !j.Kept && !isUID(i.there.Value, i.uid) {
			return false
		}
		if written, err := j.newer(i, rec); err != nil || written {
			return false
		}
	}
	return true
}

// reference is to an object of which each side has its own.
type reference struct {
	from, suffix string // the key, or the beginning of the keys among which one has this end
	missing      string // what is said where there is none
	here         bool   // it is nothing new where this side has none either
}

// missing says what an object names that is not in the other store.
func (j *Job) missing(ctx context.Context, i *item) (problems []string, err error) {
	if i.resource.Kind == "" || j.Back && i.there != nil {
		return nil, nil
	}
	object, err := objects.Decode(i.entry.Value)
	if err != nil {
		return nil, nil // judge says so
	}
	for _, named := range references(i, object) {
		there, err := j.refers(ctx, j.To, named)
		if resource, _, _ := strings.Cut(named.from, "/"); err == nil && !there && named.here {
			here := false
			here, err = j.refers(ctx, j.From, named)
			there = !here || slices.Contains(j.Comes, resource)
		}
		if err != nil {
			return nil, err
		}
		if !there {
			problems = append(problems, named.missing)
		}
	}
	return problems, nil
}

// deleted names the copies whose originals a client has deleted since.
func (j *Job) deleted(ctx context.Context, rec *Record, items []item) (problems []string, err error) {
	if !rec.Copied || j.Copy {
		return nil, nil
	}
	here := map[string]bool{}
	for k := range items {
		here[items[k].uid] = true
	}
	var asked []Object
	for _, o := range rec.Objects {
		if o.Agreed != "" && !o.Leaves && !here[o.UID] {
			asked = append(asked, o)
		}
	}
	there, err := j.present(ctx, asked, nil)
	for _, o := range asked {
		if there[o.UID] {
			problems = append(problems, storage.Printable(o.Key)+": was deleted since it was copied: delete its copy "+
				"on the other side, too")
		}
	}
	return problems, err
}

// left reports an object that is still where it was handed over from; on the way forth also what was created there
// since, for which no program acts.
func (j *Job) left(ctx context.Context, uids map[string]bool) error {
	var problems []error
	for k := range j.Resources {
		key := j.Resources[k].Key
		err := j.each(ctx, j.From, key, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
			switch {
			case uids[identity(string(e.Key), string(m.UID))]:
				problems = append(problems, fmt.Errorf("%s: is still in store %s", storage.Printable(string(e.Key)),
					j.From.Name))
			case !j.Back:
				problems = append(problems, fmt.Errorf("%s: was created in store %s since: create it through the "+
					"other side, and delete it here", storage.Printable(string(e.Key)), j.From.Name))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(problems...)
}

const ingress = "Ingress"

// references are what an object names beside what both sides have: its class, and backends that are no Services, of an
// Ingress; the class of the pods of a workload, without which none of them is admitted. Source: pkg/apis/networking and
// plugin/pkg/admission/priority of every version.
func references(i *item, object map[string]any) (all []reference) {
	spec, _ := object["spec"].(map[string]any)
	if class := priorityClass(spec); class != "" {
		all = append(all, reference{from: "priorityclasses/" + class, here: true,
			missing: "its pods are of the PriorityClass " + storage.Printable(class) + ", which is not there, so " +
				"that none could be created: hand priority classes over before, or in the same transition"})
	}
	if i.resource.Kind != ingress {
		return all
	}
	if class, _ := spec["ingressClassName"].(string); class != "" {
		all = append(all, reference{from: "ingressclasses/" + class, missing: "is of the IngressClass " +
			storage.Printable(class) + ", which is not there: create it through the other side first"})
	}
	namespace := strings.Split(i.key, "/")
	backend := func(of any, field string) {
		holder, _ := of.(map[string]any)
		b, _ := holder[field].(map[string]any)
		resource, _ := b["resource"].(map[string]any)
		group, _ := resource["apiGroup"].(string)
		name, _ := resource["name"].(string)
		if strings.Contains(group, ".") {
			all = append(all, reference{from: group + "/", suffix: "/" + namespace[len(namespace)-2] + "/" + name,
				missing: fmt.Sprintf("has the %s.%s %s as a backend, which is not there: create it through the "+
					"other side first", storage.Printable(fmt.Sprint(resource["kind"])), storage.Printable(group),
					storage.Printable(name))})
		}
	}
	backend(spec, "defaultBackend")
	backend(spec, "backend")
	rules, _ := spec["rules"].([]any)
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		http, _ := rule["http"].(map[string]any)
		paths, _ := http["paths"].([]any)
		for _, p := range paths {
			backend(p, "backend")
		}
	}
	return all
}

// priorityClass is that of the pods of a workload; "" for none.
func priorityClass(spec map[string]any) string {
	if job, is := spec["jobTemplate"].(map[string]any); is {
		spec, _ = job["spec"].(map[string]any)
	}
	template, _ := spec["template"].(map[string]any)
	pod, _ := template["spec"].(map[string]any)
	class, _ := pod["priorityClassName"].(string)
	return class
}

// refers reports whether what is named is in a store. One object may name thousands: what is below the same keys is
// read once for all that is judged.
func (j *Job) refers(ctx context.Context, store NamedStore, to reference) (found bool, err error) {
	from := j.Prefix + "/" + to.from
	of := store.Name + " " + from
	if known, read := j.named[of]; read {
		return known[to.suffix], nil
	}
	named := map[string]bool{}
	if to.suffix == "" {
		var entries []*etcd.Entry
		if entries, err = store.Read(ctx, []string{from}); err == nil {
			named[""] = entries[0] != nil
		}
	} else {
		_, err = etcd.Entries(ctx, etcd.Store{Name: store.Name, Pager: store},
			etcd.Request{From: from, To: etcd.PrefixEnd(from), KeysOnly: true}, func(e etcd.Entry) error {
				namespace, name := path.Split(string(e.Key))
				named["/"+path.Base(namespace)+"/"+name] = true
				return nil
			})
	}
	if err != nil {
		return false, err
	}
	if j.named == nil {
		j.named = map[string]map[string]bool{}
	}
	j.named[of] = named
	return named[to.suffix], nil
}
