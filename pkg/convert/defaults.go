package convert

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kubefusion/fusionctl/internal/jsontext"
)

// Defaults compares what servers make of the fields that an object and its conversion leave out: a DaemonSet of
// extensions/v1beta1 without an update strategy waits for deletions, one of apps/v1 rolls. Each such field is a Loss
// without a value. With write, what the version of in defaults is written into out, and only what cannot be said there
// is reported. The defaults are those of Kubernetes 1.36; of versions that it no longer has nothing is said. Errors:
// *ContentError for an object that is not what its kind requires.
func (c *Converter) Defaults(in, out *unstructured.Unstructured, write bool) ([]Loss, error) {
	d, err := c.Differing(in, out)
	if err != nil || !write {
		return d.Losses(), err
	}
	return d.Write(out, func(string) bool { return true }), nil
}

// DifferingDefaults are the fields that an object leaves out and that two versions default otherwise. Nil is none.
type DifferingDefaults struct {
	of     [2]string // the versions in words
	fields []*differingField
	after  runtime.Object // the result with its defaults, of which the fields were compared
}

type differingField struct {
	at          path
	text        string        // the path as it is printed
	before, now any           // nil for nothing
	was, is     reflect.Value // the same, in the types that were compared; none for what is within such a field
}

// Differing computes what the versions of an object and of its conversion default.
// Errors: *ContentError for an object that is not what its kind requires.
func (c *Converter) Differing(in, out *unstructured.Unstructured) (*DifferingDefaults, error) {
	return c.differing(in, out, &forms{})
}

// differing takes what was read of the objects where it is at hand. Where the result is wanted as a whole it is left
// with its defaults.
func (c *Converter) differing(in, out *unstructured.Unstructured, f *forms) (*DifferingDefaults, error) {
	from, to := in.GroupVersionKind(), out.GroupVersionKind()
	hub, native := c.hubs[from]
	if from == to || !native || c.hubs[to] != hub {
		f.target = nil
		return nil, nil
	}
	r, err := c.route(from, to)
	if err != nil {
		return nil, err
	}
	before := f.source
	if f.source = nil; before == nil {
		if before, err = c.decodeLight(in.Object, r); err != nil {
			return nil, err
		}
	}
	if err := c.setDefaults(before, from); err != nil {
		return nil, err
	}
	target, err := c.throughTypes(before, to, hub)
	if err != nil {
		return nil, &ContentError{from, err}
	}
	after, err := c.after(out, r, f)
	if err != nil {
		return nil, err
	}
	left, right := reflect.ValueOf(target).Elem(), reflect.ValueOf(after).Elem()
	d := defaults{skip: []reflect.Type{reflect.TypeFor[metav1.ObjectMeta]()}} // of templates: nothing defaults it
	// What a template holds has the same defaults in both versions, and was left out.
	if r.template != nil {
		d.skip = append(d.skip, reflect.TypeFor[corev1.PodSpec]())
	}
	if r.schema != nil {
		d.skip = append(d.skip, reflect.TypeFor[apiextensionsv1.JSONSchemaProps](),
			reflect.TypeFor[apiextensionsv1beta1.JSONSchemaProps]())
	}
	if err := d.compare(out.Object, left, right); err != nil || d.fields == nil {
		return nil, err
	}
	return &DifferingDefaults{of: r.words, fields: d.fields, after: after}, nil
}

// after is a result of a route with its defaults: as a whole where that is wanted.
func (c *Converter) after(out *unstructured.Unstructured, r *route, f *forms) (after runtime.Object, err error) {
	after = f.target
	f.target = nil
	whole := f.kept && r.schema == nil // schemas are validated in another way
	switch {
	case after != nil:
	case whole:
		after, f.known, err = c.decodeKnown(out.Object, r.to)
	default:
		after, err = c.decode(r.light(out.Object), r.to)
	}
	if err != nil {
		return nil, err
	}
	if err := c.setDefaults(after, r.to); err != nil {
		return nil, err
	}
	if whole {
		f.target = after
	}
	return after, nil
}

// Losses names the fields.
func (d *DifferingDefaults) Losses() []Loss { return d.LossesBut(nil) }

// LossesBut names the fields but those whose paths are written.
func (d *DifferingDefaults) LossesBut(written map[string]bool) []Loss {
	if d == nil {
		return nil
	}
	var losses []Loss
	for _, field := range d.fields {
		if !written[field.text] {
			losses = append(losses, d.loss(field))
		}
	}
	return losses
}

// Paths lists the fields that Write can write.
func (d *DifferingDefaults) Paths() []string {
	if d == nil {
		return nil
	}
	var paths []string
	for _, field := range d.fields {
		if field.before != nil {
			paths = append(paths, field.text)
		}
	}
	return paths
}

// Write writes those of the fields of which wanted says so, by their paths, as the version from before defaults them,
// and names the rest. The object is that which was compared, or a copy of it.
func (d *DifferingDefaults) Write(out *unstructured.Unstructured, wanted func(path string) bool) []Loss {
	if d == nil {
		return nil
	}
	var left []Loss
	for _, field := range d.fields {
		if field.before == nil || !wanted(field.text) {
			left = append(left, d.loss(field))
			continue
		}
		putAt(out.Object, field.at, runtime.DeepCopyJSONValue(field.before))
	}
	return left
}

func (d *DifferingDefaults) loss(field *differingField) Loss {
	return Loss{Path: field.text, Meaning: "not set, which is " + spelled(field.before) + d.of[0] + " and " +
		spelled(field.now) + d.of[1]}
}

// putAt sets a field; objects on the way that are not there are made.
func putAt(object map[string]any, at path, value any) {
	var here any = object
	for _, part := range at[:len(at)-1] {
		switch part := part.(type) {
		case string:
			fields := here.(map[string]any)
			if fields[part] == nil {
				fields[part] = map[string]any{}
			}
			here = fields[part]
		case int:
			here = here.([]any)[part]
		}
	}
	here.(map[string]any)[at[len(at)-1].(string)] = value
}

// defaulted reads an object and lets Kubernetes fill in its defaults.
func (c *Converter) defaulted(object map[string]any, gvk schema.GroupVersionKind) (runtime.Object, error) {
	typed, err := c.decode(object, gvk)
	if err != nil {
		return nil, err
	}
	return typed, c.setDefaults(typed, gvk)
}

// setDefaults lets Kubernetes fill in the defaults of a version.
func (c *Converter) setDefaults(typed runtime.Object, gvk schema.GroupVersionKind) (err error) {
	defer func() {
		if problem := recover(); problem != nil { // Kubernetes' defaults count on what decoders refuse
			err = &ContentError{gvk, fmt.Errorf("defaulting did not finish: %v", problem)}
		}
	}()
	c.scheme.Default(typed)
	defaultForgotten(typed)
	return nil
}

// defaultForgotten fills in defaults that a version documents and that Kubernetes does not fill in: extensions/v1beta1
// has the protocol of ports as TCP, which SetDefaults_NetworkPolicy of 1.6 to 1.36 sets in a copy of the port, and only
// on the way in; networking.k8s.io/v1beta1 has the scope of parameters as Cluster, which SetDefaults_IngressClass
// of 1.21 sets and 1.36, which serves it no more, does not.
func defaultForgotten(typed runtime.Object) {
	switch typed := typed.(type) {
	case *extensionsv1beta1.NetworkPolicy:
		for _, rule := range typed.Spec.Ingress {
			defaultProtocol(rule.Ports)
		}
		for _, rule := range typed.Spec.Egress {
			defaultProtocol(rule.Ports)
		}
	case *networkingv1beta1.IngressClass:
		if of := typed.Spec.Parameters; of != nil && of.Scope == nil {
			of.Scope = ptr.To(networkingv1beta1.IngressClassParametersReferenceScopeCluster)
		}
	}
}

func defaultProtocol(ports []extensionsv1beta1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

// decodeLight reads what light leaves of an object that a route leads from.
func (c *Converter) decodeLight(object map[string]any, r *route) (runtime.Object, error) {
	if r.template == nil || r.schema != nil { // autoscalers have no template: nothing is cut from annotations here
		return c.decode(r.light(object), r.from)
	}
	typed, err := c.scheme.New(r.from)
	if err != nil {
		return nil, err
	}
	if readerOf(reflect.TypeOf(typed).Elem())(object, reflect.ValueOf(typed).Elem(),
		&unknown{without: reflect.TypeFor[corev1.PodSpec]()}) != nil {
		return c.decode(r.light(object), r.from)
	}
	typed.GetObjectKind().SetGroupVersionKind(r.from)
	return typed, nil
}

// light is an object without what has the same defaults in both versions.
func (r *route) light(object map[string]any) map[string]any {
	if r.schema != nil {
		object, _ = cutSchemas(object)
	}
	return withoutPodSpec(object, r.template)
}

// withoutPodSpec leaves out what has the same defaults in both versions and is most of the object. The labels of a pod
// template stay: selectors are made of them.
func withoutPodSpec(object map[string]any, template path) map[string]any {
	rest, part := cut(object, template) // what leads to it is its own
	if fields, ok := part.(map[string]any); ok {
		paste(rest, template, map[string]any{"metadata": fields["metadata"]})
	}
	return rest
}

// defaults walks what two versions make of an object, beside the object.
type defaults struct {
	at     path
	fields []*differingField
	skip   []reflect.Type // what is in them differs in nothing that an object can leave out
}

// field compares what a field was and is, which the object may say itself. What claims in a StatefulSet are is said by
// no version.
func (d *defaults) field(name string, object map[string]any, before, now any) {
	if (name == "kind" || name == "apiVersion") && len(d.at) == 3 && d.at[1] == "volumeClaimTemplates" {
		return
	}
	d.at = append(d.at, name)
	defer func() { d.at = d.at[:len(d.at)-1] }()
	said, given := object[name]
	if reflect.DeepEqual(before, now) {
		return
	}
	if given && said != nil && said != "" { // servers default an empty word, too
		d.inside(said, before, now)
		return
	}
	left, ok := before.(map[string]any)
	right, alsoOK := now.(map[string]any)
	if ok && alsoOK {
		d.object(nil, left, right)
		return
	}
	if isEmpty(before) && isEmpty(now) {
		return
	}
	d.fields = append(d.fields,
		&differingField{at: d.at.clone(), text: d.at.String(), before: before, now: now})
}

// inside compares what is in a value that the object says.
func (d *defaults) inside(said, before, now any) {
	switch said := said.(type) {
	case map[string]any:
		left, ok := before.(map[string]any)
		right, alsoOK := now.(map[string]any)
		if ok && alsoOK {
			d.object(said, left, right)
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

// object compares all fields.
func (d *defaults) object(said, was, is map[string]any) {
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.field(name, said, was[name], is[name])
	}
}

// spelled is a default in words.
func spelled(value any) string {
	if value == nil {
		return "nothing"
	}
	switch value := value.(type) {
	case int64:
		return strconv.FormatInt(value, 10)
	case bool:
		return strconv.FormatBool(value)
	case string:
		if !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return `"` + value + `"`
		}
	}
	text, err := jsontext.Marshal(value, "", "", 32)
	if err != nil {
		return "something"
	}
	return string(text)
}
