package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// oldRequest is a request of version 2 in the log of a member.
type oldRequest struct {
	method, path string
	index        uint64
}

// memberPath are the requests of version 2 that members of 3.6 read: a member's name and URLs, and the version of the
// cluster. Source: v2ToV3Request of server/etcdserver/apply_v2.go, 3.6.8.
var memberPath = regexp.MustCompile(`^/0/(members/[[:xdigit:]]{1,16}/attributes|version)$`)

// oldRequests returns the last request of version 2 that a member would read when it starts, nil for none. It reads the
// log that a running member writes: the end may be cut off. Members of 3.4 write such requests whenever a client asks
// for their health. Those before the last snapshot of the log are not read again.
func oldRequests(dataDir string) (*oldRequest, error) {
	directory := logOf(dataDir)
	names, err := logFiles(directory)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: has no log of a member", directory)
	}
	var readers []fileutil.FileReader
	for _, name := range names {
		file, err := filetree.Open(name) // it is written by the user of etcd
		if err != nil {
			return nil, err
		}
		defer file.Close()
		readers = append(readers, fileutil.NewFileReader(file))
	}
	decoder := wal.NewDecoder(readers...)
	var last *oldRequest
	snapshot := uint64(0)
	for {
		var record walpb.Record
		switch err := decoder.Decode(&record); {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if last != nil && last.index <= snapshot {
				last = nil
			}
			return last, nil
		case err != nil:
			return nil, fmt.Errorf("%s: reading the log: %w", directory, err)
		}
		switch record.Type {
		case wal.CrcType:
			decoder.UpdateCRC(record.Crc)
		case wal.SnapshotType:
			var s walpb.Snapshot
			if err := s.Unmarshal(record.Data); err != nil {
				return nil, fmt.Errorf("%s: %w", directory, err)
			}
			snapshot = max(snapshot, s.Index)
		case wal.EntryType:
			var e raftpb.Entry
			if err := e.Unmarshal(record.Data); err != nil {
				return nil, fmt.Errorf("%s: %w", directory, err)
			}
			if r := oldRequestOf(&e); r != nil {
				last = r
			}
		}
	}
}

// logOf is the directory of a member's log.
func logOf(dataDir string) string { return filepath.Join(dataDir, memberDir, "wal") }

// logFiles are those of a log, as they were written; none where there is no directory. Its name is no pattern: that of
// a spec may have brackets in it, and a member whose log is not found counts as one that was never started.
func logFiles(directory string) (names []string, err error) {
	entries, err := os.ReadDir(directory) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".wal" {
			names = append(names, filepath.Join(directory, e.Name()))
		}
	}
	return names, err
}

// clusterOf is the id of the cluster whose data a member keeps, 0 where there is no log.
func clusterOf(dataDir string) (uint64, error) {
	names, err := logFiles(logOf(dataDir))
	if err != nil || len(names) == 0 {
		return 0, err
	}
	file, err := filetree.Open(names[0])
	if err != nil {
		return 0, err
	}
	defer file.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(file))
	for {
		var record walpb.Record
		if err := decoder.Decode(&record); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil // it was never started
		} else if err != nil {
			return 0, fmt.Errorf("%s: reading the log: %w", names[0], err)
		}
		switch record.Type {
		case wal.CrcType:
			decoder.UpdateCRC(record.Crc)
		case wal.MetadataType:
			var of pb.Metadata
			if err := of.Unmarshal(record.Data); err != nil {
				return 0, fmt.Errorf("%s: %w", names[0], err)
			}
			return of.ClusterID, nil
		}
	}
}

func oldRequestOf(e *raftpb.Entry) *oldRequest {
	if e.Type != raftpb.EntryNormal || len(e.Data) == 0 {
		return nil
	}
	var request pb.InternalRaftRequest
	old := new(pb.Request)
	if err := request.Unmarshal(e.Data); err != nil { // of releases that wrote them bare
		if old.Unmarshal(e.Data) != nil {
			return nil
		}
	} else if old = request.V2; old == nil {
		return nil
	}
	if old.Method == "PUT" && memberPath.MatchString(old.Path) {
		return nil
	}
	return &oldRequest{old.Method, old.Path, e.Index}
}

// What settleMember proposes at a time, and at most: members of 3.4 and 3.5 take a snapshot of their log after 100,000
// entries, unless they are told otherwise.
const (
	entriesAtATime = 5_000
	mostEntries    = 250_000
)

// settleMember lets the members of a store write to their logs until this host's has a snapshot after every request of
// version 2, without which 3.6 does not start. What is written changes nothing: leases that do not exist are revoked.
func (h *Host) settleMember(ctx context.Context, m *transition.Members) error {
	for proposed := 0; ; proposed += entriesAtATime {
		old, err := oldRequests(m.Store.Managed.DataDir)
		switch {
		case err != nil || old == nil:
			return err
		case proposed >= mostEntries:
			return fmt.Errorf("%s: after %d entries the log still has a request of version 2, %s %q, without a "+
				"snapshot after it: restart the member with --snapshot-count=1, and without it again",
				m.Store.Managed.DataDir,
				proposed, old.method, old.path)
		}
		if err := propose(ctx, m, entriesAtATime); err != nil {
			return err
		}
	}
}

func propose(ctx context.Context, m *transition.Members, entries int64) error {
	secured, err := tlsOf(&m.Store)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: m.Store.Endpoints, TLS: secured, DialTimeout: memberPatience,
		Logger: zap.NewNop(), MaxCallRecvMsgSize: statusBytes})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	left := atomic.Int64{}
	left.Store(entries)
	for range 64 {
		group.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				limited, done := context.WithTimeout(ctx, memberPatience)
				_, err := client.Revoke(limited, clientv3.NoLease)
				done()
				if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
					cancel(fmt.Errorf("store %s: revoking a lease that does not exist: %w", m.Store.Name, err))
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
