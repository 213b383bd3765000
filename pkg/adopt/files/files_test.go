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

// TestLinksOfACopyStayInIt: what a copied link names is below the copy. The same path of this machine is another file,
// which who wrote the link may not have read.
func TestLinksOfACopyStayInIt(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "copy")
	secret := write(t, 0o600, base, "outside", "kube-apiserver.yaml")
	manifests := filepath.Join(root, "etc", "kubernetes", "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	link := func(target string) {
		t.Helper()
		name := filepath.Join(manifests, "kube-apiserver.yaml")
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{secret, "../../../../outside/kube-apiserver.yaml"} {
		link(target)
		for _, dir := range []string{root, manifests} {
			if h, err := Read([]string{dir}); err == nil {
				t.Errorf("--from %s follows a link to %s: %+v", dir, target, h.Hosts[0].Running)
			} else if want := "it links to " + target + ", and there is none below " + dir; !strings.Contains(
				err.Error(), want) {
				t.Errorf("--from %s: %v, want %q", dir, err, want)
			}
		}
	}
	link("/srv/manifests/kube-apiserver.yaml")
	write(t, 0o644, root, "srv", "manifests", "kube-apiserver.yaml")
	if _, err := Read([]string{root}); err != nil {
		t.Errorf("an absolute link of a copy: %v, want the file below the copy", err)
	}
	// of several hosts, a directory that is a link is not one of them
	if err := os.Symlink(filepath.Join(base, "outside"), filepath.Join(base, "cp-2")); err != nil {
		t.Fatal(err)
	}
	if got := below([]string{base}); len(got) != 2 || strings.Contains(strings.Join(got, " "), "cp-2") {
		t.Errorf("hosts below %s: %v, want the directories in it", base, got)
	}
}

func TestHostsAreCalledByWhatTellsThemApart(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) []string {
		for i, name := range names {
			names[i] = filepath.Join(dir, name)
		}
		return names
	}
	file := at("node-a.json", "node-b.json")
	for _, name := range file {
		write(t, 0o600, name)
	}
	for _, test := range []struct {
		names, want []string
		err         string
	}{
		{at("cp-1"), []string{""}, ""},
		{at("cp-1", "cp-2"), []string{"cp-1", "cp-2"}, ""},
		{at("cp-1/etc/kubernetes/manifests", "cp-2/etc/kubernetes/manifests"), []string{"cp-1", "cp-2"}, ""},
		{at("a/cp-1", "b/cp-2"), []string{"cp-1", "cp-2"}, ""},
		{file, []string{"node-a", "node-b"}, ""},
		{at("cp-1/manifests", "cp-1/manifests"), nil, "two of these are not told apart"},
		{at("Front End", "cp-2"), nil, "Front End: of several directories each is called after its host"},
	} {
		got, err := hostNames(test.names)
		if diff := cmp.Diff(test.want, got); test.err == "" && (err != nil || diff != "") {
			t.Errorf("hostNames(%s): %v; -want +got\n%s", test.names, err, diff)
		} else if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("hostNames(%s): %v, want %s", test.names, err, test.err)
		}
	}
}
