package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

const pizza = "../../../examples/pizza/"

// rulesDir holds the rules and the CRD of the pizza.
func rulesDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "crd.yaml"} {
		data, err := os.ReadFile(pizza + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func handler(t testing.TB) *Handler {
	t.Helper()
	registered := NewMetrics(prometheus.NewRegistry())
	s, err := Open(rulesDir(t), registered)
	if err != nil {
		t.Fatal(err)
	}
	return &Handler{Converters: s.Current, LimitBytes: 1 << 20, Timeout: time.Minute, Metrics: registered}
}

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/convert", strings.NewReader(body)))
	return w
}

const (
	margherita = `{"apiVersion":"restaurant.example.com/v1alpha1","kind":"Pizza","metadata":{"name":"margherita","namespace":"default"},"spec":{"size":"M","toppings":["tomato"]}}`
	unknown    = `{"apiVersion":"restaurant.example.com/v1alpha1","kind":"Pizza","metadata":{"name":"giant","namespace":"default"},"spec":{"size":"XXL"}}`
)

func question(version string, objects ...string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/%s","kind":"ConversionReview","request":{"uid":"705ab4f5","desiredAPIVersion":"restaurant.example.com/v1","objects":[%s]}}`,
		version, strings.Join(objects, ","))
}

func answered(t testing.TB, w *httptest.ResponseRecorder) review {
	t.Helper()
	var r review
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != http.StatusOK || r.Response == nil {
		t.Fatalf("answer %d %s (%v)", w.Code, w.Body, err)
	}
	return r
}

func TestHandlerAnswersInTheVersionOfTheQuestion(t *testing.T) {
	h := handler(t)
	for _, version := range []string{"v1", "v1beta1"} {
		r := answered(t, post(h, question(version, margherita, margherita)))
		if r.APIVersion != "apiextensions.k8s.io/"+version || r.Response.UID != "705ab4f5" ||
			r.Response.Result.Status != "Success" || len(r.Response.ConvertedObjects) != 2 {
			t.Fatalf("%s: answer %+v", version, r)
		}
		spec := r.Response.ConvertedObjects[1]["spec"].(map[string]any)
		if spec["size"] != "Medium" {
			t.Errorf("%s: converted to %v", version, spec)
		}
	}
	if got := testutil.ToFloat64(h.Metrics.objects); got != 4 {
		t.Errorf("objects counted: %v, want 4", got)
	}
}

func TestHandlerFailsTheReviewNamingObjectAndRule(t *testing.T) {
	r := answered(t, post(handler(t), question("v1", margherita, unknown)))
	if r.Response.Result.Status != "Failure" || len(r.Response.ConvertedObjects) != 0 {
		t.Fatalf("answer %+v, want a failure without objects", r.Response)
	}
	for _, want := range []string{"Pizza default/giant from v1alpha1 to v1",
		"rules.yaml:12: spec.versions[0].rules[0].values", `"XXL"`} {
		if !strings.Contains(r.Response.Result.Message, want) {
			t.Errorf("message %q, want %q in it", r.Response.Result.Message, want)
		}
	}
}

func TestHandlerRefusesWhatIsNoReview(t *testing.T) {
	h := handler(t)
	bodies := map[string]string{
		"empty": "", "not JSON": "{",
		"other kind": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"AdmissionReview","request":{}}`,
		"version":    `{"apiVersion":"apiextensions.k8s.io/v2","kind":"ConversionReview","request":{}}`,
		"no request": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`,
		"objects":    question("v1", `"text"`),
		"too large":  question("v1", `{"kind":"`+strings.Repeat("x", 1<<20)+`"}`),
		"not UTF-8":  question("v1", `{"kind":"`+"\xff"+`"}`),
	}
	for name, body := range bodies {
		want := http.StatusBadRequest
		if name == "too large" {
			want = http.StatusRequestEntityTooLarge
		}
		if w := post(h, body); w.Code != want {
			t.Errorf("%s: answer %d %s, want %d", name, w.Code, w.Body, want)
		}
	}
	for name, body := range map[string]string{
		"other kind": question("v1", `{"apiVersion":"restaurant.example.com/v1alpha1","kind":"Pasta"}`),
		"no version": question("v1", `{"kind":"Pizza"}`), "null": question("v1", `null`),
	} {
		if r := answered(t, post(h, body)); r.Response.Result.Status != "Failure" || r.Response.Result.Message == "" {
			t.Errorf("%s: answer %+v, want a failure", name, r.Response)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/convert", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: answer %d, want 405", w.Code)
	}
	if got := testutil.ToFloat64(h.Metrics.Bad); got != float64(len(bodies)+1) {
		t.Errorf("bad reviews counted: %v, want %d", got, len(bodies)+1)
	}
}

func TestHandlerBoundsTimeAndReviews(t *testing.T) {
	h := handler(t)
	h.Timeout = time.Nanosecond
	if r := answered(t, post(h, question("v1", margherita))); !strings.Contains(r.Response.Result.Message,
		"0 of 1 objects were converted in 1ns") {
		t.Errorf("answer %+v, want the time named", r.Response)
	}
	h.Timeout, h.Slots = time.Millisecond, make(chan struct{}, 1)
	h.Slots <- struct{}{}
	if w := post(h, question("v1", margherita)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("no slot: answer %d, want 503", w.Code)
	}
}

func TestSourceKeepsTheLastGoodRules(t *testing.T) {
	dir := rulesDir(t)
	s, err := Open(dir, NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	write := func(name, from, to string) {
		t.Helper()
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), from) {
			t.Fatalf("no %q in %s", from, name)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(data), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		if err := os.Chtimes(file, now, now); err != nil {
			t.Fatal(err)
		}
	}
	check := func(step string, wantLoaded bool, wantOven string) {
		t.Helper()
		if loaded, err := s.Check(); loaded || err != nil {
			t.Fatalf("%s: Check = %v, %v, want a second look first", step, loaded, err)
		}
		if loaded, err := s.Check(); loaded != wantLoaded || (err == nil) != wantLoaded {
			t.Fatalf("%s: Check = %v, %v, want loaded %v", step, loaded, err, wantLoaded)
		}
		h := &Handler{Converters: s.Current, LimitBytes: 1 << 20, Timeout: time.Minute,
			Metrics: NewMetrics(prometheus.NewRegistry())}
		r := answered(t, post(h, question("v1", margherita)))
		if oven := r.Response.ConvertedObjects[0]["spec"].(map[string]any)["oven"]; oven != wantOven {
			t.Fatalf("%s: oven %v, want %v", step, oven, wantOven)
		}
	}
	write("rules.yaml", "value: Stone", "value: Electric")
	check("other rules", true, "Electric")
	write("rules.yaml", "value: Electric", "value: Gas")
	check("the schema does not allow it", false, "Electric")
	write("rules.yaml", "value: Gas", "value: Stone")
	check("right again", true, "Stone")
	write("crd.yaml", "oven: {type", "stove: {type")
	check("the rules do not fit the CRD", false, "Stone")
}

func TestOpenRefusesBadRules(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ dir, want string }{
		"missing": {filepath.Join(dir, "missing"), "no such file"}, "empty": {dir, "no rules"},
		"no rules": {pizza + "v1beta1", "no rules"},
	} {
		if _, err := Open(test.dir, NewMetrics(prometheus.NewRegistry())); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Open = %v, want %q", name, err, test.want)
		}
	}
}

// TestReviewsTakeBoundedMemory sends what is small as text and large in memory, many at once, and looks at the heap
// meanwhile.
func TestReviewsTakeBoundedMemory(t *testing.T) {
	const sent, limit, clients = 31 << 20, 128 << 20, 8
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(3 * limit)) // as crd webhook has one
	h := handler(t)
	h.LimitBytes, h.LimitObjects, h.Memory = 32<<20, 100_000, webserver.NewBudget(limit)
	head := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"restaurant.example.com/v1","objects":[`
	many := func(value string) string {
		return strings.TrimSuffix(strings.Repeat(value+",", sent/(len(value)+1)), ",")
	}
	whole := func(text string) string {
		return `{"apiVersion":"restaurant.example.com/v1","kind":"Pizza","spec":{"a":"` + text + `"}}`
	}
	for name, objects := range map[string]string{
		"empty objects": many("{}"), "lists in a field": `{"a":[` + many("[]") + `]}`,
		"objects in a field": `{"a":[` + many(`{"":1}`) + `]}`,
		"numbers":            `{"a":[` + many("1") + `]}`,
		"one long string":    `{"a":"` + strings.Repeat("x", sent) + `"}`,
		"what HTML escapes":  whole(strings.Repeat("<", sent)),
		"what JSON escapes":  whole(strings.Repeat("\u2028", sent/3)),
	} {
		body := head + objects + `]}}`
		runtime.GC()
		stop, peak := make(chan struct{}), make(chan uint64, 1)
		go func() { peak <- peakHeap(stop) }()
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				w := &unread{header: http.Header{}, code: http.StatusOK}
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/convert", strings.NewReader(body)))
				if w.code != http.StatusRequestEntityTooLarge && w.code != http.StatusServiceUnavailable &&
					!strings.Contains(objects, `":"`) {
					t.Errorf("%s: answered %d, want to be refused", name, w.code)
				}
			})
		}
		group.Wait()
		close(stop)
		// The text itself is held by the test, and there is garbage that is not yet collected. One such review took 860
		// MiB.
		if got, most := <-peak, uint64(4*limit); got > most {
			t.Errorf("%s: the heap grew to %d MiB, want at most %d", name, got>>20, most>>20)
		}
	}
}

// unread is an answer that is sent, and takes no memory where it comes from.
type unread struct {
	header http.Header
	code   int
}

func (u *unread) Header() http.Header            { return u.header }
func (u *unread) Write(data []byte) (int, error) { return len(data), nil }
func (u *unread) WriteHeader(code int)           { u.code = code }

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

func TestReviewsOfTooManyObjectsAreRefused(t *testing.T) {
	h := handler(t)
	h.LimitObjects = 2
	if w := post(h, question("v1", margherita, margherita)); w.Code != http.StatusOK {
		t.Errorf("two objects: %d %s", w.Code, w.Body)
	}
	if w := post(h, question("v1", margherita, margherita, margherita)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("three objects: %d %s, want %d", w.Code, w.Body, http.StatusRequestEntityTooLarge)
	}
}

// FuzzHandler holds the handler to its word: whatever is sent, it answers and does not panic.
func FuzzHandler(f *testing.F) {
	f.Add(question("v1", margherita, unknown))
	f.Add(question("v1beta1", strings.Replace(margherita, "v1alpha1", "v1", 1)))
	f.Add(question("v1",
		`{"apiVersion":"restaurant.example.com/v1alpha1","kind":"Pizza","metadata":{"annotations":{"conversion.kubefusion.dev/kept":"{\"v1\":{\"fields\":{\"spec\":{\"elements\":[{\"kept\":null}]}}}}"}},"spec":{"size":"M","sides":[null,7]}}`))
	h := handler(f)
	f.Fuzz(func(t *testing.T, body string) {
		switch w := post(h, body); w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("answer %d %s", w.Code, w.Body)
		}
	})
}

// TestAnswersDoNotRepeatWhatIsLong: a kind of a megabyte is in no message, which API servers log, and show to users.
func TestAnswersDoNotRepeatWhatIsLong(t *testing.T) {
	h := handler(t)
	h.LimitBytes = 32 << 20
	long := strings.Repeat(`\u0001`, 1<<20)
	for _, body := range []string{question("v1", `{"kind":"`+long+`"}`),
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"` + long + `"}`} {
		if w := post(h, body); w.Body.Len() > 64<<10 || !strings.Contains(w.Body.String(), " ...") {
			t.Errorf("%d: %d bytes are answered: %.300s", w.Code, w.Body.Len(), w.Body)
		}
	}
}

// TestRefusedValuesAreCountedAndNamed: what of an annotation is not put back is in the metrics, and in one line of the
// log that a client cannot make long or break.
func TestRefusedValuesAreCountedAndNamed(t *testing.T) {
	h := handler(t)
	var log bytes.Buffer
	h.Logger = slog.New(slog.NewTextHandler(&log, nil))
	name, err := json.Marshal("a\x1b[31m\u202e" + strings.Repeat("x", 50_000))
	if err != nil {
		t.Fatal(err)
	}
	kept := fmt.Sprintf(`{"v1":{"fields":{"metadata":{"fields":{"labels":{"fields":{%s:{"value":"no label"}}}}},`+
		`"spec":{"fields":{"diet":{"value":"stones"}}}}}}`, name)
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	forged := `{"apiVersion":"restaurant.example.com/v1alpha1","kind":"Pizza","metadata":{"name":"p","labels":{"a":"b"},"annotations":{` +
		`"conversion.kubefusion.dev/kept":` + string(text) + `}},"spec":{"size":"M"}}`
	if r := answered(t, post(h, question("v1", forged))); r.Response.Result.Status != "Success" {
		t.Fatal(r.Response.Result.Message)
	}
	if n := testutil.ToFloat64(h.Metrics.refused); n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || len(got) > 10_000 ||
		strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "Pizza p to v1: metadata.labels") ||
		!strings.Contains(got, "count=2") {
		t.Errorf("%d bytes: %.300q", len(got), got)
	}
}
