package stream

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// Cluster is what a check reads of a cluster.
type Cluster interface {
	// Listable lists every resource that the API server can list, in every version.
	Listable(ctx context.Context) ([]discovery.Resource, error)
	// Objects lists the objects of a resource in all namespaces; selector chooses by labels, "" all.
	Objects(ctx context.Context, resource discovery.Resource, selector string) iter.Seq2[*unstructured.Unstructured,
		error]
}

// Cluster judges the versions in which clients wrote the objects of a cluster, each object once, of the kinds that the
// release concerns; with Helm it judges what the releases of the cluster applied. It returns the releases and the
// objects that it could not read.
// Errors: those of the cluster, of which the first one ends it; those of emit.
func (c *Check) Cluster(ctx context.Context, cluster Cluster) (problems []error, err error) {
	resources, err := cluster.Listable(ctx)
	if err != nil {
		return nil, err
	}
	if c.Helm {
		return c.releases(ctx, cluster, resources)
	}
	seen := map[string]bool{}
	for _, resource := range resources {
		if !c.Concerns(resource.GroupVersionKind()) {
			continue
		}
		for object, err := range cluster.Objects(ctx, resource, "") {
			if err != nil {
				return nil, err
			}
			// Listed under another version of its group, or another group, it is the same. A UID alone says less: an
			// extension API server may give its objects those of others.
			this := fmt.Sprintf("%s %s %s/%s", object.GetUID(), object.GetKind(), object.GetNamespace(),
				object.GetName())
			if object.GetUID() != "" && seen[this] {
				continue
			}
			seen[this] = true
			unread, err := c.Written(object)
			if err != nil {
				return nil, err
			}
			problems = append(problems, unread...)
		}
	}
	return problems, nil
}

// releases judges what the Helm releases of a cluster applied, which Secrets and ConfigMaps record.
func (c *Check) releases(ctx context.Context, cluster Cluster, resources []discovery.Resource) (problems []error,
	err error) {
	for _, resource := range resources {
		if resource.Group != "" || resource.Kind != "Secret" && resource.Kind != "ConfigMap" {
			continue
		}
		for _, selector := range []string{"owner=helm", "OWNER=TILLER"} {
			for object, err := range cluster.Objects(ctx, resource, selector) {
				if err != nil {
					return nil, err
				}
				unread, err := c.Object(ctx, object.GetKind(), object)
				if err != nil {
					return nil, err
				}
				problems = append(problems, unread...)
			}
		}
	}
	return problems, nil
}
