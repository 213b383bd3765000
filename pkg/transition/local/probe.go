package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

func namespaced(gv schema.GroupVersion, name, kind string) discovery.Resource {
	return discovery.Resource{GroupVersion: gv, Name: name, Kind: kind, Namespaced: true}
}

var (
	configMaps      = namespaced(v1.SchemeGroupVersion, "configmaps", "ConfigMap")
	corePods        = namespaced(v1.SchemeGroupVersion, "pods", "Pod")
	services        = namespaced(v1.SchemeGroupVersion, "services", "Service")
	serviceAccounts = namespaced(v1.SchemeGroupVersion, "serviceaccounts", "ServiceAccount")
	deployments     = namespaced(appsv1.SchemeGroupVersion, "deployments", "Deployment")
	endpointSlices  = namespaced(discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice")
)

// create creates an object; one of that name that is there already is as good.
func create(ctx context.Context, s *apiserver.Server, of discovery.Resource, namespace string, object any) (
	*unstructured.Unstructured, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, err := s.Send(ctx, apiserver.Write{Verb: http.MethodPost, Path: of.Objects(namespace), Body: body})
	if apierrors.IsAlreadyExists(err) {
		var named struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err = json.Unmarshal(body, &named); err == nil {
			text, err = s.Read(ctx, of.Object(namespace, named.Metadata.Name))
		}
	}
	o := new(unstructured.Unstructured)
	if err == nil {
		err = utiljson.Unmarshal(text, &o.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", of, err)
	}
	return o, nil
}

// remove deletes an object and reports whether it is gone.
func remove(ctx context.Context, s *apiserver.Server, at discovery.Path) error {
	_, err := s.Send(ctx, apiserver.Write{Verb: http.MethodDelete, Path: at, Repeatable: true,
		Body: []byte(`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", at, err)
	}
	return nil
}

// absent returns nil when there is no such object.
func absent(ctx context.Context, s *apiserver.Server, at discovery.Path) error {
	switch _, err := s.Read(ctx, at); {
	case errors.Is(err, discovery.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: is still there", at)
}

func list(ctx context.Context, s *apiserver.Server, of discovery.Resource, namespace string) (
	found []*unstructured.Unstructured, err error) {
	for item, err := range s.List(ctx, of.Objects(namespace), discovery.ListOptions{}) {
		o := new(unstructured.Unstructured)
		if err == nil {
			err = utiljson.Unmarshal(item, &o.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", of, err)
		}
		found = append(found, o)
	}
	return found, nil
}

const (
	managedByLabel = "ipaddress.kubernetes.io/managed-by"
	allocatorName  = "ipallocator.k8s.io"
	familyLabel    = "ipaddress.kubernetes.io/ip-family"
)

func rangeResources(version string) (ipAddresses, serviceCIDRs discovery.Resource) {
	gv := schema.GroupVersion{Group: networkingv1.GroupName, Version: version}
	return discovery.Resource{GroupVersion: gv, Name: "ipaddresses", Kind: "IPAddress"},
		discovery.Resource{GroupVersion: gv, Name: "servicecidrs", Kind: "ServiceCIDR"}
}

// addRanges has the allocator know every address that services have in the ranges before it allocates from them: it
// would give one away that is taken until its own repair has come to it.
func addRanges(ctx context.Context, r *transition.Ranges) error {
	s, err := serverOf(&r.Access)
	if err != nil {
		return err
	}
	found, err := servicesIn(ctx, r)
	if err != nil {
		return err
	}
	addresses, ranges := rangeResources(r.Version)
	for _, of := range found {
		for _, ip := range of.addresses {
			family := v1.IPv4Protocol
			if ip.Is6() {
				family = v1.IPv6Protocol
			}
			made, err := create(ctx, s, addresses, "", map[string]any{
				"apiVersion": addresses.GroupVersion.String(), "kind": addresses.Kind,
				"metadata": map[string]any{"name": ip.String(), "labels": map[string]any{
					managedByLabel: allocatorName, familyLabel: string(family)}},
				"spec": map[string]any{"parentRef": map[string]any{"resource": "services",
					"namespace": of.namespace, "name": of.name}}})
			if err == nil {
				err = isOf(made, of)
			}
			if err != nil {
				return fmt.Errorf("address %s of service %s/%s: %w", ip, of.namespace, of.name, err)
			}
		}
	}
	made, err := create(ctx, s, ranges, "", map[string]any{"apiVersion": ranges.GroupVersion.String(),
		"kind": ranges.Kind, "metadata": map[string]any{"name": transition.RangeName},
		"spec": map[string]any{"cidrs": r.CIDRs}})
	if err != nil {
		return err
	}
	if cidrs, _, _ := unstructured.NestedStringSlice(made.Object, "spec", "cidrs"); !slices.Equal(cidrs, r.CIDRs) {
		return fmt.Errorf("the ServiceCIDR %s is there with %q, want %q: delete it", transition.RangeName, cidrs,
			r.CIDRs)
	}
	return nil
}

// isOf checks the parent of an address.
func isOf(address *unstructured.Unstructured, of service) error {
	ref, _, _ := unstructured.NestedStringMap(address.Object, "spec", "parentRef")
	if ref["resource"] != "services" || ref["namespace"] != of.namespace || ref["name"] != of.name {
		return fmt.Errorf("another object has it: %s %s/%s; when that is gone, its IPAddress is removed within minutes",
			ref["resource"], ref["namespace"], ref["name"])
	}
	return nil
}

// removeRanges takes the ranges from the allocator. Their addresses stay as long as their services.
func removeRanges(ctx context.Context, r *transition.Ranges) error {
	s, err := serverOf(&r.Access)
	if err != nil {
		return err
	}
	_, ranges := rangeResources(r.Version)
	at := ranges.Object("", transition.RangeName)
	// Its finalizer waits for a controller that has no other range for the addresses.
	_, err = s.Send(ctx, apiserver.Write{Verb: http.MethodPatch, Path: at, Repeatable: true,
		ContentType: "application/merge-patch+json", Body: []byte(`{"metadata":{"finalizers":null}}`)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = remove(ctx, s, at)
	}
	return err
}

// rangesAdded checks that the allocator serves the ranges and knows every address in them.
func rangesAdded(ctx context.Context, r *transition.Ranges) error {
	s, err := serverOf(&r.Access)
	if err != nil {
		return err
	}
	resource, ranges := rangeResources(r.Version)
	text, err := s.Read(ctx, ranges.Object("", transition.RangeName))
	made := new(unstructured.Unstructured)
	if err == nil {
		err = utiljson.Unmarshal(text, &made.Object)
	}
	if err != nil {
		return err
	}
	if !isTrue(made, networkingv1.ServiceCIDRConditionReady) {
		return fmt.Errorf("the ServiceCIDR %s is not ready", transition.RangeName)
	}
	known, err := list(ctx, s, resource, "")
	if err != nil {
		return err
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, o := range known {
		byName[o.GetName()] = o
	}
	found, err := servicesIn(ctx, r)
	if err != nil {
		return err
	}
	for _, of := range found {
		for _, ip := range of.addresses {
			address := byName[ip.String()]
			if address == nil {
				return fmt.Errorf("address %s of service %s/%s has no IPAddress", ip, of.namespace, of.name)
			}
			if err := isOf(address, of); err != nil {
				return fmt.Errorf("address %s of service %s/%s: %w", ip, of.namespace, of.name, err)
			}
		}
	}
	return nil
}

func isTrue(o *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(entry any) bool {
		c, _ := entry.(map[string]any)
		return c["type"] == condition && c["status"] == string(v1.ConditionTrue)
	})
}

// probeName is the namespace of the probes and the name of all that is in it.
const probeName = "fusionctl-probe"

// works has a namespace with a Deployment and a Service go through their whole life: what its objects become shows
// that the controllers, the scheduler, the allocator and the collector act. What its pod runs does not matter: it has
// to be placed, and its kubelet to end it.
func (h *Host) works(ctx context.Context, a *transition.Access) (err error) {
	s, err := serverOf(a)
	if err != nil {
		return err
	}
	patient := &Host{Wait: max(h.Wait, probeLimit)}
	wait := func(what string, ask func(context.Context) error) error { return patient.wait(ctx, what, ask) }
	namespace := namespaces.Object("", probeName)
	gone := func() error {
		if err := isProbe(ctx, s, namespace); err != nil {
			return err
		}
		if err := remove(ctx, s, namespace); err != nil {
			return err
		}
		return wait("the namespace controller does not finalize "+probeName, func(ctx context.Context) error {
			return absent(ctx, s, namespace)
		})
	}
	if err := gone(); err != nil { // of a probe that was killed
		return err
	}
	defer func() {
		if err == nil {
			err = gone()
			return
		}
		clear, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if isProbe(clear, s, namespace) == nil {
			err = errors.Join(err, remove(clear, s, namespace))
		}
	}()
	if _, err := create(ctx, s, namespaces, "", map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": probeName, "labels": map[string]any{probeLabel: "true"}}}); err != nil {
		return err
	}
	if err := isProbe(ctx, s, namespace); err != nil { // create takes one that a client has created meanwhile
		return err
	}
	if err := wait("no service account in a new namespace", func(ctx context.Context) error {
		_, err := s.Read(ctx, serviceAccounts.Object(probeName, "default"))
		return err
	}); err != nil {
		return err
	}
	taken, err := list(ctx, s, services, "")
	if err != nil {
		return err
	}
	if err := probeService(ctx, s, taken, wait); err != nil {
		return err
	}
	return probeDeployment(ctx, s, wait)
}

// probeLabel is on the namespace of the probes: one without it is no probe's, and stays.
const probeLabel = "kubefusion.dev/probe"

// isProbe returns nil for a namespace of a probe, and where there is none.
func isProbe(ctx context.Context, s *apiserver.Server, at discovery.Path) error {
	text, err := s.ReadMetadata(ctx, at)
	if errors.Is(err, discovery.ErrNotFound) {
		return nil
	}
	o := new(unstructured.Unstructured)
	if err == nil {
		err = utiljson.Unmarshal(text, &o.Object)
	}
	if err == nil && o.GetLabels()[probeLabel] == "" {
		err = fmt.Errorf("namespace %s is there without the label %s: it is no probe's; delete it, or rename it",
			probeName, probeLabel)
	}
	return err
}

type waiter func(what string, ask func(context.Context) error) error

// probeService creates a service: its address is no other one's, and a controller writes its slice.
func probeService(ctx context.Context, s *apiserver.Server, taken []*unstructured.Unstructured, wait waiter) error {
	made, err := create(ctx, s, services, probeName, map[string]any{"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": probeName}, "spec": map[string]any{
			"selector": map[string]any{"app": probeName}, "ports": []map[string]any{{"port": 80}}}})
	if err != nil {
		return err
	}
	ip, _, _ := unstructured.NestedString(made.Object, "spec", "clusterIP")
	for _, other := range taken {
		if has, _, _ := unstructured.NestedString(other.Object, "spec", "clusterIP"); has == ip {
			return fmt.Errorf("a new service was given %s, which %s/%s has", ip, other.GetNamespace(), other.GetName())
		}
	}
	return wait("no EndpointSlice for a new service", func(ctx context.Context) error {
		found, err := list(ctx, s, endpointSlices, probeName)
		if err == nil && len(found) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// probeDeployment creates a Deployment of one pod and something that it owns, and deletes it when the pod is placed.
func probeDeployment(ctx context.Context, s *apiserver.Server, wait waiter) error {
	meta := map[string]any{"labels": map[string]any{"app": probeName}}
	made, err := create(ctx, s, deployments, probeName, map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": probeName}, "spec": map[string]any{"replicas": 1,
			"selector": map[string]any{"matchLabels": meta["labels"]}, "template": map[string]any{"metadata": meta,
				"spec": map[string]any{"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
					"tolerations": []map[string]any{{"operator": "Exists"}},
					"securityContext": map[string]any{"runAsNonRoot": true, "runAsUser": 65535,
						"seccompProfile": map[string]any{"type": "RuntimeDefault"}},
					"containers": []map[string]any{{"name": "pause", "image": "registry.k8s.io/pause:3.10",
						"securityContext": map[string]any{"allowPrivilegeEscalation": false,
							"capabilities": map[string]any{"drop": []string{"ALL"}}}}}}}}})
	if err != nil {
		return err
	}
	if _, err := create(ctx, s, configMaps, probeName, map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": probeName, "ownerReferences": []map[string]any{{"apiVersion": "apps/v1",
			"kind": "Deployment", "name": made.GetName(), "uid": made.GetUID()}}}}); err != nil {
		return err
	}
	if err := wait("no pod of a new Deployment is placed", func(ctx context.Context) error {
		found, err := list(ctx, s, corePods, probeName)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return errors.New("there is none")
		}
		if node, _, _ := unstructured.NestedString(found[0].Object, "spec", "nodeName"); node == "" {
			return fmt.Errorf("pod %s has no node", found[0].GetName())
		}
		return nil
	}); err != nil {
		return err
	}
	if err := remove(ctx, s, deployments.Object(probeName, probeName)); err != nil {
		return err
	}
	return wait("what a deleted Deployment owned is not collected", func(ctx context.Context) error {
		if err := absent(ctx, s, configMaps.Object(probeName, probeName)); err != nil {
			return err
		}
		found, err := list(ctx, s, corePods, probeName)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("pod %s is still there", found[0].GetName())
		}
		return err
	})
}
