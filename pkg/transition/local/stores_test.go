package local

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// TestStoresOfTooManyKeys: what is held of each key is bounded for the store, however its keys are cut into ranges.
func TestStoresOfTooManyKeys(t *testing.T) {
	core := etcdtest.Start(t)
	keys := map[string][]byte{}
	for n := range 40 {
		keys[fmt.Sprintf("/registry/pods/%d/%d", n%2, n)] = []byte("x")
	}
	core.Put(t, keys)
	client, err := open(plan.Store{Name: "core", Endpoints: []string{core.Endpoint}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for most, want := range map[int64]string{40: "", 39: "more than 39 keys"} {
		store := counted(client, most)
		var read error
		for _, from := range []string{"/registry/pods/0/", "/registry/pods/1/"} {
			_, err := etcd.Entries(t.Context(), etcd.Store{Name: "core", Pager: store},
				etcd.Request{From: from, To: etcd.PrefixEnd(from)}, func(etcd.Entry) error { return nil })
			if err != nil {
				read = err
			}
		}
		if (read == nil) != (want == "") || read != nil && !strings.Contains(read.Error(), want) {
			t.Errorf("%d keys at most: %v, want %q", most, read, want)
		}
	}
}
