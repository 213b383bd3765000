package etcdv3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// raw sends messages as they are.
type raw struct{}

func (raw) Name() string                  { return "proto" }
func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// TestAnswersOfHostileStores: what a store answers to a request for a page of a few keys takes no more memory than it
// has bytes, a few times.
func TestAnswersOfHostileStores(t *testing.T) {
	const header = "\x0a\x04\x08\x01\x18\x07" // of cluster 1, revision 7
	for name, test := range map[string]struct {
		answer string
		limit  int
		want   string
	}{
		"empty keys":         {header + strings.Repeat("\x12\x00", 7<<20), 1000, "more than the 1016 entries"},
		"empty keys for one": {header + strings.Repeat("\x12\x00", 30<<20), 1, "more than the 17 entries"},
		"a huge value": {header + "\x12\x85\x80\x80\x40\x2a\x80\x80\x80\x40" + strings.Repeat("x", 128<<20), 1,
			"too large"},
		"unknown fields": {header + strings.Repeat("\xaa\x06\x00", 5<<20), 1000, "more than the 1016 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			answer := []byte(test.answer)
			server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(
				func(_ any, stream grpc.ServerStream) error {
					var in []byte
					if err := stream.RecvMsg(&in); err != nil {
						return err
					}
					if method, _ := grpc.MethodFromServerStream(stream); method != "/etcdserverpb.KV/Range" {
						return stream.SendMsg([]byte(header))
					}
					return stream.SendMsg(answer)
				}))
			go server.Serve(listener)
			defer server.Stop()
			client, err := Open(Config{Endpoints: []string{"http://" + listener.Addr().String()}, Attempts: 1,
				Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			_, err = client.Page(ctx, etcd.Request{From: "/registry/", To: "/registry0", LimitKeys: test.limit,
				Revision: 7})
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Page = %v, want that it is %q", err, test.want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 700<<20 {
				t.Errorf("it took %d MiB in all", took>>20)
			}
		})
	}
}

// TestWatchesOfHostileStores: an event without a key, of another prefix, or of a revision that never ends is an error.
func TestWatchesOfHostileStores(t *testing.T) {
	header := &pb.ResponseHeader{ClusterId: 1, Revision: 7}
	event := func(key string, revision int64, valueBytes int) *mvccpb.Event {
		return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision,
			Value: make([]byte, valueBytes)}}
	}
	for name, test := range map[string]struct {
		events []*mvccpb.Event
		times  int
		want   string
	}{
		"no key":            {[]*mvccpb.Event{{}}, 1, "no key there"},
		"of another prefix": {[]*mvccpb.Event{event("/other/a", 7, 0)}, 1, "no key there"},
		"of before":         {[]*mvccpb.Event{event("/registry/a", 2, 0)}, 1, "no key there"},
		"out of order": {[]*mvccpb.Event{event("/registry/a", 7, 0), event("/registry/b", 6, 0)}, 1,
			"out of order"},
		"without an end": {[]*mvccpb.Event{event("/registry/a", 7, 16<<20)}, 8, "revision 7 changes 4 keys"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				if method, _ := grpc.MethodFromServerStream(stream); method != "/etcdserverpb.Watch/Watch" {
					return stream.SendMsg(&pb.RangeResponse{Header: header})
				}
				if err := stream.RecvMsg(new(pb.WatchRequest)); err != nil {
					return err
				}
				err := stream.SendMsg(&pb.WatchResponse{Header: header, Created: true})
				for range test.times {
					err = errors.Join(err, stream.SendMsg(&pb.WatchResponse{Header: header, Events: test.events,
						Fragment: true}))
				}
				<-stream.Context().Done()
				return err
			}))
			go server.Serve(listener)
			defer server.Stop()
			client, err := Open(Config{Endpoints: []string{"http://" + listener.Addr().String()},
				Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			err = client.Watch(t.Context(), "/registry/", 3, 0, func(_ int64, changes []etcd.Change) error {
				if len(changes) > 0 {
					return fmt.Errorf("%d changes are taken for real", len(changes))
				}
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Watch = %v, want an error with %q", err, test.want)
			}
		})
	}
}

// TestAStoreThatLosesItsID: what speaks etcd's protocol and has no id of a cluster is another store than an etcd, which
// has one, whichever of the two answered first: what it does not have was not deleted.
func TestAStoreThatLosesItsID(t *testing.T) {
	for name, ids := range map[string][2]uint64{"it had one": {1, 0}, "it had none": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var id atomic.Uint64
			id.Store(ids[0])
			server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				return stream.SendMsg(&pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: id.Load(), Revision: 7}})
			}))
			go server.Serve(listener)
			defer server.Stop()
			client, err := Open(Config{Endpoints: []string{"http://" + listener.Addr().String()}, Attempts: 1,
				Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			page := func() error {
				_, err := client.Page(t.Context(), etcd.Request{From: "/registry/", To: "/registry0", LimitKeys: 1})
				return err
			}
			if err := errors.Join(page(), page()); err != nil {
				t.Fatal(err)
			}
			id.Store(ids[1])
			if err := page(); err == nil || !strings.Contains(err.Error(), "the store was replaced") {
				t.Errorf("Page = %v, want that it is another store", err)
			}
		})
	}
}
