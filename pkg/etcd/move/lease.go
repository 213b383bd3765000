package move

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// leasesKept bounds what a run remembers: API servers before 1.9 have a lease for every event.
const leasesKept = 10_000

// lease returns a lease of the new store that lasts as long as the old one still does, and reports whether that does.
// There is one for each old lease, however often a run is killed: its id follows from it. It is never revoked: that
// would delete its keys. It expires when they would have.
func (a *applier) lease(ctx context.Context, l leaseAt) (id int64, alive bool, err error) {
	if l.id == 0 {
		return 0, true, nil
	}
	if id, ok := a.leases[l]; ok {
		return id, true, nil
	}
	seconds, err := a.Stores[l.from].TimeToLive(ctx, l.id)
	if err != nil {
		return 0, false, fmt.Errorf("store %s: %w", l.from, err)
	}
	if seconds <= 0 {
		return 0, false, nil
	}
	id = a.leaseID(l)
	if err := a.Stores[l.to].Grant(ctx, id, seconds); err != nil {
		return 0, false, fmt.Errorf("store %s: %w", l.to, err)
	}
	a.remember(l, id)
	return id, true, nil
}

func (a *applier) remember(l leaseAt, id int64) {
	if len(a.leases) >= leasesKept {
		clear(a.leases)
	}
	a.leases[l] = id
}

// leaseID is the id that a lease has in its new store: its own for each plan, and not one that a server allocates.
func (a *applier) leaseID(l leaseAt) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%x", a.Plan.ID, l.from, l.to, l.id))
	return int64(binary.BigEndian.Uint64(sum[:])&math.MaxInt64 | 1)
}

// lasts returns why what a store holds under a key does not last as long as the same value where it comes from, or
// lasts longer than it should; "" when it may take its place.
func (a *applier) lasts(ctx context.Context, p keyPair) (problem string, err error) {
	if p.to.Lease != 0 && p.to.Lease == a.leaseID(leaseAt{p.From, p.To, p.from.Lease}) {
		return "", nil
	}
	return lasts(ctx, a.Stores, p)
}

func lasts(ctx context.Context, stores map[string]Store, p keyPair) (problem string, err error) {
	switch {
	case p.from.Lease == 0 && p.to.Lease == 0:
		return "", nil
	case p.from.Lease == 0:
		return fmt.Sprintf("store %s holds the same under this key, but with a lease: it would end", p.To), nil
	case p.to.Lease == 0:
		return fmt.Sprintf("store %s holds the same under this key, but without a lease: it would not end", p.To), nil
	}
	// The lease that is read first has less time left when the other is read: at worst a lease is taken for too short.
	old, err := stores[p.From].TimeToLive(ctx, p.from.Lease)
	if err != nil {
		return "", fmt.Errorf("store %s: %w", p.From, err)
	}
	now, err := stores[p.To].TimeToLive(ctx, p.to.Lease)
	if err != nil {
		return "", fmt.Errorf("store %s: %w", p.To, err)
	}
	if now < old {
		return fmt.Sprintf("store %s holds the same under this key, but with a lease that ends sooner, in %d s "+
			"instead of %d s", p.To, max(now, 0), old), nil
	}
	return "", nil
}
