package storetest

import (
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// RealEntries calls visit with a key below the prefix, and its value, of every resource that API servers 1.10 and 1.36
// stored: package snapshot keeps their files, in the directory given. They are read by bbolt, not by what is under
// test.
func RealEntries(t testing.TB, snapshots string, visit func(key string, value []byte)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(snapshots, "*.db"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files, %v", err)
	}
	for _, file := range files {
		db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		classifier := storage.NewClassifier(SplitMap())
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
