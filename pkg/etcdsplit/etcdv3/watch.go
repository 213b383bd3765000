package etcdv3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// Watch calls seen with the changes of every revision from the given one on, to keys with the prefix, in order, and with no
// changes when the store reports that there were none up to a revision. It goes on with another member when one fails, and
// returns only an error: ctx's; ErrCompacted, wrapped, when changes are gone that were not seen yet; seen's own; or, after
// patience without an answer of any member, the last of theirs.
func (c *Client) Watch(ctx context.Context, prefix string, from int64, patience time.Duration, seen func(revision int64, changes []etcdsplit.Change) error) error {
	answered := time.Now()
	for attempt := 0; ; attempt++ {
		err := c.watchMember(ctx, prefix, from, func(revision int64, changes []etcdsplit.Change) error {
			from, answered, attempt = revision+1, time.Now(), 0
			return seen(revision, changes)
		})
		var stop *stopError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stop):
			return stop.err
		case errors.Is(err, etcdsplit.ErrCompacted):
			return err
		case time.Since(answered) > patience:
			return fmt.Errorf("watching from revision %d: %w", from, err)
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// stopError carries an error of the caller's callback out.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

// silence after which a member is taken for dead: servers report progress at least every 10 minutes when they are asked to,
// and this package asks for it every minute.
const (
	askProgress = time.Minute
	probeEvery  = 5 * time.Second
	silence     = 3 * time.Minute
)

func (c *Client) watchMember(parent context.Context, prefix string, from int64, seen func(int64, []etcdsplit.Change) error) error {
	m, i, err := c.member()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(parent))
	defer cancel()
	fail := func(err error) error {
		if parent.Err() == nil {
			c.giveUp(i, err)
		}
		return fmt.Errorf("%s: %w", c.config.Endpoints[i], err)
	}
	// A watch on a member that is gone waits for it for ever, so ask first whether it is there, and then again and again.
	if err := c.probe(ctx, m, prefix); err != nil {
		return fail(errors.New(plainReason(err)))
	}
	gone := make(chan error, 1)
	go func() {
		for pauseFor(ctx, min(probeEvery, c.config.Timeout)) == nil {
			if err := c.probe(ctx, m, prefix); err != nil && ctx.Err() == nil {
				gone <- err
				return
			}
		}
	}()
	watcher := clientv3.NewWatcher(m)
	defer watcher.Close()
	hanging := time.AfterFunc(c.config.Timeout, cancel)
	responses := watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	if !hanging.Stop() {
		return fail(errors.New("it does not open a watch"))
	}
	ask := time.NewTicker(askProgress)
	defer ask.Stop()
	quiet := time.NewTimer(c.config.Timeout) // until the watch is there
	defer quiet.Stop()
	for {
		select {
		case response, open := <-responses:
			switch {
			case !open:
				return fail(errors.New("the watch was closed"))
			case response.CompactRevision > 0:
				return fmt.Errorf("%s: watching from revision %d: %w", c.config.Endpoints[i], from, etcdsplit.ErrCompacted)
			case response.Err() != nil:
				return fail(errors.New(plainReason(response.Err())))
			}
			quiet.Reset(silence)
			revision := response.Header.Revision
			if n := len(response.Events); n > 0 {
				revision = response.Events[n-1].Kv.ModRevision // a watch that catches up has more to come below the header's
			} else if !response.IsProgressNotify() {
				continue // the answer that the watch was created
			}
			if err := seen(revision, changesOf(response.Events)); err != nil {
				return &stopError{err}
			}
		case err := <-gone:
			return fail(errors.New(plainReason(err)))
		case <-ask.C:
			if err := watcher.RequestProgress(ctx); err != nil && ctx.Err() == nil {
				return fail(errors.New(strings.TrimSpace(plainReason(err))))
			}
		case <-quiet.C:
			return fail(errors.New("it has been silent for too long"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// probe asks a member for a key, any key.
func (c *Client) probe(ctx context.Context, m *clientv3.Client, key string) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	_, err := pb.NewKVClient(m.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(key), KeysOnly: true, Serializable: true})
	return err
}

func changesOf(events []*clientv3.Event) []etcdsplit.Change {
	changes := make([]etcdsplit.Change, len(events))
	for i, e := range events {
		changes[i] = etcdsplit.Change{Entry: *entryOf(e.Kv), Deleted: e.Type == mvccpb.DELETE}
	}
	return changes
}
