package host

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/preflight"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// oldMember is a member of etcd of another release, as far as it says which.
type oldMember struct {
	etcdserverpb.UnimplementedMaintenanceServer
	version string
}

func (m *oldMember) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: m.version}, nil
}

// startMember serves one and returns its client URL.
func startMember(t *testing.T, version string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(server, &oldMember{version: version})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "http://" + listener.Addr().String()
}

// startDocker serves the names of images as Docker does, and returns its socket.
func startDocker(t *testing.T, images *[]string) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "docker") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	socket := filepath.Join(directory, "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]map[string][]string{{"RepoTags": *images}})
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// process shows one below a directory like /proc, with a socket of an inode.
func process(t *testing.T, proc, pid, inode string, command ...string) {
	t.Helper()
	write(t, filepath.Join(proc, pid, "cmdline"), strings.Join(command, "\x00")+"\x00")
	if inode == "" {
		return
	}
	if err := os.MkdirAll(filepath.Join(proc, pid, "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("socket:["+inode+"]", filepath.Join(proc, pid, "fd", "3")); err != nil {
		t.Fatal(err)
	}
}

// TestAMachineIsReadAndJudged reads ports, stores, images and the kubelet of a machine, and judges them by the needs of
// a plan: where something is wrong, a rule says what; where all is well, none does.
func TestAMachineIsReadAndJudged(t *testing.T) {
	good := etcdtest.Start(t).Endpoint
	const port = "1D13" // 7443
	const head = "  sl  local_address rem_address   st\n"
	for _, c := range []struct {
		name     string
		endpoint string
		sockets  string
		kubelet  []string
		images   func([]string) []string
		want     string // rules
		says     string
	}{
		{name: "all is well", want: ""},
		{name: "a port in use", sockets: "  0: 00000000:" + port + " 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n",
			want: "FUS268", says: "/usr/sbin/haproxy -f /etc/haproxy.cfg"},
		{name: "a client that uses the same port", want: "",
			sockets: "  0: 0100007F:" + port + " 0100007F:0BB8 01 0:0 0:0 0 0 0 4711 1\n"},
		{name: "a store without a server", endpoint: "http://" + etcdtest.FreeAddress(t), want: "FUS269",
			says: "cannot be reached from this host"},
		{name: "a store of an unsupported release", endpoint: startMember(t, "3.0.17"), want: "FUS166",
			says: "is etcd 3.0.17"},
		{name: "an image that is not there", want: "FUS270", says: "does not start before",
			images: func(all []string) []string { return all[1:] }},
		{name: "static pods from elsewhere",
			kubelet: []string{"/usr/bin/kubelet", "--pod-manifest-path=/etc/kubelet.d"}, want: "FUS271",
			says: "from /etc/kubelet.d"},
		{name: "no static pods", kubelet: []string{"/usr/bin/hyperkube", "kubelet", "--v=2"}, want: "FUS271",
			says: "starts no static pods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plantest.Example(t, "vendor-1.6-1.36.yaml")
			for i := range p.Stores {
				p.Stores[i].Endpoints, p.Stores[i].TLS = []string{good}, nil
				if c.endpoint != "" && p.Stores[i].Managed == nil {
					p.Stores[i].Endpoints = []string{c.endpoint}
				}
			}
			needs, err := preflight.New(p, p.Hosts[0].Name, render.StaticPod)
			if err != nil {
				t.Fatal(err)
			}
			var images []string
			for _, need := range needs.Images {
				images = append(images, need.Image)
			}
			if c.images != nil {
				images = c.images(images)
			}
			kubelet := c.kubelet
			if kubelet == nil {
				kubelet = []string{"kubelet", "--pod-manifest-path", needs.Manifests}
			}
			proc := t.TempDir()
			write(t, filepath.Join(proc, "net", "tcp"), head+c.sockets)
			process(t, proc, "101", "4711", "/usr/sbin/haproxy", "-f", "/etc/haproxy.cfg")
			process(t, proc, "102", "", kubelet...)
			seen := Read(t.Context(), needs, Options{Root: t.TempDir(), Machine: true, Proc: proc,
				Runtime: startDocker(t, &images)})
			seen.Incomplete = slices.DeleteFunc(seen.Incomplete, func(text string) bool {
				return strings.HasPrefix(text, "/") // a file of the legacy side
			})
			if len(seen.Incomplete) > 0 {
				t.Errorf("incomplete: %q", seen.Incomplete)
			}
			found := slices.DeleteFunc(preflight.Check(needs, seen, time.Now()), func(f finding.Finding) bool {
				return f.Rule == preflight.Missing // the tree is empty
			})
			var rules, says []string
			for _, f := range found {
				rules, says = append(rules, f.Rule), append(says, f.Message)
			}
			if got := strings.Join(slices.Compact(rules), " "); got != c.want ||
				!strings.Contains(strings.Join(says, "\n"), c.says) {
				t.Errorf("found %q, want %q that says %q: %q", got, c.want, c.says, says)
			}
		})
	}
}
