package render

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// settings reads a unit as systemd does: sections, assignments, lines continued by a backslash, comments. It returns
// the values of each SECTION.NAME in order.
func settings(t *testing.T, data []byte) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	section, pending := "", ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if pending == "" && (trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';') {
			continue
		}
		if continued, ok := strings.CutSuffix(line, `\`); ok {
			pending += continued + " "
			continue
		}
		line, pending = pending+line, ""
		if trimmed := strings.TrimSpace(line); trimmed[0] == '[' {
			section = strings.Trim(trimmed, "[]")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("not an assignment: %q", line)
		}
		values[section+"."+name] = append(values[section+"."+name], strings.TrimSpace(value))
	}
	if pending != "" {
		t.Fatalf("the unit ends in a continued line: %q", pending)
	}
	return values
}

// argv splits a command line into words as systemd does (systemd.service, "Command lines"): quotes, the escapes of C,
// then specifiers, then variables. It knows no specifier but %% and fails on any other.
func argv(line string, environment map[string]string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case quote == 0 && !inWord && c == ';' && (i+1 == len(line) || line[i+1] == ' '):
			return nil, fmt.Errorf("a second command at %d", i)
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\':
			inWord = true
			i++
			if i == len(line) {
				return nil, fmt.Errorf("a backslash at the end")
			}
			switch line[i] {
			case 'n':
				word.WriteByte('\n')
			case 't':
				word.WriteByte('\t')
			case 'r':
				word.WriteByte('\r')
			case '\\', '"', '\'':
				word.WriteByte(line[i])
			case 'x':
				n, err := strconv.ParseUint(line[i+1:i+3], 16, 8)
				if err != nil {
					return nil, err
				}
				word.WriteByte(byte(n))
				i += 2
			default:
				return nil, fmt.Errorf(`unknown escape \%c`, line[i])
			}
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("an open quote")
	}
	if inWord {
		words = append(words, word.String())
	}
	for i, w := range words {
		expanded, err := expand(w, environment, i == 0)
		if err != nil {
			return nil, err
		}
		words[i] = expanded
	}
	return words, nil
}

func expand(word string, environment map[string]string, program bool) (string, error) {
	var specified strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] == '%' {
			i++
			if i == len(word) || word[i] != '%' {
				return "", fmt.Errorf("a specifier in %q", word)
			}
		}
		specified.WriteByte(word[i])
	}
	s := specified.String()
	if program {
		return s, nil
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "$$"):
			out.WriteByte('$')
			i++
		case strings.HasPrefix(s[i:], "${"):
			name, _, ok := strings.Cut(s[i+2:], "}")
			if !ok {
				return "", fmt.Errorf("an open variable in %q", s)
			}
			out.WriteString(environment[name])
			i += len(name) + 2
		case s[i] == '$':
			return "", fmt.Errorf("a variable in %q", s)
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String(), nil
}

// environ reads an environment file as systemd does (systemd.exec, "EnvironmentFile="), as far as double quotes go.
func environ(t *testing.T, data []byte) map[string]string {
	t.Helper()
	values := map[string]string{}
	rest := string(data)
	for rest != "" {
		if rest[0] == '#' || rest[0] == '\n' {
			_, rest, _ = strings.Cut(rest, "\n")
			continue
		}
		name, after, ok := strings.Cut(rest, `="`)
		if !ok {
			t.Fatalf("want NAME=\"value\" at %q", rest)
		}
		var value strings.Builder
		i := 0
		for ; i < len(after) && after[i] != '"'; i++ {
			if after[i] == '\\' && strings.IndexByte("\"\\`$", after[i+1]) >= 0 {
				i++
			}
			value.WriteByte(after[i])
		}
		values[name] = value.String()
		rest = after[i+1:]
		if !strings.HasPrefix(rest, "\n") {
			t.Fatalf("text behind a quote: %q", rest)
		}
		rest = rest[1:]
	}
	return values
}

func renderUnit(t *testing.T, p *plan.Plan, c *plan.Component) (map[string][]string, []byte) {
	t.Helper()
	data, err := systemdUnit(p, c)
	if err != nil {
		t.Fatal(err)
	}
	return settings(t, data), data
}

// commandLine is ExecStart as a process would get it.
func commandLine(t *testing.T, unit map[string][]string, environment map[string]string) []string {
	t.Helper()
	lines := unit["Service.ExecStart"]
	if len(lines) != 1 {
		t.Fatalf("ExecStart stands %d times", len(lines))
	}
	words, err := argv(lines[0], environment)
	if err != nil {
		t.Fatalf("%v\n%s", err, lines[0])
	}
	return words
}

func TestUnitStartsWhatThePlanSays(t *testing.T) {
	p := handmade(36)
	for i := range p.Components {
		c := &p.Components[i]
		unit, _ := renderUnit(t, p, c)
		want := append([]string{programFile(c)}, c.Command[1:]...)
		for _, a := range c.Args {
			want = append(want, a.String())
		}
		if got := commandLine(t, unit, nil); !slices.Equal(got, want) {
			t.Errorf("%s starts %q, want %q", c.Name, got, want)
		}
	}
}

func TestTheTwoSidesHaveProgramsOfTheirOwn(t *testing.T) {
	p := handmade(36)
	for i, want := range []string{"/opt/etcd/3.6.8/bin/etcd", "/opt/kubernetes/1.6.13/bin/hyperkube",
		"/opt/kubernetes/1.36.3/bin/kube-apiserver", "/opt/kubernetes/1.36.3/bin/kube-controller-manager"} {
		if got := programFile(&p.Components[i]); got != want {
			t.Errorf("programFile(%s) = %s, want %s", p.Components[i].Name, got, want)
		}
	}
}

func TestUnitsStartInOrder(t *testing.T) {
	p := handmade(36)
	for i, want := range []string{
		"network-online.target",
		"network-online.target",
		"network-online.target etcd-modern.service",
		"network-online.target kube-apiserver-modern.service",
	} {
		unit, _ := renderUnit(t, p, &p.Components[i])
		if got := unit["Unit.After"]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: After=%q, want %q", p.Components[i].Name, got, want)
		}
		for setting, values := range unit { // that start others, or start with them
			if name, of := strings.CutPrefix(setting, "Unit."); of && slices.Contains([]string{"Wants", "Requires",
				"Requisite", "BindsTo", "Upholds", "PartOf"}, name) &&
				strings.Contains(strings.Join(values, " "), ".service") {
				t.Errorf("%s: %s=%q: its restart would start what a transition has stopped", p.Components[i].Name, name,
					values)
			}
		}
	}
}

// Everything a component writes must be made and must be writable, and nothing else is.
func TestUnitsWriteOnlyWhereTheyMust(t *testing.T) {
	p := handmade(36)
	c := &p.Components[1]
	c.Args = append(c.Args, plan.Arg{Name: "cert-dir", Value: "/var/run/kubernetes"},
		plan.Arg{Name: "log_dir", Value: "/var/log/kubernetes/more"})
	for i, want := range [][]string{{`"-/var/lib/etcd-modern"`}, {`"-/var/log/kubernetes"`, `"-/var/run/kubernetes"`}, nil,
		nil} {
		unit, _ := renderUnit(t, p, &p.Components[i])
		if got := unit["Service.ReadWritePaths"]; !slices.Equal(got, want) {
			t.Errorf("%s: ReadWritePaths=%q, want %q", p.Components[i].Name, got, want)
		}
		if got := unit["Service.ExecStartPre"]; len(got) != len(want) {
			t.Errorf("%s: makes %q, want %q", p.Components[i].Name, got, want)
		}
		if got := unit["Service.ProtectSystem"]; !slices.Equal(got, []string{"strict"}) {
			t.Errorf("%s: ProtectSystem=%q, want strict", p.Components[i].Name, got)
		}
	}
}

// A percent sign in a path is none of systemd's specifiers.
func TestPathsOfUnitsHaveNoSpecifiers(t *testing.T) {
	p := handmade(36)
	c := &p.Components[1]
	c.Args = append(c.Args, plan.Arg{Name: "cert-dir", Value: "/var/run/100%h"})
	unit, _ := renderUnit(t, p, c)
	if got := unit["Service.ReadWritePaths"]; !slices.Contains(got, `"-/var/run/100%%h"`) {
		t.Errorf("ReadWritePaths=%q", got)
	}
}

func TestSandboxLeavesWhatAMountNeeds(t *testing.T) {
	p := handmade(36)
	c := &p.Components[1]
	for path, want := range map[string][2]string{
		"/var/log/audit": {"read-only", "true"}, "/tmp/audit": {"read-only", "false"},
		"/home/kube/audit": {"false", "true"}, "/rootless": {"read-only", "true"},
	} {
		c.Mounts[0].Path = path
		unit, _ := renderUnit(t, p, c)
		if got := [2]string{unit["Service.ProtectHome"][0], unit["Service.PrivateTmp"][0]}; got != want {
			t.Errorf("%s: ProtectHome, PrivateTmp = %q, want %q", path, got, want)
		}
	}
	c.Port = 443
	unit, _ := renderUnit(t, p, c)
	if got := unit["Service.CapabilityBoundingSet"][0]; !strings.Contains(got, "CAP_NET_BIND_SERVICE") {
		t.Errorf("port 443: CapabilityBoundingSet=%s", got)
	}
}

func TestUnitValuesSurviveWhateverTheyContain(t *testing.T) {
	p := handmade(36)
	c := &p.Components[2]
	c.Args, c.Env = nil, nil
	want := append([]string{programFile(c)}, hostile...)
	for i, value := range hostile {
		c.Args = append(c.Args, plan.Arg{Name: "value", Value: value, Why: value, Origin: plan.FromPlan})
		want = append(want, "--value="+value)
		c.Env = append(c.Env, spec.EnvVar{Name: fmt.Sprintf("V%d", i), Value: value})
	}
	c.Command = append(c.Command, hostile...)
	unit, _ := renderUnit(t, p, c)
	if got := commandLine(t, unit, nil); !reflect.DeepEqual(got, want) {
		for i := range got {
			if i < len(want) && got[i] != want[i] {
				t.Errorf("word %d = %q, want %q", i, got[i], want[i])
			}
		}
		t.Errorf("%d words, want %d", len(got), len(want))
	}
	data, err := environmentFile(c)
	if err != nil {
		t.Fatal(err)
	}
	values := environ(t, data)
	for i, value := range hostile {
		if got := values[fmt.Sprintf("V%d", i)]; got != value {
			t.Errorf("variable %d = %q, want %q", i, got, value)
		}
	}
}

// systemd itself, where it is installed, reads units with every such value and finds nothing to say about them.
func TestSystemdVerifiesUnits(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze to ask: Debian's package systemd has it")
	}
	p := handmade(36)
	c := &p.Components[2]
	c.Program, c.Args, c.Env = "/bin/true", nil, nil // systemd looks whether the program is there
	for i, value := range hostile {
		c.Args = append(c.Args, plan.Arg{Name: "value", Value: value, Why: value, Origin: plan.FromPlan})
		c.Mounts = append(c.Mounts, plan.Mount{Name: fmt.Sprintf("m%d", i), Path: "/" + value, ReadOnly: true})
	}
	c.Command = append(c.Command, hostile...)
	writable := []string{"a b", "50%", "%n", "it's", "*", "{{", "$HOME", "ünï", ";", "#", "-x", "+y"}
	for i, value := range writable {
		c.Mounts = append(c.Mounts,
			plan.Mount{Name: fmt.Sprintf("w%d", i), Path: "/srv/" + value, Directory: true})
	}
	_, data := renderUnit(t, p, c)
	ask := func(data []byte) string {
		file := filepath.Join(t.TempDir(), "kube-apiserver-modern.service")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), verify, "verify", "--man=no", file)
		cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
		out, _ := cmd.CombinedOutput()
		var said []string // of our unit; the machine's own are not ours to judge
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "kube-apiserver-modern.service") {
				said = append(said, line)
			}
		}
		return strings.Join(said, "")
	}
	if said := ask(data); said != "" {
		t.Errorf("systemd-analyze says\n%s", said)
	}
	broken := bytes.Replace(data, []byte("ReadWritePaths="), []byte("ReadWritePaths=relative "), 1)
	if ask(broken) == "" {
		t.Error("systemd-analyze says nothing about a unit that is broken: this test proves nothing")
	}
}

func TestUnitArgumentsReferToTheEnvironmentAsInAPod(t *testing.T) {
	p := handmade(36)
	c := &p.Components[2]
	c.Env = []spec.EnvVar{{Name: "HOST_IP", Value: "10.0.0.11"}}
	c.Args = []plan.Arg{{Name: "advertise-address", Value: "$(HOST_IP)"}, {Name: "other", Value: "$(OTHER) $HOST_IP"}}
	unit, _ := renderUnit(t, p, c)
	want := []string{programFile(c), "--advertise-address=10.0.0.11", "--other=$(OTHER) $HOST_IP"}
	if got := commandLine(t, unit, map[string]string{"HOST_IP": "10.0.0.11"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := unit["Service.EnvironmentFile"]; !slices.Equal(
		got, []string{"/etc/kubernetes/kube-apiserver-modern.env"}) {
		t.Errorf("EnvironmentFile=%q", got)
	}
}

func TestUnitRefusesWhatSystemdCannotSay(t *testing.T) {
	for name, change := range map[string]func(c *plan.Component){
		"program":  func(c *plan.Component) { c.Command = []string{"/opt/$VERSION/kube-apiserver"} },
		"path":     func(c *plan.Component) { c.Mounts = []plan.Mount{{Path: `/var/"log"`, Directory: true}} },
		"variable": func(c *plan.Component) { c.Env = []spec.EnvVar{{Name: "a.b", Value: "c"}} },
	} {
		p := handmade(36)
		change(&p.Components[2])
		if _, err := Files(p, Options{Target: Systemd}); err == nil || !strings.Contains(err.Error(), "systemd takes") {
			t.Errorf("%s: got %v, want an error that says what systemd takes", name, err)
		}
	}
}

func FuzzUnitValue(f *testing.F) {
	for _, value := range hostile {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		p := handmade(kubever.Oldest)
		c := &p.Components[2]
		c.Args = []plan.Arg{{Name: "v", Value: value, Why: value, Origin: plan.FromPlan}}
		c.Env = []spec.EnvVar{{Name: "V", Value: value}}
		if checkText(p) != nil || strings.Contains(value, "$(V)") {
			t.Skip()
		}
		unit, _ := renderUnit(t, p, c)
		if got := commandLine(t, unit, nil); len(got) != 2 || got[1] != "--v="+value {
			t.Errorf("%q came back as %q", value, got)
		}
		data, err := environmentFile(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := environ(t, data)["V"]; got != value {
			t.Errorf("variable %q came back as %q", value, got)
		}
		// What reads the units of others reads ours as they are meant.
		c.Env = nil
		_, text := renderUnit(t, p, c)
		running, err := adopt.ReadAll(fstest.MapFS{"a.service": {Data: text}}, nil)
		if err != nil || len(running.Processes) != 1 ||
			!slices.Equal(running.Processes[0].Words, []string{"--v=" + value}) {
			t.Errorf("%q is read as %+v, %v", value, running, err)
		}
	})
}
