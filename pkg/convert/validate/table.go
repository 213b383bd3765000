package validate

import (
	"context"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationvalidation "k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	apiserverinternalvalidation "k8s.io/kubernetes/pkg/apis/apiserverinternal/validation"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/authentication"
	"k8s.io/kubernetes/pkg/apis/authorization"
	authorizationvalidation "k8s.io/kubernetes/pkg/apis/authorization/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/certificates"
	certificatesvalidation "k8s.io/kubernetes/pkg/apis/certificates/validation"
	coordinationvalidation "k8s.io/kubernetes/pkg/apis/coordination/validation"
	core "k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	discoveryvalidation "k8s.io/kubernetes/pkg/apis/discovery/validation"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	flowcontrolvalidation "k8s.io/kubernetes/pkg/apis/flowcontrol/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	resourcevalidation "k8s.io/kubernetes/pkg/apis/resource/validation"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
	storagemigrationvalidation "k8s.io/kubernetes/pkg/apis/storagemigration/validation"
	volumevalidation "k8s.io/kubernetes/pkg/volume/validation"
)

// validator is what the create strategy of a kind calls, with its options: pkg/registry/*/*/strategy.go of 1.36. It
// gets the internal type.
type validator func(object runtime.Object, r request) field.ErrorList

type entry struct {
	internal reflect.Type
	validate validator
}

func byType(entries ...entry) map[reflect.Type]validator {
	table := make(map[reflect.Type]validator, len(entries))
	for _, e := range entries {
		table[e.internal] = e.validate
	}
	return table
}

func of[T runtime.Object](validate func(T) field.ErrorList) entry {
	return ofRequest(func(object T, _ request) field.ErrorList { return validate(object) })
}

func ofRequest[T runtime.Object](validate func(T, request) field.ErrorList) entry {
	return entry{reflect.TypeFor[T](), func(object runtime.Object, r request) field.ErrorList {
		return validate(object.(T), r)
	}}
}

// template drops what is behind a feature gate that is off, as the server does, and gives the options of the rest.
func (r request) template(t *core.PodTemplateSpec) corevalidation.PodValidationOptions {
	if r.drops() {
		podutil.DropDisabledTemplateFields(t, nil)
	}
	return r.options(podutil.GetValidationOptionsFromPodTemplate(t, nil))
}

// options are those of pods, by the gates of the release where it has one on that is off in 1.36.
func (r request) options(options corevalidation.PodValidationOptions) corevalidation.PodValidationOptions {
	if r.on("SELinuxMount") {
		options.AllowOnlyRecursiveSELinuxChangePolicy = false
	}
	return options
}

// validators are those of each internal type.
var validators = byType(
	of(admissionvalidation.ValidateMutatingAdmissionPolicy),
	of(admissionvalidation.ValidateMutatingAdmissionPolicyBinding),
	of(admissionvalidation.ValidateMutatingWebhookConfiguration),
	of(admissionvalidation.ValidateValidatingAdmissionPolicy),
	of(admissionvalidation.ValidateValidatingAdmissionPolicyBinding),
	of(admissionvalidation.ValidateValidatingWebhookConfiguration),

	of(func(o *apiextensions.CustomResourceDefinition) field.ErrorList {
		return crdvalidation.ValidateCustomResourceDefinition(context.Background(), o)
	}),
	of(apiregistrationvalidation.ValidateAPIService),
	of(apiserverinternalvalidation.ValidateStorageVersion),

	of(appsvalidation.ValidateControllerRevisionCreate),
	ofRequest(func(o *apps.DaemonSet, r request) field.ErrorList {
		return appsvalidation.ValidateDaemonSet(o, r.template(&o.Spec.Template))
	}),
	ofRequest(func(o *apps.Deployment, r request) field.ErrorList {
		return appsvalidation.ValidateDeployment(o, r.template(&o.Spec.Template))
	}),
	ofRequest(func(o *apps.ReplicaSet, r request) field.ErrorList {
		return appsvalidation.ValidateReplicaSet(o, r.template(&o.Spec.Template))
	}),
	ofRequest(func(o *apps.StatefulSet, r request) field.ErrorList {
		return appsvalidation.ValidateStatefulSet(o, r.template(&o.Spec.Template))
	}),
	ofRequest(validateScaler),
	ofRequest(func(o *batch.CronJob, r request) field.ErrorList {
		return batchvalidation.ValidateCronJobCreate(o, r.template(&o.Spec.JobTemplate.Spec.Template))
	}),
	ofRequest(validateJob),

	of(certificatesvalidation.ValidateCertificateSigningRequestCreate),
	of(func(o *certificates.ClusterTrustBundle) field.ErrorList {
		return certificatesvalidation.ValidateClusterTrustBundle(
			o, certificatesvalidation.ValidateClusterTrustBundleOptions{})
	}),
	of(certificatesvalidation.ValidatePodCertificateRequestCreate),
	of(coordinationvalidation.ValidateLease),
	of(coordinationvalidation.ValidateLeaseCandidate),

	of(corevalidation.ValidateConfigMap),
	of(corevalidation.ValidateEndpointsCreate),
	ofRequest(validateEvent),
	of(corevalidation.ValidateLimitRange),
	of(corevalidation.ValidateNamespace),
	of(corevalidation.ValidateNode),
	of(func(o *core.PersistentVolume) field.ErrorList {
		errs := corevalidation.ValidatePersistentVolume(o, corevalidation.ValidationOptionsForPersistentVolume(o, nil))
		return append(errs, volumevalidation.ValidatePersistentVolume(o)...)
	}),
	of(func(o *core.PersistentVolumeClaim) field.ErrorList {
		return corevalidation.ValidatePersistentVolumeClaim(
			o, corevalidation.ValidationOptionsForPersistentVolumeClaim(o, nil))
	}),
	ofRequest(func(o *core.Pod, r request) field.ErrorList {
		if r.drops() {
			podutil.DropDisabledPodFields(o, nil)
		}
		options := r.options(podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil))
		options.ResourceIsPod = true
		return corevalidation.ValidatePodCreate(o, options)
	}),
	ofRequest(func(o *core.PodTemplate, r request) field.ErrorList {
		return corevalidation.ValidatePodTemplate(o, r.template(&o.Template))
	}),
	ofRequest(func(o *core.ReplicationController, r request) field.ErrorList {
		return corevalidation.ValidateReplicationController(o, r.template(o.Spec.Template))
	}),
	of(corevalidation.ValidateResourceQuota),
	of(corevalidation.ValidateSecret),
	of(corevalidation.ValidateServiceCreate),
	of(corevalidation.ValidateServiceAccount),

	of(discoveryvalidation.ValidateEndpointSliceCreate),

	of(flowcontrolvalidation.ValidateFlowSchema),
	ofRequest(func(o *flowcontrol.PriorityLevelConfiguration, r request) field.ErrorList {
		return flowcontrolvalidation.ValidatePriorityLevelConfiguration(o, r.gv,
			flowcontrolvalidation.PriorityLevelValidationOptions{})
	}),

	of(networkingvalidation.ValidateIngressCreate),
	of(networkingvalidation.ValidateIngressClass),
	of(networkingvalidation.ValidateIPAddress),
	of(func(o *networking.NetworkPolicy) field.ErrorList {
		return networkingvalidation.ValidateNetworkPolicy(
			o, networkingvalidation.ValidationOptionsForNetworking(o, nil))
	}),
	of(networkingvalidation.ValidateServiceCIDR),
	of(nodevalidation.ValidateRuntimeClass),
	of(func(o *policy.PodDisruptionBudget) field.ErrorList {
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	}),

	of(func(o *rbac.ClusterRole) field.ErrorList {
		return rbacvalidation.ValidateClusterRole(o, rbacvalidation.ClusterRoleValidationOptions{})
	}),
	of(rbacvalidation.ValidateClusterRoleBinding),
	of(rbacvalidation.ValidateRole),
	of(rbacvalidation.ValidateRoleBinding),

	of(resourcevalidation.ValidateDeviceClass),
	of(resourcevalidation.ValidateDeviceTaintRule),
	of(resourcevalidation.ValidateResourceClaim),
	of(resourcevalidation.ValidateResourceClaimTemplate),
	of(resourcevalidation.ValidateResourcePoolStatusRequest),
	of(resourcevalidation.ValidateResourceSlice),

	of(schedulingvalidation.ValidatePodGroup),
	of(schedulingvalidation.ValidatePriorityClass),
	of(schedulingvalidation.ValidateWorkload),

	of(storagevalidation.ValidateCSIDriver),
	of(storagevalidation.ValidateCSINode),
	of(func(o *storage.CSIStorageCapacity) field.ErrorList {
		return storagevalidation.ValidateCSIStorageCapacity(o, storagevalidation.CSIStorageCapacityValidateOptions{})
	}),
	of(storagevalidation.ValidateStorageClass),
	of(storagevalidation.ValidateVolumeAttachment),
	of(storagevalidation.ValidateVolumeAttributesClass),
	of(storagemigrationvalidation.ValidateStorageVersionMigration),
)

// reviews are questions, of which servers keep nothing: their metadata are empty, but for a namespace. What has no
// validation is refused where it is answered: pkg/registry/authentication/tokenreview/storage.go,
// pkg/registry/authorization/selfsubjectrulesreview/rest.go.
var reviews = byType(
	of(func(o *authentication.TokenReview) field.ErrorList {
		if o.Spec.Token == "" {
			return field.ErrorList{field.Required(field.NewPath("spec", "token"), "")}
		}
		return nil
	}),
	of(authorizationvalidation.ValidateSubjectAccessReview),
	of(authorizationvalidation.ValidateSelfSubjectAccessReview),
	of(func(o *authorization.LocalSubjectAccessReview) field.ErrorList {
		if o.Namespace == "" {
			o.Namespace = metav1.NamespaceDefault
		}
		return authorizationvalidation.ValidateLocalSubjectAccessReview(o)
	}),
	of(func(o *authorization.SelfSubjectRulesReview) field.ErrorList {
		if o.Spec.Namespace == "" {
			return field.ErrorList{field.Required(field.NewPath("spec", "namespace"), "")}
		}
		return nil
	}),
)

// validateScaler: a ReplicationController is in the core group, whose name is empty.
func validateScaler(o *autoscaling.HorizontalPodAutoscaler, r request) field.ErrorList {
	var lowest int32 = 1
	if r.on("HPAScaleToZero") {
		lowest = 0
	}
	return autoscalingvalidation.ValidateHorizontalPodAutoscaler(
		o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{
			MinReplicasLowerBound: lowest,
			ScaleTargetRefValidationOptions: autoscalingvalidation.CrossVersionObjectReferenceValidationOptions{
				AllowEmptyAPIGroup: o.Spec.ScaleTargetRef.Kind == "ReplicationController",
			},
			ObjectMetricsValidationOptions: autoscalingvalidation.CrossVersionObjectReferenceValidationOptions{
				AllowEmptyAPIGroup: true},
		})
}

// uid is that of an object that a server has not seen yet.
const uid = "00000000-0000-0000-0000-000000000000"

// validateJob fills in the selector and the labels that the server does.
func validateJob(o *batch.Job, r request) field.ErrorList {
	if o.Spec.ManualSelector == nil || !*o.Spec.ManualSelector {
		labels := o.Spec.Template.Labels
		if labels == nil {
			labels = map[string]string{}
			o.Spec.Template.Labels = labels
		}
		for name, value := range map[string]string{
			batch.LegacyJobNameLabel: o.Name, batch.JobNameLabel: o.Name,
			batch.LegacyControllerUidLabel: uid, batch.ControllerUidLabel: uid,
		} {
			if _, ok := labels[name]; !ok {
				labels[name] = value
			}
		}
		selector := o.Spec.Selector
		if selector == nil {
			selector = &metav1.LabelSelector{}
			o.Spec.Selector = selector
		}
		if selector.MatchLabels == nil {
			selector.MatchLabels = map[string]string{}
		}
		if _, ok := selector.MatchLabels[batch.ControllerUidLabel]; !ok {
			selector.MatchLabels[batch.ControllerUidLabel] = uid
		}
	}
	return batchvalidation.ValidateJob(o, batchvalidation.JobValidationOptions{
		PodValidationOptions: r.template(&o.Spec.Template), RequirePrefixedLabels: true,
	})
}

func validateEvent(o *core.Event, r request) field.ErrorList {
	return corevalidation.ValidateEventCreate(o, r.gv)
}
