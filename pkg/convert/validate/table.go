package validate

import (
	"context"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
// gets the internal type, and the version that the object was written in.
type validator func(object runtime.Object, gv schema.GroupVersion) field.ErrorList

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
	return ofVersion(func(object T, _ schema.GroupVersion) field.ErrorList { return validate(object) })
}

func ofVersion[T runtime.Object](validate func(T, schema.GroupVersion) field.ErrorList) entry {
	return entry{reflect.TypeFor[T](), func(object runtime.Object, gv schema.GroupVersion) field.ErrorList {
		return validate(object.(T), gv)
	}}
}

// template drops what is behind a feature gate that is off, as the server does, and gives the options of the rest.
func template(t *core.PodTemplateSpec) corevalidation.PodValidationOptions {
	podutil.DropDisabledTemplateFields(t, nil)
	return podutil.GetValidationOptionsFromPodTemplate(t, nil)
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
	of(func(o *apps.DaemonSet) field.ErrorList {
		return appsvalidation.ValidateDaemonSet(o, template(&o.Spec.Template))
	}),
	of(func(o *apps.Deployment) field.ErrorList {
		return appsvalidation.ValidateDeployment(o, template(&o.Spec.Template))
	}),
	of(func(o *apps.ReplicaSet) field.ErrorList {
		return appsvalidation.ValidateReplicaSet(o, template(&o.Spec.Template))
	}),
	of(func(o *apps.StatefulSet) field.ErrorList {
		return appsvalidation.ValidateStatefulSet(o, template(&o.Spec.Template))
	}),
	of(validateScaler),
	of(func(o *batch.CronJob) field.ErrorList {
		return batchvalidation.ValidateCronJobCreate(o, template(&o.Spec.JobTemplate.Spec.Template))
	}),
	of(validateJob),

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
	ofVersion(validateEvent),
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
	of(func(o *core.Pod) field.ErrorList {
		podutil.DropDisabledPodFields(o, nil)
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil)
		options.ResourceIsPod = true
		return corevalidation.ValidatePodCreate(o, options)
	}),
	of(func(o *core.PodTemplate) field.ErrorList {
		return corevalidation.ValidatePodTemplate(o, template(&o.Template))
	}),
	of(func(o *core.ReplicationController) field.ErrorList {
		return corevalidation.ValidateReplicationController(o, template(o.Spec.Template))
	}),
	of(corevalidation.ValidateResourceQuota),
	of(corevalidation.ValidateSecret),
	of(corevalidation.ValidateServiceCreate),
	of(corevalidation.ValidateServiceAccount),

	of(discoveryvalidation.ValidateEndpointSliceCreate),

	of(flowcontrolvalidation.ValidateFlowSchema),
	ofVersion(func(o *flowcontrol.PriorityLevelConfiguration, gv schema.GroupVersion) field.ErrorList {
		return flowcontrolvalidation.ValidatePriorityLevelConfiguration(o, gv,
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
func validateScaler(o *autoscaling.HorizontalPodAutoscaler) field.ErrorList {
	return autoscalingvalidation.ValidateHorizontalPodAutoscaler(
		o, autoscalingvalidation.HorizontalPodAutoscalerSpecValidationOptions{
			MinReplicasLowerBound: 1,
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
func validateJob(o *batch.Job) field.ErrorList {
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
		PodValidationOptions: template(&o.Spec.Template), RequirePrefixedLabels: true,
	})
}

func validateEvent(o *core.Event, gv schema.GroupVersion) field.ErrorList {
	return corevalidation.ValidateEventCreate(o, gv)
}
