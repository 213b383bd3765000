package yamltext

import (
	"testing"

	kjson "sigs.k8s.io/json"
)

// plainSeeds are values that appendPlain writes, and such as look like them.
var plainSeeds = []string{
	`{}`, `[]`, `null`, `"a"`, `1`, `-1`, `true`, `{"a":{}}`, `{"a":[]}`, `{"a":null,"b":false}`,
	`{"rules":[{"host":"a.b","http":{"paths":[{"path":"/","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}`,
	`[[["a"],"b"],[{"a":[{"b":"c"}],"d":[[1]]}]]`, `{"x-kubernetes-preserve-unknown-fields":true}`,
	`{"a1":1,"a10":2,"a9":3}`,
	`{"A":1,"a":2,"B":3,"ab":4}`, `{"y":1}`, `{"a":"yes"}`, `{"a":"NULL"}`, `{"a":"nullx"}`, `{"a":"0x1"}`,
	`{"a":"e1"}`, `{"a":"ä\u2028\u0000 \ud800"}`, `{"a":1e3,"b":5.0,"c":-0}`,
	`{"a":"/a-b_c.d"}`, `{"a":"b:1"}`, `{"a":"b c"}`, `{"a":"-"}`, `{"a":""}`, `{"a":"b/"}`, `{"a":"inf"}`, `{"a":"nan"}`,
	`{"a":1.5}`, `{"a":9223372036854775807}`, `{"a":"a---"}`, `{"a":[null,[],{}]}`, `[{"a":[]},{}]`, `{"a":"true"}`,
}

// What appendPlain writes is what the library writes; it may leave everything else. What the library writes of a value
// is what it writes of its JSON.
func FuzzPlain(f *testing.F) {
	for _, seed := range plainSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, text := range [][]byte{text, []byte(`{"a":` + string(text) + `}`), []byte(`[` + string(text) + `]`)} {
			var value any
			if kjson.UnmarshalCaseSensitivePreserveInts(text, &value) != nil {
				continue
			}
			want, err := marshalJSON(value)
			if plain, ok := appendPlain(nil, value, 0); ok && (err != nil || string(plain)+"\n" != string(want)) {
				t.Errorf("%s is %q, and for the library %q, %v", text, plain, want, err)
			}
			if tree, treeErr := marshal(value); (err == nil) != (treeErr == nil) || string(tree) != string(want) {
				t.Errorf("%s is %q, %v, and through its JSON %q, %v", text, tree, treeErr, want, err)
			}
		}
	})
}

// The fields that conversions write are written without the library.
func TestFieldsAreWrittenWithoutTheLibrary(t *testing.T) {
	for _, value := range []any{
		map[string]any{"backend": map[string]any{"service": map[string]any{"name": "web", "port": map[string]any{
			"number": int64(80)}}}},
		map[string]any{"apiVersion": "apps/v1"}, map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"networking.k8s.io/v1", int64(3),
	} {
		if _, ok := appendPlain(nil, value, 0); !ok {
			t.Errorf("%v is left to the library", value)
		}
	}
}
