package handover

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// Check reports whether the objects can go, and changes nothing. Errors: *RefusedError; *GoneError; a store that cannot
// be read.
func (j *Job) Check(ctx context.Context) error {
	rec, err := j.load()
	if err == nil {
		_, err = j.judged(ctx, rec, false)
	}
	if err == nil && !j.Back {
		err = j.inNamespace(ctx)
	}
	return err
}

// inNamespace reports a namespace that does not exist: its name is not the one that is meant.
func (j *Job) inNamespace(ctx context.Context) error {
	for _, store := range []NamedStore{j.From, j.To} {
		if j.Namespace == "" || j.NamespacesIn != store.Name {
			continue
		}
		found, err := store.Read(ctx, []string{j.Prefix + "/namespaces/" + j.Namespace})
		if err == nil && found[0] == nil {
			err = &RefusedError{[]string{"there is no namespace " + j.Namespace + ": create it, or correct its name"}}
		}
		return err
	}
	return nil
}

// judged lists what goes; nothing stands against any of it. When it is stopped, no controller acts for them any more,
// and what only a controller can end is no reason to wait.
func (j *Job) judged(ctx context.Context, rec *Record, stopped bool) ([]item, error) {
	var refused RefusedError
	j.named = nil // read anew
	if err := j.define(ctx, rec); err != nil {
		return nil, err
	}
	if rec == nil {
		rec = new(Record)
	}
	if j.Kept && j.Back {
		return j.copiesOf(ctx, rec)
	}
	items, err := j.items(ctx, rec)
	if err != nil {
		return nil, err
	}
	if j.Back {
		if err := j.gone(ctx, rec, items); err != nil {
			return nil, err
		}
	}
	if err := j.compare(ctx, items); err != nil {
		return nil, err
	}
	if err := j.bring(ctx, items); err != nil {
		return nil, err
	}
	var unread []string
	if !j.Back {
		if unread, err = j.unread(ctx); err != nil {
			return nil, err
		}
	}
	for k := range items {
		i := &items[k]
		problems := j.judge(i, rec, stopped)
		missing, err := j.missing(ctx, i)
		if err != nil {
			return nil, err
		}
		problems = append(problems, missing...)
		if o := rec.of(i.uid); i.there == nil && rec.Copied && !j.Copy && o != nil && o.Agreed != "" &&
			!j.forgotten(i, rec) {
			problems = append(problems, "its copy was deleted on the other side since it was copied: delete it, too, "+
				"or create the copy again by undo and apply")
		}
		if i.there != nil && len(problems) == 0 {
			if err := j.state(i, rec); err != nil {
				problems = append(problems, err.Error())
			}
		}
		for _, p := range problems {
			refused.Reasons = append(refused.Reasons, storage.Printable(i.key)+": "+p)
		}
	}
	// What a rolling object owns rolls with it: owners come last.
	rolling := map[string]bool{}
	for k := range slices.Backward(items) {
		i := &items[k]
		i.rolls = i.rolls || i.rolling || slices.ContainsFunc(i.owners, func(o string) bool { return rolling[o] })
		rolling[identity(i.key, i.uid)] = i.rolls
	}
	absent := j.Absent
	if j.Back {
		absent = nil
	}
	for _, key := range absent {
		err := j.each(ctx, j.From, key, func(e etcd.Entry, _ *storage.Envelope, _ *storage.Meta) error {
			object, err := objects.Decode(e.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
			}
			spec, _ := object["spec"].(map[string]any)
			if target, is := spec["scaleTargetRef"].(map[string]any); is && !slices.Contains(j.Kinds, kindOf(target)) {
				return nil // of something that stays
			}
			refused.Reasons = append(refused.Reasons, storage.Printable(string(e.Key))+": refers by name to an object "+
				"that goes: delete it, and create it through the other side afterwards")
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	deleted, err := j.deleted(ctx, rec, items)
	if err != nil {
		return nil, err
	}
	refused.Reasons = append(refused.Reasons, deleted...)
	strays, _, err := j.strays(ctx, rec, items)
	if err != nil {
		return nil, err
	}
	refused.Reasons = append(refused.Reasons, strays...)
	if len(items) > 0 {
		for _, group := range unread {
			refused.Reasons = append(refused.Reasons, "the controllers there find no "+group+", which an APIService "+
				"of this side serves, and "+j.unserved(group))
		}
	}
	if len(refused.Reasons) > 0 {
		return nil, &refused
	}
	return items, nil
}

// load reads the record. Where the hand-over was begun there is one, and it is the one that was written then: without
// it nothing would go back, and nothing would say so.
func (j *Job) load() (*Record, error) {
	rec, err := j.Files.Load()
	switch {
	case err != nil:
		return nil, err
	case j.Known == nil:
		return rec, nil
	case rec == nil:
		return nil, &RefusedError{[]string{"there is no record of what was handed over: put it back into " +
			cmp.Or(j.Known.Directory, "the directory of the snapshots") + ", or name its directory with --snapshots"}}
	case j.Known.Digest != "" && rec.Digest() != j.Known.Digest:
		return nil, &RefusedError{[]string{"the record of what was handed over is not the one that was written then: " +
			"put that one back into " + cmp.Or(j.Known.Directory, "the directory of the snapshots")}}
	}
	return rec, nil
}

// gone looks on the way back for what was handed over and is in neither store: people delete some, an etcd that was
// emptied has none. What another object owns is left out: that one creates and deletes it; and what had ended, which is
// deleted when its time is over.
func (j *Job) gone(ctx context.Context, rec *Record, items []item) error {
	var asked []Object
	for _, o := range rec.Objects {
		r := j.resourceOf(o.Key)
		envelope, err := storage.ReadEnvelope(o.Value)
		var meta storage.Meta
		if err == nil {
			err = envelope.ReadMeta(&meta)
		}
		if err != nil {
			return fmt.Errorf("in the record, %s: %w", storage.Printable(o.Key), err)
		}
		if len(o.Copies) > 0 && len(meta.Owners) == 0 && r != nil && !r.Ended {
			asked = append(asked, o)
		}
	}
	left, err := j.present(ctx, asked, items)
	if err != nil {
		return err
	}
	e, digest := &GoneError{Of: len(asked)}, sha256.New()
	for _, o := range asked {
		if left[o.UID] {
			continue
		}
		fmt.Fprintf(digest, "%q %q\n", o.Key, o.UID)
		if e.Gone++; len(e.Keys) < mostKeys {
			e.Keys = append(e.Keys, storage.Printable(o.Key))
		}
	}
	e.Digest = hex.EncodeToString(digest.Sum(nil))
	if e.Gone == 0 || e.Gone < e.Of && (e.Of < fewObjects || 2*e.Gone <= e.Of) ||
		j.Known != nil && j.Known.Gone == e.Digest {
		return nil
	}
	return e
}

// present are the UIDs of the objects that are among the items, or in the other store.
func (j *Job) present(ctx context.Context, recorded []Object, items []item) (map[string]bool, error) {
	left := map[string]bool{}
	for _, i := range items {
		left[i.uid] = true
	}
	for batch := range slices.Chunk(recorded, batchKeys) {
		keys := make([]string, len(batch))
		for i := range batch {
			keys[i] = batch[i].Key
		}
		there, err := j.To.Read(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, o := range batch {
			left[o.UID] = left[o.UID] || there[i] != nil && isUID(there[i].Value, o.UID)
		}
	}
	return left, nil
}

const (
	// fewObjects are so few that people delete more than half of them.
	fewObjects = 5
	mostKeys   = 5 // that an error names
)

// isUID reports whether a stored value is the object of a UID.
func isUID(value []byte, uid string) bool {
	envelope, err := storage.ReadEnvelope(value)
	var meta storage.Meta
	return err == nil && envelope.ReadIdentity(&meta) == nil && string(meta.UID) == uid
}

// item is an object on its way.
type item struct {
	resource *Resource
	key, uid string
	entry    etcd.Entry // in From
	value    []byte     // of its copy
	there    *etcd.Entry
	owners   []string // identities
	digest   string   // of what is compared; "" where nothing is
	rolling  bool
	rolls    bool // its controller there replaces its pods

	generation int64
}

// items lists what goes, in the order of the resources; on the way back what the record has, and what that owns.
func (j *Job) items(ctx context.Context, rec *Record) ([]item, error) {
	goes := map[string]bool{}
	for _, o := range rec.Objects {
		goes[identity(o.Key, o.UID)] = true
	}
	byResource := make([][]item, len(j.Resources))
	// Owners come last, and decide what goes with them.
	for i := len(j.Resources) - 1; i >= 0; i-- {
		r := &j.Resources[i]
		err := j.each(ctx, j.From, r.Key, func(e etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
			uid := string(m.UID)
			self := identity(string(e.Key), uid)
			_, whole := j.defined[r.Key]
			if j.Back && !whole && !goes[self] && !isOwned(e.Key, m, goes) || j.isBoot(string(e.Key)) {
				return nil
			}
			goes[self] = true
			e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
			of := item{resource: r, key: string(e.Key), uid: uid, entry: e}
			for _, o := range m.Owners {
				of.owners = append(of.owners, identity(of.key, string(o.UID)))
			}
			byResource[i] = append(byResource[i], of)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(byResource...), nil
}

// judge names what stands against an object. What an earlier run has brought from one store to the other, and no
// controller has seen since, is only brought back.
func (j *Job) judge(i *item, rec *Record, stopped bool) (problems []string) {
	object, err := objects.Decode(i.entry.Value)
	if err != nil {
		return []string{err.Error()}
	}
	meta, _ := object["metadata"].(map[string]any)
	if meta["deletionTimestamp"] != nil {
		problems = append(problems, "is being deleted: wait until it is gone")
	}
	i.generation = number(meta["generation"])
	unseen := wasCopied(rec, i.uid, i.entry.Value)
	if i.resource.Ended && !ended(object) && !unseen {
		problems = append(problems, "has not finished, and the controllers there would not count its "+
			"pods: let it finish, after undo where its controller was stopped, and suspend what creates others")
	}
	spec, _ := object["spec"].(map[string]any)
	if i.resource.Kind == "CronJob" && spec["suspend"] != true && !unseen {
		problems = append(problems, "may create a Job meanwhile, which nothing would end: suspend it until the others "+
			"have moved")
	}
	if i.resource.Kind == "CronJob" && j.Back {
		if late := overdue(object, j.MostMissed, j.Now); late != "" {
			problems = append(problems, late)
		}
	}
	if i.resource.Kind == scaler && !j.Back {
		target, _ := spec["scaleTargetRef"].(map[string]any)
		if kind := kindOf(target); !slices.Contains(j.Kinds, kind) {
			problems = append(problems, fmt.Sprintf("scales a %s, which is not handed over: delete it, and "+
				"create one in its place on the side that has what it scales", storage.Printable(kind)))
		}
		for _, group := range metricsOf(object) {
			if slices.Contains(j.Aggregated, group) && !j.served[group] {
				problems = append(problems, "reads "+group+", "+j.unserved(group))
			}
		}
	}
	if owner := controllerOf(meta); owner != nil && !slices.Contains(j.Kinds, kindOf(owner)) {
		if uid, _ := owner["uid"].(string); !j.brought[uid] {
			problems = append(problems, fmt.Sprintf("is controlled by the %s %s, which stays: what acts for that "+
				"would not find it, and make another one, and a garbage collector there would not find its owner, "+
				"and delete it: stop what acts for that and take the owner reference out, hand over, and let it act "+
				"through the other side", storage.Printable(kindOf(owner)),
				storage.Printable(fmt.Sprint(owner["name"]))))
		}
	}
	if i.rolling = !unseen && rolling(i.resource.Kind, object); i.rolling && !j.Back && !stopped {
		problems = append(problems, "is being rolled out or scaled: wait until that is done")
	}
	i.rolls = j.Back && !unseen && revised(i, rec, object)
	if err := j.copied(i); err != nil {
		return append(problems, err.Error())
	}
	if i.digest, err = j.digest(i.resource, i.entry.Value); err != nil {
		problems = append(problems, err.Error())
	}
	lost, err := j.losses(i)
	if err != nil {
		problems = append(problems, err.Error())
	}
	if len(lost) > 0 {
		problems = append(problems, "has fields that are dropped there: "+strings.Join(lost, ", "))
	}
	return problems
}

// kindOf is the kind that a reference names, with its group: "Deployment.apps", "ReplicationController".
func kindOf(reference map[string]any) string {
	apiVersion, _ := reference["apiVersion"].(string)
	kind, _ := reference["kind"].(string)
	if group, _, found := strings.Cut(apiVersion, "/"); found {
		return kind + "." + group
	}
	return kind
}

// bring looks which controllers of the items that are none of the kinds have gone before: custom resources that are in
// the other store, as the same objects, and no longer in this one, or go in the same transition. Where a garbage
// collector of the side that is left runs, none has: it deletes what they own.
func (j *Job) bring(ctx context.Context, items []item) error {
	j.brought = map[string]bool{}
	if j.Collects && !j.Custom {
		return nil
	}
	wanted, groups := map[string]bool{}, map[string]bool{}
	for _, i := range items {
		object, err := objects.Decode(i.entry.Value)
		if err != nil {
			continue // judge says so
		}
		meta, _ := object["metadata"].(map[string]any)
		owner := controllerOf(meta)
		if owner == nil || slices.Contains(j.Kinds, kindOf(owner)) {
			continue
		}
		// Keys of custom resources begin with their group, which has a dot; those of built-in ones need not.
		if _, group, _ := strings.Cut(kindOf(owner), "."); strings.Contains(group, ".") {
			uid, _ := owner["uid"].(string)
			wanted[uid], groups[group] = true, true
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		in := func(store NamedStore, is bool) error {
			return j.below(ctx, store, j.Prefix+"/"+group+"/",
				func(_ etcd.Entry, _ *storage.Envelope, m *storage.Meta) error {
					if wanted[string(m.UID)] {
						j.brought[string(m.UID)] = is
					}
					return nil
				})
		}
		if err := errors.Join(in(j.To, true), in(j.From, j.Custom)); err != nil {
			return err
		}
	}
	return nil
}

// unread are the aggregated groups that the controllers would no longer find.
func (j *Job) unread(ctx context.Context) (groups []string, err error) {
	j.served, j.away = map[string]bool{}, map[string]string{}
	if len(j.Aggregated) == 0 {
		return nil, nil
	}
	served := func(store NamedStore, away map[string]string) (map[string]bool, error) {
		groups := map[string]bool{}
		from := j.Prefix + "/" + apiServices + "/"
		_, err := etcd.Entries(ctx, etcd.Store{Name: store.Name, Pager: store},
			etcd.Request{From: from, To: etcd.PrefixEnd(from)}, func(e etcd.Entry) error {
				_, group, _ := strings.Cut(strings.TrimPrefix(string(e.Key), from), ".")
				if !slices.Contains(j.Aggregated, group) {
					return nil
				}
				reason, err := unavailable(e.Value)
				switch {
				case err != nil:
					return fmt.Errorf("%s: %w", storage.Printable(string(e.Key)), err)
				case reason != "":
					away[group] = reason
				default:
					groups[group] = true
				}
				return nil
			})
		return groups, err
	}
	left, err := served(j.From, map[string]string{})
	if err != nil {
		return nil, err
	}
	j.served, err = served(j.To, j.away)
	for _, group := range j.Aggregated {
		if left[group] && !j.served[group] {
			groups = append(groups, group)
		}
	}
	return groups, err
}

// apiServices is their part of the key, in every version that has them.
const apiServices = "apiregistration.k8s.io/apiservices"

// copied is what an object is in the other store.
func (j *Job) copied(i *item) error {
	envelope, err := storage.ReadEnvelope(i.entry.Value)
	if err != nil {
		return err
	}
	value := i.entry.Value
	_, custom := j.defined[i.resource.Key]
	switch version := string(envelope.APIVersion); {
	case custom:
	case !slices.Contains(i.resource.Reads, version):
		if value, err = j.Convert(value, i.resource.StoredAs); err != nil {
			return fmt.Errorf("is stored as %s, which is not read there: %w", envelope.APIVersion, err)
		}
	case j.Words != 0: // a version has not all of its fields in every minor
		if value, err = j.Convert(value, version); err != nil {
			return err
		}
	}
	edits := storage.Edits{APIVersions: j.APIVersions, DropManagedFields: j.DropManagedFields,
		ScaleTarget: i.resource.Kind == scaler, Unobserved: observed[i.resource.Kind]}
	i.value, err = edits.Apply(value)
	return err
}

// view is what the finder of fields knows a resource by.
func (j *Job) view(r *Resource) *pair.View {
	if j.views == nil {
		j.views = map[string]*pair.View{}
	}
	if j.views[r.Key] == nil {
		j.views[r.Key] = &pair.View{Drops: r.Drops, Implied: r.Implied}
	}
	return j.views[r.Key]
}

// losses are the fields of a copy that the API servers there drop, beside those of its status, which controllers write
// again.
func (j *Job) losses(i *item) (lost []string, err error) {
	if _, custom := j.defined[i.resource.Key]; custom {
		return nil, nil // their definition has their fields, and goes with them
	}
	envelope, err := storage.ReadEnvelope(i.value)
	if err == nil {
		err = j.fields.Find(&envelope, j.view(i.resource), func(path string, implied bool) {
			if !implied && !strings.HasPrefix(path, "status.") && !strings.HasPrefix(path, pair.ManagedFields) {
				lost = append(lost, path)
			}
		})
	}
	return lost, err
}

// compare reads what lies under the keys of the objects in the other store.
func (j *Job) compare(ctx context.Context, items []item) error {
	for batch := range slices.Chunk(items, batchKeys) {
		keys := make([]string, len(batch))
		for i := range batch {
			keys[i] = batch[i].key
		}
		entries, err := j.To.Read(ctx, keys)
		if err != nil {
			return err
		}
		for i, e := range entries {
			batch[i].there = e
		}
	}
	return nil
}

// state of an object whose key is taken in the other store: nil when that is its copy, as it was copied.
func (j *Job) state(i *item, rec *Record) error {
	envelope, err := storage.ReadEnvelope(i.there.Value)
	var meta storage.Meta
	if err == nil {
		err = envelope.ReadIdentity(&meta)
	}
	switch {
	case err != nil:
		return fmt.Errorf("in the other store: %w", err)
	case string(meta.UID) != i.uid:
		if there, err := j.digest(i.resource, i.there.Value); j.Kept && err == nil && there == i.digest {
			return nil // people have created it on both sides
		}
		return fmt.Errorf("another object of this name is there already, with UID %s: rename or delete one of the two",
			storage.Printable(string(meta.UID)))
	}
	if i.resource.compared() {
		_, err := j.newer(i, rec)
		return err
	}
	// One of the two is what a run put there, and was not written since: the other one is right.
	put := i.there.Value
	if j.Back {
		put = i.entry.Value
	}
	if bytes.Equal(i.there.Value, i.value) || wasCopied(rec, i.uid, put) {
		return nil
	}
	return ErrBothWritten
}
