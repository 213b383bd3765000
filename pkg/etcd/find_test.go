package etcd_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// unreadable is a store that cannot be read.
func unreadable(t *testing.T, name string, why error) etcd.Store {
	pager := storetest.Contents{}.Pager(t)
	pager.OnPage = func(*storetest.Pager, etcd.Request) error { return why }
	return etcd.Store{Name: name, Pager: pager}
}

func TestFindTakesWhatIsMeantOfEachStore(t *testing.T) {
	down := errors.New("down")
	core := storetest.Contents{"pods/default/web": []byte("one"), "po/default/web": []byte("no pod")}
	stores := []etcd.Store{{Name: "core", Pager: core.Pager(t)}, unreadable(t, "broken", down),
		{Name: "modern", Walker: storetest.Contents{"po/default/web": []byte("two")}}}
	found, err := etcd.Find(t.Context(), storetest.SplitMap(), stores, "po/default/web")
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%s %s %s", f.Store, f.Key, f.Value))
	}
	want := []string{"core /registry/pods/default/web one", "modern /registry/po/default/web two"}
	if !slices.Equal(got, want) || !errors.Is(err, down) {
		t.Errorf("Find = %q, %v; want %q, and why the other cannot be read", got, err, want)
	}
	found, err = etcd.Find(t.Context(), storetest.SplitMap(), stores[:1], "pods/default/none")
	if len(found) > 0 || err != nil {
		t.Errorf("Find of a key that no store holds = %v, %v", found, err)
	}
}

func TestListAllSumsUpEachStore(t *testing.T) {
	down := errors.New("down")
	stores := []etcd.Store{
		{Name: "modern", Walker: storetest.Contents{"pods/a/x": make([]byte, 10), "secrets/a/x": make([]byte, 30)}},
		unreadable(t, "broken", down),
		{Name: "core", Walker: storetest.Contents{"po/x": make([]byte, 7), "pods/a/y": make([]byte, 5)}},
	}
	listing, failed := etcd.ListAll(t.Context(), storetest.SplitMap(), stores, "", etcd.ListOptions{})
	if len(failed) != 1 || !errors.Is(failed[0], down) {
		t.Errorf("ListAll failed with %v, want the store that is down", failed)
	}
	listing.Sort("bytes")
	var got []string
	for _, s := range listing.Stores {
		got = append(got, fmt.Sprintf("%s %d %d", s.Name, s.Keys, s.Bytes))
	}
	for _, r := range listing.Resources {
		got = append(got, r.Store+" "+r.Resource)
	}
	want := []string{"modern 2 40", "core 2 12", "modern secrets", "modern pods", "core po", "core pods"}
	if !slices.Equal(got, want) {
		t.Errorf("ListAll = %q, want %q", got, want)
	}
	// What the name most likely means is listed, and only without that what it may mean as well.
	listing, failed = etcd.ListAll(t.Context(), storetest.SplitMap(), stores[2:], "po", etcd.ListOptions{})
	if len(failed) > 0 || len(listing.Resources) != 1 || listing.Resources[0].Resource != "pods" {
		t.Errorf("ListAll of po = %+v, %v; want the pods", listing, failed)
	}
}
