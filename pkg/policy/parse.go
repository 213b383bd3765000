package policy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLineBytes is the longest line, with its line break, that the server's reader takes.
const maxLineBytes = bufio.MaxScanTokenSize

// maxReportedLines bounds how many bad lines one error lists: a file of another kind is bad in every line.
const maxReportedLines = 20

// SyntaxError is a line that the server would refuse; it does not start with such a file.
type SyntaxError struct {
	File string
	Line int // 1-based
	Err  error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }
func (e *SyntaxError) Unwrap() error { return e.Err }

// Parse reads a policy file: one object per line; blank lines and lines that start with # are skipped. The name is only
// used in errors. An empty file is a policy without rules: it allows nothing.
//
// Shape:
// {"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","apiGroup":"",...}}
// Units: Rule.Line is 1-based. A line may hold 65,535 bytes, as in the server; memory is bounded by the rules that are
// returned. Errors: *SyntaxError names file and line; every bad line up to the twentieth is reported, joined. A
// reader's error is wrapped. Parse accepts what the server accepts, traps included: Validate names those. Source:
// kubernetes v1.36 pkg/auth/authorizer/abac. Safe for concurrent use.
func Parse(name string, r io.Reader) ([]Rule, error) { return parse(name, r, nil) }

// parse is Parse that refuses what refuse, if there is one, has an error for.
func parse(name string, r io.Reader, refuse func(line []byte) error) ([]Rule, error) {
	var rules []Rule
	var bad []error
	decoder := newDecoder()
	scanner := newLineScanner(r)
	for scanner.Scan() {
		if scanner.skippable() {
			continue
		}
		rule, _, err := decoder.decode(scanner.Bytes())
		if err != nil {
			err = describe(err, scanner.Bytes())
		} else if refuse != nil {
			err = refuse(scanner.Bytes())
		}
		if err != nil {
			bad = append(bad, &SyntaxError{File: name, Line: scanner.line, Err: err})
			if len(bad) == maxReportedLines {
				return nil, errors.Join(
					append(bad, fmt.Errorf("%s: stopped after %d bad lines", name, maxReportedLines))...)
			}
			continue
		}
		rule.Line = scanner.line
		rules = append(rules, rule)
	}
	if err := scanner.Err(); err != nil {
		if !errors.Is(err, bufio.ErrTooLong) {
			return nil, errors.Join(append(bad, fmt.Errorf("reading %s: %w", name, err))...)
		}
		err = fmt.Errorf("line too long: the server reads at most %d bytes per line", maxLineBytes-1)
		bad = append(bad, &SyntaxError{File: name, Line: scanner.line + 1, Err: err})
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return rules, nil
}

// lineScanner is the server's own way to split a file into lines, and counts them.
type lineScanner struct {
	*bufio.Scanner
	line int // 1-based number of the current line
}

func newLineScanner(r io.Reader) *lineScanner {
	return &lineScanner{Scanner: bufio.NewScanner(r)}
}

func (s *lineScanner) Scan() bool {
	if !s.Scanner.Scan() {
		return false
	}
	s.line++
	return true
}

// skippable reports whether the server skips the current line.
func (s *lineScanner) skippable() bool {
	trimmed := bytes.TrimSpace(s.Bytes())
	return len(trimmed) == 0 || trimmed[0] == '#'
}

// describe says why the server refuses a line, in the words of the file and not in those of the server's decoder.
func describe(err error, text []byte) error {
	all, _, notJSON := members(text, skip(text, " \t\r\n"))
	if notJSON != nil {
		return brief(err)
	}
	value := func(key string) string {
		m, _ := findFold(all, key)
		return strings.Trim(string(m.value), `"`)
	}
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
	case value("kind") == "" && value("apiVersion") != "":
		return fmt.Errorf("kind is missing: want %q", Kind)
	case value("kind") != Kind:
		return fmt.Errorf("kind %q: want %q", value("kind"), Kind)
	case value("apiVersion") != APIVersion:
		return fmt.Errorf("apiVersion %q: want %q", value("apiVersion"), APIVersion)
	}
	return brief(err)
}

// brief shortens an error that quotes a whole line of up to 64 KiB, and keeps it printable.
func brief(err error) error {
	const limitBytes = 240
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		return fmt.Errorf("%s: want a %s, not a %s", wrongType.Field, wrongType.Type, wrongType.Value)
	}
	if errors.As(err, &wrongType) {
		return fmt.Errorf("want a JSON object, not a %s", wrongType.Value)
	}
	text := strings.TrimPrefix(err.Error(), "couldn't get version/kind; json parse error: ")
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) > limitBytes {
		text = strings.ToValidUTF8(text[:limitBytes], "") + "..."
	}
	return errors.New(text)
}
