package demo

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// fillModern writes what 1.36 writes at its start, and what came through it.
func (w *writer) fillModern() {
	w.side = pair.Modern
	w.putModernStartup()
	w.putLocks(func(l pair.Lock, holder string) { w.putLease(l.Namespace, l.Name, holder) })
	w.putNamespace("kubeflow")
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, "shop",
		"kubeflow"} {
		w.put("configmaps",
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-root-ca.crt"},
				Data: map[string]string{"ca.crt": "not a certificate\n"}})
	}
	for _, s := range services() {
		w.putAddress(s)
		w.putSlice(s)
	}
	w.putNotebookCRD()
	w.putNotebookController()
	w.putNotebook()
	w.putTraining()
	w.putEvent("kubeflow", "Deployment", "apps/v1", "notebook-controller", "ScalingReplicaSet",
		"Scaled up replica set notebook-controller-6c9f5d7b8d from 0 to 2")
}

// putModernStartup writes what an API server of that version writes by itself.
func (w *writer) putModernStartup() {
	for _, groupVersion := range w.plan.Modern.Facts.GroupVersions {
		group, version, ok := strings.Cut(groupVersion, "/")
		name := version + "." + group
		if !ok {
			group, version = "", groupVersion
			name = version + "."
		}
		w.putJSON("apiregistration.k8s.io", "apiservices", "", name, map[string]any{
			"apiVersion": w.plan.Resource("apiregistration.k8s.io/apiservices").Modern.StoredAs, "kind": "APIService",
			"labels": map[string]any{kubever.LabelAutoManaged: "onstart"},
			"spec": map[string]any{"group": group, "version": version, "groupPriorityMinimum": 17000,
				"versionPriority": 15},
			"status": map[string]any{
				"conditions": []any{map[string]any{"type": "Available", "status": "True", "reason": "Local"}}},
		})
	}
	for name, value := range map[string]int32{"system-node-critical": 2000001000,
		"system-cluster-critical": 2000000000} {
		w.put("priorityclasses", &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	for _, level := range []string{"catch-all", "global-default", "leader-election", "node-high", "system",
		"workload-high", "workload-low"} {
		shares := int32(30)
		w.put("prioritylevelconfigurations", &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: level},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares}},
		})
		w.put("flowschemas", &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: level},
			Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 1000,
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level}},
		})
	}
	w.put("servicecidrs", &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: w.plan.Network.ServiceCIDRs},
	})
	w.putLease(metav1.NamespaceSystem, "apiserver-fz3xw5ftpzhz5tjyq2hvqrxkau", w.plan.Hosts[0].Name)
	w.put("configmaps", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
		Data:       map[string]string{"client-ca-file": "not a certificate\n"},
	})
}

func (w *writer) putLease(namespace, name, holder string) {
	seconds, renewed := int32(15), metav1.NewMicroTime(w.now)
	w.put("leases", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
			RenewTime: &renewed},
	})
}

// putAddress writes the object with which 1.36 keeps an address, in place of a bit in a map. Its repair loop makes one
// for every Service that it finds.
func (w *writer) putAddress(s service) {
	w.put("ipaddresses", &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: w.clusterIP(s.address),
			Labels: map[string]string{"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
		Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: s.namespace, Name: s.name}},
	})
}

func (w *writer) putSlice(s service) {
	if len(s.backends) == 0 {
		return
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name + "-7wq4z",
			Labels:          map[string]string{discoveryv1.LabelServiceName: s.name},
			OwnerReferences: owned("v1", "Service", s.namespace, s.name)},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &s.port}},
	}
	for _, ip := range s.backends {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	w.put("endpointslices", slice)
}

// putNotebookCRD writes a CRD as every version stores it: as v1beta1, in JSON.
func (w *writer) putNotebookCRD() {
	names := map[string]any{"plural": "notebooks", "singular": "notebook", "kind": "Notebook",
		"listKind": "NotebookList"}
	condition := func(kind string) map[string]any { return map[string]any{"type": kind, "status": "True"} }
	w.putJSON("apiextensions.k8s.io", "customresourcedefinitions", "", "notebooks.kubeflow.org", map[string]any{
		"apiVersion": w.plan.Resource("apiextensions.k8s.io/customresourcedefinitions").Modern.StoredAs,
		"kind":       "CustomResourceDefinition",
		"spec": map[string]any{
			"group": "kubeflow.org", "version": "v1", "scope": "Namespaced", "names": names,
			"preserveUnknownFields": false,
			"versions":              []any{map[string]any{"name": "v1", "served": true, "storage": true}},
			"validation": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			"conversion": map[string]any{"strategy": "None"},
		},
		"status": map[string]any{
			"conditions": []any{condition("NamesAccepted"), condition("Established")}, "acceptedNames": names,
			"storedVersions": []any{"v1"},
		},
	})
}

// putNotebookController writes a Deployment as 1.36 does: the controllers' objects in the modern store, the pods in the
// core store.
func (w *writer) putNotebookController() {
	const image, set = "ghcr.io/kubeflow/notebook-controller:v1.10.0", "notebook-controller-6c9f5d7b8d"
	replicas := int32(2)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubeflow", Name: "notebook-controller", Generation: 1},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector("notebook-controller"),
			Template: template("notebook-controller", image)},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: replicas, ReadyReplicas: replicas,
			AvailableReplicas: replicas},
	}
	applied := metav1.NewTime(w.now)
	deployment.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1",
			Time: &applied, FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:replicas":{}}}`)}}}
	w.put("deployments", deployment)
	w.put("replicasets", &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubeflow", Name: set,
			OwnerReferences: owned("apps/v1", "Deployment", "kubeflow", "notebook-controller")},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector("notebook-controller"),
			Template: template("notebook-controller", image)},
		Status: appsv1.ReplicaSetStatus{Replicas: replicas},
	})
	for i, suffix := range []string{"hv6kp", "zr2jn"} {
		w.put("pods", w.pod("kubeflow", set+"-"+suffix, "notebook-controller", image, i+1,
			owned("apps/v1", "ReplicaSet", "kubeflow", set)))
	}
}

// putNotebook writes a custom resource, and the StatefulSet that its controller makes of it.
func (w *writer) putNotebook() {
	const image = "ghcr.io/kubeflow/notebook-servers/jupyter-scipy:v1.10.0"
	one := int32(1)
	w.putJSON("kubeflow.org", "notebooks", "kubeflow", "research", map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": "Notebook",
		"spec": map[string]any{"template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "research", "image": image}}}}},
	})
	w.put("statefulsets", &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubeflow", Name: "research",
			OwnerReferences: owned("kubeflow.org/v1", "Notebook", "kubeflow", "research")},
		Spec: appsv1.StatefulSetSpec{Replicas: &one, ServiceName: "research", Selector: selector("research"),
			Template: template("research", image)},
		Status: appsv1.StatefulSetStatus{Replicas: one},
	})
	w.put("controllerrevisions", &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubeflow", Name: "research-5d8c7f9b6c",
			OwnerReferences: owned("apps/v1", "StatefulSet", "kubeflow", "research")},
		Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{}}}`)}, Revision: 1,
	})
	w.put("pods",
		w.pod("kubeflow", "research-0", "research", image, 3, owned("apps/v1", "StatefulSet", "kubeflow", "research")))
}

// putTraining writes a Job.
func (w *writer) putTraining() {
	const image = "registry.example.com/ml/train:12"
	one, started := int32(1), metav1.NewTime(w.now.Add(-time.Minute))
	podTemplate := template("train", image)
	podTemplate.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.put("jobs", &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubeflow", Name: "train"},
		Spec: batchv1.JobSpec{Parallelism: &one, Completions: &one, Selector: selector("train"),
			Template: podTemplate},
		Status: batchv1.JobStatus{Active: 1, StartTime: &started},
	})
	w.put("pods", w.pod("kubeflow", "train-"+fmt.Sprintf("%.5s", uid("Job", "kubeflow", "train")), "train", image, 1,
		owned("batch/v1", "Job", "kubeflow", "train")))
}
