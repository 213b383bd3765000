package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
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

// KeptCertificates reports certificates that are there and are not good for all names of the plan: a service that came
// into the plan later, or an address that changed. Replacing one could break its other users. Shape: tree has a
// directory for each host, as Issue names the files. Errors: a certificate of the plan that cannot be read.
func KeptCertificates(p *plan.Plan, tree fs.FS) ([]Kept, error) {
	var kept []Kept
	for _, c := range p.Certificates {
		if c.Existing || c.Authority {
			continue
		}
		name := path.Join(c.Host, c.Cert)
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return kept, err
		}
		lacking, err := Lacking(c, data)
		switch {
		case err != nil:
			kept = append(kept, Kept{name, fmt.Sprintf("is not valid: %v", err)})
		case len(lacking) > 0:
			kept = append(kept, Kept{name, fmt.Sprintf("does not have %s of the plan; remove it and its key, and run "+
				"this again", strings.Join(lacking, ", "))})
		}
	}
	return kept, nil
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
			certificate, err := fs.ReadFile(tree, path.Join(c.Host, c.Cert))
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
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		return kept, err
	}
	if err := fits(data); err != nil {
		kept = append(kept, Kept{name, fmt.Sprintf("is not valid: %v; remove it and its certificate, and run this "+
			"again", err)})
	}
	return kept, nil
}
