package kube

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// pageObjects bounds a page of objects of any kind.
const pageObjects = 250

// Listable asks the server for every resource that it can list, in every version.
// Errors: a server that does not answer for one of its groups is not known well enough to say what it lacks.
func (c *Client) Listable(ctx context.Context) ([]discovery.Resource, error) {
	served, err := c.served(ctx)
	var found []discovery.Resource
	for _, resource := range served {
		if resource.Can("list") {
			found = append(found, resource)
		}
	}
	return found, err
}

func (c *Client) served(ctx context.Context) ([]discovery.Resource, error) {
	result, err := c.server.Discover(ctx)
	if err == nil {
		err = result.Gaps()
	}
	if err != nil {
		return nil, fmt.Errorf("asking the server what it serves: %w", err)
	}
	return result.Resources, nil
}

// Objects lists the objects of a resource in all namespaces, a page at a time; selector chooses by labels, "" all.
// Errors: the first one ends the sequence; failures that pass were retried before.
func (c *Client) Objects(ctx context.Context, resource discovery.Resource,
	selector string) iter.Seq2[*unstructured.Unstructured, error] {
	options := discovery.ListOptions{Limit: pageObjects, LabelSelector: selector}
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for item, err := range c.server.List(ctx, resource.Objects(""), options) {
			var object map[string]any
			if err == nil {
				err = utiljson.Unmarshal(item, &object)
			}
			if err != nil {
				yield(nil, fmt.Errorf("listing %s of %s: %w", resource.Name, resource.GroupVersion, err))
				return
			}
			u := &unstructured.Unstructured{Object: object}
			u.SetGroupVersionKind(resource.GroupVersionKind())
			if !yield(u, nil) {
				return
			}
		}
	}
}
