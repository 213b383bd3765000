package cli

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/stream"
)

// changesShown is how many changes of defaults are told one by one.
const changesShown = 20

// defaultChanges tells of defaults that are others in the wanted version. They are the same few fields in every object
// of a kind: the first are told one by one, the rest is kept by kind and field, and summed up at the end.
type defaultChanges struct {
	told int
	rest map[changedField]*changedObjects
}

// changedField is a field of a kind, whatever element of a list it is in.
type changedField struct{ kind, path string }

type changedObjects struct {
	first stream.Converted
	loss  convert.Loss
	last  int // the number of the object that was counted last: one may have the field several times
	count int
}

var elementPattern = regexp.MustCompile(`\[[0-9]+\]`)

// tell prints a change, or keeps it for the end. number is that of the object.
func (d *defaultChanges) tell(w io.Writer, row stream.Converted, number int, loss convert.Loss) {
	if d.told < changesShown {
		d.told++
		visible.Fprintf(w, "%s: %s: %s changes: %s\n", row.Place(), row, loss.Path, loss.Meaning)
		return
	}
	field := changedField{row.From, elementPattern.ReplaceAllString(loss.Path, "[]")}
	objects := d.rest[field]
	if objects == nil {
		if d.rest == nil {
			d.rest = map[changedField]*changedObjects{}
		}
		row.Losses = nil // the other losses are told
		objects = &changedObjects{first: row, loss: loss}
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
	visible.Fprintf(w, "further defaults that change, by kind and field; --report names every object, --defaults "+
		"writes them out:\n")
	for _, field := range fields {
		o := d.rest[field]
		more := ""
		if o.count > 1 {
			more = fmt.Sprintf(" and %s more", counted(o.count-1, "object"))
		}
		visible.Fprintf(w, "%s: %s%s: %s changes: %s\n", o.first.Place(), o.first, more, o.loss.Path, o.loss.Meaning)
	}
}
