package convert

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// A shape says which fields a part of an object may have. A shape without fields and without elements is a single
// value: a string, a quantity, a raw extension.
type shape struct {
	fields   map[string]*shape // of an object with named fields
	element  *shape            // of a list or of a map
	list     bool
	optional map[string]bool // fields where Go tells {} or 0 from nothing there
	goType   reflect.Type    // nil when the shape was read from the table of fields
	typeName string          // in the table of fields
	either   bool            // it may be something else too: a list of what element is, or a value
	free     bool            // a single value that is not looked into

	// What servers of a minor make of the fields; of shapes of one minor alone.
	drops   map[string]func(of map[string]any, at trail) string // why a field is dropped as it is; "" when it is kept
	refused map[string]refusals
	judged  bool // something in it, at any depth, may be refused

	// What kubectl of the minor makes of it; of shapes of one minor alone.
	required     []string // fields that it does not send an object without
	misdescribed bool     // it sends no value
}

// refusals are why servers of a minor refuse a field, or a value of it.
type refusals struct {
	gate string                    // that forbids the field; "" for none
	late map[string]kubever.Ranges // values, and the minors that accept them
}

// shapes reads shapes from the Go types of Kubernetes 1.36, and from the table of fields for kinds that have none
// there.
type shapes struct {
	scheme *runtime.Scheme
	mu     sync.Mutex
	types  map[reflect.Type]*shape
	named  map[typeAt]*shape

	// ofMinor: the shapes say what servers of the minor do. Fields that they drop, since a feature gate is off by
	// default, are left out.
	ofMinor bool
}

// typeAt is a type of the table, at a minor: types of the same name gain fields.
type typeAt struct {
	name  string
	minor kubever.Minor
}

func newShapes(scheme *runtime.Scheme) *shapes {
	return &shapes{scheme: scheme, types: map[reflect.Type]*shape{}, named: map[typeAt]*shape{}}
}

// of returns the shape of a kind, nil when it is not known: a custom resource.
func (s *shapes) of(gvk schema.GroupVersionKind) *shape {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scheme.Recognizes(gvk) {
		return s.goType(s.scheme.AllKnownTypes()[gvk])
	}
	minor, ok := lastMinor(gvk)
	if !ok {
		return nil
	}
	return s.tabled(gvk, minor)
}

// tabled reads the shape that a minor's API description gives a kind, nil when it has none.
func (s *shapes) tabled(gvk schema.GroupVersionKind, minor kubever.Minor) *shape {
	if gvk.Kind == "ScheduledJob" { // the name that CronJob had before 1.5, with the same type
		gvk.Kind = "CronJob"
	}
	before := len(s.named)
	result := s.table(kubever.TypeName(gvk), minor)
	if s.ofMinor && len(s.named) > before {
		s.judge()
	}
	if result.fields != nil {
		return result
	}
	return nil
}

// judge marks the shapes in which something may be refused, and those that lead to one of them.
func (s *shapes) judge() {
	for marked := true; marked; {
		marked = false
		for _, one := range s.named {
			if !one.judged && (len(one.refused) > 0 || one.leadsToJudged()) {
				one.judged, marked = true, true
			}
		}
	}
}

func (s *shape) leadsToJudged() bool {
	for _, field := range s.fields {
		if field.judged {
			return true
		}
	}
	return s.element != nil && s.element.judged
}

// lastMinor is the newest minor whose API description has the kind.
func lastMinor(gvk schema.GroupVersionKind) (kubever.Minor, bool) {
	for m := kubever.Newest; m >= kubever.Oldest; m-- {
		for _, a := range kubever.APIResources(m) {
			if a.GroupVersion == gvk.GroupVersion() && a.Kind == gvk.Kind {
				return m, true
			}
		}
	}
	return 0, false
}

func (s *shapes) goType(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := s.types[t]; ok {
		return known
	}
	result := &shape{goType: t, free: isValue(t)}
	s.types[t] = result
	if strings.HasPrefix(t.Name(), "JSONSchemaPropsOr") { // as in the table of fields: a schema, or something else
		field, _ := t.FieldByName("Schema")
		schema := s.goType(field.Type)
		result.either, result.fields = true, schema.fields
		if _, ok := t.FieldByName("JSONSchemas"); ok {
			result.element = schema
		}
		return result
	}
	if result.free {
		return result
	}
	switch t.Kind() {
	case reflect.Struct:
		result.fields, result.optional = map[string]*shape{}, map[string]bool{}
		s.addFields(result, t)
	case reflect.Slice, reflect.Array:
		result.list = true
		result.element = s.goType(t.Elem())
	case reflect.Map:
		result.element = s.goType(t.Elem())
	}
	return result
}

// addFields adds the fields of a struct, those of embedded structs among them, by their names in JSON.
func (s *shapes) addFields(result *shape, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "" || strings.Contains(options, "inline"):
			embedded := field.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			s.addFields(result, embedded)
		default:
			if name == "" {
				name = field.Name
			}
			result.fields[name] = s.goType(field.Type)
			switch field.Type.Kind() {
			case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
				result.optional[name] = true
			}
		}
	}
}

var (
	marshaler   = reflect.TypeFor[json.Marshaler]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// isValue reports whether a type is written as one value, whatever it is made of.
func isValue(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(marshaler) || pointer.Implements(unmarshaler) || t == reflect.TypeFor[[]byte]() ||
		t.Kind() == reflect.Interface
}

func (s *shapes) table(typeName string, minor kubever.Minor) *shape {
	if known, ok := s.named[typeAt{typeName, minor}]; ok {
		return known
	}
	result := &shape{typeName: typeName, misdescribed: s.ofMinor && kubever.Misdescribed(typeName, minor)}
	s.named[typeAt{typeName, minor}] = result
	if schemaType, ok := kubever.SchemaType(typeName); ok {
		result.either, result.element = true, s.table(schemaType, minor)
		result.fields = result.element.fields
		return result
	}
	if element, ok := strings.CutPrefix(typeName, "[]"); ok {
		result.list, result.element = true, s.table(element, minor)
		return result
	}
	if element, ok := strings.CutPrefix(typeName, "map[string]"); ok {
		result.element = s.table(element, minor)
		return result
	}
	for _, name := range kubever.Fields(typeName, minor) {
		if result.fields == nil {
			result.fields = map[string]*shape{}
		}
		if s.ofMinor {
			gate, off := kubever.DisabledField(typeName, name, minor)
			if off && !gate.Refused {
				continue
			}
			result.heed(name, gate, minor)
		}
		result.fields[name] = s.table(kubever.FieldType(typeName, name, minor), minor)
		if s.ofMinor && kubever.Behaves(kubever.BehaviourKubectlRequires, minor) &&
			kubever.Required(typeName, name).Has(minor) {
			result.required = append(result.required, name)
		}
	}
	return result
}

// heed notes what servers of a minor drop and refuse of a field that they have. The gate is the one that is off; none
// has no name.
func (s *shape) heed(name string, gate kubever.FieldGate, minor kubever.Minor) {
	for _, drop := range valueDrops {
		if drop.typeName == s.typeName && drop.field == name && (drop.minors == nil || drop.minors.Has(minor)) {
			if s.drops == nil {
				s.drops = map[string]func(map[string]any, trail) string{}
			}
			s.drops[name] = func(of map[string]any, at trail) string { return drop.why(of, at, minor) }
		}
	}
	if late := kubever.LateValues(s.typeName, name); gate.Name != "" || late != nil {
		if s.refused == nil {
			s.refused = map[string]refusals{}
		}
		s.refused[name] = refusals{gate.Name, late}
	}
}

// anything is the shape of what is not looked into.
var anything = &shape{free: true}

// besides is a shape without what it says of values that are of a Go type: anything where that has nothing that the
// shape lacks, drops or requires. Within lists the types that within holds.
func (s *shape) besides(of *shape, within map[*shape]bool) *shape {
	switch {
	case s == nil || s.value() && !s.misdescribed:
		return anything
	case of == nil || of.value() != s.value() || of.list != s.list || s.either || within[of]:
		return s
	}
	within[of] = true
	defer delete(within, of)
	less := *s
	doubtful := s.misdescribed || len(s.required)+len(s.drops) > 0
	if s.element != nil && s.fields == nil {
		less.element = s.element.besides(of.element, within)
		doubtful = doubtful || less.element != anything || of.element == nil
	}
	if s.fields != nil {
		less.fields = map[string]*shape{}
		for name, field := range s.fields {
			less.fields[name] = field
			if !slices.Contains(s.required, name) { // what is to be written for it is up to its shape
				less.fields[name] = field.besides(of.at(name), within)
			}
		}
		doubtful = doubtful || of.fields == nil
		for name := range of.fields {
			doubtful = doubtful || less.fields[name] != anything
		}
	}
	if !doubtful {
		return anything
	}
	return &less
}

// at returns the shape of a field, nil when there is none.
func (s *shape) at(name string) *shape {
	switch {
	case s == nil || s.list:
		return nil
	case s.fields != nil:
		return s.fields[name]
	default:
		return s.element
	}
}

// optionalAt reports whether Go tells an empty value of a field from nothing there.
func (s *shape) optionalAt(name string) bool { return s != nil && s.optional[name] }

// of returns the shape of the elements of a list, nil when it is none.
func (s *shape) ofElements() *shape {
	if s == nil || !s.list && !s.either {
		return nil
	}
	return s.element
}

// value reports whether the shape is a single value, whatever is inside.
func (s *shape) value() bool { return s != nil && s.fields == nil && s.element == nil }
