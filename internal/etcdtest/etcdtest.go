// Package etcdtest runs etcd members inside tests: on loopback, on ports that the system chooses, in folders that
// vanish.
package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/kubefusion/fusionctl/internal/localetcd"
)

// Server is a running member.
type Server struct {
	Endpoint string // URL for clients
	Dir      string // the member's data directory
	PKI      PKI    // of a server started with StartTLS
	options  localetcd.Options
	member   *localetcd.Member
	client   *clientv3.Client
}

// PKI are the files of a server with TLS: its CA, a client certificate, and a CA that has nothing to do with it.
type PKI struct{ CA, Cert, Key, OtherCA string }

// Start runs a member without TLS until the test ends.
func Start(t testing.TB) *Server { return StartWith(t, nil) }

// StartWith runs a member without TLS and with another configuration.
func StartWith(t testing.TB, configure func(*embed.Config)) *Server { return start(t, nil, configure) }

// StartTLS runs a member that wants client certificates.
func StartTLS(t testing.TB) *Server {
	pki := NewPKI(t)
	return start(t, &pki, nil)
}

func start(t testing.TB, pki *PKI, configure func(*embed.Config)) *Server {
	t.Helper()
	s := newServer(t, pki, configure)
	s.Restart(t)
	return s
}

// newServer prepares a member that does not run yet.
func newServer(t testing.TB, pki *PKI, configure func(*embed.Config)) *Server {
	s := &Server{Dir: t.TempDir()}
	s.options = localetcd.Options{Dir: s.Dir, Configure: configure}
	scheme := "http://"
	if pki != nil {
		scheme = "https://"
		s.PKI = *pki
		s.options.CA, s.options.Cert, s.options.Key = pki.CA, pki.Cert, pki.Key
	}
	s.Endpoint = scheme + FreeAddress(t)
	t.Cleanup(s.Stop)
	return s
}

// Restart runs a member that was stopped, at the endpoint where it was. It returns when the member serves: one of a
// cluster needs a leader for that.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	options := s.options
	options.Configure = func(config *embed.Config) {
		at, err := url.Parse(s.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
		if s.options.Configure != nil {
			s.options.Configure(config)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	member, err := localetcd.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	s.member = member
}

// Stop ends the member, as the end of the test does. Its file may then be read.
func (s *Server) Stop() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	if s.member != nil {
		s.member.Stop()
		s.member = nil
	}
}

// DB is the member's file.
func (s *Server) DB() string { return filepath.Join(s.Dir, "member", "snap", "db") }

// Client is a bare client of the member, for filling it and for comparison.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	if s.client != nil {
		return s.client
	}
	config := clientv3.Config{Endpoints: []string{s.Endpoint}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second}
	if s.PKI.CA != "" {
		tlsInfo := transport.TLSInfo{TrustedCAFile: s.PKI.CA, CertFile: s.PKI.Cert, KeyFile: s.PKI.Key}
		tlsConfig, err := tlsInfo.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		config.TLS = tlsConfig
	}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatalf("connecting to %s: %v", s.Endpoint, err)
	}
	s.client = client
	return client
}

// Put writes keys, a hundred per transaction: a member takes 128 operations, as it does elsewhere.
func (s *Server) Put(t testing.TB, values map[string][]byte) {
	t.Helper()
	client := s.Client(t)
	ops := make([]clientv3.Op, 0, len(values))
	for key, value := range values {
		ops = append(ops, clientv3.OpPut(key, string(value)))
	}
	for len(ops) > 0 {
		n := min(len(ops), 100)
		if _, err := client.Txn(t.Context()).Then(ops[:n]...).Commit(); err != nil {
			t.Fatalf("filling %s: %v", s.Endpoint, err)
		}
		ops = ops[n:]
	}
}

// AllowReader turns authentication on: root may everything, and the user reader, with the same password "secret", may
// read what is below /registry/.
func (s *Server) AllowReader(t testing.TB) {
	t.Helper()
	c, ctx := s.Client(t), t.Context()
	for _, do := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.RoleAdd(ctx, "reader"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "reader", "/registry/", "/registry0",
				clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := c.UserAdd(ctx, "reader", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "reader", "reader"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

// NewPKI writes one CA with a certificate for 127.0.0.1 that serves and asks, and a second CA, into a folder that
// vanishes.
func NewPKI(t testing.TB) PKI {
	t.Helper()
	dir := t.TempDir()
	pki := PKI{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"),
		filepath.Join(dir, "other-ca.crt")}
	ca, caKey := certificate(t, "etcd-ca", nil, nil)
	writePEM(t, pki.CA, "CERTIFICATE", ca.Raw)
	leaf, key := certificate(t, "etcd", ca, caKey)
	writePEM(t, pki.Cert, "CERTIFICATE", leaf.Raw)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, pki.Key, "EC PRIVATE KEY", der)
	other, _ := certificate(t, "other-ca", nil, nil)
	writePEM(t, pki.OtherCA, "CERTIFICATE", other.Raw)
	return pki
}

func certificate(t testing.TB, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: parent == nil, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
