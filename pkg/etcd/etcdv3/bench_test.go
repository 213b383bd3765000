package etcdv3_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// benchKeys is the size of the store: FUSIONCTL_BENCH_KEYS, by default small enough for every machine.
func benchKeys(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("FUSIONCTL_BENCH_KEYS"))
	if err != nil {
		n = 100_000
	}
	return n
}

// fill writes n keys as a cluster would have them: mostly pods and events, in many namespaces of different sizes, 1.8
// KB each on average. In a cluster they were written in any order; in the order of keys, which FUSIONCTL_BENCH_SORTED=1
// asks for, etcd finds what belongs together in one place of its memory and its file.
func fill(t testing.TB, client *clientv3.Client, n int) {
	t.Helper()
	random := rand.New(rand.NewSource(1))
	filler := make([]byte, 1<<16)
	random.Read(filler)
	namespaces := max(10, n/2000)
	kinds := []struct {
		resource, apiVersion, kind string
		share                      int
	}{{"pods", "v1", "Pod", 40}, {"events", "v1", "Event", 30}, {"replicasets", "apps/v1", "ReplicaSet", 10},
		{"configmaps", "v1", "ConfigMap", 10}, {"secrets", "v1", "Secret", 10}}
	type object struct {
		kind, namespace, owner, bytes int
		name                          string
	}
	objects := make([]object, n-namespaces)
	for i := range objects {
		// Squaring makes the first namespaces large and the last ones small.
		f := random.Float64()
		pick, k := random.Intn(100), 0
		for pick -= kinds[k].share; pick >= 0; pick -= kinds[k].share {
			k++
		}
		name := fmt.Sprintf("app-%02d-%08x", random.Intn(30), random.Uint32())
		objects[i] = object{k, int(f * f * float64(namespaces)), random.Intn(n/10 + 1), 300 + random.Intn(2000), name}
	}
	if os.Getenv("FUSIONCTL_BENCH_SORTED") != "" {
		slices.SortFunc(objects, func(a, b object) int {
			return cmp.Or(cmp.Compare(kinds[a.kind].resource, kinds[b.kind].resource),
				cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
		})
	}
	ops := make([]clientv3.Op, 0, 100)
	flush := func() {
		if len(ops) > 0 {
			if _, err := client.Txn(context.Background()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = ops[:0]
		}
	}
	put := func(key string, value []byte) {
		if ops = append(ops, clientv3.OpPut(key, string(value))); len(ops) == cap(ops) {
			flush()
		}
	}
	for i := range namespaces {
		put(fmt.Sprintf("/registry/namespaces/team-%04d", i),
			benchObject("v1", "Namespace", "", fmt.Sprintf("team-%04d", i), "", filler[:100]))
	}
	for i, o := range objects {
		kind, namespace, owner := kinds[o.kind], fmt.Sprintf("team-%04d", o.namespace), ""
		if kind.kind == "Pod" {
			owner = fmt.Sprintf("uid-%d", o.owner)
		}
		put("/registry/"+kind.resource+"/"+namespace+"/"+o.name,
			benchObject(kind.apiVersion, kind.kind, namespace, o.name, owner, filler[i%1000:][:o.bytes]))
	}
	flush()
}

// benchObject is a protobuf object with metadata, an owner, and a spec of random bytes.
func benchObject(apiVersion, kind, namespace, name, owner string, spec []byte) []byte {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	meta := field(field(field(nil, 1, []byte(name)), 3, []byte(namespace)), 5, []byte("uid-of-"+namespace+"-"+name))
	for i := range 4 {
		meta = field(meta, 11, field(field(nil, 1, fmt.Appendf(nil, "app.kubernetes.io/label-%d", i)), 2, []byte(name)))
	}
	if owner != "" {
		ref := field(field(field(field(nil, 1, []byte("ReplicaSet")), 3, []byte("web")), 4, []byte(owner)), 5,
			[]byte("apps/v1"))
		meta = field(meta, 13, ref)
	}
	unknown := field(field(nil, 1, field(field(nil, 1, []byte(apiVersion)), 2, []byte(kind))), 2,
		field(field(nil, 1, meta), 2, spec))
	return append([]byte("k8s\x00"), unknown...)
}

// benchMap is a layout in which everything belongs to one store.
func benchMap() *pair.Map {
	m := &pair.Map{Prefix: "/registry", Stores: []string{"core"}, Legacy: pair.ControlPlane{Store: "core"},
		Modern:          pair.ControlPlane{Store: "core"},
		CustomResources: pair.Resource{Owner: pair.OwnerShared}}
	for key, as := range map[string][3]string{
		"pods": {"v1", "Pod", ""}, "events": {"v1", "Event", ""}, "replicasets": {"apps/v1", "ReplicaSet", "apps"},
		"configmaps": {"v1", "ConfigMap", ""},
		"secrets":    {"v1", "Secret", ""}, "namespaces": {"v1", "Namespace", ""},
	} {
		side := pair.View{Store: "core", StoredAs: as[0], Decodes: []string{as[0]}, Serves: []string{as[0]}}
		m.Resources = append(m.Resources, pair.Resource{Key: key, Name: key, Kind: as[1], Groups: []string{as[2]},
			Namespaced: key != "namespaces", Owner: pair.OwnerShared, Legacy: side, Modern: side})
	}
	return m
}

func save(t testing.TB, client *clientv3.Client, file string) {
	reader, err := client.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	out, err := os.Create(file)
	if err == nil {
		_, err = io.Copy(out, reader)
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// barePages reads everything below the prefix as most programs do: one range, page after page.
func barePages(t testing.TB, client *clientv3.Client, keysOnly bool) (keys int) {
	from := "/registry/"
	options := []clientv3.OpOption{clientv3.WithRange("/registry0"), clientv3.WithLimit(1000)}
	if keysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	for {
		response, err := client.Get(context.Background(), from, options...)
		if err != nil {
			t.Fatal(err)
		}
		keys += len(response.Kvs)
		if !response.More {
			return keys
		}
		from = string(response.Kvs[len(response.Kvs)-1].Key) + "\x00"
	}
}

func scanned(t testing.TB, endpoint string, depth scan.Depth) int {
	client, err := etcdv3.Open(etcdv3.Config{Endpoints: []string{endpoint}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	report, err := scan.Stores(context.Background(), benchMap(), []etcd.Store{{Name: "core", Pager: client}},
		scan.Options{Depth: depth})
	if err != nil || !report.Complete {
		t.Fatalf("scan: %v, %v", err, report)
	}
	return int(report.Stores[0].Keys)
}

// BenchmarkScan reads one store in several ways. Compare keys/s: scan-keys with bare-keys, scan-envelope with
// bare-values. FUSIONCTL_BENCH_SAVE names a file for a snapshot of the store, to check that offline.
func BenchmarkScan(b *testing.B) {
	server := etcdtest.Start(b)
	n := benchKeys(b)
	fill(b, server.Client(b), n)
	if file := os.Getenv("FUSIONCTL_BENCH_SAVE"); file != "" {
		save(b, server.Client(b), file)
	}
	for _, way := range []struct {
		name string
		read func() int
	}{
		{"bare-keys", func() int { return barePages(b, server.Client(b), true) }},
		{"scan-keys", func() int { return scanned(b, server.Endpoint, scan.DepthKeys) }},
		{"bare-values", func() int { return barePages(b, server.Client(b), false) }},
		{"scan-envelope", func() int { return scanned(b, server.Endpoint, scan.DepthEnvelope) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			keys := 0
			for b.Loop() {
				keys += way.read()
			}
			b.ReportMetric(float64(keys)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
