package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubefusion/fusionctl/pkg/policy"
)

func line(spec string) string {
	return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{` + spec + "}}\n"
}

func handler(t *testing.T, deny bool, text string) *Handler {
	t.Helper()
	rules, err := policy.Parse("p.jsonl", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiled := Policy{Name: "p.jsonl", Authorizer: policy.NewAuthorizer(rules)}
	return &Handler{Policy: func() Policy { return compiled }, Deny: deny, Metrics: NewMetrics(prometheus.NewRegistry())}
}

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/authorize", strings.NewReader(body)))
	return w
}

func TestHandlerAnswersInTheVersionOfTheQuestion(t *testing.T) {
	text := line(`"group":"devs","resource":"pods","namespace":"a","readonly":true`) + line(`"user":"alice","nonResourcePath":"/metrics","readonly":true`)
	const v1, v1beta1 = "authorization.k8s.io/v1", "authorization.k8s.io/v1beta1"
	resource := `"resourceAttributes":{"verb":%q,"group":"","version":"v1","resource":"pods","subresource":"log","namespace":"a","name":"x"}`
	tests := []struct {
		name, version, spec string
		deny                bool
		want                authorizationv1.SubjectAccessReviewStatus
	}{
		{"v1", v1, `"user":"bob","groups":["devs"],` + fmt.Sprintf(resource, "get"), false, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:1"}},
		{"v1beta1 has group", v1beta1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "list"), false, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:1"}},
		{"v1 has no group", v1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "get"), false, authorizationv1.SubjectAccessReviewStatus{Reason: "no rule of p.jsonl allows it"}},
		{"write", v1, `"user":"bob","groups":["devs"],` + fmt.Sprintf(resource, "delete"), false, authorizationv1.SubjectAccessReviewStatus{Reason: "no rule of p.jsonl allows it"}},
		{"denied", v1beta1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "delete"), true, authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no rule of p.jsonl allows it"}},
		{"path", v1, `"user":"alice","nonResourceAttributes":{"path":"/metrics","verb":"get"}`, false, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := post(handler(t, test.deny, text), fmt.Sprintf(`{"apiVersion":%q,"kind":"SubjectAccessReview","spec":{%s}}`, test.version, test.spec))
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("answer %d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
			}
			var got struct {
				APIVersion, Kind string
				Status           authorizationv1.SubjectAccessReviewStatus
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.APIVersion != test.version || got.Kind != "SubjectAccessReview" || got.Status != test.want {
				t.Errorf("answer %s, want %s %+v", w.Body, test.version, test.want)
			}
		})
	}
}

func TestHandlerNeverDecidesWhatItCannotRead(t *testing.T) {
	h := handler(t, false, line(`"group":"system:authenticated","apiGroup":"*","resource":"*","namespace":"*","nonResourcePath":"*"`))
	for name, body := range map[string]string{
		"empty":       "",
		"not JSON":    "{",
		"other kind":  `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}`,
		"version":     `{"apiVersion":"authorization.k8s.io/v2","kind":"SubjectAccessReview","spec":{}}`,
		"neither":     `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"a"}}`,
		"both":        `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"resourceAttributes":{},"nonResourceAttributes":{"path":"/"}}}`,
		"empty path":  `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{"verb":"get"}}}`,
		"wrong type":  `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":7,"resourceAttributes":{}}}`,
		"a megabyte":  `{"apiVersion":"authorization.k8s.io/v1","kind":"` + strings.Repeat("x", reviewLimitBytes) + `"}`,
		"wrong types": `{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":[]}`,
	} {
		if w := post(h, body); w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), "allowed") {
			t.Errorf("%s: answer %d %s, want 400 without a decision", name, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/authorize", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: answer %d, want 405", w.Code)
	}
	if got := testutil.ToFloat64(h.Metrics.bad); got != 11 {
		t.Errorf("bad reviews counted: %v, want 11", got)
	}
}

// file is a policy file that a test rewrites; every write moves its time on, as a clock would.
type file struct {
	path string
	time time.Time
}

func (f *file) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.time = f.time.Add(time.Second)
	if err := os.Chtimes(f.path, f.time, f.time); err != nil {
		t.Fatal(err)
	}
}

func TestSourceKeepsTheLastGoodPolicy(t *testing.T) {
	f := &file{filepath.Join(t.TempDir(), "policy"), time.Now()}
	f.write(t, line(`"user":"alice","resource":"configmaps","namespace":"a"`))
	metrics := NewMetrics(prometheus.NewRegistry())
	s, err := Open(f.path, false, metrics)
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(user string) bool {
		q := policy.Request{User: user, Verb: "get", Resource: "configmaps", Namespace: "a"}
		_, ok := s.Policy().Authorizer.Match(q.Attributes())
		return ok
	}
	check := func(step string, wantLoaded, wantErr bool, wantUser string, wantGood float64) {
		t.Helper()
		loaded, err := s.Check()
		if loaded != wantLoaded || (err != nil) != wantErr {
			t.Fatalf("%s: Check = %v, %v, want loaded %v, error %v", step, loaded, err, wantLoaded, wantErr)
		}
		for _, user := range []string{"alice", "bob", "carol"} {
			if allowed(user) != (user == wantUser) {
				t.Fatalf("%s: %s allowed: %v, want only %s", step, user, allowed(user), wantUser)
			}
		}
		if got := testutil.ToFloat64(metrics.good); got != wantGood {
			t.Fatalf("%s: metric file_good = %v, want %v", step, got, wantGood)
		}
	}
	check("nothing changed", false, false, "alice", 1)

	f.write(t, line(`"user":"bob","resource":"configmaps","namespace":"a"`))
	check("just changed", false, false, "alice", 1)
	check("stayed the same", true, false, "bob", 1)

	f.write(t, "{\n")
	check("just broken", false, false, "bob", 1)
	check("broken", false, true, "bob", 0)
	check("still broken, reported once", false, false, "bob", 0)

	f.write(t, `{"kind":"Policy","spec":{"user":"mallory"}}`)
	check("just dangerous", false, false, "bob", 0)
	check("dangerous: it allows everything", false, true, "bob", 0)

	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	check("gone", false, true, "bob", 0)
	check("still gone", false, false, "bob", 0)

	f.write(t, line(`"user":"carol","resource":"configmaps","namespace":"a"`))
	check("back", false, false, "bob", 0)
	check("back and the same", true, false, "carol", 1)

	// Written in place, a bit more at every look: half of it is never in use.
	for i := range 4 {
		f.write(t, strings.Repeat("#\n", i))
		check("being written", false, false, "carol", 1)
	}
}

func TestOpenRefusesWhatIsNotGood(t *testing.T) {
	dir := t.TempDir()
	dangerous := filepath.Join(dir, "dangerous")
	if err := os.WriteFile(dangerous, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file    string
		lenient bool
		want    string
	}{
		"missing":              {filepath.Join(dir, "missing"), false, "no such file"},
		"directory":            {dir, false, "want a file"},
		"allows everything":    {dangerous, false, "FUS150"},
		"allowed when lenient": {dangerous, true, ""},
	} {
		_, err := Open(test.file, test.lenient, NewMetrics(prometheus.NewRegistry()))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Open = %v, want %q", name, err, test.want)
		}
	}
}
