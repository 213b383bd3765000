package convert

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/internal/quantity"
)

// RegisterScheme adds the kinds of a Scheme that this converter does not know, with the conversions that the Scheme has
// between their versions: through an internal version where there is one, otherwise from one to the other. Groups
// install both in a Scheme by their AddToScheme. It returns the kinds that it added, in order. Not safe beside
// conversions.
// Errors: a kind of several versions between which the Scheme has no conversion; the others are added nevertheless.
func (c *Converter) RegisterScheme(scheme *runtime.Scheme) (added []schema.GroupVersionKind, err error) {
	versions := map[schema.GroupKind][]schema.GroupVersionKind{}
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || isListKind(gvk.Kind) || c.Knows(gvk) ||
			slices.Contains(requestKinds, gvk.Kind) {
			continue
		}
		versions[gvk.GroupKind()] = append(versions[gvk.GroupKind()], gvk)
	}
	var errs []error
	for _, kind := range slices.SortedFunc(maps.Keys(versions), func(a, b schema.GroupKind) int {
		return strings.Compare(a.String(), b.String())
	}) {
		kinds := versions[kind]
		slices.SortFunc(kinds, preferred)
		reached := map[schema.GroupVersionKind]bool{}
		for _, from := range kinds {
			for _, to := range kinds {
				if convert := schemeFunc(scheme, from, to); from != to && convert != nil {
					c.Register(from, to, convert)
					reached[from], reached[to] = true, true
				}
			}
		}
		for _, gvk := range kinds {
			switch {
			case reached[gvk]:
				added = append(added, gvk)
			case len(kinds) > 1:
				errs = append(errs, fmt.Errorf("%s: the Scheme has no conversion between it and other versions",
					kindName(gvk)))
			}
		}
	}
	return added, errors.Join(errs...)
}

// schemeFunc is the conversion that a Scheme has from one kind to another; nil when it has none.
func schemeFunc(scheme *runtime.Scheme, from, to schema.GroupVersionKind) Func {
	through := []schema.GroupVersionKind{to}
	internal := schema.GroupVersionKind{Group: from.Group, Version: runtime.APIVersionInternal, Kind: from.Kind}
	if scheme.Recognizes(internal) {
		through = []schema.GroupVersionKind{internal, to}
	}
	walk := func(object runtime.Object) (runtime.Object, error) {
		for _, kind := range through {
			next, err := scheme.New(kind)
			if err != nil {
				return nil, err
			}
			if err := scheme.Convert(object, next, nil); err != nil {
				return nil, err
			}
			object = next
		}
		return object, nil
	}
	// A Scheme lists its types and not its conversions: whether there is one shows by an object without content.
	if blank, err := scheme.New(from); err != nil {
		return nil
	} else if _, err := tried(walk, blank); err != nil {
		return nil
	}
	return func(object map[string]any) (map[string]any, error) {
		source, err := scheme.New(from)
		if err != nil {
			return nil, err
		}
		if err := quantity.In(object, reflect.TypeOf(source)); err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, source); err != nil {
			return nil, err
		}
		target, err := tried(walk, source)
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(target)
	}
}

// tried calls a conversion of another program, which may count on more than it gets.
func tried(walk func(runtime.Object) (runtime.Object, error), object runtime.Object) (out runtime.Object, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("the conversion did not finish: %v", problem)
		}
	}()
	return walk(object)
}
