//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// These tests do the damage that the rules forbid, with real servers and configurations that somebody would write who
// does not know. One that fails says that a danger is none, or that a version was mended: the rule that names the test
// has to be looked at then.

// everyController is what a controller manager runs when nobody says otherwise.
const everyController = "controllers=*"

// deletions watches the core store for pods of the demo namespace, from now on. What it returns waits until one of them
// is deleted. A list would not do: a StatefulSet's pod is made again under its name sooner than anybody can look.
func deletions(t *testing.T, r *rig.Rig, p *rig.Pair) (await func(what string)) {
	events := p.Stores["core"].Client().Watch(t.Context(), "/registry/pods/demo/", clientv3.WithPrefix(),
		clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if created, ok := <-events; !ok || !created.Created {
		t.Fatalf("watching the pods of the core store: %v", created.Err())
	}
	return func(what string) {
		t.Helper()
		r.Eventually(what, func(context.Context) error {
			select {
			case response := <-events:
				if err := response.Err(); err != nil {
					t.Fatalf("%s: watching the pods of the core store: %v", what, err)
				}
				if len(response.Events) > 0 {
					return nil
				}
			default:
			}
			return errors.New("no pod was deleted")
		})
	}
}

// podsOf waits for the pods of one workload.
func podsOf(r *rig.Rig, client *rig.Client, workload string, want int) (map[string]string,
	func(context.Context) (map[string]string, error)) {
	get := func(ctx context.Context) (map[string]string, error) {
		return labelledPods(ctx, client, "deployment="+workload)
	}
	uids := map[string]string{}
	r.Eventually("the pods of "+workload, func(ctx context.Context) error {
		found, err := get(ctx)
		if err == nil && len(found) < want {
			err = fmt.Errorf("%d pods, want %d", len(found), want)
		}
		uids = found
		return err
	})
	return uids, get
}

// demo makes the namespace of the tests through the legacy side.
func demo(t *testing.T, r *rig.Rig, p *rig.Pair) (admin, user *rig.Client) {
	t.Helper()
	admin, user = p.Legacy.Client("admin", "system:masters"), p.Modern.Client("alice", "developers")
	must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	awaitServiceAccount(r, admin)
	return admin, user
}

// The modern collector does not find the legacy side's ReplicaSets in its own store.
func TestModernCollectorDeletesLegacyPods(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
		ModernManagerArgs: []string{everyController}})
	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	awaitServiceAccount(r, admin)
	must(t, admin.Call(t.Context(), http.MethodPost, deploymentsPath(15), deployment("legacy"), nil))
	podsOf(r, admin, "legacy", 3)
	await := deletions(t, r, p)
	p.StartModern()
	await("the modern collector deletes the legacy side's pods")
	seenDamage(t, spec.LayoutSplit, "1.15.12", "1.36.3",
		"the modern side's collector, on by default, deletes the pods of the legacy side's Deployments")
}

// The legacy collector does not find the modern side's owners: not those of Deployments from 1.10 on, nor those of
// StatefulSets in 1.6, which knows the kind in another version.
func TestLegacyCollectorDeletesModernPods(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ legacy, workload string }{{"1.15.12", "deployment"}, {"1.10.13", "deployment"},
		{"1.10.13", "statefulset"}, {"1.6.13", "statefulset"}} {
		t.Run(test.legacy+" "+test.workload, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: test.legacy, Modern: "1.36.3", More: access})
			p.NaiveLegacyManager()
			p.StartLegacy()
			p.StartModern()
			_, user := demo(t, r, p)
			path, body := deploymentsPath(36), deployment("modern")
			if test.workload == "statefulset" {
				path, body = "/apis/apps/v1/namespaces/demo/statefulsets", statefulSet("modern")
			}
			await := deletions(t, r, p)
			must(t, user.Call(t.Context(), http.MethodPost, path, body, nil))
			await("the legacy collector deletes the modern side's pods")
			seenDamage(t, spec.LayoutSplit, test.legacy, "1.36.3", "the legacy side's collector, on by default, "+
				"deletes the pods of a "+test.workload+" of the modern side")
		})
	}
}

// Either side has a CRD of one kind, as when an operator is being moved, and no modern controller manager runs. The
// legacy collector looks for the modern side's custom resources in its own store.
func TestCollectorDeletesPodsOfCustomResources(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
		NoModernManager: true})
	p.NaiveLegacyManager()
	p.StartLegacy()
	p.StartModern()
	admin, pods := podsOfCustomResources(t, r, p)
	r.Eventually("the legacy collector deletes pods of the modern side's custom resources",
		func(ctx context.Context) error {
			left, err := labelledPods(ctx, admin, "owned")
			if err == nil && len(left) > pods/2 {
				err = fmt.Errorf("%d pods are left of %d", len(left), pods)
			}
			return err
		})
	seenDamage(t, spec.LayoutSplit, "1.15.12", "1.36.3", "without a modern controller manager the legacy side's "+
		"collector, on by default, deletes the pods of the modern side's custom resources of a kind that both sides "+
		"have")
	refused(t, p, "FUS103")
	waitsForBundle(t, p)
}

// waitsForBundle sees that a pod of the modern side mounts a config map that no controller publishes.
func waitsForBundle(t *testing.T, p *rig.Pair) {
	t.Helper()
	const bundle = "kube-root-ca.crt"
	var made struct {
		Spec struct {
			Volumes []struct {
				Projected struct {
					Sources []struct{ ConfigMap struct{ Name string } }
				}
			}
		}
	}
	modern := p.Modern.Client("admin", "system:masters")
	must(t, modern.Call(t.Context(), http.MethodPost, demoPods, pod("waiting"), &made))
	mounts := false
	for _, volume := range made.Spec.Volumes {
		for _, source := range volume.Projected.Sources {
			mounts = mounts || source.ConfigMap.Name == bundle
		}
	}
	err := modern.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/configmaps/"+bundle, nil, nil)
	if !mounts || rig.Code(err) != http.StatusNotFound {
		t.Errorf("a pod mounts %s = %v, and getting that: %v; want true and 404", bundle, mounts, err)
	}
	seenDamage(t, spec.LayoutSplit, "1.15.12", "1.36.3", "without a modern controller manager a pod that is created "+
		"through the modern API server mounts a config map that does not exist")
}

// The same with the arguments of the plan, which turns that collector off.
func TestPlansKeepPodsOfCustomResources(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
		NoModernManager: true})
	admin, pods := podsOfCustomResources(t, r, p)
	r.Throughout(time.Minute, "the pods of both sides' custom resources stay", func(ctx context.Context) error {
		left, err := labelledPods(ctx, admin, "owned")
		if err == nil && len(left) != pods {
			err = fmt.Errorf("%d pods are left of %d", len(left), pods)
		}
		return err
	})
	proved(t, spec.LayoutSplit, "1.15.12", "1.36.3",
		"without a modern controller manager the pods of custom resources of a kind that both sides have stay")
}

// podsOfCustomResources makes custom resources of one kind on either side, with a pod for each.
func podsOfCustomResources(t *testing.T, r *rig.Rig, p *rig.Pair) (admin *rig.Client, pods int) {
	t.Helper()
	admin, _ = demo(t, r, p)
	sides := map[string]*rig.Client{"legacy": admin, "modern": p.Modern.Client("admin", "system:masters")}
	for _, side := range slices.Sorted(maps.Keys(sides)) {
		version := map[string]string{"legacy": "v1beta1", "modern": "v1"}[side]
		both := definition(version, "gadgets", "Gadget", "both.test")
		must(t, sides[side].Call(t.Context(), http.MethodPost, definitions(version), both, nil))
		pods += len(ownedPods(t, r, sides[side], side, 5))
	}
	return admin, pods
}

// 1.6 does not know ReplicaSets of apps in any version, and leaves their pods alone: what the plan of such a pair
// relies on.
func TestLegacyCollectorOf1_6SparesDeployments(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.6.13", Modern: "1.36.3",
		More: access + `  owners:
  - {resources: [statefulsets.apps, daemonsets.apps, jobs.batch, cronjobs.batch], owner: legacy}
`})
	if value, changed := p.LegacyManagerArg("controllers"); changed {
		t.Fatalf("the plan runs the legacy manager with --controllers=%s, want its own default", value)
	}
	admin, user := demo(t, r, p)
	must(t, user.Call(t.Context(), http.MethodPost, deploymentsPath(36), deployment("modern"), nil))
	must(t, admin.Call(t.Context(), http.MethodPost, deploymentsPath(6), deployment("legacy"), nil))
	modern, modernPods := podsOf(r, admin, "modern", 3)
	legacy, legacyPods := podsOf(r, admin, "legacy", 3)
	r.Throughout(time.Minute, "the pods of both sides stay", func(ctx context.Context) error {
		return errors.Join(stay(ctx, modern, modernPods), stay(ctx, legacy, legacyPods))
	})
	proved(t, spec.LayoutSplit, "1.6.13", "1.36.3",
		"with Deployments alone on the modern side, the legacy collector runs and the pods of both sides stay")
}

// stay fails when a pod that was there is not any more.
func stay(ctx context.Context, before map[string]string, pods func(context.Context) (map[string]string, error)) error {
	now, err := pods(ctx)
	if err != nil {
		return err
	}
	for name, uid := range before {
		if now[name] != uid {
			return fmt.Errorf("pod %s is gone", name)
		}
	}
	return nil
}

// One object that the legacy side cannot decode makes its lists of that resource fail, and the modern API server's
// start takes groups from its discovery.
func TestSharedStoreBlindsTheLegacySide(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.15.12", Modern: "1.36.3", NoModernManager: true,
		More: `  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: ["*"], resources: ["*"]}
`})
	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	must(t, hasGroup(t.Context(), admin, "extensions"))
	p.StartModern()
	user := p.Modern.Client("alice", "developers")
	r.Eventually("1.36.3 removes the group extensions from 1.15.12's discovery", func(ctx context.Context) error {
		if hasGroup(ctx, admin, "extensions") == nil {
			return errors.New("it is still there")
		}
		return nil
	})
	must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	lists := "/apis/networking.k8s.io/v1beta1/ingresses"
	must(t, admin.Call(t.Context(), http.MethodGet, lists, nil, nil))
	must(t, user.Call(t.Context(), http.MethodPost, "/apis/networking.k8s.io/v1/namespaces/demo/ingresses",
		object{"metadata": object{"name": "one"},
			"spec": object{"defaultBackend": object{"service": object{"name": "one", "port": object{"number": 80}}}}},
		nil))
	if err := admin.Call(t.Context(), http.MethodGet, lists, nil, nil); rig.Code(
		err) != http.StatusInternalServerError {
		t.Errorf("listing ingresses through 1.15.12 after one was made through 1.36.3: %v, want 500", err)
	}
	webhooksBlockWrites(t, r, p, user)
	seenDamage(t, spec.LayoutShared, "1.15.12", "1.36.3",
		"starting the modern API server takes the group extensions from the legacy API server's discovery",
		"one Ingress created through the modern API server makes every list of ingresses through the legacy one "+
			"answer 500")
}

// webhooksBlockWrites makes a webhook configuration, which asks nobody, through the modern side. The legacy server that
// is started next cannot read it, and so does not know which webhooks it should ask.
func webhooksBlockWrites(t *testing.T, r *rig.Rig, p *rig.Pair, user *rig.Client) {
	t.Helper()
	refused(t, p, "FUS120")
	admin := p.Legacy.Client("admin", "system:masters")
	write := func(ctx context.Context, name string) error {
		return admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/configmaps",
			object{"metadata": object{"name": name}}, nil)
	}
	must(t, write(t.Context(), "before"))
	const configurations = "/apis/admissionregistration.k8s.io/%s/validatingwebhookconfigurations"
	must(t, user.Call(t.Context(), http.MethodPost, fmt.Sprintf(configurations, "v1"),
		object{"metadata": object{"name": "empty"}, "webhooks": []object{}}, nil))
	p.LegacyManager.Stop() // it ends by itself when it cannot write
	p.Legacy.Process.Restart()
	r.Eventually("the legacy API server refuses a write", func(ctx context.Context) error {
		if err := admin.Call(ctx, http.MethodGet, fmt.Sprintf(configurations, "v1beta1"), nil, nil); rig.Code(
			err) != http.StatusInternalServerError {
			return fmt.Errorf("listing the configurations through it: %v, want 500", err)
		}
		err := write(ctx, "after")
		if err == nil {
			t.Fatal("1.15.12 writes although it cannot read which webhooks to ask")
		}
		if !strings.Contains(err.Error(), "not yet ready to handle request") {
			return err
		}
		return nil
	})
	seenDamage(t, spec.LayoutShared, "1.15.12", "1.36.3", "one webhook configuration created through the modern API "+
		"server makes the legacy one refuse every write, once it has been started again")
}

// A Deployment that 1.10 has written is one that 1.6 cannot list.
func TestPatchedDeploymentBlindsTheLegacySide(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.StartPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.6.13", Modern: "1.10.13", NoModernManager: true,
		More: access + toClaims, ModernServerArgs: []string{"enable-admission-plugins=StorageObjectInUseProtection"}})
	admin, user := demo(t, r, p)
	body := deployment("legacy")
	body["spec"].(object)["replicas"] = 0
	must(t, admin.Call(t.Context(), http.MethodPost, deploymentsPath(6), body, nil))
	lists := "/apis/extensions/v1beta1/deployments"
	must(t, admin.Call(t.Context(), http.MethodGet, lists, nil, nil))
	must(t, user.Call(t.Context(), http.MethodPatch, "/apis/apps/v1/namespaces/demo/deployments/legacy",
		object{"metadata": object{"labels": object{"patched": "yes"}}}, nil))
	if err := admin.Call(t.Context(), http.MethodGet, lists, nil, nil); rig.Code(
		err) != http.StatusInternalServerError {
		t.Errorf("listing deployments through 1.6.13 after 1.10.13 patched one: %v, want 500", err)
	}
	seenDamage(t, spec.LayoutShared, "1.6.13", "1.10.13", "one Deployment patched through the modern API server "+
		"makes every list of deployments through the legacy one answer 500")
	claimStays(t, r, p, user)
}

// toClaims is one more entry of access.
const toClaims = `  - {subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [persistentvolumeclaims]}
`

// claimStays deletes a claim that no pod uses, which the modern API server has given a finalizer.
func claimStays(t *testing.T, r *rig.Rig, p *rig.Pair, user *rig.Client) {
	t.Helper()
	refused(t, p, "FUS122")
	const claims = "/api/v1/namespaces/demo/persistentvolumeclaims"
	must(t, user.Call(t.Context(), http.MethodPost, claims, object{"metadata": object{"name": "claim"},
		"spec": object{"accessModes": []string{"ReadWriteOnce"},
			"resources": object{"requests": object{"storage": "1Gi"}}}}, nil))
	must(t, user.Call(t.Context(), http.MethodDelete, claims+"/claim", nil, nil))
	r.Throughout(5*time.Second, "the claim that was deleted stays", func(ctx context.Context) error {
		var left struct {
			Metadata struct {
				DeletionTimestamp string
				Finalizers        []string
			}
		}
		err := user.Call(ctx, http.MethodGet, claims+"/claim", nil, &left)
		if err == nil && (left.Metadata.DeletionTimestamp == "" ||
			!slices.Contains(left.Metadata.Finalizers, "kubernetes.io/pvc-protection")) {
			err = fmt.Errorf("it has %+v", left.Metadata)
		}
		return err
	})
	seenDamage(t, spec.LayoutShared, "1.6.13", "1.10.13", "a claim that was created through the modern API server is "+
		"never deleted")
}

// A status update through the legacy API server erases what it does not know.
func TestStatusUpdateErasesFields(t *testing.T) {
	t.Parallel()
	for _, legacy := range []string{"1.6.13", "1.10.13"} {
		t.Run(legacy, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			p := r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: "1.36.3", More: access})
			admin, user := demo(t, r, p)
			body := pod("spread")
			body["spec"].(object)["topologySpreadConstraints"] = []object{{"maxSkew": 1, "topologyKey": "zone",
				"whenUnsatisfiable": "DoNotSchedule", "labelSelector": object{"matchLabels": object{"a": "b"}}}}
			must(t, user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/pods", body, nil))
			path := "/api/v1/namespaces/demo/pods/spread"
			var seen object
			must(t, user.Call(t.Context(), http.MethodGet, path, nil, &seen))
			if seen["spec"].(object)["topologySpreadConstraints"] == nil {
				t.Fatal("the pod has no topologySpreadConstraints to lose")
			}
			// As a kubelet does: read through the legacy API server, write the status.
			must(t, admin.Call(t.Context(), http.MethodGet, path, nil, &seen))
			seen["status"] = object{"phase": "Running"}
			must(t, admin.Call(t.Context(), http.MethodPut, path+"/status", seen, nil))
			var after object
			must(t, user.Call(t.Context(), http.MethodGet, path, nil, &after))
			if after["spec"].(object)["topologySpreadConstraints"] != nil ||
				after["metadata"].(object)["managedFields"] != nil {
				t.Error("the fields are still there after a status update through the legacy API server")
			}
			seenDamage(t, spec.LayoutSplit, legacy, "1.36.3", "a status update through the legacy API server erases "+
				"topologySpreadConstraints and managedFields of a pod")
		})
	}
}

// Over one range, addresses are given out twice; with a range of the modern side's own, none is.
func TestServiceAddresses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, network string
		wantDoubles   bool
	}{
		{"one range", "{serviceCIDRs: [10.96.0.0/24]}", true},
		{"a range of its own", "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			p := r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3", More: access,
				Network: test.network})
			admin, user := demo(t, r, p)
			const each = 90
			var wait sync.WaitGroup
			failures := make(chan error, 2)
			for name, client := range map[string]*rig.Client{"modern": user, "legacy": admin} {
				wait.Go(func() {
					for i := range each {
						if err := client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/services",
							service(fmt.Sprintf("%s-%d", name, i)), nil); err != nil {
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
			var list struct {
				Items []struct{ Spec struct{ ClusterIP string } }
			}
			must(t, admin.Call(t.Context(), http.MethodGet, "/api/v1/services", nil, &list))
			var addresses []string
			for _, item := range list.Items {
				addresses = append(addresses, item.Spec.ClusterIP)
			}
			slices.Sort(addresses)
			doubles := len(addresses) - len(slices.Compact(addresses))
			t.Logf("%d services, %d addresses given out twice", len(list.Items), doubles)
			if len(list.Items) != 2*each+1 || (doubles > 0) != test.wantDoubles {
				t.Errorf("%d services with %d addresses given out twice, want %d services and doubles = %v",
					len(list.Items), doubles, 2*each+1, test.wantDoubles)
			}
			if test.wantDoubles {
				seenDamage(t, spec.LayoutSplit, "1.15.12", "1.36.3", "over one range, ClusterIPs are allocated twice")
			} else {
				proved(t, spec.LayoutSplit, "1.15.12", "1.36.3", fmt.Sprintf("with a service range of the modern "+
					"side's own, %d services of each side made at once have %d addresses", each, 2*each))
			}
		})
	}
}

// CRDs that 1.36 makes one after the other on the store of 1.10 come out without their versions.
func TestLegacyTruncatesCRDs(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	p := r.StartPair(rig.PairSpec{Layout: spec.LayoutShared, Legacy: "1.10.13", Modern: "1.36.3", NoModernManager: true,
		More: access})
	user := p.Modern.Client("alice", "developers")
	for i := range 30 {
		plural := fmt.Sprintf("widgets%d", i)
		version := func(name string, storage bool) object {
			return object{"name": name, "served": true, "storage": storage,
				"schema": object{"openAPIV3Schema": object{"type": "object"}}}
		}
		must(t, user.Call(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			object{"metadata": object{"name": plural + ".example.test"},
				"spec": object{"group": "example.test", "scope": "Namespaced",
					"names": object{"plural": plural, "singular": plural, "kind": fmt.Sprintf("Widget%d", i),
						"listKind": fmt.Sprintf("Widget%dList", i)},
					"versions": []object{version("v1beta1", false), version("v1", true)}}}, nil))
	}
	r.Eventually("1.10.13 truncates CRDs", func(ctx context.Context) error {
		var list struct {
			Items []struct{ Spec struct{ Versions []object } }
		}
		if err := user.Call(ctx, http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", nil,
			&list); err != nil {
			return err
		}
		for _, item := range list.Items {
			if len(item.Spec.Versions) < 2 {
				return nil
			}
		}
		return errors.New("all CRDs have both versions")
	})
	_, report := etcdCheckJSON(t, p.SpecFile)
	if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool {
		return f.Rule == "FUS031" && strings.Contains(f.Message, " lost spec.")
	}) {
		t.Errorf("etcd check does not say that CRDs were truncated: %+v", report.Findings)
	}
	seenDamage(t, spec.LayoutShared, "1.10.13", "1.36.3",
		"the legacy side's controllers truncate CRDs that were created through the modern API server")
}

// Pods of the modern side carry a token volume of which old servers keep an empty source: their kubelets mount no
// token.
func TestOldServersEmptyTheTokenSource(t *testing.T) {
	t.Parallel()
	for legacy, wantToken := range map[string]bool{"1.6.13": false, "1.10.13": false, "1.15.12": true} {
		t.Run(legacy, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			p := r.StartPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: "1.36.3", More: access})
			admin, user := demo(t, r, p)
			must(t, user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/pods", pod("tokens"), nil))
			var seen struct {
				Spec struct {
					Volumes []struct {
						Projected *struct {
							Sources []map[string]any
						}
					}
				}
			}
			must(t, admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/pods/tokens", nil, &seen))
			hasToken := false
			for _, v := range seen.Spec.Volumes {
				if v.Projected != nil {
					hasToken = slices.ContainsFunc(v.Projected.Sources, func(s map[string]any) bool {
						return s["serviceAccountToken"] != nil
					})
				}
			}
			if hasToken != wantToken {
				t.Errorf("through %s the pod's token source is there = %v, want %v", legacy, hasToken, wantToken)
			}
			if !slices.ContainsFunc(keysOf(t, p.Stores["core"], "/registry/configmaps/demo/"), func(key string) bool {
				return key == "/registry/configmaps/demo/kube-root-ca.crt"
			}) {
				r.Eventually("kube-root-ca.crt is published for pods that mount it", func(ctx context.Context) error {
					return admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt", nil,
						nil)
				})
			}
			if wantToken {
				proved(t, spec.LayoutSplit, legacy, "1.36.3",
					"the token source of a pod created through the modern API server is kept")
			} else {
				seenDamage(t, spec.LayoutSplit, legacy, "1.36.3", "a pod created through the modern API server has "+
					"an empty token source through the legacy one: its kubelet mounts no token")
			}
			proved(t, spec.LayoutSplit, legacy, "1.36.3",
				"kube-root-ca.crt, which pods of the modern side mount, is published")
		})
	}
}

func keysOf(t *testing.T, e *rig.Etcd, prefix string) []string {
	t.Helper()
	answer, err := e.Client().Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	var keys []string
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func hasGroup(ctx context.Context, client *rig.Client, group string) error {
	var list struct{ Groups []struct{ Name string } }
	if err := client.Call(ctx, http.MethodGet, "/apis", nil, &list); err != nil {
		return err
	}
	for _, g := range list.Groups {
		if g.Name == group {
			return nil
		}
	}
	return fmt.Errorf("no group %s", group)
}

func statefulSet(name string) object {
	set := deployment(name)
	set["spec"].(object)["serviceName"] = name
	return set
}
