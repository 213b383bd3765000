package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
)

// pageObjects bounds a page of objects of any kind.
const pageObjects = 250

// Listed is a resource that the server can list.
type Listed struct {
	schema.GroupVersionKind
	Resource string // plural, as in a URL
}

// Listable asks the server for every resource that it can list, in every version.
// Errors: a server that does not answer for one of its groups is not known well enough to say what it lacks.
func (c *Client) Listable(ctx context.Context) ([]Listed, error) {
	var found []Listed
	err := c.discover(ctx, func(gv schema.GroupVersion, resource metav1.APIResource) {
		if slices.Contains(resource.Verbs, "list") {
			found = append(found, Listed{gv.WithKind(resource.Kind), resource.Name})
		}
	})
	return found, err
}

// discover calls visit for every resource of the server.
func (c *Client) discover(ctx context.Context, visit func(schema.GroupVersion, metav1.APIResource)) error {
	var lists []*metav1.APIResourceList
	err := c.retry(ctx, func() error {
		var err error
		_, lists, err = discovery.NewDiscoveryClient(c.rest).ServerGroupsAndResources()
		return err
	})
	if err != nil {
		return fmt.Errorf("asking the server what it serves: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("asking the server what it serves: %w", err)
		}
		for _, resource := range list.APIResources {
			visit(gv, resource)
		}
	}
	return nil
}

// Kinds asks the server for every kind that it serves.
// Errors: as those of Listable.
func (c *Client) Kinds(ctx context.Context) (map[schema.GroupVersionKind]bool, error) {
	kinds := map[schema.GroupVersionKind]bool{}
	err := c.discover(ctx, func(gv schema.GroupVersion, resource metav1.APIResource) {
		kinds[gv.WithKind(resource.Kind)] = true
	})
	return kinds, err
}

// Objects lists the objects of a resource in all namespaces, a page at a time; selector chooses by labels, "" all.
// Errors: the first one ends the sequence; failures that pass were retried before.
func (c *Client) Objects(ctx context.Context, resource Listed, selector string) iter.Seq2[*unstructured.Unstructured, error] {
	path := "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
	if resource.Group == "" {
		path = "/api/" + resource.Version + "/" + resource.Resource
	}
	return func(yield func(*unstructured.Unstructured, error) bool) {
		options := metav1.ListOptions{Limit: pageObjects, LabelSelector: selector}
		for {
			page, err := c.objectPage(ctx, path, options)
			if again := continuation(err); again != "" && again != options.Continue {
				options.Continue = again
				continue
			}
			if err != nil {
				yield(nil, fmt.Errorf("listing %s of %s: %w", resource.Resource, resource.GroupVersion(), err))
				return
			}
			for _, item := range page.Items {
				var object map[string]any
				if err := utiljson.Unmarshal(item, &object); err != nil {
					yield(nil, fmt.Errorf("listing %s of %s: %w", resource.Resource, resource.GroupVersion(), err))
					return
				}
				u := &unstructured.Unstructured{Object: object}
				u.SetGroupVersionKind(resource.GroupVersionKind)
				if !yield(u, nil) {
					return
				}
			}
			if options.Continue = page.Metadata.Continue; options.Continue == "" {
				return
			}
		}
	}
}

type objectPage struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (c *Client) objectPage(ctx context.Context, path string, options metav1.ListOptions) (*objectPage, error) {
	page := new(objectPage)
	err := c.retry(ctx, func() error {
		data, err := c.rest.Get().AbsPath(path).VersionedParams(&options, c.parameters).Do(ctx).Raw()
		if err != nil {
			return err
		}
		return json.Unmarshal(data, page)
	})
	return page, err
}
