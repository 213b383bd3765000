package cli

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
)

// changesShown is how many changes of defaults, and fields that are written, are told one by one.
const changesShown = 20

// defaultChanges reports defaults that are others in the wanted version, and those that are written because it
// requires them. They are the same few fields in every object of a kind: the first are told one by one, the rest is
// kept by kind and field, and summed up at the end.
type defaultChanges struct {
	told int
	rest map[changedField]*changedObjects
}

// changedField is a field of a kind, whatever element of a list it is in.
type changedField struct{ kind, path string }

type changedObjects struct {
	first stream.Converted
	path  string
	what  string
	last  int // the number of the object that was counted last: one may have the field several times
	count int
}

var elementPattern = regexp.MustCompile(`\[[0-9]+\]`)

// tell prints what becomes of a field, or keeps it for the end. number is that of the object.
func (d *defaultChanges) tell(w io.Writer, row stream.Converted, number int, path, what string) {
	if d.told < changesShown {
		d.told++
		visible.Fprintf(w, "%s: %s: %s %s\n", row.Place(), row, path, what)
		return
	}
	field := changedField{row.From, elementPattern.ReplaceAllString(path, "[]")}
	objects := d.rest[field]
	if objects == nil {
		if d.rest == nil {
			d.rest = map[changedField]*changedObjects{}
		}
		row.Losses, row.Changes = nil, nil // they are told
		objects = &changedObjects{first: row, path: path, what: what}
		d.rest[field] = objects
	}
	if objects.last != number {
		objects.last = number
		objects.count++
	}
}

// sumUp prints what was kept.
func (d *defaultChanges) sumUp(w io.Writer) {
	if len(d.rest) == 0 {
		return
	}
	fields := make([]changedField, 0, len(d.rest))
	for field := range d.rest {
		fields = append(fields, field)
	}
	slices.SortFunc(fields, func(a, b changedField) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.path, b.path))
	})
	visible.Fprintf(w, "further fields that are written or whose defaults change, by kind and field; --report names "+
		"every object, --defaults writes such defaults out:\n")
	for _, field := range fields {
		o := d.rest[field]
		more := ""
		if o.count > 1 {
			more = fmt.Sprintf(" and %s more", prose.Counted(o.count-1, "object"))
		}
		visible.Fprintf(w, "%s: %s%s: %s %s\n", o.first.Place(), o.first, more, o.path, o.what)
	}
}
