package rig

import (
	"regexp"
	"strconv"
	"strings"
)

// HelpFlag is what the --help text of a program says about one flag.
type HelpFlag struct {
	// Default is printed unless it is the zero of the flag's type; then it is "" here. Strings are without their
	// quotes.
	Default string
	// Text is the whole description, its lines joined by newlines without their indentation.
	Text string
}

var (
	helpFlag    = regexp.MustCompile(`^ {2,8}(?:-[A-Za-z], )?--([A-Za-z0-9][A-Za-z0-9_.-]*)(.*)$`)
	helpSection = regexp.MustCompile(`^\S.*:$`) // "Generic flags:"
	helpPadding = regexp.MustCompile(` {3,}`)   // what separates a flag and its type from the description
)

// ParseHelp reads the flags of a --help text, in the formats of all releases from 1.6 on: one list or sections,
// descriptions of several lines with or without indentation.
func ParseHelp(help string) map[string]HelpFlag {
	texts := map[string][]string{}
	flag := ""
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if match := helpFlag.FindStringSubmatch(line); match != nil {
			flag = match[1]
			text := ""
			if padding := helpPadding.FindStringIndex(match[2]); padding != nil {
				text = match[2][padding[1]:]
			}
			texts[flag] = []string{text}
			continue
		}
		// The oldest releases end with the parser's own remark, without an empty line before it.
		if strings.TrimSpace(line) == "" || helpSection.MatchString(line) || line == "pflag: help requested" {
			flag = ""
		}
		if flag != "" {
			texts[flag] = append(texts[flag], strings.TrimSpace(line))
		}
	}
	flags := make(map[string]HelpFlag, len(texts))
	for name, lines := range texts {
		text := strings.Join(lines, "\n")
		flags[name] = HelpFlag{Default: helpDefault(text), Text: text}
	}
	return flags
}

// helpDefault finds the default at the end of a description: `(default "abc")`, `(default [a,b])`, perhaps followed by
// `(DEPRECATED: why)`. A description may speak of defaults in its sentences too.
func helpDefault(text string) string {
	const start = "(default "
	for rest := text; ; {
		i := strings.Index(rest, start)
		if i < 0 {
			return ""
		}
		rest = rest[i+len(start):]
		value, after, ok := cutDefault(rest)
		if ok && (after == "" || strings.HasPrefix(after, " (DEPRECATED: ")) {
			return value
		}
	}
}

// cutDefault splits what follows "(default " into the value and what comes after its closing parenthesis.
func cutDefault(s string) (value, after string, ok bool) {
	if quoted, err := strconv.QuotedPrefix(s); err == nil {
		if after, closed := strings.CutPrefix(s[len(quoted):], ")"); closed {
			value, err := strconv.Unquote(quoted)
			return value, after, err == nil
		}
	}
	depth := 1
	for i, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}
