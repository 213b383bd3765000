package local

import (
	"context"
	"os"
	"path/filepath"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/etcd/restore"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func stoppedMember(m *transition.Member) *restore.Member {
	return &restore.Member{DataDir: m.DataDir, ID: m.ID, Snapshot: m.Snapshot(), Name: m.Name, PeerURL: m.PeerURL,
		Cluster: m.Cluster, Token: m.Token}
}

// backupIs checks that a snapshot can be read to its end, and that no other user could have put it there.
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
	return restore.Verify(ctx, file)
}
