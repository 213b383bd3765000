package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestSlowBodiesHoldNoSlot: clients that send their reviews by the byte do not keep others from an answer.
func TestSlowBodiesHoldNoSlot(t *testing.T) {
	h := handler(t)
	h.Slots = make(chan struct{}, 1)
	h.Timeout = time.Minute
	body, end := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/convert", body))
	}()
	if _, err := io.WriteString(end, "{"); err != nil { // it is read now
		t.Fatal(err)
	}
	if w := post(h, question("v1", margherita)); w.Code != http.StatusOK {
		t.Errorf("beside a slow body: %d %s", w.Code, strings.TrimSpace(w.Body.String()))
	}
	end.Close()
	<-ended
}
