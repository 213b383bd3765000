package policy

import "slices"

// Power is a resource with which a permission reaches further than its objects. Shape: the clauses continue a sentence
// whose subject is the user.
type Power struct {
	Group, Resource string // as an API server serves it
	// PodsBy is the controller that creates pods for its objects, by its name since 1.28; "" for none.
	PodsBy string
	// Account is what permission to write it in kube-system includes, as regards the service accounts there;
	// AccountRead, permission to read it.
	Account, AccountRead string
	// Opens is what its subresources give to those that may write it, OpensRead to those that may read it.
	Opens, OpensRead string
	// Acts: who writes it can act as others by the authorization, admission or extensions that its objects configure.
	Acts bool
}

const byTemplate = "may have pods created there that run as any service account: the controller creates what the " +
	"template says"

// Powers lists them, what concerns service accounts first. Absent are podtemplates, from which no controller of any
// release creates pods, and horizontalpodautoscalers, which change how many pods a template has and not what it says.
func Powers() []Power {
	return []Power{
		{Resource: "pods", Account: "may create a pod there that runs as any service account",
			Opens:     "exec, attach, port-forward and proxy",
			OpensRead: "exec, attach and port-forward over websockets, and proxy"},
		{Resource: "secrets",
			Account: "may act as any service account there: permission to get and list their tokens, " +
				"and to create more",
			AccountRead: "may act as service accounts there that have token secrets: permission to get and list these"},
		{Resource: "serviceaccounts", Account: "may request a token of any service account there"},
		{Resource: "replicationcontrollers", PodsBy: "replicationcontroller-controller", Account: byTemplate},
		{Group: "batch", Resource: "cronjobs", PodsBy: "cronjob-controller", Account: byTemplate},
		// Its data are immutable, but the one that a StatefulSet is at can be deleted and created again, with other
		// data.
		{Group: "apps", Resource: "controllerrevisions", PodsBy: "statefulset-controller",
			Account: "may have pods of StatefulSets created there that run as any service account: while a rollout " +
				"lasts, the controller creates those that are still to be updated from their revision"},
		{Group: "apps", Resource: "daemonsets", PodsBy: "daemonset-controller", Account: byTemplate},
		{Group: "apps", Resource: "deployments", PodsBy: "deployment-controller", Account: byTemplate},
		{Group: "batch", Resource: "jobs", PodsBy: "job-controller", Account: byTemplate},
		{Group: "apps", Resource: "replicasets", PodsBy: "replicaset-controller", Account: byTemplate},
		{Group: "apps", Resource: "statefulsets", PodsBy: "statefulset-controller", Account: byTemplate},
		{Resource: "nodes", Acts: true, Opens: "the proxy to every kubelet", OpensRead: "the proxy to every kubelet"},
		{Resource: "services", Opens: "the proxy to every service endpoint",
			OpensRead: "the proxy to every service endpoint, by GET"},
		{Group: "rbac.authorization.k8s.io", Resource: "roles", Acts: true},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Acts: true},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Acts: true},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings", Acts: true},
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Acts: true},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Acts: true},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Acts: true},
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Acts: true},
		{Group: "apiregistration.k8s.io", Resource: "apiservices", Acts: true},
	}
}

// ActsAsOthers lists the resources of a grant whose writers can act as others; nil for a grant that only reads. A "*"
// is not among them.
func (g *Grant) ActsAsOthers() []string {
	if g.ReadOnly {
		return nil
	}
	var named []string
	for _, p := range Powers() {
		if (p.Account != "" || p.Acts) && slices.Contains(g.Resources, p.Resource) {
			named = append(named, p.Resource)
		}
	}
	return named
}
