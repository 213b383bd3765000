package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/witness"
)

// ErrOtherStore says that the store of the resource is not the one that the plan or the journal is about: it is new,
// was restored from a backup, or objects vanish from it in numbers. What was proved of it before counts no more.
var ErrOtherStore = errors.New("the store is not as the journal knows it")

// vanishing is when objects vanish too fast for anything but a store that is being emptied.
var vanishing = witness.Limit{Share: 20, Least: 10, Within: time.Minute}

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
		if etcd, ok := store.Pager.(clustered); ok {
			if seen.Cluster, err = etcd.Cluster(ctx); err != nil {
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
