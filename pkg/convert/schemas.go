package convert

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/internal/jsontext"
)

// schemas are those of the versions of a CRD. They are most of it, and v1 and v1beta1 say them alike, at other places:
// they are cut out before Kubernetes converts the rest, and put into the result. A small schema stands for each
// meanwhile, the same for the same: v1beta1 has one place for what all versions share.
type schemas struct {
	jsontext.Distinct
	places []schemaPlace
}

type schemaPlace struct {
	at    path
	value int // of Values
}

// standsFor begins the address that stands for a schema.
const standsFor = "urn:kubefusion:schema:"

// cutSchemas returns a CRD without its schemas, and these; the object itself stays as it is.
func cutSchemas(object map[string]any) (map[string]any, *schemas) {
	s := &schemas{}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return object, s
	}
	rest := maps.Clone(object)
	spec = maps.Clone(spec)
	rest["spec"] = spec
	s.cut(spec, "validation", path{"spec"})
	if versions, ok := spec["versions"].([]any); ok {
		kept := make([]any, len(versions))
		for i, version := range versions {
			kept[i] = version
			if fields, ok := version.(map[string]any); ok {
				fields = maps.Clone(fields)
				s.cut(fields, "schema", path{"spec", "versions", i})
				kept[i] = fields
			}
		}
		spec["versions"] = kept
	}
	return rest, s
}

// cut takes the schema out of a holder, a field of an object that may be changed.
func (s *schemas) cut(object map[string]any, holder string, at path) {
	fields, _ := object[holder].(map[string]any)
	schema, ok := fields["openAPIV3Schema"].(map[string]any)
	if !ok {
		return
	}
	fields = maps.Clone(fields)
	number := s.Number(schema)
	fields["openAPIV3Schema"] = map[string]any{"$schema": standsFor + strconv.Itoa(number)}
	object[holder] = fields
	s.places = append(s.places, schemaPlace{append(at.clone(), holder, "openAPIV3Schema"), number})
}

// put puts the schemas into what the rest became, without the fields that no version knows, which it adds to what is
// lost.
// Errors: the first value in a schema that is not of the kind that its field takes.
func (s *schemas) put(out map[string]any, lost []difference, known *shape) ([]difference, error) {
	unknown := make([][]difference, len(s.Values)) // within the schema
	for _, place := range slices.Backward(s.places) {
		i := inspection{at: trailOf(place.at)}
		if i.inspect(s.Values[place.value], known, known); i.wrong != nil {
			return nil, i.wrong
		}
		lost = append(lost, i.unknown...)
		unknown[place.value] = nil
		for _, field := range i.unknown {
			unknown[place.value] = append(unknown[place.value], difference{at: field.at[len(place.at):]})
		}
	}
	whole := func(number int) map[string]any {
		schema := runtime.DeepCopyJSON(s.Values[number])
		remove(schema, unknown[number])
		return schema
	}
	restore(out, whole)
	for i, d := range lost {
		lost[i].value = restore(runtime.DeepCopyJSONValue(d.value), whole)
		lost[i].now = restore(runtime.DeepCopyJSONValue(d.now), whole)
	}
	return lost, nil
}

// restore puts schemas in the place of what stands for them in a value, and returns it.
func restore(value any, whole func(number int) map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		address, _ := value["$schema"].(string)
		if number, ok := strings.CutPrefix(address, standsFor); ok && len(value) == 1 {
			if n, err := strconv.Atoi(number); err == nil {
				return whole(n)
			}
		}
		for name, inner := range value {
			value[name] = restore(inner, whole)
		}
	case []any:
		for i, inner := range value {
			value[i] = restore(inner, whole)
		}
	}
	return value
}

// WithoutSchemas returns a CRD with a small schema in the place of each one that it has; the CRD itself stays as it is.
func WithoutSchemas(crd *unstructured.Unstructured) *unstructured.Unstructured {
	rest, _ := cutSchemas(crd.Object)
	return &unstructured.Unstructured{Object: rest}
}

// dropSchemas returns a CRD that has none.
func dropSchemas(crd map[string]any) map[string]any {
	rest, s := cutSchemas(crd)
	for _, place := range s.places {
		remove(rest, []difference{{at: place.at}})
	}
	return rest
}
