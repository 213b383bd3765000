package operator

import (
	"context"
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// ending is a control plane whose components are being removed, in a management cluster in memory, with stores that
// show what the test says.
type ending struct {
	*plane
	now    time.Time
	sights map[string]witness.Sight
	silent error
	looks  int
}

func newEnding(t *testing.T) *ending {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	e := &ending{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), sights: map[string]witness.Sight{}}
	r := &Reconciler{Client: c, Reader: c, Events: limited{t}, Now: func() time.Time { return e.now },
		Within: time.Minute, Reading: time.Minute,
		StepLimit: 15 * time.Minute, Repair: time.Hour, Look: 2 * time.Second,
		Sights: func(_ context.Context, w *transition.Watch) (map[string]witness.Sight, error) {
			e.looks++
			seen := map[string]witness.Sight{}
			for _, s := range w.Stores {
				sight := e.sights[s.Name]
				sight.At, sight.Revision = e.now, sight.Revision+int64(e.looks)
				seen[s.Name] = sight
			}
			return seen, e.silent
		}}
	v := judge(example(t))
	if refusal := v.refusal(); refusal != "" {
		t.Fatal(refusal)
	}
	steps, err := transition.NewHosted(v.plan, nil, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	if err := r.issue(v.plan, files); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: PKIName}, Data: files}
	mark(secret, "hosted")
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for _, s := range v.plan.Stores {
		e.sights[s.Name] = witness.Sight{Cluster: "c-" + s.Name, Revision: 1000}
	}
	for _, s := range steps.Steps {
		objects, err := objectsOf(s.Do.Workload)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			mark(o, "hosted")
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.plane = &plane{Reconciler: r, object: example(t), verdict: v,
		record: &record{Runs: v.digest, Plan: v.plan, Open: &open{To: v.digest, Transition: steps,
			Since: metav1.NewTime(e.now), StepSince: metav1.NewTime(e.now)}}}
	return e
}

// workloads counts what is there of the control plane.
func (e *ending) workloads(t *testing.T) int {
	t.Helper()
	n := 0
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: kind + "List"}}
		if err := e.Reader.List(t.Context(), list, client.InNamespace("hosted")); err != nil {
			t.Fatal(err)
		}
		n += len(list.Items)
	}
	return n
}

// goOn carries the transition on, and returns why the control plane is degraded.
func (e *ending) goOn(t *testing.T) (reason, message string) {
	t.Helper()
	e.describe()
	if _, err := e.proceed(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(e.object.Status.Conditions, api.ConditionDegraded)
	if c.Status != metav1.ConditionTrue {
		return "", ""
	}
	if e.object.Status.Phase != api.Degraded {
		t.Errorf("phase %s, %s", e.object.Status.Phase, c.Message)
	}
	return c.Reason, c.Message
}

// TestAStoreThatIsWaitedForDelaysNoOther: the operator runs other control planes, too, and what one of them names as
// its stores and API servers need not answer.
func TestAStoreThatIsWaitedForDelaysNoOther(t *testing.T) {
	e := newEnding(t)
	e.Within, e.Reading = 50*time.Millisecond, 50*time.Millisecond
	e.Sights = func(ctx context.Context, _ *transition.Watch) (map[string]witness.Sight, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if reason, message := e.goOn(t); reason != "StoreUnreadable" || !strings.Contains(message, "within 50ms") {
		t.Errorf("degraded for %q: %s", reason, message)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ownership := e.verdict.plan.Ownership()
	run := &runner{Reconciler: e.Reconciler, name: "hosted", plan: e.verdict.plan}
	err = run.Check(t.Context(), "", &transition.Check{Kind: transition.StoresAgree, Map: &ownership,
		Stores: []plan.Store{{Name: "core", Endpoints: []string{"http://" + silent.Addr().String()}}}})
	if err == nil || !strings.Contains(err.Error(), "within 50ms") {
		t.Errorf("reading a store that says nothing: %v", err)
	}
	server := "https://" + silent.Addr().String()
	access := &transition.Access{Side: "modern", Server: server, CA: e.verdict.plan.PKI.CA,
		Cert: e.verdict.plan.PKI.CA, Key: e.verdict.plan.PKI.CAKey}
	err = run.Check(t.Context(), "", &transition.Check{Kind: transition.Settled,
		Marks: &transition.Marks{Namespaces: access}})
	if err == nil || !strings.Contains(err.Error(), "within 50ms") {
		t.Errorf("asking an API server that says nothing: %v", err)
	}
}

// TestNothingIsDeletedBesideASilentStore: while a store cannot be read, nothing is deleted, and nothing goes back for
// that; when it can, the transition goes on.
func TestNothingIsDeletedBesideASilentStore(t *testing.T) {
	e := newEnding(t)
	all := e.workloads(t)
	e.silent = errors.New("store core: no answer")
	for range 3 {
		if reason, message := e.goOn(t); reason != "StoreUnreadable" ||
			!strings.Contains(message, "store core: no answer") {
			t.Fatalf("degraded for %q: %s", reason, message)
		}
		e.now = e.now.Add(e.StepLimit)
	}
	if n := e.workloads(t); n != all || all < 5 || e.record.Open.Back {
		t.Errorf("%d of %d workloads are left, going back: %t", n, all, e.record.Open.Back)
	}
	e.silent = nil
	if reason, message := e.goOn(t); reason != "" || e.record.Open != nil || e.workloads(t) != 0 {
		t.Errorf("degraded for %q, %s; %d workloads are left", reason, message, e.workloads(t))
	}
}

// TestAnotherStoreStopsTheOperator until a person acknowledges this stop, by its name.
func TestAnotherStoreStopsTheOperator(t *testing.T) {
	e := newEnding(t)
	all := e.workloads(t)
	e.record.Open.Transition.Watch.Seen = maps.Clone(e.sights)
	name := e.record.Open.Transition.Watch.Stores[0].Name
	e.sights[name] = witness.Sight{Cluster: "new", Revision: 1}
	records, id := 0, ""
	for i := range 4 {
		reason, message := e.goOn(t)
		found := regexp.MustCompile(api.AnnotationAcknowledge + "=([0-9a-f]{20})").FindStringSubmatch(message)
		if reason != "StoreChanged" || !strings.Contains(message, "store "+name+": its etcd cluster has the id new") ||
			found == nil || id != "" && found[1] != id {
			t.Fatalf("degraded for %q: %s", reason, message)
		}
		id = found[1]
		if i == 0 {
			records = len(e.record.Open.Journal)
		} else if n := len(e.record.Open.Journal); n != records {
			t.Errorf("look %d: %d records, want %d", i, n, records)
		}
		e.now = e.now.Add(e.StepLimit)
		e.object.Annotations = map[string]string{api.AnnotationAcknowledge: "0123456789abcdef0123"} // of another stop
	}
	if n := e.workloads(t); n != all || e.record.Open.Back {
		t.Errorf("%d of %d workloads are left, going back: %t", n, all, e.record.Open.Back)
	}
	e.object.Annotations = map[string]string{api.AnnotationAcknowledge: id}
	if reason, message := e.goOn(t); reason != "" || e.record.Open != nil || e.workloads(t) != 0 {
		t.Errorf("acknowledged, and degraded for %q, %s; %d workloads are left", reason, message, e.workloads(t))
	}
}

// TestLooksDoNotFillTheRecord: a step that waits is begun, and its stores are looked at, every other second. The record
// does not grow by that, and the step comes to its limit.
func TestLooksDoNotFillTheRecord(t *testing.T) {
	e := newEnding(t)
	first := e.record.Open.Transition.Steps[0].Do.Workload
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: "stays", Labels: map[string]string{
		nameLabel: first.Name, partOfLabel: "hosted"}}}
	if err := e.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	e.goOn(t)
	records, since, looks := len(e.record.Open.Journal), e.record.Open.StepSince, e.looks
	for range 40 {
		e.now = e.now.Add(10 * time.Second)
		e.goOn(t)
	}
	if n := len(e.record.Open.Journal); n > records || !e.record.Open.StepSince.Equal(&since) || e.looks < looks+40 {
		t.Errorf("%d records, and %d at first; the step waits since %v, want %v; %d looks", n, records,
			e.record.Open.StepSince, since, e.looks)
	}
	e.now = e.now.Add(e.StepLimit)
	if e.goOn(t); !e.record.Open.Back {
		t.Error("it waits for ever")
	}
}

// TestAStepOfAClockThatWasAhead: what a clock that is put back had written keeps no step from coming to its limit.
func TestAStepOfAClockThatWasAhead(t *testing.T) {
	e := newEnding(t)
	first := e.record.Open.Transition.Steps[0].Do.Workload
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: "stays", Labels: map[string]string{
		nameLabel: first.Name, partOfLabel: "hosted"}}}
	if err := e.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	e.goOn(t)
	e.record.Open.StepSince = metav1.NewTime(e.now.AddDate(1, 0, 0))
	e.goOn(t)
	e.now = e.now.Add(2 * e.StepLimit)
	if e.goOn(t); !e.record.Open.Back {
		t.Error("it waits for ever")
	}
}

// TestAClockThatIsAhead of an operator that begins is no reason to go back: the step may wait as long as it may while
// one process sees it.
func TestAClockThatIsAhead(t *testing.T) {
	e := newEnding(t)
	first := e.record.Open.Transition.Steps[0].Do.Workload
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: "stays", Labels: map[string]string{
		nameLabel: first.Name, partOfLabel: "hosted"}}}
	if err := e.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	e.goOn(t)
	e.now = e.now.AddDate(1, 0, 0)
	e.waiting = nil // as of a process that begins
	if e.goOn(t); e.record.Open.Back {
		t.Error("it goes back, and has not waited")
	}
	e.now = e.now.Add(e.StepLimit + time.Second)
	if e.goOn(t); !e.record.Open.Back {
		t.Error("it waits for ever")
	}
}

// TestHostedStepsSayWhichStoresRun: each that removes something says so while its stores run; none when they do not.
func TestHostedStepsSayWhichStoresRun(t *testing.T) {
	v := judge(example(t))
	etcds := 0
	for _, c := range v.plan.Components {
		if c.Kind == plan.Etcd {
			etcds++
		}
	}
	for _, install := range []bool{true, false} {
		from, to := v.plan, (*plan.Plan)(nil)
		if install {
			from, to = nil, v.plan
		}
		tr, err := transition.NewHosted(from, to, transition.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		running := !install
		for _, s := range tr.Steps {
			member := slices.ContainsFunc(v.plan.Components, func(c plan.Component) bool {
				return c.Kind == plan.Etcd && c.Name == s.Do.Workload.Name
			})
			if member {
				etcds--
				running = install && etcds == 0
			}
			if looked := len(s.Stores) == len(v.plan.Stores); !member && looked != running {
				t.Errorf("install %t, step %s, %s: looks at %q, and all run: %t", install, s.ID, s.Title, s.Stores,
					running)
			}
		}
		if install {
			etcds = len(v.plan.Stores)
		}
	}
}
