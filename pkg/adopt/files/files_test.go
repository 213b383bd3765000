package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyItsOwnUnitsAreReadBesideTheFilesOfThisMachine(t *testing.T) {
	for _, name := range []string{"/etc/systemd/system", "/etc/systemd/system/", "/usr/lib/systemd/system"} {
		if machineOf(name) == nil {
			t.Errorf("machineOf(%s) = nil, want the root of this machine", name)
		}
	}
	for _, name := range []string{"/srv/copy/etc/systemd/system", "units", "/etc/kubernetes/manifests", "/"} {
		if machineOf(name) != nil {
			t.Errorf("machineOf(%s) is the root of this machine: files of another one would be mixed in", name)
		}
	}
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - image: k8s.gcr.io/kube-apiserver:v1.10.13
    command: [kube-apiserver, --etcd-servers=http://10.0.0.11:2379]
`

// write puts a manifest of an API server under a name below the directory.
func write(t *testing.T, mode fs.FileMode, names ...string) string {
	t.Helper()
	name := filepath.Join(names...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(manifest), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestOneDirectoryMayHoldThoseOfTheHosts(t *testing.T) {
	dir := t.TempDir()
	write(t, 0o640, dir, "cp-1", "kube-apiserver.yaml")
	write(t, 0o604, dir, "cp-2", "etc", "kubernetes", "manifests", "kube-apiserver.yaml")
	if err := os.Mkdir(filepath.Join(dir, "notes"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := Read([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range got.Hosts {
		names = append(names, h.Name)
	}
	if diff := cmp.Diff([]string{"cp-1", "cp-2"}, names); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	if got.Mode != 0o600 {
		t.Errorf("mode %v, want 0600: one file is not for others, the other not for the group", got.Mode)
	}
	if place := got.Place("cp-1/kube-apiserver.yaml:6"); place != "cp-1/kube-apiserver.yaml:6" {
		t.Errorf("of several hosts, a place becomes %s", place)
	}

	write(t, 0o644, dir, "Front End", "kube-apiserver.yaml")
	if _, err := Read([]string{dir}); err == nil || !strings.Contains(err.Error(), "want lower-case letters") {
		t.Errorf("a directory that no host can be called after: %v", err)
	}
}

func TestAFileIsReadAsIfItWereAlone(t *testing.T) {
	dir := t.TempDir()
	name := write(t, 0o640, dir, "kube-apiserver.yaml")
	write(t, 0o600, dir, "another.yaml") // two API servers in one directory are an error
	if _, err := Read([]string{dir}); err == nil {
		t.Error("two API servers of one host are read")
	}
	got, err := Read([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	if got.Mode != 0o640 {
		t.Errorf("mode %v, want that of the one file that was read", got.Mode)
	}
	if place := got.Place("kube-apiserver.yaml:6"); place != name+":6" {
		t.Errorf("its place is %s, want %s:6", place, name)
	}
	if place := got.Place(""); place != "" {
		t.Errorf("what is about the whole is at %q", place)
	}
	if _, err := Read([]string{filepath.Join(dir, "absent")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}
