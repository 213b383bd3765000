package etcdv3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// member is one endpoint and the connection to it.
type member struct {
	endpoint string
	config   *Config
	tls      **tls.Config

	mu       sync.Mutex
	client   *clientv3.Client // nil until it is used, and after it was silent
	answered time.Time        // when it answered last
}

// connect returns the connection. With a user it asks for a token, so it may take as long as a request.
func (m *member) connect(ctx context.Context) (*clientv3.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		return m.client, nil
	}
	ctx, done := context.WithTimeout(ctx, m.config.Timeout)
	defer done()
	dialing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	config := clientv3.Config{
		Context: dialing, Endpoints: []string{m.endpoint}, Username: m.config.Username, Password: m.config.Password,
		DialTimeout:        m.config.Timeout,
		MaxCallSendMsgSize: valueBytes, // the server limits requests
		MaxCallRecvMsgSize: valueBytes,
		DialOptions:        []grpc.DialOption{grpc.WithDefaultCallOptions(limitFields(mostFields))},
		// the second with another token; beyond that this package retries, so that it can say why
		MaxUnaryRetries: 2,
		Logger:          zap.NewNop(),
	}
	if strings.HasPrefix(m.endpoint, "https://") {
		config.TLS = *m.tls
	}
	interrupted := context.AfterFunc(ctx, cancel)
	client, err := clientv3.New(config)
	if !interrupted() {
		if err == nil {
			_ = client.Close() // no request waits for it any more
		}
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	m.client = client
	return client, nil
}

// call makes one request. When the member is silent for as long as that may take, the connection is given up, and the
// next use makes another one: one that is lost need not break by itself for a quarter of an hour, and one that could
// not be made is not tried again for minutes. Pings would detect it as well, but early servers close connections that
// send them.
func (m *member) call(ctx context.Context, request func(context.Context, *clientv3.Client) (*pb.ResponseHeader,
	error)) (*pb.ResponseHeader, error) {
	client, err := m.connect(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, m.config.Timeout)
	defer cancel()
	start := time.Now()
	header, err := request(limited, client)
	for n := 0; n < moreTokens && tokenForgotten(m.config, err) && pauseBefore(limited, 0) == nil; n++ {
		header, err = request(limited, client)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.answered = time.Now()
	case m.client == client && m.answered.Before(start) && ctx.Err() == nil && finalError(err) == nil:
		_ = client.Close() // it is of no use any more
		m.client = nil
	}
	return header, err
}

// moreTokens is how often a request is made again whose token is refused. The client gets a new one for each, but
// shares it with the requests beside: one of them may have put an older token in its place.
const moreTokens = 4

// tokenForgotten reports whether a member refused a token, which says nothing against the member: nothing was done, and
// with another token it will be.
func tokenForgotten(config *Config, err error) bool {
	switch rpctypes.Error(err) {
	case rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision:
		return true
	case rpctypes.ErrUserEmpty: // the token was asked for while authentication was off
		return config.Username != ""
	}
	return false
}

// Close ends all connections.
func (c *Client) Close() error {
	var errs []error
	for _, m := range c.members {
		m.mu.Lock()
		if m.client != nil {
			errs = append(errs, m.client.Close())
			m.client = nil
		}
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// next is the member to ask, and its number.
func (c *Client) next() (int, *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.members[c.current]
}

// giveUp moves on to the next member, unless another request did.
func (c *Client) giveUp(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != i || len(c.members) == 1 {
		return
	}
	c.current = (i + 1) % len(c.members)
	c.tell(fmt.Sprintf("%s: %v; going on with %s", c.members[i].endpoint, err, c.members[c.current].endpoint))
}

// mostNotes are kept: a cluster may be sick for weeks.
const mostNotes = 10

// tell adds a note. It is called with the lock held.
func (c *Client) tell(note string) {
	if c.config.Log != nil {
		c.config.Log(note)
	}
	if slices.Contains(c.notes, note) {
		return
	}
	if len(c.notes) == mostNotes {
		c.untold++
		return
	}
	c.notes = append(c.notes, note)
}

// Notes takes what happened since the last time: each member that was left and why, and what a reader should know about
// a store that was read without a quorum.
func (c *Client) Notes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.notes
	if c.untold > 0 {
		notes = append(notes, fmt.Sprintf("members were left %d more times", c.untold))
	}
	if c.config.Serializable && c.cluster != 0 {
		notes = append(notes, fmt.Sprintf("read as %s knows it, without asking the others: newer changes may be "+
			"missing", c.members[c.current].endpoint))
	}
	c.notes, c.untold = nil, 0
	return notes
}

// OtherClusterError: not all endpoints of a store are of the same etcd cluster.
type OtherClusterError struct {
	Endpoint, Known           string
	ClusterID, KnownClusterID uint64
}

func (e *OtherClusterError) Error() string {
	if e.ClusterID == 0 {
		return fmt.Sprintf("%s answers without the id of an etcd cluster, and %s is a member of %x: the store was "+
			"replaced, or they are two", e.Endpoint, e.Known, e.KnownClusterID)
	}
	if e.Endpoint == e.Known {
		return fmt.Sprintf("%s was a member of the etcd cluster %x and is now one of %x: the store was replaced",
			e.Endpoint, e.KnownClusterID, e.ClusterID)
	}
	return fmt.Sprintf("%s is a member of the etcd cluster %x, and %s of %x: they are two stores", e.Known,
		e.KnownClusterID, e.Endpoint, e.ClusterID)
}

// Hint is the way out.
func (e *OtherClusterError) Hint() string {
	return "the endpoints of a store must be members of one etcd: etcdctl member list names them"
}

// sameCluster refuses an answer of another etcd than the one that answered first. What speaks etcd's protocol and is
// none may have no id: it is another store than one that has. nil is of a call that has no answer.
func (c *Client) sameCluster(endpoint string, header *pb.ResponseHeader) error {
	id := header.GetClusterId()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case header == nil || id == c.cluster && c.known != "":
		return nil
	case c.known == "":
		c.cluster, c.known = id, endpoint
		return nil
	}
	return &OtherClusterError{Endpoint: endpoint, Known: c.known, ClusterID: id, KnownClusterID: c.cluster}
}

// Forget makes the client take whatever etcd answers next for the store, as in the beginning: one that was replaced is
// not refused any more.
func (c *Client) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster, c.known, c.met = 0, "", false
}

// unknownLeader stands for the leader where it may not be asked for.
const unknownLeader = math.MaxUint64

// greeting bounds how long the members are waited for that do not say who they are. What they answer later is looked
// at.
const greeting = 3 * time.Second

// memberStatus is the status of a member.
type memberStatus struct {
	endpoint string
	answer   *pb.StatusResponse // nil when it did not answer
	err      error
}

// Version is what a member answers to a request for its version.
type Version struct {
	Endpoint string
	Version  string // "" when Err is set, and of a member that does not say it to this client
	Err      error
}

// Versions asks every member for its version, which needs no quorum.
func (c *Client) Versions(ctx context.Context) []Version {
	var list []Version
	for _, s := range c.statuses(ctx) {
		list = append(list, Version{Endpoint: s.endpoint, Version: s.answer.GetVersion(), Err: s.err})
	}
	return list
}

// statuses asks all members, which need no quorum for the answer. Who may not ask learns no more than the ids.
func (c *Client) statuses(ctx context.Context) []memberStatus {
	ctx, cancel := context.WithTimeout(ctx, min(c.config.Timeout, greeting))
	defer cancel()
	result := make([]memberStatus, len(c.members))
	var group sync.WaitGroup
	for i, m := range c.members {
		result[i].endpoint = m.endpoint
		group.Go(func() {
			_, result[i].err = m.call(ctx, func(ctx context.Context, client *clientv3.Client) (*pb.ResponseHeader,
				error) {
				conn := client.ActiveConnection()
				answer, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
				if status.Code(err) == codes.PermissionDenied && c.config.Username != "" {
					var known *pb.AuthenticateResponse
					known, err = pb.NewAuthClient(conn).Authenticate(
						ctx, &pb.AuthenticateRequest{Name: c.config.Username, Password: c.config.Password})
					answer = &pb.StatusResponse{Header: known.GetHeader(), Leader: unknownLeader}
				} else if err != nil && finalError(err) != nil { // it runs, and does not return its identity
					answer, err = &pb.StatusResponse{Leader: unknownLeader}, nil
				}
				if err != nil {
					return nil, err
				}
				result[i].answer = answer
				return answer.Header, nil
			})
		})
	}
	group.Wait()
	return result
}

// alarms of an etcd that a reader should know about. Servers name them since 3.4.
var alarms = []struct{ name, means string }{
	{"NOSPACE", "this etcd is full (alarm NOSPACE): nothing can be written"},
	{"CORRUPT", "this etcd has found its members to differ (alarm CORRUPT): what one of them holds need not be what " +
		"another does"},
}

// meet identifies the members once, so that endpoints of two stores are noticed before anything is read, and
// begins with one that answers.
func (c *Client) meet(ctx context.Context) error {
	c.meeting.Lock()
	defer c.meeting.Unlock()
	c.mu.Lock()
	met := c.met
	c.mu.Unlock()
	if met {
		return nil
	}
	statuses := c.statuses(ctx)
	if only := statuses[0]; len(statuses) == 1 && only.answer.GetIsLearner() {
		only.answer.IsLearner = false // there is no other
	}
	var first int
	for first < len(statuses) && (statuses[first].answer == nil || statuses[first].answer.IsLearner) {
		first++
	}
	for _, s := range statuses {
		if err := c.sameCluster(s.endpoint, s.answer.GetHeader()); err != nil {
			return err
		}
	}
	if ctx.Err() != nil || first == len(statuses) {
		return ctx.Err() // the request itself fails with the reason
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = true
	for _, alarm := range alarms {
		if slices.ContainsFunc(statuses, func(s memberStatus) bool {
			return slices.ContainsFunc(s.answer.GetErrors(), func(e string) bool {
				return strings.Contains(e, alarm.name)
			})
		}) {
			c.tell(alarm.means)
		}
	}
	for ; c.current < first; c.current++ {
		reason := "it is a learner"
		if err := statuses[c.current].err; err != nil {
			reason = plainReason(err)
		}
		c.tell(fmt.Sprintf("%s: %s; going on with %s", c.members[c.current].endpoint, reason,
			c.members[c.current+1].endpoint))
	}
	return nil
}

// Same reports whether another client reads the same store, by whatever address: the ids of an etcd say so, or of a
// copy of it, and what both hold below the prefix. Errors: one of them does not answer.
func (c *Client) Same(ctx context.Context, other *Client, prefix string) (bool, error) {
	sample := func(c *Client, revision int64) (etcd.Page, error) {
		return c.Page(ctx, etcd.Request{From: prefix, To: clientv3.GetPrefixRangeEnd(prefix), Revision: revision,
			LimitKeys: 1, KeysOnly: true})
	}
	mine, err := sample(c, 0)
	if err != nil {
		return false, err
	}
	if _, err := sample(other, 0); err != nil {
		return false, err
	}
	c.mu.Lock()
	id := c.cluster
	c.mu.Unlock()
	other.mu.Lock()
	otherID := other.cluster
	other.mu.Unlock()
	if id != otherID || len(mine.Entries) == 0 {
		return false, nil
	}
	theirs, err := sample(other, mine.Revision)
	var refused *UnreachableError
	switch {
	case errors.As(err, &refused) || errors.Is(err, etcd.ErrCompacted):
		return false, nil // it does not know the revision
	case err != nil:
		return false, err
	}
	return theirs.RangeKeys == mine.RangeKeys && len(theirs.Entries) == 1 &&
		string(theirs.Entries[0].Key) == string(mine.Entries[0].Key) &&
		theirs.Entries[0].ModRevision == mine.Entries[0].ModRevision, nil
}
