package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Pods as kubectl describe prints them, which is read as the object that it was printed of.
// Source: describePod of k8s.io/kubectl v0.36.0, pkg/describe/describe.go; that of 1.6 prints the same fields.

var describedPod = regexp.MustCompile(`(?m)^Containers:\s*$`)

// podText is what a description of pods has, with the line of each container.
type podText struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name        string            `yaml:"name"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		Containers []*containerText `yaml:"containers"`
		Volumes    []map[string]any `yaml:"volumes"`
	} `yaml:"spec"`
	lines []int
}

type containerText struct {
	Name         string           `yaml:"name"`
	Image        string           `yaml:"image"`
	Command      []string         `yaml:"command,omitempty"`
	Args         []string         `yaml:"args,omitempty"`
	Env          []map[string]any `yaml:"env,omitempty"`
	VolumeMounts []map[string]any `yaml:"volumeMounts,omitempty"`
}

// describedPods reads the pods of a description, and reports whether the text is one.
func (r *reader) describedPods(name string, text []byte) bool {
	if !describedPod.Match(text) || !strings.Contains(string(text), "\n  ") {
		return false
	}
	before := len(r.processes)
	for _, pod := range parsePodText(string(text)) {
		for _, container := range pod.Spec.Containers {
			container.Command, container.Args = joinScript(container.Command, container.Args)
		}
		var node yaml.Node
		if err := node.Encode(pod); err != nil {
			continue
		}
		at := 0
		for _, container := range child(child(&node, "spec"), "containers").Content {
			container.Line = pod.lines[at]
			at++
		}
		r.object(name, &node, 0)
	}
	return len(r.processes) > before
}

// parsePodText takes descriptions apart: a field starts where its section indents it, and a list of words has one in a
// line, or the lines of one.
func parsePodText(text string) []*podText {
	var pods []*podText
	var pod *podText
	var container *containerText
	var volume map[string]any
	section, list := "", ""
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r", ""), "\n") {
		trimmed := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		key, value, isField := strings.Cut(trimmed, ":")
		value = strings.TrimSpace(value)
		if isField && indent == 0 {
			section, container, volume, list = key, nil, nil, ""
			if key == "Name" {
				pod = &podText{Kind: "Pod"}
				pod.Metadata.Name = value
				pods = append(pods, pod)
			}
		}
		if pod == nil || trimmed == "" {
			continue
		}
		switch {
		case section == "Annotations":
			if name, text, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(trimmed, "Annotations:")),
				":"); ok {
				if pod.Metadata.Annotations == nil {
					pod.Metadata.Annotations = map[string]string{}
				}
				pod.Metadata.Annotations[name] = strings.TrimSpace(text)
			}
		case section == "Containers" && indent == 2 && isField && value == "":
			container, list = &containerText{Name: key}, ""
			pod.Spec.Containers = append(pod.Spec.Containers, container)
			pod.lines = append(pod.lines, i+1)
		case container != nil && indent == 4 && isField:
			list = key
			if key == "Image" {
				container.Image = value
			}
		case container != nil && indent >= 6:
			container.add(list, strings.TrimPrefix(line, "      "))
		case section == "Volumes" && indent == 2 && isField && value == "":
			volume = map[string]any{"name": key}
			pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		case section == "Volumes" && volume != nil && indent >= 4 && isField:
			addVolumeField(volume, key, value)
		}
	}
	return pods
}

// mountText is a mount: /path from volume (ro,path="sub").
var mountText = regexp.MustCompile(`^(\S+) from (\S+) \(([a-z]+)(?:,path="(.*)")?\)$`)

// add adds a line of a list.
func (c *containerText) add(list, line string) {
	switch list {
	case "Command":
		c.Command = append(c.Command, line)
	case "Args":
		c.Args = append(c.Args, line)
	case "Environment":
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok:
		case strings.HasPrefix(value, "<set to the key"),
			strings.HasPrefix(value, "(") && strings.HasSuffix(value, ")"):
			c.Env = append(c.Env, map[string]any{"name": name, "valueFrom": map[string]any{"described": value}})
		default:
			c.Env = append(c.Env, map[string]any{"name": name, "value": value})
		}
	case "Mounts":
		if m := mountText.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			c.VolumeMounts = append(c.VolumeMounts, map[string]any{"name": m[2], "mountPath": m[1],
				"readOnly": m[3] == "ro", "subPath": m[4]})
		}
	}
}

// joinScript makes one word of the lines of a script: behind sh -c there is no other.
func joinScript(command, args []string) (commandWords, argWords []string) {
	const most = 8 // options of a shell
	all := slices.Concat(command, args)
	for at := 2; at < min(len(all), most); at++ {
		if _, is := shellScript(all[:at+1]); !is {
			continue
		}
		if at < len(command) {
			return append(slices.Clone(command[:at]), strings.Join(command[at:], "\n")), args
		}
		at -= len(command)
		return command, append(slices.Clone(args[:at]), strings.Join(args[at:], "\n"))
	}
	return command, args
}

// addVolumeField adds what a description says of a volume.
func addVolumeField(volume map[string]any, key, value string) {
	kind := fmt.Sprint(volume["described"])
	switch {
	case key == "Type":
		volume["described"], _, _ = strings.Cut(value, " ")
	case key == "Path" && kind == "HostPath":
		volume["hostPath"] = map[string]any{"path": value}
	case key == "SecretName" && kind == "Secret":
		volume["secret"] = map[string]any{"secretName": value}
	case key == "Name" && kind == "ConfigMap":
		volume["configMap"] = map[string]any{"name": value}
	case key == "SecretName" || key == "ConfigMapName":
		source := map[string]any{strings.ToLower(key[:1]) + strings.TrimSuffix(key[1:], "Name"): map[string]any{
			"name": value}}
		projected, _ := volume["projected"].(map[string]any)
		if projected == nil {
			projected = map[string]any{"sources": []any{}}
		}
		sources, _ := projected["sources"].([]any)
		projected["sources"] = append(sources, source)
		volume["projected"] = projected
	}
}
