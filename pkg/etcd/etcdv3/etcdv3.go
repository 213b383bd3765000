// Package etcdv3 puts a live etcd behind the scan's Pager, and behind the store of a move. Only a Writer writes.
package etcdv3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
)

// Config is how to connect to a store. Only Endpoints is required.
type Config struct {
	Endpoints []string // URLs; the first that answers is used until it fails
	CAFile    string   // what the servers' certificates are signed by; "" with https: the machine's own authorities
	CertFile  string   // of the client, with KeyFile; both are read again for every connection
	KeyFile   string
	Username  string
	Password  string

	// Serializable reads the newest revision from the member asked, without asking the others: it works without a
	// quorum and may be behind. Pages of a fixed revision are always read so; what they hold cannot change.
	Serializable  bool
	KeysPerSecond int              // 0: as fast as the server answers
	Timeout       time.Duration    // of one request to one member; default 10 s
	Attempts      int              // of one request, over all members; default 3, and at least 2 per member
	Log           func(msg string) // called with every failover; nil: no log
}

// Client is a store behind the scan's Pager. Safe for concurrent use.
type Client struct {
	config  Config
	tls     *tls.Config
	limiter *rate.Limiter
	slow    slowness
	members []*member // by endpoint

	meeting sync.Mutex // held while the members are identified
	mu      sync.Mutex // guards what follows
	met     bool       // at least one of them was identified
	current int        // the member to ask next
	cluster uint64     // the id of the etcd that answers; 0 until then
	known   string     // the endpoint that returned it
	notes   []string   // what happened since they were taken
	untold  int        // notes beyond mostNotes
}

var (
	_ etcd.Pager = (*Client)(nil)
	_ etcd.Noter = (*Client)(nil)
)

// Open prepares the client; nothing is sent before the first page is read.
// Errors: bad endpoints; certificate files that cannot be read, or do not fit each other.
func Open(config Config) (*Client, error) {
	if len(config.Endpoints) == 0 {
		return nil, errors.New("no endpoint given")
	}
	c := &Client{config: config}
	for _, endpoint := range config.Endpoints {
		c.members = append(c.members, &member{endpoint: endpoint, config: &c.config, tls: &c.tls})
	}
	if c.config.Timeout == 0 {
		c.config.Timeout = 10 * time.Second
	}
	c.slow.patience = patientTimeouts * c.config.Timeout
	c.config.Attempts = max(config.Attempts, 3, 2*len(config.Endpoints))
	if config.KeysPerSecond > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(config.KeysPerSecond), config.KeysPerSecond)
	}
	secure := false
	for _, endpoint := range config.Endpoints {
		switch scheme, host, ok := strings.Cut(endpoint, "://"); {
		case !ok || host == "" || (scheme != "http" && scheme != "https"):
			return nil, fmt.Errorf("endpoint %q: want http://HOST:PORT or https://HOST:PORT",
				endpoint[strings.LastIndex(endpoint, "@")+1:])
		case strings.Contains(host, "@"): // each error about it would have the password
			return nil, fmt.Errorf("endpoint %s://...%s: has a user; want nothing but scheme, host and port", scheme,
				host[strings.LastIndex(host, "@"):])
		case scheme == "https":
			secure = true
		}
	}
	if !secure {
		return c, nil
	}
	var err error
	c.tls, err = tlsConfig(config)
	return c, err
}

func tlsConfig(config Config) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if config.CAFile != "" {
		data, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("reading the CA: %s: holds no PEM certificate", config.CAFile)
		}
	}
	if config.CertFile == "" && config.KeyFile == "" {
		return t, nil
	}
	if config.CertFile == "" || config.KeyFile == "" {
		return nil, errors.New("a client certificate needs both its certificate and its key file")
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate %s: %w", config.CertFile, err)
		}
		return &pair, nil
	}
	// Read for every connection: a watch outlives its certificate.
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	_, err := load()
	return t, err
}

// Page reads a page. It tries every member before it fails. A store of which pages bring too little for too long is
// given up.
func (c *Client) Page(ctx context.Context, r etcd.Request) (etcd.Page, error) {
	request := &pb.RangeRequest{
		Key: []byte(r.From), RangeEnd: []byte(r.To), Limit: int64(r.LimitKeys), Revision: r.Revision,
		KeysOnly:     r.KeysOnly,
		Serializable: r.Revision > 0 || c.config.Serializable,
	}
	if r.To == "" {
		request.RangeEnd = []byte{0}
	}
	limitBytes := pageBytes
	if r.LimitKeys == 1 {
		limitBytes = valueBytes
	}
	var response *pb.RangeResponse
	began := time.Now()
	err := c.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		var err error
		response, err = pb.NewKVClient(m.ActiveConnection()).Range(ctx, request, grpc.MaxCallRecvMsgSize(limitBytes),
			limitFields(r.LimitKeys+fieldsBeside))
		return response.GetHeader(), err
	})
	if err != nil {
		return etcd.Page{}, err
	}
	page := etcd.Page{Revision: r.Revision, More: response.More, RangeKeys: response.Count,
		Entries: make([]etcd.Entry, len(response.Kvs))}
	if r.Revision == 0 {
		page.Revision = response.Header.GetRevision()
	}
	for i, kv := range response.Kvs {
		page.Entries[i] = etcd.Entry{
			Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
			Version: kv.Version, Lease: kv.Lease,
		}
	}
	if err := conforms(&page, r, response.Header.GetRevision()); err != nil {
		return etcd.Page{}, err
	}
	if page.More {
		if err := c.slow.page(time.Since(began), len(page.Entries), response.Size()); err != nil {
			return etcd.Page{}, err
		}
	}
	if err := c.pace(ctx, len(page.Entries)); err != nil {
		return etcd.Page{}, err
	}
	return page, nil
}

// conforms refuses an answer that no etcd gives: what is in it would count as being in the store, and what is not as
// gone.
func conforms(page *etcd.Page, r etcd.Request, newest int64) error {
	if newest < max(page.Revision, 1) {
		return fmt.Errorf("the answer to %q up to %q at revision %d is of revision %d: the server is not a conforming "+
			"etcd", r.From, r.To, r.Revision, newest)
	}
	for i := range page.Entries {
		if e := &page.Entries[i]; e.ModRevision > page.Revision {
			return fmt.Errorf("the answer to %q up to %q at revision %d has %q of revision %d: the server is not a "+
				"conforming etcd", r.From, r.To, page.Revision, e.Key, e.ModRevision)
		}
	}
	return page.Check(r.From, r.To)
}

// pace waits until so many keys may have been read or written.
func (c *Client) pace(ctx context.Context, keys int) error {
	if c.limiter == nil {
		return nil
	}
	for left := keys; left > 0; left -= c.limiter.Burst() {
		if err := c.limiter.WaitN(ctx, min(left, c.limiter.Burst())); err != nil {
			return err
		}
	}
	return nil
}

// try calls one member after the other until one of them answers, with growing pauses.
func (c *Client) try(ctx context.Context, call func(context.Context, *clientv3.Client) (*pb.ResponseHeader,
	error)) error {
	if err := c.meet(ctx); err != nil {
		return err
	}
	var reasons []string
	began := time.Now()
	for attempt, lags := 0, 0; attempt < c.config.Attempts; attempt++ {
		if n := attempt + lags; n >= len(c.members) {
			if err := pauseBefore(ctx, n-len(c.members)); err != nil {
				return err
			}
		}
		i, m := c.next()
		header, err := m.call(ctx, call)
		if err == nil {
			return c.sameCluster(m.endpoint, header)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if final := finalError(err); final != nil {
			return fmt.Errorf("%s: %w", m.endpoint, final)
		}
		if status.Code(err) == codes.OutOfRange && time.Since(began) < c.config.Timeout {
			attempt, lags = attempt-1, lags+1 // the member runs, and gets the revision soon
		}
		reasons = append(reasons, m.endpoint+": "+plainReason(err))
		c.giveUp(i, errors.New(plainReason(err)))
	}
	unreachable := &UnreachableError{Reasons: lastOfEach(append(reasons, c.handshakeReasons(ctx)...))}
	for _, s := range c.statuses(ctx) {
		if s.answer != nil && s.answer.Leader == 0 {
			unreachable.NoLeader = true
			unreachable.Reasons = append(unreachable.Reasons, s.endpoint+": it runs and has no leader")
		}
	}
	return unreachable
}

// handshakeReasons asks each https endpoint for a bare handshake. With TLS 1.3 a server refuses a client only after the
// client believes that it is connected, and what gRPC reports then is a broken pipe.
func (c *Client) handshakeReasons(ctx context.Context) []string {
	var reasons []string
	for _, endpoint := range c.config.Endpoints {
		host, ok := strings.CutPrefix(endpoint, "https://")
		if !ok {
			continue
		}
		dialer := tls.Dialer{Config: c.tls, NetDialer: &net.Dialer{Timeout: 2 * time.Second}}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			if err = conn.SetReadDeadline(time.Now().Add(time.Second)); err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			conn.Close()
		}
		if err != nil && strings.Contains(err.Error(), "tls: ") {
			reasons = append(reasons, endpoint+": "+err.Error())
		}
	}
	return reasons
}

// UnreachableError: no member answered a request. It holds the error of each.
type UnreachableError struct {
	Reasons []string
	// NoLeader: a member runs without quorum: its data can be read with Config.Serializable.
	NoLeader bool
}

func (e *UnreachableError) Error() string {
	return "no member answered: " + strings.Join(e.Reasons, "; ")
}

// Hint is the way out of the most specific of the reasons; "" for none.
func (e *UnreachableError) Hint() string { return hint(strings.Join(e.Reasons, "\n")) }

// RefusedError: a member refused a request that the others would refuse as well.
type RefusedError struct {
	Reason string
	cause  error // nil where no caller asks for it
}

// Unwrap returns move.ErrFull where the store is full.
func (e *RefusedError) Unwrap() error { return e.cause }

func (e *RefusedError) Error() string { return e.Reason }

// Hint is the way out; "" for none.
func (e *RefusedError) Hint() string { return hint(e.Reason) }

func hint(reasons string) string {
	for _, known := range []struct{ sign, hint string }{
		{"signed by unknown authority", "the CA file does not belong to this etcd; on a kubeadm machine it is " +
			"/etc/kubernetes/pki/etcd/ca.crt, not the cluster's ca.crt"},
		{"certificate is valid for", "use a host name or address that the server's certificate names"},
		{"relies on legacy Common Name", "the server's certificate names no host in a SAN: issue one that does, or " +
			"check a snapshot instead"},
		{"certificate required", "this etcd wants a client certificate: give cert and key"},
		{"bad certificate", "the client certificate is not signed by the CA that this etcd trusts"},
		{"unknown certificate authority", "the client certificate is not signed by the CA that this etcd trusts"},
		{"certificate has expired", "renew the certificate, or set the clock"},
		{"first record does not look like a TLS handshake",
			"this etcd does not speak TLS: write http:// instead of https://"},
		{"server preface", "this may be an etcd with TLS: write https:// instead of http://"},
		{"not supported for learner", "this member is a learner and answers next to nothing: name members that vote"},
		{"too slowly", "give the store more time with a longer --timeout, or check a snapshot instead"},
		{"space exceeded", "this etcd is full and takes no writes (alarm NOSPACE): compact and defragment it or " +
			"raise --quota-backend-bytes, then etcdctl alarm disarm"},
		{"corrupt cluster", "this etcd has found its members to differ (alarm CORRUPT) and takes no writes; compare " +
			"the members' files with --snapshot"},
		{"request is too large", "raise --max-request-bytes of this etcd to that of the etcd which holds the values " +
			"already"},
		{"too many operations", "raise --max-txn-ops of this etcd to its default, 128, or more"},
		{"user name is empty", "this etcd wants a user and a password"},
		{"authentication failed", "the user or the password is wrong"},
		{"future revision", "the members lag behind, or the store was restored from a backup meanwhile: try again"},
		{"connection refused", "nothing listens there: check host, port and whether the member runs"},
		{"no such host", "check the host name"},
	} {
		if strings.Contains(reasons, known.sign) {
			return known.hint
		}
	}
	return ""
}

// lastOfEach keeps the order of first appearance and drops repetitions.
func lastOfEach(reasons []string) []string {
	seen := map[string]bool{}
	var kept []string
	for _, r := range reasons {
		if !seen[r] {
			seen[r] = true
			kept = append(kept, r)
		}
	}
	return kept
}

// finalError translates the errors that no other member answers better; nil for those worth another try.
func finalError(err error) error {
	switch {
	case rpctypes.Error(err) == rpctypes.ErrCompacted:
		return etcd.ErrCompacted
	case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		return etcd.ErrPageTooLarge
	case rpctypes.Error(err) == rpctypes.ErrPermissionDenied:
		return etcd.ErrDenied
	case rpctypes.Error(err) == rpctypes.ErrInvalidAuthToken, rpctypes.Error(err) == rpctypes.ErrAuthOldRevision:
		return nil // the next attempt gets another token
	case strings.Contains(err.Error(), "not supported for learner"):
		return nil // but it is for those that vote
	case rpctypes.Error(err) == rpctypes.ErrLeaseNotFound:
		return move.ErrLeaseGone
	case rpctypes.Error(err) == rpctypes.ErrNoSpace:
		return &RefusedError{plainReason(err), move.ErrFull}
	case strings.Contains(err.Error(), "corrupt cluster"):
		return &RefusedError{Reason: plainReason(err)}
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.Aborted,
		codes.ResourceExhausted, codes.Canceled:
		return nil
	case codes.OutOfRange: // a member that lags behind does not have the revision yet
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return &RefusedError{Reason: plainReason(err)}
}

// plainReason is the innermost of what gRPC wraps a reason into.
func plainReason(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	for _, wrapper := range []string{"connection error: desc = ", "transport: authentication handshake failed: ",
		"transport: Error while dialing: "} {
		if i := strings.Index(text, wrapper); i >= 0 {
			text = text[i+len(wrapper):]
		}
		text = strings.Trim(text, `"`)
	}
	return text
}

// pauseBefore waits before the n-th repetition: 100 ms, doubled each time up to 3 s, more or less a half.
func pauseBefore(ctx context.Context, n int) error {
	wait := min(100*time.Millisecond<<min(n, 10), 3*time.Second)
	return pause.For(ctx, wait/2+rand.N(wait))
}

// Cluster is the id of the cluster, as etcdctl prints it.
func (c *Client) Cluster(ctx context.Context) (string, error) {
	if _, err := c.TimeToLive(ctx, 1); err != nil { // every answer has the id, and this one is given to every user
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return strconv.FormatUint(c.cluster, 16), nil
}

// TimeToLive is how many seconds a lease still lasts, at most 0 when it has expired.
func (c *Client) TimeToLive(ctx context.Context, lease int64) (int64, error) {
	var seconds int64
	err := c.try(ctx, func(ctx context.Context, m *clientv3.Client) (*pb.ResponseHeader, error) {
		response, err := pb.NewLeaseClient(m.ActiveConnection()).LeaseTimeToLive(
			ctx, &pb.LeaseTimeToLiveRequest{ID: lease})
		if err == nil {
			seconds = response.TTL
		}
		return response.GetHeader(), err
	})
	if err != nil {
		return 0, fmt.Errorf("reading the lease %x: %w", lease, err)
	}
	return seconds, nil
}
