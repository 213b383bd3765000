package snapshot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// walk reads every live key of a file, with one worker or with more: the file's own bytes choose, so that both are
// tried.
func walk(t testing.TB, file string) (map[string]string, etcd.Walked, error) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		return nil, etcd.Walked{}, err
	}
	return walkWith(t, file, 1+int(info.Size()/512%3))
}

func walkWith(t testing.TB, file string, workers int) (map[string]string, etcd.Walked, error) {
	t.Helper()
	f, err := snapshot.Open(file)
	if err != nil {
		return nil, etcd.Walked{}, err
	}
	defer f.Close()
	live := map[string]string{}
	var mu sync.Mutex
	walked, err := f.Walk(context.Background(), workers, each(func(e etcd.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := live[string(e.Key)]; ok {
			t.Errorf("%s is visited twice", e.Key)
		}
		live[string(e.Key)] = fmt.Sprintf("%s create %d mod %d version %d lease %d", e.Value, e.CreateRevision,
			e.ModRevision, e.Version, e.Lease)
		return nil
	}))
	return live, walked, err
}

// each gives every worker the same function.
func each(visit func(etcd.Entry) error) func() func(etcd.Entry) error {
	return func() func(etcd.Entry) error { return visit }
}

// ask reads every live key of a running member.
func ask(t testing.TB, client *clientv3.Client) (map[string]string, int64) {
	t.Helper()
	response, err := client.Get(context.Background(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	live := map[string]string{}
	for _, kv := range response.Kvs {
		live[string(kv.Key)] = fmt.Sprintf("%s create %d mod %d version %d lease %d", kv.Value, kv.CreateRevision,
			kv.ModRevision, kv.Version, kv.Lease)
	}
	return live, response.Header.Revision
}

// TestWalkSeesWhatTheMemberServes writes, overwrites, deletes and recreates, and compares both kinds of file with the
// member.
func TestWalkSeesWhatTheMemberServes(t *testing.T) {
	server := etcdtest.Start(t)
	client, ctx := server.Client(t), t.Context()
	random := rand.New(rand.NewSource(1))
	lease, err := client.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		var ops []clientv3.Op
		for _, n := range random.Perm(300)[:100] {
			key := fmt.Sprintf("/registry/pods/default/p-%03d", n)
			switch random.Intn(4) {
			case 0:
				ops = append(ops, clientv3.OpDelete(key))
			case 1:
				ops = append(ops, clientv3.OpPut(key, fmt.Sprint(random.Int()), clientv3.WithLease(lease.ID)))
			default:
				ops = append(ops, clientv3.OpPut(key, string(make([]byte, random.Intn(9000)))))
			}
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Compact(ctx, 40); err != nil {
		t.Fatal(err)
	}
	want, revision := ask(t, client)
	reader, err := client.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved.db")
	writeAll(t, saved, reader)
	server.Stop()

	for name, file := range map[string]string{"snapshot": saved, "member's file": server.DB()} {
		got, walked, err := walk(t, file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !maps.Equal(got, want) || walked.Revision != revision {
			t.Errorf("%s: %d keys at revision %d, want the member's %d at %d", name, len(got), walked.Revision,
				len(want), revision)
		}
		if (walked.Note == "") != (name == "snapshot") {
			t.Errorf("%s: note %q", name, walked.Note)
		}
	}

	// One changed byte of a value, which no structure notices.
	data, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(data, []byte("/registry/pods/default/p-0")) + 25
	data[at] ^= 1
	if err := os.WriteFile(saved, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := walk(t, saved); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("Walk of a changed snapshot = %v, want %v", err, snapshot.ErrDamaged)
	}
	f, err := snapshot.Open(saved)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.SkipHash()
	walked, err := f.Walk(t.Context(), 1, each(func(etcd.Entry) error { return nil }))
	if err != nil || !strings.Contains(walked.Note, "was not checked") {
		t.Errorf("Walk of a changed snapshot whose hash is not looked at = %+v, %v; want a note", walked, err)
	}
}

func writeAll(t testing.TB, file string, from io.ReadCloser) {
	t.Helper()
	defer from.Close()
	data, err := io.ReadAll(from)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWalkAgreesWithAPlainReading compares with the simplest reading that there is: every revision in order into a map.
// The histories rewrite, delete and recreate, several keys in one revision and one key several times.
func TestWalkAgreesWithAPlainReading(t *testing.T) {
	for seed := range int64(6) {
		random := rand.New(rand.NewSource(seed))
		keys, size := 1+random.Intn(1+int(seed)*700), []int{10, 300, 9000}[seed%3]
		file := filepath.Join(t.TempDir(), "db")
		db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, PageSize: []int{512, 4096}[seed%2]})
		if err != nil {
			t.Fatal(err)
		}
		want, newest := map[string]string{}, int64(0)
		created := map[string]int64{}
		for main := int64(1); main <= 4000; main++ {
			err := db.Update(func(tx *bolt.Tx) error {
				bucket, err := tx.CreateBucketIfNotExists([]byte("key"))
				for sub := int64(0); err == nil && sub <= int64(random.Intn(3)); sub++ {
					newest = main
					key := fmt.Sprintf("/registry/pods/default/p-%d", random.Intn(keys))
					kv := mvccpb.KeyValue{Key: []byte(key)}
					at := append(revisionKey(main)[:9], revisionKey(sub)[:8]...)
					if created[key] != 0 && random.Intn(4) == 0 {
						delete(created, key)
						delete(want, key)
						at = append(at, 't')
					} else {
						if created[key] == 0 {
							created[key] = main
						}
						kv.Value = make([]byte, random.Intn(size))
						kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease = created[key], main,
							int64(random.Intn(300)+1), int64(random.Intn(2)*random.Int())
						want[key] = fmt.Sprintf("%s create %d mod %d version %d lease %d", kv.Value, kv.CreateRevision,
							kv.ModRevision, kv.Version, kv.Lease)
					}
					var data []byte
					if data, err = kv.Marshal(); err == nil {
						err = bucket.Put(at, data)
					}
				}
				if main%500 == 0 && err == nil { // as compaction does
					cursor := bucket.Cursor()
					for key, _ := cursor.First(); key != nil && random.Intn(200) > 0; key, _ = cursor.Next() {
						var kv mvccpb.KeyValue
						if data := bucket.Get(key); kv.Unmarshal(data) == nil && kv.ModRevision != 0 &&
							want[string(kv.Key)] != "" && kv.ModRevision < main-400 &&
							created[string(kv.Key)] > kv.ModRevision {
							err = errors.Join(err, cursor.Delete())
						}
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		for _, workers := range []int{1, 2, 7} {
			got, walked, err := walkWith(t, file, workers)
			if err != nil || walked.Revision != newest || !maps.Equal(got, want) {
				t.Errorf("seed %d, %d workers: %d keys at revision %d, %v; want %d at %d", seed, workers, len(got),
					walked.Revision, err, len(want), newest)
			}
		}
	}
}

func TestWalkOfStoresWrittenByRealServers(t *testing.T) {
	for file, want := range map[string]struct {
		keys     int
		revision int64
	}{"split-1.10-1.36-core.db": {61, 94}, "split-1.10-1.36-modern.db": {184, 230}} {
		got, walked, err := walk(t, "testdata/"+file)
		if err != nil || len(got) != want.keys || walked.Revision != want.revision {
			t.Errorf("%s: %d keys at revision %d, %v; want %d at %d", file, len(got), walked.Revision, err, want.keys,
				want.revision)
		}
		for key := range got {
			if got := storage.NewClassifier(&pair.Map{Prefix: "/registry"}).
				Classify(key); got.Form != storage.FormObject && got.Form != storage.FormGrouped &&
				got.Form != storage.FormCompaction {
				t.Errorf("%s: Classify(%q) has form %s", file, key, got.Form)
			}
		}
	}
}

// TestWalkSurvivesDamage cuts the file off and scrambles it at many places: it must end, without a panic, and a file
// that is cut off is never walked to the end.
func TestWalkSurvivesDamage(t *testing.T) {
	whole, err := os.ReadFile("testdata/split-1.10-1.36-core.db")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "db")
	try := func(data []byte) error {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := walk(t, file)
		return err
	}
	random := rand.New(rand.NewSource(2))
	for range 150 {
		n := random.Intn(len(whole))
		if err := try(whole[:n]); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("cut off at %d of %d: %v, want %v", n, len(whole), err, snapshot.ErrDamaged)
		}
	}
	noticed := 0
	for range 400 {
		data := slices.Clone(whole)
		for range 1 + random.Intn(64) {
			data[random.Intn(len(data))] = byte(random.Intn(256))
		}
		if err := try(data); err != nil {
			noticed++
			if !errors.Is(err, snapshot.ErrDamaged) {
				t.Errorf("scrambled: %v, want %v", err, snapshot.ErrDamaged)
			}
		}
	}
	if noticed == 0 {
		t.Error("no scrambled file was noticed")
	}
}

// TestNoFlippedBitOfAPageHeaderHidesKeys flips every bit of every header: of pages, and of the elements in them. What
// is not noticed must not matter. A page of two large values has none left when its count loses a bit.
func TestNoFlippedBitOfAPageHeaderHidesKeys(t *testing.T) {
	for keys, valueBytes := range map[int]int{120: 100, 7: 1700} {
		t.Run(fmt.Sprintf("%d keys", keys), func(t *testing.T) { flipPageHeaders(t, keys, valueBytes) })
	}
}

func flipPageHeaders(t *testing.T, keys, valueBytes int) {
	file := boltFile(t, keys, 1, func(int) []byte { return make([]byte, valueBytes) })
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := walk(t, file)
	if err != nil || len(want) != keys {
		t.Fatalf("the whole file: %d keys, %v", len(want), err)
	}
	const headerBytes, elementBytes = 16, 16
	pageBytes := os.Getpagesize()
	flips, noticed := 0, 0
	flip := func(at int, bit int) {
		data := slices.Clone(whole)
		data[at] ^= 1 << bit
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		flips++
		got, _, err := walkWith(t, file, 1)
		switch {
		case err != nil && !errors.Is(err, snapshot.ErrDamaged):
			t.Errorf("bit %d of byte %d: %v, want %v", bit, at, err, snapshot.ErrDamaged)
		case err != nil:
			noticed++
		case !maps.Equal(got, want):
			t.Errorf("bit %d of byte %d of page %d: %d of %d keys, and no word about it", bit, at%pageBytes,
				at/pageBytes, len(got), len(want))
		}
	}
	for page := 0; page < len(whole); page += pageBytes {
		if int(binary.LittleEndian.Uint64(whole[page:])) != page/pageBytes {
			continue // the rest of a large page, which has no header
		}
		for at := range headerBytes {
			for bit := range 8 {
				flip(page+at, bit)
			}
		}
		for element := range min(int(binary.LittleEndian.Uint16(whole[page+10:])), 8) {
			for at := range elementBytes {
				flip(page+headerBytes+element*elementBytes+at, (element+at)%8)
			}
		}
	}
	if noticed == 0 {
		t.Errorf("none of %d flips was noticed", flips)
	}
}

// TestWalkNoticesALostMetaPage: of two meta pages the newer one counts, and the older one is a store that lacks the
// last writes.
func TestWalkNoticesALostMetaPage(t *testing.T) {
	file := boltFile(t, 300, 1, func(int) []byte { return make([]byte, 100) })
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for page := range 2 {
		data := slices.Clone(whole)
		data[page*os.Getpagesize()+16+48] ^= 1 // its transaction
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := walk(t, file); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("without meta page %d: %v, want %v", page, err, snapshot.ErrDamaged)
		}
	}
}

// TestWalkSurvivesDamageOfBranches leads every child of every branch of a tree of three levels astray.
func TestWalkSurvivesDamageOfBranches(t *testing.T) {
	file := boltFile(t, 12_000, 1, func(int) []byte { return make([]byte, 200) })
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const (
		header, element = 16, 16
		branchFlag      = 1
	)
	pageBytes := os.Getpagesize()
	var children [][]int // of each branch: where their ids lie
	for at := 0; at < len(whole); at += pageBytes {
		if binary.LittleEndian.Uint16(whole[at+8:]) != branchFlag {
			continue
		}
		var ids []int
		for i := range int(binary.LittleEndian.Uint16(whole[at+10:])) {
			ids = append(ids, at+header+i*element+8)
		}
		children = append(children, ids)
	}
	if len(children) < 3 {
		t.Fatalf("the file has %d branches, want a tree of three levels", len(children))
	}
	for _, astray := range []uint64{0, 1, 1 << 51, 1<<52 - 1, 1 << 63, math.MaxUint64,
		math.MaxUint64 / uint64(pageBytes)} {
		for _, ids := range children {
			for _, damaged := range [][]int{ids, ids[:1], ids[len(ids)-1:], ids[:len(ids)-1]} {
				data := slices.Clone(whole)
				for _, at := range damaged {
					binary.LittleEndian.PutUint64(data[at:], astray)
				}
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, _, err := walk(t, file); err != nil && !errors.Is(err, snapshot.ErrDamaged) {
					t.Fatalf("%d children led to page %#x: %v, want %v", len(damaged), astray, err, snapshot.ErrDamaged)
				}
			}
		}
	}
}

func FuzzWalk(f *testing.F) {
	small, err := os.ReadFile("testdata/split-1.10-1.36-core.db")
	if err != nil {
		f.Fatal(err)
	}
	deep, err := os.ReadFile(boltFile(f, 2_000, 1, func(int) []byte { return make([]byte, 1000) }))
	if err != nil {
		f.Fatal(err)
	}
	for _, isDeep := range []bool{false, true} {
		f.Add(isDeep, uint32(0), []byte{1}, uint32(1<<30))
		f.Add(isDeep, uint32(4096*3+8), []byte{1, 0, 255, 255}, uint32(len(small)))
	}
	f.Fuzz(func(t *testing.T, isDeep bool, at uint32, patch []byte, size uint32) {
		whole := small
		if isDeep {
			whole = deep
		}
		data := slices.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:min(int(size), len(data))]
		file := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := walk(t, file); err != nil && !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("Walk = %v, want nil or %v", err, snapshot.ErrDamaged)
		}
	})
}

func TestOpenAndWalkRefuseOtherFiles(t *testing.T) {
	dir := t.TempDir()
	empty, text, foreign := filepath.Join(dir, "empty"), filepath.Join(dir, "text"), filepath.Join(dir, "foreign")
	for file, data := range map[string]string{empty: "", text: "hello\n"} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := bolt.Open(foreign, 0o600, nil) // a bbolt file of another program
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, text, foreign} {
		if _, _, err := walk(t, file); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%s: %v, want %v", filepath.Base(file), err, snapshot.ErrDamaged)
		}
	}
	if _, err := snapshot.Open(dir); err == nil {
		t.Error("Open of a directory succeeds")
	}
}

// boltFile writes a store of n keys with values of a size, each key written revisions times, as a member would: for
// tests that are about size.
func boltFile(t testing.TB, n, revisions int, value func(i int) []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(
		file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	revision := int64(1)
	for start := 0; start < n*revisions; start += 10_000 {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("key"))
			if err != nil {
				return err
			}
			bucket.FillPercent = 0.9
			for i := start; i < min(start+10_000, n*revisions); i++ {
				revision++
				kv := mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/pods/team-%03d/web-%07d", i%n%500, i%n),
					Value: value(i % n), CreateRevision: revision, ModRevision: revision, Version: 1}
				data, err := kv.Marshal()
				if err != nil {
					return err
				}
				if err := bucket.Put(revisionKey(revision), data); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func revisionKey(revision int64) []byte {
	key := make([]byte, 17)
	for i := range 8 {
		key[i] = byte(revision >> (56 - 8*i))
	}
	key[8] = '_'
	return key
}

func TestWalkTakesTheNewestOfManyRevisions(t *testing.T) {
	file := boltFile(t, 2000, 5, func(i int) []byte { return fmt.Appendf(nil, "%d", i) })
	got, walked, err := walk(t, file)
	if err != nil || len(got) != 2000 || walked.Revision != 10_001 {
		t.Fatalf("%d keys at revision %d, %v; want 2000 at 10001", len(got), walked.Revision, err)
	}
	if want := "1999 create 10001 mod 10001 version 1 lease 0"; got["/registry/pods/team-499/web-0001999"] != want {
		t.Errorf("newest = %q, want %q", got["/registry/pods/team-499/web-0001999"], want)
	}
}

func TestWalkEndsWithItsContext(t *testing.T) {
	f, err := snapshot.Open(boltFile(t, 5000, 1, func(int) []byte { return make([]byte, 100) }))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	_, err = f.Walk(ctx, 1, each(func(etcd.Entry) error {
		if seen++; seen == 100 {
			cancel()
		}
		return nil
	}))
	if !errors.Is(err, context.Canceled) || seen > 1000 {
		t.Errorf("Walk = %v after %d keys, want it to stop soon after it was cancelled", err, seen)
	}
}
