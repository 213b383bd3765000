package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// asked is a part of a command line that only the machine can tell: a variable that no file sets, what a shell computes
// at the start. It is noted where it is read, and a draft asks for it.
type asked struct {
	flag string // the argument that has it, "" for words that may be any
	text string
}

// ask notes what only the machine can tell, for the process that is made of the same place.
func (r *reader) ask(place, flag, format string, values ...any) asked {
	r.made.count(question)
	r.note(place, format, values...)
	return asked{flag, r.notes[len(r.notes)-1].Text}
}

// flagOfWord is the argument that a word is, or is the value of; "" for none.
func flagOfWord(before []string, word string) string {
	if name, ok := argName(word); ok {
		name, _, _ = strings.Cut(name, "=")
		return kubever.FlagName(name)
	}
	if len(before) == 0 || strings.Contains(before[len(before)-1], "=") {
		return ""
	}
	name, ok := argName(before[len(before)-1])
	if !ok {
		return ""
	}
	return kubever.FlagName(name)
}

// fields of a side that have the arguments of a component.
var fieldOfKind = map[string]string{kubever.APIServer: "apiServer", kubever.ControllerManager: "controllerManager",
	kubever.Scheduler: "scheduler"}

// asked asks, for each component of the legacy side, for what its command line does not tell. Notes that say the same
// are left out.
func (w *writer) asked() {
	asks := askedOf(w.running)
	for _, kind := range programs[:3] {
		args := w.args[kind]
		for _, a := range asks[kind] {
			place := "spec.legacy." + fieldOfKind[kind] + ".extraArgs"
			at := slices.IndexFunc(args, func(arg spec.Arg) bool { return kubever.FlagName(arg.Name) == a.flag })
			if at >= 0 && a.flag != "" {
				place = fmt.Sprintf("%s[%d]", place, at)
			}
			w.askFor(place, a)
		}
	}
}

// askedAt asks for what differs on another host.
func (w *writer) askedAt(host int, r *Running) {
	own := w.File.Spec.Hosts[host].Legacy
	if own == nil {
		return
	}
	changes := map[string][]spec.Change{kubever.APIServer: own.APIServer,
		kubever.ControllerManager: own.ControllerManager, kubever.Scheduler: own.Scheduler}
	asks := askedOf(r)
	for _, kind := range programs[:3] {
		for _, a := range asks[kind] {
			at := slices.IndexFunc(changes[kind], func(c spec.Change) bool { return c.Name == a.flag && !c.Remove })
			if at >= 0 && a.flag != "" {
				w.askFor(fmt.Sprintf("spec.hosts[%d].legacy.%s[%d]", host, fieldOfKind[kind], at), a)
			}
		}
	}
}

// askFor is missing, once, with a mark at the place.
func (w *writer) askFor(place string, a asked) {
	text := a.text
	if a.flag != "" && !strings.Contains(text, "--"+a.flag) {
		text = "the value of --" + a.flag + ": " + text
	}
	note := Note{Place: place, Text: text}
	if slices.Contains(w.Missing, note) {
		return
	}
	w.Missing = append(w.Missing, note)
	if before := w.Comments[place]; before != "" {
		text = before + "\n" + text
	} else {
		text = "FILL IN " + text
	}
	w.comment(place, text)
}

// askedOf are the questions about the components that a spec has arguments for, each of which is started once.
func askedOf(r *Running) map[string][]asked {
	of := map[string][]asked{}
	for i := range r.Processes {
		if p := &r.Processes[i]; fieldOfKind[p.Component] != "" && of[p.Component] == nil {
			of[p.Component] = p.asks
		}
	}
	return of
}

// unasked are the notes about a process that no question repeats.
func unasked(notes []Note, processes []Process) []Note {
	return slices.DeleteFunc(slices.Clone(notes), func(n Note) bool {
		return slices.ContainsFunc(processes, func(p Process) bool {
			return fieldOfKind[p.Component] != "" && slices.ContainsFunc(p.asks, func(a asked) bool {
				return n.Place == p.Place && a.text == n.Text
			})
		})
	})
}
