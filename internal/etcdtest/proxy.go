package etcdtest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a way to a member that can be slow, hang and be cut.
type Proxy struct {
	Endpoint string // URL for clients, in place of the member's
	target   string
	address  string

	mu       sync.Mutex
	changed  chan struct{} // closed when hanging or delay change
	hanging  bool
	left     int64 // bytes of answers until it hangs by itself, if they are limited
	limited  bool
	hung     chan struct{} // closed when it does
	delay    time.Duration
	listener net.Listener // nil while it is cut
	conns    map[net.Conn]bool
}

// NewProxy runs a proxy before the endpoint until the test ends.
func NewProxy(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	scheme, target, _ := strings.Cut(endpoint, "://")
	p := &Proxy{target: target, address: "127.0.0.1:0", changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.Mend(t)
	p.Endpoint = scheme + "://" + p.address
	t.Cleanup(p.Cut)
	return p
}

// Hang makes the proxy take connections and bytes, and pass nothing on, as a machine does that swaps.
func (p *Proxy) Hang() { p.set(true, 0) }

// HangAfter makes it hang when so many more bytes of answers were passed on, and returns what is closed then.
func (p *Proxy) HangAfter(bytes int64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.limited, p.hung = bytes, true, make(chan struct{})
	return p.hung
}

// Delay makes every answer take this much longer.
func (p *Proxy) Delay(d time.Duration) { p.set(false, d) }

// Resume ends Hang, HangAfter and Delay. What came meanwhile is passed on.
func (p *Proxy) Resume() { p.set(false, 0) }

func (p *Proxy) set(hanging bool, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging, p.delay, p.limited = hanging, delay, false
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut closes all connections and takes no new ones, as when a machine dies.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for conn := range p.conns {
		conn.Close()
	}
	clear(p.conns)
	close(p.changed)
	p.changed = make(chan struct{})
}

// Mend ends Cut.
func (p *Proxy) Mend(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.listener, p.address = listener, listener.Addr().String()
	p.mu.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	if p.listener == nil { // it was cut meanwhile
		client.Close()
		server.Close()
	}
	p.mu.Unlock()
	go p.pump(server, client, false)
	p.pump(client, server, true)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// pump copies, answers no earlier than the delay after they came.
func (p *Proxy) pump(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	type piece struct {
		came time.Time
		data []byte
	}
	pieces := make(chan piece, 256)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 16<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{time.Now(), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for piece := range pieces {
		p.hold(piece.came, answers, len(piece.data))
		if _, err := to.Write(piece.data); err != nil {
			from.Close()
			for range pieces { // let the reader end
			}
			return
		}
	}
}

// hold returns when a piece of so many bytes that came then may be passed on.
func (p *Proxy) hold(came time.Time, answers bool, bytes int) {
	for first := true; ; first = false {
		p.mu.Lock()
		if answers && first && p.limited {
			p.left -= int64(bytes)
			if p.left < 0 && !p.hanging {
				p.hanging = true
				close(p.hung)
			}
		}
		hanging, wait, changed, cut := p.hanging, time.Until(came.Add(p.delay)), p.changed, p.listener == nil
		p.mu.Unlock()
		if cut || (!hanging && (!answers || wait <= 0)) {
			return
		}
		var due <-chan time.Time
		if !hanging {
			due = time.After(wait)
		}
		select {
		case <-changed:
		case <-due:
			return
		}
	}
}
