package etcdv3_test

import (
	"context"
	"net"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
)

// liar is an etcd that gives one answer to every page, and one to every transaction.
type liar struct {
	pb.UnimplementedKVServer
	page *pb.RangeResponse
	txn  *pb.TxnResponse
}

func (l *liar) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return l.page, nil
}
func (l *liar) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) { return l.txn, nil }

func (l *liar) writer(t *testing.T) *etcdv3.Writer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, l)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return &etcdv3.Writer{Client: open(t, etcdv3.Config{Endpoints: []string{"http://" + listener.Addr().String()}})}
}

func at(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, Revision: revision}
}

func stored(key string, revision int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(key), Value: []byte("v"), ModRevision: revision, CreateRevision: 1, Version: 1}
}

// TestPagesOfNoEtcd: what is in a page is in the range, and of its revision; what is not in it is not in the store.
func TestPagesOfNoEtcd(t *testing.T) {
	for says, page := range map[string]*pb.RangeResponse{
		`has the key "/registry/secrets/x"`: {Header: at(7), Kvs: []*mvccpb.KeyValue{stored("/registry/secrets/x", 3),
			stored("/registry/pods/b", 3)}},
		"more=false and 1 of 9 keys": {Header: at(7), Count: 9, Kvs: []*mvccpb.KeyValue{stored("/registry/pods/b", 3)}},
		"of revision 8":              {Header: at(9), Kvs: []*mvccpb.KeyValue{stored("/registry/pods/b", 8)}},
		"is of revision 6":           {Header: at(6)}, // it went back
		"is of revision 0":           {},
	} {
		w := (&liar{page: page}).writer(t)
		if got, err := w.Page(t.Context(), etcd.Request{From: "/registry/pods/", To: "/registry/pods0", Revision: 7,
			LimitKeys: 10}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Page = %d entries, %v; want an error that says %s", len(got.Entries), err, says)
		}
	}
}

// TestTransactionsOfNoEtcd: a key of which an answer says nothing is not taken for one that is gone.
func TestTransactionsOfNoEtcd(t *testing.T) {
	ranged := func(kvs ...*mvccpb.KeyValue) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: kvs}}}
	}
	put := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	for says, txn := range map[string]*pb.TxnResponse{
		"has 0 answers to 2": {Header: at(7), Succeeded: true},
		"has 3 answers to 2": {Header: at(7), Succeeded: true,
			Responses: []*pb.ResponseOp{ranged(), ranged(), ranged()}},
		"one to another request": {Header: at(7), Succeeded: true, Responses: []*pb.ResponseOp{put, ranged()}},
		"about other keys": {Header: at(7), Succeeded: true,
			Responses: []*pb.ResponseOp{ranged(stored("/b", 3)), ranged(stored("/a", 3))}},
		"without a condition": {Header: at(7), Responses: []*pb.ResponseOp{ranged(), ranged()}},
	} {
		w := (&liar{txn: txn}).writer(t)
		if got, err := w.Read(t.Context(), []string{"/a", "/b"}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Read = %v, %v; want an error that says %s", got, err, says)
		}
	}
}
