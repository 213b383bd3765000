package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// List is one side's answer to a list: of objects, of their metadata alone, or a Table.
type List struct {
	Side   pair.Side
	fields fields
	items  []item
	meta   listMeta
}

type listMeta struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Continue        string `json:"continue,omitempty"`
	Remaining       *int64 `json:"remainingItemCount,omitempty"`
}

type item struct {
	text            json.RawMessage
	namespace, name string
	side            pair.Side
	at              places // of an object; those of a row are not looked for
}

const (
	// shownBytes is about by how much an object is longer when it names its side.
	shownBytes = 128
	// cellBytes is what a cell takes that a side's table does not have.
	cellBytes = int64(len(`"<unknown>",`))
	// limitObjectBytes bounds an object of a list, of which each field is looked at.
	limitObjectBytes = 16 << 20
)

// MergedBytes is about what Lists makes of the lists.
func MergedBytes(lists []*List) int64 {
	size, rows, columns := int64(0), int64(0), Columns{}
	for _, l := range lists {
		for _, it := range l.items {
			size += int64(len(it.text)) + shownBytes
		}
		if l.IsTable() {
			rows += int64(len(l.items))
			_ = columns.add(l.Side, l.fields) // Lists says what is wrong with them
		}
	}
	return size + rows*int64(len(columns.all))*cellBytes
}

// ParseList reads an answer. Errors: no list.
func ParseList(text Text, side pair.Side) (*List, error) {
	all, err := members(text.json)
	if err != nil {
		return nil, err
	}
	l := &List{Side: side, fields: all}
	metadata, ok := l.fields["metadata"]
	if !ok {
		return nil, errors.New("a list without metadata")
	}
	if err := json.Unmarshal(metadata, &l.meta); err != nil {
		return nil, err
	}
	raw, ok := l.fields[l.array()]
	if !ok {
		return nil, fmt.Errorf("a %q without %s", l.fields.text("kind"), l.array())
	}
	items, err := elements(raw)
	if err != nil {
		return nil, err
	}
	delete(l.fields, l.array())
	l.items = make([]item, len(items))
	rows := l.IsTable()
	for i, text := range items {
		if len(text) > limitObjectBytes {
			return nil, fmt.Errorf("an object has more than %d bytes", limitObjectBytes)
		}
		if l.items[i], err = l.item(text, rows); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// item is an object of the list, or a row of a Table.
func (l *List) item(text json.RawMessage, row bool) (item, error) {
	it := item{text: text, side: l.Side}
	if !row {
		if it.at = find(text); it.at.usual {
			it.namespace, it.name = it.at.namespace, it.at.name
			return it, nil
		}
	}
	object := text
	if row {
		var in struct{ Object json.RawMessage }
		if err := json.Unmarshal(text, &in); err != nil {
			return it, err
		}
		object = in.Object
	}
	var meta Meta
	if object != nil {
		if err := json.Unmarshal(object, &meta); err != nil {
			return it, err
		}
	}
	it.namespace, it.name = meta.Metadata.Namespace, meta.Metadata.Name
	return it, nil
}

// IsTable reports whether the answer is a Table.
func (l *List) IsTable() bool { return l.fields.text("kind") == "Table" }

func (l *List) array() string {
	if l.IsTable() {
		return "rows"
	}
	return "items"
}

// Len is the number of objects.
func (l *List) Len() int { return len(l.items) }

// ResourceVersion and Continue are the side's own.
func (l *List) ResourceVersion() string { return l.meta.ResourceVersion }
func (l *List) Continue() string        { return l.meta.Continue }

// Lists makes one list of those of both sides, or of the one that still goes on. version is that of the whole list;
// further is where it goes on. Objects are in the order of their namespaces and names.
// Errors: lists of two forms, objects that cannot be read.
func Lists(lists []*List, version Version, further Token) ([]byte, error) {
	first := lists[len(lists)-1] // the modern side's, where it is one of them
	var items []item
	for _, l := range lists {
		if l.IsTable() != first.IsTable() || l.fields.text("kind") != first.fields.text("kind") {
			return nil, fmt.Errorf("one side answers with a %s, the other with a %s", first.fields.text("kind"),
				l.fields.text("kind"))
		}
		items = append(items, l.items...)
	}
	columns := Columns{}
	for _, l := range slices.Backward(lists) {
		if err := columns.add(l.Side, l.fields); err != nil {
			return nil, err
		}
	}
	if first.IsTable() && columns.all != nil {
		first.fields["columnDefinitions"] = encode(columns.all)
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	meta := listMeta{ResourceVersion: version.String(), Continue: further.String()}
	if meta.Continue != "" {
		meta.Remaining = remaining(lists)
	}
	first.fields["metadata"] = encode(meta)
	// The objects are written once: a list may have a hundred megabytes.
	out := append(make([]byte, 0, MergedBytes(lists)), bytes.TrimSuffix(encode(first.fields), []byte("}"))...)
	out = fmt.Appendf(out, ",%q:[", first.array())
	for i, it := range items {
		if i > 0 {
			out = append(out, ',')
		}
		if it.at.asItStands() {
			out = it.at.shown(out, it.text, it.side, Version{})
			continue
		}
		var shown []byte
		var err error
		if first.IsTable() {
			shown, err = columns.listed(it)
		} else {
			shown, _, err = Read(it.text, it.side, Version{})
		}
		if err != nil {
			return nil, fmt.Errorf("%s/%s of the %s side: %w", it.namespace, it.name, it.side, err)
		}
		out = append(out, shown...)
	}
	return append(out, "]}"...), nil
}

// remaining is the number of objects that are still to come; nil where a side does not say it.
func remaining(lists []*List) *int64 {
	var sum int64
	for _, l := range lists {
		switch {
		case l.meta.Continue == "":
		case l.meta.Remaining == nil:
			return nil
		default:
			sum += *l.meta.Remaining
		}
	}
	return &sum
}

// Columns are those of the tables of both sides. The zero value has none.
type Columns struct {
	all []column // as clients see them: those of the side that came first, and in lists those that only the other has
	own map[pair.Side][]column
}

const (
	// limitColumns bounds the columns of a side's table: the rows of both sides get a cell for each.
	limitColumns = 256
	// limitColumnBytes bounds their definitions.
	limitColumnBytes = 1 << 20
	// limitRows bounds a Table that is no list: API servers send one row with an event.
	limitRows = 1000
)

// column is a column of a Table.
type column struct {
	name string
	text fields
}

func (c *column) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &c.text); err != nil {
		return err
	}
	c.name = c.text.text("name")
	return nil
}

func (c column) MarshalJSON() ([]byte, error) { return encode(c.text), nil }

func indexOf(columns []column, name string) int {
	return slices.IndexFunc(columns, func(c column) bool { return c.name == name })
}

// add takes the columns that a side's table defines, if it defines any: the second page of a list does not.
func (c *Columns) add(side pair.Side, table fields) error {
	own, err := c.take(side, table)
	for _, each := range own {
		if indexOf(c.all, each.name) < 0 {
			c.all = append(c.all, each)
		}
	}
	return err
}

func (c *Columns) take(side pair.Side, table fields) ([]column, error) {
	raw, ok := table["columnDefinitions"]
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > limitColumnBytes {
		return nil, fmt.Errorf("columnDefinitions have more than %d bytes", limitColumnBytes)
	}
	var own []column
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, fmt.Errorf("columnDefinitions: %w", err)
	}
	if len(own) > limitColumns {
		return nil, fmt.Errorf("%d columns, more than %d", len(own), limitColumns)
	}
	if c.own == nil {
		c.own = map[pair.Side][]column{}
	}
	c.own[side] = own
	return own, nil
}

// Event is an event's Table as Read shows it, with the columns of the tables that came before.
func (c *Columns) Event(table []byte, side pair.Side) ([]byte, error) {
	var f fields
	if err := json.Unmarshal(table, &f); err != nil || f.text("kind") != "Table" {
		return table, err
	}
	own, err := c.take(side, f)
	if err != nil {
		return nil, err
	}
	if c.all == nil {
		c.all = own
	} else {
		delete(f, "columnDefinitions")
	}
	var rows []fields
	if err := json.Unmarshal(f["rows"], &rows); err != nil {
		return nil, fmt.Errorf("rows: %w", err)
	}
	for _, row := range rows {
		if err := c.arrange(row, side); err != nil {
			return nil, err
		}
	}
	f["rows"] = encode(rows)
	return encode(f), nil
}

// unknownCell stands where the side of a row has no such column.
const unknownCell = "<unknown>"

// arrange puts the cells of a side's row below the columns of all.
func (c *Columns) arrange(row fields, side pair.Side) error {
	var cells []json.RawMessage
	if err := json.Unmarshal(row["cells"], &cells); err != nil {
		return fmt.Errorf("cells: %w", err)
	}
	own := c.own[side]
	if own == nil || c.all == nil {
		return nil
	}
	shown := make([]json.RawMessage, len(c.all))
	for i, each := range c.all {
		shown[i] = encode(unknownCell)
		if j := indexOf(own, each.name); j >= 0 && j < len(cells) {
			shown[i] = cells[j]
		}
	}
	row["cells"] = encode(shown)
	return nil
}

// listed is a row of a list.
func (c *Columns) listed(it item) (json.RawMessage, error) {
	var f fields
	if err := json.Unmarshal(it.text, &f); err != nil {
		return nil, err
	}
	object, err := f.sub("object")
	if err != nil {
		return nil, err
	}
	if object != nil {
		if _, err := object.read(it.side, Version{}, true); err != nil {
			return nil, err
		}
		f["object"] = encode(object)
	}
	if err := c.arrange(f, it.side); err != nil {
		return nil, err
	}
	return encode(f), nil
}
