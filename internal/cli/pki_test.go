package cli

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pki"
)

const pkiSpec = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: test}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}, {name: cp-2, address: 10.0.0.12}]
  stores:
  - {name: core, endpoints: ["https://10.0.0.11:2379"], tls: {ca: /pki/etcd/ca.crt, cert: /pki/etcd/client.crt, key: /pki/etcd/client.key}}
  - {name: modern, endpoints: ["https://10.0.0.11:2479", "https://10.0.0.12:2479"], managed: {version: 3.6.8, dataDir: /var/lib/etcd-modern},
     tls: {ca: /pki/etcd/ca.crt, cert: /pki/etcd/client.crt, key: /pki/etcd/client.key}}
  pki: {directory: /pki}
  legacy: {version: 1.15.12, apiServer: {}, controllerManager: {}, scheduler: {}}
  modern: {version: 1.36.3, apiServer: {}, controllerManager: {}}
  access: [{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods]}]
`

// run runs the command line and returns its exit code and what it printed.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return code, out.String(), errs.String()
}

// authorityFiles writes a new authority and returns its files.
func authorityFiles(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	_, pair, err := pki.NewAuthority(name, pki.LifetimeOf(time.Now(), 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, data := range map[string][]byte{cert: pair.Certificate, key: pair.Key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestPKIIssuesWhatThePlanNeedsAndKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(spec, []byte(pkiSpec), 0o644); err != nil {
		t.Fatal(err)
	}
	caCert, caKey := authorityFiles(t, dir, "ca")
	etcdCert, etcdKey := authorityFiles(t, dir, "etcd")
	args := []string{"pki", spec, "--ca-cert", caCert, "--ca-key", caKey, "--out", out}

	code, _, stderr := run(t, args...)
	if code != exitUsage || !strings.Contains(stderr, "/pki/etcd/ca.crt") {
		t.Fatalf("without the CA of the stores: exit %d, %s; want 2 and the name of the CA", code, stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Fatalf("something was written although not everything could be issued")
	}
	args = append(args, "--etcd-ca-cert", etcdCert, "--etcd-ca-key", etcdKey)
	if code, _, stderr := run(t, args...); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}

	serving := readCertificate(t, filepath.Join(out, "cp-2/pki/modern/apiserver.crt"))
	for _, name := range []string{"kubernetes.default.svc", "10.0.0.12", "127.0.0.1", "10.96.0.1"} {
		if err := serving.VerifyHostname(name); err != nil {
			t.Errorf("the modern server's certificate: %v", err)
		}
	}
	manager := readCertificate(t, filepath.Join(out, "cp-1/pki/modern/controller-manager.crt"))
	if manager.Subject.CommonName != "system:kube-controller-manager" || len(manager.Subject.Organization) != 0 {
		t.Errorf("the modern controller manager is %s", manager.Subject)
	}
	roots := x509.NewCertPool()
	roots.AddCert(readCertificate(t, etcdCert))
	member := readCertificate(t, filepath.Join(out, "cp-1/pki/etcd-modern/server.crt"))
	if _, err := member.Verify(
		x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		t.Errorf("the member's certificate: %v", err)
	}
	sameFile(t, filepath.Join(out, "cp-1/pki/front-proxy-ca.crt"), filepath.Join(out, "cp-2/pki/front-proxy-ca.crt"))
	sameFile(t, filepath.Join(out, "cp-1/pki/sa.key"), filepath.Join(out, "cp-2/pki/sa.key"))
	err := filepath.WalkDir(out, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".key" {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	before, _ := os.ReadFile(filepath.Join(out, "cp-1/pki/modern/apiserver.crt"))
	if code, stdout, stderr := run(t, args...); code != exitDone || stdout != "" {
		t.Errorf("again: exit %d, wrote %q: %s; want nothing to be written", code, stdout, stderr)
	}
	if after, _ := os.ReadFile(filepath.Join(out, "cp-1/pki/modern/apiserver.crt")); !bytes.Equal(before, after) {
		t.Error("a certificate that was there was overwritten")
	}
	onlyThere := filepath.Join(out, "cp-2/pki/front-proxy-ca.crt")
	if err := os.Rename(onlyThere, onlyThere+".away"); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := run(t, args...); code != exitUsage || stdout != "" ||
		!strings.Contains(stderr, "not on every host") {
		t.Errorf("with an authority on one host of two: exit %d, wrote %q: %s; want it said", code, stdout, stderr)
	}
	if err := os.Rename(onlyThere+".away", onlyThere); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(out, "cp-1/pki/modern/apiserver.key")); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, args...); code != exitUsage || !strings.Contains(stderr, "apiserver.key") {
		t.Errorf("with a lost key: exit %d, %s; want 2 and the name of the key", code, stderr)
	}

	code, stdout, _ := run(t, "pki", "show", out, "--warn-days", "0")
	if code != exitDone || !strings.Contains(stdout, "system:kube-controller-manager") ||
		strings.Contains(stdout, "PRIVATE") {
		t.Errorf("show: exit %d\n%s", code, stdout)
	}
	if code, _, _ := run(t, "pki", "show", out, "--warn-days", "400"); code != exitAttention {
		t.Errorf("show of certificates that end soon: exit %d, want 3", code)
	}
}

func TestPKISaysWhichCertificateLacksTheNamesOfALaterPlan(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	caCert, caKey := authorityFiles(t, dir, "ca")
	issue := func(text string) (int, string) {
		t.Helper()
		if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, "pki", spec, "--ca-cert", caCert, "--ca-key", caKey, "--etcd-ca-cert", caCert,
			"--etcd-ca-key", caKey, "--out", out)
		return code, stderr
	}
	if code, stderr := issue(pkiSpec); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	code, stderr := issue(pkiSpec + "  pods: {}\n")
	if code != exitAttention || strings.Count(stderr, "modern/apiserver.crt: was kept, and does not have "+
		"kubernetes-modern, ") != 2 || !strings.Contains(stderr, "10.96.0.2 of ") {
		t.Errorf("with a service that came later: exit %d, %s; want 3 and what the certificates of both hosts lack",
			code, stderr)
	}
	for _, host := range []string{"cp-1", "cp-2"} {
		for _, ending := range []string{".crt", ".key"} {
			if err := os.Remove(filepath.Join(out, host, "pki/modern/apiserver"+ending)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code, stderr := issue(pkiSpec + "  pods: {}\n"); code != exitDone {
		t.Errorf("after they were removed: exit %d: %s", code, stderr)
	}
	for _, name := range []string{"kubernetes-modern.default.svc.cluster.local", "10.96.0.2"} {
		if err := readCertificate(t, filepath.Join(out, "cp-2/pki/modern/apiserver.crt")).VerifyHostname(
			name); err != nil {
			t.Error(err)
		}
	}
}

func TestPKIRefusesAKeyOfAnotherCertificate(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "spec.yaml")
	if err := os.WriteFile(spec, []byte(pkiSpec), 0o644); err != nil {
		t.Fatal(err)
	}
	cert, _ := authorityFiles(t, dir, "one")
	_, key := authorityFiles(t, dir, "two")
	code, _, stderr := run(t, "pki", spec, "--ca-cert", cert, "--ca-key", key, "--out", filepath.Join(dir, "out"))
	if code != exitUsage || !strings.Contains(stderr, "belongs to none") || strings.Contains(stderr, "PRIVATE") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func readCertificate(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := pki.ParseCertificates(data)
	if err != nil {
		t.Fatal(err)
	}
	return certificates[0]
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	first, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// TestPKISaysWhichKeysItKeptAreNotGood: one that is empty, another certificate's, readable by others, or a link.
func TestPKISaysWhichKeysItKeptAreNotGood(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(spec, []byte(pkiSpec), 0o644); err != nil {
		t.Fatal(err)
	}
	caCert, caKey := authorityFiles(t, dir, "ca")
	etcdCert, etcdKey := authorityFiles(t, dir, "etcd")
	args := []string{"pki", spec, "--ca-cert", caCert, "--ca-key", caKey, "--etcd-ca-cert", etcdCert, "--etcd-ca-key",
		etcdKey, "--out", out}
	if code, _, stderr := run(t, args...); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	key, foreign := filepath.Join(out, "cp-1/pki/modern/apiserver.key"),
		filepath.Join(out, "cp-2/pki/modern/apiserver.key")
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file   string
		change func(file string) error
		says   string
	}{
		{key, func(file string) error { return os.WriteFile(file, nil, 0o600) }, "want a PEM file with a private key"},
		{key, func(file string) error {
			data, err := os.ReadFile(foreign)
			if err != nil {
				return err
			}
			return os.WriteFile(file, data, 0o600)
		}, "belongs to another certificate"},
		{key, func(file string) error { return os.Chmod(file, 0o644) }, "has mode 0644, so that others may read it"},
		{key, func(file string) error {
			return errors.Join(os.Rename(file, file+".moved"), os.Symlink(file+".moved", file))
		}, "is no regular file"},
		{filepath.Join(out, "cp-1/pki/sa.key"), func(file string) error {
			return os.WriteFile(file, nil, 0o600)
		}, "want a PEM file with a private key"},
	} {
		if err := test.change(test.file); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(t, args...)
		if code != exitAttention || stdout != "" || !strings.Contains(stderr, test.file+": was kept, and ") ||
			!strings.Contains(stderr, test.says) {
			t.Errorf("%s: exit %d, wrote %q: %s; want 3 and it said", test.says, code, stdout, stderr)
		}
		if err := errors.Join(os.Remove(key), os.WriteFile(key, good, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPKISaysWhichCertificatesItKeptAreAnothers: one of another CA, of a group that passes every policy, of no
// certificate, a pipe, and a CA that is not the given one.
func TestPKISaysWhichCertificatesItKeptAreAnothers(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(spec, []byte(pkiSpec), 0o644); err != nil {
		t.Fatal(err)
	}
	issue := func(ca, proxy string) (code int, stdout, stderr string) {
		t.Helper()
		args := []string{"pki", spec, "--out", out}
		for flag, name := range map[string]string{"ca": ca, "etcd-ca": "etcd", "front-proxy-ca": proxy} {
			args = append(args, "--"+flag+"-cert", filepath.Join(dir, name+".crt"), "--"+flag+"-key",
				filepath.Join(dir, name+".key"))
		}
		return run(t, args...)
	}
	for _, name := range []string{"ca", "ca2", "etcd", "proxy", "proxy2"} {
		authorityFiles(t, dir, name)
	}
	if code, _, stderr := issue("ca", "proxy"); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	remove := func(base string) {
		t.Helper()
		if err := errors.Join(os.Remove(base+".crt"), os.Remove(base+".key")); err != nil {
			t.Fatal(err)
		}
	}
	code, _, stderr := issue("ca2", "proxy")
	if code != exitAttention || !strings.Contains(stderr, `modern/apiserver.crt: was kept, and is not signed by "ca2"`) {
		t.Errorf("with another CA than before: exit %d, %s; want 3 and it said", code, stderr)
	}
	proxyClient := filepath.Join(out, "cp-1/pki/front-proxy-client")
	remove(proxyClient)
	code, _, stderr = issue("ca", "proxy2")
	if code != exitAttention ||
		!strings.Contains(stderr, "cp-1/pki/front-proxy-ca.crt: was kept, and is not the CA that was given") ||
		!strings.Contains(stderr, `cp-1/pki/front-proxy-client.crt: was kept, and is not signed by "proxy"`) {
		t.Errorf("with another CA than the one that is there: exit %d, %s; want 3 and it said", code, stderr)
	}
	remove(proxyClient)
	if code, _, stderr := issue("ca", "proxy"); code != exitDone {
		t.Fatalf("issued again: exit %d: %s", code, stderr)
	}
	file := filepath.Join(out, "cp-1/pki/modern/controller-manager.crt")
	keyPEM, err := os.ReadFile(strings.TrimSuffix(file, ".crt") + ".key")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(keyPEM)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Minute),
		Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Leaf, key.Public(), signer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = issue("ca", "proxy")
	for _, says := range []string{`is of "admin"`, `is in the groups ["system:masters"]`, "is valid from",
		"is not for the use of a client"} {
		if code != exitAttention || !strings.Contains(stderr, file+": was kept, and "+says) {
			t.Errorf("of an administrator: exit %d, %s; want 3 and %s", code, stderr, says)
		}
	}
	if err := os.Truncate(file, 1<<40); err == nil {
		if code, _, stderr := issue("ca", "proxy"); code != exitFailed || !strings.Contains(stderr, "is larger than") {
			t.Errorf("of a terabyte: exit %d, %s; want 1 and its limit", code, stderr)
		}
	}
}

// TestPKIKeepsNothingOfOthers: where others can write, they could put a CA or a key, which would be kept, and copied to
// the hosts.
func TestPKIKeepsNothingOfOthers(t *testing.T) {
	dir := t.TempDir()
	spec, out := filepath.Join(dir, "spec.yaml"), filepath.Join(dir, "out")
	cert, key := authorityFiles(t, dir, "ca")
	err := errors.Join(os.WriteFile(spec, []byte(pkiSpec), 0o644), os.Mkdir(out, 0o755), os.Chmod(out, 0o777))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"pki", spec, "--ca-cert", cert, "--ca-key", key, "--etcd-ca-cert", cert, "--etcd-ca-key", key,
		"--out", out}
	code, _, stderr := run(t, args...)
	entries, err := os.ReadDir(out)
	if code != exitUsage || !strings.Contains(stderr, "other users can write there") || err != nil || len(entries) > 0 {
		t.Errorf("exit %d, %s; want 2, and nothing written: %v %v", code, stderr, entries, err)
	}
	if err := os.Chmod(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, args...); code != exitDone {
		t.Errorf("where no one else can write: exit %d, %s", code, stderr)
	}
}
