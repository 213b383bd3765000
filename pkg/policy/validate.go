package policy

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Options say what a file is judged by, beyond the language itself.
type Options struct {
	Catalog   *Catalog    // known groups and resources; nil for NewCatalog()
	Forbidden []Forbidden // what may not be written through the server that reads the file
	Expected  []Rule      // what Kubernetes' own controllers may do nevertheless, since the plan runs them
}

// Forbidden is a resource that a policy may not allow to be written, and why: one sentence without its end.
type Forbidden struct {
	APIGroup, Resource string
	Why                string
}

// Report is the outcome of Validate.
type Report struct {
	Findings []finding.Finding // sorted by place
	Rules    []Rule            // what the server would read; bad lines left out
	// Fixed is the file with every line corrected that the server would misunderstand or refuse, so that it says to the
	// server what it says to people, and with superfluous rules made comments. What a rule says stays: a typing error
	// in a group is only reported. It is nil when the file could not be read to its end. FixedLines counts the lines
	// that differ.
	Fixed      []byte
	FixedLines int
}

// Validate judges a policy file: lines that stop the server, lines that mean something else than they seem to, and
// rules that open more than they look like. Checks lists what it looks for.
//
// Units: lines and columns are 1-based, columns count bytes; a line may be 64 KiB, a million lines may hold rules, and
// of each rule and severity a thousand findings are kept, with one more that counts the others. Errors: the reader's,
// and more lines than that; what else is wrong with the file is in the findings.
func Validate(name string, r io.Reader, options Options) (Report, error) {
	if options.Catalog == nil {
		options.Catalog = builtinCatalog()
	}
	v := &validation{name: name, options: options, expected: newPartSet(realParts(options.Expected)),
		severities: map[string]finding.Severity{}, fixes: map[string]string{},
		found: map[kindOfFinding]int{}, last: map[kindOfFinding]int{}}
	for _, c := range Checks() {
		v.severities[c.ID], v.fixes[c.ID] = c.Severity, c.Fix
	}
	scanner := newLineScanner(r)
	for held := 0; scanner.Scan(); {
		if scanner.skippable() {
			v.addSkipped(scanner.line, scanner.Bytes())
			continue
		}
		if held++; held > maxRuleLines {
			return Report{}, fmt.Errorf("%s:%d: more than %d lines with rules", name, scanner.line, maxRuleLines)
		}
		v.lines = append(v.lines, &checkedLine{number: scanner.line, text: slices.Clone(scanner.Bytes())})
	}
	err := scanner.Err()
	if err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return Report{}, fmt.Errorf("reading %s: %w", name, err)
	}
	v.checkLines()
	if err != nil {
		v.add("FUS200", place{line: scanner.line + 1, column: 1}, fmt.Sprintf("line %d", scanner.line+1), "",
			"the line is longer than %d bytes; the server reads no more and does not start", maxLineBytes-1)
	}
	v.checkRepetition()
	if len(v.rules()) == 0 && len(v.findings) == 0 {
		v.add("FUS215", place{}, "the policy", "",
			"the file holds no rule: the server starts and allows no request")
	}

	v.countUnkept()
	v.identify()
	report := Report{Findings: v.findings, Rules: v.rules()}
	slices.SortStableFunc(report.Findings, func(a, b finding.Finding) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if err == nil {
		report.Fixed, report.FixedLines = v.fixed()
	}
	return report, nil
}

// maxRuleLines bounds the lines that Validate holds beside blank ones and comments: 256 MiB may be 90 million of them.
const maxRuleLines = 1_000_000

// maxKept bounds the findings of one rule and severity: a file of another kind has one in every line.
const maxKept = 1000

// kindOfFinding is what findings are counted by.
type kindOfFinding struct {
	id       string
	severity finding.Severity
}

// validation is a file while it is judged.
type validation struct {
	name     string
	options  Options
	lines    []*checkedLine
	findings []finding.Finding
	found    map[kindOfFinding]int // also those that are not kept
	last     map[kindOfFinding]int // their last line

	expected   *partSet
	severities map[string]finding.Severity // of the Checks, by ID
	fixes      map[string]string           // the same
}

// checkedLine is one line with what became of it.
type checkedLine struct {
	number int
	text   []byte // of several that are blank or comments, with the line breaks between them
	skip   bool   // blank, a comment, or consumed by the line before
	rule   Rule   // what the server reads, if ok
	ok     bool
	spec   []member  // the fields of the rule, with their places; nil where it is not JSON
	repair *repaired // what to write instead; nil for a line that can stay
}

// rules are what the line says: what the server reads, or what it will read once the line is repaired.
func (line *checkedLine) rules() []Rule {
	rules := []Rule{line.rule}
	switch {
	case line.repair != nil:
		rules = slices.Clone(line.repair.rules)
	case !line.ok:
		return nil
	}
	for i := range rules {
		rules[i].Line = line.number
	}
	return rules
}

// judged are the rules of the line by what they allow: what the server reads, or, where it refuses the line, what it
// will read once the line is repaired.
func (line *checkedLine) judged() []Rule {
	if line.ok {
		return []Rule{line.rule}
	}
	return line.rules()
}

type place struct{ line, column int }

// add records a finding of one of the Checks, with that one's severity, and returns it.
func (v *validation) add(id string, at place, subject, fix, format string, args ...any) *finding.Finding {
	return v.addSeverity(v.severities[id], id, at, subject, fix, format, args...)
}

func (v *validation) addSeverity(severity finding.Severity, id string, at place, subject, fix, format string,
	args ...any) *finding.Finding {
	kind := kindOfFinding{id, severity}
	v.last[kind] = max(v.last[kind], at.line)
	if v.found[kind]++; v.found[kind] > maxKept {
		return &finding.Finding{}
	}
	if fix == "" {
		fix = v.fixes[id]
	}
	v.findings = append(v.findings, finding.Finding{
		Rule: id, Severity: severity, Subject: subject, Message: fmt.Sprintf(format, args...), Fix: fix,
		File: v.name, Line: at.line, Column: at.column,
	})
	return &v.findings[len(v.findings)-1]
}

// counted counts the findings, and those about a field that stands twice in its line, with those that are not kept.
func (v *validation) counted() (all, twice int) {
	for kind, n := range v.found {
		all += n
		if kind.id == "FUS213" {
			twice += n
		}
	}
	return all, twice
}

// countUnkept adds a finding for those of each rule and severity that are not kept.
func (v *validation) countUnkept() {
	kinds := slices.SortedFunc(maps.Keys(v.found), func(a, b kindOfFinding) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.severity, b.severity))
	})
	for _, kind := range kinds {
		if n := v.found[kind] - maxKept; n > 0 {
			v.findings = append(v.findings, finding.Finding{Rule: kind.id, Severity: kind.severity,
				Subject: "the policy", Message: fmt.Sprintf("and %d more like these", n), Fix: v.fixes[kind.id],
				File: v.name, Line: v.last[kind], Column: 1})
		}
	}
}

// addSkipped holds a line that is blank or a comment, together with such lines before it.
func (v *validation) addSkipped(number int, text []byte) {
	if n := len(v.lines); n > 0 && v.lines[n-1].skip && len(v.lines[n-1].text)+len(text) < maxLineBytes {
		v.lines[n-1].text = append(append(v.lines[n-1].text, '\n'), text...)
		return
	}
	v.lines = append(v.lines, &checkedLine{number: number, text: slices.Clone(text), skip: true})
}

// identify gives each finding its Key, by the text of its line: the line's number changes with every line that is
// written above it. Lines of one text, and findings of one rule about one place, are told apart by their order.
func (v *validation) identify() {
	texts := map[int]string{}
	named := map[int]bool{}
	for _, f := range v.findings {
		named[f.Line] = true
	}
	repeated := map[uint64]int{}
	for _, line := range v.lines {
		if line.skip && !named[line.number] {
			continue
		}
		digest := fnv.New64a()
		digest.Write(bytes.TrimSpace(line.text))
		text := digest.Sum64()
		if repeated[text]++; named[line.number] {
			texts[line.number] = fmt.Sprintf("%016x.%d", text, repeated[text])
		}
	}
	taken := map[string]int{}
	for i := range v.findings {
		f := &v.findings[i]
		f.Key = finding.Key(f.Rule, f.File)
		if text, ok := texts[f.Line]; ok {
			f.Key = finding.Key(f.Key, text, fmt.Sprint(f.Column))
		}
		if taken[f.Key]++; taken[f.Key] > 1 {
			f.Key = finding.Key(f.Key, fmt.Sprint(taken[f.Key]))
		}
	}
}

// rules lists what the server reads, in order.
func (v *validation) rules() []Rule {
	var rules []Rule
	for _, line := range v.lines {
		if line.ok {
			rules = append(rules, line.rule)
		}
	}
	return rules
}

func (v *validation) checkLines() {
	decoder := newDecoder()
	for i, line := range v.lines {
		if line.skip {
			continue
		}
		rule, unversioned, err := decoder.decode(line.text)
		if err != nil {
			v.checkBroken(i, err)
		} else {
			rule.Line = line.number
			line.rule, line.ok = rule, true
			v.checkSpelling(line, unversioned)
		}
		for _, rule := range line.judged() {
			v.checkMeaning(line, rule)
		}
	}
}

// checkBroken judges a line that the server refuses, and the lines that belong to it when a rule was spread over
// several.
func (v *validation) checkBroken(at int, cause error) {
	line := v.lines[at]
	subject := fmt.Sprintf("line %d", line.number)
	if text, last := v.spread(at); last > at {
		line.repair = repairText(text)
		for _, consumed := range v.lines[at+1 : last+1] {
			consumed.skip = true
			if line.repair != nil {
				consumed.repair = &repaired{}
			}
		}
		v.add("FUS200", place{line.number, 1}, subject, line.repair.fix(),
			"the rule continues until line %d, but the server reads every line on its own and does not start",
			v.lines[last].number)
		return
	}
	line.repair = repairText(line.text)
	column, what := brokenPlace(line.text, cause)
	v.add("FUS200", place{line.number, column}, subject, line.repair.fix(), "%s; the server does not start", what)
}

// spread finds the end of a JSON value that begins in one line and ends in a later one. The last line is the first one
// for a value that does not.
func (v *validation) spread(at int) (text []byte, last int) {
	const limitLines = 100 // far above any rule's, and a file of nothing but "{" takes no more than seconds
	text = slices.Clone(v.lines[at].text)
	if !isIncomplete(text) {
		return text, at
	}
	for next := at + 1; next < min(len(v.lines), at+limitLines); next++ {
		text = append(append(text, '\n'), v.lines[next].text...)
		if isComplete(text) {
			return text, next
		}
		if !isIncomplete(text) {
			break
		}
	}
	return nil, at
}

// brokenPlace says where and why the server stops reading a line.
func brokenPlace(text []byte, cause error) (column int, what string) {
	start := skip(text, " \t\r\n")
	all, end, err := members(text, start)
	if err == nil {
		rest := end + skip(text[end:], " \t\r\n")
		switch {
		case rest == len(text): // well-formed, but not a policy
			return columnOf(all, cause), describe(cause, text).Error()
		case text[rest] == '#' || bytes.HasPrefix(text[rest:], []byte("//")):
			return rest + 1, "a comment must be on a line of its own"
		case text[rest] == '{':
			return rest + 1, "two rules on one line"
		}
		return rest + 1, fmt.Sprintf("text after the rule: %q", excerpt(text[rest:]))
	}
	switch {
	case start < len(text) && text[start] == '[':
		return start + 1, "a list of rules: want one object per line"
	case bytes.HasPrefix(text[start:], []byte("//")):
		return start + 1, "a comment starts with #"
	case !utf8.Valid(text):
		return 1, "the line is not valid UTF-8"
	}
	return jsonErrorColumn(text, start), describe(cause, text).Error()
}

// columnOf finds the value that a well-formed line was refused for.
func columnOf(all []member, cause error) int {
	var wrongType *json.UnmarshalTypeError
	if errors.As(cause, &wrongType) {
		return int(wrongType.Offset)
	}
	for key, want := range map[string]string{"apiVersion": APIVersion, "kind": Kind} {
		if m, ok := findFold(all, key); ok && string(m.value) != `"`+want+`"` {
			return m.valueAt + 1
		}
	}
	return 1
}

func excerpt(text []byte) string {
	const limitBytes = 40
	if len(text) > limitBytes {
		return string(text[:limitBytes]) + "..."
	}
	return string(text)
}

// checkRepetition finds rules that others make superfluous, once every line is corrected.
func (v *validation) checkRepetition() {
	var rules []Rule
	for _, line := range v.lines {
		rules = append(rules, line.rules()...)
	}
	var kept []Rule
	stays := map[Rule]bool{}
	for _, i := range minimal(rules) {
		kept = append(kept, rules[i])
		stays[rules[i]] = true
	}
	set := newPartSet(realParts(kept))
	holder := map[part]Rule{}
	for _, rule := range slices.Backward(kept) {
		for _, p := range rule.realParts() {
			holder[p] = rule
		}
	}
	for _, line := range v.lines {
		for _, rule := range line.rules() {
			if !stays[rule] {
				v.addRepetition(line, rule, set, holder)
			}
		}
	}
}

// addRepetition reports a rule that the rules of the set cover, unless it allows nothing, which is a finding of its
// own.
func (v *validation) addRepetition(line *checkedLine, rule Rule, set *partSet, holder map[part]Rule) {
	var others []int
	id, what := "FUS201", "the same as"
	for _, p := range rule.realParts() {
		cover, _ := set.cover(p)
		other := holder[cover]
		if other.bare() != rule.bare() {
			id, what = "FUS202", "covered by"
		}
		if !slices.Contains(others, other.Line) {
			others = append(others, other.Line)
		}
	}
	if len(others) == 0 {
		return
	}
	where := lineList(others)
	comment := fmt.Sprintf("# %s %s: %s", what, where, bytes.TrimSpace(line.text))
	v.add(id, place{line.number, 1}, rule.who(), comment, "the rule is %s %s and can be removed", what, where)
	if len(line.rules()) == 1 {
		line.repair = &repaired{lines: []string{comment}}
	}
}

func lineList(lines []int) string {
	slices.Sort(lines)
	if len(lines) == 1 {
		return fmt.Sprintf("line %d", lines[0])
	}
	words := make([]string, len(lines))
	for i, n := range lines {
		words[i] = fmt.Sprint(n)
	}
	return "lines " + strings.Join(words, " and ")
}

// fixed prints the file with the corrections in their places.
func (v *validation) fixed() ([]byte, int) {
	var out bytes.Buffer
	changed := 0
	for _, line := range v.lines {
		tooLong := func(text string) bool { return len(text) >= maxLineBytes }
		if line.repair == nil || slices.ContainsFunc(line.repair.lines, tooLong) {
			out.Write(line.text)
			out.WriteByte('\n')
			continue
		}
		changed++
		for _, text := range line.repair.lines {
			out.WriteString(text + "\n")
		}
	}
	return out.Bytes(), changed
}

// who names the subject of a rule in a finding.
func (r Rule) who() string {
	switch {
	case r.everybody():
		return "everybody"
	case r.User != "" && r.User != "*" && r.Group != "" && r.Group != "*":
		return fmt.Sprintf("user %q in group %q", r.User, r.Group)
	case r.User != "" && r.User != "*":
		return fmt.Sprintf("user %q", r.User)
	case r.Group != "":
		return fmt.Sprintf("group %q", r.Group)
	}
	return "no subject"
}

// what prints everything that the rule allows.
func (r Rule) what() string {
	var all []string
	for _, p := range r.realParts() {
		all = append(all, regionOf(p, verbsOf(p)).What())
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", and to ")
}
