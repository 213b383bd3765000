//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/test/rig"
)

// The pizzas of these tests are those of examples/pizza: v1alpha1 lists toppings by name, v1 lists them with a
// quantity.

const (
	pizzaGroup = "restaurant.example.com"
	pizzaCRD   = "pizzas." + pizzaGroup
	pizzaKeys  = "/registry/" + pizzaGroup + "/pizzas/"
	pizzaRules = "../../examples/pizza"
)

// pizzaWebhook is fusionctl crd webhook with the rules of the example, in a process of its own.
type pizzaWebhook struct {
	address           string
	certFile, keyFile string
	ca                []byte
}

func newPizzaWebhook(t *testing.T, r *rig.Rig) *pizzaWebhook {
	w := &pizzaWebhook{address: fmt.Sprintf("127.0.0.1:%d", r.Port())}
	var err error
	if w.certFile, w.keyFile, err = r.PKI.Serving("pizza-webhook", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	if w.ca, err = os.ReadFile(r.PKI.File("ca.crt")); err != nil {
		t.Fatal(err)
	}
	return w
}

// start starts it and waits until it listens.
func (w *pizzaWebhook) start(t *testing.T, r *rig.Rig) {
	t.Helper()
	c := newCommand(context.Background(), "crd", "webhook", "--rules", pizzaRules, "--listen", w.address, "--tls-cert",
		w.certFile, "--tls-key", w.keyFile, "--any-client")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill() //nolint:errcheck // it may have ended
		c.Wait()         //nolint:errcheck // by the kill
		if t.Failed() {
			t.Logf("the webhook:\n%s", c.err.String())
		}
	})
	r.Eventually("the webhook listening", func(context.Context) error {
		connection, err := net.Dial("tcp", w.address)
		if err == nil {
			err = connection.Close()
		}
		return err
	})
}

// pizzaDefinition is the example's CRD with these versions, the first of which is stored. A version that the example
// does not have is v1alpha1 under another name.
func pizzaDefinition(t *testing.T, minor kubever.Minor, webhook *pizzaWebhook, versions ...string) object {
	t.Helper()
	beta := !kubever.ServesGVK(
		schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, minor)
	file := pizzaRules + "/crd.yaml"
	if beta {
		file = pizzaRules + "/v1beta1/crd.yaml"
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd object
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd["spec"].(map[string]any)
	entries := map[string]object{}
	for _, entry := range spec["versions"].([]any) {
		entries[entry.(map[string]any)["name"].(string)] = entry.(map[string]any)
	}
	var list []object
	for i, name := range versions {
		entry := maps.Clone(entries[name])
		if entry == nil {
			entry = maps.Clone(entries["v1alpha1"])
		}
		entry["name"], entry["storage"] = name, i == 0
		if beta && webhook == nil { // said once in this release, when it is the same
			spec["validation"] = entry["schema"]
			delete(entry, "schema")
		}
		list = append(list, entry)
	}
	spec["versions"] = list
	if beta {
		spec["version"] = versions[0]
	}
	delete(spec, "conversion")
	if webhook == nil {
		return crd
	}
	config := object{"url": "https://" + webhook.address + "/convert", "caBundle": webhook.ca}
	if beta {
		spec["conversion"] = object{"strategy": "Webhook", "webhookClientConfig": config,
			"conversionReviewVersions": []string{"v1beta1"}}
	} else {
		spec["conversion"] = object{"strategy": "Webhook",
			"webhook": object{"clientConfig": config, "conversionReviewVersions": []string{"v1"}}}
	}
	return crd
}

// storePizzas puts pizzas into the store as a server of v1alpha1 wrote them: thousands of requests would prove no more.
func storePizzas(t *testing.T, etcd *rig.Etcd, n int) {
	t.Helper()
	var batch []clientv3.Op
	flush := func() {
		if len(batch) > 0 {
			if _, err := etcd.Client().Txn(t.Context()).Then(batch...).Commit(); err != nil {
				t.Fatal(err)
			}
		}
		batch = batch[:0]
	}
	for i := range n {
		name, namespace := fmt.Sprintf("pizza-%05d", i), fmt.Sprintf("shop-%d", i%3)
		metadata := object{"name": name, "namespace": namespace, "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			"generation":        1,
			"creationTimestamp": "2026-01-01T00:00:00Z"}
		if i%10 == 9 { // servers before 1.18 did not keep these
			metadata["managedFields"] = []object{{
				"manager": "old-client", "operation": "Apply", "apiVersion": pizzaGroup + "/v1alpha1",
				"time":       "2026-01-01T00:00:00Z",
				"fieldsType": "FieldsV1", "fieldsV1": object{"f:spec": object{"f:toppings": object{}}},
			}}
		}
		value, err := json.Marshal(object{"apiVersion": pizzaGroup + "/v1alpha1", "kind": "Pizza", "metadata": metadata,
			"spec": object{"size": "M", "toppings": []string{"mozzarella", "tomato"},
				"deliverTo": fmt.Sprintf("Alice, %d Main Street", i)}})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, clientv3.OpPut(pizzaKeys+namespace+"/"+name, string(value)))
		if len(batch) == 100 {
			flush()
		}
	}
	flush()
}

// storedPizzas counts the keys of the store by the version that their bytes name, and lists those of a version.
func storedPizzas(t *testing.T, etcd *rig.Etcd, list string) (byVersion map[string]int, keys []string) {
	t.Helper()
	response, err := etcd.Client().Get(t.Context(), pizzaKeys, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	byVersion = map[string]int{}
	for _, kv := range response.Kvs {
		e, err := storage.ReadEnvelope(kv.Value)
		if err != nil {
			t.Fatalf("%s: %v", kv.Key, err)
		}
		version := strings.TrimPrefix(string(e.APIVersion), pizzaGroup+"/")
		byVersion[version]++
		if version == list {
			keys = append(keys, strings.TrimPrefix(string(kv.Key), pizzaKeys))
		}
	}
	return byVersion, keys
}

// A CRD goes from v1alpha1 to v1 with everything that happens in real life: clients of both versions write meanwhile,
// the migrator is killed at random points, the webhook is dead at first, one object cannot be converted. The stored
// bytes say at each stage what is true.
func TestCRDIsMigratedAndRetired(t *testing.T) {
	t.Parallel()
	for minor, pizzas := range map[kubever.Minor]int{15: 500, 36: 5000} {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			newPizzeria(t, minor).migrate(pizzas)
		})
	}
}

// pizzeria is a server with the CRD in v1alpha1, and what the tests need to migrate it.
type pizzeria struct {
	*testing.T
	rig     *rig.Rig
	minor   kubever.Minor
	etcd    *rig.Etcd
	server  *rig.APIServer
	client  *rig.Client
	webhook *pizzaWebhook
	crds    string // path
	plan    string // file
	flags   []string
}

func newPizzeria(t *testing.T, minor kubever.Minor) *pizzeria {
	r := rig.New(t)
	p := &pizzeria{T: t, rig: r, minor: minor, etcd: r.StartDurableEtcd("core"), webhook: newPizzaWebhook(t, r),
		plan: filepath.Join(r.Dir(), "pizzas.plan")}
	p.server = r.StartAPIServer("apiserver", minor, r.APIServerArgs(minor, p.etcd))
	p.server.WaitReady()
	p.client = p.server.Client("rig", "system:masters")
	before := pizzaDefinition(t, minor, nil, "v1alpha1")
	p.crds = "/apis/" + before["apiVersion"].(string) + "/customresourcedefinitions"
	p.call("POST", p.crds, before, nil)
	for i := range 3 {
		p.call("POST", "/api/v1/namespaces", object{"metadata": object{"name": fmt.Sprintf("shop-%d", i)}}, nil)
	}
	kubeconfig, err := r.PKI.Kubeconfig("migrator", p.server.URL, "migrator", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := r.PKI.Client("migrator-etcd", "rig")
	if err != nil {
		t.Fatal(err)
	}
	p.flags = []string{"--kubeconfig", kubeconfig, "--endpoints", p.etcd.URL, "--ca", r.PKI.File("ca.crt"), "--cert",
		certFile, "--key", keyFile}
	return p
}

func (p *pizzeria) call(method, path string, in, out any) {
	p.Helper()
	if err := p.client.Call(p.Context(), method, path, in, out); err != nil {
		p.Fatal(err)
	}
}

func (p *pizzeria) fusionctl(want int, args ...string) string {
	p.Helper()
	return runFusionctl(p.T, want, slices.Concat([]string{"crd"}, args, p.flags)...)
}

// definition is the CRD as it is.
func (p *pizzeria) definition() (stored []string, versions []string, storage string) {
	p.Helper()
	var d struct {
		Spec struct {
			Versions []struct {
				Name            string
				Served, Storage bool
			}
		}
		Status struct{ StoredVersions []string }
	}
	p.call("GET", p.crds+"/"+pizzaCRD, nil, &d)
	for _, v := range d.Spec.Versions {
		name := v.Name
		if v.Storage {
			storage = name
		}
		if !v.Served {
			name += " unserved"
		}
		versions = append(versions, name)
	}
	return d.Status.StoredVersions, versions, storage
}

func pizzaPath(version, namespace, name string) string {
	return "/apis/" + pizzaGroup + "/" + version + "/namespaces/" + namespace + "/pizzas/" + name
}

// customers write through both versions until the returned function is called, which tells how many writes there were.
func (p *pizzeria) customers(versions ...string) (leave func() int64) {
	ctx, cancel := context.WithCancel(p.Context())
	var group sync.WaitGroup
	var writes atomic.Int64
	for n, version := range versions {
		client := p.server.Client("customer-" + version)
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := object{"apiVersion": pizzaGroup + "/" + version, "kind": "Pizza",
					"spec": object{"size": "L", "toppings": []any{"basil"}}}
				if version == "v1" {
					body["spec"] = object{"size": "Large", "oven": "Electric",
						"toppings": []any{object{"name": "basil", "quantity": 2}}}
				}
				name := fmt.Sprintf("order-%d-%04d", n, i)
				body["metadata"] = object{"name": name, "namespace": "shop-0"}
				if err := client.Call(ctx, "POST", strings.TrimSuffix(pizzaPath(version, "shop-0", ""), "/"), body,
					nil); err == nil {
					writes.Add(1)
				}
				old := pizzaPath(version, fmt.Sprintf("shop-%d", i%3), fmt.Sprintf("pizza-%05d", i))
				if err := client.Call(ctx, "PATCH", old,
					object{"metadata": object{"labels": object{"seen": "by-" + version}}}, nil); err == nil {
					writes.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond): // customers, not a load test
				}
			}
		})
	}
	return func() int64 {
		cancel()
		group.Wait()
		return writes.Load()
	}
}

func (p *pizzeria) migrate(pizzas int) {
	storePizzas(p.T, p.etcd, pizzas)
	bad := pizzaKeys + "shop-1/bad"
	p.rig.Eventually("serving v1alpha1", func(ctx context.Context) error {
		return p.client.Call(ctx, "GET", pizzaPath("v1alpha1", "shop-0", "pizza-00000"), nil, nil)
	})
	// One is of a size that the schema did not forbid when it was ordered, and that no rule converts.
	if _, err := p.etcd.Client().Put(p.Context(), bad,
		`{"apiVersion":"`+pizzaGroup+`/v1alpha1","kind":"Pizza","metadata":{"name":"bad","namespace":"shop-1",
"uid":"00000000-0000-4000-9000-000000000000","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"size":"XXL"}}`); err != nil {
		p.Fatal(err)
	}
	with := filepath.Join(p.rig.Dir(), "pizzas-v1.json")
	data, err := json.Marshal(pizzaDefinition(p.T, p.minor, p.webhook, "v1", "v1alpha1"))
	if err == nil {
		err = os.WriteFile(with, data, 0o600)
	}
	if err != nil {
		p.Fatal(err)
	}
	p.fusionctl(0, "plan", pizzaCRD, "--storage", "v1", "--with", with, "--retire", "v1alpha1", "--grace", "2s",
		"--wait", "1s", "--out", p.plan)

	// The webhook is dead: no object is touched.
	p.fusionctl(1, "apply", p.plan, "--yes")
	if _, _, storage := p.definition(); storage != "v1alpha1" {
		p.Fatalf("with a dead webhook, objects are stored as %s", storage)
	}
	if versions, _ := storedPizzas(p.T, p.etcd, ""); versions["v1"] > 0 {
		p.Fatalf("with a dead webhook, %v are stored", versions)
	}
	p.webhook.start(p.T, p.rig)

	leave := p.customers("v1alpha1", "v1")
	kills := p.applyWithKills()
	// One object cannot be converted: all others are, and nothing is pruned.
	out := p.fusionctl(3, "apply", p.plan, "--yes")
	if !strings.Contains(out, "shop-1/bad") || !strings.Contains(out, "XXL") {
		p.Errorf("the bad object is not named:\n%s", out)
	}
	if stored, _, _ := p.definition(); !slices.Contains(stored, "v1alpha1") {
		p.Errorf("storedVersions = %v while an object is stored as v1alpha1", stored)
	}
	if _, left := storedPizzas(p.T, p.etcd, "v1alpha1"); !slices.Equal(left, []string{"shop-1/bad"}) {
		p.Errorf("stored as v1alpha1: %v, want shop-1/bad alone", left)
	}
	writes := leave()
	if writes == 0 {
		p.Error("nobody wrote during the migration")
	}

	// Somebody mends it, and the rest of the plan runs.
	if _, err := p.etcd.Client().Delete(p.Context(), bad); err != nil {
		p.Fatal(err)
	}
	out = p.fusionctl(0, "apply", p.plan, "--yes")
	if !strings.Contains(out, "proved by the store: at revision ") {
		p.Errorf("the proof is not named:\n%s", out)
	}
	p.checkMigrated(pizzas)
	p.Logf("%d pizzas, %d kills, %d writes by others", pizzas, kills, writes)
}

// applyWithKills starts the migrator again and again and kills it after a time that chance decides.
func (p *pizzeria) applyWithKills() (kills int) {
	for range 8 {
		c := newCommand(p.Context(), slices.Concat([]string{"crd", "apply", p.plan, "--yes"}, p.flags)...)
		if err := c.Start(); err != nil {
			p.Fatal(err)
		}
		timer := time.AfterFunc(300*time.Millisecond+rand.N(900*time.Millisecond), func() { c.Process.Kill() })
		err := c.Wait()
		if timer.Stop() { // it ended first
			if code := c.code(err); code != 3 {
				p.Fatalf("apply exits %d, want 3\n%s%s", code, c.out.String(), c.err.String())
			}
			return kills
		}
		kills++
		// The one invariant that protects data: a version that is stored is remembered.
		stored, _, _ := p.definition()
		for version := range first(storedPizzas(p.T, p.etcd, "")) {
			if !slices.Contains(stored, version) {
				p.Fatalf("after %d kills objects are stored as %s, and status.storedVersions is %v", kills, version,
					stored)
			}
		}
	}
	return kills
}

func first[A, B any](a A, _ B) A { return a }

// checkMigrated says what must be true at the end.
func (p *pizzeria) checkMigrated(pizzas int) {
	p.Helper()
	versions, _ := storedPizzas(p.T, p.etcd, "")
	if len(versions) != 1 || versions["v1"] < pizzas {
		p.Errorf("stored: %v, want at least %d as v1 alone", versions, pizzas)
	}
	if stored, served, storage := p.definition(); !slices.Equal(stored, []string{"v1"}) ||
		!slices.Equal(served, []string{"v1"}) || storage != "v1" {
		p.Errorf("the CRD has storedVersions %v, versions %v, storage %s; want v1 alone", stored, served, storage)
	}
	var pizza struct {
		Metadata struct {
			ManagedFields []struct{ APIVersion, Manager string }
		}
		Spec struct {
			Size     string
			Delivery struct{ Address string }
			Toppings []struct {
				Name     string
				Quantity int
			}
		}
	}
	last := fmt.Sprintf("pizza-%05d", pizzas-1)
	namespace := fmt.Sprintf("shop-%d", (pizzas-1)%3)
	p.call("GET", pizzaPath("v1", namespace, last), nil, &pizza)
	if got, want := fmt.Sprint(pizza.Spec), fmt.Sprintf("{Medium {%d Main Street} [{mozzarella 1} {tomato 1}]}",
		pizzas-1); got != want {
		p.Errorf("%s: %s, want %s", last, got, want)
	}
	for _, f := range pizza.Metadata.ManagedFields {
		if f.APIVersion == pizzaGroup+"/v1alpha1" {
			p.Errorf("managedFields name v1alpha1: %+v", pizza.Metadata.ManagedFields)
		}
	}
	p.rig.Eventually("not serving v1alpha1", func(ctx context.Context) error {
		err := p.client.Call(ctx, "GET", pizzaPath("v1alpha1", namespace, last), nil, nil)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("%v, want 404", err)
		}
		return nil
	})
	// Writing and applying go on in the version that is left.
	p.call("PATCH", pizzaPath("v1", namespace, last), object{"spec": object{"size": "Small"}}, nil)
}

// Without the store the proof is that every object was written after the switch. The way back leads to where everything
// began. What is built into the server is rewritten by the same steps. The rate is compared with that of a loop that
// reads and writes one object after the other.
func TestCRDWithoutStoreAndBack(t *testing.T) {
	t.Parallel()
	for minor, pizzas := range map[kubever.Minor]int{15: 100, 36: 1000} {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			p := newPizzeria(t, minor)
			p.rewriteBuiltIn()
			p.thereAndBack(pizzas)
		})
	}
}

// A store that was restored from a backup, or is new, ends a migration that its journal knows as begun, in both
// directions. The store that has it all again goes on.
func TestCRDStopsAtAStoreThatForgot(t *testing.T) {
	t.Parallel()
	p := newPizzeria(t, 36)
	storePizzas(t, p.etcd, 30)
	both := pizzaDefinition(t, p.minor, nil, "v1alpha1", "v1beta1")
	p.call("PATCH", p.crds+"/"+pizzaCRD, object{"spec": object{"versions": both["spec"].(map[string]any)["versions"]}},
		nil)
	p.rig.Eventually("serving v1beta1", func(ctx context.Context) error {
		return p.client.Call(ctx, "GET", pizzaPath("v1beta1", "shop-0", "pizza-00000"), nil, nil)
	})
	with := func(data string) {
		p.server.Kill()
		p.etcd.UseData(data)
		p.server.StartAgain()
		p.server.WaitReady()
	}
	p.server.Kill()
	backup, data := p.etcd.CopyData("backup"), p.etcd.Directory()
	p.server.StartAgain()
	p.server.WaitReady()
	p.fusionctl(0, "plan", pizzaCRD, "--storage", "v1beta1", "--grace", "1s", "--out", p.plan)
	for _, store := range []string{t.TempDir(), backup} {
		with(store)
		if store != backup { // it is as the plan knows it
			p.fusionctl(1, "apply", p.plan, "--yes")
		}
	}
	with(data)
	p.fusionctl(0, "apply", p.plan, "--yes")
	with(backup)
	out := p.fusionctl(1, "undo", p.plan, "--to", "start", "--yes")
	if stored, _, storage := p.definition(); !slices.Equal(stored, []string{"v1alpha1"}) || storage != "v1alpha1" {
		t.Errorf("undo of what the store forgot: storedVersions %v, storage %s; want v1alpha1, as it was\n%s", stored,
			storage, out)
	}
	with(data)
	p.fusionctl(0, "undo", p.plan, "--to", "start", "--yes")
	if versions, _ := storedPizzas(t, p.etcd, ""); versions["v1alpha1"] != 30 || len(versions) != 1 {
		t.Errorf("stored after undo: %v, want 30 as v1alpha1 alone", versions)
	}
}

// A server of before discovery told how objects are stored, and of before CRDs had several versions.
func TestBuiltInResourceIsRewrittenByAnOldServer(t *testing.T) {
	t.Parallel()
	newPizzeria(t, 10).rewriteBuiltIn()
}

// rewriteBuiltIn has a deployment that a server of 1.6 stored written as this one stores it.
func (p *pizzeria) rewriteBuiltIn() {
	p.Helper()
	const key = "/registry/deployments/shop-0/oven"
	value, err := json.Marshal(object{"apiVersion": "extensions/v1beta1", "kind": "Deployment",
		"metadata": object{"name": "oven", "namespace": "shop-0", "uid": "00000000-0000-4000-8000-000000000001",
			"creationTimestamp": "2017-01-01T00:00:00Z"},
		"spec": object{"replicas": 1, "selector": object{"matchLabels": labels}, "template": podTemplate()}})
	if err != nil {
		p.Fatal(err)
	}
	if _, err := p.etcd.Client().Put(p.Context(), key, string(value)); err != nil {
		p.Fatal(err)
	}
	if out := p.fusionctl(0, "status", "deployments.apps"); !strings.Contains(out, "1 object is stored in it") {
		p.Errorf("status does not tell of the deployment of extensions/v1beta1:\n%s", out)
	}
	plan := filepath.Join(p.rig.Dir(), "deployments.plan")
	// 3: without a spec, another server may write it that knows more fields.
	p.fusionctl(3, "plan", "deployments.apps", "--grace", "0s", "--out", plan)
	p.fusionctl(0, "apply", plan, "--yes")
	response, err := p.etcd.Client().Get(p.Context(), key)
	if err != nil || len(response.Kvs) != 1 {
		p.Fatalf("reading the deployment: %v", err)
	}
	if e, err := storage.ReadEnvelope(response.Kvs[0].Value); err != nil || string(e.APIVersion) != "apps/v1" {
		p.Errorf("the deployment is stored as %s (%v), want apps/v1", e.APIVersion, err)
	}
}

func (p *pizzeria) thereAndBack(pizzas int) {
	storePizzas(p.T, p.etcd, pizzas)
	both := pizzaDefinition(p.T, p.minor, nil, "v1alpha1", "v1beta1")
	p.call("PATCH", p.crds+"/"+pizzaCRD, object{"spec": object{"versions": both["spec"].(map[string]any)["versions"]}},
		nil)
	p.rig.Eventually("serving v1beta1", func(ctx context.Context) error {
		return p.client.Call(ctx, "GET", pizzaPath("v1beta1", "shop-0", "pizza-00000"), nil, nil)
	})
	withStore := p.flags
	far := *p.server
	far.URL = farAway(p.T, p.rig, p.server.URL)
	kubeconfig, err := p.rig.PKI.Kubeconfig("far-away", far.URL, "migrator", "system:masters")
	if err != nil {
		p.Fatal(err)
	}
	p.flags = []string{"--kubeconfig", kubeconfig}
	p.fusionctl(0, "plan", pizzaCRD, "--storage", "v1beta1", "--grace", "1s", "--out", p.plan)

	client := far.Client("loop", "system:masters")
	serial := p.serialRate(client, 50)
	out := p.fusionctl(0, "apply", p.plan, "--yes")
	serial = min(serial, p.serialRate(client, 50)) // the machine may have had other work at one of the two times
	if !strings.Contains(out, "proved by the API server, without a look into the store") {
		p.Errorf("the proof is not named:\n%s", out)
	}
	if versions, _ := storedPizzas(p.T, p.etcd, ""); versions["v1beta1"] != pizzas || len(versions) != 1 {
		p.Errorf("stored: %v, want %d as v1beta1 alone", versions, pizzas)
	}
	ours := p.rewriteRate(pizzas)
	p.Logf("%d pizzas: %.0f/s, a loop that reads and writes: %.0f/s", pizzas, ours, serial)
	if pizzas >= 1000 && ours < 3*serial {
		p.Errorf("%.0f objects/s, want three times the %.0f/s of a loop that reads and writes", ours, serial)
	}

	p.flags = withStore
	p.fusionctl(0, "undo", p.plan, "--to", "start", "--yes")
	if versions, _ := storedPizzas(p.T, p.etcd, ""); versions["v1alpha1"] != pizzas || len(versions) != 1 {
		p.Errorf("stored after undo: %v, want %d as v1alpha1 alone", versions, pizzas)
	}
	if stored, _, storage := p.definition(); !slices.Equal(stored, []string{"v1alpha1"}) || storage != "v1alpha1" {
		p.Errorf("after undo storedVersions %v, storage %s; want v1alpha1", stored, storage)
	}
}

// farAway is an address of the server behind a network that delays what is sent, in both directions: as between
// machines. Without that, and with two processors for the server, its store and its clients, a rate says how busy the
// processors are.
func farAway(t *testing.T, r *rig.Rig, server string) string {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	delayed := func(to, from net.Conn) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			time.Sleep(6 * time.Millisecond) // the network, not the test, waits
			if n > 0 {
				if _, err := to.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(server, "https://"))
			if err != nil {
				near.Close()
				continue
			}
			go delayed(far, near)
			go delayed(near, far)
		}
	}()
	return "https://" + listener.Addr().String()
}

// serialRate is how many objects per second a loop reads and writes, one after the other.
func (p *pizzeria) serialRate(client *rig.Client, objects int) float64 {
	p.Helper()
	call := func(method, url string, in, out any) {
		if err := client.Call(p.Context(), method, url, in, out); err != nil {
			p.Fatal(err)
		}
	}
	start := time.Now()
	for i := range objects {
		url := pizzaPath("v1alpha1", fmt.Sprintf("shop-%d", i%3), fmt.Sprintf("pizza-%05d", i))
		var pizza object
		call("GET", url, nil, &pizza)
		// or nothing would be written
		pizza["metadata"].(map[string]any)["labels"] = object{"turn": fmt.Sprint(start.UnixNano())}
		call("PUT", url, pizza, nil)
	}
	return float64(objects) / time.Since(start).Seconds()
}

// rewriteRate is that of the plan, as its journal says.
func (p *pizzeria) rewriteRate(objects int) float64 {
	p.Helper()
	data, err := os.ReadFile(p.plan + ".journal")
	if err != nil {
		p.Fatal(err)
	}
	var begin, done time.Time
	for line := range strings.Lines(string(data)) {
		var r struct {
			Event, ID string
			Time      time.Time
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			p.Fatal(err)
		}
		switch {
		case r.ID == "rewrite v1beta1" && r.Event == "begin":
			begin = r.Time
		case r.ID == "rewrite v1beta1" && r.Event == "done":
			done = r.Time
		}
	}
	return float64(objects) / done.Sub(begin).Seconds()
}
