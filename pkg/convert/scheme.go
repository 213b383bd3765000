package convert

import (
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	admissionregistrationv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1beta1"
	"k8s.io/kubernetes/pkg/apis/apiserverinternal"
	apiserverinternalv1alpha1 "k8s.io/kubernetes/pkg/apis/apiserverinternal/v1alpha1"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsv1 "k8s.io/kubernetes/pkg/apis/apps/v1"
	appsv1beta1 "k8s.io/kubernetes/pkg/apis/apps/v1beta1"
	appsv1beta2 "k8s.io/kubernetes/pkg/apis/apps/v1beta2"
	"k8s.io/kubernetes/pkg/apis/authentication"
	authenticationv1 "k8s.io/kubernetes/pkg/apis/authentication/v1"
	authenticationv1alpha1 "k8s.io/kubernetes/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "k8s.io/kubernetes/pkg/apis/authentication/v1beta1"
	"k8s.io/kubernetes/pkg/apis/authorization"
	authorizationv1 "k8s.io/kubernetes/pkg/apis/authorization/v1"
	authorizationv1beta1 "k8s.io/kubernetes/pkg/apis/authorization/v1beta1"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	autoscalingv1 "k8s.io/kubernetes/pkg/apis/autoscaling/v1"
	autoscalingv2 "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchv1 "k8s.io/kubernetes/pkg/apis/batch/v1"
	batchv1beta1 "k8s.io/kubernetes/pkg/apis/batch/v1beta1"
	"k8s.io/kubernetes/pkg/apis/certificates"
	certificatesv1 "k8s.io/kubernetes/pkg/apis/certificates/v1"
	certificatesv1alpha1 "k8s.io/kubernetes/pkg/apis/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/kubernetes/pkg/apis/certificates/v1beta1"
	"k8s.io/kubernetes/pkg/apis/coordination"
	coordinationv1 "k8s.io/kubernetes/pkg/apis/coordination/v1"
	coordinationv1alpha2 "k8s.io/kubernetes/pkg/apis/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/kubernetes/pkg/apis/coordination/v1beta1"
	core "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/discovery"
	discoveryv1 "k8s.io/kubernetes/pkg/apis/discovery/v1"
	discoveryv1beta1 "k8s.io/kubernetes/pkg/apis/discovery/v1beta1"
	"k8s.io/kubernetes/pkg/apis/events"
	eventsv1 "k8s.io/kubernetes/pkg/apis/events/v1"
	eventsv1beta1 "k8s.io/kubernetes/pkg/apis/events/v1beta1"
	"k8s.io/kubernetes/pkg/apis/extensions"
	extensionsv1beta1 "k8s.io/kubernetes/pkg/apis/extensions/v1beta1"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	flowcontrolv1 "k8s.io/kubernetes/pkg/apis/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/kubernetes/pkg/apis/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/kubernetes/pkg/apis/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/kubernetes/pkg/apis/flowcontrol/v1beta3"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingv1 "k8s.io/kubernetes/pkg/apis/networking/v1"
	networkingv1beta1 "k8s.io/kubernetes/pkg/apis/networking/v1beta1"
	"k8s.io/kubernetes/pkg/apis/node"
	nodev1 "k8s.io/kubernetes/pkg/apis/node/v1"
	nodev1alpha1 "k8s.io/kubernetes/pkg/apis/node/v1alpha1"
	nodev1beta1 "k8s.io/kubernetes/pkg/apis/node/v1beta1"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyv1 "k8s.io/kubernetes/pkg/apis/policy/v1"
	policyv1beta1 "k8s.io/kubernetes/pkg/apis/policy/v1beta1"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
	rbacv1alpha1 "k8s.io/kubernetes/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/kubernetes/pkg/apis/rbac/v1beta1"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourcev1 "k8s.io/kubernetes/pkg/apis/resource/v1"
	resourcev1alpha3 "k8s.io/kubernetes/pkg/apis/resource/v1alpha3"
	resourcev1beta1 "k8s.io/kubernetes/pkg/apis/resource/v1beta1"
	resourcev1beta2 "k8s.io/kubernetes/pkg/apis/resource/v1beta2"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	schedulingv1alpha2 "k8s.io/kubernetes/pkg/apis/scheduling/v1alpha2"
	schedulingv1beta1 "k8s.io/kubernetes/pkg/apis/scheduling/v1beta1"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagev1 "k8s.io/kubernetes/pkg/apis/storage/v1"
	storagev1alpha1 "k8s.io/kubernetes/pkg/apis/storage/v1alpha1"
	storagev1beta1 "k8s.io/kubernetes/pkg/apis/storage/v1beta1"
	"k8s.io/kubernetes/pkg/apis/storagemigration"
	storagemigrationv1beta1 "k8s.io/kubernetes/pkg/apis/storagemigration/v1beta1"
)

// newScheme registers Kubernetes' own types and conversions: of each group the internal version, which is the hub, and
// every version that 1.36 can still decode. The install packages are left out because they register in a global scheme
// at start-up.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistration.AddToScheme, admissionregistrationv1.AddToScheme,
		admissionregistrationv1beta1.AddToScheme, admissionregistrationv1alpha1.AddToScheme,
		apiextensions.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
		apiregistration.AddToScheme, apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme,
		apiserverinternal.AddToScheme, apiserverinternalv1alpha1.AddToScheme,
		apps.AddToScheme, appsv1.AddToScheme, appsv1beta2.AddToScheme, appsv1beta1.AddToScheme,
		authentication.AddToScheme, authenticationv1.AddToScheme, authenticationv1beta1.AddToScheme,
		authenticationv1alpha1.AddToScheme,
		authorization.AddToScheme, authorizationv1.AddToScheme, authorizationv1beta1.AddToScheme,
		autoscaling.AddToScheme, autoscalingv2.AddToScheme, autoscalingv1.AddToScheme,
		batch.AddToScheme, batchv1.AddToScheme, batchv1beta1.AddToScheme,
		certificates.AddToScheme, certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme,
		certificatesv1alpha1.AddToScheme,
		coordination.AddToScheme, coordinationv1.AddToScheme, coordinationv1beta1.AddToScheme,
		coordinationv1alpha2.AddToScheme,
		core.AddToScheme, corev1.AddToScheme,
		discovery.AddToScheme, discoveryv1.AddToScheme, discoveryv1beta1.AddToScheme,
		events.AddToScheme, eventsv1.AddToScheme, eventsv1beta1.AddToScheme,
		extensions.AddToScheme, extensionsv1beta1.AddToScheme,
		flowcontrol.AddToScheme, flowcontrolv1.AddToScheme, flowcontrolv1beta3.AddToScheme,
		flowcontrolv1beta2.AddToScheme, flowcontrolv1beta1.AddToScheme,
		networking.AddToScheme, networkingv1.AddToScheme, networkingv1beta1.AddToScheme,
		node.AddToScheme, nodev1.AddToScheme, nodev1beta1.AddToScheme, nodev1alpha1.AddToScheme,
		policy.AddToScheme, policyv1.AddToScheme, policyv1beta1.AddToScheme,
		rbac.AddToScheme, rbacv1.AddToScheme, rbacv1beta1.AddToScheme, rbacv1alpha1.AddToScheme,
		resource.AddToScheme, resourcev1.AddToScheme, resourcev1beta2.AddToScheme, resourcev1beta1.AddToScheme,
		resourcev1alpha3.AddToScheme,
		scheduling.AddToScheme, schedulingv1.AddToScheme, schedulingv1beta1.AddToScheme, schedulingv1alpha2.AddToScheme,
		storage.AddToScheme, storagev1.AddToScheme, storagev1beta1.AddToScheme, storagev1alpha1.AddToScheme,
		storagemigration.AddToScheme, storagemigrationv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering Kubernetes' conversions: %w", err)
		}
	}
	return scheme, nil
}
