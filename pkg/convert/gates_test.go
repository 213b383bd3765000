package convert

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Fields whose feature gates are off by default are dropped by servers that know them: they are named, by their places,
// and come back with the minor that turned the gate on.
func TestFieldsBehindGatesAreNamed(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{
			"resources": map[string]any{"limits": map[string]any{"cpu": "1"}},
			"hostUsers": false,
			"containers": []any{
				map[string]any{"name": "a", "image": "a"},
				map[string]any{"name": "b", "image": "b", "lifecycle": map[string]any{"stopSignal": "SIGUSR1"},
					"startupProbe": map[string]any{"tcpSocket": map[string]any{"port": int64(1)}}},
			},
		},
	}}
	stop, probe := "spec.containers[1].lifecycle.stopSignal", "spec.containers[1].startupProbe"
	for _, test := range []struct {
		minor  kubever.Minor
		want   []string
		reason string
	}{
		{36, []string{stop}, "ContainerStopSignals"},
		{33, []string{stop, "spec.resources"}, "its feature gate"},
		{32, []string{stop, "spec.hostUsers", "spec.resources"}, ""},
		{17, []string{stop, probe, "spec.hostUsers", "spec.resources"}, ""},
	} {
		var got []string
		losses := c.LossesIn(pod, test.minor)
		for _, loss := range losses {
			got = append(got, loss.Path)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("losses in %s: %q, want %q", test.minor, got, test.want)
		} else if !strings.Contains(losses[0].Meaning, test.reason) {
			t.Errorf("%s: %s: %q, want %q in it", test.minor, got[0], losses[0].Meaning, test.reason)
		}
	}
}

// A namespace that an object of a cluster-scoped kind names is dropped by every server; and that of others is not.
func TestNamespacesOfClusterScopedKindsAreNamed(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for object, want := range map[string]int{
		"rbac.authorization.k8s.io/v1 ClusterRole": 1, "v1 Namespace": 1, "rbac.authorization.k8s.io/v1 Role": 0,
		"storage.k8s.io/v1beta1 StorageClass": 1, "example.com/v1 ClusterRole": 0,
	} {
		version, kind, _ := strings.Cut(object, " ")
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(version)
		u.SetKind(kind)
		u.SetName("a")
		u.SetNamespace("b")
		losses := c.LossesIn(u, 20)
		if len(losses) != want || want > 0 && losses[0].Path != "metadata.namespace" {
			t.Errorf("%s in a namespace: losses %v, want %d", object, losses, want)
		}
	}
}

// Files of components that name the core group are no misspelled objects.
func TestFilesOfComponentsAreNotMisnamed(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"EncryptionConfig": false, "Config": false, "EncryptionConfigs": true} {
		if why := c.Misnamed(kind("", "v1", name)); (why != "") != want {
			t.Errorf("v1 %s is misnamed: %q, want %t", name, why, want)
		}
	}
}

// What servers look into a field for before they drop or reset it decides about the loss, too.
func TestFieldsDroppedForTheirValuesAreNamed(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	claim := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
			"kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "a"}, "spec": spec}}
	}
	source := func(group, kind string) map[string]any {
		return map[string]any{"apiGroup": group, "kind": kind, "name": "a"}
	}
	volume := map[string]any{"kind": "PersistentVolumeClaim", "name": "a"}
	snapshot, populator := source("snapshot.storage.k8s.io", "VolumeSnapshot"), source("a.example", "Populator")
	elsewhere := map[string]any{"kind": "PersistentVolumeClaim", "name": "a", "namespace": "b"}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"containers": []any{
			map[string]any{"name": "a", "securityContext": map[string]any{"procMount": "Default"}},
			map[string]any{"name": "b", "securityContext": map[string]any{"procMount": "Unmasked"}},
		}}}}
	container := func(policy string) map[string]any { return map[string]any{"name": "a", "restartPolicy": policy} }
	restarts := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"containers": []any{container("Never")},
			"initContainers": []any{container("Never"), container("Always")}}}}
	populatorElsewhere := source("a.example", "Populator")
	populatorElsewhere["namespace"] = "b"
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"volumeClaimTemplates": []any{
			map[string]any{"spec": map[string]any{"dataSource": populator}}}}}}
	for _, loss := range c.LossesIn(set, kubever.Newest) {
		if !strings.Contains(loss.Meaning, "drops it of the claims that are created of this: ") {
			t.Errorf("%s of a template: %q", loss.Path, loss.Meaning)
		}
	}
	const proc = "spec.containers[1].securityContext.procMount"
	metadata := map[string]any{"clusterName": "a", "initializers": map[string]any{
		"pending": []any{map[string]any{"name": "a.b.c"}}}}
	named := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ReplicationController",
		"metadata": metadata, "spec": map[string]any{"template": map[string]any{"metadata": metadata}}}}
	for _, test := range []struct {
		object  *unstructured.Unstructured
		lost    string
		in, not []kubever.Minor
	}{
		{claim(map[string]any{"dataSource": volume}), "spec.dataSource",
			[]kubever.Minor{11, 14, 15}, []kubever.Minor{12, 13, 16, 22, 36}}, // 1.12 and 1.13 refuse it
		{claim(map[string]any{"dataSource": snapshot}), "spec.dataSource",
			[]kubever.Minor{15, 16}, []kubever.Minor{13, 17, 24, 36}},
		{claim(map[string]any{"dataSource": populator}), "spec.dataSource",
			[]kubever.Minor{15, 17, 21, 23, 24, 36}, nil},
		{claim(map[string]any{"dataSource": populator, "dataSourceRef": populator}), "spec.dataSource",
			[]kubever.Minor{17, 23}, []kubever.Minor{24, 36}},
		{claim(map[string]any{"dataSourceRef": populator}), "spec.dataSourceRef",
			[]kubever.Minor{21, 22, 23}, []kubever.Minor{24, 25, 26, 36}},
		{claim(map[string]any{"dataSourceRef": elsewhere}), "spec.dataSourceRef",
			[]kubever.Minor{22, 26, 36}, []kubever.Minor{25}}, // which does not know the namespace alone
		{claim(map[string]any{"dataSource": populator, "dataSourceRef": populatorElsewhere}), "spec.dataSource",
			[]kubever.Minor{23, 26, 36}, []kubever.Minor{24, 25}}, // what it leans on is dropped with its namespace
		{set, "spec.volumeClaimTemplates[0].spec.dataSource", []kubever.Minor{17, 24, 36}, nil},
		{restarts, "spec.containers[0].restartPolicy", []kubever.Minor{27, 34}, []kubever.Minor{28, 33, 35}},
		{restarts, "spec.initContainers[0].restartPolicy", []kubever.Minor{27, 28, 34}, []kubever.Minor{29, 33, 35}},
		{restarts, "spec.initContainers[1].restartPolicy", []kubever.Minor{27, 28}, []kubever.Minor{29, 33, 34, 35}},
		{pod, proc, []kubever.Minor{11, 12, 30, 32}, []kubever.Minor{33, 36}},
		{named, "metadata.clusterName", []kubever.Minor{6, 12, 18, 24, 25}, nil},
		{named, "metadata.initializers", []kubever.Minor{6, 8, 10, 15, 16}, []kubever.Minor{7}},
		{named, "spec.template.metadata.clusterName", []kubever.Minor{25}, []kubever.Minor{6, 12, 24}},
		{named, "spec.template.metadata.initializers", []kubever.Minor{6, 16}, []kubever.Minor{7, 10, 15}},
	} {
		lost := func(minor kubever.Minor) bool {
			return slices.ContainsFunc(c.LossesIn(test.object, minor), func(l Loss) bool { return l.Path == test.lost })
		}
		for _, minor := range test.in {
			if !lost(minor) {
				t.Errorf("%v in %s: losses %v, want %s", test.object.Object["spec"], minor,
					c.LossesIn(test.object, minor), test.lost)
			}
		}
		for _, minor := range test.not {
			if lost(minor) {
				t.Errorf("%v in %s: %s is lost, and the server keeps it", test.object.Object["spec"], minor, test.lost)
			}
		}
	}
}

// Servers that know the affinity of sessions drop its parameters from a Service that has none.
func TestSessionAffinityConfigNeedsAffinity(t *testing.T) {
	c := newConverter(t)
	for _, test := range []struct {
		affinity string
		minor    kubever.Minor
		lost     bool
	}{
		{"ClientIP", 36, false}, {"None", 36, true}, {"", 36, true}, {"None", 10, true}, {"ClientIP", 10, false},
		{"ClientIP", 7, true}, // which does not know the field
	} {
		spec := map[string]any{"sessionAffinityConfig": map[string]any{
			"clientIP": map[string]any{"timeoutSeconds": int64(60)}}}
		if test.affinity != "" {
			spec["sessionAffinity"] = test.affinity
		}
		service := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": "a"}, "spec": spec}}
		losses := c.LossesIn(service, test.minor)
		if lost := len(losses) == 1 && losses[0].Path == "spec.sessionAffinityConfig"; lost != test.lost {
			t.Errorf("affinity %q in %s: %v; want lost: %t", test.affinity, test.minor, losses, test.lost)
		}
	}
}
