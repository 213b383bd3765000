package report

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
)

// The picture of the contents, in units of SVG.
const (
	mapWidth  = 1200.0
	mapHeight = 480.0
	mapHead   = 22.0 // of a store
)

type box struct{ x, y, width, height float64 }

// treemap draws the bytes of the resources, store by store, as nested rectangles. A store takes a column as wide as its
// share; resources fill it from the largest on.
func treemap(resources []Stored) string {
	byStore := map[string][]Stored{}
	var stores []string
	total := 0.0
	for _, r := range resources {
		if r.Bytes <= 0 {
			continue
		}
		if len(byStore[r.Store]) == 0 {
			stores = append(stores, r.Store)
		}
		byStore[r.Store] = append(byStore[r.Store], r)
		total += float64(r.Bytes)
	}
	if total == 0 {
		return "<p>The stores are empty.</p>"
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg class="treemap" xmlns="http://www.w3.org/2000/svg" role="img" `+
		`aria-label="Bytes of each resource in each store; the table below has the numbers" viewBox="0 0 %.0f %.0f">`,
		mapWidth, mapHeight)
	x := 0.0
	for _, name := range stores {
		list := byStore[name]
		slices.SortStableFunc(list, func(a, b Stored) int { return -cmp.Compare(a.Bytes, b.Bytes) })
		sum := 0.0
		for _, r := range list {
			sum += float64(r.Bytes)
		}
		width := mapWidth * sum / total
		fmt.Fprintf(&out, `<text x="%.1f" y="15">%s</text>`, x+4, html.EscapeString(clip("store "+name, width)))
		fill(&out, list, sum, box{x, mapHead, width, mapHeight - mapHead})
		x += width
	}
	out.WriteString("</svg>")
	return out.String()
}

// fill lays rectangles into a box, row by row along its shorter side, as long as that makes them squarer.
func fill(out *strings.Builder, list []Stored, sum float64, b box) {
	for len(list) > 0 {
		short := min(b.width, b.height)
		scale := b.width * b.height / sum
		n, area := 1, float64(list[0].Bytes)*scale
		for n < len(list) {
			next := area + float64(list[n].Bytes)*scale
			if worst(list[:n+1], scale, next, short) > worst(list[:n], scale, area, short) {
				break
			}
			n, area = n+1, next
		}
		thick := area / short
		at := 0.0
		for _, r := range list[:n] {
			long := float64(r.Bytes) * scale / thick
			if b.width >= b.height {
				draw(out, r, box{b.x, b.y + at, thick, long})
			} else {
				draw(out, r, box{b.x + at, b.y, long, thick})
			}
			at += long
			sum -= float64(r.Bytes)
		}
		if b.width >= b.height {
			b.x, b.width = b.x+thick, b.width-thick
		} else {
			b.y, b.height = b.y+thick, b.height-thick
		}
		list = list[n:]
	}
}

// worst is the largest ratio of the sides of the rectangles of a row.
func worst(row []Stored, scale, area, short float64) float64 {
	thick := area / short
	ratio := 0.0
	for _, r := range row {
		long := float64(r.Bytes) * scale / thick
		ratio = max(ratio, max(long/thick, thick/long))
	}
	return ratio
}

func draw(out *strings.Builder, r Stored, b box) {
	owner := cmp.Or(string(r.Owner), "unknown")
	fmt.Fprintf(out, `<g><title>%s</title><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`,
		html.EscapeString(fmt.Sprintf("%s in store %s: %s in %d keys, owner %s", r.Resource, r.Store, size(r.Bytes),
			r.Keys, owner)), html.EscapeString(owner), b.x, b.y, b.width, b.height)
	if b.height > 18 && b.width > 50 {
		fmt.Fprintf(out, `<text x="%.1f" y="%.1f">%s</text>`, b.x+4, b.y+15,
			html.EscapeString(clip(r.Resource, b.width)))
	}
	out.WriteString("</g>")
}

// clip shortens a text to about the width.
func clip(text string, width float64) string {
	const perCharacter = 7.5
	runes := []rune(text)
	if fits := max(0, int((width-8)/perCharacter)); len(runes) > fits {
		if fits < 3 {
			return ""
		}
		return string(runes[:fits-1]) + "…"
	}
	return text
}
