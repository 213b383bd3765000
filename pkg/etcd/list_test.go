package etcd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

func TestListSumsUpByResource(t *testing.T) {
	c := storetest.Contents{"pods/a/x": make([]byte, 10), "pods/a/y": make([]byte, 30), "pods/b/z": make([]byte, 20),
		"namespaces/a": make([]byte, 5)}
	for name, store := range map[string]etcd.Store{"live": {Name: "core", Pager: c.Pager(t)},
		"offline": {Name: "core", Walker: c}} {
		lines, _, err := etcd.List(t.Context(), storetest.SplitMap(), store,
			etcd.ListOptions{ByNamespace: true, NumberOfKeys: 1})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lines {
			got = append(got, fmt.Sprintf("%s %s %s %d %d %s", l.Resource, l.Namespace, l.Owner, l.Keys, l.Bytes,
				l.Largest[0].Key))
		}
		want := []string{"namespaces  shared 1 5 namespaces/a", "pods a shared 2 40 pods/a/y",
			"pods b shared 1 20 pods/b/z"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: List = %q, want %q", name, got, want)
		}
		below, _, err := etcd.List(t.Context(), storetest.SplitMap(), store, etcd.ListOptions{Under: "pods/b/"})
		if err != nil || len(below) != 1 || below[0].Keys != 1 {
			t.Errorf("%s: List under pods/b/ = %+v, %v; want one key", name, below, err)
		}
	}
}

func TestEntriesReadsOnAfterCompaction(t *testing.T) {
	c := storetest.Contents{}
	for i := range 500 {
		c[fmt.Sprintf("pods/default/p-%03d", i)] = []byte("x")
	}
	pager := c.Pager(t)
	pager.OnPage = func(f *storetest.Pager, r etcd.Request) error {
		if strings.Contains(r.From, "p-06") {
			f.Revision, f.CompactBefore = 60, 55
		}
		return nil
	}
	seen := map[string]int{}
	revision, err := etcd.Entries(t.Context(), etcd.Store{Name: "core", Pager: pager},
		etcd.Request{From: "/registry/", To: "/registry0"}, func(e etcd.Entry) error {
			seen[string(e.Key)]++
			return nil
		})
	if err != nil || revision != 60 || len(seen) != 500 {
		t.Errorf("Entries read %d of 500 keys at revision %d: %v", len(seen), revision, err)
	}
}
