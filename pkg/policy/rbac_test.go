package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestToRBAC(t *testing.T) {
	rules := []Rule{
		{Group: "devs", APIGroup: "apps", Resource: "deployments", Namespace: "a", Line: 1},
		{Group: "devs", Resource: "pods", Namespace: "a", Readonly: true, Line: 2},
		{Group: "devs", Resource: "pods", Namespace: "a", Readonly: true, Line: 3},
		{User: "system:serviceaccount:ci:bot", Resource: "*", Namespace: "*", Line: 4},
		{User: "alice", NonResourcePath: "/metrics*", Readonly: true, Line: 5},
		{User: "alice", Resource: "nodes", Readonly: true, Line: 6},
		{User: "*", NonResourcePath: "/healthz", Readonly: true, Line: 7},
		{User: "a/b c", APIGroup: "example.com", Resource: "widgets", Namespace: "a", Line: 8},
		{User: "alice", Group: "devs", Resource: "secrets", Namespace: "a", Line: 9},
		{User: "alice", Resource: "secrets", Line: 10},
		{Group: GroupMasters, Resource: "secrets", Namespace: "*", Line: 11},
		// each namespace is in itself, to ABAC as well
		{User: "carol", Resource: "namespaces", Line: 12},
		{User: "dave", Resource: "namespaces", Readonly: true, Line: 13},
		// no request has these words
		{User: "erin", Resource: "pods/exec", Namespace: "*", Line: 14},
		{User: "erin", Resource: "*/exec", Namespace: "*", Line: 15},
		{User: "erin", Resource: "pods", Namespace: "a/b", Line: 16},
	}
	out := ToRBAC(rules, nil)
	got := map[string]string{}
	object := func(name string, value any) {
		text, err := yaml.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(text)
	}
	for _, r := range out.ClusterRoles {
		object("ClusterRole "+r.Name, r.Rules)
	}
	for _, r := range out.Roles {
		object("Role "+r.Namespace+" "+r.Name, r.Rules)
	}
	for _, b := range out.ClusterRoleBindings {
		object("ClusterRoleBinding "+b.Name, []any{b.Subjects, b.RoleRef.Kind, b.RoleRef.Name})
	}
	for _, b := range out.RoleBindings {
		object("RoleBinding "+b.Namespace+" "+b.Name, []any{b.Subjects, b.RoleRef.Kind, b.RoleRef.Name})
	}
	binds := func(name string) string {
		return "- - apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: " + name + "\n- ClusterRole\n- " +
			"abac:user:" + name + "\n"
	}
	want := map[string]string{
		"ClusterRole abac:user:carol": "- apiGroups:\n  - \"\"\n  resources:\n  - namespaces\n  verbs:\n  - create\n" +
			"  - deletecollection\n  - list\n  - watch\n",
		"ClusterRole abac:user:dave": "- apiGroups:\n  - \"\"\n  resources:\n  - namespaces\n  verbs:\n  - list\n" +
			"  - watch\n",
		"ClusterRoleBinding abac:user:carol": binds("carol"), "ClusterRoleBinding abac:user:dave": binds("dave"),
		"ClusterRole abac:everybody": "- nonResourceURLs:\n  - /healthz\n  verbs:\n  - get\n " +
			" - list\n  - watch\n",
		"ClusterRole abac:user:alice": "- apiGroups:\n  - \"\"\n  resources:\n  - nodes\n  - " +
			"nodes/proxy\n  - nodes/status\n  verbs:\n  - get\n  - list\n  - watch\n- nonResourceURLs:\n  - " +
			"/metrics*\n  verbs:\n  - get\n  - list\n  - watch\n",
		"ClusterRole abac:user:system:serviceaccount:ci:bot": "- apiGroups:\n" +
			"  - \"\"\n  resources:\n  - '*'\n  verbs:\n  - '*'\n",
		"Role a abac:group:devs": "- apiGroups:\n  - \"\"\n  resources:\n  - pods\n  - pods/attach\n  - " +
			"pods/binding\n  - pods/ephemeralcontainers\n  - pods/eviction\n  - pods/exec\n  - pods/log\n  - " +
			"pods/portforward\n  - pods/proxy\n  - pods/resize\n  - pods/status\n  verbs:\n  - get\n  - list\n  - " +
			"watch\n" +
			"- apiGroups:\n  - apps\n  resources:\n  - deployments\n  - deployments/rollback\n  - deployments/scale\n" +
			"  - deployments/status\n  verbs:\n  - '*'\n",
		"Role a abac:user:a-b-c-d854b668": "- apiGroups:\n  - example.com\n  resources:\n  - widgets\n  - " +
			"widgets/scale\n  - widgets/status\n  verbs:\n  - '*'\n",

		"ClusterRoleBinding abac:everybody": "- - apiGroup: rbac.authorization.k8s.io\n    " +
			"kind: Group\n    name: system:authenticated\n  - apiGroup: rbac.authorization.k8s.io\n    kind: Group\n " +
			"   name: system:unauthenticated\n- ClusterRole\n- abac:everybody\n",
		"ClusterRoleBinding abac:user:alice": "- - apiGroup: rbac.authorization.k8s.io\n    " +
			"kind: User\n    name: alice\n- ClusterRole\n- abac:user:alice\n",
		"ClusterRoleBinding abac:user:system:serviceaccount:ci:bot": "- - kind: ServiceAccount\n    name: bot\n    " +
			"namespace: ci\n- ClusterRole\n- abac:user:system:serviceaccount:ci:bot\n",
		"RoleBinding a abac:group:devs": "- - apiGroup: rbac.authorization.k8s.io\n    kind: Group\n    " +
			"name: devs\n- Role\n- abac:group:devs\n",
		"RoleBinding a abac:user:a-b-c-d854b668": "- - apiGroup: rbac.authorization.k8s.io\n    kind: User\n    " +
			"name: a/b c\n- Role\n- abac:user:a-b-c-d854b668\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ToRBAC (-want +got):\n%s", diff)
	}
	var gaps []int
	for _, g := range out.Gaps {
		gaps = append(gaps, g.Line)
	}
	if diff := cmp.Diff([]int{8, 9, 10, 11}, gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// TestSubresourcesOfWhatIsDefined are status and scale, and no more; of another group's resources there may be more.
func TestSubresourcesOfWhatIsDefined(t *testing.T) {
	catalog := NewCatalog()
	if err := catalog.AddCRDs("crds", []byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1",`+
		`"kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.test"},"spec":{"group":"example.test",`+
		`"scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"}}}`)); err != nil {
		t.Fatal(err)
	}
	rules := []Rule{
		{User: "a", APIGroup: "example.test", Resource: "widgets", Namespace: "demo", Line: 1},
		{User: "b", APIGroup: "events.k8s.io", Resource: "configmaps", Namespace: "demo", Line: 2}, // there is none
		{User: "c", APIGroup: "aggregated.test", Resource: "widgets", Namespace: "demo", Line: 3},
		{User: "d", APIGroup: "*", Resource: "widgets", Namespace: "demo", Line: 4},
		{User: "e", APIGroup: "custom.metrics.k8s.io", Resource: "pods", Namespace: "demo", Line: 5},
	}
	gaps := func(catalog *Catalog) (lines []int) {
		for _, g := range ToRBAC(rules, catalog).Gaps {
			lines = append(lines, g.Line)
		}
		return lines
	}
	if diff := cmp.Diff([]int{3, 4, 5}, gaps(catalog)); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 3, 4, 5}, gaps(nil)); diff != "" {
		t.Errorf("gaps without the definition (-want +got):\n%s", diff)
	}
	want := []string{"widgets", "widgets/scale", "widgets/status"}
	if diff := cmp.Diff(want, ToRBAC(rules[:1], catalog).Roles[0].Rules[0].Resources); diff != "" {
		t.Errorf("the role's resources (-want +got):\n%s", diff)
	}
}

// TestDefinitionsOfWhatIsBuiltInSayNothing: whoever may create definitions may create one of a group of Kubernetes, and
// would turn a rule for one namespace, or for none, into a role for all.
func TestDefinitionsOfWhatIsBuiltInSayNothing(t *testing.T) {
	catalog := NewCatalog()
	for _, name := range []string{"networkpolicies.networking.k8s.io",
		"certificatesigningrequests.certificates.k8s.io"} {
		plural, group, _ := strings.Cut(name, ".")
		if err := catalog.AddCRDs("store core", []byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1",`+
			`"kind":"CustomResourceDefinition","metadata":{"name":"`+name+`"},"spec":{"group":"`+group+`",`+
			`"scope":"Cluster","names":{"plural":"`+plural+`","kind":"Mine"}}}`)); err != nil {
			t.Fatal(err)
		}
	}
	rules := []Rule{
		{User: "a", APIGroup: "networking.k8s.io", Resource: "networkpolicies", Line: 1},
		{User: "b", APIGroup: "networking.k8s.io", Resource: "networkpolicies", Namespace: "demo", Line: 2},
		{User: "c", APIGroup: "certificates.k8s.io", Resource: "certificatesigningrequests", Namespace: "*", Line: 3},
	}
	if diff := cmp.Diff(ToRBAC(rules, NewCatalog()), ToRBAC(rules, catalog)); diff != "" {
		t.Errorf("ToRBAC (-without definitions +with them):\n%s", diff)
	}
}
