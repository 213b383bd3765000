package webserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority issues certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) issue(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// client presents a certificate of the authority, or none for "".
func (a *authority) client(t *testing.T, trusted *authority, name string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.X509KeyPair(a.issue(t, name))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
		ForceAttemptHTTP2: true}}
}

func TestServeAsksForTheClientsCertificate(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	c := &Certificates{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		ClientCA: filepath.Join(dir, "ca.crt"), ClientNames: []string{"kube-apiserver"}}
	install := func(a *authority) {
		t.Helper()
		cert, key := a.issue(t, "webhook")
		for name, data := range map[string][]byte{c.Cert: cert, c.Key: key, c.ClientCA: a.pem} {
			if err := os.WriteFile(name+".new", data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(ours)
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, tls.NewListener(listener, config),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "yes")
			}), nil)
	}()
	ask := func(client *http.Client) error {
		response, err := client.Get("https://" + listener.Addr().String())
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "yes" {
			return fmt.Errorf("answer %q, %w", body, err)
		}
		return nil
	}
	if err := ask(ours.client(t, ours, "kube-apiserver")); err != nil {
		t.Errorf("a client with a certificate: %v", err)
	}
	for name, client := range map[string]*http.Client{
		"without a certificate": ours.client(t, ours, ""),
		"of another name":       ours.client(t, ours, "somebody"),
		"of another authority":  theirs.client(t, ours, "kube-apiserver"),
	} {
		if err := ask(client); err == nil {
			t.Errorf("a client %s is answered", name)
		}
	}

	install(theirs) // the files are rotated, and used for the next connection
	if err := ask(theirs.client(t, theirs, "kube-apiserver")); err != nil {
		t.Errorf("after a rotation: %v", err)
	}
	if err := os.WriteFile(c.Cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(theirs.client(t, theirs, "kube-apiserver")); err != nil {
		t.Errorf("with a broken certificate file, the last good one is not used: %v", err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v, want nil after its context ended", err)
	}
}

func TestConfigRefusesBadFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := newAuthority(t, "ours").issue(t, "webhook")
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, goodKey, empty := write("crt", cert), write("key", key), write("empty", nil)
	for name, c := range map[string]*Certificates{
		"missing": {Cert: filepath.Join(dir, "missing"), Key: goodKey}, "no key": {Cert: good, Key: empty},
		"empty CA": {Cert: good, Key: goodKey, ClientCA: empty},
	} {
		if _, err := c.Config(); err == nil {
			t.Errorf("%s: Config passed, want an error", name)
		}
	}
}

// TestFilesThatDoNotReplaceTheCertificateAreReported, once for each reason, whatever the number of connections.
func TestFilesThatDoNotReplaceTheCertificateAreReported(t *testing.T) {
	dir := t.TempDir()
	cert, key := newAuthority(t, "ours").issue(t, "webhook")
	crtFile, keyFile := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	write := func(file string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(crtFile, cert)
	write(keyFile, key)
	var told []string
	c := &Certificates{Cert: crtFile, Key: keyFile, Kept: func(err error) { told = append(told, fmt.Sprint(err)) }}
	connect := func() {
		t.Helper()
		for range 3 {
			if config, err := c.current(); err != nil || config == nil {
				t.Fatalf("no configuration: %v", err)
			}
		}
	}
	connect()
	write(keyFile, []byte("no key"))
	connect()
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	connect()
	write(keyFile, key)
	connect()
	if len(told) != 3 || !strings.Contains(told[0], "loading the certificate") ||
		!strings.Contains(told[1], "no such file") || told[2] != "<nil>" {
		t.Errorf("told %q; want the files that do not fit, the missing one, and that it is well again", told)
	}
}
