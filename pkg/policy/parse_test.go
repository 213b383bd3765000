package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// TestParseReadsWhatTheServerReads lists lines with the outcome that the server's own reader has; the nested module
// test/abacdiff runs both on generated files.
func TestParseReadsWhatTheServerReads(t *testing.T) {
	everything := Rule{Group: GroupAuthenticated, APIGroup: "*", Resource: "*", Namespace: "*", NonResourcePath: "*"}
	v1 := func(spec string) string {
		return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":` + spec + `}`
	}
	tests := []struct {
		name, line string
		want       Rule // zero: no rule
		err        string
	}{
		{"blank", "   \t", Rule{}, ""},
		{"comment", "  # {", Rule{}, ""},
		{"carriage return", v1(`{"user":"a"}`) + "\r", Rule{User: "a"}, ""},
		{"all fields",
			v1(`{"user":"a","group":"g","readonly":true,"apiGroup":"x","resource":"r","namespace":"n","nonResourcePath":"/p"}`),
			Rule{User: "a", Group: "g", Readonly: true, APIGroup: "x", Resource: "r", Namespace: "n",
				NonResourcePath: "/p"}, ""},
		{"user star", v1(`{"user":"*","group":"g","resource":"r"}`), Rule{Group: GroupAuthenticated, Resource: "r"},
			""},
		{"group star", v1(`{"user":"u","group":"*","resource":"r"}`), Rule{Group: GroupAuthenticated, Resource: "r"},
			""},
		{"mis-cased field", v1(`{"user":"a","readOnly":true}`), Rule{User: "a"}, ""},
		{"mis-cased kind is read",
			`{"APIVERSION":"abac.authorization.kubernetes.io/v1beta1","KIND":"Policy","spec":{"user":"a"}}`,
			Rule{User: "a"}, ""},
		{"mis-cased spec",
			`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","Spec":{"user":"a"}}`, Rule{},
			""},
		{"last of two keys", v1(`{"user":"a","user":"b"}`), Rule{User: "b"}, ""},
		{"second spec is merged",
			`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"a"},"spec":{"group":"b"}}`, Rule{User: "a", Group: "b"}, ""},
		{"literal everybody",
			`{"apiVersion":"abac.authorization.kubernetes.io/__internal","kind":"Policy","Spec":{"User":"*","Resource":"r"}}`, Rule{User: "*", Resource: "r"}, ""},
		{"unversioned", `{"kind":"Policy","spec":{"user":"alice"}}`, everything, ""},
		{"empty object", `{}`, everything, ""},
		{"null", `null`, everything, ""},
		{"group without version", `{"apiVersion":"abac.authorization.kubernetes.io/","kind":"Policy"}`, everything, ""},
		{"version 0 needs no kind", `{"apiVersion":"abac.authorization.kubernetes.io/v0"}`, everything, ""},
		{"version 0, user", `{"user":"a","namespace":"n"}`,
			Rule{User: "a", APIGroup: "*", Resource: "*", Namespace: "n"}, ""},
		{"version 0, resource", `{"group":"a","resource":"r","readonly":true}`,
			Rule{Group: "a", Readonly: true, APIGroup: "*", Resource: "r", Namespace: "*"}, ""},
		{"YAML", `user: mallory`, Rule{User: "mallory", APIGroup: "*", Resource: "*", Namespace: "*",
			NonResourcePath: "*"}, ""},
		{"YAML after a byte order mark", "\uFEFF" + v1(`{"user":"a"}`), Rule{User: "a"}, ""},
		{"byte not UTF-8", v1("{\"user\":\"a\xff\"}"), Rule{User: "a\uFFFD"}, ""},

		{"missing kind", `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","spec":{"user":"a"}}`, Rule{},
			`kind is missing: want "Policy"`},
		{"wrong kind", `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Rule"}`, Rule{},
			`kind "Rule": want "Policy"`},
		{"wrong version", `{"apiVersion":"abac.authorization.kubernetes.io/v1","kind":"Policy"}`, Rule{},
			`apiVersion "abac.authorization.kubernetes.io/v1": want`},
		{"wrong type", v1(`{"user":7}`), Rule{}, "spec.user: want a string, not a number"},
		{"trailing comment", v1(`{"user":"a"}`) + " # a", Rule{}, "invalid character '#'"},
		{"two objects", v1(`{}`) + v1(`{}`), Rule{}, "invalid character '{'"},
		{"array", `[]`, Rule{}, "cannot unmarshal array"},
		{"half an object", `{`, Rule{}, "unexpected end of JSON input"},
		{"protobuf", "k8s\x00\x0a", Rule{}, ""},
		{"too long", v1(`{"user":"` + strings.Repeat("a", maxLineBytes) + `"}`), Rule{}, "line too long"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rules, err := Parse("p.jsonl", strings.NewReader("\n"+test.line+"\n"))
			if test.err != "" || test.name == "protobuf" {
				var syntax *SyntaxError
				if !errors.As(err, &syntax) || syntax.Line != 2 || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("Parse = %v, %v, want a *SyntaxError at line 2 with %q", rules, err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []Rule
			if test.want != (Rule{}) || strings.HasPrefix(test.name, "mis-cased spec") {
				test.want.Line = 2
				want = append(want, test.want)
			}
			if diff := cmp.Diff(want, rules); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseReportsEveryBadLineUpToTheTwentieth(t *testing.T) {
	_, err := Parse("p.jsonl", strings.NewReader("[]\n{}\n[]\n"))
	if got := err.Error(); !strings.Contains(got, "p.jsonl:1: ") || !strings.Contains(got, "\np.jsonl:3: ") {
		t.Errorf("Parse of two bad lines = %q, want both", got)
	}
	_, err = Parse("p.jsonl", strings.NewReader(strings.Repeat("[]\n", 1000)))
	if got := strings.Count(err.Error(), "\n"); got != maxReportedLines {
		t.Errorf("Parse of 1000 bad lines: %d lines of errors, want %d", got+1, maxReportedLines+1)
	}
}

func TestParseHoldsOneLine(t *testing.T) {
	zeros := &endless{}
	_, err := Parse("zeros", zeros)
	if err == nil || !strings.Contains(err.Error(), "zeros:1: line too long") {
		t.Errorf("Parse of an endless line = %v, want line too long", err)
	}
	if zeros.bytes > 2*maxLineBytes {
		t.Errorf("Parse read %d bytes of an endless line, want at most %d", zeros.bytes, 2*maxLineBytes)
	}
}

// endless is a file of zero bytes without end.
type endless struct{ bytes int }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.bytes += len(p)
	return len(p), nil
}

func TestParseWrapsTheErrorOfItsReader(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Parse("p", iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("Parse = %v, want to wrap the reader's error", err)
	}
}

// FuzzParse checks that whatever Parse accepts, Format prints in a form that means the same and stays the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(
		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"a","resource":"r"}}`))
	f.Add([]byte("{}\n# comment\n\r\nuser: x\n"))
	f.Add([]byte("\uFEFFnull"))
	f.Add([]byte(`{"apiVersion":"abac.authorization.kubernetes.io/__internal","kind":"Policy","Spec":{"User":"*"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := Parse("fuzz", bytes.NewReader(data))
		if err != nil {
			return
		}
		printed := Format([]Section{{Rules: rules}})
		again, err := Parse("printed", bytes.NewReader(printed))
		if err != nil {
			t.Fatalf("Parse of printed rules: %v\n%s", err, printed)
		}
		if diff := cmp.Diff(bares(rules), bares(again)); diff != "" {
			t.Fatalf("Parse, Format, Parse (-first +second):\n%s", diff)
		}
	})
}

func bares(rules []Rule) []Rule {
	bare := make([]Rule, len(rules))
	for i, r := range rules {
		bare[i] = r.bare()
	}
	return bare
}

// TestLinesHaveOneMeaning: what servers of some releases read as fields, and others ignore, is refused where an answer
// is to hold for all of them.
func TestLinesHaveOneMeaning(t *testing.T) {
	const head, internal = `"apiVersion":"` + APIVersion + `","kind":"Policy"`,
		`"apiVersion":"` + internalAPIVersion + `","kind":"Policy"`
	for text, field := range map[string]string{
		`{` + head + `,"spec":{"User":"alice","resource":"pods"}}`:                 "User",
		`{` + head + `,"spec":{"user":"alice","resource":"pods","readOnly":true}}`: "readOnly",
		`{` + head + `,"Spec":{"user":"alice","resource":"pods"}}`:                 "Spec",
		`{"USER":"alice"}`: "USER",
		`--- {` + head + `,"spec":{"user":"alice","Namespace":"a"}}`: "Namespace",
		`{` + internal + `,"Spec":{"user":"alice"}}`:                 "user",
		`{` + internal + `,"Spec":{"User":"alice","APIGroup":"*"}}`:  "",
		`{` + head + `,"spec":{"user":"alice","uzer":"bob"},"x":1}`:  "",
		`{` + head + `,"spec":null}`:                                 "",
		`{` + head + `,"spec":{"User":"alice"},"spec":{"user":"a"}}`: "User",
		`{` + head + `,"spec":{"User":"alice"},"spec":null}`:         "User",
		`{"user":"alice","Kind":""}`:                                 "",
	} {
		if _, err := Parse("p", strings.NewReader(text)); err != nil {
			t.Errorf("%s: Parse = %v, want what most servers read", text, err)
		}
		_, err := ParseOneMeaning("p", strings.NewReader("# one\n"+text))
		if want := fmt.Sprintf("p:2: field %q: ", field); (err != nil) != (field != "") || err != nil &&
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: ParseOneMeaning = %v, want %q", text, err, want)
		}
	}
}
