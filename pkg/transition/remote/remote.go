// Package remote carries out the steps of a transition on other machines. A process of the program there, an agent,
// reads requests from its standard input and answers on its standard output, a line of JSON each; ssh, or whatever
// else reaches a machine, carries the two streams.
package remote

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Schema is that of the requests. An agent of another one refuses to work.
const Schema = "fusionctl/transition-agent/v1"

// Hello is the first request: who is meant, and how to work there.
type Hello struct {
	Schema    string          `json:"schema"`
	Host      transition.Host `json:"host"`
	Snapshots string          `json:"snapshots"` // directory of the snapshots on that machine
	Wait      time.Duration   `json:"wait"`      // how long a component may take to start or to stop
	// Credentials is a file on that machine with those of registries, "" for none.
	Credentials string `json:"credentials,omitempty"`
}

// Request is every further one: an action, alone or as a whole, a check, a look at stores, at the record of a hand-over
// or at a program. One of them.
type Request struct {
	Do      *transition.Action  `json:"do,omitempty"`
	Perform *transition.Action  `json:"perform,omitempty"` // with its checks
	Check   *transition.Check   `json:"check,omitempty"`
	Look    *transition.Watch   `json:"look,omitempty"`
	Keep    *transition.Objects `json:"keep,omitempty"`
	Digest  string              `json:"digest,omitempty"` // of the program at this path
}

// Answer is one line for each request, after any number of those that say that it is at work. No error: done, or found.
type Answer struct {
	Schema  string `json:"schema,omitempty"` // of the answer to a Hello
	Error   string `json:"error,omitempty"`
	Working bool   `json:"working,omitempty"`
	// Seen is what stores showed of themselves, also beside an error.
	Seen map[string]witness.Sight `json:"seen,omitempty"`
	Kept *handover.Known          `json:"kept,omitempty"`
	// Digest is that of a program, "" where there is none.
	Digest string `json:"digest,omitempty"`
	// Gone and Pods are the errors of those types, of which Error has the text.
	Gone *handover.GoneError `json:"gone,omitempty"`
	Pods *handover.PodsError `json:"pods,omitempty"`
	// ByHand is what a person has to do first, and Found what checks found, as in transition.ByHandError.
	ByHand string `json:"byHand,omitempty"`
	Found  string `json:"found,omitempty"`
	// Notes are what was found that is in no one's way.
	Notes []string `json:"notes,omitempty"`
}

// noter is a Runner that finds what is in no one's way: what it has found since it was asked last.
type noter interface{ Notes() []string }

// Answer has a runner do what a request wants, on its host.
func (r *Request) Answer(ctx context.Context, runner transition.Runner, host string) Answer {
	var a Answer
	var err error
	switch {
	case r.of() != 1:
		err = errors.New("a request wants one action, one check or one look")
	case r.Do != nil:
		err = runner.Do(ctx, host, r.Do)
	case r.Perform != nil:
		err = transition.Perform(ctx, runner, host, r.Perform)
	case r.Check != nil:
		err = runner.Check(ctx, host, r.Check)
	case r.Keep != nil:
		a.Kept, err = runner.Keep(ctx, host, r.Keep)
	case r.Digest != "":
		a.Digest, err = runner.Digest(ctx, host, r.Digest)
	case r.Look != nil:
		a.Seen, err = runner.Look(ctx, host, r.Look)
	}
	if found, is := runner.(noter); is {
		a.Notes = found.Notes()
	}
	a.fail(err)
	return a
}

// fail puts an error into an answer.
func (a *Answer) fail(err error) {
	if err == nil {
		return
	}
	a.Error = err.Error()
	a.Gone, _ = errors.AsType[*handover.GoneError](err)
	a.Pods, _ = errors.AsType[*handover.PodsError](err)
	if hand, is := errors.AsType[*transition.ByHandError](err); is {
		a.ByHand, a.Found = hand.Text, hand.Found
	}
}

const (
	// LimitAnswerBytes is the size of the longest answer that is read.
	LimitAnswerBytes = 1 << 20
	// pulse is how often an agent says that it is at work.
	pulse = 15 * time.Second
	// silence is after which time without a line a connection counts as lost.
	silence = 4 * pulse
	// limitWork is how long an agent may be at work beyond the time that a component is waited for, and limitReading
	// how long where a whole store is read. One that says for ever that it is at work does not hold up the transition.
	limitWork    = 10 * time.Minute
	limitReading = 6 * time.Hour
)

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
	say := &replies{encoder: json.NewEncoder(out)}
	var hello Hello
	first, ok := <-lines
	if !ok {
		return broken
	}
	if err := decode(first, &hello); err != nil || hello.Schema != Schema {
		return errors.Join(errors.New("no request of "+Schema), say.answer(Answer{Error: "no request of " + Schema}))
	}
	var runner transition.Runner
	err := say.working(func() (err error) { runner, err = open(hello); return err })
	if err != nil {
		return errors.Join(err, say.answer(Answer{Error: err.Error()}))
	}
	if err := say.answer(Answer{Schema: Schema}); err != nil {
		return err
	}
	for line := range lines {
		var r Request
		var a Answer
		if err := decode(line, &r); err != nil {
			a.fail(err)
		} else if err := say.working(func() error {
			a = r.Answer(ctx, runner, hello.Host.Name)
			return nil
		}); err != nil {
			return err
		}
		if err := say.answer(a); err != nil {
			return err
		}
	}
	return broken
}

// of is how many things a request wants.
func (r *Request) of() (n int) {
	for _, wanted := range []bool{r.Do != nil, r.Perform != nil, r.Check != nil, r.Look != nil, r.Keep != nil,
		r.Digest != ""} {
		if wanted {
			n++
		}
	}
	return n
}

// decode refuses fields that this program does not know: a newer one means something by them.
func decode(line []byte, into any) error {
	decoder := json.NewDecoder(strings.NewReader(string(line)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// replies are lines to the one who asks.
type replies struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (r *replies) answer(a Answer) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.encoder.Encode(a)
}

// working does what may take long, and says meanwhile that it is at work.
func (r *replies) working(do func() error) error {
	done := make(chan struct{})
	var pulses sync.WaitGroup
	pulses.Go(func() {
		ticker := time.NewTicker(pulse)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_ = r.answer(Answer{Working: true}) // that it cannot be said shows at the answer
			case <-done:
				return
			}
		}
	})
	err := do()
	close(done)
	pulses.Wait()
	return err
}

// Connection carries requests to an agent and its answers back. Close ends the agent and waits for it.
type Connection interface {
	io.ReadWriter
	// Close may be called at any time, more than once. Its error says why an agent ended that was not told to.
	Close() error
}

// Away lists the hosts that are not this machine, by what isHere says of their addresses. Errors: isHere's.
func Away(hosts []transition.Host, isHere func(address string) (bool, error)) ([]transition.Host, error) {
	var away []transition.Host
	for _, h := range hosts {
		here, err := isHere(h.Address)
		if err != nil {
			return nil, err
		}
		if !here {
			away = append(away, h)
		}
	}
	return away, nil
}

// Hosts is a transition.Runner for machines that are reached by connections. Local ones, and what a person does, are
// for another runner. It is for one goroutine.
type Hosts struct {
	Hosts     []transition.Host // those that are reached
	Snapshots string
	Wait      time.Duration
	// Credentials is a file on the hosts with those of registries, "" for none.
	Credentials string
	// Connect reaches a host.
	Connect func(ctx context.Context, host transition.Host) (Connection, error)

	open  map[string]*agent
	notes []string
}

// Notes are what checks on the hosts have found since the last call that is in no one's way.
func (h *Hosts) Notes() []string {
	notes := h.notes
	h.notes = nil
	return notes
}

// agent is one that answers.
type agent struct {
	connection Connection
	answers    *bufio.Scanner
}

// Do does one action on a host. An error of the connection closes it: the next call connects anew.
func (h *Hosts) Do(ctx context.Context, host string, a *transition.Action) error {
	_, err := h.ask(ctx, host, Request{Do: a})
	return err
}

// Check looks at a host.
func (h *Hosts) Check(ctx context.Context, host string, c *transition.Check) error {
	_, err := h.ask(ctx, host, Request{Check: c})
	return err
}

// Look looks at stores from a host.
func (h *Hosts) Look(ctx context.Context, host string, w *transition.Watch) (map[string]witness.Sight, error) {
	got, err := h.ask(ctx, host, Request{Look: w})
	return got.Seen, err
}

// Keep asks for the record of a hand-over.
func (h *Hosts) Keep(ctx context.Context, host string, o *transition.Objects) (*handover.Known, error) {
	got, err := h.ask(ctx, host, Request{Keep: o})
	return got.Kept, err
}

// Digest asks for that of a program.
func (h *Hosts) Digest(ctx context.Context, host, path string) (string, error) {
	got, err := h.ask(ctx, host, Request{Digest: path})
	if err != nil {
		return "", err
	}
	return got.Program()
}

// Program is the digest that an answer has of a program. Errors: it is none.
func (a *Answer) Program() (string, error) {
	if a.Digest != "" && !spec.IsSHA256(a.Digest) {
		return "", fmt.Errorf("the digest %q of a program: want a SHA-256", clip(visible.Line(a.Digest)))
	}
	return a.Digest, nil
}

func (h *Hosts) ask(ctx context.Context, host string, r Request) (Answer, error) {
	a, err := h.agent(ctx, host)
	if err != nil {
		return Answer{}, fmt.Errorf("reaching host %s: %w", host, err)
	}
	got, err := a.exchange(ctx, r, r.Limit(h.Wait))
	if err != nil {
		delete(h.open, host)
		return Answer{}, fmt.Errorf("host %s did not answer, and may have done it: %w", host, err)
	}
	for _, note := range got.Notes[:min(len(got.Notes), mostNotes)] {
		h.notes = append(h.notes, fmt.Sprintf("host %s: %s", host, block(note)))
	}
	if err := got.Err(); err != nil { // of several hosts each begins a line
		return got, fmt.Errorf("host %s: %w", host, err)
	}
	return got, nil
}

// mostNotes bounds what is said of one answer.
const mostNotes = 10

// limitErrorBytes is what is shown of an error of another machine: every check of every host may have one.
const limitErrorBytes = 16 << 10

// Err is the error of an answer, nil for none: a line of another machine.
func (a *Answer) Err() error {
	if a.Error == "" {
		return nil
	}
	e := &farError{text: block(a.Error)}
	switch {
	case a.ByHand != "":
		hand := &transition.ByHandError{Text: block(a.ByHand)}
		if transition.IsFound(a.Found) {
			hand.Found = a.Found
		}
		e.cause = hand
	case a.Gone != nil:
		shown(a.Gone.Keys)
		e.cause = a.Gone
	case a.Pods != nil:
		shown(a.Pods.Pods)
		e.cause = a.Pods
	}
	return e
}

// block is the beginning of a text of another machine, as a part of ours.
func block(text string) string {
	if len(text) > limitErrorBytes {
		text = strings.ToValidUTF8(text[:limitErrorBytes], "") + " ..."
	}
	return visible.Block(text)
}

// shown makes each of some names of another machine a line that is visible.
func shown(names []string) {
	for i, name := range names {
		names[i] = visible.Line(name)
	}
}

// farError is the error of another machine, with what it is where that matters.
type farError struct {
	text  string
	cause error
}

func (e *farError) Error() string { return e.text }
func (e *farError) Unwrap() error { return e.cause }

// Limit is how long a request may take on a host where a component is waited for so long.
func (r *Request) Limit(wait time.Duration) time.Duration {
	reading := []transition.CheckKind{transition.StoresAgree, transition.MayRewrite, transition.MayMove,
		transition.MayGo, transition.Adopted, transition.BackupIs,
		transition.RolesMayGo, transition.RolesEqual, transition.NoneWakes}
	moving := []transition.Kind{transition.Snapshot, transition.HandOver, transition.HandBack, transition.CopyRoles,
		transition.SettleMember, transition.RewriteObjects, transition.MoveKeys, transition.PutProgram,
		transition.RemoveRoles, transition.RestoreMember}
	var kinds []transition.Kind
	var checks []transition.CheckKind
	for _, a := range []*transition.Action{r.Do, r.Perform} {
		if a == nil {
			continue
		}
		kinds = append(kinds, a.Kind)
		if a == r.Perform {
			for _, c := range slices.Concat(a.Before, a.After) {
				checks = append(checks, c.Kind)
			}
		}
	}
	if r.Check != nil {
		checks = append(checks, r.Check.Kind)
	}
	if slices.ContainsFunc(kinds, func(k transition.Kind) bool { return slices.Contains(moving, k) }) ||
		slices.ContainsFunc(checks, func(k transition.CheckKind) bool { return slices.Contains(reading, k) }) {
		return limitReading
	}
	return wait + limitWork
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
	a.answers.Buffer(nil, LimitAnswerBytes)
	got, err := a.exchange(ctx, Hello{Schema, h.Hosts[at], h.Snapshots, h.Wait, h.Credentials}, h.Wait+limitWork)
	switch {
	case err != nil:
		return nil, err
	case got.Error != "":
		return nil, errors.Join(errors.New(block(got.Error)), connection.Close())
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

// exchange sends a line and reads its answer. It closes the connection when that fails, when ctx ends or the limit is
// reached, and when nothing is heard for too long: a host that lost its power ends no connection.
func (a *agent) exchange(ctx context.Context, r any, limit time.Duration) (Answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it is still at work after %s", limit))
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = a.connection.Close() }) // its reader then says why
	defer stop()
	var lost atomic.Bool
	late := time.AfterFunc(silence, func() {
		lost.Store(true)
		_ = a.connection.Close()
	})
	defer late.Stop()
	got, err := Answer{Working: true}, json.NewEncoder(a.connection).Encode(r)
	for lines := time.Duration(0); err == nil && got.Working; lines++ {
		if got, err = a.next(); err == nil && lines > 2*limit/pulse {
			err = fmt.Errorf("it sends heartbeats more often than every %s", pulse)
		}
		late.Reset(silence)
	}
	if err == nil {
		return got, nil
	}
	closing := a.connection.Close()
	switch {
	case ctx.Err() != nil:
		return got, ctx.Err()
	case limited.Err() != nil:
		return got, context.Cause(limited)
	case lost.Load():
		return got, fmt.Errorf("no word for %s", silence)
	}
	return got, errors.Join(err, closing)
}

// next reads a line.
func (a *agent) next() (got Answer, err error) {
	if !a.answers.Scan() {
		return got, cmp.Or(a.answers.Err(), io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(a.answers.Bytes(), &got); err != nil {
		return got, fmt.Errorf("malformed answer %q: %w", clip(a.answers.Text()), err)
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

// Both is a transition.Runner for the machine on which it runs, and others. What a person does is here.
type Both struct {
	Here transition.Runner
	Away *Hosts
}

func (b *Both) isAway(host string) bool {
	return slices.ContainsFunc(b.Away.Hosts, func(h transition.Host) bool { return h.Name == host })
}

// Notes are what checks have found since the last call that is in no one's way.
func (b *Both) Notes() []string {
	notes := b.Away.Notes()
	if here, is := b.Here.(noter); is {
		notes = append(notes, here.Notes()...)
	}
	return notes
}

// Do does one action.
func (b *Both) Do(ctx context.Context, host string, a *transition.Action) error {
	if b.isAway(host) && a.Kind != transition.ByHand {
		return b.Away.Do(ctx, host, a)
	}
	return b.Here.Do(ctx, host, a)
}

// Check looks at a host.
func (b *Both) Check(ctx context.Context, host string, c *transition.Check) error {
	if b.isAway(host) {
		return b.Away.Check(ctx, host, c)
	}
	return b.Here.Check(ctx, host, c)
}

// Look looks at stores.
func (b *Both) Look(ctx context.Context, host string, w *transition.Watch) (map[string]witness.Sight, error) {
	if b.isAway(host) {
		return b.Away.Look(ctx, host, w)
	}
	return b.Here.Look(ctx, host, w)
}

// Keep asks for the record of a hand-over.
func (b *Both) Keep(ctx context.Context, host string, o *transition.Objects) (*handover.Known, error) {
	if b.isAway(host) {
		return b.Away.Keep(ctx, host, o)
	}
	return b.Here.Keep(ctx, host, o)
}

// Digest asks for that of a program.
func (b *Both) Digest(ctx context.Context, host, path string) (string, error) {
	if b.isAway(host) {
		return b.Away.Digest(ctx, host, path)
	}
	return b.Here.Digest(ctx, host, path)
}
