package graph

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"oss.terrastruct.com/d2/d2ast"
	"oss.terrastruct.com/d2/d2graph"
	"oss.terrastruct.com/d2/d2layouts/d2dagrelayout"
	"oss.terrastruct.com/d2/d2renderers/d2fonts"
	"oss.terrastruct.com/d2/lib/geo"
	"oss.terrastruct.com/d2/lib/textmeasure"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// drawing is a graph laid out on a plane; units are pixels, y grows downwards.
type drawing struct {
	width, height float64
	panels        []panel
	shapes        []shape
	links         []link
}

type rectangle struct{ x, y, width, height float64 }

func (r rectangle) bottom() float64 { return r.y + r.height }

// panel is a side, drawn behind its nodes.
type panel struct {
	rectangle
	side Side
}

// shape is a node with its text.
type shape struct {
	rectangle
	node  Node
	lines []string // the first is the title
}

// link is an edge. It leaves the right border of a shape at y1, runs below its label and enters the left border of
// another at y2.
type link struct {
	x1, y1, x2, y2 float64
	label          rectangle
	lines          []string
	within         pair.Side // the panel in which it runs, "" when it leaves one
}

// Sizes, in pixels.
const (
	fontSize    = 14
	lineHeight  = 20
	shapePad    = 16 // around the text of a shape
	cylinderLid = 12 // half the height of the ellipse
	margin      = 20
	panelHead   = 20 // room for the title of a panel, beyond its padding
	labelPad    = 6  // above and below a label
	gap         = 30 // between shapes of a column, at least
)

// place lays the graph out from left to right. Dagre, as d2 carries it, places the shapes and the labels, which it is
// shown as shapes too: so no label lies on another.
func place(ctx context.Context, g Graph) (*drawing, error) {
	ruler, err := textmeasure.NewRuler()
	if err != nil {
		return nil, fmt.Errorf("loading the fonts that text is measured with: %w", err)
	}
	p := placer{ruler: ruler, root: d2graph.NewGraph().Root}
	p.root.Direction.Value = "right"
	d := &drawing{}
	for _, side := range g.Sides {
		p.add(rectangle{}, string(side.Name))
		d.panels = append(d.panels, panel{side: side})
	}
	for _, n := range g.Nodes {
		s := shape{node: n, lines: n.text(textWidth)}
		s.width = p.width(s.lines) + 2*shapePad
		s.height = lineHeight*float64(len(s.lines)) + 2*shapePad
		if n.Rank == Store {
			s.height += 2 * cylinderLid
		}
		p.add(s.rectangle, nodePath(n)...)
		d.shapes = append(d.shapes, s)
	}
	for i, e := range g.Edges {
		from, to := g.node(e.From), g.node(e.To)
		l := link{lines: wrap(e.Label, textWidth)}
		if from.Side == to.Side {
			l.within = from.Side
		}
		// the line is in its middle
		l.label = rectangle{width: p.width(l.lines), height: 2 * (lineHeight*float64(len(l.lines)) + labelPad)}
		p.add(l.label, labelPath(i, l)...)
		if err := p.connect(nodePath(from), labelPath(i, l), nodePath(to)); err != nil {
			return nil, err
		}
		d.links = append(d.links, l)
	}
	if err := d2dagrelayout.Layout(ctx, p.root.Graph,
		&d2dagrelayout.ConfigurableOpts{NodeSep: gap, EdgeSep: gap}); err != nil {
		return nil, fmt.Errorf("laying out the graph: %w", err)
	}

	for i, side := range g.Sides {
		r := p.placed(string(side.Name))
		d.panels[i].rectangle = rectangle{r.x, r.y - panelHead, r.width, r.height + panelHead}
	}
	for i, n := range g.Nodes {
		d.shapes[i].rectangle = p.placed(nodePath(n)...)
	}
	for i, l := range d.links {
		d.links[i].label = p.placed(labelPath(i, l)...)
		d.links[i].label.height /= 2
	}
	d.crop()
	d.dock(g)
	return d, nil
}

func nodePath(n Node) []string { return within(n.Side, n.ID) }

func labelPath(i int, l link) []string { return within(l.within, fmt.Sprintf("label_%d", i)) }

func within(side pair.Side, id string) []string {
	if side == "" {
		return []string{id}
	}
	return []string{string(side), id}
}

// placer holds the graph in the terms of d2. A path is a panel's name and an ID, or an ID outside the panels.
type placer struct {
	ruler *textmeasure.Ruler
	root  *d2graph.Object
}

func (p *placer) object(path ...string) *d2graph.Object { return p.root.EnsureChild(keys(path)) }

func keys(path []string) []d2ast.String {
	var keys []d2ast.String
	for _, id := range path {
		keys = append(keys, d2ast.FlatUnquotedString(id))
	}
	return keys
}

func (p *placer) add(size rectangle, path ...string) {
	p.object(path...).Box = geo.NewBox(nil, size.width, size.height)
}

// connect draws a line through the objects.
func (p *placer) connect(paths ...[]string) error {
	for i := 1; i < len(paths); i++ {
		if _, err := p.root.Connect(keys(paths[i-1]), keys(paths[i]), false, true, ""); err != nil {
			return fmt.Errorf("connecting %v with %v: %w", paths[i-1], paths[i], err)
		}
	}
	return nil
}

func (p *placer) placed(path ...string) rectangle {
	box := p.object(path...).Box
	return rectangle{math.Round(box.TopLeft.X), math.Round(box.TopLeft.Y), math.Round(box.Width),
		math.Round(box.Height)}
}

// width is that of the longest line, with room for fonts that are wider than the one that it is measured with.
func (p *placer) width(lines []string) float64 {
	longest := 0
	for _, line := range lines {
		width, _ := p.ruler.Measure(d2fonts.SourceSansPro.Font(fontSize, d2fonts.FONT_STYLE_BOLD), line)
		longest = max(longest, width)
	}
	return math.Ceil(float64(longest) * 1.2)
}

// crop moves the drawing to the upper left corner and measures it.
func (d *drawing) crop() {
	var all []*rectangle
	for i := range d.panels {
		all = append(all, &d.panels[i].rectangle)
	}
	for i := range d.shapes {
		all = append(all, &d.shapes[i].rectangle)
	}
	for i := range d.links {
		all = append(all, &d.links[i].label)
	}
	left, top := math.Inf(1), math.Inf(1)
	for _, r := range all {
		left, top = min(left, r.x), min(top, r.y)
	}
	for _, r := range all {
		r.x, r.y = r.x-left+margin, r.y-top+margin
		d.width, d.height = max(d.width, r.x+r.width+margin), max(d.height, r.y+r.height+margin)
	}
}

// dock ends the links at the borders of the shapes, spread over the height of each in the order of what is at the other
// end.
func (d *drawing) dock(g Graph) {
	for _, s := range d.shapes {
		var out, in []*link
		for i, e := range g.Edges {
			switch s.node.ID {
			case e.From:
				out = append(out, &d.links[i])
			case e.To:
				in = append(in, &d.links[i])
			}
		}
		byLabel := func(a, b *link) int { return cmp.Compare(a.label.bottom(), b.label.bottom()) }
		slices.SortStableFunc(out, byLabel)
		slices.SortStableFunc(in, byLabel)
		for i, l := range out {
			l.x1, l.y1 = s.x+s.width, s.port(i, len(out))
		}
		for i, l := range in {
			l.x2, l.y2 = s.x, s.port(i, len(in))
		}
	}
}

func (r rectangle) port(i, of int) float64 {
	return math.Round(r.y + r.height*float64(i+1)/float64(of+1))
}
