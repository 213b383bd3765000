package graph

import (
	"bytes"
	"fmt"
	"strings"
)

// Dot writes the graph in the language of Graphviz: clusters for the sides, cylinders for the stores, from left to
// right. Source: https://graphviz.org/doc/info/lang.html
func Dot(g Graph) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "digraph \"%s\" {\n", strings.ReplaceAll(g.Name, `"`, `\"`))
	out.WriteString(`  rankdir=LR; ranksep=0.8; nodesep=0.4; fontname="Helvetica"
  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=12]
  edge [fontname="Helvetica", fontsize=11, color="#475569"]
`)
	colors := map[string]string{"legacy": `fillcolor="#ffedcc", color="#b7791f"`,
		"modern": `fillcolor="#dbe7ff", color="#326ce5"`}
	for _, side := range g.Sides {
		fmt.Fprintf(&out, "  subgraph cluster_%s {\n", side.Name)
		fmt.Fprintf(&out, "    label=%s; labeljust=l; color=\"#94a3b8\"; style=rounded\n", dotString(side.Title))
		for _, n := range g.Nodes {
			if n.Side == side.Name {
				fmt.Fprintf(&out, "    %s [label=%s, %s]\n", n.ID, dotString(n.text(textWidth)...),
					colors[string(side.Name)])
			}
		}
		out.WriteString("  }\n")
	}
	for _, n := range g.Nodes {
		if n.Side == "" {
			fmt.Fprintf(&out, "  %s [label=%s, shape=cylinder, style=filled, fillcolor=\"#e2f1e8\", "+
				"color=\"#2f7a54\"]\n", n.ID, dotString(n.text(textWidth)...))
		}
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&out, "  %s -> %s", e.From, e.To)
		if len(e.Label) > 0 {
			fmt.Fprintf(&out, " [label=%s]", dotString(wrap(e.Label, textWidth)...))
		}
		out.WriteByte('\n')
	}
	out.WriteString("}\n")
	return out.Bytes()
}

// dotString quotes lines as one centered label, in which a backslash begins an escape and an ampersand an entity.
func dotString(lines ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `&`, `&amp;`)
	escaped := make([]string, len(lines))
	for i, line := range lines {
		escaped[i] = escape.Replace(line)
	}
	return `"` + strings.Join(escaped, `\n`) + `"`
}
