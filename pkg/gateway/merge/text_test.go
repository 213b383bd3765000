package merge

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// FuzzRead: an object that is shown by its text is what it would be if it were decoded.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"Deployment","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{}}`,
		`{"metadata":{"annotations":{"a":"b","c":"{\"metadata\":{}}"},"resourceVersion":"7"}}`,
		`{"metadata":{"resourceVersion":"7","annotations":{ }}}`,
		`{"metadata":{}}`, `{"metadata":{"name":"a"},"metadata":{"name":"b"}}`, `{"metadata":null}`, `{"metadata":7}`,
		`{"metadata":{"annotations":null}}`, `{"metadata":{"annotations":[]}}`, `{"metadata":{"annotations":{},"annotations":{}}}`,
		`{"metadata":{"annotations":{"kubefusion.dev/side":"x"}}}`, `{"metadata":{"annotations":{"kubefusion.dev\u002fside":"x"}}}`,
		`{"metadata":{"resourceVersion":"\u0037"}}`, `{"metadata":{"resourceVersion":7}}`, `{"metadata":{"resourceVersion":""}}`,
		`{"\u006detadata":{"resourceVersion":"7"}}`, `{"Metadata":{"resourceVersion":"7"}}`, "{\"metadata\":\n{\n\"name\":\"a\"\n}\n}",
		`{"kind":"Status","metadata":{}}`, `{"kind":"Table","metadata":{},"rows":[{"object":{"metadata":{}}}]}`,
		"{\"metadata\":{\"resourceVersion\":\"\x81\"}}", `{"kind":7,"metadata":{}}`, `[]`, `{}`, `{}{}`, ``, `{"metadata":{}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		for _, side := range pair.Sides() {
			all := Version{Legacy: "3", Modern: "4"}
			shown, own, err := Read(object, side, all)
			want, wantOwn, wantErr := readDecoded(object, side, all)
			if (err != nil) != (wantErr != nil) || own != wantOwn || err == nil && !equal(t, shown, want) {
				t.Fatalf("%q is shown as %q, %q, %v; decoded %q, %q, %v", object, shown, own, err, want, wantOwn,
					wantErr)
			}
		}
	})
}

// TestWhatFollowsAnObjectIsAnError: also where it closes what was never opened.
func TestWhatFollowsAnObjectIsAnError(t *testing.T) {
	for _, behind := range []string{"]", "}", "{}", "x"} {
		if _, _, err := Read([]byte(`{"metadata":{}}`+behind), pair.Legacy, Version{}); err == nil {
			t.Errorf("an object and %q behind it are shown", behind)
		}
		if _, err := streamed(`{"metadata":{},"items":[]}`+behind, emptyStream, Token{}); err == nil {
			t.Errorf("a list and %q behind it are one", behind)
		}
	}
}

func equal(t *testing.T, a, b []byte) bool {
	t.Helper()
	var values [2]any
	for i, text := range [][]byte{a, b} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&values[i]); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
