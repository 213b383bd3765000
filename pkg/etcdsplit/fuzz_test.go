package etcdsplit

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// realEntries calls visit with a key below the prefix, and its value, of every resource that API servers 1.10 and 1.36
// stored. The files are read by bbolt: package snapshot imports this one.
func realEntries(t testing.TB, visit func(key string, value []byte)) {
	t.Helper()
	files, err := filepath.Glob("snapshot/testdata/*.db")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files, %v", err)
	}
	for _, file := range files {
		db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		classifier := NewClassifier(splitMap())
		seen := map[string]bool{}
		err = db.View(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("key")).ForEach(func(_, data []byte) error {
				var kv mvccpb.KeyValue
				if err := kv.Unmarshal(data); err != nil {
					return err
				}
				k := classifier.Classify(string(kv.Key))
				if k.Name == "" || len(kv.Value) == 0 || seen[k.Resource] {
					return nil
				}
				seen[k.Resource] = true
				visit(k.String(), slices.Clone(kv.Value))
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzScan checks stores in which a value lies under the keys of all resources whose contents are read, and under any
// key. Whatever it is, the check is complete, and says of what it could not read that it could not.
func FuzzScan(f *testing.F) {
	realEntries(f, func(key string, value []byte) { f.Add(key, value) })
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
		core, modern := contents{}, contents{}
		for _, name := range []string{
			"services/specs/default/a", "ranges/serviceips", "ranges/servicenodeports", "ipaddresses/10.0.0.1",
			"servicecidrs/kubernetes", "secrets/default/a",
			crdResource + "/as.example.com", apiServiceResource + "/v1.example.com",
			"services/endpoints/kube-system/kube-scheduler", "namespaces/default", "pods/default/a",
			"example.com/as/default/a", "replicasets/default/a",
		} {
			core[name], modern[name] = value, slices.Clone(value)
		}
		modern[key] = value
		stores := []Store{{Name: "core", Walker: core}, {Name: "modern", Walker: modern}}
		report, err := Scan(t.Context(), splitMap(), stores, Options{Depth: DepthEnvelope})
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
