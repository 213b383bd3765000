package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// The resources whose objects make a server serve more.
var (
	customResourceDefinitions = schema.GroupResource{Group: "apiextensions.k8s.io",
		Resource: "customresourcedefinitions"}
	apiServices         = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
	thirdPartyResources = schema.GroupResource{Group: "extensions", Resource: "thirdpartyresources"}
)

// definingKinds are their kinds, and what the name of such an object defines.
var definingKinds = []struct {
	gr   schema.GroupResource
	kind string
	of   func(name string) (serves schema.GroupVersionResource, ok bool)
}{
	// widgets.example.com
	{customResourceDefinitions, "CustomResourceDefinition", func(name string) (schema.GroupVersionResource, bool) {
		plural, group, ok := strings.Cut(name, ".")
		return schema.GroupVersionResource{Group: group, Resource: plural}, ok
	}},
	// v1.example.com, or v1. for the core
	{apiServices, "APIService", func(name string) (schema.GroupVersionResource, bool) {
		version, group, ok := strings.Cut(name, ".")
		return schema.GroupVersionResource{Group: group, Version: version}, ok && group != ""
	}},
	// cron-tab.example.com
	{thirdPartyResources, "ThirdPartyResource", func(name string) (schema.GroupVersionResource, bool) {
		_, group, _ := strings.Cut(name, ".")
		return schema.GroupVersionResource{Group: group}, strings.Contains(group, ".")
	}},
}

// definitions lists the objects of a side's store by which it serves more than its version builds in, in the versions
// that the catalog has. Those that the catalog lacks are read as a whole. Errors: a list or an object that could not be
// read, and a resource that the version serves and the catalog lacks.
func (c *client) definitions(ctx context.Context, l layout, served *catalog) ([]definition, error) {
	var list []definition
	for _, defining := range definingKinds {
		of := served.find(defining.gr)
		if of == nil {
			if l.serves(c.side, schema.GroupKind{Group: defining.gr.Group, Kind: defining.kind}) {
				return nil, fmt.Errorf("%s are not listed by discovery, so what else the API server serves is "+
					"unknown: %w",
					defining.gr, errIncomplete)
			}
			continue
		}
		objects, err := c.listAll(ctx, *of, "")
		if err != nil {
			return nil, err
		}
		for i := range objects {
			d := definition{kind: defining.kind, name: objects[i].Name}
			var ok bool
			if d.serves, ok = defining.of(d.name); !ok {
				continue
			}
			if !served.lists(&d) && served.failed[d.serves.Group] == nil {
				if err := c.inspect(ctx, *of, &d); err != nil {
					return nil, err
				}
			}
			list = append(list, d)
		}
	}
	return list, nil
}

// find returns the resource as the catalog has it, nil where it has not.
func (c *catalog) find(gr schema.GroupResource) *resource {
	for i := range c.resources {
		if c.resources[i].GroupResource() == gr {
			return &c.resources[i]
		}
	}
	return nil
}

// inspect reads a definition whose objects the server does not list.
func (c *client) inspect(ctx context.Context, of resource, d *definition) error {
	object, err := c.read(ctx, of.object("", d.name))
	if err != nil {
		return fmt.Errorf("reading %s on the %s side: %w", of.describe("", d.name), c.side, err)
	}
	switch d.kind {
	case "CustomResourceDefinition":
		d.unserved = unservedCRD(object)
	case "APIService":
		service, _, _ := unstructured.NestedMap(object, "spec", "service")
		d.local = service == nil
	case "ThirdPartyResource":
		if versions, _, _ := unstructured.NestedSlice(object, "versions"); len(versions) == 0 {
			d.unserved = errDormant
		}
	}
	return nil
}

// unservedCRD is why an API server need not list a custom resource; nil when it must.
func unservedCRD(crd map[string]any) error {
	conditions, _, _ := unstructured.NestedSlice(crd, "status", "conditions")
	established := false
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Established" {
			established = condition["status"] == string(metav1.ConditionTrue)
		}
	}
	if !established {
		return errDormant
	}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	if len(versions) == 0 { // before 1.11: spec.version alone
		return nil
	}
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["served"] != false {
			return nil
		}
	}
	return errors.New("none of its versions is served, and objects of it may be stored")
}

// discoverWithin bounds discovery, with the definitions.
const discoverWithin = 2 * time.Minute

// believe runs discovery of a side and judges whether it is complete.
func (c *cluster) believe(ctx context.Context, side pair.Side, seen []schema.GroupResource) (*catalog, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverWithin)
	defer cancel()
	client, asked := c.client(side), c.now()
	result, err := client.server.Discover(ctx)
	if err != nil {
		return nil, fmt.Errorf("discovery of the %s side: %w", side, err)
	}
	if err := c.identify(ctx, side, result.Identity); err != nil {
		return nil, err
	}
	listed := c.layout.catalogOf(side, result, asked)
	// After discovery: what is defined between the two is missed by discovery and found here, never the other way
	// round.
	definitions, err := client.definitions(ctx, c.layout, listed)
	if err != nil {
		return listed.doubted(fmt.Errorf("listing the definitions of the %s side: %w", side, err)), nil
	}
	unready := result.Unready
	if errors.Is(unready, discovery.ErrForbidden) {
		unready = fmt.Errorf("%w (grant the controllers permission to get it)", unready)
	}
	judged, err := complete(listed, unready, append(c.layout.builtIn(side), seen...), definitions)
	if err != nil {
		return listed.doubted(fmt.Errorf("discovery of the %s side: %w", side, err)), nil
	}
	return judged, nil
}
