package objects

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// TestEveryTypeThatWasEverStoredIsKnown goes through what each version stores. CRDs and APIServices are stored in JSON.
func TestEveryTypeThatWasEverStoredIsKnown(t *testing.T) {
	gone := 0
	for _, r := range kubever.Resources() {
		for m := kubever.Oldest; m <= kubever.Newest; m++ {
			gvk, ok := r.StoredAs(m)
			if !ok || gvk.Group == "apiextensions.k8s.io" || gvk.Group == "apiregistration.k8s.io" ||
				scheme.Scheme.Recognizes(gvk) {
				continue
			}
			gone++
			if _, ok := goneLayouts().kinds[gvk.GroupVersion().String()+" "+gvk.Kind]; !ok {
				t.Errorf("%s stores %s as %s, which is in neither table", m, r.Key, gvk)
			}
		}
	}
	if gone < 100 {
		t.Errorf("only %d resources of versions are stored in types that are gone", gone)
	}
}

func TestLayoutsNameTypesThatThereAre(t *testing.T) {
	l := goneLayouts()
	known := func(typ string) bool {
		if strings.HasPrefix(typ, "=") {
			return goTypes[typ] != nil
		}
		_, ok := l.fields[typ]
		// A message without fields has no rows.
		none := strings.HasPrefix(typ, "scheduling/") &&
			(strings.HasSuffix(typ, "BasicSchedulingPolicy") || strings.HasSuffix(typ, "DisruptionMode"))
		return ok || typ == "string" || typ == "int" || typ == "bool" || typ == "bytes" || none
	}
	used := map[string]bool{}
	for kind, typ := range l.kinds {
		used[typ] = true
		if !known(typ) {
			t.Errorf("%s is a %s, which is not known", kind, typ)
		}
		if scheme.Scheme.Recognizes(gvkOf(kind)) {
			t.Errorf("%s is not gone", kind)
		}
	}
	for typ, fields := range l.fields {
		for number, field := range fields {
			used[field.typ] = true
			if !known(field.typ) {
				t.Errorf("%s: field %d is a %s, which is not known", typ, number, field.typ)
			}
		}
	}
	for typ := range l.fields {
		if !strings.HasPrefix(typ, "=") && !used[typ] {
			t.Errorf("%s is used by nothing", typ)
		}
	}
}

// message builds a message of fields: number, value, number, value. A value is text, a number, or a message.
func message(fields ...any) []byte {
	var m []byte
	for i := 0; i < len(fields); i += 2 {
		number := protowire.Number(fields[i].(int))
		switch value := fields[i+1].(type) {
		case string:
			m = protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), value)
		case []byte:
			m = protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), value)
		case int:
			m = protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), uint64(value))
		}
	}
	return m
}

// stored is a value as an API server stores it.
func stored(apiVersion, kind string, object []byte) []byte {
	return append([]byte("k8s\x00"), message(1, message(1, apiVersion, 2, kind), 2, object)...)
}

func TestDecodeOfTypesThatAreGone(t *testing.T) {
	meta := message(1, "a", 11, message(1, "app", 2, "b"))
	metadata := map[string]any{"name": "a", "labels": map[string]any{"app": "b"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "b"}},
		Spec: corev1.PodSpec{NodeName: "n"}}
	podBytes, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		apiVersion, kind string
		object           []byte
		want             map[string]any
		nameless         bool
	}{
		"its own table": {"extensions/v1beta1", "PodSecurityPolicy",
			message(1, meta, 2, message(1, 0, 4, "NET_ADMIN", 4, "SYS_TIME", 7, message(1, 80, 2, 90), 10,
				message(1, "RunAsAny"), 16, 0)),
			map[string]any{"metadata": metadata, "spec": map[string]any{
				"allowedCapabilities": []any{"NET_ADMIN", "SYS_TIME"},
				"hostPorts":           []any{map[string]any{"min": int64(80), "max": int64(90)}},
				"seLinux":             map[string]any{"rule": "RunAsAny"}, "allowPrivilegeEscalation": false,
			}}, false},
		"a type with the same numbers": {"scheduling.k8s.io/v1alpha1", "PriorityClass",
			message(1, meta, 2, 1000, 4, "why"),
			map[string]any{"metadata": metadata, "value": int64(1000), "description": "why"}, false},
		"a field that is gone": {"v1", "Service",
			message(1, meta, 2, message(4, "ClusterIP", 15, "IPv6", 16, "topology.kubernetes.io/zone", 16, "*")),
			map[string]any{"metadata": metadata,
				"spec": map[string]any{"type": "ClusterIP", "ipFamily": "IPv6",
					"topologyKeys": []any{"topology.kubernetes.io/zone", "*"}},
				"status": map[string]any{"loadBalancer": map[string]any{}}}, false},
		"initializers": {"v1", "ConfigMap", message(1, message(1, "a", 16, message(1, message(1, "x.io")))),
			map[string]any{"metadata": map[string]any{
				"name": "a", "initializers": map[string]any{"pending": []any{map[string]any{"name": "x.io"}}}}}, false},
		"managed fields of 1.14": {"v1", "ConfigMap",
			message(1, message(1, "a", 17, message(1, "kubectl", 2, "Apply", 5,
				message(1, message(1, "f:data", 2, message(1, message(1, "f:a", 2, message()))),
					1, message(1, "f:metadata", 2, message()))))),
			map[string]any{"metadata": map[string]any{"name": "a", "managedFields": []any{map[string]any{
				"manager": "kubectl", "operation": "Apply", "fields": map[string]any{
					"f:data": map[string]any{"f:a": map[string]any{}}, "f:metadata": map[string]any{}}}}}}, false},
		"claims of a claim of 1.26": {"v1", "PersistentVolumeClaim",
			message(1, meta, 2, message(1, "ReadWriteOnce", 2, message(3, message(1, "r")))),
			map[string]any{"metadata": metadata, "spec": map[string]any{"accessModes": []any{"ReadWriteOnce"},
				"resources": map[string]any{"claims": []any{map[string]any{"name": "r"}}}},
				"status": map[string]any{}}, false},
		"a pod that is disrupted since no time": {"policy/v1", "PodDisruptionBudget",
			message(1, meta, 3, message(2, message(1, "p", 2, message()))),
			map[string]any{"metadata": metadata, "spec": map[string]any{}, "status": map[string]any{
				"currentHealthy": int64(0), "desiredHealthy": int64(0), "expectedPods": int64(0),
				"disruptionsAllowed": int64(0), "disruptedPods": map[string]any{"p": nil}}}, false},
		"a vendor's field": {
			"v1", "Pod", append(podBytes, message(99, "gold", 99, "silver", 100, message(1, 7, 2, "\x00\xff"))...),
			map[string]any{"metadata": metadata, "spec": map[string]any{"containers": nil, "nodeName": "n"},
				"status": map[string]any{},
				"#99":    []any{"gold", "silver"}, "#100": map[string]any{"#1": int64(7), "#2": "AP8="}}, true},
		"a vendor's field in a list": {"v1", "Pod",
			message(1, meta, 2, message(2, message(1, "c"), 2, message(1, "d", 77, 5))),
			map[string]any{"metadata": metadata,
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "resources": map[string]any{}},
					map[string]any{"name": "d", "resources": map[string]any{}, "#77": int64(5)}}},
				"status": map[string]any{}}, true},
		"a vendor's type": {"acme.example.com/v1", "Fleet",
			message(1, meta, 2, message(1, "east", 2, 3, 3, message(1, "k", 2, "v"))),
			map[string]any{"metadata": metadata,
				"#2": map[string]any{"#1": "east", "#2": int64(3), "#3": map[string]any{"#1": "k", "#2": "v"}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(stored(test.apiVersion, test.kind, test.object))
			if err != nil {
				t.Fatal(err)
			}
			test.want["apiVersion"], test.want["kind"] = test.apiVersion, test.kind
			dropNulls(test.want)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Decode differs (-want +got):\n%s", diff)
			}
			if Nameless(got) != test.nameless {
				t.Errorf("Nameless = %v, want %v", !test.nameless, test.nameless)
			}
		})
	}
}

func gvkOf(kind string) schema.GroupVersionKind {
	apiVersion, kind, _ := strings.Cut(kind, " ")
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// TestFindKnowsFieldsOfTypesThatAreGone: a pair of old versions shares such types, and a new side drops the fields of
// old ones.
func TestFindKnowsFieldsOfTypesThatAreGone(t *testing.T) {
	for name, test := range map[string]struct {
		value []byte
		path  string
	}{
		"a type": {stored("policy/v1beta1", "PodSecurityPolicy",
			message(2, message(17, message(1, "/data")))), "spec.allowedHostPaths[].pathPrefix"},
		"an alias": {stored("settings.k8s.io/v1alpha1", "PodPreset",
			message(2, message(4, message(1, "v", 2, message(28, message(1, "driver")))))),
			"spec.volumes[].csi.driver"},
		"a field": {stored("v1", "Service", message(2, message(16, "*"))), "spec.topologyKeys"},
		"a field of a list": {stored("v1", "Pod", message(1, message(16, message(1, message(1, "x.io"))))),
			"metadata.initializers.pending[].name"},
	} {
		e, err := storage.ReadEnvelope(test.value)
		if err != nil {
			t.Fatal(err)
		}
		var finder Finder
		found := 0
		if err := finder.Find(&e, &pair.View{Drops: []string{"spec.other", test.path}}, func(string, bool) {
			found++
		}); err != nil || found != 1 {
			t.Errorf("%s: Find found %d fields, %v; want %s", name, found, err, test.path)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(stored("v1", "Pod", message(1, message(1, "a"), 2, message(2, message(1, "c")), 99, "x")))
	f.Add(stored("policy/v1beta1", "PodSecurityPolicy", message(2, message(7, message(1, 80)))))
	f.Add(stored("acme.example.com/v1", "Fleet", message(1, message(1, "a"), 2, message(1, message(1, "deep")))))
	f.Add([]byte(
		`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","startupProbe":{"grpc":{"port":1}}}]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":[[[[]]]]}`))
	f.Add([]byte("\xd9\xd9\xf7\xa2\x4aapiVersion\x42v1\x44kind\x43Pod"))
	for _, value := range storeValues(f) {
		f.Add(value)
	}
	side := &pair.View{
		Drops: []string{"metadata.managedFields", "spec.containers[].startupProbe", "spec.volumes[].ephemeral",
			"data", "spec.hostPorts[].min", "spec.sessionAffinityConfig"},
		Implied: map[string]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds": "10800",
			"data": pair.OneElement},
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var finder Finder
		if e, err := storage.ReadEnvelope(value); err == nil {
			if err := finder.Find(&e, side, func(string, bool) {}); err != nil &&
				!errors.Is(err, storage.ErrUnreadable) {
				t.Errorf("Find(%q) = %v, want it to wrap ErrUnreadable", value, err)
			}
		}
		object, err := Decode(value)
		if err != nil {
			return
		}
		if _, err := json.Marshal(object); err != nil {
			t.Errorf("what Decode(%q) returns cannot be printed: %v", value, err)
		}
		Nameless(object)
		if got := DiffValues("pods/a/b", value, value); !strings.HasPrefix(got, "the same") {
			t.Errorf("DiffValues(%q) with itself = %q", value, got)
		}
	})
}

// storeValues are some values of each resource that API servers 1.10 and 1.36 stored.
func storeValues(t testing.TB) (values [][]byte) {
	t.Helper()
	for _, name := range []string{"core", "modern"} {
		f, err := snapshot.Open("../../etcd/snapshot/testdata/split-1.10-1.36-" + name + ".db")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		seen := map[string]bool{}
		classifier := storage.NewClassifier(&pair.Map{Prefix: "/registry"})
		if _, err := etcd.Entries(t.Context(), etcd.Store{Name: name, Walker: f}, etcd.Request{},
			func(e etcd.Entry) error {
				if resource := classifier.Classify(string(e.Key)).Resource; !seen[resource] {
					seen[resource] = true
					values = append(values, slices.Clone(e.Value))
				}
				return nil
			}); err != nil {
			t.Fatal(err)
		}
	}
	return values
}
