package kubever

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFlagsOfRealPrograms(t *testing.T) {
	for _, tc := range []struct {
		component, name string
		minors          string
	}{
		{APIServer, "storage-versions", "1.6-1.13"},
		{APIServer, "endpoint-reconciler-type", "1.9-1.37"},
		{APIServer, "enable-admission-plugins", "1.10-1.37"},
		{APIServer, "admission-control", "1.6-1.37"},
		{ControllerManager, "leader-elect-resource-name", "1.16-1.37"},
		{ControllerManager, "no-such-flag", "never"},
	} {
		if got := Flag(tc.component, tc.name).Minors.String(); got != tc.minors {
			t.Errorf("Flag(%s, %s) is in %s, want %s", tc.component, tc.name, got, tc.minors)
		}
	}
	if got, _ := Flag(APIServer, "audit-log-maxage").Default(36); got != "366" {
		t.Errorf("--audit-log-maxage of 1.36 defaults to %q, want 366", got)
	}
	if f := Flag(APIServer, "storage-versions"); f.DeprecatedIn(11) || !f.DeprecatedIn(12) {
		t.Errorf("--storage-versions is deprecated in %s, want 1.12-1.13", f.Deprecated)
	}
	if f := Flag(APIServer, "request-timeout"); !f.In(6) || !f.NotInDotZero(6) {
		t.Error("--request-timeout: want it in 1.6, but not in 1.6.0")
	}
	if got := Flag(APIServer, "insecure-port").DeprecationMessage(20); !strings.Contains(got, "no effect") {
		t.Errorf("deprecation of --insecure-port in 1.20 = %q, want that it has no effect", got)
	}
	for component, want := range map[string]int{APIServer: 177, ControllerManager: 150, Scheduler: 62} {
		if got := len(Flags(component, 36)); got != want {
			t.Errorf("Flags(%s, 1.36) lists %d, the program accepts %d", component, got, want)
		}
	}
}

func TestGateStates(t *testing.T) {
	if got, ok := Gate("DisableAllocatorDualWrite").At(36); !ok || got != (GateState{"GA", true, true}) {
		t.Errorf("DisableAllocatorDualWrite at 1.36 = %v %v, want GA, on, locked", got, ok)
	}
	if _, ok := Gate("DisableAllocatorDualWrite").At(30); ok {
		t.Error("1.30 knows DisableAllocatorDualWrite, want unknown")
	}
	lock := Gate("ControllerManagerReleaseLeaderElectionLockOnExit")
	if lock.KnownTo(Scheduler, 36) || !lock.KnownTo(ControllerManager, 36) {
		t.Error("ControllerManagerReleaseLeaderElectionLockOnExit: want it known to the controller manager only")
	}
	if dual := Gate("IPv6DualStack"); !dual.KnownTo(APIServer, 24) || dual.KnownTo(APIServer, 25) {
		t.Error("IPv6DualStack: want it known to the API server up to 1.24")
	}
}

// TestWhatGatesAreForWorks: before the gate, while it is off, on, and when it is gone after it was on, or off.
func TestWhatGatesAreForWorks(t *testing.T) {
	for _, c := range []struct {
		gate  string
		minor Minor
		want  bool
	}{
		{"APIListChunking", 7, false}, {"APIListChunking", 8, false}, {"APIListChunking", 9, true},
		{"APIListChunking", 33, true}, {"Accelerators", 11, false}, {"NoSuchGate", 36, false},
	} {
		if got := Gate(c.gate).Works(c.minor); got != c.want {
			t.Errorf("%s works in %s: %v, want %v", c.gate, c.minor, got, c.want)
		}
	}
}

func TestAdmissionFollowsTheServersOrder(t *testing.T) {
	on := AdmissionDefaultOn(36)
	if i, j := slices.Index(on, "NamespaceLifecycle"), slices.Index(on, "ResourceQuota"); i < 0 || j < i {
		t.Errorf("AdmissionDefaultOn(1.36) = %v, want NamespaceLifecycle before ResourceQuota", on)
	}
	if got := AdmissionDefaultOn(9); got != nil {
		t.Errorf("AdmissionDefaultOn(1.9) = %v, want none", got)
	}
	for _, m := range Minors() {
		known := AdmissionPlugins(m)
		for _, plugin := range AdmissionDefaultOn(m) {
			if !slices.Contains(known, plugin) {
				t.Errorf("%s runs %s, which it does not know", m, plugin)
			}
		}
		if order, ok := at(admissionOrderTable(), m); ok && !slices.Equal(order, known) {
			t.Errorf("order of %s is %v, plugins are %v", m, order, known)
		}
	}
	if modes := AuthorizationModes(6); slices.Contains(modes, "Node") || !slices.Contains(modes, "ABAC") {
		t.Errorf("AuthorizationModes(1.6) = %v, want ABAC and no Node", modes)
	}
}

func gvk(gv, kind string) schema.GroupVersionKind {
	parsed, err := schema.ParseGroupVersion(gv)
	if err != nil {
		panic(err)
	}
	return parsed.WithKind(kind)
}

func TestStoredVersions(t *testing.T) {
	for _, tc := range []struct {
		group, resource string
		minor           Minor
		want            string
	}{
		{"apps", "deployments", 6, "extensions/v1beta1"},
		{"extensions", "deployments", 9, "extensions/v1beta1"},
		{"extensions", "deployments", 10, "apps/v1"},
		{"apps", "statefulsets", 6, "apps/v1beta1"},
		{"networking.k8s.io", "ingresses", 6, "extensions/v1beta1"},
		{"networking.k8s.io", "ingresses", 15, "networking.k8s.io/v1beta1"},
		{"extensions", "ingresses", 36, "networking.k8s.io/v1"},
		{"extensions", "networkpolicies", 8, "extensions/v1beta1"},
		{"batch", "cronjobs", 6, "batch/v2alpha1"},
		{"batch", "scheduledjobs", 7, "batch/v2alpha1"},
		{"batch", "cronjobs", 21, "batch/v1beta1"},
		{"batch", "cronjobs", 22, "batch/v1"},
		{"autoscaling", "horizontalpodautoscalers", 27, "autoscaling/v2"},
		{"policy", "poddisruptionbudgets", 26, "policy/v1beta1"},
		{"policy", "podsecuritypolicies", 10, "extensions/v1beta1"},
		{"storage.k8s.io", "storageclasses", 6, "storage.k8s.io/v1beta1"},
		{"rbac.authorization.k8s.io", "roles", 8, "rbac.authorization.k8s.io/v1beta1"},
		{"apiextensions.k8s.io", "customresourcedefinitions", 36, "apiextensions.k8s.io/v1beta1"},
		{"apiregistration.k8s.io", "apiservices", 20, "apiregistration.k8s.io/v1beta1"},
		{"events.k8s.io", "events", 36, "v1"},
		{"networking.k8s.io", "servicecidrs", 33, "networking.k8s.io/v1beta1"},
		{"", "nodes", 6, "v1"},
	} {
		got, ok := storedAs(schema.GroupResource{Group: tc.group, Resource: tc.resource}, tc.minor)
		if !ok || got.GroupVersion().String() != tc.want {
			t.Errorf("%s stores %s.%s as %v %v, want %s", tc.minor, tc.resource, tc.group, got, ok, tc.want)
		}
	}
	for _, absent := range []schema.GroupResource{{Group: "apps", Resource: "controllerrevisions"},
		{Group: "coordination.k8s.io", Resource: "leases"},
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}} {
		if got, ok := storedAs(absent, 6); ok {
			t.Errorf("1.6 stores %s as %v, want unknown", absent, got)
		}
	}
}

func storedAs(gr schema.GroupResource, m Minor) (schema.GroupVersionKind, bool) {
	r, _ := ResourceFor(gr)
	return r.StoredAs(m)
}

func TestWhatCanBeDecoded(t *testing.T) {
	for _, tc := range []struct {
		gv, kind string
		want     string
	}{
		{"apps/v1", "Deployment", "1.9-1.37"},
		{"apps/v1beta1", "StatefulSet", "1.6-1.37"},
		{"extensions/v1beta1", "Deployment", "1.6-1.37"},
		{"extensions/v1beta1", "PodSecurityPolicy", "1.6-1.26"},
		{"networking.k8s.io/v1", "Ingress", "1.19-1.37"},
		{"networking.k8s.io/v1beta1", "Ingress", "1.14-1.37"},
		{"networking.k8s.io/v1", "NetworkPolicy", "1.7-1.37"},
		{"batch/v1", "CronJob", "1.21-1.37"},
		{"batch/v2alpha1", "CronJob", "1.6-1.20"},
		{"autoscaling/v2", "HorizontalPodAutoscaler", "1.23-1.37"},
		{"policy/v1", "PodDisruptionBudget", "1.21-1.37"},
		{"scheduling.k8s.io/v1", "PriorityClass", "1.14-1.37"},
		{"scheduling.k8s.io/v1alpha1", "PriorityClass", "1.8-1.35"},
		{"storage.k8s.io/v1", "VolumeAttachment", "1.13-1.37"},
		{"storage.k8s.io/v1", "CSINode", "1.17-1.37"},
		{"storage.k8s.io/v1", "CSIDriver", "1.18-1.37"},
		{"storage.k8s.io/v1", "CSIStorageCapacity", "1.24-1.37"},
		{"coordination.k8s.io/v1", "Lease", "1.14-1.37"},
		{"discovery.k8s.io/v1", "EndpointSlice", "1.21-1.37"},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", "1.8-1.37"},
		{"certificates.k8s.io/v1", "CertificateSigningRequest", "1.19-1.37"},
		{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "1.16-1.37"},
		{"node.k8s.io/v1", "RuntimeClass", "1.20-1.37"},
		{"flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "1.29-1.37"},
		{"networking.k8s.io/v1", "ServiceCIDR", "1.33-1.37"},
		{"apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "1.7-1.37"},
		{"apiregistration.k8s.io/v1", "APIService", "1.10-1.37"},
		{"example.org/v1", "Widget", "never"},
	} {
		if got := kindTable()[gvk(tc.gv, tc.kind)].String(); got != tc.want {
			t.Errorf("%s %s can be decoded in %s, want %s", tc.gv, tc.kind, got, tc.want)
		}
	}
	for _, r := range Resources() {
		for _, m := range Minors() {
			if stored, ok := r.StoredAs(m); ok && !CanDecode(stored, m) {
				t.Errorf("%s stores %s as %v, which it cannot decode", m, r.Key, stored)
			}
		}
	}
}

func TestOverridesNameTheChosenGroup(t *testing.T) {
	for _, tc := range []struct {
		key   string
		minor Minor
		want  string
	}{
		{"deployments", 6, "extensions"}, {"deployments", 9, "extensions"}, {"deployments", 10, "apps"},
		{"deployments", 36, "apps"},
		{"replicasets", 6, "extensions"}, {"daemonsets", 7, "extensions"}, {"statefulsets", 6, "apps"},
		{"networkpolicies", 7, "extensions"}, {"networkpolicies", 9, "networking.k8s.io"},
		{"podsecuritypolicy", 10, "extensions"}, {"podsecuritypolicy", 11, "policy"},
		{"ingress", 14, "extensions"}, {"ingress", 15, "networking.k8s.io"}, {"ingress", 36, "networking.k8s.io"},
		{"events", 36, ""}, {"minions", 36, ""}, {"masterleases", 36, ""},
	} {
		r, ok := ResourceByKey(tc.key)
		if !ok {
			t.Fatalf("no resource under %s", tc.key)
		}
		if got := r.ChosenGroup(tc.minor); got != tc.want {
			t.Errorf("%s chooses group %q for %s, want %q", tc.minor, got, tc.key, tc.want)
		}
	}
}

func TestKeysAndLocations(t *testing.T) {
	for _, tc := range []struct {
		gr          schema.GroupResource
		key         string
		overridable bool
		follows     string
	}{
		{schema.GroupResource{Resource: "nodes"}, "minions", true, ""},
		{schema.GroupResource{Resource: "services"}, "services/specs", true, ""},
		{schema.GroupResource{Resource: "endpoints"}, "services/endpoints", true, ""},
		{schema.GroupResource{Resource: "replicationcontrollers"}, "controllers", true, ""},
		{schema.GroupResource{Group: "extensions", Resource: "ingresses"}, "ingress", true, ""},
		{schema.GroupResource{Resource: "apiServerIPInfo"}, "masterleases", true, ""},
		{schema.GroupResource{Resource: "serviceipallocations"}, "ranges/serviceips", false, "services/specs"},
		{schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
			"apiextensions.k8s.io/customresourcedefinitions", false, ""},
		{schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"},
			"apiregistration.k8s.io/apiservices", false, ""},
	} {
		r, ok := ResourceFor(tc.gr)
		if !ok || r.Key != tc.key || r.Overridable() != tc.overridable || r.Follows() != tc.follows {
			t.Errorf("ResourceFor(%s) = %s, overridable %v, follows %q; want %s, %v, %q", tc.gr, r.Key, r.Overridable(),
				r.Follows(), tc.key, tc.overridable, tc.follows)
		}
		if follows := r.Follows(); follows != "" {
			if _, ok := ResourceByKey(follows); !ok {
				t.Errorf("%s follows %s, which is no key", r.Key, follows)
			}
		}
	}
	if r, ok := ResourceFor(schema.GroupResource{Group: "example.org", Resource: "widgets"}); ok {
		t.Errorf("ResourceFor(widgets.example.org) = %v, want unknown", r)
	}
}

func TestServedByDefault(t *testing.T) {
	groupVersions := map[schema.GroupVersion]bool{}
	for _, a := range APIResources(36) {
		if a.DefaultOn.Has(36) && a.Group != "apiregistration.k8s.io" {
			groupVersions[a.GroupVersion] = true
		}
	}
	if len(groupVersions) != 21 {
		t.Errorf("1.36 serves %d group/versions by default, a real one registered 21 APIServices", len(groupVersions))
	}
	for _, tc := range []struct {
		gv, kind string
		minor    Minor
		want     bool
	}{
		{"apps/v1", "Deployment", 8, false}, {"apps/v1", "Deployment", 9, true},
		{"extensions/v1beta1", "Deployment", 15, true}, {"extensions/v1beta1", "Deployment", 16, false},
		{"extensions/v1beta1", "Ingress", 21, true}, {"extensions/v1beta1", "Ingress", 22, false},
		{"batch/v2alpha1", "CronJob", 6, false}, {"batch/v1beta1", "CronJob", 24, true},
		{"settings.k8s.io/v1alpha1", "PodPreset", 7, true}, {"settings.k8s.io/v1alpha1", "PodPreset", 8, false},
		{"apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", 7, true},
		{"networking.k8s.io/v1beta1", "IPAddress", 33, false}, {"networking.k8s.io/v1", "IPAddress", 33, true},
	} {
		if got := ServesGVK(gvk(tc.gv, tc.kind), tc.minor); got != tc.want {
			t.Errorf("ServesGVK(%s %s, %s) = %v, want %v", tc.gv, tc.kind, tc.minor, got, tc.want)
		}
	}
	if servesKind(schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, 7) ||
		!servesKind(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, 6) {
		t.Error("apps: want StatefulSet known to 1.6, ReplicaSet unknown to 1.7")
	}
	for _, a := range apiTable() {
		for _, m := range Minors() {
			if a.DefaultOn.Has(m) && !a.In(m) {
				t.Errorf("%s serves %s %s, which it does not compile in", m, a.GroupVersion, a.Name)
			}
		}
	}
}

func TestControllerNames(t *testing.T) {
	for _, tc := range []struct {
		any   string
		minor Minor
		name  string // "" for none
		on    bool
	}{
		{"statefulset-controller", 6, "statefuleset", true},
		{"statefuleset", 7, "statefulset", true},
		{"statefulset", 36, "statefulset-controller", true},
		{"garbagecollector", 6, "garbagecollector", true},
		{"node", 6, "node", true},
		{"node-controller", 10, "", false},
		{"nodelifecycle", 10, "nodelifecycle", true},
		{"bootstrapsigner", 15, "bootstrapsigner", false},
		{"endpointslice", 16, "endpointslice", false},
		{"endpointslice", 17, "endpointslice", false}, // its gate is still off
		{"endpointslice", 18, "endpointslice", true},
		{"ttl-after-finished", 20, "ttl-after-finished", false},
		{"root-ca-cert-publisher", 20, "root-ca-cert-publisher", true},
		{"storage-version-gc", 20, "", false}, // its gates are off, and 1.28 and older then refuse the name
		{"storage-version-gc", 29, "storageversion-garbage-collector-controller", false},
		{"legacy-service-account-token-cleaner", 28, "", false},
		{"legacy-service-account-token-cleaner", 29, "legacy-serviceaccount-token-cleaner-controller", true},
		{"service", 36, "service-lb-controller", true},
		{"serviceaccount-token", 6, "serviceaccount-token", true},
		{"service-cidr-controller", 33, "service-cidr-controller", true},
		{"selinux-warning-controller", 36, "selinux-warning-controller", false},
	} {
		c, ok := ControllerByName(tc.any)
		if !ok {
			t.Errorf("ControllerByName(%s) finds nothing", tc.any)
			continue
		}
		name, known := c.NameIn(tc.minor)
		if name != tc.name || known != (tc.name != "") || c.DefaultOn(tc.minor) != tc.on {
			t.Errorf("%s at %s: name %q, on %v; want %q, %v", tc.any, tc.minor, name, c.DefaultOn(tc.minor), tc.name,
				tc.on)
		}
	}
	if c, _ := ControllerByName("deployment"); !slices.Equal(c.AliasesIn(28), []string{"deployment"}) ||
		c.AliasesIn(27) != nil {
		t.Errorf("aliases of %s: 1.27 %v, 1.28 %v; want none, deployment", c.Name, c.AliasesIn(27), c.AliasesIn(28))
	}
	if c, ok := ControllerByName("no-such-controller"); ok {
		t.Errorf("ControllerByName(no-such-controller) = %v", c)
	}
}

func TestControllerTableHoldsTogether(t *testing.T) {
	for _, m := range Minors() {
		seen := map[string]string{}
		for _, c := range Controllers(m) {
			name, _ := c.NameIn(m)
			for _, n := range append(c.AliasesIn(m), name) {
				if other, twice := seen[n]; twice {
					t.Errorf("%s: %q names both %s and %s", m, n, other, c.Name)
				}
				seen[n] = c.Name
				if found, _ := ControllerByName(n); found.Name != c.Name {
					t.Errorf("ControllerByName(%q) = %s, want %s", n, found.Name, c.Name)
				}
			}
		}
	}
	for _, c := range controllerTable() {
		if !strings.Contains("ABCDEFG", string(c.Class)) || len(c.Class) != 1 || c.Subject == "" {
			t.Errorf("%s: conflict class %q, subject %q; want a class, A to G, and a line in access.tsv", c.Name,
				c.Class, c.Subject)
		}
		for _, m := range Minors() {
			for _, gate := range c.GatesIn(m) {
				if !Gate(gate).KnownTo(ControllerManager, m) {
					t.Errorf("%s at %s needs the gate %s, which is unknown", c.Name, m, gate)
				}
			}
		}
	}
}

func TestLifecycles(t *testing.T) {
	for _, test := range []struct {
		group, version, kind string
		deprecated, ended    Minor
	}{
		{"extensions", "v1beta1", "Deployment", 8, 16},
		{"extensions", "v1beta1", "Ingress", 14, 22},
		{"policy", "v1beta1", "PodSecurityPolicy", 21, 25},
		{"apps", "v1", "Deployment", 0, 0},
	} {
		gvk := schema.GroupVersionKind{Group: test.group, Version: test.version, Kind: test.kind}
		if life := LifecycleOf(gvk); life.Deprecated != test.deprecated || life.Ended() != test.ended {
			t.Errorf("LifecycleOf(%v) = deprecated %s, ended %s, want %s, %s", gvk, life.Deprecated, life.Ended(),
				test.deprecated, test.ended)
		}
	}
	for gvk, minor := range deprecatedTable() {
		if life := LifecycleOf(gvk); len(life.Minors) == 0 || !minor.Known() || minor < life.Minors[0].From {
			t.Errorf("%v is deprecated in %s, served in %s", gvk, minor, life.Minors)
		}
	}
}

func TestFlagsHoweverTheyAreSpelled(t *testing.T) {
	for _, tc := range []struct {
		given string
		minor Minor
		want  string
	}{
		{"bind-address", 10, "bind-address"},
		{"bind_address", 36, "bind-address"},
		{"concurrent_rc_syncs", 9, "concurrent-rc-syncs"},
		{"concurrent_rc_syncs", 10, "concurrent_rc_syncs"},
		{"concurrent_rc_syncs", 20, "concurrent_rc_syncs"},
		{"concurrent_rc_syncs", 21, "concurrent-rc-syncs"},
		{"no_such_flag", 21, ""},
	} {
		if got := FlagGiven(ControllerManager, tc.given, tc.minor); got.Name != tc.want ||
			got.In(tc.minor) != (tc.want != "") {
			t.Errorf("FlagGiven(%s, %s) = %q in %s, want %q", tc.given, tc.minor, got.Name, got.Minors, tc.want)
		}
	}
	if got := FlagName("etcd_servers-overrides"); got != "etcd-servers-overrides" {
		t.Errorf("FlagName = %q, want etcd-servers-overrides", got)
	}
}

// A question mark is what the command that proposes rows leaves to people.
func TestNothingIsLeftUndecided(t *testing.T) {
	names, err := tables.ReadDir("tables")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := tables.ReadFile("tables/" + name.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(content), "\n") {
			if slices.Contains(strings.Split(line, "\t"), "?") {
				t.Errorf("%s:%d: %s: decide what stands as ?", name.Name(), i+1, line)
			}
		}
	}
}

func TestEveryAliasIsAFlagWhereItIsOne(t *testing.T) {
	for key, alias := range aliasTable() {
		for _, m := range Minors() {
			if alias.minors.Has(m) && !Flag(key.component, key.name).In(m) {
				t.Errorf("%s %s does not have --%s, which the table calls an alias there", key.component, m, key.name)
			}
		}
	}
	for _, test := range []struct {
		given string
		minor Minor
		want  string
	}{
		{"address", 6, "insecure-bind-address"}, {"address", 20, "address"}, {"insecure_port", 6, "insecure-port"},
		{"experimental-encryption-provider-config", 7, "encryption-provider-config"},
	} {
		if got := Meant(APIServer, test.given, test.minor); got != test.want {
			t.Errorf("Meant(%s, %s) = %s, want %s", test.given, test.minor, got, test.want)
		}
	}
}

func TestWhatIsWrittenAndWhatIsAllocatedFromAreTwoFacts(t *testing.T) {
	if a := AllocatorsIn(33); !a.Bitmap || !a.Objects || !a.FromObjects {
		t.Errorf("AllocatorsIn(1.33) = %+v, want both written and objects allocated from", a)
	}
	for gates, written := range map[string]bool{
		"DisableAllocatorDualWrite=True": false, "A=false, DisableAllocatorDualWrite=1": false,
		"DisableAllocatorDualWrite=false": true, "DisableAllocatorDualWrite=x": true,
		"DisableAllocatorDualWrite": true,
	} {
		if AllocatorsIn(33).With(gates).Bitmap != written {
			t.Errorf("AllocatorsIn(1.33).With(%q) writes the bitmap: %t", gates, !written)
		}
	}
	if a := AllocatorsIn(32); a.FromObjects || a.Objects {
		t.Errorf("AllocatorsIn(1.32) = %+v, want the bitmap alone", a)
	}
}
