package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/websocket"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/gateway/routes"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// asMessages reports whether a watch is asked for as messages of a WebSocket, as programs in browsers do.
func asMessages(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") &&
		r.Header.Get("Sec-Websocket-Version") == "13" && r.Header.Get("Sec-Websocket-Key") != ""
}

// sendMessages answers with a WebSocket to which each write of send is a message. end is called when the client is
// gone, or has not taken a message within the limit.
func sendMessages(w http.ResponseWriter, r *http.Request, limit time.Duration, end func(), send func(io.Writer)) {
	websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			// A token among the protocols is none of them. API servers speak the first of the others, whatever it is.
			config.Protocol = slices.DeleteFunc(config.Protocol, func(protocol string) bool {
				return strings.HasPrefix(protocol, tokenProtocol)
			})
			config.Protocol = config.Protocol[:min(1, len(config.Protocol))]
			return nil
		},
		Handler: func(connection *websocket.Conn) {
			defer func() {
				// A pong that the client does not read is being written, perhaps, and closing writes after it.
				_ = connection.SetWriteDeadline(time.Now().Add(limit))
				_ = connection.Close()
			}()
			go func() {
				defer end()
				_, _ = io.Copy(io.Discard, connection) // until the client is gone
			}()
			send(messages{connection, limit})
		},
	}.ServeHTTP(w, r)
}

// messages writes messages of text.
type messages struct {
	connection *websocket.Conn
	limit      time.Duration
}

// Write implements io.Writer.
func (m messages) Write(p []byte) (int, error) {
	if err := m.connection.SetWriteDeadline(time.Now().Add(m.limit)); err != nil {
		return 0, err
	}
	if err := websocket.Message.Send(m.connection, string(p)); err != nil {
		return 0, err
	}
	// What a client asks for by a ping is written, too, however long after an event.
	return len(p), m.connection.SetWriteDeadline(time.Time{})
}

// watchMessages serves a watch of what a side has in another version as messages.
func (g *Gateway) watchMessages(w http.ResponseWriter, r *http.Request, c *exchange, name pair.Side,
	row *routes.Row, memory *webserver.Reservation) error {
	ctx, cancel := context.WithCancel(r.Context())
	c.took.end(cancel)
	if err := c.endless(w); err != nil {
		return err
	}
	s := g.at(name)
	response, err := s.send(ctx, r, c.id, question{method: http.MethodGet, path: r.URL.EscapedPath(),
		query: r.URL.Query(), accept: "application/json", over: g.conversion(c, row, name, memory)})
	if err != nil {
		return err
	}
	c.took.end(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, limitStatusBytes))
		if err != nil {
			return unreachable(name, err)
		}
		return answered{&answer{name, response.StatusCode, response.Header, body}}
	}
	c.took.by(name)
	c.took.rest = func() {
		sendMessages(w, r, g.eventTimeout, cancel, func(out io.Writer) {
			eachEvent(response.Body, &heldEvent{memory: memory}, func(e json.RawMessage, err error) bool {
				if err == nil {
					_, err = out.Write(append(e, '\n'))
				}
				return err == nil
			})
		})
	}
	return nil
}
