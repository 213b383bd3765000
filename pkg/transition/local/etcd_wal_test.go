package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// TestRequestsOfVersion2InALog are those that a member of 3.6 would read and not know, and none that it knows, or that
// lie before a snapshot; the log of a running member may end anywhere.
func TestRequestsOfVersion2InALog(t *testing.T) {
	put := &pb.Request{ID: 7, Method: "PUT", Path: "/0/members/55b07c81c3a7c26d/attributes", Val: "{}"}
	health := &pb.Request{ID: 8, Method: "QGET", Path: ""}
	v3 := &pb.InternalRaftRequest{ID: 9, LeaseRevoke: &pb.LeaseRevokeRequest{ID: 3}}
	type entry interface{ Marshal() ([]byte, error) }
	for name, test := range map[string]struct {
		entries  []entry
		snapshot uint64 // after them
		want     uint64 // index of the request
	}{
		"none":                     {entries: []entry{v3, v3}},
		"a member's name":          {entries: []entry{v3, put, &pb.InternalRaftRequest{V2: put}}},
		"the version":              {entries: []entry{&pb.Request{Method: "PUT", Path: "/0/version", Val: "3.4.0"}}},
		"health, bare":             {entries: []entry{v3, health, v3}, want: 2},
		"health, within":           {entries: []entry{v3, v3, &pb.InternalRaftRequest{V2: health}, v3}, want: 3},
		"a key":                    {entries: []entry{&pb.Request{Method: "PUT", Path: "/1/x"}}, want: 1},
		"no member":                {entries: []entry{&pb.Request{Method: "PUT", Path: "/0/members/x/attr"}}, want: 1},
		"a deleted member":         {entries: []entry{&pb.Request{Method: "DELETE", Path: "/0/version"}}, want: 1},
		"before a snapshot":        {entries: []entry{health, v3}, snapshot: 2},
		"the last of the snapshot": {entries: []entry{health}, snapshot: 1},
		"after a snapshot":         {entries: []entry{v3, v3, health}, snapshot: 2, want: 3},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "[a]*") // no pattern
			if err := os.MkdirAll(filepath.Join(dir, "member"), 0o700); err != nil {
				t.Fatal(err)
			}
			w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range test.entries {
				data, err := e.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				err = w.Save(raftpb.HardState{Term: 1, Commit: uint64(i + 1)},
					[]raftpb.Entry{{Term: 1, Index: uint64(i + 1), Data: data}})
				if err != nil {
					t.Fatal(err)
				}
			}
			if test.snapshot > 0 {
				taken := walpb.Snapshot{Index: test.snapshot, Term: 1, ConfState: &raftpb.ConfState{}}
				if err := w.SaveSnapshot(taken); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Sync(); err != nil { // it stays open, as that of a running member
				t.Fatal(err)
			}
			defer w.Close()
			got, err := oldRequests(dir)
			if err != nil || (got == nil) != (test.want == 0) || got != nil && got.index != test.want {
				t.Errorf("oldRequests = %+v, %v; want index %d", got, err, test.want)
			}
		})
	}
	if _, err := oldRequests(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no log") {
		t.Errorf("without a log: %v", err)
	}
}

// FuzzLog: whatever lies where a member has its log, reading it ends, says where it is, and says the same again; only
// that is found which is in it.
func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "wal"), []byte{8, 1, 16, 2})
	if err != nil {
		f.Fatal(err)
	}
	data, err := (&pb.Request{ID: 8, Method: "QGET"}).Marshal()
	if err == nil {
		err = w.Save(raftpb.HardState{Term: 1, Commit: 1}, []raftpb.Entry{{Term: 1, Index: 1, Data: data}})
	}
	if err = errors.Join(err, w.Close()); err != nil {
		f.Fatal(err)
	}
	names, err := logFiles(filepath.Join(dir, "wal"))
	if err != nil || len(names) != 1 {
		f.Fatal(names, err)
	}
	log, err := os.ReadFile(names[0])
	if err != nil {
		f.Fatal(err)
	}
	log = log[:512] // what follows are zeros
	f.Add(log, []byte{})
	f.Add(log, log)
	f.Add(log[:100], log[100:])
	f.Fuzz(func(t *testing.T, first, second []byte) {
		dir := t.TempDir()
		directory := filepath.Join(dir, "member", "wal")
		err := errors.Join(os.MkdirAll(directory, 0o700), os.WriteFile(filepath.Join(directory, "0.wal"), first, 0o600),
			os.WriteFile(filepath.Join(directory, "1.wal"), second, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		found, err := oldRequests(dir)
		again, errAgain := oldRequests(dir)
		if fmt.Sprint(found, err) != fmt.Sprint(again, errAgain) {
			t.Errorf("%v, %v, and then %v, %v", found, err, again, errAgain)
		}
		if err != nil && !strings.HasPrefix(err.Error(), directory) {
			t.Errorf("where it is: %v", err)
		}
		if found != nil && (found.method == "PUT" && memberPath.MatchString(found.path) ||
			!bytes.Contains(slices.Concat(first, second), []byte(found.method))) {
			t.Errorf("found %+v", found)
		}
		if of, err := clusterOf(dir); err != nil && of != 0 {
			t.Errorf("cluster %d, %v", of, err)
		}
	})
}
