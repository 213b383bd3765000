package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// Kept is a file that is there already and does not do for the plan.
type Kept struct {
	File string // in the tree: HOST/etc/kubernetes/pki/...
	Why  string // completes "FILE: was kept, and ..."
}

// again is what is done about a certificate that does not do: replacing it could break its other users.
const again = "; remove it and its key, and run this again"

// KeptCertificates reports certificates that are there and are not those of the plan: without a name that came into the
// plan later, of another user or group (Unlike), expired, or signed by another authority than the one that is there, or
// else given, by the path of its certificate. Shape: tree has a directory for each host, as Issue names the files.
// Errors: a certificate of the plan that cannot be read.
func KeptCertificates(p *plan.Plan, tree fs.FS, given map[string]*Authority, now time.Time) ([]Kept, error) {
	var kept []Kept
	for _, c := range p.Certificates {
		if c.Existing {
			continue
		}
		name := path.Join(c.Host, c.Cert)
		data, err := readFile(tree, name)
		switch {
		case c.Authority && errors.Is(err, fs.ErrNotExist):
			continue // the host has it
		case err != nil:
			return kept, err
		case c.Authority:
			if a := given[c.Cert]; a != nil && !holds(data, a) {
				kept = append(kept, Kept{name, "is not the CA that was given, and components would trust both; " +
					"remove it, or give its own key"})
			}
			continue
		}
		lacking, err := Lacking(c, data)
		if err != nil {
			kept = append(kept, Kept{name, fmt.Sprintf("is not valid: %v", err)})
			continue
		}
		why := Unlike(c, data, now)
		if len(lacking) > 0 {
			why = append(why, fmt.Sprintf("does not have %s of the plan", strings.Join(lacking, ", ")))
		}
		by, err := signers(tree, path.Join(c.Host, c.CA), given[c.CA])
		if err != nil {
			return kept, err
		}
		if len(by) > 0 && !signedBy(data, by) {
			why = append(why, fmt.Sprintf("is not signed by %q", by[0].Subject.CommonName))
		}
		for _, text := range why {
			kept = append(kept, Kept{name, text + again})
		}
	}
	return kept, nil
}

// holds reports whether a file has the certificate of an authority among its own.
func holds(data []byte, a *Authority) bool {
	certificates, err := ParseCertificates(data)
	return err == nil && slices.ContainsFunc(certificates, a.Certificate.Equal)
}

// signers are the authorities of a file, or the given one where there is no file, none where it is not known.
func signers(tree fs.FS, name string, given *Authority) ([]*x509.Certificate, error) {
	data, err := readFile(tree, name)
	switch {
	case err == nil:
		certificates, err := ParseCertificates(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return certificates, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case given != nil:
		return []*x509.Certificate{given.Certificate}, nil
	}
	return nil, nil
}

// signedBy reports whether an authority signed the first certificate of a file, or one that the file has between them.
// It compares names and signatures alone: the rest is Unlike's.
func signedBy(data []byte, by []*x509.Certificate) bool {
	certificates, err := ParseCertificates(data)
	if err != nil {
		return false
	}
	at := certificates[0]
	signs := func(a *x509.Certificate) bool {
		return bytes.Equal(at.RawIssuer, a.RawSubject) && at.CheckSignatureFrom(a) == nil
	}
	for range certificates {
		if slices.ContainsFunc(by, signs) {
			return true
		}
		next := slices.IndexFunc(certificates[1:], signs)
		if next < 0 {
			return false
		}
		at = certificates[1+next]
	}
	return false // they sign each other
}

// limitBytes is the size of the largest file that is read: those of every public CA together are a fraction of it.
const limitBytes = 16 << 20

func readFile(tree fs.FS, name string) ([]byte, error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limitBytes+1))
	if err == nil && len(data) > limitBytes {
		err = fmt.Errorf("%s: is larger than %d bytes", name, limitBytes)
	}
	return data, err
}

// Unlike says how the first certificate of a file is not what a plan wants, but for its names, which are Lacking's: it
// is another's, its holder is in another group, it does for another use, or the time is none of its own. A certificate
// with which another one was mixed up is the identity of another component.
func Unlike(c plan.Certificate, data []byte, now time.Time) (why []string) {
	certificates, err := ParseCertificates(data)
	if err != nil {
		return []string{err.Error()}
	}
	is := certificates[0]
	if is.Subject.CommonName != c.CommonName {
		why = append(why, fmt.Sprintf("is of %q, want %q", is.Subject.CommonName, c.CommonName))
	}
	in, want := slices.Sorted(slices.Values(is.Subject.Organization)), slices.Sorted(slices.Values(c.Organizations))
	if !slices.Equal(in, want) {
		why = append(why, fmt.Sprintf("is in the groups %q, want %q", in, want))
	}
	for _, usage := range c.Usages {
		wanted := map[string]x509.ExtKeyUsage{plan.UsageServer: x509.ExtKeyUsageServerAuth,
			plan.UsageClient: x509.ExtKeyUsageClientAuth}[usage]
		if !slices.Contains(is.ExtKeyUsage, wanted) && !slices.Contains(is.ExtKeyUsage, x509.ExtKeyUsageAny) {
			why = append(why, fmt.Sprintf("is not for the use of a %s", usage))
		}
	}
	if now.Before(is.NotBefore) || now.After(is.NotAfter) {
		why = append(why, fmt.Sprintf("is valid from %s to %s", is.NotBefore.Format(time.RFC3339),
			is.NotAfter.Format(time.RFC3339)))
	}
	return why
}

// KeptKeys reports private keys that are there and are none, belong to another certificate, or may be read by others.
// The tree is that of KeptCertificates. Errors: a file that cannot be read.
func KeptKeys(p *plan.Plan, tree fs.FS) ([]Kept, error) {
	var kept []Kept
	for _, c := range p.Certificates {
		if c.Existing {
			continue
		}
		why, err := keptKey(tree, path.Join(c.Host, c.Key), func(key []byte) error {
			certificate, err := readFile(tree, path.Join(c.Host, c.Cert))
			if err != nil {
				return err
			}
			return keyFits(certificate, key)
		})
		kept = append(kept, why...)
		if err != nil {
			return kept, err
		}
	}
	for _, h := range p.Hosts {
		why, err := keptKey(tree, path.Join(h.Name, p.PKI.ServiceAccountKey), func(key []byte) error {
			_, err := PublicKey(key)
			return err
		})
		kept = append(kept, why...)
		if err != nil {
			return kept, err
		}
	}
	return kept, nil
}

// keptKey reports what is wrong with one key; nothing where there is none: the host has it already, or the plan does
// not want it there.
func keptKey(tree fs.FS, name string, fits func(key []byte) error) (kept []Kept, err error) {
	info, err := fs.Lstat(tree, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return []Kept{{name, "is no regular file; put the key in its place"}}, nil
	case info.Mode().Perm()&0o077 != 0:
		kept = append(kept, Kept{name, fmt.Sprintf("has mode %04o, so that others may read it; replace it and what "+
			"was signed by it, or chmod 600 if no one read it", info.Mode().Perm())})
	}
	data, err := readFile(tree, name)
	if err != nil {
		return kept, err
	}
	if err := fits(data); err != nil {
		kept = append(kept, Kept{name, fmt.Sprintf("is not valid: %v; remove it and its certificate, and run this "+
			"again", err)})
	}
	return kept, nil
}
