package etcdv3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// ErrReplaced: a store is another one than before: another etcd answers, or its newest revision is older than
// one that was seen. It was restored from a backup, and what was known about it is void.
var ErrReplaced = errors.New("the store was replaced")

// Watch calls seen with the changes of every revision from the given one on, to keys with the prefix, in order, and
// with no changes when the store reports that there were none up to a revision. It goes on with another member when one
// fails, and returns only an error: ctx's; ErrCompacted, wrapped, when changes were compacted that were not seen yet;
// ErrReplaced, wrapped; seen's own; or, after patience without an answer of any member, the last of theirs.
//
// Memory is bounded however much is written and however long seen takes: what was not read yet stays with the
// server.
func (c *Client) Watch(ctx context.Context, prefix string, from int64, patience time.Duration,
	seen func(revision int64, changes []etcd.Change) error) error {
	lost := time.Now()
	for attempt := 0; ; attempt++ {
		start, stood := time.Now(), false
		err := c.watchMember(ctx, prefix, from, func() {
			stood = true
		}, func(revision int64, changes []etcd.Change) error {
			from = revision + 1
			return seen(revision, changes)
		})
		if stood {
			lost = time.Now() // and not before: nothing need have changed for hours
			if time.Since(start) > probeEvery {
				attempt = 0
			}
		}
		var stop *stopError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stop):
			return stop.err
		case errors.Is(err, etcd.ErrCompacted), errors.Is(err, ErrReplaced), errors.Is(err, etcd.ErrDenied):
			return err
		case time.Since(lost) > patience:
			return fmt.Errorf("watching from revision %d: %w", from, err)
		}
		if err := pauseBefore(ctx, attempt); err != nil {
			return err
		}
	}
}

// stopError carries an error of the caller's callback out.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

const (
	probeEvery = 5 * time.Second
	// A watch on which nothing comes may be one to which nothing happens. Every server says so after 10 minutes, and
	// those since 3.3 when they are queried.
	askProgress   = time.Minute
	silence       = 12 * time.Minute
	silenceIfAsks = 3 * askProgress // of a server that answers a request for progress
)

// watchMember watches one member until it fails. It calls there when the watch stands.
func (c *Client) watchMember(parent context.Context, prefix string, from int64, there func(),
	seen func(int64, []etcd.Change) error) error {
	if err := c.meet(parent); err != nil {
		return replaced(err)
	}
	i, m := c.next()
	fail := func(err error) error {
		err = errors.New(strings.TrimSpace(plainReason(err)))
		if parent.Err() == nil {
			c.giveUp(i, err)
		}
		return fmt.Errorf("%s: %w", m.endpoint, err)
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if !c.config.Serializable {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	// A watch on a member that is gone waits for it forever, so probe it first, and then again and
	// again.
	head, err := c.probe(ctx, m, prefix, true)
	if err == nil {
		err = c.sameCluster(m.endpoint, head)
		if err != nil {
			return replaced(err)
		}
		if head.GetRevision() < from-1 { // it lags behind the member that was watched before, or the store went back
			head, err = c.caughtUp(ctx, m, prefix, from-1)
			if err == nil && head.GetRevision() < from-1 {
				return fmt.Errorf("%s: its newest revision is %d, and %d was seen: %w", m.endpoint, head.GetRevision(),
					from-1, ErrReplaced)
			}
		}
	}
	if err != nil {
		if final := finalError(err); errors.Is(final, etcd.ErrDenied) {
			return fmt.Errorf("%s: reading below %q: %w", m.endpoint, prefix, final)
		}
		return fail(err)
	}
	client, err := m.connect(ctx)
	if err != nil {
		return fail(err)
	}
	ended := make(chan error, 2)
	go func() {
		for pause.For(ctx, min(probeEvery, c.config.Timeout)) == nil {
			if _, err := c.probe(ctx, m, prefix, true); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
		}
	}()
	stream, err := openWatch(ctx, cancel, client, c.config.Timeout, &pb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), StartRevision: from,
		ProgressNotify: true, Fragment: true,
	})
	if err != nil {
		return fail(err)
	}
	responses := make(chan *pb.WatchResponse)
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case responses <- response:
			case <-ctx.Done():
				return
			}
		}
	}()
	ask := time.NewTicker(askProgress)
	defer ask.Stop()
	limit := silence
	quiet := time.NewTimer(c.config.Timeout) // until the watch is created
	defer quiet.Stop()
	var held []etcd.Change // of a revision whose other changes are still to come
	for {
		select {
		case r := <-responses:
			if err := c.sameCluster(m.endpoint, r.Header); err != nil {
				return replaced(err)
			}
			switch {
			case r.CompactRevision > 0:
				return fmt.Errorf("%s: watching from revision %d: %w", m.endpoint, from, etcd.ErrCompacted)
			case r.Canceled && strings.Contains(r.CancelReason, "permission denied"):
				return fmt.Errorf("%s: watching %q: %w", m.endpoint, prefix, etcd.ErrDenied)
			case r.Canceled:
				return fail(errors.New("it ends the watch: " + r.CancelReason))
			}
			there()
			// Asked for progress, servers before 3.4.25 and 3.5.8 tell a revision whose changes may still be on their
			// way. That the watch is alive is all that such an answer is taken for; what a server reports of its own
			// accord can be trusted.
			asked := r.WatchId < 0
			if asked {
				limit = silenceIfAsks
			}
			quiet.Reset(limit)
			if r.Created || asked {
				continue
			}
			revision := r.Header.GetRevision()
			fresh, err := changesOf(r.Events, prefix, from)
			if err != nil {
				return fail(err)
			}
			changes := append(held, fresh...)
			held = nil
			if n := len(changes); n > 0 {
				revision = changes[n-1].ModRevision // a watch that catches up has more to come below the header's
			}
			if r.Fragment {
				whole := 0
				for whole < len(changes) && changes[whole].ModRevision < revision {
					whole++
				}
				changes, held = changes[:whole:whole], changes[whole:]
				if size := sizeOf(held); size > valueBytes || len(held) > mostFields {
					return fail(fmt.Errorf("revision %d changes %d keys, of %d bytes so far: the server is not a "+
						"conforming etcd", revision, len(held), size))
				}
				revision--
			}
			if err := seen(revision, changes); err != nil {
				return &stopError{err}
			}
		case err := <-ended:
			return fail(err)
		case <-ask.C:
			request := &pb.WatchRequest{
				RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
			if err := stream.Send(request); err != nil && ctx.Err() == nil {
				return fail(err)
			}
		case <-quiet.C:
			return fail(errors.New("it has been silent for too long"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replaced marks the error of an etcd that is another one than before.
func replaced(err error) error {
	var other *OtherClusterError
	if errors.As(err, &other) {
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	}
	return err
}

// openWatch opens a stream of its own. The client's own watcher would take in whatever comes, however much, and open a
// watch again that ends silently.
func openWatch(ctx context.Context, cancel func(), client *clientv3.Client, timeout time.Duration,
	request *pb.WatchCreateRequest) (pb.Watch_WatchClient, error) {
	hanging := time.AfterFunc(timeout, cancel)
	stream, err := pb.NewWatchClient(client.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(valueBytes))
	if err == nil {
		err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}})
	}
	if !hanging.Stop() {
		return nil, errors.New("it does not open a watch")
	}
	return stream, err
}

// probe reads a key, any key, from a member and returns the header of the response.
func (c *Client) probe(ctx context.Context, m *member, key string, serializable bool) (*pb.ResponseHeader, error) {
	return m.call(ctx, func(ctx context.Context, client *clientv3.Client) (*pb.ResponseHeader, error) {
		response, err := pb.NewKVClient(client.ActiveConnection()).
			Range(ctx, &pb.RangeRequest{Key: []byte(key), KeysOnly: true, Serializable: serializable})
		return response.GetHeader(), err
	})
}

// caughtUp asks a member for its newest revision once it had the time to get the one given. The others are not asked in
// a serializable client, so it waits; else the member itself waits for what they have.
func (c *Client) caughtUp(ctx context.Context, m *member, prefix string, revision int64) (*pb.ResponseHeader, error) {
	began := time.Now()
	for n := 0; ; n++ {
		head, err := c.probe(ctx, m, prefix, c.config.Serializable)
		if err != nil || head.GetRevision() >= revision || !c.config.Serializable ||
			time.Since(began) > c.config.Timeout {
			return head, err
		}
		if err := pauseBefore(ctx, n); err != nil {
			return nil, err
		}
	}
}

// changesOf are the changes of events of a watch. Errors: events that are none of it, in which a key of elsewhere would
// count as one of the prefix.
func changesOf(events []*mvccpb.Event, prefix string, from int64) ([]etcd.Change, error) {
	changes := make([]etcd.Change, len(events))
	for i, e := range events {
		if e.Kv == nil || !bytes.HasPrefix(e.Kv.Key, []byte(prefix)) || e.Kv.ModRevision < from ||
			i > 0 && e.Kv.ModRevision < changes[i-1].ModRevision {
			return nil, fmt.Errorf("the watch of %q from revision %d has an event of no key there, or out of order: "+
				"the server is not a conforming etcd", prefix, from)
		}
		changes[i] = etcd.Change{Entry: *entryOf(e.Kv), Deleted: e.Type == mvccpb.DELETE}
	}
	return changes, nil
}

// sizeOf is how many bytes the keys and values of changes have.
func sizeOf(changes []etcd.Change) (bytes int) {
	for i := range changes {
		bytes += len(changes[i].Key) + len(changes[i].Value)
	}
	return bytes
}
