package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubefusion/fusionctl/internal/rawapi"
)

// pagePods is how many pods one request asks for. Servers before 1.9 answer with all of them, whatever is asked.
const pagePods = 500

// Selection says which pods.
type Selection struct {
	Namespace string // "" for all
	Node      string // "" for all
}

// Pods lists pods, a page at a time.
// Errors: the first one ends the sequence; failures that pass were retried before.
//
// When the server has forgotten the state of the first page, which it does after some minutes, the list goes on from the same
// place in the present state: no pod comes twice, and pods that came or went in the meantime may be missing or there.
func (c *Client) Pods(ctx context.Context, selection Selection) iter.Seq2[*v1.Pod, error] {
	return func(yield func(*v1.Pod, error) bool) {
		options := metav1.ListOptions{Limit: pagePods}
		if selection.Node != "" {
			options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", selection.Node).String()
		}
		for {
			page, err := c.podPage(ctx, selection.Namespace, options)
			if again := continuation(err); again != "" && again != options.Continue {
				options.Continue = again
				continue
			}
			if err != nil {
				yield(nil, fmt.Errorf("listing pods: %w", err))
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if options.Continue = page.Continue; options.Continue == "" {
				return
			}
		}
	}
}

func (c *Client) podPage(ctx context.Context, namespace string, options metav1.ListOptions) (*v1.PodList, error) {
	var page *v1.PodList
	err := c.retry(ctx, func() error {
		page = new(v1.PodList)
		return c.rest.Get().NamespaceIfScoped(namespace, namespace != "").Resource("pods").
			VersionedParams(&options, c.parameters).Do(ctx).Into(page)
	})
	return page, err
}

// continuation is the token with which a list may go on whose state the server has forgotten.
func continuation(err error) string {
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsResourceExpired(err) {
		return ""
	}
	return status.Status().ListMeta.Continue
}

// DisruptionBudgets lists the PodDisruptionBudgets of a namespace, "" for all. APIVersion says which version the server has:
// policy/v1, or v1beta1 before 1.21; they have the same shape.
func (c *Client) DisruptionBudgets(ctx context.Context, namespace string) ([]*policyv1.PodDisruptionBudget, error) {
	for _, groupVersion := range []string{"policy/v1", "policy/v1beta1"} {
		budgets, err := c.budgets(ctx, groupVersion, namespace)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing PodDisruptionBudgets of %s: %w", groupVersion, err)
		}
		return budgets, nil
	}
	return nil, nil // a server without the API has none
}

func (c *Client) budgets(ctx context.Context, groupVersion, namespace string) ([]*policyv1.PodDisruptionBudget, error) {
	path := "/apis/" + groupVersion
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	var list struct {
		Items []*policyv1.PodDisruptionBudget `json:"items"`
	}
	err := c.retry(ctx, func() error {
		data, err := rawapi.Answer(c.rest.Get().AbsPath(path + "/poddisruptionbudgets").Do(ctx))
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &list)
	})
	for _, budget := range list.Items {
		budget.APIVersion = groupVersion
	}
	return list.Items, err
}
