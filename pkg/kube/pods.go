package kube

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/quantity"
	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// Selection says which pods.
type Selection struct {
	Namespace string // "" for all
	Node      string // "" for all
}

var pods = discovery.Resource{GroupVersion: v1.SchemeGroupVersion, Name: "pods", Kind: "Pod", Namespaced: true}

// Pods lists pods, a page at a time.
// Errors: the first one ends the sequence; failures that pass were retried before.
//
// When the server has forgotten the state of the first page, which it does after some minutes, the list goes on from
// the same place in the present state: no pod comes twice, and pods that came or went in the meantime may be missing or
// there.
func (c *Client) Pods(ctx context.Context, selection Selection) iter.Seq2[*v1.Pod, error] {
	var options discovery.ListOptions
	if selection.Node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", selection.Node).String()
	}
	return func(yield func(*v1.Pod, error) bool) {
		for item, err := range c.server.List(ctx, pods.Objects(selection.Namespace), options) {
			pod := new(v1.Pod)
			if err == nil {
				err = quantity.InJSON(item, reflect.TypeFor[*v1.Pod]())
			}
			if err == nil {
				err = utiljson.Unmarshal(item, pod)
			}
			if err != nil {
				yield(nil, fmt.Errorf("listing pods: %w", err))
				return
			}
			if !yield(pod, nil) {
				return
			}
		}
	}
}

// DisruptionBudgets lists the PodDisruptionBudgets of a namespace, "" for all. APIVersion says which version the server
// has: policy/v1, or v1beta1 before 1.21; they have the same shape.
func (c *Client) DisruptionBudgets(ctx context.Context, namespace string) ([]*policyv1.PodDisruptionBudget, error) {
	for _, version := range []string{"v1", "v1beta1"} {
		resource := discovery.Resource{
			GroupVersion: schema.GroupVersion{Group: policyv1.GroupName, Version: version},
			Name:         "poddisruptionbudgets", Kind: "PodDisruptionBudget", Namespaced: true,
		}
		budgets, err := c.budgets(ctx, resource, namespace)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing PodDisruptionBudgets of %s: %w", resource.GroupVersion, err)
		}
		return budgets, nil
	}
	versions, err := c.server.Versions(ctx, policyv1.GroupName)
	if err == nil && len(versions) > 0 {
		err = fmt.Errorf("the server has %s %s, and they are not found", policyv1.GroupName,
			strings.Join(versions, " and "))
	}
	if err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	return nil, nil // a server without the API has none
}

// limitBudgets bounds what is kept of a server's list, which may not end.
const limitBudgets = 100_000

func (c *Client) budgets(ctx context.Context, resource discovery.Resource, namespace string) (
	[]*policyv1.PodDisruptionBudget, error) {
	var budgets []*policyv1.PodDisruptionBudget
	for item, err := range c.server.List(ctx, resource.Objects(namespace), discovery.ListOptions{}) {
		budget := new(policyv1.PodDisruptionBudget)
		if err == nil {
			err = utiljson.Unmarshal(item, budget)
		}
		if err != nil {
			return nil, err
		}
		if len(budgets) == limitBudgets {
			return nil, fmt.Errorf("the server has more than %d", limitBudgets)
		}
		budget.APIVersion = resource.GroupVersion.String()
		budgets = append(budgets, budget)
	}
	return budgets, nil
}
