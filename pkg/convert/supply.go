package convert

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Supplied is a field that Supply has written.
type Supplied struct {
	Path  string
	Value any
}

// Supply writes the fields that kubectl of the minor requires before it sends an object, and that servers do without:
// as the default that the version gives them, or else as the empty value that servers take their absence for. The
// reading is that of the result as it is. Left are those that have no such value: only the author of the object knows
// what belongs there.
func (v *Conversion) Supply(r Reading) (written []Supplied, left []string) {
	if len(r.lacking) == 0 {
		return nil, nil
	}
	lacking := slices.Clone(r.lacking)
	slices.SortFunc(lacking, func(a, b difference) int { return strings.Compare(a.at.String(), b.at.String()) })
	gvk := v.Out.GroupVersionKind()
	inGo := v.converter.shapes.of(gvk)
	defaults := v.defaultsOfResult()
	for _, d := range lacking {
		value, ok := defaultAt(defaults, d.at)
		if !ok {
			last := len(d.at) - 1
			value, ok = absent(d.in, inGo.to(d.at[:last]), d.at[last].(string))
		}
		if !ok {
			left = append(left, d.at.String())
			continue
		}
		v.ownAt(d.at)
		putAt(v.Out.Object, d.at, value)
		written = append(written, Supplied{d.at.String(), value})
	}
	if len(written) > 0 {
		v.forms.target = nil
	}
	return written, left
}

// defaultsOfResult is the result with the defaults of its version; nil where Kubernetes has none.
func (v *Conversion) defaultsOfResult() map[string]any {
	gvk := v.Out.GroupVersionKind()
	object := v.Out.Object
	if !v.converter.scheme.Recognizes(gvk) {
		return nil
	}
	if isDefinition(gvk) {
		object = dropSchemas(object)
	}
	typed, err := v.converter.defaulted(object, gvk)
	if err != nil {
		return nil
	}
	fields, err := unstructuredOf(typed)
	if err != nil {
		return nil
	}
	return fields
}

// defaultAt is the default of a single value, false when there is none.
func defaultAt(defaults map[string]any, at path) (any, bool) {
	var value any = defaults
	for _, part := range at {
		switch part := part.(type) {
		case string:
			fields, _ := value.(map[string]any)
			value = fields[part]
		case int:
			list, _ := value.([]any)
			if part >= len(list) {
				return nil, false
			}
			value = list[part]
		}
	}
	switch value.(type) {
	case string, int64, bool:
		return value, !isEmpty(value)
	}
	return nil, false
}

// absent is the value that servers read of a field that is not there; false where they tell the two apart, or where it
// cannot be written. It is that of the Go type of the field, which of types that Kubernetes has no more is known by the
// description alone: of these it is lists and plain values.
func absent(of, inGo *shape, name string) (any, bool) {
	described, goes := of.at(name), inGo.at(name)
	if described == nil || goes == nil {
		return nil, false
	}
	switch {
	case inGo.goType == nil:
		if described.list {
			return []any{}, true
		}
		value, plain := plainValues[described.typeName]
		return value, plain
	case goes.list:
		return []any{}, true
	case goes.fields == nil && goes.element != nil:
		return map[string]any{}, true
	case inGo.optional[name] && goes.goType != reflect.TypeFor[[]byte]():
		return nil, false
	case goes.fields != nil:
		fields := map[string]any{}
		for _, inner := range described.required {
			value, ok := absent(described, goes, inner)
			if !ok {
				return nil, false
			}
			fields[inner] = value
		}
		return fields, true
	}
	return zero(goes.goType)
}

// plainValues are the empty values of types, as the table of fields calls them.
var plainValues = map[string]any{
	"string": "", "string/byte": "", "boolean": false, "integer/int32": int64(0), "integer/int64": int64(0),
}

// zero is what a Go value that is nothing is written as.
func zero(t reflect.Type) (any, bool) {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return int64(0), true
	case reflect.TypeFor[resource.Quantity]():
		return "0", true
	case reflect.TypeFor[[]byte]():
		return "", true
	}
	if t == nil || isValue(t) {
		return nil, false
	}
	switch t.Kind() {
	case reflect.String:
		return "", true
	case reflect.Bool:
		return false, true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return int64(0), true
	}
	return nil, false
}

// Misdescribed is the first place, by name, of a value for which the minor's API description has a type in which it
// cannot be written: kubectl of that minor does not send the object. "" for none.
func (r Reading) Misdescribed() string {
	if !r.misdescribed {
		return ""
	}
	return misdescribed(r.object.Object, r.known, nil).String()
}

// Null is the first place, by name, of null in a list or in a map that kubectl of the minor does not send. "" for none.
func (r Reading) Null() string {
	inLists := kubever.Behaves(kubever.BehaviourKubectlNullsRefused, r.minor)
	if !r.null || !inLists {
		return ""
	}
	inMaps := kubever.Behaves(kubever.BehaviourKubectlNullValuesRefused, r.minor)
	return null(r.object.Object, r.known, inMaps, nil).String()
}

func null(value any, s *shape, inMaps bool, at path) path {
	if s == nil || s.value() {
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			here := append(at, name)
			if value[name] == nil && s.fields == nil && inMaps {
				return here.clone()
			}
			if found := null(value[name], s.at(name), inMaps, here); found != nil {
				return found
			}
		}
	case []any:
		for i, inner := range value {
			here := append(at, i)
			if inner == nil {
				return here.clone()
			}
			if found := null(inner, s.ofElements(), inMaps, here); found != nil {
				return found
			}
		}
	}
	return nil
}

func misdescribed(value any, s *shape, at path) path {
	if s == nil || value == nil {
		return nil
	}
	if s.misdescribed {
		return at.clone()
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if found := misdescribed(value[name], s.at(name), append(at, name)); found != nil {
				return found
			}
		}
	case []any:
		for i, inner := range value {
			if found := misdescribed(inner, s.ofElements(), append(at, i)); found != nil {
				return found
			}
		}
	}
	return nil
}
