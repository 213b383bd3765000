// Package controllers is the small controller manager of a fused control plane: a garbage collector and a namespace
// controller that see both API servers. Kubernetes' own see one, and take what the other side has for absent.
//
// Nothing is deleted on what a cache says. A watch gives cause to look; then the object and each of its owners are read
// again, from every side that could hold them, and the deletion names the UID and the resource version that were read.
// A side that does not answer, a group that discovery could not ask about, an answer that is not the server's own: each
// leaves the object where it is.
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

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Options say how the controllers run.
type Options struct {
	Legacy, Modern *rest.Config
	// DryRun changes nothing: what would be done is in the audit trail. The lock is not taken either.
	DryRun bool
	// Collect deletes what nobody owns any more and finishes deletions that wait for dependents. Without it only
	// namespaces are looked after.
	Collect bool
	// DeleteOrphans deletes objects whose namespace is on no side; otherwise they are reported.
	DeleteOrphans bool
	// LeaderElect makes one of several processes act.
	LeaderElect bool
	// QPS limits the requests to each side, ChangesPerSecond the deletions and changes on both together.
	QPS              float32
	ChangesPerSecond float64
	Workers          int      // objects that are looked at at once
	Listen           string   // address of /healthz, /readyz and /metrics; "" for none
	Webhook          *Webhook // answers about pods; nil where nobody is asked
	// StateDirectory is where it is remembered what the stores showed of themselves; "" forgets it with the process.
	StateDirectory string
	// Brake is when so many owners vanish at once that nothing is deleted any more; the zero value is DefaultBrake.
	Brake      witness.Limit
	Log, Audit *slog.Logger
}

// DefaultBrake stops deletions when more than a fifth of the owners of a kind, and ten at least, vanish within a
// minute.
var DefaultBrake = witness.Limit{Share: 20, Least: 10, Within: time.Minute}

// The intervals of what is done again and again.
const (
	discoverEvery = 30 * time.Second // what the sides serve
	scanEvery     = 2 * time.Minute  // the whole graph, in case an event went unheard
	syncWithin    = 30 * time.Second // how long the start waits for lists that do not come
	stallsAfter   = 2 * time.Minute  // without a successful discovery the process is not ready
)

// Run runs the controllers of a plan until ctx ends. Errors: an unusable configuration, or an address that cannot be
// listened on. A server that does not answer, one that is not the plan's and a lock that is lost are waited for.
func Run(ctx context.Context, p *plan.Runtime, o Options) error {
	c, err := newCluster(p, map[pair.Side]*rest.Config{pair.Legacy: o.Legacy, pair.Modern: o.Modern}, o)
	if err != nil {
		return err
	}
	return newProcess(c, o).run(ctx)
}

// manager holds the parts together, from one term as the leader.
type manager struct {
	*cluster
	graph      *graph
	monitors   *monitors
	collector  *collector
	namespaces *namespaces                   // nil where each side has namespaces of its own
	keepers    []func(context.Context) error // what else the leader keeps as it should be
	workers    int                           // 0: nothing is collected

	mutex   sync.Mutex
	started bool      // the graph is whole enough to act on its events
	heard   time.Time // when both sides last said what they serve
}

func newManager(c *cluster, o Options) *manager {
	m := &manager{cluster: c}
	if o.Collect {
		m.workers = max(1, o.Workers)
	}
	m.graph = newGraph(c.now, m.attend)
	m.graph.vanished = c.guard.vanished
	m.collector = &collector{cluster: c, graph: m.graph, absent: memory{now: c.now},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](200*time.Millisecond, time.Minute))}
	m.monitors = &monitors{cluster: c, graph: m.graph, told: m.told, running: map[resource]*monitor{}}
	m.collector.unlisted = m.monitors.unsynced
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

// told hears of every object: namespaces have a controller of their own.
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
	defer m.collector.queue.ShutDown()
	if m.namespaces != nil {
		defer m.namespaces.queue.ShutDown()
	}
	defer m.monitors.wait.Wait()
	defer cancel()

	if m.namespaces == nil {
		m.log.Info("each side has namespaces of its own: their deletion is left to the sides")
	}
	for m.discover(ctx) != nil {
		if pause(ctx, 2*time.Second); ctx.Err() != nil {
			return nil
		}
	}
	m.awaitLists(ctx)
	m.mutex.Lock()
	m.started = true
	m.mutex.Unlock()
	m.scan(ctx)
	m.log.Info("the controllers act", "objects", m.graph.size())
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
			_ = m.discover(ctx) // it has logged why; what is watched stays as it is
		case <-scan.C:
			m.scan(ctx)
		}
	}
}

// keepEvery is how often a keeper looks.
const keepEvery = 5 * time.Second

// keep runs a keeper until ctx ends. What it cannot do is said once, not each time. A dry run says once what would be
// done.
func (m *manager) keep(ctx context.Context, keeper func(context.Context) error) {
	said := ""
	for {
		err := keeper(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); err != nil && text != said {
			m.log.Error("not as it should be", "why", err)
		}
		if said = fmt.Sprint(err); m.dryRun() {
			return
		}
		if pause(ctx, keepEvery); ctx.Err() != nil {
			return
		}
	}
}

// discover asks both sides what they serve and watches it.
func (m *manager) discover(ctx context.Context) error {
	err := m.monitors.sync(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Error("nothing is deleted that this side could have a say in", "why", err)
		}
		return err
	}
	m.mutex.Lock()
	m.heard = m.now()
	m.mutex.Unlock()
	return nil
}

// awaitLists waits for the first list of every resource, but not for ever for one that a server refuses: decisions read
// what they need.
func (m *manager) awaitLists(ctx context.Context) {
	deadline := m.now().Add(syncWithin)
	for waiting := m.monitors.unsynced(); len(waiting) > 0; waiting = m.monitors.unsynced() {
		if m.now().After(deadline) {
			m.log.Warn("some resources could not be listed: their objects are looked up, but are not collected",
				"resources", waiting)
			return
		}
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return
		}
	}
}

// scan queues all that could need attention and looks for what is left of namespaces.
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
		m.log.Warn("looking for objects without a namespace", "why", err)
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
		if err := process(ctx, key); err == nil {
			queue.Forget(key)
		} else if ctx.Err() == nil {
			if !retryable(err) && !errors.Is(err, errStopped) { // that has been said, once
				log.Warn("left as it is for now", "why", err)
			}
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}

func pause(ctx context.Context, span time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(span):
	}
}

// ready reports why the controllers do not act.
func (m *manager) ready() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case !m.started:
		return errors.New("waiting for a side that does not answer, or for the first lists")
	case m.now().Sub(m.heard) > stallsAfter:
		return fmt.Errorf("one of the sides has not answered since %s", m.heard.Format(time.RFC3339))
	}
	return nil
}
