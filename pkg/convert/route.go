package convert

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kubernetes/pkg/apis/policy"

	"github.com/kubefusion/fusionctl/internal/quantity"
)

// A route leads from one kind to another by steps: through Kubernetes' internal type, or through a Func.
type route struct {
	from, to schema.GroupVersionKind
	words    [2]string // in which versions: as losses say it
	steps    []step
	back     []step // nil when there is no way back
	typed    bool   // a step goes through Kubernetes' types
	direct   bool   // there is only that step
	source   *shape
	target   *shape
	relabels bool // an object whose fields all have a place in the target stays as it is
	agrees   bool // what both have fields for is of one kind in both: no field of the target has to go elsewhere
	// template is where both versions hold a pod template, the same Go type and most of the object: it is copied past
	// the conversion. TestPodTemplatesAreCopied holds that Kubernetes' functions change nothing in it.
	template path
	// schema is what the schemas of a CRD are like, which are copied past the conversion as well; nil for other kinds.
	schema *shape

	converter *Converter   // of a direct route
	hub       reflect.Type // of a direct route
}

// step converts an object; it does not keep or change what it is given.
type step func(object map[string]any) (map[string]any, error)

type routeKey struct{ from, to schema.GroupVersionKind }

// route finds the shortest way.
func (c *Converter) route(from, to schema.GroupVersionKind) (*route, error) {
	if r, ok := c.routes.Load(routeKey{from, to}); ok {
		return r.(*route), nil
	}
	steps, typed := c.steps(from, to)
	if steps == nil {
		return nil, &UnsupportedError{from, to, c.reason(from, to)}
	}
	back, _ := c.steps(to, from)
	r := &route{
		from: from, to: to, steps: steps, back: back, typed: typed,
		source: c.shapes.of(from), target: c.shapes.of(to),
		words: [2]string{" in " + from.GroupVersion().String(), " in " + to.GroupVersion().String()},
	}
	hub, native := c.hubs[from]
	r.relabels = native && c.hubs[to] == hub && !rewrites(from, to)
	r.agrees = r.relabels && r.source.agrees(r.target, map[[2]*shape]bool{})
	if native && c.hubs[to] == hub {
		r.direct, r.converter, r.hub = len(steps) == 1 && typed, c, hub
		r.template = podTemplate(r.source, r.target, nil)
		if isDefinition(from) {
			r.schema = r.source.at("spec").at("versions").ofElements().at("schema").at("openAPIV3Schema")
		}
	}
	c.routes.Store(routeKey{from, to}, r)
	return r, nil
}

// rewrites reports whether Kubernetes writes values anew that have their place in both versions. TestRelabelling finds
// what is missing.
func rewrites(from, to schema.GroupVersionKind) bool {
	switch from.Kind {
	case "CustomResourceDefinition": // what all versions share stands once for all in v1beta1
	case "HorizontalPodAutoscaler": // what v1 has no field for is in annotations
	case "EndpointSlice": // the name of the node is a label of the topology in v1beta1
	case "RoleBinding", "ClusterRoleBinding": // v1alpha1 names subjects by version, the others by group
		return from.Version == "v1alpha1" || to.Version == "v1alpha1"
	default:
		return false
	}
	return true
}

// rewritten reports whether this object holds one of the values that Kubernetes writes anew: an annotation that stands
// for a field of another version, or the selector of a PodDisruptionBudget that selects nothing in one version and
// everything in the other.
func rewritten(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for name := range annotations {
		if strings.HasPrefix(name, "deprecated.daemonset.") || strings.HasPrefix(name, "deprecated.deployment.") {
			return true
		}
	}
	if object["kind"] != "PodDisruptionBudget" {
		return false
	}
	spec, _ := object["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	labels, _ := selector["matchLabels"].(map[string]any)
	return len(labels) == 0 || labels[policy.PDBV1beta1Label] != nil || selector["matchExpressions"] != nil
}

// reach finds every kind that a conversion leads to, with the kind before it on the shortest way.
func (c *Converter) reach(from schema.GroupVersionKind) map[schema.GroupVersionKind]schema.GroupVersionKind {
	before := map[schema.GroupVersionKind]schema.GroupVersionKind{from: {}}
	queue := []schema.GroupVersionKind{from}
	for len(queue) > 0 {
		kind := queue[0]
		queue = queue[1:]
		for _, next := range c.neighbours(kind) {
			if _, seen := before[next]; !seen {
				before[next] = kind
				queue = append(queue, next)
			}
		}
	}
	return before
}

// neighbours are the kinds one step away, in an order that is always the same.
func (c *Converter) neighbours(kind schema.GroupVersionKind) []schema.GroupVersionKind {
	var next []schema.GroupVersionKind
	if hub, ok := c.hubs[kind]; ok {
		next = append(next, c.spokes[hub]...)
	}
	for to := range c.edges[kind] {
		next = append(next, to)
	}
	slices.SortFunc(next, preferred)
	return next
}

// steps lists the conversions of the shortest way, nil when there is none, and whether one goes through Kubernetes'
// types.
func (c *Converter) steps(from, to schema.GroupVersionKind) (steps []step, typed bool) {
	before := c.reach(from)
	if _, ok := before[to]; !ok {
		return nil, false
	}
	for kind := to; kind != from; kind = before[kind] {
		_, registered := c.edges[before[kind]][kind]
		typed = typed || !registered
		steps = append(steps, c.step(before[kind], kind))
	}
	slices.Reverse(steps)
	return steps, typed
}

func (c *Converter) step(from, to schema.GroupVersionKind) step {
	if convert, ok := c.edges[from][to]; ok {
		return func(object map[string]any) (map[string]any, error) {
			out, err := convert(runtime.DeepCopyJSON(object))
			if err != nil {
				return nil, &ContentError{from, err}
			}
			out["apiVersion"], out["kind"] = to.ToAPIVersionAndKind()
			return out, nil
		}
	}
	hub := c.hubs[from]
	return func(object map[string]any) (map[string]any, error) { return c.throughHub(object, from, to, hub) }
}

// throughHub converts with Kubernetes' own functions: to the internal type, and from there.
func (c *Converter) throughHub(object map[string]any, from, to schema.GroupVersionKind, hub reflect.Type) (
	map[string]any, error) {
	source, err := c.decode(object, from)
	if err != nil {
		return nil, err
	}
	target, err := c.throughTypes(source, to, hub)
	if err != nil {
		return nil, &ContentError{from, err}
	}
	return unstructuredOf(target)
}

func (c *Converter) throughTypes(source runtime.Object, to schema.GroupVersionKind, hub reflect.Type) (runtime.Object,
	error) {
	internal := reflect.New(hub).Interface()
	if err := c.scheme.Convert(source, internal, nil); err != nil {
		return nil, err
	}
	target, err := c.scheme.New(to)
	if err != nil {
		return nil, err
	}
	if err := c.scheme.Convert(internal, target, nil); err != nil {
		return nil, err
	}
	target.GetObjectKind().SetGroupVersionKind(to)
	return target, nil
}

// convert takes an object along the route and says what is lost.
func (r *route) convert(in map[string]any, how sharing, f *forms) (map[string]any, []Loss, error) {
	if err := boundPaths(in, r.from, r.source); err != nil {
		return nil, nil, err
	}
	if apart := unreadable(in, r.from); apart != nil {
		out, lost, err := r.convert(withoutAnnotations(in, apart), how, f)
		for name, text := range apart {
			if err == nil {
				err = unstructured.SetNestedField(out, text, "metadata", "annotations", name)
			}
		}
		f.target = nil
		return out, lost, err
	}
	if r.relabels && !rewritten(in) {
		if out, unknown, ok, err := r.relabel(in, how, f); ok || err != nil {
			return out, r.losses(unknown), err
		}
	}
	f.owned = r.template == nil
	rest, template := cut(in, r.template)
	var ofCRD *schemas
	if r.schema != nil {
		rest, ofCRD = cutSchemas(rest)
	}
	out, lost, err := r.passage(rest, f)
	if err != nil {
		return nil, nil, err
	}
	if ofCRD != nil {
		if lost, err = ofCRD.put(out, lost, r.schema); err != nil {
			return nil, nil, &ContentError{r.from, err}
		}
	}
	if template != nil {
		i := inspection{at: trailOf(r.template)}
		if i.inspect(template, nil, r.target.under(r.template)); i.wrong != nil {
			return nil, nil, &ContentError{r.from, i.wrong}
		}
		if how == apart || how == shared && len(i.unknown) > 0 {
			template = runtime.DeepCopyJSONValue(template)
		}
		paste(out, r.template, template)
		remove(out, i.unknown)
		lost = append(lost, i.unknown...)
	}
	return out, r.losses(lost), nil
}

// boundPaths refuses an object of which the losses would take too much to name. A custom resource that a server has
// stored is not refused, because that would fail all lists with it: what it loses is bounded, by missing.
func boundPaths(in map[string]any, gvk schema.GroupVersionKind, known *shape) error {
	if known != nil && pathBytes(in, 0, 0) > limitPathBytes {
		return &ContentError{gvk, fmt.Errorf("the paths of its values have more than %d MiB together: it is nested "+
			"too deeply for its size", limitPathBytes>>20)}
	}
	return nil
}

// passage converts and reconciles.
func (r *route) passage(in map[string]any, f *forms) (map[string]any, []difference, error) {
	if r.direct {
		return r.directly(in, f)
	}
	out, err := follow(r.steps, in)
	if err != nil {
		return nil, nil, err
	}
	return r.reconcile(in, out)
}

// directly does what reconcile does with less: as long as the Go values are at hand, that nothing is lost shows by
// comparing them.
func (r *route) directly(in map[string]any, f *forms) (map[string]any, []difference, error) {
	source, known, err := r.converter.decodeKnown(in, r.from)
	if err != nil {
		return nil, nil, err
	}
	kept := source.DeepCopyObject() // conversions share memory with what they convert, and some write to it
	target, err := r.converter.throughTypes(source, r.to, r.hub)
	if err != nil {
		return nil, nil, &ContentError{r.from, err}
	}
	w := &walk{}
	out, err := w.written(in, target, r.source, r.target)
	if err != nil {
		return nil, nil, err
	}
	// The Go values say what the objects say, and are theirs alone: a part that is cut out is not in them.
	whole := f.kept && r.template == nil && r.schema == nil
	exact := whole && !w.hollow && !w.respelled && len(w.empty)+len(w.derived) == 0
	if !w.displaced && len(w.derived) == 0 {
		w.take()
		if exact {
			f.source, f.target, f.known = kept, target, known
		}
		return out, nil, nil
	}
	w.take()
	if w.hollow || len(w.empty)+len(w.derived) > 0 { // the Go value says more than the output now
		if target, err = r.converter.decode(out, r.to); err != nil {
			return nil, nil, err
		}
	}
	var held runtime.Object
	if exact {
		held = target.DeepCopyObject()
	}
	again, err := r.converter.throughTypes(target, r.from, r.hub)
	if err == nil && (alike(again, kept) || // the same at once, as most are
		equality.Semantic.DeepEqualWithNilDifferentFromEmpty(again, kept)) {
		var i inspection
		if !known {
			i.inspect(in, nil, r.source)
		}
		if exact {
			f.source, f.target, f.known = kept, held, known
		}
		return out, i.unknown, nil
	}
	w.put()
	return r.trim(in, out, w)
}

// decode reads an object into the Go type of its kind.
func (c *Converter) decode(object map[string]any, gvk schema.GroupVersionKind) (runtime.Object, error) {
	typed, _, err := c.decodeKnown(object, gvk)
	return typed, err
}

// decodeKnown is decode, and reports whether the type is known to have every field of the object, without null in lists
// and maps: an inspection finds nothing then. TestWhatIsKnownNeedsNoInspection holds that.
func (c *Converter) decodeKnown(object map[string]any, gvk schema.GroupVersionKind) (typed runtime.Object, known bool,
	err error) {
	if typed, err = c.scheme.New(gvk); err != nil {
		return nil, false, err
	}
	apart := unreadable(object, gvk)
	if apart != nil {
		object = withoutAnnotations(object, apart)
	}
	// Schemas read themselves, and leave out what they do not know.
	unknown := unknown{found: isDefinition(gvk) || apart != nil}
	if readerOf(reflect.TypeOf(typed).Elem())(object, reflect.ValueOf(typed).Elem(), &unknown) == nil {
		typed.GetObjectKind().SetGroupVersionKind(gvk)
		return typed, !unknown.found, nil
	}
	if typed, err = c.scheme.New(gvk); err != nil { // without what was read of it
		return nil, false, err
	}
	if hasLargeNumber(object) {
		var i inspection
		if i.inspect(object, nil, c.shapes.of(gvk)); i.wrong != nil {
			return nil, false, &ContentError{gvk, i.wrong}
		}
	}
	if err := quantity.In(object, reflect.TypeOf(typed)); err != nil {
		return nil, false, &ContentError{gvk, err}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		return nil, false, c.contentError(gvk, object, err)
	}
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	return typed, false, nil
}

// decodeIfKnown is decodeKnown for an object of which nothing is wanted unless the type has all of its fields.
func (c *Converter) decodeIfKnown(object map[string]any, gvk schema.GroupVersionKind) (runtime.Object, bool) {
	typed, err := c.scheme.New(gvk)
	if err != nil || unreadable(object, gvk) != nil || isDefinition(gvk) {
		return nil, false
	}
	if readerOf(reflect.TypeOf(typed).Elem())(object, reflect.ValueOf(typed).Elem(), &unknown{ends: true}) != nil {
		return nil, false
	}
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	return typed, true
}

// unreadable are the annotations of an autoscaler with a quantity that takes minutes: Kubernetes' conversions keep
// there in v1 what has no field. They pass beside the conversion, so that one object does not fail the list that it is
// in.
func unreadable(of map[string]any, gvk schema.GroupVersionKind) (annotations map[string]any) {
	if gvk.Kind != "HorizontalPodAutoscaler" {
		return nil
	}
	for name, text := range object(object(of, "metadata"), "annotations") {
		word, ok := text.(string)
		if !ok || !strings.HasPrefix(name, "autoscaling.alpha.kubernetes.io/") || quantity.InText(word) == nil {
			continue
		}
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[name] = text
	}
	return annotations
}

// withoutAnnotations is an object without some of its annotations. What leads to them is its own.
func withoutAnnotations(of, annotations map[string]any) map[string]any {
	of = maps.Clone(of)
	metadata := maps.Clone(object(of, "metadata"))
	kept := maps.Clone(object(metadata, "annotations"))
	of["metadata"], metadata["annotations"] = metadata, kept
	for name := range annotations {
		delete(kept, name)
	}
	if len(kept) == 0 {
		delete(metadata, "annotations")
	}
	return of
}

// hasLargeNumber reports whether a value has a number that does not fit 32 bits: the decoder that works by reflection
// cuts such a number to size, and servers refuse it.
func hasLargeNumber(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			if hasLargeNumber(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasLargeNumber)
	case int64:
		return value != int64(int32(value))
	case float64:
		return true
	}
	return false
}

// podTemplate finds where both versions have a pod template, nil when nowhere.
func podTemplate(source, target *shape, at path) path {
	if len(at) > 4 || source == nil || target == nil {
		return nil
	}
	if source == target && source.goType == reflect.TypeFor[corev1.PodTemplateSpec]() {
		return at.clone()
	}
	for name, field := range source.fields {
		if found := podTemplate(field, target.at(name), append(at, name)); found != nil {
			return found
		}
	}
	return nil
}

// cut returns the object without the part at the path, and that part; the object itself stays as it is.
func cut(object map[string]any, at path) (map[string]any, any) {
	if len(at) == 0 {
		return object, nil
	}
	key := at[0].(string)
	part, ok := object[key]
	if !ok {
		return object, nil
	}
	rest := maps.Clone(object)
	if len(at) == 1 {
		delete(rest, key)
		return rest, part
	}
	child, ok := part.(map[string]any)
	if !ok {
		return object, nil
	}
	rest[key], part = cut(child, at[1:])
	return rest, part
}

// paste puts a part back where cut took it.
func paste(object map[string]any, at path, part any) {
	for _, key := range at[:len(at)-1] {
		child, ok := object[key.(string)].(map[string]any)
		if !ok {
			child = map[string]any{}
			object[key.(string)] = child
		}
		object = child
	}
	object[at[len(at)-1].(string)] = part
}

func follow(steps []step, object map[string]any) (map[string]any, error) {
	var err error
	for _, step := range steps {
		if object, err = step(object); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// reason says why no conversion leads from one kind to the other.
func (c *Converter) reason(from, to schema.GroupVersionKind) string {
	for _, reasons := range []map[schema.GroupVersionKind]string{alone, newAlone, deadEnds} {
		for _, end := range []schema.GroupVersionKind{from, to} {
			if why, ok := reasons[end]; ok {
				return why
			}
		}
	}
	if !c.Knows(from) {
		return "no conversion is known for " + kindName(from) + "; those of custom resources are registered"
	}
	var names []string
	for _, kind := range c.Equivalents(from) {
		names = append(names, kindName(kind))
	}
	if len(names) == 0 {
		return kindName(from) + " is the only version of its kind"
	}
	return kindName(from) + " converts to " + strings.Join(names, ", ")
}

// preferred orders kinds: stable versions first, then beta, then alpha, newest first; then by group and kind. The
// legacy group extensions comes last.
func preferred(a, b schema.GroupVersionKind) int {
	return cmp.Or(
		-version.CompareKubeAwareVersionStrings(a.Version, b.Version),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Kind, b.Kind),
	)
}
