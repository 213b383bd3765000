package yamltext

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestEveryCharacterComesBack writes each character that a string of JSON can hold, as a value and as a key.
func TestEveryCharacterComesBack(t *testing.T) {
	for r := rune(0); r <= 0x2fff; r++ {
		comesBack(t, "a"+string(r)+"b")
	}
	for _, r := range []rune{0xd7ff, 0xe000, 0xfeff, 0xfffd, 0xfffe, 0xffff, 0x10000, 0x1f600, 0x1fffe, 0x10ffff} {
		comesBack(t, "a"+string(r)+"b")
		comesBack(t, string(r))
	}
}

func TestMarshalSortsFields(t *testing.T) {
	text, err := Marshal(map[string]any{"kind": "Pod", "apiVersion": "v1", "data": map[string]string{"x": "1"}})
	if want := "apiVersion: v1\ndata:\n  x: \"1\"\nkind: Pod\n"; err != nil || string(text) != want {
		t.Errorf("Marshal = %q, %v, want %q", text, err, want)
	}
}

// TestOtherValuesAreWrittenAsBefore compares with sigs.k8s.io/yaml where that can write a value.
func TestOtherValuesAreWrittenAsBefore(t *testing.T) {
	for _, value := range []any{
		nil, true, "", "yes", "1", "0x10", "1e3", "null", "~", "a: b", "- a", "#", "a\nb\n", "2006-01-02", []any{},
		map[string]any{},
		0, -1, int64(math.MinInt64), uint64(math.MaxUint64), 1.0, 0.5, 1e3, 1e21, 1e-7, math.MaxFloat64,
		json.RawMessage(`[1.0, 1E5, 100000000000000000000, -0, 12345678901234567890]`),
		map[string]any{"b": 1, "a10": nil, "a2": []string{"x"}, "A": map[string]any{"true": "true"}},
		struct {
			Name string `json:"name,omitempty"`
			List []int
		}{List: []int{1, 2}},
	} {
		want, err := yaml.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Marshal(value); err != nil || string(got) != string(want) {
			t.Errorf("Marshal(%#v) = %q, %v, want %q", value, got, err, want)
		}
	}
}

func TestMarshalRefusesWhatIsNoJSON(t *testing.T) {
	if text, err := Marshal(map[string]any{"f": func() {}}); err == nil {
		t.Errorf("Marshal of a function = %q, want an error", text)
	}
}

func FuzzMarshal(f *testing.F) {
	for _, s := range []string{"", "a: b", "- x", "line\nbreak\r\n", "\t", "\x7f", "\u0085", "\u2028x", "\ufeff",
		"'\"\\",
		"yes", "1e3", strings.Repeat("word ", 40)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if utf8.ValidString(s) { // encoding/json replaces other bytes
			comesBack(t, s)
		}
	})
}

func comesBack(t *testing.T, s string) {
	t.Helper()
	want := map[string]any{"key": s, "list": []any{s, map[string]any{"k" + s: true}}}
	text, err := Marshal(want)
	if err != nil {
		t.Errorf("Marshal(%q): %v", s, err)
		return
	}
	var got map[string]any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Errorf("%q is written as %q, which cannot be read: %v", s, text, err)
	} else if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q is written as %q (-want +read back):\n%s", s, text, diff)
	}
}
