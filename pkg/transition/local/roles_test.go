package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy/roles"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

var errKilled = errors.New("killed")

// mortal is a store of a process that is killed at one of its calls, before or after it was done.
type mortal struct {
	handover.Store
	calls *int
	at    int
}

func (m mortal) dies() bool {
	*m.calls++
	return *m.calls >= m.at
}

func (m mortal) Page(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	if m.dies() {
		return etcd.Page{}, errKilled
	}
	return m.Store.Page(ctx, r)
}

func (m mortal) Create(ctx context.Context, entries []etcd.Entry) (bool, error) {
	if m.dies() {
		return false, errKilled
	}
	ok, err := m.Store.Create(ctx, entries)
	if m.dies() {
		return false, errKilled
	}
	return ok, err
}

func (m mortal) Replace(ctx context.Context, entries []etcd.Entry) (bool, error) {
	if m.dies() {
		return false, errKilled
	}
	return m.Store.Replace(ctx, entries)
}

func (m mortal) Delete(ctx context.Context, keys []move.KeyAt) (bool, error) {
	if m.dies() {
		return false, errKilled
	}
	ok, err := m.Store.Delete(ctx, keys)
	if m.dies() {
		return false, errKilled
	}
	return ok, err
}

// rbacObject is a stored role or binding.
func rbacObject(version, kind, namespace, name, more string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"rbac.authorization.k8s.io/%s","kind":%q,"metadata":{"name":%q,`+
		`"namespace":%q,"uid":"uid-of-%s"},%s}`, version, kind, name, namespace, name, more)
}

const (
	someRules = `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`
	toReader  = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"},` +
		`"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]`
)

func rolesWorld(t *testing.T) (core, modern *etcdtest.Server, r *transition.Roles) {
	t.Helper()
	core, modern = etcdtest.Start(t), etcdtest.Start(t)
	core.Put(t, map[string][]byte{
		"/registry/roles/demo/reader":        rbacObject("v1beta1", "Role", "demo", "reader", someRules),
		"/registry/rolebindings/demo/reader": rbacObject("v1", "RoleBinding", "demo", "reader", toReader),
		"/registry/clusterroles/all":         rbacObject("v1", "ClusterRole", "", "all", someRules)})
	modern.Put(t, map[string][]byte{
		"/registry/clusterroles/own": rbacObject("v1", "ClusterRole", "", "own", someRules)})
	policy := filepath.Join(t.TempDir(), "abac.jsonl")
	const line = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",` +
		`"spec":{"user":"dave","namespace":"demo","resource":"secrets"}}`
	if err := os.WriteFile(policy, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	r = &transition.Roles{Prefix: "/registry", Stored: true, Policies: []string{policy},
		From: plan.Store{Name: "core", Endpoints: []string{core.Endpoint}},
		To:   plan.Store{Name: "modern", Endpoints: []string{modern.Endpoint}}}
	for _, key := range []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings"} {
		r.Keys = append(r.Keys, transition.RoleKey{Key: key, Name: key, StoredAs: "rbac.authorization.k8s.io/v1"})
	}
	return core, modern, r
}

func keysIn(t *testing.T, m *etcdtest.Server) (keys []string) {
	t.Helper()
	answer, err := m.Client(t).Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range answer.Kvs {
		if key := strings.TrimPrefix(string(e.Key), "/registry/"); strings.Contains(key, "role") {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestRolesAreCopiedKilledAtEveryCall, and taken away again: both go on from wherever they were, no original is
// touched, and no binding is there before its role.
func TestRolesAreCopiedKilledAtEveryCall(t *testing.T) {
	core, modern, r := rolesWorld(t)
	before := keysIn(t, core)
	copied := []string{"clusterroles/all", "clusterroles/own", "rolebindings/demo/abac:user:dave",
		"rolebindings/demo/reader", "roles/demo/abac:user:dave", "roles/demo/reader"}
	killed := func(at int, what func(*roleStores) error) error {
		calls := 0
		return withRoles(t.Context(), r, func(s *roleStores) error {
			s.from, s.to = mortal{s.from, &calls, at}, mortal{s.to, &calls, at}
			return what(s)
		})
	}
	copies := func(s *roleStores) error { _, err := s.copy(t.Context()); return err }
	back := func(s *roleStores) error { return s.withdraw(t.Context()) }
	h := &Host{Snapshots: filepath.Join(t.TempDir(), "records")}
	points := 0
	for at := 1; ; at++ {
		err := killed(at, copies)
		for _, key := range keysIn(t, modern) {
			role := strings.Replace(key, "bindings", "s", 1)
			if !slices.Contains(keysIn(t, modern), role) {
				t.Fatalf("killed at call %d: %s is there, and its role is not", at, key)
			}
		}
		if err == nil {
			break
		}
		points++
		if !errors.Is(err, errKilled) {
			t.Fatalf("killed at call %d: %v", at, err)
		}
		if err := h.copyRoles(t.Context(), r); err != nil {
			t.Fatalf("after it was killed at call %d: %v", at, err)
		}
		if got := keysIn(t, modern); !slices.Equal(got, copied) {
			t.Fatalf("after it was killed at call %d there are %q", at, got)
		}
		if err := h.rolesEqual(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := killed(at, back); err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("the way back, killed at call %d: %v", at, err)
		}
		if err := h.removeRoles(t.Context(), r); err != nil {
			t.Fatalf("the way back, after it was killed at call %d: %v", at, err)
		}
		if got := keysIn(t, modern); !slices.Equal(got, []string{"clusterroles/own"}) {
			t.Fatalf("the way back, after it was killed at call %d: there are %q", at, got)
		}
	}
	if after := keysIn(t, core); !slices.Equal(before, after) || points < 12 {
		t.Errorf("after %d points, the legacy side has %q, had %q", points, after, before)
	}
}

// TestTheReportOfRoles says what was copied, and what the modern API server has by itself that differs.
func TestTheReportOfRoles(t *testing.T) {
	core, modern, r := rolesWorld(t)
	boot := func(verb string) []byte {
		o := string(rbacObject("v1", "ClusterRole", "", "view", strings.Replace(someRules, "get", verb, 1)))
		return []byte(strings.Replace(o, `"name":"view"`, `"name":"view","labels":{"`+roles.Bootstrapping+
			`":"rbac-defaults"}`, 1))
	}
	core.Put(t, map[string][]byte{"/registry/clusterroles/view": boot("list"),
		"/registry/clusterrolebindings/view": rbacObject("v1", "ClusterRoleBinding", "", "view",
			strings.NewReplacer(`"Role"`, `"ClusterRole"`, `"reader"`, `"view"`).Replace(toReader))})
	modern.Put(t, map[string][]byte{"/registry/clusterroles/view": boot("watch"),
		"/registry/clusterroles/planted": rbacObject("v1", "ClusterRole", "", "planted",
			`"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]`),
		"/registry/rolebindings/demo/planted": rbacObject("v1", "RoleBinding", "demo", "planted",
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"planted"},`+
				`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]`)})
	h := &Host{Snapshots: filepath.Join(t.TempDir(), "records")}
	if err := h.copyRoles(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(h.Snapshots, ReportOfRoles)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the report has mode %v, %v; it says who may do what", info.Mode(), err)
	}
	text, err := os.ReadFile(filepath.Join(h.Snapshots, ReportOfRoles))
	if err != nil {
		t.Fatal(err)
	}
	var report RolesReport
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Copies) != 7 || len(report.Kept) != 1 || report.Kept[0].Key != "clusterroles/view" ||
		fmt.Sprint(report.Lost) != "[User bob list pods]" || fmt.Sprint(report.Gained) != "[User bob watch pods]" {
		t.Errorf("the report is %s", text)
	}
	const want = "[{clusterrolebindings/view [User bob watch pods]} " +
		"{rolebindings/demo/planted [User mallory * *.* in demo]}]"
	if fmt.Sprint(report.Waking) != want {
		t.Errorf("what comes into force with roles: %+v", report.Waking)
	}
	// before roles decide, a person sees it
	if err := h.rolesEqual(t.Context(), r); err != nil {
		t.Errorf("while a policy decides: %v", err)
	}
	decide := *r
	decide.Rules = "\n"
	said := new(transition.ByHandError)
	if err := h.rolesEqual(t.Context(), &decide); !errors.As(err, &said) ||
		!strings.Contains(said.Text, "rolebindings/demo/planted: User mallory") || !transition.IsFound(said.Found) {
		t.Errorf("before roles decide: %v, %+v", err, said)
	}
	agreed := said.Found
	if err := h.rolesEqual(t.Context(), &decide); !errors.As(err, &said) || said.Found != agreed {
		t.Errorf("the same once more: %v, %+v; want %s", err, said, agreed)
	}
	// and what was written since, in the moment before they do, whatever else was written
	core.Put(t, map[string][]byte{"/registry/clusterroles/late": rbacObject("v1", "ClusterRole", "", "late",
		someRules)})
	modern.Put(t, map[string][]byte{"/registry/rolebindings/demo/late": rbacObject("v1", "RoleBinding", "demo", "late",
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]`)})
	late := &transition.Check{Kind: transition.NoneWakes, Roles: &decide}
	if err := h.Check(t.Context(), "cp-1", late); !errors.As(err, &said) || said.Found == agreed ||
		!strings.Contains(said.Text, "rolebindings/demo/late: User mallory whatever clusterroles/cluster-admin") {
		t.Errorf("in the moment before roles decide: %v, %+v", err, said)
	}
}

// TestWhatStandsAgainstCopiesOfRoles is named before anything is written.
func TestWhatStandsAgainstCopiesOfRoles(t *testing.T) {
	for name, test := range map[string]struct {
		key, says string
		value     []byte
		policy    string
	}{
		"a vendor's field": {key: "/registry/roles/demo/odd", says: "store core: /registry/roles/demo/odd: ",
			value: rbacObject("v1", "Role", "demo", "odd", `"rules":[],"only":"x"`)},
		"no object": {key: "/registry/roles/demo/odd", says: "/registry/roles/demo/odd: ",
			value: []byte("k8s:enc:x:y")},
		"another name": {key: "/registry/roles/demo/odd", says: "is roles/demo/even",
			value: rbacObject("v1", "Role", "demo", "even", someRules)},
		"a rule that no role says": {policy: `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",` +
			`"spec":{"user":"a","group":"b","namespace":"demo","resource":"pods"}}`, says: ":1: a binding cannot require"},
	} {
		core, modern, r := rolesWorld(t)
		if test.key != "" {
			core.Put(t, map[string][]byte{test.key: test.value})
		}
		if test.policy != "" {
			if err := os.WriteFile(r.Policies[0], []byte(test.policy), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h := &Host{Snapshots: filepath.Join(t.TempDir(), "records")}
		for _, err := range []error{h.rolesMayGo(t.Context(), r), h.copyRoles(t.Context(), r)} {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
		}
		if got := keysIn(t, modern); len(got) != 1 {
			t.Errorf("%s: there are %q", name, got)
		}
	}
	_, _, r := rolesWorld(t)
	h := &Host{Snapshots: filepath.Join(t.TempDir(), "records")}
	if err := errors.Join(h.copyRoles(t.Context(), r), h.rolesEqual(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(r.Policies[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", string(own) + "\n" + strings.ReplaceAll(string(own), "dave", "erin")} {
		another := *r // the same as another host's API server has it: it allows less, or more
		another.Policies = []string{filepath.Join(t.TempDir(), "abac.jsonl")}
		if err := os.WriteFile(another.Policies[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.rolesEqual(t.Context(), &another); err == nil || !strings.Contains(err.Error(), "abac:user:") {
			t.Errorf("with the policy %q on another host: %v, want the difference named", text, err)
		}
	}
	r.Policies = []string{filepath.Join(t.TempDir(), "none")}
	if err := (&Host{Snapshots: t.TempDir()}).rolesMayGo(t.Context(), r); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its policy: %v", err)
	}
}

// TestRulesAboutCustomResourcesBecomeRoles where either side's store has the definition.
func TestRulesAboutCustomResourcesBecomeRoles(t *testing.T) {
	const rule = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":` +
		`{"user":"dave","namespace":"demo","apiGroup":"example.test","resource":"widgets"}}`
	definition := []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":` +
		`{"name":"widgets.example.test"},"spec":{"group":"example.test","scope":"Namespaced",` +
		`"names":{"plural":"widgets","kind":"Widget"}}}`)
	const key = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.test"
	for name, test := range map[string]struct {
		legacy, modern []byte
		says           string
	}{
		"on the legacy side":  {legacy: definition},
		"on the modern side":  {modern: definition},
		"on none":             {says: ":1: subresources other than scale and status"},
		"one that is damaged": {modern: definition[:40], says: "store modern: " + key},
	} {
		core, modern, r := rolesWorld(t)
		for store, value := range map[*etcdtest.Server][]byte{core: test.legacy, modern: test.modern} {
			if value != nil {
				store.Put(t, map[string][]byte{key: value})
			}
		}
		if err := os.WriteFile(r.Policies[0], []byte(rule), 0o600); err != nil {
			t.Fatal(err)
		}
		h := &Host{Snapshots: filepath.Join(t.TempDir(), "records")}
		err := h.rolesMayGo(t.Context(), r)
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}
