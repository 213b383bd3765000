package etcdv3

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

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
