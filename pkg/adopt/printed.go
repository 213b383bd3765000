package adopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// What programs print of the components: systemctl cat of units, inspect of container runtimes.

// printedFile is the line that systemctl cat prints in front of each file of a unit.
var printedFile = regexp.MustCompile(`^# (/\S+\.(service|conf))$`)

// printedUnits reads units under another name than NAME.service: what systemctl cat prints, or the text of one unit. It
// reports whether the text is that.
func (r *reader) printedUnits(name string, text []byte) bool {
	if !startsSection(text) || !bytes.Contains(text, []byte("ExecStart")) {
		return false
	}
	files := newMemoryFiles()
	to, content := path.Join("etc/systemd/system", strings.TrimSuffix(stem(name), ".service")+".service"), []string(nil)
	end := func() {
		if whole := strings.Join(content, ""); strings.TrimSpace(whole) != "" {
			files.add(to, []byte(whole))
		}
	}
	for line := range strings.Lines(string(text)) {
		if match := printedFile.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
			end()
			to, content = strings.TrimPrefix(path.Clean(match[1]), "/"), nil
			continue
		}
		content = append(content, line)
	}
	end()
	if files.empty() || !r.made.take(len(text)) {
		return false
	}
	r.holders = append(r.holders, holder{name, files})
	return true
}

// startsSection reports whether a text starts with a section of a unit, behind comments.
func startsSection(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != ';' {
			return bytes.Equal(line, []byte("[Unit]")) || bytes.Equal(line, []byte("[Service]"))
		}
	}
	return false
}

// criInspected is a container as crictl inspect prints it, as much as tells how it is started.
type criInspected struct {
	Status struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Image struct {
			Image string `json:"image"`
		} `json:"image"`
		Mounts []struct {
			ContainerPath string `json:"containerPath"`
			HostPath      string `json:"hostPath"`
			ReadOnly      bool   `json:"readonly"`
		} `json:"mounts"`
	} `json:"status"`
	Info *struct {
		Config struct {
			Envs []struct {
				Key   string `json:"key"`
				Value string `json:"value"`
			} `json:"envs"`
		} `json:"config"`
		RuntimeSpec struct {
			Process struct {
				Args []string `json:"args"`
				Dir  string   `json:"cwd"`
			} `json:"process"`
		} `json:"runtimeSpec"`
	} `json:"info"`
}

// inspect reads what docker, podman or crictl inspect prints, one document or several, and reports whether the text is
// that.
func (r *reader) inspect(name string, text []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	found := false
	for {
		var document json.RawMessage
		if err := decoder.Decode(&document); err != nil {
			return found && errors.Is(err, io.EOF)
		}
		var list []json.RawMessage
		if json.Unmarshal(document, &list) != nil {
			list = []json.RawMessage{document}
		}
		for _, item := range list {
			var c inspected
			var cri criInspected
			switch {
			case json.Unmarshal(item, &c) == nil && c.Config != nil && c.Path != "":
				found = true
				r.inspected(name, &c)
			case json.Unmarshal(item, &cri) == nil && cri.Info != nil && len(cri.Info.RuntimeSpec.Process.Args) > 0:
				found = true
				r.criInspected(name, &cri)
			}
		}
	}
}

// criInspected reads a container of a CRI runtime. Its environment has what the kubelet adds for every Service.
func (r *reader) criInspected(file string, c *criInspected) {
	name := c.Status.Metadata.Name
	place := fmt.Sprintf("%s:%s", file, name)
	process := c.Info.RuntimeSpec.Process
	line, ok := r.commandLine(place, process.Args, nil)
	if !ok {
		return
	}
	p := Process{Component: line.component, Name: name, Place: place, Image: c.Status.Image.Image,
		Command: line.command, Words: line.words, broken: line.broken, asks: line.asks}
	for _, e := range c.Info.Config.Envs {
		if !ofService.MatchString(e.Key) {
			p.Env = append(p.Env, spec.EnvVar{Name: e.Key, Value: e.Value})
		}
	}
	p.Env = withVariables(p.Env, line.env)
	r.workIn(&p, inDirectory(process.Dir, line.directory))
	for i, m := range c.Status.Mounts {
		if m.ContainerPath != "/etc/hosts" && m.ContainerPath != "/dev/termination-log" {
			p.Mounts = append(p.Mounts, bind(i, m.HostPath, m.ContainerPath, m.ReadOnly))
		}
	}
	r.start(p)
}

// ofService are the variables of Services, which every pod has.
var ofService = regexp.MustCompile(`_(SERVICE_(HOST|PORT)|PORT)(_|$)`)
