package hub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// path names a field by the names that lead to it. As text they are joined by dots: spec.size; a name with other
// characters than those of identifiers stands in brackets: metadata.labels["example.com/team"].
type path []string

func parsePath(text string) (path, error) {
	var p path
	rest := strings.TrimPrefix(text, ".")
	for first := true; rest != "" || first; first = false {
		switch {
		case strings.HasPrefix(rest, `["`):
			quoted, err := strconv.QuotedPrefix(rest[1:])
			if err != nil || !strings.HasPrefix(rest[1+len(quoted):], "]") {
				return nil, fmt.Errorf("%q: want the name in brackets as [\"name\"]", text)
			}
			name, err := strconv.Unquote(quoted)
			if err != nil || name == "" {
				return nil, fmt.Errorf("%q: want a name in the brackets", text)
			}
			p, rest = append(p, name), rest[len(quoted)+2:]
			continue
		case !first && strings.HasPrefix(rest, "."):
			rest = rest[1:]
		case !first:
			return nil, fmt.Errorf("%q: want names with dots between them", text)
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		name := rest[:end]
		if name == "" || strings.ContainsAny(name, "]*\" ") {
			return nil, fmt.Errorf("%q: want names with dots between them, such as spec.size; lists and maps have "+
				"the rule each", text)
		}
		p, rest = append(p, name), rest[end:]
		if strings.HasPrefix(rest, "[") && !strings.HasPrefix(rest, `["`) {
			return nil, fmt.Errorf("%q: want the name of a field; for the elements of a list there is the rule each",
				text)
		}
	}
	return p, nil
}

func (p path) String() string {
	var b strings.Builder
	for i, name := range p {
		switch {
		case name == anyElement:
			b.WriteString("[*]")
		case strings.ContainsFunc(name, func(r rune) bool {
			return r != '-' && r != '_' && r != '$' && (r < '0' || r > '9') && (r < 'a' || r > 'z') &&
				(r < 'A' || r > 'Z')
		}):
			b.WriteString("[" + strconv.Quote(name) + "]")
		case i > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

func (p path) plus(names ...string) path { return append(slices.Clip(p), names...) }

func (p path) parent() path { return p[:len(p)-1] }

func (p path) last() string { return p[len(p)-1] }

// within reports whether p is outer or below it.
func (p path) within(outer path) bool {
	return len(p) >= len(outer) && slices.Equal(p[:len(outer)], outer)
}

func (p path) equal(other path) bool { return slices.Equal(p, other) }
