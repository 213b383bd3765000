// Package finding holds the one shape of every diagnostic that fusionctl prints: which rule, how bad, about what, and
// the way out.
package finding

import (
	"cmp"
	"encoding"
	"fmt"
	"slices"
	"strings"
)

// Severity says what happens when a finding is ignored. Larger is worse.
type Severity int

const (
	Info    Severity = iota + 1 // worth knowing; nothing is lost
	Warning                     // loses fields, features or consistency under a condition
	Error                       // loses data or availability
)

var severityNames = map[Severity]string{Info: "info", Warning: "warning", Error: "error"}

var (
	_ encoding.TextMarshaler   = Severity(0)
	_ encoding.TextUnmarshaler = (*Severity)(nil)
)

// String prints error, warning or info.
func (s Severity) String() string {
	if name, ok := severityNames[s]; ok {
		return name
	}
	return fmt.Sprintf("Severity(%d)", int(s))
}

// MarshalText prints the severity as String does; a value that is none of the three is an error.
func (s Severity) MarshalText() ([]byte, error) {
	if name, ok := severityNames[s]; ok {
		return []byte(name), nil
	}
	return nil, fmt.Errorf("finding: internal error: severity %d", int(s))
}

// UnmarshalText reads error, warning or info.
func (s *Severity) UnmarshalText(text []byte) error {
	for severity, name := range severityNames {
		if name == string(text) {
			*s = severity
			return nil
		}
	}
	return fmt.Errorf("%q: want error, warning or info", text)
}

// Finding is one diagnostic. Shape:
// {"rule":"FUS060","severity":"error","subject":"...","message":"...","fix":"...","key":"...","count":2,"file":"...",
//
//	"line":1,"column":1}
//
// Units:  Line and Column are 1-based; 0 means that the finding has no place in a file.
type Finding struct {
	// FUS060; the numbers below 200 are historical
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"`        // the resource, controller, flag, key or rule line that is concerned
	Message  string   `json:"message"`        // what is wrong and what it leads to, for this subject
	Fix      string   `json:"fix,omitempty"`  // the concrete way out: a flag, a spec line, a corrected line
	Key      string   `json:"key,omitempty"`  // identity over time, whatever the words and the counts; see Key
	Count    Count    `json:"count,omitzero"` // how many objects it stands for
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Related  []string `json:"related,omitempty"` // further subjects: the other key, the objects that would be deleted
}

// Count is a number of objects that share a finding. One is not printed: it is what a finding stands for.
type Count int64

// IsZero reports whether JSON leaves the count out.
func (c Count) IsZero() bool { return c <= 1 }

// Key is the identity of a finding: its rule, its subject, and what tells it from other findings of that rule about
// that subject. Empty parts are left out. It is to be compared, not to be taken apart.
func Key(rule, subject string, parts ...string) string {
	parts = slices.DeleteFunc(slices.Concat([]string{rule, subject}, parts), func(part string) bool {
		return part == ""
	})
	return strings.Join(parts, "|")
}

// Sort orders findings for printing: worst first, then by rule, file, line, subject and message.
func Sort(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			-cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Subject, b.Subject),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

// Worst is the highest severity among the findings, 0 for none.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Summary counts findings by severity.
type Summary struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
}

// Summarize counts the findings.
func Summarize(findings []Finding) Summary {
	var s Summary
	for _, f := range findings {
		switch f.Severity {
		case Error:
			s.Errors++
		case Warning:
			s.Warnings++
		default:
			s.Infos++
		}
	}
	return s
}
