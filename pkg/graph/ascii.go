package graph

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// ASCII draws the graph with + - | and >, for a terminal, a commit message or a runbook. It is at most 120 characters
// wide with up to six stores.
//
// Clients stand in the left column, API servers in the middle, stores on the right. An API server is as tall as its
// clients and a store as tall as the servers that use it, so that arrows run straight; one that cannot turns in a lane
// of its own before the stores.
func ASCII(g Graph) []byte {
	s := arrange(g)
	var c canvas
	for _, a := range s.arrows { // what runs vertically first: a crossing belongs to the horizontal line
		c.lane(a)
	}
	for _, a := range s.arrows {
		c.arrow(a)
	}
	for _, b := range s.boxes {
		c.box(b)
	}
	for _, h := range s.headings {
		c.text(h.x, h.y, h.text)
	}
	return c.bytes()
}

// The widths of what is written, in characters.
const (
	asciiWidth = 120
	clientText = 25
	serverText = 16
	storeText  = 16
	accessText = 8  // on an arrow to an API server
	labelText  = 36 // at most; lanes take from it
	frame      = 4  // of a box, both sides, with a blank on either
	laneWidth  = 2
)

// sheet is a graph laid out on a grid of characters; columns and rows count from 0.
type sheet struct {
	headings []heading
	boxes    []box
	arrows   []arrow
}

type heading struct {
	x, y int
	text string
}

// box is a node; x, y is its upper left corner, width and height include the frame.
type box struct {
	x, y, width, height int
	lines               []string
}

func (b box) right() int  { return b.x + b.width }
func (b box) bottom() int { return b.y + b.height }
func (b box) middle() int { return b.y + b.height/2 }

// arrow leads from column x1 in row y1 to column x2 in row y2, and turns in column lane when the rows differ. Its label
// stands above its beginning.
type arrow struct {
	x1, y1, x2, y2, lane int
	label                []string
}

// arranger computes a sheet.
type arranger struct {
	sheet
	Graph
	text  map[string][]string // of every node, wrapped
	x     [Store + 1]int      // of the three columns of boxes
	width [Store + 1]int      //
	lanes int                 // the column in which the first lane is
	label int                 // the width of the labels before the stores
	out   map[string][]arrow  // to each store, by its ID; they have no end yet
}

func arrange(g Graph) sheet {
	a := arranger{Graph: g, text: map[string][]string{}, out: map[string][]arrow{}}
	a.measure()
	y := 0
	for _, side := range g.Sides {
		y = a.placeSide(side, y) + 1
	}
	a.placeStores()
	a.placeLanes()
	return a.sheet
}

// measure wraps the texts of the nodes and divides the width among the columns.
func (a *arranger) measure() {
	limits := [...]int{Client: clientText, Server: serverText, Store: storeText}
	for _, n := range a.Nodes {
		a.text[n.ID] = n.text(limits[n.Rank])
		a.width[n.Rank] = max(a.width[n.Rank], widest(a.text[n.ID])+frame)
	}
	access, stores := 0, 0
	for _, e := range a.Edges {
		if a.node(e.To).Rank == Store {
			stores++
		} else {
			access = max(access, widest(wrap(e.Label, accessText)))
		}
	}
	a.x[Server] = a.width[Client] + access + 6
	labels := a.x[Server] + a.width[Server] + 2
	lanes := laneWidth * max(0, stores-len(a.Sides)) // every side has one arrow at least that does not turn
	a.label = max(12, min(labelText, asciiWidth-labels-lanes-3-a.width[Store]))
	a.lanes = labels + a.label + 1
	a.x[Store] = a.lanes + lanes + 2
}

// placeSide puts the clients of a side one below the other with their server beside them, and returns the first row
// below.
func (a *arranger) placeSide(side Side, y int) int {
	for _, line := range wrap([]string{side.Title}, a.lanes-1) {
		a.headings = append(a.headings, heading{0, y, line})
		y++
	}
	top := y + 1
	clients, server := a.members(side.Name)
	out, rows := a.outgoing(server.ID)

	clientsHeight := -1
	for _, n := range clients {
		clientsHeight += len(a.text[n.ID]) + 3
	}
	b := box{x: a.x[Server], y: top, width: a.width[Server], lines: a.text[server.ID]}
	b.height = max(clientsHeight, len(b.lines)+2, rows+1)
	a.boxes = append(a.boxes, b)

	y = top + (b.height-clientsHeight)/2
	for _, n := range clients {
		client := box{y: y, width: a.width[Client], height: len(a.text[n.ID]) + 2, lines: a.text[n.ID]}
		a.boxes = append(a.boxes, client)
		for _, e := range a.Edges {
			if e.From == n.ID {
				a.arrows = append(a.arrows, arrow{client.right(), client.middle(), b.x, client.middle(), 0,
					wrap(e.Label, accessText)})
			}
		}
		y = client.bottom() + 1
	}
	row, slack := top, b.height-1-rows
	for i, e := range out {
		row += len(e.Label) + 1
		at := row + slack*(i+1)/(len(out)+1)
		a.out[e.To] = append(a.out[e.To], arrow{x1: b.right(), y1: at, x2: a.x[Store], label: e.Label})
		row++
	}
	return b.bottom()
}

func (a *arranger) members(side pair.Side) (clients []Node, server Node) {
	for _, n := range a.Nodes {
		switch {
		case n.Side == side && n.Rank == Client:
			clients = append(clients, n)
		case n.Side == side && n.Rank == Server:
			server = n
		}
	}
	return clients, server
}

// outgoing lists the edges of a server with wrapped labels, and how many rows they need with a blank one between them.
func (a *arranger) outgoing(server string) (out []Edge, rows int) {
	for _, e := range a.Edges {
		if e.From == server {
			e.Label = wrap(e.Label, a.label)
			out = append(out, e)
			rows += len(e.Label) + 2
		}
	}
	return out, rows
}

// placeStores puts each store beside the servers that use it, those of the legacy side alone first, those of the modern
// side alone last.
func (a *arranger) placeStores() {
	var stores []Node
	for _, n := range a.Nodes {
		if n.Rank == Store {
			stores = append(stores, n)
		}
	}
	slices.SortStableFunc(stores, func(s, t Node) int { return cmp.Compare(a.height(s), a.height(t)) })
	y := 0
	for _, n := range stores {
		in := a.out[n.ID]
		b := box{x: a.x[Store], y: y, width: a.width[Store], height: len(a.text[n.ID]) + 2, lines: a.text[n.ID]}
		switch len(in) {
		case 0:
		case 1:
			b.y = max(y, in[0].y1-b.height/2)
			in[0].y2 = max(in[0].y1, b.y+1)
		default:
			b.y = max(y, in[0].y1-b.height/2)
			row := b.y + 1
			for i := range in {
				in[i].y2 = max(row, in[i].y1)
				row = in[i].y2 + 2
			}
			b.height = max(b.height, row-b.y)
		}
		a.arrows = append(a.arrows, in...)
		a.boxes = append(a.boxes, b)
		y = b.bottom() + 1
	}
}

// height orders the stores: twice the mean of the rows from which they are reached; below everything when there is
// none.
func (a *arranger) height(store Node) int {
	in := a.out[store.ID]
	if len(in) == 0 {
		return 1 << 30
	}
	return in[0].y1 + in[len(in)-1].y1
}

// placeLanes gives every arrow that turns a column. Those that go down turn the earlier the lower they begin, those
// that go up the other way round: so they do not cross one another.
func (a *arranger) placeLanes() {
	var turning []*arrow
	for i := range a.arrows {
		if a.arrows[i].y1 != a.arrows[i].y2 {
			turning = append(turning, &a.arrows[i])
		}
	}
	slices.SortStableFunc(turning, func(s, t *arrow) int {
		if s.y2 > s.y1 && t.y2 > t.y1 {
			return cmp.Compare(t.y1, s.y1)
		}
		return cmp.Compare(s.y1, t.y1)
	})
	for i, t := range turning {
		t.lane = a.lanes + laneWidth*i
	}
}

// canvas is a grid of characters that grows as it is drawn upon.
type canvas [][]rune

func (c *canvas) set(x, y int, r rune) {
	for len(*c) <= y {
		*c = append(*c, nil)
	}
	for len((*c)[y]) <= x {
		(*c)[y] = append((*c)[y], ' ')
	}
	(*c)[y][x] = r
}

func (c *canvas) text(x, y int, s string) {
	for _, r := range s {
		c.set(x, y, r)
		x++
	}
}

// line draws from column x1 to before x2.
func (c *canvas) line(x1, x2, y int, r rune) {
	for x := x1; x < x2; x++ {
		c.set(x, y, r)
	}
}

func (c *canvas) lane(a arrow) {
	if a.y1 == a.y2 {
		return
	}
	for y := min(a.y1, a.y2) + 1; y < max(a.y1, a.y2); y++ {
		c.set(a.lane, y, '|')
	}
}

func (c *canvas) arrow(a arrow) {
	if a.y1 == a.y2 {
		c.line(a.x1+1, a.x2-2, a.y1, '-')
	} else {
		c.line(a.x1+1, a.lane, a.y1, '-')
		c.set(a.lane, a.y1, '+')
		c.set(a.lane, a.y2, '+')
		c.line(a.lane+1, a.x2-2, a.y2, '-')
	}
	c.set(a.x2-2, a.y2, '>')
	for i, line := range a.label {
		c.text(a.x1+2, a.y1-len(a.label)+i, line)
	}
}

// box draws the frame and centers the lines in it.
func (c *canvas) box(b box) {
	for y := b.y; y < b.bottom(); y++ {
		corner, side := '|', ' '
		if y == b.y || y == b.bottom()-1 {
			corner, side = '+', '-'
		}
		c.line(b.x, b.right(), y, side)
		c.set(b.x, y, corner)
		c.set(b.right()-1, y, corner)
	}
	top := b.y + (b.height-len(b.lines))/2
	for i, line := range b.lines {
		c.text(b.x+(b.width-utf8.RuneCountInString(line))/2, top+i, line)
	}
}

func (c *canvas) bytes() []byte {
	var out bytes.Buffer
	for _, row := range *c {
		out.Write(bytes.TrimRight([]byte(string(row)), " "))
		out.WriteByte('\n')
	}
	return out.Bytes()
}
