package client

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// fieldFacts finds what a minor drops of an object although it serves the version: fields that the version got later.
// The zero value is ready; it keeps what it found: of fields that no minor has, clients name as many as they like. Safe
// for concurrent use.
type fieldFacts struct {
	known sync.Map // fieldAt -> fieldFact
}

type fieldAt struct {
	typeName, field string
	minor           kubever.Minor
}

type fieldFact struct {
	native, known bool // some minor has the field; this one has it
	child         string
	since         kubever.Ranges
}

// unknown lists the fields with a value that the server's minor does not have. What no minor has is not its business:
// every server drops that alike.
func (f *fieldFacts) unknown(object map[string]any, gvk schema.GroupVersionKind,
	server *negotiate.Server) []convert.Loss {
	if !server.Minor.Known() {
		return nil
	}
	w := unknownWalk{facts: f, minor: server.Minor}
	w.walk(object, kubever.TypeName(gvk), "")
	return w.losses
}

var knownFields fieldFacts // of facts, which do not change

type unknownWalk struct {
	facts  *fieldFacts
	minor  kubever.Minor
	losses []convert.Loss
}

func (w *unknownWalk) walk(object map[string]any, typeName, path string) {
	for _, field := range slices.Sorted(maps.Keys(object)) {
		if field == "managedFields" || saysNothing(object[field]) {
			continue // servers write managedFields
		}
		fact := w.facts.of(fieldAt{typeName, field, w.minor})
		if !fact.native {
			continue
		}
		at := strings.TrimPrefix(path+"."+field, ".")
		if !fact.known && !implied(object[field], typeName, field) {
			w.losses = append(w.losses,
				convert.Loss{Path: at, Value: object[field],
					Meaning: fmt.Sprintf("%s does not know the field, %s do", w.minor, fact.since)})
		}
		if !fact.known {
			continue
		}
		w.descend(object[field], fact.child, at)
	}
}

func (w *unknownWalk) descend(value any, typeName, path string) {
	switch value := value.(type) {
	case []any:
		element := strings.TrimPrefix(typeName, "[]")
		for i, item := range value {
			w.descend(item, element, path+"["+strconv.Itoa(i)+"]")
		}
	case map[string]any:
		if element, ok := strings.CutPrefix(typeName, "map[string]"); ok {
			for _, key := range slices.Sorted(maps.Keys(value)) {
				w.descend(value[key], element, path+"["+strconv.Quote(key)+"]")
			}
			return
		}
		w.walk(value, typeName, path)
	}
}

// implied reports whether a field says what a server without it does anyway: by its own value, or by those of all its
// fields.
func implied(value any, typeName, field string) bool {
	if kubever.Implied(typeName, field, fmt.Sprint(value)) {
		return true
	}
	since := kubever.Field(typeName, field)
	object, ok := value.(map[string]any)
	if !ok || len(object) == 0 || len(since) == 0 {
		return false
	}
	child := kubever.FieldType(typeName, field, lastOf(since))
	for name, inner := range object {
		if !implied(inner, child, name) {
			return false
		}
	}
	return true
}

func (f *fieldFacts) of(at fieldAt) fieldFact {
	if fact, ok := f.known.Load(at); ok {
		return fact.(fieldFact)
	}
	fact := fieldFact{since: kubever.Field(at.typeName, at.field),
		child: kubever.FieldType(at.typeName, at.field, at.minor)}
	fact.native = len(fact.since) > 0
	fact.known = fact.since.Has(at.minor)
	if fact.native {
		f.known.Store(at, fact)
	}
	return fact
}

// saysNothing reports whether a value says nothing: null, or an object or list of nothing. "", 0 and false say
// something.
func saysNothing(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, v := range value {
			if !saysNothing(v) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	default:
		return false
	}
}
