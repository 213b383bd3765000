package restore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
)

// craft writes what looks like a snapshot, with the hash of it.
func craft(t *testing.T, data []byte) string {
	t.Helper()
	sum := sha256.Sum256(data)
	file := filepath.Join(t.TempDir(), "crafted.db")
	if err := os.WriteFile(file, append(data[:len(data):len(data)], sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// contents are those of a snapshot of a store with a tree of several pages, without its hash.
func contents(t *testing.T) []byte {
	t.Helper()
	s := etcdtest.Start(t)
	keys := map[string][]byte{}
	for i := range 200 {
		keys[fmt.Sprintf("/registry/pods/demo/%d", i)] = make([]byte, 100)
	}
	s.Put(t, keys)
	data, err := os.ReadFile(saved(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return data[:len(data)-sha256.Size]
}

// TestCraftedSnapshotsAreErrors: bbolt and etcd trust the pages of a snapshot, and end the process by what they do not
// expect. Who chose them chose the hash at their end, too.
func TestCraftedSnapshotsAreErrors(t *testing.T) {
	whole, pageBytes := contents(t), os.Getpagesize()
	random := rand.New(rand.NewPCG(1, 2))
	restore := func(data []byte) error {
		m := Member{DataDir: t.TempDir(), ID: "a", Snapshot: craft(t, data), Name: "m-0", PeerURL: "http://127.0.0.1:1",
			Cluster: "m-0=http://127.0.0.1:1", Token: "m"}
		err := m.Restore(t.Context())
		if _, there := os.Stat(m.staging()); there == nil {
			t.Error("it leaves files behind")
		}
		return err
	}
	if err := restore(whole); err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		data := append([]byte{}, whole...)
		for range 1 + random.IntN(3) { // in the headers of pages, their elements and their first keys
			at := 2*pageBytes + random.IntN(len(data)/pageBytes-2)*pageBytes + random.IntN(200)
			data[at] = byte(random.IntN(256))
		}
		if err := restore(data); err != nil && !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%d: %v", i, err)
		}
	}
	for at := 2 * pageBytes; at < len(whole); at += pageBytes { // each page leads to itself, or the first one
		for _, to := range []uint64{uint64(at / pageBytes), 2, 1 << 40} {
			data := append([]byte{}, whole...)
			binary.LittleEndian.PutUint64(data[at+16+8:], to)
			if err := restore(data); err != nil && !errors.Is(err, snapshot.ErrDamaged) {
				t.Error(err)
			}
		}
	}
}
