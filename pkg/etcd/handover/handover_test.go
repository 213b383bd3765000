package handover_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
)

var errKilled = errors.New("killed")

// world holds two stores and the record. From its killAt-th call on, nothing is done any more; 0 for never.
type world struct {
	ops, killAt  int
	core, modern *store
	record       []byte
	between      func(op int) // what clients do meanwhile
}

func (w *world) step() error {
	if w.ops++; w.killAt != 0 && w.ops >= w.killAt {
		return errKilled
	}
	if w.between != nil {
		w.between(w.ops)
	}
	return nil
}

// store is an etcd in memory.
type store struct {
	w        *world
	revision int64
	entries  map[string]etcd.Entry
}

func (s *store) put(key, value string) {
	s.revision++
	s.entries[key] = etcd.Entry{Key: []byte(key), Value: []byte(value), ModRevision: s.revision}
}

func (s *store) Page(_ context.Context, r etcd.Request) (etcd.Page, error) {
	if err := s.w.step(); err != nil {
		return etcd.Page{}, err
	}
	page := etcd.Page{Revision: max(s.revision, 1)}
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		if key < r.From || r.To != "" && key >= r.To {
			continue
		}
		if page.RangeKeys++; len(page.Entries) == r.LimitKeys {
			page.More = true
			continue
		}
		page.Entries = append(page.Entries, s.entries[key])
	}
	return page, nil
}

func (s *store) Cluster(context.Context) (string, error) { return "", nil }

func (s *store) Lock(_ context.Context, key string, o move.Owner) (func(context.Context) error, error) {
	if err := s.w.step(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return nil }, nil
}

func (s *store) Read(_ context.Context, keys []string) ([]*etcd.Entry, error) {
	if err := s.w.step(); err != nil {
		return nil, err
	}
	entries := make([]*etcd.Entry, len(keys))
	for i, key := range keys {
		if e, ok := s.entries[key]; ok {
			entries[i] = &e
		}
	}
	return entries, nil
}

func (s *store) Create(_ context.Context, entries []etcd.Entry) (bool, error) {
	if err := s.w.step(); err != nil {
		return false, err
	}
	for _, e := range entries {
		if _, ok := s.entries[string(e.Key)]; ok {
			return false, nil
		}
	}
	for _, e := range entries {
		s.put(string(e.Key), string(e.Value))
	}
	return true, nil
}

func (s *store) Replace(_ context.Context, entries []etcd.Entry) (bool, error) {
	if err := s.w.step(); err != nil {
		return false, err
	}
	for _, e := range entries {
		if s.entries[string(e.Key)].ModRevision != e.ModRevision {
			return false, nil
		}
	}
	for _, e := range entries {
		s.put(string(e.Key), string(e.Value))
	}
	return true, nil
}

func (s *store) Delete(_ context.Context, keys []move.KeyAt) (bool, error) {
	if err := s.w.step(); err != nil {
		return false, err
	}
	for _, k := range keys {
		if s.entries[k.Key].ModRevision != k.ModRevision {
			return false, nil
		}
	}
	for _, k := range keys {
		delete(s.entries, k.Key)
	}
	return true, nil
}

func (s *store) Room(context.Context) (int64, bool)                         { return 0, false }
func (s *store) Grant(context.Context, int64, int64) error                  { return nil }
func (s *store) TimeToLive(context.Context, int64) (seconds int64, _ error) { return 0, nil }

// Load and Save: the record of the world.
func (w *world) Load() (*handover.Record, error) {
	if err := w.step(); err != nil || w.record == nil {
		return nil, err
	}
	r := new(handover.Record)
	return r, json.Unmarshal(w.record, r)
}

func (w *world) Save(r *handover.Record) (err error) {
	if err := w.step(); err != nil {
		return err
	}
	w.record, err = json.Marshal(r)
	return err
}

const (
	deployment = "/registry/deployments/default/web"
	replicas   = "/registry/replicasets/default/web-1"
	pod        = "/registry/pods/default/web-1-a"
	older      = "extensions/v1beta1"
)

// settled is an object as a controller leaves it.
func settled(apiVersion, kind, name, uid, owner string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"generation":3,"name":%q,"namespace":"default",%s`+
		`"uid":%q},"spec":{"replicas":2},"status":{"observedGeneration":3,"replicas":2,"updatedReplicas":2}}`,
		apiVersion, kind, name, owner, uid)
}

func ownedBy(apiVersion, kind, uid string) string {
	return fmt.Sprintf(`"ownerReferences":[{"apiVersion":%q,"controller":true,"kind":%q,"name":"x","uid":%q}],`,
		apiVersion, kind, uid)
}

func podOf(apiVersion, uid, owner string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"default",` +
		ownedBy(apiVersion, "ReplicaSet", owner) + `"uid":"` + uid + `"},"status":{"phase":"Running"}}`
}

func newWorld() *world {
	w := new(world)
	w.core, w.modern = &store{w: w, entries: map[string]etcd.Entry{}}, &store{w: w, entries: map[string]etcd.Entry{}}
	w.core.put(deployment, settled("apps/v1", "Deployment", "web", "d1", ""))
	w.core.put(replicas, settled("apps/v1", "ReplicaSet", "web-1", "r1", ownedBy(older, "Deployment", "d1")))
	w.core.put(pod, podOf(older, "p1", "r1"))
	w.core.put("/registry/pods/default/other", podOf("apps/v1", "p2", "m2"))
	w.modern.put("/registry/deployments/default/own", settled("apps/v1", "Deployment", "own", "m1", ""))
	w.modern.put("/registry/replicasets/default/own-1", settled("apps/v1", "ReplicaSet", "own-1", "m2",
		ownedBy("apps/v1", "Deployment", "m1")))
	return w
}

func (w *world) job(back bool) *handover.Job {
	core, modern := handover.NamedStore{Store: w.core, Name: "core"}, handover.NamedStore{Store: w.modern,
		Name: "modern"}
	j := &handover.Job{From: core, To: modern, Shared: core, Files: w, Run: "a run",
		Convert: func([]byte, string) ([]byte, error) { return nil, errors.New("not converted") },
		Plan: handover.Plan{Prefix: "/registry", Pods: "pods", Back: back, Aggregated: []string{"metrics.k8s.io"},
			Kinds:  []string{"Deployment.apps", "Deployment.extensions", "ReplicaSet.apps", "ReplicaSet.extensions"},
			Absent: []string{"horizontalpodautoscalers"},
			Resources: []handover.Resource{
				{Key: "replicasets", Kind: "ReplicaSet", Reads: []string{"apps/v1"}, StoredAs: "apps/v1"},
				{Key: "deployments", Kind: "Deployment", Reads: []string{"apps/v1"}, StoredAs: "apps/v1",
					Subject: true, Drops: []string{"spec.novelty"}}}}}
	if back {
		j.From, j.To = modern, core
		return j
	}
	j.APIVersions = map[string]map[string]string{"Deployment": {older: "apps/v1"}, "ReplicaSet": {older: "apps/v1"}}
	return j
}

// keys lists the keys of a store.
func keys(s *store) string { return strings.Join(slices.Sorted(maps.Keys(s.entries)), " ") }

// own are the keys of the modern side's own objects.
const own = "/registry/deployments/default/own /registry/replicasets/default/own-1"

func (w *world) isForth(t *testing.T, when string) {
	t.Helper()
	if got, want := keys(w.core), "/registry/pods/default/other "+pod; got != want {
		t.Fatalf("%s: core holds %s, want %s", when, got, want)
	}
	if got, want := keys(w.modern), "/registry/deployments/default/own "+deployment+
		" /registry/replicasets/default/own-1 "+replicas; got != want {
		t.Fatalf("%s: modern holds %s, want %s", when, got, want)
	}
	for _, e := range []etcd.Entry{w.modern.entries[replicas], w.core.entries[pod]} {
		if bytes.Contains(e.Value, []byte(older)) || !bytes.Contains(e.Value, []byte(`"apiVersion":"apps/v1"`)) {
			t.Fatalf("%s: %s still has an owner of %s: %s", when, e.Key, older, e.Value)
		}
	}
}

func (w *world) isBack(t *testing.T, when string) {
	t.Helper()
	if got, want := keys(w.core), deployment+" /registry/pods/default/other "+pod+" "+replicas; got != want {
		t.Fatalf("%s: core holds %s, want %s", when, got, want)
	}
	if got := keys(w.modern); got != own {
		t.Fatalf("%s: modern holds %s, want its own: %s", when, got, own)
	}
}

// TestMoveAndBackKilledAtEveryCall: killed at any call, the next run goes on, or the way back goes back, and no object
// is ever in neither store, or twice in the end.
func TestMoveAndBackKilledAtEveryCall(t *testing.T) {
	points := 0
	for _, verb := range []string{"again", "back"} {
		for killAt := 1; ; killAt++ {
			w := newWorld()
			w.killAt = killAt
			err := w.job(false).Move(t.Context())
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatalf("killed at %d: %v", killAt, err)
			}
			finished := err == nil
			w.killAt = 0
			for _, key := range []string{deployment, replicas} {
				if w.core.entries[key].Key == nil && w.modern.entries[key].Key == nil {
					t.Fatalf("killed at %d: %s is in neither store", killAt, key)
				}
			}
			when := fmt.Sprintf("killed at %d, then %s", killAt, verb)
			if verb == "back" {
				if err := w.job(true).Move(t.Context()); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				w.isBack(t, when)
			}
			if err := w.job(false).Move(t.Context()); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			w.isForth(t, when)
			if points++; finished {
				break
			}
		}
	}
	w := newWorld()
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	forth := *w
	for killAt := 1; ; killAt++ {
		w := forth
		w.core, w.modern = &store{&w, 100, maps.Clone(forth.core.entries)}, &store{&w, 100,
			maps.Clone(forth.modern.entries)}
		w.ops, w.killAt = 0, killAt
		err := w.job(true).Move(t.Context())
		w.killAt = 0
		if again := w.job(true).Move(t.Context()); again != nil {
			t.Fatalf("back, killed at %d: %v", killAt, again)
		}
		w.isBack(t, fmt.Sprintf("back, killed at %d", killAt))
		if points++; err == nil {
			break
		}
	}
	if points < 40 {
		t.Errorf("%d points, want more", points)
	}
}

// TestOwnersAreOfTheNamespace: an object of another namespace that names what goes as its owner does not go with it,
// and is none of its pods. A client may write any UID there.
func TestOwnersAreOfTheNamespace(t *testing.T) {
	const claims, claimed = "/registry/pods/dev/claims", "/registry/replicasets/dev/claims"
	w := newWorld()
	w.core.put(claims, podOf(older, "p3", "r1"))
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(w.core.entries[claims].Value), older) {
		t.Errorf("the pod of another namespace was changed: %s", w.core.entries[claims].Value)
	}
	w.core.put("/registry/pods/dev/later", podOf("apps/v1", "p4", "r1"))
	w.modern.put(claimed, settled("apps/v1", "ReplicaSet", "claims", "r2", ownedBy("apps/v1", "Deployment", "d1")))
	err := w.job(false).Adopted(t.Context()) // no controller has looked at the objects of this test
	if err == nil || strings.Contains(err.Error(), "later") {
		t.Errorf("a pod of another namespace is held for one of theirs: %v", err)
	}
	if err := w.job(true).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.modern.entries[claimed].Key == nil || w.core.entries[claimed].Key != nil {
		t.Error("a ReplicaSet of another namespace was brought to the legacy side")
	}
	if w.core.entries[replicas].Key == nil {
		t.Error("a ReplicaSet of the namespace was not brought back")
	}
}

// TestAnotherObjectOfTheNameIsNotTheOriginal: on the way back a client creates another object under the key, at any
// moment: the one that was handed over is not deleted for it.
func TestAnotherObjectOfTheNameIsNotTheOriginal(t *testing.T) {
	inTheWay := 0
	for at := 1; ; at++ {
		w := newWorld()
		if err := w.job(false).Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.ops = 0
		w.between = func(op int) {
			if op == at && w.core.entries[deployment].Key == nil {
				w.core.put(deployment, settled("apps/v1", "Deployment", "web", "another", ""))
				inTheWay++
			}
		}
		err := w.job(true).Move(t.Context())
		held := func(s *store) bool { return bytes.Contains(s.entries[deployment].Value, []byte(`"uid":"d1"`)) }
		if !held(w.core) && !held(w.modern) {
			t.Errorf("created at call %d: the object that was handed over is in neither store; %v", at, err)
		}
		if w.ops < at {
			break
		}
	}
	if inTheWay < 5 {
		t.Errorf("%d moments, want more", inTheWay)
	}
}

// TestWhatIsCreatedSinceGoesBackWithItsOwner: and what was deleted since stays deleted, and the modern side's own stay.
func TestWhatIsCreatedSinceGoesBackWithItsOwner(t *testing.T) {
	w := newWorld()
	w.core.put("/registry/deployments/default/gone", settled("apps/v1", "Deployment", "gone", "d2", ""))
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(w.modern.entries, "/registry/deployments/default/gone")
	const newer = "/registry/replicasets/default/web-2"
	w.modern.put(newer, settled("apps/v1", "ReplicaSet", "web-2", "r2", ownedBy("apps/v1", "Deployment", "d1")))
	if err := w.job(true).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.core.entries[newer].Key == nil {
		t.Errorf("%s stayed behind", newer)
	}
	delete(w.core.entries, newer)
	w.isBack(t, "back")
}

// TestAdoptedWithoutARecord: what was handed over is not known, so nothing is verified.
func TestAdoptedWithoutARecord(t *testing.T) {
	w := newWorld()
	if err := w.job(false).Adopted(t.Context()); err == nil {
		t.Error("without a record everything is adopted")
	}
	if err := w.job(true).Adopted(t.Context()); err != nil {
		t.Errorf("on the way back from before anything was handed over: %v", err)
	}
}

// TestAdopted: not before each object was observed; and only with the pods of before.
func TestAdopted(t *testing.T) {
	w := newWorld()
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		err := w.job(false).Adopted(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Adopted = %v, want %q", err, want)
		}
	}
	says(deployment + ": no controller has looked at it yet")
	for _, key := range []string{deployment, replicas} {
		value := string(w.modern.entries[key].Value)
		w.modern.put(key, strings.Replace(value, `"status":{`, `"status":{"observedGeneration":3,`, 1))
	}
	says("")
	w.core.put(pod+"2", podOf("apps/v1", "p9", "r1"))
	says(pod + "2, UID p9: was created since")
	delete(w.core.entries, pod+"2")
	delete(w.core.entries, pod)
	says(pod + ", UID p1: is gone")
}

// served is an APIService that no API server has looked at.
const served = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"x"},"spec":{}}`

// TestWhatStandsAgainstIt is found beforehand, and nothing is changed.
func TestWhatStandsAgainstIt(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*world)
		says    string
	}{
		"another object of the name": {func(w *world) {
			w.modern.put(deployment, settled("apps/v1", "Deployment", "web", "other", ""))
		}, "another object of this name is there already, with UID other"},
		"being deleted": {func(w *world) {
			value := string(w.core.entries[deployment].Value)
			w.core.put(deployment, strings.Replace(value, `"generation"`, `"deletionTimestamp":"2020-01-01T00:00:00Z",`+
				`"generation"`, 1))
		}, "is being deleted"},
		"encrypted": {func(w *world) { w.core.put(deployment, "k8s:enc:aescbc:v1:key1:xyz") }, "encrypted"},
		"a version that is not read": {func(w *world) {
			w.core.put(deployment, settled(older, "Deployment", "web", "d1", ""))
		}, "is stored as extensions/v1beta1, which is not read there: not converted"},
		"a field that is dropped": {func(w *world) {
			value := string(w.core.entries[deployment].Value)
			w.core.put(deployment, strings.Replace(value, `"spec":{`, `"spec":{"novelty":1,`, 1))
		}, "has fields that are dropped there: spec.novelty"},
		"what scales it": {func(w *world) {
			w.core.put("/registry/horizontalpodautoscalers/default/h",
				settled("autoscaling/v1", "HorizontalPodAutoscaler", "h", "h1", ""))
		}, "horizontalpodautoscalers/default/h: refers by name to an object that goes"},
		"what stays controls it": {func(w *world) {
			w.core.put(deployment, settled("apps/v1", "Deployment", "web", "d1",
				ownedBy("example.com/v1", "Deployment", "c1")))
		}, "is controlled by the Deployment.example.com x, which stays"},
		"what serves metrics is on one side": {func(w *world) {
			w.core.put("/registry/apiregistration.k8s.io/apiservices/v1.", "{}")
			w.core.put("/registry/apiregistration.k8s.io/apiservices/v1beta1.metrics.k8s.io", served)
		}, "the controllers there find no metrics.k8s.io"},
		"what serves metrics there is gone": {func(w *world) {
			w.core.put("/registry/apiregistration.k8s.io/apiservices/v1beta1.metrics.k8s.io", served)
			w.modern.put("/registry/apiregistration.k8s.io/apiservices/v1beta1.metrics.k8s.io", strings.Replace(served,
				`"spec":{}`, `"status":{"conditions":[{"type":"Available","status":"False","reason":"ServiceNotFound"}]}`,
				1))
		}, "whose APIService on the other side is not available: ServiceNotFound"},
		"written in both stores": {func(w *world) {
			w.modern.put(deployment, settled("apps/v1", "Deployment", "web", "d1", `"labels":{"a":"b"},`))
		}, "was written in both stores"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			test.prepare(w)
			core, modern := maps.Clone(w.core.entries), maps.Clone(w.modern.entries)
			for _, do := range []func(context.Context) error{w.job(false).Check, w.job(false).Move} {
				if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want %q", err, test.says)
				}
			}
			same := func(a, b etcd.Entry) bool { return a.ModRevision == b.ModRevision }
			if !maps.EqualFunc(core, w.core.entries, same) || !maps.EqualFunc(modern, w.modern.entries, same) {
				t.Error("the stores were changed")
			}
		})
	}
}

// TestOnlyWhatControllersCanEndIsWaitedFor: a rollout is in the way while controllers run that end it; when they have
// been stopped, the object goes, and its pods may go and come. What could begin meanwhile is in the way beforehand.
func TestOnlyWhatControllersCanEndIsWaitedFor(t *testing.T) {
	w := newWorld()
	value := string(w.core.entries[deployment].Value)
	w.core.put(deployment, strings.Replace(value, `"updatedReplicas":2`, `"updatedReplicas":1`, 1))
	if err := w.job(false).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is being rolled out") {
		t.Errorf("Check = %v", err)
	}
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Errorf("Move = %v", err)
	}
	w.isForth(t, "in the middle of a rollout")

	for name, test := range map[string]struct{ kind, spec, status, says string }{
		"a set with two revisions": {"StatefulSet", `"replicas":2,"updateStrategy":{"type":"RollingUpdate"}`,
			`"replicas":2,"currentRevision":"a","updateRevision":"b"`, "is being rolled out"},
		"a set in parts": {"StatefulSet", `"replicas":2,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":` +
			`{"partition":1}}`, `"replicas":2,"currentRevision":"a","updateRevision":"b"`, ""},
		"daemons": {"DaemonSet", `"updateStrategy":{"type":"RollingUpdate"}`, `"currentNumberScheduled":2,` +
			`"desiredNumberScheduled":2,"updatedNumberScheduled":1`, "is being rolled out"},
		"a schedule":           {"CronJob", `"schedule":"* * * * *"`, "", "suspend it"},
		"a suspended schedule": {"CronJob", `"suspend":true`, "", ""},
		"an autoscaler of what stays": {"HorizontalPodAutoscaler", `"scaleTargetRef":{"apiVersion":"v1",` +
			`"kind":"ReplicationController","name":"c"}`, "", ""},
	} {
		w, plural := newWorld(), strings.ToLower(test.kind)+"s"
		w.core.put("/registry/"+plural+"/default/a", fmt.Sprintf(`{"apiVersion":"apps/v1","kind":%q,"metadata":`+
			`{"generation":1,"name":"a","namespace":"default","uid":"u1"},"spec":{%s},"status":{"observedGeneration":1%s}}`,
			test.kind, test.spec, strings.TrimSuffix(","+test.status, ",")))
		j := w.job(false)
		if !slices.Contains(j.Absent, plural) {
			j.Resources = append(j.Resources, handover.Resource{Key: plural, Kind: test.kind,
				Reads: []string{"apps/v1"}, StoredAs: "apps/v1"})
		}
		err := j.Check(t.Context())
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: Check = %v, want %q", name, err, test.says)
		}
	}
}

// TestPodsOfARevisionThatIsUnknownThereAreReplaced: a DaemonSet whose template was changed meanwhile is rolled by the
// controllers to which it comes back; the pods of another one stay.
func TestPodsOfARevisionThatIsUnknownThereAreReplaced(t *testing.T) {
	for _, changed := range []bool{false, true} {
		w := new(world)
		w.core = &store{w: w, entries: map[string]etcd.Entry{}}
		w.modern = &store{w: w, entries: map[string]etcd.Entry{}}
		const daemon, one, two = "/registry/daemonsets/default/agent", "/registry/pods/default/agent-1",
			"/registry/pods/default/agent-2"
		object := settled("apps/v1", "DaemonSet", "agent", "s1", "")
		pod := func(uid string) string {
			return strings.Replace(podOf("apps/v1", uid, "s1"), `"kind":"ReplicaSet"`, `"kind":"DaemonSet"`, 1)
		}
		w.core.put(daemon, object)
		w.core.put(one, pod("p1"))
		job := func(back bool) *handover.Job {
			j := w.job(back)
			j.Absent, j.Resources = nil, []handover.Resource{{Key: "daemonsets", Kind: "DaemonSet",
				Reads: []string{"apps/v1"}, StoredAs: "apps/v1", Subject: true}}
			return j
		}
		if err := job(false).Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		with := `"spec":{`
		if changed {
			with = `"spec":{"template":{"metadata":{"annotations":{"a":"b"}}},`
		}
		w.modern.put(daemon, strings.Replace(object, `"spec":{`, with, 1))
		if err := job(true).Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.core.put(daemon, string(w.core.entries[daemon].Value[:len(w.core.entries[daemon].Value)-2])+
			`,"observedGeneration":3}}`)
		delete(w.core.entries, one)
		w.core.put(two, pod("p2"))
		if err := job(true).Adopted(t.Context()); (err == nil) != changed {
			t.Errorf("template changed: %t: Adopted = %v", changed, err)
		}
	}
}

// TestAClientThatWritesMeanwhile: what it writes to the original is copied again; what it writes to both is left alone.
func TestAClientThatWritesMeanwhile(t *testing.T) {
	for at := 1; at < 30; at++ {
		w := newWorld()
		labelled := settled("apps/v1", "Deployment", "web", "d1", `"labels":{"by":"a client"},`)
		wrote := false
		w.between = func(op int) {
			if _, there := w.core.entries[deployment]; op == at && there {
				w.core.put(deployment, labelled)
				wrote = true
			}
		}
		if err := w.job(false).Move(t.Context()); err != nil {
			t.Fatalf("written at %d: %v", at, err)
		}
		w.isForth(t, fmt.Sprintf("written at %d", at))
		if wrote && !bytes.Contains(w.modern.entries[deployment].Value, []byte("a client")) {
			t.Errorf("written at %d: it is lost: %s", at, w.modern.entries[deployment].Value)
		}
	}
}

// TestTheWayBackWantsItsRecord: a record that is missing, or another one, brings nothing back, and that is no end of
// the way back, whatever others have created on the legacy side meanwhile.
func TestTheWayBackWantsItsRecord(t *testing.T) {
	w := newWorld()
	if _, err := w.job(false).Begin(); err != nil || w.record == nil {
		t.Fatalf("nothing is kept from the beginning: %v", err)
	}
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	digest, err := w.job(false).Begin()
	if err != nil {
		t.Fatal(err)
	}
	const recreated = "/registry/deployments/default/addon"
	w.core.put(recreated, settled("apps/v1", "Deployment", "addon", "a1", ""))
	record, modern := w.record, keys(w.modern)
	refused := func(says string, back bool) {
		t.Helper()
		j := w.job(back)
		j.Known = &handover.Known{Directory: "/kept", Digest: digest}
		_, beginning := j.Begin()
		for _, err := range []error{beginning, j.Check(t.Context()), j.Move(t.Context()), j.Adopted(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "/kept") {
				t.Errorf("%v, want %q", err, says)
			}
		}
		if keys(w.modern) != modern {
			t.Error("something was moved")
		}
	}
	for _, back := range []bool{false, true} {
		w.record = nil
		refused("there is no record of what was handed over", back)
		w.record = bytes.Replace(record, []byte(`"uid":"d1"`), []byte(`"uid":"d9"`), 1)
		refused("is not the one that was written then", back)
	}
	w.record = record
	for range 2 { // the way back changes the record, and is begun again
		j := w.job(true)
		j.Known = &handover.Known{Digest: digest}
		if err := j.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	delete(w.core.entries, recreated)
	w.isBack(t, "with the record")
}

// TestAStoreThatWasEmptied: on the way back, and where the objects went, too many that are nowhere are not taken for
// deleted, until a person has said so.
func TestAStoreThatWasEmptied(t *testing.T) {
	for _, test := range []struct {
		all, gone int
		stops     bool
	}{
		{1, 1, true}, {2, 1, false}, {4, 3, false}, {5, 2, false}, {5, 3, true}, {6, 3, false}, {6, 4, true},
		{6, 6, true},
	} {
		w := newWorld()
		name := func(i int) string { return fmt.Sprintf("/registry/deployments/default/web%d", i) }
		for i := 1; i < test.all; i++ {
			w.core.put(name(i), settled("apps/v1", "Deployment", fmt.Sprintf("web%d", i), fmt.Sprintf("u%d", i), ""))
		}
		if err := w.job(false).Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		delete(w.modern.entries, deployment)
		for i := 1; i < test.gone; i++ {
			delete(w.modern.entries, name(i))
		}
		gone, stops := errors.AsType[*handover.GoneError](w.job(true).Check(t.Context()))
		_, forth := errors.AsType[*handover.GoneError](w.job(false).Adopted(t.Context()))
		if stops != test.stops || forth != test.stops {
			t.Errorf("%d of %d are gone: stops %t and %t, want %t", test.gone, test.all, stops, forth, test.stops)
		}
		if !stops {
			continue
		}
		if gone.Gone != test.gone || gone.Of != test.all || !strings.Contains(gone.Error(), deployment) {
			t.Errorf("%d of %d are gone: %v", test.gone, test.all, gone)
		}
		acknowledged := func() *handover.Job {
			j := w.job(true)
			j.Known = &handover.Known{Gone: gone.Digest}
			return j
		}
		if test.gone < test.all {
			value := w.modern.entries[name(test.gone)]
			delete(w.modern.entries, name(test.gone))
			if err := acknowledged().Check(t.Context()); err == nil {
				t.Error("one more is gone, and that was not acknowledged")
			}
			w.modern.entries[name(test.gone)] = value
		}
		if err := acknowledged().Move(t.Context()); err != nil {
			t.Errorf("acknowledged: %v", err)
		}
	}
}

// TestAControllerThatWentBefore: an object goes after the custom resource that controls it, when that is in the other
// store as the same object and no longer in this one, and no garbage collector took it for gone.
func TestAControllerThatWentBefore(t *testing.T) {
	const custom = "/registry/example.com/webs/default/x"
	resource := func(uid string) string {
		return `{"apiVersion":"example.com/v1","kind":"Web","metadata":{"name":"x","namespace":"default","uid":"` +
			uid + `"}}`
	}
	for name, test := range map[string]struct {
		prepare func(*world)
		collect bool
		goes    bool
	}{
		"went":            {func(w *world) { w.modern.put(custom, resource("c1")) }, false, true},
		"stayed":          {func(w *world) { w.core.put(custom, resource("c1")) }, false, false},
		"created again":   {func(w *world) { w.modern.put(custom, resource("c2")) }, false, false},
		"a collector ran": {func(w *world) { w.modern.put(custom, resource("c1")) }, true, false},
		"is in both of them": {func(w *world) {
			w.core.put(custom, resource("c1"))
			w.modern.put(custom, resource("c1"))
		}, false, false},
	} {
		w := newWorld()
		test.prepare(w)
		w.core.put(deployment, settled("apps/v1", "Deployment", "web", "d1", ownedBy("example.com/v1", "Web", "c1")))
		j := w.job(false)
		j.Collects = test.collect
		if err := j.Move(t.Context()); (err == nil) != test.goes {
			t.Errorf("%s: %v", name, err)
		}
		if !test.goes {
			continue
		}
		err := w.job(true).Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is controlled by the Web.example.com x, which stays") {
			t.Errorf("%s, and the way back: %v", name, err)
		}
		w.core.put(custom, resource("c1"))
		delete(w.modern.entries, custom)
		if err := w.job(true).Move(t.Context()); err != nil {
			t.Errorf("%s, and back after it: %v", name, err)
		}
	}
}

// TestABusyClusterIsAdopted: what clients, nodes and evictions do to pods is no matter of the hand-over; what its
// controllers do is.
func TestABusyClusterIsAdopted(t *testing.T) {
	const daemon, set, other = "/registry/daemonsets/default/agent", "/registry/statefulsets/default/db",
		"/registry/replicasets/default/web-9"
	pod := func(kind, uid, owner, node, revision string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"default","labels":{`+
			`"controller-revision-hash":%q},%s"uid":%q},"spec":{"nodeName":%q},"status":{"phase":"Running"}}`, revision,
			ownedBy("apps/v1", kind, owner), uid, node)
	}
	pods := func(name string) string { return "/registry/pods/default/" + name }
	for name, test := range map[string]struct {
		since func(w *world)
		says  string
	}{
		"nothing":       {func(*world) {}, ""},
		"a pod evicted": {func(w *world) { delete(w.core.entries, pods("web-a")) }, "is gone"},
		"a pod too many": {func(w *world) {
			w.core.put(pods("web-b"), pod("ReplicaSet", "n1", "r1", "one", ""))
		}, "was created since"},
		"one for another": {func(w *world) {
			delete(w.core.entries, pods("web-a"))
			w.core.put(pods("web-b"), pod("ReplicaSet", "n1", "r1", "one", ""))
		}, ""},
		"one of another owner": {func(w *world) {
			delete(w.core.entries, pods("web-a"))
			w.core.put(pods("db-1"), pod("StatefulSet", "n1", "s1", "one", "1"))
		}, "is gone"},
		"a Deployment scaled": {func(w *world) {
			w.modern.put(deployment, strings.ReplaceAll(string(w.modern.entries[deployment].Value), `:3`, `:4`))
			w.core.put(pods("web-b"), pod("ReplicaSet", "n1", "r1", "one", ""))
		}, ""},
		"a ReplicaSet scaled by its controller": {func(w *world) {
			w.modern.put(replicas, strings.ReplaceAll(string(w.modern.entries[replicas].Value), `:3`, `:4`))
			w.core.put(pods("web-b"), pod("ReplicaSet", "n1", "r1", "one", ""))
		}, "was created since"},
		"a Deployment deleted": {func(w *world) {
			delete(w.modern.entries, deployment)
			delete(w.modern.entries, replicas)
			delete(w.core.entries, pods("web-a"))
		}, ""},
		"a node more": {func(w *world) {
			w.core.put(pods("agent-2"), pod("DaemonSet", "n1", "a1", "two", "1"))
		}, ""},
		"a pod more on a node": {func(w *world) {
			w.core.put(pods("agent-2"), pod("DaemonSet", "n1", "a1", "one", "1"))
		}, "was created since"},
		"a node less": {func(w *world) {
			delete(w.core.entries, pods("agent-1"))
			delete(w.core.entries, "/registry/minions/one")
		}, ""},
		"a pod less on a node": {func(w *world) { delete(w.core.entries, pods("agent-1")) }, "is gone"},
		"a daemon anew": {func(w *world) {
			delete(w.core.entries, pods("agent-1"))
			w.core.put(pods("agent-2"), pod("DaemonSet", "n1", "a1", "one", "1"))
		}, ""},
		"a daemon of another revision": {func(w *world) {
			delete(w.core.entries, pods("agent-1"))
			w.core.put(pods("agent-2"), pod("DaemonSet", "n1", "a1", "one", "2"))
		}, "is gone"},
		"a member anew": {func(w *world) {
			w.core.put(pods("db-0"), pod("StatefulSet", "n1", "s1", "two", "1"))
		}, ""},
		"a member of another revision": {func(w *world) {
			w.core.put(pods("db-0"), pod("StatefulSet", "n1", "s1", "one", "2"))
		}, "was created since"},
	} {
		w := newWorld()
		w.core.put("/registry/minions/one", "{}")
		delete(w.core.entries, replicas)
		delete(w.core.entries, "/registry/pods/default/web-1-a")
		w.core.put(replicas, settled("apps/v1", "ReplicaSet", "web-1", "r1", ownedBy("apps/v1", "Deployment", "d1")))
		w.core.put(daemon, settled("apps/v1", "DaemonSet", "agent", "a1", ""))
		w.core.put(set, settled("apps/v1", "StatefulSet", "db", "s1", ""))
		w.core.put(other, strings.Replace(settled("apps/v1", "ReplicaSet", "web-9", "r9", ""), `"replicas":2,"up`,
			`"replicas":1,"up`, 1)) // is being scaled, and is no reason not to look at the others
		w.core.put(pods("web-a"), pod("ReplicaSet", "p1", "r1", "one", ""))
		w.core.put(pods("agent-1"), pod("DaemonSet", "p2", "a1", "one", "1"))
		w.core.put(pods("db-0"), pod("StatefulSet", "p3", "s1", "one", "1"))
		w.core.put(pods("web-9-a"), pod("ReplicaSet", "p4", "r9", "one", ""))
		job := func() *handover.Job {
			j := w.job(false)
			for key, kind := range map[string]string{"daemonsets": "DaemonSet", "statefulsets": "StatefulSet"} {
				j.Resources = append(j.Resources, handover.Resource{Key: key, Kind: kind, Reads: []string{"apps/v1"},
					StoredAs: "apps/v1", Subject: true})
			}
			return j
		}
		if err := job().Move(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, key := range []string{deployment, replicas, daemon, set, other} {
			w.modern.put(key, strings.Replace(string(w.modern.entries[key].Value), `"status":{`,
				`"status":{"observedGeneration":3,`, 1))
		}
		delete(w.core.entries, pods("web-9-a"))
		test.since(w)
		err := job().Adopted(t.Context())
		_, pods := errors.AsType[*handover.PodsError](err)
		if (err == nil) != (test.says == "") || err != nil && (!pods || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: Adopted = %v, want %q", name, err, test.says)
		}
	}
}

// TestPodsOfARolloutGoAndCome: those of every ReplicaSet of a Deployment that is being rolled out.
func TestPodsOfARolloutGoAndCome(t *testing.T) {
	w := newWorld()
	w.core.put(deployment, strings.Replace(string(w.core.entries[deployment].Value), `"updatedReplicas":2`,
		`"updatedReplicas":1`, 1))
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{deployment, replicas} {
		w.modern.put(key, strings.Replace(string(w.modern.entries[key].Value), `"status":{`,
			`"status":{"observedGeneration":3,`, 1))
	}
	delete(w.core.entries, pod)
	if err := w.job(false).Adopted(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTheWayBackKnowsWhatWasChangedSinceIt: what was scaled on the modern side is compared with what it was when it
// went back.
func TestTheWayBackKnowsWhatWasChangedSinceIt(t *testing.T) {
	w := newWorld()
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed := func(s *store, key, old, now string) {
		s.put(key, strings.ReplaceAll(string(s.entries[key].Value), old, now))
	}
	changed(w.modern, deployment, `"generation":3`, `"generation":9`)
	changed(w.modern, deployment, `"status":{`, `"status":{"observedGeneration":9,`)
	if err := w.job(true).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{deployment, replicas} {
		changed(w.core, key, `"status":{`, `"status":{"observedGeneration":9,`)
	}
	if err := w.job(true).Adopted(t.Context()); err != nil {
		t.Errorf("nothing has changed since: %v", err)
	}
	delete(w.core.entries, pod)
	if err := w.job(true).Adopted(t.Context()); err == nil {
		t.Error("the pod is gone, and nothing was changed since")
	}
	changed(w.core, deployment, `"generation":9`, `"generation":10`)
	changed(w.core, deployment, `"observedGeneration":9`, `"observedGeneration":10`)
	if err := w.job(true).Adopted(t.Context()); err != nil {
		t.Errorf("scaled since: %v", err)
	}
}

// TestPodsAreThoseOfTheLastRun: a hand-over that runs again, an hour later, compares with the pods of then.
func TestPodsAreThoseOfTheLastRun(t *testing.T) {
	w := newWorld()
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(w.core.entries, pod)
	w.core.put(pod+"2", podOf("apps/v1", "p9", "r1"))
	w.core.put(pod+"3", podOf("apps/v1", "p10", "r1"))
	if err := w.job(false).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{deployment, replicas} {
		w.modern.put(key, strings.Replace(string(w.modern.entries[key].Value), `"status":{`,
			`"status":{"observedGeneration":3,`, 1))
	}
	if err := w.job(false).Adopted(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAutoscalersWantTheirMetrics: where they go, whatever served the metrics before.
func TestAutoscalersWantTheirMetrics(t *testing.T) {
	const target = `"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}`
	const v1, v2, cpu = "autoscaling/v1", "autoscaling/v2", `"currentCPUUtilizationPercentage":7`
	const current = `"currentMetrics":[{"type":"Resource"}]`
	for name, test := range map[string]struct{ apiVersion, spec, status, annotations, serves, says string }{
		"CPU":               {v1, `"targetCPUUtilizationPercentage":50`, cpu, "", "", "reads metrics.k8s.io"},
		"none":              {v1, `"maxReplicas":5`, cpu, "", "", "reads metrics.k8s.io"},
		"served":            {v1, `"maxReplicas":5`, cpu, "", "v1beta1.metrics.k8s.io", ""},
		"by what is gone":   {v1, `"maxReplicas":5`, cpu, "", "v1beta1.metrics.k8s.io=False", "not available: MissingEndpoints"},
		"by what is new":    {v1, `"maxReplicas":5`, cpu, "", "v1beta1.metrics.k8s.io=True", ""},
		"that nobody reads": {v1, `"targetCPUUtilizationPercentage":50`, "", "", "", ""},
		"nor in a list":     {v2, `"metrics":[{"type":"Resource"}]`, `"currentMetrics":[{"type":""}]`, "", "", ""},
		"in the new list":   {v2, `"metrics":[{"type":"Resource"}]`, current, "", "", "reads metrics.k8s.io"},
		"of containers":     {v2, `"metrics":[{"type":"ContainerResource"}]`, current, "", "", "reads metrics.k8s.io"},
		"of pods":           {v2, `"metrics":[{"type":"Pods"}]`, current, "", "", "reads custom.metrics.k8s.io"},
		"of others": {v2, `"metrics":[{"type":"External"}]`, current, "", "v1beta1.metrics.k8s.io",
			"reads external.metrics.k8s.io"},
		"in an annotation": {v1, `"maxReplicas":5`, "", `[{"type":"Object"}]`, "v1beta1.metrics.k8s.io",
			"reads custom.metrics.k8s.io"},
	} {
		w := newWorld()
		annotations, _ := json.Marshal(map[string]string{"autoscaling.alpha.kubernetes.io/metrics": test.annotations,
			"autoscaling.alpha.kubernetes.io/current-metrics": test.annotations})
		if test.annotations == "" {
			annotations = []byte("{}")
		}
		w.core.put("/registry/horizontalpodautoscalers/default/h", fmt.Sprintf(`{"apiVersion":%q,`+
			`"kind":"HorizontalPodAutoscaler","metadata":{"name":"h","namespace":"default","uid":"h1","annotations":%s},`+
			`"spec":{%s,%s},"status":{%s}}`, test.apiVersion, annotations, target, test.spec, test.status))
		if test.serves != "" {
			name, available, _ := strings.Cut(test.serves, "=")
			w.modern.put("/registry/apiregistration.k8s.io/apiservices/"+name, apiService(t, available))
		}
		j := w.job(false)
		j.Absent, j.Aggregated = nil, []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"}
		j.Resources = append(j.Resources, handover.Resource{Key: "horizontalpodautoscalers",
			Kind: "HorizontalPodAutoscaler", Reads: []string{test.apiVersion}, StoredAs: test.apiVersion})
		err := j.Check(t.Context())
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: Check = %v, want %q", name, err, test.says)
		}
	}
}

// apiService is one as API servers store it, in protobuf.
func apiService(t *testing.T, available string) string {
	t.Helper()
	object := new(apiregistration.APIService)
	if available != "" {
		object.Status.Conditions = []apiregistration.APIServiceCondition{{Type: apiregistration.Available,
			Status: apiregistration.ConditionStatus(available), Reason: "MissingEndpoints"}}
	}
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "apiregistration.k8s.io/v1",
		Kind: "APIService"}, Raw: raw}
	value, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(value)
}

// TestCronJobsThatMissedTooManyTimes are not brought to controllers that would start them no more.
func TestCronJobsThatMissedTooManyTimes(t *testing.T) {
	const cronJob = "/registry/cronjobs/default/c"
	now := time.Date(2026, 1, 2, 12, 0, 30, 0, time.UTC)
	for name, test := range map[string]struct {
		spec, last string
		limit      int
		refused    bool
	}{
		"each minute, for 100":      {`"schedule":"* * * * *"`, "2026-01-02T10:20:00Z", 100, false},
		"each minute, for 101":      {`"schedule":"* * * * *"`, "2026-01-02T10:19:00Z", 100, true},
		"each day":                  {`"schedule":"0 3 * * *"`, "2026-01-01T03:00:00Z", 100, false},
		"controllers that start it": {`"schedule":"* * * * *"`, "2026-01-01T10:19:00Z", 0, false},
		"with a deadline": {`"schedule":"* * * * *","startingDeadlineSeconds":200`,
			"2026-01-01T10:19:00Z", 100, false},
		"with one that is too long": {`"schedule":"* * * * *","startingDeadlineSeconds":20000`,
			"2026-01-01T10:19:00Z", 100, true},
		"with one beyond all times": {`"schedule":"* * * * *","startingDeadlineSeconds":9223372036854775807`,
			"2026-01-01T10:19:00Z", 100, true},
		"with one that comes round": {`"schedule":"* * * * *","startingDeadlineSeconds":9223372037`,
			"2026-01-01T10:19:00Z", 100, true},
		"never started, of last year": {`"schedule":"0 3 * * *"`, "", 100, true},
		"a time zone alone":           {`"schedule":"TZ=0"`, "", 100, true}, // the parser panics
	} {
		w := newWorld()
		status := ""
		if test.last != "" {
			status = fmt.Sprintf(`"lastScheduleTime":%q`, test.last)
		}
		w.core.put(cronJob, fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"c","namespace":`+
			`"default","uid":"c1","creationTimestamp":"2025-01-02T12:00:00Z"},"spec":{"suspend":true,%s},"status":{%s}}`,
			test.spec, status))
		job := func(back bool) *handover.Job {
			j := w.job(back)
			j.Now, j.MostMissed = now, test.limit
			j.Resources = append(j.Resources, handover.Resource{Key: "cronjobs", Kind: "CronJob",
				Reads: []string{"batch/v1"}, StoredAs: "batch/v1", Subject: true})
			return j
		}
		if err := job(false).Move(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := job(true).Check(t.Context())
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "has missed more than 100") &&
			!strings.Contains(err.Error(), "a time zone alone") {
			t.Errorf("%s: Check = %v", name, err)
		}
	}
}
