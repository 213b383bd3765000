package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
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

// SourcesOf asks the API servers what they serve. legacy is nil where that side is retired.
// Errors: those of apiserver.New and of Served, with the side.
func SourcesOf(ctx context.Context, p *plan.Runtime, legacy, modern *rest.Config) (routes.Sources, error) {
	var sources routes.Sources
	for _, side := range p.RunningSides() {
		config := legacy
		if side == pair.Modern {
			config = modern
		}
		server, err := apiserver.New(config, apiserver.Options{})
		if err != nil {
			return sources, err
		}
		served, err := Served(ctx, server, p.Side(side).Version)
		if err != nil {
			return sources, fmt.Errorf("%s side: %w", side, err)
		}
		*sources.Of(side) = served
	}
	return sources, nil
}
