package roles

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Waking is a binding of an API server that has consulted none yet. Once it does, subjects may do by it what nothing
// has allowed them before.
type Waking struct {
	Key  string   `json:"key"`
	Then []Change `json:"then"`
}

// WakingOf lists those of some objects, where before is what allows something by now. Who may write roles and bindings
// there, by a policy that says nothing of what they allow, has had time to. A copy is one of them where what it binds
// allows more than the original: another role has its name, or others are aggregated into it. So is a binding to a role
// that is not there: API servers create their own when they begin to consult roles, and bind some of them to everyone.
// One that is there already keeps what it allows. What they bind for components of Kubernetes itself is none.
func WakingOf(before, there []Object) (waking []Waking) {
	was, all := rightsOf(before), settled(there)
	known, had, left := byKey(all), byKey(before), newBudget()
	for i := range all {
		b := &all[i]
		if !b.isBinding() || b.isDefault() {
			continue
		}
		var more []Change
		if role := known[b.refersTo()]; role != nil {
			more = was.lack(rightsOf([]Object{*b, *role}), left)
		} else if !b.isCopyOf(had[b.Key()]) {
			for _, subject := range subjectsOf(b) {
				more = append(more, Change{Subject: subject, Namespace: b.Namespace,
					Rule: "whatever " + b.refersTo() + " will allow, which is not there yet"})
			}
		}
		if len(more) > 0 {
			waking = append(waking, Waking{Key: b.Key(), Then: more})
		}
	}
	for _, name := range everyones {
		b := Object{TypeMeta: metav1.TypeMeta{Kind: clusterRoleBinding}, ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: &rbacv1.RoleRef{Kind: clusterRole, Name: name}, Subjects: everyone}
		role := known[b.refersTo()]
		if role == nil || known[b.Key()] != nil { // it was judged
			continue
		}
		if role.isCopyOf(had[role.Key()]) {
			continue
		}
		if more := was.lack(rightsOf([]Object{b, *role}), left); len(more) > 0 {
			waking = append(waking, Waking{Key: role.Key(), Then: more})
		}
	}
	return waking
}

// isCopyOf reports whether an object is the copy of another one as that is now. An annotation alone is written by any
// client that may change a copy.
func (o *Object) isCopyOf(original *Object) bool {
	_, unchanged := o.isCopy()
	return unchanged && original != nil && o.Annotations[Copied] == original.digest()
}

// everyones are the roles that API servers bind to everyone, or to every service account. Source: bootstrappolicy, as
// for components.
var everyones = []string{"system:basic-user", "system:discovery", "system:public-info-viewer",
	"system:service-account-issuer-discovery", "system:cluster-trust-bundle-discovery"}

var everyone = []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:authenticated"}}

// bound are the bindings that API servers create for Kubernetes' own components, to the role of their name, with their
// subjects. Those of controllers are not among them: each is of the account of its name. Nor are those for everyone,
// nor those of accounts that pods of addons have: they are judged by what they allow.
// Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy of every version from 1.6 on.
var bound = map[string][]string{
	"clusterrolebindings/cluster-admin":                  {"Group system:masters"},
	"clusterrolebindings/system:kube-controller-manager": {"User system:kube-controller-manager"},
	"clusterrolebindings/system:kube-scheduler":          {"User system:kube-scheduler"},
	"clusterrolebindings/system:monitoring":              {"Group system:monitoring"},
	"clusterrolebindings/system:node":                    {},
	"clusterrolebindings/system:node-proxier":            {"User system:kube-proxy"},
	"clusterrolebindings/system:volume-scheduler":        {"User system:kube-scheduler"},
	"rolebindings/kube-system/system::extension-apiserver-authentication-reader": {
		"User system:kube-controller-manager", "User system:kube-scheduler"},
	"rolebindings/kube-system/system::leader-locking-kube-controller-manager": {
		"User system:kube-controller-manager", "ServiceAccount kube-system/kube-controller-manager",
		"ServiceAccount kube-system/leader-election-controller"},
	"rolebindings/kube-system/system::leader-locking-kube-scheduler": {
		"User system:kube-scheduler", "ServiceAccount kube-system/kube-scheduler"},
}

// roleNames are roles of another name than that of their binding in bound.
var roleNames = map[string]string{
	"system::extension-apiserver-authentication-reader": "extension-apiserver-authentication-reader",
}

// controllers are those of Kubernetes for which API servers create roles, each with an account of its name in
// kube-system, which no pod has. Source: as for bound.
var controllers = strings.Fields(`attachdetach-controller bootstrap-signer certificate-controller cloud-provider
	clusterrole-aggregation-controller cronjob-controller daemon-set-controller deployment-controller
	device-taint-eviction-controller disruption-controller endpoint-controller endpointslice-controller
	endpointslicemirroring-controller ephemeral-volume-controller expand-controller generic-garbage-collector
	horizontal-pod-autoscaler job-controller kube-apiserver-serving-clustertrustbundle-publisher
	legacy-service-account-token-cleaner namespace-controller node-controller persistent-volume-binder
	pod-garbage-collector podcertificaterequestcleaner podgroup-protection-controller pv-protection-controller
	pvc-protection-controller replicaset-controller replication-controller resource-claim-controller
	resourcepoolstatusrequest-controller resourcequota-controller root-ca-cert-publisher route-controller
	selinux-warning-controller service-account-controller service-cidrs-controller service-controller
	statefulset-controller storage-version-garbage-collector storage-version-migrator-controller token-cleaner
	ttl-after-finished-controller ttl-controller validatingadmissionpolicy-status-controller
	volumeattributesclass-protection-controller`)

// isDefault reports whether a binding is one that API servers create for Kubernetes' own components: its name, what it
// binds and to whom. Its label alone is written by any user, and accounts of kube-system may be anyone's who may run
// something there.
func (o *Object) isDefault() bool {
	if !o.bootstraps() || o.RoleRef == nil || o.RoleRef.Name != cmp.Or(roleNames[o.Name], o.Name) {
		return false
	}
	subjects, is := bound[o.Key()]
	controller, _ := strings.CutPrefix(o.Name, "system:controller:")
	if slices.Contains(controllers, controller) && controller != o.Name &&
		slices.Contains([]string{"", metav1.NamespaceSystem, metav1.NamespacePublic}, o.Namespace) {
		subjects, is = []string{"ServiceAccount kube-system/" + controller}, true
	}
	return is && !slices.ContainsFunc(o.Subjects, func(s rbacv1.Subject) bool {
		name := s.Kind + " " + s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			name = s.Kind + " " + s.Namespace + "/" + s.Name
		}
		return !slices.Contains(subjects, name)
	})
}
