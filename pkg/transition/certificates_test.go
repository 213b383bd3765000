package transition

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// issued are the certificates of a plan by an authority.
func issued(t *testing.T, p *plan.Plan, by *pki.Authority) map[string][]render.File {
	t.Helper()
	tree := fstest.MapFS{}
	for _, c := range p.Certificates {
		if c.Existing || c.Authority {
			continue
		}
		pair, err := by.Issue(c, pki.LifetimeOf(time.Now(), time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		tree[c.Host+c.Cert] = &fstest.MapFile{Data: pair.Certificate}
		tree[c.Host+c.Key] = &fstest.MapFile{Data: pair.Key}
	}
	files, err := CertificatesOf(p, tree)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	by, _, err := pki.NewAuthority("rotation", pki.LifetimeOf(time.Now(), time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return by
}

// rotation has the certificates of a setup be others.
func rotation(t *testing.T, s Setup) [2]Setup {
	by := authority(t)
	was, is := s, s
	was.Certificates, is.Certificates = issued(t, s.Plan, by), issued(t, s.Plan, by)
	return [2]Setup{was, is}
}

// TestCertificatesRotate: each is put while what reads it is stopped, and every component that reads one is started
// again; the way back has those of before. Killed at every call, it is one of the journeys.
func TestCertificatesRotate(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		pair := rotation(t, onHosts(t, target, 1, 2, 3))
		tr, err := New(pair[0], pair[1], facts())
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Validate(); err != nil {
			t.Fatal(err)
		}
		parts, err := render.Parts(pair[1].Plan, target)
		if err != nil {
			t.Fatal(err)
		}
		steps := func(host string, of func(*Action) bool) (at []int) {
			for i, s := range tr.Steps {
				if s.Host == host && s.Do != nil && of(s.Do) {
					at = append(at, i)
				}
			}
			return at
		}
		restarted := 0
		for i := range parts {
			p := &parts[i]
			var files []string
			for _, f := range pair[1].Certificates[p.Component.Host] {
				if mentions(string(p.Start[0].Data), f.Path) {
					files = append(files, f.Path)
				}
			}
			stops := steps(p.Component.Host, func(a *Action) bool {
				return a.Kind == StopUnit && a.Unit == p.Unit || a.Kind == RemoveFile && a.File.Path == p.Start[0].Path
			})
			starts := steps(p.Component.Host, func(a *Action) bool {
				return a.Kind == StartUnit && a.Unit == p.Unit || a.Kind == PutFile && a.File.Path == p.Start[0].Path
			})
			if len(files) == 0 {
				continue
			}
			restarted++
			if len(stops) != 1 || len(starts) != 1 {
				t.Errorf("%s on %s stops at %v and starts at %v", p.Component.Name, p.Component.Host, stops, starts)
				continue
			}
			for _, file := range files { // between both, for the way back has the same order
				at := steps(p.Component.Host, func(a *Action) bool { return a.Kind == PutFile && a.File.Path == file })
				if !slices.ContainsFunc(at, func(i int) bool { return stops[0] < i && i < starts[0] }) {
					t.Errorf("%s on %s stops at %d and starts at %d, %s is put at %v", p.Component.Name,
						p.Component.Host, stops[0], starts[0], file, at)
				}
			}
		}
		if restarted < 6 {
			t.Errorf("%d components read certificates", restarted)
		}
		for host, files := range pair[1].Certificates {
			for _, f := range files {
				at := steps(host, func(a *Action) bool { return a.Kind == PutFile && a.File.Path == f.Path })
				if len(at) == 0 || slices.ContainsFunc(at, func(i int) bool { return tr.Steps[i].Do.Was == nil }) {
					t.Errorf("%s of %s is put at %v, want it over that of before", f.Path, host, at)
				}
			}
		}
	}
}

// TestCertificatesOfOddPathsRotate: a path that a unit, a pod or a kubeconfig spells in another way is that of a file
// which is read there. Its certificates were replaced, and what read them went on with those of before.
func TestCertificatesOfOddPathsRotate(t *testing.T) {
	const odd = `/etc/kubernetes/it's 100%i {{$HOME}} $(A): #`
	text := regexp.MustCompile(`/etc/kubernetes/pki(\S+)`).ReplaceAllStringFunc(example(t, haExample),
		func(file string) string {
			return fmt.Sprintf("%q", odd+strings.TrimPrefix(file, "/etc/kubernetes/pki"))
		})
	text = strings.Replace(text, "\nspec:\n", fmt.Sprintf("\nspec:\n  pki: {directory: %q}\n", odd), 1)
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		pair := rotation(t, Setup{Plan: planOf(t, haExample, text), Target: target})
		b := &builder{from: pair[0], to: pair[1], disk: map[place]render.File{}, final: map[place]render.File{}}
		if err := b.read(); err != nil {
			t.Fatal(err)
		}
		read := 0
		for _, c := range pair[1].Plan.Components {
			if !slices.ContainsFunc(c.Args, func(a plan.Arg) bool { return strings.HasPrefix(a.Value, odd) }) {
				continue
			}
			if !slices.ContainsFunc(b.changes, func(o change) bool {
				return o.is != nil && o.is.Component.Host == c.Host && o.is.Component.Name == c.Name
			}) {
				t.Errorf("%s, %s of %s: goes on with the certificates of before", target, c.Name, c.Host)
			}
			read++
		}
		if read < 6 {
			t.Errorf("%s: %d components read certificates", target, read)
		}
	}
}

// TestCertificatesThatAreRefused: of another authority, and where it is not known what is replaced.
func TestCertificatesThatAreRefused(t *testing.T) {
	one := onHosts(t, render.Systemd, 1)
	with := func(c map[string][]render.File) Setup { s := one; s.Certificates = c; return s }
	first := issued(t, one.Plan, authority(t))
	for says, pair := range map[string][2]Setup{
		"is of another authority":           {with(first), with(issued(t, one.Plan, authority(t)))},
		"those of both plans are needed":    {one, with(first)},
		"those of both plans are needed: w": {with(first), one},
		"does not say by which key":         {with(nameless(t, first)), with(nameless(t, first))},
		"is no certificate":                 {with(first), with(noCertificates(first))},
	} {
		var refused *RefusedError
		if _, err := New(pair[0], pair[1], facts()); !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("New = %v, want it refused: %q", err, says)
		}
	}
	if _, err := CertificatesOf(one.Plan, fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "cp-1/") {
		t.Errorf("without files: %v", err)
	}
	same, err := New(with(first), with(first), facts())
	if err != nil || len(same.Steps) > 0 {
		t.Errorf("to the same: %d steps, %v", len(same.Steps), err)
	}
	installed, err := New(Setup{}, with(first), facts())
	if err != nil || !slices.ContainsFunc(installed.Steps, func(s Step) bool {
		return s.Do != nil && s.Do.Kind == PutFile && s.Do.File.Mode == 0o600 &&
			strings.HasSuffix(s.Do.File.Path, ".key")
	}) {
		t.Errorf("installed with certificates: %v, and no key is put", err)
	}
}

func TestNamesOfFiles(t *testing.T) {
	for text, want := range map[string]bool{"--cert=/a/b.crt\n": true, "/a/b.crt": true, "/a/b.crt2": false,
		"/a/b.crt.old /a/b.crt,": true, "/a/b.cr": false, `"/a/b.crt"`: true, "/a/b.crt/": false} {
		if got := mentions(text, "/a/b.crt"); got != want {
			t.Errorf("%q names it: %t, want %t", text, got, want)
		}
	}
}

// nameless are certificates of authorities of one name that say of no key, as old tools sign: each time another one.
func nameless(t *testing.T, files map[string][]render.File) map[string][]render.File {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return replaced(files, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func noCertificates(files map[string][]render.File) map[string][]render.File {
	return replaced(files, []byte("none"))
}

// replaced are the files with other certificates.
func replaced(files map[string][]render.File, certificate []byte) map[string][]render.File {
	others := map[string][]render.File{}
	for host, list := range files {
		for _, f := range list {
			if f.Mode != keyMode {
				f.Data = certificate
			}
			others[host] = append(others[host], f)
		}
	}
	return others
}
