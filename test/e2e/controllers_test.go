//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/controllers"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// fusionctlEnv names the program to tests in a sandbox, where no modules can be downloaded.
const fusionctlEnv = "FUSIONCTL_E2E_PROGRAM"

// fusionctl builds the command line once for all tests.
var fusionctl = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(fusionctlEnv); program != "" {
		return program, nil
	}
	dir, err := programDir("fusionctl-e2e-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fusionctl")
	build := exec.Command("go", "build", "-o", path, "github.com/kubefusion/fusionctl/cmd/fusionctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does: it runs in any image
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building fusionctl: %w\n%s", err, out)
	}
	return path, nil
})

// fused is a pair whose controllers run.
type fused struct {
	*rig.Rig
	*rig.Pair
	t           *testing.T
	admin, user *rig.Client
	controllers *rig.Process
	health      string
	bystanders  map[string]string // pods that nobody may touch, by name
}

// collectorAccess lets the modern side's own collector act, which no plan does that keeps it off.
const collectorAccess = `  - {subjects: [{kind: ServiceAccount, namespace: kube-system, name: generic-garbage-collector}], apiGroups: ["*"], resources: ["*"]}
`

func startFused(t *testing.T, legacy, access string, more ...string) *fused {
	t.Helper()
	f := &fused{Rig: rig.New(t), t: t}
	f.Pair = f.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: "1.36.3", More: access,
		// one that is started again does not wait for its old lock to end
		LegacyManagerArgs: []string{"leader-elect=false"},
		ControllersArgs:   append([]string{"qps=400", "changes-per-second=200"}, more...)})
	binary, err := fusionctl()
	must(t, err)
	f.controllers, f.health = f.StartControllers(binary)
	f.awaitControllers()
	f.admin, f.user = demo(t, f.Rig, f.Pair)
	for side := range f.sides() {
		f.create(side, "deployments", deployment("bystander-"+side))
	}
	f.Eventually("the bystanders' pods", func(ctx context.Context) error {
		found := map[string]string{}
		for side := range f.sides() {
			pods, err := labelledPods(ctx, f.admin, "deployment=bystander-"+side)
			if err != nil || len(pods) != 3 {
				return fmt.Errorf("%d pods of the %s side, want 3: %w", len(pods), side, errors.Join(err, errNotYet))
			}
			maps.Copy(found, pods)
		}
		f.bystanders = found
		return nil
	})
	return f
}

var errNotYet = errors.New("not yet")

// sides are the clients of ordinary users of the two sides.
func (f *fused) sides() map[string]*rig.Client {
	return map[string]*rig.Client{"legacy": f.admin, "modern": f.user}
}

// awaitControllers waits until the controllers act.
func (f *fused) awaitControllers() {
	f.t.Helper()
	f.controllers.Wait("act", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.health+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz answers %s", response.Status)
		}
		return nil
	})
}

// path of a resource of apps or batch in the version that the side serves.
func (f *fused) path(side, resource string) string {
	group := map[string]string{"deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "jobs": "batch",
		"cronjobs": "batch"}[resource]
	version := group + "/v1"
	if side == "legacy" && f.Plan.Legacy.Version.Minor < 9 && group == "apps" {
		if version = "extensions/v1beta1"; resource == "statefulsets" {
			version = "apps/v1beta1"
		}
	}
	return "/apis/" + version + "/namespaces/demo/" + resource
}

func (f *fused) create(side, resource string, body object) (uid string) {
	f.t.Helper()
	var made object
	must(f.t, f.sides()[side].Call(f.t.Context(), http.MethodPost, f.path(side, resource), body, &made))
	return made["metadata"].(object)["uid"].(string)
}

// remove deletes with a propagation policy.
func (f *fused) remove(client *rig.Client, path string, policy metav1.DeletionPropagation) {
	f.t.Helper()
	must(f.t, client.Call(f.t.Context(), http.MethodDelete, path,
		object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}, nil))
}

// nothingLeft waits until lists at the paths find nothing.
func (f *fused) nothingLeft(what string, client *rig.Client, paths ...string) {
	f.t.Helper()
	start := time.Now()
	f.Eventually(what, func(ctx context.Context) error {
		for _, path := range paths {
			var list struct {
				Items []struct{ Metadata metav1.ObjectMeta }
			}
			if err := client.Call(ctx, http.MethodGet, path, nil, &list); err != nil {
				return err
			}
			if len(list.Items) > 0 {
				return fmt.Errorf("%d objects at %s, the first is %s with finalizers %q, deleted %v", len(list.Items),
					path, list.Items[0].Metadata.Name, list.Items[0].Metadata.Finalizers,
					list.Items[0].Metadata.DeletionTimestamp)
			}
		}
		return nil
	})
	f.t.Logf("%s: after %s", what, time.Since(start).Round(10*time.Millisecond))
	f.bystandersLive(what)
}

// bystandersLive fails the test when a pod that nobody deleted is gone.
func (f *fused) bystandersLive(when string) {
	f.t.Helper()
	pods, err := deploymentPods(f.t.Context(), f.admin)
	if err != nil {
		f.t.Fatalf("%s: the bystanders: %v", when, err)
	}
	for name, uid := range f.bystanders {
		if pods[name] != uid {
			f.t.Fatalf("%s: pod %s is gone, and nobody deleted its Deployment", when, name)
		}
	}
}

func (f *fused) awaitPods(workload string, want int) {
	f.t.Helper()
	f.Eventually("the pods of "+workload, func(ctx context.Context) error {
		found, err := labelledPods(ctx, f.admin, "deployment="+workload)
		if err == nil && len(found) != want {
			err = fmt.Errorf("%d pods, want %d", len(found), want)
		}
		return err
	})
}

const demoPods = "/api/v1/namespaces/demo/pods"

func TestControllers(t *testing.T) {
	t.Parallel()
	for _, legacy := range []string{"1.6.13", "1.10.13", "1.15.12"} {
		t.Run(legacy, func(t *testing.T) {
			t.Parallel()
			naive := legacy == "1.15.12"
			more := access
			if naive {
				more += collectorAccess
			}
			f := startFused(t, legacy, more)
			f.deployments()
			f.trees()
			f.customOwners()
			f.namespace()
			if naive {
				f.naive()
			}
			proved(t, spec.LayoutSplit, legacy, "1.36.3",
				"with fusionctl controllers, Deployments of both sides deleted with each propagation policy leave no "+
					"ReplicaSet and no pod, and nothing else is touched",
				"the pods of a deleted StatefulSet, CronJob or custom resource of the modern side go",
				"a thousand pods of a deleted owner go, with the controllers killed three times and either server once",
				"a deleted namespace stays until both stores are empty of it, and is gone then, although either "+
					"server was killed in the middle of it",
				"the controllers do this with the arguments, kubeconfigs and certificate of the plan, its policy on "+
					"the modern side and its roles on the legacy side")
		})
	}
}

// deployments of each side, deleted in each way.
func (f *fused) deployments() {
	f.t.Helper()
	for side, client := range f.sides() {
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
			metav1.DeletePropagationForeground} {
			name := strings.ToLower(side + "-" + string(policy))
			f.create(side, "deployments", deployment(name))
			f.awaitPods(name, 3)
			f.remove(client, f.path(side, "deployments")+"/"+name, policy)
			f.nothingLeft(fmt.Sprintf("a Deployment of the %s side, %s", side, policy), client,
				f.path(side, "deployments")+"?fieldSelector=metadata.name="+name,
				f.path(side, "replicasets")+"?labelSelector=deployment="+name,
				demoPods+"?labelSelector=deployment="+name)
		}
		name := side + "-orphan"
		f.create(side, "deployments", deployment(name))
		f.awaitPods(name, 3)
		f.remove(client, f.path(side, "deployments")+"/"+name, metav1.DeletePropagationOrphan)
		f.nothingLeft("a Deployment of the "+side+" side, orphaning", client,
			f.path(side, "deployments")+"?fieldSelector=metadata.name="+name)
		var sets struct {
			Items []struct{ Metadata metav1.ObjectMeta }
		}
		must(f.t, client.Call(f.t.Context(), http.MethodGet,
			f.path(side, "replicasets")+"?labelSelector=deployment="+name, nil, &sets))
		if len(sets.Items) != 1 || len(sets.Items[0].Metadata.OwnerReferences) != 0 {
			f.t.Fatalf("orphaned by the %s side: %d ReplicaSets with owners, want one without: %+v", side,
				len(sets.Items), sets.Items)
		}
		f.awaitPods(name, 3)
		f.remove(client, f.path(side, "replicasets")+"/"+sets.Items[0].Metadata.Name,
			metav1.DeletePropagationBackground)
		f.nothingLeft("an orphaned ReplicaSet of the "+side+" side", client, demoPods+"?labelSelector=deployment="+name)
	}
}

// trees of the modern side: StatefulSet and pods, CronJob and Job and pods.
func (f *fused) trees() {
	f.t.Helper()
	for side, client := range f.sides() {
		name := "set-of-" + side
		f.create(side, "statefulsets", statefulSet(name))
		f.awaitPods(name, 1) // the next one waits for the first to run
		f.remove(client, f.path(side, "statefulsets")+"/"+name, metav1.DeletePropagationBackground)
		f.nothingLeft("a StatefulSet of the "+side+" side", client, demoPods+"?labelSelector=deployment="+name)
	}
	template := func(name string) object {
		pod := podSpec()
		pod["restartPolicy"] = "Never"
		return object{"template": object{"metadata": object{"labels": object{"deployment": name}}, "spec": pod}}
	}
	uid := f.create("modern", "cronjobs",
		object{"metadata": object{"name": "tree"},
			"spec": object{"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": object{"spec": template("tree")}}})
	f.create("modern", "jobs",
		object{"metadata": object{"name": "tree",
			"ownerReferences": []object{owner("batch/v1", "CronJob", "tree", uid)}}, "spec": template("tree")})
	f.awaitPods("tree", 1)
	f.remove(f.user, f.path("modern", "cronjobs")+"/tree", metav1.DeletePropagationBackground)
	f.nothingLeft("a CronJob, its Job and its pod", f.user, f.path("modern", "jobs"),
		demoPods+"?labelSelector=deployment=tree")
}

func owner(apiVersion, kind, name, uid string) object {
	return object{"apiVersion": apiVersion, "kind": kind, "name": name, "uid": uid, "controller": true,
		"blockOwnerDeletion": true}
}

// manyPods is how many pods one owner has.
const manyPods = 1000

// customOwners: a custom resource owns a thousand pods; while they go, the controllers are killed again and again, and
// the servers once.
func (f *fused) customOwners() {
	t := f.t
	t.Helper()
	customResources(t, f.Rig, f.Pair, f.user)
	const widgets = "/apis/example.test/v1/namespaces/demo/widgets"
	widget := func(name string) (uid string) {
		var made object
		must(t, f.user.Call(t.Context(), http.MethodPost, widgets,
			object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": object{"name": name}}, &made))
		return made["metadata"].(object)["uid"].(string)
	}
	owned := func(name, label, widget, uid string) object {
		p := pod(name)
		p["metadata"] = object{"name": name, "labels": object{"owned": label},
			"ownerReferences": []object{owner("example.test/v1", "Widget", widget, uid)}}
		return p
	}
	stays := widget("stays")
	for side, client := range f.sides() {
		must(t, client.Call(t.Context(), http.MethodPost, demoPods, owned("stays-"+side, "stays", "stays", stays), nil))
	}
	goes := widget("goes")
	var wait sync.WaitGroup
	failures := make(chan error, 8)
	for worker := range 8 {
		wait.Go(func() {
			for i := worker; i < manyPods; i += 8 {
				if err := f.user.Call(t.Context(), http.MethodPost, demoPods,
					owned(fmt.Sprintf("many-%d", i), "goes", "goes", goes), nil); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(failures)
	for err := range failures {
		t.Fatal(err)
	}
	f.remove(f.user, widgets+"/goes", metav1.DeletePropagationForeground)
	for range 3 {
		pause(t, time.Duration(rand.IntN(1500))*time.Millisecond)
		f.controllers.Kill()
		f.controllers.StartAgain()
	}
	f.awaitControllers()
	f.crash(f.Legacy, f.LegacyManager)
	f.crash(f.Modern, f.ModernManager)
	f.nothingLeft(fmt.Sprintf("%d pods of a custom resource", manyPods), f.user, demoPods+"?labelSelector=owned=goes",
		widgets+"?fieldSelector=metadata.name=goes")
	if stay := f.count(demoPods + "?labelSelector=owned=stays"); stay != 2 {
		t.Errorf("%d pods of the custom resource that was not deleted, want 2", stay)
	}
}

// count is how many objects a list through the modern API server has.
func (f *fused) count(path string) int {
	f.t.Helper()
	var list struct{ Items []any }
	must(f.t, f.user.Call(f.t.Context(), http.MethodGet, path, nil, &list))
	return len(list.Items)
}

// naive: on the same objects, the modern side's own collector takes the legacy side's pods for garbage at once.
func (f *fused) naive() {
	f.t.Helper()
	f.bystandersLive("after the whole load")
	f.controllers.Stop()
	await := deletions(f.t, f.Rig, f.Pair)
	f.CollectNaively()
	await("the modern side's own collector deletes pods that nobody deleted")
	proved(f.t, spec.LayoutSplit, "1.15.12", "1.36.3",
		"on the objects of which fusionctl controllers deleted none, the modern side's own garbage collector deletes "+
			"pods of the legacy side")
}

// crash kills a server and starts it again a moment later. Its controller manager is stopped meanwhile: old ones, built
// with a Go of today, do not find the server again.
func (f *fused) crash(server *rig.APIServer, manager *rig.ControllerManager) {
	f.t.Helper()
	manager.Stop()
	server.Kill()
	pause(f.t, time.Second)
	server.StartAgain()
	server.WaitReady()
	manager.Restart()
}

func pause(t *testing.T, span time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(span):
	}
}

// namespace: both sides have objects in the one that is deleted, either server is killed in the middle of it, and both
// stores are empty of it in the end.
func (f *fused) namespace() {
	t := f.t
	t.Helper()
	// A namespace of its own, in which the workloads of both sides run until it is deleted.
	must(t, f.admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "both"}},
		nil))
	f.Eventually("the finalizer and the account of a new namespace", func(ctx context.Context) error {
		var ns struct{ Spec struct{ Finalizers []string } }
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/both", nil, &ns); err != nil {
			return err
		}
		if !slices.Contains(ns.Spec.Finalizers, controllers.NamespaceFinalizer) {
			return fmt.Errorf("finalizers %q", ns.Spec.Finalizers)
		}
		return f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/both/serviceaccounts/default", nil, nil)
	})
	in := func(path string) string { return strings.Replace(path, "/demo/", "/both/", 1) }
	must(t, f.admin.Call(t.Context(), http.MethodPost, in(f.path("legacy", "deployments")), deployment("legacy"), nil))
	must(t, f.user.Call(t.Context(), http.MethodPost, in(f.path("modern", "deployments")), deployment("modern"), nil))
	must(t, f.user.Call(t.Context(), http.MethodPost, in(f.path("modern", "statefulsets")), statefulSet("modern"), nil))
	must(t, f.user.Call(t.Context(), http.MethodPost, "/apis/example.test/v1/namespaces/both/widgets",
		object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": object{"name": "one"}}, nil))
	f.Eventually("the pods of the namespace", func(ctx context.Context) error {
		var list struct{ Items []any }
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/both/pods", nil, &list); err != nil {
			return err
		}
		if len(list.Items) < 7 {
			return fmt.Errorf("%d pods", len(list.Items))
		}
		return nil
	})
	others, before := []string{demoPods + "?labelSelector=owned=stays",
		"/apis/example.test/v1/namespaces/demo/widgets"}, map[string]int{}
	for _, path := range others {
		if before[path] = f.count(path); before[path] == 0 {
			t.Errorf("nothing at %s of which to see that it stays", path)
		}
	}
	f.remove(f.admin, "/api/v1/namespaces/both", metav1.DeletePropagationBackground)
	start := time.Now()
	f.crash(f.Modern, f.ModernManager)
	f.crash(f.Legacy, f.LegacyManager)
	f.Eventually("the namespace goes", func(ctx context.Context) error {
		var ns struct{ Spec struct{ Finalizers []string } }
		err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/both", nil, &ns)
		if rig.Code(err) == http.StatusNotFound {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there, with finalizers %q", ns.Spec.Finalizers))
	})
	t.Logf("the namespace is gone after %s", time.Since(start).Round(10*time.Millisecond))
	for name, store := range f.Stores {
		for _, key := range keysOf(t, store, "/registry/") {
			if strings.Contains(key+"/", "/both/") && !strings.HasPrefix(key, "/registry/events/") {
				t.Errorf("store %s still has %s", name, key)
			}
		}
	}
	f.bystandersLive("after the namespace")
	for _, path := range others {
		if after := f.count(path); after != before[path] {
			t.Errorf("%d objects at %s after another namespace was deleted, %d before", after, path, before[path])
		}
	}
}
