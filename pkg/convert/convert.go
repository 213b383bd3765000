// Package convert turns one object from one API version into another: the native kinds through Kubernetes' own
// conversion functions (those of 1.36), versions that 1.36 no longer has through rules of this package, custom
// resources through functions that are registered. With each object come the losses: what the target version cannot
// say.
//
// Nothing is defaulted and nothing is invented: a field that the input does not name is in the output only when it
// carries something of the input. Building a Converter costs some ten milliseconds; importing the package costs next to
// nothing.
package convert

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Converter knows which kinds are the same thing in different versions and groups, and how to get from one to another.
// Safe for concurrent use once the last Func is registered.
type Converter struct {
	scheme *runtime.Scheme
	hubs   map[schema.GroupVersionKind]reflect.Type // the internal type of a kind that Kubernetes 1.36 converts
	spokes map[reflect.Type][]schema.GroupVersionKind
	edges  map[schema.GroupVersionKind]map[schema.GroupVersionKind]Func
	routes sync.Map // routeKey -> *route
	shapes *shapes

	standings    sync.Map // standingKey -> Standing, of kinds that the tables know
	doubts       sync.Map // standingKey -> *shape
	replacements sync.Map // standingKey -> schema.GroupVersionKind

	minorsMu sync.Mutex
	minors   map[kubever.Minor]*shapes // as the API descriptions of each minor tell them
}

// Func converts one object of a kind to another kind. It may keep and change what it is given, a copy of its own, and
// sets all but apiVersion and kind of its result.
type Func func(object map[string]any) (map[string]any, error)

// UnsupportedError says that no conversion leads from one kind to another, and why. To is empty when no kind was named.
type UnsupportedError struct {
	From, To schema.GroupVersionKind
	Reason   string
}

func (e *UnsupportedError) Error() string {
	if e.To.Empty() {
		return kindName(e.From) + ": " + e.Reason
	}
	return fmt.Sprintf("converting %s to %s: %s", kindName(e.From), kindName(e.To), e.Reason)
}

// ContentError says that an object is not what its kind requires: a string where a number belongs, no metadata.
type ContentError struct {
	Kind schema.GroupVersionKind
	Err  error
}

func (e *ContentError) Error() string { return kindName(e.Kind) + ": " + e.Err.Error() }
func (e *ContentError) Unwrap() error { return e.Err }

// kindName prints a kind as people write it: apps/v1 Deployment.
func kindName(gvk schema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + " " + gvk.Kind
}

// New builds a converter that knows every native kind.
// Errors: only broken promises of the Kubernetes modules that are linked in.
func New() (*Converter, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c := &Converter{
		scheme: scheme,
		hubs:   map[schema.GroupVersionKind]reflect.Type{},
		spokes: map[reflect.Type][]schema.GroupVersionKind{},
		edges:  map[schema.GroupVersionKind]map[schema.GroupVersionKind]Func{},
		shapes: newShapes(scheme),
		minors: map[kubever.Minor]*shapes{},
	}
	known := scheme.AllKnownTypes()
	for gvk := range known {
		hub, ok := known[schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}]
		if !ok || gvk.Version == runtime.APIVersionInternal || isListKind(gvk.Kind) ||
			slices.Contains(requestKinds, gvk.Kind) {
			continue
		}
		c.hubs[gvk] = hub
		c.spokes[hub] = append(c.spokes[hub], gvk)
	}
	for _, kinds := range c.spokes {
		slices.SortFunc(kinds, preferred)
	}
	for _, edge := range slices.Concat(removed, newer) {
		c.Register(edge.from, edge.to, edge.up)
		c.Register(edge.to, edge.from, edge.down)
	}
	return c, nil
}

// requestKinds are parameters of requests: every group has them, and they are no objects.
var requestKinds = []string{"CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions",
	"UpdateOptions", "WatchEvent", "ExportOptions", "Status", "APIVersions", "APIGroup"}

func isListKind(kind string) bool { return strings.HasSuffix(kind, "List") && kind != "List" }

// Register adds a conversion, of a custom resource for example. Conversions follow each other: with A to B and B to C
// registered, A converts to C. Only with a way back can losses be told from moves: without it, every value that is not
// in its place is reported. Not safe beside conversions.
func (c *Converter) Register(from, to schema.GroupVersionKind, convert Func) {
	if c.edges[from] == nil {
		c.edges[from] = map[schema.GroupVersionKind]Func{}
	}
	c.edges[from][to] = convert
	c.routes.Clear()
	c.standings.Clear()
	c.replacements.Clear()
}

// Convert returns the object as the kind in the other version, and what is lost on the way. It also takes a list of one
// kind (apps/v1beta1 DeploymentList to apps/v1 DeploymentList) and converts item by item; paths of losses then start
// with items[i]. The input is neither kept nor changed. A conversion to the kind that the object has already is a copy.
// Errors: *UnsupportedError when no conversion leads there; *ContentError when the object is not what its kind
// requires.
func (c *Converter) Convert(in *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured,
	[]Loss, error) {
	out, losses, err := c.convert(in.Object, to, apart, &forms{})
	if err != nil {
		return nil, nil, err
	}
	return &unstructured.Unstructured{Object: out}, losses, nil
}

// ConvertInPlace is Convert for an object without other references, and cheaper: parts of it become parts of the
// result. After an error the object is not to be used.
func (c *Converter) ConvertInPlace(object *unstructured.Unstructured, to schema.GroupVersionKind) ([]Loss, error) {
	out, losses, err := c.convert(object.Object, to, owned, &forms{})
	if err != nil {
		return nil, err
	}
	object.Object = out
	return losses, nil
}

func (c *Converter) convert(in map[string]any, to schema.GroupVersionKind, how sharing, f *forms) (map[string]any,
	[]Loss, error) {
	from := (&unstructured.Unstructured{Object: in}).GroupVersionKind()
	switch {
	case from == to && how != apart:
		return in, nil, nil
	case from == to:
		return runtime.DeepCopyJSON(in), nil, nil
	case isListKind(from.Kind) && isListKind(to.Kind):
		return c.convertList(in, from, to, how)
	}
	r, err := c.route(from, to)
	if err != nil {
		return nil, nil, err
	}
	return r.convert(in, how, f)
}

func (c *Converter) convertList(in map[string]any, from, to schema.GroupVersionKind, how sharing) (map[string]any,
	[]Loss, error) {
	itemFrom := from.GroupVersion().WithKind(strings.TrimSuffix(from.Kind, "List"))
	r, err := c.route(itemFrom, to.GroupVersion().WithKind(strings.TrimSuffix(to.Kind, "List")))
	if err != nil {
		return nil, nil, err
	}
	items, ok := in["items"].([]any)
	if !ok && in["items"] != nil {
		return nil, nil, &ContentError{from, errors.New("items: want a list")}
	}
	converted := make([]any, len(items))
	var losses []Loss
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, nil, &ContentError{from, fmt.Errorf("items[%d]: want an object", i)}
		}
		_, typed := object["kind"]
		if how == shared {
			how = apart // the kinds of its items are taken away
		}
		out, lost, err := r.convert(object, how, &forms{})
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		if !typed { // servers leave both out of the items of their lists
			delete(out, "kind")
			delete(out, "apiVersion")
		}
		converted[i] = out
		for _, loss := range lost {
			loss.Path = fmt.Sprintf("items[%d].%s", i, loss.Path)
			losses = append(losses, loss)
		}
	}
	out := make(map[string]any, len(in))
	for key, value := range in {
		if key != "items" {
			out[key] = runtime.DeepCopyJSONValue(value)
		}
	}
	out["items"] = converted
	out["apiVersion"], out["kind"] = to.ToAPIVersionAndKind()
	return out, losses, nil
}

// ConvertTyped converts between Go types, or from a Go type to unstructured and back. The kind of in is that of its Go
// type, or the one it names. The result has the Go type of its version in k8s.io/api; a kind that has none there comes
// back unstructured. Errors: as Convert.
func (c *Converter) ConvertTyped(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, []Loss, error) {
	var out runtime.Object = &unstructured.Unstructured{}
	if c.scheme.Recognizes(to) {
		typed, err := c.scheme.New(to)
		if err != nil {
			return nil, nil, fmt.Errorf("making a %s: %w", kindName(to), err)
		}
		out = typed
	}
	out.GetObjectKind().SetGroupVersionKind(to)
	losses, err := c.ConvertInto(in, out)
	if err != nil {
		return nil, nil, err
	}
	return out, losses, nil
}

// ConvertInto converts in to the kind of out and stores the result there. The kind of each is that of its Go type, or
// the one it names; either may be unstructured. Errors: as Convert.
func (c *Converter) ConvertInto(in, out runtime.Object) ([]Loss, error) {
	from, err := c.kindOf(in)
	if err != nil {
		return nil, err
	}
	to, err := c.kindOf(out)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if u, ok := in.(*unstructured.Unstructured); ok {
		object = u.Object
	} else if object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(in); err != nil {
		return nil, &ContentError{from, err}
	}
	source := &unstructured.Unstructured{Object: object}
	if source.GroupVersionKind() != from {
		source.SetGroupVersionKind(from)
	}
	result, losses, err := c.Convert(source, to)
	if err != nil {
		return nil, err
	}
	if u, ok := out.(*unstructured.Unstructured); ok {
		u.Object = result.Object
		return losses, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, out); err != nil {
		return nil, &ContentError{to, err}
	}
	return losses, nil
}

// kindOf is the kind that an object names, or that of its Go type.
func (c *Converter) kindOf(object runtime.Object) (schema.GroupVersionKind, error) {
	if gvk := object.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk, nil
	}
	kinds, _, err := c.scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%T: names no kind, and its Go type is none of Kubernetes' own",
			object)
	}
	return kinds[0], nil
}

// Equivalents lists the kinds that an object of this kind can become, itself left out: other versions, other groups
// that the kind moved through, and what is registered. Same group first, then stable versions before beta before alpha,
// newest first. It does not say that nothing is lost.
func (c *Converter) Equivalents(gvk schema.GroupVersionKind) []schema.GroupVersionKind {
	reached := c.reach(gvk)
	delete(reached, gvk)
	kinds := slices.Collect(maps.Keys(reached))
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		if (a.Group == gvk.Group) != (b.Group == gvk.Group) {
			if a.Group == gvk.Group {
				return -1
			}
			return 1
		}
		return preferred(a, b)
	})
	return kinds
}

// Supports reports whether a conversion leads from one kind to the other.
// Errors: *UnsupportedError when none does, with the reason.
func (c *Converter) Supports(from, to schema.GroupVersionKind) error {
	if from == to {
		return nil
	}
	_, err := c.route(from, to)
	return err
}

// Knows reports whether the kind is one that this converter can convert from, if only to itself.
func (c *Converter) Knows(gvk schema.GroupVersionKind) bool {
	_, native := c.hubs[gvk]
	_, registered := c.edges[gvk]
	return native || registered || alone[gvk] != "" || newAlone[gvk] != ""
}

// ItemOf is the kind of the items of a list of a kind that this converter knows; false for a kind that is none.
func (c *Converter) ItemOf(gvk schema.GroupVersionKind) (schema.GroupVersionKind, bool) {
	item, list := gvk, isListKind(gvk.Kind)
	item.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if !list || !c.Knows(item) {
		return gvk, false
	}
	return item, true
}

// contentError names the field that a kind refuses: the decoder that works by reflection does not always.
func (c *Converter) contentError(gvk schema.GroupVersionKind, object map[string]any, err error) error {
	var i inspection
	if i.inspect(object, nil, c.shapes.of(gvk)); i.wrong != nil {
		err = i.wrong
	}
	return &ContentError{gvk, err}
}
