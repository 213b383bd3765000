package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Scripts that start components: those that a unit names, and those that are among the files themselves, such as the
// ones of an init system.

// script is a file that a shell runs.
type script struct {
	name string // below the directory, or on the host
	text string
	at   int // its place among the words that start it
}

// arguments are those that the script is called with.
func (s script) arguments(words []string) []string {
	if s.at+1 >= len(words) {
		return nil
	}
	return words[s.at+1:]
}

// script is the one that the words of an ExecStart run, directly or through a shell, if it is among the files.
func (u *service) script(words []string) (script, bool) {
	at := scriptAt(words)
	if at < 0 || !path.IsAbs(words[at]) {
		return script{}, false
	}
	name, text, ok := u.textOf(words[at])
	if !ok || at == 0 && !isShellScript([]byte(text)) {
		return script{}, false
	}
	u.environmentFiles[name] = true
	return script{name: name, text: text, at: at}, true
}

// scriptAt is where the words name the program, or the script of a shell; -1 for a shell without a file.
func scriptAt(words []string) int {
	if len(words) == 0 {
		return -1
	}
	if !isShell(words[0]) {
		return 0
	}
	return slices.IndexFunc(words, func(word string) bool { return path.IsAbs(word) && !isShell(word) })
}

func isShell(word string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash"}, path.Base(word))
}

// noteScript names a script that a unit of a component runs and that is not there.
func (u *service) noteScript(place string, words []string) {
	at := scriptAt(words)
	if at < 0 || !path.IsAbs(words[at]) {
		return
	}
	if !aboutComponent(stem(u.name) + " " + path.Base(words[at])) {
		return
	}
	if path.Base(words[at]) == "snap" && at+2 < len(words) && words[at+1] == "run" {
		snap, _, _ := strings.Cut(words[len(words)-1], ".")
		why := fmt.Sprintf("it starts a snap, whose arguments are in a file of its own; want /var/snap/%s/current/args",
			snap)
		u.note(place, "is ignored: %s", why)
		u.refused = append(u.refused, fmt.Errorf("%s: %s", place, why))
		return
	}
	u.note(place, "is ignored: it starts %s, which is not among the files; copy it there, as %s or under its full path",
		words[at], path.Base(words[at]))
}

// textOf looks for a small text by its full path below the directory, by its base name in it, and on the host.
func (r *reader) textOf(absolute string) (name, text string, ok bool) {
	full := strings.TrimPrefix(path.Clean(absolute), "/")
	for _, c := range []struct {
		files fs.FS
		name  string
	}{{r.files, full}, {r.files, path.Join(r.folder, path.Base(full))}, {r.host, full}} {
		if c.files == nil || !fs.ValidPath(c.name) {
			continue
		}
		if info, err := fs.Stat(c.files, c.name); err != nil || !info.Mode().IsRegular() ||
			info.Size() > limitFileBytes {
			continue
		}
		if text, err := r.readText(c.files, c.name); err == nil {
			return c.name, string(text), true
		}
	}
	return "", "", false
}

// isShellScript reports whether the first line of a file calls a shell.
func isShellScript(text []byte) bool {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if !bytes.HasPrefix(first, []byte("#!")) {
		return false
	}
	return slices.ContainsFunc(strings.Fields(string(first[2:])), isShell) || openRC.Match(first)
}

// openRC is the first line of a script of OpenRC.
var openRC = regexp.MustCompile(`^#!\s*/sbin/(openrc-run|runscript)`)

// startedBy adds the components that a script starts and the files that it writes, and reports whether there are any.
// The directory is the one that the script itself is started in, "" where that is not known.
func (r *reader) startedBy(s script, arguments []string, environment map[string]string, directory string) bool {
	shell := &shellReader{variables: map[string]string{}, positional: arguments, whole: true, made: r.made,
		file: func(name string) (string, bool) {
			found, text, ok := r.textOf(name)
			if ok = ok && found != s.name; ok { // its defaults are called as the script is
				r.environmentFiles[found] = true
			}
			return text, ok
		}}
	for name, value := range environment {
		shell.variables[name] = value
	}
	if openRC.MatchString(s.text) {
		// Source: openrc-run.sh of OpenRC 0.54: it reads the file of the service's name in /etc/conf.d, and its start
		// runs the command that the script names.
		if found, text, ok := r.textOf("/etc/conf.d/" + path.Base(s.name)); ok {
			r.environmentFiles[found] = true
			s.text = text + "\n" + s.text
		}
		s.text += "\nexec $command $command_args ${command_args_foreground:-}\n"
	}
	err := shell.read(s.text)
	if _, is := errors.AsType[*beyondError](err); is { // it is no list of processes either
		r.note(s.name, "is ignored: %v", err)
		r.refused = append(r.refused, fmt.Errorf("%s: %w", s.name, err))
		return true
	}
	if err != nil {
		r.note(s.name, "is ignored: it is no shell script that can be read: %v", err)
		return false
	}
	for _, c := range shell.started {
		p := Process{Component: c.line.component, Name: c.line.component,
			Place: s.name + ":1", asks: r.noteShell(s.name+":1", c), Image: c.line.image, Command: c.line.command,
			Words: c.line.words}
		if p.Image != "" {
			p.Mounts = runtimeMounts(c.line.before)
		}
		p.Env = c.line.env
		r.workIn(&p, inDirectory(directory, c.line.directory))
		p.broken = r.noteUnread(s.name, "the script", shell.unread, c)
		r.start(p)
	}
	if !shell.written.empty() {
		r.holders = append(r.holders, holder{s.name, shell.written})
	}
	return len(shell.started) > 0 || !shell.written.empty()
}
