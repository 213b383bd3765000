package render

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/templates"
)

// unit is what templates/systemd.service.tmpl ranges over; every text is quoted already.
type unit struct {
	Header          []string
	Description     string
	Documentation   string
	After           []string
	Type            string
	WaitForever     bool
	EndsWith        int      // its exit code after a signal, 0 for that of most programs
	Directories     []string // made before the start
	EnvironmentFile string
	Reasons         []string
	Command         []string // the program and what comes before the arguments
	Arguments       []string
	Capabilities    string
	ReadWritePaths  []string
	ProtectHome     string
	PrivateTmp      string
}

// notifies says which components tell systemd when they are ready.
var notifies = map[string]bool{plan.Etcd: true, kubever.APIServer: true}

// writtenDirectories are the flags whose value is a directory that the component writes to.
var writtenDirectories = []string{"cert-dir", "log-dir", "data-dir", "wal-dir"}

func unitName(c *plan.Component) string { return c.Name + ".service" }

func environmentPath(c *plan.Component) string { return "/etc/kubernetes/" + c.Name + ".env" }

// systemdUnit prints the unit of a component.
func systemdUnit(p *plan.Plan, c *plan.Component) ([]byte, error) {
	program, err := program(c)
	if err != nil {
		return nil, err
	}
	writable := writablePaths(c)
	u := unit{
		Header:        strings.Split(strings.TrimSpace(header(p, c)), "\n"),
		Description:   specifier(oneLine(description(p, c))),
		Documentation: documentation(c),
		Type:          "simple",
		Command:       []string{program},
		Capabilities:  "CAP_DAC_READ_SEARCH",
		ProtectHome:   "read-only",
		PrivateTmp:    "true",
	}
	if notifies[c.Kind] {
		u.Type, u.WaitForever = "notify", true
	}
	if c.Kind == plan.JointControllers {
		u.EndsWith = interrupted
	}
	if c.Port > 0 && c.Port < 1024 {
		u.Capabilities += " CAP_NET_BIND_SERVICE"
	}
	u.After = needs(p, c)
	environment := names(c.Env)
	if len(c.Env) > 0 {
		u.EnvironmentFile = specifier(environmentPath(c))
	}
	for _, word := range c.Command[1:] {
		u.Command = append(u.Command, quoted(word, environment))
	}
	for _, a := range c.Args {
		u.Arguments = append(u.Arguments, quoted(a.String(), environment))
	}
	u.Reasons = reasons(c.Args)
	for _, file := range writable {
		if strings.ContainsFunc(file, func(r rune) bool { return r == '"' || r == '\\' || r < ' ' }) {
			return nil, fmt.Errorf("path %q: systemd takes no quote, backslash or control character in a path", file)
		}
		// The minus sign: systemd wants the directory already for the command that makes it, and does not run that
		// without.
		u.ReadWritePaths = append(u.ReadWritePaths, `"-`+specifier(file)+`"`)
		u.Directories = append(u.Directories, quoted(file, nil))
		if within(file, "/home") || within(file, "/root") || within(file, "/run/user") {
			u.ProtectHome = "false"
		}
	}
	for _, m := range c.Mounts {
		if within(m.Path, "/tmp") || within(m.Path, "/var/tmp") {
			u.PrivateTmp = "false"
		}
	}
	return execute(u, "systemd.service.tmpl")
}

// interrupted is the exit code of fusionctl that a signal ended.
const interrupted = 130

// reasons say why arguments are there, one line for each run that has a reason in common. A comment must not end in a
// backslash: it would go on.
func reasons(args []plan.Arg) []string {
	var lines []string
	var names []string
	for i, a := range args {
		why := reason(a)
		if why == "" {
			continue
		}
		names = append(names, "--"+oneLine(a.Name))
		if i+1 == len(args) || reason(args[i+1]) != why {
			lines = append(lines, strings.TrimRight(strings.Join(names, ", ")+": "+why, `\`))
			names = nil
		}
	}
	return lines
}

// execute fills a skeleton that may use others, its parts.
func execute(data any, name string, parts ...string) ([]byte, error) {
	skeleton, err := template.New(name).Funcs(template.FuncMap{"join": strings.Join}).
		ParseFS(templates.Files, append(parts, name)...)
	if err != nil {
		return nil, fmt.Errorf("render: internal error: %w", err)
	}
	var out bytes.Buffer
	if err := skeleton.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render: internal error: %w", err)
	}
	return out.Bytes(), nil
}

func description(p *plan.Plan, c *plan.Component) string {
	if c.Kind == plan.Etcd {
		return fmt.Sprintf("etcd %s, store %s of %s", c.Version, c.Store, p.Name)
	}
	if plan.SeesBoth(c.Kind) {
		return fmt.Sprintf("%s, both sides of %s", c.Kind, p.Name)
	}
	return fmt.Sprintf("%s %s, %s side of %s", c.Kind, c.Version, c.Side, p.Name)
}

func documentation(c *plan.Component) string {
	if c.Kind == plan.Etcd {
		return "https://etcd.io/docs/"
	}
	if c.Kind == plan.JointControllers {
		return "https://github.com/kubefusion/fusionctl/blob/main/docs/controllers.md"
	}
	if c.Kind == plan.JointGateway {
		return "https://github.com/kubefusion/fusionctl/blob/main/docs/gateway.md"
	}
	return "https://kubernetes.io/docs/reference/command-line-tools-reference/" + c.Kind + "/"
}

// program is the file that a unit starts. A unit wants an absolute path, and the two sides have programs of the same
// name: one that the plan names without a directory, or in the root directory of an image, is looked for in a directory
// of its version.
func program(c *plan.Component) (string, error) {
	file := programFile(c)
	if strings.ContainsRune(file, '$') {
		return "", fmt.Errorf("command %q: systemd takes no $ in the name of a program", file)
	}
	return quoted(file, nil), nil
}

func programFile(c *plan.Component) string {
	if c.Program != "" {
		return c.Program
	}
	name := c.Kind
	if len(c.Command) > 0 {
		name = c.Command[0]
	}
	if path.IsAbs(name) && path.Dir(name) != "/" {
		return name
	}
	product := "kubernetes"
	if c.Kind == plan.Etcd {
		product = plan.Etcd
	}
	return "/opt/" + product + "/" + c.Version + "/bin/" + strings.TrimPrefix(name, "/")
}

// needs are the units of the same host without which a component has nothing to do: a member for an API server that
// keeps its objects there, the side's API server for the others, and those of both sides for what sees both. Units are
// ordered by them and do not want them: one that ends without its API server, and is restarted, would have systemd
// start an API server again that a transition has stopped.
func needs(p *plan.Plan, c *plan.Component) []string {
	var units []string
	for i := range p.Components {
		other := &p.Components[i]
		if other.Host != c.Host || runsAlready(p, other) {
			continue
		}
		switch c.Kind {
		case plan.Etcd:
		case kubever.APIServer:
			if other.Kind == plan.Etcd && usesStore(p, c, other.Store) {
				units = append(units, unitName(other))
			}
		default:
			if other.Kind == kubever.APIServer && (other.Side == c.Side || c.Side == "") {
				units = append(units, unitName(other))
			}
		}
	}
	slices.Sort(units)
	return units
}

// usesStore reports whether the side of an API server keeps anything in the store.
func usesStore(p *plan.Plan, c *plan.Component, store string) bool {
	if p.Side(c.Side).Store == store {
		return true
	}
	return slices.ContainsFunc(p.Resources, func(r plan.Resource) bool { return r.View(c.Side).Store == store })
}

// writablePaths are the directories below which a component writes, none within another.
func writablePaths(c *plan.Component) []string {
	var paths []string
	for _, m := range c.Mounts {
		if !m.ReadOnly && m.Directory {
			paths = append(paths, path.Clean(m.Path))
		}
	}
	for _, a := range c.Args {
		if slices.Contains(writtenDirectories, kubever.FlagName(a.Name)) && path.IsAbs(a.Value) {
			paths = append(paths, path.Clean(a.Value))
		}
	}
	slices.Sort(paths)
	var outer []string
	for _, file := range slices.Compact(paths) {
		if !slices.ContainsFunc(outer, func(o string) bool { return within(file, o) }) {
			outer = append(outer, file)
		}
	}
	return outer
}

// within reports whether a path is a directory or below it.
func within(file, directory string) bool {
	return file == directory || strings.HasPrefix(file, strings.TrimSuffix(directory, "/")+"/")
}

// reference is how an argument of a pod refers to a variable of its container.
var reference = regexp.MustCompile(`^\$\([A-Za-z_][A-Za-z0-9_]*\)`)

// bareWord is what systemd takes for one word, and for itself.
var bareWord = regexp.MustCompile(`^[A-Za-z0-9/_.=,:@+-][A-Za-z0-9/_.=,:;@*+#-]*$`)

// quoted is one word of a command line as systemd reads it: quoted, with its escapes, specifiers and variables defused.
// $(NAME) becomes ${NAME} for a variable of the component, as it is in a pod.
func quoted(s string, environment map[string]bool) string {
	if bareWord.MatchString(s) {
		return s
	}
	var out strings.Builder
	out.WriteByte('"')
	for len(s) > 0 {
		if name := reference.FindString(s); name != "" && environment[name[2:len(name)-1]] {
			out.WriteString("${" + name[2:len(name)-1] + "}")
			s = s[len(name):]
			continue
		}
		switch c := s[0]; {
		case c == '"' || c == '\\':
			out.WriteString(`\` + string(c))
		case c == '%' || c == '$':
			out.WriteString(string(c) + string(c))
		case c == '\n':
			out.WriteString(`\n`)
		case c == '\t':
			out.WriteString(`\t`)
		case c == '\r':
			out.WriteString(`\r`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
		s = s[1:]
	}
	out.WriteByte('"')
	return out.String()
}

// specifier defuses the specifiers of a setting that is one text.
func specifier(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// variableName is what systemd takes as the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environmentFile prints the variables of a component for EnvironmentFile=, whose quoting is a shell's: within double
// quotes nothing is special but " \ $ and `.
func environmentFile(c *plan.Component) ([]byte, error) {
	var out strings.Builder
	out.WriteString("# Written by fusionctl render: the environment of " + c.Name + ".\n")
	quote := strings.NewReplacer(`"`, `\"`, `\`, `\\`, `$`, `\$`, "`", "\\`")
	for _, e := range c.Env {
		if !variableName.MatchString(e.Name) {
			return nil, fmt.Errorf("variable %q: systemd takes letters, digits and _ in a name", e.Name)
		}
		fmt.Fprintf(&out, "%s=\"%s\"\n", e.Name, quote.Replace(e.Value))
	}
	return []byte(out.String()), nil
}
