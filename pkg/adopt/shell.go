package adopt

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/spec"
	"mvdan.cc/sh/v3/syntax"
)

// shellScript returns the script of sh -c SCRIPT, and whether the words are one.
func shellScript(words []string) (string, bool) {
	script, _, ok := shellCommand(words)
	return script, ok
}

// shellCommand returns the script of sh -c SCRIPT NAME ARGUMENT..., too, with what it is called with.
func shellCommand(words []string) (script string, arguments []string, ok bool) {
	if len(words) < 3 || !slices.Contains([]string{"sh", "bash", "dash", "ash"}, path.Base(words[0])) {
		return "", nil, false
	}
	for i := 1; i+1 < len(words); i++ {
		switch option := words[i]; {
		case option == "-o" || option == "+o":
			i++ // and its value
		case strings.HasPrefix(option, "--"):
		case strings.HasPrefix(option, "-") && strings.Contains(option, "c"):
			return words[i+1], words[min(i+3, len(words)):], true
		case !strings.HasPrefix(option, "-"):
			return "", nil, false
		}
	}
	return "", nil, false
}

// shell finds the component that a script starts: one simple command among pipes, redirections and others.
func (r *reader) shell(place, script string, arguments []string, environment map[string]string) (commandLine, bool) {
	s := &shellReader{variables: maps.Clone(environment), positional: arguments, made: r.made,
		file: func(name string) (string, bool) {
			_, text, ok := r.textOf(name)
			return text, ok
		}}
	if err := s.read(script); err != nil {
		r.note(place, "the shell script is ignored: %v", err)
		return commandLine{}, false
	}
	if len(s.started) == 0 {
		return commandLine{}, false
	}
	line := s.started[0].line
	line.broken = r.noteUnread(place, "the shell", s.unread, s.started[0])
	if line.broken == "" {
		line.asks = r.noteShell(place, s.started[0])
	}
	return line, true
}

// noteUnread names the files that a script reads and that are not there, and says why its arguments are not all there,
// "" where they may be.
func (r *reader) noteUnread(place, who string, unread []string, c started) (broken string) {
	switch {
	case len(unread) > 0 && len(c.unset) > 0:
		return fmt.Sprintf("$%s is not set here, and %s reads %s, which is not among the files; copy it there under "+
			"its full path", c.unset[0].text, who, unread[0])
	case len(unread) > 0:
		r.note(place, "%s reads %s, which is not among the files; nothing of it counts", who,
			strings.Join(unread, ", "))
	}
	return ""
}

// noteShell names what a shell does around a component and what only it can know.
func (r *reader) noteShell(place string, c started) (asks []asked) {
	r.note(place, "the shell around %s is left out: its output goes to the container's or unit's log", c.line.component)
	r.noteWrapper(place, c.line)
	for _, part := range c.raw {
		asks = append(asks, r.ask(place, part.flag,
			"%s is computed by the shell at start and is kept literally; write its value", part.text))
	}
	for _, part := range c.left {
		asks = append(asks, r.ask(place, part.flag,
			"%s is computed by the shell at start and is left out; add its arguments", part.text))
	}
	for _, part := range c.unset {
		asks = append(asks, r.ask(place, part.flag, "the shell variable %s is not set here; it is taken as empty",
			part.text))
	}
	for _, part := range c.maybe {
		asks = append(asks, r.ask(place, part.flag, "the shell sets %s under a condition, which is taken as "+
			"fulfilled; leave out what it does not set here", part.text))
	}
	return asks
}

// started is a component that a script starts.
type started struct {
	line  commandLine
	raw   []asked // arguments with parts that only a shell can expand
	left  []asked // words that are such a part altogether
	unset []asked // variables, and the arguments that have them
	maybe []asked // variables that are set under a condition
}

// shellReader follows a script as far as starting a component depends on it: assignments and simple commands.
type shellReader struct {
	variables  map[string]string
	positional []string                                 // what a script is called with
	file       func(name string) (text string, ok bool) // what a script may read; nil for none
	// the text is a script file: functions count, and so does every component
	whole     bool
	depth     int
	functions map[string]*syntax.FuncDecl
	called    map[string]bool
	unread    []string     // files that are sourced and are not there
	written   *memoryFiles // what the script writes from here-documents
	made      *made
	visited   int // of its nodes, again at each call of a function
	started   []started
	directory string        // to which it changed, "" for none
	exported  []spec.EnvVar // to what it starts

	arrays map[string][]string
	// how many conditions the statement is under, and the variables that are set under one
	conditions  int
	conditional map[string]bool
	within      map[string]started // what is asked about the values of variables
	computed    map[string]bool    // variables with a part that only a shell can expand, which stands in the value

	now    started // the command that is being expanded
	opaque bool    // the word being expanded has such a part
}

func (s *shellReader) read(script string) error {
	statements, err := parsed(script)
	if err != nil {
		return err
	}
	if s.variables == nil {
		s.variables = map[string]string{}
	}
	for _, statement := range statements {
		syntax.Walk(statement, s.visit)
	}
	if s.depth == 0 {
		s.uncalled()
	}
	if s.visited > limitVisited {
		return beyond("its functions call each other too often, or its variables leave too much open of each other")
	}
	return s.made.err()
}

// limitStatement bounds a statement, functions as a whole among them. The parser goes as deep as parentheses are
// nested, and a process that runs out of stack cannot be saved: each of its levels takes up to 8 KiB of the gigabyte
// that there is.
const limitStatement = 64 << 10

// parsed are the statements of a script.
func parsed(script string) (statements []*syntax.Stmt, err error) {
	text := &boundedText{text: strings.NewReader(script), left: limitStatement}
	err = syntax.NewParser(syntax.Variant(syntax.LangBash)).Stmts(text, func(statement *syntax.Stmt) bool {
		statements, text.left = append(statements, statement), limitStatement
		return true
	})
	if err != nil && text.left <= 0 { // which the parser takes for the end
		err = beyond("one command of it has more than %d bytes", limitStatement)
	}
	return statements, err
}

// boundedText is a text that ends with an error when too much of it is read at once.
type boundedText struct {
	text *strings.Reader
	left int
}

// Read reads what is left.
func (b *boundedText) Read(into []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.text.Read(into)
	b.left -= n
	return n, err
}

// uncalled follows the functions that no command of the script calls: a word of the caller may be their name.
func (s *shellReader) uncalled() {
	for _, name := range slices.Sorted(maps.Keys(s.functions)) {
		if !s.called[name] {
			s.function(name, nil)
		}
	}
}

// function follows the body of a function with the arguments of a call.
func (s *shellReader) function(name string, arguments []string) {
	const limitDepth = 8 // a function may call itself
	if s.depth == limitDepth {
		return
	}
	outer := s.positional
	s.called[name] = true
	s.positional = arguments
	s.depth++
	syntax.Walk(s.functions[name].Body, s.visit)
	s.depth--
	s.positional = outer
}

// limitVisited is far above what a script of the longest file has.
const limitVisited = 1 << 22

func (s *shellReader) visit(node syntax.Node) bool {
	if s.visited++; s.visited > limitVisited || s.made.over() || len(s.started) > 0 && !s.whole {
		return false
	}
	switch node := node.(type) {
	case *syntax.CmdSubst, *syntax.ProcSubst:
		return false // what runs in there is another command
	case *syntax.FuncDecl:
		if s.whole && node.Name != nil { // the parser takes "() command", which shells refuse
			if s.functions == nil {
				s.functions, s.called = map[string]*syntax.FuncDecl{}, map[string]bool{}
			}
			s.functions[node.Name.Value] = node
		}
		return false
	case *syntax.IfClause:
		s.under(node)
		return false
	case *syntax.BinaryCmd:
		switch node.Op {
		case syntax.Pipe:
			s.hereDocument(node.X, teeFile(node.Y))
		case syntax.AndStmt, syntax.OrStmt:
			syntax.Walk(node.X, s.visit)
			s.conditions++
			syntax.Walk(node.Y, s.visit)
			s.conditions--
			return false
		}
	case *syntax.Stmt:
		s.hereDocument(node, node)
	case *syntax.DeclClause: // export NAME=VALUE
		s.assign(node.Args)
		if node.Variant != nil && node.Variant.Value == "export" {
			values := s.values(node.Args)
			s.made.count(len(values))
			s.exported = withVariables(s.exported, values)
		}
		return false
	case *syntax.CallExpr:
		s.call(node)
	}
	return true
}

func (s *shellReader) assign(assignments []*syntax.Assign) {
	for _, a := range assignments {
		if a.Name != nil && a.Array != nil {
			s.assignArray(a)
			continue
		}
		if a.Name == nil || a.Value == nil || a.Index != nil {
			continue
		}
		s.opaque = a.Append && s.computed[a.Name.Value]
		outer := s.questions(a)
		value := strings.Join(s.fields(a.Value, false), " ")
		s.keepQuestions(a.Name.Value, outer)
		if a.Append { // NAME+=VALUE
			value = s.variables[a.Name.Value] + value
		}
		if !s.made.take(len(value)) {
			return
		}
		s.depends(a.Name.Value, s.variables[a.Name.Value], value)
		s.variables[a.Name.Value] = value
		delete(s.computed, a.Name.Value)
		if s.opaque {
			if s.computed == nil {
				s.computed = map[string]bool{}
			}
			s.computed[a.Name.Value] = true
		}
	}
}

// questions starts an assignment: what is asked about its value is put aside from what is asked about a command.
func (s *shellReader) questions(a *syntax.Assign) (outer started) {
	outer, s.now = s.now, started{}
	if a.Append {
		s.askedIn(a.Name.Value)
	}
	return outer
}

// keepQuestions ends it: they are asked of whatever has the variable.
func (s *shellReader) keepQuestions(name string, outer started) {
	if s.within == nil {
		s.within = map[string]started{}
	}
	s.within[name] = started{unset: s.now.unset, maybe: s.now.maybe}
	s.now = outer
}

// askedIn asks what the value of a variable leaves open.
func (s *shellReader) askedIn(name string) {
	if within := s.within[name]; len(within.unset)+len(within.maybe) > 0 { // each is looked for among the others
		s.visited += len(within.unset) + len(within.maybe) + len(s.now.unset) + len(s.now.maybe)
	}
	s.now.unset = withQuestions(s.now.unset, s.within[name].unset)
	s.now.maybe = withQuestions(s.now.maybe, s.within[name].maybe)
}

// withQuestions adds questions, each once: values that are put together again and again would double them.
func withQuestions(list, more []asked) []asked {
	there := map[asked]bool{}
	if len(more) > 0 {
		for _, a := range list {
			there[a] = true
		}
	}
	for _, a := range more {
		if !there[a] {
			there[a] = true
			list = append(list, a)
		}
	}
	return list
}

// depends remembers whether a variable has its value, or a part of it, under a condition only.
func (s *shellReader) depends(name, before, value string) {
	switch {
	case s.conditions > 0 && value != before:
		if s.conditional == nil {
			s.conditional = map[string]bool{}
		}
		s.conditional[name] = true
	case s.conditions == 0 && !(before != "" && strings.Contains(value, before)):
		delete(s.conditional, name)
	}
}

// under follows a statement with a condition: its body counts, and what it sets is remembered.
func (s *shellReader) under(clause *syntax.IfClause) {
	for _, statement := range clause.Cond {
		syntax.Walk(statement, s.visit)
	}
	s.conditions++
	for _, statement := range clause.Then {
		syntax.Walk(statement, s.visit)
	}
	if clause.Else != nil {
		s.under(clause.Else)
	}
	s.conditions--
}

// assignArray keeps the words of NAME=(WORD...) and NAME+=(WORD...). One with words that only a shell can compute is
// left to it.
func (s *shellReader) assignArray(a *syntax.Assign) {
	name := a.Name.Value
	words := []string{}
	if a.Append {
		words = slices.Clone(s.arrays[name])
	}
	s.opaque = a.Append && s.arrays[name] == nil && s.computed[name]
	defer s.keepQuestions(name, s.questions(a))
	for _, element := range a.Array.Elems {
		if element.Value == nil || element.Index != nil {
			s.opaque = true
			continue
		}
		words = append(words, s.fields(element.Value, true)...)
	}
	size := 0
	for _, word := range words {
		size += len(word) + wordBytes
	}
	if s.arrays == nil {
		s.arrays = map[string][]string{}
	}
	if s.opaque || !s.made.take(size) {
		delete(s.arrays, name)
		return
	}
	s.depends(name, strings.Join(s.arrays[name], " "), strings.Join(words, " "))
	s.arrays[name] = words
}

// words are those of "$@", and of all elements of an array; false for another expansion.
func (s *shellReader) words(p *syntax.ParamExp) ([]string, bool) {
	if p.Param == nil || p.Excl || p.Length || p.Width || p.Slice != nil || p.Repl != nil || p.Exp != nil {
		return nil, false
	}
	if p.Index == nil {
		return s.positional, p.Param.Value == "@" || p.Param.Value == "*"
	}
	index, ok := p.Index.(*syntax.Word)
	words, known := s.arrays[p.Param.Value]
	if ok && known {
		s.askedIn(p.Param.Value)
		if s.conditional[p.Param.Value] {
			s.now.maybe = append(s.now.maybe, asked{text: p.Param.Value})
		}
	}
	return words, ok && known && (index.Lit() == "@" || index.Lit() == "*")
}

// values are the variables of assignments, without those that only a shell can compute and those that have arguments in
// them.
func (s *shellReader) values(assignments []*syntax.Assign) []spec.EnvVar {
	var values []spec.EnvVar
	for _, a := range assignments {
		if a.Name == nil || a.Index != nil {
			continue
		}
		value := s.variables[a.Name.Value]
		if s.opaque = false; a.Value != nil {
			value = strings.Join(s.fields(a.Value, false), " ")
		}
		if !s.opaque && value != "" && !strings.HasPrefix(value, "-") && a.Name.Value != "PATH" {
			values = append(values, spec.EnvVar{Name: a.Name.Value, Value: value})
		}
	}
	return values
}

func (s *shellReader) call(call *syntax.CallExpr) {
	if len(call.Args) == 0 {
		s.assign(call.Assigns)
		return
	}
	s.now = started{}
	var words []string
	for _, word := range call.Args {
		s.opaque = false
		unset, maybe := len(s.now.unset), len(s.now.maybe)
		fields := s.fields(word, true)
		text := strings.Join(fields, " ")
		flag := ""
		if len(fields) < 2 {
			flag = flagOfWord(words, text)
		}
		for i := range s.now.unset[unset:] {
			s.now.unset[unset+i].flag = flag
		}
		for i := range s.now.maybe[maybe:] {
			s.now.maybe[maybe+i].flag = flag
		}
		switch {
		case s.opaque && strings.HasPrefix(text, "-"):
			s.now.raw = append(s.now.raw, asked{flag, text})
		case s.opaque:
			s.now.left = append(s.now.left, asked{flag, text})
			continue
		}
		words = append(words, fields...)
	}
	if len(words) > 1 && (words[0] == "." || words[0] == "source") {
		s.source(words[1])
		return
	}
	if len(words) > 0 && s.functions[words[0]] != nil {
		s.function(words[0], words[1:])
		return
	}
	if len(words) == 2 && words[0] == "cd" && len(s.now.left) == 0 && len(s.now.raw) == 0 {
		s.directory = inDirectory(s.directory, words[1])
	}
	line, ok := locate(words)
	if !ok || s.whole && !slices.ContainsFunc(line.words, func(word string) bool {
		return strings.HasPrefix(word, "--") && len(word) > 2
	}) {
		return // in a script a name alone may be that of a unit or a process: systemctl restart kube-apiserver
	}
	daemon := slices.ContainsFunc(line.before, func(word string) bool { return path.Base(word) == "start-stop-daemon" })
	if daemon && slices.ContainsFunc(slices.Concat(line.before, line.words), isTest) {
		return
	}
	// start-stop-daemon --exec PROGRAM [OPTION...] -- ARGUMENT...
	if end := slices.Index(line.words, "--"); end == 0 || end > 0 && daemon {
		line.words = line.words[end+1:]
	}
	line.directory = inDirectory(s.directory, line.directory)
	line.env = withVariables(withVariables(slices.Clone(s.exported), s.values(call.Assigns)), line.env)
	s.now.line = line
	if !s.made.count(len(line.words) + len(line.env)) {
		return
	}
	if !slices.ContainsFunc(s.started, func(c started) bool { // start and restart do the same
		return c.line.component == line.component && slices.Equal(c.line.words, line.words)
	}) {
		s.started = append(s.started, s.now)
	}
}

// isTest reports whether a word keeps start-stop-daemon from starting or stopping anything: it says what it would do.
func isTest(word string) bool { return word == "--test" || word == "-t" }

// source reads the assignments of another file.
func (s *shellReader) source(name string) {
	const limitDepth = 8
	if s.file == nil || s.depth == limitDepth {
		return
	}
	if text, ok := s.file(name); ok {
		outer := s.conditions
		s.conditions = 0 // it is there
		defer func() { s.conditions = outer }()
		s.depth++
		_ = s.read(text) // a file that is no shell assigns nothing: its variables are named as not set
		s.depth--
	} else if s.made.count(1) && !slices.Contains(s.unread, name) {
		s.unread = append(s.unread, name)
	}
}

// fields expands a word into none, one or several: variables outside quotes are split at white space.
func (s *shellReader) fields(word *syntax.Word, split bool) []string {
	f := &fieldBuilder{split: split}
	s.parts(f, word.Parts, false)
	return f.done()
}

type fieldBuilder struct {
	split   bool
	fields  []string
	current strings.Builder
	started bool
}

// add appends to the current field; an empty quoted text starts one too.
func (f *fieldBuilder) add(text string) {
	f.current.WriteString(text)
	f.started = true
}

func (f *fieldBuilder) end() {
	if f.started {
		f.fields = append(f.fields, f.current.String())
	}
	f.current.Reset()
	f.started = false
}

func (f *fieldBuilder) done() []string {
	f.end()
	return f.fields
}

// addSplit appends the value of a variable that stands outside quotes.
func (f *fieldBuilder) addSplit(value string) {
	if !f.split {
		f.add(value)
		return
	}
	const space = " \t\n"
	words := strings.Fields(value)
	if len(words) == 0 || strings.ContainsRune(space, rune(value[0])) {
		f.end()
	}
	for i, word := range words {
		if i > 0 {
			f.end()
		}
		f.add(word)
	}
	if len(words) > 0 && strings.ContainsRune(space, rune(value[len(value)-1])) {
		f.end()
	}
}

func (s *shellReader) parts(f *fieldBuilder, parts []syntax.WordPart, quoted bool) {
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if s.made.take(len(part.Value)) {
				f.add(unescape(part.Value, quoted))
			}
		case *syntax.SglQuoted:
			if s.made.take(len(part.Value)) {
				f.add(part.Value)
			}
		case *syntax.DblQuoted:
			if all, ok := s.isAll(part); !ok || len(all) > 0 {
				f.add("")
			}
			s.parts(f, part.Parts, true)
		case *syntax.ParamExp:
			if words, ok := s.words(part); ok {
				for i, word := range words {
					if i > 0 {
						f.end()
					}
					if !s.made.take(len(word) + wordBytes) {
						break
					}
					f.add(word)
				}
				continue
			}
			value, ok := s.parameter(part)
			switch {
			case !ok:
				f.add(s.text(part))
			case part.Param != nil && s.computed[part.Param.Value] && value != "":
				s.opaque = true // what it is split into is not known
				f.add(value)
			case quoted:
				f.add(value)
			case value != "":
				f.addSplit(value)
			}
		default:
			f.add(s.text(part))
		}
	}
}

// isAll reports whether a quoted text is "$@" or "${NAME[@]}", which is no word at all where there are none.
func (s *shellReader) isAll(quoted *syntax.DblQuoted) ([]string, bool) {
	if len(quoted.Parts) != 1 {
		return nil, false
	}
	p, ok := quoted.Parts[0].(*syntax.ParamExp)
	if !ok {
		return nil, false
	}
	return s.words(p)
}

// parameter expands $NAME, ${NAME}, and the forms with a word for one that is set or not; others are left to a shell.
func (s *shellReader) parameter(p *syntax.ParamExp) (string, bool) {
	plain := p.Param != nil && !p.Excl && !p.Length && !p.Width && p.Index == nil && p.Slice == nil && p.Repl == nil
	if !plain {
		return "", false
	}
	value, set := s.variables[p.Param.Value]
	s.askedIn(p.Param.Value)
	if len(s.now.unset)+len(s.now.maybe) > limitWords/question {
		s.made.count(limitWords) // of one value, which goes into others
	}
	if s.conditional[p.Param.Value] {
		s.now.maybe = append(s.now.maybe, asked{text: p.Param.Value})
	}
	if n, err := strconv.Atoi(p.Param.Value); err == nil && n > 0 && n <= len(s.positional) {
		value, set = s.positional[n-1], true
	}
	switch {
	case p.Exp == nil && !set:
		s.now.unset = append(s.now.unset, asked{text: p.Param.Value})
		return "", true
	case p.Exp == nil:
		return value, s.made.take(len(value))
	}
	word := func() string {
		if p.Exp.Word == nil {
			return ""
		}
		return strings.Join(s.fields(p.Exp.Word, false), " ")
	}
	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.AssignUnset:
		if !set {
			value = word()
		}
	case syntax.DefaultUnsetOrNull, syntax.AssignUnsetOrNull:
		if value == "" {
			value = word()
		}
	case syntax.AlternateUnset:
		if set {
			value = word()
		}
	case syntax.AlternateUnsetOrNull:
		if value != "" {
			value = word()
		}
	default:
		return "", false
	}
	if p.Exp.Op == syntax.AssignUnset || p.Exp.Op == syntax.AssignUnsetOrNull {
		s.variables[p.Param.Value] = value
	}
	return value, s.made.take(len(value))
}

// text prints a part that only a shell can expand.
func (s *shellReader) text(part syntax.WordPart) string {
	s.opaque = true
	var out bytes.Buffer
	if s.made.over() || syntax.NewPrinter().Print(&out, part) != nil || !s.made.take(out.Len()) {
		return "$(...)"
	}
	return out.String()
}

// unescape takes the backslashes out of a literal. Inside double quotes they count only before a few characters.
func unescape(s string, quoted bool) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte("$`\"\\\n", s[i+1]) >= 0) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
