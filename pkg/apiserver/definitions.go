package apiserver

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// definers are the resources whose objects define further groups and kinds.
var definers = []schema.GroupResource{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"},
	{Group: "extensions", Resource: "thirdpartyresources"},
}

// definition is as much as is read of an object of the definers.
type definition struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Service *struct{} `json:"service"`
	} `json:"spec"`
}

// Definitions reads from the store which groups and kinds the server's own objects define, whether it serves them yet
// or not: what discovery lacks of these is not absent. Errors: a server that does not serve what its version has: it
// says nothing about the objects then.
func (s *Server) Definitions(ctx context.Context, identity discovery.Identity) (*discovery.Definitions, error) {
	minor := identity.Version.Minor
	if !minor.Known() {
		minor = kubever.Newest
	}
	definitions := &discovery.Definitions{Kinds: map[schema.GroupKind]bool{}, Groups: map[string]bool{}}
	for _, gr := range definers {
		resource, has := newestOf(gr, minor)
		if !has {
			continue // the version does not know it
		}
		for text, err := range s.List(ctx, resource.Objects(""), discovery.ListOptions{Consistent: true}) {
			var object definition
			if err == nil {
				err = decode(text, &object)
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s of %s: %w", resource, s.name, err)
			}
			object.addTo(definitions, gr)
		}
	}
	return definitions, nil
}

// newestOf is a resource in the newest version in which a minor serves it.
func newestOf(gr schema.GroupResource, minor kubever.Minor) (discovery.Resource, bool) {
	fact, known := kubever.ResourceFor(gr)
	if !known {
		return discovery.Resource{}, false
	}
	for _, api := range fact.APIs() { // stable ones first
		if api.GroupResource() == gr && api.DefaultOn.Has(minor) {
			return discovery.Resource{GroupVersion: api.GroupVersion, Name: api.Name, Kind: api.Kind,
				Namespaced: api.Namespaced}, true
		}
	}
	return discovery.Resource{}, false
}

func (d *definition) addTo(definitions *discovery.Definitions, gr schema.GroupResource) {
	group, kind := d.Spec.Group, d.Spec.Names.Kind
	switch gr.Resource {
	case "apiservices":
		if d.Spec.Service != nil { // others are the server's own
			definitions.Groups[group] = true
		}
		return
	case "thirdpartyresources": // named cron-tab.stable.example.com for the kind CronTab
		var name string
		name, group, _ = strings.Cut(d.Metadata.Name, ".")
		for word := range strings.SplitSeq(name, "-") {
			if word != "" {
				kind += strings.ToUpper(word[:1]) + word[1:]
			}
		}
	}
	definitions.Groups[group] = true
	definitions.Kinds[schema.GroupKind{Group: group, Kind: kind}] = true
}
