package policy

import (
	"strings"
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
		for _, text := range wrap(section.Comment, commentColumns) {
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

// wrap breaks a text into lines between words; a line break in the text stays one. A word too long for a line is cut, since
// the server reads no line over 64 KiB, not even a comment.
func wrap(text string, columns int) []string {
	var lines []string
	for paragraph := range strings.Lines(text) {
		current := ""
		for _, word := range strings.Fields(paragraph) {
			if current != "" && len(current)+1+len(word) > columns {
				lines = append(lines, current)
				current = ""
			}
			if current != "" {
				current += " "
			}
			current += word
			for len(current) > 10*columns {
				lines = append(lines, current[:10*columns])
				current = current[10*columns:]
			}
		}
		if current != "" {
			lines = append(lines, current)
		}
	}
	return lines
}
