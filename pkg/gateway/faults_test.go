package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// A side that takes a request and says nothing is given up, and the client is told to come again.
func TestASideThatHangs(t *testing.T) {
	const pods = "/api/v1/namespaces/a/pods"
	for _, name := range pair.Sides() {
		x := newFixture(t)
		hanging := map[pair.Side]*fakeSide{pair.Legacy: x.legacy, pair.Modern: x.modern}[name]
		for _, side := range []*fakeSide{x.legacy, x.modern} {
			for _, path := range []string{pods, collection, collection + "/web"} {
				side.say("GET "+path, http.StatusOK, emptyList)
			}
			side.say("GET "+collection+"/web", http.StatusNotFound, "{}")
		}
		for _, path := range []string{pods, collection, collection + "/web"} {
			hanging.page("GET "+path, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}
		x.gateway.sides[name].answerTimeout = 50 * time.Millisecond
		view := "/sides/" + string(name)
		for _, path := range []string{view + pods, view + pods + "?watch=1", collection, collection + "?watch=1",
			collection + "/web", strings.Replace(collection, "/v1/", "/v1beta2/", 1)} {
			code, header, text := x.ask("GET", path, "")
			if code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" ||
				!strings.Contains(text, "the "+string(name)+" API server does not answer") {
				t.Errorf("GET %s, and the %s side hangs: %d %v %s", path, name, code, header, text)
			}
		}
		x.wants("DELETE", collection+"/web", "", http.StatusServiceUnavailable, string(name))
	}
}

// What a side says in a watch that is no event is an error of the watch: the client lists again, and does not take what
// it knows for all. A watch that a side loses ends, and nothing is made up.
func TestWatchesThatASideBreaks(t *testing.T) {
	const object = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"x","resourceVersion":"5"}}`
	for name, tc := range map[string]struct{ text, want string }{
		"garbage":                    {"<html>sorry</html>", "ERROR 500"},
		"an event of no known type":  {`{"type":"FROBNICATED","object":` + object + "}", "ERROR 500"},
		"an object without versions": {`{"type":"ADDED","object":{"kind":"Deployment","apiVersion":"apps/v1"}}`, "ERROR 500"},
		"a bookmark without one":     {`{"type":"BOOKMARK","object":{"kind":"Deployment","apiVersion":"apps/v1"}}`, "ERROR 500"},
		"no object":                  {`{"type":"ADDED","object":7}`, "ERROR 500"},
		"an event too long": {`{"type":"ADDED","object":"` + strings.Repeat("x", limitBytes+(1<<20)) + `"}`,
			"ERROR 500"},
		"an expired version": {`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`, "ERROR 410"},
		"half an event":      {`{"type":"ADDED","object":{"kind":"Depl`, ""},
		"nothing":            {"", ""},
	} {
		for _, path := range []string{collection, strings.Replace(collection, "/v1/", "/v1beta2/", 1)} {
			x := newFixture(t)
			x.modern.page("GET "+collection, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, tc.text)
			})
			x.legacy.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			code, _, text := x.ask("GET", path+"?watch=1", "")
			got := ""
			for _, status := range []string{"410", "500"} {
				if strings.Contains(text, `"type":"ERROR"`) && strings.Contains(text, `"code":`+status) {
					got = "ERROR " + status
				}
			}
			// Of a converted watch, what is no event ends the stream, as the end of a connection does.
			if (path == collection || tc.want == "ERROR 410") && got != tc.want || code != http.StatusOK ||
				strings.Contains(text, "ADDED") || strings.Contains(text, "BOOKMARK") {
				t.Errorf("GET %s, a side sends %s: %d, %q, want %q", path, name, code, text, tc.want)
			}
		}
	}
}

// A list of which a side breaks its part off is refused, or broken off itself where its begin was sent already: it is
// never taken for a whole one.
func TestListsThatASideBreaks(t *testing.T) {
	item := deployment("x", "u")
	for name, tc := range map[string]struct {
		objects int
		end     func(w http.ResponseWriter)
	}{
		"a short one, and the connection ends": {10, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"a short one, and garbage":             {10, func(w http.ResponseWriter) { io.WriteString(w, "<html>") }},
		"a short one without an end":           {10, func(http.ResponseWriter) {}},
		"a long one, and the connection ends":  {50_000, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"a long one, and garbage":              {50_000, func(w http.ResponseWriter) { io.WriteString(w, "<html>") }},
		"a long one without an end":            {50_000, func(http.ResponseWriter) {}},
		"a long one, and an object too many":   {50_000, func(w http.ResponseWriter) { io.WriteString(w, "]}{}") }},
	} {
		x := newFixture(t)
		for broken, whole := range map[*fakeSide]*fakeSide{x.legacy: x.modern, x.modern: x.legacy} {
			whole.say("GET "+collection, http.StatusOK, emptyList)
			broken.page("GET "+collection, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"1"},"items":[`)
				for range tc.objects {
					io.WriteString(w, item+",")
				}
				io.WriteString(w, item)
				tc.end(w)
			})
			response := x.open(t.Context(), collection)
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if refused := response.StatusCode == http.StatusServiceUnavailable; refused != (tc.objects == 10) ||
				!refused && (err == nil || json.Valid(text)) {
				t.Errorf("%s: %d, %d bytes, %v", name, response.StatusCode, len(text), err)
			}
		}
	}
}

// A request has one end, for the gateway and for the side: what stands behind it is not sent to the side as another.
func TestRequestsAreNotSmuggled(t *testing.T) {
	x := newFixture(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		for _, method := range []string{"POST", "PUT", "PATCH", "GET"} {
			side.say(method+" /api/v1/namespaces/a/pods", http.StatusOK, "{}")
			side.say(method+" "+collection, http.StatusOK, emptyList)
		}
		side.say("GET /api/v1/namespaces/a/secrets", http.StatusOK, "smuggled")
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = webserver.New(x.handler, nil)
	server.Start()
	t.Cleanup(server.Close)
	const second = "GET /api/v1/namespaces/a/secrets HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\n\r\n"
	chunked := "0\r\n\r\n" + second
	for name, framing := range map[string][2]string{
		"both lengths": {fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(chunked)),
			chunked},
		"two lengths":              {fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", len(second)), second},
		"a list of lengths":        {fmt.Sprintf("Content-Length: 0, %d\r\n", len(second)), second},
		"a length with a sign":     {fmt.Sprintf("Content-Length: +%d\r\n", len(second)), second},
		"an unknown coding":        {"Transfer-Encoding: xchunked\r\n", chunked},
		"a coding within another":  {"Transfer-Encoding: chunked, identity\r\n", chunked},
		"a coding with a tab":      {"Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n", chunked},
		"a space before the colon": {fmt.Sprintf("Content-Length : %d\r\n", len(second)), second},
		"a header on two lines":    {fmt.Sprintf("X: y\r\n Content-Length: %d\r\n", len(second)), second},
		"a bare line feed":         {fmt.Sprintf("X: y\nContent-Length: %d\r\n", len(second)), second},
		"a header in a header":     {"X: y\rContent-Length: 0\r\n", second},
		"a bad size of a chunk":    {"Transfer-Encoding: chunked\r\n", "0x0\r\n\r\n" + second},
		"a size with an extension": {"Transfer-Encoding: chunked\r\n",
			"0;" + strings.Repeat("a", 32<<10) + "\r\n\r\n" + second},
		"a length in the hop's list": {"Connection: Content-Length\r\nContent-Length: 0\r\n", ""},
	} {
		for _, line := range []string{"POST /api/v1/namespaces/a/pods", "GET /api/v1/namespaces/a/pods",
			"POST " + collection} {
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			// The identity is in the first request alone: a second one has none of its own.
			fmt.Fprintf(connection, "%s HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\n%s\r\n%s", line, framing[0],
				strings.ReplaceAll(framing[1], "Test-Certificate: alice\r\n", ""))
			// A connection may be reset behind a refusal, also before this end of it is closed.
			err = connection.(*net.TCPConn).CloseWrite()
			if err != nil && !errors.Is(err, syscall.ENOTCONN) {
				t.Fatal(err)
			}
			answers, err := io.ReadAll(connection)
			connection.Close()
			if text := string(answers); strings.Contains(text, "smuggled") || strings.Contains(text, "HTTP/1.1 503") ||
				!strings.HasPrefix(text, "HTTP/1.1 ") {
				t.Errorf("%s, %s: %q, %v", line, name, answers, err)
			}
		}
	}
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		if r, _ := side.last("/api/v1/namespaces/a/secrets"); r != nil {
			t.Errorf("a side is asked for %s with %v", r.URL, r.Header)
		}
	}
}

// FuzzHeaders: whatever headers a client sends, a side is told of the user that the client is, and of no other.
func FuzzHeaders(f *testing.F) {
	for _, name := range []string{"X-Remote-User", "x-remote-group", "X-REMOTE-EXTRA-scopes", "X-Remote-Uid", "X-User",
		"X-Groups", "x-more-Scopes", "Authorization", "Forwarded", "X-Forwarded-For", "Sec-Websocket-Protocol",
		"Impersonate-User", "Connection", "X-Remote-User ", "X_Remote_User"} {
		f.Add(name, "system:masters")
	}
	believed := plan.ProxyHeaders{User: []string{"X-Remote-User", "X-User"},
		Group: []string{"X-Remote-Group", "X-Groups"}, UID: []string{"X-Remote-Uid"},
		Extra: []string{"X-Remote-Extra-", "X-More-"}}
	own := &user.DefaultInfo{Name: "alice", UID: "u", Groups: []string{"developers"},
		Extra: map[string][]string{"scopes": {"a"}}}
	s := &side{headers: believed, claims: claimsOf(believed)}
	bare := httptest.NewRequest(http.MethodGet, "/", nil)
	s.identify(bare, own)
	f.Fuzz(func(t *testing.T, name, value string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header[name] = []string{value}
		r.Header.Add(name, value)
		s.identify(r, own)
		for header, values := range r.Header {
			lower := strings.ToLower(header)
			isClaim := strings.HasPrefix(lower, "x-remote-") || strings.HasPrefix(lower, "x-more-") ||
				lower == "x-user" || lower == "x-groups" || lower == "authorization"
			if isClaim && !slices.Equal(values, bare.Header[header]) {
				t.Errorf("%q: %q reaches the side as %q: %q, want %q", name, value, header, values, bare.Header[header])
			}
		}
		for header, values := range bare.Header {
			if !slices.Equal(values, r.Header[header]) {
				t.Errorf("%q: %q takes %q from the side: %q", name, value, header, r.Header[header])
			}
		}
	})
}

// A side that has begun a moment ago may not serve the paths of custom resources yet. That is not to have no object:
// clients would take what is there for deleted, and create it on the other side.
func TestASideThatDoesNotServeItsPathsYet(t *testing.T) {
	x := newFixture(t)
	yet := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("GET "+collection+"/web", func(w http.ResponseWriter, _ *http.Request) {
			status(w, http.StatusNotFound, "NotFound")
		})
		side.say("GET "+collection, http.StatusOK, emptyList)
		side.say("PUT "+collection+"/web", http.StatusCreated, deployment("web", "u"))
		side.say("POST "+collection, http.StatusCreated, deployment("web", "u"))
	}
	body := `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web"}}`
	x.wants("GET", collection+"/web", "", http.StatusNotFound, "NotFound")
	x.wants("POST", collection, body, http.StatusCreated, "web")
	x.legacy.page("GET "+collection+"/web", yet)
	x.legacy.page("GET "+collection, yet)
	for _, r := range [][3]string{{"GET", collection + "/web"}, {"GET", collection}, {"GET", collection + "?watch=1"},
		{"DELETE", collection + "/web"}, {"PUT", collection + "/web", body}, {"POST", collection, body}} {
		code, header, text := x.ask(r[0], r[1], r[2])
		if code != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(text, "yet") {
			t.Errorf("%s %s: %d %s", r[0], r[1], code, text)
		}
	}
}

// TestPanicsEndTheirRequest: what both sides have is read beside the goroutine of its request, where a panic would end
// the gateway.
func TestPanicsEndTheirRequest(t *testing.T) {
	x, _ := converted(t)
	x.modern.say("GET "+collection, http.StatusOK, emptyList)
	broken := *x.gateway.current.Load()
	broken.live = nil // of which a conversion makes a panic
	x.gateway.current.Store(&broken)
	const says = "the legacy side answers did not finish"
	for _, accept := range []string{"", ";as=Table;v=v1;g=meta.k8s.io"} {
		x.wants("GET", collection, "", http.StatusInternalServerError, says, "Accept: application/json"+accept)
	}
	x.wants("GET", collection+"/old", "", http.StatusInternalServerError, says)
	x.wants("DELETE", collection+"/old", "", http.StatusInternalServerError, says)
	x.wants("GET", "/version", "", http.StatusOK, "v1.36.3")

	var out strings.Builder
	events, streams := `{"type":"ADDED","object":`+deployment("a", "u")+"}", map[pair.Side]io.ReadCloser{}
	held := map[pair.Side]*heldEvent{}
	in, silent := io.Pipe()
	for name, of := range map[pair.Side]io.ReadCloser{pair.Modern: in,
		pair.Legacy: io.NopCloser(strings.NewReader(events))} {
		streams[name], held[name] = of, &heldEvent{memory: x.gateway.shares.users.Reserve(),
			ctx: t.Context(), workers: newWorkers(), made: true}
	}
	m := &merging{gateway: x.gateway, out: &out, end: func() { silent.Close() },
		merger: merger{makes: map[pair.Side]func([]byte) ([]byte, error){
			pair.Legacy: func([]byte) ([]byte, error) { panic("no such field") }}}}
	m.merge(streams, held)
	if got := out.String(); !strings.Contains(got, says) || strings.Count(got, "\n") != 1 {
		t.Errorf("the watch ends with %q", got)
	}
}
