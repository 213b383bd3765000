package etcdv3

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// drip is a store that sends the next key after a while, and each time says that there are more.
type drip struct {
	pb.UnimplementedKVServer
	each time.Duration
}

func (d *drip) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	select {
	case <-time.After(d.each):
	case <-ctx.Done():
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 1, Revision: 7}, Count: 1 << 40, More: true,
		Kvs: []*mvccpb.KeyValue{{Key: append(r.Key, '0'), ModRevision: 1}}}, nil
}

func TestAStoreThatDripsEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, &drip{each: 200 * time.Millisecond})
	go server.Serve(listener)
	defer server.Stop()
	client, err := Open(Config{Endpoints: []string{"http://" + listener.Addr().String()}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if client.slow.patience != 30*time.Minute {
		t.Errorf("with a timeout of a minute it waits for %s, want half an hour", client.slow.patience)
	}
	client.slow.patience = 300 * time.Millisecond // the third page is too much
	side := pair.View{Store: "core", StoredAs: "v1", Decodes: []string{"v1"}, Serves: []string{"v1"}}
	m := &pair.Map{Prefix: "/registry", Stores: []string{"core"}, Legacy: pair.ControlPlane{Store: "core"},
		Modern: pair.ControlPlane{Store: "core"}, CustomResources: pair.Resource{Owner: pair.OwnerShared},
		Resources: []pair.Resource{{Key: "pods", Name: "pods", Kind: "Pod", Groups: []string{""}, Namespaced: true,
			Owner: pair.OwnerShared, Legacy: side, Modern: side}}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	report, err := scan.Stores(ctx, m, []etcd.Store{{Name: "core", Pager: client}}, scan.Options{})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v", err, ctx.Err())
	}
	if report.Complete || !strings.Contains(strings.Join(report.Incomplete, "\n"), "too slowly to come to an end") {
		t.Errorf("complete %v, incomplete %q; want it to say that the store is too slow", report.Complete,
			report.Incomplete)
	}
	if hint := (&RefusedError{Reason: report.Incomplete[0]}).Hint(); !strings.Contains(hint, "--timeout") {
		t.Errorf("hint %q, want one that names --timeout", hint)
	}
}

func TestASlowStoreThatIsWorthItsTimeIsRead(t *testing.T) {
	for name, page := range map[string]struct {
		took        time.Duration
		keys, bytes int
	}{
		"many keys":    {9 * time.Second, 1000, 100_000},
		"large values": {9 * time.Second, 1, 1 << 20},
		"a slow link":  {9 * time.Second, 64, 150_000},
		"far away":     {400 * time.Millisecond, 64, 1000},
	} {
		s := slowness{patience: time.Minute}
		for range 10_000 {
			if err := s.page(page.took, page.keys, page.bytes); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	s, pages := slowness{patience: 5 * time.Minute}, 1
	for s.page(9*time.Second, 1, 100) == nil {
		pages++
	}
	if pages < 30 || pages > 40 {
		t.Errorf("a store that sends a key every 9 s is given up after %d, want some 34", pages)
	}
	for range 20 {
		if err := s.page(time.Second, 1000, 100_000); err == nil {
			return
		}
	}
	t.Error("a store that recovers stays given up")
}
