package webserver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// Certificates are the files of the server's certificate. They are read again for a connection when they have changed;
// files that are bad then do not replace those in use.
type Certificates struct {
	Cert, Key   string
	ClientCA    string   // signs the clients' certificates; "" lets in clients without one
	ClientNames []string // common names of clients that may ask; none: all that ClientCA has signed
	// Optional lets in clients without a certificate beside ClientCA's: the handler knows them by something else. It is
	// not for ClientNames.
	Optional bool
	// Kept is told once why changed files do not replace those in use, and with nil when they do again; nil allowed.
	Kept func(error)

	mu     sync.Mutex
	config *tls.Config
	files  []os.FileInfo
	why    string // the last error that Kept was told
}

// Config returns the configuration for a listener. Errors: a file that cannot be read or is no certificate.
func (c *Certificates) Config() (*tls.Config, error) {
	if _, err := c.current(); err != nil {
		return nil, err
	}
	config := baseConfig()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current() }
	return config, nil
}

// baseConfig is what every server has: TLS 1.2 with forward secrecy and authenticated encryption, which clients of 1.6
// have, or TLS 1.3. No session is resumed: its client would not be judged by the CA and the names of the moment.
func baseConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: true,
	}
}

// current is the configuration of the files as they are now, or of when they were last good.
func (c *Certificates) current() (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := c.stat()
	if err == nil && c.config != nil && slices.EqualFunc(files, c.files, sameFile) {
		return c.config, nil
	}
	config, loadErr := c.load()
	switch {
	case err == nil && loadErr == nil:
		c.config, c.files = config, files
		c.say(nil)
	case c.config == nil:
		return nil, errors.Join(err, loadErr)
	default:
		c.say(cmp.Or(err, loadErr))
	}
	return c.config, nil
}

// say tells what is new: the files are looked at for every connection.
func (c *Certificates) say(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != c.why && c.Kept != nil {
		c.Kept(err)
	}
	c.why = why
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
	config := baseConfig()
	config.Certificates = []tls.Certificate{pair}
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
	if c.Optional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	config.VerifyConnection = c.verifyName
	return config, nil
}

func (c *Certificates) verifyName(state tls.ConnectionState) error {
	if len(c.ClientNames) == 0 || slices.Contains(c.ClientNames, state.PeerCertificates[0].Subject.CommonName) {
		return nil
	}
	return fmt.Errorf("client %q is not allowed", state.PeerCertificates[0].Subject.CommonName)
}
