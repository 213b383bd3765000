// Package tlsserver serves HTTP with certificates from files that are read again when they change, beside health and metrics: what
// every webhook of fusionctl stands on.
package tlsserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Certificates are the files of the server's certificate. They are read again for a connection when they have changed; files
// that are bad then do not replace those in use.
type Certificates struct {
	Cert, Key   string
	ClientCA    string   // signs the clients' certificates; "" lets in clients without one
	ClientNames []string // common names of clients that may ask; none: all that ClientCA has signed

	mu     sync.Mutex
	config *tls.Config
	files  []os.FileInfo
}

// Config returns the configuration for a listener. Errors: a file that cannot be read or is no certificate.
func (c *Certificates) Config() (*tls.Config, error) {
	if _, err := c.current(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current() },
	}, nil
}

// current is the configuration of the files as they are now, or of when they were last good.
func (c *Certificates) current() (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := c.stat()
	if err == nil && c.config != nil && slices.EqualFunc(files, c.files, SameFile) {
		return c.config, nil
	}
	config, loadErr := c.load()
	switch {
	case err == nil && loadErr == nil:
		c.config, c.files = config, files
	case c.config == nil:
		return nil, errors.Join(err, loadErr)
	}
	return c.config, nil
}

func (c *Certificates) stat() ([]os.FileInfo, error) {
	var infos []os.FileInfo
	for _, file := range []string{c.Cert, c.Key, c.ClientCA} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (c *Certificates) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("loading the certificate %s: %w", c.Cert, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", c.ClientCA)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.VerifyConnection = c.verifyName
	return config, nil
}

func (c *Certificates) verifyName(state tls.ConnectionState) error {
	if len(c.ClientNames) == 0 || slices.Contains(c.ClientNames, state.PeerCertificates[0].Subject.CommonName) {
		return nil
	}
	return fmt.Errorf("client %q is not one of those that may ask", state.PeerCertificates[0].Subject.CommonName)
}

// SameFile reports whether two looks at a file saw the same content, as far as its identity, time and size tell.
func SameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// Serve answers on the listener until the context ends, and then lets answers that have begun end.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	const grace = 10 * time.Second
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return server.Shutdown(last)
}
