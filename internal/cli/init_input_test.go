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
		}, "stat kube-apiserver.yaml: more than 40 symbolic links"},
		"an unreadable file": {func(dir string) error {
			if os.Geteuid() == 0 { // root reads everything: a link to nothing is as unreadable
				return os.Symlink("nowhere", filepath.Join(dir, "kube-apiserver.yaml"))
			}
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), []byte(server), 0)
		}, "kube-apiserver.yaml: "},
		"an anchor in itself": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"),
				[]byte("kind: Pod\nspec: &a {containers: *a}\n"), 0o644)
		}, "kube-apiserver.yaml: is ignored: line 2: the anchor &a contains itself"},
		"a pipe to which nothing writes": {func(dir string) error {
			return syscall.Mkfifo(filepath.Join(dir, "kube-apiserver.yaml"), 0o644)
		}, "kube-apiserver.yaml: is ignored: it is a named pipe"},
		"a pipe as the environment of a unit": {func(dir string) error {
			if err := syscall.Mkfifo(filepath.Join(dir, "apiserver.env"), 0o644); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.service"), []byte("[Service]\n"+
				"EnvironmentFile=/etc/apiserver.env\nExecStart=/usr/bin/kube-apiserver $OPTIONS\n"), 0o644)
		}, "apiserver.env: is a named pipe, want a file"},
		"k3s": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "k3s.service"),
				[]byte("[Service]\nExecStart=/usr/local/bin/k3s server\n"), 0o644)
		}, "k3s and rke2 run the components themselves"},
		"OpenShift 3": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "master-config.yaml"),
				[]byte("apiVersion: v1\nkind: MasterConfig\n"), 0o644)
		}, "OpenShift 3"},
		"OpenShift 4": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver-pod.yaml"),
				[]byte("kind: Pod\nspec: {containers: [{image: q/x, command: [hyperkube, kube-apiserver, "+
					"--openshift-config=/etc/c.yaml]}]}\n"), 0o644)
		}, "--openshift-config=/etc/c.yaml: the arguments of this API server are in that file"},
		"a program that runs the components": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "k0scontroller.service"),
				[]byte("[Service]\nExecStart=/usr/local/bin/k0s controller --single=true\n"), 0o644)
		}, "k0scontroller.service: the program runs the components itself"},
		"a template": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"),
				[]byte("kind: Pod\nspec: {containers: [{image: 'k/kube-apiserver:v1.15.12', "+
					"command: [kube-apiserver, '--etcd-servers={{ etcd }}']}]}\n"), 0o644)
		}, "kube-apiserver.yaml:2: \"--etcd-servers={{ etcd }}\" is a place in a template"},
		"a template of a shell": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"),
				[]byte("kind: Pod\nspec: {containers: [{image: 'k/kube-apiserver:v1.15.12', "+
					"command: [kube-apiserver, '--advertise-address=${IP}']}]}\n"), 0o644)
		}, "\"--advertise-address=${IP}\" is a place in a template"},
		"arguments that a script is to put there": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"),
				[]byte("kind: Pod\nspec: {containers: [{image: 'k/kube-apiserver:v1.15.12', "+
					"command: [/hyperkube, apiserver], args: [<args>]}]}\n"), 0o644)
		}, "\"<args>\" is a place in a template"},
		"addresses that sed is to put there": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"),
				[]byte("kind: Pod\nspec: {containers: [{image: 'k/kube-apiserver:v1.15.12', "+
					"command: [kube-apiserver, '--etcd-servers=#ETCD_ENDPOINTS#']}]}\n"), 0o644)
		}, "\"--etcd-servers=#ETCD_ENDPOINTS#\" is a place in a template"},
		"a list that a pager cut off": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "ps.txt"),
				[]byte("|-480 /bin/kube-apiserver --secure-port=6443 --service-acco>\n"), 0o644)
		}, "ps.txt:1: the command line of kube-apiserver is cut off after --service-acco>"},
		"a command over several lines": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "notes.txt"),
				[]byte("kube-apiserver --etcd-servers=http://127.0.0.1:2379 \\\n  --authorization-mode=RBAC\n"), 0o644)
		}, "notes.txt:1: the command line of kube-apiserver goes on in the next line"},
		"a form that is not read": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.conf"),
				[]byte("exec /opt/bin/kube-apiserver --etcd-servers=http://127.0.0.1:4001\n"), 0o644)
		}, "kube-apiserver.conf: has the arguments of an API server in a form that is not read"},
		"a unit whose script is elsewhere": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "kube-apiserver.service"),
				[]byte("[Service]\nExecStart=/opt/bin/start-apiserver.sh\n"), 0o644)
		}, "starts /opt/bin/start-apiserver.sh, which is not among the files"},
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

// TestInitFromNamesWhatItPassesOver puts beside the manifest of an API server what is no file, or no text: each is a
// note, and keeps no part of the control plane from being read.
func TestInitFromNamesWhatItPassesOver(t *testing.T) {
	for name, test := range map[string]struct {
		make func(file string) error
		want string
	}{
		"a pipe": {func(file string) error { return syscall.Mkfifo(file, 0o644) }, "is ignored: it is a named pipe"},
		"a socket": {func(file string) error {
			return syscall.Mknod(file, syscall.S_IFSOCK|0o644, 0)
		}, "is ignored: it is a socket"},
		"a link to a device": {func(file string) error {
			return os.Symlink("/dev/zero", file)
		}, "is ignored: stat z.yaml: it links to /dev/zero, and there is none below "},
		"a loop of links": {func(file string) error {
			return os.Symlink("z.yaml", file)
		}, "is ignored: stat z.yaml: more than 40 symbolic links"},
		"a link to itself": {func(file string) error { return os.Symlink(".", file) }, ""},
		"a link to nothing": {func(file string) error {
			return os.Symlink("nowhere", file)
		}, "is ignored: stat z.yaml: it links to nowhere, and there is none below "},
		"random bytes": {func(file string) error {
			return os.WriteFile(file, bytes.Repeat([]byte("\xfe\x81text"), 300_000), 0o644)
		}, "is ignored: it is not text"},
		"a letter that is cut": {func(file string) error {
			return os.WriteFile(file, []byte(strings.Repeat("x", 511)+strings.Repeat("\u00e4", 10)), 0o644)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			manifest := "kind: Pod\nspec: {containers: [{image: 'k/kube-apiserver:v1.15.12', command: " +
				"[kube-apiserver, " +
				"--etcd-servers=http://a:1]}]}\n"
			if err := os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), []byte(manifest), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := test.make(filepath.Join(dir, "z.yaml")); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := cli.Main(t.Context(), []string{"init", "--from", dir},
				cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
			var notes []string
			for line := range strings.Lines(errs.String()) {
				if strings.Contains(line, "z.yaml") {
					notes = append(notes, line)
				}
			}
			if want := min(1, len(test.want)); code != 0 || len(notes) != want ||
				!strings.Contains(strings.Join(notes, ""), test.want) {
				t.Errorf("exit code %d, notes %q; want 0 and %d with %q", code, notes, want, test.want)
			}
		})
	}
}

// TestInitFromAPipe: what is given has to be a file, which a pipe to which nothing writes is not.
func TestInitFromAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), []string{"init", "--from", pipe},
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if want := "pipe: is a named pipe, want a directory or a file: write what is to be read into one\n"; code != 2 ||
		!strings.HasSuffix(errs.String(), want) {
		t.Errorf("exit code %d, errors %q; want 2 and %q", code, &errs, want)
	}
}
