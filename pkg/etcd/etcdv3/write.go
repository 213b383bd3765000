package etcdv3

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
)

// Writer is a store that keys may be moved from and to. It is a type of its own so that a verb which only reads cannot
// write. Nothing but Lock's own renewal runs at the same time as another call.
type Writer struct {
	*Client
	lock *lock // nil: not locked
}

var _ move.Store = (*Writer)(nil)

// Read reads keys at one revision, in their order; nil for a key that the store does not hold.
func (w *Writer) Read(ctx context.Context, keys []string) ([]*etcd.Entry, error) {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(key)
	}
	response, err := w.commit(ctx, nil, ops, nil)
	if err != nil {
		return nil, err
	}
	if !response.Succeeded { // it had no condition
		return nil, errors.New("a transaction without a condition was not done: the server is not a conforming etcd")
	}
	entries := make([]*etcd.Entry, len(keys))
	for i, key := range keys {
		if entries[i], err = entryAt(response, i, len(keys), key); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// entryAt is the entry that an answer of so many ranges has for a key, nil for none. Errors: an answer that does not
// say whether there is one, or is about another key: what it does not say would count as gone.
func entryAt(response *clientv3.TxnResponse, i, of int, key string) (*etcd.Entry, error) {
	if len(response.Responses) != of || response.Responses[i].GetResponseRange() == nil {
		return nil, fmt.Errorf("reading %q: the transaction has %d answers to %d requests, or one to another request: "+
			"the server is not a conforming etcd", key, len(response.Responses), of)
	}
	kvs := response.Responses[i].GetResponseRange().Kvs
	switch {
	case len(kvs) == 0:
		return nil, nil
	case len(kvs) > 1 || kvs[0] == nil || string(kvs[0].Key) != key:
		return nil, fmt.Errorf("reading %q: the answer is about other keys: the server is not a conforming etcd", key)
	}
	return entryOf(kvs[0]), nil
}

func entryOf(kv *mvccpb.KeyValue) *etcd.Entry {
	return &etcd.Entry{Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
}

// Create puts the entries with their leases, all of them, or none when one of the keys exists already. When the answer
// to a transaction that was done is lost and it is tried again, the second answer is "exists".
func (w *Writer) Create(ctx context.Context, entries []etcd.Entry) (bool, error) {
	guards, ops := make([]clientv3.Cmp, len(entries)), make([]clientv3.Op, len(entries))
	for i, e := range entries {
		guards[i] = clientv3.Compare(clientv3.CreateRevision(string(e.Key)), "=", 0)
		ops[i] = clientv3.OpPut(string(e.Key), string(e.Value), clientv3.WithLease(clientv3.LeaseID(e.Lease)))
	}
	return w.guarded(ctx, guards, ops)
}

// Delete deletes the keys, all of them, or none when one of them is not at its revision any more.
func (w *Writer) Delete(ctx context.Context, keys []move.KeyAt) (bool, error) {
	guards, ops := make([]clientv3.Cmp, len(keys)), make([]clientv3.Op, len(keys))
	for i, k := range keys {
		guards[i] = clientv3.Compare(clientv3.ModRevision(k.Key), "=", k.ModRevision)
		ops[i] = clientv3.OpDelete(k.Key)
	}
	return w.guarded(ctx, guards, ops)
}

// Replace puts the values of the entries, with their leases, all of them, or none when one of the keys is not at its
// ModRevision any more.
func (w *Writer) Replace(ctx context.Context, entries []etcd.Entry) (bool, error) {
	guards, ops := make([]clientv3.Cmp, len(entries)), make([]clientv3.Op, len(entries))
	for i, e := range entries {
		guards[i] = clientv3.Compare(clientv3.ModRevision(string(e.Key)), "=", e.ModRevision)
		ops[i] = clientv3.OpPut(string(e.Key), string(e.Value), clientv3.WithLease(clientv3.LeaseID(e.Lease)))
	}
	return w.guarded(ctx, guards, ops)
}

// guarded does the operations if all guards hold, and the lock, if there is one, exists.
func (w *Writer) guarded(ctx context.Context, guards []clientv3.Cmp, ops []clientv3.Op) (bool, error) {
	var otherwise []clientv3.Op
	if w.lock != nil {
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(w.lock.key), "=", w.lock.revision))
		otherwise = []clientv3.Op{clientv3.OpGet(w.lock.key, clientv3.WithKeysOnly())}
	}
	response, err := w.commit(ctx, guards, ops, otherwise)
	if err != nil || response.Succeeded || w.lock == nil {
		return err == nil && response.Succeeded, err
	}
	held, err := entryAt(response, 0, 1, w.lock.key)
	if err == nil && (held == nil || held.ModRevision != w.lock.revision) {
		err = move.ErrLockLost
	}
	return false, err
}

func (w *Writer) commit(ctx context.Context, guards []clientv3.Cmp, then, otherwise []clientv3.Op) (
	*clientv3.TxnResponse, error) {
	if err := w.pace(ctx, len(then)); err != nil {
		return nil, err
	}
	var response *clientv3.TxnResponse
	err := w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		answer, err := m.Txn(ctx).If(guards...).Then(then...).Else(otherwise...).Commit()
		if err != nil {
			return nil, err
		}
		response = answer
		return answer.Header, nil
	})
	return response, err
}

// Room is how many bytes may be written before the first member is full. Members say so since 3.6.
func (w *Writer) Room(ctx context.Context) (bytes int64, known bool) {
	for _, s := range w.statuses(ctx) {
		if quota := s.answer.GetDbSizeQuota(); quota > 0 {
			room := quota - s.answer.DbSize
			if !known || room < bytes {
				bytes, known = room, true
			}
		}
	}
	return bytes, known
}

// Grant creates a lease of this id and TTL, unless there is one.
func (w *Writer) Grant(ctx context.Context, lease, seconds int64) error {
	_, err := w.grant(ctx, lease, seconds)
	return err
}

// grant lets the server choose the id when lease is 0.
func (w *Writer) grant(ctx context.Context, lease, seconds int64) (int64, error) {
	err := w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		response, err := pb.NewLeaseClient(m.ActiveConnection()).
			LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: lease, TTL: seconds})
		if rpctypes.Error(err) == rpctypes.ErrLeaseExist {
			return nil, nil
		}
		if err == nil {
			lease = response.ID
		}
		return response.GetHeader(), err
	})
	if err != nil {
		return 0, fmt.Errorf("granting a lease of %d s: %w", seconds, err)
	}
	return lease, nil
}
