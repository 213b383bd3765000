// Package restore puts members of a store back to a snapshot, and to what they had before.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/snapshot"
)

// Member is a member of a store that is put back to a snapshot, while it does not run.
type Member struct {
	DataDir string // of etcd, in which member is
	// ID names what is done: done again with the same one, it changes nothing. What the member had before is kept in
	// DataDir as before-ID.
	ID string

	Snapshot string // file
	Name     string // of the member
	PeerURL  string // that it advertises
	Cluster  string // NAME=PEERURL,... of every member
	Token    string // of the cluster, another one than before: no member of before is taken for one of after
}

// revisionBump is added to the newest revision of a snapshot. Clients have seen newer revisions than that, and those
// that watch from one have to list again: what they saw is compacted.
const revisionBump = 1_000_000_000

func (m *Member) member() string   { return filepath.Join(m.DataDir, "member") }
func (m *Member) before() string   { return filepath.Join(m.DataDir, "before-"+m.ID) }
func (m *Member) restored() string { return filepath.Join(m.DataDir, "restored-"+m.ID) }
func (m *Member) staging() string  { return filepath.Join(m.DataDir, ".restoring-"+m.ID) }

// Restore puts the member back to the snapshot. Each step is a rename, so that one that was killed goes on where it
// was.
func (m *Member) Restore(ctx context.Context) error {
	release, err := m.stopped()
	if err != nil {
		return err
	}
	defer release()
	wasKept, err := isThere(m.before())
	if err != nil {
		return err
	}
	has, err := isThere(m.member())
	if err != nil || wasKept && has {
		return err // it is done
	}
	staged := filepath.Join(m.staging(), "member")
	if !wasKept {
		if err := m.stage(ctx); err != nil {
			return errors.Join(err, os.RemoveAll(m.staging()))
		}
		if has {
			err = os.Rename(m.member(), m.before())
		} else { // it had nothing
			err = os.Mkdir(m.before(), 0o700)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Rename(staged, m.member()); err != nil {
		return err
	}
	if err := filetree.Sync(m.DataDir); err != nil {
		return err
	}
	return os.RemoveAll(m.staging())
}

// ended is a logger by which etcd's code does not end the process: what it calls fatal is a panic, and so an error.
func ended() *zap.Logger { return zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic)) }

// stage writes the data of the member beside what it has.
func (m *Member) stage(ctx context.Context) (err error) {
	if err := os.RemoveAll(m.staging()); err != nil {
		return err
	}
	if err := Verify(ctx, m.Snapshot); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recovered := recover(); recovered != nil { // what Verify did not find
			err = fmt.Errorf("%s: etcd cannot write to it: %v: %w", m.Snapshot, recovered, snapshot.ErrDamaged)
		}
	}()
	if err := etcdsnapshot.NewV3(ended()).Restore(etcdsnapshot.RestoreConfig{
		SnapshotPath: m.Snapshot, Name: m.Name, OutputDataDir: m.staging(), PeerURLs: []string{m.PeerURL},
		InitialCluster: m.Cluster, InitialClusterToken: m.Token,
		RevisionBump: revisionBump, MarkCompacted: true,
	}); err != nil {
		return err
	}
	return private(m.staging())
}

// Verify reads a snapshot to its end, and compares it with the hash that it ends with, without which etcd restores
// none, and with the record of its backup. What etcd's own code would crash by is an error: the author of the contents
// is that of the hash, too.
func Verify(ctx context.Context, file string) error {
	s, err := snapshot.Open(file)
	if err != nil {
		return err
	}
	if !s.HasHash() {
		err = fmt.Errorf("%s: does not end with a hash: it is no snapshot but the file of a member, or was cut off; "+
			"fusionctl etcd backup and etcdctl snapshot save make snapshots", file)
	}
	if err == nil {
		err = s.Check(ctx)
	}
	if err == nil {
		_, err = s.Walk(ctx, 1, func() func(etcd.Entry) error { return func(etcd.Entry) error { return nil } })
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	return unchanged(ctx, file)
}

// Is returns nil when the member has what was restored; back: when it has what it had before.
func (m *Member) Is(back bool) error {
	kept, err := isThere(m.before())
	if err != nil {
		return err
	}
	has, err := isThere(m.member())
	switch {
	case err != nil:
		return err
	case back && kept:
		return fmt.Errorf("%s: has what was restored by %s, want what it had before", m.DataDir, m.ID)
	case !back && (!kept || !has):
		return fmt.Errorf("%s: has nothing that was restored by %s", m.DataDir, m.ID)
	}
	return nil
}

// private makes files their owner's alone: etcd writes some with what the umask leaves.
func private(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		if err == nil && entry.IsDir() {
			mode = 0o700
		}
		return errors.Join(err, os.Chmod(name, mode))
	})
}

// PutBack is the inverse of Restore: the member has what it had before. What was restored is kept as restored-ID, or
// restored-ID-2 and so on.
func (m *Member) PutBack() error {
	release, err := m.stopped()
	if err != nil {
		return err
	}
	defer release()
	wasKept, err := isThere(m.before())
	if err != nil {
		return err
	}
	if !wasKept { // it was not restored
		return os.RemoveAll(m.staging())
	}
	has, err := isThere(m.member())
	if err != nil {
		return err
	}
	if has {
		aside, err := m.aside()
		if err == nil {
			err = os.Rename(m.member(), aside)
		}
		if err != nil {
			return err
		}
	}
	if empty, err := isEmpty(m.before()); err != nil {
		return err
	} else if empty { // it had nothing
		err = os.Remove(m.before())
		if err != nil {
			return err
		}
	} else if err := os.Rename(m.before(), m.member()); err != nil {
		return err
	}
	if err := filetree.Sync(m.DataDir); err != nil {
		return err
	}
	return os.RemoveAll(m.staging())
}

// aside is a free name for what was restored: it may have been restored and put back before.
func (m *Member) aside() (string, error) {
	name := m.restored()
	for n := 2; ; n++ {
		if there, err := isThere(name); err != nil || !there {
			return name, err
		}
		name = fmt.Sprintf("%s-%d", m.restored(), n)
	}
}

// MayWrite refuses a data directory of another user to root: its owner could have root write elsewhere, by a link.
// Volumes of pods may be of any user.
func MayWrite(dataDir string) error {
	if info, err := os.Stat(dataDir); err == nil && os.Geteuid() == 0 && !filetree.Ours(info) {
		return fmt.Errorf("%s: belongs to another user, who could not read what root restores there: run this as that "+
			"user; where etcd runs as root, chown makes it root's", dataDir)
	}
	return nil
}

// stopped makes sure that no etcd uses the data, and keeps one from it.
func (m *Member) stopped() (release func(), err error) {
	if err := MayWrite(m.DataDir); err != nil {
		return nil, err
	}
	release, err = Lock(m.DataDir)
	if err != nil {
		return nil, err
	}
	db := filepath.Join(m.member(), "snap", "db")
	if there, err := isThere(db); err != nil || !there {
		return release, err
	}
	if err := unused(db); err != nil {
		release()
		return nil, fmt.Errorf("%s: an etcd runs with it: %w", m.DataDir, err)
	}
	return release, nil
}

func isThere(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func isEmpty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return len(entries) == 0, err
}

const lockFile = ".lock"

// ErrBusy is wrapped when another process is at work in the same directory.
var ErrBusy = errors.New("another process is at work there")

// Lock makes the directory, and keeps others from it. Errors: ErrBusy, wrapped; a directory into which other users can
// write.
func Lock(dir string) (release func(), err error) {
	if err := filetree.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() || info.Mode().Perm()&0o002 != 0 { // what lies there is restored one day
		return nil, fmt.Errorf("%s: has mode %s: want a directory into which other users cannot write", dir,
			info.Mode())
	}
	held, err := fileutil.TryLockFile(filepath.Join(dir, lockFile), os.O_WRONLY|os.O_CREATE|filetree.NoFollow, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("%s: %w", dir, ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	return func() { held.Close() }, nil
}
