package abacdiff

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/policy/roles"
)

func pointers[T any](values []T) []*T {
	all := make([]*T, len(values))
	for i := range values {
		all[i] = &values[i]
	}
	return all
}

// rbacRule is a rule of resources that exist, as a policy that is translated would have.
func (c chance) rbacRule() policy.Rule {
	r := policy.Rule{Readonly: c.IntN(2) == 0}
	switch c.IntN(6) {
	case 0, 1:
		r.User = c.pick("alice", "bob", "system:serviceaccount:a:bot")
	case 2, 3:
		r.Group = c.pick("devs", "ops", "system:authenticated", "system:masters")
	case 4:
		r.User, r.Group = c.pick("alice", "bob"), c.pick("devs", "ops")
	default:
		r.User = "*"
	}
	if c.IntN(3) == 0 {
		r.NonResourcePath = c.pick("/metrics", "/apis/*", "*", "/api*")
	}
	if c.IntN(4) > 0 {
		r.APIGroup, r.Namespace = c.pick("", "apps", "*"), c.pick("", "a", "b", "*")
		r.Resource = c.pick("pods", "nodes", "deployments", "namespaces", "pods/exec", "*/exec", "*")
	}
	return r
}

func (c chance) rbacRequest() *authorizer.AttributesRecord {
	info := &user.DefaultInfo{Name: c.pick("alice", "bob", "system:serviceaccount:a:bot", "system:anonymous"),
		Groups: []string{"system:authenticated"}}
	if info.Name == "system:anonymous" {
		info.Groups = []string{"system:unauthenticated"}
	} else {
		for range c.IntN(3) {
			info.Groups = append(info.Groups, c.pick("devs", "ops"))
		}
	}
	a := &authorizer.AttributesRecord{User: info,
		Verb: c.pick("get", "list", "watch", "create", "update", "delete", "deletecollection", "impersonate")}
	if a.ResourceRequest = c.IntN(3) > 0; !a.ResourceRequest {
		a.Path = c.pick("/metrics", "/api", "/apis/apps", "/")
		return a
	}
	what := [][3]string{{"", "pods", "log"}, {"", "pods", "exec"}, {"", "nodes", "proxy"},
		{"apps", "deployments", "scale"}, {"", "users", ""}, {"", "namespaces", "finalize"}}[c.IntN(6)]
	a.APIGroup, a.Resource = what[0], what[1]
	if c.IntN(2) == 0 {
		a.Subresource = what[2]
	}
	switch {
	case a.Resource == "namespaces" && slices.Contains([]string{"list", "watch", "create", "deletecollection"}, a.Verb):
		a.Subresource = "" // of all of them
	case a.Resource == "namespaces": // each is in itself, as RequestInfo has it
		a.Namespace = c.pick("a", "b", "c")
		a.Name = a.Namespace
	case a.Resource != "nodes" && a.Resource != "users":
		a.Namespace = c.pick("", "a", "b", "c")
	}
	return a
}

// TestTranslationAgreesWithTheServersRBAC asks the server's RBAC authorizer, loaded with what ToRBAC made of a policy,
// and the ABAC one. RBAC must never allow more, and less only where a gap says so.
func TestTranslationAgreesWithTheServersRBAC(t *testing.T) {
	c := chance{rand.New(rand.NewPCG(4, 4))}
	file := filepath.Join(t.TempDir(), "policy")
	compared, allowed, explained := 0, 0, 0
	for compared < decisions(t)/10 {
		var rules []policy.Rule
		for range 1 + c.IntN(6) {
			rules = append(rules, c.rbacRule())
		}
		theirs, ours := readBoth(t, file, policy.Format([]policy.Section{{Rules: rules}}))
		translated := policy.ToRBAC(ours, nil)
		_, static := validation.NewTestRuleResolver(pointers(translated.Roles), pointers(translated.RoleBindings),
			pointers(translated.ClusterRoles), pointers(translated.ClusterRoleBindings))
		roles := rbac.New(static, static, static, static)
		gaps := map[int]bool{}
		for _, g := range translated.Gaps {
			gaps[g.Line] = true
		}
		var inGap []policy.Rule
		for _, r := range ours {
			if gaps[r.Line] {
				inGap = append(inGap, r)
			}
		}
		gapIndex := policy.NewAuthorizer(inGap)
		for range 100 {
			a := c.rbacRequest()
			byABAC, _, _ := theirs.Authorize(t.Context(), a)
			byRBAC, _, err := roles.Authorize(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			compared++
			if byABAC == authorizer.DecisionAllow {
				allowed++
			}
			if byABAC == byRBAC {
				continue
			}
			_, gap := gapIndex.Match(a)
			if byRBAC == authorizer.DecisionAllow || !gap {
				t.Fatalf("ABAC: %v, RBAC: %v, gap: %v\nrequest: %+v of %+v\n%s\n%+v", byABAC, byRBAC, gap, a, a.User,
					policy.Format([]policy.Section{{Rules: ours}}), translated)
			}
			explained++
		}
		checkNames(t, translated)
	}
	t.Logf("%d requests, %d allowed by ABAC, %d of those in a gap", compared, allowed, explained)
	if allowed < compared/20 || explained == 0 {
		t.Error("the requests are too much alike to show anything")
	}
}

// TestDefaultBindingsDoNotWake: what the API server binds by itself for its components is not named, and all that
// it binds for everyone is, and for an addon.
func TestDefaultBindingsDoNotWake(t *testing.T) {
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
	}
	var there []roles.Object
	for _, r := range slices.Concat(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()) {
		there = append(there, roles.Object{TypeMeta: kind("ClusterRole"), ObjectMeta: r.ObjectMeta, Rules: r.Rules,
			AggregationRule: r.AggregationRule})
	}
	for _, list := range bootstrappolicy.NamespaceRoles() {
		for _, r := range list {
			there = append(there, roles.Object{TypeMeta: kind("Role"), ObjectMeta: r.ObjectMeta, Rules: r.Rules})
		}
	}
	bindings := len(there)
	for _, b := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()) {
		there = append(there, roles.Object{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: b.ObjectMeta,
			Subjects: b.Subjects, RoleRef: &b.RoleRef})
	}
	for _, list := range bootstrappolicy.NamespaceRoleBindings() {
		for _, b := range list {
			there = append(there, roles.Object{TypeMeta: kind("RoleBinding"), ObjectMeta: b.ObjectMeta,
				Subjects: b.Subjects, RoleRef: &b.RoleRef})
		}
	}
	if bindings = len(there) - bindings; bindings < 40 {
		t.Fatalf("%d bindings are too few", bindings)
	}
	var keys, want []string
	for _, w := range roles.WakingOf(nil, there) {
		keys = append(keys, w.Key)
	}
	for _, name := range []string{"basic-user", "discovery", "kube-dns", "public-info-viewer",
		"service-account-issuer-discovery"} {
		want = append(want, "clusterrolebindings/system:"+name)
	}
	if slices.Sort(keys); !slices.Equal(keys, want) {
		t.Errorf("these wake: %q, want %q", keys, want)
	}
}

// checkNames holds every role to having a binding of its own.
func checkNames(t *testing.T, translated policy.RBAC) {
	t.Helper()
	names := map[string]rbacv1.RoleRef{}
	for _, b := range translated.ClusterRoleBindings {
		names[b.Name] = b.RoleRef
	}
	for _, r := range translated.ClusterRoles {
		if names[r.Name].Name != r.Name {
			t.Fatalf("role %s has no binding", r.Name)
		}
	}
}
