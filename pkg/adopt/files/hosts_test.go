package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/plantest"
)

func TestByHostTakesTheDirectoryOfEachHost(t *testing.T) {
	whole, single := t.TempDir(), t.TempDir()
	file := write(t, 0o600, whole, "cp-1", "existing", "kube-apiserver.yaml")
	write(t, 0o600, whole, "cp-3", "kube-apiserver.yaml")
	write(t, 0o600, single, "kube-apiserver.yaml")
	hosts := []string{"cp-1", "cp-2", "cp-3"}
	for _, test := range []struct {
		directory, only string
		hosts           []string
		want            []Tree
	}{
		{whole, "", hosts, []Tree{
			{"cp-1", []string{filepath.Join(whole, "cp-1"), filepath.Join(whole, "cp-1", "existing")}},
			{"cp-2", []string{}}, {"cp-3", []string{filepath.Join(whole, "cp-3")}}}},
		{whole, "cp-3", hosts, []Tree{{"cp-3", []string{filepath.Join(whole, "cp-3")}}}},
		{single, "cp-2", hosts, []Tree{{"cp-2", []string{single}}}},
		{single, "", hosts[:1], []Tree{{"cp-1", []string{single}}}},
	} {
		got, err := ByHost(test.directory, test.hosts, test.only)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("ByHost(%s, %s, %q): %v; -want +got\n%s", test.directory, test.hosts, test.only, err, diff)
		}
	}
	if _, err := ByHost(single, hosts, ""); !errors.Is(err, ErrWhichHost) {
		t.Errorf("files of one of three hosts: %v, want %v", err, ErrWhichHost)
	}
	for directory, want := range map[string]string{file: "is a file", filepath.Join(whole, "none"): "no such file"} {
		if _, err := ByHost(directory, hosts, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ByHost(%s): %v, want %s", directory, err, want)
		}
	}
	if err := os.Symlink("/etc/kubernetes", filepath.Join(whole, "cp-2")); err != nil {
		t.Fatal(err)
	}
	if _, err := ByHost(whole, hosts, ""); err == nil || !strings.Contains(err.Error(), "cp-2: is a link") {
		t.Errorf("a host whose directory leads elsewhere: %v", err)
	}
	if err := os.Remove(filepath.Join(whole, "cp-2")); err != nil {
		t.Fatal(err)
	}
	if _, err := ByHost(whole, hosts, "cp-4"); err == nil || !strings.Contains(err.Error(), "cp-1, cp-2, cp-3") {
		t.Errorf("a host that the plan has not: %v, want those that it has", err)
	}
}

func TestRunningPlacesWhatItReads(t *testing.T) {
	directory := t.TempDir()
	write(t, 0o600, directory, "kube-apiserver.yaml")
	p := plantest.Example(t, "split-1.15-1.36.yaml")
	running, _, err := Tree{"cp-1", []string{directory}}.Running(p)
	if err != nil || len(running) != 1 || running[0].Kind != "kube-apiserver" || len(running[0].Args) != 1 ||
		!strings.HasPrefix(running[0].Place, filepath.Join(directory, "kube-apiserver.yaml")) {
		t.Errorf("Running = %+v, %v; want the API server of the manifest", running, err)
	}
	if _, _, err := (Tree{"cp-1", []string{filepath.Join(directory, "none")}}).Running(p); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("Running of no directory: %v", err)
	}
}
