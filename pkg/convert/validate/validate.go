// Package validate is the judgement of the API server of Kubernetes 1.36 about objects that are created: the validation
// functions that its create strategies call, imported from Kubernetes.
package validate

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	pvcutil "k8s.io/kubernetes/pkg/api/persistentvolumeclaim"
	serviceutil "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/apps"
	core "k8s.io/kubernetes/pkg/apis/core"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Created lists what the server refuses of an object that is created. The object is of Kubernetes' internal type, with
// the defaults of the version gv in which it was written; it is changed. Parts that admission plugins and allocators
// judge are left out: they depend on what else is in a cluster. A kind that has no validation is never refused.
func Created(object runtime.Object, gv schema.GroupVersion, namespaced bool) field.ErrorList {
	return created(object, request{gv, kubever.Library}, namespaced)
}

// request is what validation depends on beside the object: the version that it was written in, and the release whose
// feature gates count. Other releases have other gates on than 1.36: of objects for them, what is behind a gate that is
// off there is left out before (convert.Converter.AsRead), and what 1.36 would drop stays.
type request struct {
	gv    schema.GroupVersion
	minor kubever.Minor
}

// on reports whether the release does by default what a feature gate is for.
func (r request) on(gate string) bool { return kubever.Gate(gate).Works(r.minor) }

// drops reports whether Kubernetes' own functions are to drop what is behind gates that are off: their gates are those
// of 1.36.
func (r request) drops() bool { return r.minor == kubever.Library }

func created(object runtime.Object, r request, namespaced bool) (errs field.ErrorList) {
	review, isReview := reviews[reflect.TypeOf(object)]
	validate, ok := validators[reflect.TypeOf(object)]
	if !ok && !isReview {
		return nil
	}
	defer finish(&errs)
	if isReview {
		return unique(review(object, r))
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
	}
	r.prepare(object, accessor, namespaced)
	errs = slices.DeleteFunc(validate(object, r), allowedByFlag)
	at := field.NewPath("metadata")
	segment := func(name string, prefix bool) []string { return path.ValidatePathSegmentName(name, prefix) }
	return unique(append(errs, apivalidation.ValidateObjectMetaAccessor(accessor, namespaced, segment, at)...))
}

// updated lists what the server refuses of a CRD that it has already and that is written again as it is: it is lenient
// about what it accepted once, and does not look at the metadata. The CRD is changed.
func updated(crd *apiextensions.CustomResourceDefinition) (errs field.ErrorList) {
	defer finish(&errs)
	request{minor: kubever.Library}.prepare(crd, crd, false)
	errs = crdvalidation.ValidateCustomResourceDefinitionUpdate(context.Background(), crd, crd)
	return unique(slices.DeleteFunc(errs, func(err *field.Error) bool { return within(err.Field, "metadata") }))
}

// finish makes an error of a panic of Kubernetes' functions, which count on what decoders fill in.
func finish(errs *field.ErrorList) {
	if problem := recover(); problem != nil {
		*errs = field.ErrorList{field.InternalError(nil, fmt.Errorf("validation did not finish: %v", problem))}
	}
}

// prepare does what the server does before it validates.
func (r request) prepare(object runtime.Object, accessor metav1.Object, namespaced bool) {
	switch {
	case !namespaced:
		accessor.SetNamespace("")
	case accessor.GetNamespace() == "":
		accessor.SetNamespace(metav1.NamespaceDefault)
	}
	accessor.SetUID(uid)
	if accessor.GetName() == "" && accessor.GetGenerateName() != "" {
		accessor.SetName(accessor.GetGenerateName() + "xxxxx")
	}
	switch object := object.(type) {
	case *core.Node: // its status is what its kubelet says
		return
	case *core.LimitRange:
		if object.Name == "" {
			object.Name = uid
		}
	case *core.PersistentVolumeClaim:
		if r.drops() {
			pvcutil.DropDisabledFields(&object.Spec, nil)
		}
		pvcutil.EnforceDataSourceBackwardsCompatibility(&object.Spec, nil)
		pvcutil.NormalizeDataSources(&object.Spec)
	case *core.Service:
		allocate(&object.Spec, serviceutil.NeedsHealthCheck(object))
	case *core.Pod:
		r.mergeLabelKeys(object)
	case *apps.DaemonSet:
		object.Spec.TemplateGeneration = max(object.Spec.TemplateGeneration, 1)
	}
	if definition, ok := object.(*apiextensions.CustomResourceDefinition); ok {
		definition.Status = apiextensions.CustomResourceDefinitionStatus{}
		for _, version := range definition.Spec.Versions {
			if version.Storage {
				definition.Status.StoredVersions = []string{version.Name}
				return
			}
		}
	}
	if status := reflect.ValueOf(object).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
}

// mergeLabelKeys adds to the selectors of a pod what its keys of labels select: pkg/registry/core/pod/strategy.go.
func (r request) mergeLabelKeys(pod *core.Pod) {
	merge := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, ok := pod.Labels[key]; ok && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	if r.on("MatchLabelKeysInPodTopologySpreadSelectorMerge") {
		for i := range pod.Spec.TopologySpreadConstraints {
			constraint := &pod.Spec.TopologySpreadConstraints[i]
			merge(constraint.LabelSelector, constraint.MatchLabelKeys, metav1.LabelSelectorOpIn)
		}
	}
	if affinity := pod.Spec.Affinity; affinity != nil && r.on("MatchLabelKeysInPodAffinity") {
		var terms []*core.PodAffinityTerm
		of := func(required []core.PodAffinityTerm, preferred []core.WeightedPodAffinityTerm) {
			for i := range required {
				terms = append(terms, &required[i])
			}
			for i := range preferred {
				terms = append(terms, &preferred[i].PodAffinityTerm)
			}
		}
		if near := affinity.PodAffinity; near != nil {
			of(near.RequiredDuringSchedulingIgnoredDuringExecution,
				near.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if far := affinity.PodAntiAffinity; far != nil {
			of(far.RequiredDuringSchedulingIgnoredDuringExecution, far.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		for _, term := range terms {
			merge(term.LabelSelector, term.MatchLabelKeys, metav1.LabelSelectorOpIn)
			merge(term.LabelSelector, term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
	}
}

// allocate fills in what the server allocates before it validates: pkg/registry/core/service/storage/alloc.go.
func allocate(spec *core.ServiceSpec, needsHealthCheck bool) {
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if needsHealthCheck && spec.HealthCheckNodePort == 0 {
		spec.HealthCheckNodePort = anyNodePort
	}
}

// anyNodePort stands for the port that a server allocates.
const anyNodePort = 30000

// allowedByFlag reports whether the server refuses it only without --allow-privileged, which this package, as a library
// of Kubernetes, does not have: control planes run privileged pods themselves.
func allowedByFlag(err *field.Error) bool {
	return err.Type == field.ErrorTypeForbidden && strings.HasSuffix(err.Detail, "disallowed by cluster policy")
}

// unique leaves out what is said twice: most kinds validate their metadata themselves.
func unique(errs field.ErrorList) field.ErrorList {
	seen := map[string]bool{}
	kept := errs[:0]
	for _, err := range errs {
		if text := err.Error(); !seen[text] {
			seen[text] = true
			kept = append(kept, err)
		}
	}
	return kept
}
