package local

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestAMemberOfAHostIsPutBack: a backup is looked at before; the member has what is in it, then what it had; a running
// member is left alone, and each step is verified.
func TestAMemberOfAHostIsPutBack(t *testing.T) {
	s := etcdtest.Start(t)
	s.Put(t, map[string][]byte{"/registry/of": []byte("before")})
	stream, err := s.Client(t).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	data, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "backups")
	const peer = "http://127.0.0.1:0"
	m := &transition.Member{Store: "core", Backup: "20261124T013000Z", ID: "a", DataDir: s.Dir, PeerURL: peer,
		Cluster: "default=" + peer, Token: "core-a", Name: "default", Directory: dir}
	host := &Host{}
	check := func(kind transition.CheckKind, back bool) error {
		return host.Check(t.Context(), "cp-1", &transition.Check{Kind: kind, Member: m, Back: back, Hint: "copy it"})
	}
	do := func(kind transition.Kind) error {
		return host.Do(t.Context(), "cp-1", &transition.Action{Kind: kind, Member: m})
	}
	if err := check(transition.BackupIs, false); err == nil || !strings.HasSuffix(err.Error(), "copy it") {
		t.Errorf("a backup that is not there: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a look makes its directory")
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(m.Snapshot()), 0o700),
		os.WriteFile(m.Snapshot(), data, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := check(transition.BackupIs, false); err != nil {
		t.Errorf("a whole backup: %v", err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(m.Snapshot(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(transition.BackupIs, false); err == nil {
		t.Error("a damaged backup is whole")
	}
	data[len(data)/2] ^= 1
	if err := errors.Join(os.WriteFile(m.Snapshot(), data, 0o600), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := check(transition.BackupIs, false); err == nil || !strings.Contains(err.Error(), "other users") {
		t.Errorf("a backup that other users can write: %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Chown(s.Dir, 4711, -1) == nil { // as root
		if err := check(transition.BackupIs, false); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("a data directory of another user: %v", err)
		}
		if err := os.Chown(s.Dir, os.Geteuid(), -1); err != nil {
			t.Fatal(err)
		}
	}

	s.Put(t, map[string][]byte{"/registry/of": []byte("after")})
	if err := do(transition.RestoreMember); err == nil {
		t.Fatal("restored below a running etcd")
	}
	if check(transition.MemberIs, false) == nil || check(transition.MemberIs, true) != nil {
		t.Error("it has what is in the backup before that was restored")
	}
	s.Stop()
	for _, step := range []struct {
		kind transition.Kind
		want string
	}{{transition.RestoreMember, "before"}, {transition.PutBackMember, "after"}} {
		back := step.kind == transition.PutBackMember
		for range 2 {
			if err := do(step.kind); err != nil {
				t.Fatal(err)
			}
		}
		if check(transition.MemberIs, back) != nil || check(transition.MemberIs, !back) == nil {
			t.Errorf("%s is not what is verified", step.kind)
		}
		s.Restart(t)
		answer, err := s.Client(t).Get(t.Context(), "/registry/of")
		if err != nil || string(answer.Kvs[0].Value) != step.want {
			t.Errorf("after %s: %v, %v; want %s", step.kind, answer, err, step.want)
		}
		s.Stop()
	}
}

// TestMembersOfDifferentBackups: backups that hosts made each for itself have one name, and are whole; members that
// were put back to them are one cluster, and each serves what it has. No API server may come to that.
func TestMembersOfDifferentBackups(t *testing.T) {
	c := etcdtest.StartCluster(t, 3)
	list, err := c.Client(t).MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	peers, names := map[string]string{}, []string{}
	for _, m := range list.Members {
		peers[m.Name] = m.PeerURLs[0]
	}
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		names = append(names, name+"="+peers[name])
	}
	dirs := []string{t.TempDir(), t.TempDir()} // of two backups
	for i, dir := range dirs {
		c.Members[0].Put(t, map[string][]byte{"/registry/of": []byte(strconv.Itoa(i))})
		stream, err := c.Members[0].Client(t).Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(stream)
		if err := errors.Join(err, stream.Close(), os.Mkdir(filepath.Join(dir, "20261124T013000Z"), 0o700),
			os.WriteFile(filepath.Join(dir, "20261124T013000Z", "core.db"), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	host := &Host{Wait: time.Minute} // other data ends it at once
	same := func() error {
		return host.Check(t.Context(), "cp-1", &transition.Check{Kind: transition.SameData, Hint: "copy it",
			Stores: []plan.Store{{Name: "core", Endpoints: c.Endpoints()}}})
	}
	if err := same(); err != nil {
		t.Errorf("members of one cluster: %v", err)
	}
	for id, of := range map[string][]string{"one": {dirs[1], dirs[1], dirs[1]}, "two": {dirs[0], dirs[0], dirs[1]}} {
		for _, m := range c.Members {
			m.Stop()
		}
		for i, s := range c.Members {
			name := fmt.Sprintf("m%d", i)
			m := &transition.Member{Store: "core", Backup: "20261124T013000Z", ID: id, DataDir: s.Dir,
				PeerURL: peers[name], Cluster: strings.Join(names, ","), Token: "core-" + id, Name: name,
				Directory: of[i]}
			restore := &transition.Action{Kind: transition.RestoreMember, Member: m}
			if err := errors.Join(
				host.Check(t.Context(), "cp-1", &transition.Check{Kind: transition.BackupIs, Member: m}),
				host.Do(t.Context(), "cp-1", restore)); err != nil {
				t.Fatal(err)
			}
		}
		c.Run(t)
		var values []string
		for _, s := range c.Members {
			answer, err := s.Client(t).Get(t.Context(), "/registry/of")
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, string(answer.Kvs[0].Value))
		}
		t.Logf("%s: members answer %q", id, values)
		if err := same(); (err == nil) != (id == "one") || err != nil &&
			(!strings.Contains(err.Error(), "other data") || !strings.HasSuffix(err.Error(), "copy it")) {
			t.Errorf("members that answer %q: %v", values, err)
		}
	}
}
