package manifest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// plainSeeds are spellings that plainYAML reads, and such as look like them.
var plainSeeds = []string{
	"a: b\n",
	"a: 1\nb: -1\nc: 1.5\nd: 0x1F\ne: 010\nf: 1e3\ng: 1_000\nh: .5\ni: 100m\n" +
		"j: 128Mi\nk: +1\nl: 0o17\nm: .inf\n",
	"a: yes\nb: No\nc: y\nd: on\ne: ~\nf: null\ng: \nh: true\ni: TRUE\nj: nullx\nk: y es\n",
	"y: 1\non: 2\nnull: 3\n~: 4\n1: 5\n",
	"a: 2001-01-01\nb: 2001-01-01T00:00:00Z\nc: 12:30:45\nd: 1.2.3\ne: 10.0.0.0/8\n" +
		"f: 18446744073709551615\ng: 9223372036854775808\n",
	"a:\n- b\n- c: d\n  e: f\n-\n- - g\n  - h\nz: 1\n", "a:\n  - b\n  -   c: d\n      e: f\n",
	"- a: b\n  c:\n  - d\n- e\n", "  - a: 1\n    b: 2\n",
	"a: |\n  b\n   c\n\n  d\n\nb: |-\n  x\n\n\nc: |\n\n  y\n", "a: |\n  b", "a: |+\n  b\n\n",
	"a: >\n  b\n  c\n", "a: |2\n   b\n", "a: |\nb: c\n", "- |\n  a\n- |\n a\n",
	"a:\n- |\n  # no comment\n  b\n # comment\n- c\n", "a: |\n  b\n \n  c\n    \n", "a: |\n    \n  b\n",
	"a: 'b'\nc: 'it''s'\nd: \"e\\n\\\"f\\\\\"\ng: \"\\x41\"\nh: ''\ni: \"\"\n", "'a': b\n\"c d\": e\n",
	"a: 'b' c\n", "a: 'b\n  c'\n", "- 'a': b\n- \"c\"\n", "a: {b: c, d: [e, 1, {}, []], 'f': \"g\"}\nh: [ ]\n",
	"a: {b: c,\n  d: e}\n", "a: {b: c\n", "a: [b: c]\n", "a: [b, ]\n", "a: {b, c}\n", "a: {\"b\":1}\n",
	"a: {b: nginx:1, c: -1, d: y, e: 08}\n", "a: [http://x/y, a.b/c, a:]\n", "a: [-, -a, --b]\n",
	"a: {y: n, a: }\n", "a: b #c\nd: e#f\n# g\n  # h\ni:   # j\n  k: l\n", "a: b # c: d\n", "a: b: c\n",
	"a: b:\n", "a:b\n", "a : b\n", "a:  \n  b: c\n", "a: b\n  c\n", "a:\n  b\n", "a: b\n c: d\n",
	" a: b\nc: d\n", "a: b\n- c\n", "a: - b\n", "a: 1\na: 2\n", "a: &b c\nd: *b\n", "a: !!str 1\n",
	"<<: {a: b}\n", "a: <<\n", "a: =\n", "? a\n: b\n", "--- \na: b\n", "a: b\n...\n", "%YAML 1.2\n",
	"a: \tb\n", "a: b\r\n", "a: ä\nö: b\n", "a: \u2028\n", "a: \ufeff\n", "a: \u0085\n", "\n\n  \na: b", "#\n",
	"", "a: \"b", "a: \"b\\", "a: @b\n", "a: `b\n", "a: %b\n", "a: ?b\n", "a: -b\nc: --d\ne: -\n", "-a: b\n",
	".a: b\n/c: d\n", "a: $(B)\nc: ${D}\ne: (f)\n", "a: b  \nc: d\n", "a: {b: c}  # d\ne: [f]g\n",
	"a:\n\n\n  b: c\n\n\nd:\n # e\n  f: g\n", "a:\n   b: c\n  d: e\n", "- a\n - b\n", "- a\n-b\n",
	"-  - a\n   - b\n", "a: [[1, 2], [3]]\n", "a: [1 2]\n", "a: [a b]\n", "a: {a: b}: c\n",
}

// What plainYAML reads is what the library reads; it may leave everything else.
func FuzzPlainYAML(f *testing.F) {
	for _, seed := range plainSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { likeTheLibrary(t, text) })
}

// likeTheLibrary compares, and reports whether plainYAML read the text.
func likeTheLibrary(t *testing.T, text []byte) bool {
	t.Helper()
	value, ok := plainYAML(text)
	if !ok {
		return false
	}
	likeItsNodes(t, text)
	switch value := value.(type) {
	case map[string]any:
		object, err := Part{Text: text}.decodeNodes()
		if err != nil || object == nil || !reflect.DeepEqual(object.Value, value) || len(object.Duplicates) > 0 {
			t.Errorf("%q is %v, and for the library %+v, %v", text, value, object, err)
		}
	case []any:
		if item, isObject := value[0].(map[string]any); isObject && len(value) == 1 {
			object, err := Part{Text: text, Item: 1}.decodeNodes()
			if err != nil || object == nil || !reflect.DeepEqual(object.Value, item) || len(object.Duplicates) > 0 {
				t.Errorf("%q is %v, and for the library %+v, %v", text, value, object, err)
			}
		}
	default:
		t.Errorf("%q is %T, want an object or a list", text, value)
	}
	return true
}

// likeItsNodes compares the nodes of a text that plainYAML reads with those of the library.
func likeItsNodes(t *testing.T, text []byte) {
	t.Helper()
	node, ok := plainNodes(text)
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil || !ok {
		t.Fatalf("%q has nodes: %t, and for the library %v", text, ok, err)
	}
	ascii := !bytes.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
	var compare func(a, b *yamlv3.Node)
	compare = func(a, b *yamlv3.Node) {
		flow, empty := b.Style&yamlv3.FlowStyle != 0, b.Kind == yamlv3.ScalarNode && b.Style == 0 && b.Value == ""
		switch {
		case a.Kind != b.Kind, a.Style != b.Style,
			a.Value != b.Value && b.Style != yamlv3.LiteralStyle,
			!empty && a.Line != b.Line, !empty && ascii && a.Column != b.Column, // the library counts characters
			!flow && len(a.Content) != len(b.Content):
			t.Errorf("%q: node %+v, and for the library %+v", text, a, b)
		case !flow:
			for i := range a.Content {
				compare(a.Content[i], b.Content[i])
			}
		}
	}
	compare(node, document.Content[0])
}

// The manifests of this repository are read as the library reads them, and most without it.
func TestManifestsAreReadWithoutTheLibrary(t *testing.T) {
	read, all := 0, 0
	err := filepath.WalkDir("../../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml") || entry.IsDir() {
			return err
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		for part, err := range Parts(file) {
			if err != nil || !part.Object || part.Format != YAML {
				continue
			}
			all++
			if likeTheLibrary(t, part.Text) {
				read++
			}
		}
		return nil
	})
	if err != nil || all < 20 || read < all*2/3 {
		t.Errorf("%d of %d documents are read, %v; want two thirds", read, all, err)
	}
	t.Logf("%d of %d", read, all)
}

// Names without quotes are what Kubernetes takes them for.
func TestNamesAreThoseOfKubernetes(t *testing.T) {
	for _, name := range []string{"a", "y", "No", "True", "FALSE", "true", "null", "Null", "~", "1", "01", "010", "08",
		"0x1F", "0b11", "0o7", "1_000", "_1", "1.0", "1.", ".5", "1e3", "1e400", "123456789.123456789", "-0", "-1.50",
		"+1", ".inf", "-.Inf", ".NaN", "9223372036854775808", "99999999999999999999", "2020-01-01", "1:20", "1.2.3",
		"e1",
		"'010'", `"1.0"`, "!!str 010", "!!int 010", "!!float 1"} {
		for _, text := range []string{"a:\n  " + name + ": x\n", "a: {" + name + ": x}\n", "a:\n- " + name + ": x\n"} {
			var want any
			wantErr := yaml.Unmarshal([]byte(text), &want)
			object, err := Part{Text: []byte(text)}.Decode()
			if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(any(object.Value), want) {
				t.Errorf("%q is %v, %v, and for Kubernetes %v, %v", text, object, err, want, wantErr)
			}
		}
	}
}
