package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// systemFolders are where systemd looks for units and drop-ins, least important first.
var systemFolders = []string{"usr/lib/systemd/system", "lib/systemd/system", "run/systemd/system", "etc/systemd/system"}

// directive is one KEY=VALUE of a unit.
type directive struct {
	section string
	key     string
	value   string
	place   string // FILE:LINE
}

// unit reads a service and its drop-ins.
func (r *reader) unit(name string, text []byte) error {
	directives := parseUnit(name, text)
	dropIns, err := r.dropIns(path.Base(name))
	if err != nil {
		return err
	}
	u := &service{reader: r, name: name}
	var stray []directive
	for _, d := range append(directives, dropIns...) {
		if d.section == "Service" && strings.HasPrefix(d.key, "-") && u.one {
			stray = append(stray, d)
		}
		if d.section == "Service" {
			u.apply(d)
		}
	}
	if len(stray) > 0 {
		var keys []string
		for _, d := range stray {
			keys = append(keys, d.key)
		}
		u.note(stray[0].place, "left out, as systemd leaves it out where the line before it has no backslash at its "+
			"end: %s", strings.Join(keys, " "))
	}
	return u.process()
}

// parseUnit reads the lines of a unit: a backslash at the end continues a line, and comments may stand between
// continued lines.
func parseUnit(name string, text []byte) []directive {
	var directives []directive
	section, start := "", 0
	var pending strings.Builder
	for i, line := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
			continue
		}
		if pending.Len() == 0 {
			start = i + 1
		}
		if continued, ok := strings.CutSuffix(strings.TrimRight(line, " \t"), `\`); ok {
			pending.WriteString(continued + " ")
			continue
		}
		pending.WriteString(line)
		whole := strings.TrimSpace(pending.String())
		pending.Reset()
		switch key, value, found := strings.Cut(whole, "="); {
		case strings.HasPrefix(whole, "[") && strings.HasSuffix(whole, "]"):
			section = whole[1 : len(whole)-1]
		case found:
			directives = append(directives, directive{section, strings.TrimSpace(key), strings.TrimSpace(value),
				fmt.Sprintf("%s:%d", name, start)})
		}
	}
	return directives
}

// dropIns reads NAME.d/*.conf from beside the unit, from the other folders of systemd where the unit lies in one of
// them, and from the host's folders when there is a host. Of equal names the most important counts.
func (r *reader) dropIns(unit string) ([]directive, error) {
	type place struct {
		files  fs.FS
		folder string
	}
	var places []place
	switch {
	case r.host != nil:
		for _, folder := range systemFolders {
			places = append(places, place{r.host, folder})
		}
	case slices.Contains(systemFolders, r.folder):
		for _, folder := range systemFolders {
			places = append(places, place{r.files, folder})
		}
	default:
		places = []place{{r.files, r.folder}}
	}
	found := map[string][]byte{}
	paths := map[string]string{}
	for _, name := range dropInFolders(unit) {
		for _, p := range places {
			folder := path.Join(p.folder, name)
			entries, err := fs.ReadDir(p.files, folder)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if len(entries) > limitFiles {
				return nil, fmt.Errorf("%s holds %d files, want at most %d", folder, len(entries), limitFiles)
			}
			for _, entry := range entries {
				if path.Ext(entry.Name()) != ".conf" {
					continue
				}
				name := path.Join(folder, entry.Name())
				text, err := r.readText(p.files, name)
				if err != nil {
					return nil, err
				}
				found[entry.Name()], paths[entry.Name()] = text, name
			}
		}
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	var directives []directive
	for _, name := range names {
		directives = append(directives, parseUnit(paths[name], found[name])...)
	}
	return directives, nil
}

// dropInFolders are those of a unit, least important first: kube-api.service has service.d, kube-.service.d and
// kube-api.service.d; instances have those of their template, too.
func dropInFolders(unit string) []string {
	kind := path.Ext(unit)
	folders := []string{strings.TrimPrefix(kind, ".") + ".d"}
	prefix, instance, isInstance := strings.Cut(strings.TrimSuffix(unit, kind), "@")
	for i := range prefix {
		if prefix[i] == '-' && i+1 < len(prefix) {
			folders = append(folders, prefix[:i+1]+kind+".d")
		}
	}
	if isInstance && instance != "" {
		folders = append(folders, prefix+"@"+kind+".d")
	}
	return append(folders, unit+".d")
}

// overridden is the folder with a unit of the same name that systemd reads instead, "" for none.
func (r *reader) overridden(unit string) string {
	at := slices.Index(systemFolders, r.folder)
	if at < 0 {
		return ""
	}
	for _, folder := range systemFolders[at+1:] {
		if folder == "lib/systemd/system" && r.folder == "usr/lib/systemd/system" {
			continue // often the same folder by another name
		}
		if r.unitsIn(folder)[unit] {
			return folder
		}
	}
	return ""
}

// unitsIn are the names in a folder of systemd.
func (r *reader) unitsIn(folder string) map[string]bool {
	if names, known := r.units[folder]; known {
		return names
	}
	names := map[string]bool{}
	entries, _ := fs.ReadDir(r.files, folder) // none where there is no such folder
	for _, entry := range entries {
		names[entry.Name()] = true
	}
	if r.units == nil {
		r.units = map[string]map[string]bool{}
	}
	r.units[folder] = names
	return names
}

// service is the [Service] section of a unit after all of its drop-ins.
type service struct {
	*reader
	name        string
	starts      []directive
	before      []directive // ExecStartPre
	binds       []directive // BindPaths and BindReadOnlyPaths
	root        directive   // RootDirectory or RootImage
	one         bool        // of them names a component that a spec has arguments for
	environment []directive
	envFiles    []directive
	directory   directive       // WorkingDirectory
	own         map[string]bool // variables that the unit itself sets
}

func (u *service) apply(d directive) {
	lists := map[string]*[]directive{"ExecStart": &u.starts, "ExecStartPre": &u.before, "Environment": &u.environment,
		"EnvironmentFile": &u.envFiles, "BindPaths": &u.binds, "BindReadOnlyPaths": &u.binds}
	list, ok := lists[d.key]
	if list == &u.starts {
		u.one = d.value != "" && (u.one || startsOne(d.value))
	}
	switch {
	case d.key == "WorkingDirectory":
		u.directory = d
	case d.key == "RootDirectory" || d.key == "RootImage":
		u.root = d
	case !ok:
	case d.value == "":
		*list = nil // an empty assignment forgets the earlier ones
	default:
		*list = append(*list, d)
	}
}

// startsOne reports whether an ExecStart names a component that a spec has arguments for.
func startsOne(start string) bool {
	words, err := splitWords(start)
	return err == nil && hasArguments(programOf(words))
}

// hasArguments reports whether a spec has arguments for a component.
func hasArguments(component string) bool { return slices.Contains(programs[:3], component) }

// process finds the component that the service starts.
func (u *service) process() error {
	var variables map[string]string
	var missing []string
	for _, start := range u.starts {
		start, known := u.created(start)
		if !known {
			continue
		}
		command := strings.TrimLeft(start.value, prefixes)
		words, err := splitWords(u.specifiers(start, command))
		if err != nil {
			u.note(start.place, "is ignored: its ExecStart: %v", err)
			continue
		}
		if prefix := strings.TrimSuffix(start.value, command); strings.Contains(prefix, "@") && len(words) > 1 {
			words = slices.Delete(words, 1, 2) // the name that the process has
		}
		script, isScript := u.script(words)
		if !isScript && !mentionsComponent(words) {
			u.noteScript(start.place, words)
			continue
		}
		if variables == nil {
			if variables, missing, err = u.variables(); err != nil {
				return err
			}
		}
		expanded, unset := expandWords(words, variables, u.made)
		if u.made.count(len(variables) + len(unset)); u.ignored(start.place) {
			continue
		}
		// etcd and kubelets only tell about the cluster
		informs := !isScript && !hasArguments(programOf(words))
		if len(unset) > 0 && len(missing) > 0 && informs {
			u.note(start.place, "is left out: $%s comes from %s, which is not among the files", unset[0].text,
				missing[0])
			continue
		}
		if len(unset) > 0 && len(missing) > 0 {
			return fmt.Errorf("%s: $%s comes from %s, which is not among the files; copy it there, as %s or under "+
				"its full path; an empty one where the host has none",
				start.place, unset[0].text, missing[0], path.Base(missing[0]))
		}
		if isScript {
			if !u.startedBy(script, script.arguments(expanded), variables, u.workingDirectory()) && u.named() {
				u.note(start.place, "is ignored: it runs %s, in which no component is seen to start", script.name)
			}
			continue
		}
		line, ok := u.commandLine(start.place, expanded, variables)
		if !ok && u.named() && slices.ContainsFunc(expanded, isOption) {
			line, ok = wrapped(stem(u.name), expanded), true
			u.note(start.place, "%s is taken for the program of %s", strings.Join(line.command, " "), line.component)
		}
		if !ok {
			u.noteScript(start.place, words)
			continue
		}
		for _, part := range unset {
			a := u.ask(start.place, part.flag, "$%s is not set anywhere; systemd takes it as empty", part.text)
			if u.host == nil { // on the machine itself that is so
				line.asks = append(line.asks, a)
			}
		}
		p := Process{Component: line.component, Name: stem(u.name), Place: start.place, Command: line.command,
			Words: line.words, broken: line.broken, asks: line.asks}
		directory := u.workingDirectory()
		if p.Image = line.image; p.Image != "" {
			p.Mounts = runtimeMounts(line.before)
			directory = "" // the image's
			u.note(start.place, "the options of the container runtime are left out; a spec holds image, command, "+
				"arguments, environment and paths of the host")
		}
		_, shell := shellScript(words)
		for i, word := range expanded {
			literal := !shell && unexpanded.MatchString(word) && flagOfWord(expanded[:i], word) != ""
			if machineVariable.MatchString(word) || literal {
				p.unfilled = cmp.Or(p.unfilled, word)
			}
		}
		if p.Image == "" { // a container has the variables that it is run with, not those of the runtime's client
			p.Env = u.kept(variables, referenced([]byte(start.value)))
		}
		p.Env = withVariables(p.Env, line.env)
		u.workIn(&p, inDirectory(directory, line.directory))
		if p.Image == "" {
			p.Mounts = append(p.Mounts, u.bound()...)
		}
		p.broken = cmp.Or(p.broken, u.elsewhere(line))
		u.start(p)
	}
	return nil
}

// prefixes are what systemd has before the program of a command line.
const prefixes = "@-:+!|"

// created is the directive that says what a container runs which an ExecStart starts by its name: the one that creates
// it before, or the ExecStart itself where it is no such one. False where none is seen to, which is noted of a
// component.
func (u *service) created(start directive) (directive, bool) {
	words, err := splitWords(strings.TrimLeft(start.value, prefixes))
	if script, shell := shellScript(words); shell {
		words = strings.Fields(script)
	}
	name := ""
	if err == nil {
		name = startedAgain(words)
	}
	if name == "" {
		return start, true
	}
	for _, d := range slices.Backward(u.before) {
		words, err := splitWords(strings.TrimLeft(d.value, prefixes))
		named := func(word string) bool { return word == name || strings.HasSuffix(word, "="+name) }
		if err == nil && slices.ContainsFunc(words, isRuntime) && mentionsComponent(words) &&
			slices.ContainsFunc(words, named) &&
			(slices.Contains(words, "create") || slices.Contains(words, "run")) {
			return d, true
		}
	}
	if u.bundle(words) || !aboutComponent(stem(u.name)+" "+name) {
		return start, false
	}
	want := "the processes as they run: ps -ww -eo args > FILE on the host"
	if slices.ContainsFunc(words, isRuntime) {
		want = "what docker inspect " + name + " prints"
	}
	why := fmt.Sprintf("it starts container %s, and does not say what that runs; want %s", name, want)
	u.note(start.place, "is ignored: %s", why)
	u.refused = append(u.refused, fmt.Errorf("%s: %s", start.place, why))
	return start, false
}

// bundle reads what an OCI runtime runs: the configuration is where the runtime is started, or in the directory that it
// is given.
func (u *service) bundle(words []string) bool {
	directory := cmp.Or(runtimeOption(words, "--bundle", "-b"), u.workingDirectory())
	found, text, ok := u.textOf(path.Join(directory, "config.json"))
	if !ok || slices.ContainsFunc(words, isRuntime) {
		return false
	}
	before := len(u.processes)
	u.manifest(found, []byte(text))
	return len(u.processes) > before
}

// aboutComponent reports whether names are those of a component that a spec has arguments for.
func aboutComponent(names string) bool {
	return strings.Contains(names, "apiserver") ||
		slices.ContainsFunc(programs[:3], func(program string) bool { return strings.Contains(names, program) })
}

// bound are the paths of the host that systemd shows to the processes of the service in other places.
func (u *service) bound() []spec.Mount {
	var mounts []spec.Mount
	for _, d := range u.binds {
		words, err := splitWords(u.specifiers(d, d.value))
		if err != nil {
			u.note(d.place, "%s is ignored: %v", d.key, err)
			continue
		}
		for _, word := range words {
			from, to, _ := strings.Cut(strings.TrimPrefix(word, "-"), ":")
			to, _, _ = strings.Cut(to, ":")
			if path.IsAbs(from) {
				mounts = append(mounts, bind(len(mounts), from, cmp.Or(to, from), d.key == "BindReadOnlyPaths"))
			}
		}
	}
	return mounts
}

// elsewhere says why a component's arguments name no files of its host, "" for one that sees them as they are.
func (u *service) elsewhere(line commandLine) string {
	root := ""
	if u.root.value != "" && u.root.value != "/" {
		root = u.root.key + "=" + u.root.value
	}
	at := slices.IndexFunc(line.before, func(word string) bool {
		return slices.Contains([]string{"chroot", "systemd-nspawn"}, path.Base(word))
	})
	if runtime := slices.IndexFunc(line.before, isRuntime); at < 0 && runtime >= 0 &&
		slices.Contains(line.before[runtime:], "exec") {
		at = runtime
	}
	if at >= 0 {
		root = strings.Join(line.before[at:], " ")
	}
	if root == "" || !hasArguments(line.component) {
		return ""
	}
	return root + " makes the paths among the arguments those of another root; want the unit without it, with the " +
		"paths as they are on the host"
}

// named reports whether the unit is called after a component that a spec has arguments for.
func (u *service) named() bool { return slices.Contains(programs[:3], stem(u.name)) }

// isOption reports whether a word is an argument with a name.
func isOption(word string) bool { return strings.HasPrefix(word, "--") && len(word) > 2 }

// programOf is the component that the words of an ExecStart name, "" for none.
func programOf(words []string) string {
	line, ok := locate(words)
	if script, shell := shellScript(words); shell {
		line, ok = locate(strings.Fields(script))
	}
	if !ok {
		return ""
	}
	return line.component
}

// mentionsComponent spares units of other programs from the search for their environment files.
func mentionsComponent(words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(programs, func(program string) bool { return strings.Contains(word, program) }) ||
			strings.Contains(word, "hyperkube") || path.Base(word) == fusionctl
	})
}

// variables reads the environment of the service: its own assignments, then its files, of which later ones win. It
// returns the files that are not to be found as well.
func (u *service) variables() (map[string]string, []string, error) {
	variables := map[string]string{}
	u.own = map[string]bool{}
	for _, d := range u.environment {
		words, err := splitWords(u.specifiers(d, d.value))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: Environment: %w", d.place, err)
		}
		for _, word := range words {
			if name, value, ok := strings.Cut(word, "="); ok {
				variables[name], u.own[name] = value, true
			}
		}
	}
	var missing []string
	for _, d := range u.envFiles {
		name, optional := strings.CutPrefix(u.specifiers(d, d.value), "-")
		name = strings.TrimPrefix(name, "/")
		text, found, err := u.environmentFile(name)
		if err != nil {
			return nil, nil, err
		}
		if !found && optional && u.host != nil {
			continue // the machine itself has none, which systemd takes as empty
		}
		if !found {
			missing = append(missing, "/"+name)
			continue
		}
		for _, exported := range parseEnvironmentFile(string(text), variables, false) {
			if u.referenced[exported] {
				u.note(d.place, "systemd leaves out the line of %s in /%s, for it starts with export", exported, name)
			}
		}
	}
	return variables, missing, nil
}

// environmentFile looks for a file by its full path below the directory, by its base name in it, and on the host.
func (u *service) environmentFile(name string) ([]byte, bool, error) {
	candidates := []struct {
		files fs.FS
		name  string
	}{{u.files, path.Clean(name)}, {u.files, path.Join(u.folder, path.Base(name))}, {u.host, path.Clean(name)},
		{u.files, path.Base(name)}}
	for _, c := range candidates {
		if c.files == nil || !fs.ValidPath(c.name) {
			continue
		}
		text, err := u.readText(c.files, c.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		u.environmentFiles[c.name] = true
		return text, err == nil, err
	}
	return nil, false, nil
}

// workingDirectory is where systemd starts the processes of the service, "" where only the machine can tell.
func (u *service) workingDirectory() string {
	directory, _ := strings.CutPrefix(u.directory.value, "-")
	if directory == "" {
		return "/"
	}
	if directory = u.specifiers(u.directory, directory); !path.IsAbs(directory) || strings.Contains(directory, "%") {
		return "" // ~ is the home of its user
	}
	return path.Clean(directory)
}

// machineSpecifiers are those that are the same on every machine, for services of the system.
var machineSpecifiers = map[byte]string{'C': "/var/cache", 'E': "/etc", 'L': "/var/log", 'S': "/var/lib", 'T': "/tmp",
	't': "/run", 'V': "/var/tmp"}

// specifiers expands those that the unit's name or the host's tells, and those that are the same everywhere; others are
// kept as they are written.
func (u *service) specifiers(d directive, value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	name := path.Base(u.name)
	stem := strings.TrimSuffix(name, ".service")
	prefix, instance, _ := strings.Cut(stem, "@")
	named := map[byte]string{'%': "%", 'n': name, 'N': stem, 'p': prefix, 'P': unescapePath(prefix), 'i': instance,
		'I': unescapePath(instance), 'H': u.hostname()}
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' || i+1 == len(value) {
			out.WriteByte(value[i])
			continue
		}
		i++
		text := cmp.Or(named[value[i]], machineSpecifiers[value[i]])
		if text == "" && !(value[i] == 'i' || value[i] == 'I') {
			u.note(d.place, "%%%c is substituted by systemd at start and is kept literally; write its value",
				value[i])
			text = "%" + value[i:i+1]
		}
		out.WriteString(text)
	}
	return out.String()
}

// unescapePath undoes what systemd-escape does: a dash stands for a slash.
func unescapePath(s string) string {
	return hexadecimal.ReplaceAllStringFunc(strings.ReplaceAll(s, "-", "/"), func(match string) string {
		n, err := strconv.ParseUint(match[2:], 16, 8)
		if err != nil {
			return match
		}
		return string([]byte{byte(n)})
	})
}

var hexadecimal = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// hostname is that of the host whose root is among the files, "" where it is not.
func (u *service) hostname() string {
	if u.hostName != nil {
		return *u.hostName
	}
	u.hostName = new(string)
	_, text, _ := u.textOf("/etc/hostname")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			*u.hostName = line
			break
		}
	}
	return *u.hostName
}

// machineVariable is one that user data have in place of an address of the machine.
var machineVariable = regexp.MustCompile(`\$\{?(private|public)_ipv[46]\b`)

// unexpanded is a variable in a value: systemd expands none in what it has put in, so that a component would get it as
// it is. Scripts that write files with values from their own arguments leave it.
var unexpanded = regexp.MustCompile(`\$\{?[A-Za-z_0-9]`)

var references = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)

// referenced lists the variables that the command lines of a unit use.
func referenced(text []byte) []string {
	var names []string
	for _, match := range references.FindAllSubmatch(text, -1) {
		names = append(names, string(match[1]))
	}
	return names
}

// kept lists the variables that the program itself may read: those that no unit puts into a command line. Variables
// of files that hold arguments are for units that are not here.
func (u *service) kept(variables map[string]string, used []string) []spec.EnvVar {
	var kept []spec.EnvVar
	inLine := map[string]bool{}
	for _, name := range used {
		inLine[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		ownOption := strings.HasPrefix(value, "-") && u.own[name] // such as the options of a wrapper
		if !u.referenced[name] && !inLine[name] && value != "" &&
			(ownOption || !strings.HasPrefix(value, "-")) {
			kept = append(kept, spec.EnvVar{Name: name, Value: value})
		}
	}
	return kept
}

// splitWords splits as systemd does: at white space, with quotes and C escapes.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	started, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i += unescapeC(&word, s[i+1:])
			started = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, started = c, true
		case quote == 0 && strings.IndexByte(" \t\n\r", c) >= 0:
			if started {
				words = append(words, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote %c is not closed", quote)
	}
	if started {
		words = append(words, word.String())
	}
	return words, nil
}

var escapesC = map[byte]byte{
	'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', 's': ' ', '\\': '\\', '"': '"',
	'\'': '\'',
}

// unescapeC writes what follows a backslash and returns how many bytes that was; what is no escape keeps its backslash.
func unescapeC(word *strings.Builder, rest string) int {
	if c, ok := escapesC[rest[0]]; ok {
		word.WriteByte(c)
		return 1
	}
	digits, base := 3, 8
	if rest[0] == 'x' {
		digits, base = 3, 16 // the x counts
	}
	if len(rest) >= digits {
		if n, err := strconv.ParseUint(strings.TrimPrefix(rest[:digits], "x"), base, 8); err == nil && n != 0 &&
			n < 0x80 {
			word.WriteByte(byte(n))
			return digits
		}
	}
	word.WriteByte('\\')
	word.WriteByte(rest[0])
	return 1
}

// expandWords replaces variables as systemd does: $NAME as a word of its own becomes the words of its value, ${NAME}
// anywhere becomes the value as it is, $$ is a dollar. It returns the names that are not set, too, with the arguments
// that have them.
func expandWords(words []string, variables map[string]string, m *made) (expanded []string, unset []asked) {
	at := -1 // where the last word was that became none
	for _, word := range words {
		if len(word) < 2 || word[0] != '$' || word[1] == '{' || word[1] == '$' {
			text, missing := expandBraces(word, variables, m)
			for _, name := range missing {
				unset = append(unset, asked{flagOfWord(expanded, text), name})
			}
			expanded = append(expanded, text)
			continue
		}
		value, ok := variables[word[1:]]
		if !ok {
			flag := flagOfWord(expanded, word)
			if at == len(expanded) {
				flag = "" // the one before is its value
			}
			at = len(expanded)
			unset = append(unset, asked{flag, word[1:]})
			continue
		}
		if !m.take(len(value)) {
			continue
		}
		parts, err := splitWords(value)
		if err != nil {
			parts = strings.Fields(value)
		}
		expanded = append(expanded, parts...)
	}
	return expanded, unset
}

var bracedVariable = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

func expandBraces(word string, variables map[string]string, m *made) (string, []string) {
	var out strings.Builder
	var unset []string
	for i := 0; i < len(word); i++ {
		if word[i] != '$' || i+1 == len(word) {
			out.WriteByte(word[i])
			continue
		}
		braced := bracedVariable.FindString(word[i:]) // ${NAME:-WORD} is left to a shell
		switch {
		case word[i+1] == '$':
			out.WriteByte('$')
			i++
		case braced != "":
			name := braced[2 : len(braced)-1]
			value, ok := variables[name]
			if !ok {
				unset = append(unset, name)
			}
			if m.take(len(value)) {
				out.WriteString(value)
			}
			i += len(braced) - 1
		default:
			out.WriteByte('$')
		}
	}
	return out.String(), unset
}

// parseEnvironmentFile reads NAME=VALUE lines with quotes, comments and continued lines. What is quoted may be of
// several lines. It returns the names of the lines that start with export, where those do not count.
func parseEnvironmentFile(text string, variables map[string]string, exports bool) (exported []string) {
	var pending strings.Builder
	var open openQuote
	assign := func() {
		name, value, found := strings.Cut(pending.String(), "=")
		pending.Reset()
		name, export := strings.CutPrefix(strings.TrimSpace(name), "export ")
		switch name = strings.TrimSpace(name); {
		case !found || name == "":
		case export && !exports:
			exported = append(exported, name)
		default:
			variables[name] = unquote(strings.TrimSpace(value))
		}
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		value := line
		if pending.Len() == 0 {
			if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
				continue
			}
			_, value, _ = strings.Cut(line, "=")
			open = openQuote{}
		}
		if escapes := len(line) - len(strings.TrimRight(line, `\`)); escapes%2 == 1 && open.quote != '\'' {
			open.read(strings.TrimSuffix(value, `\`))
			pending.WriteString(strings.TrimSuffix(line, `\`))
			continue
		}
		pending.WriteString(line)
		if open.read(value); open.quote != 0 {
			pending.WriteByte('\n')
			continue
		}
		assign()
	}
	assign()
	return exported
}

// openQuote is whether a value that is read line by line is within quotes. A quote after other characters opens none.
type openQuote struct {
	quote byte // 0 for none
	bare  bool // there were characters without quotes
}

func (o *openQuote) read(value string) {
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && o.quote != '\'':
			i++
		case o.quote != 0:
			if c == o.quote {
				o.quote = 0
			}
		case o.bare:
		case c == '"' || c == '\'':
			o.quote = c
		default:
			o.bare = c != ' ' && c != '\t'
		}
	}
}

// unquote takes quotes out of a value, wherever they stand. Backslashes count outside quotes, and inside double ones
// before a few characters.
func unquote(value string) string {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && i+1 < len(value) &&
			(quote == 0 || quote == '"' && strings.IndexByte("\"\\`$", value[i+1]) >= 0):
			i++
			out.WriteByte(value[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}
