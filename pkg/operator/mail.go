package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// errAtWork is wrapped when an agent does what it was asked for, and says so: it ends that itself when it takes too
// long.
var errAtWork = errors.New("its agent is at work")

const (
	// retryAfter is after which time an agent is asked again for what could not be done.
	retryAfter = 15 * time.Second
	// takesWithin is how long an agent may take to begin a task, and to say again that it is at work.
	takesWithin = 6 * api.TaskPulse
	// lookedBefore is for how long a look at stores counts.
	lookedBefore = time.Minute
)

// given is the answer of an agent.
type given struct {
	number int64
	at     time.Time
	// hand is what it was told that a person did, and saw.
	hand   agreed
	answer remote.Answer
}

// agreed is what a person has done, and of what checks found: transition.ByHandError.
type agreed struct {
	byHand bool
	found  string
}

// mailbox carries the steps of a transition to the agents of hosts, by their objects, and the answers back:
// *transition.Runner. It does not wait. A transition is carried on from its beginning, or its open step, each time, so
// that answers are remembered as long as it stands where it was; an operator that forgot them asks again.
type mailbox struct {
	*Reconciler
	name  string
	hosts map[string]*api.ControlPlaneHost
	open  *open
	lost  []string // hosts of the open transition without which it goes on
	word  string   // of a person: which step was done by hand
	// note is told what checks have found that is in no one's way.
	note func(text string)
}

// answersOf are those that were given where a transition of a control plane stands.
type answersOf struct {
	position string
	given    map[string]given // by host and request
	done     map[string]int64 // by host: the number of the last action
	failed   map[string]error // by host: why it was asked again
	issued   map[string]int64 // by host: the last task of this process
}

// positionOf names how far a transition came: what was answered before counts no more after it.
func positionOf(o *open) string {
	records := 0
	for _, r := range o.Journal {
		if r.Looked == nil {
			records++
		}
	}
	return fmt.Sprintf("%s-%d-%t-%d", o.To, o.Since.Unix(), o.Back, records)
}

// remembered are the answers that count, with those that the objects of the hosts have.
func (m *mailbox) remembered() *answersOf {
	position := positionOf(m.open)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers == nil {
		m.answers = map[string]*answersOf{}
	}
	a := m.answers[m.name]
	if a == nil || a.position != position {
		a = &answersOf{position: position, given: map[string]given{}, done: map[string]int64{},
			failed: map[string]error{}, issued: map[string]int64{}}
		m.answers[m.name] = a
	}
	for host, h := range m.hosts {
		t, s := h.Spec.Task, h.Status.Task
		if t == nil || s == nil || s.Number != t.Number || s.Ended == nil {
			continue
		}
		if a.given[host+"/"+t.Request].number >= t.Number {
			continue
		}
		g := given{number: t.Number, hand: agreed{t.ByHand, t.Found}}
		if a.issued[host] == t.Number { // otherwise it is of an operator before, and how old, no clock says
			g.at = m.Now()
		}
		if err := json.Unmarshal([]byte(s.Answer), &g.answer); err != nil && s.Error == "" {
			g.answer.Error = fmt.Sprintf("its agent gave no answer: %v", err)
		}
		if s.Error != "" {
			g.answer.Error = s.Error
		}
		a.given[host+"/"+t.Request] = g
	}
	return a
}

// under reports an error as long as an agent has not answered what it was asked for where the transition stands.
func (m *mailbox) under() error {
	known := m.remembered()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(m.hosts)) {
		if h := m.hosts[name]; h.Spec.Task != nil && !slices.Contains(m.lost, name) &&
			strings.HasPrefix(h.Spec.Task.Request, positionOf(m.open)+"/") {
			problems = append(problems, m.pending(h, known))
		}
	}
	return errors.Join(problems...)
}

// pending is why there is no answer to the task of a host, nil where there is one, with what was answered before.
func (m *mailbox) pending(h *api.ControlPlaneHost, known *answersOf) error {
	err := m.missing(h)
	if before := known.failed[h.Name]; err != nil && before != nil {
		return fmt.Errorf("%w; before: %w", err, before)
	}
	return err
}

func (m *mailbox) missing(h *api.ControlPlaneHost) error {
	t, s, now := h.Spec.Task, h.Status.Task, m.Now()
	switch {
	case s != nil && s.Number == t.Number && s.Ended != nil:
		return nil
	case denied(h): // it is not heard any more
		return shutOut(h)
	case s != nil && s.Number == t.Number && m.lately(h, takesWithin):
		return fmt.Errorf("host %s, %s: %w: %w", h.Name, t.Title, errAtWork, errWaiting)
	case now.Sub(t.Issued.Time) <= takesWithin:
		return fmt.Errorf("host %s, %s: %w", h.Name, t.Title, errWaiting)
	}
	return fmt.Errorf("host %s, %s: %w since %s: see that fusionctl agent runs there: %w", h.Name, t.Title, errSilent,
		h.Status.Seen.UTC().Format(time.RFC3339), errWaiting)
}

// ask has an agent do what a request wants, and returns its answer, once it is there.
func (m *mailbox) ask(ctx context.Context, host string, r *remote.Request,
	counts func(given, *answersOf) bool) (remote.Answer, error) {
	h := m.hosts[host]
	if h == nil {
		return remote.Answer{}, fmt.Errorf("host %q: is no host of this control plane", host)
	}
	if denied(h) {
		return remote.Answer{}, shutOut(h)
	}
	data, digest, err := api.Pack(r)
	if err != nil {
		return remote.Answer{}, err
	}
	request := positionOf(m.open) + "/" + digest[:16]
	known := m.remembered()
	g, ok := known.given[host+"/"+request]
	if t := h.Spec.Task; t != nil && t.Request == request && t.Number > g.number {
		if err := m.pending(h, known); err != nil {
			return remote.Answer{}, err
		}
	}
	var hand agreed
	if ok {
		g.answer.ByHand, g.answer.Found = byHandOf(r, &g.answer)
		if g.answer.ByHand != "" && m.word != "" && m.word == m.open.word(g.answer.Found) {
			hand = agreed{true, g.answer.Found}
		}
		refused := g.answer.Err()
		again := refused != nil && m.Now().Sub(g.at) > retryAfter && g.answer.ByHand == "" ||
			hand.byHand && hand != g.hand ||
			refused == nil && counts != nil && !counts(g, known)
		if !again {
			if r.Perform != nil {
				known.done[host] = max(known.done[host], g.number)
			}
			for _, note := range g.answer.Notes[:min(len(g.answer.Notes), mostNotes)] {
				m.note(fmt.Sprintf("host %s: %s", host, note))
			}
			return g.answer, refused
		}
		if !hand.byHand { // what a person has done since is no reason any more
			known.failed[host] = refused
		}
	}
	if err := m.issue(ctx, h, request, data, digest, hand); err != nil {
		return remote.Answer{}, err
	}
	known.issued[host] = h.Spec.Task.Number
	return remote.Answer{}, m.pending(h, known)
}

func shutOut(h *api.ControlPlaneHost) error {
	return fmt.Errorf("host %s is denied by annotation %s: %w: %w", h.Name, api.AnnotationDenied, errSilent, errWaiting)
}

// issue writes a task for a host: its content first, so that an agent that finds the task finds what it is. That of the
// task before stays until then: when the object cannot be written, the agent goes on with that one.
func (m *mailbox) issue(ctx context.Context, h *api.ControlPlaneHost, request string, data []byte,
	digest string, hand agreed) error {
	there := &api.ControlPlaneHost{} // not as a cache has it, which may not have seen the last task yet
	if err := m.Reader.Get(ctx, client.ObjectKeyFromObject(h), there); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	if !equality.Semantic.DeepEqual(there.Spec, h.Spec) || !ours(there, m.name) {
		return fmt.Errorf("host %s was written since it was read: %w", h.Name, errWaiting)
	}
	entries := map[string][]byte{api.TaskKey(digest): data}
	if t := there.Spec.Task; t != nil {
		entries[api.TaskKey(t.Digest)] = nil // as it is
	}
	if err := m.put(ctx, m.name, h.Name, func(key string) bool { return strings.HasPrefix(key, api.TaskPrefix) },
		entries); err != nil {
		return err
	}
	number := int64(1)
	if there.Spec.Task != nil {
		number = there.Spec.Task.Number + 1
	}
	if s := there.Status.Task; s != nil && s.Number >= number && s.Number < mostTasks {
		number = s.Number + 1
	}
	there.Spec.Task = &api.HostTask{Number: number, Request: request, Digest: digest, Issued: m.now(),
		WaitSeconds: int64(m.StepLimit.Seconds() / 3), ByHand: hand.byHand, Found: hand.found}
	if at := m.open.at(); at != nil {
		there.Spec.Task.Title = at.Title
	}
	there.Spec.Upkeep = nil
	if err := m.Client.Update(ctx, there); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	*h = *there
	if there.Spec.Task.Found != hand.found {
		return fmt.Errorf("host %s: the definition of ControlPlaneHost is that of a release before, and does not keep "+
			"what a person agreed to: apply the one of this release: %w", h.Name, errWaiting)
	}
	return nil
}

// mostNotes bounds what is said of one answer.
const mostNotes = 10

// mostTasks bounds the number that an agent says, of a task that is not in its object any more.
const mostTasks = 1 << 53

// byHandOf is what a person is asked to do, of what an agent says that is: by the request itself where that is to be
// done by hand, and by the agent where it saw pods or bindings that a person has to judge, with the name of what it
// found. An agent has nothing else to ask for.
func byHandOf(r *remote.Request, said *remote.Answer) (text, found string) {
	if said.ByHand == "" {
		return "", ""
	}
	checks := []transition.Check{}
	if r.Check != nil {
		checks = append(checks, *r.Check)
	}
	for _, a := range []*transition.Action{r.Do, r.Perform} {
		switch {
		case a == nil:
		case a.Kind == transition.ByHand:
			return a.Text, ""
		default:
			checks = slices.Concat(checks, a.Before, a.After)
		}
	}
	if !slices.ContainsFunc(checks, func(c transition.Check) bool { return c.Objects != nil || c.Roles != nil }) {
		return "", ""
	}
	if found = said.Found; !transition.IsFound(found) { // an agent of a release before names nothing
		found = transition.Found(said.ByHand)
	}
	return said.ByHand, found
}

// Perform has the agent of a host do an action with its checks.
func (m *mailbox) Perform(ctx context.Context, host string, a *transition.Action) error {
	_, err := m.ask(ctx, host, &remote.Request{Perform: a}, nil)
	return err
}

// Do has the agent of a host do an action.
func (m *mailbox) Do(ctx context.Context, host string, a *transition.Action) error {
	_, err := m.ask(ctx, host, &remote.Request{Do: a}, nil)
	return err
}

// Check has the agent of a host look.
func (m *mailbox) Check(ctx context.Context, host string, c *transition.Check) error {
	_, err := m.ask(ctx, host, &remote.Request{Check: c}, nil)
	return err
}

// Look has the agent of a host look at stores.
func (m *mailbox) Look(ctx context.Context, host string, w *transition.Watch) (map[string]witness.Sight, error) {
	got, err := m.ask(ctx, host, &remote.Request{Look: w}, func(g given, _ *answersOf) bool {
		return m.Now().Sub(g.at) <= lookedBefore
	})
	return got.Seen, err
}

// Keep asks for the record of a hand-over: as it is after the last action.
func (m *mailbox) Keep(ctx context.Context, host string, o *transition.Objects) (*handover.Known, error) {
	got, err := m.ask(ctx, host, &remote.Request{Keep: o}, func(g given, known *answersOf) bool {
		return g.number > known.done[host]
	})
	return got.Kept, err
}

// Digest asks for that of a program, as it is before the step that puts another one.
func (m *mailbox) Digest(ctx context.Context, host, path string) (string, error) {
	got, err := m.ask(ctx, host, &remote.Request{Digest: path}, nil)
	if err != nil {
		return "", err
	}
	return got.Program()
}
