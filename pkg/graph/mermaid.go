package graph

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// Mermaid writes the graph as a flowchart that Markdown pages show: subgraphs for the sides, cylinders for the stores.
// Source: https://mermaid.js.org/syntax/flowchart.html
func Mermaid(g Graph) []byte {
	var out bytes.Buffer
	out.WriteString("flowchart LR\n")
	for _, side := range g.Sides {
		fmt.Fprintf(&out, "  subgraph %s [%s]\n", side.Name, mermaidString(side.Title))
		for _, n := range g.Nodes {
			if n.Side == side.Name {
				fmt.Fprintf(&out, "    %s[%s]:::%s\n", n.ID, mermaidString(n.text(textWidth)...), side.Name)
			}
		}
		out.WriteString("  end\n")
	}
	for _, n := range g.Nodes {
		if n.Side == "" {
			fmt.Fprintf(&out, "  %s[(%s)]:::store\n", n.ID, mermaidString(n.text(textWidth)...))
		}
	}
	for _, e := range g.Edges {
		label := ""
		if len(e.Label) > 0 {
			label = "|" + mermaidString(wrap(e.Label, textWidth)...) + "|"
		}
		fmt.Fprintf(&out, "  %s -->%s %s\n", e.From, label, e.To)
	}
	out.WriteString(`  classDef legacy fill:#ffedcc,stroke:#b7791f,color:#1e293b
  classDef modern fill:#dbe7ff,stroke:#326ce5,color:#1e293b
  classDef store fill:#e2f1e8,stroke:#2f7a54,color:#1e293b
`)
	return out.Bytes()
}

// mermaidString quotes lines as one label. Only letters, digits and plain punctuation stand for themselves: quotes
// would end the label, a backtick begin Markdown, angle brackets HTML; all of those are written as the codes that
// Mermaid decodes.
func mermaidString(lines ...string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i, line := range lines {
		if i > 0 {
			out.WriteString("<br/>")
		}
		for _, r := range line {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" .,:()/_+-", r) {
				out.WriteRune(r)
			} else {
				fmt.Fprintf(&out, "#%d;", r)
			}
		}
	}
	out.WriteByte('"')
	return out.String()
}
