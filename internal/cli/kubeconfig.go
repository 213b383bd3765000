package cli

import (
	"context"

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
