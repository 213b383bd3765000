package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// written is a client that says what it was sent, write by write.
type written struct{ writes chan string }

func (w written) Write(p []byte) (int, error) {
	w.writes <- string(p)
	return len(p), nil
}

// An event that has come is sent, whatever comes next; one that a read has only half of is sent in one piece where the
// rest is sure to come.
func TestEventsAreSentWhenTheyHaveCome(t *testing.T) {
	for _, lines := range []bool{true, false} {
		in, side := io.Pipe()
		client := written{make(chan string)}
		done := make(chan bool)
		go func() {
			defer close(done)
			copyEvents(client, &endless{in, context.Background(), lines})
		}()
		if got := <-client.writes; got != "" {
			t.Fatalf("before any event there is %q", got)
		}
		for _, bytes := range []int{2, littleBytes - 1, littleBytes, littleBytes + 1, 2 * littleBytes,
			3*littleBytes + 1, wholeBuffers.bytes - 1, wholeBuffers.bytes, wholeBuffers.bytes + 1, 100_000} {
			event := strings.Repeat("x", bytes-1) + "\n"
			go io.WriteString(side, event)
			var got strings.Builder
			writes := 0
			for ; got.Len() < bytes; writes++ {
				got.WriteString(<-client.writes)
			}
			if got.String() != event {
				t.Fatalf("an event of %d bytes is changed", bytes)
			}
			if want := bytes/wholeBuffers.bytes + 1; lines && writes > want {
				t.Errorf("an event of %d bytes is sent in %d pieces, want at most %d", bytes, writes, want)
			}
		}
		go side.Close()
		<-done
	}
}

// The first half of an event is not lost with a side that goes away, and is not a whole answer.
func TestHalfAnEventIsBrokenOff(t *testing.T) {
	in, side := io.Pipe()
	client := httptest.NewRecorder()
	go func() {
		io.WriteString(side, strings.Repeat("x", littleBytes))
		side.CloseWithError(io.ErrUnexpectedEOF)
	}()
	defer func() {
		if err := recover(); err != http.ErrAbortHandler {
			t.Errorf("the answer ends with %v", err)
		}
		if client.Body.Len() != littleBytes {
			t.Errorf("%d bytes were sent, want %d", client.Body.Len(), littleBytes)
		}
	}()
	copyEvents(client, &endless{in, context.Background(), true})
}
