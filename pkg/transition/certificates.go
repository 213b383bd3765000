package transition

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// keyMode tells keys from certificates.
const keyMode fs.FileMode = 0o600

// CertificatesOf reads the certificates of a plan and their keys out of a tree, as `fusionctl pki` writes it:
// HOST/PATH. By host. Errors: those that are missing.
func CertificatesOf(p *plan.Plan, tree fs.FS) (map[string][]render.File, error) {
	files := map[string][]render.File{}
	var missing []error
	for i := range p.Certificates {
		c := &p.Certificates[i]
		if c.Existing || c.Authority {
			continue
		}
		for _, file := range []string{c.Cert, c.Key} {
			if slices.ContainsFunc(files[c.Host], func(f render.File) bool { return f.Path == file }) {
				continue
			}
			name := path.Join(c.Host, file)
			data, err := fs.ReadFile(tree, name)
			if err != nil {
				missing = append(missing, err)
				continue
			}
			f := render.File{Path: file, Mode: 0o644, Data: data}
			if file == c.Key {
				f.Mode = keyMode
			}
			files[c.Host] = append(files[c.Host], f)
		}
	}
	return files, errors.Join(missing...)
}

// refuseCertificates says what stands against other certificates: those of another authority are not known to who
// holds the one of before.
func refuseCertificates(from, to Setup) []string {
	if from.Plan != nil && to.Plan != nil && (from.Certificates == nil) != (to.Certificates == nil) {
		return []string{"certificates: those of both plans are needed: what is replaced is compared, and put back on " +
			"the way back"}
	}
	var reasons []string
	for host, files := range to.Certificates {
		for _, f := range files {
			at := slices.IndexFunc(from.Certificates[host], func(o render.File) bool { return o.Path == f.Path })
			if at < 0 || sameFile(from.Certificates[host][at], f) || f.Mode == keyMode {
				continue
			}
			was, is := certificateOf(from.Certificates[host][at]), certificateOf(f)
			switch {
			case was == nil || is == nil:
				reasons = append(reasons, fmt.Sprintf("certificates: %s of %s: is no certificate", f.Path, host))
			case !bytes.Equal(was.AuthorityKeyId, is.AuthorityKeyId) || !bytes.Equal(was.RawIssuer, is.RawIssuer):
				reasons = append(reasons, fmt.Sprintf("certificates: %s of %s: is of another authority than the one "+
					"before: have every component trust both first, by a file with the certificates of both", f.Path,
					host))
			}
		}
	}
	slices.Sort(reasons)
	return reasons
}

// certificateOf is the first certificate of a file, nil for none.
func certificateOf(f render.File) *x509.Certificate {
	block, _ := pem.Decode(f.Data)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}

// certificates are the files of certificates that a component reads, as the second plan has them.
func (b *builder) certificates(p *render.Part) (read []render.File) {
	for _, f := range b.to.Certificates[p.Component.Host] {
		if slices.ContainsFunc(slices.Concat(p.Start, p.Beside), func(o render.File) bool {
			return mentions(string(o.Data), f.Path)
		}) {
			read = append(read, f)
		}
	}
	return read
}

// mentions reports whether a text names a file, and not one whose name begins alike.
func mentions(text, file string) bool {
	for {
		_, rest, there := strings.Cut(text, file)
		if !there {
			return false
		}
		if rest == "" || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/",
			rune(rest[0])) {
			return true
		}
		text = rest
	}
}

// otherCertificates reports whether a component that stays reads certificates that are others afterwards.
func (b *builder) otherCertificates(c change) bool {
	return c.was != nil && slices.ContainsFunc(b.certificates(c.is), func(f render.File) bool {
		old, there := b.disk[place{c.is.Component.Host, f.Path}]
		return !there || !sameFile(old, f)
	})
}

// putCertificates puts those that no component reads: people do, and programs elsewhere.
func (b *builder) putCertificates() {
	if b.to.Plan == nil {
		return
	}
	for _, host := range HostsOf(b.to.Plan) {
		for _, f := range b.to.Certificates[host.Name] {
			b.put(Tidy, host.Name, f, nil, nil)
		}
	}
}
