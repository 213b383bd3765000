//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// The rest of the plans that `fusionctl check` refuses: every rule about plans that is an error is seen by a test.

// refusedWith is refused for the spec of the pair with other words in it: old, new, and so on.
func refusedWith(t *testing.T, p *rig.Pair, rule string, words ...string) {
	t.Helper()
	text, err := os.ReadFile(p.SpecFile)
	must(t, err)
	for i := 0; i < len(words); i += 2 {
		if !bytes.Contains(text, []byte(words[i])) {
			t.Fatalf("the spec of the pair has no %q", words[i])
		}
	}
	f, err := spec.Load(p.SpecFile, []byte(strings.NewReplacer(words...).Replace(string(text))))
	must(t, err)
	changed, err := plan.New(f, plan.OnHosts)
	must(t, err)
	report := catalog.Check(changed)
	if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
		return f.Rule == rule && f.Severity == finding.Error
	}) {
		t.Errorf("check does not report %s as an error of the plan with %q", rule, words)
	}
}

// runsAlready makes the spec of a pair that of a legacy side that runs already.
var runsAlready = []string{"  legacy:\n", "  legacy:\n    existing: true\n"}

// endsWith starts a side's API server with one more argument, waits for its end, and fails unless it says why.
func endsWith(t *testing.T, r *rig.Rig, p *rig.Pair, argument, why string) {
	t.Helper()
	name, _, _ := strings.Cut(argument, "=")
	server := r.Start("apiserver-with-"+name, kubever.APIServer, p.Plan.Modern.Version.Minor,
		append(p.Args(pair.Modern, kubever.APIServer), "--"+argument))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code, err := server.Exit(ctx)
	must(t, err)
	if code == 0 || !strings.Contains(server.Log(), why) {
		t.Errorf("an API server with --%s exits %d, want another than 0, and %q in\n%s", argument, code, why,
			server.LogTail(5))
	}
}

// Overrides that the legacy side ignores; classes of priorities in one store of which it reads no version that the
// modern side writes; a legacy side that stores as an older one. And arguments with which an API server does not start.
func TestArgumentsThatTheirPlanForbids(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.10.13", "1.36.3"
	r := rig.New(t)
	elsewhere := r.StartEtcd("modern")
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		More: access + `  owners:
  - {resources: [priorityclasses.scheduling.k8s.io], owner: shared}
`,
		LegacyServerArgs: []string{"runtime-config=scheduling.k8s.io/v1alpha1=true",
			"storage-versions=rbac.authorization.k8s.io/v1beta1",
			fmt.Sprintf("etcd-servers-overrides=extensions/deployments#%s,apiextensions.k8s.io/"+
				"customresourcedefinitions#%[1]s", elsewhere.URL)},
		ModernServerArgs: []string{"emulated-version=1.33"},
		StartStore: func(name string) *rig.Etcd {
			if name == elsewhere.Name {
				return elsewhere
			}
			return r.StartEtcd(name)
		}})
	refused(t, p, "FUS004", "FUS010", "FUS090", "FUS225")
	const more = "extraArgs: [{name: emulated-version, "
	refusedWith(t, p, "FUS074", more, `extraArgs: [{name: audit-log-paht, value: "-"}, {name: emulated-version, `)
	refusedWith(t, p, "FUS250", slices.Concat(runsAlready, []string{more,
		`extraArgs: [{name: tracing-config-file, value: "/none.yaml"}, {name: emulated-version, `})...)
	ctx := t.Context()

	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}}, nil))
	awaitServiceAccount(r, admin)
	must(t, admin.Call(ctx, http.MethodPost, deploymentsPath(10), deployment("stays"), nil))
	must(t, admin.Call(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions", object{
		"metadata": object{"name": "stays.example.test"}, "spec": object{"group": "example.test", "version": "v1",
			"names": object{"plural": "stays", "kind": "Stay"}}}, nil))
	for _, key := range []string{"deployments/demo/stays",
		"apiextensions.k8s.io/customresourcedefinitions/stays.example.test"} {
		response, err := p.Stores["core"].Client().Get(ctx, "/registry/"+key)
		must(t, err)
		if response.Count != 1 {
			t.Errorf("%s is not in the core store: its override was heeded", key)
		}
	}
	must(t, admin.Call(ctx, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/demo/roles", object{
		"metadata": object{"name": "older"}, "rules": []object{{"apiGroups": []string{""},
			"resources": []string{"pods"}, "verbs": []string{"get"}}}}, nil))
	response, err := p.Stores["core"].Client().Get(ctx, "/registry/roles/demo/older")
	must(t, err)
	for _, kv := range response.Kvs {
		stored, err := storedKind(kv.Value)
		must(t, err)
		roles, _ := kubever.ResourceByKey("roles")
		if by, _ := roles.StoredAs(10); stored == by || stored.Version != "v1beta1" {
			t.Errorf("a role is stored as %s, want v1beta1; without the argument %s", stored, by)
		}
	}
	if response.Count != 1 {
		t.Error("the role is not in the core store")
	}
	if keys, err := elsewhere.Keys(ctx, "/registry/"); err != nil || len(keys) > 0 {
		t.Errorf("the store of the overrides holds %q, %v, want nothing", keys, err)
	}

	const classes = "/apis/scheduling.k8s.io/v1alpha1/priorityclasses"
	must(t, admin.Call(ctx, http.MethodGet, classes, nil, nil))
	p.StartModern()
	r.Eventually("the legacy side can list no class of priorities", func(ctx context.Context) error {
		if err := admin.Call(ctx, http.MethodGet, classes, nil, nil); rig.Code(err) != http.StatusInternalServerError {
			return fmt.Errorf("listing them: %v, want 500", err)
		}
		return nil
	})

	p.Modern.Stop()
	endsWith(t, r, p, "audit-log-paht=-", "unknown flag: --audit-log-paht")
	endsWith(t, r, p, "tracing-config-file=/none.yaml", "no such file")
	seenDamage(t, spec.LayoutSplit, legacy, modern,
		"overrides that name another group than the one that is stored, or definitions of custom resources, move "+
			"nothing",
		"where priority classes are in one store, those that the modern API server writes at its start leave the "+
			"legacy side without a list of them",
		"with --storage-versions, the legacy side stores roles in another version than its release does",
		"an API server with an unknown flag, or with a file that is not there, does not start")
}

// A legacy side whose second host is not in the plan, and whose pods trust another authority. Both sides run the
// controller of the same CronJobs, and nodes are connected to the modern API server, which does not know them.
func TestHostsAndNodesThatTheirPlanForbids(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	r := rig.New(t)
	otherCA, _, err := r.PKI.Serving("another-bundle", "127.0.0.1")
	must(t, err)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern,
		LegacyServerArgs:  []string{"apiserver-count=2"},
		LegacyManagerArgs: []string{"root-ca-file=" + otherCA},
		ModernServerArgs:  []string{"authorization-mode=ABAC"},
		ModernManagerArgs: []string{"controllers=deployment-controller,replicaset-controller,cronjob-controller"},
		More: access + `  owners:
  - {resources: [cronjobs.batch, jobs.batch, csinodes.storage.k8s.io], owner: legacy}
  kubelet: {version: 1.15.12, modern: {}}
`})
	refused(t, p, "FUS085", "FUS280", "FUS281")
	refusedWith(t, p, "FUS253", runsAlready...)
	refusedWith(t, p, "FUS255", slices.Concat(runsAlready,
		[]string{"  layout: split\n", "  layout: split\n  pods: {}\n"})...)
	ctx := t.Context()
	p.StartLegacy()
	p.StartModern()
	admin, user := demo(t, r, p)
	must(t, user.Call(ctx, http.MethodPost, deploymentsPath(36), deployment("modern"), nil))
	podsOf(r, admin, "modern", 3)
	await := deletions(t, r, p)
	p.PassLegacyLock()
	await("the collector of a host that is not in the plan deletes the modern side's pods")

	const cronJobs = "/apis/batch/v1beta1/namespaces/demo/cronjobs"
	must(t, admin.Call(ctx, http.MethodPost, cronJobs, minutely("sample"), nil))

	// What pods trust is in the secret of their account.
	var secrets struct {
		Items []struct{ Data map[string]string }
	}
	must(t, admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/secrets", nil, &secrets))
	i := slices.IndexFunc(secrets.Items, func(s struct{ Data map[string]string }) bool { return s.Data["token"] != "" })
	if i < 0 {
		t.Fatal("the account has no token")
	}
	bundle, err := base64.StdEncoding.DecodeString(secrets.Items[i].Data["ca.crt"])
	must(t, err)
	var unknown x509.UnknownAuthorityError
	if err := greets(ctx, p.Modern.URL, bundle); !errors.As(err, &unknown) {
		t.Errorf("connecting to the modern API server with what pods trust: %v, want an unknown authority", err)
	}
	authority, err := os.ReadFile(r.PKI.File("ca.crt"))
	must(t, err)
	must(t, greets(ctx, p.Modern.URL, authority))

	// The kubelet of a node, at the modern API server: what it asks for first, and what it writes.
	node := p.Modern.Client("system:node:node-1", "system:nodes")
	for _, path := range []string{leasePath + "/node-1", "/api/v1/services", nodePath} {
		if err := node.Call(ctx, http.MethodGet, path, nil, nil); rig.Code(err) != http.StatusForbidden {
			t.Errorf("GET %s by a node: %v, want 403", path, err)
		}
	}
	const csiNodes = "/apis/storage.k8s.io/v1beta1/csinodes"
	must(t, admin.Call(ctx, http.MethodGet, csiNodes, nil, nil))
	must(t, p.Modern.Client("admin", "system:masters").Call(ctx, http.MethodPost, "/apis/storage.k8s.io/v1/csinodes",
		object{"metadata": object{"name": "node-1"}, "spec": object{"drivers": []object{}}}, nil))
	r.Eventually("the legacy side can list no CSINode", func(ctx context.Context) error {
		if err := admin.Call(ctx, http.MethodGet, csiNodes, nil, nil); rig.Code(err) != http.StatusInternalServerError {
			return fmt.Errorf("listing them: %v, want 500", err)
		}
		return nil
	})

	r.Eventually("the job of a CronJob", func(ctx context.Context) error {
		keys, err := p.Stores["core"].Keys(ctx, "/registry/jobs/demo/")
		if err == nil && len(keys) == 0 {
			err = errors.New("there is none yet")
		}
		return err
	})
	r.Eventually("the legacy side can list no CronJob", func(ctx context.Context) error {
		if err := admin.Call(ctx, http.MethodGet, cronJobs, nil, nil); rig.Code(err) != http.StatusInternalServerError {
			return fmt.Errorf("listing them: %v, want 500", err)
		}
		return nil
	})
	seenDamage(t, spec.LayoutSplit, legacy, modern,
		"once the lock passes to a legacy host that the plan does not have, its collector deletes the modern side's "+
			"pods",
		"a pod that trusts the bundle of another authority cannot connect to the modern API server",
		"with a cronjob controller on both sides, the status that the modern one writes leaves the legacy side "+
			"without a list of CronJobs",
		"the CSINode of a kubelet at the modern API server leaves the legacy side without a list of them",
		"with ABAC alone, a kubelet at the modern API server reads neither its node nor services nor its lease")
}

func minutely(name string) object {
	template := podSpec()
	template["restartPolicy"] = "Never"
	return object{"metadata": object{"name": name}, "spec": object{"schedule": "* * * * *", "jobTemplate": object{
		"spec": object{"template": object{"spec": template}}}}}
}

// greets asks a server for its version; it is trusted by the bundle alone.
func greets(ctx context.Context, url string, bundle []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("no certificate in %q", bundle)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/version", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// A member of the store hangs while the others go on, and is alone afterwards. An API server that reads without a
// quorum answers what it has, which is old; one that wants a quorum does not answer.
func TestReadsOfAStaleMember(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.10.13", "1.36.3"
	r := rig.New(t)
	releases := etcdReleases(t)
	everywhere := releases[slices.IndexFunc(releases, func(r rig.EtcdRelease) bool { return r.Everywhere })]
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		More: access, LegacyServerArgs: []string{"etcd-quorum-read=false"},
		StartStore: func(name string) *rig.Etcd {
			if name == "core" {
				return r.StartEtcdOf(name, everywhere, 3)
			}
			return r.StartEtcd(name)
		}})
	refused(t, p, "FUS226")
	ctx := t.Context()
	store, minor := p.Stores["core"], p.Plan.Legacy.Version.Minor
	args := p.Args(pair.Legacy, kubever.APIServer)
	careless := r.StartAPIServer("careless", minor, args)
	careful := r.StartAPIServer("careful", minor, r.APIServerArgs(minor, store)) // with its release's own default
	careless.WaitReady()
	careful.WaitReady()

	stale := store.Members[0]
	stale.Signal(syscall.SIGSTOP)
	r.Eventually("a member hangs", func(context.Context) error { return stale.Hangs() })
	others := store.ClientOf(store.URLs[1:]...)
	defer others.Close()
	put := func(key, value string) {
		r.Eventually("writing "+key, func(ctx context.Context) error { // they may have to agree on a leader first
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := others.Put(ctx, key, value)
			return err
		})
	}
	// More than waits in sockets for it: what is written afterwards has never been sent to it.
	for i := range 24 {
		put(fmt.Sprintf("/filler/%d", i), strings.Repeat("x", 1<<20))
	}
	owner, err := json.Marshal(object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "owner",
		"namespace": "default", "uid": "7d8a3cde-0000-4000-8000-000000000001"}})
	must(t, err)
	put("/registry/configmaps/default/owner", string(owner))
	for _, member := range store.Members[1:] {
		member.Kill()
	}
	stale.Signal(syscall.SIGCONT)

	const path = "/api/v1/namespaces/default/configmaps/owner"
	r.Eventually("an object that exists is not found", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := careless.Client("admin", "system:masters").Call(ctx, http.MethodGet, path, nil, nil)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("without a quorum: %v, want 404", err)
		}
		return nil
	})
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := careful.Client("admin", "system:masters").Call(limited, http.MethodGet, path, nil, nil); err == nil ||
		rig.Code(err) == http.StatusNotFound {
		t.Errorf("with a quorum: %v, want no answer", err)
	}
	seenDamage(t, spec.LayoutSplit, legacy, modern,
		"an API server that reads from a stale etcd member does not find an object that exists")
}
