package local

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// saver bounds what a store may send as its snapshot.
type saver struct {
	// spare is how much more than its size a store may send, beside a quarter of that: it grows meanwhile.
	spare int64
	// step has to come within patience: a stream that stands still, or drips, has no end.
	step     int64
	patience time.Duration
	// free is the size of the file system of a directory, and how much of that is free.
	free func(directory string) (size, free int64, err error)
}

func bounded() saver {
	return saver{spare: 256 << 20, step: 1 << 20, patience: time.Minute, free: space}
}

// leastFree is the share of a file system that a snapshot leaves free, in percent: kubelets evict pods below it. Where
// hardly more is free beforehand, a snapshot takes at most a tenth of that.
const leastFree = 10

// messageBytes bounds one message of a store: etcd sends pieces of 32 KiB.
const messageBytes = 4 << 20

// snapshot saves a store; a snapshot that is there is replaced when the new one is whole.
func (h *Host) snapshot(ctx context.Context, s *plan.Store) error {
	if err := filetree.Private(h.Snapshots); err != nil {
		return err
	}
	return Save(ctx, s, h.Snapshots)
}

// Save saves a snapshot of a store as the file STORE.db of a directory, from the first of its members that sends one
// that is whole. Errors: about each member; the file is as it was then.
func Save(ctx context.Context, s *plan.Store, directory string) error {
	var problems []error
	for _, endpoint := range s.Endpoints {
		config := clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
			MaxCallRecvMsgSize: messageBytes}
		if s.TLS != nil {
			info := transport.TLSInfo{TrustedCAFile: s.TLS.CA, CertFile: s.TLS.Cert, KeyFile: s.TLS.Key}
			client, err := info.ClientConfig()
			if err != nil {
				return fmt.Errorf("store %s: %w", s.Name, err)
			}
			config.TLS = client
		}
		err := bounded().save(ctx, config, filepath.Join(directory, s.Name+".db"))
		if err == nil {
			return nil
		}
		problems = append(problems, fmt.Errorf("store %s, %s: %w", s.Name, endpoint, err))
	}
	return errors.Join(problems...)
}

// save writes the snapshot of one member to a file, or leaves that as it was.
func (s saver) save(ctx context.Context, config clientv3.Config, file string) error {
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	status, err := sizeOf(ctx, client)
	if err != nil {
		return fmt.Errorf("reading its size: %w", err)
	}
	limit := status.DbSize + status.DbSize/4 + s.spare
	if status.DbSize < 0 || limit < 0 {
		return fmt.Errorf("says that it has a size of %d bytes", status.DbSize)
	}
	size, free, err := s.free(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("reading the free space of %s: %w", filepath.Dir(file), err)
	}
	// A file system whose size is not known is not judged.
	room := max(free-size/100*leastFree, free/10)
	if size > 0 && room < status.DbSize {
		return fmt.Errorf("the store has %d MiB, and with a snapshot of it less than %d %% of the file system of %s "+
			"would be free (%d MiB are): another directory, --snapshots, or a defragmented store takes less",
			status.DbSize>>20, leastFree, filepath.Dir(file), free>>20)
	}
	tooMuch := fmt.Errorf("sends more than %d bytes, and says that it has %d", limit, status.DbSize)
	if size > 0 && room < limit {
		limit = room
		tooMuch = fmt.Errorf("sends more than %d bytes, and says that it has %d: less than %d %% of the file system "+
			"of %s would be free", limit, status.DbSize, leastFree, filepath.Dir(file))
	}
	return filetree.Replace(file, 0o600, func(w *bufio.Writer) error {
		return s.stream(ctx, client, w, limit, tooMuch)
	})
}

// sizeOf asks without the retries of the client, which hide why a member is not reached.
func sizeOf(ctx context.Context, client *clientv3.Client) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
}

// stream copies what a member sends, up to a limit, and makes sure by the digest at its end that it is all.
func (s saver) stream(ctx context.Context, client *clientv3.Client, w io.Writer, limit int64, tooMuch error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := fmt.Errorf("sends less than %d bytes in %s", s.step, s.patience)
	watch := time.AfterFunc(s.patience, func() { cancel(slow) })
	defer watch.Stop()
	answer, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return streamError(ctx, err)
	}
	defer answer.Snapshot.Close()
	digest, last, written := sha256.New(), []byte(nil), int64(0)
	piece := make([]byte, 1<<16)
	for {
		n, err := answer.Snapshot.Read(piece)
		if (written+int64(n))/s.step > written/s.step {
			watch.Reset(s.patience)
		}
		if written += int64(n); written > limit {
			return tooMuch
		}
		if _, err := w.Write(piece[:n]); err != nil {
			return err
		}
		last = append(last, piece[:n]...)
		if over := len(last) - sha256.Size; over > 0 {
			digest.Write(last[:over])
			last = append(last[:0], last[over:]...)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return streamError(ctx, err)
		}
	}
	if string(digest.Sum(nil)) != string(last) {
		return fmt.Errorf("sends %d bytes that do not end with their SHA-256: they are not all of it", written)
	}
	return nil
}

// streamError is why a stream ended: what ended it, if that was not the store.
func streamError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
