package policy

import (
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
)

// commentColumns is where comments are wrapped.
const commentColumns = 100

// Format prints sections as a policy file: the comment, then one line per rule; sections are separated by a blank line.
// Parse reads the same rules back, in order; Rule.Line is then the line they were printed on.
func Format(sections []Section) []byte {
	var out []byte
	for _, section := range sections {
		if len(out) > 0 {
			out = append(out, '\n')
		}
		for _, text := range commentLines(section.Comment) {
			out = append(out, "# "...)
			out = append(out, text...)
			out = append(out, '\n')
		}
		for _, rule := range section.Rules {
			out = rule.appendLine(out)
		}
	}
	return out
}

// commentLines wraps a comment; a line break in it stays one. A word too long for a line is cut, since the server reads
// no line over 64 KiB, not even a comment.
func commentLines(text string) []string {
	var lines []string
	for paragraph := range strings.Lines(text) {
		lines = append(lines, prose.Wrap(prose.Cut(strings.Fields(paragraph), 10*commentColumns), commentColumns)...)
	}
	return lines
}
