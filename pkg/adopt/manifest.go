package adopt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/yamltext"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"go.yaml.in/yaml/v3"
)

// object is as much of a pod, of something with a pod template, or of a list of them as tells how components are
// started.
type object struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name        string            `yaml:"name"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		podSpec  `yaml:",inline"`
		Replicas int `yaml:"replicas"`
		Template struct {
			Spec podSpec `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
	Items []yaml.Node `yaml:"items"`
}

type podSpec struct {
	Containers []container `yaml:"containers"`
	Volumes    []struct {
		Name     string `yaml:"name"`
		HostPath *struct {
			Path string `yaml:"path"`
		} `yaml:"hostPath"`
		Secret *struct {
			SecretName string `yaml:"secretName"`
		} `yaml:"secret"`
		ConfigMap *struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
		Others    map[string]any `yaml:",inline"`
		Projected *struct {
			Sources []struct {
				Secret *struct {
					Name string `yaml:"name"`
				} `yaml:"secret"`
				ConfigMap *struct {
					Name string `yaml:"name"`
				} `yaml:"configMap"`
			} `yaml:"sources"`
		} `yaml:"projected"`
	} `yaml:"volumes"`
}

type container struct {
	line    int
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	WorkDir string   `yaml:"workingDir"`
	Env     []struct {
		Name      string    `yaml:"name"`
		Value     string    `yaml:"value"`
		ValueFrom yaml.Node `yaml:"valueFrom"`
	} `yaml:"env"`
	EnvFrom      []yaml.Node `yaml:"envFrom"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	LivenessProbe struct {
		HTTPGet struct {
			Host string `yaml:"host"`
		} `yaml:"httpGet"`
	} `yaml:"livenessProbe"`
}

// UnmarshalYAML decodes a container and keeps its line.
func (c *container) UnmarshalYAML(node *yaml.Node) error {
	type plain container
	err := node.Decode((*plain)(c))
	c.line = node.Line
	return err
}

// manifest reads the pods of a YAML or JSON file, in any number of documents and lists.
func (r *reader) manifest(name string, text []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.note(name, "is ignored: it is neither YAML nor JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))
			return
		}
		if why := unreadable(&document); why != "" {
			r.note(name, "is ignored: %s", why)
			return
		}
		if len(document.Content) == 0 {
			continue
		}
		before := len(r.processes) + len(r.notes)
		if document.Content[0].Kind == yaml.MappingNode {
			r.object(name, document.Content[0], 0)
		}
		if len(r.processes)+len(r.notes) == before {
			r.described(name, document.Content[0], nil)
		}
	}
}

// unreadable is why a document is not decoded, "" for none: by aliases, and by keys that it has again and again, a few
// bytes become gigabytes.
func unreadable(document *yaml.Node) string {
	err := yamltext.BoundAliasesOf(document)
	if err == nil {
		err = yamltext.BoundKeysOf(document)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (r *reader) object(name string, node *yaml.Node, depth int) {
	const limitDepth = 3 // lists of lists do not occur
	var o object
	if err := node.Decode(&o); err != nil {
		r.note(fmt.Sprintf("%s:%d", name, node.Line), "is ignored: %s",
			strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
		return
	}
	if strings.HasSuffix(o.Kind, "List") && depth < limitDepth {
		for i := range o.Items {
			r.object(name, &o.Items[i], depth+1)
		}
		return
	}
	pod := o.Spec.podSpec
	if len(pod.Containers) == 0 {
		pod = o.Spec.Template.Spec
	}
	for i := range pod.Containers {
		r.container(name, &o, &pod, &pod.Containers[i])
	}
}

// stem is the name of a file without its folder and its ending.
func stem(name string) string { return strings.TrimSuffix(path.Base(name), path.Ext(name)) }

func (r *reader) container(name string, o *object, pod *podSpec, c *container) {
	place := fmt.Sprintf("%s:%d", name, c.line)
	p := Process{Place: place, Name: cmp.Or(o.Metadata.Name, stem(name)), Image: c.Image, advertised: o.advertised(c),
		cluster: o.cluster(), replicas: o.Spec.Replicas}
	environment := map[string]string{}
	var unknown []string
	for _, variable := range c.Env {
		if variable.ValueFrom.Kind != 0 {
			unknown = append(unknown, variable.Name)
			continue
		}
		value := dollarParentheses(variable.Value, environment, r.made)
		environment[variable.Name] = value
		p.Env = append(p.Env, spec.EnvVar{Name: variable.Name, Value: value})
	}
	var words []string
	for _, word := range append(append([]string{}, c.Command...), c.Args...) {
		words = append(words, dollarParentheses(word, environment, r.made))
	}
	line, ok := r.commandLine(place, words, environment)
	if r.ignored(place) {
		return
	}
	if !ok {
		var component string
		names := []string{c.Name}
		if len(pod.Containers) == 1 {
			names = append(names, o.Metadata.Name)
		}
		component, ok = namedFor(c.Image, names...)
		line = wrapped(component, words)
		if len(line.command) > 0 && ok {
			r.note(place, "%s is taken for the program of %s", strings.Join(line.command, " "), component)
		}
	}
	if !ok {
		if len(c.Command)+len(c.Args) > 0 {
			r.note(place, "container %q is no component of the control plane and is left out", c.Name)
		}
		return
	}
	if r.made.count(len(c.VolumeMounts)); r.ignored(place) {
		return
	}
	p.Component, p.Command, p.Words = line.component, line.command, line.words
	p.broken, p.asks = line.broken, line.asks
	switch {
	case len(p.Command) == 0:
		r.note(place, "the program is the entrypoint of image %s; %s is assumed", c.Image, p.Component)
	case len(c.Command) == 0 && len(p.Command) == 1 && servers[p.Command[0]] != "":
		p.Command = []string{"/hyperkube", p.Command[0]}
		r.note(place, "the program is the entrypoint of image %s; /hyperkube is assumed", c.Image)
	}
	_, shell := shellScript(words)
	for _, word := range append([]string{p.Image}, p.Words...) {
		if !shell && variable.MatchString(word) {
			p.unfilled = word // the kubelet substitutes $(NAME) only
		}
		if strings.Contains(word, "$(") {
			p.asks = append(p.asks, r.ask(place, flagOfWord(nil, word),
				"%s is substituted by the kubelet at start and is kept literally; write its value", word))
		}
	}
	for _, variable := range unknown {
		r.note(place, "environment variable %s comes from elsewhere (valueFrom) and is left out; a spec holds plain "+
			"values", variable)
	}
	if len(c.EnvFrom) > 0 {
		r.note(place, "environment variables of envFrom are left out; a spec holds plain values")
	}
	p.Env = withVariables(p.Env, line.env)
	r.workIn(&p, inDirectory(c.WorkDir, line.directory))
	r.mounts(&p, pod, c)
	r.start(p)
}

// variable is one of a shell, which a template is filled with.
var variable = regexp.MustCompile(`\$\{?[A-Za-z_]`)

// mounts keeps the paths of the host that the container sees, and the objects of the cluster: of several in one volume
// a mount has the first, which is enough to know that its files are on no host; p.objects has all, by where they are
// seen.
func (r *reader) mounts(p *Process, pod *podSpec, c *container) {
	place := p.Place
	p.objects = map[string][]string{}
	volumes := map[string][]int{} // by name
	for i := range pod.Volumes {
		volumes[pod.Volumes[i].Name] = append(volumes[pod.Volumes[i].Name], i)
	}
	names := freeNames{}
	for _, mount := range c.VolumeMounts {
		m := spec.Mount{Name: mount.Name, ReadOnly: mount.ReadOnly}
		var objects []string
		kind := "volume" // of which the file says nothing
		for _, i := range volumes[mount.Name] {
			volume := &pod.Volumes[i]
			if !r.made.count(len(volume.Others)) { // of each mount of it
				break
			}
			switch {
			case volume.HostPath != nil:
				m.HostPath = trimSlash(path.Join(volume.HostPath.Path, mount.SubPath))
			case volume.Secret != nil:
				m.Secret = volume.Secret.SecretName
			case volume.ConfigMap != nil:
				m.ConfigMap = volume.ConfigMap.Name
			case volume.Projected != nil:
				kind = "projected"
				r.made.count(len(volume.Projected.Sources))
				for _, source := range volume.Projected.Sources {
					switch {
					case source.Secret != nil:
						objects = append(objects, "Secret "+source.Secret.Name)
					case source.ConfigMap != nil:
						objects = append(objects, "ConfigMap "+source.ConfigMap.Name)
					}
				}
				if len(objects) == 0 {
					break
				}
				if name, secret := strings.CutPrefix(objects[0], "Secret "); secret {
					m.Secret = name
				} else {
					m.ConfigMap = strings.TrimPrefix(name, "ConfigMap ")
				}
			default:
				for _, other := range slices.Sorted(maps.Keys(volume.Others)) {
					kind = other
				}
			}
		}
		at := trimSlash(mount.MountPath)
		if at != m.HostPath {
			m.MountPath = at
		}
		switch object := cmp.Or(suffixed("Secret ", m.Secret), suffixed("ConfigMap ", m.ConfigMap)); {
		case m.HostPath == "" && object == "":
			r.note(place, "volume %q at %s is neither a path of the host nor an object of the cluster: what is "+
				"in it is on no host", mount.Name, mount.MountPath)
			m.Name = names.take(mount.Name)
			p.unseen = append(p.unseen, spec.Mount{Name: m.Name, MountPath: at, ReadOnly: mount.ReadOnly,
				Volume: kind})
			continue
		case m.HostPath == "":
			if len(objects) == 0 {
				objects = []string{object}
			}
			p.objects[at] = objects
			r.note(place, "%s has the files of %s, and no host has them: the modern side needs them on every host; "+
				"copy them to %s, and name that under spec.hostFiles", at, strings.Join(objects, ", "), at)
		}
		m.Name = names.take(mount.Name)
		p.Mounts = append(p.Mounts, m)
	}
}

// freeNames are the names that are taken, and the number that the next one of a name gets.
type freeNames map[string]int

// take is the name, or NAME-2 and so on where it is taken.
func (f freeNames) take(name string) string {
	free := name
	for f[free] > 0 {
		f[name]++
		free = fmt.Sprintf("%s-%d", name, f[name])
	}
	f[free] = 1
	return free
}

func trimSlash(p string) string {
	if trimmed := strings.TrimRight(p, "/"); trimmed != "" {
		return trimmed
	}
	return p
}

func suffixed(separator, s string) string {
	if s == "" {
		return ""
	}
	return separator + s
}

// cluster is the name of the cluster, as kops writes the DNS name of the API server beside its arguments, "" for none.
func (o *object) cluster() string {
	return strings.TrimPrefix(o.Metadata.Annotations["dns.alpha.kubernetes.io/internal"], "api.internal.")
}

// advertised is the address of the API server that kubeadm writes beside the arguments, "" for none.
func (o *object) advertised(c *container) string {
	endpoint := o.Metadata.Annotations["kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"]
	for _, text := range []string{endpoint, c.LivenessProbe.HTTPGet.Host} {
		if withPort, err := netip.ParseAddrPort(text); err == nil {
			return withPort.Addr().String()
		}
		if address, err := netip.ParseAddr(text); err == nil && !address.IsLoopback() && !address.IsUnspecified() {
			return address.String()
		}
	}
	return ""
}

// dollarParentheses expands $(NAME) as the kubelet does: names that are not set stay as they are, and $$ is one dollar.
func dollarParentheses(s string, environment map[string]string, m *made) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '$' || i+1 == len(s):
			out.WriteByte(s[i])
		case s[i+1] == '$':
			out.WriteByte('$')
			i++
		case s[i+1] == '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				out.WriteString(s[i:])
				return out.String()
			}
			if value, ok := environment[s[i+2:i+end]]; ok && m.take(len(value)) {
				out.WriteString(value)
			} else {
				out.WriteString(s[i : i+end+1])
			}
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// ReadManifest reads the pods of one text, YAML or JSON, that does not come from a file: an API server shows static
// pods as objects. Place is what the processes and the notes are said to come from.
func ReadManifest(place string, text []byte) *Running {
	r := &reader{made: new(made)}
	r.manifest(place, text)
	return r.running()
}
