package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/latest"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd/api"
)

// PKI is the certificate authority of one test. Its files:
//
//	ca.crt, ca.key    the authority, which signs serving and client certificates and may sign CSRs for controllers
//	sa.key, sa.pub    the pair with which service-account tokens are signed and checked
//
// Serving and Client add files beside them. The keys of the authority and of service accounts are RSA, which every
// release can read; the others are made often and are ECDSA. Keys have mode 0600.
type PKI struct {
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
	pool        *x509.CertPool

	mutex  sync.Mutex
	serial int64
}

// RSA keys take long to make; the tests of one process share them.
var (
	caKey             = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
	serviceAccountKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
)

func newPKI(dir string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := caKey()
	if err != nil {
		return nil, err
	}
	p := &PKI{dir: dir, key: ca, pool: x509.NewCertPool()}
	der, err := p.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "rig"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, ca.Public())
	if err != nil {
		return nil, err
	}
	if p.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	p.pool.AddCert(p.certificate)
	if err := writePair(p.File("ca.crt"), certificatePEM(der), p.File("ca.key"), rsaPEM(ca)); err != nil {
		return nil, err
	}
	sa, err := serviceAccountKey()
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(sa.Public())
	if err != nil {
		return nil, err
	}
	return p, writePair(p.File("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		p.File("sa.key"), rsaPEM(sa))
}

// File is the name of a file of the PKI.
func (p *PKI) File(name string) string { return filepath.Join(p.dir, name) }

// Serving writes NAME.crt and NAME.key for a server that is reached at the hosts, which are addresses or names.
func (p *PKI) Serving(name string, hosts ...string) (certFile, keyFile string, err error) {
	return p.write(name, servingTemplate(name, hosts))
}

// Peer writes NAME.crt and NAME.key for a member of an etcd, which is a server and a client of the other members.
func (p *PKI) Peer(name string, hosts ...string) (certFile, keyFile string, err error) {
	template := servingTemplate(name, hosts)
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	return p.write(name, template)
}

func servingTemplate(name string, hosts []string) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

// Client writes NAME.crt and NAME.key for a client whom servers know as the user in the groups.
func (p *PKI) Client(name, user string, groups ...string) (certFile, keyFile string, err error) {
	return p.write(name, clientTemplate(user, groups))
}

func (p *PKI) write(name string, template *x509.Certificate) (certFile, keyFile string, err error) {
	certificate, key, err := p.issue(template)
	if err != nil {
		return "", "", fmt.Errorf("issuing a certificate for %s: %w", name, err)
	}
	certFile, keyFile = p.File(name+".crt"), p.File(name+".key")
	return certFile, keyFile, writePair(certFile, certificate, keyFile, key)
}

// Kubeconfig writes NAME.kubeconfig with which a component reaches the server as the user in the groups.
func (p *PKI) Kubeconfig(name, server, user string, groups ...string) (string, error) {
	certificate, key, err := p.issue(clientTemplate(user, groups))
	if err != nil {
		return "", fmt.Errorf("issuing a certificate for %s: %w", name, err)
	}
	config := &api.Config{
		Clusters: map[string]*api.Cluster{
			"rig": {Server: server, CertificateAuthorityData: certificatePEM(p.certificate.Raw)}},
		AuthInfos:      map[string]*api.AuthInfo{user: {ClientCertificateData: certificate, ClientKeyData: key}},
		Contexts:       map[string]*api.Context{"rig": {Cluster: "rig", AuthInfo: user}},
		CurrentContext: "rig",
	}
	data, err := runtime.Encode(clientcmd.Codec, config)
	if err != nil {
		return "", err
	}
	file := p.File(name + ".kubeconfig")
	return file, os.WriteFile(file, data, 0o600)
}

// clientTLS is what a client of the test's own process needs: servers know it as the user in the groups.
func (p *PKI) clientTLS(user string, groups ...string) (*tls.Config, error) {
	certificate, key, err := p.issue(clientTemplate(user, groups))
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for %s: %w", user, err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return &tls.Config{RootCAs: p.pool, Certificates: []tls.Certificate{pair}}, err
}

func clientTemplate(user string, groups []string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// issue makes a key and a certificate for it, both as PEM.
func (p *PKI) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := p.sign(template, private.Public())
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return certificatePEM(der), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// sign completes the template; while there is no authority yet it signs itself.
func (p *PKI) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	p.mutex.Lock()
	p.serial++
	template.SerialNumber = big.NewInt(p.serial)
	p.mutex.Unlock()
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(400 * 24 * time.Hour)
	parent := p.certificate
	if parent == nil {
		parent = template
	}
	return x509.CreateCertificate(rand.Reader, template, parent, public, p.key)
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func rsaPEM(key *rsa.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

func writePair(publicFile string, public []byte, keyFile string, key []byte) error {
	if err := os.WriteFile(publicFile, public, 0o644); err != nil {
		return err
	}
	return os.WriteFile(keyFile, key, 0o600)
}
