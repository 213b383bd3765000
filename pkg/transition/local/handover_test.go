package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestARecordIsFoundWhereItWasKept: a way back with another directory of snapshots brings back what the journal knows;
// when the record is nowhere, it says so, and brings back nothing.
func TestARecordIsFoundWhereItWasKept(t *testing.T) {
	const key = "/registry/deployments/default/web"
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	core.Put(t, map[string][]byte{key: storetest.Put("apps/v1", "Deployment", "default", "web", "d1", nil)})
	objects := func(back bool, known *handover.Known) *transition.Objects {
		o := &transition.Objects{Record: "hand-over-deployments", Names: []string{"deployments"}, Pods: "core",
			From:  plan.Store{Name: "core", Endpoints: []string{core.Endpoint}},
			To:    plan.Store{Name: "modern", Endpoints: []string{modern.Endpoint}},
			Known: known, Plan: handover.Plan{Prefix: "/registry", Pods: "pods", Back: back,
				Resources: []handover.Resource{{Key: "deployments", Kind: "Deployment", Reads: []string{"apps/v1"},
					StoredAs: "apps/v1", Subject: true}}}}
		if back {
			o.From, o.To = o.To, o.From
		}
		return o
	}
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	h := &Host{Snapshots: first}
	if _, err := h.Keep(t.Context(), "", objects(false, nil)); err != nil {
		t.Fatal(err)
	}
	forth := &transition.Action{Kind: transition.HandOver, Objects: objects(false, nil)}
	if err := h.Do(t.Context(), "", forth); err != nil {
		t.Fatal(err)
	}
	known, err := h.Keep(t.Context(), "", objects(false, &handover.Known{}))
	if err != nil || known.Directory != first || known.Digest == "" {
		t.Fatalf("Keep = %+v, %v", known, err)
	}
	for mode, elsewhere := range map[os.FileMode]string{0o700: "", 0o777: "other users can write there"} {
		if err := os.Chmod(first, mode); err != nil {
			t.Fatal(err)
		}
		_, err := (&Host{Snapshots: second}).Keep(t.Context(), "", objects(true, known))
		if (err == nil) != (elsewhere == "") || err != nil && !strings.Contains(err.Error(), elsewhere) {
			t.Errorf("a record in a directory of mode %v: %v, want %q", mode, err, elsewhere)
		}
	}
	if err := os.Chmod(first, 0o700); err != nil {
		t.Fatal(err)
	}
	back := &transition.Action{Kind: transition.HandBack, Objects: objects(true, known)}
	none := &transition.Check{Kind: transition.NoKeys, Keys: []string{"/registry" + handover.MarksKey},
		Stores: []plan.Store{objects(false, nil).To}}
	if err := h.Check(t.Context(), "", none); err == nil || !strings.Contains(err.Error(), "hand-over-deployments") {
		t.Errorf("the store says of what was handed over: %v", err)
	}
	there := func() bool {
		answer, err := core.Client(t).Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Count == 1
	}
	h.Wait = time.Hour
	if _, err := modern.Client(t).Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	check := &transition.Check{Kind: transition.Adopted, Objects: objects(false, known)}
	if _, gone := errors.AsType[*handover.GoneError](h.Check(t.Context(), "", check)); !gone {
		t.Error("what is gone is waited for")
	}
	modern.Put(t, map[string][]byte{key: storetest.Put("apps/v1", "Deployment", "default", "web", "d1", nil)})
	file := filepath.Join(first, "hand-over-deployments.json")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	h.Snapshots = second
	if err := h.Do(t.Context(), "", back); err == nil || !strings.Contains(err.Error(), first) || there() {
		t.Errorf("without a record: %v", err)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if err := h.Do(t.Context(), "", back); err != nil || !there() {
		t.Errorf("with the record where it was: %v", err)
	}
	if err := h.Check(t.Context(), "", none); err != nil {
		t.Errorf("when it is back: %v", err)
	}
	h.Rehearsal = t.TempDir()
	if kept, err := h.Keep(t.Context(), "", objects(false, nil)); kept != nil || err != nil {
		t.Errorf("a rehearsal keeps %v, %v", kept, err)
	}
}

// TestIngressesOfRealVersions: one that 1.15 stored is read, compared and brought back in the versions of both sides,
// in protobuf, whatever the API servers make of it meanwhile.
func TestIngressesOfRealVersions(t *testing.T) {
	const key, older, newer = "/registry/ingress/default/web", "extensions/v1beta1", "networking.k8s.io/v1"
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	stored := func(apiVersion, uid, spec, address string) []byte {
		t.Helper()
		object := new(unstructured.Unstructured)
		text := fmt.Sprintf(`{"apiVersion":%q,"kind":"Ingress","metadata":{"name":"web","namespace":"default","uid":%q,`+
			`"creationTimestamp":"2020-01-01T00:00:00Z","annotations":{"kubernetes.io/ingress.class":"nginx"}},`+
			`"spec":%s,"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, apiVersion, uid, spec, address)
		if err := object.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		value, err := c.EncodeProtobuf(object)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	const spec = `{"rules":[{"host":"web","http":{"paths":[{"path":"/","backend":{"serviceName":"web",` +
		`"servicePort":80}}]}}]}`
	modernSpec := func(pathType string) string {
		return `{"rules":[{"host":"web","http":{"paths":[{"path":"/","pathType":"` + pathType +
			`","backend":{"service":{"name":"web","port":{"number":80}}}}]}}]}`
	}
	core.Put(t, map[string][]byte{key: stored(older, "i1", spec, "1.1.1.1")})
	h := &Host{Snapshots: filepath.Join(t.TempDir(), "a")}
	do := func(back, copied bool) error {
		r := handover.Resource{Key: "ingress", Kind: "Ingress", Reads: []string{newer}, StoredAs: newer, Subject: true,
			Compared: newer}
		o := &transition.Objects{Record: "hand-over-ingress", Names: []string{"ingresses"}, Pods: "core",
			From: plan.Store{Name: "core", Endpoints: []string{core.Endpoint}},
			To:   plan.Store{Name: "modern", Endpoints: []string{modern.Endpoint}},
			Plan: handover.Plan{Prefix: "/registry", Pods: "pods", Back: back, Copy: copied}}
		kind := transition.HandOver
		if back {
			kind, r.Reads, r.StoredAs = transition.HandBack, []string{older}, older
			const field = "spec.rules[].http.paths[].pathType" // as TestFieldsOfIngresses of pkg/plan has it
			r.Drops, r.Implied = []string{field}, map[string]string{field: "ImplementationSpecific"}
			o.From, o.To = o.To, o.From
		}
		o.Plan.Resources = []handover.Resource{r}
		return h.Do(t.Context(), "", &transition.Action{Kind: kind, Objects: o})
	}
	in := func(of *etcdtest.Server) map[string]any {
		t.Helper()
		answer, err := of.Client(t).Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Count == 0 {
			return nil
		}
		object, err := objects.Decode(answer.Kvs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	if err := do(false, true); err != nil {
		t.Fatal(err)
	}
	if o := in(modern); o["apiVersion"] != newer || in(core)["apiVersion"] != older {
		t.Fatalf("copied, there are %v and %v", in(core), o)
	}
	// both controllers write their address; the modern API server writes it in its own version, with its defaults
	modern.Put(t, map[string][]byte{key: stored(newer, "i1", modernSpec("ImplementationSpecific"), "2.2.2.2")})
	core.Put(t, map[string][]byte{key: stored(older, "i1", spec, "1.1.1.9")})
	if err := do(false, false); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(in(modern)); in(core) != nil || !strings.Contains(text, "2.2.2.2") ||
		!strings.Contains(text, "nginx") {
		t.Fatalf("handed over, there are %v and %s", in(core), text)
	}
	modern.Put(t, map[string][]byte{key: stored(newer, "i1", modernSpec("Exact"), "2.2.2.2")})
	if err := do(true, true); err == nil || !strings.Contains(err.Error(), "pathType") || in(core) != nil {
		t.Fatalf("with a field that extensions/v1beta1 does not have: %v", err)
	}
	modern.Put(t, map[string][]byte{key: stored(newer, "i1", modernSpec("ImplementationSpecific"), "2.2.2.2")})
	for _, copied := range []bool{true, false} {
		if err := do(true, copied); err != nil {
			t.Fatal(err)
		}
	}
	if text := fmt.Sprint(in(core)); in(modern) != nil || !strings.Contains(text, older) ||
		!strings.Contains(text, "serviceName") {
		t.Errorf("handed back, there are %s and %v", text, in(modern))
	}
}

// TestDefinitionsOfServersWithoutVersions: API servers before 1.11 know one version of a definition, and no conversion.
// One that 1.36 has written comes back to them when it says no more than that.
func TestDefinitionsOfServersWithoutVersions(t *testing.T) {
	const key, older = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.test",
		"apiextensions.k8s.io/v1beta1"
	text, err := examples.FS.ReadFile("pods-1.10-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := spec.Load("spec.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	drops, implied := p.Drops("apiextensions.k8s.io/customresourcedefinitions", pair.Legacy)
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	const newer = "apiextensions.k8s.io/v1"
	for _, test := range []struct{ version, says, lost string }{
		{newer, `"preserveUnknownFields":true,"conversion":{"strategy":"None"},"versions":[{"name":"v1","served":true,` +
			`"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]`, ""},
		{newer, `"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}}}]`, "spec.subresources"},
		{older, `"preserveUnknownFields":true,"conversion":{"strategy":"None"},"version":"v1","validation":` +
			`{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true,"storage":true}]`, ""},
		{newer, `"versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false}]`,
			"spec.versions"},
		{newer, `"versions":[{"name":"v1","served":false,"storage":true}]`, "spec.versions"},
		{newer, `"conversion":{"strategy":"Webhook"},"versions":[{"name":"v1","served":true,"storage":true}]`,
			"spec.conversion"},
	} {
		modern.Put(t, map[string][]byte{key: []byte(`{"apiVersion":"` + test.version + `",` +
			`"kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.test","uid":"c1",` +
			`"creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"group":"example.test","scope":"Namespaced",` +
			`"names":{"plural":"widgets","kind":"Widget"},` + test.says + `}}`)})
		o := &transition.Objects{Record: "hand-over-definitions", Names: []string{"definitions"}, Pods: "core",
			From: plan.Store{Name: "modern", Endpoints: []string{modern.Endpoint}},
			To:   plan.Store{Name: "core", Endpoints: []string{core.Endpoint}},
			Plan: handover.Plan{Prefix: "/registry", Pods: "pods", Words: 10, Resources: []handover.Resource{{
				Key: "apiextensions.k8s.io/customresourcedefinitions", Kind: "CustomResourceDefinition", Subject: true,
				Reads: []string{older}, StoredAs: older, Drops: drops, Implied: implied, By: handover.ByMetadata}}}}
		h := &Host{Snapshots: filepath.Join(t.TempDir(), "a")}
		err := h.Do(t.Context(), "", &transition.Action{Kind: transition.HandOver, Objects: o})
		if test.lost != "" {
			if err == nil || !strings.Contains(err.Error(), test.lost) {
				t.Errorf("handing %s over = %v, want it refused for %s", test.says, err, test.lost)
			}
			continue
		}
		if err != nil {
			t.Errorf("handing %s over: %v", test.says, err)
			continue
		}
		answer, err := core.Client(t).Get(t.Context(), key)
		if err != nil || answer.Count != 1 {
			t.Fatalf("the other store has %v, %v", answer, err)
		}
		object, err := objects.Decode(answer.Kvs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		says, _ := object["spec"].(map[string]any)
		if says["version"] != "v1" || says["versions"] != nil || says["validation"] == nil {
			t.Errorf("the other store has %v", says)
		}
	}
}

// TestKeysThatAreFoundStayInTheirLine: a store's keys are named in an error of several lines.
func TestKeysThatAreFoundStayInTheirLine(t *testing.T) {
	core := etcdtest.Start(t)
	core.Put(t, map[string][]byte{"/registry/pods/a\nstep 012 is done\x1b[2A": []byte("x")})
	err := NoKeys(t.Context(), &transition.Check{Kind: transition.NoKeys, Keys: []string{"/registry/pods/"},
		Stores: []plan.Store{{Name: "core", Endpoints: []string{core.Endpoint}}}}, nil)
	if found := new(KeysError); !errors.As(err, &found) || len(found.Found) != 1 ||
		strings.ContainsAny(found.Found[0], "\n\x1b") {
		t.Errorf("NoKeys = %q", err)
	}
}
