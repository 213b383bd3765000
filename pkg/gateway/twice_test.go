package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"

	"github.com/kubefusion/fusionctl/pkg/gateway/merge"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// A body that says a thing twice means its last value at the gateway and at the side, and API servers that validate
// fields refuse it or warn of it.
func TestBodiesThatSayThingsTwice(t *testing.T) {
	x, _ := converted(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("POST "+collection, http.StatusCreated, deployment("last", "u"))
		side.say("POST "+older, http.StatusCreated, oldDeployment("extensions/v1beta1"))
	}
	const twin = `{"apiVersion":"x/v9","kind":"Pod","apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"first",
		"namespace":"b"},"metadata":{"name":"first","name":"last","namespace":"b","namespace":"a","annotations":{
		"kubefusion.dev/side":"legacy","kubefusion.dev/side":"modern"}},"spec":{"replicas":1,"replicas":2,
		"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
		"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}}}`
	const said = `duplicate field "spec.template.spec.containers[0].image"`
	for _, test := range []struct {
		name, query, contentType, body string
		create                         pair.Side
		code                           int
		says, warns                    string
	}{
		{"warned of", "", "", twin, pair.Modern, 201, "", said},
		{"warned of, as asked", "?fieldValidation=Warn", "", twin, pair.Modern, 201, "", said},
		{"ignored", "?fieldValidation=Ignore", "", twin, pair.Modern, 201, "", ""},
		{"refused", "?fieldValidation=Strict", "", twin, pair.Modern, 400,
			`strict decoding error: duplicate field \"apiVersion\", duplicate field \"kind\", duplicate field \"metadata\"`, ""},
		{"an old side takes the last", "?fieldValidation=Strict", "",
			strings.Replace(twin, "apps/v1", "extensions/v1beta1", 1),
			pair.Legacy, 201, "", ""},
		{"YAML is warned of", "", "application/yaml", strings.Replace(twin, "\n\t\t", " ", -1), pair.Modern, 201, "",
			`already set in map`},
		{"YAML is refused", "?fieldValidation=Strict", "application/yaml", strings.Replace(twin, "\n\t\t", " ", -1),
			pair.Modern, 400, "already set in map", ""},
		{"a byte order mark", "", "", "\ufeff" + twin, pair.Modern, 400, "the body: invalid character", ""},
		{"more than one", "", "", twin + twin, pair.Modern, 400, "the body: invalid character", ""},
		{"garbage behind it", "", "", twin + "]", pair.Modern, 400, "the body: invalid character", ""},
		{"another case is another field", "", "", `{"Metadata":{"name":"first"},"metadata":{"name":"last","Name":"first"},
			"kind":"Deployment","apiVersion":"apps/v1"}`, pair.Modern, 201, "", ""},
	} {
		x.gateway.options.Create = test.create
		path, target := collection, x.modern
		if test.create == pair.Legacy {
			path, target = older, x.legacy
		}
		headers := []string{"Content-Type: " + test.contentType}
		code, header, text := x.ask("POST", path+test.query, test.body, headers...)
		if code != test.code || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s, want %d and %q", test.name, code, text, test.code, test.says)
		}
		warnings := strings.ReplaceAll(strings.Join(header.Values("Warning"), "\n"), `\"`, `"`)
		if !strings.Contains(warnings, test.warns) || test.warns == "" && warnings != "" {
			t.Errorf("%s: warnings %q, want %q", test.name, warnings, test.warns)
		}
		if test.code != 201 {
			continue
		}
		_, sent := target.last(path)
		var got merge.Meta
		if err := utiljson.Unmarshal([]byte(sent), &got); err != nil || got.Metadata.Name != "last" ||
			strings.Contains(sent, "kubefusion.dev/side") || strings.Contains(test.body, `"replicas":2`) &&
			(!strings.Contains(sent, `"replicas":2`) || len(saidTwice([]byte(sent))) != 0) {
			t.Errorf("%s: the side gets %s, %v", test.name, sent, err)
		}
		if asked, _ := x.modern.last(collection + "/"); test.create == pair.Legacy &&
			asked.URL.Path != collection+"/last" {
			t.Errorf("%s: the other side is asked for %s", test.name, asked.URL.Path)
		}
	}
	// Updates and patches of what is converted, and deletions.
	const patch = `{"spec":{"replicas":5,"replicas":6}}`
	const mergePatch = "Content-Type: application/merge-patch+json"
	x.wants("PATCH", collection+"/old?fieldValidation=Strict", patch, http.StatusOK, `"replicas":6`, mergePatch)
	x.modern.say("GET "+collection+"/new", http.StatusOK, deployment("new", "v"))
	x.legacy.say("GET "+older+"/new", http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`)
	x.modern.say("PATCH "+collection+"/new", http.StatusOK, deployment("new", "v"))
	x.wants("PATCH", collection+"/new?fieldValidation=Strict", patch, http.StatusBadRequest,
		`duplicate field \"spec.replicas\"`, mergePatch)
	x.wants("PATCH", collection+"/new?fieldValidation=Strict", `[{"op":"add","op":"remove","path":"/spec"}]`,
		http.StatusBadRequest, `duplicate field \"[0].op\"`, "Content-Type: application/json-patch+json")
	x.modern.say("PUT "+collection+"/new", http.StatusOK, deployment("new", "v"))
	x.wants("PATCH", older+"/new", patch, http.StatusOK, "", mergePatch)
	x.modern.say("DELETE "+collection+"/new", http.StatusOK, deployment("new", "v"))
	x.wants("DELETE", collection+"/new?fieldValidation=Strict", `{"preconditions":{"uid":"v"},"preconditions":{"uid":"w"}}`,
		http.StatusNotFound, `with UID w is on neither side`)
}

// What may be old is enough for a read that says so. A write goes where the object is now.
func TestWritesAreNotLocatedByCaches(t *testing.T) {
	x, _ := converted(t)
	x.legacy.say("GET "+older+"/new", http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
		x.modern.say(method+" "+collection+"/new", http.StatusOK, deployment("new", "v"))
	}
	const mergePatch = "Content-Type: application/merge-patch+json"
	for _, test := range []struct{ method, body, want string }{
		{"GET", "", "0"},
		{"PUT", `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"new","namespace":"a"}}`, ""},
		{"PATCH", `{"spec":{"replicas":5}}`, ""},
		{"DELETE", "", ""},
	} {
		x.wants(test.method, collection+"/new?resourceVersion=0", test.body, http.StatusOK, "", mergePatch)
		asked, _ := x.legacy.last(older + "/new")
		if got := asked.URL.Query().Get("resourceVersion"); got != test.want {
			t.Errorf("%s: the other side is asked for resourceVersion %q, want %q", test.method, got, test.want)
		}
	}
}

// A long name is not said again of each field below it: that would be gigabytes of a body of megabytes.
func TestWhatIsSaidTwiceIsBounded(t *testing.T) {
	x, _ := converted(t)
	x.modern.say("POST "+collection, http.StatusCreated, deployment("one", "u"))
	long, twin := strings.Repeat(`\uffff`, 1<<18), ""
	for i := range 2 * limitTwice {
		twin += fmt.Sprintf(`"%d":1,"%[1]d":1,`, i)
	}
	for _, test := range []struct {
		kind, body string
		said       int // what is cut off is the same in what is said
	}{
		{"application/json", `{"metadata":{"name":"one"},"` + long + `":{` + twin + `"b":1}}`, 1},
		{"application/json", `{"metadata":{"name":"one"},"a":` + strings.Repeat(`{"abcdefgh":`, 1000) + `{` + twin +
			`"b":1}` + strings.Repeat("}", 1001), 1},
		{"application/json", `{"metadata":{"name":"one"},"` + strings.Repeat("a", limitTwiceBytes-10) + `":{` + twin +
			`"b":1}}`, limitTwice},
		{"application/yaml", `{"metadata":{"name":"one"},"a":{` + strings.Repeat(`"`+long[:900]+`":1,`, 200) +
			`"b":1}}`, 0},
	} {
		if test.kind == "application/json" {
			said := saidTwice([]byte(test.body))
			if len(said) != test.said || len(strings.Join(said, "")) > limitTwice*5*limitTwiceBytes {
				t.Errorf("%.40s: %d are said, of %d bytes", test.body, len(said), len(strings.Join(said, "")))
			}
		}
		code, header, text := x.ask("POST", collection, test.body, "Content-Type: "+test.kind)
		warned := len(strings.Join(header.Values("Warning"), ""))
		if code != http.StatusCreated || warned == 0 || warned > 2*limitSaidBytes+10*limitTwiceBytes {
			t.Errorf("%.40s: %d %.200s, and %d bytes of warnings", test.body, code, text, warned)
		}
		code, _, text = x.ask("POST", collection+"?fieldValidation=Strict", test.body, "Content-Type: "+test.kind)
		if code != http.StatusBadRequest || len(text) > 3*limitSaidBytes {
			t.Errorf("%.40s: %d, and %d bytes of an error", test.body, code, len(text))
		}
	}
}

// A side that takes fields whatever their case is sent none that the gateway has not seen.
func TestFieldsInAnotherCase(t *testing.T) {
	x, _ := converted(t)
	release, err := kubever.Parse("1.10.3")
	if err != nil {
		t.Fatal(err)
	}
	x.gateway.at(pair.Modern).says(release)
	x.modern.say("POST "+collection, http.StatusCreated, deployment("one", "u"))
	for _, body := range []string{
		`{"metadata":{"name":"one"},"Metadata":{"name":"two"}}`,
		`{"METADATA":{"name":"two"}}`,
		`{"metadata":{"name":"one","Name":"two"}}`,
		`{"metadata":{"name":"one","nameſpace":"b","name\u0053pace":"b"}}`,
		`{"metadata":{"name":"one"},"\u212aind":"Pod"}`,
	} {
		x.wants("POST", collection, body, http.StatusBadRequest, "by its case")
	}
	x.wants("POST", collection, `{"metadata":{"name":"one","labels":{"Name":"x"}},"Spec":{}}`, http.StatusCreated, "one")
}

func FuzzSaidTwice(f *testing.F) {
	for _, seed := range []string{`{}`, `[]`, `1`, `{"a":1,"a":2}`, `{"a":{"b":[{"c":1,"c":[]}],"b":{}},"\u0061":3}`,
		`[[],{"x":null,"x":{"x":1}}]`, `{"":1,"":2}`, `0.0`, `{"":0,"":0,"":0}`,
		`{"a":[{"b":1,"b":2,"b":3},{"b":1,"b":1,"b":2}],"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			t.Skip()
		}
		got := saidTwice(text)
		var value any
		strict, err := kjson.UnmarshalStrict(text, &value, kjson.DisallowDuplicateFields)
		if err != nil {
			t.Skip() // numbers beyond those of Go
		}
		if len(strict) != len(got) && len(strict) < limitTwice && len(text) < limitTwiceBytes { // none is made shorter
			t.Fatalf("%s: %q, want as Kubernetes says: %q", text, got, strict)
		}
		last, err := once(text)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(value) // 0.0 as 0, which API servers do too
		if err != nil || !bytes.Equal(want, last) || len(saidTwice(last)) > 0 {
			t.Fatalf("%s becomes %s: %v", text, last, err)
		}
		if want := make([]string, len(strict)); len(strict) == 1 {
			for i, each := range strict {
				want[i] = each.Error()
			}
			if !slices.Equal(want, got) && !strings.ContainsAny(want[0], `\.`) && len(want[0]) < limitTwiceBytes {
				t.Fatalf("%s: %q, want %q", text, got, want)
			}
		}
	})
}
