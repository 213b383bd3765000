// Package pki issues the certificates that a plan needs, from the cluster's existing authorities and from new ones
// where the plan calls for them. It works on bytes: reading and writing files is its caller's.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Authority is a certificate authority: what it signs is trusted by every holder of its certificate.
type Authority struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// ParseAuthority reads an authority from PEM: its certificate (of a bundle, the first that fits the key) and its
// private key (PKCS #1, SEC 1 or PKCS #8, not encrypted). Errors: no certificate of the bundle belongs to the key or
// may sign; nothing of the key is ever in an error.
func ParseAuthority(certificatePEM, keyPEM []byte) (*Authority, error) {
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	certificates, err := ParseCertificates(certificatePEM)
	if err != nil {
		return nil, err
	}
	for _, certificate := range certificates {
		public, ok := certificate.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if !ok || !public.Equal(key.Public()) {
			continue
		}
		if !certificate.IsCA {
			return nil, fmt.Errorf("certificate of %q: is not a CA", certificate.Subject.CommonName)
		}
		if certificate.KeyUsage != 0 && certificate.KeyUsage&x509.KeyUsageCertSign == 0 {
			return nil, fmt.Errorf("certificate of %q: its key usage does not allow signing",
				certificate.Subject.CommonName)
		}
		return &Authority{Certificate: certificate, key: key}, nil
	}
	return nil, errors.New("the key belongs to none of the certificates")
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw})
}

// ParseCertificates reads every certificate of a PEM file; there must be one.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, errors.New("want a PEM file with a CERTIFICATE block")
	}
	return certificates, nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "RSA PRIVATE KEY":
			return x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			if signer, ok := key.(crypto.Signer); ok {
				return signer, nil
			}
			return nil, errors.New("want a key that can sign")
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("the private key is encrypted; want it without a passphrase")
		}
	}
	return nil, errors.New("want a PEM file with a private key")
}

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Certificate []byte
	Key         []byte // secret: to be written with mode 0600
}

// Lifetime is from when to when a certificate is valid.
type Lifetime struct{ From, Until time.Time }

// backdated is how far a certificate is valid before it is issued, for hosts whose clocks are behind.
const backdated = 5 * time.Minute

// LifetimeOf is the lifetime of a certificate that is issued now and is good for a while.
func LifetimeOf(now time.Time, good time.Duration) Lifetime {
	return Lifetime{From: now.Add(-backdated), Until: now.Add(good)}
}

// NewAuthority makes an authority of its own, and its pair of files. Its lifetime bounds that of everything it signs.
func NewAuthority(commonName string, lifetime Lifetime) (*Authority, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, err
	}
	template, err := template(commonName, lifetime)
	if err != nil {
		return nil, Pair{}, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("signing %q: %w", commonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, Pair{}, err
	}
	pair, err := pairOf(der, key)
	return &Authority{Certificate: certificate, key: key}, pair, err
}

// mastersGroup passes every authorizer of every API server unasked; no certificate of ours is in it.
const mastersGroup = "system:masters"

// Issue makes a key and a certificate of the authority's for it, which ends with the authority at the latest. Errors: a
// certificate in system:masters, one without a name or a use, and one by an authority that has ended are refused.
func (a *Authority) Issue(c plan.Certificate, lifetime Lifetime) (Pair, error) {
	switch {
	case slices.Contains(c.Organizations, mastersGroup):
		return Pair{}, fmt.Errorf("%s: group %s bypasses every policy; fusionctl does not issue it", c.Cert,
			mastersGroup)
	case c.CommonName == "" || len(c.Usages) == 0:
		return Pair{}, fmt.Errorf("%s: want a common name and a usage", c.Cert)
	case lifetime.From.After(a.Certificate.NotAfter):
		return Pair{}, fmt.Errorf("%s: the CA %q expired on %s", c.Cert, a.Certificate.Subject.CommonName,
			a.Certificate.NotAfter.Format(time.DateOnly))
	}
	if lifetime.Until.After(a.Certificate.NotAfter) {
		lifetime.Until = a.Certificate.NotAfter
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := template(c.CommonName, lifetime)
	if err != nil {
		return Pair{}, err
	}
	template.Subject.Organization = c.Organizations
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.BasicConstraintsValid = true
	for _, usage := range c.Usages {
		switch usage {
		case plan.UsageServer:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		case plan.UsageClient:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		default:
			return Pair{}, fmt.Errorf("%s: usage %q: want %s or %s", c.Cert, usage, plan.UsageServer, plan.UsageClient)
		}
	}
	template.DNSNames = c.DNSNames
	for _, text := range c.IPs {
		ip := net.ParseIP(text)
		if ip == nil {
			return Pair{}, fmt.Errorf("%s: %q: want an IP address", c.Cert, text)
		}
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing %s: %w", c.Cert, err)
	}
	return pairOf(der, key)
}

// template is what every certificate of ours has.
func template(commonName string, lifetime Lifetime) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: commonName}, NotBefore: lifetime.From,
		NotAfter: lifetime.Until}, nil
}

func pairOf(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
	}, nil
}

// serviceAccountKeyBits is the size that every version accepts.
const serviceAccountKeyBits = 2048

// NewServiceAccountKey makes the pair with which service-account tokens are signed and verified: private and public
// key, PEM.
func NewServiceAccountKey() (private, public []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
	if err != nil {
		return nil, nil, err
	}
	private = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	public, err = PublicKey(private)
	return private, public, err
}

// PublicKey derives the public half of a private key, PEM.
func PublicKey(private []byte) ([]byte, error) {
	key, err := parseKey(private)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
