package etcdv3

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
)

// lock is a key that exists only while the process that put it lives. What is written with it as a guard is written
// by that process alone: when another one takes the lock over, or its lease has ended, its revision is another.
type lock struct {
	key      string
	revision int64
	lease    int64
}

const (
	lockSeconds  = 60
	renewal      = lockSeconds * time.Second / 4
	releaseLimit = 3 * time.Second
)

// Lock puts the lock under the key, and keeps it there until it is released, ctx ends, or the process ends. A lock of
// the same run for the same store is taken over. Errors: *move.LockedError when it is another's; move.ErrFull.
func (w *Writer) Lock(ctx context.Context, key string, owner move.Owner) (release func(context.Context) error,
	err error) {
	value, err := json.Marshal(owner)
	if err != nil {
		return nil, err
	}
	lease, err := w.grant(ctx, 0, lockSeconds)
	if errors.Is(err, move.ErrFull) {
		return nil, cmp.Or(w.heldByAnother(ctx, key, owner), err) // a lock from before it was full
	}
	if err != nil {
		return nil, err
	}
	revision, err := w.putLock(ctx, key, string(value), owner, lease)
	if err != nil {
		return nil, errors.Join(err, w.revoke(ctx, lease))
	}
	w.lock = &lock{key: key, revision: revision, lease: lease}
	renewing, stop := context.WithCancel(ctx)
	var renewer sync.WaitGroup
	renewer.Go(func() { w.renew(renewing, lease) })
	return func(ctx context.Context) error {
		stop()
		renewer.Wait()
		w.lock = nil
		ctx, cancel := context.WithTimeout(ctx, releaseLimit)
		defer cancel()
		return w.revoke(ctx, lease) // which deletes the key, if it is still this run's
	}, nil
}

// heldByAnother returns nil when the lock is not there, or of the same owner.
func (w *Writer) heldByAnother(ctx context.Context, key string, owner move.Owner) error {
	entries, err := w.Read(ctx, []string{key})
	if err != nil || entries[0] == nil {
		return err
	}
	return w.another(ctx, entries[0].Value, entries[0].Lease, owner)
}

// another is nil when an existing lock is of the same owner.
func (w *Writer) another(ctx context.Context, value []byte, lease int64, owner move.Owner) error {
	var holder move.Owner
	if err := json.Unmarshal(value, &holder); err == nil && holder.Run == owner.Run && holder.Store == owner.Store {
		return nil
	}
	seconds, err := w.TimeToLive(ctx, lease)
	return errors.Join(&move.LockedError{Owner: holder, Seconds: max(seconds, 0)}, err)
}

// putLock puts the lock where there is none, or one of the same owner, and returns the revision at which it did.
func (w *Writer) putLock(ctx context.Context, key, value string, owner move.Owner, lease int64) (int64, error) {
	put := []clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(lease)))}
	guard := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	for range 5 {
		response, err := w.commit(ctx, []clientv3.Cmp{guard}, put, []clientv3.Op{clientv3.OpGet(key)})
		if err != nil {
			return 0, err
		}
		if response.Succeeded {
			return (*pb.ResponseHeader)(response.Header).GetRevision(), nil
		}
		guard = clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		held, err := entryAt(response, 0, 1, key)
		if err != nil {
			return 0, err
		}
		if held != nil {
			if err := w.another(ctx, held.Value, held.Lease, owner); err != nil {
				return 0, err
			}
			guard = clientv3.Compare(clientv3.ModRevision(key), "=", held.ModRevision)
		}
	}
	return 0, fmt.Errorf("%s: others take and release this lock again and again", key)
}

// renew keeps a lease alive. When it cannot, the lock is lost, and the next write fails.
func (w *Writer) renew(ctx context.Context, lease int64) {
	for pause.For(ctx, renewal) == nil {
		_ = w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
			_, err := m.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
			return nil, err
		})
	}
}

func (w *Writer) revoke(ctx context.Context, lease int64) error {
	return w.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		response, err := pb.NewLeaseClient(m.ActiveConnection()).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease})
		return response.GetHeader(), err
	})
}
