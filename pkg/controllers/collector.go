package controllers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// collector deletes objects that have no live owner, and finishes deletions that wait for dependents.
type collector struct {
	*cluster
	graph  *graph
	queue  workqueue.TypedRateLimitingInterface[types.UID]
	absent memory
	costly costly
	// unlisted are the resources that could not be listed: any of their objects could be a dependent.
	unlisted func() []string
	// unsynced are the resources of a kind, of those that catalogs have, whose watches have not brought all objects.
	unsynced func(of []*catalog, groups []string, kind string) []string
}

// errUnserved: no side serves an owner's kind, so that its objects are not known to be absent.
var errUnserved = errors.New("no side serves its kind")

// errWatched: a side's read and watch disagree about an object.
var errWatched = errors.New("read and watch of the side disagree")

// errUnseen: no watch has brought an owner, and it may be on its way.
var errUnseen = errors.New("no watch has brought it yet")

// errWaits: it is queued when its turn comes. How often it has failed counts on until then: objects that nothing can be
// decided about would never be tried less often.
var errWaits = errors.New("its turn has not come")

// process decides about one object. An error requeues it, but for errWaits.
func (c *collector) process(ctx context.Context, uid types.UID) error {
	n := c.graph.node(uid)
	if n == nil {
		return nil
	}
	if c.graph.costs(n) {
		namespace := n.namespace.Value()
		switch goes, waits := c.costly.begin(namespace, uid); {
		case waits: // the end of the one before it queues it
			return errWaits
		case !goes:
			c.queue.AddAfter(uid, costlyAgain)
			return errWaits
		}
		defer func() {
			if next, found := c.costly.end(namespace, c.graph.node); found {
				c.queue.Add(next)
			}
		}()
	}
	switch {
	case n.deleting && n.orphan:
		return c.releaseDependents(ctx, n)
	case n.deletesDependents():
		return c.awaitDependents(ctx, n)
	default:
		return c.consider(ctx, n)
	}
}

// costly are objects that take many requests, or some at every scan: their dependents are listed, or owners are looked
// for that no watch has seen. Any client makes thousands of them, so that those of one namespace are processed one
// after the other, and some workers are left for all that is not costly.
type costly struct {
	limit int // of namespaces at a time

	mutex   sync.Mutex
	of      map[string]bool        // the namespaces
	waiting map[string][]types.UID // objects that found another one of their namespace, in their order
	waits   map[types.UID]bool     // those of them that were not processed since
}

const (
	// fewOwners is how many owners an object has that is not costly.
	fewOwners = 8
	// costlyAgain is how soon an object is processed again that found too many other namespaces.
	costlyAgain = 500 * time.Millisecond
)

// begin reports whether an object of the namespace may be processed now, end is called then; or whether it waits for
// the end of another one.
func (c *costly) begin(namespace string, uid types.UID) (goes, waits bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.of == nil {
		c.of, c.waiting, c.waits = map[string]bool{}, map[string][]types.UID{}, map[types.UID]bool{}
	}
	switch {
	case c.of[namespace] && c.waits[uid]:
		return false, true
	case c.of[namespace]:
		c.waiting[namespace], c.waits[uid] = append(c.waiting[namespace], uid), true
		return false, true
	case len(c.of) >= c.limit:
		return false, false
	}
	delete(c.waits, uid)
	c.of[namespace] = true
	return true, false
}

// end returns the next object of the namespace that waits and is there. Should that one vanish before it is processed,
// the scan of the graph queues those behind it.
func (c *costly) end(namespace string, node func(types.UID) *node) (next types.UID, found bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.of, namespace)
	waiting := c.waiting[namespace]
	for len(waiting) > 0 && !found {
		next, waiting = waiting[0], waiting[1:]
		found = c.waits[next] && node(next) != nil
		delete(c.waits, next)
	}
	if c.waiting[namespace] = waiting; len(waiting) == 0 {
		delete(c.waiting, namespace)
	}
	return next, found
}

// live reads a node's object again. nil without an error: it was deleted, or another one has its name.
func (c *collector) live(ctx context.Context, n *node) (*metav1.PartialObjectMetadata, error) {
	o, err := c.client(n.resource.side).get(ctx, *n.resource, n.namespace.Value(), n.name)
	if errors.Is(err, discovery.ErrNotFound) {
		return nil, nil
	}
	if err != nil || o.UID == n.uid {
		return o, err
	}
	return nil, nil
}

// mostOwners is how many owners of one object are looked for: an object has room for ten thousand, each of which costs
// requests to both sides, at the expense of all other objects.
const mostOwners = 100

// consider decides about an object that is not being deleted.
func (c *collector) consider(ctx context.Context, n *node) error {
	o, err := c.live(ctx, n)
	if err != nil || o == nil || o.DeletionTimestamp != nil || len(o.OwnerReferences) == 0 {
		return err // a deletion causes an event of its own
	}
	seen := n.seen
	if !slices.EqualFunc(n.owners, o.OwnerReferences, func(a owner, b metav1.OwnerReference) bool {
		return a.uid == b.UID
	}) {
		seen = c.now()
	}
	if many := len(o.OwnerReferences); many > mostOwners {
		c.metrics.doubts.Inc()
		c.log.Debug("left alone", "object", n.resource.describe(o.Namespace, o.Name), "why",
			fmt.Sprintf("it has %d owner references, more than %d", many, mostOwners))
		return nil
	}
	s := subject{owners: o.OwnerReferences, states: make([]ownerState, len(o.OwnerReferences)),
		finalizers: o.Finalizers}
	var why error
	for _, i := range c.undecidedFirst(o.OwnerReferences, o.Namespace) {
		ref := o.OwnerReferences[i]
		if s.states[i], why = c.find(ctx, ref, o.Namespace, seen); why != nil {
			why = fmt.Errorf("looking up %s %q, the owner of %s: %w", ref.Kind, ref.Name,
				n.resource.describe(o.Namespace, o.Name), why)
		}
		if s.states[i].undecided() { // whatever the others are
			break
		}
	}
	for _, dependent := range c.graph.dependentsOf(n.uid) {
		if n.mayOwn(dependent) {
			s.dependents = true
			s.dependentsDeleting = s.dependentsDeleting || dependent.deletesDependents()
		}
	}
	v := judge(s)
	if v.action == doubt || v.action == keep {
		c.graph.linger(n.uid)
	}
	switch v.action {
	case doubt:
		c.metrics.doubts.Inc()
		if errors.Is(why, errUnseen) {
			c.queue.AddAfter(n.uid, c.settle)
			return nil
		}
		if lasting(why) {
			c.log.Debug("kept", "object", n.resource.describe(o.Namespace, o.Name), "err", why)
			return nil // the next scan of the graph queues it
		}
		return why
	case trim:
		return c.change(ctx, *n.resource, o, "other owners remain: "+c.describe(s)+" gone",
			map[string]any{"ownerReferences": v.owners})
	case collect:
		if v.unblock {
			return c.unblock(ctx, n, o, s)
		}
		return c.collect(ctx, n, o, v.policy, "no owner is left: "+c.describe(s))
	}
	return nil
}

// undecidedFirst are the indices of references in the order in which they are looked up: first those that are known to
// be undecided, as far as that is. They leave the object undecided and cost no request, as often as the graph is
// scanned.
func (c *collector) undecidedFirst(refs []metav1.OwnerReference, namespace string) []int {
	var first, others []int
	for i := range refs {
		if c.graph.node(refs[i].UID) == nil && c.undecided(refs[i], namespace) {
			first = append(first, i)
		} else {
			others = append(others, i)
		}
	}
	return append(first, others...)
}

// undecided reports whether a reference cannot be looked up, by what is known without a request: no side serves its
// kind, a side cannot be read or listed there, or no object can have its name. It decides nothing.
func (c *collector) undecided(ref metav1.OwnerReference, namespace string) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || lockResource.Object(LockNamespace, ref.Name).Err() != nil {
		return true
	}
	kind := gv.WithKind(ref.Kind).GroupKind()
	groups := c.layout.groups(kind)
	served := false
	for _, side := range pair.Sides() {
		resources, asked, err := c.catalogs[side].lastOf(groups, kind.Kind)
		if err != nil || slices.ContainsFunc(resources, func(r resource) bool {
			return !r.can("get") || r.namespaced && namespace == ""
		}) {
			return true
		}
		served = served || !asked || len(resources) > 0
	}
	return !served
}

// lasting reports whether a retry is of no use: no side serves the kind, or no object can have the name.
func lasting(err error) bool {
	return errors.Is(err, errUnserved) || errors.Is(err, discovery.ErrInvalidPath)
}

// describe lists the owners that do not hold the object, for the audit trail.
func (c *collector) describe(s subject) string {
	var list []string
	for i, ref := range s.owners {
		if s.states[i].holds() {
			continue
		}
		what := "is on no side"
		if s.states[i].waiting {
			what = "is being deleted and waits for it"
		}
		list = append(list, fmt.Sprintf("%s %s %q (%s) %s", ref.APIVersion, ref.Kind, ref.Name, ref.UID, what))
	}
	return strings.Join(list, ", ")
}

// unblock removes blockOwnerDeletion of an object's references first: it waits, through its dependents, for itself.
func (c *collector) unblock(ctx context.Context, n *node, o *metav1.PartialObjectMetadata, s subject) error {
	refs := slices.Clone(o.OwnerReferences)
	for i := range refs {
		refs[i].BlockOwnerDeletion = nil
	}
	if !slices.ContainsFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	}) {
		return c.collect(ctx, n, o, metav1.DeletePropagationForeground,
			"no owner is left: "+c.describe(s))
	}
	// The change causes an event, which queues the object again.
	return c.change(ctx, *n.resource, o, "owners and dependents wait for each other",
		map[string]any{"ownerReferences": refs})
}

// collect deletes an object. The brake does not count it among vanished owners.
func (c *collector) collect(ctx context.Context, n *node, o *metav1.PartialObjectMetadata,
	policy metav1.DeletionPropagation, why string) error {
	c.graph.expect(n.uid, true)
	err := c.delete(ctx, *n.resource, o, policy, why)
	if err != nil {
		c.graph.expect(n.uid, false)
	}
	return err
}

// find looks an owner up on every side that could hold it, under every group that its kind has. namespace is the
// dependent's, seen is when the reference was first seen: discovery must have run since. A side that does not serve the
// kind counts as one without the owner only when its discovery is complete.
func (c *collector) find(ctx context.Context, ref metav1.OwnerReference, namespace string, seen time.Time) (
	ownerState, error) {
	if known := c.graph.node(ref.UID); known != nil {
		// The UID decides: an owner with another name, group or namespace than the reference has is present. That it is
		// being deleted is believed of what the reference names, of each side that has it: an extension API server may
		// give its objects the UID of any other.
		o, err := c.live(ctx, known)
		switch {
		case err != nil:
			return ownerState{}, err
		case o != nil && (!waits(o) || !c.names(ref, namespace, known)):
			return ownerState{seen: gc.Found}, nil
		case o == nil && c.graph.node(ref.UID) != nil:
			// The watch has not delivered its deletion yet, or etcd was replaced below the API server.
			return ownerState{}, fmt.Errorf("%s is absent, and its watch still has it: %w",
				known.resource.describe(known.namespace.Value(), known.name), errWatched)
		}
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ownerState{}, fmt.Errorf("%w: %w", errUnserved, err)
	}
	kind := gv.WithKind(ref.Kind).GroupKind()
	if len(kind.Kind) > validation.DNS1035LabelMaxLength || len(kind.Group) > validation.DNS1123SubdomainMaxLength {
		return ownerState{}, fmt.Errorf("no side serves a kind of %d bytes, or a group of %d: %w", len(kind.Kind),
			len(kind.Group), errUnserved)
	}
	groups := c.layout.groups(kind)
	believed := map[pair.Side]*catalog{}
	for _, side := range pair.Sides() {
		if believed[side], err = c.catalogs[side].about(ctx, kind, groups, seen, c.settle); err != nil {
			return ownerState{}, err
		}
		if len(believed[side].ofKind(groups, ref.Kind)) == 0 && c.layout.serves(side, kind) {
			return ownerState{}, fmt.Errorf("discovery of the %s side lacks %s, although its version "+
				"has it", side, kind)
		}
	}
	era := c.era()
	if c.absent.has(ref, namespace, era) {
		return ownerState{seen: gc.Absent}, nil
	}
	waiting := 0
	// Whatever version the reference names: what is served in any is served in all.
	owner := gc.Reference{ServedVersion: true, Namespaced: namespace != ""}
	// What moved to the side that was read first, while the other one was read, is there when it is read again.
	for _, side := range append(pair.Sides(), pair.Sides()[0]) {
		for _, r := range believed[side].ofKind(groups, ref.Kind) {
			owner.KnownKind, owner.OwnerNamespaced, owner.Owner = true, r.namespaced, gc.Unsure
			if owner.Sight() == gc.NamespacedOwner {
				return ownerState{seen: gc.NamespacedOwner}, fmt.Errorf("%s are in namespaces, and the object is in "+
					"none: %w", r, errUnserved)
			}
			if !r.can("get") {
				return ownerState{}, fmt.Errorf("%s on the %s side cannot be read: %w", r, side, errUnserved)
			}
			in := ""
			if r.namespaced {
				in = namespace
			}
			o, err := c.client(side).get(ctx, r, in, ref.Name)
			switch {
			case errors.Is(err, discovery.ErrNotFound):
			case err != nil:
				return ownerState{}, err
			case o.UID == ref.UID && !waits(o):
				owner.Owner = gc.Present
				return ownerState{seen: owner.Sight()}, nil
			case o.UID == ref.UID:
				waiting++
			}
			owner.Owner = gc.Missing
		}
	}
	if waiting > 0 {
		owner.Owner = gc.Present
		return ownerState{seen: owner.Sight(), waiting: true}, nil
	}
	if !owner.KnownKind {
		return ownerState{seen: owner.Sight()}, fmt.Errorf("%s %s: %w", ref.APIVersion, ref.Kind, errUnserved)
	}
	left := c.graph.leftAs(ref.UID)
	for _, side := range pair.Sides() {
		was := c.guard.owned(side, groups, ref.Kind) || slices.ContainsFunc(groups, func(group string) bool {
			return left == kindKey(side, group, ref.Kind) // where there was no room for the kind
		})
		if was && len(believed[side].ofKind(groups, ref.Kind)) == 0 {
			return ownerState{}, fmt.Errorf("objects of the kind owned others on the %s side, which does not serve it "+
				"any more: %w", side, errUnserved)
		}
	}
	if err := c.elsewhere(ref, groups, believed, seen); err != nil {
		return ownerState{}, err
	}
	if err := c.guard.since(ctx, c.now()); err != nil {
		return ownerState{}, err
	}
	if known := c.graph.node(ref.UID); known != nil {
		return ownerState{}, fmt.Errorf("its watch has brought %s meanwhile: %w",
			known.resource.describe(known.namespace.Value(), known.name), errWatched)
	}
	c.absent.add(ref, namespace, era)
	return ownerState{seen: owner.Sight()}, nil
}

// elsewhere makes sure that an owner that is not where a reference says is nowhere else, under another name or in
// another namespace: a watch would have brought it. Errors: the objects of its kind are not known; errUnseen.
func (c *collector) elsewhere(ref metav1.OwnerReference, groups []string, believed map[pair.Side]*catalog,
	seen time.Time) error {
	both := []*catalog{believed[pair.Legacy], believed[pair.Modern]}
	if waiting := c.unsynced(both, groups, ref.Kind); len(waiting) > 0 {
		return fmt.Errorf("%s could not be listed yet, and the owner may be in another namespace or have another name",
			strings.Join(waiting, ", "))
	}
	if was := c.graph.wentAs(ref.UID); was != nil && was.kind == ref.Kind && slices.Contains(groups, was.Group) {
		return nil
	}
	if known := c.now().Sub(seen); known < c.settle {
		return fmt.Errorf("%s %q is not where the reference says, which is known for %s: %w", ref.Kind, ref.Name,
			known.Round(time.Millisecond), errUnseen)
	}
	return nil
}

// names reports whether a reference in an object of a namespace is to an object of this name, and of this kind in any
// of its groups.
func (c *collector) names(ref metav1.OwnerReference, namespace string, n *node) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && ref.Name == n.name && ref.Kind == n.resource.kind &&
		slices.Contains(c.layout.groups(gv.WithKind(ref.Kind).GroupKind()), n.resource.Group) &&
		(n.namespace.Value() == "" || n.namespace.Value() == namespace)
}

// waits reports whether the object is being deleted and waits until its dependents are deleted.
func waits(o *metav1.PartialObjectMetadata) bool {
	return o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
}

// awaitDependents finishes the foreground deletion of an owner once no dependent blocks it.
func (c *collector) awaitDependents(ctx context.Context, n *node) error {
	o, err := c.live(ctx, n)
	if err != nil || o == nil || !waits(o) {
		return err
	}
	blocked := false
	for _, dependent := range c.graph.dependentsOf(n.uid) {
		if dependent.blocks(n.uid) && n.mayOwn(dependent) {
			if blocked = true; !dependent.deletesDependents() {
				c.queue.Add(dependent.uid)
			}
		}
	}
	if blocked {
		return nil // the deletion of each queues the owner
	}
	if unlisted := c.unlisted(); len(unlisted) > 0 {
		return fmt.Errorf("%s waits for its dependents, and %s could not be listed",
			n.resource.describe(o.Namespace, o.Name), strings.Join(unlisted, ", "))
	}
	if err := c.bothAnswer(ctx); err != nil {
		return err
	}
	if err := c.guard.since(ctx, c.now()); err != nil {
		return err
	}
	return c.removeFinalizer(ctx, n, o, metav1.FinalizerDeleteDependents, "its dependents are gone")
}

// releaseDependents removes the references to an owner from its dependents and finishes its deletion. A dependent that
// is missed here would be collected, so the dependents are those that the API servers list now.
func (c *collector) releaseDependents(ctx context.Context, n *node) error {
	o, err := c.live(ctx, n)
	if err != nil || o == nil || o.DeletionTimestamp == nil ||
		!slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) {
		return err
	}
	dependents, err := c.listDependents(ctx, n.uid, o.Namespace)
	if err == nil {
		dependents, err = c.dependentsElsewhere(ctx, n, dependents)
	}
	if err != nil {
		return fmt.Errorf("orphaning the dependents of %s: %w", n.resource.describe(o.Namespace, o.Name), err)
	}
	if err := c.mayRelease(ctx, n, dependents); err != nil {
		return fmt.Errorf("orphaning the dependents of %s: %w", n.resource.describe(o.Namespace, o.Name), err)
	}
	if err := c.guard.since(ctx, c.now()); err != nil {
		return err
	}
	for _, d := range dependents {
		stay := slices.DeleteFunc(slices.Clone(d.object.OwnerReferences), func(ref metav1.OwnerReference) bool {
			return ref.UID == n.uid
		})
		err := c.change(ctx, d.resource, d.object, "its owner is being deleted and orphans it",
			map[string]any{"ownerReferences": stay})
		if err != nil && !errors.Is(err, discovery.ErrNotFound) {
			return err
		}
	}
	return c.removeFinalizer(ctx, n, o, metav1.FinalizerOrphanDependents, "its dependents are released")
}

// errOther: an object has the UID of another one.
var errOther = errors.New("another object has its UID")

// mayRelease makes sure that what the references of the dependents name, and what watches have brought of the owner's
// UID, is the owner, or nothing: an extension API server, or one side, may give its objects the UID of another one, and
// say that this is to be orphaned.
func (c *collector) mayRelease(ctx context.Context, n *node, dependents []located) error {
	legacy, modern, err := c.freshCatalogs(ctx, time.Time{})
	if err != nil {
		return err
	}
	for _, other := range c.graph.copiesOf(n.uid) {
		o, err := c.live(ctx, other)
		if err != nil {
			return err
		}
		if o != nil && !orphans(o) {
			return fmt.Errorf("%s on the %s side orphans nothing: %w", other.resource.describe(o.Namespace, o.Name),
				other.resource.side, errOther)
		}
	}
	read := map[memoryKey]bool{}
	for _, d := range dependents {
		for _, ref := range d.object.OwnerReferences {
			key := keyOf(ref, d.object.Namespace)
			gv, err := schema.ParseGroupVersion(ref.APIVersion)
			if ref.UID != n.uid || read[key] || err != nil {
				continue
			}
			read[key] = true
			groups := c.layout.groups(gv.WithKind(ref.Kind).GroupKind())
			for _, r := range slices.Concat(legacy.ofKind(groups, ref.Kind), modern.ofKind(groups, ref.Kind)) {
				namespace := ""
				if r.namespaced {
					namespace = d.object.Namespace
				}
				if r.namespaced && namespace == "" || !r.can("get") {
					continue
				}
				o, err := c.client(r.side).get(ctx, r, namespace, ref.Name)
				switch {
				// it names nothing
				case errors.Is(err, discovery.ErrNotFound), errors.Is(err, discovery.ErrInvalidPath):
				case err != nil:
					return err
				case o.UID == ref.UID && !orphans(o):
					return fmt.Errorf("%s on the %s side, the owner of %s, orphans nothing: %w",
						r.describe(namespace, ref.Name), r.side, d.resource.describe(d.object.Namespace, d.object.Name),
						errOther)
				}
			}
		}
	}
	return nil
}

// orphans reports whether the object is being deleted and releases its dependents.
func orphans(o *metav1.PartialObjectMetadata) bool {
	return o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
}

type located struct {
	resource resource
	object   *metav1.PartialObjectMetadata
}

// listDependents lists the objects of an owner, of every resource of both sides: in its namespace, or everywhere for an
// owner that is in none. Errors: of any list.
func (c *collector) listDependents(ctx context.Context, uid types.UID, namespace string) ([]located, error) {
	legacy, modern, err := c.freshCatalogs(ctx, c.now())
	if err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	var found []located
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	type version struct{ group, resource, namespace, name, revision string } // of one object, in any version
	listed := map[version]bool{}
	for _, r := range c.layout.everyVersion(legacy, modern, "get", "list", "delete") {
		if namespace != "" && !r.namespaced {
			continue
		}
		group.Go(func() error {
			items, err := c.client(r.side).listAll(ctx, r, namespace)
			if err != nil {
				return err
			}
			mutex.Lock()
			defer mutex.Unlock()
			for i := range items {
				o := &items[i]
				at := version{r.Group, r.Resource, o.Namespace, o.Name, string(o.UID) + "/" + o.ResourceVersion}
				if !listed[at] && slices.ContainsFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool {
					return ref.UID == uid
				}) {
					listed[at] = true
					found = append(found, located{r, &items[i]})
				}
			}
			return nil
		})
	}
	return found, group.Wait()
}

// dependentsElsewhere adds to the dependents of an owner those that watches have brought of other namespaces.
func (c *collector) dependentsElsewhere(ctx context.Context, n *node, dependents []located) ([]located, error) {
	if n.namespace.Value() == "" {
		return dependents, nil // they were listed everywhere
	}
	for _, dependent := range c.graph.dependentsOf(n.uid) {
		if dependent.namespace == n.namespace {
			continue
		}
		o, err := c.live(ctx, dependent)
		if err != nil {
			return nil, err
		}
		if o != nil && slices.ContainsFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return ref.UID == n.uid
		}) {
			dependents = append(dependents, located{*dependent.resource, o})
		}
	}
	return dependents, nil
}

func (c *collector) removeFinalizer(ctx context.Context, n *node, o *metav1.PartialObjectMetadata, finalizer,
	why string) error {
	stay := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer })
	err := c.change(ctx, *n.resource, o, why, map[string]any{"finalizers": stay})
	if errors.Is(err, discovery.ErrNotFound) {
		return nil
	}
	return err
}

// retryable reports whether an error of process is expected, and not logged: a conflict.
func retryable(err error) bool { return apierrors.IsConflict(err) }

// memory caches for a moment which owners were absent, so that the thousand pods of one owner do not cause a thousand
// lookups. A UID is never used again. Entries of an earlier era are void.
type memory struct {
	now   func() time.Time
	mutex sync.Mutex
	era   int
	when  map[memoryKey]time.Time
}

// memoryKey is the SHA-256 of a reference from a namespace: API servers bound the length of none of its texts.
type memoryKey [sha256.Size]byte

// memorySpan is how long an entry is valid.
const memorySpan = 5 * time.Second

func keyOf(ref metav1.OwnerReference, namespace string) memoryKey {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", ref.UID, ref.APIVersion, ref.Kind, ref.Name, namespace))
}

func (m *memory) has(ref metav1.OwnerReference, namespace string, era int) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	when, known := m.when[keyOf(ref, namespace)]
	return known && m.era == era && m.now().Sub(when) < memorySpan
}

func (m *memory) add(ref metav1.OwnerReference, namespace string, era int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	now := m.now()
	if len(m.when) > 10000 || m.when == nil || m.era != era {
		m.when, m.era = map[memoryKey]time.Time{}, era
	}
	m.when[keyOf(ref, namespace)] = now
}
