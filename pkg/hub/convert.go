package hub

import (
	"errors"
	"fmt"
	"maps"
	"slices"

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
	validators map[string]*validator // by version
	words      []string              // texts that rules look for: what trials put into objects
}

// spoke is a version and its rules with the hub, in each direction.
type spoke struct {
	toHub, fromHub *program
}

// leg is one conversion between a version and the hub.
type leg struct {
	from, to         string
	forward, reverse *program
	valid            *validator // of to
}

// Convert returns the object in another version of its group; the object itself is not changed and may share parts with
// the result. Only labels and annotations of the metadata change. An object that is in the version already is returned
// as it is. Shape: apiVersion, kind and metadata as in any object; numbers are int64 or float64. Errors: another group
// or kind, a version without rules, or the rule that cannot convert the object, with the object's name.
func (c *Converter) Convert(object map[string]any, version string) (map[string]any, error) {
	from, err := c.versionOf(object)
	if err != nil {
		return nil, err
	}
	legs, err := c.route(from, version)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.describe(object), err)
	}
	budget, converted := limitCost, object
	for _, leg := range legs {
		if converted, err = leg.convert(converted, &budget, c.Definition); err != nil {
			return nil, fmt.Errorf("%s from %s to %s: %w", c.describe(object), leg.from, leg.to, err)
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

// describe names an object as people do: Pizza default/margherita.
func (c *Converter) describe(object map[string]any) string {
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
		legs = append(legs, leg{from: from, to: c.Hub, forward: s.toHub, reverse: s.fromHub,
			valid: c.validators[c.Hub]})
	}
	if to != c.Hub {
		s, ok := c.spokes[to]
		if !ok {
			return nil, fmt.Errorf("version %q: there are no rules for it", to)
		}
		legs = append(legs, leg{from: c.Hub, to: to, forward: s.fromHub, reverse: s.toHub,
			valid: c.validators[to]})
	}
	return legs, nil
}

func (l leg) convert(object map[string]any, budget *uint64, of *Definition) (map[string]any, error) {
	plain, all := takeKept(object)
	maps.DeleteFunc(all, func(version string, _ *kept) bool { return of.Schemas[version] == nil })
	plain = l.forward.withoutDropped(plain)
	made, err := l.forward.apply(plain, budget)
	if err != nil {
		return nil, err
	}
	before := *budget
	out, err := l.restored(plain, made, all, budget, of.Group)
	if err != nil && all[l.to] != nil { // what a client made up would be in the way of all who list such objects
		*budget = before
		delete(all, l.to)
		return l.restored(plain, made, all, budget, of.Group)
	}
	return out, err
}

// restored is what was made of an object, with what is kept. Errors: what is kept is not of the version, is not valid
// in it, or a rule cannot take it back; more has to be kept than the annotation may have.
func (l leg) restored(plain, made map[string]any, all map[string]*kept, budget *uint64,
	group string) (map[string]any, error) {
	out, ours := made, all[l.to]
	restored, _ := ours.restore(out, true, 0)
	if object, ok := restored.(map[string]any); ok { // a client may say that it was something else
		out = object
	}
	e := newEditor(prune(l.forward.target, out).(map[string]any)) // the annotation is not the API server's word
	keepIdentity(e, plain)
	if ours != nil {
		if m := l.forward.target.mismatch(e.root); m != "" && l.forward.target.mismatch(made) == "" {
			return nil, fmt.Errorf("what is kept: %s", m)
		}
		// An API server validates what a client writes, and not what is made of it here.
		known := l.valid.problems(made)
		for _, problem := range l.valid.problems(e.root) {
			if !slices.Contains(known, problem) {
				return nil, fmt.Errorf("what is kept: %s", problem)
			}
		}
	}
	back, err := l.reverse.apply(l.reverse.withoutDropped(e.root), budget)
	if err != nil {
		return nil, fmt.Errorf("the way back: %w", err)
	}
	all = maps.Clone(all)
	delete(all, l.to)
	if k := difference(plain, back, l.forward.source, 0); k != nil {
		if all == nil {
			all = map[string]*kept{}
		}
		all[l.from] = k
	} else {
		delete(all, l.from)
	}
	last := newEditor(e.root)
	if err := last.set(path{"apiVersion"}, group+"/"+l.to); err != nil {
		return nil, err
	}
	out, err = putKept(last.root, all)
	if err == nil && ours != nil {
		err = labelled(out)
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
