package adopt

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// hereDocument keeps the text that a statement reads from a here-document when another, or the same, writes it to a
// file: cat <<EOF > FILE, cat <<EOF | tee FILE. Variables that are not set stay as they are written.
func (s *shellReader) hereDocument(from, to *syntax.Stmt) {
	if !s.whole || from == nil || to == nil {
		return
	}
	name := ""
	if from != to {
		name = s.teeArgument(to)
	}
	for _, redirect := range to.Redirs {
		if from == to && (redirect.Op == syntax.RdrOut || redirect.Op == syntax.RdrClob) {
			name = strings.Join(s.fields(redirect.Word, false), " ")
		}
	}
	if name == "" {
		return
	}
	for _, redirect := range from.Redirs {
		if redirect.Hdoc == nil || redirect.Op != syntax.Hdoc && redirect.Op != syntax.DashHdoc {
			continue
		}
		text := ""
		if quoted(redirect.Word) {
			text = redirect.Hdoc.Lit()
		} else {
			text = s.document(redirect.Hdoc)
		}
		if redirect.Op == syntax.DashHdoc {
			lines := strings.Split(text, "\n")
			for i, line := range lines {
				lines[i] = strings.TrimLeft(line, "\t")
			}
			text = strings.Join(lines, "\n")
		}
		if s.written == nil {
			s.written = newMemoryFiles()
		}
		if !s.made.take(len(text)) {
			return
		}
		s.written.add(strings.TrimPrefix(path.Clean("/"+name), "/"), []byte(text))
	}
}

// teeFile is the statement itself when it is a tee, nil for another.
func teeFile(stmt *syntax.Stmt) *syntax.Stmt {
	if call, ok := stmt.Cmd.(*syntax.CallExpr); ok {
		for _, word := range call.Args {
			if path.Base(word.Lit()) == "tee" {
				return stmt
			}
		}
	}
	return nil
}

// teeArgument is the file that a tee writes.
func (s *shellReader) teeArgument(stmt *syntax.Stmt) string {
	after := false
	for _, word := range stmt.Cmd.(*syntax.CallExpr).Args {
		text := strings.Join(s.fields(word, false), " ")
		if after && !strings.HasPrefix(text, "-") {
			return text
		}
		after = after || path.Base(text) == "tee"
	}
	return ""
}

// quoted reports whether a delimiter has a quote in it: the text is taken as it is then.
func quoted(word *syntax.Word) bool {
	for _, part := range word.Parts {
		if literal, ok := part.(*syntax.Lit); !ok || strings.Contains(literal.Value, `\`) {
			return true
		}
	}
	return false
}

// document expands the variables of a here-document.
func (s *shellReader) document(word *syntax.Word) string {
	var out strings.Builder
	for _, part := range word.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			out.WriteString(unescape(part.Value, true))
		case *syntax.ParamExp:
			value, ok := s.parameter(part)
			if !ok || value == "" {
				value = s.text(part)
			}
			out.WriteString(value)
		default:
			out.WriteString(s.text(part))
		}
	}
	return out.String()
}
