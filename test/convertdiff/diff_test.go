//go:build diff

package convertdiff

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// variants is how many times parts are taken out of each object by chance.
const variants = 4

// Objects with every field, those that k8s.io/api and k8s.io/apiextensions-apiserver keep for their tests, and parts of
// them are converted for an old release, read by its types, written, and compared. FUSIONCTL_DIFF_MINORS=20,24-26 asks
// other releases: those from 1.15 on, and those before that the rig has a folder of.
func TestLossesAreThoseOfOldTypes(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	bases := goldens(t)
	for _, minor := range parse(t, cmp.Or(os.Getenv("FUSIONCTL_DIFF_MINORS"), "6,10,12,15,17,22,29")) {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			sent := objectsFor(t, c, minor, bases)
			held := readBy(t, minor, sent)
			compared, lost := 0, 0
			d := differences{told: map[string]bool{}}
			for i, object := range sent {
				if held[i] == nil { // a kind that these types do not have
					continue
				}
				compared++
				d.lost, d.dropped = map[string]bool{}, map[string]bool{}
				d.kind = object.GroupVersionKind().String()
				for _, loss := range c.LossesIn(object, minor) {
					if strings.Contains(loss.Meaning, "its feature gate") ||
						strings.HasPrefix(loss.Meaning, "servers") ||
						strings.HasPrefix(loss.Meaning, minor.String()+" drops") {
						d.dropped[loss.Path] = true
						continue
					}
					d.lost[loss.Path] = true
					// The type of a version that is not served any more may have grown since.
					served := kubever.ServesGVK(object.GroupVersionKind(), kubever.Newest)
					if served && strings.Contains(loss.Meaning, "no version knows") {
						d.tell(t, loss.Path, "is called unknown to all versions, and the newest has it")
					}
				}
				lost += len(d.lost)
				d.compare(t, object.Object, held[i], "")
			}
			t.Logf("%s: %d objects, %d losses", minor, compared, lost)
			if compared < 100 {
				t.Errorf("%d objects were compared, want hundreds", compared)
			}
		})
	}
}

// goldens reads the objects of the linked k8s.io/api.
func goldens(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var files []string
	for name, folder := range map[string]string{
		"k8s.io/api": "testdata/HEAD", "k8s.io/apiextensions-apiserver": "pkg/apis/testdata/HEAD",
	} {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", name).Output()
		if err != nil {
			t.Fatalf("finding %s: %v", name, err)
		}
		found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), folder, "*.json"))
		if err != nil || len(found) < 2 {
			t.Fatalf("%d goldens of %s, %v", len(found), name, err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	if len(files) < 100 {
		t.Fatalf("%d goldens, want hundreds", len(files))
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if strings.HasSuffix(file, "WatchEvent.json") || strings.HasSuffix(file, "ConversionReview.json") {
			continue // no objects
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, u)
	}
	return objects
}

func objectsFor(
	t *testing.T, c *convert.Converter, minor kubever.Minor, bases []*unstructured.Unstructured,
) []*unstructured.Unstructured {
	t.Helper()
	chance := rand.New(rand.NewPCG(1, uint64(minor)))
	var objects []*unstructured.Unstructured
	for _, base := range bases {
		standing := c.StandingIn(base.GroupVersionKind(), minor)
		if standing.Target.Empty() {
			continue
		}
		for range 1 + variants {
			part := base.DeepCopy()
			if len(objects)%(1+variants) > 0 {
				thin(chance, part.Object, 0)
			}
			converted, _, err := c.Convert(part, standing.Target)
			if err != nil {
				t.Fatalf("%s: %v", base.GroupVersionKind(), err)
			}
			c.Spell(converted, minor)
			objects = append(objects, converted)
		}
	}
	return objects
}

// thin takes fields out.
func thin(chance *rand.Rand, object map[string]any, depth int) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if depth == 0 && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		if chance.IntN(4) == 0 {
			delete(object, name)
			continue
		}
		switch value := object[name].(type) {
		case map[string]any:
			thin(chance, value, depth+1)
		case []any:
			for _, element := range value {
				if inner, ok := element.(map[string]any); ok {
					thin(chance, inner, depth+1)
				}
			}
		}
	}
}

// readBy sends the objects through the types of an old release.
func readBy(t *testing.T, minor kubever.Minor, objects []*unstructured.Unstructured) []map[string]any {
	t.Helper()
	dir := t.TempDir()
	writeProgram(t, dir, minor)
	program := filepath.Join(dir, "old")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=off", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the types: %v\n%s", err, text)
	}
	var in bytes.Buffer
	for _, object := range objects {
		text, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(text)
		in.WriteByte('\n')
	}
	run := exec.Command(program)
	run.Stdin, run.Stderr = &in, os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("reading the objects: %v", err)
	}
	var held []map[string]any
	lines := bufio.NewReader(bytes.NewReader(out))
	for range objects {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatal(err)
		}
		held = append(held, object)
	}
	return held
}

// writeProgram writes a program that has all types of a release: a module of its own, which nobody else gets. From 1.15
// on the types are published as modules; before, they are in the sources of the server, which a folder of the rig knows
// how to build.
func writeProgram(t *testing.T, dir string, minor kubever.Minor) {
	t.Helper()
	files := map[string]string{}
	var roots map[string]string // of modules with types, by their paths
	if minor >= 15 {
		files["go.mod"], roots = publishedTypes(t, minor)
	} else {
		files["go.mod"], files["go.sum"], roots = typesOfRig(t, minor)
	}
	var imports, added strings.Builder
	for _, name := range slices.Sorted(maps.Keys(roots)) {
		root := roots[name]
		for _, folders := range foldersOfTypes[name] {
			found, err := filepath.Glob(filepath.Join(root, folders, "register.go"))
			if err != nil || len(found) == 0 {
				t.Fatalf("%s of %s has no packages of types: %v", name, minor, err)
			}
			for _, file := range found {
				at, err := filepath.Rel(root, filepath.Dir(file))
				if err != nil {
					t.Fatal(err)
				}
				at = name + "/" + filepath.ToSlash(at)
				alias := "p" + strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(at)
				fmt.Fprintf(&imports, "\t%s %q\n", alias, at)
				fmt.Fprintf(&added, "\t%s.AddToScheme,\n", alias)
			}
		}
	}
	main, err := os.ReadFile("testdata/old.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	files["main.go"] = string(main)
	files["packages.go"] = "package main\n\nimport (\n\t\"k8s.io/apimachinery/pkg/runtime\"\n" + imports.String() +
		")\n\nvar packages = []func(*runtime.Scheme) error{\n" + added.String() + "}\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// foldersOfTypes are where modules have the types of what servers store.
var foldersOfTypes = map[string][]string{
	"k8s.io/api":                     {"*/v*"},
	"k8s.io/apiextensions-apiserver": {"pkg/apis/apiextensions/v*"},
	"k8s.io/kubernetes":              {"pkg/api/v1", "pkg/apis/*/v[1-9]*"}, // of 1.6
}

// publishedTypes are the modules of a release that has them, and its go.mod.
func publishedTypes(t *testing.T, minor kubever.Minor) (goMod string, roots map[string]string) {
	t.Helper()
	version := "v0." + strings.TrimPrefix(kubever.Release(minor), "1.")
	roots = map[string]string{}
	goMod = "module old\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/apimachinery " + version + "\n"
	for _, name := range []string{"k8s.io/api", "k8s.io/apiextensions-apiserver"} {
		goMod += "\t" + name + " " + version + "\n"
		roots[name] = module(t, name+"@"+version)
	}
	return goMod + ")\n", roots
}

// typesOfRig are those of a release that the rig builds, with the modules that its servers are built of.
func typesOfRig(t *testing.T, minor kubever.Minor) (goMod, goSum string, roots map[string]string) {
	t.Helper()
	const rig = "../rig"
	folder := filepath.Join(rig, "kube-"+minor.String())
	sources := exec.Command("go", "run", "./build", "-rig", ".", "-sources", minor.String())
	sources.Dir = rig
	if text, err := sources.CombinedOutput(); err != nil {
		t.Fatalf("copying the sources of %s: %v\n%s", minor, err, text)
	}
	sums, err := os.ReadFile(filepath.Join(folder, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "mod", "edit", "-json")
	list.Dir = folder
	text, err := list.Output()
	if err != nil {
		t.Fatalf("reading go.mod of %s: %v", folder, err)
	}
	type named struct{ Path, Version string }
	var listed struct {
		Go      string
		Require []named
		Replace []struct{ Old, New named }
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	roots = map[string]string{}
	var lines strings.Builder
	fmt.Fprintf(&lines, "module old\n\ngo %s\n", listed.Go)
	for _, r := range listed.Require {
		fmt.Fprintf(&lines, "\nrequire %s %s\n", r.Path, r.Version)
	}
	for _, r := range listed.Replace {
		if r.New.Version == "" {
			if r.New.Path, err = filepath.Abs(filepath.Join(folder, r.New.Path)); err != nil {
				t.Fatal(err)
			}
			if foldersOfTypes[r.Old.Path] != nil {
				roots[r.Old.Path] = r.New.Path
			}
		}
		fmt.Fprintf(&lines, "\nreplace %s => %s %s\n", r.Old.Path, r.New.Path, r.New.Version)
	}
	if roots["k8s.io/api"] != "" { // the server's own are others since then
		delete(roots, "k8s.io/kubernetes")
	}
	return lines.String(), string(sums), roots
}

type differences struct {
	kind    string
	lost    map[string]bool
	dropped map[string]bool // by servers, whose types have it
	told    map[string]bool
}

func (d *differences) compare(t *testing.T, sent, has any, at string) {
	switch sent := sent.(type) {
	case map[string]any:
		other, ok := has.(map[string]any)
		if !ok {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			here := field(at, name)
			inner, there := other[name]
			switch {
			case here == "status" || here == "metadata.managedFields" || saysNothing(sent[name]) || d.dropped[here]:
			case d.lost[here] && there:
				d.tell(t, here, "is called lost, and survives")
			case d.lost[here]:
			case !there:
				d.tell(t, here, "does not survive, and is not called lost")
			default:
				d.compare(t, sent[name], inner, here)
			}
		}
	case []any:
		other, ok := has.([]any)
		for i := range sent {
			if ok && i < len(other) {
				d.compare(t, sent[i], other[i], fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
}

func (d *differences) tell(t *testing.T, at, what string) {
	if text := d.kind + ": " + at + " " + what; !d.told[text] && len(d.told) < 100 {
		d.told[text] = true
		t.Error(text)
	}
}

// field is a path as losses print it.
func field(at, name string) string {
	switch {
	case strings.ContainsAny(name, `./[]"`):
		return at + "[" + strconv.Quote(name) + "]"
	case at == "":
		return name
	default:
		return at + "." + name
	}
}

// saysNothing: Go leaves out what is false, zero or empty.
func saysNothing(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			if !saysNothing(inner) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	case nil:
		return true
	}
	return value == false || value == "" || value == int64(0) || value == float64(0)
}
