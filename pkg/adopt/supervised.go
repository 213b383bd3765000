package adopt

import (
	"bytes"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// What starts services besides systemd's units, as the unit that would start the same: programs of supervisord,
// containers of podman's generator of units, what systemctl show prints. Scripts of OpenRC are in script.go.

// patterns are folders of a machine with one directory for each service.
var patterns = []string{"etc/sv/*", "etc/service/*", "etc/services.d/*", "service/*", "etc/s6-overlay/s6-rc.d/*",
	"var/vcap/jobs/*/config"}

// limitServices is how many of such directories are looked into.
const limitServices = 256

// withServices adds the directories that match the patterns to folders.
func withServices(files fs.FS, folders []string) []string {
	list := slices.Clone(folders)
	for _, pattern := range patterns {
		found, _ := fs.Glob(files, pattern) // the patterns are good
		for _, folder := range found[:min(len(found), limitServices)] {
			if !slices.Contains(list, folder) {
				list = append(list, folder)
			}
		}
	}
	return list
}

var (
	supervisedProgram = regexp.MustCompile(`(?m)^\[program:`)
	shownStart        = regexp.MustCompile(`(?m)^ExecStart=\{ path=.*?; argv\[\]=(.*?) ; ignore_errors=`)
)

// asUnit reads a file that says what a unit would, and reports whether the text is one.
func (r *reader) asUnit(name string, text []byte) (bool, error) {
	units := map[string]string{} // by name
	switch {
	case path.Ext(name) == ".container":
		units[stem(name)+".service"] = containerUnit(name, text)
	case supervisedProgram.Match(text):
		units = programUnits(name, text)
	case shownStart.Match(text):
		units[stem(name)+".service"] = "[Service]\n" + string(shownStart.ReplaceAll(text, []byte("ExecStart=$1 #")))
	default:
		return false, nil
	}
	before := len(r.processes)
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		text := units[unit]
		if !r.made.take(len(text)) {
			break
		}
		if err := r.unit(path.Join(path.Dir(name), unit), []byte(cutComments(text))); err != nil {
			return true, err
		}
	}
	for i := range r.processes[before:] {
		p := &r.processes[before+i]
		for j := range r.notes {
			if r.notes[j].Place == p.Place {
				r.notes[j].Place = name
			}
		}
		p.Place = name
	}
	return len(r.processes) > before, nil
}

// cutComments takes off what stands behind an argv of systemctl show.
func cutComments(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if start, _, ok := strings.Cut(line, " #"); ok && strings.HasPrefix(line, "ExecStart=") {
			lines[i] = start
		}
	}
	return strings.Join(lines, "\n")
}

// containerUnit is what podman's generator makes of NAME.container, as far as a spec has it.
// Source: podman-systemd.unit(5) of podman 5.
func containerUnit(name string, text []byte) string {
	var image, exec, entrypoint string
	var options, service []string
	for _, d := range parseUnit(name, text) {
		if d.section == "Service" && d.key != "ExecStart" {
			service = append(service, d.key+"="+d.value)
		}
		if d.section != "Container" {
			continue
		}
		switch d.key {
		case "Image":
			image = d.value
		case "Exec":
			exec = d.value
		case "Entrypoint":
			entrypoint = d.value
		case "Volume":
			options = append(options, "--volume="+d.value)
		case "Environment":
			words, err := splitWords(d.value)
			if err != nil {
				words = strings.Fields(d.value)
			}
			for _, word := range words {
				options = append(options, `"--env=`+word+`"`)
			}
		case "WorkingDir":
			options = append(options, "--workdir="+d.value)
		}
	}
	words := append([]string{"/usr/bin/podman", "run"}, options...)
	words = append(words, image, entrypoint, exec)
	return "[Service]\n" + strings.Join(service, "\n") + "\nExecStart=" +
		strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " ") + "\n"
}

// programUnits are the units of the programs of supervisord: values go on in lines that start with a blank, and
// variables are separated by commas. Source: supervisord.org/configuration.html.
func programUnits(name string, text []byte) map[string]string {
	written := map[string]*strings.Builder{}
	joined := regexp.MustCompile(`\r?\n[ \t]+`).ReplaceAll(text, []byte(" "))
	for _, d := range parseUnit(name, bytes.ReplaceAll(joined, []byte(" ;"), []byte("\n;"))) {
		program, ok := strings.CutPrefix(d.section, "program:")
		if !ok {
			continue
		}
		unit := written[program]
		if unit == nil {
			unit = &strings.Builder{}
			unit.WriteString("[Service]\n")
			written[program] = unit
		}
		// A percent sign and a dollar mean nothing to it that systemd would know.
		value := strings.ReplaceAll(d.value, "$", "$$")
		switch d.key {
		case "command":
			unit.WriteString("ExecStart=" + value + "\n")
		case "directory":
			unit.WriteString("WorkingDirectory=" + value + "\n")
		case "environment":
			for pair := range strings.SplitSeq(value, ",") {
				unit.WriteString("Environment=" + strings.TrimSpace(pair) + "\n")
			}
		}
	}
	units := map[string]string{}
	for program, text := range written {
		units[program+".service"] = text.String()
	}
	return units
}
