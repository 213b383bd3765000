package restart

import (
	"reflect"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// dumper hashes the text that go-spew's %#v gives for a v1.Container of some minor:
//
//	(v1.Container){Name:(string)app Image:(string)busybox Command:([]string)<nil> ...}
//
// A field has its type before its value; an element of a slice or a map has none. Strings stand as they are. Nil is
// <nil>.
//
// With a source of API the container is dumped as it is after the trip from the API server to the kubelet, which is a
// protobuf message: a slice or map without elements is nil, and a quantity was parsed from its canonical text, on which
// the other fields that it has depend.
type dumper struct {
	source   Source
	state    uint32
	keep     bool
	kept     []byte            // the text, if it is to be kept
	quantity resource.Quantity // the one that is being dumped
}

// dumpContainer hashes a container as the minor knows it. It returns the text only if it is to be kept.
func dumpContainer(c *v1.Container, f form, keep bool) (uint32, []byte, error) {
	t := tables()[f.minor]
	if t.err != nil {
		return 0, nil, t.err
	}
	d := &dumper{source: f.source, state: fnvOffset, keep: keep}
	d.text("(v1.Container)")
	d.value(t.container, reflect.ValueOf(c).Elem())
	return d.state, d.kept, nil
}

func (d *dumper) segment(s *segment) {
	d.state = s.after(d.state)
	if d.keep {
		d.kept = append(d.kept, s.text...)
	}
}

func (d *dumper) text(s string) {
	d.state = fnvText(d.state, s)
	if d.keep {
		d.kept = append(d.kept, s...)
	}
}

// value dumps a value without its type.
func (d *dumper) value(n *node, v reflect.Value) {
	switch n.shape {
	case stringShape:
		d.text(v.String())
	case boolShape:
		d.text(strconv.FormatBool(v.Bool()))
	case intShape:
		d.text(strconv.FormatInt(v.Int(), 10))
	case uintShape:
		d.text(strconv.FormatUint(v.Uint(), 10))
	case pointerShape:
		d.value(n.elem, v.Elem()) // field has seen to nil; there are no pointers elsewhere
	case sliceShape:
		d.slice(n, v)
	case quantitiesShape:
		d.quantities(n, v.Interface().(v1.ResourceList))
	case quantityShape:
		d.quantityOf(n, v.Interface().(resource.Quantity))
	default:
		d.fields(n, v)
	}
}

func (d *dumper) fields(n *node, v reflect.Value) {
	for i := range n.fields {
		f := &n.fields[i]
		value := v.Field(f.index)
		if d.isNil(f.node, value) {
			d.segment(f.labelNil)
			continue
		}
		d.segment(f.label)
		d.value(f.node, value)
	}
	d.text("}")
}

// isNil reports whether the kubelet held nil.
func (d *dumper) isNil(n *node, v reflect.Value) bool {
	switch n.shape {
	case pointerShape:
		return v.IsNil()
	case sliceShape, quantitiesShape:
		return v.IsNil() || v.Len() == 0 && d.source == API
	default:
		return false
	}
}

func (d *dumper) slice(n *node, v reflect.Value) {
	d.text("[")
	for i := range v.Len() {
		if i > 0 {
			d.text(" ")
		}
		d.value(n.elem, v.Index(i))
	}
	d.text("]")
}

func (d *dumper) quantities(n *node, list v1.ResourceList) {
	d.text("map[")
	for i, name := range sortedNames(list) {
		if i > 0 {
			d.text(" ")
		}
		d.text(string(name))
		d.text(":")
		d.quantityOf(n.elem, list[name])
	}
	d.text("]")
}

func sortedNames(list v1.ResourceList) []v1.ResourceName {
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (d *dumper) quantityOf(n *node, q resource.Quantity) {
	d.quantity = q
	if d.source == API {
		d.quantity = received(q)
	}
	d.fields(n, reflect.ValueOf(&d.quantity).Elem())
}

// received is the quantity that a kubelet holds after reading it from the API server.
func received(q resource.Quantity) resource.Quantity {
	parsed, err := resource.ParseQuantity(q.String()) // q is a copy: String caches its text
	if err != nil {
		return q // canonical text parses; what does not was never sent
	}
	return parsed
}
