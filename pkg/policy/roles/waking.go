package roles

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Waking is a binding of an API server that has consulted none yet. Once it does, subjects may do by it what nothing
// has allowed them before.
type Waking struct {
	Key  string   `json:"key"`
	Then []Change `json:"then"`
}

// WakingOf lists those of some objects, where before is what allows something by now. Who may write bindings there, by
// a policy that says nothing of what they bind, has had time to. Copies, and what API servers create by themselves, are
// none of them.
func WakingOf(before, there []Object) (waking []Waking) {
	was, all := rightsOf(before), settled(there)
	known, left := byKey(all), newBudget()
	for i := range all {
		b := &all[i]
		copied, unchanged := b.isCopy()
		if !b.isBinding() || copied && unchanged || b.isDefault() || known[b.refersTo()] == nil {
			continue
		}
		if more := was.lack(rightsOf([]Object{*b, *known[b.refersTo()]}), left); len(more) > 0 {
			waking = append(waking, Waking{Key: b.Key(), Then: more})
		}
	}
	return waking
}

// isDefault reports whether a binding is one that API servers create, of what is Kubernetes' own: a label alone is
// written by any user. Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy of every version from 1.6 on.
func (o *Object) isDefault() bool {
	return o.bootstraps() && slices.Contains([]string{"", "kube-system", "kube-public"}, o.Namespace) &&
		!slices.ContainsFunc(o.Subjects, func(s rbacv1.Subject) bool {
			return !strings.HasPrefix(s.Name, "system:") && (s.Kind != rbacv1.ServiceAccountKind ||
				s.Namespace != "kube-system")
		})
}
