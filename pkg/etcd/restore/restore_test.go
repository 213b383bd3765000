package restore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
)

// saved is a file with a snapshot of a store.
func saved(t *testing.T, s *etcdtest.Server) string {
	t.Helper()
	stream, err := s.Client(t).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	data, err := io.ReadAll(stream)
	file := filepath.Join(t.TempDir(), "store.db")
	if err = errors.Join(err, os.WriteFile(file, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAMemberIsPutBack: the member has what it had when the backup was made, at a revision that no client has seen, and
// an older one is compacted; put back, it has what it had before. Both can be repeated, and be killed at every rename.
func TestAMemberIsPutBack(t *testing.T) {
	s := etcdtest.Start(t)
	get := func(key string) (string, int64) {
		t.Helper()
		answer, err := s.Client(t).Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Kvs) == 0 {
			return "", answer.Header.Revision
		}
		return string(answer.Kvs[0].Value), answer.Header.Revision
	}
	s.Put(t, map[string][]byte{"/registry/of": []byte("before")})
	file := saved(t, s)
	s.Put(t, map[string][]byte{"/registry/of": []byte("after")})
	_, seen := get("/registry/of")
	peer := "http://127.0.0.1:0"
	m := Member{DataDir: s.Dir, ID: "a", Snapshot: file, Name: "default",
		PeerURL: peer, Cluster: "default=" + peer, Token: "core-a"}
	if err := m.Restore(t.Context()); err == nil {
		t.Fatal("restored below a running etcd")
	}
	s.Stop()
	for range 2 {
		if err := m.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Restart(t)
	value, revision := get("/registry/of")
	if err := Verify(t.Context(), saved(t, s)); err != nil {
		t.Errorf("a snapshot of what was restored: %v", err)
	}
	if value != "before" || revision < seen+revisionBump/2 {
		t.Errorf("%q at %d, and clients have seen %d", value, revision, seen)
	}
	_, err := s.Client(t).Get(t.Context(), "/registry/of", clientv3.WithRev(seen))
	if err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("an old revision is read: %v", err)
	}
	s.Stop()
	for range 2 {
		if err := m.PutBack(); err != nil {
			t.Fatal(err)
		}
	}
	s.Restart(t)
	if value, revision := get("/registry/of"); value != "after" || revision < seen || revision > seen+1000 {
		t.Errorf("put back: %q at %d, and it was at %d", value, revision, seen)
	}
	s.Stop()
	// As a transition that is done again after it was undone, and undone again.
	for range 2 {
		if err := errors.Join(m.Restore(t.Context()), m.PutBack()); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := filepath.Glob(filepath.Join(s.Dir, "restored-a*")); err != nil || len(kept) != 3 {
		t.Errorf("of what was restored three times %q is kept, %v", kept, err)
	}
	// Killed between its two renames, it goes on, or back.
	for _, back := range []bool{true, false} {
		m.ID = map[bool]string{true: "b", false: "c"}[back]
		if err := m.stage(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(m.member(), m.before()); err != nil {
			t.Fatal(err)
		}
		want := "before"
		if err = m.Restore(t.Context()); back {
			want = "after"
			err = errors.Join(err, m.PutBack())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Restart(t)
		if value, _ := get("/registry/of"); value != want {
			t.Errorf("killed, and back %t: %q, want %q", back, value, want)
		}
		s.Stop()
	}
}

// TestAnEmptyMemberIsRestored, as one whose volume is a new one, and put back has nothing again.
func TestAnEmptyMemberIsRestored(t *testing.T) {
	m := Member{DataDir: t.TempDir(), ID: "a", Snapshot: saved(t, etcdtest.Start(t)), Name: "m-0",
		PeerURL: "http://127.0.0.1:1", Cluster: "m-0=http://127.0.0.1:1,m-1=http://127.0.0.1:2", Token: "m"}
	if err := m.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.member(), "snap", "db")); err != nil {
		t.Error(err)
	}
	if err := m.PutBack(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.member()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has something: %v", err)
	}
}

// TestLocksAreNoLinks: who owns a data directory could have root create a file elsewhere.
func TestLocksAreNoLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "made")
	if err := os.Symlink(elsewhere, filepath.Join(dir, lockFile)); err != nil {
		t.Fatal(err)
	}
	if release, err := Lock(dir); err == nil {
		release()
		t.Error("Lock by a link = nil")
	}
	if _, err := os.Lstat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link was followed: %v", err)
	}
}

// TestDirectoriesOfOthersAreRefused: their owner could have root write elsewhere, by a link in the midst of a restore,
// and would not be able to read what is restored.
func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	m := Member{DataDir: t.TempDir(), ID: "a"}
	const another = 4711
	if err := os.Chown(m.DataDir, another, another); err != nil {
		t.Skip("only root gives a directory away")
	}
	for name, do := range map[string]func() error{"Restore": func() error { return m.Restore(t.Context()) },
		"PutBack": m.PutBack} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("%s = %v", name, err)
		}
	}
	if made, err := os.ReadDir(m.DataDir); err != nil || len(made) > 0 {
		t.Errorf("%v was made there, %v", made, err)
	}
}
