package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestDataOfAnotherClusterStays: where a store was replaced since, no member of it has the URL of one that runs with
// the data of before. Nothing is done to either. What a removed member of the same cluster has left is set aside.
func TestDataOfAnotherClusterStays(t *testing.T) {
	replaced, other := etcdtest.Start(t), etcdtest.Start(t)
	client := replaced.Client(t)
	join := func(dataDir string, wait time.Duration) error {
		h := &Host{Wait: wait}
		return h.addMember(t.Context(), &transition.Joining{Name: "cp-2", PeerURL: "http://127.0.0.1:1",
			Store: plan.Store{Name: "modern", Endpoints: client.Endpoints()}, DataDir: dataDir})
	}
	members := func() int {
		list, err := client.MemberList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Members)
	}
	if err := join(other.Dir, 2*time.Second); err == nil || !strings.Contains(err.Error(), "nothing is set aside") {
		t.Errorf("beside data of another cluster: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other.Dir, "member", "wal")); err != nil || members() != 1 {
		t.Errorf("the data of another cluster: %v; %d members", err, members())
	}

	list, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	metadata, err := (&pb.Metadata{NodeID: 7, ClusterID: list.Header.ClusterId}).Marshal()
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "member"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), metadata)
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := join(dir, 2*time.Minute); err != nil || members() != 2 {
		t.Errorf("beside data of a removed member: %v; %d members", err, members())
	}
	if _, err := os.Stat(filepath.Join(dir, "member.left-1", "wal")); err != nil {
		t.Error(err)
	}
}
