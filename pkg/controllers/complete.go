package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// errIncomplete: a side serves more than it lists. It is starting, or its discovery is broken.
var errIncomplete = errors.New("its discovery is incomplete")

// errDormant: a definition has never been served, so that no object of it was ever created through this side.
var errDormant = errors.New("not established")

// definition is an object by which a side serves more than its version builds in.
type definition struct {
	kind   string // CustomResourceDefinition, APIService or ThirdPartyResource
	name   string
	serves schema.GroupVersionResource // an empty version or resource stands for any
	// unserved is why discovery need not list it: errDormant, or that none of its versions is served. It is read for
	// the definitions that discovery lacks.
	unserved error
	// local: an APIService of the API server itself; definitions and the version's own resources imply it.
	local bool
}

// lists reports whether the catalog has what the definition defines.
func (c *catalog) lists(d *definition) bool {
	switch {
	case d.serves.Resource != "":
		return c.has(d.serves.GroupResource())
	case d.serves.Version != "":
		return c.versions[d.serves.GroupVersion()]
	}
	for gv := range c.versions {
		if gv.Group == d.serves.Group {
			return true
		}
	}
	return false
}

func (c *catalog) has(gr schema.GroupResource) bool {
	return slices.ContainsFunc(c.resources, func(r resource) bool { return r.GroupResource() == gr })
}

// complete compares discovery with what else a side returns about itself. What it returns is all that the side serves,
// and every group that it should serve and does not list counts as one that could not be discovered. ready is what the
// side's readiness check returned; builtIn is what its version serves with its arguments; definitions are those of its
// store, read after discovery. Errors: errIncomplete, wrapped: the catalog must not be used.
func complete(c *catalog, ready error, builtIn []schema.GroupResource, definitions []definition) (*catalog, error) {
	if ready != nil {
		return nil, fmt.Errorf("the server is not ready: %w: %w", ready, errIncomplete)
	}
	var missing []string
	for _, gr := range builtIn {
		if c.failed[gr.Group] == nil && !c.has(gr) {
			missing = append(missing, gr.String())
		}
	}
	if len(missing) > 0 {
		more := ""
		if len(missing) > 3 {
			more = fmt.Sprintf(" and %d more", len(missing)-3)
			missing = missing[:3]
		}
		return nil, fmt.Errorf("the server does not list %s%s, which its version serves "+
			"(if --runtime-config turns that off, the plan has to say so): %w",
			strings.Join(missing, ", "), more, errIncomplete)
	}
	judged := *c
	judged.failed, judged.dormant = map[string]error{}, map[string]error{}
	for group, err := range c.failed {
		judged.failed[group] = err
	}
	for i := range definitions {
		d := &definitions[i]
		group := d.serves.Group
		switch {
		case d.local || c.lists(d) || judged.failed[group] != nil:
		case errors.Is(d.unserved, errDormant):
			judged.dormant[group] = fmt.Errorf("%s %q: %w", d.kind, d.name, d.unserved)
		case d.unserved != nil:
			judged.failed[group] = fmt.Errorf("%s %q: %w", d.kind, d.name, d.unserved)
		default:
			judged.failed[group] = fmt.Errorf("%s %q is stored, and the server does not list what it defines", d.kind,
				d.name)
		}
	}
	return &judged, nil
}

// builtIn lists what the plan's version of a side serves and keeps objects of, without what the arguments of its API
// servers turn off.
func (l layout) builtIn(side pair.Side) []schema.GroupResource {
	servers := l.plan.Side(side)
	var list []schema.GroupResource
	for i := range l.plan.Resources {
		row := &l.plan.Resources[i]
		for _, served := range row.View(side).Serves {
			gv, err := schema.ParseGroupVersion(served)
			if err != nil || servers.TurnsOff(gv.WithResource(row.Name)) {
				continue
			}
			if gr := gv.WithResource(row.Name).GroupResource(); !slices.Contains(list, gr) {
				list = append(list, gr)
			}
		}
	}
	return list
}
