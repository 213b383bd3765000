//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestMoveSplitsASharedStore: two real servers wrote one store, which the rules forbid; etcd move splits it, back and
// again, and both servers of the split layout then list every object with its UID. Nothing is left where it does not
// belong.
func TestMoveSplitsASharedStore(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	pair := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.10.13", Modern: "1.36.3", More: access,
		NoControllers: true, NoModernManager: true})
	proveMove(t, r, pair)
}

// movedLists are what is listed before and after, by the side that has to list it in the end.
var movedLists = map[bool][]string{
	false: {"/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/secrets", "/api/v1/services",
		"/apis/apps/v1/namespaces/demo/deployments"},
	true: {"/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/services",
		"/apis/coordination.k8s.io/v1/namespaces/demo/leases", "/apis/node.k8s.io/v1/runtimeclasses",
		"/apis/kubeflow.org/v1/notebooks", "/apis/discovery.k8s.io/v1/namespaces/demo/endpointslices"},
}

func proveMove(t *testing.T, r *rig.Rig, pair *rig.Pair) {
	ctx := t.Context()
	start := func(name string, minor kubever.Minor) (*rig.APIServer, *rig.Client) {
		server := r.StartAPIServer(name, minor, r.APIServerArgs(minor, pair.Stores["core"]))
		server.WaitReady()
		return server, server.Client("admin", "system:masters")
	}
	old, oldClient := start("shared-legacy", pair.Plan.Legacy.Version.Minor)
	young, youngClient := start("shared-modern", pair.Plan.Modern.Version.Minor)
	fillShared(t, r, oldClient, youngClient)
	before := map[bool]map[string]string{false: uidsOf(r, oldClient, movedLists[false]),
		true: uidsOf(r, youngClient, movedLists[true])}
	old.Stop()
	young.Stop()

	folder := t.TempDir()
	for n, more := range [][]string{nil, {"--resource", "apiextensions.k8s.io/customresourcedefinitions", "--resource",
		"kubeflow.org/notebooks", "--from", "core", "--to", "modern"}} {
		plan := filepath.Join(folder, fmt.Sprint("move-", n))
		said := runFusionctl(t, 0, append([]string{"etcd", "move", "plan", pair.SpecFile, "--out", plan}, more...)...)
		if want := []string{"leases ", "kubeflow.org/notebooks "}[n]; !strings.Contains(said, want) {
			t.Fatalf("the plan does not move %s:\n%s", want, said)
		}
		// An operator who changes his mind, and again.
		for _, verb := range []string{"apply", "undo"} {
			runFusionctl(t, 0, "etcd", "move", verb, pair.SpecFile, plan, "--yes")
		}
		again := plan + "-again"
		runFusionctl(t, 0, append([]string{"etcd", "move", "plan", pair.SpecFile, "--out", again}, more...)...)
		runFusionctl(t, 0, "etcd", "move", "apply", pair.SpecFile, again, "--yes")
	}
	leases, err := pair.Stores["modern"].Client().Leases(ctx)
	must(t, err)
	if n := len(leases.Leases); n > 20 {
		t.Errorf("%d leases in the new store, want few", n)
	}

	pair.StartLegacy()
	pair.StartModern()
	after := map[bool]map[string]string{
		false: uidsOf(r, pair.Legacy.Client("admin", "system:masters"), movedLists[false]),
		true:  uidsOf(r, pair.Modern.Client("admin", "system:masters"), movedLists[true]),
	}
	for modern, objects := range before {
		for object, uid := range objects {
			if after[modern][object] != uid {
				t.Errorf("%s: UID %s, was %s (listed by the modern side: %v)", object, after[modern][object], uid,
					modern)
			}
		}
		t.Logf("listed by the modern side: %v: %d objects before, %d after", modern, len(objects), len(after[modern]))
	}
	// And both write again.
	must(t, pair.Modern.Client("admin", "system:masters").Call(ctx, http.MethodPost,
		"/apis/kubeflow.org/v1/namespaces/demo/notebooks", notebook("after"), nil))
	r.Eventually("etcd check finds nothing where it does not belong", func(context.Context) error {
		out := etcdCheck(t, pair.SpecFile)
		for _, rule := range []string{"FUS004", "FUS010", "FUS231", "FUS232"} {
			if strings.Contains(out, rule) {
				return fmt.Errorf("check finds %s:\n%s", rule, out)
			}
		}
		return nil
	})
}

// etcdCheck is what etcd check prints, whatever it finds.
func etcdCheck(t *testing.T, file string) string {
	t.Helper()
	c := newCommand(t.Context(), "etcd", "check", file)
	if code := c.code(c.Run()); code != 0 && code != 3 {
		t.Fatalf("etcd check exits %d: %s", code, c.err.String())
	}
	return c.out.String()
}

func notebook(name string) object {
	return object{"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": object{"name": name},
		"spec": object{"image": "jupyter"}}
}

// fillShared writes through both servers of one store.
func fillShared(t *testing.T, r *rig.Rig, old, young *rig.Client) {
	ctx := t.Context()
	must(t, old.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}}, nil))
	must(t, young.Call(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{
		"metadata": object{"name": "notebooks.kubeflow.org"},
		"spec": object{"group": "kubeflow.org", "scope": "Namespaced",
			"names": object{"plural": "notebooks", "singular": "notebook", "kind": "Notebook"},
			"versions": []object{{"name": "v1", "served": true, "storage": true,
				"schema": object{
					"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
	}, nil))
	r.Eventually("custom resources can be made", func(ctx context.Context) error {
		return young.Call(ctx, http.MethodPost, "/apis/kubeflow.org/v1/namespaces/demo/notebooks", notebook("first"),
			nil)
	})
	must(t, young.Call(ctx, http.MethodPost, "/apis/node.k8s.io/v1/runtimeclasses",
		object{"metadata": object{"name": "gvisor"}, "handler": "runsc"}, nil))
	must(t, old.Call(ctx, http.MethodPost, "/apis/apps/v1/namespaces/demo/deployments", deployment("legacy"), nil))
	must(t, old.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/services",
		object{"metadata": object{"name": "shop"}, "spec": object{"ports": []object{{"port": 80}}}}, nil))
	for i := range 40 {
		name := fmt.Sprintf("n-%02d", i)
		must(t, young.Call(ctx, http.MethodPost, "/apis/kubeflow.org/v1/namespaces/demo/notebooks", notebook(name),
			nil))
		must(t, young.Call(ctx, http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/demo/leases",
			object{"metadata": object{"name": name}, "spec": object{"holderIdentity": name}}, nil))
		must(t, young.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/configmaps",
			object{"metadata": object{"name": name}, "data": object{"key": name}}, nil))
		must(t, old.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/secrets",
			object{"metadata": object{"name": name}, "data": object{"key": []byte(name)}}, nil))
		must(t, old.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/events",
			object{"metadata": object{"name": name}, "involvedObject": object{"namespace": "demo", "name": name},
				"reason": "Made"}, nil))
	}
}

// uidsOf lists paths and returns the UID of each object. A server that has just started may not know all of them yet.
func uidsOf(r *rig.Rig, client *rig.Client, paths []string) map[string]string {
	uids := map[string]string{}
	for _, path := range paths {
		r.Eventually("GET "+path, func(ctx context.Context) error {
			var list struct {
				Items []struct {
					Metadata struct{ Namespace, Name, UID string }
				}
			}
			if err := client.Call(ctx, http.MethodGet, path, nil, &list); err != nil {
				return err
			}
			for _, item := range list.Items {
				uids[path+" "+item.Metadata.Namespace+"/"+item.Metadata.Name] = item.Metadata.UID
			}
			return nil
		})
	}
	return uids
}
