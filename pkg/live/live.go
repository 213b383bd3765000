// Package live compares what runs with what was planned, through the two API servers: workloads that select the other
// side's pods, owners that a side looks for in vain, locks that both sides hold, flags that are not the plan's.
//
// The package is pure: it reads the servers through the Server that it is given and returns findings. Package apiserver
// has one for a kubeconfig.
package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Server is the API server of a side.
type Server interface {
	// Identify asks for the server's version and, with system, for the UID of the namespace kube-system.
	Identify(ctx context.Context, system bool) (discovery.Identity, error)
	// Discover asks what the server serves.
	Discover(ctx context.Context) (*discovery.Result, error)
	// Read is a GET of one object, or of a page such as /metrics. Errors: discovery.ErrNotFound when, and only when,
	// the server itself says that there is no such object. Failures that pass have been retried.
	Read(ctx context.Context, path discovery.Path) ([]byte, error)
	// List yields the objects of a collection as JSON, one at a time and in pages where the server has them.
	// Errors: the first one ends the list, which is then not known to be whole.
	List(ctx context.Context, path discovery.Path, o discovery.ListOptions) iter.Seq2[[]byte, error]
}

// Options say how much is looked at.
type Options struct {
	// NoFlags leaves out the arguments of the components. Without it a component whose arguments cannot be seen makes
	// the check incomplete.
	NoFlags bool
}

// Report is what was found.
type Report struct {
	Findings   []finding.Finding
	Objects    int64    // that were looked at
	Incomplete []string // what could not be looked at, and why; empty when the check is complete
}

// Check reads both servers of a plan and compares. It holds a selector of each workload, a hash of each object's UID,
// and each reference to an owner that it has not met yet; pods and what else there is pass by one at a time. Errors:
// the context's. What else fails makes the report incomplete.
func Check(ctx context.Context, p *plan.Plan, servers map[pair.Side]Server, o Options) (*Report, error) {
	c := &checker{plan: p, servers: servers, options: o, catalogs: map[pair.Side]*discovery.Result{},
		failed: map[place]bool{}, overlaps: newOverlaps(p)}
	c.owners = newOwners(c.finds)
	c.check(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	finding.Sort(c.report.Findings)
	slices.Sort(c.report.Incomplete)
	c.report.Incomplete = slices.Compact(c.report.Incomplete)
	return &c.report, nil
}

// checker is one check while it runs.
type checker struct {
	plan     *plan.Plan
	servers  map[pair.Side]Server
	options  Options
	catalogs map[pair.Side]*discovery.Result
	failed   map[place]bool // collections that were not read to their end
	report   Report

	now        time.Time // by the servers' clocks
	system     string    // the UID of kube-system, where both sides see the same namespaces
	owners     *owners
	overlaps   *overlaps
	locks      []heldLock
	components components
}

// add records a finding; its Key holds what tells it from others of its rule about its subject.
func (c *checker) add(f finding.Finding) {
	f.Key = finding.Key(f.Rule, f.Subject, f.Key)
	c.report.Findings = append(c.report.Findings, f)
}

func (c *checker) incomplete(format string, args ...any) {
	c.report.Incomplete = append(c.report.Incomplete, fmt.Sprintf(format, args...))
}

func (c *checker) check(ctx context.Context) {
	reached := true
	for _, side := range pair.Sides() {
		if err := c.identify(ctx, side); err != nil {
			c.incomplete("the %s side: %v", side, err)
			reached = false
		}
	}
	if !reached {
		return // all that follows compares the two
	}
	for _, side := range pair.Sides() {
		served, err := c.servers[side].Discover(ctx)
		if err != nil {
			c.incomplete("the %s side: %v", side, err)
			return
		}
		c.catalogs[side] = served
		for gv, err := range served.Failed {
			c.incomplete("asking the %s side what it serves of %s: %v", side, gv, err)
		}
		if served.Unready != nil && !errors.Is(served.Unready, discovery.ErrForbidden) {
			c.incomplete("the %s side: %v", side, served.Unready)
		}
	}
	for _, collection := range c.collections() {
		c.read(ctx, collection)
		if ctx.Err() != nil {
			return
		}
	}
	c.overlaps.report(c)
	c.judgeLocks()
	c.judgeComponents(ctx)
	c.judgeFrontProxies(ctx)
	c.judgeOwners(ctx)
}

// identify makes sure that a server is the one that the plan means. Two kubeconfigs that lead to one server, or one
// that leads to another cluster, would make every owner look absent.
func (c *checker) identify(ctx context.Context, side pair.Side) error {
	namespaces := c.plan.Resource("namespaces")
	shared := namespaces != nil && namespaces.VisibleToBoth()
	identity, err := c.servers[side].Identify(ctx, shared)
	if err != nil {
		return err
	}
	if want := c.plan.Side(side).Version; identity.Is(want, "") != nil {
		return fmt.Errorf("its kubeconfig leads to a server of version %q, and the plan has %s", identity.GitVersion,
			want)
	}
	if identity.Date.After(c.now) {
		c.now = identity.Date
	}
	if shared && c.system == "" {
		c.system = identity.SystemUID
	}
	if shared && c.system != identity.SystemUID {
		return fmt.Errorf("both sides are to see the same namespaces, and its kube-system has UID %s, that of the "+
			"other %s", identity.SystemUID, c.system)
	}
	return nil
}

// place is a collection on a side.
type place struct {
	side     pair.Side
	resource string // a key of the plan, or RESOURCE.GROUP
}

// collection is what is listed once: a resource through one side, and the sides that see its objects.
type collection struct {
	discovery.Resource
	side pair.Side // through which it is read
	name string    // as in place
	seen []pair.Side
}

// shared reports whether both sides see the same objects.
func (c *collection) shared() bool { return len(c.seen) > 1 }

// whole are the collections of which more than the metadata is read, in the order in which they are read: pods come
// last, when everything that selects or owns them has been met.
var whole = []string{"leases", "minions", "services/specs", "poddisruptionbudgets", "controllers", "daemonsets",
	"deployments", "jobs", "replicasets", "statefulsets", "pods"}

// collections chooses what to list of what the two sides serve: what both see through one of them.
func (c *checker) collections() []collection {
	var list []collection
	for _, side := range pair.Sides() {
		for _, k := range listable(c.catalogs[side]) {
			entry := collection{Resource: k, side: side, name: k.Name + "." + k.Group, seen: []pair.Side{side}}
			row := &c.plan.CustomResources
			if known := c.plan.Row(k.GroupResource()); known != nil {
				row, entry.name = &known.Resource, known.Key
			}
			if c.twice(&entry, row) {
				continue
			}
			list = append(list, entry)
		}
	}
	slices.SortStableFunc(list, func(a, b collection) int {
		return slices.Index(whole, a.name) - slices.Index(whole, b.name)
	})
	return list
}

// twice reports whether the other side shows the same objects, and is the one to ask.
func (c *checker) twice(entry *collection, row *pair.Resource) bool {
	if !row.VisibleToBoth() {
		return false
	}
	entry.seen = pair.Sides()
	return entry.side != row.Route().Read &&
		slices.ContainsFunc(listable(c.catalogs[entry.side.Other()]), func(k discovery.Resource) bool {
			return k.Name == entry.Name && (k.Group == entry.Group || slices.Contains(row.Groups, k.Group))
		})
}

// read passes the objects of a collection to those that look at them.
func (c *checker) read(ctx context.Context, in collection) {
	options := discovery.ListOptions{Metadata: !slices.Contains(whole, in.name)}
	for body, err := range c.servers[in.side].List(ctx, in.Objects(""), options) {
		var o object
		if err == nil {
			o, err = decode(body)
		}
		if err != nil {
			for _, side := range in.seen {
				c.failed[place{side, in.name}] = true
			}
			c.incomplete("listing %s on the %s side: %v", in.Resource, in.side, err)
			return
		}
		if o.Metadata.UID == "" {
			continue // computed, not stored: componentstatuses, metrics
		}
		c.report.Objects++
		c.owners.meet(&in, &o)
		c.overlaps.meet(&in, &o, c.owners)
		c.meetLock(&in, &o)
		c.components.meet(&in, &o, body)
	}
}
