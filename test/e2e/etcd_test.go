//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
	"github.com/kubefusion/fusionctl/test/rig"
)

// What etcd check says will happen is held against what the servers and their collectors then do.

// allAccess lets the tests write anything through the modern API server.
const allAccess = `  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: ["*"], resources: ["*"]}
`

// etcdCheckJSON runs the command that an operator runs, and returns what it prints as JSON.
func etcdCheckJSON(t *testing.T, args ...string) (code int, report scan.Report) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Main(t.Context(), slices.Concat([]string{"etcd", "check", "-o", "json"}, args),
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if err := json.Unmarshal(out.Bytes(), &report); err != nil && out.Len() > 0 {
		t.Fatalf("etcd check %q exits %d: %v\n%s%s", args, code, err, &out, &errs)
	}
	return code, report
}

// startBare starts the servers of a pair without their controllers, which would write and delete beside the test.
func startBare(t *testing.T, r *rig.Rig, p *rig.Pair) (legacy, modern *rig.Client) {
	t.Helper()
	p.StartLegacy()
	p.LegacyManager.Stop()
	p.StartModern()
	legacy, modern = p.Legacy.Client("admin", "system:masters"), p.Modern.Client("alice", "developers")
	must(t, legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	must(t, legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/serviceaccounts",
		object{"metadata": object{"name": "default"}}, nil))
	return legacy, modern
}

// rich are objects of 1.36 with fields that older versions do not know, by path: some that are off, some that say what
// older versions do anyway.
const rich = `
/api/v1/namespaces/demo/pods:
  metadata: {name: rich}
  spec:
    enableServiceLinks: false
    setHostnameAsFQDN: true
    schedulingGates: [{name: example.com/wait}]
    os: {name: linux}
    topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, minDomains: 2}]
    securityContext: {fsGroup: 5, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
    initContainers: [{name: sidecar, image: example.test/sample:1, restartPolicy: Always}]
    containers:
    - name: main
      image: example.test/sample:1
      startupProbe: {grpc: {port: 5}}
      resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
    volumes:
    - {name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
/api/v1/namespaces/demo/services:
  metadata: {name: rich}
  spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, loadBalancerClass: example.com/x, internalTrafficPolicy: Local, ports: [{port: 80, appProtocol: http}]}
/api/v1/namespaces/demo/configmaps: {metadata: {name: rich}, immutable: true}
/api/v1/namespaces/demo/secrets: {metadata: {name: rich}, immutable: false}
/apis/apps/v1/namespaces/demo/deployments:
  metadata: {name: rich}
  spec:
    replicas: 0
    selector: {matchLabels: {a: b}}
    template:
      metadata: {labels: {a: b}}
      spec: {hostUsers: true, containers: [{name: main, image: example.test/sample:1, startupProbe: {exec: {command: ["true"]}}}]}
/apis/apps/v1/namespaces/demo/statefulsets:
  metadata: {name: rich}
  spec:
    replicas: 0
    serviceName: rich
    minReadySeconds: 5
    ordinals: {start: 3}
    selector: {matchLabels: {a: b}}
    template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: example.test/sample:1}]}}
/apis/networking.k8s.io/v1/namespaces/demo/networkpolicies:
  metadata: {name: rich}
  spec: {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80, endPort: 90}]}]}
`

// undecodable are objects that 1.36 stores in versions which 1.15 does not have.
const undecodable = `
/apis/networking.k8s.io/v1/namespaces/demo/ingresses: {metadata: {name: new}, spec: {defaultBackend: {service: {name: new, port: {number: 80}}}}}
/apis/batch/v1/namespaces/demo/cronjobs:
  metadata: {name: new}
  spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.test/sample:1}]}}}}}
/apis/autoscaling/v2/namespaces/demo/horizontalpodautoscalers: {metadata: {name: new}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: new}}}
/apis/policy/v1/namespaces/demo/poddisruptionbudgets: {metadata: {name: new}, spec: {selector: {matchLabels: {a: b}}}}
/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations: {metadata: {name: new}}
/apis/node.k8s.io/v1/runtimeclasses: {metadata: {name: new}, handler: new}
/apis/storage.k8s.io/v1/csidrivers: {metadata: {name: new.example.test}, spec: {}}
`

// createAll creates objects that are given by path, every field of which the server must know.
func createAll(t *testing.T, client *rig.Client, text string) {
	t.Helper()
	var all map[string]object
	must(t, yaml.Unmarshal([]byte(text), &all))
	for _, path := range slices.Sorted(maps.Keys(all)) {
		must(t, client.Call(t.Context(), http.MethodPost, path+"?fieldValidation=Strict", all[path], nil))
	}
}

func TestEtcdCheckPredictsALegacySide(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.15.12", Modern: "1.36.3", NoModernManager: true,
		More: allAccess})
	legacy, modern := startBare(t, r, p)
	createAll(t, modern, rich)
	createAll(t, modern, undecodable)
	code, report := etcdCheckJSON(t, p.SpecFile, "--depth", "objects")
	if code != 3 || !report.Complete {
		t.Fatalf("etcd check exits %d, incomplete %q; want 3", code, report.Incomplete)
	}
	deadLists(t, p, legacy, report)
	lostFields(t, p, legacy, report)
	p.Legacy.Stop()
	p.Modern.Stop()
	offlineAsLive(t, r, p)
	proved(t, spec.LayoutShared, "1.15.12", "1.36.3", "etcd check names the lists of the legacy side that fail and "+
		"no other, and the fields that the legacy side then drops",
		"etcd check says of a snapshot and of a stopped member's file what it says of the running etcd")
}

// deadLists compares the lists that the check says fail on the legacy side with those that do.
func deadLists(t *testing.T, p *rig.Pair, legacy *rig.Client, report scan.Report) {
	t.Helper()
	predicted := map[string]bool{}
	for _, f := range report.Findings {
		if f.Severity == finding.Error && strings.Contains(f.Message, "the legacy side (1.15.12) cannot decode: "+
			"every list") {
			predicted[strings.TrimPrefix(f.Subject, "core:")] = true
		}
	}
	dead := map[string]bool{}
	minor := p.Plan.Legacy.Version.Minor
	for _, a := range kubever.APIResources(minor) {
		resource, ok := kubever.ResourceFor(a.GroupResource())
		if !a.DefaultOn.Has(minor) || !ok || resource.Pseudo() || !resource.In(minor) || a.Kind != resource.Kind {
			continue
		}
		err := legacy.Call(t.Context(), http.MethodGet, "/"+apiPath(a.GroupVersion)+"/"+a.Name, nil, nil)
		if err != nil && rig.Code(err) != http.StatusInternalServerError {
			t.Errorf("listing %s %s: %v", a.GroupVersion, a.Name, err)
		}
		dead[resource.Key] = dead[resource.Key] || err != nil
	}
	maps.DeleteFunc(dead, func(_ string, failed bool) bool { return !failed })
	if diff := cmp.Diff(dead, predicted); diff != "" || len(dead) < 7 {
		t.Errorf("lists that fail through 1.15.12 (-seen +predicted):\n%s", diff)
	}
}

var (
	predictedField = regexp.MustCompile(`(\S+) \(\d+\)`)
	listIndex      = regexp.MustCompile(`\[\d+\]`)
)

// lostFields has the legacy side rewrite the rich objects and compares what they lose with what the check says of their
// resources.
func lostFields(t *testing.T, p *rig.Pair, legacy *rig.Client, report scan.Report) {
	t.Helper()
	for resource, path := range map[string]string{
		"pods": "/api/v1/namespaces/demo/pods", "services/specs": "/api/v1/namespaces/demo/services",
		"configmaps": "/api/v1/namespaces/demo/configmaps",
		"secrets":    "/api/v1/namespaces/demo/secrets", "deployments": "/apis/apps/v1/namespaces/demo/deployments",
		"statefulsets":    "/apis/apps/v1/namespaces/demo/statefulsets",
		"networkpolicies": "/apis/networking.k8s.io/v1/namespaces/demo/networkpolicies",
	} {
		predicted := map[string]bool{}
		for _, f := range report.Findings {
			if f.Rule == "FUS001" && f.Subject == "core:"+resource && strings.Contains(f.Message, "legacy side") {
				for _, match := range predictedField.FindAllStringSubmatch(strings.SplitN(f.Message, "status: ", 2)[1],
					-1) {
					predicted[match[1]] = true
				}
			}
		}
		before := storedLeaves(t, p, resource)
		must(t, legacy.Call(t.Context(), http.MethodPatch, path+"/rich",
			object{"metadata": object{"annotations": object{"rewritten": "yes"}}}, nil))
		after := storedLeaves(t, p, resource)
		lost := map[string]bool{}
		for leaf := range before {
			if _, kept := after[leaf]; kept {
				continue
			}
			known := ""
			for field := range predicted {
				if strings.HasPrefix(listIndex.ReplaceAllString(leaf, "[]"), field) {
					known = field
				}
			}
			if known == "" {
				t.Errorf("%s: 1.15.12 dropped %s, which was not predicted", resource, leaf)
			}
			lost[known] = true
		}
		for field := range predicted {
			if !lost[field] {
				t.Errorf("%s: 1.15.12 kept %s, which it was said to drop", resource, field)
			}
		}
		if len(lost) < 2 {
			t.Errorf("%s: lost %v, want more than managedFields", resource, lost)
		}
	}
}

// storedLeaves are the values in the stored object "rich" of a resource, by path.
func storedLeaves(t *testing.T, p *rig.Pair, resource string) map[string]any {
	t.Helper()
	answer, err := p.Stores["core"].Client().Get(t.Context(), "/registry/"+resource+"/demo/rich")
	must(t, err)
	tree, err := objects.Decode(answer.Kvs[0].Value)
	must(t, err)
	leaves := map[string]any{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				walk(strings.TrimPrefix(path+"."+name, "."), inner)
			}
		case []any:
			for i, inner := range value {
				walk(fmt.Sprintf("%s[%d]", path, i), inner)
			}
		default:
			leaves[path] = value
		}
	}
	walk("", tree)
	return leaves
}

// offlineAsLive checks the running etcd, a snapshot of it and its file, and files that are damaged.
func offlineAsLive(t *testing.T, r *rig.Rig, p *rig.Pair) {
	t.Helper()
	core := p.Stores["core"]
	_, live := etcdCheckJSON(t, p.SpecFile, "--depth", "objects")
	saved := filepath.Join(r.Dir(), "core-snapshot.db")
	from, err := core.Client().Snapshot(t.Context())
	must(t, err)
	data, err := io.ReadAll(from)
	must(t, err)
	must(t, os.WriteFile(saved, data, 0o600))
	core.Stop()
	for _, file := range []string{saved, filepath.Join(r.Dir(), "etcd-core", "member", "snap", "db")} {
		code, offline := etcdCheckJSON(t, p.SpecFile, "--depth", "objects", "--snapshot", "core="+file)
		if code != 3 {
			t.Errorf("etcd check of %s exits %d, want 3", filepath.Base(file), code)
		}
		for i := range offline.Stores {
			offline.Stores[i].Notes = nil
		}
		if diff := cmp.Diff(live, offline, cmpopts.IgnoreUnexported(scan.ResourceReport{})); diff != "" {
			t.Errorf("%s (-live +offline):\n%s", filepath.Base(file), diff)
		}
	}
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err = zip.Write(data)
	must(t, errors.Join(err, zip.Close()))
	damaged := map[string][]byte{"empty": {}, "zipped": zipped.Bytes(), "text": []byte("not a store"),
		"without its first page": data[4096:]}
	for n := range 12 {
		at := len(data) * n / 12
		damaged[fmt.Sprintf("cut off at %d", at)] = data[:at]
		flipped := bytes.Clone(data)
		flipped[at+7] ^= 0x10
		damaged[fmt.Sprintf("flipped at %d", at)] = flipped
		zeroed := bytes.Clone(data)
		copy(zeroed[at&^4095:], make([]byte, 4096))
		if !bytes.Equal(zeroed, data) {
			damaged[fmt.Sprintf("zeroed at %d", at)] = zeroed
		}
	}
	for name, data := range damaged {
		file := filepath.Join(r.Dir(), "damaged.db")
		must(t, os.WriteFile(file, data, 0o600))
		if code, report := etcdCheckJSON(t, p.SpecFile, "--snapshot", "core="+file); code != 1 && code != 2 ||
			report.Complete {
			t.Errorf("a snapshot that is %s: exit code %d, complete %v; want 1 or 2, and not complete", name, code,
				report.Complete)
		}
	}
}

// Collectors delete what the check says they delete, of the same objects, and nothing else.
func TestEtcdCheckPredictsCollectors(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.10.13", Modern: "1.36.3", NoModernManager: true,
		More: allAccess})
	legacy, modern := startBare(t, r, p)
	must(t, legacy.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "other"}},
		nil))
	c := &collected{T: t, pair: p}
	set := object{"metadata": object{"name": "set"},
		"spec": object{"replicas": 0, "selector": object{"matchLabels": object{"a": "b"}},
			"template": object{"metadata": object{"labels": object{"a": "b"}}, "spec": podSpec()}}}
	one := object{"metadata": object{"name": "one"}}
	ofLegacy := c.create(legacy, "/apis/extensions/v1beta1/namespaces/demo/replicasets", set)
	ofModern := c.create(modern, "/apis/apps/v1/namespaces/demo/replicasets", set)
	here := c.create(legacy, "/api/v1/namespaces/demo/configmaps", one)
	two := c.create(legacy, "/api/v1/namespaces/demo/configmaps", object{"metadata": object{"name": "two"}})
	account := c.create(legacy, "/api/v1/namespaces/other/serviceaccounts", one)
	class := c.create(modern, "/apis/storage.k8s.io/v1/storageclasses",
		object{"metadata": object{"name": "class"}, "provisioner": "example.test/none"})
	for name, owners := range map[string][]object{
		"of-nobody":            nil,
		"of-legacy":            {ownedBy("extensions/v1beta1", "ReplicaSet", "set", ofLegacy)},
		"of-modern":            {ownedBy("apps/v1", "ReplicaSet", "set", ofModern)},
		"of-legacy-as-apps":    {ownedBy("apps/v1", "ReplicaSet", "set", ofLegacy)},
		"of-a-config-map":      {ownedBy("v1", "ConfigMap", "one", here)},
		"of-one-that-is-there": {ownedBy("v1", "ConfigMap", "gone", uid(1)), ownedBy("v1", "ConfigMap", "one", here)},
		"of-none-that-is":      {ownedBy("v1", "ConfigMap", "gone", uid(2)), ownedBy("v1", "Secret", "gone", uid(3))},
		"of-another-uid":       {ownedBy("v1", "ConfigMap", "one", uid(4))},
		"of-an-unknown-kind":   {ownedBy("nowhere.test/v1", "Thing", "gone", uid(5))},
		"of-a-later-version":   {ownedBy("batch/v1", "CronJob", "gone", uid(6))},
		"of-an-earlier":        {ownedBy("batch/v1beta1", "CronJob", "gone", uid(7))},
		"of-a-class":           {ownedBy("storage.k8s.io/v1", "StorageClass", "class", class)},
		"of-another-namespace": {ownedBy("v1", "ServiceAccount", "one", account)},
		"of-another-kind":      {ownedBy("v1", "Secret", "two", two)},
	} {
		c.create(legacy, "/api/v1/namespaces/demo/secrets",
			object{"metadata": object{"name": name, "ownerReferences": owners}})
	}
	_, report := etcdCheckJSON(t, p.SpecFile)
	// What a collector before 1.20 does with a reference that is not true depends on what it happens to see first. It
	// then takes the owner for absent whoever refers to it, which is why these have owners of their own.
	c.run(r, p.Legacy, pair.Legacy, report, "of-another-namespace", "of-another-kind")
	c.run(r, p.Modern, pair.Modern, report)
	seenDamage(t, spec.LayoutSplit, "1.10.13", "1.36.3",
		"the collector of either side deletes the objects that etcd check says it deletes, and no other")
}

// ownedBy is one of several owners of an object.
func ownedBy(apiVersion, kind, name, uid string) object {
	return object{"apiVersion": apiVersion, "kind": kind, "name": name, "uid": uid}
}

// uid is one that no object has.
func uid(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// collected are objects that collectors delete.
type collected struct {
	*testing.T
	pair *rig.Pair
}

func (c *collected) create(client *rig.Client, path string, body object) (uid string) {
	c.Helper()
	var made struct{ Metadata struct{ UID string } }
	must(c.T, client.Call(c.Context(), http.MethodPost, path, body, &made))
	return made.Metadata.UID
}

// run runs the collector of a side until it has deleted what was predicted, looks whether it leaves the rest alone, and
// brings all of it back.
func (c *collected) run(r *rig.Rig, server *rig.APIServer, side pair.Side, report scan.Report, unsure ...string) {
	c.Helper()
	var predicted []string
	for _, f := range report.Findings {
		if slices.Contains([]string{"FUS060", "FUS061"}, f.Rule) && f.Subject == "core:secrets" &&
			strings.HasPrefix(f.Message, "the garbage collector of the "+string(side)) {
			for _, related := range f.Related {
				name, _, _ := strings.Cut(strings.TrimPrefix(related, "secrets/demo/"), " ")
				predicted = append(predicted, name)
			}
		}
	}
	const prefix = "/registry/secrets/demo/"
	etcd := c.pair.Stores["core"].Client()
	before, err := etcd.Get(c.Context(), prefix, clientv3.WithPrefix())
	must(c.T, err)
	gone := func(ctx context.Context) ([]string, error) {
		now, err := c.pair.Stores["core"].Keys(ctx, prefix)
		var names []string
		for _, kv := range before.Kvs {
			if name := strings.TrimPrefix(string(kv.Key), prefix); !slices.Contains(now, string(kv.Key)) &&
				!slices.Contains(unsure, name) {
				names = append(names, name)
			}
		}
		return names, err
	}
	predicted = slices.DeleteFunc(predicted, func(name string) bool { return slices.Contains(unsure, name) })
	slices.Sort(predicted)
	same := func(ctx context.Context) error {
		names, err := gone(ctx)
		if err == nil && !slices.Equal(names, predicted) {
			err = fmt.Errorf("it deleted %q, predicted were %q", names, predicted)
		}
		return err
	}
	name, _ := kubever.ControllerByName("garbage-collector-controller")
	controller, _ := name.NameIn(server.Minor)
	manager := r.StartControllerManager("collector-"+string(side), server.Minor,
		append(r.ControllerManagerArgs(server.Minor, server), "--controllers="+controller))
	manager.WaitReady()
	r.Eventually("the collector of the "+string(side)+" side deletes what was predicted", same)
	r.Throughout(10*time.Second, "it leaves the rest alone", same)
	manager.Stop()
	for _, kv := range before.Kvs {
		_, err := etcd.Put(c.Context(), string(kv.Key), string(kv.Value))
		must(c.T, err)
	}
}
