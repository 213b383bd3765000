//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// More plans that `fusionctl check` refuses: a component acts, or waits, for it does not see what the other side has.

// The modern side has pods and leases of its own, and controllers that decide by them about volumes and nodes of both
// sides; another decides by records of its own API server about tokens of both.
func TestControllersThatDoNotSeeTheOtherSide(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, LegacyScheduler: true,
		More: access + `  owners:
  - {resources: [pods, leases.coordination.k8s.io], owner: split}
`,
		ModernManagerArgs: []string{"controllers=persistentvolume-attach-detach-controller,node-lifecycle-controller," +
			"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-clean-up-period=1s"}})
	refused(t, p, "FUS082", "FUS084", "FUS088", "FUS222")
	ctx := t.Context()
	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}}, nil))
	awaitServiceAccount(r, admin)
	node := nodeWithLease(t, r, admin)
	attachment := attachedVolume(t, r, admin)
	token := tokenOf(t, admin)
	// API servers have recorded the use of tokens for long: what is new is of the time before.
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/kube-system/configmaps", object{
		"metadata": object{"name": "kube-apiserver-legacy-service-account-token-tracking"},
		"data":     object{"since": "2020-01-01"}}, nil))
	attachments := changes(t, r, p, "/registry/volumeattachments/")
	p.StartModern()

	attachments("the volume of a pod that the modern side does not see is detached",
		deletionOf("/registry/volumeattachments/"+attachment))

	user := p.Modern.Client("alice", "developers")
	for name, client := range map[string]*rig.Client{"of-modern": user, "of-legacy": admin} {
		body := pod(name)
		body["spec"].(object)["automountServiceAccountToken"] = false
		must(t, client.Call(ctx, http.MethodPost, demoPods, body, nil))
	}
	var placed struct {
		Spec   struct{ NodeName string }
		Status struct {
			Conditions []struct{ Type, Message string }
		}
	}
	r.Eventually("the pod of the legacy side is scheduled", func(ctx context.Context) error {
		if err := node.heartbeat(ctx); err != nil {
			return err
		}
		err := admin.Call(ctx, http.MethodGet, demoPods+"/of-legacy", nil, &placed)
		if err == nil && placed.Spec.NodeName == "" {
			err = fmt.Errorf("its conditions are %+v", placed.Status.Conditions)
		}
		return err
	})
	if err := admin.Call(ctx, http.MethodGet, demoPods+"/of-modern", nil, nil); rig.Code(err) != http.StatusNotFound {
		t.Errorf("a pod that was created through %s, through %s: %v, want 404", modern, legacy, err)
	}
	placed.Spec.NodeName = ""
	must(t, user.Call(ctx, http.MethodGet, demoPods+"/of-modern", nil, &placed))
	if placed.Spec.NodeName != "" {
		t.Errorf("a pod of the modern side is on node %q, by a scheduler that does not see it", placed.Spec.NodeName)
	}

	r.Eventually("the node whose lease is renewed is marked as unknown", func(ctx context.Context) error {
		if err := node.heartbeat(ctx); err != nil {
			return err
		}
		ready, taints, err := node.state(ctx)
		if err == nil && (ready != "Unknown" || !slices.Contains(taints, "node.kubernetes.io/unreachable NoExecute")) {
			err = fmt.Errorf("it is Ready = %s, with taints %q", ready, taints)
		}
		return err
	})

	r.Eventually("the token that no API server has seen in use is marked as invalid", func(context.Context) error {
		if code := codeWithToken(t, p.Modern, token); code != http.StatusUnauthorized {
			return fmt.Errorf("%s answers it with %d", modern, code)
		}
		return nil
	})
	if code := codeWithToken(t, p.Legacy, token); code == http.StatusUnauthorized {
		t.Errorf("%s refuses the token, too: nothing is wrong with the other side", legacy)
	}
	seenDamage(t, spec.LayoutSplit, legacy, modern,
		"where pods are in two stores, the modern side's attach/detach controller detaches the volume of a pod of the "+
			"legacy side",
		"where pods are in two stores, no scheduler sees a pod of the modern side",
		"where leases are in two stores, the modern side's node controller marks a node as unknown whose kubelet "+
			"renews its lease through the legacy API server, and has its pods evicted",
		"the modern side's token cleaner marks a token as invalid that is used through the legacy API server alone")
}

// sentNode is a node whose kubelet is the test. Another one writes its status all the time, as kubelets before 1.14
// did: where all nodes are unknown at once a node controller evicts nothing.
type sentNode struct{ admin *rig.Client }

const (
	nodePath      = "/api/v1/nodes/node-1"
	otherNodePath = "/api/v1/nodes/node-2"
	leasePath     = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// nodeWithLease makes a node that is ready and has room for pods.
func nodeWithLease(t *testing.T, r *rig.Rig, admin *rig.Client) *sentNode {
	t.Helper()
	n := &sentNode{admin}
	for _, path := range []string{nodePath, otherNodePath} {
		must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/nodes", object{"metadata": object{
			"name":        strings.TrimPrefix(path, "/api/v1/nodes/"),
			"annotations": object{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}, nil))
		must(t, admin.Call(t.Context(), http.MethodPatch, path+"/status", readyNode(), nil))
	}
	r.Eventually("the namespace of nodes' leases", func(ctx context.Context) error {
		return admin.Call(ctx, http.MethodPost, leasePath, object{"metadata": object{"name": "node-1"}, "spec": object{
			"holderIdentity": "node-1", "leaseDurationSeconds": 40,
			"renewTime": time.Now().UTC().Format(microTime)}}, nil)
	})
	return n
}

// readyNode is what the kubelet of a node writes that is ready and has room.
func readyNode() object {
	room, now := object{"cpu": "4", "memory": "8Gi", "pods": "110"}, time.Now().UTC().Format(time.RFC3339)
	return object{"status": object{"allocatable": room, "capacity": room, "conditions": []object{{"type": "Ready",
		"status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}}}}
}

// microTime is how the API writes the times of leases.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// heartbeat renews the lease, and not the status: so kubelets do.
func (n *sentNode) heartbeat(ctx context.Context) error {
	if err := n.admin.Call(ctx, http.MethodPatch, otherNodePath+"/status", readyNode(), nil); err != nil {
		return err
	}
	return n.admin.Call(ctx, http.MethodPatch, leasePath+"/node-1", object{"spec": object{
		"renewTime": time.Now().UTC().Format(microTime)}}, nil)
}

func (n *sentNode) state(ctx context.Context) (ready string, taints []string, err error) {
	var node struct {
		Spec struct {
			Taints []struct{ Key, Effect string }
		}
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	err = n.admin.Call(ctx, http.MethodGet, nodePath, nil, &node)
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			ready = condition.Status
		}
	}
	for _, taint := range node.Spec.Taints {
		taints = append(taints, taint.Key+" "+taint.Effect)
	}
	return ready, taints, err
}

// attachedVolume makes a volume that is attached to the node for a pod, by the legacy side's controller; the test is
// its CSI driver. It returns the name of the attachment.
func attachedVolume(t *testing.T, r *rig.Rig, admin *rig.Client) string {
	t.Helper()
	ctx, size := t.Context(), object{"storage": "1Gi"}
	const driver, handle = "driver.test", "disk"
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/persistentvolumes", object{"metadata": object{"name": "disk"},
		"spec": object{"capacity": size, "accessModes": []string{"ReadWriteOnce"},
			"persistentVolumeReclaimPolicy": "Retain", "csi": object{"driver": driver, "volumeHandle": handle}}}, nil))
	must(t, admin.Call(ctx, http.MethodPost, "/api/v1/namespaces/demo/persistentvolumeclaims", object{
		"metadata": object{"name": "claim"}, "spec": object{"accessModes": []string{"ReadWriteOnce"},
			"resources": object{"requests": size}, "volumeName": "disk", "storageClassName": ""}}, nil))
	user := pod("with-disk")
	podSpec := user["spec"].(object)
	podSpec["nodeName"], podSpec["automountServiceAccountToken"] = "node-1", false
	podSpec["volumes"] = []object{{"name": "disk", "persistentVolumeClaim": object{"claimName": "claim"}}}
	r.Eventually("a pod with the volume", func(ctx context.Context) error {
		err := admin.Call(ctx, http.MethodPost, demoPods, user, nil)
		if rig.Code(err) == http.StatusConflict { // an answer was lost
			return nil
		}
		return err
	})
	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+"node-1")))
	r.Eventually("the volume is being attached", func(ctx context.Context) error {
		return admin.Call(ctx, http.MethodPatch, "/apis/storage.k8s.io/v1/volumeattachments/"+name+"/status",
			object{"status": object{"attached": true}}, nil)
	})
	r.Eventually("the volume is attached", func(ctx context.Context) error {
		var node struct {
			Status struct{ VolumesAttached []struct{ Name string } }
		}
		if err := admin.Call(ctx, http.MethodGet, nodePath, nil, &node); err != nil {
			return err
		}
		if len(node.Status.VolumesAttached) == 0 {
			return errNotYet
		}
		return nil
	})
	return name
}

// Both controller managers elect a leader on one lock, and are replicas of each other.
func TestManagersThatShareALock(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.15.12", "1.36.3"
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, More: access,
		LegacyManagerArgs: []string{"leader-elect-resource-lock=leases"},
		ModernManagerArgs: []string{"leader-elect-resource-name=kube-controller-manager"}})
	refused(t, p, "FUS065")
	p.StartLegacy()
	admin := p.Legacy.Client("admin", "system:masters")
	// The roles of 1.15 do not have this lock yet.
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/"
	must(t, admin.Call(t.Context(), http.MethodPost, roles+"roles", object{"metadata": object{"name": "locks"},
		"rules": []object{{"apiGroups": []string{"coordination.k8s.io"}, "resources": []string{"leases"},
			"verbs": []string{"*"}}}}, nil))
	must(t, admin.Call(t.Context(), http.MethodPost, roles+"rolebindings", object{"metadata": object{"name": "locks"},
		"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
			"name": "system:kube-controller-manager"}},
		"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "locks"}}, nil))
	must(t, admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	awaitServiceAccount(r, admin) // the legacy manager leads
	p.StartModern()
	user := p.Modern.Client("alice", "developers")
	must(t, user.Call(t.Context(), http.MethodPost, deploymentsPath(36), deployment("modern"), nil))
	must(t, admin.Call(t.Context(), http.MethodPost, deploymentsPath(15), deployment("legacy"), nil))
	podsOf(r, admin, "legacy", 3)
	r.Throughout(10*time.Second, "no controller acts for the modern side's Deployment", noPods(admin, "modern"))
	p.LegacyManager.Stop()
	podsOf(r, admin, "modern", 3)
	p.LegacyManager.StartAgain()
	p.LegacyManager.WaitReady()
	must(t, admin.Call(t.Context(), http.MethodPost, deploymentsPath(15), deployment("later"), nil))
	r.Throughout(10*time.Second, "no controller acts for the legacy side's Deployment", noPods(admin, "later"))
	seenDamage(t, spec.LayoutSplit, legacy, modern, "with one leader-election lock for both controller managers, "+
		"Deployments of one side get no pods, and after a restart those of the other")
}

// noPods fails once a Deployment has pods.
func noPods(client *rig.Client, deployment string) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := labelledPods(ctx, client, "deployment="+deployment)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("it has %d pods", len(pods))
		}
		return err
	}
}

// The legacy side keeps its objects by the version 2 API of etcd.
func TestEtcd2HidesTheLegacySide(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.10.13", "1.15.12"
	r := rig.New(t)
	releases := etcdReleases(t)
	i := slices.IndexFunc(releases, func(release rig.EtcdRelease) bool { return release.Minor.String() == "3.4" })
	if i < 0 {
		t.Fatal("etcd 3.4, which still has the version 2 API, is not built: run `make rig` first")
	}
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		NoControllers: true, More: access, LegacyServerArgs: []string{"storage-backend=etcd2"},
		StartStore: func(name string) *rig.Etcd {
			store := r.StartEtcdOf(name, releases[i], 1)
			store.Members[0].SetArg("enable-v2", "true")
			store.Members[0].Restart()
			store.AwaitMembers()
			return store
		}})
	refused(t, p, "FUS073")
	p.StartLegacy()
	p.StartModern()
	admin := p.Legacy.Client("admin", "system:masters")
	const maps = "/api/v1/namespaces/default/configmaps"
	must(t, admin.Call(t.Context(), http.MethodPost, maps, object{"metadata": object{"name": "of-legacy"}}, nil))
	must(t, admin.Call(t.Context(), http.MethodGet, maps+"/of-legacy", nil, nil))
	if keys := keysOf(t, p.Stores["core"], "/registry/configmaps/default/"); len(keys) > 0 {
		t.Errorf("by the version 3 API the store has %q", keys)
	}
	if err := p.Modern.Client("admin", "system:masters").Call(t.Context(), http.MethodGet, maps+"/of-legacy", nil,
		nil); rig.Code(err) != http.StatusNotFound {
		t.Errorf("a config map of %s through %s: %v, want 404", legacy, modern, err)
	}
	seenDamage(t, spec.LayoutSplit, legacy, modern, "with --storage-backend=etcd2 the modern API server sees nothing "+
		"of the legacy side in the store that both have")
}

// Both write one resource, in groups of which 1.10 lists both and watches one.
func TestWatchEndsAtACohabitingGroup(t *testing.T) {
	t.Parallel()
	const legacy, modern = "1.10.13", "1.15.12"
	r := rig.New(t)
	p := r.NewPair(rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, NoModernManager: true,
		NoControllers: true, More: access + `  owners:
  - {resources: [podsecuritypolicies.policy], owner: shared}
`})
	refused(t, p, "FUS003")
	p.StartLegacy()
	p.StartModern()
	const policies = "podsecuritypolicies"
	create := func(client *rig.Client, group, name string) {
		t.Helper()
		must(t, client.Call(t.Context(), http.MethodPost, "/apis/"+group+"/v1beta1/"+policies, object{
			"metadata": object{"name": name}, "spec": object{"seLinux": object{"rule": "RunAsAny"},
				"runAsUser":          object{"rule": "RunAsAny"},
				"supplementalGroups": object{"rule": "RunAsAny"}, "fsGroup": object{"rule": "RunAsAny"}}}, nil))
	}
	admin := p.Legacy.Client("admin", "system:masters")
	create(admin, "extensions", "of-legacy")
	events := watching(t, p.Legacy, "/apis/extensions/v1beta1/"+policies+"?watch=true")
	next := func() string {
		select {
		case event := <-events: // "" at its end
			return event
		case <-time.After(time.Minute):
			t.Fatal("watching says nothing")
			return ""
		}
	}
	if got := next(); got != "ADDED of-legacy" {
		t.Fatalf("watching says %q, want the policy that is there", got)
	}
	create(p.Modern.Client("admin", "system:masters"), "policy", "of-modern")
	if got := next(); !strings.HasPrefix(got, "ERROR ") && got != "" {
		t.Errorf("watching through %s says %q of what %s wrote, want an error", legacy, got, modern)
	}
	var list struct{ Items []any }
	must(t, admin.Call(t.Context(), http.MethodGet, "/apis/extensions/v1beta1/"+policies, nil, &list))
	if len(list.Items) != 2 {
		t.Errorf("%s lists %d policies, want both", legacy, len(list.Items))
	}
	seenDamage(t, spec.LayoutSplit, legacy, modern, "every watch of pod security policies through the legacy API "+
		"server ends at one that was created through the modern one; lists have both")
}
