package convert

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Defaults compares what servers make of the fields that an object and its conversion leave out: a DaemonSet of
// extensions/v1beta1 without an update strategy waits for deletions, one of apps/v1 rolls. Each such field is a Loss
// without a value. With write, what the version of in defaults is written into out, and only what cannot be said there
// is reported. The defaults are those of Kubernetes 1.36; of versions that it no longer has nothing is said. Errors:
// *ContentError for an object that is not what its kind requires.
func (c *Converter) Defaults(in, out *unstructured.Unstructured, write bool) ([]Loss, error) {
	return c.DefaultsWhere(in, out, func(string) bool { return write })
}

// DefaultsWhere is Defaults that writes those of which write says so, by the path of the field.
func (c *Converter) DefaultsWhere(
	in, out *unstructured.Unstructured, write func(path string) bool,
) ([]Loss, error) {
	from, to := in.GroupVersionKind(), out.GroupVersionKind()
	hub, native := c.hubs[from]
	if from == to || !native || c.hubs[to] != hub {
		return nil, nil
	}
	r, err := c.route(from, to)
	if err != nil {
		return nil, err
	}
	before, err := c.defaulted(withoutPodSpec(in.Object, r.template), from)
	if err != nil {
		return nil, err
	}
	target, err := c.throughTypes(before, to, hub)
	if err != nil {
		return nil, &ContentError{from, err}
	}
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(target)
	if err != nil {
		return nil, err
	}
	after, err := c.defaulted(withoutPodSpec(out.Object, r.template), to)
	if err != nil {
		return nil, err
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, err
	}
	d := defaults{from: from, to: to, write: write}
	d.labels(out.Object, was, is)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if name != "apiVersion" && name != "kind" && name != "metadata" && name != "status" {
			d.field(name, out.Object, was, is)
		}
	}
	return d.losses, nil
}

// defaulted reads an object and lets Kubernetes fill in its defaults.
func (c *Converter) defaulted(object map[string]any, gvk schema.GroupVersionKind) (runtime.Object, error) {
	typed, err := c.decode(object, gvk)
	if err != nil {
		return nil, err
	}
	c.scheme.Default(typed)
	return typed, nil
}

// withoutPodSpec leaves out what has the same defaults in both versions and is most of the object. The labels of a pod
// template stay: selectors are made of them.
func withoutPodSpec(object map[string]any, template path) map[string]any {
	rest, part := cut(object, template)
	if fields, ok := part.(map[string]any); ok {
		rest, _ = cut(object, template) // of its own
		paste(rest, template, map[string]any{"metadata": fields["metadata"]})
	}
	return rest
}

// defaults walks what two versions make of an object, beside the object.
type defaults struct {
	from, to schema.GroupVersionKind
	write    func(path string) bool
	at       path
	losses   []Loss
}

// labels compares those of the object itself, which early workloads take from their template.
func (d *defaults) labels(out, was, is map[string]any) {
	metadata := object(out, "metadata")
	if metadata == nil {
		return
	}
	d.at = append(d.at, "metadata")
	d.field("labels", metadata, object(was, "metadata"), object(is, "metadata"))
	d.at = d.at[:len(d.at)-1]
}

// field compares a field of was and is, which the object may say itself. What claims in a StatefulSet are is said by no
// version.
func (d *defaults) field(name string, object, was, is map[string]any) {
	if (name == "kind" || name == "apiVersion") && len(d.at) == 3 && d.at[1] == "volumeClaimTemplates" {
		return
	}
	d.at = append(d.at, name)
	defer func() { d.at = d.at[:len(d.at)-1] }()
	said, given := object[name]
	before, now := was[name], is[name]
	if reflect.DeepEqual(before, now) {
		return
	}
	if given && said != nil {
		d.inside(said, before, now)
		return
	}
	left, ok := before.(map[string]any)
	right, alsoOK := now.(map[string]any)
	if ok && alsoOK {
		d.object(map[string]any{}, left, right, func(said map[string]any) { object[name] = said })
		return
	}
	if isEmpty(before) && isEmpty(now) {
		return
	}
	if before != nil && d.write(d.at.String()) {
		object[name] = runtime.DeepCopyJSONValue(before)
		return
	}
	d.losses = append(d.losses,
		Loss{Path: d.at.String(), Meaning: "not set, which is " + spelled(before) + " in " +
			d.from.GroupVersion().String() + " and " + spelled(now) + " in " + d.to.GroupVersion().String()})
}

// inside compares what is in a value that the object says.
func (d *defaults) inside(said, before, now any) {
	switch said := said.(type) {
	case map[string]any:
		left, ok := before.(map[string]any)
		right, alsoOK := now.(map[string]any)
		if ok && alsoOK {
			d.object(said, left, right, nil)
		}
	case []any:
		left, ok := before.([]any)
		right, alsoOK := now.([]any)
		if !ok || !alsoOK || len(left) != len(said) || len(right) != len(said) {
			return
		}
		for i := range said {
			d.at = append(d.at, i)
			d.inside(said[i], left[i], right[i])
			d.at = d.at[:len(d.at)-1]
		}
	}
}

// object compares all fields; put takes the object where it was not there before.
func (d *defaults) object(said, was, is map[string]any, put func(map[string]any)) {
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.field(name, said, was, is)
	}
	if put != nil && len(said) > 0 {
		put(said)
	}
}

// spelled is a default in words.
func spelled(value any) string {
	if value == nil {
		return "nothing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "something"
	}
	return string(text)
}
