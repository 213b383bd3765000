//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	convertclient "github.com/kubefusion/fusionctl/pkg/convert/client"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// appController is a controller as people write them: of a config map it makes an application, in the versions of today. Nothing in it
// knows that there are other versions.
type appController struct {
	client.Client
	events record.EventRecorder
}

func (a *appController) setUp(manager ctrl.Manager) error {
	a.Client, a.events = manager.GetClient(), manager.GetEventRecorderFor("app")
	return ctrl.NewControllerManagedBy(manager).Named("app").WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).For(&corev1.ConfigMap{}).
		Owns(&appsv1.Deployment{}).Owns(&networkingv1.Ingress{}).Owns(&batchv1.CronJob{}).Owns(&autoscalingv2.HorizontalPodAutoscaler{}).
		Owns(&policyv1.PodDisruptionBudget{}).Owns(&rbacv1.Role{}).Owns(&rbacv1.RoleBinding{}).Complete(a)
}

func (a *appController) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	app := &corev1.ConfigMap{}
	if err := a.Get(ctx, request.NamespacedName, app); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if app.Data["image"] == "" {
		return reconcile.Result{}, nil
	}
	meta := metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: meta}, &networkingv1.Ingress{ObjectMeta: meta}, &batchv1.CronJob{ObjectMeta: meta}, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta}, &rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta},
	} {
		result, err := controllerutil.CreateOrUpdate(ctx, a, object, func() error {
			a.shape(app, object)
			return controllerutil.SetControllerReference(app, object, a.Scheme())
		})
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("%T: %w", object, err)
		}
		if result == controllerutil.OperationResultCreated {
			a.events.Eventf(app, corev1.EventTypeNormal, "Created", "%T", object)
		}
	}
	return reconcile.Result{}, nil
}

// shape sets what the controller wants and leaves the rest as it is.
func (a *appController) shape(app *corev1.ConfigMap, object client.Object) {
	labels := map[string]string{"app": app.Name}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	container := corev1.Container{Name: "web", Image: app.Data["image"]}
	switch object := object.(type) {
	case *appsv1.Deployment:
		object.Spec.Replicas, object.Spec.Selector = ptr.To[int32](3), selector
		object.Spec.Template.Labels = labels
		if len(object.Spec.Template.Spec.Containers) == 0 {
			object.Spec.Template.Spec.Containers = []corev1.Container{container}
		}
		object.Spec.Template.Spec.Containers[0].Image = container.Image
	case *networkingv1.Ingress:
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: app.Name, Port: networkingv1.ServiceBackendPort{Number: 80}}}
		path := networkingv1.HTTPIngressPath{Path: "/", PathType: ptr.To(networkingv1.PathTypeImplementationSpecific), Backend: backend}
		object.Spec.Rules = []networkingv1.IngressRule{{Host: app.Name + ".test", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}}}}
	case *batchv1.CronJob:
		object.Spec.Schedule = "0 1 * * *"
		pod.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container}}
		if len(object.Spec.JobTemplate.Spec.Template.Spec.Containers) == 0 {
			object.Spec.JobTemplate.Spec.Template = pod
		}
		object.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image = container.Image
	case *autoscalingv2.HorizontalPodAutoscaler:
		object.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: app.Name}
		object.Spec.MaxReplicas = 9
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](70)}
		object.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: target}}}
	case *policyv1.PodDisruptionBudget:
		object.Spec.Selector, object.Spec.MinAvailable = selector, ptr.To(intstr.FromInt32(1))
	case *rbacv1.Role:
		object.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}}
	case *rbacv1.RoleBinding:
		object.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: app.Name}
		object.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: app.Namespace}}
	}
}

// storedAt is where each release has the kinds of the controller, in the versions that it serves.
var storedAt = map[kubever.Minor][]string{
	6: {"apps/v1beta1/%s/deployments/shop", "extensions/v1beta1/%s/ingresses/shop", "batch/v2alpha1/%s/cronjobs/shop", "autoscaling/v1/%s/horizontalpodautoscalers/shop",
		"policy/v1beta1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1beta1/%s/roles/shop", "rbac.authorization.k8s.io/v1beta1/%s/rolebindings/shop"},
	10: {"apps/v1/%s/deployments/shop", "extensions/v1beta1/%s/ingresses/shop", "batch/v1beta1/%s/cronjobs/shop", "autoscaling/v2beta1/%s/horizontalpodautoscalers/shop",
		"policy/v1beta1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1/%s/roles/shop", "rbac.authorization.k8s.io/v1/%s/rolebindings/shop"},
	15: {"apps/v1/%s/deployments/shop", "networking.k8s.io/v1beta1/%s/ingresses/shop", "batch/v1beta1/%s/cronjobs/shop", "autoscaling/v2beta2/%s/horizontalpodautoscalers/shop",
		"policy/v1beta1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1/%s/roles/shop", "rbac.authorization.k8s.io/v1/%s/rolebindings/shop"},
	36: {"apps/v1/%s/deployments/shop", "networking.k8s.io/v1/%s/ingresses/shop", "batch/v1/%s/cronjobs/shop", "autoscaling/v2/%s/horizontalpodautoscalers/shop",
		"policy/v1/%s/poddisruptionbudgets/shop", "rbac.authorization.k8s.io/v1/%s/roles/shop", "rbac.authorization.k8s.io/v1/%s/rolebindings/shop"},
}

// One and the same controller does its work against servers of nine years.
func TestControllerRunsOnServersOfOtherVersions(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for minor, paths := range storedAt {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			server := startForConverting(r, minor)
			failures := &lastError{}
			manager, err := ctrl.NewManager(converting(t, server), ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.New(failures)})
			if err != nil {
				t.Fatal(err)
			}
			if err := (&appController{}).setUp(manager); err != nil {
				t.Fatal(err)
			}
			runManager(t, manager)
			raw := server.Client("somebody", "system:masters")
			app := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "shop"}, "data": map[string]any{"image": "shop:1"}}
			if err := raw.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/default/configmaps", app, nil); err != nil {
				t.Fatal(err)
			}
			r.Eventually("waiting for the objects of the controller", func(ctx context.Context) error {
				for _, path := range paths {
					if err := raw.Call(ctx, http.MethodGet, "/apis/"+fmt.Sprintf(path, "namespaces/default"), nil, &map[string]any{}); err != nil {
						return errors.Join(err, failures.get())
					}
				}
				return nil
			})
			// A change behind the controller's back comes to it as an event of the server's version.
			deployment := "/apis/" + fmt.Sprintf(paths[0], "namespaces/default")
			if err := raw.Call(t.Context(), http.MethodPatch, deployment, map[string]any{"spec": map[string]any{"replicas": 7}}, nil); err != nil {
				t.Fatal(err)
			}
			app["data"] = map[string]any{"image": "shop:2"}
			if err := raw.Call(t.Context(), http.MethodPut, "/api/v1/namespaces/default/configmaps/shop", app, nil); err != nil {
				t.Fatal(err)
			}
			r.Eventually("waiting for the controller to repair and update", func(ctx context.Context) error {
				var now struct {
					Spec struct {
						Replicas int
						Template struct {
							Spec struct {
								Containers []struct{ Image string }
							}
						}
					}
				}
				if err := raw.Call(ctx, http.MethodGet, deployment, nil, &now); err != nil {
					return err
				}
				if now.Spec.Replicas != 3 || now.Spec.Template.Spec.Containers[0].Image != "shop:2" {
					return fmt.Errorf("spec %+v, want 3 replicas of shop:2", now.Spec)
				}
				return nil
			})
		})
	}
}

// startForConverting starts a server; 1.6 has CronJobs only when it is told to.
func startForConverting(r *rig.Rig, minor kubever.Minor) *rig.APIServer {
	args := r.APIServerArgs(minor, r.StartEtcd("core"))
	if minor == 6 {
		args = append(args, "--runtime-config=batch/v2alpha1=true")
	}
	server := r.StartAPIServer("apiserver", minor, args)
	server.WaitReady()
	return server
}

func converting(t *testing.T, server *rig.APIServer) *rest.Config {
	t.Helper()
	config, err := convertclient.Config(server.RESTConfig("program", "system:masters"), convertclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// lastError is a log that keeps the last error alone: a controller tells why it does not get on by its log.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) Init(logr.RuntimeInfo)          {}
func (l *lastError) Enabled(int) bool               { return false }
func (l *lastError) Info(int, string, ...any)       {}
func (l *lastError) WithValues(...any) logr.LogSink { return l }
func (l *lastError) WithName(string) logr.LogSink   { return l }
func (l *lastError) Error(err error, m string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = fmt.Errorf("%s: %w", m, err)
}

func (l *lastError) get() error { l.mu.Lock(); defer l.mu.Unlock(); return l.err }

// runManager runs a manager until the test ends.
func runManager(t *testing.T, manager ctrl.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager: %v", err)
		}
	})
	if !manager.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches did not fill")
	}
}
