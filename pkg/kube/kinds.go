package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Kinds asks the server for every kind that it serves.
// Errors: a server that does not answer for one of its groups is not known well enough to say what it lacks.
func (c *Client) Kinds(ctx context.Context) (map[schema.GroupVersionKind]bool, error) {
	kinds := map[schema.GroupVersionKind]bool{}
	err := c.retry(ctx, func() error {
		_, lists, err := discovery.NewDiscoveryClient(c.rest).ServerGroupsAndResources()
		if err != nil {
			return err
		}
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				return err
			}
			for _, resource := range list.APIResources {
				kinds[gv.WithKind(resource.Kind)] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking the server what it serves: %w", err)
	}
	return kinds, nil
}
