package adopt

import (
	"path"
	"regexp"
	"strings"
)

// Jobs of upstart, as Ubuntu up to 14.04 and others of that time start services. Source: init(5) of upstart 1.13.

// upstartJob is what a job has that nothing else does: when it is started, and a process.
var (
	upstartStarts  = regexp.MustCompile(`(?m)^\s*start\s+on\b`)
	upstartProcess = regexp.MustCompile(`(?m)^\s*(exec\s|script\s*$)`)
)

func isUpstart(text []byte) bool { return upstartStarts.Match(text) && upstartProcess.Match(text) }

// isStarter reports whether a file of an ending that many have starts something itself.
func (r *reader) isStarter(name string) bool {
	if path.Ext(name) != ".conf" {
		return false
	}
	text, err := r.readText(r.files, name)
	return err == nil && (supervisedProgram.Match(text) || isUpstart(text))
}

// upstart reads a job, and reports whether the text is one that starts a component.
func (r *reader) upstart(name string, text []byte) bool {
	if !isUpstart(text) {
		return false
	}
	job := string(text)
	if _, override, ok := r.textOf("/etc/init/" + stem(name) + ".override"); ok {
		job += "\n" + override
	}
	return r.startedBy(script{name: name, text: jobScript(job)}, nil,
		map[string]string{"UPSTART_JOB": stem(name), "JOB": stem(name)}, "")
}

// jobScript is what a shell would run of a job: its variables, its directory and its main process, of which the last
// one counts. What runs before and after that process is a process of its own.
func jobScript(job string) string {
	var set, process []string
	lines := strings.Split(strings.ReplaceAll(job, "\\\n", ""), "\n")
	for i := 0; i < len(lines); i++ {
		stanza, rest, _ := strings.Cut(strings.TrimSpace(lines[i]), " ")
		rest = strings.TrimSpace(rest)
		switch {
		case stanza == "env" && assignment.MatchString(rest):
			set = append(set, "export "+quotedValue(rest))
		case stanza == "chdir":
			set = append(set, "cd "+rest)
		case stanza == "exec":
			process = []string{"exec " + rest}
		case stanza == "script" && rest == "", strings.HasSuffix(stanza, "-start") && rest == "script",
			strings.HasSuffix(stanza, "-stop") && rest == "script":
			var body []string
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "end script"; i++ {
				body = append(body, lines[i])
			}
			if stanza == "script" {
				process = body
			}
		}
	}
	return strings.Join(append(set, process...), "\n")
}

// quotedValue is NAME=VALUE for a shell: the value ends with its line, in quotes or without.
func quotedValue(pair string) string {
	name, value, _ := strings.Cut(pair, "=")
	if value == "" || strings.ContainsAny(value[:1], `"'`) {
		return pair
	}
	return name + `="` + strings.ReplaceAll(value, `"`, `\"`) + `"`
}
