//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/test/rig"
)

// keepsPods is how long the pods of both sides must stay the same.
const keepsPods = 2 * time.Minute

// access is what the ordinary users of the modern side may do in these tests; roles and ingresses are not in it.
const access = `  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [namespaces, pods, services, configmaps, secrets, serviceaccounts]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apps, batch], resources: [deployments, replicasets, statefulsets, jobs, cronjobs]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apiextensions.k8s.io, example.test], resources: ["*"]}
`

// sharedAccess is the first design: custom resources and what both versions read alike.
const sharedAccess = `  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [namespaces, pods, services, configmaps, secrets, serviceaccounts]}
  - {subjects: [{kind: Group, name: developers}], apiGroups: [apiextensions.k8s.io, example.test], resources: ["*"]}
`

func TestPairs(t *testing.T) {
	t.Parallel()
	for _, s := range pairsToProve(t) {
		t.Run(fmt.Sprintf("%s %s+%s", s.Layout, s.Legacy, s.Modern), func(t *testing.T) {
			t.Parallel()
			run := runOf(t, s)
			if known(t, run) {
				t.Skipf("these programs were run on %s", run.Day)
			}
			r := rig.New(t)
			proveThePair(t, r, r.StartPair(s))
			proved(t, s.Layout, s.Legacy, s.Modern,
				"both servers are healthy with the rendered arguments, policy, certificates and kubeconfigs",
				"an ordinary user defines and uses custom resources through the modern side; groups outside of the "+
					"policy answer 403",
				"pods and services made on either side are visible on both",
				fmt.Sprintf("Deployments reach their pods through their own side's controller manager and keep the "+
					"same UIDs for %s", keepsPods),
				"every list of every resource of the legacy side answers before and after, and after a restart of "+
					"either server",
				"etcd check of the stores is clean")
			if !t.Failed() {
				keep(t, run)
			}
		})
	}
}

// proveThePair does what users of a fused control plane do, and looks for what the naive configuration destroys.
func proveThePair(t *testing.T, r *rig.Rig, p *rig.Pair) {
	ctx := t.Context()
	admin := p.Legacy.Client("admin", "system:masters")
	user := p.Modern.Client("alice", "developers")
	listEverything(t, admin, p.Plan.Legacy.Version.Minor)

	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}}, nil))
	awaitServiceAccount(r, admin)
	customResources(t, r, p, user)

	refused := map[string]object{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles": {"metadata": object{"name": "nobody"}},
	}
	if p.ModernManager == nil {
		refused["/apis/apps/v1/namespaces/demo/deployments"] = deployment("refused")
	}
	for path, body := range refused {
		if err := user.Call(ctx, http.MethodPost, path, body, nil); rig.Code(err) != http.StatusForbidden {
			t.Errorf("POST %s by an ordinary user: %v, want 403", path, err)
		}
	}

	for name, client := range map[string]*rig.Client{"legacy": admin, "modern": user} {
		// An API server that has not seen the account's token yet says so, and asks to try again.
		r.Eventually("a pod of the "+name+" side", func(ctx context.Context) error {
			err := client.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/pods", pod("pod-of-"+name), nil)
			if rig.Code(err) == http.StatusConflict { // an answer was lost
				return nil
			}
			return err
		})
		must(t, client.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/services", service("service-of-"+name), nil))
	}
	for _, path := range []string{"pods/pod-of-legacy", "pods/pod-of-modern", "services/service-of-legacy",
		"services/service-of-modern"} {
		for side, client := range map[string]*rig.Client{"legacy": admin, "modern": user} {
			if err := client.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/"+path, nil, nil); err != nil {
				t.Errorf("%s through the %s side: %v", path, side, err)
			}
		}
	}

	must(t, admin.Call(ctx, http.MethodPost, deploymentsPath(p.Plan.Legacy.Version.Minor), deployment("legacy"), nil))
	want := 3
	if p.ModernManager != nil {
		must(t, user.Call(ctx, http.MethodPost, deploymentsPath(p.Plan.Modern.Version.Minor), deployment("modern"),
			nil))
		want = 6
	}
	uids := map[string]string{}
	r.Eventually("the pods of the Deployments", func(ctx context.Context) error {
		found, err := deploymentPods(ctx, admin)
		if err == nil && len(found) != want {
			err = fmt.Errorf("%d pods, want %d", len(found), want)
		}
		uids = found
		return err
	})
	same := func(ctx context.Context) error {
		for side, client := range map[string]*rig.Client{"legacy": admin, "modern": user} {
			found, err := deploymentPods(ctx, client)
			if err != nil {
				return err
			}
			if !maps.Equal(found, uids) {
				return fmt.Errorf("through the %s side: pods %v, want %v", side, found, uids)
			}
		}
		return nil
	}
	r.Throughout(keepsPods, "the pods stay", same)

	listEverything(t, admin, p.Plan.Legacy.Version.Minor)
	storesAreClean(t, p)
	for _, side := range pair.Sides() {
		p.RestartServer(side)
	}
	r.Eventually("the same pods after both servers were restarted", same)
	listEverything(t, admin, p.Plan.Legacy.Version.Minor)
}

// storesAreClean runs the command that an operator runs.
func storesAreClean(t *testing.T, p *rig.Pair) {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), []string{"etcd", "check", p.SpecFile},
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if code != 0 {
		t.Errorf("etcd check exits %d, want 0\n%s%s", code, &errs, &out)
	}
}

// listEverything lists every resource that the release serves, through its own discovery: one object that it cannot
// read makes a list fail.
func listEverything(t *testing.T, client *rig.Client, minor kubever.Minor) {
	t.Helper()
	seen := 0
	for _, a := range kubever.APIResources(minor) {
		if !a.DefaultOn.Has(minor) {
			continue
		}
		if r, ok := kubever.ResourceFor(a.GroupResource()); !ok || r.Pseudo() || !r.In(minor) || a.Kind != r.Kind {
			continue // not stored: reviews, and replication controllers of extensions, which have a scale only
		}
		path := "/apis/" + a.GroupVersion.String()
		if a.Group == "" {
			path = "/api/v1"
		}
		err := client.Call(t.Context(), http.MethodGet, path+"/"+a.Name, nil, nil)
		if err != nil {
			t.Errorf("listing %s %s through %s: %v", a.GroupVersion, a.Name, minor, err)
		}
		seen++
	}
	if seen < 20 {
		t.Errorf("%s listed %d resources only", minor, seen)
	}
}

// awaitServiceAccount waits for the default account, without which no pod is admitted, and for its token where the
// server's release makes one for each account: without it none is, either.
func awaitServiceAccount(r *rig.Rig, client *rig.Client) {
	r.Eventually("the default service account", func(ctx context.Context) error {
		var version struct{ GitVersion string }
		if err := client.Call(ctx, http.MethodGet, "/version", nil, &version); err != nil {
			return err
		}
		server, err := kubever.Parse(version.GitVersion)
		if err != nil {
			return err
		}
		var account struct{ Secrets []struct{ Name string } }
		if err := client.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/serviceaccounts/default", nil,
			&account); err != nil {
			return err
		}
		if len(account.Secrets) == 0 && kubever.Behaves(kubever.BehaviourTokenSecretsCreated, server.Minor) {
			return errors.New("it has no token yet")
		}
		return nil
	})
}

// customResources defines one and uses it as an ordinary user of the modern side.
func customResources(t *testing.T, r *rig.Rig, p *rig.Pair, user *rig.Client) {
	t.Helper()
	ctx := t.Context()
	names := object{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
	path, definition := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{
		"metadata": object{"name": "widgets.example.test"},
		"spec": object{"group": "example.test", "scope": "Namespaced", "names": names,
			"versions": []object{{"name": "v1", "served": true, "storage": true,
				"schema": object{
					"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
	}
	if !kubever.ServesGVK(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}, p.Plan.Modern.Version.Minor) {
		path = strings.Replace(path, "/v1/", "/v1beta1/", 1)
		definition["spec"] = object{"group": "example.test", "version": "v1", "scope": "Namespaced", "names": names}
	}
	must(t, user.Call(ctx, http.MethodPost, path, definition, nil))
	widgets := "/apis/example.test/v1/namespaces/demo/widgets"
	r.Eventually("the custom resource", func(ctx context.Context) error {
		return user.Call(ctx, http.MethodGet, widgets, nil, nil)
	})
	must(t, user.Call(ctx, http.MethodPost, widgets,
		object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": object{"name": "one"},
			"spec": object{"size": 1}}, nil))
}

// deploymentPods maps the pods of the Deployments of these tests to their UIDs, by name.
func deploymentPods(ctx context.Context, client *rig.Client) (map[string]string, error) {
	return labelledPods(ctx, client, "deployment")
}

// labelledPods maps the pods that a label selector finds to their UIDs, by name. One that is being deleted is an error.
func labelledPods(ctx context.Context, client *rig.Client, selector string) (map[string]string, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name, UID, DeletionTimestamp string }
		}
	}
	if err := client.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/pods?labelSelector="+selector, nil,
		&list); err != nil {
		return nil, err
	}
	uids := map[string]string{}
	for _, item := range list.Items {
		if item.Metadata.DeletionTimestamp != "" {
			return nil, fmt.Errorf("pod %s is being deleted", item.Metadata.Name)
		}
		uids[item.Metadata.Name] = item.Metadata.UID
	}
	return uids, nil
}

func deploymentsPath(minor kubever.Minor) string {
	deployments, _ := kubever.ResourceByKey("deployments")
	served := deployments.Served(minor)
	if i := slices.IndexFunc(served, func(gv schema.GroupVersion) bool {
		return gv.Group == "apps" && gv.Version == "v1"
	}); i >= 0 {
		return "/apis/apps/v1/namespaces/demo/deployments"
	}
	return "/apis/" + served[0].String() + "/namespaces/demo/deployments"
}

func deployment(name string) object {
	labels := object{"deployment": name}
	return object{"metadata": object{"name": name},
		"spec": object{"replicas": 3, "selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": podSpec()}}}
}

func pod(name string) object { return object{"metadata": object{"name": name}, "spec": podSpec()} }

func podSpec() object {
	return object{"containers": []object{{"name": "main", "image": "example.test/sample:1"}}}
}

func service(name string) object {
	return object{"metadata": object{"name": name},
		"spec": object{"ports": []object{{"port": 80}}, "selector": object{"app": name}}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
