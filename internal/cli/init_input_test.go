package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubefusion/fusionctl/internal/cli"
)

// TestInitFromBadInput gives init --from what is no control plane. Each is one error that names the place, and exit
// code 2.
func TestInitFromBadInput(t *testing.T) {
	const server = "kind: Pod\nspec: {containers: [{image: 'k/kube-apiserver:v1.15.12', command: [kube-apiserver, " +
		"--v=2]}]}\n"
	for name, test := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"ten thousand files": {func(dir string) error {
			for i := range 10_000 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.yaml", i)), nil, 0o644); err != nil {
					return err
				}
			}
			return nil
		}, "holds 10000 files, want at most 4096"},
		"binary files": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), []byte("\x7fELF\xff\xfe\x00"), 0o644)
		}, "kube-apiserver.yaml: is ignored: it is not text"},
		"a loop of links": {func(dir string) error {
			return os.Symlink("kube-apiserver.yaml", filepath.Join(dir, "kube-apiserver.yaml"))
		}, "kube-apiserver.yaml: is ignored: "},
		"an unreadable file": {func(dir string) error {
			if os.Geteuid() == 0 { // root reads everything: a link to nothing is as unreadable
				return os.Symlink("nowhere", filepath.Join(dir, "kube-apiserver.yaml"))
			}
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), []byte(server), 0)
		}, "kube-apiserver.yaml: "},
		"an anchor in itself": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"),
				[]byte("kind: Pod\nspec: &a {containers: *a}\n"), 0o644)
		}, "kube-apiserver.yaml"},
		"a pipe to which nothing writes": {func(dir string) error {
			return syscall.Mkfifo(filepath.Join(dir, "kube-apiserver.yaml"), 0o644)
		}, "no kube-apiserver among the files"},
		"a pipe as the environment of a unit": {func(dir string) error {
			if err := syscall.Mkfifo(filepath.Join(dir, "apiserver.env"), 0o644); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.service"), []byte("[Service]\n"+
				"EnvironmentFile=/etc/apiserver.env\nExecStart=/usr/bin/kube-apiserver $OPTIONS\n"), 0o644)
		}, "is no regular file"},
		"k3s": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "k3s.service"),
				[]byte("[Service]\nExecStart=/usr/local/bin/k3s server\n"), 0o644)
		}, "k3s and rke2 run the components themselves"},
		"OpenShift 3": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "master-config.yaml"),
				[]byte("apiVersion: v1\nkind: MasterConfig\n"), 0o644)
		}, "OpenShift 3"},
		"dqlite": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver"),
				[]byte("--storage-backend=dqlite\n--secure-port=1\n"), 0o644)
		}, "move the cluster to etcd first"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := test.make(dir); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := cli.Main(t.Context(), []string{"init", "--from", dir},
				cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			if code != 2 || out.Len() > 0 || len(lines) != 1 || !strings.Contains(lines[0], test.want) {
				t.Errorf("exit code %d, output %q, errors %q; want 2 and one line with %q", code, &out, &errs,
					test.want)
			}
		})
	}
}
