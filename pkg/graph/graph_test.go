package graph

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-graphviz"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

// examples are the graphs of examples/*.yaml by file name.
func examples(t *testing.T) map[string]Graph {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d examples (%v)", len(files), err)
	}
	graphs := map[string]Graph{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		graphs[strings.TrimSuffix(filepath.Base(file), ".yaml")] = New(plantest.Of(t, string(text)))
	}
	return graphs
}

func svgOf(t *testing.T, g Graph) []byte {
	t.Helper()
	picture, err := SVG(context.Background(), g)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// TestExamples holds the pictures of the examples: what a reviewer looks at when a plan changes.
func TestExamples(t *testing.T) {
	for name, g := range examples(t) {
		golden.File(t, "testdata/"+name+".txt", ASCII(g))
	}
}

// TestCases holds pictures of plans that no example shows, in the formats that are text.
func TestCases(t *testing.T) {
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, c *golden.Case) {
		g := New(plantest.Of(t, string(c.Input("spec.yaml"))))
		c.Want("ascii", ASCII(g))
		c.Want("dot", Dot(g))
		c.Want("mermaid", Mermaid(g))
	})
}

// TestDocuments keeps docs/split.svg, and every block of docs/graph.md that follows a comment with a command, as they
// are drawn.
func TestDocuments(t *testing.T) {
	graphs := examples(t)
	golden.File(t, "../../docs/split.svg", svgOf(t, graphs["split-1.15-1.36"]))

	page, err := os.ReadFile("../../docs/graph.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)(<!-- fusionctl graph examples/([^ ]*)\\.yaml -o ([a-z]*) -->\n```[a-z]*\n" +
		")(.*?)(```\n)")
	if n := len(blocks.FindAll(page, -1)); n < 2 {
		t.Fatalf("docs/graph.md has %d drawn blocks, want at least 2", n)
	}
	golden.File(t, "../../docs/graph.md", blocks.ReplaceAllFunc(page, func(block []byte) []byte {
		m := blocks.FindSubmatch(block)
		g, known := graphs[string(m[2])]
		draw, drawn := map[string]func(Graph) []byte{"ascii": ASCII, "dot": Dot, "mermaid": Mermaid}[string(m[3])]
		if !known || !drawn {
			t.Fatalf("docs/graph.md: nothing draws %s as %s", m[2], m[3])
		}
		return slices.Concat(m[1], draw(g), m[5])
	}))
}

// hostile is a graph whose texts mean something to every format.
func hostile() Graph {
	const text = "a \"b\" \\n <b>&amp; `c` #35; | } ]] end; --> %%"
	const short = "\"<#|\\n"
	return Graph{
		Name:  text,
		Sides: []Side{{"legacy", text}, {"modern", text}},
		Nodes: []Node{
			{ID: "kubelets", Side: "legacy", Title: text, Lines: []string{text}},
			{ID: "legacy_apiserver", Rank: Server, Side: "legacy", Title: text},
			{ID: "users", Side: "modern", Title: text},
			{ID: "modern_apiserver", Rank: Server, Side: "modern", Title: text},
			{ID: "store_0", Rank: Store, Title: text},
		},
		Edges: []Edge{
			{"kubelets", "legacy_apiserver", []string{short}},
			{"legacy_apiserver", "store_0", []string{text, text}},
			{"users", "modern_apiserver", []string{short}},
			{"modern_apiserver", "store_0", []string{text}},
		},
	}
}

// crowded is a graph in which both sides use every one of n stores: the one that has the most crossings.
func crowded(n int) Graph {
	g := hostile()
	g.Nodes, g.Edges = g.Nodes[:4], []Edge{g.Edges[0], g.Edges[2]}
	for i := range n {
		g.Nodes = append(g.Nodes, Node{ID: storeID(i), Rank: Store, Title: fmt.Sprintf("etcd number-%d", i),
			Lines: []string{"3 endpoints"}})
		for _, side := range pair.Sides() {
			g.Edges = append(g.Edges, Edge{serverID(side), storeID(i), []string{fmt.Sprintf("shared (%d): "+
				"what-%s-keeps, there", i, side)}})
		}
	}
	return g
}

func graphs(t *testing.T) map[string]Graph {
	all := examples(t)
	all["hostile"] = hostile()
	for n := 1; n <= 6; n++ {
		all[fmt.Sprintf("crowded-%d", n)] = crowded(n)
	}
	return all
}

// TestASCIIKeepsEveryWord draws nothing over a text, arrives with every arrow and stays within the width.
func TestASCIIKeepsEveryWord(t *testing.T) {
	for name, g := range graphs(t) {
		picture := string(ASCII(g))
		a := arranger{Graph: g, text: map[string][]string{}, out: map[string][]arrow{}}
		a.measure()
		var texts []string
		for _, side := range g.Sides {
			texts = append(texts, wrap([]string{side.Title}, a.lanes-1)...)
		}
		for _, lines := range a.text {
			texts = append(texts, lines...)
		}
		for _, e := range g.Edges {
			limit := accessText
			if g.node(e.To).Rank == Store {
				limit = a.label
			}
			texts = append(texts, wrap(e.Label, limit)...)
		}
		for _, text := range texts {
			if !strings.Contains(picture, text) {
				t.Errorf("%s: the picture lacks %q:\n%s", name, text, picture)
			}
		}
		if got := len(regexp.MustCompile(`-> \|`).FindAllString(picture, -1)); got != len(g.Edges) {
			t.Errorf("%s: %d arrows arrive, want %d:\n%s", name, got, len(g.Edges), picture)
		}
		for _, line := range strings.Split(picture, "\n") {
			if len(line) > asciiWidth || strings.HasSuffix(line, " ") || strings.ContainsFunc(line, func(r rune) bool {
				return r < ' ' || r > '~'
			}) {
				t.Errorf("%s: line %q: want at most %d ASCII characters and no blank at the end", name, line,
					asciiWidth)
			}
		}
	}
}

// TestDotIsGraphviz has Graphviz itself read and lay out what Dot writes.
func TestDotIsGraphviz(t *testing.T) {
	ctx := context.Background()
	viz, err := graphviz.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer viz.Close()
	for _, g := range []Graph{examples(t)["ha-three-hosts-1.15-1.36"], hostile()} {
		parsed, err := graphviz.ParseBytes(Dot(g))
		if err != nil {
			t.Fatalf("%v:\n%s", err, Dot(g))
		}
		nodes, _ := parsed.NodeNum()
		edges, _ := parsed.EdgeNum()
		if nodes != len(g.Nodes) || edges != len(g.Edges) {
			t.Errorf("Graphviz sees %d nodes and %d edges, want %d and %d", nodes, edges, len(g.Nodes), len(g.Edges))
		}
		var picture bytes.Buffer
		if err := viz.Render(ctx, parsed, graphviz.SVG, &picture); err != nil {
			t.Fatal(err)
		}
		texts := xmlTexts(t, picture.Bytes())
		for _, n := range g.Nodes {
			for _, line := range n.text(textWidth) {
				if !slices.Contains(texts, line) {
					t.Errorf("Graphviz does not draw %q; it draws %q", line, texts)
				}
			}
		}
	}
}

func TestMermaidEscapes(t *testing.T) {
	if got, want := mermaidString(`a"b`, "<`#;>"), `"a#34;b<br/>#60;#96;#35;#59;#62;"`; got != want {
		t.Errorf("mermaidString = %s, want %s", got, want)
	}
	line := regexp.MustCompile(`^  +(subgraph \w+ \["[^"<>` + "`" + `]*"\]|end|\w+\[\(?"[^"` + "`" +
		`]*"\)?\]:::\w+|\w+ -->(\|"[^"` + "`" + `]*"\|)? \w+|classDef .*)$`)
	for name, g := range graphs(t) {
		lines := strings.Split(strings.TrimSuffix(string(Mermaid(g)), "\n"), "\n")
		for _, l := range lines[1:] {
			if !line.MatchString(l) {
				t.Errorf("%s: line %q is none of subgraph, end, node, edge, classDef", name, l)
			}
		}
	}
}

// TestSVGIsWhole finds every text in the SVG, read as XML.
func TestSVGIsWhole(t *testing.T) {
	for _, g := range []Graph{examples(t)["shared-1.15-1.36-refused"], hostile(), crowded(3)} {
		texts := xmlTexts(t, svgOf(t, g))
		for _, n := range g.Nodes {
			for _, line := range n.text(textWidth) {
				if !slices.Contains(texts, line) {
					t.Errorf("no text %q in the SVG of %s", line, g.Name)
				}
			}
		}
		for _, e := range g.Edges {
			for _, line := range wrap(e.Label, textWidth) {
				if !slices.Contains(texts, line) {
					t.Errorf("no text %q in the SVG of %s", line, g.Name)
				}
			}
		}
	}
}

// xmlTexts lists the character data between tags; it fails on what is no XML.
func xmlTexts(t *testing.T, document []byte) []string {
	t.Helper()
	var texts []string
	decoder := xml.NewDecoder(bytes.NewReader(document))
	decoder.Strict = true
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, strings.ReplaceAll(string(text), "\u00a0", " "))
		}
	}
}

// TestSVGOverlapsNothing wants shapes and labels apart from one another, nodes inside their panel, the legacy side on
// top.
func TestSVGOverlapsNothing(t *testing.T) {
	for name, g := range map[string]Graph{"split": examples(t)["split-1.15-1.36"], "crowded-3": crowded(3),
		"crowded-6": crowded(6)} {
		d, err := place(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		if d.panels[0].bottom() > d.panels[1].y {
			t.Errorf("%s: the legacy side ends at %.0f, below the beginning of the modern one at %.0f", name,
				d.panels[0].bottom(), d.panels[1].y)
		}
		var taken []rectangle
		for i, s := range d.shapes {
			taken = append(taken, s.rectangle)
			if p := d.panels[slices.IndexFunc(d.panels, func(p panel) bool {
				return p.side.Name == s.node.Side || s.node.Side == ""
			})]; s.node.Side != "" && !contains(p.rectangle, s.rectangle) {
				t.Errorf("%s: shape %d at %v is outside its panel %v", name, i, s.rectangle, p.rectangle)
			}
		}
		for _, l := range d.links {
			if len(l.lines) > 0 {
				taken = append(taken, l.label)
			}
		}
		for i, a := range taken {
			if !contains(rectangle{0, 0, d.width, d.height}, a) {
				t.Errorf("%s: %v is outside the picture", name, a)
			}
			for _, b := range taken[:i] {
				if a.x < b.x+b.width && b.x < a.x+a.width && a.y < b.y+b.height && b.y < a.y+a.height {
					t.Errorf("%s: %v overlaps %v", name, a, b)
				}
			}
		}
	}
}

func contains(outer, inner rectangle) bool {
	return outer.x <= inner.x && outer.y <= inner.y && inner.x+inner.width <= outer.x+outer.width &&
		inner.bottom() <= outer.bottom()
}

// TestSVGIsDeterministic draws twice: the layout runs in an interpreter whose maps might be in any order.
func TestSVGIsDeterministic(t *testing.T) {
	g := crowded(3)
	if first, second := svgOf(t, g), svgOf(t, g); !bytes.Equal(first, second) {
		t.Error("two pictures of one graph differ")
	}
}

func TestAccessGroups(t *testing.T) {
	user := []policy.Subject{{Kind: policy.KindGroup, Name: "developers"}}
	component := []policy.Subject{{Kind: policy.KindUser, Name: "system:kube-controller-manager"}}
	for _, test := range []struct {
		name   string
		grants []policy.Grant
		want   []string
	}{
		{"nobody", nil, nil},
		{"only the control plane", []policy.Grant{{Subjects: component, APIGroups: []string{"apps"}}}, nil},
		{"the core group goes without saying", []policy.Grant{{Subjects: user, APIGroups: []string{""}}}, nil},
		{"everything", []policy.Grant{{Subjects: user, APIGroups: []string{"*", "apps"}}}, []string{"all API groups"}},
		{"their own first", []policy.Grant{{Subjects: user, APIGroups: []string{"apps", "kubeflow.org"}},
			{Subjects: user, APIGroups: []string{"apps"}}}, []string{"kubeflow.org", "apps"}},
		{"too many", []policy.Grant{{Subjects: user, APIGroups: []string{"a.b", "c.d", "e.f", "g.h", "i.j"}}},
			[]string{"a.b", "c.d", "e.f", "and 2 more groups"}},
	} {
		if got := accessGroups(policy.Intent{Grants: test.grants}); !slices.Equal(got, test.want) {
			t.Errorf("%s: accessGroups = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{"one two three", []string{"one two", "three"}},
		{"a-word-too-long x", []string{"a-word-too", "-long x"}},
		{"one two2 ...", []string{"one", "two2 ..."}},
	} {
		if got := wrap([]string{test.line}, 10); !slices.Equal(got, test.want) {
			t.Errorf("wrap(%q, 10) = %q, want %q", test.line, got, test.want)
		}
	}
}
