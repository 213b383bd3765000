package demo

import (
	"encoding/json"
	"fmt"
	"time"

	appsv1beta1 "k8s.io/api/apps/v1beta1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// fillLegacy writes the cluster as 1.6 has kept it for years.
func (w *writer) fillLegacy() {
	w.side = pair.Legacy
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
		"shop"} {
		w.putNamespace(namespace)
		w.putTokenSecret(namespace)
	}
	for i := 1; i <= 3; i++ {
		w.putNode(i)
	}
	for _, s := range services() {
		w.putService(s)
	}
	w.putRanges()
	w.putLocks(func(l pair.Lock, holder string) {
		w.put(l.Resource,
			&corev1.Endpoints{
				ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, Annotations: map[string]string{
					"control-plane.alpha.kubernetes.io/leader": w.leaderRecord(holder)}}})
	})
	w.putLegacyWeb()
	w.putLegacyDatabase()
	w.putLegacyProxy()
	w.putEvent("shop", "Deployment", "extensions/v1beta1", "web", "ScalingReplicaSet",
		"Scaled up replica set web-1564382901 to 3")
}

func (w *writer) leaderRecord(holder string) string {
	record, err := json.Marshal(map[string]any{
		"holderIdentity": holder, "leaseDurationSeconds": 15, "leaderTransitions": 4,
		"acquireTime": w.now.Add(-time.Hour).UTC().Format(time.RFC3339), "renewTime": w.now.UTC().Format(time.RFC3339),
	})
	if err != nil {
		w.errs = append(w.errs, err)
	}
	return string(record)
}

func (w *writer) putNamespace(name string) {
	w.put("namespaces", &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	if w.side == pair.Legacy {
		account.Secrets = []corev1.ObjectReference{{Name: tokenSecret}}
	}
	w.put("serviceaccounts", account)
}

const tokenSecret = "default-token-x7k2p"

// putTokenSecret writes the token that the legacy token controller makes for a service account.
func (w *writer) putTokenSecret(namespace string) {
	w.put("secrets", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tokenSecret, Annotations: map[string]string{
			"kubernetes.io/service-account.name": "default",
			"kubernetes.io/service-account.uid":  string(uid("ServiceAccount", namespace, "default")),
		}},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"namespace": []byte(namespace), "token": []byte("not-a-token"),
			"ca.crt": []byte("not-a-certificate")},
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func (w *writer) putNode(i int) {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	w.put("minions", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i),
			Labels: map[string]string{"kubernetes.io/hostname": nodeName(i)}},
		Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.244.%d.0/24", i)},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", 20+i)}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: metav1.NewTime(w.now),
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v" + w.plan.Kubelet.String()},
		},
	})
}

func (w *writer) putService(s service) {
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: w.clusterIP(s.address),
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: "main", Protocol: corev1.ProtocolTCP, Port: s.port,
				TargetPort: intstr.FromInt32(s.port), NodePort: s.nodePort}},
		},
	}
	if s.nodePort != 0 {
		object.Spec.Type = corev1.ServiceTypeNodePort
	}
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
	subset := corev1.EndpointSubset{
		Ports: []corev1.EndpointPort{{Name: "main", Port: s.port, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range s.backends {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: ip})
	}
	if s.name == "kubernetes" {
		subset.Addresses = []corev1.EndpointAddress{{IP: w.plan.Hosts[0].Address}}
		subset.Ports[0].Port = int32(w.plan.Side(w.side).Port)
	} else {
		object.Spec.Selector = map[string]string{"app": s.name}
	}
	endpoints.Subsets = []corev1.EndpointSubset{subset}
	w.put("services/specs", object)
	w.put("services/endpoints", endpoints)
}

// owned is the reference of a dependent to the controller that made it.
func owned(apiVersion, kind, namespace, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid(kind, namespace, name),
		Controller: &yes, BlockOwnerDeletion: &yes}}
}

// pod is what a kubelet runs. The legacy side mounts the token secret; the modern one has no other way than a projected
// volume.
func (w *writer) pod(namespace, name, app, image string, node int, owners []metav1.OwnerReference) *corev1.Pod {
	token := corev1.Volume{Name: "token"}
	if w.side == pair.Legacy {
		token.Secret = &corev1.SecretVolumeSource{SecretName: tokenSecret}
	} else {
		expires := int64(3607)
		token.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expires, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
		}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app},
			OwnerReferences: owners},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: app, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				VolumeMounts: []corev1.VolumeMount{
					{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{token}, NodeName: nodeName(node), ServiceAccountName: "default",
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
			SchedulerName: "default-scheduler",
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: fmt.Sprintf("10.0.0.%d", 20+node),
			PodIP:      fmt.Sprintf("10.244.%d.%d", node, 10+node),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func template(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: app, Image: image}},
			RestartPolicy: corev1.RestartPolicyAlways},
	}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// putLegacyWeb writes a Deployment with everything that follows from it, an Ingress and an autoscaler.
func (w *writer) putLegacyWeb() {
	const image, set = "registry.example.com/shop/web:4.2", "web-1564382901"
	replicas := int32(3)
	w.put("deployments", &extensionsv1beta1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: extensionsv1beta1.DeploymentSpec{Replicas: &replicas, Selector: selector("web"),
			Template: template("web", image)},
		Status: extensionsv1beta1.DeploymentStatus{Replicas: replicas, ReadyReplicas: replicas,
			AvailableReplicas: replicas},
	})
	w.put("replicasets", &extensionsv1beta1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: set,
			OwnerReferences: owned("extensions/v1beta1", "Deployment", "shop", "web")},
		Spec: extensionsv1beta1.ReplicaSetSpec{Replicas: &replicas, Selector: selector("web"),
			Template: template("web", image)},
		Status: extensionsv1beta1.ReplicaSetStatus{Replicas: replicas},
	})
	for i, suffix := range []string{"2kq8d", "9xh4v", "tm5zs"} {
		w.put("pods",
			w.pod("shop", set+"-"+suffix, "web", image, i+1, owned("extensions/v1beta1", "ReplicaSet", "shop", set)))
	}
	w.put("ingress", &extensionsv1beta1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: extensionsv1beta1.IngressSpec{Rules: []extensionsv1beta1.IngressRule{{
			Host: "shop.example.com",
			IngressRuleValue: extensionsv1beta1.IngressRuleValue{
				HTTP: &extensionsv1beta1.HTTPIngressRuleValue{Paths: []extensionsv1beta1.HTTPIngressPath{{
					Path: "/", Backend: extensionsv1beta1.IngressBackend{ServiceName: "web",
						ServicePort: intstr.FromInt32(80)}}}}},
		}}},
	})
	w.put("horizontalpodautoscalers", &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 10,
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{
				APIVersion: "extensions/v1beta1", Kind: "Deployment", Name: "web"}},
	})
	w.put("configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Data: map[string]string{"shop.conf": "currency = EUR\n"}})
}

// putLegacyDatabase writes a StatefulSet with its volume.
func (w *writer) putLegacyDatabase() {
	const image = "registry.example.com/shop/postgres:9.6"
	one, class, size := int32(1), "fast", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")}
	w.put("statefulsets", &appsv1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: appsv1beta1.StatefulSetSpec{Replicas: &one, ServiceName: "db", Selector: selector("db"),
			Template: template("db", image)},
		Status: appsv1beta1.StatefulSetStatus{Replicas: one},
	})
	w.put("pods", w.pod("shop", "db-0", "db", image, 2, owned("apps/v1beta1", "StatefulSet", "shop", "db")))
	w.put("storageclasses", &storagev1beta1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class},
		Provisioner: "kubernetes.io/rbd"})
	w.put("persistentvolumes", &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-db-0"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop",
				Name: "data-db-0", UID: uid("PersistentVolumeClaim", "shop", "data-db-0")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				RBD: &corev1.RBDPersistentVolumeSource{CephMonitors: []string{"10.0.0.31:6789"}, RBDImage: "db-0"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	})
	w.put("persistentvolumeclaims", &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			VolumeName: "pv-db-0",
			Resources:  corev1.VolumeResourceRequirements{Requests: size},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
	})
}

// putLegacyProxy writes a DaemonSet.
func (w *writer) putLegacyProxy() {
	const image = "registry.example.com/kube/hyperkube:v1.6.13-acme.4"
	w.put("daemonsets", &extensionsv1beta1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"},
		Spec: extensionsv1beta1.DaemonSetSpec{Selector: selector("kube-proxy"),
			Template: template("kube-proxy", image)},
		Status: extensionsv1beta1.DaemonSetStatus{CurrentNumberScheduled: 3, DesiredNumberScheduled: 3, NumberReady: 3},
	})
	for i, suffix := range []string{"4fj7c", "bn0wq", "q82lx"} {
		w.put("pods", w.pod(metav1.NamespaceSystem, "kube-proxy-"+suffix, "kube-proxy", image, i+1,
			owned("extensions/v1beta1", "DaemonSet", metav1.NamespaceSystem, "kube-proxy")))
	}
}

func (w *writer) putEvent(namespace, kind, apiVersion, name, reason, message string) {
	w.put("events", &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + ".14f2a51c8e3b7d06"},
		InvolvedObject: corev1.ObjectReference{Kind: kind, APIVersion: apiVersion, Namespace: namespace, Name: name,
			UID: uid(kind, namespace, name)},
		Reason: reason, Message: message, Type: corev1.EventTypeNormal, Count: 1,
		FirstTimestamp: metav1.NewTime(w.now), LastTimestamp: metav1.NewTime(w.now),
		Source: corev1.EventSource{Component: "controllermanager"},
	})
}
