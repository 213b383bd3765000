package restart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// vector is a container with what the code of one release computed for it.
type vector struct {
	minor                        kubever.Minor
	source                       Source
	hash, textSHA256, legacyHash string
}

func readVectors(t testing.TB, file string) (*v1.Container, []vector) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var container *v1.Container
	var vectors []vector
	for _, f := range archive.Files {
		switch f.Name {
		case "container.json":
			container = new(v1.Container)
			if err := json.Unmarshal(f.Data, container); err != nil {
				t.Fatal(err)
			}
		case "hashes":
			for line := range strings.Lines(string(bytes.TrimSpace(f.Data))) {
				words := strings.Fields(line)
				v := vector{source: Source(words[1]), hash: words[2], textSHA256: words[3]}
				if err := v.minor.UnmarshalText([]byte(words[0])); err != nil {
					t.Fatal(err)
				}
				if len(words) > 4 {
					v.legacyHash = words[4]
				}
				vectors = append(vectors, v)
			}
		default:
			t.Fatalf("%s: unknown section %q", file, f.Name)
		}
	}
	if container == nil || len(vectors) != 2*len(kubever.Minors()) {
		t.Fatalf("%s: %d vectors, want two for each of %d minors", file, len(vectors), len(kubever.Minors()))
	}
	return container, vectors
}

func TestHashIsThatOfTheRelease(t *testing.T) {
	files, err := filepath.Glob("testdata/0*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		container, vectors := readVectors(t, file)
		for _, v := range vectors {
			got, err := Hash(container, v.minor, v.source)
			if err != nil || got.String() != v.hash {
				t.Errorf("%s: Hash(%s, %s) = %s, %v, want %s", file, v.minor, v.source, got, err, v.hash)
			}
			a, err := algorithmOf(v.minor)
			if err != nil {
				t.Fatal(err)
			}
			_, text, err := a.hash(container, form{v.minor, v.source, false}, true)
			sum := sha256.Sum256(text)
			if err != nil || hex.EncodeToString(sum[:]) != v.textSHA256 {
				t.Errorf("%s: %s %s hashes another text than the release: %.200s", file, v.minor, v.source, text)
			}
			if v.legacyHash == "" {
				continue
			}
			if got, err := legacyHash(container, v.minor, v.source); err != nil || got.String() != v.legacyHash {
				t.Errorf("%s: legacyHash(%s, %s) = %s, %v, want %s", file, v.minor, v.source, got, err, v.legacyHash)
			}
		}
	}
}

// TestHashOfContainersThatUseEveryField reads containers made at random, with every field of 1.36 and values that are
// odd, and what the types, the go-spew and the functions of each release from 1.6 to 1.30 computed for them. A hash
// holds until the next minor that is named. A reduced copy of each release's code computed them; for 1.15 and 1.16
// those of v0.15.12 and v0.16.12.
func TestHashOfContainersThatUseEveryField(t *testing.T) {
	data, err := os.ReadFile("testdata/releases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var lines int
	for line := range bytes.Lines(data) {
		lines++
		var vector struct {
			API       map[kubever.Minor]Sum
			File      map[kubever.Minor]Sum
			Container *v1.Container
		}
		if err := json.Unmarshal(line, &vector); err != nil {
			t.Fatal(err)
		}
		for source, sums := range map[Source]map[kubever.Minor]Sum{API: vector.API, File: vector.File} {
			want := sums[kubever.Oldest]
			for minor := kubever.Oldest; minor <= 30; minor++ {
				if sum, ok := sums[minor]; ok {
					want = sum
				}
				if got, err := hash(vector.Container, form{minor, source, false}); err != nil || got != want {
					t.Errorf("line %d: hash(%s, %s) = %s, %v, want %s", lines, minor, source, got, err, want)
				}
			}
		}
		nameImage, err := json.Marshal(
			map[string]string{"name": vector.Container.Name, "image": vector.Container.Image})
		if err != nil {
			t.Fatal(err)
		}
		want := Sum(fnvText(fnvOffset, spewConfig.Sprintf("%#v", nameImage)))
		for minor := kubever.Minor(31); minor <= kubever.Newest; minor++ {
			if got, err := Hash(vector.Container, minor, API); err != nil || got != want {
				t.Errorf("line %d: Hash(%s) = %s, %v, want %s", lines, minor, got, err, want)
			}
		}
	}
	if lines != 40 {
		t.Errorf("%d containers, want 40", lines)
	}
}

func TestBackspaceAndFormFeedDependOnTheCompiler(t *testing.T) {
	container := &v1.Container{Name: "app", Image: "i", Args: []string{"\b\f"}}
	long, short := map[string]bool{}, map[string]bool{}
	for text, sums := range map[string]map[string]bool{
		`{"name":"app","image":"i","args":["\u0008\u000c"],"resources":{}}`: long,
		`{"name":"app","image":"i","args":["\b\f"],"resources":{}}`:         short,
	} {
		sums[Sum(fnvText(fnvOffset, spewConfig.Sprintf("%#v", []byte(text)))).String()] = true
	}
	for version, want := range map[string][]map[string]bool{
		"1.16": {long}, "1.26.15": {long}, "1.27.13": {long}, "1.27.16": {short}, "1.28.11": {long}, "1.28.12": {short},
		"1.29.6": {long}, "1.29.7": {short}, "1.30": {short},
		"1.27": {long, short}, "1.28": {long, short}, "1.29": {long, short},
	} {
		v, err := kubever.Parse(version)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Hashes(container, v, API)
		if err != nil || len(got) != len(want) {
			t.Errorf("Hashes(%s) = %v, %v, want %d", version, got, err, len(want))
			continue
		}
		for i, sum := range got {
			if !want[i][sum.String()] {
				t.Errorf("Hashes(%s)[%d] = %s, want %v", version, i, sum, want[i])
			}
		}
	}
	if got, err := Hashes(&v1.Container{Name: "app"}, kubever.Version{Minor: 28}, API); err != nil || len(got) != 1 {
		t.Errorf("Hashes(1.28) of a container without those characters = %v, %v, want one", got, err)
	}
}

func TestHashRefusesWhatItHasNoFactsAbout(t *testing.T) {
	container := &v1.Container{Name: "app"}
	for _, minor := range []kubever.Minor{-1, 0, 5, 38} {
		if _, err := Hash(container, minor, API); err == nil || !strings.Contains(err.Error(), "1.6 to 1.37") {
			t.Errorf("Hash(%d): %v, want an error that names 1.6 to 1.37", minor, err)
		}
	}
	if _, err := Hash(nil, 20, API); err == nil {
		t.Error("Hash(nil) passed, want an error")
	}
	bad := &v1.Container{Name: "app", LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
		TCPSocket: &v1.TCPSocketAction{Port: intstr.IntOrString{Type: 7}},
	}}}
	if _, err := Hash(bad, 20, API); err == nil || !strings.Contains(err.Error(), `container "app"`) {
		t.Errorf("Hash of a port of type 7: %v, want an error that names the container", err)
	}
}

func TestTablesKnowEveryFieldOfToday(t *testing.T) {
	for minor, table := range tables() {
		if table.err != nil || len(table.container.fields) == 0 {
			t.Errorf("%s: no table: %v", minor, table.err)
		}
	}
	seen := map[*node]bool{}
	var visit func(n *node, now reflect.Type)
	visit = func(n *node, now reflect.Type) {
		if seen[n] {
			return
		}
		seen[n] = true
		switch n.shape {
		case pointerShape, sliceShape, quantitiesShape:
			visit(n.elem, now.Elem())
		case structShape, quantityShape, intOrStringShape:
			if len(n.fields) != now.NumField() {
				t.Errorf("%s: the table has %d fields in %s, k8s.io/api has %d", n.typ, len(n.fields), kubever.Newest,
					now.NumField())
			}
			for i, f := range n.fields {
				if f.index != i {
					t.Errorf("%s: field %d of the table is number %d of k8s.io/api", n.typ, i, f.index)
				}
				visit(f.node, now.Field(f.index).Type)
			}
		}
	}
	visit(tables()[kubever.Newest].container, reflect.TypeFor[v1.Container]())
}

// TestTablesOfATooOldAPIAreErrors stands for a kubelet that is built with its own types, and asked about a newer one.
func TestTablesOfATooOldAPIAreErrors(t *testing.T) {
	type Container struct{ Name, Image string }
	c := compiler{rows: parseRows(fieldsText), minor: 12, nodes: map[nodeKey]*node{}, segments: map[string]*segment{}}
	c.node("v1.Container", reflect.TypeFor[Container]())
	if c.err == nil || !strings.Contains(c.err.Error(), "kubelet 1.12: the k8s.io/api that this program is built "+
		"with is too old") {
		t.Errorf("compiling against a type without the fields: %v, want an error", c.err)
	}
}
