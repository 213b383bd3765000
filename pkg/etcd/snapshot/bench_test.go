//go:build unix

package snapshot_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// benchFile is a store of FUSIONCTL_BENCH_KEYS pods of 1.8 KB.
func benchFile(t testing.TB, n int) string {
	if given, err := strconv.Atoi(os.Getenv("FUSIONCTL_BENCH_KEYS")); err == nil {
		n = given
	}
	field := func(b []byte, number protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), v)
	}
	spec := make([]byte, 1500)
	return boltFile(t, n, 1, func(i int) []byte {
		uid := []byte(strconv.Itoa(i) + "-0000-4000-8000-0123456789ab")
		meta := field(field(field(nil, 1, []byte("web")), 3, []byte("team")), 5, uid)
		for range 4 {
			meta = field(meta, 11, field(field(nil, 1, []byte("app.kubernetes.io/label")), 2, []byte("value")))
		}
		owner := field(field(field(field(nil, 1, []byte("ReplicaSet")), 3, []byte("web")), 4, uid[:len(uid)-1]), 5,
			[]byte("apps/v1"))
		meta = field(meta, 13, owner)
		unknown := field(field(nil, 1, field(field(nil, 1, []byte("v1")), 2, []byte("Pod"))), 2,
			field(field(nil, 1, meta), 2, spec))
		return append([]byte("k8s\x00"), unknown...)
	})
}

// bareCursor walks over the same file with nothing but bbolt.
func bareCursor(t testing.TB, file string) (entries int) {
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		cursor := tx.Bucket([]byte("key")).Cursor()
		for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
			entries++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// scanFile is the whole check over the file: newest revisions, keys, envelopes, metadata, owners.
func scanFile(t testing.TB, file string) int {
	f, err := snapshot.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	side := pair.View{Store: "core", StoredAs: "v1", Decodes: []string{"v1"}, Serves: []string{"v1"}}
	m := &pair.Map{Prefix: "/registry", Stores: []string{"core"},
		CustomResources: pair.Resource{Owner: pair.OwnerShared},
		Resources: []pair.Resource{{Key: "pods", Name: "pods", Kind: "Pod", Groups: []string{""},
			Namespaced: true, Owner: pair.OwnerShared, Legacy: side, Modern: side}}}
	report, err := scan.Stores(context.Background(), m, []etcd.Store{{Name: "core", Walker: f}},
		scan.Options{})
	if err != nil || !report.Complete {
		t.Fatalf("scan: %v, %v", err, report)
	}
	return int(report.Stores[0].Keys)
}

// cpuTime is what the process has used of all cores.
func cpuTime(t testing.TB) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkSnapshot reads one file in two ways. Compare entries/s.
func BenchmarkSnapshot(b *testing.B) {
	file := benchFile(b, 100_000)
	for _, way := range []struct {
		name string
		read func(testing.TB, string) int
	}{{"bare-cursor", bareCursor}, {"walk", walkFile}, {"scan", scanFile}} {
		b.Run(way.name, func(b *testing.B) {
			entries, before := 0, cpuTime(b)
			for b.Loop() {
				entries += way.read(b, file)
			}
			b.ReportMetric(float64(entries)/b.Elapsed().Seconds(), "entries/s")
			// says more on a machine that is not idle
			b.ReportMetric(float64(cpuTime(b)-before)/float64(entries), "cpu-ns/entry")
		})
	}
}

// TestScanOfAFileIsNotMuchSlowerThanReadingIt holds the bound, in processor time and with room for a machine that is
// not idle.
func TestScanOfAFileIsNotMuchSlowerThanReadingIt(t *testing.T) {
	file := benchFile(t, 50_000)
	least := func(read func(testing.TB, string) int) time.Duration {
		best := time.Hour
		for range 5 {
			before := cpuTime(t)
			read(t, file)
			best = min(best, cpuTime(t)-before)
		}
		return best
	}
	bare, scan := least(bareCursor), least(scanFile)
	t.Logf("a bare cursor takes %s, a scan %s", bare, scan)
	if scan > 12*bare {
		t.Errorf("a scan takes %s of the processor, a bare cursor %s: want at most 12 times as much", scan, bare)
	}
}

func walkFile(t testing.TB, file string) (n int) {
	f, err := snapshot.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Walk(context.Background(), 1, each(func(etcd.Entry) error { n++; return nil })); err != nil {
		t.Fatal(err)
	}
	return n
}
