package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// LeaseName is the lease of the operator that acts.
const LeaseName = "fusionctl-operator"

// lookers are how many control planes are looked at beside those whose transitions go on: a look at stores that are
// read as a whole takes long.
const lookers = 3

// Options say how the operator runs.
type Options struct {
	Config        *rest.Config // of the management cluster
	Namespace     string       // of the lease
	MaxConcurrent int          // transitions that go on at a time
	StepLimit     time.Duration
	Repair        time.Duration
	Metrics       string // loopback address, "" for none
	Health        string // address, "" for none
	Log           *slog.Logger
}

// How long one look at the stores or the API servers of a control plane may take, and how long reading its stores as a
// whole. Others wait meanwhile: an address that answers nothing, and a store that drips, are a control plane's own.
const (
	lookWithin = time.Minute
	readWithin = 10 * time.Minute
)

// Run runs the operator until ctx ends. One process at a time acts, the one that holds the lease.
func Run(ctx context.Context, o Options) error {
	log := logr.FromSlogHandler(o.Log.Handler())
	ctrl.SetLogger(log)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := api.AddToScheme(scheme); err != nil {
		return err
	}
	metrics := o.Metrics
	if metrics == "" {
		metrics = "0"
	}
	mine := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{managedByLabel: managedBy}), Transform: slim}
	pages := NewPages(nil)
	manager, err := ctrl.NewManager(o.Config, ctrl.Options{
		Scheme: scheme, Logger: log,
		LeaderElection: true, LeaderElectionID: LeaseName, LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: metrics,
			ExtraHandlers: map[string]http.Handler{PagesPath: pages}},
		HealthProbeBindAddress: o.Health,
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{&appsv1.Deployment{}: mine, &appsv1.StatefulSet{}: mine,
				&api.ControlPlaneHost{}: mine, &certificates.CertificateSigningRequest{}: {Transform: slim}}},
	})
	if err != nil {
		return fmt.Errorf("setting up the operator: %w", err)
	}
	pages.Client = manager.GetClient()
	for _, add := range []func(string, healthz.Checker) error{manager.AddHealthzCheck, manager.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return err
		}
	}
	r := &Reconciler{Within: lookWithin, Reading: readWithin,
		Client: manager.GetClient(), Reader: manager.GetAPIReader(),
		Events: manager.GetEventRecorder("fusionctl-operator"), Now: time.Now, StepLimit: o.StepLimit,
		Repair: o.Repair, Look: 2 * time.Second, MaxConcurrent: o.MaxConcurrent,
		Sights: func(ctx context.Context, w *transition.Watch) (map[string]witness.Sight, error) {
			return new(local.Host).Look(ctx, w.Host, w)
		}}
	// Objects of a control plane are in the namespace of its name. They have no owner reference: a garbage collector
	// that did not find the owner, as after a restore of the management cluster, would delete the control plane.
	owner := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		if !ours(object, object.GetNamespace()) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
	})
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
		predicate.AnnotationChangedPredicate{}) // not what the operator itself writes into the status
	if err := ctrl.NewControllerManagedBy(manager).Named("fusedcontrolplane").For(&api.FusedControlPlane{},
		builder.WithPredicates(changed)).
		Watches(&appsv1.Deployment{}, owner).Watches(&appsv1.StatefulSet{}, owner).
		Watches(&api.ControlPlaneHost{}, owner, builder.WithPredicates(heardOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.MaxConcurrent + lookers}).Complete(r); err != nil {
		return fmt.Errorf("setting up the operator: %w", err)
	}
	agents := predicate.NewPredicateFuncs(func(o client.Object) bool {
		csr, is := o.(*certificates.CertificateSigningRequest)
		return is && slices.Contains(csr.Spec.Groups, api.AgentGroup)
	})
	if err := ctrl.NewControllerManagedBy(manager).Named("certificatesigningrequest").
		For(&certificates.CertificateSigningRequest{}, builder.WithPredicates(agents)).
		Complete(&Requests{Client: manager.GetClient()}); err != nil {
		return fmt.Errorf("setting up the operator: %w", err)
	}
	return manager.Start(ctx)
}

// heardOf passes what agents answer, and that a person has shut one out; not that an agent is still there, which it
// writes now and then.
var heardOf = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*api.ControlPlaneHost), e.ObjectNew.(*api.ControlPlaneHost)
	before := was.Status
	before.Seen = is.Status.Seen
	return !reflect.DeepEqual(before, is.Status) || was.Status.Seen.IsZero() != is.Status.Seen.IsZero() ||
		denied(was) != denied(is)
}}

// limitRequestBytes is many times what a request of an agent for a certificate has.
const limitRequestBytes = 16 << 10

// slim takes out of an object that is kept in memory what the operator does not read. Every account that may create
// workloads in some namespace may label them as fusionctl's, and every agent may create requests for certificates.
func slim(object any) (any, error) {
	o, is := object.(client.Object)
	if !is {
		return object, nil // of one that was deleted while the watch was away
	}
	o.SetManagedFields(nil)
	switch o := object.(type) {
	case *appsv1.Deployment:
		o.ObjectMeta = slimMeta(&o.ObjectMeta)
		o.Spec = appsv1.DeploymentSpec{Replicas: o.Spec.Replicas}
	case *appsv1.StatefulSet:
		o.ObjectMeta = slimMeta(&o.ObjectMeta)
		o.Spec = appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas}
	case *certificates.CertificateSigningRequest:
		if !slices.Contains(o.Spec.Groups, api.AgentGroup) || o.Size() > limitRequestBytes {
			o.ObjectMeta = slimMeta(&o.ObjectMeta)
			o.Spec, o.Status = certificates.CertificateSigningRequestSpec{},
				certificates.CertificateSigningRequestStatus{}
		}
	}
	return object, nil
}

// slimMeta is by what an object is known, and whose it is.
func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, DeletionTimestamp: m.DeletionTimestamp, Labels: map[string]string{}}
	for _, label := range []string{managedByLabel, partOfLabel, nameLabel} {
		if value, has := m.Labels[label]; has {
			kept.Labels[label] = value
		}
	}
	return kept
}
