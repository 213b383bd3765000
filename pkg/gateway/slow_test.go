package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

// ways are watches of each way in which they are served, with the path at the modern side, and the resource there.
var ways = map[string]struct{ path, at, object string }{
	"passed on": {"/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"5","annotations":{"a":%q}}}`},
	"a view": {"/sides/modern/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"5","annotations":{"a":%q}}}`},
	"merged": {collection, collection,
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","resourceVersion":"5","annotations":{"a":%q}}}`},
	"converted": {strings.Replace(collection, "/v1/", "/v1beta2/", 1), collection,
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","resourceVersion":"5","annotations":{"a":%q}}}`},
}

// A client that takes no events is cut off, and the side is freed of its watch: what it does not take is held nowhere.
func TestSlowReadersAreCutOff(t *testing.T) {
	for name, way := range ways {
		x := newFixture(t)
		x.gateway.eventTimeout = 100 * time.Millisecond
		freed := make(chan bool)
		event := `{"type":"ADDED","object":` + fmt.Sprintf(way.object, strings.Repeat("x", 64<<10)) + "}\n"
		x.modern.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				fmt.Fprint(w, event)
			}
			close(freed)
		})
		x.legacy.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		connection, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(connection, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\n\r\n", way.path)
		select {
		case <-freed:
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: a client that reads nothing is not cut off", name)
		}
		connection.Close()
	}
}

// patience takes events, and no deadline while it does. One that is stuck takes none, until a deadline has passed.
type patience struct {
	*httptest.ResponseRecorder
	stuck bool
	took  chan bool // an event; closed when a deadline has passed
	once  sync.Once
}

func (p *patience) SetReadDeadline(time.Time) error { return nil }

func (p *patience) SetWriteDeadline(d time.Time) error {
	if !d.IsZero() {
		p.once.Do(func() { close(p.took) })
	}
	return nil
}

func (p *patience) Write(text []byte) (int, error) {
	if !bytes.Contains(text, []byte("ADDED")) {
		return len(text), nil
	}
	if p.stuck {
		<-p.took
		return 0, os.ErrDeadlineExceeded
	}
	p.took <- true
	return len(text), nil
}

// An event has a time to be taken, and a watch without events has all the time that it wants.
func TestIdleWatchesAreNotCutOff(t *testing.T) {
	for name, way := range ways {
		for _, stuck := range []bool{false, true} {
			x := newFixture(t)
			x.gateway.eventTimeout = time.Minute
			if stuck {
				x.gateway.eventTimeout = 50 * time.Millisecond
			}
			for _, side := range []*fakeSide{x.legacy, x.modern} {
				side.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					if side == x.modern {
						fmt.Fprintf(w, `{"type":"ADDED","object":`+way.object+"}\n", "x")
					}
					http.NewResponseController(w).Flush()
					<-r.Context().Done()
				})
			}
			p := &patience{ResponseRecorder: httptest.NewRecorder(), stuck: stuck, took: make(chan bool)}
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, way.path+"?watch=1", nil)
			r.Header.Set("Test-Certificate", "alice")
			ended := make(chan bool)
			go func() {
				defer close(ended)
				defer func() { _ = recover() }() // as servers do when an answer breaks off
				x.handler.ServeHTTP(p, r)
			}()
			if stuck {
				<-ended
			} else if taken := <-p.took; !taken {
				t.Errorf("%s: an event has a deadline that passed", name)
			}
			cancel()
			<-ended
		}
	}
}

// When the gateway ends, watches end as API servers end them, and none breaks off: a client goes on elsewhere from what
// it has seen.
func TestWatchesEndWithTheGateway(t *testing.T) {
	for name, way := range ways {
		x := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		x.gateway.EndWith(ctx)
		for _, side := range []*fakeSide{x.legacy, x.modern} {
			side.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"type":"ADDED","object":`+way.object+"}\n", "x")
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
		}
		response := x.open(t.Context(), way.path+"?watch=1")
		lines := bufio.NewReader(response.Body)
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
			t.Errorf("%s: %q, %v", name, line, err)
		}
		cancel()
		if rest, err := io.ReadAll(lines); err != nil || strings.Contains(string(rest), "ERROR") {
			t.Errorf("%s: the watch breaks off: %q, %v", name, rest, err)
		}
		response.Body.Close()
	}
}

// What one gateway began another goes on with: pages and watches are told nothing but tokens and versions.
func TestReplicasShareNothing(t *testing.T) {
	x := newFixture(t)
	for prefix, side := range map[string]*fakeSide{"l": x.legacy, "m": x.modern} {
		side.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			w.Header().Set("Content-Type", "application/json")
			switch {
			case query.Has("watch"):
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", deployment(prefix+"-since-"+
					query.Get("resourceVersion"), "u"))
			case query.Get("continue") == prefix+"-next":
				fmt.Fprintf(w, `{"kind":"DeploymentList","metadata":{"resourceVersion":"7"},"items":[%s]}`,
					deployment(prefix+"-2", "u"))
			default:
				fmt.Fprintf(w, `{"kind":"DeploymentList","metadata":{"resourceVersion":"7","continue":"%s-next"},
					"items":[%s]}`, prefix, deployment(prefix+"-1", "u"))
			}
		})
	}
	first := x.wants("GET", collection+"?limit=2", "", http.StatusOK, `"l-1"`)
	var list struct {
		Metadata struct{ Continue, ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(first), &list); err != nil {
		t.Fatal(err)
	}
	var err error
	if x.gateway, err = New(x.gateway.plan, x.gateway.options, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	x.gateway.refresh(t.Context())
	text := x.wants("GET", collection+"?limit=2&continue="+list.Metadata.Continue, "", http.StatusOK, `"l-2"`)
	if !strings.Contains(text, `"m-2"`) || strings.Contains(text, `-1"`) ||
		!strings.Contains(text, `"resourceVersion":"`+list.Metadata.ResourceVersion+`"`) {
		t.Errorf("the second page, from another gateway: %s", text)
	}
	x.wants("GET", collection+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion, "", http.StatusOK, "-since-7")
}

// A long event counts within the gateway's memory while it is held, and no longer: users may have thousands of watches,
// and take each event slowly. One that has no room ends its watch.
func TestLongEventsAreBoundedTogether(t *testing.T) {
	for _, name := range []string{"merged", "converted"} {
		way := ways[name]
		for _, messages := range []bool{false, true} {
			x := newFixture(t)
			x.gateway.shares.users = webserver.NewBudget(partsOfUsers * 4 << 20)
			x.modern.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for i := range 22 {
					long := 10
					switch {
					case i == 21:
						long = 1 << 20
					case i%2 == 1:
						long = 200 << 10
					}
					fmt.Fprintf(w, `{"type":"ADDED","object":`+way.object+"}\n", strings.Repeat("x", long))
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			x.legacy.page("GET "+way.at, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			var events *json.Decoder
			if messages {
				connection, err := x.dial(way.path + "?watch=1")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { connection.Close() })
				events = json.NewDecoder(connection)
			} else {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+way.path+"?watch=1", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Test-Certificate", "alice")
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { response.Body.Close() })
				events = json.NewDecoder(response.Body)
			}
			got := 0
			for ; ; got++ {
				var e wireEvent
				if err := events.Decode(&e); err != nil {
					break
				}
				if e.Type != "ADDED" {
					t.Fatalf("%s: %s", e.Type, e.Object)
				}
			}
			if got != 21 {
				t.Errorf("%s, as messages %t: %d events, want 21: the last one has no room", name, messages, got)
			}
			if err := x.gateway.shares.users.Reserve().Grow(t.Context(), partsOfUsers*4<<20); err != nil {
				t.Errorf("%s, as messages %t: %v", name, messages, err)
			}
		}
	}
}
