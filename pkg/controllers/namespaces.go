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
// controller, of whichever side, takes its own name out when it has deleted what it can list; the namespace is kept
// until this one is out too.
const NamespaceFinalizer = "kubefusion.dev/both-sides"

// nativeFinalizer is the name of Kubernetes' own namespace controller.
const nativeFinalizer = "kubernetes"

// namespaces makes the deletion of a namespace wait until both sides are empty of it, and reports what is left of
// namespaces that went before. It runs where both sides see the same namespaces.
type namespaces struct {
	*cluster
	graph         *graph
	queue         workqueue.TypedRateLimitingInterface[string]
	deleteOrphans bool

	mutex    sync.Mutex
	reported map[string]bool // orphans that were reported, by UID
}

// lookAgain is how soon a namespace that is being deleted is looked at again.
const lookAgain = 2 * time.Second

// side through which namespaces are read and written.
func (n *namespaces) side() pair.Side {
	return n.layout.home(n.cluster.namespaces("").GroupResource())
}

// process brings one namespace a step further.
func (n *namespaces) process(ctx context.Context, name string) error {
	at := n.cluster.namespaces(n.side()).object("", name)
	object, err := n.client(n.side()).read(ctx, at)
	if errors.Is(err, discovery.ErrNotFound) {
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
		return fmt.Errorf("emptying namespace %q: %w", name, err)
	}
	if left > 0 || native {
		n.log.Info("a namespace waits", "namespace", name, "objects", left, "kubernetesIsDone", !native)
		if !n.dryRun() { // nothing has changed: the next scan says it again
			n.queue.AddAfter(name, lookAgain)
		}
		return nil
	}
	rest := slices.DeleteFunc(finalizers, func(f string) bool { return f == NamespaceFinalizer })
	if err := n.finalize(ctx, ns, rest, "both sides are empty of it"); err != nil || len(rest) > 0 {
		return err
	}
	// Recent servers delete a namespace whose last finalizer is gone; older ones wait to be asked.
	uid := ns.GetUID()
	err = n.writer.write(ctx, n.side(), http.MethodDelete, at, metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone by itself
	}
	n.record("delete", n.cluster.namespaces(n.side()),
		&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}},
		"both sides are empty of it", err)
	return err
}

// finalize writes spec.finalizers, which only this subresource may. The resource version guards it.
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

// clean deletes what is in a namespace that is being deleted, and counts what it still saw. What both sides see, and
// what is the legacy side's, is left to Kubernetes' own namespace controller until that says that it is done. Errors: a
// side, a group or one list that could not be asked: the namespace is not known to be empty then.
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
	for _, r := range n.layout.chosen(legacy, modern, "list", "delete") { // also what cannot be watched
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
			// What was listed is the namespace's only if it is still the one that is being deleted, and not another of
			// its name.
			now, err := n.client(n.side()).get(ctx, n.cluster.namespaces(n.side()), "", namespace)
			if err != nil {
				return err
			}
			if now.UID != ns.GetUID() || now.DeletionTimestamp == nil {
				return fmt.Errorf("namespace %q was made again meanwhile", namespace)
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

// reportOrphans looks for objects whose namespace is on no side: what is left of namespaces that one side finished
// alone. They would be found again in a namespace of that name that somebody makes later.
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

// isGone reports whether a namespace is on no side, as both servers say.
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

// orphan reports one object once and, if it may, deletes it.
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
		n.log.Warn("an object is left of a namespace that is gone; --delete-orphans deletes such objects", "side", side,
			"resource", o.resource.String(), "namespace", namespace, "name", o.name, "uid", o.uid)
	}
	return nil
}
