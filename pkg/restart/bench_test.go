package restart

import (
	"encoding/json"
	"hash/fnv"
	"testing"

	"github.com/davecgh/go-spew/spew"
	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// spewConfig is that of DeepHashObject.
var spewConfig = spew.ConfigState{Indent: " ", SortKeys: true, DisableMethods: true, SpewKeys: true}

// spewHash is what a kubelet does: dump the struct, or the bytes of its JSON, into a hash.
func spewHash(container *v1.Container, minor kubever.Minor) {
	h := fnv.New32a()
	if kubever.Behaves(algorithms[0].of, minor) {
		spewConfig.Fprintf(h, "%#v", *container)
		return
	}
	text, err := json.Marshal(container)
	if err != nil {
		panic(err)
	}
	spewConfig.Fprintf(h, "%#v", text)
}

func BenchmarkHash(b *testing.B) {
	container, _ := readVectors(b, "testdata/02-web.txtar")
	for _, minor := range []kubever.Minor{12, 20, 36} {
		b.Run(minor.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Hash(container, minor, API); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "containers/s")
		})
	}
	for _, minor := range []kubever.Minor{12, 20} {
		b.Run("spew-"+minor.String(), func(b *testing.B) {
			for b.Loop() {
				spewHash(container, minor)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "containers/s")
		})
	}
}

// BenchmarkFirstHash is what the first hash of a process costs: decoding the table of types.
func BenchmarkFirstHash(b *testing.B) {
	for b.Loop() {
		decodeTables()
	}
}
