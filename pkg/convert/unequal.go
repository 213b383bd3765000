package convert

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// compare adds the fields in which two objects of one Go type differ, beside what the object itself says: without their
// kinds, their status and their metadata but for the labels. Only what differs is made into the maps that its JSON is.
func (d *defaults) compare(said map[string]any, a, b reflect.Value) error {
	for _, field := range comparedFields(a.Type()) {
		var err error
		switch field.name {
		case "kind", "apiVersion", "status":
		case "metadata":
			err = d.labels(object(said, "metadata"), field.in(a), field.in(b))
		default:
			err = d.differing(field, said, field.in(a), field.in(b))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// labels compares those of the object itself, which early workloads take from their template.
func (d *defaults) labels(metadata map[string]any, a, b reflect.Value) error {
	if metadata == nil {
		return nil
	}
	for _, field := range comparedFields(a.Type()) {
		if field.name == "labels" {
			d.at = append(d.at, "metadata")
			err := d.differing(field, metadata, field.in(a), field.in(b))
			d.at = d.at[:len(d.at)-1]
			return err
		}
	}
	return nil
}

// differing adds what differs in a field of what is said; said is nil where nothing is.
func (d *defaults) differing(field *comparedField, said map[string]any, a, b reflect.Value) error {
	switch {
	case field.fields: // where they are the same, their fields are
		return d.within(field, field.of, said, a, b)
	case field.element != nil && !a.IsNil() && !b.IsNil():
		return d.within(field, field.element, said, a.Elem(), b.Elem())
	case field.same(a, b):
		return nil
	}
	if elements, _ := said[field.name].([]any); len(elements) > 0 && field.list && a.Len() == len(elements) &&
		b.Len() == len(elements) {
		d.at = append(d.at, field.part)
		err := d.elements(elements, a, b)
		d.at = d.at[:len(d.at)-1]
		return err
	}
	before, err := field.written(a)
	if err != nil {
		return err
	}
	now, err := field.written(b)
	if err != nil {
		return err
	}
	found := len(d.fields)
	d.field(field.name, said, before, now)
	if len(d.fields) == found+1 && len(d.fields[found].at) == len(d.at)+1 {
		d.fields[found].was, d.fields[found].is = a, b
	}
	return nil
}

// within compares two structs that are a field, or that it points to.
func (d *defaults) within(field *comparedField, of reflect.Type, said map[string]any, a, b reflect.Value) error {
	if slices.Contains(d.skip, of) {
		return nil
	}
	value := said[field.name]
	inner, isObject := value.(map[string]any)
	if value != nil && value != "" && !isObject { // servers default an empty word, too
		return nil
	}
	d.at = append(d.at, field.part)
	err := d.structs(inner, a, b)
	d.at = d.at[:len(d.at)-1]
	return err
}

// structs adds what differs in the fields of two structs.
func (d *defaults) structs(said map[string]any, a, b reflect.Value) error {
	for _, field := range comparedFields(a.Type()) {
		if err := d.differing(field, said, field.in(a), field.in(b)); err != nil {
			return err
		}
	}
	return nil
}

// elements adds what differs in the elements of two lists that the object says.
func (d *defaults) elements(said []any, a, b reflect.Value) error {
	for i := range said {
		element, ok := said[i].(map[string]any)
		if !ok {
			continue
		}
		d.at = append(d.at, i)
		err := d.structs(element, a.Index(i), b.Index(i))
		if d.at = d.at[:len(d.at)-1]; err != nil {
			return err
		}
	}
	return nil
}

// comparedField is a field of a struct, or of one that is embedded in it.
type comparedField struct {
	at        []int
	name      string
	part      any // the name, as a part of paths
	of        reflect.Type
	omitEmpty bool
	same      sameness
	fields    bool         // it is a struct whose fields are compared
	element   reflect.Type // of a pointer to such a struct
	list      bool         // it is a list of such structs
}

func (f *comparedField) in(of reflect.Value) reflect.Value {
	for _, i := range f.at {
		of = of.Field(i)
	}
	return of
}

// written is the value of the field in JSON, nil where it is left out.
func (f *comparedField) written(v reflect.Value) (any, error) {
	if f.omitEmpty && isZero(v) {
		return nil, nil
	}
	return valueOf(v)
}

var comparisons sync.Map // reflect.Type -> []*comparedField

// comparedFields lists the fields of a struct by the names that they have in JSON, in the order of these; nil as
// fieldsOf.
func comparedFields(t reflect.Type) []*comparedField {
	if known, ok := comparisons.Load(t); ok {
		return known.([]*comparedField)
	}
	var fields []*comparedField
	for _, field := range fieldsOf(t) {
		of := t.Field(field.index).Type
		if field.name == "" {
			for _, inner := range comparedFields(of) {
				embedded := *inner
				embedded.at = append([]int{field.index}, inner.at...)
				fields = append(fields, &embedded)
			}
			continue
		}
		compared := &comparedField{at: []int{field.index}, name: field.name, part: field.name, of: of,
			omitEmpty: field.omitEmpty, same: samenessOf(of)}
		switch {
		case hasFields(of):
			compared.fields = true
		case of.Kind() == reflect.Pointer && hasFields(of.Elem()):
			compared.element = of.Elem()
		default:
			compared.list = of.Kind() == reflect.Slice && hasFields(of.Elem())
		}
		fields = append(fields, compared)
	}
	slices.SortFunc(fields, func(a, b *comparedField) int { return strings.Compare(a.name, b.name) })
	comparisons.Store(t, fields)
	return fields
}

func hasFields(t reflect.Type) bool { return t.Kind() == reflect.Struct && fieldsOf(t) != nil }

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

// A sameness is what reflect.DeepEqual says of two values of a type, in a fraction of the time: it knows beforehand
// what the type has, and none of Kubernetes' types points back to where it came from.
type sameness func(a, b reflect.Value) bool

// alike reports whether two objects of one Go type are the same.
func alike(a, b runtime.Object) bool {
	return samenessOf(reflect.TypeOf(a).Elem())(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

var samenesses sync.Map // reflect.Type -> sameness

func samenessOf(t reflect.Type) sameness {
	if known, ok := samenesses.Load(t); ok {
		return known.(sameness)
	}
	same := newSameness(t)
	samenesses.Store(t, same)
	return same
}

// lazySameness is that of a type, which may hold the type that is asked for it.
func lazySameness(t reflect.Type) sameness {
	find := sync.OnceValue(func() sameness { return samenessOf(t) })
	return func(a, b reflect.Value) bool { return find()(a, b) }
}

func newSameness(t reflect.Type) sameness {
	switch t.Kind() {
	case reflect.Bool:
		return func(a, b reflect.Value) bool { return a.Bool() == b.Bool() }
	case reflect.String:
		return func(a, b reflect.Value) bool { return a.String() == b.String() }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(a, b reflect.Value) bool { return a.Int() == b.Int() }
	case reflect.Pointer:
		same := lazySameness(t.Elem())
		return func(a, b reflect.Value) bool {
			if a.IsNil() || b.IsNil() || a.UnsafePointer() == b.UnsafePointer() {
				return a.UnsafePointer() == b.UnsafePointer()
			}
			return same(a.Elem(), b.Elem())
		}
	case reflect.Slice:
		return sameSlices(lazySameness(t.Elem()))
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return sameWords
		}
		return sameMaps(lazySameness(t.Elem()))
	case reflect.Struct:
		return sameStructs(t)
	default:
		return deeply
	}
}

func deeply(a, b reflect.Value) bool { return reflect.DeepEqual(a.Interface(), b.Interface()) }

func sameSlices(same sameness) sameness {
	return func(a, b reflect.Value) bool {
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
}

func sameMaps(same sameness) sameness {
	return func(a, b reflect.Value) bool {
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		for entries := a.MapRange(); entries.Next(); {
			if other := b.MapIndex(entries.Key()); !other.IsValid() || !same(entries.Value(), other) {
				return false
			}
		}
		return true
	}
}

func sameWords(a, b reflect.Value) bool {
	left, right := a.Interface().(map[string]string), b.Interface().(map[string]string)
	return (left == nil) == (right == nil) && maps.Equal(left, right)
}

func sameStructs(t reflect.Type) sameness {
	fields := make([]sameness, t.NumField())
	for i := range fields {
		if !t.Field(i).IsExported() {
			return deeply
		}
		fields[i] = lazySameness(t.Field(i).Type)
	}
	return func(a, b reflect.Value) bool {
		for i, same := range fields {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
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
	if value, err := writerOf(v.Type())(v); err == nil {
		return value, nil
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return nil, err
	}
	var value any
	return value, kjson.Unmarshal(text, &value)
}
