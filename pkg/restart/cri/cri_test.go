package cri

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

// fakeRuntime runs one container of pod shop/web, whose sandbox has the network mode, and one that is none of a pod.
type fakeRuntime struct {
	runtimev1.UnimplementedRuntimeServiceServer
	network runtimev1.NamespaceMode
}

type fakeImages struct {
	runtimev1.UnimplementedImageServiceServer
}

func (fakeImages) ListImages(context.Context, *runtimev1.ListImagesRequest) (*runtimev1.ListImagesResponse, error) {
	return &runtimev1.ListImagesResponse{Images: []*runtimev1.Image{{Id: "i1", RepoTags: []string{"r.example/app:1"},
		RepoDigests: []string{"r.example/app@sha256:11"}}}}, nil
}

func (f fakeRuntime) Status(_ context.Context, r *runtimev1.StatusRequest) (*runtimev1.StatusResponse, error) {
	answer := &runtimev1.StatusResponse{}
	if r.Verbose {
		answer.Info = map[string]string{"config": `{"streamServerAddress":"127.0.0.1","streamServerPort":"0"}`}
	}
	return answer, nil
}

var labels = map[string]string{
	"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": "u1",
	"io.kubernetes.container.name": "app",
}

func (f fakeRuntime) ListContainers(context.Context, *runtimev1.ListContainersRequest) (
	*runtimev1.ListContainersResponse, error) {
	hash := map[string]string{"io.kubernetes.container.hash": "89e10412"}
	old := map[string]string{"io.kubernetes.container.hash": "1", "io.kubernetes.container.restartCount": "7"}
	return &runtimev1.ListContainersResponse{Containers: []*runtimev1.Container{
		{Id: "c1", State: runtimev1.ContainerState_CONTAINER_RUNNING, Labels: labels, Annotations: hash},
		{Id: "c0", State: runtimev1.ContainerState_CONTAINER_EXITED, Labels: labels, Annotations: old},
		{Id: "x", State: runtimev1.ContainerState_CONTAINER_RUNNING},
	}}, nil
}

func (f fakeRuntime) ListPodSandbox(context.Context, *runtimev1.ListPodSandboxRequest) (
	*runtimev1.ListPodSandboxResponse, error) {
	metadata := &runtimev1.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "u1"}
	return &runtimev1.ListPodSandboxResponse{Items: []*runtimev1.PodSandbox{
		{Id: "s1", Metadata: metadata, State: runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: 2},
		{Id: "s0", Metadata: metadata, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 1},
	}}, nil
}

func (f fakeRuntime) PodSandboxStatus(_ context.Context, r *runtimev1.PodSandboxStatusRequest) (
	*runtimev1.PodSandboxStatusResponse, error) {
	return &runtimev1.PodSandboxStatusResponse{Status: &runtimev1.PodSandboxStatus{
		Id:      r.PodSandboxId,
		Network: &runtimev1.PodSandboxNetworkStatus{Ip: "10.0.0.7"},
		Linux: &runtimev1.LinuxPodSandboxStatus{Namespaces: &runtimev1.Namespace{
			Options: &runtimev1.NamespaceOption{Network: f.network},
		}},
	}}, nil
}

// serve starts a runtime that speaks one version of the CRI and returns its endpoint.
func serve(t *testing.T, service string, network runtimev1.NamespaceMode) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	description := runtimev1.RuntimeService_ServiceDesc
	description.ServiceName = service
	server.RegisterService(&description, fakeRuntime{network: network})
	images := runtimev1.ImageService_ServiceDesc
	images.ServiceName = strings.TrimSuffix(service, "RuntimeService") + "ImageService"
	server.RegisterService(&images, fakeImages{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "unix://" + socket
}

func TestReadSpeaksEveryVersionOfTheCRI(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	always := v1.PodSpec{HostNetwork: true, Containers: []v1.Container{{
		Name: "app", Image: "registry.example/app:1.0", TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile, ImagePullPolicy: v1.PullIfNotPresent,
	}}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}, Spec: always}
	for _, p := range protocols {
		var runtime restart.Runtime
		if err := Read(ctx, serve(t, p.service, p.hostNetwork), &runtime); err != nil {
			t.Errorf("%s: %v", p.service, err)
			continue
		}
		if runtime.Records() != 1 {
			t.Errorf("%s: %d records, want the running container of a pod", p.service, runtime.Records())
		}
		route, err := restart.NewRoute(kubever.Version{Minor: 31}, kubever.Version{Minor: 36})
		if err != nil {
			t.Fatal(err)
		}
		outcome := route.Judge(pod, &runtime)[0]
		if outcome.Verdict != restart.Keep || outcome.StartedBy != "1.31" {
			t.Errorf("%s: %+v, want a container started by 1.31 to be kept: hash and sandbox match", p.service, outcome)
		}
		onPodNetwork := pod.DeepCopy()
		onPodNetwork.Spec.HostNetwork = false
		if outcome := route.Judge(onPodNetwork, &runtime)[0]; outcome.Verdict != restart.Restart ||
			!strings.Contains(outcome.Why[0], "host network") {
			t.Errorf("%s: %+v, want a restart: the sandbox is on the host's network", p.service, outcome)
		}
	}
}

// silent answers when the caller has given up.
type silent struct{ grpc.ClientConnInterface }

func (silent) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestReadWaitsForNoRuntimeThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := protocols[0].read(t.Context(), silent{}, new(restart.Runtime))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the time is over", err)
		}
	})
}

func TestReadNamesTheEndpoint(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var runtime restart.Runtime
	for _, endpoint := range []string{"tcp://127.0.0.1:1", "containerd.sock", "unix:///no/such.sock", "/no/such.sock"} {
		if err := Read(ctx, endpoint, &runtime); err == nil || !strings.Contains(err.Error(), endpoint) {
			t.Errorf("Read(%q): %v, want an error that names it", endpoint, err)
		}
	}
	other := serve(t, "other.Service", 0)
	if err := Read(ctx, other, &runtime); err == nil || !strings.Contains(err.Error(), "listing containers") {
		t.Errorf("Read of a socket without the CRI: %v, want an error that names the call", err)
	}
}

func TestReadNodeSpeaksEveryVersionOfTheCRI(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range protocols {
		node, err := ReadNode(ctx, serve(t, p.service, p.hostNetwork))
		if err != nil || strings.Join(node.Images, " ") != "r.example/app:1 r.example/app@sha256:11" ||
			node.Streams == nil || *node.Streams != "127.0.0.1" {
			t.Errorf("%s: %+v, %v", p.service, node, err)
		}
	}
	if node, err := ReadNode(ctx, "/no/such.sock"); err == nil || node.Images != nil {
		t.Errorf("no socket: %+v, %v", node, err)
	}
}
