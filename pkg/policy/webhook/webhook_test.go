package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubefusion/fusionctl/internal/webserver"
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
	return &Handler{Policy: func() Policy {
		return compiled
	}, Deny: deny, Metrics: NewMetrics(prometheus.NewRegistry())}
}

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/authorize", strings.NewReader(body)))
	return w
}

func TestHandlerAnswersInTheVersionOfTheQuestion(t *testing.T) {
	text := line(`"group":"devs","resource":"pods","namespace":"a","readonly":true`) +
		line(`"user":"alice","nonResourcePath":"/metrics","readonly":true`)
	const v1, v1beta1 = "authorization.k8s.io/v1", "authorization.k8s.io/v1beta1"
	resource := `"resourceAttributes":{"verb":%q,"group":"","version":"v1","resource":"pods","subresource":"log","namespace":"a","name":"x"}`
	tests := []struct {
		name, version, spec string
		deny                bool
		want                authorizationv1.SubjectAccessReviewStatus
	}{
		{"v1", v1, `"user":"bob","groups":["devs"],` + fmt.Sprintf(resource, "get"), false,
			authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:1"}},
		{"v1beta1 has group", v1beta1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "list"), false,
			authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:1"}},
		{"v1 has no group", v1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "get"), false,
			authorizationv1.SubjectAccessReviewStatus{Reason: "no rule of p.jsonl allows it"}},
		{"write", v1, `"user":"bob","groups":["devs"],` + fmt.Sprintf(resource, "delete"), false,
			authorizationv1.SubjectAccessReviewStatus{Reason: "no rule of p.jsonl allows it"}},
		{"denied", v1beta1, `"user":"bob","group":["devs"],` + fmt.Sprintf(resource, "delete"), true,
			authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no rule of p.jsonl allows it"}},
		{"path", v1, `"user":"alice","nonResourceAttributes":{"path":"/metrics","verb":"get"}`, false,
			authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "p.jsonl:2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := post(handler(t, test.deny, text),
				fmt.Sprintf(`{"apiVersion":%q,"kind":"SubjectAccessReview","spec":{%s}}`, test.version, test.spec))
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
	h := handler(t, false,
		line(`"group":"system:authenticated","apiGroup":"*","resource":"*","namespace":"*","nonResourcePath":"*"`))
	for name, body := range map[string]string{
		"empty":      "",
		"not JSON":   "{",
		"other kind": `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}`,
		"version":    `{"apiVersion":"authorization.k8s.io/v2","kind":"SubjectAccessReview","spec":{}}`,
		"neither":    `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"a"}}`,
		"both":       `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"resourceAttributes":{},"nonResourceAttributes":{"path":"/"}}}`,
		"empty path": `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{"verb":"get"}}}`,
		"wrong type": `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":7,"resourceAttributes":{}}}`,
		"a megabyte": `{"apiVersion":"authorization.k8s.io/v1","kind":"` + strings.Repeat("x", reviewLimitBytes) +
			`"}`,
		"wrong types": `{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":[]}`,
	} {
		want := http.StatusBadRequest
		if name == "a megabyte" {
			want = http.StatusRequestEntityTooLarge
		}
		if w := post(h, body); w.Code != want || strings.Contains(w.Body.String(), "allowed") {
			t.Errorf("%s: answer %d %s, want %d without a decision", name, w.Code, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/authorize", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: answer %d, want 405", w.Code)
	}
	if got := testutil.ToFloat64(h.Metrics.Bad); got != 11 {
		t.Errorf("bad reviews counted: %v, want 11", got)
	}
}

// TestReviewsTakeBoundedMemory: a megabyte of empty requirements, of which a user asks about itself, took 50 MiB.
func TestReviewsTakeBoundedMemory(t *testing.T) {
	h := handler(t, false, line(`"group":"devs","resource":"pods","namespace":"a","readonly":true`))
	const clients = 16
	h.Slots, h.Memory = webserver.NewSlots(clients), webserver.NewBudget(webserver.DefaultBytes)
	many := func(value string) string {
		return strings.TrimSuffix(strings.Repeat(value+",", (reviewLimitBytes-1024)/(len(value)+1)), ",")
	}
	for name, spec := range map[string]string{
		"requirements": `"resourceAttributes":{"labelSelector":{"requirements":[` + many("{}") + `]}}`,
		"groups":       `"groups":[` + many(`""`) + `],"nonResourceAttributes":{"path":"/x","verb":"get"}`,
	} {
		body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{%s}}`, spec)
		runtime.GC()
		stop, peak := make(chan struct{}), make(chan uint64, 1)
		go func() { peak <- peakHeap(stop) }()
		var group sync.WaitGroup
		for range clients {
			group.Go(func() { post(h, body) })
		}
		group.Wait()
		close(stop)
		if got, most := <-peak, uint64(4*webserver.DefaultBytes); got > most {
			t.Errorf("%s: the heap grew to %d MiB, want at most %d", name, got>>20, most>>20)
		}
	}
	if w := post(h, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"bob","groups":[`+
		strings.Repeat(`"others",`, 1000)+`"devs"],"resourceAttributes":{"verb":"get","resource":"pods","namespace":"a",`+
		`"labelSelector":{"requirements":[{"key":"a","operator":"Exists"}]}}}}`); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `"allowed":true`) {
		t.Errorf("a review of 1001 groups: %d %s", w.Code, w.Body)
	}
}

// peakHeap watches the heap until stop.
func peakHeap(stop chan struct{}) (peak uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		metrics.Read(sample)
		peak = max(peak, sample[0].Value.Uint64())
		select {
		case <-stop:
			return peak
		default:
			runtime.Gosched()
		}
	}
}

func TestSourceKeepsTheLastGoodPolicy(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "policy"), time.Now()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
	}
	write(line(`"user":"alice","resource":"configmaps","namespace":"a"`))
	s, err := Open(path, false, NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, text string
		wantLoaded bool
		wantUser   string
	}{
		{"another", line(`"user":"bob","resource":"configmaps","namespace":"a"`), true, "bob"},
		{"broken", "{\n", false, "bob"},
		{"dangerous: it allows everything", `{"kind":"Policy","spec":{"user":"mallory"}}`, false, "bob"},
		{"good again", line(`"user":"carol","resource":"configmaps","namespace":"a"`), true, "carol"},
	} {
		write(step.text)
		if loaded, err := s.Check(); loaded || err != nil {
			t.Fatalf("%s: Check = %v, %v, want a second look first", step.name, loaded, err)
		}
		if loaded, err := s.Check(); loaded != step.wantLoaded || (err == nil) != step.wantLoaded {
			t.Fatalf("%s: Check = %v, %v, want loaded %v", step.name, loaded, err, step.wantLoaded)
		}
		for _, user := range []string{"alice", "bob", "carol", "mallory"} {
			q := policy.Request{User: user, Verb: "get", Resource: "configmaps", Namespace: "a"}
			if _, allowed := s.Current().Authorizer.Match(q.Attributes()); allowed != (user == step.wantUser) {
				t.Fatalf("%s: %s allowed: %v, want only %s", step.name, user, allowed, step.wantUser)
			}
		}
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
		if test.want == "" && err != nil || test.want != "" &&
			(err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: Open = %v, want %q", name, err, test.want)
		}
	}
}

// FuzzReview: whatever is asked, the answer is a review that allows nothing which the policy does not, or a refusal.
func FuzzReview(f *testing.F) {
	f.Add([]byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"bob","groups":["devs"],` +
		`"resourceAttributes":{"verb":"get","resource":"pods","namespace":"a"}}}`))
	f.Add([]byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","spec":{"nonResourceAttributes":` +
		`{"path":"/metrics","verb":"get"}}}`))
	f.Add([]byte(`{"kind":"SubjectAccessReview"}`))
	rules, err := policy.Parse("p.jsonl", strings.NewReader(line(`"user":"alice","resource":"pods","namespace":"a"`)))
	if err != nil {
		f.Fatal(err)
	}
	compiled := Policy{Name: "p.jsonl", Authorizer: policy.NewAuthorizer(rules)}
	h := &Handler{Policy: func() Policy { return compiled }, Metrics: NewMetrics(prometheus.NewRegistry())}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := post(h, string(data))
		var got authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code == http.StatusOK && err != nil {
			t.Errorf("the answer %q: %v", w.Body, err)
		}
		var asked struct{ Spec struct{ User string } }
		if got.Status.Allowed && (json.Unmarshal(data, &asked) != nil || asked.Spec.User != "alice") {
			t.Errorf("%s is allowed", data)
		}
	})
}
