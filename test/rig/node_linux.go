package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Node is a machine for pods: a network, a mount and a PID namespace with a container runtime of its own, on which a
// kubelet and other programs are started. It needs a sandbox.
type Node struct {
	Name    string
	Address string // 10.88.0.11
	// Kubelet and Proxy run on the node once they have been started.
	Kubelet, Proxy *Process
	Containerd     *Process

	rig    *Rig
	init   *Process
	dir    string
	cgroup string // of the pods, below every controller's root
	index  int
}

// podEnv names the program of the images to tests in a sandbox, where nothing can be downloaded that building it needs.
const podEnv = "FUSIONCTL_RIG_POD"

// podProgram builds the program of the images, which is that of a node's first process too.
var podProgram = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(podEnv); program != "" {
		return program, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	// It stays, as what `make rig` builds does; go build writes it again only when it has changed.
	program := filepath.Join(root, "test", "rig", ".build", "pod")
	if err := os.MkdirAll(filepath.Dir(program), 0o777); err != nil {
		return "", err
	}
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./test/rig/pod")
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building test/rig/pod: %w\n%s", err, out)
	}
	return program, nil
})

// PodImage and PauseImage are on every node: the program of test/rig/pod.
const (
	PodImage   = "docker.io/library/pod:1"
	pauseImage = "docker.io/library/pause:1"
)

// StartNode makes a node and starts its container runtime, with the images beside PodImage.
func (r *Rig) StartNode(name string, images ...Image) *Node {
	r.t.Helper()
	return r.startNode(name, false, images)
}

// StartMachine makes a node whose first process is systemd, with no units but those that the test installs.
func (r *Rig) StartMachine(name string, images ...Image) *Node {
	r.t.Helper()
	return r.startNode(name, true, images)
}

func (r *Rig) startNode(name string, systemd bool, images []Image) *Node {
	r.t.Helper()
	sandbox, inside := Sandboxed()
	if !inside {
		r.t.Fatal("a node needs a sandbox: see RunSandboxed")
	}
	program, err := podProgram()
	if err != nil {
		r.t.Fatal(err)
	}
	r.nodes++
	n := &Node{
		Name: name, Address: fmt.Sprintf("10.88.0.%d", 10+r.nodes), rig: r, dir: filepath.Join("/run", name),
		cgroup: "/" + filepath.Base(sandbox) + "/" + name, index: r.nodes,
	}
	if err := n.prepare(); err != nil {
		r.t.Fatalf("preparing node %s: %v", name, err)
	}
	n.init = r.newProcess(name+"-init", program, []string{"init"})
	if systemd {
		n.init = r.newProcess(name+"-init", "/bin/sh", []string{"-c", startSystemd, n.cgroup})
	}
	n.init.attributes.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	n.init.run()
	if err := n.connect(); err != nil {
		r.t.Fatalf("connecting node %s: %v", name, err)
	}
	if systemd {
		if err := n.awaitSystemd(); err != nil {
			r.t.Fatalf("starting systemd on node %s: %v", name, err)
		}
	}
	n.Containerd = n.Start("containerd", "containerd", nil)
	n.Containerd.Wait("serve", func(ctx context.Context) error {
		_, err := n.Run(ctx, "ctr", "version")
		return err
	})
	for _, image := range append([]Image{
		{Name: PodImage, Files: map[string]string{"prog": program, "usr/local/bin/tar": program},
			Entrypoint: []string{"/prog"}},
		{Name: pauseImage, Files: map[string]string{"prog": program}, Entrypoint: []string{"/prog"}},
	}, images...) {
		n.Import(image)
	}
	return n
}

// Import puts an image into the runtime of the node.
func (n *Node) Import(image Image) {
	n.rig.t.Helper()
	file := filepath.Join(n.rig.dir, n.Name+"-image.tar")
	if err := image.write(file); err != nil {
		n.rig.t.Fatal(err)
	}
	defer os.Remove(file)
	if out, err := n.Run(n.rig.t.Context(), "ctr", "-n", "k8s.io", "images", "import", file); err != nil {
		n.rig.t.Fatalf("importing %s on %s: %v\n%s", image.Name, n.Name, err, out)
	}
}

// socket is where the runtime serves, by its name outside of the node: the name is short, for longer ones than 107
// bytes cannot be bound.
func (n *Node) socket() string { return filepath.Join(n.dir, "run/containerd/containerd.sock") }

// Socket is where the node's container runtime serves, outside of the node. On it, it is where runtimes serve.
func (n *Node) Socket() string { return "unix://" + n.socket() }

// criSocket is the same on the node.
const criSocket = "/run/containerd/containerd.sock"

// layered are the directories of which each node has its own: what the machine has there, and on top of it what the
// node changes.
var layered = []string{"etc", "opt", "root", "tmp", "usr/local", "var"}

// prepare makes the node's folders, files and cgroups.
func (n *Node) prepare() error {
	dirs := []string{"run/containerd", "run/tmp", "tunables", "etc.new/cni/net.d", "etc.new/containerd",
		"etc.new/kubernetes/manifests", "containerd", "kubelet"}
	for _, own := range layered {
		name := strings.ReplaceAll(own, "/", ".")
		dirs = append(dirs, name+".new", name+".work")
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			return err
		}
	}
	controllers, err := filepath.Glob(filepath.Join(cgroupRoot, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, procs := range controllers {
		controller := filepath.Dir(procs)
		if err := os.MkdirAll(filepath.Join(controller, n.cgroup), 0o755); err != nil {
			return err
		}
		// A set of processors starts empty, on every level, and nothing runs in it then.
		for _, level := range []string{filepath.Dir(n.cgroup), n.cgroup} {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, err := os.ReadFile(filepath.Join(controller, file))
				if errors.Is(err, os.ErrNotExist) {
					continue
				} else if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(controller, level, file), value, 0o644); err != nil {
					return err
				}
			}
		}
	}
	for name, text := range map[string]string{
		"etc.new/containerd/config.toml":    fmt.Sprintf(containerdConfig, n.Address, pauseImage),
		"etc.new/cni/net.d/10-rig.conflist": fmt.Sprintf(cniConfig, n.index),
		"etc.new/kubernetes/kubelet.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
			"failCgroupV1: false\nstaticPodPath: /etc/kubernetes/manifests\n",
	} {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// containerdConfig: without CAP_SYS_RESOURCE no process may lower its OOM score, and runc fails that tries; streams are
// for the API server, which connects to the address that the runtime names (old kubelets redirect it there).
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[2]s"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "%[1]s"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
`

// cniConfig has the version that the dockershim of 1.10 reads too.
const cniConfig = `{"cniVersion": "0.3.1", "name": "rig", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.%[1]d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`

// tunables are what kubelets write that is not in a namespace: they get files of their own to write to.
var tunables = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// connect gives the node its mounts and its network.
func (n *Node) connect() error {
	veth := fmt.Sprintf("rig-%d", n.index)
	pod := fmt.Sprintf("10.244.%d.0/24", n.index)
	if err := n.rig.command("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns",
		fmt.Sprint(n.init.pid())); err != nil {
		return err
	}
	for _, words := range [][]string{
		{"ip", "link", "set", veth, "master", bridgeName, "up"},
		{"ip", "route", "replace", pod, "via", n.Address},
	} {
		if err := n.rig.command(words...); err != nil {
			return err
		}
	}
	inside := [][]string{
		{"mount", "--make-rshared", "/"},
		{"mount", "-t", "proc", "proc", "/proc"},
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "add", n.Address + "/24", "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
		{"ip", "route", "add", "default", "via", Bridge},
		// Old kubelets ask this address for credentials, for 20 s.
		{"ip", "route", "add", "unreachable", "169.254.169.254"},
		{"sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"},
	}
	// What the node changes is kept in memory.
	for _, dir := range layered {
		own := filepath.Join(n.dir, strings.ReplaceAll(dir, "/", "."))
		options := fmt.Sprintf("lowerdir=/%s,upperdir=%s.new,workdir=%s.work", dir, own, own)
		inside = append(inside, []string{"mount", "-t", "overlay", "overlay", "-o", options, "/" + dir})
	}
	// The layers of containers cannot lie on layers.
	for _, dir := range []string{"containerd", "kubelet"} {
		inside = append(inside, []string{"mkdir", "-p", "/var/lib/" + dir},
			[]string{"mount", "--bind", filepath.Join(n.dir, dir), "/var/lib/" + dir})
	}
	for _, name := range tunables {
		own := filepath.Join(n.dir, "tunables", strings.ReplaceAll(name, "/", "."))
		inside = append(inside, []string{"sh", "-c", `cat "$1" > "$0" && mount --bind "$0" "$1"`, own,
			"/proc/sys/" + name})
	}
	// Files of the test are where they are outside; this comes last, for it hides the folder of the node.
	inside = append(inside, []string{"mount", "--bind", "/run/tmp", filepath.Join(n.dir, "run/tmp")},
		[]string{"mount", "--rbind", filepath.Join(n.dir, "run"), "/run"})
	for _, words := range inside {
		if out, err := n.Run(n.rig.t.Context(), words...); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
		}
	}
	return nil
}

// command runs a program of the sandbox.
func (r *Rig) command(words ...string) error {
	if out, err := exec.CommandContext(r.t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}

// enter puts the calling thread, which must never be used for anything else afterwards, and the processes that it
// starts into the node.
func (n *Node) enter() error {
	// A thread that shares its working directory and umask with others cannot change mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for _, namespace := range []struct {
		name string
		kind int
	}{{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", n.init.pid(), namespace.name))
		if err != nil {
			return fmt.Errorf("node %s is gone: %w", n.Name, err)
		}
		err = unix.Setns(int(file.Fd()), namespace.kind)
		file.Close()
		if err != nil {
			return fmt.Errorf("entering the %s namespace of node %s: %w", namespace.name, n.Name, err)
		}
	}
	return nil
}

// Run runs a program on the node and returns what it writes.
func (n *Node) Run(ctx context.Context, words ...string) (string, error) {
	return n.RunWith(ctx, nil, words...)
}

// RunWith runs a program on the node with an input.
func (n *Node) RunWith(ctx context.Context, input io.Reader, words ...string) (string, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := n.enter(); err != nil {
			done <- result{err: err}
			return
		}
		command := exec.CommandContext(ctx, words[0], words[1:]...)
		command.Stdin = input
		out, err := command.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	return string(r.out), r.err
}

// Start starts a program on the node; it ends with the test, with the node, or when it is stopped.
func (n *Node) Start(name, program string, args []string, env ...string) *Process {
	n.rig.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	p := n.rig.newProcess(n.Name+"-"+name, path, args, env...)
	// It dies with the node's first process, which dies with the test. Without that it would be taken for an orphan: no
	// process of the node is its parent.
	p.enter, p.attributes = n.enter, nil
	p.run()
	return p
}

// StartPod starts the program of test/rig/pod on the node itself.
func (n *Node) StartPod(name string, args ...string) *Process {
	n.rig.t.Helper()
	program, err := podProgram()
	if err != nil {
		n.rig.t.Fatal(err)
	}
	return n.Start(name, program, args)
}

// Kill ends everything on the node at once, as a power failure does.
func (n *Node) Kill() {
	for _, p := range n.rig.processes {
		if strings.HasPrefix(p.Name, n.Name+"-") {
			p.expectEnd()
		}
	}
	n.init.Kill()
}

// kubeletArgs are the arguments of a kubelet of any release, beside those of its place.
var (
	since31 = kubever.Ranges{{From: 31, To: kubever.Newest}}
	to26    = kubever.Ranges{{From: kubever.Oldest, To: 26}}
)

// KubeletArgs are the arguments of a kubelet of the release on the node.
func (n *Node) KubeletArgs(minor kubever.Minor, kubeconfig string) []string {
	n.rig.t.Helper()
	var args []string
	for _, a := range []arg{
		{flag: "kubeconfig", value: kubeconfig},
		{flag: "volume-plugin-dir", value: "/var/lib/kubelet/volumeplugins"}, // the usual one is below /usr
		{flag: "pod-manifest-path", value: "/etc/kubernetes/manifests"},
		{flag: "hostname-override", value: n.Name},
		{flag: "node-ip", value: n.Address},
		{flag: "address", value: n.Address},
		{flag: "healthz-bind-address", value: "127.0.0.1"},
		{flag: "read-only-port", value: "0"},
		{flag: "container-runtime", value: "remote", in: to26},
		{flag: "container-runtime-endpoint", value: "unix://" + criSocket},
		{flag: "cgroup-driver", value: "cgroupfs"},
		{flag: "cgroup-root", value: n.cgroup},
		{flag: "enforce-node-allocatable", value: "pods"},
		{flag: "fail-swap-on", value: "false"},
		{flag: "config", value: "/etc/kubernetes/kubelet.yaml", in: since31}, // it refuses cgroup version 1 otherwise
		{flag: "client-ca-file", value: n.rig.PKI.File("ca.crt")},
		{flag: "anonymous-auth", value: "false"},
		{flag: "authorization-mode", value: "Webhook"},
		// Images come from no registry: nothing may remove them.
		{flag: "image-gc-high-threshold", value: "100"},
		{flag: "image-gc-low-threshold", value: "99"},
		{flag: "eviction-hard", value: "memory.available<50Mi"},
		// This is also how long a kubelet waits for an answer. After 1 s without one, kubelets of 1.15 closed their
		// connections and were seen to use a closed one for minutes: "use of closed network connection".
		{flag: "node-status-update-frequency", value: "5s"},
		{flag: "sync-frequency", value: "10s"}, // changes of config maps arrive within that
		{flag: "v", value: "2"},
	} {
		if a.in == nil || a.in.Has(minor) {
			args = append(args, "--"+a.flag+"="+a.value)
		}
	}
	return args
}

// KubeletEnv is the environment of a kubelet of the release. Those that ask for no sign of life may go on using a
// connection of HTTP/2 that the end of their API server closed, for minutes: then their pods are evicted.
func KubeletEnv(minor kubever.Minor) []string {
	if !kubever.Behaves(kubever.BehaviourKubeletConnectionsChecked, minor) {
		return []string{"DISABLE_HTTP2=1"}
	}
	return nil
}

// ConfigureKubelets adds a line to the configuration file that kubelets of the node read since 1.31.
func (n *Node) ConfigureKubelets(line string) {
	n.rig.t.Helper()
	file, err := os.OpenFile(filepath.Join(n.dir, "etc.new/kubernetes/kubelet.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(line + "\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		n.rig.t.Fatal(err)
	}
}

// kubeletRestarts is how often a kubelet may end by itself.
const kubeletRestarts = 3

// StartKubelet starts a kubelet of the release that knows the API server; WaitReady waits for the node.
func (n *Node) StartKubelet(minor kubever.Minor, server *APIServer, more ...string) {
	n.rig.t.Helper()
	binary, err := Binary("kubelet", minor)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	kubeconfig, err := n.rig.PKI.Kubeconfig(n.Name+"-kubelet", server.URL, "system:node:"+n.Name, "system:nodes")
	if err != nil {
		n.rig.t.Fatal(err)
	}
	// Under its own name, as people run it: programs look for it by that.
	named := filepath.Join(n.rig.dir, n.Name+"-"+filepath.Base(binary), "kubelet")
	if err := os.MkdirAll(filepath.Dir(named), 0o755); err != nil {
		n.rig.t.Fatal(err)
	}
	if err := os.Symlink(binary, named); err != nil && !errors.Is(err, os.ErrExist) {
		n.rig.t.Fatal(err)
	}
	n.Kubelet = n.Start("kubelet", named, append(n.KubeletArgs(minor, kubeconfig), more...), KubeletEnv(minor)...)
	// As its unit does on hosts: a kubelet of 1.36 that started beside containers with paths of volumes was seen to end
	// with "failed to get rootfs info: cannot find filesystem info for device .../volume-subpaths/...".
	n.Kubelet.MayEnd(kubeletRestarts)
}

// ReplaceKubelet stops the kubelet and starts one of another release in its place, on the same folder and runtime.
func (n *Node) ReplaceKubelet(minor kubever.Minor, server *APIServer, more ...string) {
	n.rig.t.Helper()
	n.Kubelet.Stop()
	n.StartKubelet(minor, server, more...)
}

// StartProxy starts a kube-proxy of the release.
func (n *Node) StartProxy(minor kubever.Minor, server *APIServer) {
	n.rig.t.Helper()
	binary, err := Binary("kube-proxy", minor)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	kubeconfig, err := n.rig.PKI.Kubeconfig(n.Name+"-proxy", server.URL, "system:kube-proxy")
	if err != nil {
		n.rig.t.Fatal(err)
	}
	health := "127.0.0.1"
	if (kubever.Ranges{{From: 20, To: kubever.Newest}}).Has(minor) {
		health += ":10256"
	}
	n.Proxy = n.Start("proxy", binary, []string{
		"--kubeconfig=" + kubeconfig, "--hostname-override=" + n.Name, "--proxy-mode=iptables",
		"--cluster-cidr=" + podCIDR,
		"--healthz-bind-address=" + health, "--conntrack-max-per-core=0", "--conntrack-min=0", "--v=2",
	})
}

// WaitReady waits until the API server says that the node is ready.
func (n *Node) WaitReady(server *APIServer) {
	n.rig.t.Helper()
	client := server.Client("rig-node", "system:masters")
	n.Kubelet.Wait("make its node ready", func(ctx context.Context) error {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
				NodeInfo   struct{ KubeletVersion string }
			}
		}
		if err := client.Call(ctx, http.MethodGet, "/api/v1/nodes/"+n.Name, nil, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("the node's conditions are %+v", node.Status.Conditions)
	})
}

// pid is the process's id in the sandbox.
func (p *Process) pid() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.process.Pid
}

// expectEnd says that the process ends at the wish of the test.
func (p *Process) expectEnd() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.expected = true
}
