package manifest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	sigsyaml "sigs.k8s.io/yaml"
)

// texts are files in the ways that people and programs write them, with the names of their objects.
var texts = []struct{ name, text, objects string }{
	{"one document", "kind: A\nmetadata: {name: a}\n", "a"},
	{"documents", "# first\n---\nkind: A\nmetadata: {name: a}\n---\n# none\n---   # b\nkind: B\nmetadata:\n  name: " +
		"b\n...\n", "a b"},
	{"no line break at the end", "kind: A\nmetadata: {name: a}\n---\nkind: B\nmetadata: {name: b}", "a b"},
	{"carriage returns", "kind: A\r\nmetadata: {name: a}\r\n---\r\nkind: B\r\nmetadata: {name: b}\r\n", "a b"},
	{"a list as kubectl writes it", "apiVersion: v1\nitems:\n- kind: A\n  metadata:\n    name: a\n- kind: B\n  " +
		"metadata:\n    name: b\nkind: List\nmetadata:\n  resourceVersion: \"\"\n", "a b"},
	{"an indented list", "apiVersion: v1\nkind: List\nitems:\n  - kind: A\n    metadata: {name: a}\n    data: |\n    " +
		"  - x\n\n      items:\n  # between\n  - kind: B\n    metadata: {name: b}\n", "a b"},
	{"a list of one kind", "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- metadata: {name: a}\n- metadata: " +
		"{name: b}\n", "a b"},
	{"items that are no objects", "kind: Menu\nmetadata: {name: m}\nitems:\n- kind: soup\n- kind: fish\n", "m"},
	{"a block with dashes", "kind: A\nmetadata: {name: a}\ndata:\n  x: |\n    --- not a separator\n    - a\n", "a"},
	{"JSON", `{"kind":"A","metadata":{"name":"a"},"x":"}{\"]"}` + "\n" + `{"kind":"B","metadata":{"name":"b"}}`, "a b"},
	{"JSON in YAML documents", "---\n{\"kind\":\"A\",\"metadata\":{\"name\":\"a\"}}\n---\nkind: B\nmetadata: {name: " +
		"b}\n", "a b"},
	{"JSON in documents that are ended", `{"kind":"A","metadata":{"name":"a"}}` + "\n...\n---\nkind: B\n" +
		"metadata: {name: b}\n...\n---\n" + `{"kind":"C","metadata":{"name":"c"}}` + "\n...\n", "a b c"},
	{"a JSON list",
		`{"apiVersion":"v1","items":[{"kind":"A","metadata":{"name":"a"},"items":[{"kind":"x"}]}, {"kind":"B","metadata":{"name":"b"}}],"kind":"List"}`, "a b"},
	{"a JSON list of one kind",
		`{"kind":"DeploymentList","apiVersion":"apps/v1","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, "a b"},
	{"a JSON list without items", `{"kind":"List","apiVersion":"v1","metadata":{"name":"l"},"items":[]}`, "l"},
	{"an indented document", "  kind: A\n  metadata: {name: a}\n", "a"},
	{"documents on the lines of separators", "--- # x\nkind: A\nmetadata: {name: a}\n--- {kind: B, metadata: {name: " +
		"b}}\n---\t{kind: C, metadata: {name: c}}\n--- # c\n", "a b c"},
	{"a directive", "%YAML 1.1\n---\nkind: A\nmetadata: {name: a}\n...\n%YAML 1.1\n---\nkind: B\nmetadata: {name: b}",
		"a b"},
	{"an explicit key", "?          kind\n: A\nmetadata: {name: a}\nspec:\n  {rules: [{host: a}]}\n", "a"},
	{"nothing", "", ""},
	{"comments", "# a\n---\n# b\n", ""},
}

func TestPartsAreTheFile(t *testing.T) {
	for _, test := range texts {
		for _, slow := range []bool{false, true} {
			var reader io.Reader = strings.NewReader(test.text)
			if slow {
				reader = oneByte{reader}
			}
			var whole []byte
			var names []string
			for part, err := range Parts(reader) {
				if err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
				if line := 1 + bytes.Count(whole, []byte("\n")); part.Line != line {
					t.Errorf("%s: part %q says line %d, is on %d", test.name, part.Text, part.Line, line)
				}
				whole = append(whole, part.Text...)
				if !part.Object {
					continue
				}
				object, err := part.Decode()
				if err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
				if object == nil {
					continue
				}
				metadata, _ := object.Value["metadata"].(map[string]any)
				names = append(names, fmt.Sprint(metadata["name"]))
				again, err := object.Rewrite(object.Value)
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				if part.Format == YAML && !bytes.Equal(again, part.Text) {
					t.Errorf("%s: an object that did not change was rewritten:\n%s", test.name,
						cmp.Diff(string(part.Text), string(again)))
				}
			}
			if string(whole) != test.text {
				t.Errorf("%s: the parts are not the file:\n%s", test.name, cmp.Diff(test.text, string(whole)))
			}
			if got := strings.Join(names, " "); got != test.objects {
				t.Errorf("%s: objects %q, want %q", test.name, got, test.objects)
			}
		}
	}
}

// oneByte reads byte by byte.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

// Files as Windows writes them: with a byte order mark, in UTF-16, with carriage returns.
func TestFilesOfWindows(t *testing.T) {
	const yaml = "# é\r\nkind: A\r\nmetadata:\r\n  name: a\r\nx: 1\r\n---\r\nkind: B\r\nmetadata: {name: b}\r\n"
	wide := func(order binary.AppendByteOrder, text string) string {
		var out []byte
		for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
			out = order.AppendUint16(out, unit)
		}
		return string(out)
	}
	for name, text := range map[string]string{
		"UTF-8":              "\ufeff" + yaml,
		"UTF-16":             wide(binary.LittleEndian, yaml),
		"UTF-16, big endian": wide(binary.BigEndian, yaml),
	} {
		var whole []byte
		for part, err := range Parts(strings.NewReader(text)) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !part.Object {
				whole = append(whole, part.Text...)
				continue
			}
			object, err := part.Decode()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			value := maps.Clone(object.Value)
			delete(value, "x")
			value["spec"] = map[string]any{"a": "b", "c": "d"}
			changed, err := object.Rewrite(value)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			whole = append(whole, changed...)
		}
		want := strings.ReplaceAll(strings.ReplaceAll(yaml, "x: 1\r\n", "spec:\r\n  a: b\r\n  c: d\r\n"),
			"{name: b}\r\n",
			"{name: b}\r\nspec:\r\n  a: b\r\n  c: d\r\n")
		if string(whole) != want {
			t.Errorf("%s:\n%s", name, cmp.Diff(want, string(whole)))
		}
	}
	for part, err := range Parts(strings.NewReader("\ufeff{\"kind\":\"A\"}")) {
		if err != nil || part.Object && part.Format != JSON {
			t.Errorf("JSON behind a byte order mark: %v, format %d", err, part.Format)
		}
	}
}

// No document is passed over: where a part holds a second one, it is refused.
func TestSecondDocumentsAreRefused(t *testing.T) {
	for _, text := range []string{"kind: A\r---\rkind: B\r", "kind: A\u2028---\u2028kind: B\n"} {
		if err := firstError(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as one document", text)
		}
	}
}

func TestDuplicateFieldsOfJSON(t *testing.T) {
	const text = `{"kind":"A","a":{"x":1,
"x":[{"y":"y","z":{"y":2}}]},
"l":["a","a",{"b":1,"b":2}],
"kind":"B"}`
	for part, err := range Parts(strings.NewReader("\n" + text)) {
		if err != nil {
			t.Fatal(err)
		}
		if !part.Object {
			continue
		}
		object, err := part.Decode()
		if err != nil {
			t.Fatal(err)
		}
		want := []Duplicate{{3, "x"}, {4, "b"}, {5, "kind"}}
		if diff := cmp.Diff(want, object.Duplicates); diff != "" || object.Value["kind"] != "B" {
			t.Errorf("kind %v: %s", object.Value["kind"], diff)
		}
	}
}

func TestSyntaxErrorsNameTheirLine(t *testing.T) {
	for _, test := range []struct {
		text           string
		document, line int
	}{
		{"kind: A\n---\nkind: B\n  x: y\n", 2, 4},
		{"just words\n", 1, 1},
		{"- a\n- b\n", 1, 1},
		{"{\"kind\": \"A\"}\n{\"kind\":\n \"B\"", 2, 2},
		{"{\"kind\": \"A\",\n\"x\": 1 2}", 1, 2},
		{"kind: List\nitems:\n- kind: A\n- kind: B\n  x: [\n", 1, 5},
		{"a: &a [x]\nb: .inf\n", 1, 2},
		{"{\"kind\":\"List\",\"items\":[{\"kind\":\"A\"},\n null]}", 1, 2},
		{"{\"kind\":\"List\",\"items\":[\n[]]}", 1, 2},
		{"{\"kind\":\"List\",\"items\":[{\"kind\":\"A\"}\n,\n\"x\"]}", 1, 3},
		{"kind: List\nitems:\n- kind: A\n- null\n", 1, 4},
		{"kind: List\nitems:\n- kind: A\n- x\n", 1, 4},
	} {
		err := firstError(strings.NewReader(test.text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Document != test.document || syntax.Line != test.line {
			t.Errorf("%q: %v, want document %d, line %d", test.text, err, test.document, test.line)
		}
	}
}

func firstError(r io.Reader) error {
	for part, err := range Parts(r) {
		if err != nil {
			return err
		}
		if part.Object {
			if _, err := part.Decode(); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestValuesAreKubernetes: YAML means what sigs.k8s.io/yaml, which kubectl reads it with, makes of it.
func TestValuesAreKubernetes(t *testing.T) {
	const text = "a: yes\nb: 'yes'\nc: on\nd: 0777\ne: 0x1f\nf: 1e3\ng: 1.5\nh: ~\ni: 2020-01-01\nj: \"1\"\nk: " +
		"1_000\nl: .5\nm: !!str 1\n" +
		"n: {x: 1, 2: y}\no: &o [1, true]\np: *o\nq: |\n  t\n" +
		"r: 0o17\ns: n\nt: 12345678901234567890\nu: ''\nv: null\nw: 1:30\nx: +1\n"
	p := Part{Text: []byte(text), Object: true, Document: 1, Line: 1}
	object, err := p.Decode()
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := sigsyaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	for name, value := range want {
		if !equal(object.Value[name], value) {
			t.Errorf("%s is %#v, want %#v", name, object.Value[name], value)
		}
	}
}

func TestAnchorsThatGrowAreRefused(t *testing.T) {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	if err := firstError(strings.NewReader(text)); err == nil {
		t.Error("some lines that stand for billions of values were read")
	}
}

func TestRewriteChangesOnlyWhatDiffers(t *testing.T) {
	const text = `# head
apiVersion: old/v1 # the version
kind: A

metadata:
  name: "a"   # quoted

spec:
  # gone with its comment
  gone:
    x: 1
  kept: {flow: [1, 2]}  # flow
  list:
  # an item
  - name: x
    port: 80   # port
  - name: z
    script: |
      # not a comment
      run

      # end
  last: 1
  deep:
    down:
      was: here
# tail
`
	p := Part{Text: []byte(text), Object: true, Document: 1, Line: 1}
	object, err := p.Decode()
	if err != nil {
		t.Fatal(err)
	}
	var value map[string]any
	data, _ := json.Marshal(object.Value)
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	value["apiVersion"] = "new/v1"
	value["metadata"].(map[string]any)["name"] = "b"
	spec := value["spec"].(map[string]any)
	delete(spec, "gone")
	list := spec["list"].([]any)
	list[0].(map[string]any)["port"] = map[string]any{"number": int64(80)}
	list[1].(map[string]any)["added"] = true
	spec["zone"] = "a"
	delete(spec, "last")
	spec["deep"].(map[string]any)["down"] = map[string]any{"is": "there"}
	got, err := object.Rewrite(value)
	if err != nil {
		t.Fatal(err)
	}
	const want = `# head
apiVersion: new/v1 # the version
kind: A

metadata:
  name: b   # quoted

spec:
  kept: {flow: [1, 2]}  # flow
  list:
  # an item
  - name: x
    port:
      number: 80
  - name: z
    script: |
      # not a comment
      run

      # end
    added: true
  deep:
    down:
      is: there
  zone: a
# tail
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// A document on the line of its separator stays apart from the one before.
func TestRewriteKeepsSeparators(t *testing.T) {
	var whole []byte
	for part, err := range Parts(strings.NewReader("a: 1\n--- {b: 2}\n--- # c\nc: {d: e}\n")) {
		if err != nil {
			t.Fatal(err)
		}
		if !part.Object {
			whole = append(whole, part.Text...)
			continue
		}
		object, err := part.Decode()
		if err != nil {
			t.Fatal(err)
		}
		value := maps.Clone(object.Value)
		value["x"] = "y"
		changed, err := object.Rewrite(value)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, changed...)
	}
	if want := "a: 1\nx: \"y\"\n---\nb: 2\nx: \"y\"\n--- # c\nc: {d: e}\nx: \"y\"\n"; string(whole) != want {
		t.Errorf("%q, want %q", whole, want)
	}
}

// TestMemoryIsBounded: of a list that does not end, only as much is held as one item takes.
func TestMemoryIsBounded(t *testing.T) {
	item := "- kind: A\n  data: " + strings.Repeat("x", 1000) + "\n"
	endless := io.MultiReader(strings.NewReader("apiVersion: v1\nkind: List\nitems:\n"),
		io.LimitReader(&repeated{text: item}, 16<<20))
	objects := 0
	for part, err := range Parts(endless) {
		if err != nil {
			t.Fatal(err)
		}
		if len(part.Text) > 2*len(item) {
			t.Fatalf("a part of %d bytes", len(part.Text))
		}
		if part.Object {
			objects++
		}
	}
	if objects < 15000 {
		t.Errorf("%d objects", objects)
	}
	if err := firstError(io.MultiReader(strings.NewReader("a: "),
		io.LimitReader(&repeated{text: "x"}, 40<<20))); err == nil ||
		!strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Errorf("an object of 40 MiB: %v", err)
	}
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func packed(t *testing.T, record []byte) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(record); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

func TestHelmReleases(t *testing.T) {
	helm3, err := json.Marshal(
		map[string]any{"name": "web", "namespace": "shop", "version": 3, "info": map[string]any{"status": "deployed"},
			"manifest": "kind: A\n", "hooks": []any{map[string]any{"manifest": "kind: B\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	helm2 := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "web")
	helm2 = protowire.AppendString(protowire.AppendTag(helm2, 5, protowire.BytesType), "kind: A\n")
	hook := protowire.AppendString(protowire.AppendTag(nil, 4, protowire.BytesType), "kind: B\n")
	helm2 = protowire.AppendBytes(protowire.AppendTag(helm2, 6, protowire.BytesType), hook)
	helm2 = protowire.AppendVarint(protowire.AppendTag(helm2, 7, protowire.VarintType), 3)
	helm2 = protowire.AppendString(protowire.AppendTag(helm2, 8, protowire.BytesType), "shop")
	record := func(kind, label, value, release string) map[string]any {
		return map[string]any{"kind": kind,
			"metadata": map[string]any{"labels": map[string]any{label: value, "STATUS": "DEPLOYED"}},
			"data":     map[string]any{"release": release}}
	}
	secret := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, object := range map[string]map[string]any{
		"Helm 3 in a Secret":    record("Secret", "owner", "helm", secret(packed(t, helm3))),
		"Helm 3 in a ConfigMap": record("ConfigMap", "owner", "helm", packed(t, helm3)),
		"Helm 2 in a ConfigMap": record("ConfigMap", "OWNER", "TILLER", packed(t, helm2)),
		"Helm 2 in a Secret":    record("Secret", "OWNER", "TILLER", secret(packed(t, helm2))),
	} {
		release, ok, err := HelmRelease(object)
		if err != nil || !ok {
			t.Errorf("%s: %v, %v", name, ok, err)
			continue
		}
		manifest := strings.ReplaceAll(string(release.Manifest), "\n\n", "\n")
		if !release.Deployed() || release.Name != "web" || release.Namespace != "shop" || release.Revision != 3 ||
			manifest != "kind: A\n---\nkind: B\n" {
			t.Errorf("%s: %+v, manifest %q", name, release, release.Manifest)
		}
	}
	if _, ok, err := HelmRelease(record("Secret", "owner", "helm", "!")); !ok || err == nil {
		t.Error("a record that is no base64 was read")
	}
	if _, ok, err := HelmRelease(record("Secret", "team", "web", "!")); ok || err != nil {
		t.Error("a Secret that Helm did not write was taken for a record")
	}
}

// YAML ends lines where text editors do not: the lines of its nodes are not those of the text then.
func TestRewriteWithLineBreaksOfYAML(t *testing.T) {
	for name, text := range map[string]string{
		"NEL in a comment":                  "# a\u0085\na: 1\n",
		"NELs in a comment":                 "# a\u0085\u0085\u0085\na: 1\nb: {c: d}\n",
		"a line separator":                  "# a\u2028\u2028\u2028\na: 1\n",
		"a paragraph separator":             "a: 1 # x\u2029\nb: 2 #\u2029\n",
		"lone carriage returns":             "a: 1\rb: 2\rc: 3\n",
		"carriage returns with line feeds":  "a: 1\r\nb: 2\r\n",
		"a carriage return before both":     "a: 1\r\r\nb: 2\n",
		"UTF-16, whose bytes are no breaks": "\xff\xfea\x00:\x00 \x001\x00\n\x00b\x00:\x00 \x00(\x20\n\x00",
	} {
		for part, err := range Parts(strings.NewReader(text)) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			object, err := part.Decode()
			if err != nil || object == nil {
				continue // refused, which is an answer
			}
			want := maps.Clone(object.Value)
			want["added"], want["a"] = "x", int64(2)
			out, err := object.Rewrite(want)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var got map[string]any
			if err := sigsyaml.Unmarshal(out, &got); err != nil || got["added"] != "x" || fmt.Sprint(got["a"]) != "2" {
				t.Errorf("%s: rewritten as %q: %v", name, out, err)
			}
		}
	}
}

func FuzzParts(f *testing.F) {
	for _, test := range texts {
		f.Add([]byte(test.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var whole []byte
		for part, err := range Parts(bytes.NewReader(text)) {
			if err != nil {
				return
			}
			whole = append(whole, part.Text...)
			if !part.Object || part.Format == Protobuf {
				continue
			}
			object, err := part.Decode()
			if err != nil || object == nil {
				continue
			}
			var same any
			tagged := bytes.Contains(part.Text, []byte("!")) // tags that no manifest has are read otherwise
			if part.Format == YAML && part.Item == 0 && !tagged && sigsyaml.Unmarshal(part.Text, &same) == nil {
				if fields, ok := same.(map[string]any); ok && !equal(fields, object.Value) {
					t.Errorf("%q reads as %v, want %v", part.Text, object.Value, fields)
				}
			}
			changed, err := part.Decode() // a value of its own: the editor compares it with that of the object
			if err != nil {
				t.Fatalf("%q decodes once only: %v", part.Text, err)
			}
			for name, value := range changed.Value {
				if _, plain := value.(string); plain {
					changed.Value[name] = "changed"
				}
				if fields, ok := value.(map[string]any); ok {
					fields["added"] = int64(1)
				}
			}
			changed.Value["added"] = map[string]any{"x": []any{int64(1)}}
			if _, err := object.Rewrite(changed.Value); err != nil && part.Format == YAML {
				t.Errorf("%q: %v", part.Text, err)
			}
		}
		if marked := bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) || bytes.HasPrefix(text, []byte("\xff\xfe")) ||
			bytes.HasPrefix(text, []byte("\xfe\xff")); !marked && !bytes.Equal(whole, text) {
			t.Errorf("%q reads as %q", text, whole)
		}
	})
}

// The column of an explicit key is that of its name, which other lines may not reach.
func TestExplicitKeysAreRewritten(t *testing.T) {
	text := "?          apiVersion\n: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\n" +
		"spec:\n  {rules: [{host: a}]}\n"
	for part, err := range Parts(strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		object, err := part.Decode()
		if err != nil {
			t.Fatal(err)
		}
		value := maps.Clone(object.Value)
		value["apiVersion"], value["spec"] = "networking.k8s.io/v1", map[string]any{"rules": []any{}}
		written, err := object.Rewrite(value)
		var again map[string]any
		if err != nil || sigsyaml.Unmarshal(written, &again) != nil || again["apiVersion"] != "networking.k8s.io/v1" {
			t.Errorf("rewritten as %q: %v", written, err)
		}
	}
}

// Merges apply in their order among the fields, and binary scalars are what they encode.
func TestMergesAndBytesAreReadAsKubectlReadsThem(t *testing.T) {
	const anchors = "kind: A\nmetadata: {name: a}\np: &p {replicas: 5, x: 1}\nq: &q {replicas: 6, y: 2}\n"
	for _, text := range []string{
		"spec:\n  replicas: 1\n  <<: *p\n", "spec:\n  <<: *p\n  replicas: 1\n", "spec:\n  <<: [*p, *q]\n  x: 3\n",
		"spec:\n  x: 3\n  <<: [*q, *p]\n", "spec:\n  <<: *p\n  y: 7\n  <<: *q\n",
		"spec: {<<: {replicas: 1, <<: *p}, replicas: 2}\n", "data: !!binary aGk=\n", "data: !!binary \"/w==\"\n",
		"data: !!binary |\n  aG\n  k=\n", "!!binary aGk=: 1\n",
	} {
		var want map[string]any
		if err := sigsyaml.Unmarshal([]byte(anchors+text), &want); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for part, err := range Parts(strings.NewReader(anchors + text)) {
			if err != nil {
				t.Fatal(err)
			}
			object, err := part.Decode()
			if err != nil || !equal(want, object.Value) {
				t.Errorf("%q reads as %v, %v; want %v", text, object, err, want)
			} else if len(object.Duplicates) > 0 {
				t.Errorf("%q: duplicates %v", text, object.Duplicates)
			}
		}
	}
	for part := range Parts(strings.NewReader("kind: A\ndata: !!binary $\n")) {
		if object, err := part.Decode(); err == nil {
			t.Errorf("what is not base64 reads as %v", object.Value)
		}
	}
}

// The objects of a second list would be neither converted nor checked.
func TestListsHaveItemsOnce(t *testing.T) {
	for _, between := range []string{"", "metadata: {}\n"} {
		text := "apiVersion: v1\nkind: List\nitems:\n- kind: A\n  metadata: {name: a}\n" + between +
			"items:\n- kind: B\n  metadata: {name: b}\n"
		var problem error
		for _, err := range Parts(strings.NewReader(text)) {
			if err != nil {
				problem = err
			}
		}
		var syntax *SyntaxError
		if !errors.As(problem, &syntax) || syntax.Line != 6+strings.Count(between, "\n") {
			t.Errorf("%q: %v, want a syntax error at the second items", text, problem)
		}
	}
}
