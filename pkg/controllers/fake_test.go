package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// pairSpec is the plan under which the fakes run.
const pairSpec = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: pair}
spec:
  layout: split
  hosts: [{name: cp-1, address: 192.0.2.1}]
  network: {serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}
  stores:
  - {name: core, endpoints: ["http://192.0.2.1:2379"]}
  - {name: modern, endpoints: ["http://192.0.2.1:2479"]}
  legacy: {version: 1.15.12, store: core, apiServer: {}, controllerManager: {}}
  modern: {version: 1.36.3, store: modern, apiServer: {}, controllerManager: {}}
  access:
  - {subjects: [{kind: User, name: fusionctl-controllers}], apiGroups: ["*"], resources: ["*"]}
`

func testPlan(t testing.TB) *plan.Runtime {
	t.Helper()
	return plantest.Of(t, pairSpec).Runtime()
}

// stored is an object in a fake store.
type stored struct {
	APIVersion string               `json:"apiVersion,omitempty"` // set when it is sent
	Kind       string               `json:"kind,omitempty"`
	Metadata   metav1.ObjectMeta    `json:"metadata"`
	Spec       *storedNamespaceSpec `json:"spec,omitempty"`   // of namespaces
	Status     *storedStatus        `json:"status,omitempty"` // of definitions
}

type storedStatus struct {
	Conditions []metav1.Condition `json:"conditions"`
}

type storedNamespaceSpec struct {
	Finalizers []string `json:"finalizers"`
}

// store is what a fake server keeps its objects in; pods and namespaces of both servers are in one.
type store struct {
	objects map[string]*stored // by path below the group and version: pods/demo/one, namespaces//demo
}

// world is two fake API servers over three stores, and a judge of what is deleted.
type world struct {
	t       testing.TB
	mutex   sync.Mutex
	version int
	uids    int
	shared  store
	own     map[pair.Side]store
	// refuse says how a server answers instead of properly: by a code, 0 for properly.
	refuse func(side pair.Side, r *http.Request) int
	// watches brings events to those who watch; nil where nobody does.
	watches func(side pair.Side, rw http.ResponseWriter, r *http.Request)
	// boots says how far a server has started; nothing of one that has.
	boots   map[pair.Side]*boot
	options Options // of the last collector
	spec    string  // of the plan; "" for pairSpec
	// deletions lists what was deleted, as resource/namespace/name.
	deletions []string
	wrong     []string // deletions of objects that have an owner
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, shared: store{map[string]*stored{}}, own: map[pair.Side]store{},
		boots: map[pair.Side]*boot{}, refuse: func(pair.Side, *http.Request) int { return 0 }}
	for _, side := range pair.Sides() {
		w.own[side] = store{map[string]*stored{}}
		for _, custom := range fakeCustom[side] {
			w.define(side, custom.name+"."+custom.group())
		}
	}
	w.put("", "namespaces", "", metav1.NamespaceSystem)
	return w
}

// collector over the two servers, with the graph as the stores are now and no watches.
func (w *world) collector(options Options) (*collector, *manager) {
	w.t.Helper()
	configs := map[pair.Side]*rest.Config{}
	for _, side := range pair.Sides() {
		configs[side] = serverOf(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.serve(side, rw, r)
		}))
	}
	options.QPS, options.ChangesPerSecond = 1e6, 1e6
	if options.Audit == nil {
		options.Audit = slog.New(slog.DiscardHandler)
	}
	options.Log = slog.New(slog.DiscardHandler)
	options.Legacy, options.Modern = configs[pair.Legacy], configs[pair.Modern]
	w.options = options
	c, err := newCluster(plantest.Of(w.t, cmp.Or(w.spec, pairSpec)).Runtime(), configs, options)
	if err != nil {
		w.t.Fatal(err)
	}
	c.settle = 0 // a test that is about it says so
	m := newManager(c, options)
	w.t.Cleanup(m.shutDown)
	m.started = true
	return m.collector, m
}

// see puts what the stores hold into the graph.
func (w *world) see(ctx context.Context, m *manager) {
	w.t.Helper()
	forget(m)
	legacy, modern, err := m.freshCatalogs(ctx, time.Time{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range m.layout.watched(legacy, modern) {
		items, err := m.client(r.side).listAll(ctx, r, "")
		if err != nil {
			w.t.Fatal(err)
		}
		known := m.monitors.running[r]
		if known == nil {
			known = &monitor{resource: r, graph: m.graph, told: m.told, cancel: func() {}}
			m.monitors.running[r] = known
		}
		var list []any
		for i := range items {
			list = append(list, &items[i])
		}
		if err := known.Replace(list, ""); err != nil {
			w.t.Fatal(err)
		}
	}
}

// unsee takes an object out of the graph, as its watch does when it is deleted.
func unsee(g *graph, uid types.UID) {
	if n := g.node(uid); n != nil {
		g.remove(n.resource, uid)
	}
}

// in is the store in which a side keeps a resource.
func (w *world) in(side pair.Side, resource string) store {
	if resource == "pods" || resource == "namespaces" {
		return w.shared
	}
	return w.own[side]
}

// put makes an object with owners of these UIDs and returns its own.
func (w *world) put(side pair.Side, resource, namespace, name string,
	owners ...metav1.OwnerReference) metav1.OwnerReference {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.uids++
	w.version++
	o := &stored{Metadata: metav1.ObjectMeta{Name: name, Namespace: namespace, ResourceVersion: fmt.Sprint(w.version),
		OwnerReferences: owners}}
	o.Metadata.UID = types.UID(fmt.Sprintf("uid-%d", w.uids))
	if resource == "namespaces" {
		o.Spec = &storedNamespaceSpec{Finalizers: []string{nativeFinalizer}}
	}
	w.in(side, resource).objects[resource+"/"+namespace+"/"+name] = o
	for _, f := range slices.Concat(fakeResources(modern), fakeResources(legacy)) {
		if f.name == resource {
			return metav1.OwnerReference{APIVersion: f.gv, Kind: f.kind, Name: name, UID: o.Metadata.UID}
		}
	}
	w.t.Fatalf("no fake serves %s", resource)
	return metav1.OwnerReference{}
}

// has reports whether an object is there.
func (w *world) has(side pair.Side, resource, namespace, name string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.in(side, resource).objects[resource+"/"+namespace+"/"+name] != nil
}

// drop removes an object as if somebody had.
func (w *world) drop(side pair.Side, resource, namespace, name string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.in(side, resource).objects, resource+"/"+namespace+"/"+name)
}

// refuses changes what is answered while requests may be under way.
func (w *world) refuses(refuse func(pair.Side, *http.Request) int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.refuse = refuse
}

// exists reports whether the UID is anywhere; w.mutex is held.
func (w *world) exists(uid string) bool {
	for _, s := range []store{w.shared, w.own[pair.Legacy], w.own[pair.Modern]} {
		for _, o := range s.objects {
			if string(o.Metadata.UID) == uid {
				return true
			}
		}
	}
	return false
}

// holds reports whether an object of the UID is there that does not wait for its dependents to go; w.mutex is held.
func (w *world) holds(uid string) bool {
	for _, s := range []store{w.shared, w.own[pair.Legacy], w.own[pair.Modern]} {
		for _, o := range s.objects {
			if string(o.Metadata.UID) == uid && !(o.Metadata.DeletionTimestamp != nil &&
				slices.Contains(o.Metadata.Finalizers, metav1.FinalizerDeleteDependents)) {
				return true
			}
		}
	}
	return false
}

// withoutBoth makes a server answer properly, and leave one group out of those that it serves.
const withoutBoth = -1

func (w *world) serve(side pair.Side, rw http.ResponseWriter, r *http.Request) {
	if w.watches != nil && r.URL.Query().Get("watch") == "true" {
		w.watches(side, rw, r)
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	hidden := ""
	if code := w.refuse(side, r); code == withoutBoth {
		hidden = "both.test/v1"
	} else if code == http.StatusOK { // a proxy that knows everything better
		fmt.Fprintln(rw, "{}")
		return
	} else if code != 0 {
		http.Error(rw, http.StatusText(code), code)
		return
	}
	answer := func(code int, value any) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(value)
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if r.URL.Path == "/version" {
		answer(200, map[string]string{
			"gitVersion": map[pair.Side]string{pair.Legacy: "v1.15.12", pair.Modern: "v1.36.3"}[side]})
		return
	}
	// Each as its version.
	if path := r.URL.Path; path == "/readyz" && side == modern || path == "/healthz" && side == legacy {
		if boot := w.boots[side]; boot != nil && !boot.ready {
			http.Error(rw, "[-]poststarthook/start-kube-aggregator-informers failed: not finished", 500)
			return
		}
		fmt.Fprint(rw, "ok")
		return
	}
	if w.discovery(side, parts, hidden, answer) {
		return
	}
	// /api/v1/... or /apis/GROUP/VERSION/...
	gv, rest := "v1", parts[min(2, len(parts)):]
	if parts[0] == "apis" && len(parts) > 3 {
		gv, rest = parts[1]+"/"+parts[2], parts[3:]
	}
	if len(rest) == 3 && rest[2] == "finalize" {
		w.finalize(rest[1], r, answer)
		return
	}
	namespace := ""
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	served := -1
	if len(rest) > 0 && w.boots[side].serves(side, gv) {
		served = slices.IndexFunc(fakeResources(side), func(f fakeResource) bool {
			return f.gv == gv && f.name == rest[0]
		})
	}
	if served < 0 {
		http.NotFound(rw, r)
		return
	}
	kind := fakeResources(side)[served].kind
	sent := func(o *stored) *stored {
		o = new(*o)
		o.APIVersion, o.Kind = gv, kind
		return o
	}
	s := w.in(side, rest[0])
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		w.writeLock(s, rest, namespace, r, answer)
		return
	}
	if len(rest) == 1 {
		items, prefix, keys := []*stored{}, rest[0]+"/", []string(nil)
		for key, o := range s.objects {
			if strings.HasPrefix(key, prefix) && (namespace == "" || o.Metadata.Namespace == namespace) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			items = append(items, sent(s.objects[key]))
		}
		answer(200, map[string]any{"kind": kind + "List", "apiVersion": gv,
			"metadata": map[string]string{"resourceVersion": fmt.Sprint(w.version)}, "items": items})
		return
	}
	key := rest[0] + "/" + namespace + "/" + rest[1]
	o := s.objects[key]
	status := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: reason, Code: int32(code),
			Details: &metav1.StatusDetails{Name: rest[1], Kind: rest[0]},
			Message: fmt.Sprintf("%s %q: %s", rest[0], rest[1], reason)})
	}
	if o == nil {
		status(404, metav1.StatusReasonNotFound)
		return
	}
	switch r.Method {
	case http.MethodGet:
		answer(200, sent(o))
	case http.MethodDelete:
		var options metav1.DeleteOptions
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.Preconditions == nil ||
			options.Preconditions.UID == nil || options.PropagationPolicy == nil {
			w.wrong = append(w.wrong, "a deletion of "+key+" without preconditions")
		} else if *options.Preconditions.UID != o.Metadata.UID ||
			*options.Preconditions.ResourceVersion != o.Metadata.ResourceVersion {
			status(409, metav1.StatusReasonConflict)
			return
		}
		for _, ref := range o.Metadata.OwnerReferences {
			if w.holds(string(ref.UID)) {
				w.wrong = append(w.wrong, fmt.Sprintf("%s was deleted through the %s side, and its owner %s %s is "+
					"there", key, side, ref.Kind, ref.Name))
			}
		}
		w.deletions = append(w.deletions, key)
		delete(s.objects, key)
		answer(200, o)
	case http.MethodPatch:
		patch := stored{}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil ||
			patch.Metadata.ResourceVersion != o.Metadata.ResourceVersion {
			status(409, metav1.StatusReasonConflict)
			return
		}
		w.version++
		changed := *o
		changed.Metadata.ResourceVersion = fmt.Sprint(w.version)
		if patch.Metadata.OwnerReferences != nil {
			changed.Metadata.OwnerReferences = patch.Metadata.OwnerReferences
		}
		if patch.Metadata.Finalizers != nil {
			changed.Metadata.Finalizers = patch.Metadata.Finalizers
		}
		if s.objects[key] = &changed; changed.Metadata.DeletionTimestamp != nil &&
			len(changed.Metadata.Finalizers) == 0 {
			delete(s.objects, key)
		}
		answer(200, &changed)
	}
}

// writeLock creates or replaces a config map.
func (w *world) writeLock(s store, rest []string, namespace string, r *http.Request, answer func(int, any)) {
	var written stored
	if err := json.NewDecoder(r.Body).Decode(&written); err != nil {
		w.wrong = append(w.wrong, err.Error())
	}
	key := rest[0] + "/" + namespace + "/" + written.Metadata.Name
	o := s.objects[key]
	if (r.Method == http.MethodPost) != (o == nil) ||
		o != nil && o.Metadata.ResourceVersion != written.Metadata.ResourceVersion {
		answer(409, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonConflict, Code: 409})
		return
	}
	w.version++
	written.Metadata.ResourceVersion, written.Metadata.UID = fmt.Sprint(w.version),
		types.UID("uid-of-"+written.Metadata.Name)
	s.objects[key] = &written
	answer(200, &written)
}

// finalize writes the finalizers of a namespace; the last one out ends it.
func (w *world) finalize(name string, r *http.Request, answer func(int, any)) {
	o := w.shared.objects["namespaces//"+name]
	var written stored
	if err := json.NewDecoder(r.Body).Decode(&written); err != nil || o == nil ||
		written.Metadata.ResourceVersion != o.Metadata.ResourceVersion || written.Metadata.UID != o.Metadata.UID {
		answer(409, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonConflict, Code: 409})
		return
	}
	w.version++
	changed := *o
	changed.Spec, changed.Metadata.ResourceVersion = written.Spec, fmt.Sprint(w.version)
	if w.shared.objects["namespaces//"+name] = &changed; changed.Metadata.DeletionTimestamp != nil &&
		len(changed.Spec.Finalizers) == 0 {
		delete(w.shared.objects, "namespaces//"+name)
	}
	answer(200, &changed)
}
