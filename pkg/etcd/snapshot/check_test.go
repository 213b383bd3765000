package snapshot_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
)

func check(t *testing.T, file string) error {
	t.Helper()
	s, err := snapshot.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Check(t.Context())
}

// storeOf writes a file with the buckets of an etcd, and with a list of free pages.
func storeOf(t *testing.T, write func(tx *bolt.Tx) error) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 3 { // pages get free by the next one
		if err := db.Update(func(tx *bolt.Tx) error {
			for _, name := range []string{"key", "meta"} {
				if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
			}
			for i := range 1000 {
				if err := tx.Bucket([]byte("key")).Put(revisionKey(int64(i+1)), make([]byte, 100)); err != nil {
					return err
				}
			}
			return write(tx)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// TestCheckTakesWhatBboltWrites: of every release of etcd, and with a list of free pages.
func TestCheckTakesWhatBboltWrites(t *testing.T) {
	files, err := filepath.Glob("testdata/*.db")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, storeOf(t, func(*bolt.Tx) error { return nil }),
		storeOf(t, func(tx *bolt.Tx) error { // the last one is empty
			for i := range 1000 {
				if err := tx.Bucket([]byte("key")).Delete(revisionKey(int64(i + 1))); err != nil {
					return err
				}
			}
			return nil
		})) {
		if err := check(t, file); err != nil {
			t.Error(err)
		}
	}
}

// TestCheckRefuses what bbolt would crash by, or write into.
func TestCheckRefuses(t *testing.T) {
	nothing := func(*bolt.Tx) error { return nil }
	pageBytes := os.Getpagesize()
	// newest is where the newer meta page begins; resum makes its checksum fit.
	newest := func(data []byte) []byte {
		first, second := data[16:], data[pageBytes+16:]
		if binary.LittleEndian.Uint64(second[48:]) > binary.LittleEndian.Uint64(first[48:]) {
			return second
		}
		return first
	}
	for name, test := range map[string]struct {
		write  func(*bolt.Tx) error
		damage func(data []byte)
		want   string
	}{
		"a key beside the buckets": {want: "is no bucket", write: func(tx *bolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists([]byte("members"))
			return err
		}, damage: func(data []byte) {
			root := int(binary.LittleEndian.Uint64(newest(data)[16:])) * pageBytes
			binary.LittleEndian.PutUint32(data[root+16:], 0)
		}},
		"a bucket in a bucket": {want: `a bucket in its bucket "meta"`, write: func(tx *bolt.Tx) error {
			_, err := tx.Bucket([]byte("meta")).CreateBucketIfNotExists([]byte("in"))
			return err
		}},
		"no bucket of what it needs": {want: `no bucket "meta"`, write: func(tx *bolt.Tx) error {
			return tx.DeleteBucket([]byte("meta"))
		}},
		"a free page that is used": {want: "used twice", damage: func(data []byte) {
			free := int(binary.LittleEndian.Uint64(newest(data)[32:])) * pageBytes
			copy(data[free+16:free+24], newest(data)[16:24])
		}},
		"a list of free pages without an end": {want: "has room for", damage: func(data []byte) {
			free := int(binary.LittleEndian.Uint64(newest(data)[32:])) * pageBytes
			binary.LittleEndian.PutUint16(data[free+10:], 0xFFFE)
		}},
		"an empty key": {want: "out of order", damage: func(data []byte) {
			root := int(binary.LittleEndian.Uint64(newest(data)[16:])) * pageBytes
			data[root+16+8], data[root+16+12] = 0, data[root+16+12]+3 // its key is a part of its value
		}},
		"keys in another order": {want: "out of order", damage: func(data []byte) {
			for at := 2 * pageBytes; at < len(data); at += pageBytes {
				if binary.LittleEndian.Uint16(data[at+8:]) == 2 && binary.LittleEndian.Uint16(data[at+10:]) > 2 {
					data[at+16+int(binary.LittleEndian.Uint32(data[at+16+4:]))] = 0xFF
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			write := test.write
			if write == nil {
				write = nothing
			}
			file := storeOf(t, write)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if test.damage != nil {
				data = slices.Clone(data)
				test.damage(data)
			}
			sum := sha256.Sum256(data)
			if err := os.WriteFile(file, append(data, sum[:]...), 0o600); err != nil {
				t.Fatal(err)
			}
			err = check(t, file)
			if !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check = %v, want %v: %s", err, snapshot.ErrDamaged, test.want)
			}
		})
	}
}
