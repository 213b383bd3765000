package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// An upgraded connection of which one end closes its half, while the other says nothing, ends all the same.
func TestHalfClosedConnectionsEnd(t *testing.T) {
	const at = "/api/v1/namespaces/a/pods/p/exec"
	const upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
	for _, closes := range []string{"the client", "the side"} {
		x := newFixture(t)
		x.gateway.eventTimeout = 50 * time.Millisecond
		over := make(chan bool)
		t.Cleanup(func() { close(over) })
		for _, side := range []*fakeSide{x.legacy, x.modern} {
			side.say("GET /api/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
				{"name":"pods","kind":"Pod","namespaced":true,`+verbsJSON+`},
				{"name":"pods/exec","kind":"PodExecOptions","namespaced":true,"verbs":["create","get"]}]}`)
			side.page("POST "+at, func(w http.ResponseWriter, _ *http.Request) {
				connection, buffer, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer connection.Close()
				fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\n"+upgrade)
				_ = buffer.Flush()
				_, _ = io.CopyN(connection, buffer, 1) // an echo
				if closes == "the client" {
					<-over
				}
			})
		}
		x.gateway.refresh(t.Context())
		connection, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\n%s", at, upgrade)
		answers := bufio.NewReader(connection)
		if _, err := http.ReadResponse(answers, nil); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(connection, "a")
		if b, err := answers.ReadByte(); b != 'a' || err != nil {
			t.Fatal(b, err)
		}
		if closes == "the client" {
			connection.Close()
		}
		for end := time.Now().Add(10 * time.Second); x.gateway.watching.Load() > 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Errorf("%s closes its half, and the connection stays", closes)
				break
			}
		}
	}
}
