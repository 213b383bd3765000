//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/policy/roles"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/test/rig"
)

// legacyPolicy is what a legacy API server allows beside its roles.
const legacyPolicy = `
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"dave","namespace":"demo","resource":"secrets","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"auditors","nonResourcePath":"*","readonly":true}}
`

// TestRolesAreCopied: the roles and bindings of a real 1.15.12, and its lines of ABAC, allow on a 1.36.3 that
// authorizes by RBAC what they allowed, to every subject, and nothing else to those that people have bound. Its own
// server may have started on the copies before they are taken away.
func TestRolesAreCopied(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	const rights = access + "  - {subjects: [{kind: Group, name: developers}], apiGroups: " +
		"[rbac.authorization.k8s.io], resources: [\"*\"]}\n"
	file := filepath.Join(r.Dir(), "abac.jsonl")
	must(t, os.WriteFile(file, []byte(legacyPolicy), 0o600))
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: rights,
		NoControllers: true, LegacyServerArgs: []string{"authorization-mode=Node,RBAC,ABAC",
			"authorization-policy-file=" + file}})
	legacy, modern := startBare(t, r, p)
	const api = "/apis/rbac.authorization.k8s.io/v1/"
	create := func(c *rig.Client, path string, o object) {
		t.Helper()
		must(t, c.Call(t.Context(), http.MethodPost, api+path, o, nil))
	}
	reference := func(kind, name string) object {
		return object{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
	}
	create(legacy, "namespaces/demo/roles", object{"metadata": object{"name": "reader"}, "rules": []object{
		{"verbs": []string{"get", "list"}, "apiGroups": []string{""}, "resources": []string{"pods", "pods/log"}},
		{"verbs": []string{"update"}, "apiGroups": []string{""}, "resources": []string{"configmaps"},
			"resourceNames": []string{"settings"}},
		{"verbs": []string{"*"}, "apiGroups": []string{"extensions", "apps"}, "resources": []string{"deployments"}}}})
	create(legacy, "namespaces/demo/rolebindings", object{"metadata": object{"name": "readers"},
		"roleRef": reference("Role", "reader"), "subjects": []object{reference("User", "bob"),
			reference("Group", "testers"), {"kind": "ServiceAccount", "name": "default", "namespace": "demo"}}})
	create(legacy, "namespaces/demo/rolebindings", object{"metadata": object{"name": "editors"},
		"roleRef": reference("ClusterRole", "edit"), "subjects": []object{reference("User", "carol")}})
	create(legacy, "clusterroles", object{"metadata": object{"name": "ops"}, "rules": []object{
		{"verbs": []string{"get"}, "nonResourceURLs": []string{"/metrics", "/debug/*"}},
		{"verbs": []string{"patch"}, "apiGroups": []string{"*"}, "resources": []string{"*/scale"}},
		{"verbs": []string{"list"}, "apiGroups": []string{""}, "resources": []string{"nodes"}}}})
	create(legacy, "clusterrolebindings", object{"metadata": object{"name": "ops"},
		"roleRef": reference("ClusterRole", "ops"), "subjects": []object{reference("Group", "operators")}})
	create(modern, "clusterroles", object{"metadata": object{"name": "ops"}, "rules": []object{}})
	create(modern, "clusterroles", object{"metadata": object{"name": "own"}, "rules": []object{}})

	tr := rolesTransition(t, p)
	snapshots := t.TempDir() + "/records"
	host := &local.Host{Snapshots: snapshots, Wait: time.Minute}
	do := func(a *transition.Action) error {
		var problems []error
		for i := range a.Before {
			problems = append(problems, host.Check(t.Context(), "cp-1", &a.Before[i]))
		}
		if a.Kind != transition.RunChecks {
			problems = append(problems, host.Do(t.Context(), "cp-1", a))
		}
		return errors.Join(problems...)
	}
	mayGo, copies, proof := tr[0].Do, tr[1], tr[2].Do
	if err := do(mayGo); err == nil || !strings.Contains(err.Error(), "clusterroles/ops: there is another one") {
		t.Fatalf("with another role of the name: %v", err)
	}
	must(t, modern.Call(t.Context(), http.MethodDelete, api+"clusterroles/ops", nil, nil))
	must(t, do(mayGo))
	if err := do(proof); err == nil {
		t.Fatal("the proof holds before anything was copied")
	}
	must(t, do(copies.Do))
	must(t, do(copies.Do))
	must(t, do(proof))

	// the modern side as it will be without the legacy one
	args := append(r.APIServerArgs(36, p.Stores["modern"]), "--authorization-mode=RBAC")
	retired := r.StartAPIServer("retired", 36, args)
	retired.WaitReady()
	admin := retired.Client("admin", "system:masters")
	r.Eventually("1.36.3 has its own roles, and has read all", func(ctx context.Context) error {
		return errors.Join(admin.Call(ctx, http.MethodGet, "/readyz/poststarthook/rbac/bootstrap-roles", nil, nil),
			admin.Call(ctx, http.MethodGet, "/readyz/informer-sync", nil, nil))
	})
	r.Eventually("1.15.12 has read its last binding", func(context.Context) error {
		if !allows(t, legacy, object{"user": "olga", "groups": []string{"operators"},
			"nonResourceAttributes": object{"verb": "get", "path": "/metrics"}}) {
			return errors.New("not yet")
		}
		return nil
	})
	asked := 0
	for _, q := range questions() {
		before, after := allows(t, legacy, q), allows(t, admin, q)
		if before != after {
			t.Errorf("%v: 1.15.12 says %v, 1.36.3 with the copies %v", q, before, after)
		}
		if before {
			asked++
		}
	}
	if asked < 30 {
		t.Errorf("%d requests are allowed: these questions show nothing", asked)
	}
	retired.Stop()

	// what is withdrawn on the legacy side is withdrawn there, and named before
	must(t, legacy.Call(t.Context(), http.MethodDelete, api+"namespaces/demo/rolebindings/readers", nil, nil))
	if err := do(proof); err == nil || !strings.Contains(err.Error(), "rolebindings/demo/readers") {
		t.Errorf("with a binding that was deleted: %v", err)
	}
	must(t, do(copies.Do))
	must(t, do(proof))
	must(t, do(copies.Undo))
	for _, list := range []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"} {
		var left struct {
			Items []struct {
				Metadata struct {
					Name        string
					Annotations map[string]string
				}
			}
		}
		must(t, modern.Call(t.Context(), http.MethodGet, api+list, nil, &left))
		own := false
		for _, i := range left.Items {
			own = own || i.Metadata.Name == "own"
			if i.Metadata.Annotations[roles.Copied] != "" {
				t.Errorf("undone, there is still the copy %s %s", list, i.Metadata.Name)
			}
		}
		if list == "clusterroles" && !own {
			t.Error("the modern side's own role is gone")
		}
	}
	must(t, legacy.Call(t.Context(), http.MethodGet, api+"clusterroles/ops", nil, nil))
}

// questions are requests of everybody that the test has bound, and of some that it has not.
func questions() (list []object) {
	users := []object{{"user": "bob"}, {"user": "carol"}, {"user": "dave"}, {"user": "erin"},
		{"user": "tim", "groups": []string{"testers"}}, {"user": "olga", "groups": []string{"operators"}},
		{"user": "anna", "groups": []string{"auditors"}}, {"user": "system:serviceaccount:demo:default"}}
	resources := []object{{"resource": "pods"}, {"resource": "pods", "subresource": "log"},
		{"resource": "pods", "subresource": "exec"}, {"resource": "configmaps", "name": "settings"},
		{"resource": "configmaps", "name": "other"}, {"resource": "secrets"}, {"resource": "nodes"},
		{"resource": "deployments", "group": "apps"}, {"resource": "deployments", "group": "extensions"},
		{"resource": "deployments", "subresource": "scale", "group": "apps"}}
	for _, user := range users {
		add := func(field string, attributes object) {
			q := object{field: attributes}
			for k, v := range user {
				q[k] = v
			}
			list = append(list, q)
		}
		for _, verb := range []string{"get", "list", "update", "patch"} {
			for _, namespace := range []string{"demo", "other"} {
				for _, resource := range resources {
					q := object{"verb": verb, "namespace": namespace}
					for k, v := range resource {
						q[k] = v
					}
					add("resourceAttributes", q)
				}
			}
		}
		for _, path := range []string{"/metrics", "/debug/pprof", "/logs"} {
			add("nonResourceAttributes", object{"verb": "get", "path": path})
		}
	}
	return list
}

func allows(t *testing.T, c *rig.Client, attributes object) bool {
	t.Helper()
	var answer struct{ Status struct{ Allowed bool } }
	must(t, c.Call(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		object{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": attributes}, &answer))
	return answer.Status.Allowed
}

// rolesTransition are the steps that are about roles: whether they may go, the copies, the proof.
func rolesTransition(t *testing.T, p *rig.Pair) (steps []transition.Step) {
	t.Helper()
	tr := handingOver(t, p, "clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io",
		"clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")
	for _, s := range tr.Steps {
		if s.Do != nil && (s.Do.Roles != nil || len(s.Do.Before) > 0 && s.Do.Before[0].Roles != nil) {
			steps = append(steps, s)
		}
	}
	if len(steps) != 3 {
		t.Fatalf("%d steps are about roles, want 3", len(steps))
	}
	return steps
}
