package restart

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// explain says why kubelets of two minors compute different hashes for a container.
func explain(container *v1.Container, from, to kubever.Minor) []string {
	before, err := algorithmOf(from)
	if err != nil {
		return nil
	}
	after, err := algorithmOf(to)
	if err != nil {
		return nil
	}
	if before != after {
		changed := after.of.Minors()[0].From
		if to < from {
			changed = after.of.Minors()[0].To
		}
		return []string{fmt.Sprintf("the %s kubelet hashes %s instead of %s", changed, after.what, before.what)}
	}
	if before.counts == noFields {
		return nil
	}
	e := explainer{counts: before.counts}
	e.compare("", tables()[from].container, tables()[to].container, reflect.ValueOf(container).Elem())
	slices.SortStableFunc(e.reasons, func(a, b reason) int { return cmp.Compare(a.since, b.since) })
	why := make([]string, len(e.reasons))
	for i, r := range e.reasons {
		why[i] = r.text
	}
	return why
}

// explainer walks a container with the types of two minors.
type explainer struct {
	counts  which
	reasons []reason
}

type reason struct {
	since kubever.Minor
	text  string
}

func (e *explainer) compare(path string, before, after *node, v reflect.Value) {
	if before == after {
		return
	}
	switch after.shape {
	case pointerShape:
		if !v.IsNil() {
			e.compare(path, before.elem, after.elem, v.Elem())
		}
	case sliceShape:
		for i := range v.Len() {
			e.compare(path, before.elem, after.elem, v.Index(i))
		}
	case structShape:
		e.compareFields(path, before, after, v)
	}
}

func (e *explainer) compareFields(path string, before, after *node, v reflect.Value) {
	for i := range after.fields {
		f := &after.fields[i]
		value := v.Field(f.index)
		if old := before.field(f.index); old != nil {
			e.compare(join(path, f.name), old.node, f.node, value)
			continue
		}
		e.differs(path, f, value)
	}
	for i := range before.fields {
		if f := &before.fields[i]; after.field(f.index) == nil {
			e.differs(path, f, v.Field(f.index))
		}
	}
}

// differs notes a field that one of the two minors does not have.
func (e *explainer) differs(path string, f *field, value reflect.Value) {
	var why string
	switch {
	case e.counts == setFields && f.omitEmpty && isEmpty(value):
		return
	case e.counts == setFields:
		why = fmt.Sprintf("%s set: new in %s", join(path, f.name), f.since)
	case path == "":
		why = fmt.Sprintf("every container: %s is new in %s", f.name, f.since)
	default:
		why = fmt.Sprintf("%s set: %s is new in %s", path, f.name, f.since)
	}
	// it may be that of another element of the same list
	if r := (reason{f.since, why}); !slices.Contains(e.reasons, r) {
		e.reasons = append(e.reasons, r)
	}
}

// field finds a field by its place in the Go type of today.
func (n *node) field(index int) *field {
	for i := range n.fields {
		if n.fields[i].index == index {
			return &n.fields[i]
		}
	}
	return nil
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}
