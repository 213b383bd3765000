package adopted

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/preflight"
)

// made is a control plane with everything that fusionctl and the operator put on its hosts.
func made(t *testing.T, name string) *Cluster {
	t.Helper()
	directory := t.TempDir()
	_, pair, err := pki.NewAuthority("cluster", pki.LifetimeOf(time.Now(), 100*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(directory, "ca.crt"), filepath.Join(directory, "ca.key")
	write(t, cert, pair.Certificate)
	write(t, key, pair.Key)
	c := Make(t, name, directory, cert, key, true)
	c.install(t)
	return c
}

// install puts the programs of the plan on its hosts.
func (c *Cluster) install(t *testing.T) {
	t.Helper()
	for _, component := range c.Plan.Components {
		if component.Program == "" {
			continue
		}
		name := filepath.Join(c.Root, component.Host, filepath.FromSlash(component.Program))
		write(t, name, []byte("#!/bin/sh\n"))
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVerifyIsSilentOnWhatWasMade: pki and render provide what preflight looks for, and the hosts have the rest.
func TestVerifyIsSilentOnWhatWasMade(t *testing.T) {
	for _, name := range Names(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := made(t, name)
			code, out, errs := run(t, "render", c.Spec, "--verify", c.Root, "--host", c.Plan.Hosts[0].Name)
			if code != 0 {
				t.Errorf("render --verify exits %d:\n%s%s", code, out, errs)
			}
		})
	}
}

// tree is one host of a control plane, to be damaged.
type tree struct {
	*testing.T
	*Cluster
	host      string
	ofClients int // how often a store was found to have the CA of clients
}

func (d *tree) at(name string) string { return filepath.Join(d.Root, d.host, filepath.FromSlash(name)) }

// verify is what render --verify finds: RULE PATH of each error, and of the warnings that are not about the end of
// certificates, which are good for a day here.
func (d *tree) verify() (code int, found []string, errs string) {
	d.Helper()
	code, out, errs := run(d.T, "render", d.Spec, "--verify", d.Root, "--host", d.host, "-o", "json")
	var document struct {
		Schema   string
		Complete bool
		Findings []finding.Finding
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil || document.Schema != "fusionctl/render-verify/v1" {
		d.Fatalf("render --verify -o json: %v\n%s%s", err, out, errs)
	}
	for _, f := range document.Findings {
		if f.Rule == preflight.Expired && f.Severity == finding.Warning && strings.Contains(f.Message, "in 0 days") {
			continue
		}
		if f.Rule == preflight.StoreOfClients && f.Subject == etcdCert {
			d.ofClients++ // all CAs of these hosts are one
			continue
		}
		if f.Key == "" || f.Fix == "" || f.File != d.at(f.Subject) {
			d.Errorf("a finding without key, fix or file: %+v", f)
		}
		found = append(found, f.Rule+" "+f.Subject)
	}
	if document.Complete != (code != 1) {
		d.Errorf("exit code %d, complete %v", code, document.Complete)
	}
	return code, found, errs
}

// issue writes a certificate of the cluster's own authority, and its key, in the place of another.
func (d *tree) issue(cert, key, ca string, lifetime pki.Lifetime, change func(*plan.Certificate)) {
	d.Helper()
	files := d.authorities[ca]
	authority, err := pki.ParseAuthority(read(d, files[0]), read(d, files[1]))
	if err != nil {
		d.Fatal(err)
	}
	d.replace(authority, cert, key, lifetime, change)
}

func (d *tree) replace(authority *pki.Authority, cert, key string, lifetime pki.Lifetime,
	change func(*plan.Certificate)) {
	d.Helper()
	at := slices.IndexFunc(d.Plan.Certificates, func(c plan.Certificate) bool { return c.Cert == cert })
	c := d.Plan.Certificates[at]
	change(&c)
	pair, err := authority.Issue(c, lifetime)
	if err != nil {
		d.Fatal(err)
	}
	write(d, d.at(cert), pair.Certificate)
	write(d, d.at(key), pair.Key)
}

// damages are what goes wrong on hosts, and what render --verify says.
var damages = map[string]struct {
	damage func(*tree)
	want   []string
}{
	"a certificate is missing": {func(d *tree) { must(d, os.Remove(d.at(modernCert))) },
		[]string{"FUS260 " + modernCert}},
	"a directory in the place of a file": {func(d *tree) {
		must(d, os.Remove(d.at(modernCert)))
		must(d, os.Mkdir(d.at(modernCert), 0o755))
	}, []string{"FUS260 " + modernCert}},
	"the directory of the modern side is missing": {func(d *tree) {
		must(d, os.RemoveAll(d.at("/etc/kubernetes/pki/modern")))
	}, nil},
	"a program that cannot be executed": {func(d *tree) { must(d, os.Chmod(d.at(program), 0o644)) },
		[]string{"FUS260 " + program}},
	"a key that others can read": {func(d *tree) { must(d, os.Chmod(d.at(modernKey), 0o644)) },
		[]string{"FUS261 " + modernKey}},
	"a key that its group can read": {func(d *tree) { must(d, os.Chmod(d.at(modernKey), 0o640)) },
		[]string{"FUS261 " + modernKey}},
	"an expired certificate": {func(d *tree) {
		d.issue(modernCert, modernKey, clusterCA, pki.Lifetime{From: time.Now().Add(-2 * time.Hour),
			Until: time.Now().Add(-time.Minute)}, same)
	}, []string{"FUS262 " + modernCert}},
	"a certificate of tomorrow": {func(d *tree) {
		d.issue(modernCert, modernKey, clusterCA, pki.Lifetime{From: time.Now().Add(time.Hour),
			Until: time.Now().Add(60 * 24 * time.Hour)}, same)
	}, []string{"FUS262 " + modernCert}},
	"a certificate that ends in ten days": {func(d *tree) {
		d.issue(modernCert, modernKey, clusterCA, pki.LifetimeOf(time.Now(), 10*24*time.Hour), same)
	}, []string{"FUS262 " + modernCert}},
	"a certificate of another CA": {func(d *tree) {
		other, _, err := pki.NewAuthority("other", long)
		must(d, err)
		d.replace(other, modernCert, modernKey, long, same)
	}, []string{"FUS263 " + modernCert}},
	"a front-proxy certificate of the cluster's CA": {func(d *tree) {
		d.issue(proxyCert, proxyKey, clusterCA, long, same)
	}, []string{"FUS263 " + proxyCert}},
	"a certificate without the address of its host": {func(d *tree) {
		d.issue(modernCert, modernKey, clusterCA, long, func(c *plan.Certificate) {
			c.IPs = slices.DeleteFunc(slices.Clone(c.IPs), func(ip string) bool { return ip == "10.0.0.11" })
		})
	}, []string{"FUS264 " + modernCert}},
	"a client certificate to serve with": {func(d *tree) {
		d.issue(modernCert, modernKey, clusterCA, long, func(c *plan.Certificate) {
			c.Usages = []string{plan.UsageClient}
		})
	}, []string{"FUS264 " + modernCert}},
	"a client of another name": {func(d *tree) {
		d.issue(managerCert, managerKey, clusterCA, long, func(c *plan.Certificate) { c.CommonName = "admin" })
	}, []string{"FUS264 " + managerCert}},
	"a client in a group": {func(d *tree) {
		d.issue(managerCert, managerKey, clusterCA, long, func(c *plan.Certificate) {
			c.Organizations = []string{"system:nodes"}
		})
	}, []string{"FUS264 " + managerCert}},
	"the key of another certificate": {func(d *tree) { write(d, d.at(modernKey), read(d, d.at(managerKey))) },
		[]string{"FUS265 " + modernKey}},
	"a certificate in the place of a key": {func(d *tree) { write(d, d.at(modernKey), read(d, d.at(modernCert))) },
		[]string{"FUS265 " + modernKey}},
	"an empty certificate": {func(d *tree) { write(d, d.at(modernCert), nil) }, []string{"FUS265 " + modernCert}},
	"half of a certificate": {func(d *tree) {
		data := read(d, d.at(modernCert))
		write(d, d.at(modernCert), bytes.Replace(data, data[40:100], nil, 1))
	}, []string{"FUS265 " + modernCert}},
	"an encrypted key": {func(d *tree) {
		write(d, d.at(modernKey), pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}}))
	}, []string{"FUS265 " + modernKey}},
	"a front proxy of a name that is not admitted": {func(d *tree) {
		d.issue(proxyCert, proxyKey, proxyCA, long, func(c *plan.Certificate) { c.CommonName = "aggregator" })
	}, []string{"FUS266 " + proxyCert, "FUS266 " + proxyCert}}, // neither side admits it
	"another public key of service accounts": {func(d *tree) {
		_, public, err := pki.NewServiceAccountKey()
		must(d, err)
		write(d, d.at("/etc/kubernetes/pki/sa.pub"), public)
	}, nil},
	"a policy of another plan": {func(d *tree) {
		write(d, d.at(policyFile), append(read(d, d.at(policyFile)), "# more\n"...))
	}, []string{"FUS273 " + policyFile}},
	"a kubeconfig that others can read": {func(d *tree) {
		must(d, os.Chmod(d.at("/etc/kubernetes/modern/controller-manager.conf"), 0o644))
	}, []string{"FUS261 /etc/kubernetes/modern/controller-manager.conf"}},
	"a link within the host": {func(d *tree) {
		must(d, os.Rename(d.at("/etc/kubernetes/pki"), d.at("/etc/elsewhere")))
		must(d, os.Symlink("/etc/elsewhere", d.at("/etc/kubernetes/pki")))
	}, []string{}},
}

const (
	clusterCA   = "/etc/kubernetes/pki/ca.crt"
	proxyCA     = "/etc/kubernetes/pki/front-proxy-ca.crt"
	proxyCert   = "/etc/kubernetes/pki/front-proxy-client.crt"
	proxyKey    = "/etc/kubernetes/pki/front-proxy-client.key"
	modernCert  = "/etc/kubernetes/pki/modern/apiserver.crt"
	modernKey   = "/etc/kubernetes/pki/modern/apiserver.key"
	managerCert = "/etc/kubernetes/pki/modern/controller-manager.crt"
	managerKey  = "/etc/kubernetes/pki/modern/controller-manager.key"
	etcdCert    = "/etc/kubernetes/pki/apiserver-etcd-client.crt"
	policyFile  = "/etc/kubernetes/modern/policy.jsonl"
	program     = "/usr/local/bin/fusionctl"
)

var long = pki.LifetimeOf(time.Now(), 90*24*time.Hour)

func same(*plan.Certificate) {}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerifyNamesEachDamage does to a tree what goes wrong on hosts: each is named with its rule and its file, and
// nothing else is.
func TestVerifyNamesEachDamage(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := made(t, "kubeadm-1.24")
			d := &tree{T: t, Cluster: c, host: c.Plan.Hosts[0].Name}
			if code, found, errs := d.verify(); code != 0 || len(found) > 0 || d.ofClients != 1 {
				t.Fatalf("before: exit code %d, %s, %d stores have the CA of clients\n%s", code, found,
					d.ofClients, errs)
			}
			damage.damage(d)
			_, found, errs := d.verify()
			switch {
			case damage.want == nil && len(found) < 2:
				t.Errorf("found %q, want several", found)
			case damage.want != nil && !slices.Equal(found, damage.want):
				t.Errorf("found %q, want %q\n%s", found, damage.want, errs)
			}
			for _, f := range found {
				if damage.want == nil && !strings.HasPrefix(f, "FUS260 /etc/kubernetes/pki/modern") &&
					!strings.HasPrefix(f, "FUS267 /etc/kubernetes/pki/sa.key") {
					t.Errorf("found %q", f)
				}
			}
		})
	}
}

// TestVerifyKnowsStoresOfTheirOwn: a certificate of another CA than that of clients opens no store to these.
func TestVerifyKnowsStoresOfTheirOwn(t *testing.T) {
	c := made(t, "kubeadm-1.24")
	d := &tree{T: t, Cluster: c, host: c.Plan.Hosts[0].Name}
	_, pair, err := pki.NewAuthority("stores", long)
	must(t, err)
	authority, err := pki.ParseAuthority(pair.Certificate, pair.Key)
	must(t, err)
	issued, err := authority.Issue(plan.Certificate{CommonName: "client", Usages: []string{plan.UsageClient}}, long)
	must(t, err)
	write(t, d.at(etcdCert), issued.Certificate)
	if _, _, errs := d.verify(); d.ofClients != 0 {
		t.Errorf("%d stores have the CA of clients\n%s", d.ofClients, errs)
	}
}

// TestVerifyIsIncompleteWhereItCannotLook: that is no finding, and not clean.
func TestVerifyIsIncompleteWhereItCannotLook(t *testing.T) {
	for name, damage := range map[string]func(*tree){
		"circular links": func(d *tree) {
			must(d, os.Remove(d.at(modernCert)))
			must(d, os.Symlink("apiserver.crt", d.at(modernCert)))
		},
		"a huge file": func(d *tree) {
			must(d, os.Truncate(d.at(modernCert), 1<<30))
		},
		"a legacy key that is not in the tree": func(d *tree) {
			must(d, os.Remove(d.at("/etc/kubernetes/pki/apiserver.crt")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := made(t, "kubeadm-1.24")
			d := &tree{T: t, Cluster: c, host: c.Plan.Hosts[0].Name}
			damage(d)
			if code, found, errs := d.verify(); code != 1 || len(found) > 0 ||
				!strings.Contains(errs, "apiserver.crt") {
				t.Errorf("exit code %d, found %q, %s", code, found, errs)
			}
		})
	}
}
