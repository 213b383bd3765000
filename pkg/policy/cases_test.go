package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCasesAreReadFromEveryForm(t *testing.T) {
	want := []Case{
		{Name: "one", Request: Request{User: "alice", Groups: []string{"devs"}, Verb: "get", Resource: "pods",
			Namespace: "a"}, Want: WantAllow},
		{Name: "case 2", Request: Request{User: "bob", Verb: "get", Path: "/metrics"}, Want: WantDeny},
	}
	for name, text := range map[string]string{
		"JSON lines": `{"name":"one","user":"alice","groups":["devs"],"verb":"get","resource":"pods","namespace":"a","want":"allow"}
{"user":"bob","verb":"get","path":"/metrics","want":"deny"}
`,
		"JSON list": `[{"name":"one","user":"alice","groups":["devs"],"verb":"get","resource":"pods","namespace":"a","want":"allow"},{"user":"bob","verb":"get","path":"/metrics","want":"deny"}]`,
		"YAML list": "# cases\n- {name: one, user: alice, groups: [devs], verb: get, resource: pods, namespace: a, " +
			"want: allow}\n- {user: bob, verb: get, path: /metrics, want: deny}\n",
		"documents": "---\nname: one\nuser: alice\ngroups: [devs]\nverb: get\nresource: pods\nnamespace: a\nwant: " +
			"allow\n---\nuser: bob\nverb: get\npath: /metrics\nwant: deny\n",
	} {
		got, err := ParseCases("cases", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseCasesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "cases: no cases in it",
		"- {user: a, verb: get, resource: pods, want: yes}":         `want`,
		"- {user: a, resource: pods, want: allow}":                  "case 1 (case 1): no verb",
		"- {user: a, verb: get, want: allow}":                       "neither resource nor path",
		"- {user: a, verb: get, path: /x, resource: p, want: deny}": "a path and a resource",
		"- {verb: get, path: /x, want: deny}":                       "neither user nor groups",
		"- {name: x, user: a, verb: get, ressource: p, want: deny}": `unknown field "ressource"`,
		"{\"user\": ":           "case 1",
		"- - a":                 "case 1",
		"- {name: no, user: a}": "name: want a string, not a bool",
		"\xff\xfe\x00\x01":      "cases",
	} {
		if _, err := ParseCases("cases", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCases(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestRunCasesAddsTheGroupsOfAServer(t *testing.T) {
	index := NewAuthorizer([]Rule{
		{Group: GroupAuthenticated, Resource: "pods", Namespace: "*", Line: 1},
		{Group: "system:serviceaccounts:ci", Resource: "secrets", Namespace: "*", Line: 2},
		{Group: GroupUnauthenticated, NonResourcePath: "/healthz", Line: 3},
	})
	cases := []Case{
		{Name: "user", Request: Request{User: "alice", Verb: "get", Resource: "pods"}, Want: WantAllow},
		{Name: "account", Request: Request{User: "system:serviceaccount:ci:bot", Verb: "get", Resource: "secrets"},
			Want: WantAllow},
		{Name: "anonymous", Request: Request{User: UserAnonymous, Verb: "get", Path: "/healthz"}, Want: WantAllow},
		{Name: "anonymous pods", Request: Request{User: UserAnonymous, Verb: "get", Resource: "pods"}, Want: WantDeny},
	}
	for i, r := range RunCases(index, cases, false) {
		if wantLine := []int{1, 2, 3, 0}[i]; !r.Passed || r.Line != wantLine {
			t.Errorf("%s: got %v by line %d, want %v by line %d", r.Case.Name, r.Got, r.Line, r.Case.Want, wantLine)
		}
	}
	for i, r := range RunCases(index, cases, true) {
		if wantPassed := i == 3; r.Passed != wantPassed {
			t.Errorf("%s with exactly its groups: passed %v, want %v", r.Case.Name, r.Passed, wantPassed)
		}
	}
}
