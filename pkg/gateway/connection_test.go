package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// raw sends a request over a connection of its own, with headers as they stand; net/http's client drops some of them.
func (x *fixture) raw(method, path, body string, headers ...string) int {
	x.t.Helper()
	at, err := url.Parse(x.url)
	if err != nil {
		x.t.Fatal(err)
	}
	connection, err := (&net.Dialer{}).DialContext(x.t.Context(), "tcp", at.Host)
	if err != nil {
		x.t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nHost: gateway\r\nTest-Certificate: alice\r\n"+
		"Content-Length: %d\r\n%s\r\n\r\n%s", method, path, len(body), strings.Join(headers, "\r\n"), body)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		x.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// TestHeadersThatConnectionTakes: a header that Connection names reaches no side. The gateway would record another
// user, or no body, of what the side does, so that it refuses the request.
func TestHeadersThatConnectionTakes(t *testing.T) {
	const path = "/api/v1/namespaces/a/pods"
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`
	x := newFixture(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("POST "+path, http.StatusCreated, pod)
	}
	asked := func() int {
		count := 0
		for _, side := range []*fakeSide{x.legacy, x.modern} {
			side.mu.Lock()
			for _, r := range side.asked {
				if r.URL.Path == path {
					count++
				}
			}
			side.mu.Unlock()
		}
		return count
	}
	for header, connection := range map[string]string{
		"Impersonate-User: bob":                             "Impersonate-User",
		"Impersonate-Group: system:masters":                 "close, impersonate-group",
		"Audit-Id: of-the-client":                           "keep-alive\r\nConnection: Audit-Id",
		"Content-Type: application/vnd.kubernetes.protobuf": "Content-Type",
		"Content-Encoding: gzip":                            " CONTENT-ENCODING ",
		"User-Agent: x":                                     "Upgrade,User-Agent\r\nUpgrade: websocket",
	} {
		if code := x.raw(http.MethodPost, path, pod, header, "Connection: "+connection); code != http.StatusBadRequest {
			t.Errorf("%s, Connection: %s: %d, want 400", header, connection, code)
		}
	}
	if count := asked(); count > 0 {
		t.Errorf("a side is asked for %d of them", count)
	}
	for _, fine := range []string{"Connection: keep-alive", "Connection: close, Impersonate-User",
		"TE: trailers\r\nConnection: TE"} {
		code := x.raw(http.MethodPost, path, pod, "Content-Type: application/json", fine)
		if code != http.StatusCreated {
			t.Errorf("%s: %d, want 201", fine, code)
		}
	}
	if count := asked(); count != 3 {
		t.Errorf("a side is asked %d times, want 3", count)
	}
}
