package spec

import "strings"

// DNSLabel maps a text to the characters of a DNS label, without hyphens at its ends; "" when nothing is left of it. It
// may be longer than a label.
func DNSLabel(text string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, text), "-")
}
