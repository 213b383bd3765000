// Package remote carries out the steps of a transition on other machines. A process of the program there, an agent,
// reads requests from its standard input and answers on its standard output, a line of JSON each; ssh, or whatever
// else reaches a machine, carries the two streams.
package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// Schema is that of the requests. An agent of another one refuses to work.
const Schema = "fusionctl/transition-agent/v1"

// Hello is the first request: who is meant, and how to work there.
type Hello struct {
	Schema    string          `json:"schema"`
	Host      transition.Host `json:"host"`
	Snapshots string          `json:"snapshots"` // directory of the snapshots on that machine
	Wait      time.Duration   `json:"wait"`      // how long a component may take to start or to stop
}

// request is every further one: an action or a check.
type request struct {
	Do    *transition.Action `json:"do,omitempty"`
	Check *transition.Check  `json:"check,omitempty"`
}

// answer is one line for each request. No error: done, or found.
type answer struct {
	Schema string `json:"schema,omitempty"` // of the answer to a Hello
	Error  string `json:"error,omitempty"`
}

// MostAnswer is the size in bytes of the longest answer that is read.
const MostAnswer = 1 << 20

// Serve answers requests until in ends or ctx does. open is told of the first one, and gives what carries out the
// others: it refuses a host that this machine is not. What is under way is broken off when in ends: the client is gone,
// and repeats it. Errors: of open; of out; a request that cannot be read.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func(Hello) (transition.Runner, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []byte)
	var broken error
	go func() {
		defer cancel()
		defer close(lines)
		reader := bufio.NewReader(in)
		for {
			line, err := reader.ReadBytes('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					broken = err
				}
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	var hello Hello
	first, ok := <-lines
	if !ok {
		return broken
	}
	if err := decode(first, &hello); err != nil || hello.Schema != Schema {
		return errors.Join(errors.New("no request of "+Schema), reply(out, answer{Error: "no request of " + Schema}))
	}
	runner, err := open(hello)
	if err != nil {
		return errors.Join(err, reply(out, answer{Error: err.Error()}))
	}
	if err := reply(out, answer{Schema: Schema}); err != nil {
		return err
	}
	for line := range lines {
		var r request
		err := decode(line, &r)
		switch {
		case err != nil:
		case r.Do != nil && r.Check == nil:
			err = runner.Do(ctx, hello.Host.Name, r.Do)
		case r.Check != nil && r.Do == nil:
			err = runner.Check(ctx, hello.Host.Name, r.Check)
		default:
			err = errors.New("a request wants one action or one check")
		}
		var a answer
		if err != nil {
			a.Error = err.Error()
		}
		if err := reply(out, a); err != nil {
			return err
		}
	}
	return broken
}

// decode refuses fields that this program does not know: a newer one means something by them.
func decode(line []byte, into any) error {
	decoder := json.NewDecoder(strings.NewReader(string(line)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func reply(out io.Writer, a answer) error { return json.NewEncoder(out).Encode(a) }

// Connection carries requests to an agent and its answers back. Close ends the agent and waits for it.
type Connection interface {
	io.ReadWriter
	// Close may be called at any time, more than once. Its error says why an agent ended that was not told to.
	Close() error
}

// Hosts is a transition.Runner for machines that are reached by connections. Local ones, and what a person does, are
// for another runner. It is for one goroutine.
type Hosts struct {
	Hosts     []transition.Host // those that are reached
	Snapshots string
	Wait      time.Duration
	// Connect reaches a host.
	Connect func(ctx context.Context, host transition.Host) (Connection, error)

	open map[string]*agent
}

// agent is one that answers.
type agent struct {
	connection Connection
	answers    *bufio.Scanner
}

// Do does one action on a host. An error of the connection closes it: the next call connects anew.
func (h *Hosts) Do(ctx context.Context, host string, a *transition.Action) error {
	return h.ask(ctx, host, request{Do: a})
}

// Check looks at a host.
func (h *Hosts) Check(ctx context.Context, host string, c *transition.Check) error {
	return h.ask(ctx, host, request{Check: c})
}

func (h *Hosts) ask(ctx context.Context, host string, r request) error {
	a, err := h.agent(ctx, host)
	if err != nil {
		return fmt.Errorf("reaching host %s: %w", host, err)
	}
	got, err := a.exchange(ctx, r)
	if err != nil {
		delete(h.open, host)
		return fmt.Errorf("host %s did not answer, and may have done it: %w", host, err)
	}
	if got.Error != "" {
		return errors.New(visible.Text(got.Error)) // a line of another machine
	}
	return nil
}

func (h *Hosts) agent(ctx context.Context, name string) (*agent, error) {
	if a := h.open[name]; a != nil {
		return a, nil
	}
	at := slices.IndexFunc(h.Hosts, func(o transition.Host) bool { return o.Name == name })
	if at < 0 {
		return nil, errors.New("is no host of this transition")
	}
	connection, err := h.Connect(ctx, h.Hosts[at])
	if err != nil {
		return nil, err
	}
	a := &agent{connection, bufio.NewScanner(connection)}
	a.answers.Buffer(nil, MostAnswer)
	got, err := a.exchange(ctx, Hello{Schema, h.Hosts[at], h.Snapshots, h.Wait})
	switch {
	case err != nil:
		return nil, err
	case got.Error != "":
		return nil, errors.Join(errors.New(visible.Text(got.Error)), connection.Close())
	case got.Schema != Schema:
		return nil, errors.Join(fmt.Errorf("the program there speaks %q, want %s", got.Schema, Schema),
			connection.Close())
	}
	if h.open == nil {
		h.open = map[string]*agent{}
	}
	h.open[name] = a
	return a, nil
}

// exchange sends a line and reads one. It closes the connection when that fails, and when ctx ends.
func (a *agent) exchange(ctx context.Context, r any) (answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = a.connection.Close() }) // its reader then says why
	defer stop()
	var got answer
	err := json.NewEncoder(a.connection).Encode(r)
	if err == nil && !a.answers.Scan() {
		err = a.answers.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil {
		if err = json.Unmarshal(a.answers.Bytes(), &got); err != nil {
			err = fmt.Errorf("an answer that is none, %q: %w", clip(a.answers.Text()), err)
		}
	}
	if err != nil {
		closing := a.connection.Close()
		if ctx.Err() != nil {
			return got, ctx.Err()
		}
		return got, errors.Join(err, closing)
	}
	return got, nil
}

// clip keeps the beginning of a line.
func clip(line string) string {
	const most = 200
	if len(line) > most {
		return line[:most] + "..."
	}
	return line
}

// Close ends every agent.
func (h *Hosts) Close() error {
	var problems []error
	for _, a := range h.open {
		problems = append(problems, a.connection.Close())
	}
	h.open = nil
	return errors.Join(problems...)
}
