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
		`{"kind":7,"metadata":{}}`, `[]`, `{}`, `{}{}`, ``, `{"metadata":{}`,
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
		if _, err := parsed([]byte(`{"metadata":{},"items":[]}`+behind), pair.Legacy); err == nil {
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

// FuzzParseList: a list of any text is an error, or its objects are merged as they are shown one by one.
func FuzzParseList(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"DeploymentList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"b"}},{"metadata":{"name":"a"}}]}`,
		`{"kind":"DeploymentList","metadata":{},"items":null}`, `{"kind":"DeploymentList","metadata":{},"items":{}}`,
		`{"kind":"DeploymentList","metadata":{},"items":[1]}`, `{"metadata":{},"items":[],"items":[{"metadata":{}}]}`,
		`{"kind":"Table","metadata":{},"rows":[{"cells":[],"object":{"metadata":{"name":"a"}}}]}`, `[]`, `null`, `{"items":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parsed(text, pair.Legacy)
		if err != nil || l.IsTable() {
			return
		}
		items := append([]item(nil), l.items...)
		merged, err := Lists([]*List{l}, Version{Legacy: "1"}, Token{})
		if err != nil {
			return
		}
		all, err := members(merged)
		if err != nil || !json.Valid(merged) {
			t.Fatalf("%q becomes %q: %v", text, merged, err)
		}
		got, err := elements(all["items"])
		if err != nil || len(got) != len(items) {
			t.Fatalf("%q becomes %q: %v", text, merged, err)
		}
		shown := map[string]int{}
		for i := range items {
			one, _, err := readDecoded(items[i].text, pair.Legacy, Version{})
			if err != nil {
				t.Fatal(err)
			}
			shown[canonical(t, one)]++
			shown[canonical(t, got[i])]--
		}
		for one, count := range shown {
			if count != 0 {
				t.Fatalf("%q: %d more of %s", text, count, one)
			}
		}
	})
}

func canonical(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return string(encode(value))
}
