package gateway

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// dial opens a WebSocket as a browser does.
func (x *fixture) dial(path string, protocols ...string) (*websocket.Conn, error) {
	x.t.Helper()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(x.url, "http")+path, "http://dashboard.example.test")
	if err != nil {
		x.t.Fatal(err)
	}
	config.Header.Set("Test-Certificate", "alice")
	config.Protocol = protocols
	return config.DialContext(x.t.Context())
}

// Watches of what is merged or converted come as messages of a WebSocket, one for each event, as those of API servers
// do: dashboards in browsers read them so.
func TestWatchesAreMessages(t *testing.T) {
	x, far := withCluster(t)
	x.old()
	events := func(version string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				t.Errorf("%s: the server is asked for a WebSocket", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			for i := range 3 {
				fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Deployment","apiVersion":%q,"metadata":{`+
					`"name":"d-%d","namespace":"a","uid":"u","resourceVersion":"5","annotations":{"long":%q}}}}`+"\n", version, i,
					strings.Repeat("x", 5000))
				http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}
	}
	x.modern.page("GET "+collection, events("apps/v1"))
	x.legacy.page("GET /apis/extensions/v1beta1/namespaces/a/deployments", events("extensions/v1beta1"))
	far.page("GET "+strings.Replace(collection, "/v1/", "/v1beta2/", 1), events("apps/v1beta2"))
	for path, sides := range map[string]string{collection: "legacy legacy legacy modern modern modern",
		"/clusters/far" + collection: "  "} {
		connection, err := x.dial(path+"?watch=1", "base64.binary.k8s.io")
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		t.Cleanup(func() { connection.Close() })
		var seen []string
		for range strings.Split(sides, " ") {
			var e struct {
				Type   string
				Object struct {
					APIVersion string
					Metadata   struct{ Annotations map[string]string }
				}
			}
			if err := websocket.JSON.Receive(connection, &e); err != nil || e.Type != "ADDED" ||
				e.Object.APIVersion != "apps/v1" || len(e.Object.Metadata.Annotations["long"]) != 5000 {
				t.Fatalf("%s: %+v, %v", path, e, err)
			}
			seen = append(seen, e.Object.Metadata.Annotations["kubefusion.dev/side"])
		}
		if slices.Sort(seen); strings.Join(seen, " ") != sides {
			t.Errorf("%s: events of %q, want %q", path, seen, sides)
		}
	}
	// What is refused is so before the connection is another one.
	for _, version := range []string{"7", "x"} {
		if connection, err := x.dial(collection + "?watch=1&resourceVersion=" + version); err == nil {
			t.Errorf("a watch from %s is served", version)
			connection.Close()
		}
	}
}

// A watch as messages ends with the client, and when either side ends.
func TestMessagesEnd(t *testing.T) {
	x := newFixture(t)
	gone := make(chan struct{}, 2)
	more := make(chan struct{})
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-more:
			}
			gone <- struct{}{}
		})
	}
	connection, err := x.dial(collection+"?watch=1", tokenProtocol+"eA", "base64.binary.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if got := connection.Config().Protocol; len(got) != 1 || got[0] != "base64.binary.k8s.io" {
		t.Errorf("the protocol is %q", got)
	}
	connection.Close()
	<-gone
	<-gone
	if connection, err = x.dial(collection + "?watch=1"); err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	close(more)
	if err := connection.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(connection); err != nil || len(text) > 0 {
		t.Errorf("the end of the watch: %q, %v", text, err)
	}
}

// TestPingsOfAWatchAreAnswered: the time to take a message is none in which a ping has to come.
func TestPingsOfAWatchAreAnswered(t *testing.T) {
	x := newFixture(t)
	x.gateway.eventTimeout = 50 * time.Millisecond
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", deployment("web", "u"))
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
	}
	connection, err := x.dial(collection + "?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	var text string
	for range 2 {
		if err := websocket.Message.Receive(connection, &text); err != nil {
			t.Fatal(err)
		}
	}
	ping := websocket.Codec{Marshal: func(any) ([]byte, byte, error) { return []byte("p"), websocket.PingFrame, nil }}
	for began := time.Now(); time.Since(began) < 4*x.gateway.eventTimeout; {
		if err := ping.Send(connection, nil); err != nil {
			t.Fatal(err)
		}
		frame, err := connection.NewFrameReader()
		if err != nil || frame.PayloadType() != websocket.PongFrame {
			t.Fatalf("%v after an event: %v", time.Since(began), err)
		}
		if _, err := io.Copy(io.Discard, frame); err != nil {
			t.Fatal(err)
		}
	}
}
