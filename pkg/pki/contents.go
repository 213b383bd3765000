package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// Contents is what a PEM file holds. Of a private key it has the public half alone.
type Contents struct {
	Certificates []*x509.Certificate
	PrivateKey   bool     // there is one
	PublicKeys   [][]byte // of the keys and of the certificates, as PKIX DER; none of an algorithm unknown to Go
}

// ParseContents reads every certificate and every key of a PEM file; blocks of other types are left out. Errors: a
// block that is not what its type says, a key that is encrypted; nothing of a key is ever in an error.
func ParseContents(data []byte) (Contents, error) {
	var c Contents
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		public, err := c.add(block)
		if err != nil {
			return Contents{}, fmt.Errorf("reading a block %s: %w", block.Type, err)
		}
		if public == nil {
			continue
		}
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			return Contents{}, fmt.Errorf("reading a block %s: %w", block.Type, err)
		}
		c.PublicKeys = append(c.PublicKeys, der)
	}
	return c, nil
}

// add takes one block in, and returns the public key in it, nil for none.
func (c *Contents) add(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		c.Certificates = append(c.Certificates, certificate)
		return certificate.PublicKey, nil
	case "RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		key, err := parseKey(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		c.PrivateKey = true
		return key.Public(), nil
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	}
	return nil, nil
}
