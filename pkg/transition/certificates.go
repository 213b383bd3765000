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

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
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
			case len(is.AuthorityKeyId) == 0: // a name is that of many authorities
				reasons = append(reasons, fmt.Sprintf("certificates: %s of %s: does not say by which key it was "+
					"signed, nor does the one before: issue both with an authority key identifier", f.Path, host))
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
		if reads(p, f.Path) {
			read = append(read, f)
		}
	}
	return read
}

// reads reports whether a component reads a file: its arguments, or what lies beside it, name it. What starts it is not
// looked at: in a unit a path has another spelling.
func reads(p *render.Part, file string) bool {
	return slices.ContainsFunc(p.Component.Args, func(a plan.Arg) bool { return mentions(a.Value, file) }) ||
		slices.ContainsFunc(p.Component.Env, func(e spec.EnvVar) bool { return mentions(e.Value, file) }) ||
		slices.ContainsFunc(p.Beside, func(f render.File) bool {
			return mentions(string(f.Data), file) || slices.ContainsFunc(textsOf(f.Data), func(text string) bool {
				return mentions(text, file)
			})
		})
}

// textsOf are the texts of YAML or JSON, in which a path may have another spelling; nothing of other files.
func textsOf(data []byte) (texts []string) {
	var document yaml.Node
	if yaml.Unmarshal(data, &document) != nil {
		return nil
	}
	var walk func(*yaml.Node)
	walk = func(node *yaml.Node) {
		if node.Kind == yaml.ScalarNode {
			texts = append(texts, node.Value)
		}
		for _, inner := range node.Content {
			walk(inner)
		}
	}
	walk(&document)
	return texts
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

// putCertificate puts one of a component that is stopped. Where another component reads it too, and was changed before,
// it is there already; but on the way back this one starts first, with the certificate of before.
func (b *builder) putCertificate(phase Phase, host string, f render.File) {
	for _, s := range b.steps {
		if s.Host == host && s.Do != nil && s.Do.Kind == PutFile && s.Do.File.Path == f.Path && s.Do.Was != nil {
			b.again(phase, s)
			return
		}
	}
	b.put(phase, host, f, nil, nil)
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
