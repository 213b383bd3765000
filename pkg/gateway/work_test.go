package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// plainDeployment has no field that a conversion loses.
func plainDeployment() string {
	return strings.Replace(oldDeployment("apps/v1"), `,"strange":{"revision":2}`, "", 1)
}

// Any user may send bodies that take a processor for long, whether a side lets them write or not: those of one take
// turns, and no other waits for them.
func TestBodiesOfOneUserTakeTurns(t *testing.T) {
	const yaml = "Content-Type: application/yaml"
	x, _ := converted(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		for _, path := range []string{collection, older} {
			side.say("POST "+path, http.StatusCreated, "{}")
			side.page("GET "+path+"/new", func(w http.ResponseWriter, _ *http.Request) {
				status(w, http.StatusNotFound, "NotFound")
			})
		}
	}
	alices, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	defer left()
	alices.workers.wait = 10 * time.Millisecond
	for range cap(alices.workers.turns) {
		alices.workers.turns <- struct{}{}
	}
	writes := func() (n int) {
		for _, side := range []*fakeSide{x.legacy, x.modern} {
			side.mu.Lock()
			for _, r := range side.asked {
				if r.Method != http.MethodGet {
					n++
				}
			}
			side.mu.Unlock()
		}
		return n
	}
	old := plainDeployment()
	object := strings.ReplaceAll(old, `"old"`, `"new"`)
	for _, r := range []struct{ method, path, body, header string }{
		{"POST", collection, object, ""},
		{"POST", older, strings.Replace(object, "apps/v1", "extensions/v1beta1", 1), ""},
		{"POST", collection, object, yaml},
		{"PUT", collection + "/old", old, ""},
		{"PATCH", collection + "/old", `{"spec":{"replicas":3}}`, "Content-Type: application/merge-patch+json"},
	} {
		before := writes()
		if r.header == "" {
			r.header = "Content-Type: application/json"
		}
		x.wants(r.method, r.path, r.body, http.StatusTooManyRequests, "at a time", r.header)
		if n := writes() - before; n > 0 {
			t.Fatalf("%s %s without a turn: the sides are sent %d writes", r.method, r.path, n)
		}
		if code, _, text := x.ask(r.method, r.path, r.body, r.header, "Test-Certificate: bob"); code >= 300 {
			t.Errorf("%s %s beside another user: %d %s", r.method, r.path, code, text)
		}
	}
	// A read has its turn when there is something to convert; what is passed on needs none.
	x.legacy.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	x.modern.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	x.wants("GET", "/api/v1/namespaces/a/pods", "", http.StatusOK, "{}")
}

// No turn is held while a side is asked: it may be slow.
func TestSidesAreAskedOutsideOfTurns(t *testing.T) {
	x, s := converted(t)
	alices, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	defer left()
	asked := 0
	for _, method := range []string{"GET ", "PUT "} {
		x.legacy.mu.Lock()
		answer := x.legacy.pages[method+older+"/old"]
		x.legacy.mu.Unlock()
		x.legacy.page(method+older+"/old", func(w http.ResponseWriter, r *http.Request) {
			asked++
			if n := len(alices.workers.turns); n > 0 {
				t.Errorf("%sasked in %d turns", method, n)
			}
			answer(w, r)
		})
	}
	x.wants("PUT", collection+"/old", strings.Replace(plainDeployment(), `"replicas":1`, `"replicas":7`, 1),
		http.StatusOK, `"replicas":7`)
	if got := s.at("spec", "replicas"); got != "7" || asked < 3 || len(alices.workers.turns) > 0 {
		t.Errorf("%s replicas, asked %d times, %d turns", got, asked, len(alices.workers.turns))
	}
	over := &conversion{turn: turn{workers: newWorkers()}}
	answer := &heldBody{ReadCloser: io.NopCloser(strings.NewReader("{}")), request: &http.Request{}, over: over,
		memory: x.gateway.shares.users.Reserve()}
	if _, err := answer.Read(make([]byte, 2)); err != nil || len(over.workers.turns) != 0 {
		t.Errorf("before the end of an answer: %v, %d turns", err, len(over.workers.turns))
	}
	if _, err := io.ReadAll(answer); err != nil || len(over.workers.turns) != 1 {
		t.Errorf("an answer that is read: %v, %d turns, want one to convert it in", err, len(over.workers.turns))
	}
	over.end()
}

func TestTurnsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &workers{make(chan struct{}, 1), seatWait}
		leave, err := w.take(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = w.do(t.Context(), func() error { return errors.New("done beside another") })
		if !apierrors.IsTooManyRequests(err) || time.Since(began) != seatWait {
			t.Errorf("a turn that does not come: %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.take(ctx, 0); !apierrors.IsServiceUnavailable(err) || time.Since(began) != seatWait+time.Minute {
			t.Errorf("a client that goes: %v after %s", err, time.Since(began))
		}
		leave()
		if err := w.do(t.Context(), func() error { return nil }); err != nil || len(w.turns) != 0 {
			t.Errorf("%v, %d turns", err, len(w.turns))
		}
	})
}

// Lists are merged in turns, and none is held while a side has more to send, or the client to take.
func TestListsAreMergedInTurns(t *testing.T) {
	const table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
	x := newFixture(t)
	x.legacy.say("GET "+collection, http.StatusOK, emptyList)
	x.modern.say("GET "+collection, http.StatusOK, emptyList)
	alices, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	defer left()
	alices.workers.wait = 10 * time.Millisecond
	for range cap(alices.workers.turns) {
		alices.workers.turns <- struct{}{}
	}
	x.wants("GET", collection, "", http.StatusTooManyRequests, "at a time")
	x.wants("GET", collection, "", http.StatusOK, "DeploymentList", "Test-Certificate: bob")
	for range cap(alices.workers.turns) {
		<-alices.workers.turns
	}
	alices.workers.wait = time.Minute
	x.modern.page("GET "+collection, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Replace(emptyList, "]}", deployment("a", "u"), 1))
		_ = http.NewResponseController(w).Flush()
		for end := time.Now().Add(10 * time.Second); len(alices.workers.turns) > 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Error("a turn is held while a side sends")
				break
			}
		}
		_, _ = io.WriteString(w, ","+deployment("b", "v")+"]}")
	})
	x.wants("GET", collection, "", http.StatusOK, `"b"`)
	out := &begun{ctx: t.Context(), turn: &turn{workers: alices.workers}}
	out.ResponseWriter = writing{func() {
		if n := len(alices.workers.turns); n > 0 {
			t.Errorf("%d turns while the client takes a list", n)
		}
	}}
	for range 2 {
		if _, err := out.Write(nil); err != nil || len(alices.workers.turns) != 1 {
			t.Errorf("behind a write: %v, %d turns", err, len(alices.workers.turns))
		}
	}
	out.turn.end()
	x.modern.say("GET "+collection, http.StatusOK, `{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[]}`)
	x.legacy.say("GET "+collection, http.StatusOK, `{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[]}`)
	x.wants("GET", collection, "", http.StatusOK, "Table", table)
	alices.workers.wait = 10 * time.Millisecond
	for range cap(alices.workers.turns) {
		alices.workers.turns <- struct{}{}
	}
	x.wants("GET", collection, "", http.StatusTooManyRequests, "at a time", table)
}

// writing is told of each write.
type writing struct{ told func() }

func (w writing) Header() http.Header { return nil }
func (w writing) WriteHeader(int)     {}
func (w writing) Write(p []byte) (int, error) {
	w.told()
	return len(p), nil
}

// A user has thousands of watches, and each makes its own event of an object that changes: it does so in turns, of
// which none is held while the next event comes or the client takes one.
func TestEventsAreMadeInTurns(t *testing.T) {
	x, _ := converted(t)
	x.modern.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	object := strings.Replace(oldDeployment("extensions/v1beta1"), `"metadata":{`,
		`"metadata":{"resourceVersion":"7","labels":{"l":"`+strings.Repeat("x", 2*limitKeptBytes)+`"},`, 1)
	x.legacy.page("GET "+older, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":`+object+"}\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	alices, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	defer left()
	const table = ";as=Table;v=v1;g=meta.k8s.io"
	for _, test := range []struct{ path, accept string }{{collection, ""}, {collection, table}, {older, ""},
		{"/sides/legacy" + older, ""}} {
		for range cap(alices.workers.turns) {
			alices.workers.turns <- struct{}{}
		}
		ctx, cancel := context.WithCancel(t.Context())
		came := make(chan string, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url+test.path+"?watch=1", nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Test-Certificate", "alice")
			r.Header.Set("Accept", "application/json"+test.accept)
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			text := make([]byte, 100)
			n, _ := io.ReadFull(response.Body, text)
			came <- string(text[:n])
		}()
		passed := strings.HasPrefix(test.path, "/sides")
		select {
		case text := <-came:
			if !passed {
				t.Errorf("%s%s: an event comes without a turn: %q", test.path, test.accept, text)
			}
		case <-time.After(300 * time.Millisecond):
			if passed {
				t.Errorf("%s: an event that is passed on waits", test.path)
			}
		}
		for range cap(alices.workers.turns) {
			<-alices.workers.turns
		}
		if text := ""; !passed {
			if text = <-came; !strings.Contains(text, `"ADDED"`) {
				t.Errorf("%s%s: the event is %q", test.path, test.accept, text)
			}
		}
		for end := time.Now().Add(10 * time.Second); len(alices.workers.turns) > 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%s%s: a turn is held behind the event", test.path, test.accept)
			}
		}
		cancel()
	}
}
