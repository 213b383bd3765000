package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Upgraded connections are passed on as they are, in both directions, to the side whose pod it is.
func TestStreamsAreUpgraded(t *testing.T) {
	const pod, subprotocols = "/api/v1/namespaces/a/pods/p", "v5.channel.k8s.io, v4.channel.k8s.io"
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		for path, sides := range map[string][]string{pod + "/exec?command=sh": {"legacy", "modern"},
			pod + "/portforward": {"legacy", "modern"}, "/sides/legacy" + pod + "/attach": {"legacy"},
			"/sides/modern" + pod + "/attach": {"modern"}, collection + "/p/proxy/x": {"legacy"}} {
			x := newFixture(t)
			for _, side := range []*fakeSide{x.legacy, x.modern} {
				side.say("GET /api/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
					{"name":"pods","kind":"Pod","namespaced":true,`+verbsJSON+`},
					{"name":"pods/exec","kind":"PodExecOptions","namespaced":true,"verbs":["create","get"]},
					{"name":"pods/portforward","kind":"PodPortForwardOptions","namespaced":true,
					"verbs":["create","get"]},
					{"name":"namespaces","kind":"Namespace",`+verbsJSON+`}]}`)
				side.say("GET /apis/apps/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"apps/v1",
					"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,`+verbsJSON+`},
					{"name":"deployments/proxy","kind":"Deployment","namespaced":true,"verbs":["create","get"]}]}`)
			}
			x.gateway.refresh(t.Context())
			x.legacy.say("GET "+collection+"/p", http.StatusOK, deployment("p", "u"))
			for name, side := range map[string]*fakeSide{"legacy": x.legacy, "modern": x.modern} {
				for _, at := range []string{pod + "/exec", pod + "/portforward", pod + "/attach",
					collection + "/p/proxy/x"} {
					side.page("POST "+at, func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Upgrade") != protocol || r.Header.Get("X-Remote-User") != "alice" ||
							r.Header.Get("Sec-Websocket-Protocol") != subprotocols {
							t.Errorf("%s: the side is asked with %v", path, r.Header)
						}
						connection, stream, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						defer connection.Close()
						fmt.Fprintf(stream, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
							"Upgrade: %s\r\nSec-Websocket-Protocol: v4.channel.k8s.io\r\n\r\n%s:", protocol, name)
						stream.Flush()
						io.CopyN(stream, stream, 1<<20)
						stream.Flush()
					})
				}
			}
			connection, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nTest-Certificate: alice\r\nConnection: Upgrade\r\n"+
				"Upgrade: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", path, protocol, subprotocols)
			in := bufio.NewReader(connection)
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != protocol ||
				response.Header.Get("Sec-Websocket-Protocol") != "v4.channel.k8s.io" {
				text, _ := io.ReadAll(response.Body)
				t.Errorf("%s %s: %d %v %s", protocol, path, response.StatusCode, response.Header, text)
				connection.Close()
				continue
			}
			sent := strings.Repeat("\x00\x80\xff\x01", 1<<18)
			go io.WriteString(connection, sent)
			name, err := in.ReadString(':')
			if err != nil || !strings.Contains(strings.Join(sides, ": ")+":", name) {
				t.Errorf("%s %s: %q answers, %v, want %q", protocol, path, name, err, sides)
			}
			if got, err := io.ReadAll(in); err != nil || string(got) != sent {
				t.Errorf("%s %s: %d bytes come back, %v, want %d", protocol, path, len(got), err, len(sent))
			}
			connection.Close()
		}
	}
}

// A side that refuses an upgrade says so in its own words.
func TestStreamsThatAreRefused(t *testing.T) {
	x := newFixture(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("POST /api/v1/namespaces/a/pods/p/exec", func(w http.ResponseWriter, _ *http.Request) {
			status(w, http.StatusForbidden, "Forbidden")
		})
	}
	x.wants("POST", "/api/v1/namespaces/a/pods/p/exec", "", http.StatusForbidden, "of the side", "Connection: Upgrade",
		"Upgrade: SPDY/3.1")
}
