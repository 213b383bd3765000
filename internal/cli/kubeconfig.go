package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
)

// kubeconfig reads how to reach a server, from a file that may be a pipe; selected names one of its contexts, "" stands
// for the current one.
func kubeconfig(ctx context.Context, file, selected string) (*rest.Config, error) {
	config, err := interruptibly(ctx, func() (*rest.Config, error) { return apiserver.Kubeconfig(file, selected) })
	if err != nil {
		return nil, badInput(err, "a kubeconfig names a server, its CA and the client's certificate or token")
	}
	return config, nil
}

// verifiedKubeconfig is kubeconfig for what changes hosts and objects by the word of a server: it refuses one by which
// another than that server could answer.
func verifiedKubeconfig(ctx context.Context, file, selected string) (*rest.Config, error) {
	config, err := kubeconfig(ctx, file, selected)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, badInput(fmt.Errorf("kubeconfig %s: %w", file, err), "")
	}
	return config, verified(file, config, server)
}

func verified(file string, config *rest.Config, server *url.URL) error {
	switch {
	case config.Insecure:
		return badInput(fmt.Errorf("kubeconfig %s does not verify the server (insecure-skip-tls-verify): another "+
			"one could answer", file), "certificate-authority names its CA")
	case server.Scheme != "https" && config.Proxy != nil:
		return badInput(fmt.Errorf("kubeconfig %s: server %q, reached through a proxy-url: want https: another one "+
			"could answer", file, server), "without TLS a server is reached on loopback alone")
	case server.Scheme != "https" && !loopback(net.JoinHostPort(server.Hostname(), "1")):
		return badInput(fmt.Errorf("kubeconfig %s: server %q: want https: another one could answer", file, server),
			"without TLS a server is reached on loopback alone")
	}
	return nil
}
