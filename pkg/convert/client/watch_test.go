package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// counting is what is held, and what may be.
type counting struct {
	limit, held, most int
	ended             int
	refused           error // of Work
	working, worked   int
}

func (c *counting) Take(text []byte) error {
	c.held += len(text)
	if c.most = max(c.most, c.held); c.held > c.limit {
		return errors.New("no room")
	}
	return nil
}

func (c *counting) Work() (done func(), err error) {
	if c.refused != nil {
		return nil, c.refused
	}
	c.working++
	return func() { c.working--; c.worked++ }, nil
}

func (c *counting) End() { c.held = 0; c.ended++ }

func same(object map[string]any) (map[string]any, error) { return object, nil }

// What is held of an event is said, whatever comes with it, and no event is lost by that.
func TestEventsAreHeldOneByOne(t *testing.T) {
	var in, want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&in, `{"type":"ADDED","object":{"n":%d,"text":%q}}`+"\n", i, strings.Repeat("x", i*i%9000))
		fmt.Fprintf(&want, "%d ", i)
	}
	for _, pieces := range []int{1, 100, 5000, 1 << 20} {
		c := &counting{limit: 1 << 20}
		e := newEvents(io.NopCloser(&slowly{strings.NewReader(in.String()), pieces}), c, same)
		var got strings.Builder
		for lines := bufio.NewScanner(e); lines.Scan(); {
			var read struct{ Object struct{ N int } }
			if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%d ", read.Object.N)
		}
		if got.String() != want.String() {
			t.Errorf("in pieces of %d: events %s", pieces, got.String())
		}
		if c.ended < 200 || c.most < 9000 || c.most > 60_000 {
			t.Errorf("in pieces of %d: %d events end, the most that is held is %d bytes", pieces, c.ended, c.most)
		}
	}
	e := newEvents(io.NopCloser(strings.NewReader(in.String())), &counting{limit: 100}, same)
	if text, err := io.ReadAll(e); err == nil || err.Error() != "no room" {
		t.Errorf("%d bytes and %v, want no room", len(text), err)
	}
}

// Events are converted when whoever holds them says so, and nobody is in the way of another while the next one comes.
func TestEventsAreConvertedInTurns(t *testing.T) {
	const one = `{"type":"ADDED","object":{"n":1}}` + "\n"
	c := &counting{limit: 1 << 20}
	in := readerFunc(func(p []byte) (int, error) {
		if c.working > 0 {
			t.Error("a turn is held while an event comes")
		}
		if c.worked == 3 {
			return 0, io.EOF
		}
		return copy(p, one), nil
	})
	if text, err := io.ReadAll(newEvents(io.NopCloser(in), c, func(object map[string]any) (map[string]any, error) {
		if c.working != 1 {
			t.Errorf("an event is converted in %d turns", c.working)
		}
		return object, nil
	})); err != nil || c.working > 0 || c.worked != 3 || len(text) < 3*len(one)-len("\n") {
		t.Errorf("%q, %v; %d turns, %d are held", text, err, c.worked, c.working)
	}
	c.refused = errors.New("the client has gone")
	if text, err := io.ReadAll(newEvents(io.NopCloser(strings.NewReader(one)), c, same)); err != c.refused {
		t.Errorf("%q, %v, want an error", text, err)
	}
}

// readerFunc is a function that reads.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// slowly reads at most so much at a time.
type slowly struct {
	io.Reader
	bytes int
}

func (s *slowly) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.bytes)]) }

// A watch that waits holds nothing of its events: there are thousands of them.
func TestWatchesThatWaitHoldNothing(t *testing.T) {
	const watches, bytes = 100, 1 << 20
	line := `{"type":"ADDED","object":{"text":"` + strings.Repeat("x", bytes) + `"}}` + "\n"
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	waiting := make([]*events, watches)
	for i := range waiting {
		waiting[i] = newEvents(io.NopCloser(strings.NewReader(line)), nil, same)
		if _, err := io.CopyN(io.Discard, waiting[i], int64(len(line))); err != nil {
			t.Fatal(err)
		}
		waiting[i].source, waiting[i].bounded.in = nil, nil // which hold the line
	}
	if after := memory(); after > before+watches*bytes/10 {
		t.Errorf("%d watches hold %d bytes", watches, after-before)
	}
	runtime.KeepAlive(waiting)
}
