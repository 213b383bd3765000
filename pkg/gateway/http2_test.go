package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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
