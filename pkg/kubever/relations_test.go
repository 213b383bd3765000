package kubever

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/gc"
)

func TestWatchOfCohabitingGroups(t *testing.T) {
	for _, tc := range []struct {
		gv, kind, key string
		minor         Minor
		want          bool
	}{
		{"apps/v1", "Deployment", "deployments", 9, false}, // decodable in a list only
		{"apps/v1", "Deployment", "deployments", 8, false}, // not decodable
		{"apps/v1", "Deployment", "deployments", 10, true},
		{"extensions/v1beta1", "Deployment", "deployments", 10, false},
		{"extensions/v1beta1", "Deployment", "deployments", 15, true},
		{"networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", 8, false},
		{"networking.k8s.io/v1beta1", "Ingress", "ingress", 14, true},
	} {
		r, _ := ResourceByKey(tc.key)
		if got := CanWatch(gvk(tc.gv, tc.kind), r, tc.minor); got != tc.want {
			t.Errorf("%s watches %s %s: %v, want %v", tc.minor, tc.gv, tc.kind, got, tc.want)
		}
	}
}

// TestHandOverSetsAreWhole: what goes together is what its controllers write beside pods, claims and events, each
// resource and each controller is in one set, and what is owned goes before its owners.
func TestHandOverSetsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, set := range HandOvers() {
		for _, key := range set.Keys {
			r, ok := ResourceByKey(key)
			if !ok || seen[key] || !r.Overridable() && !set.Defines || !r.Namespaced && set.ByNamespace() {
				t.Errorf("%s: is no resource that an override moves, or in two sets", key)
			}
			seen[key] = true
		}
		for _, key := range append(slices.Clone(set.Subjects), set.Ended...) {
			if !slices.Contains(set.Keys, key) {
				t.Errorf("%s: named, and not moved", key)
			}
		}
		for _, name := range set.Controllers {
			c, ok := ControllerByName(name)
			if !ok || seen[name] || !slices.Contains(set.Keys, c.Subject) {
				t.Errorf("%s: acts for %q, want one of %q", name, c.Subject, set.Keys)
			}
			seen[name] = true
		}
		for _, m := range Minors() {
			for _, ref := range OwnerReferences(m) {
				dependent := slices.Index(set.Keys, ref.Dependent)
				owner := slices.IndexFunc(set.Keys, func(key string) bool {
					r, _ := ResourceByKey(key)
					return r.Kind == ref.Owner.Kind
				})
				if dependent >= 0 && (owner < 0 || owner < dependent) {
					t.Errorf("%s: %s of %s: the owner goes before it, or not at all", m, ref.Dependent, ref.Owner)
				}
			}
		}
	}
}

func TestControllersTouchKnownResources(t *testing.T) {
	known := func(key string, m Minor) bool {
		if key == "*" {
			return true
		}
		r, ok := ResourceByKey(key)
		return ok && r.In(m)
	}
	for _, m := range Minors() {
		for _, c := range Controllers(m) {
			if len(c.Reads)+len(c.Writes)+len(c.Deletes) == 0 {
				t.Errorf("%s at %s touches nothing", c.Name, m)
			}
			for _, key := range slices.Concat(c.Reads, c.Writes, c.Deletes) {
				if !known(key, m) {
					t.Errorf("%s at %s touches %s, which %s does not store", c.Name, m, key, m)
				}
			}
		}
	}
	for _, c := range controllerTable() {
		if len(c.reads) == 0 {
			t.Errorf("%s is not in access.tsv", c.Name)
		}
	}
}

func TestWhatControllersDelete(t *testing.T) {
	at := func(name string, m Minor) Controller {
		for _, c := range Controllers(m) {
			if c.Name == name {
				return c
			}
		}
		t.Fatalf("%s has no %s", m, name)
		return Controller{}
	}
	if c := at("node-lifecycle-controller", 13); !slices.Equal(c.Deletes, []string{"minions", "pods"}) ||
		!slices.Contains(c.Reads, "leases") {
		t.Errorf("node-lifecycle-controller 1.13 deletes %v, reads %v; want nodes and pods, leases", c.Deletes, c.Reads)
	}
	if c := at("node-lifecycle-controller", 12); slices.Contains(c.Reads, "leases") {
		t.Errorf("node-lifecycle-controller 1.12 reads %v, want no leases", c.Reads)
	}
	if c := at("node-lifecycle-controller", 36); c.Deletes != nil {
		t.Errorf("node-lifecycle-controller 1.36 deletes %v, want nothing: taint-eviction-controller does", c.Deletes)
	}
	if c := at("persistentvolume-binder-controller", 26); slices.Contains(c.Writes, "services/endpoints") {
		t.Errorf("persistentvolume-binder-controller 1.26 writes %v, want no endpoints: glusterfs is gone", c.Writes)
	}
	if c := at("disruption-controller", 26); !slices.Contains(c.Writes, "pods") {
		t.Errorf("disruption-controller 1.26 writes %v, want pods", c.Writes)
	}
	if c := at("garbage-collector-controller", 6); !slices.Equal(c.Deletes, []string{"*"}) ||
		c.ServiceAccount != "generic-garbage-collector" {
		t.Errorf("garbage-collector-controller deletes %v as %s, want anything, as generic-garbage-collector",
			c.Deletes, c.ServiceAccount)
	}
	if c, _ := ControllerByName("daemonset"); c.ServiceAccount != "daemon-set-controller" {
		t.Errorf("daemonset-controller acts as %s, want daemon-set-controller", c.ServiceAccount)
	}
}

func TestOwnerReferencesPerMinor(t *testing.T) {
	find := func(dependent, kind string, m Minor) string {
		for _, o := range OwnerReferences(m) {
			if o.Dependent == dependent && o.Owner.Kind == kind {
				return o.APIVersion
			}
		}
		return ""
	}
	for _, tc := range []struct {
		dependent, kind string
		minor           Minor
		want            string
	}{
		{"pods", "ReplicaSet", 10, "extensions/v1beta1"}, {"pods", "ReplicaSet", 11, "apps/v1"},
		{"pods", "StatefulSet", 9, "apps/v1beta1"}, {"pods", "StatefulSet", 10, "apps/v1"},
		{"pods", "DaemonSet", 10, "apps/v1"}, {"pods", "Job", 6, ""}, {"pods", "Job", 7, "batch/v1"},
		{"pods", "Node", 16, ""}, {"pods", "Node", 17, "v1"}, {"pods", "ReplicationController", 36, "v1"},
		{"replicasets", "Deployment", 10, "extensions/v1beta1"}, {"replicasets", "Deployment", 36, "apps/v1"},
		{"jobs", "CronJob", 7, "batch/v2alpha1"}, {"jobs", "CronJob", 20, "batch/v1beta1"},
		{"jobs", "CronJob", 21, "batch/v1"},
		{"endpointslices", "Service", 16, "v1"},
	} {
		if got := find(tc.dependent, tc.kind, tc.minor); got != tc.want {
			t.Errorf("%s of %s refer to their %s as %q, want %q", tc.dependent, tc.minor, tc.kind, got, tc.want)
		}
	}
	for _, m := range Minors() {
		for _, o := range OwnerReferences(m) {
			if r, ok := ResourceByKey(o.Dependent); !ok || !r.In(m) {
				t.Errorf("%s: dependents %s are no resource", m, o.Dependent)
			}
			if !CanDecode(o.OwnerGVK(), m) {
				t.Errorf("%s refers to %v, a kind that it does not have", m, o.OwnerGVK())
			}
			if c, ok := ControllerByName(o.Controller); o.Controller != "kubelet" {
				if _, in := c.NameIn(m); !ok || (!in && c.GatesIn(m) == nil) {
					t.Errorf("%s has no controller %s to write references", m, o.Controller)
				}
			}
		}
	}
}

func TestGarbageCollectionOfAbsentOwners(t *testing.T) {
	for _, tc := range []struct {
		gv, kind string
		minor    Minor
		want     gc.Outcome
		why      string
	}{
		{"apps/v1", "ReplicaSet", 6, gc.Safe, "kind unknown; run: pods of a Deployment of 1.36.3 lived beside 1.6.13"},
		{"apps/v1", "StatefulSet", 6, gc.Deleted,
			"kind known in v1beta1; run: pods of a StatefulSet of 1.36.3 were deleted by 1.6.13"},
		{"apps/v1", "Deployment", 7, gc.Deleted, "kind known in v1beta1"},
		{"apps/v1", "ReplicaSet", 8, gc.Deleted, "kind known in v1beta2"},
		{"batch/v1", "CronJob", 6, gc.Deleted, "1.6 knows kinds that are compiled in, on or off"},
		{"batch/v1", "CronJob", 7, gc.Safe, "v2alpha1 is off in 1.7"},
		{"apps/v1", "ReplicaSet", 10, gc.Deleted, "run: deleted by 1.10.13"},
		{"extensions/v1beta1", "ReplicaSet", 36, gc.Safe, "not served any more"},
		{"batch/v1", "CronJob", 15, gc.Safe, "kind known in v1beta1, and 1.15 heeds the version"},
		{"v1", "Pod", 36, gc.Deleted, ""},
		{"example.org/v1", "Widget", 36, gc.Safe, "a custom resource counts as unknown"},
	} {
		owner, collector := gvk(tc.gv, tc.kind), GarbageCollectorIn(tc.minor)
		reference := gc.Reference{KnownKind: GarbageCollectorKnows(owner.GroupKind(), tc.minor),
			ServedVersion:   ServesGVK(owner, tc.minor),
			OwnerNamespaced: true, Namespaced: true, Owner: gc.Missing}
		if got := collector.Outcome(reference.Sight()); got != tc.want {
			t.Errorf("%s, owner %s %s absent: %s, want %s (%s)", tc.minor, tc.gv, tc.kind, got, tc.want, tc.why)
		}
	}
	if GarbageCollectorIn(8).ClusterOwner != gc.Deleted || GarbageCollectorIn(9).ClusterOwner != gc.Safe {
		t.Error("cluster-scoped owners: want 1.8 to delete, 1.9 to keep")
	}
}

func TestLeaderLocks(t *testing.T) {
	for _, tc := range []struct {
		component string
		minor     Minor
		def       string
		settable  string
		name      string
	}{
		{ControllerManager, 6, "endpoints", "", ""},
		{ControllerManager, 15, "endpoints", "endpoints configmaps leases", ""},
		{ControllerManager, 16, "endpoints", "endpoints configmaps leases", "leader-elect-resource-name"},
		{ControllerManager, 17, "endpointsleases", "endpoints configmaps leases endpointsleases configmapsleases",
			"leader-elect-resource-name"},
		{ControllerManager, 24, "leases", "leases endpointsleases configmapsleases", "leader-elect-resource-name"},
		{ControllerManager, 36, "leases", "leases", "leader-elect-resource-name"},
		{Scheduler, 6, "endpoints", "", ""},
		{Scheduler, 10, "endpoints", "endpoints configmaps", "lock-object-name"},
		{Scheduler, 28, "leases", "leases", "leader-elect-resource-name"},
	} {
		got := LeaderLocks(tc.component, tc.minor)
		if got.Default != tc.def || strings.Join(got.Settable, " ") != tc.settable || got.NameFlagName != tc.name ||
			got.NameFlag != (tc.name != "") || got.KindFlag != (tc.settable != "") || got.Object != tc.component {
			t.Errorf("LeaderLocks(%s, %s) = %+v, want default %s, settable %q, name flag %q", tc.component, tc.minor,
				got, tc.def, tc.settable, tc.name)
		}
		for _, kind := range append(got.Settable, got.Default) {
			if len(LockKeys(kind)) == 0 {
				t.Errorf("LockKeys(%s) is empty", kind)
			}
			for _, key := range LockKeys(kind) {
				if _, ok := ResourceByKey(key); !ok {
					t.Errorf("a lock of kind %s is in %s, which is no resource", kind, key)
				}
			}
		}
	}
}

func TestEndpointReconcilersAndAllocators(t *testing.T) {
	if got := EndpointReconcilersIn(8); got.Types != nil || got.Default != "master-count" {
		t.Errorf("EndpointReconcilersIn(1.8) = %+v, want no types, master-count", got)
	}
	if got := EndpointReconcilersIn(10); !slices.Equal(got.Types, []string{"lease", "master-count", "none"}) ||
		got.Default != "master-count" {
		t.Errorf("EndpointReconcilersIn(1.10) = %+v, want three types, master-count", got)
	}
	if got := EndpointReconcilersIn(36).Default; got != "lease" {
		t.Errorf("EndpointReconcilersIn(1.36).Default = %s, want lease", got)
	}
	for _, m := range Minors() {
		got := AllocatorsIn(m)
		multi, ok := Gate("MultiCIDRServiceAllocator").At(m)
		if want := ok && multi.Default; got.Objects != want {
			t.Errorf("%s writes IPAddresses: %v, its gate says %v", m, got.Objects, want)
		}
		single, ok := Gate("DisableAllocatorDualWrite").At(m)
		if want := !got.Objects || !ok || !single.Default; got.Bitmap != want {
			t.Errorf("%s writes the bitmap: %v, its gate says %v", m, got.Bitmap, want)
		}
		if settable := !got.Bitmap && !single.Locked; (got.KeepBitmap != "") != settable {
			t.Errorf("%s: the bitmap is kept by %q, the gate is settable: %v", m, got.KeepBitmap, settable)
		}
		if settable := got.Bitmap && got.Objects && !single.Locked; (got.EndBitmap != "") != settable {
			t.Errorf("%s: the bitmap is left alone by %q, the gate is settable: %v", m, got.EndBitmap, settable)
		}
		if got.With(got.KeepBitmap+" , "+got.EndBitmap+",X=true").Bitmap != (got.Bitmap && got.EndBitmap == "" ||
			got.KeepBitmap != "") {
			t.Errorf("%s: started with its gates it is %+v", m, got.With(got.KeepBitmap+","+got.EndBitmap))
		}
		if repaired := slices.ContainsFunc(StartupWrites(m), func(w StartupWrite) bool {
			return w.Resource == "ranges/serviceips" && w.Continuous
		}); got.CompletesBitmap != repaired {
			t.Errorf("%s completes the bitmap: %v, of what it writes at its start: %v", m, got.CompletesBitmap,
				repaired)
		}
		serviceIPs, _ := ResourceByKey("ranges/serviceips")
		if serviceIPs.OnByDefault(m) != got.Bitmap {
			t.Errorf("%s: ranges/serviceips is on %v, the allocator writes it %v", m, serviceIPs.OnByDefault(m),
				got.Bitmap)
		}
	}
}

func TestStartupWritesOfAFreshServer(t *testing.T) {
	var got []string
	for _, w := range StartupWrites(36) {
		if !w.OnlyWithRBAC && w.Hook != "apiextensions controllers" { // a fresh store has no CustomResourceDefinitions
			got = append(got, w.Resource)
		}
	}
	slices.Sort(got)
	want := strings.Fields("apiregistration.k8s.io/apiservices configmaps endpointslices flowschemas ipaddresses " +
		"leases masterleases namespaces peerserverleases priorityclasses prioritylevelconfigurations " +
		"ranges/servicenodeports servicecidrs services/endpoints services/specs")
	if got := slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("1.36 writes %v, a fresh 1.36.3 wrote %v", got, want)
	}
}

func TestStartupWritesHoldTogether(t *testing.T) {
	for _, m := range Minors() {
		for _, w := range StartupWrites(m) {
			r, ok := ResourceByKey(w.Resource)
			if !ok || !r.In(m) || !r.OnByDefault(m) {
				t.Errorf("%s: %s writes %s, which is not on at %s", m, w.Hook, w.Resource, m)
			}
			if w.OffFlag == "" {
				continue
			}
			if !Flag(APIServer, w.OffFlag).In(m) || w.OffValue == "" {
				t.Errorf("%s: %s is turned off by --%s=%s, which does not exist", m, w.Hook, w.OffFlag, w.OffValue)
			}
			if w.OffFlag == "feature-gates" {
				gate, is, _ := strings.Cut(w.OffValue, "=")
				if state, ok := Gate(gate).At(m); !ok || is == strconv.FormatBool(state.Default) || state.Locked {
					t.Errorf("%s: %s is turned off by %s, which is %+v", m, w.Hook, w.OffValue, state)
				}
			}
		}
	}
	for _, w := range StartupWrites(31) {
		want := "flowcontrol.apiserver.k8s.io/v1=false,flowcontrol.apiserver.k8s.io/v1beta3=false"
		if w.Resource == "flowschemas" && w.OffValue != want {
			t.Errorf("1.31 stops writing flow schemas by %s, want %s", w.OffValue, want)
		}
	}
}

func TestBehavioursHaveFacts(t *testing.T) {
	named := map[string]bool{}
	for b := range Behaviour(len(behaviourNames)) {
		if fact := b.fact(); b.String() == "" || fact.Meaning == "" || fact.Source == "" || len(fact.Minors) == 0 ||
			named[b.String()] {
			t.Errorf("behaviour %d, %q: facts are %+v, want a name of its own, a meaning, a source and minors", int(b),
				b, fact)
		}
		named[b.String()] = true
	}
	for _, tc := range []struct {
		behaviour Behaviour
		minor     Minor
		want      bool
	}{
		{BehaviourIssuerRequired, 19, false}, {BehaviourIssuerRequired, 20, true},
		{BehaviourInsecurePort, 19, true}, {BehaviourInsecurePort, 20, false},
		{BehaviourTokenSecretsCreated, 23, true}, {BehaviourTokenSecretsCreated, 24, false},
		{BehaviourAdmissionConfigV1, 16, false}, {BehaviourAdmissionConfigV1, 17, true},
		{BehaviourCRDServed, 6, false}, {BehaviourCRDServed, 7, true},
		{BehaviourUndecryptableItemsOmitted, 12, true}, {BehaviourUndecryptableItemsOmitted, 13, false},
		{Behaviour(-1), 36, false}, {Behaviour(len(behaviourNames)), 36, false},
	} {
		if got := Behaves(tc.behaviour, tc.minor); got != tc.want {
			t.Errorf("Behaves(%s, %s) = %v, want %v", tc.behaviour, tc.minor, got, tc.want)
		}
	}
}

func TestBehavioursOfPatchReleases(t *testing.T) {
	for given, want := range map[string]bool{"1.10.13": false, "1.11.7": false, "1.11.8": true, "1.11": true,
		"1.12.5-acme.1": false, "1.13.4": true, "1.14.0": true} {
		v, err := Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := BehavesIn(BehaviourDecodeCoercingWatch, v); got != want {
			t.Errorf("BehavesIn(%s, %s) = %v, want %v", BehaviourDecodeCoercingWatch, given, got, want)
		}
	}
	for _, b := range BehaviourFacts() {
		for m := range b.firstPatch {
			if !b.Minors.Has(m) {
				t.Errorf("%s: a first patch release of %s, which does not behave so", b.Name, m)
			}
		}
	}
}

// Behaviours that rest on a feature gate or a flag's default must agree with those tables.
func TestBehavioursAgreeWithGates(t *testing.T) {
	for behaviour, gate := range map[Behaviour]string{
		BehaviourBoundTokens:               "TokenRequest",
		BehaviourDualStackServices:         "IPv6DualStack",
		BehaviourTokenProjectionMountable:  "TokenRequestProjection",
		BehaviourTokenVolumeProjected:      "BoundServiceAccountTokenVolume",
		BehaviourProtectionFinalizersAdded: "StorageObjectInUseProtection",
		BehaviourDaemonPodsByAffinity:      "ScheduleDaemonSetPods",
		BehaviourJobTrackingFinalizer:      "JobTrackingWithFinalizers",
		BehaviourKubeletLeaseHeartbeat:     "NodeLease",
		BehaviourLegacyTokenTracking:       "LegacyServiceAccountTokenTracking",
		BehaviourServerSideApply:           "ServerSideApply",
	} {
		for _, m := range Minors() {
			if state, ok := Gate(gate).At(m); ok && state.Default != Behaves(behaviour, m) {
				t.Errorf("%s at %s is %v, its gate %s is %v", behaviour, m, Behaves(behaviour, m), gate, state.Default)
			}
		}
	}
	minors := map[string]Ranges{}
	for _, fact := range BehaviourFacts() {
		minors[fact.Name] = fact.Minors
	}
	definitions,
		_ := ResourceFor(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"})
	for _, m := range Minors() {
		lookup, _ := Flag(APIServer, "service-account-lookup").Default(m)
		if (lookup == "true") != minors["token-lookup-default"].Has(m) {
			t.Errorf("token lookup at %s is %s by flag, %v by table", m, lookup, minors["token-lookup-default"])
		}
		if port, ok := Flag(APIServer, "insecure-port").Default(m); (ok &&
			port != "0") != minors["insecure-port-on-by-default"].Has(m) {
			t.Errorf("insecure port at %s is %s by flag, %v by table", m, port, minors["insecure-port-on-by-default"])
		}
		_, crds := definitions.StoredAs(m)
		if crds != Behaves(BehaviourCRDServed, m) {
			t.Errorf("CRDs at %s: stored %v, served %v", m, crds, Behaves(BehaviourCRDServed, m))
		}
	}
}

func TestShortNamesAreOfResources(t *testing.T) {
	for short, resource := range shortNameTable() {
		if !slices.ContainsFunc(apiTable(), func(a APIResource) bool { return a.Name == resource }) {
			t.Errorf("%s is short for %s, which no version has", short, resource)
		}
		if slices.ContainsFunc(apiTable(), func(a APIResource) bool { return a.Name == short }) {
			t.Errorf("%s is a resource, and short for %s", short, resource)
		}
	}
}
