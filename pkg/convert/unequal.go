package convert

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// unequal writes what differs between two objects of one Go type as the maps that their JSON is, without their kinds,
// their status and their metadata but for the labels; nil for both where nothing does. Of a list that is said as
// long as both have it, elements that do not differ are nil. Writing objects whole and comparing the maps costs several
// times as much.
func unequal(said map[string]any, a, b reflect.Value) (left, right map[string]any, err error) {
	for _, field := range fieldsOf(a.Type()) {
		l, r := a.Field(field.index), b.Field(field.index)
		switch {
		case l.Type() == reflect.TypeFor[metav1.TypeMeta](), field.name == "status":
			continue
		case l.Type() == reflect.TypeFor[metav1.ObjectMeta]():
			l, r = l.FieldByName("Labels"), r.FieldByName("Labels")
			if same(l, r) {
				continue
			}
			left, right = put(left, right, field.name, map[string]any{}, map[string]any{})
			lm, rm := left[field.name].(map[string]any), right[field.name].(map[string]any)
			if lm["labels"], err = valueOf(l); err == nil {
				rm["labels"], err = valueOf(r)
			}
		default:
			left, right, err = field.unequal(said, l, r, left, right)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return left, right, nil
}

// jsonField is a field of a Go type, as its JSON names it.
type jsonField struct {
	index     int
	name      string // "" for one whose fields stand in for it
	omitEmpty bool
}

var jsonFields sync.Map // reflect.Type -> []jsonField

// fieldsOf lists the fields of a struct; nil for one that writes itself, or holds what is its own.
func fieldsOf(t reflect.Type) []jsonField {
	if known, ok := jsonFields.Load(t); ok {
		return known.([]jsonField)
	}
	var fields []jsonField
	own := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if own = own || !t.Field(i).IsExported(); own {
			fields = nil
			break
		}
		if name == "" && !t.Field(i).Anonymous {
			name = t.Field(i).Name
		}
		if name != "-" {
			fields = append(fields, jsonField{i, name, slices.Contains(strings.Split(options, ","), "omitempty")})
		}
	}
	jsonFields.Store(t, fields)
	return fields
}

// unequal adds what differs in a field of what is said.
func (f jsonField) unequal(said map[string]any, a, b reflect.Value, left, right map[string]any) (
	_, _ map[string]any, err error) {
	if areShared(a, b) {
		return left, right, nil
	}
	omitA, omitB := f.omitEmpty && isZero(a), f.omitEmpty && isZero(b)
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() && a.Elem().Kind() == reflect.Struct {
		a, b = a.Elem(), b.Elem()
	}
	if a.Kind() == reflect.Struct && fieldsOf(a.Type()) != nil {
		if f.name == "" {
			return unequalFields(said, a, b, left, right)
		}
		l, r, err := unequalFields(object(said, f.name), a, b, nil, nil)
		if err != nil || l == nil {
			return left, right, err
		}
		left, right = put(left, right, f.name, l, r)
		return left, right, nil
	}
	if same(a, b) {
		return left, right, nil
	}
	var l, r any
	if elements, _ := said[f.name].([]any); len(elements) > 0 && a.Kind() == reflect.Slice &&
		a.Len() == len(elements) && b.Len() == len(elements) && a.Type().Elem().Kind() == reflect.Struct &&
		fieldsOf(a.Type().Elem()) != nil {
		l, r, err := unequalElements(elements, a, b)
		if err != nil {
			return nil, nil, err
		}
		left, right = put(left, right, f.name, l, r)
		return left, right, nil
	}
	if !omitA {
		if l, err = valueOf(a); err != nil {
			return nil, nil, err
		}
	}
	if !omitB {
		if r, err = valueOf(b); err != nil {
			return nil, nil, err
		}
	}
	left, right = put(left, right, f.name, l, r)
	return left, right, nil
}

// unequalFields adds what differs in the fields of two structs.
func unequalFields(said map[string]any, a, b reflect.Value, left, right map[string]any) (
	_, _ map[string]any, err error) {
	for _, field := range fieldsOf(a.Type()) {
		left, right, err = field.unequal(said, a.Field(field.index), b.Field(field.index), left, right)
		if err != nil {
			return nil, nil, err
		}
	}
	return left, right, nil
}

// unequalElements is what differs in the elements of two lists.
func unequalElements(said []any, a, b reflect.Value) (left, right []any, err error) {
	left, right = make([]any, len(said)), make([]any, len(said))
	for i := range said {
		element, _ := said[i].(map[string]any)
		l, r, err := unequalFields(element, a.Index(i), b.Index(i), nil, nil)
		if err != nil {
			return nil, nil, err
		}
		if l != nil {
			left[i], right[i] = l, r
		}
	}
	return left, right, nil
}

// put sets a field of both, where there is something to say.
func put(left, right map[string]any, name string, l, r any) (map[string]any, map[string]any) {
	if left == nil {
		left, right = map[string]any{}, map[string]any{}
	}
	if l != nil {
		left[name] = l
	}
	if r != nil {
		right[name] = r
	}
	return left, right
}

// isZero reports whether a value is left out of JSON where it may be.
func isZero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// areShared reports whether two values of a kind that points elsewhere are one: the parts that versions share, and do
// not default otherwise, are made so.
func areShared(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer, reflect.Map:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Slice:
		return a.Len() == b.Len() && a.UnsafePointer() == b.UnsafePointer()
	default:
		return false
	}
}

func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return same(a.Elem(), b.Elem())
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64:
		return a.Equal(b)
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}

// valueOf is what the JSON of a Go value says.
func valueOf(v reflect.Value) (any, error) {
	switch v.Kind() {
	case reflect.Pointer:
		switch v.Type().Elem().Kind() {
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[*intstr.IntOrString]() && !v.IsNil() {
				return valueOf(v.Elem())
			}
		default:
			if v.IsNil() {
				return nil, nil
			}
			return valueOf(v.Elem())
		}
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.String:
		return v.String(), nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Struct:
		if value, ok := v.Interface().(intstr.IntOrString); ok && value.Type == intstr.String {
			return value.StrVal, nil
		} else if ok {
			return int64(value.IntVal), nil
		}
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return nil, err
	}
	var value any
	return value, kjson.Unmarshal(text, &value)
}
