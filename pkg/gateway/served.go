package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Served asks an API server what it serves, and which of that extension API servers serve.
// Errors: those of Discover; discovery.ErrWrongServer where the server is not of the planned version; API services that
// cannot be listed.
func Served(ctx context.Context, server *apiserver.Server, planned kubever.Version) (routes.Served, error) {
	result, err := server.Discover(ctx)
	if err != nil {
		return routes.Served{}, err
	}
	if err := result.Identity.Is(planned, ""); err != nil {
		return routes.Served{}, err
	}
	served := routes.Served{Result: result, Extensions: map[schema.GroupVersion]bool{}}
	services := result.Named(schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"})
	if len(services) == 0 {
		return served, nil
	}
	for item, err := range server.List(ctx, services[0].Objects(""), discovery.ListOptions{}) {
		if err != nil {
			return routes.Served{}, fmt.Errorf("listing API services: %w", err)
		}
		var service struct {
			Spec struct {
				Service        *struct{}
				Group, Version string
			}
		}
		if err := json.Unmarshal(item, &service); err != nil {
			return routes.Served{}, fmt.Errorf("reading an API service: %w", err)
		}
		if s := service.Spec; s.Service != nil {
			served.Extensions[schema.GroupVersion{Group: s.Group, Version: s.Version}] = true
		}
	}
	return served, nil
}
