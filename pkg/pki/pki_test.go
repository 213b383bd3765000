package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

var (
	now       = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	year      = LifetimeOf(now, 365*24*time.Hour)
	tenYears  = LifetimeOf(now, 10*365*24*time.Hour)
	nothingIs = func(host, path string) bool { return false }
)

// givenFor has an authority for each that the plan calls existing, and nothing else.
func givenFor(t *testing.T, p *plan.Plan) Given {
	t.Helper()
	given := Given{Authorities: map[string]*Authority{}, Has: nothingIs}
	for _, c := range p.Certificates {
		if c.Authority && c.Existing && given.Authorities[c.Cert] == nil {
			given.Authorities[c.Cert], _ = authority(t, "existing "+c.Cert, tenYears)
		}
		if !c.Authority && given.Authorities[c.CA] == nil &&
			!slices.ContainsFunc(p.Certificates,
				func(a plan.Certificate) bool { return a.Cert == c.CA && a.Authority && !a.Existing }) {
			given.Authorities[c.CA], _ = authority(t, "existing "+c.CA, tenYears)
		}
	}
	return given
}

func authority(t *testing.T, name string, lifetime Lifetime) (*Authority, Pair) {
	t.Helper()
	a, pair, err := NewAuthority(name, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return a, pair
}

func parsed(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	certificates, err := ParseCertificates(text)
	if err != nil || len(certificates) != 1 {
		t.Fatalf("ParseCertificates = %d certificates, %v, want one", len(certificates), err)
	}
	return certificates[0]
}

// TestEveryCertificateOfEveryExample issues what the plans of the examples need and holds each file against its plan.
func TestEveryCertificateOfEveryExample(t *testing.T) {
	entries, err := examples.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	issued := 0
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".yaml") || strings.HasSuffix(entry.Name(), "-refused.yaml") {
			continue
		}
		t.Run(entry.Name(), func(t *testing.T) {
			p := plantest.Example(t, entry.Name())
			given := givenFor(t, p)
			files, err := Issue(p, given, year, tenYears)
			if err != nil {
				t.Fatal(err)
			}
			byPath := map[string]File{}
			for _, f := range files {
				if _, twice := byPath[f.Host+f.Path]; twice {
					t.Errorf("%s of %s is issued twice", f.Path, f.Host)
				}
				byPath[f.Host+f.Path] = f
			}
			for _, c := range p.Certificates {
				cert, key := byPath[c.Host+c.Cert], byPath[c.Host+c.Key]
				if c.Existing {
					if cert.Path != "" || key.Path != "" {
						t.Errorf("%s exists and is issued again", c.Cert)
					}
					continue
				}
				if cert.Secret || !key.Secret {
					t.Errorf("%s: the key is secret and the certificate is not, got %v, %v", c.Cert, key.Secret,
						cert.Secret)
				}
				if _, err := tls.X509KeyPair(cert.Data, key.Data); err != nil {
					t.Errorf("%s and %s of %s: %v", c.Cert, c.Key, c.Host, err)
					continue
				}
				checkCertificate(t, c, parsed(t, cert.Data))
				issuer := given.Authorities[c.CA]
				if issuer == nil {
					own := c.CA
					if c.Authority {
						own = c.Cert
					}
					issuer = &Authority{Certificate: parsed(t, byPath[c.Host+own].Data)}
				}
				checkChain(t, c, parsed(t, cert.Data), issuer.Certificate)
				issued++
			}
		})
	}
	if issued < 20 {
		t.Errorf("the examples need %d certificates", issued)
	}
}

func checkCertificate(t *testing.T, want plan.Certificate, got *x509.Certificate) {
	t.Helper()
	var ips []string
	for _, ip := range got.IPAddresses {
		ips = append(ips, ip.String())
	}
	var usages []string
	for _, usage := range got.ExtKeyUsage {
		usages = append(usages, map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: plan.UsageServer,
			x509.ExtKeyUsageClientAuth: plan.UsageClient}[usage])
	}
	lifetime := year
	if want.Authority {
		lifetime = tenYears
	}
	type facts struct {
		CN               string
		O, DNS, IP, Uses []string
		CA, Signs        bool
		From, Until      time.Time
	}
	wanted := facts{want.CommonName, want.Organizations, want.DNSNames, want.IPs, want.Usages, want.Authority,
		want.Authority, lifetime.From, lifetime.Until}
	found := facts{got.Subject.CommonName, got.Subject.Organization, got.DNSNames, ips, usages, got.IsCA,
		got.KeyUsage&x509.KeyUsageCertSign != 0, got.NotBefore, got.NotAfter}
	if diff := cmp.Diff(wanted, found); diff != "" {
		t.Errorf("%s of %s (-plan +certificate):\n%s", want.Cert, want.Host, diff)
	}
	if slices.Contains(got.Subject.Organization, mastersGroup) {
		t.Errorf("%s is in %s", want.Cert, mastersGroup)
	}
	if !got.BasicConstraintsValid || got.SerialNumber.Sign() <= 0 {
		t.Errorf("%s: basic constraints %v, serial number %v", want.Cert, got.BasicConstraintsValid, got.SerialNumber)
	}
}

func checkChain(t *testing.T, c plan.Certificate, got, issuer *x509.Certificate) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(issuer)
	options := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := got.Verify(options); err != nil {
		t.Errorf("%s of %s by %q: %v", c.Cert, c.Host, issuer.Subject.CommonName, err)
	}
	for _, name := range slices.Concat(c.DNSNames, c.IPs) {
		if err := got.VerifyHostname(name); err != nil {
			t.Errorf("%s of %s: %v", c.Cert, c.Host, err)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	a, _ := authority(t, "ca", year)
	good := plan.Certificate{Cert: "client.crt", CommonName: "alice", Usages: []string{plan.UsageClient}}
	for want, change := range map[string]func(*plan.Certificate, *Lifetime){
		`client.crt: group system:masters bypasses every policy; fusionctl does not issue it`: func(c *plan.Certificate,
			_ *Lifetime) {
			c.Organizations = []string{"devs", mastersGroup}
		},
		`client.crt: want a common name and a usage`: func(c *plan.Certificate,
			_ *Lifetime) {
			c.CommonName = ""
		},
		`client.crt: want a common name and a usage `: func(c *plan.Certificate,
			_ *Lifetime) {
			c.Usages = nil
		},
		`client.crt: usage "codesign": want ` + plan.UsageServer + ` or ` +
			plan.UsageClient: func(c *plan.Certificate, _ *Lifetime) { c.Usages = []string{"codesign"} },
		`client.crt: "10.0.0": want an IP address`: func(c *plan.Certificate,
			_ *Lifetime) {
			c.IPs = []string{"10.0.0"}
		},
		`client.crt: the CA "ca" expired on 2027-03-01`: func(_ *plan.Certificate,
			l *Lifetime) {
			l.From = year.Until.Add(time.Second)
		},
	} {
		c, lifetime := good, year
		change(&c, &lifetime)
		if pair, err := a.Issue(c, lifetime); err == nil || err.Error() != strings.TrimSpace(want) || pair.Key != nil {
			t.Errorf("Issue(%+v) = %d bytes of key, %v, want %s", c, len(pair.Key), err, want)
		}
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	a, _ := authority(t, "ca", year)
	pair, err := a.Issue(plan.Certificate{Cert: "c", CommonName: "c", Usages: []string{plan.UsageClient}}, tenYears)
	if err != nil {
		t.Fatal(err)
	}
	if got := parsed(t, pair.Certificate).NotAfter; !got.Equal(year.Until) {
		t.Errorf("the certificate is good until %s, its authority until %s", got, year.Until)
	}
}

func TestCertificatesOfOneAuthorityDiffer(t *testing.T) {
	a, _ := authority(t, "ca", year)
	serials, keys := map[string]bool{}, map[string]bool{}
	for range 20 {
		pair, err := a.Issue(plan.Certificate{Cert: "c", CommonName: "c", Usages: []string{plan.UsageClient}}, year)
		if err != nil {
			t.Fatal(err)
		}
		serials[parsed(t, pair.Certificate).SerialNumber.String()], keys[string(pair.Key)] = true, true
	}
	if len(serials) != 20 || len(keys) != 20 {
		t.Errorf("20 certificates have %d serial numbers and %d keys", len(serials), len(keys))
	}
}

// foreign is an authority as others made it.
func foreign(t *testing.T, key crypto.Signer, change func(*x509.Certificate)) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "theirs"},
		NotBefore: year.From, NotAfter: year.Until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestParseAuthority(t *testing.T) {
	elliptical, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	old, _ := rsa.GenerateKey(rand.Reader, 2048)
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	block := func(kind string, der []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	sec1 := func(key *ecdsa.PrivateKey) []byte {
		der, err := x509.MarshalECPrivateKey(key)
		return block("EC PRIVATE KEY", der, err)
	}
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return block("PRIVATE KEY", der, err)
	}
	same := func(*x509.Certificate) {}
	mine := foreign(t, elliptical, same)
	_, other := authority(t, "other", year)

	for name, given := range map[string][2][]byte{
		"SEC 1":    {mine, sec1(elliptical)},
		"PKCS #8":  {mine, pkcs8(elliptical)},
		"PKCS #1":  {foreign(t, old, same), block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(old), nil)},
		"Ed25519":  {foreign(t, edwards, same), pkcs8(edwards)},
		"a bundle": {slices.Concat(other.Certificate, mine), sec1(elliptical)},
		"text around": {slices.Concat([]byte("# comment\n"), mine),
			slices.Concat([]byte("Bag Attributes\n"), sec1(elliptical))},
		"without a usage":   {foreign(t, elliptical, func(c *x509.Certificate) { c.KeyUsage = 0 }), sec1(elliptical)},
		"made by fusionctl": {other.Certificate, other.Key},
	} {
		a, err := ParseAuthority(given[0], given[1])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pair,
			err := a.Issue(plan.Certificate{Cert: "c", CommonName: "c", Usages: []string{plan.UsageServer},
			DNSNames: []string{"api"}}, year)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkChain(t, plan.Certificate{Cert: name, DNSNames: []string{"api"}}, parsed(t, pair.Certificate),
			a.Certificate)
	}

	for want, given := range map[string][2][]byte{
		"the key belongs to none of the certificates": {other.Certificate, sec1(elliptical)},
		`certificate of "theirs": is not a CA`: {foreign(t, elliptical,
			func(c *x509.Certificate) { c.IsCA = false }), sec1(elliptical)},
		`certificate of "theirs": its key usage does not allow signing`: {foreign(t, elliptical,
			func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), sec1(elliptical)},
		"want a PEM file with a CERTIFICATE block": {sec1(elliptical), sec1(elliptical)},
		"want a PEM file with a private key":       {mine, mine},
		"the private key is encrypted; want it without a passphrase": {mine,
			block("ENCRYPTED PRIVATE KEY", []byte("secret"), nil)},
		"want a PEM file with a private key ": {mine, nil},
	} {
		if _, err := ParseAuthority(given[0], given[1]); err == nil || err.Error() != strings.TrimSpace(want) {
			t.Errorf("ParseAuthority = %v, want %s", err, want)
		}
	}
	broken := []byte("very secret bytes")
	if _, err := ParseAuthority(mine, block("PRIVATE KEY", broken, nil)); err == nil ||
		strings.Contains(err.Error(), string(broken)) {
		t.Errorf("ParseAuthority of a broken key = %v, want an error without the key", err)
	}
}

func TestIssueKeepsWhatIsThere(t *testing.T) {
	p := plantest.Example(t, "split-1.15-1.36.yaml")
	given := givenFor(t, p)
	all, err := Issue(p, given, year, tenYears)
	if err != nil {
		t.Fatal(err)
	}
	given.Has = func(host, path string) bool { return true }
	if files, err := Issue(p, given, year, tenYears); err != nil || len(files) != 0 {
		t.Errorf("Issue where everything is there = %d files, %v, want none", len(files), err)
	}
	var leaf plan.Certificate
	for _, c := range p.Certificates {
		if !c.Existing && !c.Authority {
			leaf = c
		}
	}
	for _, half := range []string{leaf.Cert, leaf.Key} {
		given.Has = func(host, path string) bool { return host == leaf.Host && path == half }
		want := fmt.Sprintf("host %s: of %s and %s one exists and one does not; remove or complete them by hand",
			leaf.Host,
			leaf.Cert, leaf.Key)
		if files, err := Issue(p, given, year, tenYears); err == nil || !strings.Contains(err.Error(), want) ||
			files != nil {
			t.Errorf("Issue where %s alone is there = %d files, %v, want %s", half, len(files), err, want)
		}
	}
	given.Has = nothingIs
	given.Authorities = nil
	if files, err := Issue(p, given, year, tenYears); err == nil ||
		!strings.Contains(err.Error(), "whose key was not given") || files != nil {
		t.Errorf("Issue without authorities = %d files, %v, want an error for each", len(files), err)
	}
	if len(all) == 0 {
		t.Error("the example needs no files")
	}
}

func TestServiceAccountKeys(t *testing.T) {
	private, public, err := NewServiceAccountKey()
	if err != nil {
		t.Fatal(err)
	}
	derived, err := PublicKey(private)
	if err != nil || string(derived) != string(public) {
		t.Errorf("PublicKey = %q, %v, want %q", derived, err, public)
	}
	block, _ := pem.Decode(public)
	if block == nil || block.Type != "PUBLIC KEY" || strings.Contains(string(public), "PRIVATE") {
		t.Fatalf("the public key is %q", public)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if rsaKey, ok := key.(*rsa.PublicKey); err != nil || !ok || rsaKey.N.BitLen() != serviceAccountKeyBits {
		t.Errorf("the public key is %T, %v, want RSA of %d bits", key, err, serviceAccountKeyBits)
	}
	if _, err := PublicKey(public); err == nil {
		t.Error("PublicKey of a public key: no error")
	}
}

func TestLackingNames(t *testing.T) {
	a, _ := authority(t, "ca", year)
	c := plan.Certificate{Cert: "c", CommonName: "c", Usages: []string{plan.UsageServer},
		DNSNames: []string{"kubernetes"},
		IPs:      []string{"10.96.0.1"}}
	pair, err := a.Issue(c, year)
	if err != nil {
		t.Fatal(err)
	}
	if lacking, err := Lacking(c, pair.Certificate); err != nil || len(lacking) != 0 {
		t.Errorf("Lacking = %q, %v, want none", lacking, err)
	}
	c.DNSNames, c.IPs = append(c.DNSNames, "api.example.com"), append(c.IPs, "fd00::1")
	if lacking, err := Lacking(c, pair.Certificate); err != nil ||
		!slices.Equal(lacking, []string{"api.example.com", "fd00::1"}) {
		t.Errorf("Lacking = %q, %v, want the two that were added", lacking, err)
	}
	if _, err := Lacking(c, pair.Key); err == nil {
		t.Error("Lacking of a key: no error")
	}
}

func TestListReadsCertificatesAndNoKeys(t *testing.T) {
	pair := func(name string, good time.Duration) Pair {
		_, pair, err := NewAuthority(name, LifetimeOf(now, good))
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	long, short := pair("long", 100*24*time.Hour), pair("short", 36*time.Hour)
	tree := fstest.MapFS{
		"etc/ca.crt":      {Data: slices.Concat(long.Certificate, short.Certificate)},
		"etc/short.pem":   {Data: short.Certificate},
		"etc/short-k.pem": {Data: short.Key},
		"etc/ca.key":      {Data: []byte("not opened")},
		"other/long.crt":  {Data: long.Certificate},
	}
	list, err := List(tree, "etc", now)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, fmt.Sprintf("%s %s %d", c.File, c.CommonName, c.Days))
	}
	want := []string{"etc/ca.crt short 1", "etc/short.pem short 1", "etc/ca.crt long 100"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("certificates (-want +got):\n%s", diff)
	}
	tree["etc/bad.crt"] = &fstest.MapFile{Data: []byte("none")}
	if _, err := List(tree, "etc", now); err == nil || !strings.Contains(err.Error(), "etc/bad.crt") {
		t.Errorf("a file that holds no certificate: %v", err)
	}
}

// FuzzParseContents: files of hosts, some of which hold keys. Nothing of a key is in an error.
func FuzzParseContents(f *testing.F) {
	_, pair, err := NewAuthority("kubernetes", LifetimeOf(time.Unix(1_700_000_000, 0), time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(slices.Clone(pair.Certificate), pair.Key...))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseContents(data)
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("an error of %d bytes: %.100s", len(err.Error()), err)
		}
		known := slices.DeleteFunc(slices.Clone(c.Certificates),
			func(c *x509.Certificate) bool { return c.PublicKey == nil })
		if err == nil && len(c.PublicKeys) < len(known) {
			t.Errorf("%d certificates, and %d public keys", len(known), len(c.PublicKeys))
		}
		_, _ = ParseCertificates(data)
		_, _ = ParseAuthority(data, data)
	})
}

// TestCertificatesThatAreAnothers: with the names that are wanted, a certificate may be of another user, in another
// group, for another use, or expired.
func TestCertificatesThatAreAnothers(t *testing.T) {
	by, _ := authority(t, "ca", LifetimeOf(time.Now(), time.Hour))
	good := plan.Certificate{Cert: "a.crt", CommonName: "alice", Organizations: []string{"a", "b"},
		Usages: []string{plan.UsageClient, plan.UsageServer}}
	for says, change := range map[string]func(*plan.Certificate){
		"":                                     func(*plan.Certificate) {},
		`is of "bob", want "alice"`:            func(c *plan.Certificate) { c.CommonName = "bob" },
		`is in the groups ["a" "b" "c"], want`: func(c *plan.Certificate) { c.Organizations = []string{"c", "b", "a"} },
		"is not for the use of a " + plan.UsageServer: func(c *plan.Certificate) { c.Usages = c.Usages[:1] },
	} {
		c := good
		change(&c)
		pair, err := by.Issue(c, LifetimeOf(time.Now(), time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		why := strings.Join(Unlike(good, pair.Certificate, time.Now()), "; ")
		if !strings.HasPrefix(why, says) || says == "" && why != "" {
			t.Errorf("%q, want %q", why, says)
		}
		if says == "" {
			why := Unlike(good, pair.Certificate, time.Now().Add(2*time.Hour))
			if len(why) != 1 || !strings.HasPrefix(why[0], "is valid from") {
				t.Errorf("expired: %q", why)
			}
		}
	}
	if why := Unlike(good, []byte("none"), time.Now()); len(why) != 1 {
		t.Errorf("no certificate: %q", why)
	}
}

// TestFilesAreOfABoundedSize: what is called a certificate may be a file of terabytes.
func TestFilesAreOfABoundedSize(t *testing.T) {
	tree := endless{fstest.MapFS{"etc/a.crt": {}}}
	if _, err := List(tree, "etc", now); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("List = %v, want its limit", err)
	}
}

// endless has files that say of themselves that they are four terabytes, and go on.
type endless struct{ fs.FS }

func (e endless) Open(name string) (fs.File, error) {
	f, err := e.FS.Open(name)
	if path.Ext(name) != ".crt" || err != nil {
		return f, err
	}
	return endlessFile{f}, nil
}

type endlessFile struct{ fs.File }

func (endlessFile) Read(p []byte) (int, error) { return len(p), nil }

func (e endlessFile) Stat() (fs.FileInfo, error) {
	info, err := e.File.Stat()
	return endlessInfo{info}, err
}

type endlessInfo struct{ fs.FileInfo }

func (endlessInfo) Size() int64 { return 4 << 40 }

// TestSignersOfCertificates: a certificate is signed by an authority, or by one between them that the file has.
func TestSignersOfCertificates(t *testing.T) {
	root, rootPair := authority(t, "ca", year)
	between, _ := authority(t, "between", year)
	der, err := x509.CreateCertificate(rand.Reader, between.Certificate, root.Certificate,
		between.Certificate.PublicKey, root.key)
	if err != nil {
		t.Fatal(err)
	}
	middle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	between.Certificate, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := between.Issue(plan.Certificate{CommonName: "a", Usages: []string{plan.UsageClient}}, year)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := authority(t, "ca", year) // of the same name
	for name, test := range map[string]struct {
		data []byte
		by   *Authority
		want bool
	}{
		"the CA itself":          {rootPair.Certificate, root, true},
		"by the one between":     {leaf.Certificate, between, true},
		"with the one between":   {slices.Concat(leaf.Certificate, middle), root, true},
		"without it":             {leaf.Certificate, root, false},
		"one of the same name":   {slices.Concat(leaf.Certificate, middle), again, false},
		"itself, and no CA":      {slices.Concat(leaf.Certificate, leaf.Certificate), root, false},
		"what is no certificate": {nil, root, false},
	} {
		if got := signedBy(test.data, []*x509.Certificate{test.by.Certificate}); got != test.want {
			t.Errorf("%s: signedBy = %v, want %v", name, got, test.want)
		}
	}
}
