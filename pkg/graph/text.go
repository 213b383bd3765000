package graph

import (
	"strings"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/internal/prose"
)

// textWidth is where texts are wrapped that stand in no column of characters.
const textWidth = 36

// more stands for names that are left out. It never begins a line.
const more = "..."

// wrap breaks every line at spaces so that none is longer than width characters; a longer word is cut.
func wrap(lines []string, width int) []string {
	var wrapped []string
	for _, line := range lines {
		wrapped = append(wrapped, prose.Wrap(prose.Cut(words(line), width), width)...)
	}
	return wrapped
}

// words splits a line at spaces, less the one before more.
func words(line string) []string {
	words := strings.Fields(line)
	if n := len(words); n > 1 && words[n-1] == more {
		words[n-2] += " " + more
		words = words[:n-1]
	}
	return words
}

// widest is the length of the longest line, in characters.
func widest(lines []string) int {
	width := 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(line))
	}
	return width
}
