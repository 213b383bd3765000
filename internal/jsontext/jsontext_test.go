package jsontext_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/kubefusion/fusionctl/internal/jsontext"
)

const mapsLimit = 1000

// seeds are spellings of JSON, and such as look like it.
var seeds = []string{
	`{}`, ` { } `, `{"a":1}`, "{\n\t\"a\" : [ ] ,\r\n \"b\":[1,-1,0,-0,1.5,1e3,1E+3,2e-7,-0.0]}",
	`{"a":9223372036854775807,"b":-9223372036854775808,"c":9223372036854775808,"d":1e400}`,
	`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":-}`, `{"a":1e}`, `{"a":0x1}`, `{"a":1_0}`, `{"a":NaN}`,
	`{"a":"b\n\"\\\/\b\f\r\t\u00e4\ud83d\ude00\ud800"}`, `{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"b\nc\"}",
	"{\"a\":\"\x00\"}",
	"{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}", `{"ä":"ö\u2028 "}`, "{\"a\":\"\x7f\"}", `{"\u0061":1,"a":2}`,
	`{"a":1,"a":2}`, `{"a":{"b":null},"c":true,"d":false}`, `{"a":nul}`, `{"a":truex}`, `{"a":tru`, `{a:1}`, `{"a" 1}`,
	`{"a":1,}`, `{,}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":1}}`, `{"a":1} x`, `{"a":1}{}`, `[{}]`, `"a"`,
	`null`, ``,
	`{`, `{"`, `{"a`, `{"a":"\`, `{"a":"\"`, "\ufeff{}", `{"<a>":"&"}`, `{"":{"":[[],{}]}}`,
	`{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`,
	`{"a":[` + strings.Repeat("{},", mapsLimit-2) + `{}]}`, `{"a":[` + strings.Repeat("{},", mapsLimit) + `{}]}`,
}

// likeTheLibrary compares what is read, and reports whether it was.
func likeTheLibrary(t *testing.T, text []byte) bool {
	t.Helper()
	object, ok := jsontext.Object(text, mapsLimit)
	if !ok {
		return false
	}
	var want map[string]any
	strict, err := kjson.UnmarshalStrict(text, &want, kjson.DisallowDuplicateFields)
	if err != nil || len(strict) > 0 || !reflect.DeepEqual(object, want) {
		t.Errorf("%q is %v, and for the library %v, %v, %v", text, object, want, strict, err)
	}
	return true
}

// What is read is what the library reads; it may leave everything else.
func FuzzObject(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { likeTheLibrary(t, text) })
}

// written compares what is written with what encoding/json writes.
func written(t *testing.T, value any, prefix, indent string) {
	t.Helper()
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent(prefix, indent)
	wantErr := encoder.Encode(value)
	text, err := jsontext.Marshal(value, prefix, indent, 8)
	if (err == nil) != (wantErr == nil) || err == nil && string(text)+"\n" != want.String() {
		t.Errorf("%v is written as %q, %v, want %q, %v", value, text, err, want.String(), wantErr)
	}
}

// A value takes as many bytes as Size says, where nothing is escaped.
func TestSize(t *testing.T) {
	for text, escaped := range map[string]bool{
		`{"a":[1,-20,true,false,null,"b",{}],"c":{"d":"ä"},"e":[]}`: false, `{}`: false, `{"a":"\n"}`: true, `{"a":0.25}`: true,
	} {
		object, ok := jsontext.Object([]byte(text), mapsLimit)
		size := jsontext.Size(object)
		if !ok || size > len(text) || !escaped && size < len(text) {
			t.Errorf("%s has %d bytes, want %d", text, size, len(text))
		}
	}
}

func FuzzMarshal(f *testing.F) {
	for i, seed := range seeds {
		f.Add([]byte(seed), i%3, i%5)
	}
	f.Fuzz(func(t *testing.T, text []byte, prefix, indent int) {
		written(t, string(text), "", "")
		var value any
		if kjson.UnmarshalCaseSensitivePreserveInts(text, &value) == nil {
			written(t, value, strings.Repeat(" ", prefix&7), strings.Repeat(" ", indent&7))
		}
	})
}

// Values that no decoder makes are written as encoding/json writes them, or refused as it does.
func TestMarshalLeavesWhatIsRare(t *testing.T) {
	type own struct {
		A int `json:"a"`
	}
	deep := any("a")
	for range 300 {
		deep = []any{deep}
	}
	for _, value := range []any{
		own{1}, map[string]any{"a": own{2}, "b": int32(3)}, []any{json.Number("4"), uint8(5)},
		map[string]string{"<": "&"},
		map[string]any(nil), []any(nil), deep, math.NaN(), []any{math.Inf(1)}, func() {}, 1e21, 1e-7,
		math.Copysign(0, -1), float64(5),
	} {
		written(t, value, "", "")
		written(t, value, "  ", "    ")
	}
}

// Objects as clusters and people write them are read without the library.
func TestObjectsAreReadWithoutTheLibrary(t *testing.T) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"b":"{\"c\":1}\n"}},"data":{}}`,
		"{\n  \"spec\": {\n    \"replicas\": 3,\n    \"weight\": 0.5,\n    \"paused\": false,\n" +
			"    \"list\": [null, -1]\n  }\n}\n",
		`{"data":{"größe":"<ä>&\u00e4"},"n":1e3}`,
	} {
		if !likeTheLibrary(t, []byte(text)) {
			t.Errorf("%s is left to the library", text)
		}
	}
}
