package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

func TestVersionsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Version{"": {}, "0": {"0", "0"}, "l12m7": {"12", "7"}, "l12": {"12", ""},
		"m7": {"", "7"}} {
		if got, err := ParseVersion(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseVersion(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, foreign := range map[string]bool{"12": true, "l": false, "m7l12": false, "l12m": false, "l-1": false,
		"l12m7 ": false, "l1.2": false, "L1": false, "-1": false, "l" + strings.Repeat("9", 21): false,
		strings.Repeat("9", 21): false} {
		if got, err := ParseVersion(text); err == nil || errors.Is(err, ErrForeignVersion) != foreign {
			t.Errorf("ParseVersion(%q) = %+v, %v, want it refused, foreign %t", text, got, err, foreign)
		}
	}
	for text, want := range map[string]bool{"": false, "0": false, "12": false, "l": false, "l1": true, "m2": true,
		"l1m2": true} {
		if got := IsComposite(text); got != want {
			t.Errorf("IsComposite(%q) = %t", text, got)
		}
	}
}

func FuzzTokens(f *testing.F) {
	f.Add(Token{Legacy: "abc", Version: Version{"1", "2"}}.String())
	f.Add("eyJ2Ijp7fX0")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := ParseToken(text); err == nil && token.String() != text {
			t.Errorf("%q is read as %q", text, token)
		}
		if version, err := ParseVersion(text); err == nil && version.String() != text &&
			strings.Trim(text, "lm0") != "" {
			t.Errorf("%q is read as %q", text, version)
		}
	})
}

// FuzzPatches: whatever a client sends as a patch, the side is sent no annotation of a side and no version of two, or
// the patch is refused.
func FuzzPatches(f *testing.F) {
	for _, patch := range []string{`{"metadata":{"annotations":{"kubefusion.dev/side":"legacy"},"resourceVersion":"l1m2"}}`,
		`[{"op":"add","path":"/metadata/annotations/kubefusion.dev~1side","value":"modern"}]`,
		`[{"op":"replace","path":"/metadata/resourceVersion","value":"l1"}]`,
		`[{"op":"add","path":"","value":{"metadata":{"annotations":{"kubefusion.dev/side":"x"}}}}]`,
		`[{"op":"copy","from":"/metadata/annotations/kubefusion.dev~1side","path":"/metadata/labels/a"}]`,
		`[{"op":"add","path":"/metadata/annotations","value":{"kubefusion.dev/side":"legacy"}}]`, `[]`, `null`, `[null]`,
		`{"metadata":null}`, `[{"op":7,"path":[]}]`, `{"metadata":{"resourceVersion":"l1m2"},"metadata":{}}`} {
		f.Add(patch, "application/json-patch+json")
		f.Add(patch, "application/merge-patch+json")
		f.Add(patch, "application/json")
	}
	f.Fuzz(func(t *testing.T, patch, kind string) {
		for _, side := range pair.Sides() {
			written, err := WritePatch([]byte(patch), kind, side)
			if err != nil {
				continue
			}
			if !json.Valid(written) {
				t.Errorf("%q becomes %q", patch, written)
			}
			var object fields
			if kind == "application/json-patch+json" || json.Unmarshal(written, &object) != nil {
				continue
			}
			metadata, err := object.sub("metadata")
			if err != nil {
				continue
			}
			annotations, err := metadata.sub("annotations")
			if _, named := annotations[SideAnnotation]; err == nil && named ||
				strings.ContainsAny(metadata.text("resourceVersion"), "lm") {
				t.Errorf("%q becomes %q", patch, written)
			}
		}
	})
}

func same(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatalf("%s: %v: %s", what, err, got)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func TestObjectsNameTheirSide(t *testing.T) {
	for object, want := range map[string]string{
		`{"kind":"Deployment","metadata":{"name":"a","resourceVersion":"7"},"spec":{"big":12345678901234567890}}`: `{"kind":"Deployment","metadata":{"name":"a","resourceVersion":"l7m3","annotations":{"kubefusion.dev/side":
			"legacy"}},"spec":{"big":12345678901234567890}}`,
		`{"kind":"X","metadata":{"annotations":{"a":"b"},"resourceVersion":"7"}}`: `{"kind":"X","metadata":{"annotations":
			{"a":"b","kubefusion.dev/side":"legacy"},"resourceVersion":"l7m3"}}`,
		`{"kind":"Status","metadata":{},"code":404}`: `{"kind":"Status","metadata":{},"code":404}`,
		`{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[{"cells":["a"],"object":{"metadata":{"name":"a",
			"resourceVersion":"7"}}}]}`: `{"kind":"Table","metadata":{"resourceVersion":"l9m3"},"rows":[{"cells":["a"],
			"object":{"metadata":{"name":"a","resourceVersion":"l7m3","annotations":{"kubefusion.dev/side":"legacy"}}}}]}`,
	} {
		shown, _, err := Read([]byte(object), pair.Legacy, Version{"5", "3"})
		if err != nil {
			t.Errorf("%s: %v", object, err)
			continue
		}
		same(t, object, shown, want)
		if !strings.Contains(object, "Table") && !strings.Contains(object, "Status") {
			stored, err := Write(shown, pair.Legacy)
			if err != nil {
				t.Errorf("%s: %v", shown, err)
				continue
			}
			same(t, "what is stored of "+string(shown), stored, object)
		}
	}
	if _, _, err := ReadBookmark([]byte(`{"kind":"X","metadata":{}}`), pair.Legacy, Version{}); err == nil {
		t.Error("a bookmark without a resource version passes")
	}
}

func TestPatchesAreThoseOfTheSide(t *testing.T) {
	const mergePatch, jsonPatch = "application/merge-patch+json", "application/json-patch+json"
	for _, tc := range []struct{ kind, patch, want string }{
		{mergePatch, `{"metadata":{"annotations":{"kubefusion.dev/side":null,"a":null}},"spec":{"x":1}}`,
			`{"metadata":{"annotations":{"a":null}},"spec":{"x":1}}`},
		{mergePatch, `{"metadata":{"resourceVersion":"l1m2"}}`, `{"metadata":{"resourceVersion":"2"}}`},
		{mergePatch, `{"metadata":{"resourceVersion":null,"annotations":null}}`,
			`{"metadata":{"resourceVersion":null,"annotations":null}}`},
		{jsonPatch, `[{"op":"remove","path":"/metadata/annotations/kubefusion.dev~1side"},
			{"op":"test","path":"/metadata/resourceVersion","value":"l1m2"},{"op":"add","path":"/spec/x","value":1}]`,
			`[{"op":"test","path":"/metadata/resourceVersion","value":"2"},{"op":"add","path":"/spec/x","value":1}]`},
		{jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"kubefusion.dev/side":"modern","a":"b"}}]`,
			`[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`},
		{jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"kubefusion.dev/side":"modern"}}]`,
			`[{"op":"add","path":"/metadata/annotations","value":{}}]`},
		{jsonPatch, `[{"op":"test","path":"/metadata/annotations/kubefusion.dev~1side","value":"modern"},
			{"op":"test","path":"/metadata/annotations","value":{"kubefusion.dev/side":"modern"}},
			{"op":"test","path":"/metadata/annotations","value":{"kubefusion.dev/side":"modern","a":"b"}}]`,
			`[{"op":"test","path":"/metadata/annotations","value":null},
			{"op":"test","path":"/metadata/annotations","value":{"a":"b"}}]`},
		{jsonPatch, `[{"op":"copy","from":"/metadata/annotations/kubefusion.dev~1side","path":"/metadata/labels/side"}]`,
			`[{"op":"add","path":"/metadata/labels/side","value":"modern"}]`},
		{jsonPatch, `[{"op":"replace","path":"/metadata","value":{"name":"a","resourceVersion":"m2"}}]`,
			`[{"op":"replace","path":"/metadata","value":{"name":"a","resourceVersion":"2"}}]`},
	} {
		got, err := WritePatch([]byte(tc.patch), tc.kind, pair.Modern)
		if err != nil {
			t.Errorf("%s: %v", tc.patch, err)
			continue
		}
		same(t, tc.patch, got, tc.want)
	}
	for _, value := range []string{`"/metadata/annotations/kubefusion.dev~1side","value":"legacy"`,
		`"/metadata/annotations/kubefusion.dev~1side"`, `"/metadata/annotations","value":{"a":"b"}`,
		`"/metadata/annotations","value":null`, `"/metadata","value":{"annotations":{"kubefusion.dev/side":"legacy"}}`,
		`"","value":{"metadata":{"name":"a"}}`} {
		patch := `[{"op":"test","path":` + value + `}]`
		if got, err := WritePatch([]byte(patch), jsonPatch, pair.Modern); !errors.Is(err, ErrTestFailed) {
			t.Errorf("%s is written as %s, %v, want the test failed", patch, got, err)
		}
	}
	for _, patch := range []string{`[1]`, `{"metadata":7}`, `{"metadata":{"resourceVersion":"12"}}`,
		`{"metadata":{"resourceVersion":"l12"}}`, `{}{}`, ``} {
		if got, err := WritePatch([]byte(patch), mergePatch, pair.Modern); err == nil {
			t.Errorf("%s is written as %s", patch, got)
		}
	}
}

func TestMetadataAlone(t *testing.T) {
	for object, want := range map[string]string{
		`{"kind":"X","metadata":{"name":"a","labels":{"b":"c"}},"spec":{"metadata":7}}`: `{"name":"a","labels":{"b":"c"}}`,
		`{"spec":{},"\u006detadata":{"name":"a"}}`:                                      `{"name":"a"}`,
		`{"metadata":null}`: `null`, `{"spec":{}}`: `{}`,
	} {
		got, err := MetadataAlone([]byte(object))
		if err != nil {
			t.Errorf("%s: %v", object, err)
			continue
		}
		same(t, object, got, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`+want+`}`)
	}
	for _, text := range []string{``, `7`, `[]`, `{}{}`, `{"metadata":{}`} {
		if got, err := MetadataAlone([]byte(text)); err == nil {
			t.Errorf("%s has the metadata %s", text, got)
		}
	}
	list, err := NewMetadataStream(strings.NewReader(`{"apiVersion":"v1","items":[{"metadata":{"name":"b","namespace":"x",
		"resourceVersion":"5"},"spec":{}},{"metadata":{"name":"d","namespace":"x"}}],"kind":"PodList","metadata":{
		"resourceVersion":"7"}}`), pair.Legacy, unbounded)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewStream(strings.NewReader(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
		"metadata":{},"items":[{"metadata":{"name":"c","namespace":"x"}}]}`), pair.Modern, unbounded)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Streams(&out, []*Stream{list, other}, Token{}); err != nil {
		t.Fatal(err)
	}
	of := func(name, side, more string) string {
		return `"metadata":{"annotations":{"kubefusion.dev/side":"` + side + `"},"name":"` + name + `","namespace":"x"` +
			more + `}`
	}
	const partial = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`
	same(t, "both", out.Bytes(), `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{
		"resourceVersion":"l7"},"items":[`+partial+of("b", "legacy", `,"resourceVersion":"l5"`)+`},{`+
		of("c", "modern", "")+`},`+partial+of("d", "legacy", "")+`}]}`)
}

func table(t *testing.T, side pair.Side, text string) *Table {
	t.Helper()
	read, err := ReadText([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseTable(read, side)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestListsOfBothSidesAreOne(t *testing.T) {
	body, err := streamed(`{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"10",
		"selfLink":"/x","continue":"more","remainingItemCount":4},"items":[
		{"metadata":{"namespace":"a","name":"x","resourceVersion":"3"}},{"metadata":{"namespace":"b","name":"z"}}]}`, `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"20"},
		"items":[{"metadata":{"namespace":"a","name":"y"}}]}`, Token{})
	if err != nil {
		t.Fatal(err)
	}
	further := Token{Legacy: "more", Version: Version{"10", "20"}}
	same(t, "the list", body, `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"l10m20",
		"continue":"`+further.String()+`","remainingItemCount":4},"items":[
		{"metadata":{"namespace":"a","name":"x","resourceVersion":"l3","annotations":{"kubefusion.dev/side":"legacy"}}},
		{"metadata":{"namespace":"a","name":"y","annotations":{"kubefusion.dev/side":"modern"}}},
		{"metadata":{"namespace":"b","name":"z","annotations":{"kubefusion.dev/side":"legacy"}}}]}`)
}

func TestTablesHaveTheColumnsOfBoth(t *testing.T) {
	row := func(cells, name string) string {
		return `{"cells":` + cells + `,"object":{"metadata":{"name":"` + name + `"}}}`
	}
	const old, recent = `[{"name":"Name"},{"name":"Desired"},{"name":"Age"}]`,
		`[{"name":"Name"},{"name":"Age"},{"name":"Up"}]`
	legacy := table(t, pair.Legacy, `{"kind":"Table","metadata":{"resourceVersion":"1"},"columnDefinitions":`+old+`,"rows":[`+
		row(`["b",2,"1d"]`, "b")+`]}`)
	modern := table(t, pair.Modern, `{"kind":"Table","metadata":{"resourceVersion":"2"},"columnDefinitions":`+recent+`,"rows":[`+
		row(`["a","5m",3]`, "a")+`]}`)
	body, err := Tables([]*Table{legacy, modern}, Token{})
	if err != nil {
		t.Fatal(err)
	}
	object := func(name, side string) string {
		return `{"metadata":{"name":"` + name + `","annotations":{"kubefusion.dev/side":"` + side + `"}}}`
	}
	same(t, "the table", body,
		`{"kind":"Table","metadata":{"resourceVersion":"l1m2"},"columnDefinitions":[{"name":"Name"},
		{"name":"Age"},{"name":"Up"},{"name":"Desired"}],"rows":[
		{"cells":["a","5m",3,"<unknown>"],"object":`+object("a", "modern")+`},
		{"cells":["b","1d","<unknown>",2],"object":`+object("b", "legacy")+`}]}`)

	var columns Columns
	for _, tc := range []struct {
		side       pair.Side
		text, want string
	}{
		{pair.Legacy, `{"kind":"Table","columnDefinitions":` + old + `,"rows":[{"cells":["b",2,"1d"]}]}`,
			`{"kind":"Table","columnDefinitions":` + old + `,"rows":[{"cells":["b",2,"1d"]}]}`},
		{pair.Modern, `{"kind":"Table","columnDefinitions":` + recent + `,"rows":[{"cells":["a","5m",3]}]}`,
			`{"kind":"Table","rows":[{"cells":["a","<unknown>","5m"]}]}`},
		{pair.Modern, `{"kind":"Table","columnDefinitions":null,"rows":[{"cells":["a","6m",3]}]}`,
			`{"kind":"Table","rows":[{"cells":["a","<unknown>","6m"]}]}`},
		{pair.Modern, `{"kind":"Deployment"}`, `{"kind":"Deployment"}`},
	} {
		got, err := columns.Event([]byte(tc.text), tc.side)
		if err != nil {
			t.Fatal(err)
		}
		same(t, tc.text, got, tc.want)
	}
}

// The rows of both sides get a cell for each column of either.
func TestTablesHaveFewColumns(t *testing.T) {
	many := table(t, pair.Modern, `{"kind":"Table","metadata":{},"columnDefinitions":[`+
		strings.Repeat(`{"name":"a"},`, limitColumns)+`{"name":"b"}],"rows":[]}`)
	few := table(t, pair.Legacy, `{"kind":"Table","metadata":{},"columnDefinitions":[{"name":"a"}],"rows":[]}`)
	if _, err := Tables([]*Table{few, many}, Token{}); err == nil {
		t.Error("a table has any number of columns")
	}
}
