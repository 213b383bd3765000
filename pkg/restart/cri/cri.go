// Package cri reads from the socket of a container runtime what kubelets recorded about containers and sandboxes.
package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubefusion/fusionctl/pkg/restart"
)

// protocol is a version of the CRI. The fields that are read here have the same numbers in all of them, so that the
// messages of v1 serve for each.
type protocol struct {
	service     string
	hostNetwork runtimev1.NamespaceMode // v1alpha1 has a bool, whose true is another number
}

// protocols are tried in this order. Source: k8s.io/cri-api v0.36 (v1) and v0.22 (v1alpha2);
// pkg/kubelet/apis/cri/v1alpha1/runtime/api.proto of 1.6 to 1.9.
var protocols = []protocol{
	{"runtime.v1.RuntimeService", runtimev1.NamespaceMode_NODE},
	{"runtime.v1alpha2.RuntimeService", runtimev1.NamespaceMode_NODE},
	{"runtime.RuntimeService", 1},
}

// messageBytes bounds an answer, as in the kubelet.
const messageBytes = 16 << 20

// Read asks the runtime of a node for its containers and sandboxes and adds those of pods. It changes nothing there.
// Shape:  an endpoint as kubelets take it: unix:///run/containerd/containerd.sock. A path alone is one too.
// Errors: an endpoint that is no socket, and what the runtime answers, with the call. A call that is not
// answered ends after two minutes, or with ctx.
func Read(ctx context.Context, endpoint string, into *restart.Runtime) error {
	conn, err := connect(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, p := range protocols {
		err = p.read(ctx, conn, into)
		if status.Code(err) != codes.Unimplemented {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", endpoint, err)
	}
	return nil
}

// connect prepares the connection to a socket; nothing is sent yet.
func connect(endpoint string) (*grpc.ClientConn, error) {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	if !strings.HasPrefix(endpoint, "unix:///") {
		return nil, fmt.Errorf("%q: want the socket of a runtime, such as unix:///run/containerd/containerd.sock",
			endpoint)
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	return conn, nil
}

func (p protocol) read(ctx context.Context, conn grpc.ClientConnInterface, into *restart.Runtime) error {
	client := runtimev1.NewRuntimeServiceClient(renamed{conn, p.service})
	containers, err := client.ListContainers(ctx, &runtimev1.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	for _, c := range containers.Containers {
		if c.State == runtimev1.ContainerState_CONTAINER_RUNNING {
			if record := restart.NewRecord(c.Id, c.Labels, c.Annotations); record.Pod != "" {
				into.Add(record)
			}
		}
	}
	sandboxes, err := client.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	for _, s := range sandboxes.Items {
		sandbox, err := p.sandbox(ctx, client, s)
		if err != nil {
			return err
		}
		into.AddSandbox(sandbox)
	}
	return nil
}

func (p protocol) sandbox(ctx context.Context, client runtimev1.RuntimeServiceClient, s *runtimev1.PodSandbox) (
	restart.Sandbox, error) {
	sandbox := restart.Sandbox{
		Namespace: s.Metadata.GetNamespace(),
		Pod:       s.Metadata.GetName(),
		UID:       s.Metadata.GetUid(),
		Ready:     s.State == runtimev1.PodSandboxState_SANDBOX_READY,
		Created:   s.CreatedAt,
	}
	if !sandbox.Ready {
		return sandbox, nil
	}
	answer, err := client.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: s.Id})
	if status.Code(err) == codes.NotFound {
		return sandbox, nil // it went since it was listed
	}
	if err != nil {
		return sandbox, fmt.Errorf("asking for sandbox %s: %w", s.Id, err)
	}
	network := answer.Status.GetNetwork()
	options := answer.Status.GetLinux().GetNamespaces().GetOptions()
	if network != nil && options != nil {
		sandbox.HasNetwork, sandbox.IP, sandbox.HostNetwork = true, network.Ip, options.Network == p.hostNetwork
	}
	return sandbox, nil
}

// callTimeout ends a call that the runtime does not answer, as kubelets do (--runtime-request-timeout).
const callTimeout = 2 * time.Minute

// renamed calls the methods of one service by the name of another.
type renamed struct {
	grpc.ClientConnInterface
	service string
}

func (r renamed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := method[strings.LastIndex(method, "/")+1:]
	return r.ClientConnInterface.Invoke(ctx, "/"+r.service+"/"+name, args, reply, opts...)
}
