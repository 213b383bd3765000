package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Node is what a container runtime says of itself.
type Node struct {
	Images []string // names with tags, and names with digests
	// Streams is the address on which it streams exec, attach and port-forward; nil when it does not say.
	Streams *string
}

// ReadNode asks the runtime of a node for its images and for the address of its streams. It changes nothing there.
// Errors: as of Read.
func ReadNode(ctx context.Context, endpoint string) (Node, error) {
	conn, err := connect(endpoint)
	if err != nil {
		return Node{}, err
	}
	defer conn.Close()
	var node Node
	for _, p := range protocols {
		node, err = p.node(ctx, conn)
		if status.Code(err) != codes.Unimplemented {
			break
		}
	}
	if err != nil {
		return Node{}, fmt.Errorf("reading %s: %w", endpoint, err)
	}
	return node, nil
}

func (p protocol) node(ctx context.Context, conn *grpc.ClientConn) (Node, error) {
	service := strings.TrimSuffix(p.service, "RuntimeService") + "ImageService"
	images, err := runtimev1.NewImageServiceClient(renamed{conn, service}).ListImages(ctx,
		&runtimev1.ListImagesRequest{})
	if err != nil {
		return Node{}, fmt.Errorf("listing images: %w", err)
	}
	var node Node
	for _, image := range images.Images {
		node.Images = append(node.Images, image.RepoTags...)
		node.Images = append(node.Images, image.RepoDigests...)
	}
	answer, err := runtimev1.NewRuntimeServiceClient(renamed{conn, p.service}).Status(ctx,
		&runtimev1.StatusRequest{Verbose: true})
	if err != nil {
		return node, fmt.Errorf("asking for the status: %w", err)
	}
	var config struct {
		StreamServerAddress *string `json:"streamServerAddress"`
	}
	if json.Unmarshal([]byte(answer.Info["config"]), &config) == nil { // containerd's; others have no such word
		node.Streams = config.StreamServerAddress
	}
	return node, nil
}
