// Command reconciler is a controller as software for Kubernetes is written today: controller-runtime, configured by
// nothing but what a pod finds around itself. For every Widget it makes a config map of the same name that says so. The
// end-to-end tests start it with the environment and the files of a pod.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var widget = schema.GroupVersionKind{Group: "example.test", Version: "v1", Kind: "Widget"}

func main() {
	root := flag.String("root", "", "folder that stands for the pod's /, where the test may not change the root of a "+
		"process")
	flag.Parse()
	if err := run(*root); err != nil {
		log.Fatal(err)
	}
}

func run(root string) error {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	config, err := configuration(root)
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile(filepath.Join(root, serviceAccount, "namespace"))
	if err != nil {
		return err
	}
	m, err := manager.New(config, manager.Options{
		Metrics: metrics.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{string(namespace): {}}},
	})
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widget)
	if err := ctrl.NewControllerManagedBy(m).Named("widgets").For(object).
		Complete(&reconciler{m.GetClient()}); err != nil {
		return err
	}
	return m.Start(ctrl.SetupSignalHandler())
}

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// configuration is rest.InClusterConfig, also for files below another root.
func configuration(root string) (*rest.Config, error) {
	if root == "" {
		return rest.InClusterConfig()
	}
	return &rest.Config{
		Host: "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"),
			os.Getenv("KUBERNETES_SERVICE_PORT")),
		BearerTokenFile: filepath.Join(root, serviceAccount, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(root, serviceAccount, "ca.crt")},
	}, nil
}

type reconciler struct{ client client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widget)
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name},
		Data: map[string]string{"widget": string(object.GetUID())}}
	if err := r.client.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nil
}
