package objects_test

import (
	"os"
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// splitMap is the ownership map of the pair that wrote the stores of package snapshot.
func splitMap(t testing.TB) *pair.Map {
	t.Helper()
	text, err := os.ReadFile("../../../internal/cli/testdata/split-1.10-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := plantest.Of(t, string(text)).Ownership()
	return &m
}

// dropping are those sides of a resource that drop fields of it.
func dropping(m *pair.Map, resource string) (sides []*pair.View) {
	for i := range m.Resources {
		for _, name := range pair.Sides() {
			if side := m.Resources[i].View(name); m.Resources[i].Key == resource && len(side.Drops) > 0 {
				sides = append(sides, side)
			}
		}
	}
	return sides
}

// realValues calls visit with every key and value that API servers 1.10 and 1.36 stored.
func realValues(t testing.TB, visit func(key string, value []byte)) {
	t.Helper()
	for _, name := range []string{"core", "modern"} {
		f, err := snapshot.Open("../../etcd/snapshot/testdata/split-1.10-1.36-" + name + ".db")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := etcd.Entries(t.Context(), etcd.Store{Name: name, Walker: f}, etcd.Request{},
			func(e etcd.Entry) error {
				visit(string(e.Key), slices.Clone(e.Value))
				return nil
			}); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkFind compares looking for all fields of a pod that 1.10 drops with reading its type and metadata.
func BenchmarkFind(b *testing.B) {
	var value []byte
	realValues(b, func(key string, v []byte) {
		if key == "/registry/pods/default/s-modern-0" {
			value = v
		}
	})
	side := dropping(splitMap(b), "pods")[0]
	object, err := objects.Decode(value)
	if err != nil {
		b.Fatal(err)
	}
	asJSON := toJSON(b, object)
	for name, value := range map[string][]byte{"protobuf": value, "json": asJSON} {
		b.Run(name+"/envelope", func(b *testing.B) {
			var m storage.Meta
			for b.Loop() {
				e, err := storage.ReadEnvelope(value)
				if err == nil {
					err = e.ReadMeta(&m)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/find", func(b *testing.B) {
			b.ReportAllocs()
			var finder objects.Finder
			var found []string
			for b.Loop() {
				found = found[:0]
				e, err := storage.ReadEnvelope(value)
				if err == nil {
					err = finder.Find(&e, side, func(path string, _ bool) { found = append(found, path) })
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if !slices.Contains(found, "spec.preemptionPolicy") {
				b.Errorf("found %q of %d paths", found, len(side.Drops))
			}
		})
	}
}
