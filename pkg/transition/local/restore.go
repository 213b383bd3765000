package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/etcd/restore"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func stoppedMember(m *transition.Member) *restore.Member {
	return &restore.Member{DataDir: m.DataDir, ID: m.ID, Snapshot: m.Snapshot(), Name: m.Name, PeerURL: m.PeerURL,
		Cluster: m.Cluster, Token: m.Token}
}

// backupIs checks that a snapshot can be read to its end, and may be restored, and that no other user could have put it
// there.
func backupIs(ctx context.Context, m *transition.Member) error {
	file := m.Snapshot()
	if _, err := os.Stat(file); err != nil {
		return err
	}
	for _, dir := range []string{m.Directory, filepath.Dir(file)} {
		if err := filetree.Private(dir); err != nil {
			return err
		}
	}
	if err := restore.MayWrite(m.DataDir); err != nil { // as long as nothing has stopped
		return err
	}
	return restore.Verify(ctx, file)
}

// errOtherData is wrapped when members of a store have not the same data. It does not pass.
var errOtherData = errors.New("they were put back to different snapshots")

// sameData checks that the members of stores have the same data, once they answer. Members that were put back to
// snapshots of different backups are one cluster all the same: each answers with its own, and etcd does not notice.
func (h *Host) sameData(ctx context.Context, stores []plan.Store) error {
	var other error
	err := h.wait(ctx, "the members of a store are not known to have the same data", func(ctx context.Context) error {
		err := sameData(ctx, stores)
		if errors.Is(err, errOtherData) {
			other, err = err, nil
		}
		return err
	})
	return cmp.Or(other, err)
}

func sameData(ctx context.Context, stores []plan.Store) error {
	var problems []error
	for i := range stores {
		var revision int64 // of the first member: the others have it, too
		var first, hash *clientv3.HashKVResponse
		states, err := askMembers(ctx, &stores[i], func(limited context.Context, client *clientv3.Client,
			m *memberState) {
			// What is read is no matter: a member that answers has what all members had agreed on before.
			var answer *clientv3.GetResponse
			if answer, m.err = client.Get(limited, "health", clientv3.WithKeysOnly()); m.err != nil {
				return
			}
			if answer.Header == nil {
				m.err = errNoEtcd
				return
			}
			if first == nil {
				revision = answer.Header.Revision
			}
			hash, m.err = client.HashKV(ctx, m.endpoint, revision) // which reads all of it, for as long as is waited
			switch {
			case first == nil && m.err == nil:
				first = hash
			case errors.Is(m.err, rpctypes.ErrCompacted), errors.Is(m.err, rpctypes.ErrFutureRev), m.err == nil &&
				(hash.Hash != first.Hash || hash.CompactRevision != first.CompactRevision):
				m.err = fmt.Errorf("has other data at revision %d than %s: %w", revision, stores[i].Endpoints[0],
					errOtherData)
			}
		})
		if err != nil {
			return err
		}
		for n := range states {
			if s := &states[n]; s.err != nil {
				problems = append(problems, fmt.Errorf("store %s, %s: %w", stores[i].Name, s.endpoint, s.err))
			}
		}
	}
	return errors.Join(problems...)
}
