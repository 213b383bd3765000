//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/controllers"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// restartsVariable says how often the servers are restarted; unset, as often as a run of everything has time for.
const restartsVariable = "FUSIONCTL_E2E_RESTARTS"

// A starting API server lists some of its groups only. Custom resources of one group on both sides own pods, 150
// further definitions make the start longer, and either server is killed and started again and again while collectors
// of different phases are kept busy.
func TestServersThatStartLoseNoPods(t *testing.T) {
	t.Parallel()
	restarts := 16
	if text := os.Getenv(restartsVariable); text != "" {
		var err error
		restarts, err = strconv.Atoi(text)
		must(t, err)
	}
	r := rig.New(t)
	p := r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
		NoModernManager: true, LegacyManagerArgs: []string{"leader-elect=false"}})
	p.AllowControllers()
	admin, _ := demo(t, r, p)
	p.LegacyManager.Stop() // it does not find a restarted server again
	sides := map[string]*rig.Client{"legacy": admin, "modern": p.Modern.Client("admin", "system:masters")}
	define(t, sides["modern"], "v1", 150)
	var pods []string
	for _, side := range slices.Sorted(maps.Keys(sides)) {
		version := map[string]string{"legacy": "v1beta1", "modern": "v1"}[side]
		both := definition(version, "gadgets", "Gadget", "both.test")
		must(t, sides[side].Call(t.Context(), http.MethodPost, definitions(version), both, nil))
		pods = append(pods, ownedPods(t, r, sides[side], side, 10)...)
	}
	stop := collectors(t, p, 4)
	defer stop()
	ends := churn(t, admin)
	defer ends()
	for i := range restarts {
		server := p.Modern
		if i%4 == 3 {
			server = p.Legacy
		}
		server.Kill()
		server.StartAgain()
		server.WaitReady()
		pause(t, 2*time.Second) // an answer of the start may be acted upon now
		left, err := labelledPods(t.Context(), admin, "owned")
		must(t, err)
		if len(left) != len(pods) {
			t.Fatalf("after %d restarts %d pods are left, want the %d whose owners are all there", i+1, len(left),
				len(pods))
		}
	}
	ends()
	// They collect still: the pods of an owner that is deleted go.
	must(t, sides["modern"].Call(t.Context(), http.MethodDelete, gadgets+"/modern-0", nil, nil))
	must(t, admin.Call(t.Context(), http.MethodDelete, gadgets+"/legacy-0", nil, nil))
	r.Eventually("the pods of the two owners that were deleted", func(ctx context.Context) error {
		left, err := labelledPods(ctx, admin, "owned")
		if err == nil && len(left) != len(pods)-2 {
			err = fmt.Errorf("%d pods are left, want %d", len(left), len(pods)-2)
		}
		return err
	})
	t.Logf("%d restarts, %d pods", restarts, len(pods))
	proved(t, spec.LayoutSplit, "1.15.12", "1.36.3",
		"either API server is killed and started again, with 150 further CRDs, and no pod of a custom resource is lost")
}

const gadgets = "/apis/both.test/v1/namespaces/demo/gadgets"

func definitions(version string) string {
	return "/apis/apiextensions.k8s.io/" + version + "/customresourcedefinitions"
}

func definition(version, plural, kind, group string) object {
	body := object{"group": group, "scope": "Namespaced", "names": object{"plural": plural, "kind": kind}}
	if version == "v1beta1" {
		body["version"] = "v1"
	} else {
		schema := object{"openAPIV3Schema": object{"type": "object"}}
		body["versions"] = []object{{"name": "v1", "served": true, "storage": true, "schema": schema}}
	}
	return object{"metadata": object{"name": plural + "." + group}, "spec": body}
}

// define makes definitions of five kinds in each group.
func define(t *testing.T, client *rig.Client, version string, n int) {
	t.Helper()
	for i := range n {
		filler := definition(version, fmt.Sprintf("fillers%d", i), fmt.Sprintf("Filler%d", i),
			fmt.Sprintf("filler%d.test", i/5))
		must(t, client.Call(t.Context(), http.MethodPost, definitions(version), filler, nil))
	}
}

// ownedPods makes custom resources through a side, and a pod for each of them.
func ownedPods(t *testing.T, r *rig.Rig, client *rig.Client, side string, n int) (names []string) {
	t.Helper()
	r.Eventually("the custom resource of the "+side+" side", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodGet, gadgets, nil, nil)
	})
	for i := range n {
		name := fmt.Sprintf("%s-%d", side, i)
		var made struct{ Metadata metav1.ObjectMeta }
		gadget := object{"apiVersion": "both.test/v1", "kind": "Gadget", "metadata": object{"name": name}}
		must(t, client.Call(t.Context(), http.MethodPost, gadgets, gadget, &made))
		owned := pod(name)
		owned["spec"].(object)["automountServiceAccountToken"] = false // no manager makes one
		owned["metadata"] = object{"name": name, "labels": object{"owned": "yes"},
			"ownerReferences": []object{owner("both.test/v1", "Gadget", name, string(made.Metadata.UID))}}
		must(t, client.Call(t.Context(), http.MethodPost, demoPods, owned, nil))
		names = append(names, name)
	}
	return names
}

// collectors runs several without a lock between them: they ask what is served at different times, and act at the same
// time.
func collectors(t *testing.T, p *rig.Pair, n int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			select { // within the half minute after which each asks again
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(i) * 30 * time.Second / time.Duration(n)):
			}
			err := controllers.Run(ctx, p.Plan.Runtime(), controllers.Options{
				Legacy: p.Legacy.RESTConfig(plan.JointControllers), Modern: p.Modern.RESTConfig(plan.JointControllers),
				Collect: true, QPS: 100, ChangesPerSecond: 50, Workers: 4,
				Log: slog.New(slog.DiscardHandler), Audit: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	return sync.OnceFunc(func() { cancel(); wait.Wait() })
}

// churn makes garbage of the legacy side all the time: each of these ReplicaSets names an owner that was never there.
func churn(t *testing.T, client *rig.Client) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("garbage-%d", i)
			labels, never := object{"garbage": name}, fmt.Sprintf("6f9619ff-8b86-d011-b42d-%012d", i)
			template := object{"metadata": object{"labels": labels}, "spec": podSpec()}
			// It fails while the server is away.
			_ = client.Call(ctx, http.MethodPost, "/apis/apps/v1/namespaces/demo/replicasets", object{
				"metadata": object{"name": name,
					"ownerReferences": []object{owner("both.test/v1", "Gadget", name, never)}},
				"spec": object{"replicas": 0, "selector": object{"matchLabels": labels}, "template": template},
			}, nil)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return sync.OnceFunc(func() { cancel(); wait.Wait() })
}
