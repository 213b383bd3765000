package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// ErrOtherStore says that the store of the resource is not the one that the plan or the journal is about: it is new,
// was restored from a backup, or objects vanish from it in numbers. What was proved of it before counts no more.
var ErrOtherStore = errors.New("the store is not as the journal knows it")

// vanishing is when objects vanish too fast for anything but a store that is being emptied.
var vanishing = witness.Limit{Share: 20, Least: 10, Within: time.Minute}

// ErrNotItsStore says that a store is not the one in which the API server keeps a resource: of another side or cluster,
// or below another prefix. It shows nothing of what is stored, least of all that nothing is.
var ErrNotItsStore = errors.New("the API server does not keep the resource in this store")

// errSeen ends the reading of a store.
var errSeen = errors.New("one is enough")

// looksAtStore is how often a store is looked at for an object that clients write meanwhile.
const looksAtStore = 10

// Confirm makes sure that a store is the one in which the API server keeps the resource: an object is in it as the
// server shows it. That is the CRD, which lies where its custom resources lie, or the first object of a resource that
// is built in; without one the store has none either.
// Errors: ErrNotItsStore, wrapped; those of the server and of the store.
func Confirm(ctx context.Context, store Store, r Resource, definitions Definitions, objects Objects) error {
	key, shown, stored := "", "", ""
	for range looksAtStore {
		var err error
		if key, shown, err = sample(ctx, r, definitions, objects); err != nil {
			return fmt.Errorf("looking for an object of store %s: %w", store.Name, err)
		}
		from := storage.NormalPrefix(store.Prefix) + "/" + key
		to := from + "\x00"
		if shown == "" { // no object at all
			to = from[:len(from)-1] + "0"
		}
		stored = ""
		_, err = etcd.Entries(ctx, store.Store, etcd.Request{From: from, To: to}, func(e etcd.Entry) error {
			stored = fmt.Sprint(e.ModRevision)
			return errSeen
		})
		if err != nil && !errors.Is(err, errSeen) {
			return err
		}
		if stored == shown {
			return nil
		}
	}
	switch {
	case shown == "":
		return fmt.Errorf("%w: the server has no %s, and store %s has some", ErrNotItsStore, r.Name, store.Name)
	case stored == "":
		return fmt.Errorf("%w: the server has %s, and store %s does not", ErrNotItsStore, key, store.Name)
	}
	return fmt.Errorf("%w: the server has %s at revision %s, and store %s at %s", ErrNotItsStore, key, shown,
		store.Name, stored)
}

// sample is the key, below the prefix, of an object that the server shows, and its resource version. Where there is
// none, the key is that of the resource, with a slash behind it, and the version is "".
func sample(ctx context.Context, r Resource, definitions Definitions, objects Objects) (key, version string,
	err error) {
	if !r.BuiltIn {
		d, err := definitions.Definition(ctx, r.Name)
		if err != nil {
			return "", "", err
		}
		if d.ResourceVersion() == "" {
			return "", "", fmt.Errorf("the server shows the CRD %s without a resource version", r.Name)
		}
		return GroupCRD + "/customresourcedefinitions/" + r.Name, d.ResourceVersion(), nil
	}
	page, err := objects.Page(ctx, List{APIVersion: r.Access, Limit: 1})
	if err != nil {
		return "", "", err
	}
	if len(page.Objects) == 0 {
		return r.Key + "/", "", nil
	}
	return r.Key + "/" + page.Objects[0].String(), page.Objects[0].ResourceVersion, nil
}

// clustered is a pager that knows the id of its etcd cluster.
type clustered interface {
	Cluster(ctx context.Context) (string, error)
}

// Look reads what the store of a resource shows of itself, through the API server and, where it is given, directly.
// Shape: apiVersion is one in which the objects of a resource that is built in can be listed.
func Look(ctx context.Context, servers Servers, store *Store, apiVersion string, now time.Time) (
	*witness.Sight, error) {
	seen, err := servers.Sight(ctx, apiVersion)
	if err != nil {
		return nil, fmt.Errorf("looking at the store: %w", err)
	}
	seen.At = now
	if store != nil {
		if known, ok := store.Pager.(clustered); ok {
			if seen.Cluster, err = known.Cluster(ctx); err != nil {
				return nil, fmt.Errorf("store %s: reading its id: %w", store.Name, err)
			}
		}
	}
	return &seen, nil
}

// look holds the store against what is remembered of it, and remembers it.
func (r *run) look(ctx context.Context) error {
	now, err := Look(ctx, r.Servers, r.Store, r.plan.access(r.plan.Storage), r.Now())
	if err != nil {
		return err
	}
	if before := r.at.seen; before != nil {
		if why := before.Changes(now); len(why) > 0 {
			return fmt.Errorf("%w: %s", ErrOtherStore, strings.Join(why, "; "))
		}
	}
	r.at.remember(now)
	return nil
}

// remember adds what was seen of the store.
func (at *position) remember(seen *witness.Sight) {
	if at.seen != nil && seen != nil {
		merged := at.seen.Merge(seen)
		at.seen = &merged
	} else if seen != nil {
		at.seen = seen
	}
}
