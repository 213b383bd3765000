package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

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
