package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/journal"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// machine is a runner that keeps what it was told, in memory.
type machine struct {
	more  int // notes
	mutex sync.Mutex
	files map[string]string
	done  []string
	hang  chan struct{} // closed once an action waits for its context
}

func (m *machine) Do(ctx context.Context, host string, a *transition.Action) error {
	if m.hang != nil {
		close(m.hang)
		<-ctx.Done()
		return ctx.Err()
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.done = append(m.done, host+" "+string(a.Kind)+" "+a.File.Path)
	switch a.Kind {
	case transition.PutFile:
		m.files[a.File.Path] = string(a.File.Data)
	case transition.RemoveFile:
		delete(m.files, a.File.Path)
	default:
		return errors.New("not for this machine")
	}
	return nil
}

func (m *machine) Check(_ context.Context, _ string, c *transition.Check) error {
	switch c.Kind {
	case transition.MayGo:
		return fmt.Errorf("wrapped: %w", &handover.GoneError{Keys: []string{"a"}, Gone: 1, Of: 1, Digest: "d"})
	case transition.Adopted:
		return fmt.Errorf("wrapped: %w", &handover.PodsError{Pods: []string{"p\x1b[2J\nit is done"}})
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	text, there := m.files[c.Path]
	if want := c.File; (want != nil) != there || there && text != string(want.Data) {
		return errors.New(c.Path + ": is another file\x1b[2J")
	}
	return nil
}

// Notes are two, one of them with more than a line, of every request, and more.
func (m *machine) Notes() []string {
	notes := []string{"a bitmap lacks\x1b[2J 5", "and\nstep 012 is done"}
	return append(notes, slices.Repeat([]string{"more"}, m.more)...)
}

// Look finds the first store, and not the others.
func (m *machine) Look(_ context.Context, host string, w *transition.Watch) (map[string]witness.Sight, error) {
	seen := map[string]witness.Sight{w.Stores[0].Name: {Cluster: host, Revision: 7,
		Objects: map[string]witness.Object{witness.KubeSystem: {UID: "u", Revision: 3}}}}
	if len(w.Stores) > 1 {
		return seen, errors.New("store " + w.Stores[1].Name + ": does not answer")
	}
	return seen, nil
}

// Digest is that of a file, and none where there is none.
func (m *machine) Digest(_ context.Context, _, path string) (string, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	text, there := m.files[path]
	if !there {
		return "", nil
	}
	if text == "foreign" {
		return "none\x1b[2J", nil
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text))), nil
}

// Keep knows every record.
func (m *machine) Keep(_ context.Context, host string, o *transition.Objects) (*handover.Known, error) {
	return &handover.Known{Directory: "/of/" + host, Digest: o.Record}, nil
}

// pipe is a connection to an agent in this process. It breaks at its last permitted request: before it arrives, or once
// it was carried out and not answered.
type pipe struct {
	io.Reader
	in         *io.PipeWriter
	out        *io.PipeReader
	left       *int // requests that may still be made; negative: all
	loseAnswer bool
	served     chan error
	closed     sync.Once
	err        error
}

func (p *pipe) Write(data []byte) (int, error) {
	if *p.left == 0 {
		if !p.loseAnswer {
			return 0, errors.New("the connection is gone")
		}
		_, _ = p.in.Write(data)
		answer := make([]byte, 1)
		_, _ = p.out.Read(answer) // the agent has done it
		_ = p.out.Close()
		return len(data), nil
	}
	*p.left--
	return p.in.Write(data)
}

func (p *pipe) Close() error {
	p.closed.Do(func() {
		_, _ = p.in.Close(), p.out.Close()
		if err := <-p.served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			p.err = err
		}
	})
	return p.err
}

func connect(m *machine, left *int, loseAnswer bool) func(context.Context, transition.Host) (Connection, error) {
	return func(_ context.Context, h transition.Host) (Connection, error) {
		in, send := io.Pipe()
		receive, out := io.Pipe()
		p := &pipe{Reader: receive, in: send, out: receive, left: left, loseAnswer: loseAnswer,
			served: make(chan error, 1)}
		go func() {
			err := Serve(context.Background(), in, out, func(hello Hello) (transition.Runner, error) {
				if hello.Host != h {
					return nil, fmt.Errorf("greeted as %v", hello.Host)
				}
				return m, nil
			})
			_ = out.CloseWithError(io.EOF)
			p.served <- err
		}()
		return p, nil
	}
}

func file(text string) *transition.File {
	return &transition.File{Path: "/etc/x", Mode: 0o600, Data: []byte(text)}
}

var host = transition.Host{Name: "cp-1", Address: "10.0.0.1"}

// TestLooksComeFromAnotherMachine: what was seen arrives, also beside an error about the rest.
func TestLooksComeFromAnotherMachine(t *testing.T) {
	left := 1 << 30
	hosts := &Hosts{Hosts: []transition.Host{host}, Connect: connect(&machine{}, &left, false)}
	defer hosts.Close()
	both := &Both{Away: hosts}
	want := witness.Sight{Cluster: "cp-1", Revision: 7,
		Objects: map[string]witness.Object{witness.KubeSystem: {UID: "u", Revision: 3}}}
	core, modern := plan.Store{Name: "core"}, plan.Store{Name: "modern"}
	seen, err := both.Look(t.Context(), "cp-1", &transition.Watch{Stores: []plan.Store{core}})
	if diff := cmp.Diff(map[string]witness.Sight{"core": want}, seen); diff != "" || err != nil {
		t.Errorf("Look: %v %s", err, diff)
	}
	seen, err = both.Look(t.Context(), "cp-1", &transition.Watch{Stores: []plan.Store{core, modern}})
	if err == nil || !strings.Contains(err.Error(), "modern: does not answer") || seen["core"].Revision != 7 {
		t.Errorf("Look with a silent store = %v, %v", seen, err)
	}
}

// TestHandOversAreKnownOnAnotherMachine: where their records lie, and the errors about which a person decides.
// TestNotesOfAnotherMachine: each says of which host it is, and is no line of ours.
func TestNotesOfAnotherMachine(t *testing.T) {
	m, left := &machine{files: map[string]string{}}, -1
	both := &Both{Here: m, Away: &Hosts{Hosts: []transition.Host{host}, Connect: connect(m, &left, false)}}
	defer both.Away.Close()
	for _, at := range []string{host.Name, "here"} {
		if err := both.Check(t.Context(), at, &transition.Check{Kind: transition.FileIs}); err != nil {
			t.Fatal(err)
		}
	}
	notes := both.Notes()
	if len(notes) != 4 || !strings.HasPrefix(notes[0], "host "+host.Name+": a bitmap lacks") ||
		strings.ContainsAny(notes[0]+notes[1], "\x1b") || strings.Contains(notes[1], "\nstep") {
		t.Errorf("notes %q", notes)
	}
	m.more = 100_000
	if err := both.Check(t.Context(), host.Name, &transition.Check{Kind: transition.FileIs}); err != nil {
		t.Fatal(err)
	}
	if notes := both.Away.Notes(); len(notes) != mostNotes {
		t.Errorf("%d notes of an answer, want %d", len(notes), mostNotes)
	}
}

func TestHandOversAreKnownOnAnotherMachine(t *testing.T) {
	left := 1 << 30
	hosts := &Hosts{Hosts: []transition.Host{host}, Connect: connect(&machine{}, &left, false)}
	defer hosts.Close()
	both := &Both{Away: hosts}
	kept, err := both.Keep(t.Context(), "cp-1", &transition.Objects{Record: "hand-over-x"})
	if err != nil || kept == nil || *kept != (handover.Known{Directory: "/of/cp-1", Digest: "hand-over-x"}) {
		t.Errorf("Keep = %+v, %v", kept, err)
	}
	err = both.Check(t.Context(), "cp-1", &transition.Check{Kind: transition.MayGo})
	if gone, is := errors.AsType[*handover.GoneError](err); !is || gone.Digest != "d" ||
		!strings.HasPrefix(err.Error(), "host cp-1: wrapped: 1 of 1 objects") {
		t.Errorf("objects that are gone: %v", err)
	}
	err = both.Check(t.Context(), "cp-1", &transition.Check{Kind: transition.Adopted})
	if pods, is := errors.AsType[*handover.PodsError](err); !is || len(pods.Pods) != 1 {
		t.Errorf("pods: %v", err)
	}
}

// TestTransitionSurvivesLostConnections cuts the connection at every request, before it arrives and after it was done,
// in both directions. Apply and Undo are called again until they end, and all is as if nothing had been cut.
func TestTransitionSurvivesLostConnections(t *testing.T) {
	put := func(text, was string) *transition.Action {
		a := &transition.Action{Kind: transition.PutFile, File: file(text), Was: file(was),
			Before: []transition.Check{{Kind: transition.FileIs, Path: "/etc/x", File: file(was)}},
			After:  []transition.Check{{Kind: transition.FileIs, Path: "/etc/x", File: file(text)}}}
		return a
	}
	steps := &transition.Transition{Hosts: []transition.Host{host}, Steps: []transition.Step{
		{ID: "001", Host: "cp-1", Do: put("b", "a"), Undo: put("a", "b")},
		{ID: "002", Host: "cp-1", Do: put("c", "b"), Undo: put("b", "c")},
	}}
	for i := range steps.Steps {
		for _, a := range []*transition.Action{steps.Steps[i].Do, steps.Steps[i].Undo} {
			a.Before = nil // a step that is repeated finds its own work
		}
	}
	const never = 1 << 30
	for _, lose := range []bool{false, true} {
		for cut := range 16 {
			m := &machine{files: map[string]string{"/etc/x": "a"}}
			kept, err := journal.Open[transition.Record](t.TempDir()+"/journal", "plan")
			if err != nil {
				t.Fatal(err)
			}
			left, cuts := cut, 0
			run := func(what func(context.Context, *transition.Transition, transition.Runner, transition.Journal,
				transition.Progress) error) {
				for {
					hosts := &Hosts{Hosts: []transition.Host{host}, Connect: connect(m, &left, lose)}
					err := what(t.Context(), steps, hosts, kept, nil)
					if err == nil {
						err = hosts.Close()
					}
					if err == nil {
						return
					}
					if cuts++; cuts > 1 || left != 0 {
						t.Fatalf("cut at %d: %v", cut, err)
					}
					left = never
				}
			}
			run(transition.Apply)
			if m.files["/etc/x"] != "c" {
				t.Errorf("cut at %d: applied, %q", cut, m.files["/etc/x"])
			}
			run(transition.Undo)
			if m.files["/etc/x"] != "a" {
				t.Errorf("cut at %d: undone, %q", cut, m.files["/etc/x"])
			}
			if state, err := transition.StateOf(steps, kept.Records()); err != nil || state != (transition.State{}) {
				t.Errorf("cut at %d: state %+v, %v", cut, state, err)
			}
			if err := kept.Close(); err != nil {
				t.Error(err)
			}
			if cut < 8 && cuts == 0 {
				t.Errorf("the connection was not cut at %d", cut)
			}
		}
	}
}

func TestAnErrorOfAnotherMachineIsOneAndVisible(t *testing.T) {
	m, left := &machine{files: map[string]string{}}, -1
	hosts := &Hosts{Hosts: []transition.Host{host}, Connect: connect(m, &left, false)}
	err := hosts.Check(t.Context(), "cp-1", &transition.Check{Kind: transition.FileIs, Path: "/etc/x", File: file("a")})
	if err == nil || !strings.Contains(err.Error(), "is another file") || strings.Contains(err.Error(), "\x1b") ||
		!strings.HasPrefix(err.Error(), "host cp-1: ") { // of checks of several hosts each begins a line
		t.Errorf("error = %q", err)
	}
	if err := hosts.Do(t.Context(), "cp-1", &transition.Action{Kind: transition.PutFile, File: file("a")}); err != nil {
		t.Errorf("the connection is of no use after an error of a check: %v", err)
	}
	if err := hosts.Do(t.Context(), "cp-2", &transition.Action{Kind: transition.PutFile, File: file("a")}); err == nil {
		t.Error("a host that is not of the transition was reached")
	}
	if err := hosts.Close(); err != nil {
		t.Error(err)
	}
}

// TestWordsOfAnotherMachineAreNoLinesOfOurs: what a host says cannot look like a line that the verb prints, or that a
// person is to read as its own.
func TestWordsOfAnotherMachineAreNoLinesOfOurs(t *testing.T) {
	a := Answer{Error: "no\r\nstep 012 is done\n\x1b[2Aok", ByHand: "wait\nand approve", Gone: nil}
	err := a.Err()
	hand := new(transition.ByHandError)
	if !errors.As(err, &hand) {
		t.Fatal(err)
	}
	long := Answer{Error: strings.Repeat("x\n", LimitAnswerBytes/4)}
	if got := len(long.Err().Error()); got > 4*limitErrorBytes {
		t.Errorf("%d bytes of a long error", got)
	}
	for _, text := range []string{err.Error(), hand.Text} {
		first, rest, found := strings.Cut(text, "\n")
		if !found || strings.ContainsAny(text, "\x1b\r") || first == "" {
			t.Errorf("%q", text)
		}
		for line := range strings.SplitSeq(rest, "\n") {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%q stands where a line of ours would", line)
			}
		}
	}
}

// TestServeBreaksOffWhenItsInputEnds: its client is gone, and another may ask next.
func TestServeBreaksOffWhenItsInputEnds(t *testing.T) {
	m := &machine{hang: make(chan struct{})}
	in, send := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), in, io.Discard, func(Hello) (transition.Runner, error) { return m, nil })
	}()
	_, err := io.WriteString(send, `{"schema":"`+Schema+`","host":{"name":"cp-1","address":"10.0.0.1"},"snapshots":"",`+
		`"wait":1}`+"\n"+`{"do":{"kind":"put file"}}`+"\n")
	if err != nil {
		t.Fatal(err)
	}
	<-m.hang
	_ = send.Close()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the agent goes on without anybody who asks")
	}
}

// TestAnAgentThatWorksIsHeard: the agent says that it is at work; one that says nothing is lost, and so is one of which
// nothing is heard after its greeting, and one that does not come to an end.
func TestAnAgentThatWorksIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			takes time.Duration
			hears bool // the connection carries what the agent says
			kind  transition.Kind
			says  string
		}{{3 * time.Hour, true, transition.Snapshot, ""}, {time.Second, false, transition.Snapshot, "no word for 1m0s"},
			{7 * time.Hour, true, transition.Snapshot, "still at work after 6h0m0s"},
			{4 * time.Minute, true, transition.StartUnit, ""},
			{3 * time.Hour, true, transition.StartUnit, "still at work after 10m0s"}} {
			near, far := net.Pipe()
			away := make(chan error, 1)
			go func() {
				out := io.Writer(far)
				if !c.hears {
					out = &greeting{Writer: far}
				}
				away <- Serve(t.Context(), far, out, func(Hello) (transition.Runner, error) {
					return slow{c.takes}, nil
				})
				_ = far.Close()
			}()
			hosts := &Hosts{Hosts: []transition.Host{host},
				Connect: func(context.Context, transition.Host) (Connection, error) { return near, nil }}
			err := hosts.Do(t.Context(), "cp-1", &transition.Action{Kind: c.kind})
			if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("an action of %s: %v, want %q", c.takes, err, c.says)
			}
			_ = near.Close()
			<-away
		}
	})
}

// TestAnAgentThatOnlySaysThatItWorks is none: its lines are counted.
func TestAnAgentThatOnlySaysThatItWorks(t *testing.T) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for {
			if _, err := io.WriteString(far, `{"working":true}`+"\n"); err != nil {
				return
			}
		}
	}()
	hosts := &Hosts{Hosts: []transition.Host{host},
		Connect: func(context.Context, transition.Host) (Connection, error) { return near, nil }}
	ended := make(chan error, 1)
	go func() { ended <- hosts.Check(t.Context(), "cp-1", &transition.Check{Kind: transition.Ready}) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "more often than every 15s") {
			t.Errorf("Check = %v, want that the agent says too often that it is at work", err)
		}
	case <-time.After(time.Minute):
		t.Error("Check goes on with an agent that says nothing else")
	}
	_ = near.Close()
	<-flooded
	_ = far.Close()
}

// slow is a runner whose actions take their time.
type slow struct{ takes time.Duration }

func (s slow) Do(ctx context.Context, _ string, _ *transition.Action) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (slow) Check(context.Context, string, *transition.Check) error { return nil }

func (slow) Digest(context.Context, string, string) (string, error) { return "", nil }

func (slow) Keep(context.Context, string, *transition.Objects) (*handover.Known, error) {
	return nil, nil
}

func (slow) Look(context.Context, string, *transition.Watch) (map[string]witness.Sight, error) {
	return nil, nil
}

// greeting lets one write through, and loses the others.
type greeting struct {
	io.Writer
	done bool
}

func (g *greeting) Write(data []byte) (int, error) {
	if g.done {
		return len(data), nil
	}
	g.done = true
	return g.Writer.Write(data)
}

func TestServeRefuses(t *testing.T) {
	hello := `{"schema":"` + Schema + `","host":{"name":"cp-1","address":"10.0.0.1"},"snapshots":"","wait":1}`
	for _, c := range []struct{ in, says string }{
		{"", ""},
		{"\n", "no request of"},
		{`{"schema":"fusionctl/transition-agent/v2"}`, ""}, // no end of line: its sender was killed
		{`{"schema":"fusionctl/transition-agent/v2"}` + "\n", "no request of"},
		{strings.Replace(hello, "cp-1", "other", 1) + "\n", "is not this machine"},
		{hello + "\n{}\n", "wants one action, one check or one look"},
		{hello + "\n" + `{"do":{"kind":"put file"},"check":{"kind":"gone"}}` + "\n", "wants one action, one check or one look"},
		{hello + "\n" + `{"do":{"kind":"put file","force":true}}` + "\n", "unknown field"},
		{hello + "\nnonsense\n", "invalid character"},
	} {
		m := &machine{files: map[string]string{}}
		var out strings.Builder
		err := Serve(t.Context(), strings.NewReader(c.in), &out, func(h Hello) (transition.Runner, error) {
			if h.Host != host {
				return nil, errors.New("is not this machine")
			}
			return m, nil
		})
		said := out.String()
		if err != nil {
			said += err.Error()
		}
		if !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("Serve(%q) says %q, want %q", c.in, said, c.says)
		}
		if len(m.done) > 0 {
			t.Errorf("Serve(%q) did %q", c.in, m.done)
		}
	}
}

// TestCommand: what a command says on its standard error is in the error, and a command that talks nonsense is named.
func TestCommand(t *testing.T) {
	for _, c := range []struct{ script, says string }{
		{"echo no route to host >&2; exit 255", "no route to host"},
		{"echo Welcome; cat", "malformed answer"},
		{`read line; echo '{"schema":"fusionctl/transition-agent/v0"}'; cat >/dev/null`, "speaks"},
		{`read line; echo '{"error":"not here"}'; cat >/dev/null`, "not here"},
		{"head -c 3000000 /dev/zero", "token too long"},
	} {
		hosts := &Hosts{Hosts: []transition.Host{host},
			Connect: func(ctx context.Context, _ transition.Host) (Connection, error) {
				return Start(ctx, "sh", "-c", c.script)
			}}
		err := hosts.Do(t.Context(), "cp-1", &transition.Action{Kind: transition.StopUnit})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %q", c.script, err, c.says)
		}
		if err := hosts.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	hosts := &Hosts{Hosts: []transition.Host{host},
		Connect: func(ctx context.Context, _ transition.Host) (Connection, error) {
			return Start(ctx, "sh", "-c", `read line; echo '{"schema":"`+Schema+`"}'; exec cat >/dev/null`)
		}}
	if _, err := hosts.agent(ctx, "cp-1"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := hosts.Do(ctx, "cp-1", &transition.Action{}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted step: %v", err)
	}
	if _, err := Start(t.Context(), "/no/such/program"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestOverAddsTheAgentToACommandLine: words are a shell's, and what is no command line is refused before it is needed.
func TestOverAddsTheAgentToACommandLine(t *testing.T) {
	connect, err := Over(`printf '%s|' "-o A=b c"`, "sudo fusionctl")
	if err != nil {
		t.Fatal(err)
	}
	connection, err := connect(t.Context(), transition.Host{Name: "cp-2", Address: "10.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(connection)
	if want := "-o A=b c|10.0.0.2|sudo fusionctl transition agent|"; err != nil || string(said) != want {
		t.Errorf("the command line = %q, %v; want %q", said, err, want)
	}
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"", "  ", "ssh 'x", "ssh $("} {
		if _, err := Over(line, "fusionctl"); err == nil || !strings.Contains(err.Error(), "is no command line") {
			t.Errorf("Over(%q): %v, want it refused", line, err)
		}
	}
}

func TestAwayLeavesThisMachineOut(t *testing.T) {
	hosts := []transition.Host{{Name: "a", Address: "here"}, {Name: "b", Address: "there"}}
	away, err := Away(hosts, func(address string) (bool, error) { return address == "here", nil })
	if err != nil || !slices.Equal(away, hosts[1:]) {
		t.Errorf("Away = %v, %v; want %v", away, err, hosts[1:])
	}
	unknown := errors.New("no addresses")
	if _, err := Away(hosts, func(string) (bool, error) { return false, unknown }); !errors.Is(err, unknown) {
		t.Errorf("Away = %v, want %v", err, unknown)
	}
}

// FuzzServe: an agent ends with its input, whatever that is, and answers each line of it.
func FuzzServe(f *testing.F) {
	hello := `{"schema":"` + Schema + `","host":{"name":"cp-1","address":"10.0.0.1"},"snapshots":"","wait":1}` + "\n"
	for _, rest := range []string{`{"do":{"kind":"put file","file":{"path":"/a"}}}`, `{"check":{"kind":"may go"}}`,
		`{"look":{"stores":[{"name":"core"}]}}`, `{"keep":{"record":"r"}}`, `{}`, `{"do":null,"more":1}`, "", "["} {
		f.Add([]byte(hello + rest + "\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_ = Serve(t.Context(), bytes.NewReader(data), &out, func(Hello) (transition.Runner, error) {
			return nothing{},
				nil
		})
		for line := range bytes.Lines(out.Bytes()) {
			var a Answer
			if err := json.Unmarshal(line, &a); err != nil {
				t.Errorf("an answer %q: %v", line, err)
			}
		}
	})
}

// nothing does nothing, and finds nothing.
type nothing struct{}

func (nothing) Do(context.Context, string, *transition.Action) error {
	return errors.New("nothing is done")
}
func (nothing) Check(context.Context, string, *transition.Check) error { return nil }

func (nothing) Look(context.Context, string, *transition.Watch) (map[string]witness.Sight, error) {
	return nil, nil
}

func (nothing) Digest(context.Context, string, string) (string, error) { return "", nil }

func (nothing) Keep(context.Context, string, *transition.Objects) (*handover.Known, error) {
	return nil, nil
}

// FuzzAnswers: what an agent answers is one answer, or ends its connection.
func FuzzAnswers(f *testing.F) {
	hello := `{"schema":"` + Schema + `"}` + "\n"
	for _, rest := range []string{`{}`, `{"working":true}`, `{"error":"x","pods":{"Pods":["a\u001b"]}}`, `{"seen":{}}`, ``} {
		f.Add([]byte(hello + rest + "\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts := &Hosts{Hosts: []transition.Host{host}, Connect: func(context.Context, transition.Host) (Connection,
			error) {
			return canned{bytes.NewReader(data)}, nil
		}}
		err := hosts.Check(t.Context(), host.Name, &transition.Check{Kind: transition.FileIs})
		if pods, is := errors.AsType[*handover.PodsError](err); is && strings.ContainsAny(strings.Join(pods.Pods, ""),
			"\n\x1b") {
			t.Errorf("names of pods that act: %q", pods.Pods)
		}
		if err != nil && strings.Contains(err.Error(), "\x1b") {
			t.Errorf("an error that acts: %q", err)
		}
		_ = hosts.Close()
	})
}

// canned answers what it has.
type canned struct{ io.Reader }

func (canned) Write(data []byte) (int, error) { return len(data), nil }
func (canned) Close() error                   { return nil }
