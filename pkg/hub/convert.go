package hub

import (
	"errors"
	"fmt"
	"maps"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Converter converts the objects of one CRD. Safe for concurrent use.
type Converter struct {
	Definition *Definition
	Hub        string
	spokes     map[string]*spoke
	words      []string // texts that rules look for: what trials put into objects
}

// spoke is a version and its rules with the hub, in each direction.
type spoke struct {
	toHub, fromHub *program
}

// leg is one conversion between a version and the hub.
type leg struct {
	from, to         string
	forward, reverse *program
}

// call is one conversion: what it may cost yet, and what hears of refusals.
type call struct {
	budget  uint64
	refused func(Refusal)
	of      *Definition
}

// Convert returns the object in another version of its group; the object itself is not changed and may share parts with
// the result. Only labels and annotations of the metadata change. An object that is in the version already is returned
// as it is. Shape: apiVersion, kind and metadata as in any object; numbers are int64 or float64. Errors: another group
// or kind, a version without rules, or the rule that cannot convert the object, with the object's name.
func (c *Converter) Convert(object map[string]any, version string) (map[string]any, error) {
	return c.ConvertNoting(object, version, func(Refusal) {})
}

// ConvertNoting is Convert, and calls refused for each value of the annotation that was not put back.
func (c *Converter) ConvertNoting(object map[string]any, version string,
	refused func(Refusal)) (map[string]any, error) {
	from, err := c.versionOf(object)
	if err != nil {
		return nil, err
	}
	legs, err := c.route(from, version)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Describe(object), err)
	}
	call, converted := &call{budget: limitCost, refused: refused, of: c.Definition}, object
	for _, leg := range legs {
		if converted, err = leg.convert(converted, call); err != nil {
			return nil, fmt.Errorf("%s from %s to %s: %w", c.Describe(object), leg.from, leg.to, err)
		}
	}
	return converted, nil
}

func (c *Converter) versionOf(object map[string]any) (string, error) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group != c.Definition.Group || kind != c.Definition.Kind {
		return "", fmt.Errorf("apiVersion %q, kind %q: want a %s of the group %s", apiVersion, kind, c.Definition.Kind,
			c.Definition.Group)
	}
	return gv.Version, nil
}

// Describe names an object as people do: Pizza default/margherita.
func (c *Converter) Describe(object map[string]any) string {
	at := func(name string) string {
		value, _ := lookup(object, path{"metadata", name})
		text, _ := value.(string)
		return text
	}
	name := at("name")
	if name == "" {
		name = at("generateName") + "(unnamed)"
	}
	if namespace := at("namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	return c.Definition.Kind + " " + name
}

// route is the way between two versions: through the hub, or only to or from it.
func (c *Converter) route(from, to string) ([]leg, error) {
	if from == to {
		return nil, nil
	}
	var legs []leg
	if from != c.Hub {
		s, ok := c.spokes[from]
		if !ok {
			return nil, fmt.Errorf("version %q: there are no rules for it", from)
		}
		legs = append(legs, leg{from: from, to: c.Hub, forward: s.toHub, reverse: s.fromHub})
	}
	if to != c.Hub {
		s, ok := c.spokes[to]
		if !ok {
			return nil, fmt.Errorf("version %q: there are no rules for it", to)
		}
		legs = append(legs, leg{from: c.Hub, to: to, forward: s.fromHub, reverse: s.toHub})
	}
	return legs, nil
}

func (l leg) convert(object map[string]any, call *call) (map[string]any, error) {
	plain, all := takeKept(object)
	maps.DeleteFunc(all, func(version string, _ *kept) bool { return call.of.Schemas[version] == nil })
	plain = l.forward.withoutDropped(plain)
	made, err := l.forward.apply(plain, &call.budget)
	if err != nil {
		return nil, err
	}
	ours := all[l.to]
	r := &restorer{version: l.to}
	restored, _, left := r.restore(ours, made, true, rootPlace(l.forward.target))
	before := call.budget
	out, err := l.finish(plain, restored.(map[string]any), all, left, call)
	if err != nil && ours != nil { // what a client made up would be in the way of all who list such objects
		call.budget = before
		r.refusals = []Refusal{{Version: l.to, Why: err.Error()}}
		delete(all, l.to)
		out, err = l.finish(plain, made, all, ours, call)
	}
	if err == nil {
		for _, refusal := range r.refusals {
			call.refused(refusal)
		}
	}
	return out, err
}

// finish is what was made of an object, with what has to be kept of it, and what is left of what was kept. Errors: a
// rule cannot take it back; more has to be kept than the annotation may have; API servers do not take its labels.
func (l leg) finish(plain, made map[string]any, all map[string]*kept, left *kept, call *call) (map[string]any, error) {
	e := newEditor(prune(l.forward.target, made).(map[string]any))
	keepIdentity(e, plain)
	back, err := l.reverse.apply(l.reverse.withoutDropped(e.root), &call.budget)
	if err != nil {
		return nil, fmt.Errorf("the way back: %w", err)
	}
	needed := maps.Clone(all)
	delete(needed, l.to)
	delete(needed, l.from)
	put := func(version string, k *kept) {
		if k != nil && needed == nil {
			needed = map[string]*kept{}
		}
		if k != nil {
			needed[version] = k
		}
	}
	put(l.from, difference(plain, back, l.forward.source, 0))
	last := newEditor(e.root)
	if err := last.set(path{"apiVersion"}, call.of.Group+"/"+l.to); err != nil {
		return nil, err
	}
	out, err := putKept(last.root, needed)
	if err == nil && all[l.to] != nil {
		err = labelled(out)
	}
	if rest := remains(all[l.from], plain, true, back, true, 0); err == nil && (rest != nil || left != nil) {
		// What may be of use later is in the way of nothing now.
		put(l.from, merge(needed[l.from], rest))
		put(l.to, left)
		if more, err := putKept(last.root, needed); err == nil && labelled(more) == nil {
			return more, nil
		}
	}
	return out, err
}

// labelled returns why an API server takes no object with these labels and annotations; nil when it does. Their types
// are right.
func labelled(object map[string]any) error {
	u := unstructured.Unstructured{Object: object}
	return errors.Join(metav1validation.ValidateLabels(u.GetLabels(), nil).ToAggregate(),
		apivalidation.ValidateAnnotations(u.GetAnnotations(), nil).ToAggregate())
}

// keepIdentity sets what an object is to what the source is, but for labels and annotations, whatever an annotation
// has: API servers take no other change of the metadata.
func keepIdentity(e *editor, source map[string]any) {
	e.root = e.own(e.root)
	e.root["apiVersion"], e.root["kind"] = source["apiVersion"], source["kind"]
	was, _ := source["metadata"].(map[string]any)
	out, _ := e.root["metadata"].(map[string]any)
	if was == nil || identical(was, out) {
		return
	}
	metadata := maps.Clone(was)
	for _, name := range []string{"labels", "annotations"} {
		if value, ok := out[name]; ok {
			metadata[name] = value
		} else {
			delete(metadata, name)
		}
	}
	e.root["metadata"] = metadata
}
