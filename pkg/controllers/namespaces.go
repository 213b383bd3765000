package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// NamespaceFinalizer stands in spec.finalizers of every namespace that both sides see. Kubernetes' own namespace
// controller, of either side, removes its own finalizer when it has deleted what it can list; the namespace stays until
// this one is removed too.
const NamespaceFinalizer = "kubefusion.dev/both-sides"

// nativeFinalizer is the finalizer of Kubernetes' own namespace controller.
const nativeFinalizer = "kubernetes"

// namespaces is the namespace controller: a namespace is finalized when both sides are empty of it. It also reports
// objects of namespaces that were deleted before. It runs where both sides see the same namespaces.
type namespaces struct {
	*cluster
	graph         *graph
	queue         workqueue.TypedRateLimitingInterface[string]
	deleteOrphans bool

	mutex    sync.Mutex
	reported map[string]bool // orphans that were logged, by UID
	waits    map[string]wait // by the name of the namespace
}

// wait is for a namespace that is being deleted and not empty.
type wait struct {
	left  int // objects at the last look
	pause time.Duration
}

// lookAgain is how soon a namespace that is being deleted is processed again, lookLater how soon one in which nothing
// is deleted any more: an object with a finalizer of its author's own may keep it for ever, and each look is a list of
// every resource.
const (
	lookAgain = 2 * time.Second
	lookLater = 16 * time.Second
)

// pause is how long a namespace with so many objects waits for the next look.
func (n *namespaces) pause(name string, left int) time.Duration {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	before, known := n.waits[name]
	next := wait{left, lookAgain}
	if known && left >= before.left {
		next.pause = min(2*before.pause, lookLater)
	}
	if n.waits == nil {
		n.waits = map[string]wait{}
	}
	n.waits[name] = next
	return next.pause
}

func (n *namespaces) forget(name string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	delete(n.waits, name)
}

// side through which namespaces are read and written.
func (n *namespaces) side() pair.Side {
	return n.layout.home(n.cluster.namespaces("").GroupResource())
}

// process does the next step for one namespace.
func (n *namespaces) process(ctx context.Context, name string) error {
	at := n.cluster.namespaces(n.side()).object("", name)
	object, err := n.client(n.side()).read(ctx, at)
	if errors.Is(err, discovery.ErrNotFound) {
		n.forget(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading namespace %q: %w", name, err)
	}
	ns := &unstructured.Unstructured{Object: object}
	finalizers, _, err := unstructured.NestedStringSlice(object, "spec", "finalizers")
	if err != nil {
		return fmt.Errorf("reading namespace %q: %w", name, err)
	}
	ours, native := slices.Contains(finalizers, NamespaceFinalizer), slices.Contains(finalizers, nativeFinalizer)
	switch {
	case !ours && (ns.GetDeletionTimestamp() == nil || native):
		return n.finalize(ctx, ns, append(finalizers, NamespaceFinalizer), "its deletion has to wait for both sides")
	case ns.GetDeletionTimestamp() == nil || !ours:
		return nil
	}
	left, err := n.clean(ctx, ns, !native)
	if err != nil {
		return fmt.Errorf("deleting the objects of namespace %q: %w", name, err)
	}
	if left > 0 || native {
		n.log.Info("namespace not empty", "namespace", name, "objects", left, "kubernetesIsDone", !native)
		if !n.dryRun() { // the next scan logs it again
			n.queue.AddAfter(name, n.pause(name, left))
		}
		return nil
	}
	n.forget(name)
	rest := slices.DeleteFunc(finalizers, func(f string) bool { return f == NamespaceFinalizer })
	if err := n.finalize(ctx, ns, rest, "both sides are empty of it"); err != nil || len(rest) > 0 {
		return err
	}
	// Recent API servers delete a namespace with its last finalizer; older ones need the request.
	uid := ns.GetUID()
	err = n.writer.write(ctx, n.side(), http.MethodDelete, at, metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the API server has deleted it
	}
	n.record("delete", n.cluster.namespaces(n.side()),
		&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}},
		"both sides are empty of it", err)
	return err
}

// finalize writes spec.finalizers, through the subresource that may. The resource version is a precondition.
func (n *namespaces) finalize(ctx context.Context, ns *unstructured.Unstructured, finalizers []string,
	why string) error {
	changed := ns.DeepCopy()
	if err := unstructured.SetNestedStringSlice(changed.Object, finalizers, "spec", "finalizers"); err != nil {
		return err
	}
	if err := n.guard.since(ctx, n.now()); err != nil {
		return fmt.Errorf("writing the finalizers of namespace %q: %w", ns.GetName(), err)
	}
	if err := n.mayChange(ctx); err != nil {
		return err
	}
	at := n.cluster.namespaces(n.side()).object("", ns.GetName(), "finalize")
	err := n.writer.write(ctx, n.side(), http.MethodPut, at, changed.Object)
	o := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Name: ns.GetName(), UID: ns.GetUID(), ResourceVersion: ns.GetResourceVersion()}}
	n.record("finalize", n.cluster.namespaces(n.side()), o, why, err, slog.Any("finalizers", finalizers))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// clean deletes what is in a namespace that is being deleted, and counts what it listed. What both sides see, and what
// is the legacy side's, is left to Kubernetes' own namespace controller until that has removed its finalizer. Errors:
// of discovery and of any list: the namespace is not known to be empty then.
func (n *namespaces) clean(ctx context.Context, ns *unstructured.Unstructured, everything bool) (left int, err error) {
	namespace := ns.GetName()
	legacy, modern, err := n.freshCatalogs(ctx, n.now())
	if err != nil {
		return 0, err
	}
	if err := n.guard.since(ctx, n.now()); err != nil {
		return 0, err
	}
	var mutex sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, r := range n.layout.everyVersion(legacy, modern, "list", "delete") { // also what cannot be watched
		if !r.namespaced || !everything && (r.side == pair.Legacy || n.layout.home(r.GroupResource()) != "") {
			continue
		}
		group.Go(func() error {
			items, err := n.client(r.side).listAll(ctx, r, namespace)
			if err != nil {
				return err
			}
			if len(items) == 0 {
				return nil
			}
			mutex.Lock()
			left += len(items)
			mutex.Unlock()
			// What was listed is of this namespace only while that is being deleted, and was not created again.
			now, err := n.client(n.side()).get(ctx, n.cluster.namespaces(n.side()), "", namespace)
			if err != nil {
				return err
			}
			if now.UID != ns.GetUID() || now.DeletionTimestamp == nil {
				return fmt.Errorf("namespace %q was created again meanwhile", namespace)
			}
			for i := range items {
				if items[i].DeletionTimestamp != nil {
					continue
				}
				err := n.delete(ctx, r, &items[i], metav1.DeletePropagationBackground, "its namespace is being deleted")
				if err != nil && !apierrors.IsConflict(err) {
					return err
				}
			}
			return nil
		})
	}
	return left, group.Wait()
}

// reportOrphans reports objects whose namespace is on no side: those of namespaces that one side finalized alone. They
// would reappear in a namespace that is created with that name later.
func (n *namespaces) reportOrphans(ctx context.Context) error {
	known := map[string]bool{}
	for _, o := range n.graph.selected(func(o *node) bool { return isNamespace(*o.resource) }) {
		known[o.name] = true
	}
	spaces := map[string][]*node{}
	for _, o := range n.graph.selected(func(o *node) bool {
		return o.resource.namespaced && !known[o.namespace.Value()]
	}) {
		spaces[o.namespace.Value()] = append(spaces[o.namespace.Value()], o)
	}
	var problems error
	total := 0
	for _, name := range slices.Sorted(maps.Keys(spaces)) {
		gone, err := n.isGone(ctx, name)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		if !gone {
			continue
		}
		for _, o := range spaces[name] {
			total++
			if err := n.orphan(ctx, o); err != nil {
				problems = errors.Join(problems, err)
			}
		}
	}
	n.metrics.orphans.Set(float64(total))
	return problems
}

func isNamespace(r resource) bool { return r.Group == "" && r.Resource == "namespaces" }

// isGone reports whether both API servers return that there is no such namespace.
func (n *namespaces) isGone(ctx context.Context, name string) (bool, error) {
	for _, side := range pair.Sides() {
		if _, err := n.catalogs[side].since(ctx, time.Time{}); err != nil { // it is the right server
			return false, err
		}
		_, err := n.client(side).get(ctx, n.cluster.namespaces(side), "", name)
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, discovery.ErrNotFound) {
			return false, err
		}
	}
	if err := n.guard.since(ctx, n.now()); err != nil {
		return false, err
	}
	return true, nil
}

// orphan logs one object once, or deletes it where that is wanted.
func (n *namespaces) orphan(ctx context.Context, o *node) error {
	side, namespace := o.resource.side, o.namespace.Value()
	live, err := n.client(side).get(ctx, *o.resource, namespace, o.name)
	if errors.Is(err, discovery.ErrNotFound) || err == nil && live.UID != o.uid {
		return nil
	}
	if err != nil {
		return err
	}
	if n.deleteOrphans {
		if live.DeletionTimestamp != nil {
			return nil
		}
		if gone, err := n.isGone(ctx, namespace); err != nil || !gone {
			return err
		}
		return n.delete(ctx, *o.resource, live, metav1.DeletePropagationBackground, "its namespace is on no side")
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if !n.reported[string(o.uid)] {
		n.reported[string(o.uid)] = true
		n.log.Warn("object of a deleted namespace; --delete-orphans deletes it", "side", side,
			"resource", o.resource.String(), "namespace", namespace, "name", o.name, "uid", o.uid)
	}
	return nil
}
