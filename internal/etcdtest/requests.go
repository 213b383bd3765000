package etcdtest

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Requests stands between a client and a member and sees every request by itself, so that a test can decide what
// becomes of each: it is not passed on, or its answer is lost.
type Requests struct {
	Endpoint string // URL for clients
	// Look is called twice for each request: before it is passed on, and when its answer is there. What it returns is
	// the client's answer; it may take its time, and the request is passed on though the client has given up. It must
	// be safe for concurrent use. nil: everything passes.
	Look atomic.Pointer[func(r Request) error]
	seen atomic.Int64
}

// Request is a request as Look sees it.
type Request struct {
	Number   int64  // from 1 on
	Method   string // "KV/Txn"
	Answered bool   // the member has done it
}

// ErrLost is what a client sees when a connection breaks: whether the request was done it cannot know.
var ErrLost = status.Error(codes.Unavailable, "the connection is lost")

// NewRequests stands before the member until the test ends.
func NewRequests(t testing.TB, s *Server) *Requests {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(s.Endpoint, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Requests{Endpoint: "http://" + listener.Addr().String()}
	server := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.MaxRecvMsgSize(8<<20),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			return r.pass(conn, stream)
		}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		conn.Close()
	})
	return r
}

// Reset makes the next request the first.
func (r *Requests) Reset() { r.seen.Store(0) }

// Seen is how many requests there were.
func (r *Requests) Seen() int64 { return r.seen.Load() }

func (r *Requests) pass(conn *grpc.ClientConn, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	request := Request{Number: r.seen.Add(1), Method: strings.TrimPrefix(method, "/etcdserverpb.")}
	look := func() error {
		if f := r.Look.Load(); f != nil {
			return (*f)(request)
		}
		return nil
	}
	var in, out []byte
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	if err := look(); err != nil {
		return err
	}
	ctx := context.WithoutCancel(stream.Context()) // what was sent is done, however long it takes
	if values, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, values)
	}
	err := conn.Invoke(ctx, method, &in, &out, grpc.ForceCodec(bytesCodec{}), grpc.MaxCallRecvMsgSize(64<<20))
	request.Answered = true
	if lost := look(); lost != nil {
		return lost
	}
	if err != nil {
		return err
	}
	return stream.SendMsg(&out)
}

// bytesCodec leaves messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
