package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// overHTTP2 is a gateway over sides that speak HTTP/2, as API servers do: watches and writes share connections.
func overHTTP2(t testing.TB, more ...func(*Options)) *fixture {
	return newFixtureOver(t, testPlan(t), startFakeSide(t, "1.15.12", true), startFakeSide(t, "1.36.3", true), more...)
}

// A client that takes no events until its half minute is over has little held for it: it may have two thousand watches.
func TestWatchesThatWaitForTheirClientHoldLittle(t *testing.T) {
	for name, way := range ways {
		x := overHTTP2(t)
		const all = 2 << 20
		event := `{"type":"ADDED","object":` + fmt.Sprintf(way.object, strings.Repeat("x", 8<<10)) + "}\n"
		sent := make(chan int, 1)
		x.modern.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			n := 0
			for n < all {
				if _, err := io.WriteString(w, event); err != nil {
					break
				}
				n += len(event)
			}
			sent <- n
		})
		x.legacy.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		p := &patience{ResponseRecorder: httptest.NewRecorder(), stuck: true, took: make(chan bool)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, way.path+"?watch=1", nil)
		r.Header.Set("Test-Certificate", "alice")
		ended := make(chan bool)
		go func() {
			defer close(ended)
			defer func() { _ = recover() }() // as servers do when an answer breaks off
			x.handler.ServeHTTP(p, r)
		}()
		if n := <-sent; n > 4*limitAheadBytes {
			t.Errorf("%s: a side sends %d bytes, of %d, to a client that takes none", name, n, all)
		}
		p.once.Do(func() { close(p.took) })
		<-ended
	}
}

// A write that a side got, and did not answer, may have been done: clients that are told to come again send it once
// more, and have two objects of a name that the side makes.
func TestWritesThatMayHaveBeenDoneAreNotSentAgain(t *testing.T) {
	const pods, beta = "/api/v1/namespaces/a/pods", "/apis/apps/v1beta2/namespaces/a/deployments"
	body := `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"generateName":"web-"},"spec":{"template":{}}}`
	bodies := map[string]string{pods: "{}", collection: body, beta: strings.Replace(body, "v1", "v1beta2", 1)}
	ends := map[string]func(http.ResponseWriter, *http.Request){
		"breaks off":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"says nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"breaks off in the answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"kind":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	}
	for name, end := range ends {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
			for path, body := range bodies {
				if path == pods && name == "breaks off in the answer" {
					continue // which breaks off for the client, too
				}
				if name == "says nothing" && path == beta {
					continue // a second of time for each
				}
				x := newFixture(t)
				if protocol == "HTTP/2" {
					x = overHTTP2(t)
				}
				for _, side := range []*fakeSide{x.legacy, x.modern} {
					side.page("POST "+strings.Replace(path, "v1beta2", "v1", 1), end)
				}
				if name == "says nothing" {
					x.gateway.sides[pair.Modern].answerTimeout = time.Second
				}
				x.modern.say("POST /warm", http.StatusOK, "{}")
				x.wants("POST", "/sides/modern/warm", "", http.StatusOK, "{}")
				code, header, text := x.ask("POST", path, body)
				if code != http.StatusServiceUnavailable || header.Get("Retry-After") != "" ||
					!strings.Contains(text, "is not known") {
					t.Errorf("%s, POST %s, a side %s: %d, Retry-After %q, %s", protocol, path, name, code,
						header.Get("Retry-After"), text)
				}
			}
		}
	}
	x := newFixture(t)
	x.modern.server.Close()
	for _, path := range []string{pods, collection} { // nothing was sent
		if code, header, text := x.ask("POST", "/sides/modern"+path, body); code != http.StatusServiceUnavailable ||
			header.Get("Retry-After") == "" {
			t.Errorf("POST %s, a side is down: %d, Retry-After %q, %s", path, code, header.Get("Retry-After"), text)
		}
	}
}
