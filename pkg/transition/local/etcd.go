package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// memberState is what a member says of itself.
type memberState struct {
	endpoint string
	err      error // why it says nothing
	*clientv3.StatusResponse
	release, minor  string
	cluster         string // the minor on which the members have agreed, as it knows it; "" while they have not
	lowers          bool   // a downgrade is under way
	members, others int    // of the cluster; those that are learners
}

const (
	memberPatience = 10 * time.Second
	// statusBytes is the largest answer of a member about itself, or about the others.
	statusBytes = 4 << 20
	// notDecided is what a member says that has started and has not heard yet on which release all agree (etcd's
	// server/etcdserver/api/etcdhttp/version.go).
	notDecided = "not_decided"
)

// askMembers asks each member of a store alone.
func askMembers(ctx context.Context, s *plan.Store, ask func(context.Context, *clientv3.Client, *memberState)) (
	[]memberState, error) {
	secured, err := tlsOf(s)
	if err != nil {
		return nil, err
	}
	states := make([]memberState, len(s.Endpoints))
	for i, endpoint := range s.Endpoints {
		state := &states[i]
		state.endpoint = endpoint
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: secured, Logger: zap.NewNop(),
			DialTimeout: memberPatience, MaxUnaryRetries: 1, MaxCallRecvMsgSize: statusBytes})
		if err != nil {
			state.err = err
			continue
		}
		limited, cancel := context.WithTimeout(ctx, memberPatience)
		state.read(limited, client, secured)
		if state.err == nil && ask != nil {
			ask(limited, client, state)
		}
		cancel()
		client.Close()
	}
	return states, ctx.Err()
}

func tlsOf(s *plan.Store) (*tls.Config, error) {
	if s.TLS == nil {
		return nil, nil
	}
	info := transport.TLSInfo{TrustedCAFile: s.TLS.CA, CertFile: s.TLS.Cert, KeyFile: s.TLS.Key}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.Name, err)
	}
	return config, nil
}

func (m *memberState) read(ctx context.Context, client *clientv3.Client, secured *tls.Config) {
	if m.StatusResponse, m.err = client.Status(ctx, m.endpoint); m.err != nil {
		return
	}
	if m.Header == nil {
		m.err = errNoEtcd
		return
	}
	m.lowers = m.DowngradeInfo.GetEnabled()
	// What the members have agreed on is no part of the status.
	asking := &http.Client{Timeout: memberPatience, CheckRedirect: noRedirect,
		Transport: &http.Transport{TLSClientConfig: secured, DisableKeepAlives: true,
			MaxResponseHeaderBytes: answerBytes}}
	text, err := get(ctx, asking, m.endpoint+"/version")
	var version struct{ Etcdserver, Etcdcluster string }
	if err == nil {
		err = json.Unmarshal(text, &version)
	}
	if err == nil {
		m.release = version.Etcdserver
		m.minor, err = minorOf(m.release)
		if err == nil && version.Etcdcluster != notDecided {
			m.cluster, err = minorOf(version.Etcdcluster)
		}
	}
	if err != nil {
		m.err = fmt.Errorf("%s/version: %w", m.endpoint, err)
	}
}

// errNoEtcd is about an answer without what every answer of an etcd has.
var errNoEtcd = errors.New("its answer does not say whose it is: the server is not a conforming etcd")

func minorOf(release string) (string, error) {
	minor, ok := kubever.ParseEtcd(release)
	if !ok {
		return "", fmt.Errorf("%q is no release of etcd", release)
	}
	return minor.String(), nil
}

// membersAre waits until the members are as a check wants them.
func (h *Host) membersAre(ctx context.Context, m *transition.Members) error {
	return h.wait(ctx, "the members of store "+m.Store.Name+" are not as they should be",
		func(ctx context.Context) error { return membersAre(ctx, m) })
}

func membersAre(ctx context.Context, m *transition.Members) error {
	states, err := askMembers(ctx, &m.Store, func(ctx context.Context, client *clientv3.Client, s *memberState) {
		// what is read is no matter: that it can be shows a leader and a majority, as etcdctl endpoint health does
		if _, s.err = client.Get(ctx, "health"); s.err != nil && !errors.Is(s.err, rpctypes.ErrPermissionDenied) {
			return
		}
		list, err := client.MemberList(ctx)
		if s.err = err; err != nil {
			return
		}
		s.members = len(list.Members)
		for _, member := range list.Members {
			if member.IsLearner {
				s.others++
			}
		}
	})
	if err != nil {
		return err
	}
	var problems []error
	wrong := func(s *memberState, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: "+format, append([]any{s.endpoint}, args...)...))
	}
	for i := range states {
		s := &states[i]
		switch {
		case s.err != nil:
			wrong(s, "%w", s.err)
		case s.id() != states[0].id():
			wrong(s, "is of another cluster than %s", states[0].endpoint)
		case len(s.Errors) > 0:
			wrong(s, "has errors or alarms: %q", s.Errors)
		case s.Leader == 0:
			wrong(s, "has no leader")
		case s.members != len(states) || s.others > 0:
			wrong(s, "is one of %d members, %d of them learners; the spec has %d endpoints, one of each member",
				s.members, s.others, len(states))
		case !slices.Contains(m.Minors, s.minor):
			wrong(s, "is %s, want one of %q", s.release, m.Minors)
		case s.endpoint == m.Member && !isVersion(s.release, m.Version):
			wrong(s, "is %s, want %s", s.release, m.Version)
		case m.Cluster != "" && s.cluster != m.Cluster:
			wrong(s, "the members have agreed on %s, want %s", cmp.Or(s.cluster, "nothing yet"), m.Cluster)
		}
	}
	if m.Member != "" && !slices.Contains(m.Store.Endpoints, m.Member) {
		problems = append(problems, fmt.Errorf("%s: is no endpoint of store %s", m.Member, m.Store.Name))
	}
	return errors.Join(problems...)
}

func (m *memberState) id() uint64 {
	if m.StatusResponse == nil {
		return 0
	}
	return m.Header.GetClusterId()
}

// raiseStore ends a downgrade that is under way, and waits until the members have agreed on the newer minor: they do so
// by themselves.
func (h *Host) raiseStore(ctx context.Context, m *transition.Members) error {
	return h.wait(ctx, "the members of store "+m.Store.Name+" have not agreed on "+m.Cluster,
		func(ctx context.Context) error {
			_, err := askMembers(ctx, &m.Store, func(ctx context.Context, client *clientv3.Client, s *memberState) {
				if s.lowers {
					_, s.err = client.Downgrade(ctx, clientv3.DowngradeCancel, "")
				}
			})
			if err != nil {
				return err
			}
			return membersAre(ctx, m)
		})
}

// lowerStore lets the members agree on the older minor, when they have agreed on the newer one or are about to. It does
// nothing while one of them does not run the newer one: they agree on what all of them run, and one that does not start
// with the newer one is to come back.
func (h *Host) lowerStore(ctx context.Context, m *transition.Members) error {
	older, newer := m.Minors[0], m.Minors[1]
	return h.wait(ctx, "the members of store "+m.Store.Name+" have not agreed on "+older,
		func(ctx context.Context) error {
			states, err := askMembers(ctx, &m.Store, nil)
			if err != nil {
				return err
			}
			all, agreed, under := true, false, false
			var silent []error
			for i := range states {
				s := &states[i]
				if s.err != nil {
					silent = append(silent, fmt.Errorf("%s: %w", s.endpoint, s.err))
				}
				all = all && s.err == nil && s.minor == newer
				agreed = agreed || s.err == nil && s.cluster == newer
				under = under || s.err == nil && s.lowers
			}
			switch {
			case agreed && len(silent) > 0:
				return errors.Join(silent...) // all of them have to agree on it
			case !agreed && !all:
				return nil
			case !under && !agreed:
				return fmt.Errorf("all of them run %s, on which they will agree first", newer)
			case !under:
				return lower(ctx, &m.Store, older)
			}
			for i := range states {
				if s := &states[i]; s.cluster != older || !isVersion(s.StorageVersion, older) {
					return fmt.Errorf("%s: is at %s, and its file at %s", s.endpoint, s.cluster, s.StorageVersion)
				}
			}
			return nil
		})
}

// lower asks the first member that answers, and returns what is still to be waited for.
func lower(ctx context.Context, store *plan.Store, to string) error {
	asked := fmt.Errorf("a downgrade to %s was begun", to)
	_, err := askMembers(ctx, store, func(ctx context.Context, client *clientv3.Client, s *memberState) {
		if s.lowers {
			return
		}
		if _, err := client.Downgrade(ctx, clientv3.DowngradeEnable, to); err != nil &&
			!errors.Is(err, rpctypes.ErrDowngradeInProcess) {
			asked = fmt.Errorf("%s: downgrading: %w", s.endpoint, err)
		}
	})
	if err != nil {
		return err
	}
	return asked
}

// mayComeBack checks that no member has agreed on the newer minor, and that they are not about to: an older one would
// refuse to start. What cannot be asked says nothing against it: it did not agree while it did not run.
func mayComeBack(ctx context.Context, m *transition.Members) error {
	states, err := askMembers(ctx, &m.Store, nil)
	if err != nil {
		return err
	}
	all := true
	for i := range states {
		s := &states[i]
		if s.err == nil && s.cluster == m.Minors[1] {
			return fmt.Errorf("%s: the members have agreed on %s", s.endpoint, s.cluster)
		}
		all = all && s.err == nil && s.minor == m.Minors[1]
	}
	if all {
		return fmt.Errorf("all members run %s, and will agree on it", m.Minors[1])
	}
	return nil
}
