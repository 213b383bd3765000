package graph

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// SVG draws the graph as a picture for a page: SVG 1.1 without scripts or fonts of its own, and with no link but those
// of nodes.
// Errors: the layout failed, which no plan should bring about.
func SVG(ctx context.Context, g Graph) ([]byte, error) {
	d, err := place(ctx, g)
	if err != nil {
		return nil, err
	}
	p := painter{}
	role := "img"
	if slices.ContainsFunc(g.Nodes, func(n Node) bool { return n.Href != "" }) {
		role = "group" // of an img, screen readers do not present the links
	}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" role="%s" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">`+
		"\n", role, d.width, d.height, d.width, d.height)
	p.printf("<title>%s</title>\n", escaped(g.Name))
	p.printf("<style>\n%s</style>\n", style)
	p.printf(`<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">` +
		`<path d="M0,1 10,5 0,9z" fill="#475569"/></marker></defs>` + "\n")
	p.printf(`<rect class="paper" width="%.0f" height="%.0f" rx="8"/>`+"\n", d.width, d.height)
	for _, panel := range d.panels {
		p.panel(panel)
	}
	for _, l := range d.links {
		p.link(l)
	}
	for _, s := range d.shapes {
		p.shape(s)
	}
	for _, l := range d.links {
		p.label(l)
	}
	p.printf("</svg>\n")
	return p.Bytes(), nil
}

// style holds the colours: warm for the legacy side, blue for the modern one, green for what is stored.
const style = `text { font: 14px "Source Sans 3", "Helvetica Neue", Helvetica, Arial, sans-serif; fill: #1e293b; text-anchor: middle }
.paper { fill: #fff }
.panel { stroke-width: 1.5 }
.panel.legacy { fill: #fffaf0; stroke: #dcb36a }
.panel.modern { fill: #f3f7ff; stroke: #9db8ee }
.head { font-size: 16px; font-weight: bold; text-anchor: start }
.box { stroke-width: 1.5 }
.legacy .box { fill: #ffedcc; stroke: #b7791f }
.modern .box { fill: #dbe7ff; stroke: #326ce5 }
.store .box { fill: #e2f1e8; stroke: #2f7a54 }
.title { font-weight: bold }
.arrow { fill: none; stroke: #475569; stroke-width: 1.5 }
.label { font-size: 13px; fill: #334155 }
`

type painter struct{ bytes.Buffer }

func (p *painter) printf(format string, args ...any) { fmt.Fprintf(&p.Buffer, format, args...) }

func (p *painter) panel(s panel) {
	p.printf(`<rect class="panel %s" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="8"/>`+"\n", s.side.Name, s.x, s.y,
		s.width, s.height)
	p.printf(`<text class="head" x="%.0f" y="%.0f">%s</text>`+"\n", s.x+shapePad, s.y+shapePad+10,
		escaped(s.side.Title))
}

func (p *painter) shape(s shape) {
	class := string(s.node.Side)
	top := s.y + shapePad
	if s.node.Rank == Store {
		class = "store"
		top += 2 * cylinderLid
	}
	if s.node.Href != "" {
		p.printf(`<a href="%s">`, escaped(s.node.Href))
		defer p.printf("</a>\n")
	}
	p.printf(`<g class="%s">`, class)
	if s.node.Rank == Store {
		p.cylinder(s.rectangle)
	} else {
		p.printf(`<rect class="box" x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="5"/>`, s.x, s.y, s.width, s.height)
	}
	for i, line := range s.lines {
		emphasis := ""
		if i == 0 {
			emphasis = ` class="title"`
		}
		p.printf(`<text%s x="%.0f" y="%.0f">%s</text>`, emphasis, s.x+s.width/2, top+lineHeight*float64(i)+15,
			escaped(line))
	}
	p.printf("</g>\n")
}

// cylinder draws the body with its bottom edge, then the lid.
func (p *painter) cylinder(r rectangle) {
	half := r.width / 2
	p.printf(`<path class="box" d="M%.0f,%.0fv%.0fa%.1f,%d 0 0 0 %.0f,0v-%.0f"/>`, r.x, r.y+cylinderLid,
		r.height-2*cylinderLid, half, cylinderLid, r.width, r.height-2*cylinderLid)
	p.printf(`<ellipse class="box" cx="%.1f" cy="%.0f" rx="%.1f" ry="%d"/>`, r.x+half, r.y+cylinderLid, half,
		cylinderLid)
}

// link draws the line: level where it leaves, at its label and where it arrives.
func (p *painter) link(l link) {
	x, y := l.label.x, l.label.bottom()
	end := x + l.label.width
	p.printf(`<path class="arrow" d="M%.0f,%.0f%s%s" marker-end="url(#tip)"/>`+"\n", l.x1, l.y1, bend(l.x1, l.y1, x, y),
		bend(end, y, l.x2, l.y2))
}

// bend is a curve that is level at both ends, from where the path arrives on the level of the first point.
func bend(x1, y1, x2, y2 float64) string {
	if y1 == y2 {
		return fmt.Sprintf("H%.0f", x2)
	}
	half := (x1 + x2) / 2
	return fmt.Sprintf("H%.0fC%.0f,%.0f %.0f,%.0f %.0f,%.0f", x1, half, y1, half, y2, x2, y2)
}

func (p *painter) label(l link) {
	for i, line := range l.lines {
		p.printf(`<text class="label" x="%.0f" y="%.0f">%s</text>`+"\n", l.label.x+l.label.width/2,
			l.label.y+lineHeight*float64(i)+15, escaped(line))
	}
}

func escaped(s string) string {
	var out strings.Builder
	if err := xml.EscapeText(&out, []byte(s)); err != nil {
		panic("graph: internal error: " + err.Error()) // a strings.Builder takes everything
	}
	return out.String()
}
