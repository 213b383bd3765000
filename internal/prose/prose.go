// Package prose breaks texts into lines, and writes numbers and lists in words.
package prose

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Wrap puts words into lines of at most so many characters, with a space between words. A longer word has a line of its
// own.
func Wrap(words []string, width int) []string {
	var lines []string
	column := 0
	for _, word := range words {
		length := utf8.RuneCountInString(word)
		if len(lines) > 0 && column+1+length <= width {
			lines[len(lines)-1] += " " + word
			column += 1 + length
			continue
		}
		lines = append(lines, word)
		column = length
	}
	return lines
}

// Cut cuts words into pieces of at most so many characters.
func Cut(words []string, longest int) []string {
	var pieces []string
	for _, word := range words {
		runes := []rune(word)
		for ; len(runes) > longest; runes = runes[longest:] {
			pieces = append(pieces, string(runes[:longest]))
		}
		pieces = append(pieces, string(runes))
	}
	return pieces
}

// Counted is a number of things, "1 key" or "2 keys": the plural is the noun with an s.
func Counted[N int | int64](n N, noun string) string { return Plural(n, noun, noun+"s") }

// Plural is a number of things, "1 value is" or "2 values are".
func Plural[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// First joins the first few of a list by commas and counts the rest: "a, b and 3 more".
func First(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
