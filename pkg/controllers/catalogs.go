package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// catalogAge is the maximum age of a catalog that decides about a deletion.
const catalogAge = 10 * time.Second

// failedAge is the maximum age of an incomplete catalog.
const failedAge = 2 * time.Second

// recentAge is the maximum age of a catalog that decides only where to write.
const recentAge = time.Minute

// catalogs caches one side's catalog.
type catalogs struct {
	side pair.Side
	// fetch runs discovery. seen are built-in resources that the side has served before, and has to serve still.
	fetch func(ctx context.Context, seen []schema.GroupResource) (*catalog, error)
	now   func() time.Time

	mutex  sync.Mutex
	last   *catalog
	seen   []schema.GroupResource
	silent map[schema.GroupKind]silence
	era    int // changes whenever earlier lookups are void
}

// silence is since when no catalog of a side has had a kind.
type silence struct {
	groups []string
	since  time.Time
}

// since returns a complete catalog whose discovery began after the moment given, and not long ago.
// Errors: discovery failed, or listed less than the side serves. No older catalog takes its place.
func (c *catalogs) since(ctx context.Context, moment time.Time) (*catalog, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	last, err := c.ask(ctx, moment)
	if err == nil && last.doubt != nil {
		return nil, last.doubt
	}
	return last, err
}

// ask returns the cached catalog, or a new one. The mutex is held.
func (c *catalogs) ask(ctx context.Context, moment time.Time) (*catalog, error) {
	age := catalogAge
	if c.last != nil && (len(c.last.failed) > 0 || c.last.doubt != nil) {
		age = failedAge
	}
	if limit := c.now().Add(-age); moment.Before(limit) {
		moment = limit
	}
	if c.last != nil && c.last.asked.After(moment) {
		return c.last, nil
	}
	fresh, err := c.fetch(ctx, c.seen)
	if err != nil || fresh.doubt != nil {
		// What the side did not serve before, it may serve when it is back.
		c.silent, c.last = nil, fresh
		c.era++
		return fresh, err
	}
	if c.last == nil || !sameResources(c.last, fresh) {
		c.era++
	}
	for kind, silence := range c.silent {
		if fresh.failure(silence.groups...) != nil || len(fresh.ofKind(silence.groups, kind.Kind)) > 0 {
			delete(c.silent, kind)
		}
	}
	for _, r := range fresh.resources {
		if _, builtIn := kubever.ResourceFor(r.GroupResource()); builtIn &&
			!slices.Contains(c.seen, r.GroupResource()) {
			c.seen = append(c.seen, r.GroupResource())
		}
	}
	c.last = fresh
	return fresh, nil
}

func sameResources(a, b *catalog) bool {
	return slices.Equal(a.resources, b.resources) && slices.Equal(a.further, b.further) &&
		len(a.failed) == len(b.failed) && len(a.dormant) == len(b.dormant)
}

// limitSilent bounds how many kinds are known to be silent: clients write owner references of any kind.
const limitSilent = 10000

// listen notes since when the catalogs lack a kind.
func (c *catalogs) listen(served *catalog, kind schema.GroupKind, groups []string) time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if served != c.last || served.failure(groups...) != nil {
		return c.now()
	}
	known, ok := c.silent[kind]
	if !ok {
		known = silence{groups, served.asked}
		if c.silent == nil || len(c.silent) >= limitSilent { // what is forgotten has to be silent anew
			c.silent = map[schema.GroupKind]silence{}
		}
		c.silent[kind] = known
	}
	return known.since
}

// about returns a catalog that decides whether a side serves a kind. An absent kind counts only when no catalog has had
// it for the time that an API server may take to list what is defined, since the kind vanished or the reference was
// seen.
func (c *catalogs) about(ctx context.Context, kind schema.GroupKind, groups []string, seen time.Time,
	settle time.Duration) (*catalog, error) {
	for moment := seen; ; {
		served, err := c.since(ctx, moment)
		if err != nil {
			return nil, err
		}
		if err := served.failure(groups...); err != nil {
			return nil, err
		}
		if len(served.ofKind(groups, kind.Kind)) > 0 {
			return served, nil
		}
		begun := c.listen(served, kind, groups)
		if begun.Before(seen) {
			begun = seen
		}
		settled := begun.Add(settle)
		if !served.asked.Before(settled) {
			return served, nil
		}
		if settled.After(c.now()) || !moment.Before(settled) {
			return nil, fmt.Errorf("the %s side does not serve %s, and has not for only %s; want %s",
				c.side, kind, c.now().Sub(begun).Round(time.Millisecond), settle)
		}
		moment = settled // an older catalog does not decide
	}
}

// recent returns a catalog that decides where to write.
func (c *catalogs) recent(ctx context.Context) (*catalog, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.last != nil && len(c.last.failed) == 0 && c.last.doubt == nil && c.last.asked.After(c.now().Add(-recentAge)) {
		return c.last, nil
	}
	return c.ask(ctx, time.Time{})
}

// lastOf are the resources of a kind that the side served when it was last asked, or why they are not known; asked is
// false when it was not asked yet. It decides nothing.
func (c *catalogs) lastOf(groups []string, kind string) (of []resource, asked bool, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.last == nil {
		return nil, false, nil
	}
	return c.last.ofKind(groups, kind), true, c.last.failure(groups...)
}

// forget drops the cache, for a new term.
func (c *catalogs) forget() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.last, c.silent = nil, nil
	c.era++
}

// current is the era of the side's catalogs: lookups of another era are void.
func (c *catalogs) current() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.era
}
