package policy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func event(user, groups, verb, rest string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":%q,"user":{"username":%q,"groups":[%s]},%s}`, verb, user, groups, rest)
}

func usage(t *testing.T, options UsageOptions, lines ...string) *Usage {
	t.Helper()
	u := NewUsage(options)
	if err := ReadAudit("audit.log", strings.NewReader(strings.Join(lines, "\n")), u.Add); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestUsageBecomesTheSmallestPolicy(t *testing.T) {
	ok := `"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}`
	pods := func(namespace string) string {
		return `"requestURI":"/api/v1/x","objectRef":{"resource":"pods","namespace":"` + namespace +
			`","apiVersion":"v1"},`
	}
	lines := []string{
		event("alice", `"devs","system:authenticated"`, "get", pods("a")+ok),
		event("alice", `"devs","system:authenticated"`, "list", pods("a")+ok),
		event("alice", `"devs","system:authenticated"`, "create",
			`"objectRef":{"resource":"deployments","apiGroup":"apps","namespace":"a","subresource":"scale"},`+ok),
		event("alice", `"devs","system:authenticated"`, "get",
			`"objectRef":{"resource":"deployments","apiGroup":"apps","namespace":"a"},`+ok),
		event("alice", `"devs","system:authenticated"`, "get", `"requestURI":"/apis/apps/v1?timeout=32s",`+ok),
		event("alice", `"devs","system:authenticated"`, "get", `"requestURI":"/version",`+ok),
		"",
		// refused by authorization, refused by admission after authorization, refused without the annotation
		event("bob", "", "get",
			pods("a")+`"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}`),
		event("bob", "", "create",
			pods("b")+`"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"allow"}`),
		event("bob", "", "delete", pods("c")+`"responseStatus":{"code":403}`),
		// a request before its decision, a watch at its start and at its end
		strings.Replace(event("carol", "", "watch", pods("a")+ok), "ResponseComplete", "RequestReceived", 1),
		strings.Replace(event("carol", "", "watch", pods("a")+ok), "ResponseComplete", "ResponseStarted", 1),
		event("carol", "", "watch", pods("a")+ok),
		// who needs no policy, and what no rule can say alone
		event("root", `"system:masters"`, "delete", pods("a")+ok),
		event("*", "", "get", pods("a")+ok),
		event("dave", "", "get", `"requestURI":"/*",`+ok),
		// impersonation
		event("erin", "", "get",
			pods("a")+`"impersonatedUser":{"username":"system:serviceaccount:ci:bot","groups":["system:serviceaccounts","system:serviceaccounts:ci","system:authenticated"]},`+ok),
		event("erin", "", "get",
			pods("a")+`"impersonatedUser":{"username":"alice","groups":["ops","system:authenticated"],"extra":{"scopes":["x"]}},`+ok),
	}
	u := usage(t, UsageOptions{}, lines...)
	want := `# user "alice": requests: 7.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","apiGroup":"","resource":"pods","namespace":"a","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","apiGroup":"apps","resource":"deployments","namespace":"a"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","nonResourcePath":"/apis/*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","nonResourcePath":"/version","readonly":true}}

# user "bob": requests: 1.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"bob","apiGroup":"","resource":"pods","namespace":"b"}}

# user "carol": requests: 1.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"carol","apiGroup":"","resource":"pods","namespace":"a","readonly":true}}

# user "erin": requests: 4.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"erin","apiGroup":"","resource":"groups","namespace":""}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"erin","apiGroup":"","resource":"serviceaccounts","namespace":"ci"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"erin","apiGroup":"","resource":"users","namespace":""}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"erin","apiGroup":"authentication.k8s.io","resource":"userextras","namespace":""}}

# user "system:serviceaccount:ci:bot": requests: 1.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"system:serviceaccount:ci:bot","apiGroup":"","resource":"pods","namespace":"a","readonly":true}}
`
	if diff := cmp.Diff(want, string(Format(u.Policy()))); diff != "" {
		t.Errorf("Policy (-want +got):\n%s", diff)
	}
	if u.Refused != 2 || u.Privileged != 1 || u.Undecided != 1 || len(u.Unspeakable) != 2 {
		t.Errorf("counts: %d refused, %d privileged, %d undecided, unspeakable %v; want 2, 1, 1 and two", u.Refused,
			u.Privileged, u.Undecided, u.Unspeakable)
	}
	// What was used is allowed by the policy, all of it.
	index := NewAuthorizer(Rules(u.Policy()))
	err := ReadAudit("audit.log", strings.NewReader(strings.Join(lines, "\n")), func(e AuditEvent) error {
		requests, allowed := e.Requests()
		for _, q := range requests {
			if _, ok := index.Match(q.Attributes()); !ok && allowed && q.User != "root" && q.speakable() {
				t.Errorf("%v was used and is not allowed", q)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUsageIsGivenToGroupsAndEveryNamespace(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, event(fmt.Sprintf("system:node:n%d", i), `"system:nodes","system:authenticated"`, "get",
			fmt.Sprintf(`"objectRef":{"resource":"secrets","namespace":"team-%d"},"responseStatus":{"code":200}`, i)))
	}
	rules := Rules(usage(t, UsageOptions{Groups: []string{"system:nodes"}, MaxNamespaces: 10}, lines...).Policy())
	want := []Rule{{Group: "system:nodes", Resource: "secrets", Namespace: "*", Readonly: true}}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("Policy (-want +got):\n%s", diff)
	}
	if rules := Rules(usage(t, UsageOptions{}, lines...).Policy()); len(rules) != 20 {
		t.Errorf("Policy without groups: %d rules, want 20", len(rules))
	}
}

func TestReadAuditReadsGzipAndLists(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	fmt.Fprintf(w, `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[%s,%s]}`,
		event("a", "", "get", `"requestURI":"/x"`), event("b", "", "get", `"requestURI":"/x"`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var users []string
	err := ReadAudit("a.gz", &zipped, func(e AuditEvent) error {
		users = append(users, e.User.Username)
		return nil
	})
	if err != nil || strings.Join(users, ",") != "a,b" {
		t.Errorf("ReadAudit of a compressed list = %v, %v, want a and b", users, err)
	}
}

// TestReadAuditReadsObjectsOfAlpha: there, the version of an object has its group before it.
func TestReadAuditReadsObjectsOfAlpha(t *testing.T) {
	alpha := func(kind, rest string) string {
		return `{"kind":"` + kind + `","apiVersion":"audit.k8s.io/v1alpha1",` + rest + `}`
	}
	const item = `"stage":"ResponseComplete","verb":"get","timestamp":"2018-02-03T04:05:06Z","objectRef":{"resource":"x",`
	for text, want := range map[string][2]string{
		alpha("Event", item+`"apiVersion":"restaurant.example/v1alpha1"}`):              {"restaurant.example", "v1alpha1"},
		alpha("EventList", `"items":[{`+item+`"apiVersion":"a.example/v1"}}]`):          {"a.example", "v1"},
		alpha("Event", item+`"apiVersion":"v1"}`):                                       {"", "v1"},
		alpha("Event", item+`"apiGroup":"a.example","apiVersion":"v1"}`):                {"a.example", "v1"},
		event("a", "", "get", `"objectRef":{"apiGroup":"a.example","apiVersion":"v1"}`): {"a.example", "v1"},
	} {
		visited := 0
		err := ReadAudit("log", strings.NewReader(text), func(e AuditEvent) error {
			visited++
			if got := [2]string{e.ObjectRef.APIGroup, e.ObjectRef.APIVersion}; got != want {
				t.Errorf("%s: an object of %q, want %q", text, got, want)
			}
			if strings.Contains(text, "v1alpha1") && e.Timestamp.IsZero() {
				t.Errorf("%s: no time", text)
			}
			return nil
		})
		if err != nil || visited != 1 {
			t.Errorf("%s: %d events, %v; want one", text, visited, err)
		}
	}
}

func TestReadAuditRefusesWhatIsNoLog(t *testing.T) {
	stop := errors.New("stop")
	for text, want := range map[string]string{
		"{}":                      "log:1: not an audit event: apiVersion",
		"\n2018-01-01 AUDIT: id=": "log:2: not an audit event in JSON",
		`{"apiVersion":"audit.k8s.io/v1","verb":7}`: "log:1: not an audit event in JSON: verb: want a string",
		"\x1f\x8bnot gzip":                          "reading log",
		event("a", "", "get", `"requestURI":"/x"`):  "stop",
	} {
		err := ReadAudit("log", strings.NewReader(text), func(AuditEvent) error { return stop })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadAudit(%q) = %v, want an error with %q", text, err, want)
		}
	}
	blank := &repeated{text: strings.Repeat("\n", 1000), times: 10_000}
	if err := ReadAudit("blank", blank, func(AuditEvent) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "blank lines") {
		t.Errorf("ReadAudit of ten million blank lines = %v, want that it is no audit log", err)
	}
	if err := ReadAudit("zeros", &endless{}, func(AuditEvent) error {
		return nil
	}); err == nil || !strings.Contains(err.Error(), "zeros:1: an event of more than") {
		t.Errorf("ReadAudit of an endless line = %v, want an error that names the limit", err)
	}
}

// TestUsageMemoryDoesNotGrowWithRequests reads 200,000 events of one kind without keeping them.
func TestUsageMemoryDoesNotGrowWithRequests(t *testing.T) {
	line := event("alice", `"devs"`, "get",
		`"objectRef":{"resource":"pods","namespace":"a"},"responseStatus":{"code":200}`) + "\n"
	u := NewUsage(UsageOptions{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := ReadAudit("log", &repeated{text: line, times: 200_000}, u.Add); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 || u.Requests != 200_000 {
		t.Errorf("after %d requests %d bytes are held, want 200000 and less than 4 MiB", u.Requests, grown)
	}
}

// TestReadAuditHoldsOneEvent reads a line that lists a million events.
func TestReadAuditHoldsOneEvent(t *testing.T) {
	const events = 1_000_000
	line := `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{}` + strings.Repeat(",{}", events-1) + `]}`
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	visited := 0
	err := ReadAudit("log", strings.NewReader(line), func(AuditEvent) error {
		if visited++; visited == events {
			runtime.GC()
			runtime.ReadMemStats(&during)
		}
		return nil
	})
	if held := int64(during.HeapAlloc) - int64(before.HeapAlloc); err != nil || visited != events || held > 64<<20 {
		t.Errorf("%d events, %v, %d bytes are held at the last; want %d and less than 64 MiB", visited, err, held,
			events)
	}
}

func TestReadAuditRefusesBadLists(t *testing.T) {
	for items, want := range map[string]string{
		`[{"verb":"get"},{"verb":7}]`: "log:1: not an audit event in JSON: items: verb: want a string",
		`{}`:                          "log:1: not an audit event in JSON: items: want a list",
		`null`:                        "",
		`[]`:                          "",
	} {
		text := `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":` + items + `}`
		err := ReadAudit("log", strings.NewReader(text), func(AuditEvent) error { return nil })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ReadAudit of items %s = %v, want %q", items, err, want)
		}
	}
}

// repeated is a file with the same text many times.
type repeated struct {
	text  string
	times int
	at    int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.times > 0 {
		copied := copy(p[n:], r.text[r.at:])
		n += copied
		if r.at += copied; r.at == len(r.text) {
			r.at = 0
			r.times--
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestNoCommentBecomesARule: names of an audit log are in comments, and a policy has one rule for each line.
func TestNoCommentBecomesARule(t *testing.T) {
	const everything = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"eve","apiGroup":"*","resource":"*","namespace":"*"}}`
	for _, end := range []string{"\n", "\r\n", "\r", "\v", "\f", "\u0085", "\u2028", "\u2029"} {
		text := Format([]Section{{Comment: "eve" + end + everything + end + everything,
			Rules: []Rule{{User: "alice" + end + everything, Resource: "pods", Namespace: "a"}}}})
		rules, err := Parse("policy.jsonl", bytes.NewReader(text))
		if err != nil || len(rules) != 1 || rules[0].User != "alice"+end+everything {
			t.Errorf("a line that ends with %q: %v, %+v", end, err, rules)
		}
	}
}
