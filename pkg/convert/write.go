package convert

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// unstructuredOf writes a Go value as the maps that its JSON is.
func unstructuredOf(object runtime.Object) (map[string]any, error) {
	value, err := writerOf(reflect.TypeOf(object).Elem())(reflect.ValueOf(object).Elem())
	if err == nil {
		return value.(map[string]any), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
}

// A writer is a reader the other way round: what runtime.DefaultUnstructuredConverter does, in a third of the time, for
// it knows beforehand what a type has. What it refuses is left to the converter of Kubernetes. TestWritersWriteAlike
// holds the two against each other.
type writer func(of reflect.Value) (any, error)

// errUnwritten says that a type is none that writers know.
var errUnwritten = errors.New("value of another kind")

var writers sync.Map // reflect.Type -> writer

func writerOf(t reflect.Type) writer {
	if known, ok := writers.Load(t); ok {
		return known.(writer)
	}
	write := newWriter(t)
	writers.Store(t, write)
	return write
}

// plainly is a type that writes itself without JSON: a time, a quantity.
type plainly interface{ ToUnstructured() any }

// writesItself reports whether a type is not written by what it is made of.
func writesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return t == reflect.TypeFor[intstr.IntOrString]() || t.Implements(reflect.TypeFor[plainly]()) ||
		pointer.Implements(reflect.TypeFor[plainly]()) || pointer.Implements(marshaler)
}

func newWriter(t reflect.Type) writer {
	pointer := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[intstr.IntOrString]():
		return writeIntOrString
	case t.Kind() == reflect.Pointer:
		return pointerWriter(t.Elem())
	case t.Implements(reflect.TypeFor[plainly]()), pointer.Implements(reflect.TypeFor[plainly]()):
		return func(of reflect.Value) (any, error) { return addressed(of).Interface().(plainly).ToUnstructured(), nil }
	case pointer.Implements(marshaler):
		return writeItself
	}
	switch t.Kind() {
	case reflect.String:
		return func(of reflect.Value) (any, error) { return of.String(), nil }
	case reflect.Bool:
		return func(of reflect.Value) (any, error) { return of.Bool(), nil }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(of reflect.Value) (any, error) { return of.Int(), nil }
	case reflect.Float32, reflect.Float64:
		return func(of reflect.Value) (any, error) { return of.Float(), nil }
	case reflect.Struct:
		return structWriter(t)
	case reflect.Slice:
		return sliceWriter(t)
	case reflect.Map:
		return mapWriter(t)
	default:
		return func(reflect.Value) (any, error) { return nil, errUnwritten }
	}
}

// addressed is a pointer to a value, or to a copy of one that has no address.
func addressed(of reflect.Value) reflect.Value {
	if of.CanAddr() {
		return of.Addr()
	}
	pointer := reflect.New(of.Type())
	pointer.Elem().Set(of)
	return pointer
}

func writeIntOrString(of reflect.Value) (any, error) {
	if value := addressed(of).Interface().(*intstr.IntOrString); value.Type == intstr.Int {
		return int64(value.IntVal), nil
	} else if value.Type == intstr.String {
		return value.StrVal, nil
	}
	return nil, errUnwritten
}

// writeItself writes a type that encodes itself.
func writeItself(of reflect.Value) (value any, err error) {
	text, err := addressed(of).Interface().(json.Marshaler).MarshalJSON()
	if err == nil {
		err = kjson.Unmarshal(text, &value)
	}
	return value, err
}

func pointerWriter(element reflect.Type) writer {
	write := lazyWriter(element)
	return func(of reflect.Value) (any, error) {
		if of.IsNil() {
			return nil, nil
		}
		return write(of.Elem())
	}
}

// lazyWriter is the writer of a type, which may hold the type that is asked for it.
func lazyWriter(t reflect.Type) writer {
	find := sync.OnceValue(func() writer { return writerOf(t) })
	return func(of reflect.Value) (any, error) { return find()(of) }
}

type fieldWriter struct {
	at        []int // the field, in embedded structs of that
	name      string
	omitEmpty bool
	omitZero  func(of reflect.Value) bool // nil for one that is written when it is zero, too
	write     writer
	guided    guided
	fresh     fresher
}

// in is the field of a struct; false where it is left out.
func (f *fieldWriter) in(of reflect.Value) (reflect.Value, bool) {
	place := of.Field(f.at[0])
	for _, i := range f.at[1:] {
		place = place.Field(i)
	}
	return place, !(f.omitEmpty && isZero(place) || f.omitZero != nil && f.omitZero(place))
}

func structWriter(t reflect.Type) writer {
	fields, ok := fieldWriters(t, nil)
	if !ok {
		return func(reflect.Value) (any, error) { return nil, errUnwritten }
	}
	return func(of reflect.Value) (any, error) {
		object := make(map[string]any, 4)
		for i := range fields {
			field := &fields[i]
			place, there := field.in(of)
			if !there {
				continue
			}
			value, err := field.write(place)
			if err != nil {
				return nil, err
			}
			object[field.name] = value
		}
		return object, nil
	}
}

// fieldWriters are those of a struct in the order of its fields; false where one is written in another way.
func fieldWriters(t reflect.Type, at []int) (fields []fieldWriter, ok bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
		here := append(at[:len(at):len(at)], i)
		switch {
		case name == "-":
			continue
		case has("omitzero") && field.Type.Kind() != reflect.Struct || !field.IsExported():
			return nil, false
		case name == "" && field.Anonymous:
			if field.Type.Kind() != reflect.Struct {
				return nil, false
			}
			inner, ok := fieldWriters(field.Type, here)
			if !ok {
				return nil, false
			}
			fields = append(fields, inner...)
			continue
		case name == "":
			name = field.Name
		}
		written := fieldWriter{at: here, name: name, omitEmpty: has("omitempty"), write: lazyWriter(field.Type),
			guided: lazyGuided(field.Type), fresh: lazyFresher(field.Type)}
		if has("omitzero") {
			written.omitZero = zeroOf(field.Type)
		}
		fields = append(fields, written)
	}
	return fields, true
}

// zeroOf reports whether a struct is zero, as that decides itself where it does.
func zeroOf(t reflect.Type) func(of reflect.Value) bool {
	type decides interface{ IsZero() bool }
	if reflect.PointerTo(t).Implements(reflect.TypeFor[decides]()) {
		return func(of reflect.Value) bool { return addressed(of).Interface().(decides).IsZero() }
	}
	return reflect.Value.IsZero
}

func sliceWriter(t reflect.Type) writer {
	if t.Elem().Kind() == reflect.Uint8 {
		return func(of reflect.Value) (any, error) {
			if of.IsNil() {
				return nil, nil
			}
			return base64.StdEncoding.EncodeToString(of.Bytes()), nil
		}
	}
	write := lazyWriter(t.Elem())
	return func(of reflect.Value) (any, error) {
		if of.IsNil() {
			return nil, nil
		}
		list := make([]any, of.Len())
		for i := range list {
			var err error
			if list[i], err = write(of.Index(i)); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
}

func mapWriter(t reflect.Type) writer {
	if t.Key().Kind() != reflect.String {
		return func(reflect.Value) (any, error) { return nil, errUnwritten }
	}
	write := lazyWriter(t.Elem())
	return func(of reflect.Value) (any, error) {
		if of.IsNil() {
			return nil, nil
		}
		object := make(map[string]any, of.Len())
		for entries := of.MapRange(); entries.Next(); {
			value, err := write(entries.Value())
			if err != nil {
				return nil, err
			}
			object[entries.Key().String()] = value
		}
		return object, nil
	}
}
