// Package playbook writes a transition as playbooks of Ansible: one that does its steps, one that undoes them, the
// contents of the files, and an inventory. What a spec says is data in them, and no template of Ansible.
package playbook

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

//go:embed tasks
var tasks embed.FS

// Directory is where the playbooks lie in the tree.
const Directory = "ansible"

// secret is the mode of what may hold secrets, and of what lies beside it.
const secret fs.FileMode = 0o600

// taskOf are the tasks of each kind of action.
var taskOf = map[transition.Kind]string{
	transition.PutFile: "put-file", transition.RemoveFile: "remove-file", transition.StartUnit: "start-unit",
	transition.StopUnit: "stop-unit", transition.Snapshot: "snapshot", transition.RunChecks: "nothing",
	transition.ByHand: "by-hand", transition.PutProgram: "put-program",
	// A playbook has no journal that knows what was in the place of a program before: what was put there stays.
	transition.RemoveProgram: "nothing",
}

// checkOf are the tasks of each kind of check.
var checkOf = map[transition.CheckKind]string{
	transition.FileIs: "file", transition.Executable: "program", transition.Certificate: "certificate",
	transition.Ready: "ready", transition.Gone: "gone", transition.Runs: "runs", transition.NoKeys: "no-keys",
}

// ErrHostName is a host that has a name of Ansible's own.
var ErrHostName = errors.New("is a name of Ansible's own: give the host another one")

// ownNames mean something to Ansible: a play of the host "all" would run on every host at once, one of "localhost" on
// the machine that runs Ansible where the inventory is forgotten.
var ownNames = []string{"all", "ungrouped", "localhost"}

// Files renders a transition below Directory, sorted by path. Errors: ErrHostName, wrapped; a step or check that a
// playbook cannot do.
func Files(t transition.Transition) ([]render.File, error) {
	for _, h := range t.Hosts {
		if slices.Contains(ownNames, h.Name) {
			return nil, fmt.Errorf("host %q: %w", h.Name, ErrHostName)
		}
	}
	b := &builder{contents: map[string][]byte{}}
	install, err := b.plays(t.Steps, func(s transition.Step) *transition.Action { return s.Do })
	if err != nil {
		return nil, err
	}
	back := slices.Clone(t.Steps)
	slices.Reverse(back)
	undo, err := b.plays(back, func(s transition.Step) *transition.Action { return s.Undo })
	if err != nil {
		return nil, err
	}
	hosts := mapping{}
	for _, h := range t.Hosts {
		hosts = append(hosts, h.Name, mapping{"ansible_host", unsafe(h.Address)})
	}
	var files []render.File
	for _, f := range []struct {
		name, about string
		content     any
	}{
		{"site.yml", "Does the steps from " + t.From + " to " + t.To + ", in order. Run again, it goes on.", install},
		{"undo.yml", "Takes the steps back, the last one first.", undo},
		{"inventory.yml", "The hosts of the spec.", mapping{"all", mapping{"hosts", hosts}}},
	} {
		text, err := encoded(f.about, f.content)
		if err != nil {
			return nil, err
		}
		files = append(files, render.File{Path: path.Join(Directory, f.name), Mode: secret, Data: text})
	}
	files = append(files, render.File{Path: path.Join(Directory, ".ansible-lint"), Mode: secret,
		Data: []byte(lintConfig)})
	for name, data := range b.contents {
		files = append(files, render.File{Path: path.Join(Directory, "files", name), Mode: secret, Data: data})
	}
	err = fs.WalkDir(tasks, "tasks", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := tasks.ReadFile(name)
		files = append(files, render.File{Path: path.Join(Directory, name), Mode: secret, Data: data})
		return err
	})
	slices.SortFunc(files, func(a, b render.File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

type builder struct{ contents map[string][]byte }

// plays groups steps that follow each other on one host. Hosts are never changed concurrently: the order of steps is
// that of the transition, and a step that fails ends everything.
func (b *builder) plays(steps []transition.Step, action func(transition.Step) *transition.Action) ([]any, error) {
	var plays []any
	var list []any
	for i, s := range steps {
		if a := action(s); a != nil {
			list = append(list, nil)
			task, err := b.task(s, a)
			if err != nil {
				return nil, fmt.Errorf("step %s, %s: %w", s.ID, s.Title, err)
			}
			list[len(list)-1] = task
		}
		last := i == len(steps)-1 || steps[i+1].Host != s.Host || steps[i+1].Phase != s.Phase
		if last && len(list) > 0 {
			plays = append(plays, mapping{"name", title("On " + s.Host + ": " + string(s.Phase)), "hosts", s.Host,
				"gather_facts", false, "become", "{{ (root | default('')) == '' }}", "any_errors_fatal", true,
				"tasks", list})
			list = nil
		}
	}
	return plays, nil
}

// byHand are checks of what API servers hold. A playbook has no client of them that reads lists to their end and keeps
// to resource versions: a person does the step, as its text says.
var byHand = []transition.CheckKind{transition.Settled, transition.Released}

func isByHand(a *transition.Action) bool {
	return slices.ContainsFunc(slices.Concat(a.Before, a.After), func(c transition.Check) bool {
		return slices.Contains(byHand, c.Kind)
	})
}

func (b *builder) task(s transition.Step, a *transition.Action) (any, error) {
	if isByHand(a) {
		a = &transition.Action{Kind: transition.ByHand, Text: a.Text}
	}
	before, err := b.checks(a.Before)
	if err != nil {
		return nil, err
	}
	after, err := b.checks(a.After)
	if err != nil {
		return nil, err
	}
	step := mapping{"id", s.ID, "title", unsafe(s.Title), "before", before, "after", after}
	if a.File != nil {
		sum := b.content(a.File.Data)
		step = append(step, "path", unsafe(a.File.Path), "mode", fmt.Sprintf("%04o", a.File.Mode.Perm()), "sha256", sum)
	}
	if p := a.Program; p != nil {
		step = append(step, "path", unsafe(p.Path), "sha256", unsafe(p.SHA256), "source", unsafe(p.File), "image",
			unsafe(p.Image))
	}
	if a.Was != nil {
		step = append(step, "was", b.content(a.Was.Data))
	}
	if a.Unit != "" {
		step = append(step, "unit", unsafe(a.Unit))
	}
	if a.Store != nil {
		step = append(step, "store", unsafe(a.Store.Name), "endpoint", unsafe(a.Store.Endpoints[0]))
		if tls := a.Store.TLS; tls != nil {
			step = append(step, "ca", unsafe(tls.CA))
			if tls.Identifies() {
				step = append(step, "cert", unsafe(tls.Cert), "key", unsafe(tls.Key))
			}
		}
	}
	if a.Text != "" {
		step = append(step, "text", unsafe(a.Text))
	}
	name, known := taskOf[a.Kind]
	if !known {
		return nil, fmt.Errorf("no tasks are known for %q", a.Kind)
	}
	return mapping{"name", title(s.ID + " " + s.Title), "ansible.builtin.include_tasks", "tasks/step.yml", "vars",
		mapping{"kind", name, "step", step}}, nil
}

func (b *builder) checks(list []transition.Check) ([]any, error) {
	checks := []any{}
	for _, c := range list {
		name, known := checkOf[c.Kind]
		if !known || c.Kind == transition.NoKeys && !aboutMarks(c.Keys) {
			return nil, fmt.Errorf("a playbook cannot check %q", c.Kind)
		}
		check := mapping{"kind", name, "hint", unsafe(c.Hint)}
		if c.Path != "" {
			check = append(check, "path", unsafe(c.Path))
		}
		if c.SHA256 != "" {
			check = append(check, "sha256", unsafe(c.SHA256))
		}
		if c.File != nil {
			check = append(check, "sha256", b.content(c.File.Data))
		}
		if p := c.Probe; p != nil {
			check = append(check, "scheme", strings.ToLower(p.Scheme), "host", unsafe(p.Host), "port", p.Port,
				"url_path",
				unsafe(p.Path))
		}
		if p := c.Certificate; p != nil {
			names := []any{}
			for _, n := range p.DNSNames {
				names = append(names, mapping{"flag", "-checkhost", "name", unsafe(n)})
			}
			for _, ip := range p.IPs {
				names = append(names, mapping{"flag", "-checkip", "name", unsafe(ip)})
			}
			check = append(check, "cert", unsafe(p.Cert), "key", unsafe(p.Key), "names", names)
		}
		if c.Kind == transition.NoKeys {
			check = append(check, "looks", looks(&c))
		}
		if c.Cert != "" {
			check = append(check, "client_cert", unsafe(c.Cert), "client_key", unsafe(c.Key))
		}
		others := []any{}
		for _, args := range c.Others {
			others = append(others, texts(args))
		}
		check = append(check, "ca", unsafe(c.CA), "version", unsafe(strings.TrimPrefix(c.Version, "v")), "program",
			unsafe(c.Program), "args", texts(c.Args), "others", others)
		checks = append(checks, check)
	}
	return checks, nil
}

// aboutMarks reports whether keys are all of hand-overs. Nothing else is judged by what a store lacks: a playbook does
// not notice that one was replaced. One without marks for that reason has nothing of what was handed over, either.
func aboutMarks(keys []string) bool {
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(key string) bool {
		return !strings.Contains(key, handover.MarksKey)
	})
}

// looks are the prefixes of a check, each with the store and the words by which etcdctl reaches it.
func looks(c *transition.Check) []any {
	looks := []any{}
	for _, s := range c.Stores {
		reach := []string{"--endpoints=" + strings.Join(s.Endpoints, ",")}
		if s.TLS != nil {
			reach = append(reach, "--cacert="+s.TLS.CA)
			if s.TLS.Identifies() {
				reach = append(reach, "--cert="+s.TLS.Cert, "--key="+s.TLS.Key)
			}
		}
		for _, key := range c.Keys {
			looks = append(looks, mapping{"store", unsafe(s.Name), "key", unsafe(key), "reach", texts(reach)})
		}
	}
	return looks
}

// texts are a list of texts that are no templates.
func texts(list []string) []any {
	texts := []any{}
	for _, text := range list {
		texts = append(texts, unsafe(text))
	}
	return texts
}

// content keeps data as a file that is named by its checksum, and gives that.
func (b *builder) content(data []byte) string {
	name := fmt.Sprintf("%x", sha256.Sum256(data))
	b.contents[name] = data
	return name
}

// title is a text without what Ansible would take for a template.
func title(text string) string {
	return strings.NewReplacer("{", "(", "}", ")", "\n", " ").Replace(text)
}

// unsafe is Ansible's word for a text that is no template.
type unsafe string

// mapping is keys and values alternately, in their order.
type mapping []any

// lintConfig is what ansible-lint has to know of the files.
const lintConfig = "---\n# Texts of steps and checks are lines of their own length.\n" +
	"skip_list: [\"yaml[line-length]\"]\n"

func encoded(about string, content any) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("---\n# " + strings.ReplaceAll(about, "\n", " ") + "\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(node(content)); err != nil {
		return nil, err
	}
	err := encoder.Close()
	return out.Bytes(), err
}

func node(value any) *yaml.Node {
	n := &yaml.Node{}
	switch v := value.(type) {
	case mapping:
		n.Kind = yaml.MappingNode
		for _, part := range v {
			n.Content = append(n.Content, node(part))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, part := range v {
			n.Content = append(n.Content, node(part))
		}
		if len(v) == 0 {
			n.Style = yaml.FlowStyle
		}
	case unsafe:
		n.Kind, n.Tag, n.Value, n.Style = yaml.ScalarNode, "!unsafe", string(v), yaml.DoubleQuotedStyle
	case string:
		n.SetString(v)
		if strings.ContainsAny(v, "{:") || isNumber(v) || slices.Contains(oldBooleans, v) {
			n.Style = yaml.DoubleQuotedStyle
		}
	default:
		if err := n.Encode(v); err != nil {
			panic("playbook: internal error: " + err.Error()) // of a bool or a number
		}
	}
	return n
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// oldBooleans are booleans of YAML 1.1, which Ansible reads, and no longer of 1.2, which the encoder writes.
var oldBooleans = []string{"yes", "no", "on", "off", "y", "n"}
