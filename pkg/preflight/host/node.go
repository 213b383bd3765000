package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/preflight"
	"github.com/kubefusion/fusionctl/pkg/restart/cri"
)

// patience bounds how long one server is waited for.
const patience = 5 * time.Second

// stores asks the members of the stores that exist already for their version.
func (r *reader) stores(ctx context.Context, n *preflight.Needs) {
	r.host.World.Stores = map[string][]preflight.Member{}
	for i := range n.Stores {
		s := &n.Stores[i]
		ca, cert, key := n.Identity(s)
		config := etcdv3.Config{Endpoints: s.Endpoints, CAFile: ca, CertFile: cert, KeyFile: key, Timeout: patience}
		client, err := etcdv3.Open(config)
		if err != nil { // of the files, which are findings of their own where they are missing
			r.incomplete("store %s: %v", s.Name, err)
			continue
		}
		for _, v := range client.Versions(ctx) {
			member := preflight.Member{Endpoint: v.Endpoint, Version: v.Version}
			switch {
			case v.Err != nil:
				member.Problem = v.Err.Error()
			case v.Version == "":
				r.incomplete("store %s: %s does not say its version to this client", s.Name, v.Endpoint)
			}
			r.host.World.Stores[s.Name] = append(r.host.World.Stores[s.Name], member)
		}
		_ = client.Close()
	}
}

// findKubelet is the command line of the kubelet that runs here, nil for none. One that another user calls so is none:
// it would say which configuration is read, and which socket is asked.
func (r *reader) findKubelet(proc string) []string {
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, process := range processes {
		if info, err := os.Lstat(process); err != nil || !filetree.Trusted(info) {
			continue
		}
		command := commandLine(process)
		for i, word := range command[:min(len(command), 2)] {
			if base := filepath.Base(word); base == "kubelet" && (i == 0 || strings.Contains(command[0], "hyperkube")) {
				return command
			}
		}
	}
	return nil
}

// argument is the last value of an argument of a command line, whose name is given with dashes.
func argument(command []string, name string) string {
	value := ""
	for i, word := range command {
		flag, given, ok := strings.Cut(word, "=")
		if kubever.FlagName(strings.TrimLeft(flag, "-")) != name || !strings.HasPrefix(word, "-") {
			continue
		}
		if value = given; !ok && i+1 < len(command) {
			value = command[i+1]
		}
	}
	return value
}

// usualConfig is where kubeadm and most installers put the configuration of the kubelet.
const usualConfig = "/var/lib/kubelet/config.yaml"

// kubelet reads from which directory the kubelet starts static pods. Links are followed, to compare it with the
// directory of the manifests.
func (r *reader) kubelet(command []string, manifests string) {
	k := &preflight.Kubelet{Where: "--pod-manifest-path", StaticPods: argument(command, "pod-manifest-path")}
	config := argument(command, "config")
	if command == nil {
		config = usualConfig
	}
	if config != "" && k.StaticPods == "" {
		info, err := os.Stat(config)
		switch {
		case err == nil && info.IsDir(): // what --config was before 1.8
			k.Where, k.StaticPods = "--config", config
		case err == nil:
			var file struct {
				StaticPodPath string `yaml:"staticPodPath"`
				PodManifest   string `yaml:"podManifestPath"` // before v1beta1
			}
			var document yaml.Node
			data, err := readFile(config)
			if err == nil {
				err = yaml.Unmarshal(data, &document)
			}
			if err == nil { // it may be any file that the command line names
				err = cmp.Or(yamltext.BoundAliasesOf(&document), yamltext.BoundKeysOf(&document))
			}
			if err == nil && len(document.Content) > 0 {
				err = document.Decode(&file)
			}
			if err != nil {
				r.incomplete("kubelet: reading %s: %v", config, reason(err))
				return
			}
			k.Where, k.StaticPods = config, file.StaticPodPath+file.PodManifest
		case command == nil:
			r.incomplete("kubelet: none runs on this host, and there is no %s", usualConfig)
			return
		default:
			r.incomplete("kubelet: reading %s: %v", config, reason(err))
			return
		}
	}
	if here, err := filepath.EvalSymlinks(manifests); err == nil {
		if there, err := filepath.EvalSymlinks(k.StaticPods); err == nil && there == here {
			k.StaticPods = manifests
		}
	}
	r.host.World.Kubelet = k
}

// usualSockets are where container runtimes listen: for the CRI, and for Docker's API.
var (
	usualSockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock"}
	dockerSocket = "/var/run/docker.sock"
)

// runtime reads the images of the container runtime, and where it streams. A kubelet that is told no socket uses
// Docker's up to 1.23.
func (r *reader) runtime(ctx context.Context, kubelet []string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	socket := r.Runtime
	if socket == "" {
		socket = argument(kubelet, "container-runtime-endpoint")
	}
	if socket == "" {
		for _, usual := range append([]string{dockerSocket}, usualSockets...) {
			if isSocket(usual) {
				socket = usual
			}
		}
	}
	if socket == "" {
		r.incomplete("images: no container runtime listens on %s or %s; --runtime names its socket",
			strings.Join(usualSockets, ", "), dockerSocket)
		return
	}
	if strings.HasSuffix(socket, "docker.sock") || strings.HasSuffix(socket, "dockershim.sock") {
		images, err := dockerImages(ctx, dockerOf(socket))
		if err != nil {
			r.incomplete("images: %v", err)
			return
		}
		r.host.World.Images = &images
		return
	}
	node, err := cri.ReadNode(ctx, socket)
	if err != nil {
		r.incomplete("images: %v", err)
		return
	}
	r.host.World.Images, r.host.World.Streams = &node.Images, node.Streams
}

// dockerOf is Docker's own socket where a kubelet has the one of its dockershim.
func dockerOf(socket string) string {
	if strings.HasSuffix(socket, "dockershim.sock") {
		return dockerSocket
	}
	return strings.TrimPrefix(socket, "unix://")
}

func isSocket(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// dockerImages lists the images of Docker.
func dockerImages(ctx context.Context, socket string) ([]string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/images/json", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking Docker on %s: %w", socket, err)
	}
	defer answer.Body.Close()
	var images []struct{ RepoTags, RepoDigests []string }
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking Docker on %s: %s", socket, answer.Status)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, fileBytes)).Decode(&images); err != nil {
		return nil, fmt.Errorf("asking Docker on %s: %w", socket, err)
	}
	names := []string{}
	for _, image := range images {
		names = append(append(names, image.RepoTags...), image.RepoDigests...)
	}
	return names, nil
}
