package local

import (
	"context"
	"crypto/sha256"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// sender is a store that says that it has a size, and sends what it likes.
type sender struct {
	pb.UnimplementedMaintenanceServer
	says int64
	send func(ctx context.Context, piece func([]byte) error) error
}

func (s *sender) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{DbSize: s.says}, nil
}

func (s *sender) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	return s.send(stream.Context(), func(piece []byte) error { return stream.Send(&pb.SnapshotResponse{Blob: piece}) })
}

// TestSnapshotsOfHostileStoresEnd: whatever a store sends, the snapshot that was there stays, and nothing else does.
func TestSnapshotsOfHostileStoresEnd(t *testing.T) {
	const old, mib, slow = "the snapshot before", 1 << 20, "sends less than"
	page := make([]byte, 32<<10)
	digest := sha256.Sum256(page)
	roomy := func(string) (int64, int64, error) { return 1000 * mib, 900 * mib, nil }
	for name, c := range map[string]struct {
		sender
		free func(string) (int64, int64, error)
		want string // "" where it is a snapshot
	}{
		"whole": {sender: sender{says: 32 << 10, send: func(_ context.Context, piece func([]byte) error) error {
			if err := piece(page); err != nil {
				return err
			}
			return piece(digest[:])
		}}},
		"without end": {want: "sends more than", sender: sender{says: mib,
			send: func(_ context.Context, piece func([]byte) error) error {
				for {
					if err := piece(page); err != nil {
						return err
					}
				}
			}}},
		"stands still": {want: slow, sender: sender{says: mib,
			send: func(ctx context.Context, piece func([]byte) error) error {
				err := piece(page)
				<-ctx.Done()
				return err
			}}},
		"never begins": {want: slow, sender: sender{says: mib,
			send: func(ctx context.Context, _ func([]byte) error) error { <-ctx.Done(); return nil }}},
		"drips": {want: slow, sender: sender{says: 1000 * mib,
			send: func(ctx context.Context, piece func([]byte) error) error {
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					if err := piece(page[:1]); err != nil {
						return err
					}
					<-tick.C
				}
				return nil
			}}},
		"is cut off": {want: "SHA-256", sender: sender{says: mib,
			send: func(_ context.Context, piece func([]byte) error) error { return piece(page[:4096]) }}},
		"has a piece changed": {want: "SHA-256", sender: sender{says: mib,
			send: func(_ context.Context, piece func([]byte) error) error {
				if err := piece(append([]byte{1}, page[1:]...)); err != nil {
					return err
				}
				return piece(digest[:])
			}}},
		"is empty": {want: "EOF", sender: sender{says: mib,
			send: func(context.Context, func([]byte) error) error { return nil }}},
		"has one piece of all memory": {want: "larger than max", sender: sender{says: 1000 * mib,
			send: func(_ context.Context, piece func([]byte) error) error { return piece(make([]byte, 5*mib)) }}},
		"has no room": {want: "less than 10 %", sender: sender{says: 801 * mib}, free: roomy},
		"has room for what it says alone": {want: "less than 10 %", sender: sender{says: mib,
			send: func(_ context.Context, piece func([]byte) error) error {
				for {
					if err := piece(page); err != nil {
						return err
					}
				}
			}}, free: func(string) (int64, int64, error) { return 1000 * mib, 12 * mib, nil }},
		"has a little of a full file system": {sender: sender{says: 32 << 10,
			send: func(_ context.Context, piece func([]byte) error) error {
				if err := piece(page); err != nil {
					return err
				}
				return piece(digest[:])
			}}, free: func(string) (int64, int64, error) { return 1000 * mib, 50 * mib, nil }},
		"is of no size":   {want: "size of", sender: sender{says: -1}},
		"is of all sizes": {want: "size of", sender: sender{says: 1<<63 - 1}},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			pb.RegisterMaintenanceServer(server, &c.sender)
			go server.Serve(listener)
			defer server.Stop()
			dir := t.TempDir()
			file := filepath.Join(dir, "core.db")
			if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
			// Patience is short where it is to end: a busy machine may take longer for what is not.
			s := saver{spare: 4 * mib, step: mib, patience: 2 * time.Minute, free: c.free}
			if c.want == slow {
				s.patience = 200 * time.Millisecond
			}
			if c.free == nil {
				s.free = func(string) (int64, int64, error) { return 0, 0, nil }
			}
			config := clientv3.Config{Endpoints: []string{"http://" + listener.Addr().String()}, Logger: zap.NewNop(),
				MaxCallRecvMsgSize: messageBytes}
			err = s.save(t.Context(), config, file)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("save = %v, want an error about %q", err, c.want)
			}
			data, err := os.ReadFile(file)
			if err != nil || (string(data) == old) != (c.want != "") {
				t.Errorf("the file has %d bytes, %v", len(data), err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("left in the directory: %v, %v", entries, err)
			}
		})
	}
}

// TestSnapshotOfAStore: a store that is what it says is saved, into a file of its owner alone.
func TestSnapshotOfAStore(t *testing.T) {
	store := etcdtest.Start(t)
	store.Put(t, map[string][]byte{"/registry/pods/default/a": []byte("a")})
	h := &Host{Snapshots: filepath.Join(t.TempDir(), "snapshots")}
	named := &plan.Store{Name: "core", Endpoints: []string{"http://127.0.0.1:1", store.Endpoint}}
	if err := h.snapshot(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(h.Snapshots, "core.db"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() < 16<<10 {
		t.Errorf("snapshot: %v, %v", info, err)
	}
}
