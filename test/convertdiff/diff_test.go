//go:build diff

package convertdiff

import (
	"bufio"
	"bytes"
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

// Objects with every field, those that k8s.io/api keeps for its own tests, and parts of them are converted for an old
// release, read by its types, written, and compared.
func TestLossesAreThoseOfOldTypes(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	bases := goldens(t)
	for minor, modfile := range map[kubever.Minor]string{15: "go.mod", 17: "v1.17.mod"} {
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			sent := objectsFor(t, c, minor, bases)
			held := readBy(t, modfile, sent)
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
					if strings.Contains(loss.Meaning, "no version knows") {
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
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatalf("finding k8s.io/api: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "HEAD", "*.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d goldens of k8s.io/api, %v", len(files), err)
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		if strings.HasSuffix(file, "WatchEvent.json") { // no object
			continue
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
func readBy(t *testing.T, modfile string, objects []*unstructured.Unstructured) []map[string]any {
	t.Helper()
	program := filepath.Join(t.TempDir(), "old")
	build := exec.Command("go", "build", "-mod=mod", "-modfile="+modfile, "-o", program, ".")
	build.Dir = "old"
	build.Env = append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=off")
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
