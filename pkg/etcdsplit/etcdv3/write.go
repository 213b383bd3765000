package etcdv3

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
	"github.com/kubefusion/fusionctl/pkg/etcdsplit/move"
)

// Writer is a store that keys may be moved from and to. It is a type of its own so that a verb which only reads cannot write.
type Writer struct{ *Client }

var _ move.Store = Writer{}

// Read reads keys at one revision, in their order; nil for a key that the store does not hold.
func (w Writer) Read(ctx context.Context, keys []string) ([]*etcdsplit.Entry, error) {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(key)
	}
	response, err := w.commit(ctx, nil, ops)
	if err != nil {
		return nil, err
	}
	entries := make([]*etcdsplit.Entry, len(keys))
	for i, r := range response.Responses {
		if kvs := r.GetResponseRange().Kvs; len(kvs) > 0 {
			entries[i] = entryOf(kvs[0])
		}
	}
	return entries, nil
}

func entryOf(kv *mvccpb.KeyValue) *etcdsplit.Entry {
	return &etcdsplit.Entry{Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
}

// Create puts the entries with their leases, all of them, or none when one of the keys exists already. When the answer to a
// transaction that was done is lost and it is tried again, the second answer is "exists".
func (w Writer) Create(ctx context.Context, entries []etcdsplit.Entry) (bool, error) {
	guards, ops := make([]clientv3.Cmp, len(entries)), make([]clientv3.Op, len(entries))
	for i, e := range entries {
		guards[i] = clientv3.Compare(clientv3.CreateRevision(string(e.Key)), "=", 0)
		ops[i] = clientv3.OpPut(string(e.Key), string(e.Value), clientv3.WithLease(clientv3.LeaseID(e.Lease)))
	}
	response, err := w.commit(ctx, guards, ops)
	if err != nil {
		return false, err
	}
	return response.Succeeded, nil
}

// Delete deletes the keys, all of them, or none when one of them is not at its revision any more.
func (w Writer) Delete(ctx context.Context, keys []move.KeyAt) (bool, error) {
	guards, ops := make([]clientv3.Cmp, len(keys)), make([]clientv3.Op, len(keys))
	for i, k := range keys {
		guards[i] = clientv3.Compare(clientv3.ModRevision(k.Key), "=", k.ModRevision)
		ops[i] = clientv3.OpDelete(k.Key)
	}
	response, err := w.commit(ctx, guards, ops)
	if err != nil {
		return false, err
	}
	return response.Succeeded, nil
}

func (w Writer) commit(ctx context.Context, guards []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	var response *clientv3.TxnResponse
	err := w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		answer, err := m.Txn(ctx).If(guards...).Then(ops...).Commit()
		if err != nil {
			return nil, err
		}
		response = answer
		return answer.Header, nil
	})
	return response, err
}

// Grant makes a lease that lasts so long, and returns its id.
func (w Writer) Grant(ctx context.Context, seconds int64) (int64, error) {
	var id clientv3.LeaseID
	err := w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		response, err := m.Grant(ctx, seconds)
		if err != nil {
			return nil, err
		}
		id = response.ID
		return response.ResponseHeader, nil
	})
	if err != nil {
		return 0, fmt.Errorf("granting a lease: %w", err)
	}
	return int64(id), nil
}

// TimeToLive is how many seconds a lease still lasts, at most 0 when it is gone.
func (w Writer) TimeToLive(ctx context.Context, lease int64) (int64, error) {
	var seconds int64
	err := w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		response, err := pb.NewLeaseClient(m.ActiveConnection()).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease})
		if err != nil {
			return nil, err
		}
		seconds = response.TTL
		return response.Header, nil
	})
	if err != nil {
		return 0, fmt.Errorf("reading the lease %x: %w", lease, err)
	}
	return seconds, nil
}
