package webserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// synced is a log that several goroutines write.
type synced struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// shaking is a server that accepts connections after their handshakes, and a client of it.
func shaking(t *testing.T, log io.Writer) (*Handshakes, *http.Client) {
	t.Helper()
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	cert, key := ca.issue(t, "server")
	c := &Certificates{Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key")}
	for file, data := range map[string][]byte{c.Cert: cert, c.Key: key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return NewHandshakes(listener, config, slog.New(slog.NewTextHandler(log, nil))), &http.Client{Transport: transport}
}

// A client that does not shake hands is in no other's way, and one that cannot is logged and not served.
func TestHandshakesAreInNoOthersWay(t *testing.T) {
	var log synced
	h, client := shaking(t, &log)
	served := make(chan error, 1)
	server := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}), nil)
	go func() { served <- server.Serve(h) }()
	silent, err := net.Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	plain, err := net.Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer, _ := io.ReadAll(plain); strings.Contains(string(answer), "200 OK") { // an alert, and the end
		t.Errorf("a client without TLS is answered %q", answer)
	}
	plain.Close()
	for range 3 {
		response, err := client.Get("https://" + h.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "HTTP/2.0" {
			t.Errorf("answer %q, %v", body, err)
		}
		response.Body.Close()
	}
	if text := log.String(); !strings.Contains(text, "TLS handshake error from "+plain.LocalAddr().String()) {
		t.Errorf("the log says %q", text)
	}
	if err := errors.Join(server.Shutdown(t.Context()), <-served); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the server ends with %v", err)
	}
	if connection, err := h.Accept(); connection != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v, %v after the end", connection, err)
	}
	if _, err := client.Get("https://" + h.Addr().String()); err == nil {
		t.Error("the port is open after the end")
	}
}
