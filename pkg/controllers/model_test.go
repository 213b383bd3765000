package controllers

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// modelSteps is how long the collector is driven against a pair whose servers fail.
const modelSteps = 100_000

// A collector against a simulated pair: owners and dependents come and go on both sides, between two requests of the
// collector too; owners wait for dependents, orphan them, are copied and handed over to the other side; watches lag;
// servers start, fail, lie by a proxy, break off and forget a group. Nothing is deleted while an owner of it exists on
// any side, and in the end everything is that has none. The same seed makes the same run.
func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("drives the collector for a hundred thousand steps")
	}
	m := newModel(t, 1)
	for m.step = range modelSteps {
		m.act()
		if len(m.wrong) > 0 {
			t.Fatalf("step %d: %q", m.step, m.wrong)
		}
	}
	during := len(m.deletions)
	m.faults = map[pair.Side]fault{}
	m.boots = map[pair.Side]*boot{}
	for range 20 {
		m.now = m.now.Add(time.Minute)
		m.deliver(len(m.events))
		m.see(t.Context(), m.manager)
		for _, uid := range sorted(m.manager.graph.suspects()) {
			_ = m.collector.process(t.Context(), uid)
		}
	}
	if len(m.wrong) > 0 {
		t.Fatal(m.wrong)
	}
	left := m.garbage()
	t.Logf("%d requests, %d objects made, %d deleted meanwhile and %d at the end; faults %v; %d doubts",
		m.requests.Load(), m.uids,
		during, len(m.deletions)-during, m.faulted, m.doubts)
	t.Logf("%d owners were misnamed", len(m.misnamed))
	if len(left) > 0 {
		t.Errorf("nobody owns %q any more", left)
	}
	if during < modelSteps/1000 || m.doubts < modelSteps/1000 {
		t.Errorf("%d deletions and %d doubts while servers failed: too few for the test to say anything", during,
			m.doubts)
	}
}

func sorted(uids []types.UID) []types.UID { slices.Sort(uids); return uids }

// model is a world that drives itself.
type model struct {
	*world
	random    *rand.Rand
	seed      uint64
	step      int
	now       time.Time
	collector *collector
	manager   *manager
	refs      []metav1.OwnerReference // of all that was ever made
	events    []func()                // that watches have not brought yet
	faults    map[pair.Side]fault
	requests  atomic.Int64
	made      map[types.UID]made
	seen      map[place]*stored  // what watches have been told, or will be
	misnamed  map[types.UID]bool // owners that a reference calls by another name
	denied    map[types.UID]bool // owners of whose deletion a watch has told although there was none
	doubts    int
	faulted   map[string]int
}

// fault is what is wrong with a server until it ends.
type fault struct {
	name  string
	until int // step
	every uint64
	does  func(*http.Request, *http.Response) (*http.Response, error) // nil: by the state of the server
}

// made is where an object was made.
type made struct {
	side           pair.Side
	resource, name string
}

// place is where an object is watched.
type place struct {
	side pair.Side
	key  string
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{world: newWorld(t), random: rand.New(rand.NewPCG(seed, 2)), seed: seed, faults: map[pair.Side]fault{},
		faulted: map[string]int{}, seen: map[place]*stored{}, made: map[types.UID]made{},
		misnamed: map[types.UID]bool{}, denied: map[types.UID]bool{},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	m.collector, m.manager = m.world.collector(Options{})
	clock := func() time.Time { return m.now }
	c := m.collector.cluster
	c.now, m.collector.absent.now, m.manager.graph.now, c.settle = clock, clock, clock, settleTime
	c.guard.vanishings.Limit.Share = 100 // owners come and go at random here
	m.refuse = func(side pair.Side, r *http.Request) int {
		return code(m.faults[side].name == "it leaves a group out" && r.URL.Path == "/apis", withoutBoth)
	}
	for _, side := range pair.Sides() {
		c.catalogs[side].now = clock
		server, err := apiserver.New(&rest.Config{Host: "https://" + string(side), Transport: transport{m, side}},
			apiserver.Options{Attempts: 1, QPS: -1, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		c.clients[side].server = server
	}
	m.see(t.Context(), m.manager)
	if err := c.guard.since(t.Context(), m.now); err != nil {
		t.Fatal(err)
	}
	return m
}

// modelled are where the model makes objects; all but the pods may own them.
var modelled = []struct {
	side     pair.Side
	resource string
}{{legacy, "replicasets"}, {modern, "replicasets"}, {modern, "widgets"}, {legacy, "gadgets"}, {modern, "gadgets"},
	{"", "pods"}}

// act does one thing at random.
func (m *model) act() {
	m.now = m.now.Add(time.Duration(m.random.IntN(20)) * time.Millisecond)
	for side, f := range m.faults {
		if m.step >= f.until {
			delete(m.faults, side)
			delete(m.boots, side)
		}
	}
	switch n := m.random.IntN(100); {
	case n < 22:
		m.make()
	case n < 32:
		m.remove()
	case n < 52:
		m.deliver(1 + m.random.IntN(8))
	case n < 60:
		m.forget()
	case n < 62:
		m.sync()
	case n < 64:
		m.fail()
	case n < 67:
		at := modelled[m.random.IntN(len(modelled))]
		m.finish(at.side, at.resource, fmt.Sprintf("o%d", m.random.IntN(40)))
	case n < 68:
		m.copy()
	case n < 69 && m.random.IntN(2) == 0:
		m.now = m.now.Add(time.Duration(m.random.IntN(12)) * time.Second)
	default:
		if suspects := sorted(m.manager.graph.suspects()); len(suspects) > 0 {
			if err := m.collector.process(m.t.Context(), suspects[m.random.IntN(len(suspects))]); err != nil {
				m.doubts++
			}
		}
	}
}

// make makes an object, often with owners that exist, sometimes with one that does not any more.
func (m *model) make() {
	at := modelled[m.random.IntN(len(modelled))]
	name := fmt.Sprintf("o%d", m.random.IntN(40))
	if m.has(at.side, at.resource, "demo", name) {
		return
	}
	var owners []metav1.OwnerReference
	for range min(m.random.IntN(3), len(m.refs)) {
		recent := min(len(m.refs), 30)
		owner := m.refs[len(m.refs)-1-m.random.IntN(recent)]
		if m.random.IntN(8) == 0 && m.manager.graph.node(owner.UID) != nil && !m.denied[owner.UID] {
			// As from another namespace: only the UID says which owner it is, and a watch has brought that one.
			owner.Name, m.misnamed[owner.UID] = "misnamed", true
		}
		owners = append(owners, owner)
	}
	ref := m.put(at.side, at.resource, "demo", name, owners...)
	m.made[ref.UID] = made{at.side, at.resource, name}
	if m.refs = append(m.refs, ref); at.resource == "pods" && len(m.refs) > 1 && m.random.IntN(2) == 0 {
		m.refs = m.refs[:len(m.refs)-1] // most pods own nothing
	}
	m.changed(at.side, at.resource, name)
}

// remove removes an object as a person does.
func (m *model) remove() {
	at := modelled[m.random.IntN(len(modelled))]
	name := fmt.Sprintf("o%d", m.random.IntN(40))
	if m.has(at.side, at.resource, "demo", name) {
		m.drop(at.side, at.resource, "demo", name)
		m.changed(at.side, at.resource, name)
	}
}

// finish deletes an object so that it waits for its dependents, or orphans them.
func (m *model) finish(side pair.Side, resource, name string) {
	finalizer := []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}[m.random.IntN(2)]
	m.mutex.Lock()
	s, key := m.in(side, resource), resource+"/demo/"+name
	o := s.objects[key]
	if o == nil || o.Metadata.DeletionTimestamp != nil {
		m.mutex.Unlock()
		return
	}
	m.version++
	gone := *o
	now := metav1.NewTime(m.now)
	gone.Metadata.ResourceVersion, gone.Metadata.DeletionTimestamp = fmt.Sprint(m.version), &now
	gone.Metadata.Finalizers = []string{finalizer}
	s.objects[key] = &gone
	m.mutex.Unlock()
	m.changed(side, resource, name)
}

// copy hands an object over to the other side, or copies it; of copies one may be deleted.
func (m *model) copy() {
	at := modelled[m.random.IntN(len(modelled)-1)]
	if at.resource == "widgets" {
		return
	}
	first := m.random.IntN(40)
	m.mutex.Lock()
	from, to, name := m.own[at.side].objects, m.own[at.side.Other()].objects, ""
	for i := range 40 {
		name = fmt.Sprintf("o%d", (first+i)%40)
		key := at.resource + "/demo/" + name
		if o := from[key]; o != nil && o.Metadata.DeletionTimestamp == nil && to[key] == nil {
			m.version++
			copied := *o
			copied.Metadata.ResourceVersion = fmt.Sprint(m.version)
			to[key] = &copied
			break
		}
	}
	m.mutex.Unlock()
	m.changed(at.side.Other(), at.resource, name)
	switch m.random.IntN(3) {
	case 0:
		m.drop(at.side, at.resource, "demo", name)
		m.changed(at.side, at.resource, name)
	case 1:
		m.finish(at.side, at.resource, name)
	}
}

// forget has a watch hear of a deletion that there was not, and later of the object.
func (m *model) forget() {
	if len(m.refs) == 0 {
		return
	}
	uid := m.refs[len(m.refs)-1-m.random.IntN(min(len(m.refs), 60))].UID
	if m.misnamed[uid] {
		return // by its name it is nowhere
	}
	m.denied[uid] = true
	unsee(m.manager.graph, uid)
	if at, made := m.made[uid]; made {
		m.changed(at.side, at.resource, at.name)
	}
}

// sync ends the watches of what a side does not serve any more, as far as that is believed, and begins those of what it
// serves again.
func (m *model) sync() {
	for r, monitor := range m.manager.monitors.running {
		served, err := m.collector.catalogs[r.side].since(m.t.Context(), m.now.Add(-catalogAge))
		if err != nil || served.failure(r.Group) != nil || !strings.HasSuffix(r.Group, ".test") {
			continue
		}
		var list []*metav1.PartialObjectMetadata
		m.mutex.Lock()
		for key, o := range m.own[r.side].objects {
			if strings.HasPrefix(key, r.Resource+"/") {
				list = append(list, &metav1.PartialObjectMetadata{ObjectMeta: *o.Metadata.DeepCopy()})
			}
		}
		m.mutex.Unlock()
		if !served.has(r.GroupResource()) {
			m.manager.graph.leave(&monitor.resource)
			monitor.synced.Store(false) // the watch that begins has to list
			continue
		}
		m.manager.graph.replace(&monitor.resource, slices.Values(list))
		monitor.synced.Store(true)
	}
}

// changed has a watch bring, later, what has become of an object.
func (m *model) changed(side pair.Side, resource, name string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	key := resource + "/demo/" + name
	if resource == "pods" {
		side = m.home("", resource)
	}
	at := place{side, key}
	now, was := m.in(side, resource).objects[key], m.seen[at]
	m.seen[at] = now
	m.events = append(m.events, func() {
		for r, monitor := range m.manager.monitors.running {
			if r.Resource != resource || r.side != side {
				continue
			}
			if was != nil && (now == nil || was.Metadata.UID != now.Metadata.UID) {
				_ = monitor.Delete(&metav1.PartialObjectMetadata{ObjectMeta: was.Metadata})
			}
			if now != nil {
				_ = monitor.Add(&metav1.PartialObjectMetadata{ObjectMeta: *now.Metadata.DeepCopy()})
			}
		}
	})
}

// home is the side through which an object is watched.
func (m *model) home(side pair.Side, resource string) pair.Side {
	if side == "" {
		return m.collector.layout.home(schema.GroupResource{Resource: resource})
	}
	return side
}

// deliver lets watches bring so many events, in their order.
func (m *model) deliver(n int) {
	m.mutex.Lock()
	n = min(n, len(m.events))
	events := m.events[:n]
	m.events = m.events[n:]
	m.mutex.Unlock()
	for _, event := range events {
		event()
	}
}

// faults are what may be wrong with a server; each is about every one of so many requests.
var faults = []fault{
	{name: "it is away", every: 1, does: func(*http.Request, *http.Response) (*http.Response, error) {
		return nil, syscall.ECONNREFUSED
	}},
	{name: "it breaks off", every: 2, does: changed(func(body []byte) []byte { return body[:len(body)/2] })},
	{name: "there is something behind its answers", every: 2, does: changed(func(body []byte) []byte {
		return append(body, "{}"...)
	})},
	{name: "its lists are empty", every: 1, does: changed(func(body []byte) []byte {
		at := bytes.Index(body, []byte(`"items":[`))
		if end := bytes.LastIndexByte(body, ']'); at >= 0 && end > at {
			return slices.Concat(body[:at+len(`"items":[`)], body[end:])
		}
		return body
	})},
	{name: "a proxy says 404", every: 2, does: says(http.StatusNotFound)},
	// The guard reads what is in no namespace, so that it does not see these.
	{name: "a proxy has no objects", every: 2, does: missing("404 page not found")},
	{name: "a server behind it has no objects", every: 2, does: missing(`{"kind":"Status","apiVersion":"v1",` +
		`"status":"Failure","reason":"NotFound","code":404,"message":"the server could not find the requested resource"}`)},
	{name: "it has no object of another name", every: 2, does: missing(`{"kind":"Status","apiVersion":"v1",` +
		`"status":"Failure","reason":"NotFound","code":404,"details":{"name":"default","kind":"apiservices"}}`)},
	{name: "a proxy says 200", every: 2, does: says(http.StatusOK)},
	{name: "it is busy", every: 3, does: says(http.StatusTooManyRequests)},
	{name: "it fails", every: 3, does: says(http.StatusInternalServerError)},
	{name: "it forbids", every: 3, does: says(http.StatusForbidden)},
	{name: "it has forgotten the state of a list", every: 1,
		does: func(r *http.Request, was *http.Response) (*http.Response, error) {
			if strings.Contains(r.URL.RawQuery, "limit=") {
				return says(http.StatusGone)(r, was)
			}
			return was, nil
		}},
	{name: "it redirects", every: 2, does: func(_ *http.Request, was *http.Response) (*http.Response, error) {
		was.StatusCode = http.StatusTemporaryRedirect
		was.Header.Set("Location", "https://elsewhere/")
		return was, nil
	}},
	{name: "it starts"},
	{name: "it starts, and says that it is ready"},
	{name: "it leaves a group out"},
	{name: anotherVersion},
}

// anotherVersion: somebody has defined a resource of the name of one that is there, in a version that is preferred.
const anotherVersion = "it prefers another version"

func changed(change func([]byte) []byte) func(*http.Request, *http.Response) (*http.Response, error) {
	return func(_ *http.Request, was *http.Response) (*http.Response, error) {
		body, err := io.ReadAll(was.Body)
		was.Body = io.NopCloser(bytes.NewReader(change(body)))
		was.ContentLength = -1
		return was, err
	}
}

// missing answers 404 for each object of a namespace, and for nothing else.
func missing(body string) func(*http.Request, *http.Response) (*http.Response, error) {
	return func(r *http.Request, was *http.Response) (*http.Response, error) {
		_, rest, ok := strings.Cut(r.URL.Path, "/namespaces/demo/")
		if !ok || !strings.Contains(rest, "/") || r.Method != http.MethodGet {
			return was, nil
		}
		recorder := httptest.NewRecorder()
		recorder.WriteHeader(http.StatusNotFound)
		_, _ = recorder.WriteString(body)
		return recorder.Result(), nil
	}
}

func says(code int) func(*http.Request, *http.Response) (*http.Response, error) {
	return func(*http.Request, *http.Response) (*http.Response, error) {
		recorder := httptest.NewRecorder()
		recorder.WriteHeader(code)
		_, _ = recorder.WriteString("{}")
		return recorder.Result(), nil
	}
}

// fail makes something be wrong with a server for a while.
func (m *model) fail() {
	side := pair.Sides()[m.random.IntN(2)]
	f := faults[m.random.IntN(len(faults))]
	f.until = m.step + 1 + m.random.IntN([]int{20, 100, 500}[m.random.IntN(3)])
	if f.every > 1 {
		f.every = 1 + m.random.Uint64N(20)
	}
	delete(m.boots, side)
	m.faults[side] = f
	m.faulted[f.name]++
	switch f.name {
	case "it starts", "it starts, and says that it is ready":
		m.boots[side] = &boot{ready: f.name != "it starts", core: m.random.IntN(3) > 0,
			groups: m.random.IntN(len(fakeGroups(side)))}
	}
}

// transport is the way to a server.
type transport struct {
	m    *model
	side pair.Side
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.m.requests.Add(1)
	f, failing := t.m.faults[t.side]
	chance := t.m.chance(t.side, r)
	failing = failing && f.does != nil && chance%f.every == 0
	if r.Method == http.MethodDelete && chance%16 < 3 {
		t.m.adopt(r.URL.Path, t.side)
	}
	resource, name := lastTwo(r.URL.Path)
	before := t.m.owners(t.side, resource, name)
	recorder := httptest.NewRecorder()
	if !failing || chance%2 == 0 || r.Method == http.MethodGet { // a change that fails may have happened
		serve := func(rw http.ResponseWriter, r *http.Request) { t.m.serve(t.side, rw, r) }
		if f.name == anotherVersion {
			serve = t.m.withVersion(t.side, schema.GroupVersionResource{Group: "both.test", Version: "v9",
				Resource: "gadgets"}, "Gadget")
		}
		serve(recorder, r)
	}
	if r.Method == http.MethodDelete || r.Method == http.MethodPatch {
		t.m.keeps(before, t.side, resource, name)
		t.m.changed(t.side, resource, name)
	}
	answer := recorder.Result()
	answer.Request = r
	if failing {
		return f.does(r, answer)
	}
	return answer, nil
}

// chance is drawn from the request and the step, so that the order of concurrent ones does not matter.
func (m *model) chance(side pair.Side, r *http.Request) uint64 {
	hash := fnv.New64a()
	fmt.Fprint(hash, m.seed, m.step, side, r.Method, r.URL)
	return hash.Sum64() >> 8
}

func lastTwo(path string) (resource, name string) {
	parts := strings.Split(path, "/")
	return parts[len(parts)-2], parts[len(parts)-1]
}

// adopt gives an object an owner that is there, after the collector has decided about it.
func (m *model) adopt(path string, side pair.Side) {
	resource, name := lastTwo(path)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	s, key := m.in(side, resource), resource+"/demo/"+name
	o := s.objects[key]
	if o == nil {
		return
	}
	for _, ref := range slices.Backward(m.refs) {
		if m.exists(string(ref.UID)) && ref.UID != o.Metadata.UID {
			m.version++
			adopted := *o
			adopted.Metadata.ResourceVersion = fmt.Sprint(m.version)
			adopted.Metadata.OwnerReferences = append(slices.Clone(o.Metadata.OwnerReferences), ref)
			s.objects[key] = &adopted
			return
		}
	}
}

func (m *model) owners(side pair.Side, resource, name string) []metav1.OwnerReference {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if o := m.in(side, resource).objects[resource+"/demo/"+name]; o != nil {
		return o.Metadata.OwnerReferences
	}
	return nil
}

// keeps makes sure that no reference to an owner was taken out that is there and stays.
func (m *model) keeps(before []metav1.OwnerReference, side pair.Side, resource, name string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	o := m.in(side, resource).objects[resource+"/demo/"+name]
	if o == nil {
		return // the world itself judges deletions
	}
	for _, ref := range before {
		same := func(other metav1.OwnerReference) bool { return other.UID == ref.UID }
		if !slices.ContainsFunc(o.Metadata.OwnerReferences, same) && m.stays(string(ref.UID)) {
			m.wrong = append(m.wrong, fmt.Sprintf("%s %s lost its owner %s, which is there", resource, name, ref.Name))
		}
	}
}

// garbage lists what has owners, of which none is there. A copy is none: as long as two objects have one UID, the
// collector may know the other one, and leaves an orphaning deletion unfinished.
func (m *model) garbage() (left []string) {
	having := map[types.UID]int{}
	for _, s := range []store{m.shared, m.own[legacy], m.own[modern]} {
		for _, o := range s.objects {
			having[o.Metadata.UID]++
		}
	}
	for _, s := range []store{m.shared, m.own[legacy], m.own[modern]} {
		for key, o := range s.objects {
			if having[o.Metadata.UID] > 1 {
				continue
			}
			gone := func(ref metav1.OwnerReference) bool { return !m.exists(string(ref.UID)) }
			if refs := o.Metadata.OwnerReferences; len(refs) > 0 &&
				!slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
					return !gone(ref)
				}) {
				left = append(left, key)
			}
		}
	}
	return left
}

// stays reports whether an object of the UID is there and is not being deleted.
func (m *model) stays(uid string) bool {
	for _, s := range []store{m.shared, m.own[legacy], m.own[modern]} {
		for _, o := range s.objects {
			if string(o.Metadata.UID) == uid && o.Metadata.DeletionTimestamp == nil {
				return true
			}
		}
	}
	return false
}
