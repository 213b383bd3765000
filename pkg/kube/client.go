// Package kube holds the typed reads of a cluster that verbs need: in pages, and never in one piece.
package kube

import "github.com/kubefusion/fusionctl/pkg/apiserver"

// Client reads one API server. It is safe for concurrent use.
type Client struct {
	server *apiserver.Server
}

// NewClient connects to the server that a kubeconfig file names; context chooses one of its contexts, "" the current
// one. Errors: a kubeconfig that cannot be read, or that names no server. The server is not asked yet.
func NewClient(kubeconfig, context string) (*Client, error) {
	server, err := apiserver.Open(kubeconfig, context, apiserver.Options{})
	if err != nil {
		return nil, err
	}
	return &Client{server}, nil
}

// New reads a server to which there is a client already.
func New(server *apiserver.Server) *Client { return &Client{server} }
