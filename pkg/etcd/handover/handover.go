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
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/kubever"
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
	// Compared is the group/version in which an object and its copy are compared where programs on both sides may write
	// the status of theirs: what else each has is the same, or one of the two was not written since. "": no program
	// does.
	Compared string `json:"compared,omitempty"`
	// By says that they are compared in another way, in whichever version each is stored.
	By By `json:"by,omitempty"`
	// Drops and Implied are of the API servers there, as those of pair.View: an object that has one of the fields
	// beside its status does not go.
	Drops   []string          `json:"drops,omitempty"`
	Implied map[string]string `json:"implied,omitempty"`
}

// By is what is compared of an object and its copy.
type By string

const (
	// ByAll compares all but what API servers write beside the object.
	ByAll By = "all"
	// ByMetadata compares the metadata, of which the generation counts the changes of the spec: API servers write the
	// status, and with it defaults of their own version.
	ByMetadata By = "metadata"
)

// compared reports whether objects and their copies are compared, so that either may be written meanwhile.
func (r *Resource) compared() bool { return r.Compared != "" || r.By != "" }

// Plan is one direction of a hand-over. It is plain data.
type Plan struct {
	Prefix string `json:"prefix"`
	// Namespace is the one whose objects go; "" for those of all.
	Namespace string `json:"namespace,omitempty"`
	// NamespacesIn is the store of namespaces, where it is one of both.
	NamespacesIn string     `json:"namespacesIn,omitempty"`
	Resources    []Resource `json:"resources"` // in the order in which they go: what is owned before its owners
	// APIVersions are those that the API servers there do not serve, and what takes their place: kind -> old -> new.
	APIVersions       map[string]map[string]string `json:"apiVersions,omitempty"`
	DropManagedFields bool                         `json:"dropManagedFields,omitempty"`
	// Pods is where both sides keep pods, in the store Shared: those that are owned by what goes stay there, and name
	// their owners in a version that is served.
	Pods string `json:"pods"`
	// Absent are keys of which the store that is left may hold none: they refer by name to what goes, and act for it.
	Absent []string `json:"absent,omitempty"`
	// Kinds are those that are handed over, to which an object that refers to another one may refer: "Deployment.apps",
	// with every group that ever served them.
	Kinds []string `json:"kinds"`
	// Aggregated are API groups that the controllers of these objects read, and that other servers serve behind the API
	// servers: where the side that is left has an APIService of one, the other side must have one, too.
	Aggregated []string `json:"aggregated,omitempty"`
	// Collects: the garbage collector of the side that is left runs meanwhile.
	Collects bool `json:"collects,omitempty"`
	// MostMissed is after how many missed times the controllers there start a CronJob without a deadline no more;
	// 0: they always do.
	MostMissed int `json:"mostMissed,omitempty"`
	// Words is the version of the API servers there, in whose words definitions are converted. It is 0 for all else: a
	// template of pods in other words is another revision.
	Words kubever.Minor `json:"words,omitempty"`
	// Back: only what was handed over goes, and what that owns.
	Back bool `json:"back,omitempty"`
	// Copy: the objects are there afterwards, and stay where they are, until another run without it.
	Copy bool `json:"copy,omitempty"`
	// Kept: the objects are there afterwards, and stay where they are for good. Back, the copies are removed.
	Kept bool `json:"kept,omitempty"`
	// Comes are keys of what the other side gets before, in the same transition.
	Comes []string `json:"comes,omitempty"`
	// Boot are keys of what API servers write by themselves, which does not go.
	Boot []pair.BootKey `json:"boot,omitempty"`
	// Definitions is the part of the key of definitions: what they define goes, and Resources are those.
	Definitions string `json:"definitions,omitempty"`
	// Custom: custom resources go in the same transition, before what they control, and back after it.
	Custom bool `json:"custom,omitempty"`
}

// Files keeps the record.
type Files interface {
	Load() (*Record, error) // nil when there is none
	Save(*Record) error     // returns when it is on the disk
}

// Known is what is remembered of a hand-over outside of its record. It is plain data.
type Known struct {
	Directory string `json:"directory,omitempty"` // of the record, on the host that reaches the stores
	Digest    string `json:"digest,omitempty"`    // Digest of the record; "" while objects go
	// Gone is the Digest of the GoneError that a person has acknowledged.
	Gone string `json:"gone,omitempty"`
}

// Job is a plan and what it is done with.
type Job struct {
	Plan
	From, To, Shared NamedStore // Shared is one of the two
	Files            Files
	// Mark names the hand-over in the store to which objects went, below MarksKey, until they are back; "" for none.
	Mark string
	// DefinitionFiles keeps the record of the definitions that went; nil where there are none.
	DefinitionFiles Files
	// Known is what a journal knows of this hand-over; nil: that nothing of it was begun.
	Known   *Known
	Run, By string // of the locks: identifies the run; for people
	Now     time.Time
	// Convert returns a stored value in another group/version, as its kind there. An error where something is lost.
	Convert func(value []byte, apiVersion string) ([]byte, error)

	brought map[string]bool   // UIDs of controllers that have gone to the other store before
	served  map[string]bool   // aggregated groups there
	away    map[string]string // those whose APIServices there are all unavailable, and why
	fields  objects.Finder
	views   map[string]*pair.View      // by resource
	named   map[string]map[string]bool // what objects name in stores, by how keys end
	defined map[string][2]bool         // by resource: whether its definition is here, and there
}

// NamedStore is a store under its name in the plan.
type NamedStore struct {
	Store
	Name string
}

// RefusedError says why objects are not handed over. Check changes nothing; what Move has taken before stays taken.
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

// GoneError says that of the objects that were handed over so many are in neither store as no client deletes: a
// store that was emptied looks like that.
type GoneError struct {
	Keys   []string `json:"keys"` // the first of them
	Gone   int      `json:"gone"`
	Of     int      `json:"of"`
	Digest string   `json:"digest"` // of the identities of all that are gone
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("%d of %d objects that were handed over are in neither store, such as %s", e.Gone, e.Of,
		strings.Join(e.Keys, ", "))
}

// ErrBothWritten is wrapped when an object was written in both stores: a person has to decide which is right.
var ErrBothWritten = errors.New("was written in both stores")

// each reads the objects of a resource, of the namespace alone where there is one.
func (j *Job) each(ctx context.Context, store NamedStore, resource string,
	visit func(etcd.Entry, *storage.Envelope, *storage.Meta) error) error {
	if j.Namespace != "" {
		resource += "/" + j.Namespace
	}
	return j.below(ctx, store, j.Prefix+"/"+resource+"/", visit)
}

// below reads the objects whose keys begin so.
func (j *Job) below(ctx context.Context, store NamedStore, from string,
	visit func(etcd.Entry, *storage.Envelope, *storage.Meta) error) error {
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

// resourceOf is the resource of a key; nil for none of these.
func (j *Job) resourceOf(key string) *Resource {
	at := slices.IndexFunc(j.Resources, func(r Resource) bool { return strings.HasPrefix(key, j.Prefix+"/"+r.Key+"/") })
	if at < 0 {
		return nil
	}
	return &j.Resources[at]
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
