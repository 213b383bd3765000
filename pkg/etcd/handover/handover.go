// Package handover takes the objects of some resources from one store to another while the API servers of both run, and
// no controller acts for them: so that the API servers of the other side find them, as the same objects, in a version
// that they decode, with owners that they know. Back goes what was taken, and what these objects own by then.
//
// Killed at any moment and run again, it goes on: what decides is read from the stores, and the record that was written
// before the first change. An object is created only where there is none, and deleted only when its copy was read back
// and it is at the revision that was copied. What a client writes meanwhile is copied again; what was written in both
// stores is named and left.
package handover

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// Store is a live store.
type Store interface {
	move.Store
	// Replace puts the values of the entries, all of them, or none when one of the keys is not at its ModRevision.
	Replace(ctx context.Context, entries []etcd.Entry) (bool, error)
}

// Resource is one whose objects go.
type Resource struct {
	Key  string `json:"key"` // its part of the key: "replicasets"
	Kind string `json:"kind"`
	// Reads are the group/versions that the API servers there read from their store, in lists and in watches; an object
	// that is stored in another one is converted to StoredAs.
	Reads    []string `json:"reads"`
	StoredAs string   `json:"storedAs"`
	// Subject: these are what is named; others go with their owners.
	Subject bool `json:"subject,omitempty"`
	// Ended: each object must have ended, as Jobs do.
	Ended bool `json:"ended,omitempty"`
	// Drops and Implied are of the API servers there, as those of pair.View: an object that has one of the fields
	// beside its status does not go.
	Drops   []string          `json:"drops,omitempty"`
	Implied map[string]string `json:"implied,omitempty"`
}

// Plan is one direction of a hand-over. It is plain data.
type Plan struct {
	Prefix    string     `json:"prefix"`
	Resources []Resource `json:"resources"` // in the order in which they go: what is owned before its owners
	// APIVersions are those that the API servers there do not serve, and what takes their place: kind -> old -> new.
	APIVersions       map[string]map[string]string `json:"apiVersions,omitempty"`
	DropManagedFields bool                         `json:"dropManagedFields,omitempty"`
	// Pods is where both sides keep pods, in the store Shared: those that are owned by what goes stay there, and name
	// their owners in a version that is served.
	Pods string `json:"pods"`
	// Absent are keys of which the store that is left may hold none: they refer by name to what goes, and act for it.
	Absent []string `json:"absent,omitempty"`
	// Kinds are those that are handed over, to which an object that refers to another one may refer.
	Kinds []string `json:"kinds"`
	// Back: only what was handed over goes, and what that owns.
	Back bool `json:"back,omitempty"`
}

// Record is what a hand-over took. It outlives both directions.
type Record struct {
	Schema  string   `json:"schema"`
	Objects []Object `json:"objects"`
	// Pods are those that the objects owned before they went.
	Pods []Pod `json:"pods"`
	Back bool  `json:"back,omitempty"` // the direction in which they are going
	// Rolling: some of them were being rolled out, so their pods go and come.
	Rolling bool `json:"rolling,omitempty"`

	index map[string]int // of Objects, by UID
}

// Schema names the format of a record.
const Schema = "fusionctl/hand-over/v1"

// Object is one that was handed over.
type Object struct {
	Key   string `json:"key"` // whole
	UID   string `json:"uid"`
	Value []byte `json:"value"` // as it was
	// Copies are the SHA-256 of what was put in its place; more than one where it was written meanwhile.
	Copies []string `json:"copies,omitempty"`
}

// Pod is one that an object owns.
type Pod struct {
	Key string `json:"key"`
	UID string `json:"uid"`
}

// Files keeps the record.
type Files interface {
	Load() (*Record, error) // nil when there is none
	Save(*Record) error     // returns when it is on the disk
}

// Job is a plan and what it is done with.
type Job struct {
	Plan
	From, To, Shared NamedStore // Shared is one of the two
	Files            Files
	Run, By          string // of the locks: identifies the run; for people
	// Convert returns a stored value in another group/version, as its kind there. An error where something is lost.
	Convert func(value []byte, apiVersion string) ([]byte, error)

	fields objects.Finder
	views  map[string]*pair.View // by resource
}

// NamedStore is a store under its name in the plan.
type NamedStore struct {
	Store
	Name string
}

// RefusedError says why nothing is handed over. Nothing was changed.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string {
	const most = 20
	reasons := e.Reasons
	more := ""
	if len(reasons) > most {
		more = fmt.Sprintf("\n  and %d more", len(reasons)-most)
		reasons = reasons[:most]
	}
	return "it cannot be handed over:\n  " + strings.Join(reasons, "\n  ") + more
}

// ErrBothWritten is wrapped when an object was written in both stores: which of the two is right, a person decides.
var ErrBothWritten = errors.New("was written in both stores")

// observed are the numbers of status.observedGeneration. Source: generated.proto of apps and extensions, every version.
var observed = map[string]protowire.Number{"Deployment": 1, "ReplicaSet": 3, "StatefulSet": 1, "DaemonSet": 5}

// item is an object on its way.
type item struct {
	resource *Resource
	key, uid string
	entry    etcd.Entry // in From
	value    []byte     // of its copy
	there    *etcd.Entry
	rolling  bool
}

func sum(value []byte) string {
	s := sha256.Sum256(value)
	return hex.EncodeToString(s[:])
}

// each reads the objects of a resource.
func (j *Job) each(ctx context.Context, store NamedStore, resource string,
	visit func(etcd.Entry, *storage.Envelope, *storage.Meta) error) error {
	from := j.Prefix + "/" + resource + "/"
	_, err := etcd.Entries(ctx, etcd.Store{Name: store.Name, Pager: store},
		etcd.Request{From: from, To: etcd.PrefixEnd(from)},
		func(e etcd.Entry) error {
			envelope, err := storage.ReadEnvelope(e.Value)
			var meta storage.Meta
			if err == nil {
				err = envelope.ReadMeta(&meta)
			}
			if err != nil {
				return fmt.Errorf("store %s: %s: %w", store.Name, storage.Printable(string(e.Key)), err)
			}
			return visit(e, &envelope, &meta)
		})
	return err
}

// identity is an object as what it owns names it: by its UID, in its namespace alone. What says elsewhere that it is
// owned by it is not: every client may write so.
func identity(key, uid string) string { return path.Base(path.Dir(key)) + "/" + uid }

// isOwned reports whether an object is owned by one of the identities.
func isOwned(key []byte, meta *storage.Meta, by map[string]bool) bool {
	return slices.ContainsFunc(meta.Owners, func(o storage.OwnerReference) bool {
		return by[identity(string(key), string(o.UID))]
	})
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
			if j.Back && !goes[self] && !isOwned(e.Key, m, goes) {
				return nil
			}
			goes[self] = true
			e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
			byResource[i] = append(byResource[i], item{resource: r, key: string(e.Key), uid: uid, entry: e})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(byResource...), nil
}

// copied is what an object is in the other store.
func (j *Job) copied(i *item) error {
	envelope, err := storage.ReadEnvelope(i.entry.Value)
	if err != nil {
		return err
	}
	value := i.entry.Value
	if !slices.Contains(i.resource.Reads, string(envelope.APIVersion)) {
		if value, err = j.Convert(value, i.resource.StoredAs); err != nil {
			return fmt.Errorf("is stored as %s, which is not read there: %w", envelope.APIVersion, err)
		}
	}
	edits := storage.Edits{APIVersions: j.APIVersions, DropManagedFields: j.DropManagedFields,
		ScaleTarget: i.resource.Kind == scaler, Unobserved: observed[i.resource.Kind]}
	i.value, err = edits.Apply(value)
	return err
}

const scaler = "HorizontalPodAutoscaler"

// judge names what stands against an object. What an earlier run has brought from one store to the other, and no
// controller has seen since, is only brought back.
func (j *Job) judge(i *item, rec *Record) (problems []string) {
	object, err := objects.Decode(i.entry.Value)
	if err != nil {
		return []string{err.Error()}
	}
	meta, _ := object["metadata"].(map[string]any)
	if meta["deletionTimestamp"] != nil {
		problems = append(problems, "is being deleted: wait until it is gone")
	}
	unseen := wasCopied(rec, i.uid, i.entry.Value)
	if i.resource.Ended && !ended(object) && !unseen {
		problems = append(problems, "has not ended, and the controllers there would not count what its pods have "+
			"done: wait until it has, and suspend what creates others")
	}
	spec, _ := object["spec"].(map[string]any)
	if i.resource.Kind == scaler && !j.Back {
		target, _ := spec["scaleTargetRef"].(map[string]any)
		if kind := fmt.Sprint(target["kind"]); !slices.Contains(j.Kinds, kind) {
			problems = append(problems, fmt.Sprintf("scales a %s, which is not handed over", kind))
		}
	}
	if i.rolling = !unseen && rolling(i.resource.Kind, object); i.rolling && !j.Back {
		problems = append(problems, "is being rolled out or scaled: wait until that is done")
	}
	if err := j.copied(i); err != nil {
		return append(problems, err.Error())
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

// number is a whole number, however it was decoded; 0 for none.
func number(value any) int64 {
	switch value := value.(type) {
	case int64:
		return value
	case int32:
		return int64(value)
	case uint64:
		return int64(value)
	case float64:
		return int64(value)
	}
	return 0
}

// rolling reports whether a controller is at work on an object: its pods go and come.
func rolling(kind string, object map[string]any) bool {
	meta, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	status, _ := object["status"].(map[string]any)
	if observed[kind] == 0 || spec["paused"] == true {
		return false
	}
	wanted := int64(1)
	if spec["replicas"] != nil {
		wanted = number(spec["replicas"])
	}
	switch {
	case number(status["observedGeneration"]) < number(meta["generation"]):
		return true
	case kind == "DaemonSet":
		return number(status["currentNumberScheduled"]) != number(status["desiredNumberScheduled"])
	case kind == "Deployment" && number(status["updatedReplicas"]) != wanted:
		return true
	}
	return number(status["replicas"]) != wanted
}

// ended reports whether a Job is complete or has failed.
func ended(object map[string]any) bool {
	status, _ := object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
	})
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
		return fmt.Errorf("another object of this name is there already, with UID %s: rename or delete one of the two",
			storage.Printable(string(meta.UID)))
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

// wasCopied reports whether a value is what a hand-over has put in the place of an object.
func wasCopied(rec *Record, uid string, value []byte) bool {
	at, known := rec.at(uid)
	return known && slices.Contains(rec.Objects[at].Copies, sum(value))
}

// Check reports whether the objects can go, and changes nothing. Errors: *RefusedError; a store that cannot be read.
func (j *Job) Check(ctx context.Context) error {
	rec, err := j.Files.Load()
	if err == nil {
		_, err = j.judged(ctx, rec)
	}
	return err
}

// judged lists what goes; nothing stands against any of it.
func (j *Job) judged(ctx context.Context, rec *Record) ([]item, error) {
	var refused RefusedError
	if rec == nil {
		rec = new(Record)
		if err := j.forgotten(ctx); err != nil {
			return nil, err
		}
	}
	items, err := j.items(ctx, rec)
	if err != nil {
		return nil, err
	}
	if err := j.compare(ctx, items); err != nil {
		return nil, err
	}
	for k := range items {
		i := &items[k]
		problems := j.judge(i, rec)
		if i.there != nil && len(problems) == 0 {
			if err := j.state(i, rec); err != nil {
				problems = append(problems, err.Error())
			}
		}
		for _, p := range problems {
			refused.Reasons = append(refused.Reasons, storage.Printable(i.key)+": "+p)
		}
	}
	absent := j.Absent
	if j.Back {
		absent = nil
	}
	for _, key := range absent {
		err := j.each(ctx, j.From, key, func(e etcd.Entry, _ *storage.Envelope, _ *storage.Meta) error {
			refused.Reasons = append(refused.Reasons, storage.Printable(string(e.Key))+": refers to what goes by its "+
				"name, and would not find it: delete it, and create it through the other side afterwards")
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(refused.Reasons) > 0 {
		return nil, &refused
	}
	return items, nil
}

// forgotten is an error when, on the way back, there is no record although something may have been handed over.
func (j *Job) forgotten(ctx context.Context) error {
	for _, r := range j.Resources {
		if !r.Subject || !j.Back {
			continue
		}
		left, there := 0, 0
		count := func(n *int) func(etcd.Entry, *storage.Envelope, *storage.Meta) error {
			return func(etcd.Entry, *storage.Envelope, *storage.Meta) error { *n++; return nil }
		}
		err := errors.Join(j.each(ctx, j.To, r.Key, count(&left)), j.each(ctx, j.From, r.Key, count(&there)))
		if err != nil {
			return err
		}
		if left == 0 && there > 0 {
			return &RefusedError{[]string{"there is no record of what was handed over, and there are " + r.Key +
				" to choose from: put the record back where it was"}}
		}
	}
	return nil
}

const (
	batchKeys  = 100
	batchBytes = 1 << 19
	rounds     = 10
)

// Move does the hand-over, or the way back. Errors: *RefusedError; ErrBothWritten, wrapped; *move.LockedError;
// a store that fails. It can be called again.
func (j *Job) Move(ctx context.Context) error {
	release, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	rec, err := j.Files.Load()
	if err != nil {
		return err
	}
	for range rounds {
		items, err := j.judged(ctx, rec)
		if err != nil {
			return err
		}
		if rec == nil {
			rec = &Record{Schema: Schema, Objects: []Object{}, Pods: []Pod{}}
		}
		if err := j.remember(ctx, rec, items); err != nil || len(items) == 0 {
			return err
		}
		for _, step := range []func(context.Context, []item, *Record) error{j.create, j.rename, j.remove} {
			if err := step(ctx, items, rec); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("after %d rounds there are still objects: something creates or writes them all the time; stop "+
		"it and run this again", rounds)
}

func (j *Job) lock(ctx context.Context) (release func(), err error) {
	var releases []func(context.Context) error
	release = func() {
		for _, r := range releases {
			_ = r(context.WithoutCancel(ctx)) // what remains of it expires
		}
	}
	for _, store := range []NamedStore{j.From, j.To} {
		r, err := store.Lock(ctx, j.Prefix+move.LockKey, move.Owner{Run: j.Run, Store: store.Name, By: j.By})
		if err != nil {
			release()
			return nil, fmt.Errorf("store %s: locking: %w", store.Name, err)
		}
		releases = append(releases, r)
	}
	return release, nil
}

// remember writes the record before anything of these objects changes.
func (j *Job) remember(ctx context.Context, rec *Record, items []item) error {
	if rec.Back != j.Back { // it turns round: the pods are those of now
		rec.Back, rec.Rolling, rec.Pods = j.Back, false, []Pod{}
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
		rec.Rolling = rec.Rolling || i.rolling
	}
	owned, err := j.podsOf(ctx, rec.uids())
	if err != nil {
		return err
	}
	for _, p := range owned {
		if !slices.Contains(rec.Pods, p) {
			rec.Pods = append(rec.Pods, p)
		}
	}
	return j.Files.Save(rec)
}

// at is where the object of a UID is.
func (r *Record) at(uid string) (int, bool) {
	if r.index == nil {
		r.index = map[string]int{}
		for i, o := range r.Objects {
			r.index[o.UID] = i
		}
	}
	at, known := r.index[uid]
	return at, known
}

// uids are the identities of what was taken.
func (r *Record) uids() map[string]bool {
	uids := map[string]bool{}
	for _, o := range r.Objects {
		uids[identity(o.Key, o.UID)] = true
	}
	return uids
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

// create copies what is not there, and copies again what was written since, and reads all back.
func (j *Job) create(ctx context.Context, items []item, _ *Record) error {
	var missing []etcd.Entry
	for _, i := range items {
		switch {
		case i.there == nil:
			missing = append(missing, etcd.Entry{Key: []byte(i.key), Value: i.value})
		case !bytes.Equal(i.there.Value, i.value) && !j.Back:
			again := etcd.Entry{Key: []byte(i.key), Value: i.value, ModRevision: i.there.ModRevision}
			if _, err := j.To.Replace(ctx, []etcd.Entry{again}); err != nil {
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
	if len(j.APIVersions) == 0 {
		return nil
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
		if i.there == nil {
			continue
		}
		// On the way back from the middle the original is still there, and its copy was never written. What a client
		// has created under this key since it was judged is another object.
		if !bytes.Equal(i.there.Value, i.value) && (!j.Back || j.state(i, rec) != nil) {
			continue
		}
		_, err := j.From.Delete(ctx, []move.KeyAt{{Key: i.key, ModRevision: i.entry.ModRevision}})
		if err != nil {
			return fmt.Errorf("%s: deleting what was copied: %w", storage.Printable(i.key), err)
		}
	}
	return nil
}

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
	now, err := j.podsOf(ctx, uids)
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

func unobserved(key string, value []byte) error {
	object, err := objects.Decode(value)
	if err != nil {
		return fmt.Errorf("%s: %w", storage.Printable(key), err)
	}
	meta, _ := object["metadata"].(map[string]any)
	status, _ := object["status"].(map[string]any)
	if meta["deletionTimestamp"] == nil && number(status["observedGeneration"]) < number(meta["generation"]) {
		return fmt.Errorf("%s: no controller has looked at it yet", storage.Printable(key))
	}
	return nil
}

// Taken counts what was handed over, by resource: "2 deployments, 2 replicasets".
func (r *Record) Taken(prefix string) string {
	counts := map[string]int{}
	for _, o := range r.Objects {
		resource, _, _ := strings.Cut(strings.TrimPrefix(o.Key, prefix+"/"), "/")
		counts[resource]++
	}
	var parts []string
	for _, resource := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[resource], resource))
	}
	return strings.Join(parts, ", ")
}
