package hub

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Trial says how rules are tried.
type Trial struct {
	Objects int           // of each version
	Random  func() uint64 // decides what the objects are
}

// TrialReport is what a trial found.
type TrialReport struct {
	Ways     []Way     `json:"ways"`
	Failures []Failure `json:"failures"`
	// Incomplete says of which versions no or not enough objects could be made, and why: nothing is known about those.
	Incomplete []string `json:"incomplete"`
}

// Way is from one version to another.
type Way struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Objects int    `json:"objects"` // generated ones
	Edited  int    `json:"edited"`  // results that were changed and converted again
	Failed  int    `json:"failed"`
}

// Failure is the smallest object found that fails in one way; there may be more objects.
type Failure struct {
	From    string         `json:"from"`
	To      string         `json:"to"`
	What    string         `json:"what"`
	Message string         `json:"message"`
	Object  map[string]any `json:"object"`
	Result  map[string]any `json:"result,omitempty"`
	Back    map[string]any `json:"back,omitempty"`
}

// The ways in which an object fails.
const (
	failsToConvert = "cannot be converted"
	failsSchema    = "is not valid after its conversion"
	failsMetadata  = "has other metadata after its conversion"
	failsReturn    = "cannot be converted back"
	failsRoundTrip = "comes back different"
)

// Try converts objects that it makes from the schemas, in every direction and back, and looks at what comes out: it has
// to be valid, and a round trip has to return the same object, but for what rules drop. Some results are changed before
// they go back, as people do. What rules do wrong is in the report. The same random numbers give the same report.
// Errors: a schema that no validator can be made of.
func (c *Converter) Try(t Trial) (*TrialReport, error) {
	report := &TrialReport{Ways: []Way{}, Failures: []Failure{}, Incomplete: []string{}}
	tr := &trial{Converter: c, report: report, generator: &generator{next: t.Random, words: c.words},
		validators: map[string]*validator{}}
	versions := append([]string{c.Hub}, sortedKeys(c.spokes)...)
	for _, version := range versions {
		v, err := newValidator(c.Definition.Schemas[version])
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", version, err)
		}
		tr.validators[version] = v
	}
	for _, from := range versions {
		objects := tr.generate(from, t.Objects)
		for _, to := range versions {
			if from != to {
				tr.way(from, to, objects)
			}
		}
	}
	slices.SortStableFunc(report.Failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.What, b.What))
	})
	return report, nil
}

type trial struct {
	*Converter
	report     *TrialReport
	generator  *generator
	validators map[string]*validator // by version
}

// generate makes valid objects.
func (t *trial) generate(version string, n int) []map[string]any {
	const attempts = 20 // for one object, on the average
	var objects []map[string]any
	why := ""
	for tried := 0; len(objects) < n && tried < n*attempts; tried++ {
		object := t.generator.object(t.Definition, version)
		if problem := t.validators[version].sentence(object); problem != "" {
			why = problem
			continue
		}
		objects = append(objects, object)
	}
	if len(objects) < n {
		t.report.Incomplete = append(t.report.Incomplete, fmt.Sprintf("%s: of %d objects %d could be made that its "+
			"schema allows; the last attempt: %s", version, n, len(objects), why))
	}
	return objects
}

func (t *trial) way(from, to string, objects []map[string]any) {
	way := Way{From: from, To: to, Objects: len(objects)}
	failures := map[string]bool{}
	judge := func(from, to string, object map[string]any) {
		f := t.judge(from, to, object)
		if f == nil {
			return
		}
		way.Failed++
		if key := from + to + f.What; !failures[key] {
			failures[key] = true
			t.report.Failures = append(t.report.Failures, *t.shrink(*f))
		}
	}
	for i, object := range objects {
		judge(from, to, object)
		if edited := t.edit(to, object, objects[(i+1)%len(objects)]); edited != nil {
			way.Edited++
			judge(to, from, edited)
		}
	}
	t.report.Ways = append(t.report.Ways, way)
}

// edit converts two objects and puts a part of the second into the first, as a client does that does not know the
// annotation.
func (t *trial) edit(to string, object, other map[string]any) map[string]any {
	a, err := t.Convert(object, to)
	if err != nil {
		return nil
	}
	b, err := t.Convert(other, to)
	if err != nil {
		return nil
	}
	edited := newEditor(a)
	for _, name := range sortedKeys(b) {
		part, ok := b[name].(map[string]any)
		if !ok || name == "metadata" {
			continue
		}
		for _, field := range sortedKeys(part) {
			if t.generator.chance(3) {
				if err := edited.set(path{name, field}, part[field]); err != nil {
					return nil
				}
			}
		}
	}
	if t.validators[to].sentence(edited.root) != "" {
		return nil
	}
	return edited.root
}

// judge converts an object in a round trip; nil is a good verdict.
func (t *trial) judge(from, to string, object map[string]any) *Failure {
	f := &Failure{From: from, To: to, Object: object}
	fail := func(what, message string) *Failure {
		f.What, f.Message = what, message
		return f
	}
	var err error
	if f.Result, err = t.Convert(object, to); err != nil {
		return fail(failsToConvert, err.Error())
	}
	if message := t.validators[to].sentence(f.Result); message != "" {
		return fail(failsSchema, message)
	}
	if field := changedMetadata(object, f.Result); field != "" {
		return fail(failsMetadata, field)
	}
	if f.Back, err = t.Convert(f.Result, from); err != nil {
		return fail(failsReturn, err.Error())
	}
	expected, err := t.expected(from, to, object)
	if err != nil {
		return fail(failsReturn, err.Error())
	}
	got, _ := takeKept(f.Back)
	if at := differs(expected, got, nil); at != "" {
		return fail(failsRoundTrip, at)
	}
	return nil
}

// expected is the result of the round trip: the object without what rules drop on the way.
func (t *trial) expected(from, to string, object map[string]any) (map[string]any, error) {
	legs, err := t.route(from, to)
	if err != nil {
		return nil, err
	}
	object, _ = takeKept(legs[0].forward.withoutDropped(object))
	if len(legs) == 1 || len(legs[1].forward.dropped) == 0 {
		return object, nil
	}
	inHub, err := t.Convert(object, t.Hub)
	if err != nil {
		return nil, err
	}
	object, err = t.Convert(legs[1].forward.withoutDropped(inHub), from)
	if err != nil {
		return nil, err
	}
	object, _ = takeKept(object)
	return object, nil
}

func changedMetadata(before, after map[string]any) string {
	a, _ := before["metadata"].(map[string]any)
	b, _ := after["metadata"].(map[string]any)
	for _, name := range slices.Concat(sortedKeys(a), sortedKeys(b)) {
		if name != "labels" && name != "annotations" && !equal(a[name], b[name]) {
			return "metadata." + name
		}
	}
	return ""
}

// differs is the path of the first difference, with both values, "" for none.
func differs(want, got any, at path) string {
	a, isObject := want.(map[string]any)
	b, both := got.(map[string]any)
	if isObject && both {
		for _, name := range slices.Compact(slices.Sorted(maps.Keys(union(a, b)))) {
			one, there := a[name]
			other, ok := b[name]
			switch {
			case !ok:
				return fmt.Sprintf("%s is missing", at.plus(name))
			case !there:
				return fmt.Sprintf("%s is new: %s", at.plus(name), describe(other))
			}
			if d := differs(one, other, at.plus(name)); d != "" {
				return d
			}
		}
		return ""
	}
	x, isList := want.([]any)
	y, alsoList := got.([]any)
	if isList && alsoList {
		if len(x) != len(y) {
			return fmt.Sprintf("%s has %d elements, had %d", at, len(y), len(x))
		}
		for i := range x {
			if d := differs(x[i], y[i], at.plus(fmt.Sprint(i))); d != "" {
				return d
			}
		}
		return ""
	}
	if equal(want, got) {
		return ""
	}
	return fmt.Sprintf("%s is %s, was %s", at, describe(got), describe(want))
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	return all
}

// limitShrink bounds the attempts to make an example smaller.
const limitShrink = 1000

// shrink looks for a smaller object that is valid and fails in the same way.
func (t *trial) shrink(f Failure) *Failure {
	attempts := 0
	for smaller := true; smaller; {
		smaller = false
		for candidate := range shrunk(f.Object, 0) {
			if attempts++; attempts > limitShrink {
				return &f
			}
			object, ok := candidate.(map[string]any)
			if !ok || t.validators[f.From].sentence(object) != "" {
				continue
			}
			if g := t.judge(f.From, f.To, object); g != nil && g.What == f.What {
				f, smaller = *g, true
				break
			}
		}
	}
	return &f
}

// shrunk yields values that are a step smaller, large steps first.
func shrunk(value any, depth int) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		switch v := value.(type) {
		case map[string]any:
			shrunkObject(v, depth, yield)
		case []any:
			shrunkList(v, depth, yield)
		case string:
			for _, shorter := range []string{"", "a", string([]rune(v)[:len([]rune(v))/2]),
				strings.TrimRight(v, "abcdefghijklmnopqrstuvwxyz")} {
				if len(shorter) < len(v) && !yield(shorter) {
					return
				}
			}
		case int64:
			for _, n := range []int64{0, 1, v / 2} {
				if n != v && (n < v || v < 0) && !yield(n) {
					return
				}
			}
		}
	}
}

func shrunkObject(object map[string]any, depth int, yield func(any) bool) {
	names := sortedKeys(object)
	fixed := func(name string) bool {
		return depth == 0 && (name == "apiVersion" || name == "kind") || depth == 1 && name == "name"
	}
	for _, name := range names {
		if fixed(name) {
			continue
		}
		smaller := maps.Clone(object)
		delete(smaller, name)
		if !yield(smaller) {
			return
		}
	}
	for _, name := range names {
		if fixed(name) || depth == 0 && name == "metadata" {
			continue
		}
		for value := range shrunk(object[name], depth+1) {
			smaller := maps.Clone(object)
			smaller[name] = value
			if !yield(smaller) {
				return
			}
		}
	}
}

func shrunkList(list []any, depth int, yield func(any) bool) {
	for i := range list {
		if !yield(slices.Delete(slices.Clone(list), i, i+1)) {
			return
		}
	}
	for i := range list {
		for value := range shrunk(list[i], depth+1) {
			smaller := slices.Clone(list)
			smaller[i] = value
			if !yield(smaller) {
				return
			}
		}
	}
}
