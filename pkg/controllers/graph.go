package controllers

import (
	"iter"
	"slices"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// node is an object as a watch last had it. It only queues the object; decisions are made on what is read then.
type node struct {
	uid       types.UID
	name      string
	namespace unique.Handle[string]
	resource  *resource
	owners    []owner
	seen      time.Time // when these owners were first seen

	deleting, foreground, orphan bool // deletionTimestamp, and the two finalizers
}

// owner is as much of an owner reference as the graph needs.
type owner struct {
	uid                  types.UID
	blocking, controller bool
}

// deletesDependents: the object is being deleted and waits for its dependents.
func (n *node) deletesDependents() bool { return n.deleting && n.foreground }

// graph holds who owns whom, over both sides, by UID. Safe for concurrent use.
type graph struct {
	mutex      sync.Mutex
	nodes      map[types.UID]*node
	dependents map[types.UID]map[*node]struct{} // by the owner's UID, whether the owner is a node or not
	owners     map[resource]int                 // nodes that have dependents
	objects    map[resource]int                 // nodes
	// copies are further objects of a node's UID, each of another resource, the one last heard of at the end: while
	// objects are handed over both sides have them, and an extension API server may give its objects any UID.
	copies    map[types.UID][]*node
	ending    map[string]bool         // namespaces that are being deleted, or were
	expected  map[types.UID]bool      // nodes that this process is deleting
	left      map[types.UID]string    // kinds of owners that went with their resource, not by a deletion
	went      map[types.UID]*resource // owners that were deleted, as a watch brought it, and are referred to still
	lingering map[types.UID]bool      // suspects that were processed and stayed as they were
	limit     int                     // of the objects of each resource
	beyond    map[resource]bool       // resources of which objects were not kept, because of limit
	now       func() time.Time

	// attend receives the UID of each object that is to be processed. It is called without the lock.
	attend func(types.UID)
	// vanished receives owners that are gone without having been deleted with a finalizer, with their namespaces, and
	// how many of their kind are left on their side. It is called with the lock, and must not call the graph.
	vanished func(r *resource, namespace string, left int)
}

func newGraph(now func() time.Time, attend func(types.UID)) *graph {
	return &graph{
		nodes: map[types.UID]*node{}, dependents: map[types.UID]map[*node]struct{}{}, owners: map[resource]int{},
		objects: map[resource]int{}, copies: map[types.UID][]*node{}, ending: map[string]bool{},
		expected: map[types.UID]bool{}, left: map[types.UID]string{}, went: map[types.UID]*resource{},
		lingering: map[types.UID]bool{}, limit: limitObjects, beyond: map[resource]bool{}, now: now, attend: attend,
		vanished: func(*resource, string, int) {},
	}
}

func nodeOf(r *resource, o *metav1.PartialObjectMetadata, now time.Time) *node {
	n := &node{
		uid: o.UID, name: o.Name, namespace: unique.Make(o.Namespace), resource: r, seen: now,
		deleting:   o.DeletionTimestamp != nil,
		foreground: slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents),
		orphan:     slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents),
	}
	if len(o.OwnerReferences) > 0 {
		n.owners = make([]owner, len(o.OwnerReferences))
		for i, ref := range o.OwnerReferences {
			// The same bytes as the owner's own: a UID of a hundred thousand references is kept once.
			n.owners[i] = owner{uid: types.UID(unique.Make(string(ref.UID)).Value()),
				blocking:   ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
				controller: ref.Controller != nil && *ref.Controller}
		}
	}
	return n
}

// observe adds or replaces an object.
func (g *graph) observe(r *resource, o *metav1.PartialObjectMetadata) {
	g.mutex.Lock()
	attention := g.put(nodeOf(r, o, g.now()))
	g.mutex.Unlock()
	for _, uid := range attention {
		g.attend(uid)
	}
}

// limitObjects is how many objects of one resource are kept. A watch has no end, and an extension API server may report
// objects for ever. What is not kept is not collected; owners and what a namespace holds are read from the servers, and
// no owner is said to have lost its last dependent any more.
const limitObjects = 1_000_000

// incomplete are the resources of which objects were not kept, sorted.
func (g *graph) incomplete() []string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var names []string
	for r := range g.beyond {
		names = append(names, r.String())
	}
	slices.Sort(names)
	return names
}

// put replaces a node and lists what is to be processed.
func (g *graph) put(n *node) (attention []types.UID) {
	old := g.nodes[n.uid]
	other := old != nil && old.resource != n.resource
	g.uncopy(n.uid, n.resource)
	if (old == nil || other) && g.objects[*n.resource] >= g.limit {
		g.beyond[*n.resource] = true
		return nil
	}
	g.objects[*n.resource]++
	if other {
		g.copies[n.uid] = append(g.copies[n.uid], old)
	} else if old != nil {
		g.objects[*old.resource]--
	}
	if old != nil {
		g.unlink(old)
		g.countOwner(old, -1)
		if slices.Equal(old.owners, n.owners) {
			n.seen = old.seen
		}
	}
	g.nodes[n.uid] = n
	delete(g.left, n.uid)
	delete(g.went, n.uid)
	g.countOwner(n, 1)
	if isNamespace(*n.resource) {
		if delete(g.ending, n.name); n.deleting {
			g.ending[n.name] = true
		}
	}
	for _, o := range n.owners {
		if g.dependents[o.uid] == nil {
			g.dependents[o.uid] = map[*node]struct{}{}
			if owner := g.nodes[o.uid]; owner != nil {
				g.owners[*owner.resource]++
			}
		}
		g.dependents[o.uid][n] = struct{}{}
	}
	suspect := g.suspect(n)
	if n.deleting && (n.orphan || n.foreground) || suspect {
		attention = append(attention, n.uid)
	}
	if !suspect {
		delete(g.lingering, n.uid)
	}
	if old == nil && len(g.lingering) > 0 { // what waited for this owner to be seen does not any more
		for dependent := range g.dependents[n.uid] {
			delete(g.lingering, dependent.uid)
		}
	}
	if old != nil && !slices.Equal(old.owners, n.owners) { // an owner that waited for this object may be free
		stays := make(map[owner]bool, len(n.owners)) // a client may name twenty thousand
		for _, o := range n.owners {
			stays[o] = true
		}
		for _, o := range old.owners {
			if waiting := g.nodes[o.uid]; waiting != nil && waiting.deletesDependents() && !stays[o] {
				attention = append(attention, o.uid)
			}
		}
	}
	return attention
}

// suspect reports whether an owner of the object has not been seen, or waits until the object is deleted.
func (g *graph) suspect(n *node) bool {
	return !n.deleting && slices.ContainsFunc(n.owners, func(o owner) bool {
		seen := g.nodes[o.uid]
		return seen == nil || seen.deletesDependents()
	})
}

// linger notes that an object was processed and stays as it is. While an owner of it is unseen, each scan has it
// processed again.
func (g *graph) linger(uid types.UID) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if n := g.nodes[uid]; n != nil && g.suspect(n) {
		g.lingering[uid] = true
	}
}

// fewUnseen is how many owners an object has that no watch has seen, and is not costly: garbage has one or two.
const fewUnseen = 2

// costs reports whether more is read to process an object than to process garbage, or again and again.
func (g *graph) costs(n *node) bool {
	if n.deleting && n.orphan || len(n.owners) > fewOwners {
		return true
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	unseen := 0
	for _, o := range n.owners {
		if g.nodes[o.uid] == nil {
			unseen++
		}
	}
	return unseen > fewUnseen || g.lingering[n.uid]
}

// countOwner counts a node that has dependents.
func (g *graph) countOwner(n *node, by int) {
	if len(g.dependents[n.uid]) > 0 {
		g.owners[*n.resource] += by
	}
}

// expect notes that this process is deleting an object, or that the deletion failed.
func (g *graph) expect(uid types.UID, goes bool) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if delete(g.expected, uid); goes && g.nodes[uid] != nil {
		g.expected[uid] = true
	}
}

// remove removes an object of a resource that was deleted.
func (g *graph) remove(r *resource, uid types.UID) {
	g.mutex.Lock()
	attention := g.drop(r, uid)
	g.mutex.Unlock()
	for _, uid := range attention {
		g.attend(uid)
	}
}

func (g *graph) drop(r *resource, uid types.UID) (attention []types.UID) {
	n := g.nodes[uid]
	if n == nil || n.resource != r {
		g.uncopy(uid, r)
		return nil
	}
	if attention, found := g.copyInstead(n); found {
		return attention
	}
	g.take(n)
	announced := n.deleting || g.expected[uid] || n.resource.namespaced && g.ending[n.namespace.Value()]
	if delete(g.expected, uid); len(g.dependents[uid]) > 0 && !announced && !g.ordinary(n) {
		g.vanished(n.resource, n.namespace.Value(), g.owners[*n.resource])
	}
	for dependent := range g.dependents[uid] {
		attention = append(attention, dependent.uid)
		g.went[uid] = n.resource
	}
	for _, o := range n.owners {
		if waiting := g.nodes[o.uid]; waiting != nil && waiting.deletesDependents() {
			attention = append(attention, o.uid)
		}
	}
	return attention
}

// ordinary are owners that Kubernetes' own controllers delete many of in ordinary operation, with nothing that
// announces it: no finalizer, no deletionTimestamp before. Others do not belong here. A deployment controller deletes
// replica sets without pods, which own nothing; a TTL controller deletes jobs in the foreground; and pods with volumes
// or claims of their own have a deletionTimestamp first.
var ordinary = []struct {
	owner, controller schema.GroupResource
	source            string
}{
	{schema.GroupResource{Group: "batch", Resource: "jobs"}, schema.GroupResource{Group: "batch", Resource: "cronjobs"},
		"pkg/controller/cronjob, removeOldestJobs: beyond successfulJobsHistoryLimit and failedJobsHistoryLimit, " +
			"with propagation Background; read in 1.15.12 and 1.36.3"},
}

// ordinary reports whether an owner that is gone may be one of those: its controller is there, on its side, and has
// others left. A store that forgot them all, or all that a side has, does not look like that.
func (g *graph) ordinary(n *node) bool {
	return slices.ContainsFunc(n.owners, func(o owner) bool {
		by := g.nodes[o.uid]
		if !o.controller || by == nil || by.resource.side != n.resource.side || by.namespace != n.namespace {
			return false
		}
		for _, row := range ordinary {
			if row.owner != n.resource.GroupResource() || row.controller != by.resource.GroupResource() {
				continue
			}
			for left := range g.dependents[o.uid] {
				if left.resource == n.resource {
					return true
				}
			}
		}
		return false
	})
}

// uncopy forgets a copy.
func (g *graph) uncopy(uid types.UID, r *resource) {
	copies := g.copies[uid]
	i := slices.IndexFunc(copies, func(n *node) bool { return n.resource == r })
	if i < 0 {
		return
	}
	g.objects[*r]--
	if copies = slices.Delete(copies, i, i+1); len(copies) == 0 {
		delete(g.copies, uid)
		return
	}
	g.copies[uid] = copies
}

// copyInstead puts a copy in the place of a node that is gone.
func (g *graph) copyInstead(n *node) (attention []types.UID, found bool) {
	copies := g.copies[n.uid]
	if len(copies) == 0 {
		return nil, false
	}
	delete(g.expected, n.uid)
	attention = g.put(copies[len(copies)-1])
	g.uncopy(n.uid, n.resource)
	return attention, true
}

// take takes a node out.
func (g *graph) take(n *node) {
	g.unlink(n)
	g.countOwner(n, -1)
	g.objects[*n.resource]--
	delete(g.nodes, n.uid)
	delete(g.lingering, n.uid)
}

// leave takes out the objects of a resource that its side does not serve any more, or is watched in another version
// from now on. They were not deleted. It returns how many of them own something.
func (g *graph) leave(r *resource) (owners int) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for uid := range g.copies {
		g.uncopy(uid, r)
	}
	for uid, n := range g.nodes {
		if n.resource != r {
			continue
		}
		if _, found := g.copyInstead(n); found {
			continue // the scan finds what that changes
		}
		g.take(n)
		if delete(g.expected, uid); len(g.dependents[uid]) > 0 {
			g.left[uid] = kindOf(*r)
			owners++
		}
	}
	return owners
}

// misses reports whether owners of a kind went with their resource, and were not seen since.
func (g *graph) misses(kind string) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, of := range g.left {
		if of == kind {
			return true
		}
	}
	return false
}

// leftAs is the kind of an owner that went with its resource, and was not seen since; "" for none.
func (g *graph) leftAs(uid types.UID) string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.left[uid]
}

// wentAs is the resource of an owner that was deleted, as its watch brought it; nil for one that no watch has brought.
func (g *graph) wentAs(uid types.UID) *resource {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.went[uid]
}

// owning is how many objects of a resource own something.
func (g *graph) owning(r resource) int {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.owners[r]
}

func (g *graph) unlink(n *node) {
	for _, o := range n.owners {
		if delete(g.dependents[o.uid], n); len(g.dependents[o.uid]) > 0 || g.dependents[o.uid] == nil {
			continue // others are left, or the object names this owner twice
		}
		delete(g.dependents, o.uid)
		delete(g.left, o.uid)
		delete(g.went, o.uid)
		if owner := g.nodes[o.uid]; owner != nil {
			g.owners[*owner.resource]--
		}
	}
}

// replace takes a complete list of a resource's objects: what is not in it was deleted.
func (g *graph) replace(r *resource, objects iter.Seq[*metav1.PartialObjectMetadata]) {
	g.mutex.Lock()
	now, listed := g.now(), map[types.UID]struct{}{}
	var attention []types.UID
	for o := range objects {
		listed[o.UID] = struct{}{}
		attention = append(attention, g.put(nodeOf(r, o, now))...)
	}
	for uid := range g.copies {
		if _, there := listed[uid]; !there {
			g.uncopy(uid, r)
		}
	}
	for uid, n := range g.nodes {
		if _, there := listed[uid]; !there && n.resource == r {
			attention = append(attention, g.drop(r, uid)...)
		}
	}
	g.mutex.Unlock()
	for _, uid := range attention {
		g.attend(uid)
	}
}

// node returns an object, nil for an unknown one. The node is immutable.
func (g *graph) node(uid types.UID) *node {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.nodes[uid]
}

// copiesOf are the objects of a UID that are not its node.
func (g *graph) copiesOf(uid types.UID) []*node {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.Clone(g.copies[uid])
}

// dependentsOf lists the objects that refer to the owner.
func (g *graph) dependentsOf(uid types.UID) []*node {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var list []*node
	for n := range g.dependents[uid] {
		list = append(list, n)
	}
	return list
}

// blocks reports whether the object blocks the deletion of its owner.
func (n *node) blocks(uid types.UID) bool {
	return slices.ContainsFunc(n.owners, func(o owner) bool { return o.uid == uid && o.blocking })
}

// mayOwn reports whether an object can be owned: one in a namespace owns what is in the same. References to it from
// elsewhere, which any client can write, keep nothing from it.
func (n *node) mayOwn(dependent *node) bool {
	return n.namespace.Value() == "" || n.namespace == dependent.namespace
}

// suspects lists every object that is to be processed.
func (g *graph) suspects() []types.UID {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var list []types.UID
	for uid, n := range g.nodes {
		if n.deleting && (n.orphan || n.foreground) || g.suspect(n) {
			list = append(list, uid)
		}
	}
	return list
}

// selected lists the nodes that the function picks.
func (g *graph) selected(pick func(*node) bool) []*node {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var list []*node
	for _, n := range g.nodes {
		if pick(n) {
			list = append(list, n)
		}
	}
	return list
}

func (g *graph) size() int {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return len(g.nodes)
}
