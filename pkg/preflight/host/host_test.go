package host

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/preflight"
)

func newReader() *reader {
	return &reader{host: &preflight.Host{Files: map[string]preflight.File{}, World: &preflight.World{}}}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSocketsNamesThisProcess: a listener of this test is found with the test's own command line.
func TestSocketsNamesThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc/net is Linux's")
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		address := map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"}[network]
		listener, err := net.Listen(network, net.JoinHostPort(address, "0"))
		if err != nil {
			t.Logf("%s: %v", network, err)
			continue
		}
		defer listener.Close()
		r := newReader()
		r.sockets("/proc")
		port := listener.Addr().(*net.TCPAddr).Port
		at := slices.IndexFunc(r.host.World.Listening, func(s preflight.Socket) bool {
			return s.Port == port && s.Address == address
		})
		if at < 0 {
			t.Errorf("%s: port %d is not among %v", network, port, r.host.World.Listening)
			continue
		}
		if process := r.host.World.Listening[at].Process; len(process) == 0 || process[0] != os.Args[0] {
			t.Errorf("%s: port %d is %q's, want %q", network, port, process, os.Args[0])
		}
		if !slices.Contains(r.host.World.Addresses, "127.0.0.1") {
			t.Errorf("addresses %v", r.host.World.Addresses)
		}
	}
}

func TestSocketsWithoutTablesIsIncomplete(t *testing.T) {
	r := newReader()
	r.sockets(t.TempDir())
	if len(r.host.Incomplete) != 1 {
		t.Errorf("incomplete: %q", r.host.Incomplete)
	}
}

func TestParseSocket(t *testing.T) {
	for line, want := range map[string]preflight.Socket{
		"  0: 0100007F:1D13 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1": {Address: "127.0.0.1",
			Port: 7443},
		"  0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1": {Port: 22},
		"0: 00000000000000000000000001000000:1D13 0:0 0A 0:0 0:0 0 0 0 4711 1": {Address: "::1",
			Port: 7443},
		"0: 0000000000000000FFFF00000B00000A:1D13 0:0 0A 0:0 0:0 0 0 0 4711 1": {Address: "10.0.0.11", Port: 7443},
	} {
		if got, inode, ok := parseSocket(line); !ok || inode != "4711" || got.Address != want.Address ||
			got.Port != want.Port {
			t.Errorf("parseSocket(%q) = %+v, %q, %v", line, got, inode, ok)
		}
	}
	for _, line := range []string{"", "sl local_address rem_address st", "0: 0100007F:1D13 0:0 01 0:0 0:0 0 0 0 1 1",
		"0: zz:1D13 0:0 0A 0:0 0:0 0 0 0 4711 1", "0: 01:1D13 0:0 0A 0:0 0:0 0 0 0 4711 1"} {
		if got, _, ok := parseSocket(line); ok {
			t.Errorf("parseSocket(%q) = %+v", line, got)
		}
	}
}

// TestKubeletsOfOtherUsers are none.
func TestKubeletsOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	proc := t.TempDir()
	write(t, filepath.Join(proc, "12", "cmdline"), "kubelet\x00--pod-manifest-path=/home/mallory\x00")
	if err := os.Chown(filepath.Join(proc, "12"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if command := newReader().findKubelet(proc); command != nil {
		t.Errorf("found %q, want none", command)
	}
	write(t, filepath.Join(proc, "345", "cmdline"), "kubelet\x00--v=2\x00")
	if command := newReader().findKubelet(proc); !slices.Contains(command, "--v=2") {
		t.Errorf("found %q, want that of root", command)
	}
}

// TestConfigurationsOfKubeletsAreBounded: a file of one key takes no memory.
func TestConfigurationsOfKubeletsAreBounded(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	write(t, config, strings.Repeat("a: b\n", 3000))
	r := newReader()
	r.kubelet([]string{"kubelet", "--config=" + config}, "")
	if said := strings.Join(r.host.Incomplete, "\n"); !strings.Contains(said, "already defined") || len(said) > 1000 {
		t.Errorf("%d bytes: %.300s", len(said), said)
	}
}

// TestKubelet: from a process and its configuration, in the forms of all releases.
func TestKubelet(t *testing.T) {
	directory := t.TempDir()
	config, old := filepath.Join(directory, "config.yaml"), filepath.Join(directory, "old.yaml")
	write(t, config, "kind: KubeletConfiguration\nstaticPodPath: /etc/kubelet.d\n")
	write(t, old, "kind: KubeletConfiguration\npodManifestPath: /etc/kubelet.d\n")
	none := filepath.Join(directory, "none.yaml")
	write(t, none, "kind: KubeletConfiguration\n")
	for _, c := range []struct {
		command    []string
		want       string
		incomplete bool
	}{
		{[]string{"/usr/bin/kubelet", "--pod-manifest-path=/etc/kubelet.d", "--v=2"}, "/etc/kubelet.d", false},
		{[]string{"/hyperkube", "kubelet", "--pod-manifest-path", "/etc/kubelet.d"}, "/etc/kubelet.d", false},
		{[]string{"kubelet", "--pod_manifest_path=/etc/kubelet.d"}, "/etc/kubelet.d", false},
		{[]string{"kubelet", "--pod_manifest_path", "/etc/kubelet.d"}, "/etc/kubelet.d", false},
		{[]string{"kubelet", "--config=" + config}, "/etc/kubelet.d", false},
		{[]string{"kubelet", "--config", old}, "/etc/kubelet.d", false},
		{[]string{"kubelet", "--config=" + directory}, directory, false},
		{[]string{"kubelet", "--config=" + none}, "", false},
		{[]string{"kubelet"}, "", false},
		{[]string{"kubelet", "--config=" + filepath.Join(directory, "missing")}, "", true},
	} {
		proc := t.TempDir()
		write(t, filepath.Join(proc, "12", "cmdline"), strings.Join([]string{"/bin/sh", "-c", "kubelet"}, "\x00"))
		write(t, filepath.Join(proc, "345", "cmdline"), strings.Join(c.command, "\x00")+"\x00")
		r := newReader()
		command := r.findKubelet(proc)
		if !slices.Equal(command, c.command) {
			t.Errorf("found %q, want %q", command, c.command)
		}
		r.kubelet(command, "/etc/kubernetes/manifests")
		switch k := r.host.World.Kubelet; {
		case c.incomplete:
			if k != nil || len(r.host.Incomplete) != 1 {
				t.Errorf("%q: %+v, incomplete %q", c.command, k, r.host.Incomplete)
			}
		case k == nil || k.StaticPods != c.want || k.Where == "":
			t.Errorf("%q: %+v, want %s", c.command, k, c.want)
		}
	}
}

// TestKubeletFollowsLinks: a link to the directory of the manifests is that directory.
func TestKubeletFollowsLinks(t *testing.T) {
	directory := t.TempDir()
	manifests, link := filepath.Join(directory, "manifests"), filepath.Join(directory, "link")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(manifests, link); err != nil {
		t.Fatal(err)
	}
	r := newReader()
	r.kubelet([]string{"kubelet", "--pod-manifest-path=" + link}, manifests)
	if r.host.World.Kubelet.StaticPods != manifests {
		t.Errorf("static pods from %s", r.host.World.Kubelet.StaticPods)
	}
}

func TestDockerImages(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answer := `[{"RepoTags":["busybox:latest"],"RepoDigests":["busybox@sha256:11"]},{"RepoTags":null}]`
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/images/json" || answer == "" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = w.Write([]byte(answer))
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	r := newReader()
	r.Runtime = socket
	r.runtime(t.Context(), nil)
	if got := r.host.World.Images; got == nil || !slices.Equal(*got, []string{"busybox:latest", "busybox@sha256:11"}) {
		t.Errorf("images %v, incomplete %q", got, r.host.Incomplete)
	}
	answer = ""
	r = newReader()
	r.Runtime = "unix://" + socket
	r.runtime(t.Context(), nil)
	if r.host.World.Images != nil || len(r.host.Incomplete) != 1 {
		t.Errorf("images %v, incomplete %q", r.host.World.Images, r.host.Incomplete)
	}
	r = newReader()
	r.Runtime = "/no/such.sock"
	r.runtime(t.Context(), nil)
	if r.host.World.Images != nil || len(r.host.Incomplete) != 1 {
		t.Errorf("images %v, incomplete %q", r.host.World.Images, r.host.Incomplete)
	}
}

// TestStores asks a real etcd, and an address at which there is none.
func TestStores(t *testing.T) {
	server := etcdtest.Start(t)
	absent := "http://" + etcdtest.FreeAddress(t)
	n := &preflight.Needs{Plan: &plan.Plan{}, Stores: []plan.Store{
		{Name: "core", Endpoints: []string{server.Endpoint}}, {Name: "gone", Endpoints: []string{absent}},
		{Name: "odd", Endpoints: []string{"etcd:2379"}}}}
	r := newReader()
	r.stores(t.Context(), n)
	stores := r.host.World.Stores
	if core := stores["core"]; len(core) != 1 || core[0].Problem != "" || !strings.HasPrefix(core[0].Version, "3.") {
		t.Errorf("core: %+v", core)
	}
	if gone := stores["gone"]; len(gone) != 1 || gone[0].Problem == "" {
		t.Errorf("gone: %+v", gone)
	}
	if len(r.host.Incomplete) != 1 || !strings.Contains(r.host.Incomplete[0], "odd") {
		t.Errorf("incomplete: %q", r.host.Incomplete)
	}
}

// TestALinkToItselfIsNotClean: what it leads to could not be looked at.
func TestALinkToItselfIsNotClean(t *testing.T) {
	r := newReader()
	r.Root = t.TempDir()
	if err := os.Symlink("self", filepath.Join(r.Root, "self")); err != nil {
		t.Fatal(err)
	}
	if f := r.file("/self"); !f.Unread || len(r.host.Incomplete) != 1 {
		t.Errorf("a link to itself: %+v, incomplete %q", f, r.host.Incomplete)
	}
}

// TestReadTakesDirectoriesOfTheTree: a directory that comes with the files of the staged tree is not missing, another
// is.
func TestReadTakesDirectoriesOfTheTree(t *testing.T) {
	staged, root := t.TempDir(), t.TempDir()
	comes, missing := filepath.Join(root, "modern"), filepath.Join(root, "other")
	write(t, filepath.Join(staged, comes, "policy.jsonl"), "")
	needs := &preflight.Needs{Plan: &plan.Plan{}, Files: []preflight.FileNeed{{Path: comes, Directory: true},
		{Path: missing, Directory: true}}}
	seen := Read(t.Context(), needs, Options{Staged: staged})
	if f := seen.Files[comes]; f.Missing {
		t.Errorf("%s is missing: %+v", comes, f)
	}
	if f := seen.Files[missing]; !f.Missing {
		t.Errorf("%s is not missing: %+v", missing, f)
	}
}
