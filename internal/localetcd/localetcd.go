// Package localetcd runs etcd members inside this process: on loopback, on ports that the system chooses, silent, and
// without care for a power failure. It serves the demo and tests.
package localetcd

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// Options of a member. Only Dir is required.
type Options struct {
	Dir string // for its data; the caller removes it
	// CA, Cert and Key are files. With them the member serves TLS and wants client certificates of the CA.
	CA, Cert, Key string
	// Configure changes what a test wants to be different, last of all; nil: nothing.
	Configure func(*embed.Config)
}

// Member is a running etcd of one member.
type Member struct {
	Endpoint string // URL for clients
	Etcd     *embed.Etcd
}

// Start runs a member and waits until it serves.
// Errors: it cannot run, or ctx ended before it served; nothing runs then.
func Start(ctx context.Context, options Options) (*Member, error) {
	config := embed.NewConfig()
	config.Dir = options.Dir
	config.LogLevel = "panic"
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 8 << 30
	client := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	peer := client
	if options.CA != "" {
		client.Scheme = "https"
		config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = options.Cert, options.Key
		config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = options.CA, true
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.Name + "=" + peer.String()
	config.InitialClusterToken = options.Dir // the ids are made of it, and of addresses that are the same for all
	if options.Configure != nil {
		options.Configure(config)
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("starting etcd in %s: %w", options.Dir, err)
	}
	m := &Member{Etcd: etcd, Endpoint: client.Scheme + "://" + etcd.Clients[0].Addr().String()}
	select {
	case <-etcd.Server.ReadyNotify():
		return m, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.Stop()
	return nil, fmt.Errorf("starting etcd in %s: %w", options.Dir, err)
}

// Stop ends the member and returns when nothing of it runs. Its file may then be read.
func (m *Member) Stop() {
	m.Etcd.Close()
	<-m.Etcd.Server.StopNotify()
}

// Put writes the values in the order of their keys.
func (m *Member) Put(ctx context.Context, values map[string][]byte) error {
	return m.use(func(client *clientv3.Client) error {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, err := client.Put(ctx, key, string(values[key])); err != nil {
				return fmt.Errorf("writing %q to %s: %w", key, m.Endpoint, err)
			}
		}
		return nil
	})
}

// Delete removes a key.
func (m *Member) Delete(ctx context.Context, key string) error {
	return m.use(func(client *clientv3.Client) error {
		if _, err := client.Delete(ctx, key); err != nil {
			return fmt.Errorf("deleting %q from %s: %w", key, m.Endpoint, err)
		}
		return nil
	})
}

// use returns a client that speaks to the server without a connection.
func (m *Member) use(f func(*clientv3.Client) error) error {
	client := v3client.New(m.Etcd.Server)
	defer client.Close()
	return f(client)
}
