package scan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// FuzzScan checks stores in which a value lies under the keys of all resources whose contents are read, and under any
// key. Whatever it is, the check is complete, and says of what it could not read that it could not.
func FuzzScan(f *testing.F) {
	storetest.RealEntries(f, "../snapshot/testdata", func(key string, value []byte) { f.Add(key, value) })
	f.Add("ranges/serviceips",
		[]byte(`{"kind":"RangeAllocation","apiVersion":"v1","range":"10.0.0.0/24","data":"////////////////////////////////////////////"}`))
	f.Add("ranges/servicenodeports",
		[]byte(`{"kind":"RangeAllocation","apiVersion":"v1","range":"30000-32767","data":"AQ=="}`))
	f.Add("ipaddresses/fd00::1",
		[]byte(`{"kind":"IPAddress","apiVersion":"networking.k8s.io/v1","spec":{"parentRef":{"resource":"services","namespace":"a","name":"b"}}}`))
	f.Add("servicecidrs/kubernetes",
		[]byte(`{"kind":"ServiceCIDR","apiVersion":"networking.k8s.io/v1","spec":{"cidrs":["10.0.0.0/24","fd00::/112"]}}`))
	f.Add("secrets/a/b", []byte("k8s:enc:kms:v2:key:xx"))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		core, modern := storetest.Contents{}, storetest.Contents{}
		for _, name := range []string{
			"services/specs/default/a", "ranges/serviceips", "ranges/servicenodeports", "ipaddresses/10.0.0.1",
			"servicecidrs/kubernetes", "secrets/default/a",
			storage.CRDResource + "/as.example.com", storage.APIServiceResource + "/v1.example.com",
			"services/endpoints/kube-system/kube-scheduler", "namespaces/default", "pods/default/a",
			"example.com/as/default/a", "replicasets/default/a",
		} {
			core[name], modern[name] = value, slices.Clone(value)
		}
		modern[key] = value
		stores := []etcd.Store{{Name: "core", Walker: core}, {Name: "modern", Walker: modern}}
		report, err := Stores(t.Context(), storetest.SplitMap(), stores, Options{Depth: DepthEnvelope})
		if err != nil || !report.Complete {
			t.Fatalf("Scan: %v, %v", err, report.Incomplete)
		}
		var seen int64
		for _, s := range report.Stores {
			seen += s.Keys
		}
		if want := int64(len(core) + len(modern)); seen != want {
			t.Errorf("Scan saw %d keys, want %d: %s", seen, want, fmt.Sprintf("%q", key))
		}
	})
}
