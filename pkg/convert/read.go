package convert

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubefusion/fusionctl/internal/quantity"
)

// A reader stores a value as JSON decodes it, which is not nil, in an empty Go value of one type. It does what
// runtime.DefaultUnstructuredConverter does, in a fifth of the time: that looks for each field of the type in the
// value, this for each field of the value in the type. What a reader refuses is left to the converter of Kubernetes.
// TestReadersReadAlike holds the two against each other. It notes where the type lacks a field of the value.
type reader func(value any, into reflect.Value, unknown *unknown) error

// unknown is what a reader notes.
type unknown struct {
	found bool // a field that the type lacks, or null in a list or in a map
	ends  bool // the reading, where that is found

	without reflect.Type // what is of this type is not read
}

// null notes null in a list or in a map: kubectl may not send it, which an inspection finds.
func (u *unknown) null() error {
	if u.found = true; u.ends {
		return errUnread
	}
	return nil
}

// errUnread says that a value is not what the type takes, or one that readers do not know.
var errUnread = errors.New("value of another kind")

var readers sync.Map // reflect.Type -> reader

func readerOf(t reflect.Type) reader {
	if known, ok := readers.Load(t); ok {
		return known.(reader)
	}
	read := newReader(t)
	readers.Store(t, read)
	return read
}

func newReader(t reflect.Type) reader {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return readIntOrString
	case reflect.TypeFor[resource.Quantity]():
		return readQuantity
	}
	if t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshaler) {
		return readItself
	}
	switch t.Kind() {
	case reflect.String:
		return readString
	case reflect.Bool:
		return readBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return readInt
	case reflect.Interface:
		return readAny
	case reflect.Pointer:
		return pointerReader(t.Elem())
	case reflect.Struct:
		return structReader(t)
	case reflect.Slice:
		return sliceReader(t)
	case reflect.Map:
		return mapReader(t)
	default:
		return func(any, reflect.Value, *unknown) error { return errUnread }
	}
}

func readString(value any, into reflect.Value, _ *unknown) error {
	text, ok := value.(string)
	if !ok {
		return errUnread
	}
	into.SetString(text)
	return nil
}

func readBool(value any, into reflect.Value, _ *unknown) error {
	b, ok := value.(bool)
	if !ok {
		return errUnread
	}
	into.SetBool(b)
	return nil
}

func readInt(value any, into reflect.Value, _ *unknown) error {
	number, ok := value.(int64)
	if !ok || into.OverflowInt(number) {
		return errUnread
	}
	into.SetInt(number)
	return nil
}

// readAny shares the value, as the converter of Kubernetes does.
func readAny(value any, into reflect.Value, _ *unknown) error {
	v := reflect.ValueOf(value)
	if !v.Type().AssignableTo(into.Type()) {
		return errUnread
	}
	into.Set(v)
	return nil
}

func readIntOrString(value any, into reflect.Value, _ *unknown) error {
	v := into.Addr().Interface().(*intstr.IntOrString)
	switch value := value.(type) {
	case string:
		*v = intstr.FromString(value)
	case int64:
		if value != int64(int32(value)) {
			return errUnread
		}
		*v = intstr.FromInt32(int32(value))
	default:
		return errUnread
	}
	return nil
}

func readQuantity(value any, into reflect.Value, _ *unknown) error {
	text, ok := value.(string)
	if !ok {
		return readItself(value, into, nil)
	}
	parsed, err := quantity.Parse(strings.TrimSpace(text))
	if err != nil {
		return err
	}
	*into.Addr().Interface().(*resource.Quantity) = parsed
	return nil
}

// readItself reads a type that decodes itself.
func readItself(value any, into reflect.Value, _ *unknown) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return into.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(text)
}

func pointerReader(element reflect.Type) reader {
	read := lazy(element)
	return func(value any, into reflect.Value, unknown *unknown) error {
		into.Set(reflect.New(element))
		return read(value, into.Elem(), unknown)
	}
}

// lazy is the reader of a type, which may hold the type that is asked for it.
func lazy(t reflect.Type) reader {
	find := sync.OnceValue(func() reader { return readerOf(t) })
	return func(value any, into reflect.Value, unknown *unknown) error {
		return find()(value, into, unknown)
	}
}

type fieldReader struct {
	at   []int // the field, in embedded structs of that
	read reader
}

func structReader(t reflect.Type) reader {
	fields := map[string]fieldReader{}
	if !addFieldReaders(fields, t, nil) {
		return func(any, reflect.Value, *unknown) error { return errUnread }
	}
	type named struct {
		name string
		fieldReader
	}
	var few []named
	if len(fields) <= fewFields {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			few = append(few, named{name, fields[name]})
		}
	}
	return func(value any, into reflect.Value, unknown *unknown) error {
		object, ok := value.(map[string]any)
		if !ok {
			return errUnread
		}
		if unknown.without == t {
			return nil
		}
		if len(few) > 0 { // to look for each takes less than to go through a map
			found := 0
			for i := range few {
				if inner, ok := object[few[i].name]; ok {
					found++
					if err := few[i].store(inner, into, unknown); err != nil {
						return err
					}
				}
			}
			if found == len(object) {
				return nil
			}
		}
		for name, inner := range object {
			field, known := fields[name]
			switch {
			case !known:
				if unknown.found = true; unknown.ends {
					return errUnread
				}
			case len(few) == 0:
				if err := field.store(inner, into, unknown); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// fewFields is how many fields a type has at most whose fields are looked for in objects.
const fewFields = 6

// store reads the field of a struct.
func (f fieldReader) store(value any, into reflect.Value, unknown *unknown) error {
	if value == nil {
		return nil
	}
	place := into.Field(f.at[0])
	for _, i := range f.at[1:] {
		place = place.Field(i)
	}
	return f.read(value, place, unknown)
}

// addFieldReaders adds the fields of a struct by their names in JSON; false where two have one name.
func addFieldReaders(fields map[string]fieldReader, t reflect.Type, at []int) bool {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		here := append(at[:len(at):len(at)], i)
		switch {
		case name == "" && field.Anonymous:
			if field.Type.Kind() != reflect.Struct || !addFieldReaders(fields, field.Type, here) {
				return false
			}
			continue
		case !field.IsExported():
			return false
		case name == "":
			name = field.Name
		}
		if _, twice := fields[name]; twice {
			return false
		}
		fields[name] = fieldReader{here, lazy(field.Type)}
	}
	return true
}

func sliceReader(t reflect.Type) reader {
	if t.Elem().Kind() == reflect.Uint8 {
		return readBytes
	}
	read := lazy(t.Elem())
	return func(value any, into reflect.Value, unknown *unknown) error {
		list, ok := value.([]any)
		if !ok {
			return errUnread
		}
		into.Set(reflect.MakeSlice(t, len(list), len(list)))
		for i, element := range list {
			var err error
			if element == nil {
				err = unknown.null()
			} else {
				err = read(element, into.Index(i), unknown)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func readBytes(value any, into reflect.Value, _ *unknown) error {
	text, ok := value.(string)
	if !ok {
		return errUnread
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	into.SetBytes(data)
	return nil
}

func mapReader(t reflect.Type) reader {
	if t == reflect.TypeFor[map[string]string]() {
		return readStrings
	}
	if t.Key().Kind() != reflect.String {
		return func(any, reflect.Value, *unknown) error { return errUnread }
	}
	read := lazy(t.Elem())
	return func(value any, into reflect.Value, unknown *unknown) error {
		object, ok := value.(map[string]any)
		if !ok {
			return errUnread
		}
		result := reflect.MakeMapWithSize(t, len(object))
		for name, inner := range object {
			element := reflect.New(t.Elem()).Elem()
			var err error
			if inner == nil {
				err = unknown.null()
			} else {
				err = read(inner, element, unknown)
			}
			if err != nil {
				return err
			}
			result.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), element)
		}
		into.Set(result)
		return nil
	}
}

func readStrings(value any, into reflect.Value, unknown *unknown) error {
	object, ok := value.(map[string]any)
	if !ok {
		return errUnread
	}
	result := make(map[string]string, len(object))
	for name, inner := range object {
		text, ok := inner.(string)
		switch {
		case inner == nil:
			if err := unknown.null(); err != nil {
				return err
			}
		case !ok:
			return errUnread
		}
		result[name] = text
	}
	*into.Addr().Interface().(*map[string]string) = result
	return nil
}
