package roles_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/policy/roles"
)

// TestBindingsThatWakeAreNamed: while an API server consults no roles, who may write bindings there binds what it
// likes.
func TestBindingsThatWakeAreNamed(t *testing.T) {
	object := func(kind, namespace, name string) roles.Object {
		return roles.Object{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	binding := func(kind, namespace, name, role string, subjects ...rbacv1.Subject) roles.Object {
		o := object(kind, namespace, name)
		o.RoleRef, o.Subjects = &rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, subjects
		return o
	}
	labelled := func(o roles.Object) roles.Object {
		o.Labels = map[string]string{roles.Bootstrapping: "rbac-defaults"}
		return o
	}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
	}
	user := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: "User", Name: name} }
	admin, reader := object("ClusterRole", "", "admin"), object("ClusterRole", "", "reader")
	admin.Rules = []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	all, dns := admin, admin
	dns.Name = "system:kube-dns"
	all.Name = "cluster-admin"
	reader.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	before := []roles.Object{reader, binding("RoleBinding", "dev", "alice-reads", "reader", user("alice"))}
	copies, problems := roles.Copy(before, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	changed := copies.Apply(nil)[1]
	changed.Subjects = []rbacv1.Subject{user("mallory")}
	// who may write roles there writes one in the place of what a copy binds, or one that becomes a part of it
	more, everyones := reader, admin
	more.Rules, everyones.Name = admin.Rules, "system:discovery"
	view := object("ClusterRole", "", "view")
	view.Rules = reader.Rules
	view.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{"to-view": "true"}}}}
	part, planted := reader, admin
	part.Name, part.Labels = "part", map[string]string{"to-view": "true"}
	planted.Name, planted.Labels = "planted", part.Labels
	aggregating := []roles.Object{view, part, binding("RoleBinding", "dev", "alice-views", "view", user("alice"))}
	aggregates, problems := roles.Copy(aggregating, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	// what has the annotation of a copy is none: API servers give it a UID of theirs, and its original is not there
	forged, problems := roles.Copy([]roles.Object{everyones, binding("ClusterRoleBinding", "", "b", "cluster-admin",
		user("mallory"))}, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	asCreated := slices.Clone(forged.Apply(nil))
	for i := range asCreated {
		asCreated[i].UID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	}
	for name, test := range map[string]struct {
		there []roles.Object
		want  string
	}{
		"copies":      {copies.Apply(nil), ""},
		"what is had": {[]roles.Object{reader, binding("RoleBinding", "dev", "b", "reader", user("alice"))}, ""},
		"no role yet": {[]roles.Object{binding("RoleBinding", "dev", "b", "cluster-admin", user("mallory"))},
			"User mallory whatever clusterroles/cluster-admin will allow"},
		"no role, as before": {copies.Apply(nil)[1:], ""},
		"more": {[]roles.Object{admin, binding("RoleBinding", "dev", "b", "admin", user("alice"))},
			"rolebindings/dev/b"},
		"elsewhere": {[]roles.Object{reader, binding("RoleBinding", "ops", "b", "reader", user("alice"))},
			"User alice get pods in ops"},
		"everywhere": {[]roles.Object{admin, binding("ClusterRoleBinding", "", "b", "admin", user("mallory"))},
			"clusterrolebindings/b"},
		"a label": {[]roles.Object{admin, labelled(binding("RoleBinding", "dev", "b", "admin",
			user("system:x")))}, "rolebindings/dev/b"},
		"a default": {[]roles.Object{all, labelled(binding("ClusterRoleBinding", "", "cluster-admin", "cluster-admin",
			rbacv1.Subject{Kind: "Group", Name: "system:masters"}))}, ""},
		"not only one": {[]roles.Object{all, labelled(binding("ClusterRoleBinding", "", "cluster-admin",
			"cluster-admin", rbacv1.Subject{Kind: "Group", Name: "system:masters"}, user("mallory")))},
			"clusterrolebindings/cluster-admin"},
		"a default of a controller": {[]roles.Object{labelled(binding("ClusterRoleBinding", "",
			"system:controller:job-controller", "system:controller:job-controller",
			account("kube-system", "job-controller")))}, ""},
		"of no controller": {[]roles.Object{labelled(binding("ClusterRoleBinding", "", "system:controller:default",
			"system:controller:default", account("kube-system", "default")))}, "system:controller:default"},
		"of an addon that has more": {[]roles.Object{dns, labelled(binding("ClusterRoleBinding", "", "system:kube-dns",
			"system:kube-dns", account("kube-system", "kube-dns")))}, "system:kube-dns"},
		"of another controller": {[]roles.Object{labelled(binding("ClusterRoleBinding", "",
			"system:controller:job-controller", "system:controller:job-controller",
			account("kube-system", "default")))}, "job-controller"},
		"a label, of an account that pods have": {[]roles.Object{labelled(binding("ClusterRoleBinding", "", "x",
			"cluster-admin", account("kube-system", "default")))}, "clusterrolebindings/x"},
		"a label, of a component": {[]roles.Object{labelled(binding("ClusterRoleBinding", "", "x", "cluster-admin",
			user("system:kube-proxy")))}, "clusterrolebindings/x"},
		"the name of a default, of another role": {[]roles.Object{all, labelled(binding("ClusterRoleBinding", "",
			"system:node-proxier", "cluster-admin", user("system:kube-proxy")))}, "system:node-proxier"},
		"an old copy": {append([]roles.Object{reader}, changed), "User mallory get pods in dev"},
		"a label, of everyone": {[]roles.Object{admin, labelled(binding("ClusterRoleBinding", "", "system:discovery",
			"admin", rbacv1.Subject{Kind: "Group", Name: "system:authenticated"}))},
			"clusterrolebindings/system:discovery"},
		"a label, of a namespace": {[]roles.Object{admin, labelled(binding("ClusterRoleBinding", "", "system:x",
			"admin", rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:dev"}))},
			"Group system:serviceaccounts:dev * *.*"},
		"a label, of an account": {[]roles.Object{admin, labelled(binding("RoleBinding", "kube-system", "system:x",
			"admin", user("system:serviceaccount:dev:default")))}, "rolebindings/kube-system/system:x"},
		"a forged copy of a role that is everyone's": {asCreated[:1], "clusterroles/system:discovery"},
		"a forged copy of a binding":                 {asCreated[1:], "User mallory whatever"},
		"a copy of nothing, that was changed":        {forged.Apply(nil)[1:], "User mallory whatever"},
		"a role that is everyone's": {[]roles.Object{everyones}, "clusterroles/system:discovery [Group " +
			"system:authenticated * *.*]"},
		"a copy that binds more": {[]roles.Object{labelled(more), copies.Apply(nil)[1]}, "User alice * *.* in dev"},
		"a copy of what others are in": {aggregates.Apply([]roles.Object{planted}),
			"User alice * *.* in dev"},
		"a copy of what others are in, as they were": {aggregates.Apply(nil), ""},
	} {
		before := before
		if strings.Contains(name, "others are in") {
			before = aggregating
		}
		got := roles.WakingOf(before, test.there)
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(fmt.Sprint(got),
			test.want)) {
			t.Errorf("%s: %v, want %q", name, got, test.want)
		}
	}
}
