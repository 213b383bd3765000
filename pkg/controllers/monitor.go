package controllers

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// monitor keeps the graph up to date about one resource. It is the store of client-go's reflector: the objects are held
// once, in the graph.
type monitor struct {
	resource resource
	graph    *graph
	synced   atomic.Bool
	ended    atomic.Bool                                       // what its watch still brings is not kept
	told     func(r resource, o *metav1.PartialObjectMetadata) // receives every object
	cancel   context.CancelFunc
}

// watchWithoutLists keeps the reflector from streaming lists: API servers before 1.27 ignore sendInitialEvents and
// never send the bookmark that ends the list.
type watchWithoutLists struct{ *cache.ListWatch }

func (watchWithoutLists) IsWatchListSemanticsUnSupported() bool { return true }

func (m *monitor) run(ctx context.Context, c *client) {
	c.reflector(collection{m.resource, "", decodeObject}, m).RunWithContext(ctx)
}

// reflector keeps a store up to date about a collection.
func (c *client) reflector(of collection, store cache.ReflectorStore) *cache.Reflector {
	return cache.NewReflectorWithOptions(c.source(of), &metav1.PartialObjectMetadata{}, store, cache.ReflectorOptions{
		Name: string(c.side), TypeDescription: of.String(),
	})
}

// source is what a reflector reads. It reads the pages of a list one after the other.
func (c *client) source(of collection) watchWithoutLists {
	var all held // of the pages so far
	return watchWithoutLists{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.Continue == "" {
				all = 0
			}
			list, now, err := c.list(ctx, of, options, all)
			if err != nil {
				return nil, err
			}
			all = now
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.watch(ctx, of, options)
		},
	}}
}

// Add, Update, Delete, Replace and Resync are what the reflector calls.
func (m *monitor) Add(object any) error {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("controllers: internal error: a watch of %s returned a %T", m.resource, object)
	}
	m.graph.observe(&m.resource, o)
	if m.ended.Load() {
		m.graph.leave(&m.resource)
	}
	m.told(m.resource, o)
	return nil
}

func (m *monitor) Update(object any) error { return m.Add(object) }

func (m *monitor) Delete(object any) error {
	o, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("controllers: internal error: a watch of %s returned a %T", m.resource, object)
	}
	m.graph.remove(&m.resource, o.UID)
	return nil
}

func (m *monitor) Replace(objects []any, _ string) error {
	all := func(yield func(*metav1.PartialObjectMetadata) bool) {
		for _, object := range objects {
			if o, ok := object.(*metav1.PartialObjectMetadata); ok && !yield(o) {
				return
			}
		}
	}
	m.graph.replace(&m.resource, all)
	if m.ended.Load() {
		m.graph.leave(&m.resource)
	}
	for o := range iter.Seq[*metav1.PartialObjectMetadata](all) {
		m.told(m.resource, o)
	}
	m.synced.Store(true)
	return nil
}

func (m *monitor) Resync() error { return nil }

// monitors runs a monitor for each resource that is to be watched.
type monitors struct {
	cluster *cluster
	graph   *graph
	told    func(r resource, o *metav1.PartialObjectMetadata)

	mutex   sync.Mutex
	running map[resource]*monitor
	several map[string]bool // kinds that a side serves in versions that are not watched, too
	owned   map[string]bool // kinds of which this process has seen objects that own others
	wait    sync.WaitGroup
}

// sync starts and stops monitors by what the sides serve now.
// Errors: discovery of a side failed: the monitors stay as they are then.
func (m *monitors) sync(ctx context.Context) error {
	var both []*catalog
	for _, side := range pair.Sides() {
		c, err := m.cluster.catalogs[side].since(ctx, m.cluster.now().Add(-catalogAge))
		if err != nil {
			return err
		}
		both = append(both, c)
	}
	m.cluster.listen(both[0], both[1])
	m.mutex.Lock()
	defer m.mutex.Unlock()
	wanted := map[resource]bool{}
	for _, r := range m.cluster.layout.watched(both[0], both[1]) {
		wanted[r] = true
		if m.running[r] == nil {
			m.start(ctx, r)
		}
	}
	for r, monitor := range m.running {
		known := both[0]
		if r.side == pair.Modern {
			known = both[1]
		}
		if wanted[r] || known.failure(r.Group) != nil {
			continue // a group whose discovery failed is not known to be absent
		}
		monitor.cancel()
		monitor.ended.Store(true) // an event may be on its way, and no other watch would bring its deletion
		delete(m.running, r)
		m.cluster.metrics.unsynced.DeleteLabelValues(string(r.side), r.String())
		owners := m.graph.leave(&monitor.resource)
		if owners > 0 && len(known.ofKind([]string{r.Group}, r.kind)) == 0 {
			m.cluster.log.Warn("kind not served any more; what its objects own is kept", "side", r.side,
				"resource", r.String(), "owners", owners)
		}
		if owners > 0 || monitor.synced.Load() {
			m.note(r, owners > 0)
		}
	}
	m.several = map[string]bool{}
	for _, c := range both {
		for _, r := range c.further {
			m.several[kindOf(r)] = true
		}
	}
	m.remember()
	m.report()
	return nil
}

// learn is remember, between two looks at what the sides serve.
func (m *monitors) learn() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.remember()
}

// remember notes which kinds have objects that own others. The mutex is held.
func (m *monitors) remember() {
	owning, unsure := map[string]bool{}, map[string]bool{}
	for r, monitor := range m.running {
		key := kindOf(r)
		owning[key] = owning[key] || m.graph.owning(r) > 0
		unsure[key] = unsure[key] || !monitor.synced.Load()
	}
	for r := range m.running {
		if key := kindOf(r); owning[key] || !unsure[key] {
			m.note(r, owning[key])
		}
	}
}

// note remembers a kind, or forgets it: not while owners are missed that were watched in another version, nor while
// another version may have some that this process has never watched. The mutex is held.
func (m *monitors) note(r resource, owns bool) {
	key := kindOf(r)
	if owns {
		if m.owned == nil {
			m.owned = map[string]bool{}
		}
		m.owned[key] = true
	} else if m.graph.misses(key) || m.several[key] && !m.owned[key] {
		return
	}
	m.cluster.guard.rememberKind(r, owns)
}

// listen notes since when a side has not served the custom kinds of the other, before a reference is seen.
func (c *cluster) listen(legacy, modern *catalog) {
	for _, r := range slices.Concat(legacy.resources, modern.resources) {
		kind := r.GroupVersion().WithKind(r.kind).GroupKind()
		if other, groups := legacy, c.layout.groups(kind); !c.layout.known(kind) {
			silent := r.side.Other()
			if silent == pair.Modern {
				other = modern
			}
			if len(other.ofKind(groups, kind.Kind)) == 0 {
				c.catalogs[silent].listen(other, kind, groups)
			}
		}
	}
}

func (m *monitors) start(ctx context.Context, r resource) {
	ctx, cancel := context.WithCancel(ctx)
	monitor := &monitor{resource: r, graph: m.graph, told: m.told, cancel: cancel}
	m.running[r] = monitor
	m.wait.Go(func() { monitor.run(ctx, m.cluster.client(r.side)) })
}

func (m *monitors) report() (waiting []string) {
	for r, monitor := range m.running {
		value := 0.0
		if !monitor.synced.Load() {
			value = 1
			waiting = append(waiting, fmt.Sprintf("%s on the %s side", r, r.side))
		}
		m.cluster.metrics.unsynced.WithLabelValues(string(r.side), r.String()).Set(value)
	}
	slices.Sort(waiting)
	return waiting
}

// unsynced lists the resources whose objects have not been listed yet.
func (m *monitors) unsynced() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.report()
}

// unsyncedOf are the resources of a kind, of those that catalogs have, whose objects watches are to bring and have not
// brought all. What cannot be watched is not among them.
func (m *monitors) unsyncedOf(of []*catalog, groups []string, kind string) (waiting []string) {
	is := func(r resource) bool { return r.kind == kind && slices.Contains(groups, r.Group) }
	m.mutex.Lock()
	defer m.mutex.Unlock()
	synced, other := map[pair.Side]bool{}, map[pair.Side]bool{}
	for r, monitor := range m.running {
		if is(r) && monitor.synced.Load() {
			synced[r.side] = true
		} else if is(r) {
			other[r.side] = true
		}
	}
	for _, c := range of {
		for _, r := range c.resources {
			if !is(r) || !r.can("get", "list", "watch", "delete") || isEvent(r.GroupResource()) {
				continue
			}
			known := synced[r.side] && !other[r.side]
			if m.cluster.layout.home(r.GroupResource()) != "" { // watched through one side, whichever it is
				known = len(synced) > 0 && len(other) == 0
			}
			if !known {
				waiting = append(waiting, fmt.Sprintf("%s on the %s side", r, r.side))
			}
		}
	}
	return waiting
}
