package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// The flags that a component prints into its log at its start, defaults among them, in the order of their names.
// Source: PrintFlags of k8s.io/component-base v0.36.0, cli/flag/flags.go; kube-apiserver 1.15.12 prints the same.

var (
	printedFlag    = regexp.MustCompile(`\bFLAG: --([A-Za-z0-9][-_.A-Za-z0-9]*)=("(?:[^"\\]|\\.)*")\s*$`)
	printedVersion = regexp.MustCompile(`\bVersion: "?(v1\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*)"?\s*$`)
)

// flagDump is what one start logged: the values of its flags, with the names in the order of the log.
type flagDump struct {
	line    int
	names   []string
	first   string // of the names, in their order
	values  map[string]string
	release string
}

// starts reports whether a flag is of another start: it was logged already, or the names begin again.
func (d *flagDump) starts(name string) bool {
	_, logged := d.values[name]
	return logged || name < d.first
}

func (d *flagDump) add(name, value string) {
	d.names = append(d.names, name)
	d.values[name] = value
}

// shares reports whether both have a flag.
func (d *flagDump) shares(other *flagDump) bool {
	return slices.ContainsFunc(other.names, func(name string) bool {
		_, has := d.values[name]
		return has
	})
}

// parseFlagDumps reads those of a log. What shares no flag with what was logged before it, and after no version, is of
// the same start: the order of the lines was changed.
func parseFlagDumps(text string) []*flagDump {
	var dumps []*flagDump
	last := &flagDump{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r")
		match := printedFlag.FindStringSubmatch(line)
		if match == nil {
			if version := printedVersion.FindStringSubmatch(line); version != nil {
				last.release = version[1]
			}
			continue
		}
		value, err := strconv.Unquote(match[2])
		if err != nil {
			continue
		}
		if len(dumps) == 0 || last.starts(match[1]) {
			dumps = append(dumps, &flagDump{line: i + 1, first: match[1], values: map[string]string{}})
			last = dumps[len(dumps)-1]
		}
		last.add(match[1], value)
	}
	var whole []*flagDump
	for _, d := range dumps {
		if n := len(whole); n > 0 && whole[n-1].release == "" && !whole[n-1].shares(d) {
			for _, name := range d.names {
				whole[n-1].add(name, d.values[name])
			}
			whole[n-1].release = d.release
			continue
		}
		whole = append(whole, d)
	}
	return whole
}

// printedFlags reads the flags of each component in a log, those of its last start, and reports whether there are any.
func (r *reader) printedFlags(name string, text []byte) bool {
	if !strings.Contains(string(text), "FLAG: --") {
		return false
	}
	found := false
	for _, d := range slices.Backward(parseFlagDumps(string(text))) {
		component := componentOf(d.names)
		if component == "" || slices.ContainsFunc(r.processes, func(p Process) bool {
			return p.Component == component && fileOf(p.Place) == name // the last start counts
		}) {
			continue
		}
		place := fmt.Sprintf("%s:%d", name, d.line)
		p := Process{Component: component, Name: component, Place: place, release: d.release, printed: d.names}
		for _, flag := range d.names {
			for _, value := range printedValues(flag, d.values[flag]) {
				p.Words = append(p.Words, "--"+flag+"="+value)
			}
		}
		r.note(place, "the flags that %s logged at its start are read; those that have the default of the release are "+
			"left out", component)
		r.start(p)
		found = true
	}
	return found
}

// lacksFlags asks for the rest where a log does not show all the flags that the release has.
func (p *Process) lacksFlags(minor kubever.Minor) (asked, bool) {
	all, shown := 0, 0
	for _, fact := range kubever.Flags(p.Component, minor) {
		all++
		if slices.Contains(p.printed, fact.Name) {
			shown++
		}
	}
	const part = 10 // builds of vendors have a few flags less
	return asked{text: fmt.Sprintf("the log shows %d of the %d flags of %s %s; add the arguments that are not among "+
		"them", shown, all, p.Component, minor)}, p.printed != nil && all-shown > all/part
}

// componentOf is the one whose flags these are, "" where that cannot be told: every component has some of them.
func componentOf(names []string) string {
	const few = 5
	best, most := "", 0
	for _, component := range programs[:3] {
		known, own := 0, false
		for _, name := range names {
			if kubever.Flag(component, name).Minors != nil {
				known++
				own = own || !slices.ContainsFunc(programs[:3], func(other string) bool {
					return other != component && kubever.Flag(other, name).Minors != nil
				})
			}
		}
		if own && known > most {
			best, most = component, known
		}
	}
	if len(names) < few {
		return ""
	}
	return best
}

// repeated are flags whose lists are given as several arguments, and what is printed between them.
var repeated = map[string]string{"service-account-key-file": ",", "service-account-issuer": ",",
	"tls-sni-cert-key": ";"}

// printedValues are those that a flag was given, as it was given them: lists are printed in brackets, what is not set
// as nothing.
func printedValues(flag, value string) []string {
	if value == "" || value == "<nil>" || value == "[]" || value == "map[]" {
		return nil
	}
	list, isList := strings.CutPrefix(value, "[")
	list, ends := strings.CutSuffix(list, "]")
	switch {
	case !isList || !ends:
		return []string{value}
	case repeated[flag] != "":
		return strings.Split(list, repeated[flag])
	}
	return []string{list}
}

// isDefault reports whether a value is the one that the release has without the argument.
func isDefault(fact kubever.FlagFact, minor kubever.Minor, value string) bool {
	usual, ok := fact.Default(minor)
	return ok && (value == usual || "["+value+"]" == usual)
}
