package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/freeport"
)

// Cluster is an etcd of several members, each of which can be stopped and run again.
type Cluster struct {
	Members []*Server
	client  *clientv3.Client
}

// StartCluster runs a cluster of n members, on loopback and without TLS, until the test ends.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	token := t.TempDir()
	var peers []string
	for i := range n {
		peers = append(peers, fmt.Sprintf("m%d=http://%s", i, FreeAddress(t)))
	}
	for i := range n {
		c.Members = append(c.Members, newServer(t, nil, joining(peers, i, token)))
	}
	c.Run(t)
	return c
}

// Run runs all members, which do not run.
func (c *Cluster) Run(t testing.TB) {
	t.Helper()
	var group sync.WaitGroup
	for _, m := range c.Members {
		group.Go(func() { m.Restart(t) }) // none of them serves before there is a majority
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// joining configures the i-th of the members of a cluster.
func joining(peers []string, i int, token string) func(*embed.Config) {
	return func(config *embed.Config) {
		name, address, _ := strings.Cut(peers[i], "=")
		peer, err := url.Parse(address)
		if err != nil {
			panic(err)
		}
		config.Name, config.InitialCluster, config.InitialClusterToken = name, strings.Join(peers, ","), token
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
		config.TickMs, config.ElectionMs, config.BcryptCost = 50, 500, 4
	}
}

// Endpoints are the members' URLs for clients.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.Members {
		endpoints = append(endpoints, m.Endpoint)
	}
	return endpoints
}

// Client is a bare client of all members.
func (c *Cluster) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	if c.client == nil {
		client, err := clientv3.New(
			clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		c.client = client
	}
	return c.client
}

// Leader is the number of the member that leads. It waits until there is one.
func (c *Cluster) Leader(t testing.TB) int {
	t.Helper()
	leader := -1
	Eventually(t, "a leader", func() bool {
		leader = slices.IndexFunc(c.Members, func(m *Server) bool {
			return m.member != nil && m.member.Etcd.Server.Leader() == m.member.Etcd.Server.MemberID()
		})
		return leader >= 0
	})
	return leader
}

// MoveLeader makes the member lead.
func (c *Cluster) MoveLeader(t testing.TB, to int) {
	t.Helper()
	Eventually(t, "the leader to move", func() bool {
		from := c.Leader(t)
		if from == to {
			return true
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		server := c.Members[from].member.Etcd.Server
		return server.MoveLeader(ctx, uint64(server.MemberID()),
			uint64(c.Members[to].member.Etcd.Server.MemberID())) == nil
	})
}

// AddLearner runs one more member, which learns and does not vote.
func (c *Cluster) AddLearner(t testing.TB) *Server {
	t.Helper()
	address := "http://" + FreeAddress(t)
	added, err := c.Client(t).MemberAddAsLearner(t.Context(), []string{address})
	if err != nil {
		t.Fatal(err)
	}
	var peers []string
	for _, m := range added.Members {
		name := m.Name
		if name == "" {
			name = "learner"
		}
		peers = append(peers, name+"="+m.PeerURLs[0])
	}
	at := slices.Index(peers, "learner="+address)
	configure := joining(peers, at, "")
	learner := newServer(t, nil, func(config *embed.Config) {
		configure(config)
		config.ClusterState = embed.ClusterStateFlagExisting
	})
	learner.Restart(t)
	return learner
}

// FreeAddress is an address on loopback at which nothing listens, another one at each call.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// Eventually waits until the condition holds; the test fails when it does not within a minute.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(time.Minute)
	for !holds() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
