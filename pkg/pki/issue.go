package pki

import (
	"crypto"
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// File is a file to be written on a host.
type File struct {
	Host   string
	Path   string // as the components see it
	Data   []byte
	Secret bool // a private key: mode 0600
}

// Given is what exists already and new certificates build on.
type Given struct {
	// Authorities by the path of their certificate on the hosts. One that the plan calls existing must be here when
	// something has to be signed by it.
	Authorities map[string]*Authority
	// ServiceAccountKey is the private key, PEM, with which the legacy side signs tokens. Without it a new one is made,
	// unless the legacy side runs already.
	ServiceAccountKey []byte
	// Has reports whether a file is there already; it is kept.
	Has func(host, path string) bool
}

// Issue makes every file that the plan needs and that is not there: certificates, keys, authorities of the plan's own,
// and the key of the service accounts. Errors: every certificate whose authority is missing is reported, joined;
// nothing is returned then. A certificate without its key, or a key without its certificate, is an error: what is half
// there is never completed by guessing.
func Issue(p *plan.Plan, given Given, leaf, authority Lifetime) ([]File, error) {
	var files []File
	var problems []error
	authorities := map[string]*Authority{}
	for path, a := range given.Authorities {
		authorities[path] = a
	}
	made := map[string]Pair{} // authorities of the plan's own: the same on every host
	hosts := p.CertificateHosts()
	for _, c := range p.Certificates {
		if !c.Authority || c.Existing || authorities[c.Cert] != nil {
			continue
		}
		lacks := func(host string) bool { return !given.Has(host, c.Cert) }
		if !slices.ContainsFunc(hosts, lacks) {
			continue // complete: it is wanted only if something is left to sign
		}
		if has := slices.IndexFunc(hosts, func(host string) bool { return !lacks(host) }); has >= 0 {
			problems = append(problems, fmt.Errorf("%s exists on host %s and not on every host: name it and its key, "+
				"or copy both", c.Cert, hosts[has]))
			continue
		}
		a, pair, err := NewAuthority(c.CommonName, authority)
		if err != nil {
			return nil, err
		}
		authorities[c.Cert], made[c.Cert] = a, pair
	}
	for _, c := range p.Certificates {
		switch {
		case c.Existing:
			continue
		case c.Authority:
			if given := given.Authorities[c.Cert]; given != nil {
				files = append(files, File{Host: c.Host, Path: c.Cert, Data: given.PEM()}) // its key stays where it is
			}
			if pair, ok := made[c.Cert]; ok {
				files = append(files, File{Host: c.Host, Path: c.Cert, Data: pair.Certificate},
					File{Host: c.Host, Path: c.Key, Data: pair.Key, Secret: true})
			}
			continue
		}
		hasCert, hasKey := given.Has(c.Host, c.Cert), given.Has(c.Host, c.Key)
		if hasCert && hasKey {
			continue
		}
		if hasCert != hasKey {
			problems = append(problems, fmt.Errorf("host %s: of %s and %s one exists and one does not; remove or "+
				"complete them by hand", c.Host, c.Cert, c.Key))
			continue
		}
		a := authorities[c.CA]
		if a == nil {
			problems = append(problems, fmt.Errorf("%s (%s) is signed by %s, whose key was not given", c.Cert, c.Why,
				c.CA))
			continue
		}
		pair, err := a.Issue(c, leaf)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		files = append(files, File{Host: c.Host, Path: c.Cert, Data: pair.Certificate},
			File{Host: c.Host, Path: c.Key, Data: pair.Key, Secret: true})
	}
	keys, err := serviceAccountFiles(p, given)
	if err != nil {
		problems = append(problems, err)
	}
	files = append(files, keys...)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(files, func(f File) bool { return given.Has(f.Host, f.Path) }), nil
}

// serviceAccountFiles places the key of the service accounts on every host: the one that is given, or a new one where
// the plan wants one.
func serviceAccountFiles(p *plan.Plan, given Given) ([]File, error) {
	hosts := p.CertificateHosts()
	private := slices.Clone(given.ServiceAccountKey)
	privatePath, publicPath := p.PKI.ServiceAccountKey, ""
	if len(p.PKI.ServiceAccountPublic) > 0 && p.PKI.ServiceAccountPublic[0] != privatePath {
		publicPath = p.PKI.ServiceAccountPublic[0]
	}
	if p.TokenKey != nil {
		privatePath, publicPath = p.TokenKey.Private, p.TokenKey.Public
	}
	has := slices.ContainsFunc(hosts, func(host string) bool { return given.Has(host, privatePath) })
	switch {
	case private == nil && (p.TokenKey == nil || has):
		return nil, nil // it is on the hosts, and the modern side uses the same
	case private == nil:
		var err error
		if private, _, err = NewServiceAccountKey(); err != nil {
			return nil, err
		}
	}
	public, err := PublicKey(private)
	if err != nil {
		return nil, fmt.Errorf("the service-account key: %w", err)
	}
	var files []File
	for _, host := range hosts {
		files = append(files, File{Host: host, Path: privatePath, Data: private, Secret: true})
		if publicPath != "" {
			files = append(files, File{Host: host, Path: publicPath, Data: public})
		}
	}
	return files, nil
}

// MakesAuthority reports whether the plan has a CA of its clients made: the running legacy side has none.
func MakesAuthority(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Certificates, func(c plan.Certificate) bool {
		return c.Authority && c.Cert == p.PKI.CA && !c.Existing
	})
}

// Lacking lists the names and addresses of the plan for which a certificate that is there already is not good.
// Errors: the file holds no certificate.
func Lacking(c plan.Certificate, data []byte) ([]string, error) {
	certificates, err := ParseCertificates(data)
	if err != nil {
		return nil, err
	}
	var lacking []string
	for _, name := range slices.Concat(c.DNSNames, c.IPs) {
		if certificates[0].VerifyHostname(name) != nil {
			lacking = append(lacking, name)
		}
	}
	return lacking, nil
}

// keyFits reports whether a private key that is there already is one, and the certificate's.
// Errors: no key, or that of another certificate; nothing of the key is ever in an error.
func keyFits(certificatePEM, keyPEM []byte) error {
	key, err := parseKey(keyPEM)
	if err != nil {
		return err
	}
	certificates, err := ParseCertificates(certificatePEM)
	if err != nil {
		return err
	}
	if public, ok := certificates[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok ||
		!public.Equal(key.Public()) {
		return errors.New("belongs to another certificate")
	}
	return nil
}
