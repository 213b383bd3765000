package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func storeOf(name string, s *etcdtest.Server) plan.Store {
	return plan.Store{Name: name, Endpoints: []string{s.Endpoint}}
}

func storedNode(name, kubelet, ready string, beat int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"status":{"nodeInfo":{`+
		`"kubeletVersion":%q},"conditions":[{"type":"Ready","status":%q,"lastHeartbeatTime":"2026-01-01T00:00:%02dZ"}]}}`,
		name, kubelet, ready, beat)
}

func storedLease(name string, beat int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,"namespace":`+
		`"kube-node-lease"},"spec":{"renewTime":"2026-01-01T00:00:%02d.000000Z"}}`, name, beat)
}

// TestNodesAreHeardOf: by their leases or by their status; one that is not ready need not be, and one with a kubelet of
// another minor is named.
func TestNodesAreHeardOf(t *testing.T) {
	core := etcdtest.Start(t)
	c := &transition.Check{Kind: transition.Beats, Stores: []plan.Store{storeOf("core", core)},
		Heartbeats: &transition.Heartbeats{Prefix: "/registry", Nodes: "core", Leases: "core",
			Version: kubever.Version{Minor: 36, Patch: 3, HasPatch: true}}}
	h := &Host{Wait: 3 * time.Second}
	core.Put(t, map[string][]byte{"/registry/minions/a": storedNode("a", "v1.36.1", "True", 1),
		"/registry/minions/b":                storedNode("b", "v1.36.3", "Unknown", 1),
		"/registry/leases/kube-node-lease/a": storedLease("a", 1)})
	if err := h.beats(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no heartbeat since of a") {
		t.Errorf("of a silent node: %v", err)
	}
	for name, beats := range map[string]func(int) map[string][]byte{
		"a lease": func(i int) map[string][]byte {
			return map[string][]byte{"/registry/leases/kube-node-lease/a": storedLease("a", i)}
		},
		"the status": func(i int) map[string][]byte {
			return map[string][]byte{"/registry/minions/a": storedNode("a", "v1.36.1", "True", i)}
		},
	} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 2; ctx.Err() == nil; i++ {
				core.Put(t, beats(i%60))
			}
		}()
		err := (&Host{Wait: time.Minute}).beats(t.Context(), c)
		stop()
		<-done
		if err != nil {
			t.Errorf("of a node that is heard of by %s: %v", name, err)
		}
	}
	core.Put(t, map[string][]byte{"/registry/minions/c": storedNode("c", "v1.15.12", "True", 1)})
	if err := h.beats(t.Context(), c); err == nil || !strings.Contains(err.Error(), "c (v1.15.12)") {
		t.Errorf("with another kubelet: %v", err)
	}
}

// TestNoKubeletIsNewer than the version to which the API server goes back; one that is older, or was never seen, is not
// in the way.
func TestNoKubeletIsNewer(t *testing.T) {
	core := etcdtest.Start(t)
	v, err := kubever.Parse("1.10.13")
	if err != nil {
		t.Fatal(err)
	}
	c := &transition.Check{Kind: transition.NotNewer, Stores: []plan.Store{storeOf("core", core)},
		Heartbeats: &transition.Heartbeats{Prefix: "/registry", Nodes: "core", Version: v}}
	core.Put(t, map[string][]byte{"/registry/minions/a": storedNode("a", "v1.10.13", "True", 1),
		"/registry/minions/b": storedNode("b", "v1.9.1", "False", 1),
		"/registry/minions/c": storedNode("c", "", "False", 1)})
	if err := notNewer(t.Context(), c); err != nil {
		t.Error(err)
	}
	core.Put(t, map[string][]byte{"/registry/minions/d": storedNode("d", "v1.11.0", "False", 1)})
	if err := notNewer(t.Context(), c); err == nil || !strings.Contains(err.Error(), "newer than 1.10: d (v1.11.0)") {
		t.Errorf("with a newer kubelet: %v", err)
	}
}

// TestWhatIsLeftOfTheLegacySide: not what API servers write by themselves.
func TestWhatIsLeftOfTheLegacySide(t *testing.T) {
	core := etcdtest.Start(t)
	object := func(name, labels string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"x/v1","kind":"X","metadata":{"name":%q,"labels":{%s}}}`, name, labels)
	}
	c := &transition.Check{Kind: transition.NothingLeft, Stores: []plan.Store{storeOf("core", core)},
		Left: &transition.Left{Prefix: "/registry",
			Boot: []pair.BootKey{{Side: pair.Legacy, Key: "priorityclasses/system-*"}},
			Rows: []transition.LeftRow{
				{Key: "priorityclasses", Name: "priorityclasses", Store: "core", Hint: "move them"},
				{Key: "apiregistration.k8s.io/apiservices", Name: "apiservices", Store: "core",
					Hint: "create them there"}}}}
	core.Put(t, map[string][]byte{"/registry/priorityclasses/system-node-critical": object("system-node-critical", ""),
		"/registry/apiregistration.k8s.io/apiservices/v1.": object("v1.", `"`+kubever.LabelAutoManaged+`":"onstart"`),
		"/registry/priorityclassesother/x":                 object("x", "")})
	if err := nothingLeft(t.Context(), c); err != nil {
		t.Errorf("of what API servers write: %v", err)
	}
	core.Put(t, map[string][]byte{"/registry/priorityclasses/mine": object("mine", ""),
		"/registry/apiregistration.k8s.io/apiservices/v1.metrics": object("v1.metrics", "")})
	var left *LeftError
	if err := nothingLeft(t.Context(), c); !errors.As(err, &left) || !slices.Equal(left.Objects, []string{
		"priorityclasses: mine: move them", "apiservices: v1.metrics: create them there"}) {
		t.Errorf("of people's objects: %v", err)
	}
	core.Put(t, map[string][]byte{"/registry/priorityclasses/mine": []byte("neither JSON nor protobuf")})
	if err := nothingLeft(t.Context(), c); err == nil || errors.As(err, new(*LeftError)) {
		t.Errorf("of what cannot be read: %v", err)
	}
}

// TestTheServiceKubernetesLeadsToOthers: its endpoints and slices go, and no others; they are compared with the API
// servers by address and port.
func TestTheServiceKubernetesLeadsToOthers(t *testing.T) {
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	m := &transition.Masters{Prefix: "/registry", Endpoints: storeOf("core", core), Slices: storeOf("modern", modern),
		Addresses: []string{"10.0.0.11", "10.0.0.12"}, Port: 7443}
	endpoints := func(name, ip string, port int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":%q,"namespace":"default"},`+
			`"subsets":[{"addresses":[{"ip":"10.0.0.12"},{"ip":%q}],"ports":[{"port":%d}]}]}`, name, ip, port)
	}
	slice := func(name, service string, port int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,`+
			`"namespace":"default","labels":{"kubernetes.io/service-name":%q}},"endpoints":[{"addresses":["10.0.0.11"]},`+
			`{"addresses":["10.0.0.12"]}],"ports":[{"port":%d}]}`, name, service, port)
	}
	const at, of = "/registry/services/endpoints/default/", "/registry/endpointslices/default/"
	keys := func(s *etcdtest.Server, prefix string) (keys []string) {
		t.Helper()
		got, err := s.Client(t).Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range got.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
	core.Put(t, map[string][]byte{at + "kubernetes": endpoints("kubernetes", "10.0.0.11", 6443),
		at + "kubernetes-modern": endpoints("kubernetes-modern", "10.0.0.11", 7443)})
	modern.Put(t, map[string][]byte{of + "kubernetes-abcde": slice("kubernetes-abcde", "kubernetes", 6443),
		of + "kubernetes-modern": slice("kubernetes-modern", "kubernetes-modern", 7443)})
	if err := mastersAre(t.Context(), m); err == nil || !strings.Contains(err.Error(), "10.0.0.11:6443") {
		t.Errorf("of the legacy API servers: %v", err)
	}
	for range 2 { // it can be repeated
		if err := clearEndpoints(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if left := keys(core, at); !slices.Equal(left, []string{at + "kubernetes-modern"}) {
		t.Errorf("left are the endpoints %q", left)
	}
	if left := keys(modern, of); !slices.Equal(left, []string{of + "kubernetes-modern"}) {
		t.Errorf("left are the slices %q", left)
	}
	if err := mastersAre(t.Context(), m); err == nil {
		t.Error("without endpoints: nil")
	}
	core.Put(t, map[string][]byte{at + "kubernetes": endpoints("kubernetes", "10.0.0.11", 7443)})
	if err := mastersAre(t.Context(), m); err == nil || !strings.Contains(err.Error(), "slices") {
		t.Errorf("without slices: %v", err)
	}
	modern.Put(t, map[string][]byte{of + "kubernetes": slice("kubernetes", "kubernetes", 7443)})
	if err := mastersAre(t.Context(), m); err != nil {
		t.Errorf("of the modern API servers: %v", err)
	}
	elsewhere := bytes.ReplaceAll(slice("aaa", "kubernetes", 7443), []byte("10.0.0.12"), []byte("10.9.9.9"))
	modern.Put(t, map[string][]byte{of + "aaa": elsewhere}) // of a client: proxies go by the label
	if err := mastersAre(t.Context(), m); err == nil || !strings.Contains(err.Error(), "10.9.9.9:7443") {
		t.Errorf("beside a slice of another name: %v", err)
	}
	core.Put(t, map[string][]byte{at + "kubernetes": endpoints("kubernetes", "10.0.0.13", 7443)})
	if err := mastersAre(t.Context(), m); err == nil {
		t.Error("with another address: nil")
	}
}

// TestServicesInRanges: by each of their addresses, those without one left out.
func TestServicesInRanges(t *testing.T) {
	core := etcdtest.Start(t)
	put := func(name, spec string) {
		core.Put(t, map[string][]byte{"/registry/services/specs/default/" + name: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":"default"},"spec":{%s}}`, name, spec)})
	}
	put("a", `"clusterIP":"10.96.0.5"`)
	put("b", `"clusterIP":"10.97.0.5"`)
	put("c", `"clusterIP":"None","clusterIPs":["None"]`)
	put("d", `"clusterIP":"10.97.0.6","clusterIPs":["10.97.0.6","fd00:96::7"]`)
	found, err := servicesIn(t.Context(), &transition.Ranges{CIDRs: []string{"10.96.0.0/16", "fd00:96::/108"},
		Prefix: "/registry", Store: storeOf("core", core)})
	var list []string
	for _, s := range found {
		list = append(list, s.namespace+"/"+s.name+" "+fmt.Sprint(s.addresses))
	}
	if err != nil || !slices.Equal(list, []string{"default/a [10.96.0.5]", "default/d [fd00:96::7]"}) {
		t.Errorf("servicesIn = %q, %v", list, err)
	}
}

// TestRolesThatWereWithdrawnStayWithdrawn: once they decide on the modern side, the legacy side's are copied no more.
// What the steps needed goes, and comes again on the way back; what people have withdrawn, narrowed or widened stays as
// they left it, on both ways.
func TestRolesThatWereWithdrawnStayWithdrawn(t *testing.T) {
	core, modern, r := rolesWorld(t)
	binding := func(name, user string) []byte {
		return rbacObject("v1", "ClusterRoleBinding", "", name, `"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":"all"},"subjects":[{"kind":"User","name":"`+user+
			`","apiGroup":"rbac.authorization.k8s.io"}]`)
	}
	const ended, narrowed = "clusterrolebindings/controllers", "clusterrolebindings/narrowed"
	core.Put(t, map[string][]byte{"/registry/" + ended: binding("controllers", "fusionctl-controllers"),
		"/registry/" + narrowed: binding("narrowed", "alice")})
	rule := func(user, resource string) string {
		return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"` + user +
			`","namespace":"demo","resource":"` + resource + `"}}` + "\n"
	}
	all := *r
	all.Rules = rule("frank", "configmaps") + rule("grace", "configmaps") + rule("steps", "pods")
	less := rule("frank", "configmaps") + rule("grace", "configmaps")
	forth := transition.Roles{Prefix: r.Prefix, Keys: r.Keys, From: r.From, To: r.To, Rules: less,
		InPlaceOf: &all.Rules, Ended: []string{"fusionctl-controllers"}}
	back := forth
	back.Rules, back.InPlaceOf, back.Ended = all.Rules, &less, nil
	h := &Host{Snapshots: t.TempDir()}
	copies := func(r *transition.Roles) {
		t.Helper()
		if err := h.Do(t.Context(), "", &transition.Action{Kind: transition.CopyRoles, Roles: r}); err != nil {
			t.Fatal(err)
		}
	}
	copies(&all)
	client := modern.Client(t)
	for _, key := range []string{"rolebindings/demo/reader", "roles/demo/reader", "rolebindings/demo/abac:user:dave",
		"rolebindings/demo/abac:user:grace"} {
		if answer, err := client.Delete(t.Context(), "/registry/"+key); err != nil || answer.Deleted != 1 {
			t.Fatalf("withdrawing %s: %d, %v", key, answer.Deleted, err)
		}
	}
	was, err := client.Get(t.Context(), "/registry/"+narrowed)
	if err != nil {
		t.Fatal(err)
	}
	left := bytes.Replace(was.Kvs[0].Value, []byte(`"alice"`), []byte(`"erin"`), 1)
	modern.Put(t, map[string][]byte{"/registry/" + narrowed: left})
	stay := []string{narrowed, "clusterroles/all", "clusterroles/own", "rolebindings/demo/abac:user:frank",
		"roles/demo/abac:user:dave", "roles/demo/abac:user:frank", "roles/demo/abac:user:grace"}
	steps := []string{"rolebindings/demo/abac:user:steps", "roles/demo/abac:user:steps"}
	for _, step := range []struct {
		roles *transition.Roles
		want  []string
	}{{&forth, stay}, {&back, slices.Concat(stay, steps)}, {&forth, stay}} {
		copies(step.roles)
		copies(step.roles)
		want := slices.Sorted(slices.Values(step.want))
		if got := keysIn(t, modern); !slices.Equal(got, want) {
			t.Errorf("with rules in place of others there are %q, want %q", got, want)
		}
		is, err := client.Get(t.Context(), "/registry/"+narrowed)
		if err != nil || !bytes.Equal(is.Kvs[0].Value, left) {
			t.Errorf("what was narrowed is %s, %v", is.Kvs[0].Value, err)
		}
	}
	report, err := os.ReadFile(filepath.Join(h.Snapshots, ReportOfRoles))
	if err != nil || !bytes.Contains(report, []byte(`"rolebindings/demo/reader"`)) {
		t.Errorf("what was copied when roles began to decide: %s, %v", report, err)
	}
}

// TestRolesOfWhatRunsNoMore: rules of the modern side's policy become roles, and bindings of users that run no more are
// taken away; on the way back they come again.
func TestRolesOfWhatRunsNoMore(t *testing.T) {
	core, modern, r := rolesWorld(t)
	binding := func(name, users string) []byte {
		return rbacObject("v1", "ClusterRoleBinding", "", name, `"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":"all"},"subjects":[`+users+`]`)
	}
	const controllers = `{"kind":"User","name":"fusionctl-controllers","apiGroup":"rbac.authorization.k8s.io"}`
	core.Put(t, map[string][]byte{"/registry/clusterrolebindings/controllers": binding("controllers", controllers),
		"/registry/clusterrolebindings/both": binding("both", controllers+`,{"kind":"User","name":"bob"}`)})
	h := &Host{Snapshots: t.TempDir()}
	copies := func() string {
		t.Helper()
		got, err := modern.Client(t).Get(t.Context(), "/registry/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, kv := range got.Kvs {
			text.Write(kv.Key)
			text.Write(kv.Value)
		}
		return text.String()
	}
	all, less := *r, *r
	all.Rules = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"frank",` +
		`"namespace":"demo","resource":"configmaps"}}`
	less.Rules, less.Ended = all.Rules, []string{"fusionctl-controllers"}
	for _, step := range []struct {
		roles       *transition.Roles
		frank, ends bool
	}{{r, false, false}, {&all, true, false}, {&less, true, true}, {&all, true, false}, {r, false, false}} {
		if err := h.copyRoles(t.Context(), step.roles); err != nil {
			t.Fatal(err)
		}
		if err := h.rolesEqual(t.Context(), step.roles); err != nil {
			t.Error(err)
		}
		text := copies()
		if strings.Contains(text, "frank") != step.frank ||
			strings.Contains(text, "/clusterrolebindings/controllers") == step.ends ||
			!strings.Contains(text, "/clusterrolebindings/both") {
			t.Errorf("with rules %t and ended %q the copies are %s", step.roles.Rules != "", step.roles.Ended, text)
		}
	}
}
