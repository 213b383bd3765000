package playbook_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/kubefusion/fusionctl/internal/debian"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/playbook"
)

// evil is what a template of Ansible would run.
const evil = `{{ lookup('pipe', 'touch /tmp/fusionctl-playbook-was-a-template') }}`

// written renders the installation of an example into a directory, and gives the directory of the playbooks. Of each
// kind of step there are at most so many, all for 0.
func written(t *testing.T, example string, target render.Target, most int) (string, transition.Transition) {
	t.Helper()
	text, err := os.ReadFile("../../../examples/" + example)
	if err != nil {
		t.Fatal(err)
	}
	f, err := spec.Load(example, text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := transition.New(transition.Setup{}, transition.Setup{Plan: p, Target: target}, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if most > 0 { // each step is a second or two of Ansible's
		kinds := map[transition.Kind]int{}
		steps.Steps = slices.DeleteFunc(steps.Steps, func(s transition.Step) bool {
			if s.Do == nil {
				return true
			}
			kinds[s.Do.Kind]++
			return kinds[s.Do.Kind] > most
		})
	}
	steps.Steps[0].Title += evil
	steps.To += evil
	files, err := playbook.Files(steps)
	if err != nil {
		t.Fatal(err)
	}
	again, err := playbook.Files(steps)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, f := range files {
		if f.Path != again[i].Path || !bytes.Equal(f.Data, again[i].Data) {
			t.Errorf("%s is not the same twice", f.Path)
		}
		name := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, f.Mode); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, playbook.Directory), steps
}

// ansible runs one of Ansible's programs, or skips the test where there is none.
func ansible(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	pkg := "ansible-core"
	if program == "ansible-lint" {
		pkg = program
	}
	program = debian.Program(t, pkg, program)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ANSIBLE_LOCAL_TEMP="+t.TempDir(), "ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8",
		"ANSIBLE_DEPRECATION_WARNINGS=0", "HOME="+t.TempDir(), "ANSIBLE_PIPELINING=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAnsibleReadsThem(t *testing.T) {
	t.Parallel()
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		dir, _ := written(t, "ha-three-hosts-1.15-1.36.yaml", target, 0)
		for _, book := range []string{"site.yml", "undo.yml"} {
			if out, err := ansible(t, dir, "ansible-playbook", "-i", "inventory.yml", "--syntax-check",
				book); err != nil {
				t.Errorf("%s, %s: %v\n%s", target, book, err, out)
			}
		}
	}
}

// TestPlaybooksTakeNothingFromStores: a playbook has no journal that knows the stores, and so would not notice one that
// was replaced or restored. No step of one deletes or moves what a store holds, or judges by it, but for marks of what
// was handed over; a snapshot replaces none that is there.
func TestPlaybooksTakeNothingFromStores(t *testing.T) {
	steps := func(a *transition.Action) transition.Transition {
		return transition.Transition{Hosts: []transition.Host{{Name: "cp-1", Address: "10.0.0.11"}},
			Steps: []transition.Step{{ID: "001", Host: "cp-1", Title: "it", Do: a}}}
	}
	can := []transition.Kind{transition.PutFile, transition.RemoveFile, transition.StartUnit, transition.StopUnit,
		transition.PutProgram, transition.RemoveProgram, transition.Snapshot, transition.RunChecks, transition.ByHand}
	source, err := os.ReadFile("../transition.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\t\w+ +Kind += "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	for _, k := range kinds {
		kind := transition.Kind(k[1])
		_, err := playbook.Files(steps(&transition.Action{Kind: kind, Store: &plan.Store{Name: "core",
			Endpoints: []string{"https://10.0.0.11:2379"}}}))
		if (err == nil) != slices.Contains(can, kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if len(kinds) < len(can)+10 {
		t.Fatalf("%d kinds of actions", len(kinds))
	}
	for _, kind := range []transition.CheckKind{transition.StoresAgree, transition.MayRewrite, transition.NoKeys,
		transition.NothingLeft, transition.MayGo, transition.Adopted, transition.RolesMayGo, transition.RolesEqual,
		transition.NoneWakes} {
		for _, a := range []*transition.Action{{Kind: transition.RunChecks, Before: []transition.Check{{Kind: kind}}},
			{Kind: transition.StopUnit, Unit: "etcd.service", After: []transition.Check{{Kind: kind}}}} {
			if _, err := playbook.Files(steps(a)); err == nil {
				t.Errorf("a playbook checks %q", kind)
			}
		}
	}
	for _, kind := range []transition.CheckKind{transition.Settled, transition.Released} { // a person does it
		files, err := playbook.Files(steps(&transition.Action{Kind: transition.Release, Text: "release it",
			After: []transition.Check{{Kind: kind}}}))
		at := slices.IndexFunc(files, func(f render.File) bool { return path.Base(f.Path) == "site.yml" })
		if err != nil || !bytes.Contains(files[at].Data, []byte("kind: by-hand")) {
			t.Errorf("%s: %v\n%s", kind, err, files)
		}
	}
	snapshot, err := os.ReadFile("tasks/snapshot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var tasks []struct {
		Command struct{ Argv, Creates string } `yaml:"ansible.builtin.command"`
	}
	if err := yaml.Unmarshal(snapshot, &tasks); err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task.Command.Argv != "" && (task.Command.Creates != "" || !strings.Contains(task.Command.Argv,
			"step.store + '-' + now(utc=true).strftime('%Y%m%dT%H%M%SZ') + '.db'")) {
			t.Errorf("a snapshot replaces one that is there, or one of an earlier run counts: %+v", task)
		}
	}
}

// A host has no name that Ansible takes for more than the host: a play of "all" would run on every host at once.
func TestHostNamesAreNamesOfOneHost(t *testing.T) {
	_, steps := written(t, "split-1.15-1.36.yaml", render.Systemd, 1)
	named := func(name string) ([]render.File, error) {
		steps.Hosts[0].Name = name
		for i := range steps.Steps {
			steps.Steps[i].Host = name
		}
		return playbook.Files(steps)
	}
	for _, name := range []string{"all", "ungrouped", "localhost"} {
		if _, err := named(name); !errors.Is(err, playbook.ErrHostName) {
			t.Errorf("a host %q: %v, want ErrHostName", name, err)
		}
	}
	for _, name := range []string{"yes", "no", "on", "off", "y", "n", "true", "null", "1e3", "0x1f", "010", "1-2",
		"2026-11-23", "ansible"} {
		files, err := named(name)
		if err != nil {
			t.Errorf("a host %q: %v", name, err)
		}
		for _, f := range files {
			if path.Base(f.Path) != "inventory.yml" && path.Base(f.Path) != "site.yml" {
				continue
			}
			var old any // yaml.v2 reads YAML 1.1, as Ansible does
			if err := yamlv2.Unmarshal(bytes.ReplaceAll(f.Data, []byte("!unsafe"), nil), &old); err != nil {
				t.Fatal(err)
			}
			if list, ok := old.([]any); ok {
				if got := list[0].(map[any]any)["hosts"]; got != name {
					t.Errorf("a play of host %q is one of %T %v", name, got, got)
				}
				continue
			}
			hosts := old.(map[any]any)["all"].(map[any]any)["hosts"].(map[any]any)
			if _, ok := hosts[name]; !ok || len(hosts) != 1 {
				t.Errorf("the inventory has host %q as %v", name, hosts)
			}
		}
	}
}

// fill appends a text to every text of a value, but words that select tasks and names that plays go by.
func fill(value reflect.Value, text string, filled *int) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			fill(value.Elem(), text, filled)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			switch f := value.Type().Field(i); f.Name {
			case "Kind", "Phase", "Host", "ID", "Scheme", "Map", "Stores", "Watch":
			default:
				if f.IsExported() { // the rest is of no file
					fill(value.Field(i), text, filled)
				}
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return // the content of a file, which lies beside the playbooks
		}
		for i := range value.Len() {
			fill(value.Index(i), text, filled)
		}
	case reflect.String:
		*filled++
		value.SetString(value.String() + text)
	}
}

// TestNoTextIsATemplate: whatever a step says is marked as no template, and the same text for a parser of YAML.
func TestNoTextIsATemplate(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		_, steps := written(t, "ha-three-hosts-1.15-1.36.yaml", target, 0)
		for _, text := range []string{"{{ evil }}", "{% evil %}", "{# evil", "!unsafe {{ evil", "evil: {{\n- a",
			"'evil\"{{"} {
			changed, filled := steps, 0
			data, err := json.Marshal(steps)
			if err == nil {
				err = json.Unmarshal(data, &changed)
			}
			if err != nil {
				t.Fatal(err)
			}
			fill(reflect.ValueOf(&changed.Steps).Elem(), text, &filled)
			files, err := playbook.Files(changed)
			if err != nil || filled < 100 {
				t.Fatalf("%d texts: %v", filled, err)
			}
			found := 0
			for _, f := range files {
				if base := path.Base(f.Path); base != "site.yml" && base != "undo.yml" {
					continue
				}
				var document yaml.Node
				if err := yaml.Unmarshal(f.Data, &document); err != nil {
					t.Fatalf("%s: %v", f.Path, err)
				}
				var walk func(node *yaml.Node)
				walk = func(node *yaml.Node) {
					if node.Kind == yaml.ScalarNode && strings.Contains(node.Value, "evil") {
						found++
						// titles of tasks are without braces, for people
						title := !strings.ContainsRune(node.Value, '{') && node.Tag == "!!str"
						if !title && (node.Tag != "!unsafe" || !strings.HasSuffix(node.Value, text)) {
							t.Errorf("%s:%d: %s %q", f.Path, node.Line, node.Tag, node.Value)
						}
					}
					for _, child := range node.Content {
						walk(child)
					}
				}
				walk(&document)
			}
			if found < 100 {
				t.Errorf("%d texts of %d are in the playbooks", found, filled)
			}
		}
	}
}

func TestAnsibleLint(t *testing.T) {
	t.Parallel()
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		dir, _ := written(t, "split-1.15-1.36.yaml", target, 0)
		if out, err := ansible(t, dir, "ansible-lint", "--offline", "-q", "--profile", "production"); err != nil {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
}

// tree lists the files below a directory with their contents.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		files[strings.TrimPrefix(name, root)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestOnThisMachine does the steps below a directory, does them again, and takes them back: the files are those of the
// transition, the second time nothing changes, at the end nothing is left. Nothing that a spec says is a template.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	dir, steps := written(t, "split-1.15-1.36.yaml", render.Systemd, 3)
	root := t.TempDir()
	run := func(book string) string {
		out, err := ansible(t, dir, "ansible-playbook", "-i", "inventory.yml", "-c", "local", "-e", "root="+root, book)
		if err != nil {
			t.Fatalf("%s: %v\n%s", book, err, out)
		}
		return out
	}
	want := map[string]string{}
	for _, s := range steps.Steps {
		if s.Do != nil && s.Do.Kind == transition.PutFile {
			want["/"+s.Host+s.Do.File.Path] = string(s.Do.File.Data)
		}
	}
	var closed []string // directories that are there, and their owner's alone: those of one host
	for name := range want {
		if directory := filepath.Dir(root + name); strings.HasPrefix(name, "/"+steps.Hosts[0].Name+"/") {
			closed = append(closed, directory)
			if err := os.MkdirAll(directory, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	run("site.yml")
	for _, directory := range closed {
		if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s was closed, and has mode %v, %v", directory, info.Mode(), err)
		}
	}
	got := tree(t, root)
	if len(want) < 3 || len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is not that of the transition", name)
		}
	}
	if out := run("site.yml"); !strings.Contains(out, "changed=0 ") {
		t.Errorf("the second time: %s", out)
	}
	for name := range want { // another file than the steps know
		{
			if err := os.WriteFile(root+name, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := ansible(t, dir, "ansible-playbook", "-i", "inventory.yml", "-c", "local", "-e", "root="+root,
				"site.yml")
			if err == nil || !strings.Contains(out, "is another file than the steps know") {
				t.Errorf("with a file of another: %v\n%s", err, out)
			}
			if err := os.WriteFile(root+name, []byte(want[name]), 0o600); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	run("undo.yml")
	if left := tree(t, root); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
	if _, err := os.Stat("/tmp/fusionctl-playbook-was-a-template"); err == nil {
		t.Error("a title was taken for a template")
	}
}

// TestEveryProcessIsLookedAt: each process of the program but the other side's has the arguments, and there is one.
func TestEveryProcessIsLookedAt(t *testing.T) {
	data, err := os.ReadFile("tasks/check-runs.yml")
	if err != nil {
		t.Fatal(err)
	}
	var tasks []struct {
		Shell struct{ Cmd string } `yaml:"ansible.builtin.shell"`
	}
	if err := yamlv2.Unmarshal(data, &tasks); err != nil || tasks[0].Shell.Cmd == "" {
		t.Fatalf("tasks/check-runs.yml: %v, %+v", err, tasks)
	}
	const program = "kube-playbook-test"
	start := func(name string, words ...string) {
		t.Helper()
		command := exec.Command("cat") // it waits for its input, whatever it is called
		in, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		command.Path, command.Args = sh(t), append([]string{name, "-c", "read line"}, words...)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			_ = command.Wait()
		})
	}
	ask := func(args string, others string) string {
		command := exec.Command("sh", "-c", tasks[0].Shell.Cmd)
		command.Env = append(os.Environ(), "PROGRAM="+program, "ARGUMENTS="+args, "OTHERS="+others)
		out, err := command.CombinedOutput()
		if err == nil && len(out) == 0 {
			return "ok"
		}
		return strings.TrimSpace(string(out))
	}
	// Any user may start a process that is called a pattern: files of this host are not what it is called.
	patterns := t.TempDir()
	if err := os.WriteFile(filepath.Join(patterns, program), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(patterns+"/*", "playbook-test")
	for _, step := range []struct {
		words              []string
		args, others, want string
	}{
		{nil, "--a=1", "", "does not run"},
		{[]string{"--a=1", "--b", "2", "--c"}, "--a=1\n--b=2\n--c=true", "", "ok"},
		{nil, "--a=12", "", "runs without --a=12"},
		{nil, "--a=1", "--a=1\n--b=2", "does not run"},
		{[]string{"--a=2", "--modern"}, "--a=1", "", "runs without --a=1"},
		{nil, "--a=1", "--a=3\n\n--a=2\n--modern", "ok"},
		{nil, "--a=1", "--a=2\n--legacy", "runs without --a=1"},
	} {
		if step.words != nil {
			start("/usr/bin/"+program, step.words...)
		}
		if got := ask(step.args, step.others); got != step.want {
			t.Errorf("with %q, %q but %q: %q, want %q", step.words, step.args, step.others, got, step.want)
		}
	}
}

// TestProgramsAreCopiedByTheirDigest by Ansible itself: one that is another one stops the run, and nothing is put.
func TestProgramsAreCopiedByTheirDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, place := filepath.Join(dir, "source"), filepath.Join(dir, "opt/1.36.3/bin/kube-apiserver")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, other := fmt.Sprintf("%x", sha256.Sum256([]byte("program"))), strings.Repeat("0", 64)
	const image = "registry.example.com/x@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for _, c := range []struct{ sum, image, says, there string }{
		{other, "", sum + ", want " + other, ""},
		{sum, image, "Put " + source + " of image " + image, ""},
		{sum, "", "", "program"},
		{sum, image, "", "program"}, // it is there
		{other, "", "has the SHA-256 " + sum + ", want " + other, "program"},
	} {
		program := &transition.Binary{Path: place, SHA256: c.sum, File: source, Image: c.image}
		hosts := []transition.Host{{Name: "cp-1", Address: "10.0.0.1"}}
		steps := transition.Transition{Hosts: hosts, Steps: []transition.Step{{
			ID: "001", Phase: transition.Prepare, Host: "cp-1", Title: "put program " + place,
			Do:   &transition.Action{Kind: transition.PutProgram, Program: program},
			Undo: &transition.Action{Kind: transition.RemoveProgram, Program: program}}, {
			ID: "002", Phase: transition.Prepare, Host: "cp-1", Title: "check", Do: &transition.Action{
				Kind: transition.RunChecks, Before: []transition.Check{{Kind: transition.Executable, Path: place,
					SHA256: c.sum}}}}}}
		files, err := playbook.Files(steps)
		if err != nil {
			t.Fatal(err)
		}
		at := t.TempDir()
		for _, f := range files {
			name := filepath.Join(at, f.Path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
				os.WriteFile(name, f.Data, f.Mode)); err != nil {
				t.Fatal(err)
			}
		}
		out, err := ansible(t, filepath.Join(at, playbook.Directory), "ansible-playbook", "-i", "inventory.yml", "-c",
			"local", "-e", "ansible_become=false", "site.yml")
		if (err == nil) != (c.says == "") || !strings.Contains(strings.Join(strings.Fields(out), " "), c.says) {
			t.Errorf("%+v: %v, want %q\n%s", c, err, c.says, out)
		}
		if data, err := os.ReadFile(place); string(data) != c.there {
			t.Errorf("%+v: the program is %q, %v", c, data, err)
		}
	}
	if info, err := os.Stat(place); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the program: %v, %v", info, err)
	}
}

// TestKeysAreLookedFor by Ansible itself, with a program in the place of etcdctl: keys stop the run.
func TestKeysAreLookedFor(t *testing.T) {
	sh(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "etcdctl"), []byte("#!/bin/sh\necho \"$*\" >>"+dir+"/args\ncat "+dir+
		"/answer\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	store := plan.Store{Name: "modern", Endpoints: []string{"https://10.0.0.1:2379", "https://10.0.0.2:2379"},
		TLS: &spec.TLS{CA: "/ca.crt", Cert: "/a.crt", Key: "/a.key"}}
	files, err := playbook.Files(transition.Transition{Hosts: []transition.Host{{Name: "cp-1", Address: "10.0.0.1"}},
		Steps: []transition.Step{{ID: "001", Phase: transition.Prepare, Host: "cp-1", Title: "look",
			Do: &transition.Action{Kind: transition.RunChecks, Before: []transition.Check{{Kind: transition.NoKeys,
				Stores: []plan.Store{store}, Keys: []string{"/registry/fusionctl-handed-over/"},
				Hint: "undo the later one"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Join(dir, f.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, f.Data, f.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	for answer, says := range map[string]string{"": "",
		"/registry/fusionctl-handed-over/a\n": "store modern has /registry/fusionctl-handed-over/a. undo the later"} {
		if err := os.WriteFile(filepath.Join(dir, "answer"), []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := ansible(t, filepath.Join(dir, playbook.Directory), "ansible-playbook", "-i", "inventory.yml", "-c",
			"local", "-e", "ansible_become=false", "site.yml")
		if (err == nil) != (says == "") || !strings.Contains(strings.Join(strings.Fields(out), " "), says) {
			t.Errorf("answer %q: %v, want %q\n%s", answer, err, says, out)
		}
	}
	asked, err := os.ReadFile(filepath.Join(dir, "args"))
	want := "--endpoints=https://10.0.0.1:2379,https://10.0.0.2:2379 --cacert=/ca.crt --cert=/a.crt --key=/a.key get " +
		"--prefix --keys-only --limit=1 /registry/fusionctl-handed-over/\n"
	if string(asked) != want+want {
		t.Errorf("asked %q, %v, want %q twice", asked, err, want)
	}
}

func sh(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	return path
}

// TestAUnitThatRunsByFilesOfBeforeIsStartedAgain by Ansible itself: what something started after it was stopped, and
// before its files were put, is no unit of these files. One that runs by them is left alone.
func TestAUnitThatRunsByFilesOfBeforeIsStartedAgain(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "tasks"), os.DirFS("tasks")); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	said, need := filepath.Join(bin, "said"), filepath.Join(bin, "need")
	write(filepath.Join(bin, "systemctl"), `#!/bin/sh
echo "$@" >> `+said+`
case "$*" in
*--property=NeedDaemonReload*) cat `+need+` ;;
show*) printf 'LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n' ;;
is-enabled*) echo enabled ;;
esac
`)
	const text = "[Service]\n"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	write(filepath.Join(dir, "files", sum), text)
	place := filepath.Join(t.TempDir(), "it.service")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	write(filepath.Join(dir, "site.yml"), `- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
  - {ansible.builtin.include_tasks: tasks/put-file.yml, vars: {place: `+place+`, step: {sha256: `+sum+`, mode: "0644"}}}
  - {ansible.builtin.include_tasks: tasks/start-unit.yml, vars: {step: {unit: it.service}}}
  - {ansible.builtin.include_tasks: tasks/start-unit.yml, vars: {step: {unit: other.service}}}
`)
	for _, test := range []struct {
		name, need string
		restarted  []string
	}{
		{"a file was put", "no", []string{"restart it.service"}},
		{"nothing was put", "no", nil},
		{"the file was put by a run that ended", "yes", []string{"restart it.service", "restart other.service"}},
	} {
		write(need, test.need)
		write(said, "")
		if out, err := ansible(t, dir, "ansible-playbook", "-i", "localhost,", "site.yml"); err != nil {
			t.Fatalf("%s: %v\n%s", test.name, err, out)
		}
		data, err := os.ReadFile(said)
		if err != nil {
			t.Fatal(err)
		}
		var restarted []string
		for line := range strings.Lines(string(data)) {
			if line = strings.ReplaceAll(strings.TrimSpace(line), "'", ""); strings.HasPrefix(line, "restart ") {
				restarted = append(restarted, line)
			}
		}
		if !slices.Equal(restarted, test.restarted) {
			t.Errorf("%s: %q, want %q of\n%s", test.name, restarted, test.restarted, data)
		}
	}
}
