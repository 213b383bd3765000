package restart

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

//go:embed fields.txt
var fieldsText string

// row is one field of one Go type, for a range of minors.
type row struct {
	name   string // as in the struct, which is how a dump prints it
	typ    string // as reflection prints it: []v1.EnvVar
	tag    string // JSON: name,omitempty
	minors kubever.Range
}

// rows maps the name of a type to its fields, in the order of the struct.
type rows map[string][]row

// parseRows reads fields.txt, which is part of the program: a mistake in it is ours.
func parseRows(text string) rows {
	table := rows{}
	typ := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case len(words) == 1:
			typ = words[0]
		case len(words) == 3 || len(words) == 4:
			r := row{name: words[0], typ: words[1], tag: words[2],
				minors: kubever.Range{From: kubever.Oldest, To: kubever.Newest}}
			if len(words) == 4 {
				r.minors = parseRange(words[3])
			}
			table[typ] = append(table[typ], r)
		default:
			panic(fmt.Sprintf("restart: internal error: fields.txt: %q", line))
		}
	}
	return table
}

// parseRange reads "1.9" (and later) or "1.6-1.22".
func parseRange(text string) kubever.Range {
	first, last, closed := strings.Cut(text, "-")
	span := kubever.Range{To: kubever.Newest}
	err := span.From.UnmarshalText([]byte(first))
	if err == nil && closed {
		err = span.To.UnmarshalText([]byte(last))
	}
	if err != nil {
		panic("restart: internal error: fields.txt: " + err.Error())
	}
	return span
}

// shape says how a node prints a value.
type shape int

const (
	stringShape shape = iota
	intShape
	uintShape
	boolShape
	pointerShape
	sliceShape
	structShape
	quantityShape    // a struct in a dump, text in JSON
	quantitiesShape  // a map of quantities
	intOrStringShape // a struct in a dump, a number or a string in JSON
)

// node is a type of one minor, laid over the Go type that holds the values today.
type node struct {
	shape  shape
	typ    string  // as a dump prints it, without the parentheses
	elem   *node   // of a pointer, a slice or a map
	fields []field // of a struct
}

// field is a field of a struct that the minor has.
type field struct {
	index       int // in the Go type of today
	node        *node
	label       *segment // of a dump: " Image:(string)"
	labelNil    *segment // of a dump, with the value: " Command:([]string)<nil>"
	name        string   // JSON; "" for an embedded struct, whose fields JSON shows in its place
	key         string   // JSON, with the comma before and the colon after: ,"image":
	keyDecimals *segment // how a dump of the JSON shows it
	omitEmpty   bool
	since       kubever.Minor
}

// table is v1.Container as a minor knows it, or why that cannot be told.
type table struct {
	container *node
	err       error
}

// tables holds one for each minor. Minors between two changes share one. They are decoded for the first hash
// that is computed: a verb that needs none does not pay for them.
var tables = sync.OnceValue(decodeTables)

func decodeTables() map[kubever.Minor]table {
	all := parseRows(fieldsText)
	changed := map[kubever.Minor]bool{kubever.Oldest: true}
	for _, fields := range all {
		for _, r := range fields {
			changed[r.minors.From] = true
			changed[r.minors.To+1] = true
		}
	}
	decoded := map[kubever.Minor]table{}
	segments := map[string]*segment{}
	for _, minor := range kubever.Minors() {
		if !changed[minor] {
			decoded[minor] = decoded[minor-1]
			continue
		}
		c := compiler{rows: all, minor: minor, nodes: map[nodeKey]*node{}, segments: segments}
		decoded[minor] = table{c.node("v1.Container", reflect.TypeFor[v1.Container]()), c.err}
	}
	return decoded
}

type nodeKey struct {
	typ string
	now reflect.Type
}

type compiler struct {
	rows     rows
	minor    kubever.Minor
	nodes    map[nodeKey]*node
	segments map[string]*segment // by text, for all minors
	err      error               // the Go type of today is older than the minor
}

func (c *compiler) segment(text string) *segment {
	s := c.segments[text]
	if s == nil {
		s = &segment{text: text}
		c.segments[text] = s
	}
	return s
}

// node lays the type that the minor called typ over the Go type of today.
func (c *compiler) node(typ string, now reflect.Type) *node {
	key := nodeKey{typ, now}
	if n := c.nodes[key]; n != nil {
		return n
	}
	n := &node{typ: typ}
	c.nodes[key] = n
	switch now.Kind() {
	case reflect.String:
		n.shape = stringShape
	case reflect.Bool:
		n.shape = boolShape
	case reflect.Int, reflect.Int32, reflect.Int64:
		n.shape = intShape
	case reflect.Uint: // big.Word
		n.shape = uintShape
	case reflect.Pointer:
		n.shape, n.elem = pointerShape, c.node(strings.TrimPrefix(typ, "*"), now.Elem())
	case reflect.Slice:
		n.shape, n.elem = sliceShape, c.node(strings.TrimPrefix(typ, "[]"), now.Elem())
	case reflect.Map:
		n.shape, n.elem = quantitiesShape, c.node("resource.Quantity", now.Elem())
	case reflect.Struct:
		n.shape = structShape
		for _, r := range c.rows[typ] {
			if r.minors.Has(c.minor) {
				c.addField(n, r, now)
			}
		}
	default:
		panic(fmt.Sprintf("restart: internal error: %s is a %s", typ, now.Kind()))
	}
	switch now {
	case reflect.TypeFor[resource.Quantity]():
		n.shape = quantityShape
	case reflect.TypeFor[intstr.IntOrString]():
		n.shape = intOrStringShape
	}
	return n
}

// addField lays a row over a field of the Go type of today, and adds it to the node of the type.
func (c *compiler) addField(n *node, r row, now reflect.Type) {
	name, options, _ := strings.Cut(r.tag, ",")
	at, ok := now.FieldByName(r.name)
	if !ok && options == "inline" {
		at, ok = embeddedField(now) // Handler is ProbeHandler and LifecycleHandler since 1.23
	}
	if !ok {
		c.err = fmt.Errorf("kubelet %s: the k8s.io/api that this program is built with is too old, its %s has no %s",
			c.minor, now, r.name)
		return
	}
	label := " " + r.name + ":(" + r.typ + ")"
	if len(n.fields) == 0 {
		label = "{" + label[1:]
	}
	key := `,"` + name + `":`
	n.fields = append(n.fields, field{
		index:       at.Index[0],
		node:        c.node(r.typ, at.Type),
		label:       c.segment(label),
		labelNil:    c.segment(label + "<nil>"),
		name:        name,
		key:         key,
		keyDecimals: c.segment(decimalsOf(key)),
		omitEmpty:   options == "omitempty",
		since:       r.minors.From,
	})
}

// embeddedField is the one embedded field of a struct.
func embeddedField(now reflect.Type) (reflect.StructField, bool) {
	for f := range now.Fields() {
		if f.Anonymous {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
