package operator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// PKIName is the Secret with every certificate and key of a control plane, by the paths of the plan. What is put there
// before the control plane is installed is taken: the authorities of a legacy side that runs elsewhere, an
// encryption configuration.
const PKIName = "fusionctl-pki"

// Lifetimes of what is issued. A certificate is issued anew when a third of its life is left.
const (
	leafLife      = 365 * 24 * time.Hour
	authorityLife = 10 * 365 * 24 * time.Hour
	renewBefore   = leafLife / 3
)

// longestKey is the length of the longest key of a Secret.
const longestKey = 253

// pkiKey is the key of a path in the Secret: etc__kubernetes__pki__ca.crt. A path from which another one could have the
// same key, or one that is too long, has a sum of the path at its end.
func pkiKey(path string) string {
	path = filepath.Clean(path)
	key := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_.", r)) {
			return r
		}
		return '-'
	}, strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "__"))
	if len(key) <= longestKey && "/"+strings.ReplaceAll(key, "__", "/") == path {
		return key
	}
	sum := fmt.Sprintf(".%x", sha256.Sum256([]byte(path)))
	return key[:min(len(key), longestKey-len(sum))] + sum
}

// errPKILost is wrapped when the Secret of certificates is gone of a control plane that has one.
var errPKILost = errors.New("is gone")

// secrets issues what the plan needs and is not there, or ends soon, and applies the Secret of each component.
func (p *plane) secrets(ctx context.Context, of *plan.Plan) error {
	err := p.Reconciler.secrets(ctx, of, p.record.Plan != nil)
	if !errors.Is(err, errPKILost) {
		return err
	}
	if err := p.recoverPKI(ctx); err != nil {
		return err
	}
	return p.Reconciler.secrets(ctx, of, true)
}

// recoverPKI writes the Secret of certificates again, from what the Secrets of components have. Authorities that none
// of them has are not made anew: the data, clients and tokens of the control plane are of the old ones.
func (p *plane) recoverPKI(ctx context.Context) error {
	of, name := p.record.Plan, p.object.Name
	parts, err := render.HostedParts(of)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, part := range parts {
		for _, s := range part.Secrets {
			there := &corev1.Secret{}
			err := p.Reader.Get(ctx, types.NamespacedName{Namespace: name, Name: s.Name}, there)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading Secret %s/%s: %w", name, s.Name, err)
			}
			if err != nil || !ours(there, name) {
				continue
			}
			for key, path := range s.Files {
				if data := there.Data[key]; len(data) > 0 {
					files[pkiKey(path)] = data
				}
			}
		}
	}
	var lost, keys []string
	for _, a := range authoritiesOf(of) {
		switch {
		case files[pkiKey(a.cert)] == nil:
			lost = append(lost, pkiKey(a.cert))
		case files[pkiKey(a.key)] == nil && a.own:
			keys = append(keys, pkiKey(a.key))
		}
	}
	if of.TokenKey != nil && files[pkiKey(of.TokenKey.Private)] == nil {
		lost = append(lost, pkiKey(of.TokenKey.Private))
	}
	if len(lost) > 0 {
		return fmt.Errorf("the Secret %s/%s %w, and no component has %s: put it back from a copy; where there is "+
			"none, one without entries has the operator make new authorities, and nothing trusts what the old ones "+
			"issued",
			name, PKIName, errPKILost, strings.Join(lost, ", "))
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: PKIName}, Data: files}
	mark(secret, name)
	if err := p.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", name, PKIName, err)
	}
	why := ""
	if len(keys) > 0 {
		why = "; it lacks " + strings.Join(keys, ", ") + ", without which no certificate is renewed: put them there " +
			"from a copy"
	}
	p.event(corev1.EventTypeWarning, "Recovered", "Secret %s was gone, and is written again from those of the "+
		"components%s", PKIName, why)
	return nil
}

// secrets is plane.secrets, of a control plane that has its certificates already, or not.
func (r *Reconciler) secrets(ctx context.Context, p *plan.Plan, has bool) error {
	files, err := r.certificates(ctx, p, has)
	if err != nil {
		return err
	}
	parts, err := render.HostedParts(p)
	if err != nil {
		return err
	}
	var problems []error
	for _, part := range parts {
		for _, s := range part.Secrets {
			if err := r.componentSecret(ctx, p, &part, s, files); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

func (r *Reconciler) componentSecret(ctx context.Context, p *plan.Plan, part *render.HostedPart, s render.HostedSecret,
	files map[string][]byte) error {
	if len(s.Files) == 0 {
		err := r.Reader.Get(ctx, types.NamespacedName{Namespace: p.Name, Name: s.Name}, partial("Secret"))
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s reads %s, for which the plan has no file: put them into Secret %s/%s",
				part.Component.Name, s.Directory, p.Name, s.Name)
		}
		return err
	}
	data, wanted := map[string]any{}, map[string][]byte{}
	for _, key := range slices.Sorted(maps.Keys(s.Files)) {
		content, ok := files[pkiKey(s.Files[key])]
		if !ok {
			return fmt.Errorf("%s reads %s, which nothing provides: put it into Secret %s/%s as %s",
				part.Component.Name, s.Files[key], p.Name, PKIName, pkiKey(s.Files[key]))
		}
		data[key], wanted[key] = base64.StdEncoding.EncodeToString(content), content
	}
	// Mostly it is as it should be: one request, not two for each component.
	there := &corev1.Secret{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: p.Name, Name: s.Name}, there)
	if err == nil && ours(there, p.Name) && there.Labels[nameLabel] == part.Component.Name &&
		maps.EqualFunc(there.Data, wanted, bytes.Equal) {
		return nil
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": p.Name, "name": s.Name,
			"labels": map[string]any{nameLabel: part.Component.Name}},
		"data": data}}
	return r.apply(ctx, secret, p.Name)
}

func partial(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
}

// certificates returns the files of the control plane by their keys, after issuing what is missing. Errors: one that
// has the Secret already, and it is gone.
func (r *Reconciler) certificates(ctx context.Context, p *plan.Plan, has bool) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: p.Name, Name: PKIName}, secret)
	there := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Secret %s/%s: %w", p.Name, PKIName, err)
	case !there && has:
		return nil, fmt.Errorf("the Secret %s/%s %w", p.Name, PKIName, errPKILost)
	}
	files := maps.Clone(secret.Data)
	if files == nil {
		files = map[string][]byte{}
	}
	if err := r.issue(p, files); err != nil {
		return nil, err
	}
	if there && maps.EqualFunc(files, secret.Data, bytes.Equal) {
		return files, nil
	}
	secret.Data = files
	if there {
		err = r.Client.Update(ctx, secret) // with the resourceVersion that was read
	} else {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: p.Name, Name: PKIName}
		mark(secret, p.Name)
		err = r.Client.Create(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("writing Secret %s/%s: %w", p.Name, PKIName, err)
	}
	return files, nil
}

// issue adds to the files what the plan needs: authorities of the control plane's own, where nothing that runs
// elsewhere has one, and certificates.
func (r *Reconciler) issue(p *plan.Plan, files map[string][]byte) error {
	now := r.Now()
	given := pki.Given{Authorities: map[string]*pki.Authority{},
		Has: func(_, path string) bool { return len(files[pkiKey(path)]) > 0 }}
	var problems []error
	for _, a := range authoritiesOf(p) {
		authority, err := r.authority(p, a, files, now)
		if err != nil {
			problems = append(problems, err)
		} else if authority != nil {
			given.Authorities[a.cert] = authority
		}
	}
	for _, c := range p.Certificates {
		if c.Existing || c.Authority || !given.Has("", c.Cert) || given.Authorities[c.CA] == nil {
			continue
		}
		if lacking, err := pki.Lacking(c, files[pkiKey(c.Cert)]); err != nil || len(lacking) > 0 ||
			isDue(files[pkiKey(c.Cert)], files[pkiKey(c.CA)], now) {
			delete(files, pkiKey(c.Cert))
			delete(files, pkiKey(c.Key))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	issued, err := pki.Issue(p, given, pki.LifetimeOf(now, leafLife), pki.LifetimeOf(now, authorityLife))
	if err != nil {
		return err
	}
	for _, f := range issued {
		files[pkiKey(f.Path)] = f.Data
	}
	return nil
}

// isDue reports whether a certificate is to be issued anew: it ends soon, or begins later than now, as one does that
// was issued while the clock was ahead. Where its authority begins later, too, it is the clock of now that is wrong.
func isDue(certificate, authority []byte, now time.Time) bool {
	list, err := pki.ParseCertificates(certificate)
	if err != nil || list[0].NotAfter.Before(now.Add(renewBefore)) {
		return true
	}
	by, err := pki.ParseCertificates(authority)
	return list[0].NotBefore.After(now) && err == nil && !by[0].NotBefore.After(now)
}

// signer is an authority that a plan names: where its certificate and its key lie.
type signer struct {
	cert, key, name string
	own             bool // nothing that runs elsewhere trusts it, so that it may be made
}

// authoritiesOf are those that sign what the plan has issued.
func authoritiesOf(p *plan.Plan) []signer {
	makes := func(cert string) bool {
		return slices.ContainsFunc(p.Certificates, func(c plan.Certificate) bool {
			return c.Authority && c.Cert == cert && !c.Existing
		})
	}
	list := []signer{{cert: p.PKI.CA, key: p.PKI.CAKey, name: "kubernetes",
		own: !p.Legacy.Existing || pki.MakesAuthority(p)}}
	if front := p.PKI.RequestHeaderCA; makes(front) {
		list = append(list, signer{cert: front, key: spec.KeyBeside(front), name: "front-proxy", own: true})
	}
	for _, s := range p.Stores {
		if s.TLS == nil || slices.ContainsFunc(list, func(o signer) bool { return o.cert == s.TLS.CA }) {
			continue
		}
		elsewhere := slices.ContainsFunc(p.Stores, func(o plan.Store) bool {
			return o.TLS != nil && o.TLS.CA == s.TLS.CA && o.Managed == nil
		})
		list = append(list, signer{cert: s.TLS.CA, key: spec.KeyBeside(s.TLS.CA), name: "etcd", own: !elsewhere})
	}
	return slices.DeleteFunc(list, func(s signer) bool { return s.cert == "" })
}

// authority reads an authority, or makes it; nil where the plan needs only its certificate, which is there.
func (r *Reconciler) authority(p *plan.Plan, a signer, files map[string][]byte, now time.Time) (*pki.Authority, error) {
	cert, key := files[pkiKey(a.cert)], files[pkiKey(a.key)]
	switch {
	case cert != nil && key != nil:
		authority, err := pki.ParseAuthority(cert, key)
		if err != nil {
			return nil, fmt.Errorf("in Secret %s/%s, %s and %s: %w", p.Name, PKIName, pkiKey(a.cert), pkiKey(a.key),
				err)
		}
		return authority, nil
	case cert == nil && key == nil && a.own:
		authority, pair, err := pki.NewAuthority(a.name, pki.LifetimeOf(now, authorityLife))
		if err != nil {
			return nil, err
		}
		files[pkiKey(a.cert)], files[pkiKey(a.key)] = pair.Certificate, pair.Key
		return authority, nil
	case cert != nil:
		return nil, nil // what it would have to sign is reported when it is missing
	}
	return nil, fmt.Errorf("%s is the CA of existing components, and is missing: put it into Secret %s/%s as %s, "+
		"and its key as %s where certificates are to be issued", a.cert, p.Name, PKIName, pkiKey(a.cert), pkiKey(a.key))
}

// placed are files of a control plane in a directory of this process.
type placed struct {
	name, directory string
	secret          *corev1.Secret
}

// place reads the files of a control plane. Their owner calls remove.
func (r *Reconciler) place(ctx context.Context, name string) (*placed, error) {
	p := &placed{name: name, secret: &corev1.Secret{}}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: name, Name: PKIName}, p.secret)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", name, PKIName, err)
	}
	p.directory, err = os.MkdirTemp("", "fusionctl-files-")
	return p, err
}

func (p *placed) remove() { os.RemoveAll(p.directory) } //nolint:errcheck // a directory of ours alone

// files writes the files of these paths of the plan, and changes the paths to where they are here.
func (p *placed) files(paths ...*string) error {
	for _, path := range paths {
		if *path == "" { // of a client without a certificate
			continue
		}
		data, ok := p.secret.Data[pkiKey(*path)]
		if !ok {
			return fmt.Errorf("in Secret %s/%s there is no %s, with which the control plane is read", p.name, PKIName,
				pkiKey(*path))
		}
		*path = filepath.Join(p.directory, pkiKey(*path))
		if err := os.WriteFile(*path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// reachable writes the files with which stores are read into a directory of this process, and returns the stores with
// their paths there. done removes it.
func (r *Reconciler) reachable(ctx context.Context, name string, stores []plan.Store) (there []plan.Store,
	done func(), err error) {
	p, err := r.place(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range stores {
		if s.TLS != nil {
			t := *s.TLS
			if err := p.files(&t.CA, &t.Cert, &t.Key); err != nil {
				p.remove()
				return nil, nil, err
			}
			s.TLS = &t
		}
		there = append(there, s)
	}
	return there, p.remove, nil
}
