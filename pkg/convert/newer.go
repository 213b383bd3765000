package convert

import "k8s.io/apimachinery/pkg/runtime/schema"

// newer joins versions that came after Kubernetes 1.36, whose types this program is built with, to one that is nearer
// to it. Shapes: the API description of 1.37 (pkg/kubever), and its types.go.
var newer = []edge{
	{kind("certificates.k8s.io", "v1", "ClusterTrustBundle"), kind("certificates.k8s.io", "v1beta1",
		"ClusterTrustBundle"), as, as},
	{kind("certificates.k8s.io", "v1", "PodCertificateRequest"), kind("certificates.k8s.io", "v1beta1",
		"PodCertificateRequest"), as, as},
	{kind("resource.k8s.io", "v1", "DeviceTaintRule"), kind("resource.k8s.io", "v1beta2", "DeviceTaintRule"), as, as},
	{kind("scheduling.k8s.io", "v1alpha3", "PodGroup"), kind("scheduling.k8s.io", "v1beta1", "PodGroup"), as, as},
	{kind("scheduling.k8s.io", "v1alpha3", "Workload"), kind("scheduling.k8s.io", "v1beta1", "Workload"), as, as},
	{kind("scheduling.k8s.io", "v1beta1", "PodGroup"), kind("scheduling.k8s.io", "v1alpha2", "PodGroup"), podGroupDown,
		podGroupUp},
	{kind("scheduling.k8s.io", "v1beta1", "Workload"), kind("scheduling.k8s.io", "v1alpha2", "Workload"), workloadDown,
		workloadUp},
	{kind("storagemigration.k8s.io", "v1", "StorageVersionMigration"), kind("storagemigration.k8s.io", "v1beta1",
		"StorageVersionMigration"), as, as},
}

const oneVersion = "the kind came with 1.37, in this version alone"

// newAlone are kinds that came after Kubernetes 1.36 and have one version.
var newAlone = map[schema.GroupVersionKind]string{
	kind("lifecycle.k8s.io", "v1alpha1", "Eviction"):           oneVersion,
	kind("lifecycle.k8s.io", "v1alpha1", "EvictionRequest"):    oneVersion,
	kind("scheduling.k8s.io", "v1alpha3", "CompositePodGroup"): oneVersion,
}

// disruptionModes are the words of v1alpha2, and the members of the union that they became.
var disruptionModes = map[string]string{"Pod": "single", "PodGroup": "all"}

// disruptionUp: a word became a union. One that is none of its members is lost.
func disruptionUp(group map[string]any) {
	word, ok := group["disruptionMode"].(string)
	if !ok {
		return
	}
	delete(group, "disruptionMode")
	if member := disruptionModes[word]; member != "" {
		group["disruptionMode"] = map[string]any{member: map[string]any{}}
	}
}

func disruptionDown(group map[string]any) {
	mode := object(group, "disruptionMode")
	if mode != nil {
		delete(group, "disruptionMode")
	}
	for word, member := range disruptionModes {
		if _, ok := mode[member]; ok && len(mode) == 1 {
			group["disruptionMode"] = word
		}
	}
}

// podGroupUp: the reference to the template in a workload lost the level that said that it is one in a workload.
func podGroupUp(group map[string]any) (map[string]any, error) {
	spec := object(group, "spec")
	if workload := object(object(spec, "podGroupTemplateRef"), "workload"); workload != nil {
		reference := map[string]any{}
		move(workload, "workloadName", reference, "workloadName")
		move(workload, "podGroupTemplateName", reference, "templateName")
		spec["workloadRef"] = reference
		delete(spec, "podGroupTemplateRef")
	}
	disruptionUp(spec)
	return group, nil
}

func podGroupDown(group map[string]any) (map[string]any, error) {
	spec := object(group, "spec")
	if reference := object(spec, "workloadRef"); reference != nil {
		workload := map[string]any{}
		move(reference, "workloadName", workload, "workloadName")
		move(reference, "templateName", workload, "podGroupTemplateName")
		spec["podGroupTemplateRef"] = map[string]any{"workload": workload}
		delete(spec, "workloadRef")
	}
	disruptionDown(spec)
	return group, nil
}

func workloadUp(workload map[string]any) (map[string]any, error) {
	for _, template := range elements(object(workload, "spec"), "podGroupTemplates") {
		disruptionUp(template)
	}
	return workload, nil
}

func workloadDown(workload map[string]any) (map[string]any, error) {
	for _, template := range elements(object(workload, "spec"), "podGroupTemplates") {
		disruptionDown(template)
	}
	return workload, nil
}
