package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTransitionReplacesCertificates: those of a directory take the place of those of another one, and come back. A
// directory that lacks one, or has one that does not do for the plan, is refused before anything is written.
func TestTransitionReplacesCertificates(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	spec := at("spec.yaml")
	if err := os.WriteFile(spec, []byte(pkiSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	done := func(args ...string) string {
		t.Helper()
		code, out, stderr := run(t, args...)
		if code != exitDone {
			t.Fatalf("%q: exit %d: %s", args, code, stderr)
		}
		return out
	}
	issue := []string{"pki", spec}
	for _, name := range []string{"ca", "etcd-ca", "front-proxy-ca"} {
		cert, key := authorityFiles(t, dir, name)
		issue = append(issue, "--"+name+"-cert", cert, "--"+name+"-key", key)
	}
	done(append(issue, "--out", at("issued"))...)
	done(append(issue, "--out", at("renewed"))...)
	done("transition", "plan", "none", spec, "--to-pki", at("issued"), "--out", at("install.steps"))
	out := done("transition", "plan", spec, spec, "--from-pki", at("issued"), "--to-pki", at("renewed"), "--out",
		at("renew.steps"))
	var cert, key, host string
	for line := range strings.Lines(out) { // 012  legacy API server  cp-1  put /etc/kubernetes/pki/...  put file
		if fields := strings.Fields(line); strings.Contains(line, " put /") {
			for i, word := range fields {
				if word == "put" && strings.HasSuffix(fields[i+1], ".key") {
					host, key, cert = fields[i-1], fields[i+1], strings.TrimSuffix(fields[i+1], ".key")+".crt"
					break
				}
			}
		}
	}
	if key == "" {
		t.Fatalf("no key is put:\n%s", out)
	}
	done("transition", "apply", at("install.steps"), "--rehearse", at("hosts"), "--yes")
	sameFile(t, at("hosts", host, cert), at("issued", host, cert))
	done("transition", "apply", at("renew.steps"), "--rehearse", at("hosts"), "--yes")
	sameFile(t, at("hosts", host, cert), at("renewed", host, cert))
	sameFile(t, at("hosts", host, key), at("renewed", host, key))
	if info, err := os.Stat(at("hosts", host, key)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v; want mode 0600", key, info, err)
	}
	done("transition", "undo", at("renew.steps"), "--rehearse", at("hosts"), "--yes")
	sameFile(t, at("hosts", host, key), at("issued", host, key))

	mixed := at("mixed")
	if err := os.CopyFS(mixed, os.DirFS(at("renewed"))); err != nil {
		t.Fatal(err)
	}
	others, err := filepath.Glob(at("renewed", host, filepath.Dir(cert), "*.crt"))
	if err != nil || len(others) < 2 {
		t.Fatalf("%q, %v", others, err)
	}
	other := others[0]
	if filepath.Base(other) == filepath.Base(cert) {
		other = others[1]
	}
	for _, ending := range []string{".crt", ".key"} { // the identity of another component
		data, err := os.ReadFile(strings.TrimSuffix(other, ".crt") + ending)
		if err == nil {
			err = os.WriteFile(filepath.Join(mixed, host, strings.TrimSuffix(cert, ".crt")+ending), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := run(t, "transition", "plan", spec, spec, "--from-pki", at("issued"), "--to-pki",
		mixed); code != exitUsage || !strings.Contains(stderr, cert+`: is of "`) {
		t.Errorf("certificates that were mixed up: exit %d, %s", code, stderr)
	}
	for says, change := range map[string]func() error{
		key: func() error { return os.Rename(at("renewed", host, key), at("away")) },
		"another certificate": func() error {
			data, err := os.ReadFile(at("issued", host, key))
			if err != nil {
				return err
			}
			return os.WriteFile(at("renewed", host, key), data, 0o600)
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, "transition", "plan", spec, spec, "--from-pki", at("issued"), "--to-pki",
			at("renewed"), "--out", at("not.steps"))
		if code != exitUsage || !strings.Contains(stderr, says) {
			t.Errorf("exit %d, %s; want 2 and %q", code, stderr, says)
		}
		if _, err := os.Stat(at("not.steps")); err == nil {
			t.Errorf("%s: steps were written", says)
		}
	}
}
