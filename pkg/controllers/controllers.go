// Package controllers is the controller manager of a fused control plane: a garbage collector and a namespace
// controller across both API servers. Kubernetes' own see one API server, and regard what the other side has as absent.
//
// Nothing is deleted because of a cache. An event of a watch queues an object; then the object and each of its owners
// are read again, from every side that could hold them, and the deletion names the UID and the resource version that
// were read. An API server that is unreachable, a group whose discovery failed, a 404 that is not the API server's own:
// each keeps the object.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Options say how the controllers run.
type Options struct {
	Legacy, Modern *rest.Config
	// DryRun changes nothing: the audit trail reports what would be done. The lock is not taken either.
	DryRun bool
	// Collect deletes objects that have no live owner and finishes deletions that wait for dependents. Without it only
	// namespaces are finalized.
	Collect bool
	// DeleteOrphans deletes objects whose namespace is on no side; otherwise they are reported.
	DeleteOrphans bool
	// LeaderElect makes one of several processes the leader, which alone acts.
	LeaderElect bool
	// QPS limits the requests to each side, ChangesPerSecond the deletions and changes on both together.
	QPS              float32
	ChangesPerSecond float64
	Workers          int      // objects that are processed concurrently
	Listen           string   // address of /healthz, /readyz and /metrics; "" for none
	Health           string   // address of /healthz and /readyz alone; "" for none
	Webhook          *Webhook // mutates pods; nil where the plan has no webhook
	// StateDirectory keeps what identifies the stores across restarts; "" keeps it in memory alone.
	StateDirectory string
	// Brake limits how many owners may vanish within a time before deletions stop; the zero value is DefaultBrake.
	Brake      witness.Limit
	Log, Audit *slog.Logger
}

// DefaultBrake stops deletions when more than a fifth of the owners of a kind, and ten at least, vanish within a
// minute.
var DefaultBrake = witness.Limit{Share: 20, Least: 10, Within: time.Minute}

// Intervals.
const (
	discoverEvery = 30 * time.Second // what the sides serve
	scanEvery     = 2 * time.Minute  // the whole graph, in case an event was lost
	syncWithin    = 30 * time.Second // how long the start waits for first lists
	stallsAfter   = 2 * time.Minute  // without a successful discovery /readyz fails
)

// Run runs the controllers of a plan until ctx ends. Errors: an unusable configuration, or an address that cannot be
// listened on. An API server that is unreachable or not the plan's and a lost lock are retried.
func Run(ctx context.Context, p *plan.Runtime, o Options) error {
	c, err := newCluster(p, map[pair.Side]*rest.Config{pair.Legacy: o.Legacy, pair.Modern: o.Modern}, o)
	if err != nil {
		return err
	}
	return newProcess(c, o).run(ctx)
}

// manager holds the controllers of one term as the leader.
type manager struct {
	*cluster
	graph      *graph
	monitors   *monitors
	collector  *collector
	namespaces *namespaces                   // nil where each side has namespaces of its own
	keepers    []func(context.Context) error // reconcilers of the leader besides
	workers    int                           // 0: nothing is collected

	mutex   sync.Mutex
	started bool      // the first lists are in
	heard   time.Time // the last successful discovery of both sides
}

func newManager(c *cluster, o Options) *manager {
	m := &manager{cluster: c}
	if o.Collect {
		m.workers = max(1, o.Workers)
	}
	m.graph = newGraph(c.now, m.attend)
	m.graph.vanished = c.guard.vanished
	m.collector = &collector{cluster: c, graph: m.graph, absent: memory{now: c.now},
		costly: costly{limit: max(1, m.workers/2)},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](200*time.Millisecond, time.Minute))}
	m.monitors = &monitors{cluster: c, graph: m.graph, told: m.told, running: map[resource]*monitor{}}
	m.collector.unsynced = m.monitors.unsyncedOf
	m.collector.unlisted = func() []string { return append(m.monitors.unsynced(), m.graph.incomplete()...) }
	if c.sharesNamespaces() {
		m.namespaces = &namespaces{cluster: c, graph: m.graph, deleteOrphans: o.DeleteOrphans,
			reported: map[string]bool{},
			queue: workqueue.NewTypedRateLimitingQueue(
				workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second))}
	}
	return m
}

// attend queues an object. Until the first lists are in, nearly every owner is unseen and nothing is queued: the scan
// at the end of the start finds them.
func (m *manager) attend(uid types.UID) {
	m.mutex.Lock()
	started := m.started
	m.mutex.Unlock()
	if started && m.workers > 0 {
		m.collector.queue.Add(uid)
	}
}

// told receives every object: namespaces have a controller of their own.
func (m *manager) told(r resource, o *metav1.PartialObjectMetadata) {
	if m.namespaces != nil && isNamespace(r) && r.side == m.namespaces.side() {
		m.namespaces.queue.Add(o.Name)
	}
}

// run watches and acts until ctx ends.
func (m *manager) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer m.shutDown()
	defer m.monitors.wait.Wait()
	defer cancel()

	if m.namespaces == nil {
		m.log.Info("namespace controller disabled: the sides share no namespaces")
	}
	for m.discover(ctx) != nil {
		if pause.For(ctx, 2*time.Second) != nil {
			return nil
		}
	}
	m.awaitLists(ctx)
	m.monitors.learn()
	m.mutex.Lock()
	m.started = true
	m.mutex.Unlock()
	m.scan(ctx)
	m.log.Info("controllers started", "objects", m.graph.size())
	for range m.workers {
		wait.Go(func() { work(ctx, m.collector.queue, m.collector.process, m.log) })
	}
	if m.namespaces != nil {
		for range 4 {
			wait.Go(func() { work(ctx, m.namespaces.queue, m.namespaces.process, m.log) })
		}
	}
	for _, keep := range m.keepers {
		wait.Go(func() { m.keep(ctx, keep) })
	}
	discover, scan := time.NewTicker(discoverEvery), time.NewTicker(scanEvery)
	defer discover.Stop()
	defer scan.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-discover.C:
			_ = m.discover(ctx) // it has logged the error; the watches stay as they are
		case <-scan.C:
			m.scan(ctx)
		}
	}
}

// keepEvery is how often a keeper reconciles.
const keepEvery = 5 * time.Second

// keep runs a keeper until ctx ends. A repeated error is logged once. A dry run reports once what would be done.
func (m *manager) keep(ctx context.Context, keeper func(context.Context) error) {
	said := ""
	for {
		err := keeper(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); err != nil && text != said {
			m.log.Error("reconcile failed", "err", err)
		}
		if said = fmt.Sprint(err); m.dryRun() {
			return
		}
		if pause.For(ctx, keepEvery) != nil {
			return
		}
	}
}

// discover runs discovery of both sides and watches what they serve.
func (m *manager) discover(ctx context.Context) error {
	err := m.monitors.sync(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Error("discovery failed; deletions suspended for this side", "err", err)
		}
		return err
	}
	m.mutex.Lock()
	m.heard = m.now()
	m.mutex.Unlock()
	return nil
}

// awaitLists waits for the first list of every resource, but not forever for one that an API server refuses: decisions
// read what they need.
func (m *manager) awaitLists(ctx context.Context) {
	deadline := m.now().Add(syncWithin)
	for waiting := m.monitors.unsynced(); len(waiting) > 0; waiting = m.monitors.unsynced() {
		if m.now().After(deadline) {
			m.log.Warn("resources not listed; their objects are looked up as owners, but not collected",
				"resources", waiting)
			return
		}
		if pause.For(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// scan queues every object that could be collectable, every namespace, and reports orphans of deleted namespaces.
func (m *manager) scan(ctx context.Context) {
	m.monitors.unsynced() // for the metric
	for _, uid := range m.graph.suspects() {
		m.attend(uid)
	}
	if m.namespaces == nil {
		return
	}
	for _, n := range m.graph.selected(func(n *node) bool {
		return isNamespace(*n.resource) && n.resource.side == m.namespaces.side()
	}) {
		m.namespaces.queue.Add(n.name)
	}
	if err := m.namespaces.reportOrphans(ctx); err != nil && ctx.Err() == nil {
		m.log.Warn("listing objects of deleted namespaces failed", "err", err)
	}
}

// shutDown ends the queues.
func (m *manager) shutDown() {
	m.collector.queue.ShutDown()
	if m.namespaces != nil {
		m.namespaces.queue.ShutDown()
	}
}

// work takes keys from a queue until it is shut down.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T],
	process func(context.Context, T) error, log *slog.Logger) {
	for {
		key, ended := queue.Get()
		if ended || ctx.Err() != nil {
			return
		}
		switch err := process(ctx, key); {
		case err == nil:
			queue.Forget(key)
		case ctx.Err() == nil && !errors.Is(err, errWaits):
			if !retryable(err) && !errors.Is(err, errStopped) { // logged once, elsewhere
				log.Warn("requeued after error", "err", err)
			}
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}

// ready reports why the controllers are not active.
func (m *manager) ready() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case !m.started:
		return errors.New("waiting for the discovery of both sides, or for the first lists")
	case m.now().Sub(m.heard) > stallsAfter:
		return fmt.Errorf("discovery of a side has failed since %s", m.heard.Format(time.RFC3339))
	}
	return nil
}
