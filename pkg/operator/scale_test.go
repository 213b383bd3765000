package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// fleet is many control planes that run as their objects say, in a management cluster in memory, which counts requests.
type fleet struct {
	*Reconciler
	names    []string
	now      time.Time
	again    time.Duration // a look at one with nothing to do is this far from the next, or further
	requests int           // that a cache does not serve
}

// newFleet has control planes of one version each, so that the operator finds nothing to do.
func newFleet(tb testing.TB, size int) *fleet { return newFleetWith(tb, size, nil) }

// newFleetWith is newFleet with more fields of the spec.
func newFleetWith(tb testing.TB, size int, more map[string]any) *fleet {
	tb.Helper()
	scheme := apiruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		tb.Fatal(err)
	}
	f := &fleet{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.FusedControlPlane{}).Build()
	create := func(object client.Object) {
		if err := cluster.Create(tb.Context(), object); err != nil {
			tb.Fatal(err)
		}
	}
	issuer := &Reconciler{Now: func() time.Time { return f.now }}
	files := map[string][]byte{}
	for n := range size {
		object := exampleWith(tb, more)
		object.Name = fmt.Sprintf("plane-%03d", n)
		object.Finalizers = []string{api.Finalizer}
		v := judge(object)
		if v.refusal() != "" {
			tb.Fatal(v.refusal())
		}
		if n == 0 { // the certificates of the others would be issued anew when they are applied again
			if err := issuer.issue(v.plan, files); err != nil {
				tb.Fatal(err)
			}
		}
		create(object)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.Name}}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: object.Name, Name: PKIName}, Data: files}
		mark(namespace, object.Name)
		mark(secret, object.Name)
		create(namespace)
		create(secret)
		r := &record{Runs: v.digest, Plan: v.plan}
		if err := r.write(tb.Context(), cluster, object.Name); err != nil {
			tb.Fatal(err)
		}
		for i := range v.plan.Components {
			create(runningWorkload(&v.plan.Components[i], object.Name))
		}
		f.names = append(f.names, object.Name)
	}
	counted := interceptor.NewClient(cluster, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			f.requests++
			return c.Patch(ctx, o, p, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o apiruntime.ApplyConfiguration,
			opts ...client.ApplyOption) error {
			f.requests++
			return c.Apply(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			f.requests++
			return c.Update(ctx, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			f.requests++
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			f.requests++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
	reader := interceptor.NewClient(cluster, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			f.requests++
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			f.requests++
			return c.List(ctx, o, opts...)
		},
	})
	f.Reconciler = &Reconciler{Client: counted, Reader: reader, Events: silent{}, StepLimit: 15 * time.Minute,
		Within: time.Minute, Reading: time.Minute,
		Now: func() time.Time { return f.now }, Repair: time.Hour, Look: 2 * time.Second}
	f.again = f.Repair
	return f
}

// silent takes events, and keeps none.
type silent struct{}

func (silent) Eventf(_, _ apiruntime.Object, _, _, _, _ string, _ ...any) {}

func runningWorkload(c *plan.Component, namespace string) client.Object {
	at := metav1.ObjectMeta{Namespace: namespace, Name: c.Name, Generation: 1}
	one := int32(1)
	if render.HostedKind(c) == "StatefulSet" {
		set := &appsv1.StatefulSet{ObjectMeta: at, Spec: appsv1.StatefulSetSpec{Replicas: &one},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1}}
		mark(set, namespace)
		return set
	}
	deployment := &appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Replicas: &one},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1}}
	mark(deployment, namespace)
	return deployment
}

// look looks at the first control planes, and returns what one look takes: the fastest one, since the machine may have
// other work.
func (f *fleet) look(tb testing.TB, of int) (requests float64, took time.Duration) {
	tb.Helper()
	before := f.requests
	for _, name := range f.names[:of] {
		begin := time.Now()
		result, err := f.Reconcile(tb.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err != nil || result.RequeueAfter < f.again {
			tb.Fatalf("%s: %v, and again after %v", name, err, result.RequeueAfter)
		}
		if once := time.Since(begin); took == 0 || once < took {
			took = once
		}
	}
	return float64(f.requests-before) / float64(of), took
}

// fleetSize is how many control planes one operator is to run, and the rest what it may take for them.
const (
	fleetSize            = 400
	idleRequestsInSecond = 5.0
	resyncWithin         = 30 * time.Second
	fleetBytes           = 300 << 20
)

// TestFourHundredPlanes: an operator that starts looks at each once, and reads its record; from then on it asks when
// everything is applied again. What a few of them take is taken by all.
func TestFourHundredPlanes(t *testing.T) {
	const tried = 10
	f := newFleet(t, tried)
	f.look(t, tried) // the status is written once
	f.applied = nil  // as after a restart
	requests, took := f.look(t, tried)
	if all := took * fleetSize; all > resyncWithin {
		t.Errorf("a restart looks at %d control planes in %v, want %v", fleetSize, all, resyncWithin)
	}
	if requests > 2 {
		t.Errorf("%.1f requests for each when nothing is to be done", requests)
	}
	f.now = f.now.Add(f.Repair)
	f.look(t, 1) // makes the Secrets of its components
	f.now = f.now.Add(f.Repair)
	repairs, _ := f.look(t, 1)
	if rate := repairs * fleetSize / f.Repair.Seconds(); rate > idleRequestsInSecond {
		t.Errorf("%.0f requests for each in %v, of %d control planes %.1f in a second; want %.0f", repairs, f.Repair,
			fleetSize, rate, idleRequestsInSecond)
	}
	t.Logf("a look: %.1f requests, %v; applying again: %.0f requests", requests, took, repairs)
}

// TestFourHundredPlanesWithBackups: each is looked at once more in a day for its backup, a minute after it is due; with
// that, and with what saves its stores, an idle operator stays within the bound.
func TestFourHundredPlanesWithBackups(t *testing.T) {
	f := newFleetWith(t, 3, map[string]any{"backup": map[string]any{"schedule": "30 2 * * *",
		"image": "registry.example.com/fusionctl:v1"}})
	const day = 24 * time.Hour
	f.look(t, 3) // makes what saves the stores
	f.applied = nil
	requests, took := f.look(t, 3)
	if requests > 4 {
		t.Errorf("%.1f requests for each when nothing is to be done", requests)
	}
	f.now = f.now.Add(f.Repair)
	f.look(t, 1) // makes the Secrets of its components
	f.now = f.now.Add(f.Repair)
	repairs, _ := f.look(t, 1)
	// what begins a backup, and what ends it, beside everything that is applied again
	inADay := repairs*float64(day/f.Repair) + 2*requests
	if rate := inADay * fleetSize / day.Seconds(); rate > idleRequestsInSecond {
		t.Errorf("%.0f requests in a day for each, of %d control planes %.1f in a second; want %.0f", inADay, fleetSize,
			rate, idleRequestsInSecond)
	}
	t.Logf("a look: %.1f requests, %v; applying again: %.0f requests", requests, took, repairs)
}

// TestWhatIsRightIsNotWritten: a Secret that is as it should be takes one request; one that was changed is repaired,
// and one that belongs to something else is left alone.
func TestWhatIsRightIsNotWritten(t *testing.T) {
	f := newFleet(t, 1)
	again := func() float64 {
		f.now = f.now.Add(f.Repair)
		requests, _ := f.look(t, 1)
		return requests
	}
	f.look(t, 1)
	again()
	usual := again()
	secret := &corev1.Secret{}
	at := types.NamespacedName{Namespace: f.names[0], Name: "kube-apiserver-modern-files"}
	if err := f.Client.Get(t.Context(), at, secret); err != nil {
		t.Fatal(err)
	}
	was := maps.Clone(secret.Data)
	secret.Data["ca.crt"] = []byte("another")
	if err := f.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if requests := again(); requests != usual+2 { // reads whose it is, and applies it
		t.Errorf("%.0f requests with a Secret to repair, %.0f without", requests, usual)
	}
	if err := f.Client.Get(t.Context(), at, secret); err != nil || !maps.EqualFunc(secret.Data, was, bytes.Equal) {
		t.Errorf("the Secret is not as it was: %v", err)
	}
	secret.Labels = nil // somebody else's now
	if err := f.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(f.Repair)
	if _, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{
		Name: f.names[0]}}); !errors.Is(err, ErrForeign) {
		t.Errorf("a Secret of another owner: %v", err)
	}
}

// BenchmarkResync is the restart of an operator of 400 control planes: each is looked at once.
func BenchmarkResync(b *testing.B) {
	f := newFleet(b, fleetSize)
	f.look(b, fleetSize)
	for b.Loop() {
		f.applied = nil
		requests, _ := f.look(b, fleetSize)
		b.ReportMetric(requests, "requests/plane")
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "MiB-with-the-cluster")
	if memory.HeapAlloc > fleetBytes {
		b.Errorf("%d bytes are in use, want %d", memory.HeapAlloc, fleetBytes)
	}
	runtime.KeepAlive(f)
}
