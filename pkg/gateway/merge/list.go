package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

type listMeta struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Continue        string `json:"continue,omitempty"`
	Remaining       *int64 `json:"remainingItemCount,omitempty"`
}

// item is an object of a list, or a row of a Table.
type item struct {
	text            json.RawMessage
	namespace, name string
	side            pair.Side
	at              places // of an object; those of a row are not looked for
}

// before is the order of objects: that of API servers, by the keys of their stores.
func (i *item) before(other *item) bool {
	if i.namespace == other.namespace {
		return i.name < other.name
	}
	return i.namespace+"/" < other.namespace+"/"
}

// metaOf is the metadata of a list of both sides, or of what still comes of one from a token; the zero token is that of
// a list that begins.
func metaOf(of map[pair.Side]*listMeta, token Token) listMeta {
	next, remaining := Token{Version: token.Version}, new(int64)
	for side, meta := range of {
		if token == (Token{}) {
			next.Version = next.Version.With(side, meta.ResourceVersion)
		}
		if side == pair.Legacy {
			next.Legacy = meta.Continue
		} else {
			next.Modern = meta.Continue
		}
		switch {
		case meta.Continue == "" || remaining == nil:
		case meta.Remaining == nil: // the side does not say how many are to come
			remaining = nil
		default:
			*remaining += *meta.Remaining
		}
	}
	meta := listMeta{ResourceVersion: next.Version.String(), Continue: next.String()}
	if meta.Continue != "" {
		meta.Remaining = remaining
	}
	return meta
}

// Table is one side's answer to a list that is asked for as a Table.
type Table struct {
	side   pair.Side
	fields fields
	rows   []item
	meta   listMeta
}

const (
	// shownBytes is about by how much an object is longer when it names its side.
	shownBytes = 128
	// cellBytes is what a cell takes that a side's table does not have.
	cellBytes = int64(len(`"<unknown>",`))
	// limitObjectBytes bounds an object of a list, of which each field is looked at.
	limitObjectBytes = 16 << 20
)

// MergedBytes is about what Tables makes of the tables.
func MergedBytes(tables []*Table) int64 {
	size, rows, columns := int64(0), int64(0), Columns{}
	for _, t := range tables {
		for _, row := range t.rows {
			size += int64(len(row.text)) + shownBytes
		}
		rows += int64(len(t.rows))
		_ = columns.add(t.side, t.fields) // Tables says what is wrong with them
	}
	return size + rows*int64(len(columns.all))*cellBytes
}

// ParseTable reads an answer. Errors: no Table.
func ParseTable(text Text, side pair.Side) (*Table, error) {
	all, err := members(text.json)
	if err != nil {
		return nil, err
	}
	t := &Table{side: side, fields: all}
	metadata, rows := t.fields["metadata"], t.fields["rows"]
	if kind := t.fields.text("kind"); kind != "Table" || metadata == nil || rows == nil {
		return nil, fmt.Errorf("a %q with fields %v: want a Table with metadata and rows", kind,
			slices.Sorted(maps.Keys(t.fields)))
	}
	if err := json.Unmarshal(metadata, &t.meta); err != nil {
		return nil, err
	}
	texts, err := elements(rows)
	if err != nil {
		return nil, err
	}
	delete(t.fields, "rows")
	t.rows = make([]item, len(texts))
	for i, text := range texts {
		if len(text) > limitObjectBytes {
			return nil, fmt.Errorf("a row has more than %d bytes", limitObjectBytes)
		}
		var row struct{ Object Meta }
		if err := json.Unmarshal(text, &row); err != nil {
			return nil, err
		}
		t.rows[i] = item{text: text, side: side, namespace: row.Object.Metadata.Namespace,
			name: row.Object.Metadata.Name}
	}
	return t, nil
}

// Tables makes one Table of those of both sides, or of the one that still goes on from a token; the zero token is that
// of a list that begins. Rows are in the order of the namespaces and names of their objects.
// Errors: columns that cannot be, objects that cannot be read.
func Tables(tables []*Table, token Token) ([]byte, error) {
	first := tables[len(tables)-1] // the modern side's, where it is one of them
	var rows []item
	metas, columns := map[pair.Side]*listMeta{}, Columns{}
	for _, t := range tables {
		rows, metas[t.side] = append(rows, t.rows...), &t.meta
	}
	for _, t := range slices.Backward(tables) {
		if err := columns.add(t.side, t.fields); err != nil {
			return nil, err
		}
	}
	if columns.all != nil {
		first.fields["columnDefinitions"] = encode(columns.all)
	}
	slices.SortStableFunc(rows, func(a, b item) int {
		switch {
		case a.before(&b):
			return -1
		case b.before(&a):
			return 1
		}
		return 0
	})
	first.fields["metadata"] = encode(metaOf(metas, token))
	// The rows are written once: a list may have a hundred megabytes.
	out := append(make([]byte, 0, MergedBytes(tables)), bytes.TrimSuffix(encode(first.fields), []byte("}"))...)
	out = append(out, `,"rows":[`...)
	for i, row := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		shown, err := columns.listed(row)
		if err != nil {
			return nil, fmt.Errorf("%s/%s of the %s side: %w", row.namespace, row.name, row.side, err)
		}
		out = append(out, shown...)
	}
	return append(out, "]}"...), nil
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
