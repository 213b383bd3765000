package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// cluster is both sides, and every write to them.
type cluster struct {
	layout   layout
	clients  map[pair.Side]*client
	catalogs map[pair.Side]*catalogs
	writer   writer
	limit    *rate.Limiter // of changes
	audit    *slog.Logger
	log      *slog.Logger
	metrics  *metrics
	now      func() time.Time
	guard    *guard
	// for how long a side must not have served a kind of the other's before the kind counts as absent
	settle time.Duration

	mutex    sync.Mutex
	identity string // the UID of kube-system, where both sides see the same namespaces
}

// settleTime is how long an API server may take to list a kind that has just been defined, or defined again.
const settleTime = 5 * time.Second

// writer changes objects: a side's client, or a dry run.
type writer interface {
	delete(ctx context.Context, r resource, o *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error
	patchMetadata(ctx context.Context, r resource, o *metav1.PartialObjectMetadata, fields map[string]any) error
	write(ctx context.Context, side pair.Side, verb string, at discovery.Path, object any) error
}

// servers writes through the side that a resource is of.
type servers map[pair.Side]*client

func (s servers) delete(ctx context.Context, r resource, o *metav1.PartialObjectMetadata,
	policy metav1.DeletionPropagation) error {
	return s[r.side].delete(ctx, r, o, policy)
}

func (s servers) patchMetadata(ctx context.Context, r resource, o *metav1.PartialObjectMetadata,
	fields map[string]any) error {
	return s[r.side].patchMetadata(ctx, r, o, fields)
}

func (s servers) write(ctx context.Context, side pair.Side, verb string, at discovery.Path, object any) error {
	return s[side].write(ctx, verb, at, object)
}

// dryRun writes nothing: the audit trail reports what would be done.
type dryRun struct{}

func (dryRun) delete(context.Context, resource, *metav1.PartialObjectMetadata, metav1.DeletionPropagation) error {
	return nil
}

func (dryRun) patchMetadata(context.Context, resource, *metav1.PartialObjectMetadata, map[string]any) error {
	return nil
}

func (dryRun) write(context.Context, pair.Side, string, discovery.Path, any) error { return nil }

func newCluster(p *plan.Runtime, configs map[pair.Side]*rest.Config, o Options) (*cluster, error) {
	c := &cluster{
		layout: layout{p}, clients: map[pair.Side]*client{}, catalogs: map[pair.Side]*catalogs{},
		limit: rate.NewLimiter(rate.Limit(o.ChangesPerSecond), max(1, int(o.ChangesPerSecond))), audit: o.Audit,
		log: o.Log, metrics: newMetrics(), now: time.Now, settle: settleTime,
	}
	for _, side := range pair.Sides() {
		client, err := newClient(side, configs[side], o.QPS)
		if err != nil {
			return nil, err
		}
		c.clients[side] = client
		fetch := func(ctx context.Context, seen []schema.GroupResource) (*catalog, error) {
			return c.believe(ctx, side, seen)
		}
		c.catalogs[side] = &catalogs{side: side, now: c.now, fetch: fetch}
	}
	c.writer = servers(c.clients)
	if o.DryRun {
		c.writer = dryRun{}
	}
	var err error
	c.guard, err = newGuard(c, o)
	return c, err
}

func (c *cluster) dryRun() bool {
	_, dry := c.writer.(dryRun)
	return dry
}

func (c *cluster) client(side pair.Side) *client { return c.clients[side] }

// identify makes sure that an API server is the plan's. Two kubeconfigs of one server, or one of another cluster, would
// make every owner look absent.
func (c *cluster) identify(ctx context.Context, side pair.Side, identity discovery.Identity) error {
	if err := identity.Is(c.layout.plan.Side(side).Version, ""); err != nil {
		return fmt.Errorf("the %s kubeconfig is of another API server: %w", side, err)
	}
	if !c.sharesNamespaces() {
		return nil
	}
	o, err := c.client(side).get(ctx, c.namespaces(side), "", metav1.NamespaceSystem)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.identity == "" {
		c.identity = string(o.UID)
	}
	if c.identity != string(o.UID) {
		return fmt.Errorf("the two sides are to share namespaces, and %s is not the same object on the %s side as on "+
			"the other (UID %s, want %s): %w",
			metav1.NamespaceSystem, side, o.UID, c.identity, discovery.ErrWrongServer)
	}
	return nil
}

// sharesNamespaces reports whether both sides see the same namespaces.
func (c *cluster) sharesNamespaces() bool {
	row := c.layout.plan.Resource("namespaces")
	return row != nil && row.VisibleToBoth()
}

// namespaces is the resource of namespaces; every version has it.
func (c *cluster) namespaces(side pair.Side) resource {
	return resource{side: side, GroupVersionResource: schema.GroupVersion{Version: "v1"}.WithResource("namespaces"),
		kind: "Namespace", verbs: "dglw"}
}

// freshCatalogs returns what both sides serve, by a discovery that began after the moment given.
func (c *cluster) freshCatalogs(ctx context.Context, moment time.Time) (legacy, modern *catalog, err error) {
	if legacy, err = c.catalogs[pair.Legacy].since(ctx, moment); err != nil {
		return nil, nil, err
	}
	if modern, err = c.catalogs[pair.Modern].since(ctx, moment); err != nil {
		return nil, nil, err
	}
	for _, both := range []*catalog{legacy, modern} {
		for _, group := range slices.Sorted(maps.Keys(both.failed)) {
			return nil, nil, fmt.Errorf("discovery of the %s side: %w", both.resources[0].side,
				both.failure(group))
		}
	}
	return legacy, modern, nil
}

// era changes when the discovery of either side failed, or returned something else.
func (c *cluster) era() int {
	return c.catalogs[pair.Legacy].current() + c.catalogs[pair.Modern].current()
}

// forget drops what is known of both sides.
func (c *cluster) forget() {
	c.mutex.Lock()
	c.identity = ""
	c.mutex.Unlock()
	for _, catalogs := range c.catalogs {
		catalogs.forget()
	}
}

// bothAnswer makes sure that the discovery of both sides succeeds.
func (c *cluster) bothAnswer(ctx context.Context) error {
	for _, side := range pair.Sides() {
		if _, err := c.catalogs[side].since(ctx, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes an object in the state in which it was read, within the rate limit, and records it in the audit trail.
func (c *cluster) delete(ctx context.Context, r resource, o *metav1.PartialObjectMetadata,
	policy metav1.DeletionPropagation, why string) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	err := c.writer.delete(ctx, r, o, policy)
	c.record("delete", r, o, why, err, slog.String("propagation", string(policy)))
	if errors.Is(err, discovery.ErrNotFound) {
		return nil
	}
	return err
}

// change sets fields of an object's metadata, likewise.
func (c *cluster) change(ctx context.Context, r resource, o *metav1.PartialObjectMetadata, why string,
	fields map[string]any) error {
	if err := c.mayChange(ctx); err != nil {
		return err
	}
	err := c.writer.patchMetadata(ctx, r, o, fields)
	c.record("change", r, o, why, err, slog.Any("metadata", fields))
	return err
}

// mayChange waits for the rate limit.
// Errors: errStopped.
func (c *cluster) mayChange(ctx context.Context) error {
	if err := c.limit.Wait(ctx); err != nil {
		return err
	}
	return c.guard.stopped()
}

// record writes one line of the audit trail.
func (c *cluster) record(what string, r resource, o *metav1.PartialObjectMetadata, why string, err error,
	more ...slog.Attr) {
	outcome := "done"
	if err != nil {
		outcome = err.Error()
	} else if c.dryRun() {
		outcome = "dry run"
	}
	c.metrics.changes.WithLabelValues(what, string(r.side), r.String(), result(err)).Inc()
	attrs := append([]slog.Attr{slog.String("side", string(r.side)), slog.String("resource", r.String()),
		slog.String("apiVersion", r.GroupVersion().String()),
		slog.String("namespace", o.Namespace), slog.String("name", o.Name), slog.String("uid", string(o.UID)),
		slog.String("resourceVersion", o.ResourceVersion)}, more...)
	c.audit.LogAttrs(context.Background(), slog.LevelInfo, what,
		append(attrs, slog.String("why", why), slog.String("outcome", outcome))...)
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "done"
}
