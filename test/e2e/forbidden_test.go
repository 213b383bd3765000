//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// These tests run plans that `fusionctl check` refuses, and see what the rules say. One plan has the errors of several
// rules: servers take longer to start than to do their damage.

// refused fails unless every rule is an error of the plan.
func refused(t *testing.T, p *rig.Pair, rules ...string) {
	t.Helper()
	report := catalog.Check(p.Plan)
	for _, rule := range rules {
		if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
			return f.Rule == rule && f.Severity == finding.Error
		}) {
			t.Errorf("check does not report %s as an error of this plan", rule)
		}
	}
}

// changes watches the core store below a prefix, from now on. What it returns waits until accept says yes to one of
// the events, in their order.
func changes(t *testing.T, r *rig.Rig, p *rig.Pair, prefix string) func(string, func(*clientv3.Event) bool) {
	t.Helper()
	events := p.Stores["core"].Client().Watch(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created, ok := <-events; !ok || !created.Created {
		t.Fatalf("watching %s of the core store: %v", prefix, created.Err())
	}
	return func(what string, accept func(*clientv3.Event) bool) {
		t.Helper()
		r.Eventually(what, func(context.Context) error {
			for {
				select {
				case response := <-events:
					if err := response.Err(); err != nil {
						t.Fatalf("%s: watching %s of the core store: %v", what, prefix, err)
					}
					if slices.ContainsFunc(response.Events, accept) {
						return nil
					}
				default:
					return errors.New("not yet")
				}
			}
		})
	}
}

// deletionOf accepts the deletion of a key.
func deletionOf(key string) func(*clientv3.Event) bool {
	return func(e *clientv3.Event) bool { return e.Type == clientv3.EventTypeDelete && string(e.Kv.Key) == key }
}

// The modern side has nodes, claims, services and namespaces of its own, and controllers that decide by them about
// pods, volumes and endpoints of both sides. Others run on both sides. Its API server has a second authorizer and a
// port without any.
func TestControllersThatTheirPlanForbids(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.10.13", "1.15.12"
	r := rig.New(t)
	otherCA, _, err := r.PKI.Serving("another-bundle", "127.0.0.1")
	must(t, err)
	insecure := r.Port()
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern,
		Network: "{serviceCIDRs: [10.96.0.0/24]}",
		More: access + `  owners:
  - {resources: [nodes, persistentvolumeclaims, services, namespaces], owner: split}
`,
		ModernServerArgs: []string{"authorization-mode=ABAC,RBAC", fmt.Sprintf("insecure-port=%d", insecure)},
		ModernManagerArgs: []string{"controllers=podgc,persistentvolume-binder,endpoint,namespace," +
			"replicationcontroller,serviceaccount-token", "root-ca-file=" + otherCA,
			"service-account-private-key-file=" + r.PKI.File("sa.key")}})
	refused(t, p, "FUS052", "FUS080", "FUS081", "FUS083", "FUS086", "FUS087", "FUS133", "FUS154", "FUS155")
	ctx := t.Context()

	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	create := func(client *rig.Client, path string, body object) {
		t.Helper()
		must(t, client.Call(ctx, http.MethodPost, path, body, nil))
	}
	create(admin, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}})
	create(admin, "/api/v1/namespaces", object{"metadata": object{"name": "both"}})
	create(admin, "/api/v1/nodes", object{"metadata": object{"name": "node-1"}})
	awaitServiceAccount(r, admin)
	bound := pod("bound")
	bound["spec"].(object)["nodeName"] = "node-1"
	for namespace, body := range map[string]object{"demo": bound, "both": pod("kept")} {
		body["spec"].(object)["automountServiceAccountToken"] = false
		r.Eventually("a pod in "+namespace, func(ctx context.Context) error {
			err := admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", body, nil)
			if rig.Code(err) == http.StatusConflict { // an answer was lost
				return nil
			}
			return err
		})
	}
	web := service("web")
	web["spec"].(object)["clusterIP"] = "10.96.0.50"
	create(admin, "/api/v1/namespaces/demo/services", web)
	disk := boundVolume(t, r, admin)
	r.Eventually("the endpoints of the service", func(ctx context.Context) error {
		return admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/endpoints/web", nil, nil)
	})

	endpoints := changes(t, r, p, "/registry/services/endpoints/demo/")
	pods := changes(t, r, p, "/registry/pods/")
	secrets := changes(t, r, p, "/registry/secrets/kube-system/")
	p.StartModern()
	pods("the pod of a node that the modern side does not have is deleted", deletionOf("/registry/pods/demo/bound"))
	endpoints("the endpoints of the legacy side's service are deleted",
		deletionOf("/registry/services/endpoints/demo/web"))
	r.Eventually("the disk of the volume is deleted", func(context.Context) error {
		if _, err := os.Stat(disk); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	})
	bundles := map[string][][]byte{} // of each token's secret, one after the other
	secrets("both sides write their CA bundles into a token's secret, alternately", func(e *clientv3.Event) bool {
		written := bundles[string(e.Kv.Key)]
		if len(written) == 0 || !bytes.Equal(written[len(written)-1], e.Kv.Value) {
			written = append(written, e.Kv.Value)
		}
		bundles[string(e.Kv.Key)] = written
		return len(written) >= 4
	})

	modernAdmin := p.Modern.Client("admin", "system:masters")
	for _, namespace := range []string{"demo", "both"} {
		create(modernAdmin, "/api/v1/namespaces", object{"metadata": object{"name": namespace}})
	}
	for i := range 5 {
		create(admin, "/api/v1/namespaces/demo/replicationcontrollers",
			replicationController(fmt.Sprintf("surplus-%d", i), 20))
	}
	pods("both sides make the pods of replication controllers, and delete the surplus", func(e *clientv3.Event) bool {
		return e.Type == clientv3.EventTypeDelete && strings.HasPrefix(string(e.Kv.Key), "/registry/pods/demo/surplus-")
	})

	double := service("another")
	double["spec"].(object)["clusterIP"] = "10.96.0.50"
	create(modernAdmin, "/api/v1/namespaces/demo/services", double)
	if _, report := etcdCheckJSON(t, p.SpecFile); !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
		return f.Rule == "FUS052"
	}) {
		t.Error("etcd check does not say that an address was allocated twice")
	}
	must(t, modernAdmin.Call(ctx, http.MethodDelete, "/api/v1/namespaces/both", nil, nil))
	pods("the pods in the legacy side's namespace are deleted", deletionOf("/registry/pods/both/kept"))

	// A user that 1.15's bootstrap roles know, and the policy does not.
	must(t, p.Modern.Client("system:kube-scheduler").Call(ctx, http.MethodGet, "/api/v1/pods", nil, nil))
	anonymous := http.Client{Transport: &http.Transport{}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf(
		"http://127.0.0.1:%d/api/v1/secrets", insecure), nil)
	must(t, err)
	response, err := anonymous.Do(request)
	must(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("listing secrets at the insecure port: %s, want 200", response.Status)
	}
	seenDamage(t, spec.LayoutSplit, legacy, modern,
		"where nodes are in two stores, the modern side's pod garbage collector deletes pods that run on the legacy "+
			"side's",
		"where claims are in two stores, the modern side's volume binder deletes the disk of a volume that is in use",
		"where services are in two stores, the modern side's endpoints controller deletes the endpoints of the "+
			"legacy side's, and one ClusterIP is allocated twice",
		"where namespaces are in two stores, deleting one on the modern side deletes the pods in the legacy side's",
		"two replication controllers create more pods than there should be",
		"two token controllers write their CA bundles into one secret without end",
		"with RBAC beside ABAC, a user of the bootstrap roles reads what the policy does not allow",
		"secrets are listed without credentials at an insecure port")
}

// boundVolume makes a volume on a folder of the test, and a claim to which it is bound.
func boundVolume(t *testing.T, r *rig.Rig, admin *rig.Client) (folder string) {
	t.Helper()
	// The volume binder deletes folders below a folder of this name.
	folder = filepath.Join(r.Dir(), "tmp", "disk")
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "data"), []byte("precious"), 0o644))
	size := object{"storage": "1Gi"}
	must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/persistentvolumes", object{
		"metadata": object{"name": "disk"}, "spec": object{"capacity": size, "accessModes": []string{"ReadWriteOnce"},
			"persistentVolumeReclaimPolicy": "Delete", "hostPath": object{"path": folder}}}, nil))
	must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/persistentvolumeclaims", object{
		"metadata": object{"name": "claim"}, "spec": object{"accessModes": []string{"ReadWriteOnce"},
			"resources": object{"requests": size}, "volumeName": "disk"}}, nil))
	r.Eventually("the volume is bound", func(ctx context.Context) error {
		var claim struct{ Status struct{ Phase string } }
		err := admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/persistentvolumeclaims/claim", nil, &claim)
		if err == nil && claim.Status.Phase != "Bound" {
			err = fmt.Errorf("the claim is %s", claim.Status.Phase)
		}
		return err
	})
	if _, err := os.Stat(filepath.Join(folder, "data")); err != nil {
		t.Fatalf("the disk of the volume, before the modern side runs: %v", err)
	}
	return folder
}

func replicationController(name string, replicas int) object {
	labels, spec := object{"controller": name}, podSpec()
	spec["automountServiceAccountToken"] = false
	return object{"metadata": object{"name": name}, "spec": object{"replicas": replicas, "selector": labels,
		"template": object{"metadata": object{"labels": labels}, "spec": spec}}}
}

// The sides have ranges of their own for shared services, the modern side encrypts shared secrets, and service accounts
// are in two stores.
func TestServersThatTheirPlanForbids(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.10.13", "1.15.12"
	r := rig.New(t)
	keys := filepath.Join(r.Dir(), "encryption.yaml")
	must(t, os.WriteFile(keys, []byte(`kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: key1, secret: `+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))+`}]}
  - identity: {}
`), 0o600))
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		Network: "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}",
		More: access + `  owners:
  - {resources: [serviceaccounts], owner: split}
`,
		ModernServerArgs: []string{"encryption-provider-config=" + keys}})
	refused(t, p, "FUS051", "FUS070", "FUS100")
	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	ctx := t.Context()
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}}, nil))
	awaitServiceAccount(r, admin)
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/services", service("before"), nil))
	token := tokenOf(t, admin)
	p.StartModern()
	user := p.Modern.Client("alice", "developers")

	err := admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/services", service("after"), nil)
	if err == nil || !strings.Contains(err.Error(), "range") {
		t.Errorf("creating a service through %s after %s has started with another range: %v, want an error about "+
			"its range", legacy, modern, err)
	}

	must(t, user.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/secrets",
		object{"metadata": object{"name": "encrypted"}, "data": object{"key": "dmFsdWU="}}, nil))
	if err := admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/secrets", nil, nil); rig.Code(
		err) != http.StatusInternalServerError {
		t.Errorf("listing secrets, one of which %s has no key for: %v, want 500", legacy, err)
	}

	for server, want := range map[*rig.APIServer]bool{p.Legacy: true, p.Modern: false} {
		if code := codeWithToken(t, server, token); (code != http.StatusUnauthorized) != want {
			t.Errorf("%s answers a token of the legacy side's account with %d, want it accepted = %v", server.Name,
				code, want)
		}
	}
	seenDamage(t, spec.LayoutSplit, legacy, modern,
		"with another range, the start of the modern API server keeps the legacy one from creating services",
		"one secret that the modern API server encrypts makes every list of secrets through a legacy one without "+
			"keys answer 500",
		"where service accounts are in two stores, tokens of the legacy side are refused by the modern API server")
}

// tokenOf is the token of the demo namespace's account.
func tokenOf(t *testing.T, admin *rig.Client) string {
	t.Helper()
	var secrets struct {
		Items []struct{ Data map[string]string }
	}
	must(t, admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/secrets", nil, &secrets))
	for _, secret := range secrets.Items {
		if encoded := secret.Data["token"]; encoded != "" {
			token, err := base64.StdEncoding.DecodeString(encoded)
			must(t, err)
			return string(token)
		}
	}
	t.Fatal("the account has no token")
	return ""
}

// codeWithToken is what a server answers a request with the token.
func codeWithToken(t *testing.T, server *rig.APIServer, token string) int {
	t.Helper()
	config := server.RESTConfig("nobody")
	config.CertData, config.KeyData, config.BearerToken = nil, nil, token
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		server.URL+"/api/v1/namespaces/demo/pods", nil)
	must(t, err)
	response, err := client.Do(request)
	must(t, err)
	response.Body.Close()
	return response.StatusCode
}

// Releases on request: the ClusterIPs of both are objects, which are in two stores, while services are in one.
func TestAddressObjectsInTwoStores(t *testing.T) {
	t.Parallel()
	const legacy, modern = 35, 36
	pair := rig.PairSpec{Layout: spec.LayoutSplit, Legacy: builtRelease(t, legacy), Modern: builtRelease(t, modern),
		NoModernManager: true, More: access + `  owners:
  - {resources: [ipaddresses.networking.k8s.io], owner: split}
`}
	r := rig.New(t)
	p := r.NewPair(pair)
	refused(t, p, "FUS053")
	p.StartLegacy()
	p.StartModern()
	admin, user := demo(t, r, p)
	// Each side records the other's addresses, a moment after it has seen the service.
	tries := 0
	r.Eventually("one address is allocated to two services", func(ctx context.Context) error {
		tries++
		var wait sync.WaitGroup
		failed := make([]error, 2)
		for i, client := range []*rig.Client{admin, user} {
			one := service(fmt.Sprintf("service-%d-%d", tries, i))
			one["spec"].(object)["clusterIP"] = fmt.Sprintf("10.96.0.%d", 20+tries%200)
			wait.Go(func() {
				failed[i] = client.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/services", one, nil)
			})
		}
		wait.Wait()
		return errors.Join(failed...)
	})
	t.Logf("an address was allocated twice at attempt %d", tries)
	seenDamage(t, spec.LayoutSplit, pair.Legacy, pair.Modern,
		"where IPAddress objects are in two stores, two shared services that are created at one moment, on either "+
			"side, get one ClusterIP")
}

// Releases on request: the modern side stores custom resources in a form that the legacy one cannot decode.
func TestStoredCBORBlindsTheLegacySide(t *testing.T) {
	t.Parallel()
	pair := rig.PairSpec{Layout: spec.LayoutShared, Legacy: builtRelease(t, 24), Modern: builtRelease(t, 36),
		NoModernManager: true, More: sharedAccess,
		ModernServerArgs: []string{"feature-gates=CBORServingAndStorage=true"}}
	r := rig.New(t)
	p := r.NewPair(pair)
	refused(t, p, "FUS072")
	p.StartLegacy()
	p.StartModern()
	admin, user := demo(t, r, p)
	customResources(t, r, p, user)
	r.Eventually("lists of the custom resource fail on the legacy side", func(ctx context.Context) error {
		err := admin.Call(ctx, http.MethodGet, "/apis/example.test/v1/widgets", nil, nil)
		if rig.Code(err) != http.StatusInternalServerError {
			return fmt.Errorf("listing: %v, want 500", err)
		}
		return nil
	})
	seenDamage(t, spec.LayoutShared, pair.Legacy, pair.Modern, "with the gate CBORServingAndStorage on the modern "+
		"side, one custom resource makes every list of its kind through the legacy one answer 500")
}

// builtRelease is the version of a minor that was built. The test is skipped where that was not: few machines have the
// releases on request.
func builtRelease(t *testing.T, minor kubever.Minor) string {
	t.Helper()
	all := releases(t)
	i := slices.IndexFunc(all, func(r rig.Release) bool { return r.Minor == minor })
	if i < 0 {
		t.Skipf("%s is a release on request and not built here: make rig-all builds it", minor)
	}
	return all[i].Version.String()
}
