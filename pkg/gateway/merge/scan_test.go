package merge

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzReadText: what is read is what encoding/json takes for JSON.
func FuzzReadText(f *testing.F) {
	deep := strings.Repeat("[", limitDepth)
	for _, seed := range []string{
		`{"items":[{},{"a":[1,2]},"x"],"metadata":{}}`, `{}`, `[]`, `null`, `true`, `false`, `nul`, `nulls`, ``, ` `, `"`,
		"\t\r\n 1 ", "\v1", "1\f", `0`, `-0`, `-`, `01`, `1.`, `1.5`, `.5`, `1e5`, `1E+5`, `1e-5`, `1e`, `1e+`, `+1`,
		`"\u00fF"`, `"\u00g0"`, `"\u12"`, `"\x"`, `"\"`, `"\\"`, `"\""`, "\"\x1f\"", "\"\x7f\xff\"", `[1,]`, `[,1]`, `[1 2]`,
		`{"a":1,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{1:1}`, `{"a":1]`, `[1}`, `[`, `{`, `{"a":1`, `1 2`, `{}{}`, `{} x`,
		deep + strings.Repeat("]", limitDepth), "[" + deep + strings.Repeat("]", limitDepth+1), deep,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := ReadText(text); (err == nil) != json.Valid(text) {
			t.Fatalf("%.200q: %v, encoding/json says valid: %v", text, err, json.Valid(text))
		}
	})
}

func TestTextsHoldWhatTheirElementsTake(t *testing.T) {
	for text, want := range map[string]int64{`{}`: 1, `{"a":1,"b":{"c":1,"d":[1,2,3]}}`: 3,
		`{"items":[{},{"a":[1,2],"b":3},{}],"kind":",{["}`: 4} {
		if read, err := ReadText([]byte(text)); err != nil || read.HeldBytes() != want*elementBytes {
			t.Errorf("%s holds %d, %v; want %d", text, read.HeldBytes(), err, want*elementBytes)
		}
	}
}

// BenchmarkReadText compares with encoding/json.
func BenchmarkReadText(b *testing.B) {
	object := `{"metadata":{"name":"a-1","namespace":"default","uid":"0c7c1b5e-8d7e-4a53-9c5e-000000000001","labels":{
		"app":"a"}},"spec":{"containers":[{"name":"c","image":"example.test/c:1","resources":{}}],"replicas":3}}`
	text := []byte(`{"items":[` + strings.Repeat(object+",", 9999) + object + `]}`)
	b.SetBytes(int64(len(text)))
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			if _, err := ReadText(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			if !json.Valid(text) {
				b.Fatal("invalid")
			}
		}
	})
}
