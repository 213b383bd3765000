package gateway

import (
	"net/http"
	"sync"
	"time"
)

// The server lets an exchange take half a minute, and breaks its answer off then. API servers take a minute: for a list
// of a large cluster, or for webhooks that are slow.
const (
	// extensionAfter is when an exchange gets more time: most have ended, and to set deadlines costs more than a timer.
	extensionAfter = 20 * time.Second
	// transferTimeout is how long an answer may take that began early, and a body that is sent, as at API servers.
	transferTimeout = time.Minute
	// waitTimeout is how long an answer may take to begin: the gateway waits for its turn and for sides that hang, and
	// says so then.
	waitTimeout = seatWait + 2*answerTimeout + 10*time.Second
	// lateTransferTimeout is how long an answer may take that began late.
	lateTransferTimeout = 30 * time.Second
)

// extension gives an exchange that has an end more time than the server does.
type extension struct {
	began  time.Time
	writer http.ResponseWriter
	body   bool // the request has one
	timer  *time.Timer

	mu                    sync.Mutex
	answered, late, ended bool
}

// startExtension begins with the exchange. end is called before its handler returns.
func startExtension(w http.ResponseWriter, r *http.Request) (x *extension, end func()) {
	x = &extension{began: time.Now(), writer: w, body: r.Body != nil && r.Body != http.NoBody}
	x.timer = time.AfterFunc(extensionAfter, x.extend)
	return x, func() {
		x.timer.Stop()
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ended = true
	}
}

func (x *extension) extend() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return
	}
	x.late = !x.answered
	write, read := transferTimeout, waitTimeout
	if x.late {
		write = waitTimeout
	}
	if x.body { // it may still come: a minute is what it gets, and a side that hangs after it some more
		read = answerTimeout + seatWait
	}
	control := http.NewResponseController(x.writer)
	_ = control.SetWriteDeadline(x.began.Add(write)) // what has no deadlines needs no more time
	_ = control.SetReadDeadline(x.began.Add(read))
}

// answers is called when the answer begins.
func (x *extension) answers() {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered = true; x.late {
		_ = http.NewResponseController(x.writer).SetWriteDeadline(time.Now().Add(lateTransferTimeout))
	}
}
