// Command old reads objects, one in JSON on each line, into the Go types of the release of k8s.io/api that it is built
// with, and writes what those types hold of them; null for a kind that they do not have. With -modfile=v1.17.mod it has
// the types of 1.17, otherwise those of 1.15.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2beta1 "k8s.io/api/autoscaling/v2beta1"
	autoscalingv2beta2 "k8s.io/api/autoscaling/v2beta2"
	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1beta1.AddToScheme, appsv1.AddToScheme, appsv1beta1.AddToScheme, appsv1beta2.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, autoscalingv1.AddToScheme,
		autoscalingv2beta1.AddToScheme, autoscalingv2beta2.AddToScheme, batchv1.AddToScheme, batchv1beta1.AddToScheme,
		certificatesv1beta1.AddToScheme, coordinationv1.AddToScheme, coordinationv1beta1.AddToScheme,
		corev1.AddToScheme, eventsv1beta1.AddToScheme, extensionsv1beta1.AddToScheme, networkingv1.AddToScheme,
		networkingv1beta1.AddToScheme, nodev1beta1.AddToScheme, policyv1beta1.AddToScheme, rbacv1.AddToScheme,
		rbacv1alpha1.AddToScheme, rbacv1beta1.AddToScheme, schedulingv1.AddToScheme, schedulingv1beta1.AddToScheme,
		storagev1.AddToScheme, storagev1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	lines, written := bufio.NewReader(in), bufio.NewWriter(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return written.Flush()
		}
		if err != nil {
			return err
		}
		var named struct{ APIVersion, Kind string }
		if err := json.Unmarshal(line, &named); err != nil {
			return err
		}
		held := []byte("null")
		object, err := scheme.New(schema.FromAPIVersionAndKind(named.APIVersion, named.Kind))
		if err == nil {
			if err := json.Unmarshal(line, object); err != nil {
				return fmt.Errorf("%s %s: %v", named.APIVersion, named.Kind, err)
			}
			if held, err = json.Marshal(object); err != nil {
				return err
			}
		}
		written.Write(held)
		written.WriteByte('\n')
	}
}
