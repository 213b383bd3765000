package migrate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Record is one line of a journal. A journal belongs to one plan; its records say how far that got, and whether it was
// rolled back.
type Record struct {
	Event Event     `json:"event"`
	Time  time.Time `json:"time"`
	// Step is the number of the step, counted from 0, and ID what it is.
	Step int    `json:"step"`
	ID   string `json:"id,omitempty"`
	// Generation of the CRD after the step, which shows a change by another client.
	Generation int64 `json:"generation,omitempty"`
	// Base is the resource version from which on everything is written in the new version; of a settled step.
	Base  string `json:"base,omitempty"`
	Proof *Proof `json:"proof,omitempty"`
	// Seen is what the store showed of itself, up to then.
	Seen *witness.Sight `json:"seen,omitempty"`
	// Object and Error are those of one that was refused.
	Object *Object `json:"object,omitempty"`
	Error  string  `json:"error,omitempty"`
	// Undo are the steps of a rollback; the records after it are about them.
	Undo []Step `json:"undo,omitempty"`
}

// Event is what happened.
type Event string

// The events.
const (
	EventBegin   Event = "begin"   // of a step; it may have had an effect from here on
	EventDone    Event = "done"    // with a step
	EventRefused Event = "refused" // an object
	EventUndo    Event = "undo"    // begins
)

// Journal keeps records, each on the disk before the next step begins.
type Journal interface {
	Records() []Record
	Append(Record) error
}

// position is where a journal says that its plan stands.
type position struct {
	undoing    []Step // the steps of an undo that began, nil for none
	next       int    // the first step, of the plan or of the undo, that is not done
	begun      bool   // and may have had an effect
	generation int64
	base       string
	switchedAt time.Time // when new writes began to be stored in the version, at the latest
	unservedAt time.Time
	proof      *Proof
	seen       *witness.Sight // of the store; nil for a plan of before it was looked at
}

// locate reads a journal of the plan.
// Errors: a journal of another plan.
func locate(p *Plan, records []Record) (position, error) {
	var at position
	if p.Before != nil {
		at.generation = p.Before.Generation()
	}
	at.seen = p.Seen
	steps := p.Steps
	for i, r := range records {
		at.remember(r.Seen)
		if r.Event == EventUndo && len(r.Undo) == 0 {
			continue // it was no way back
		}
		if r.Event == EventUndo {
			at.undoing, steps = r.Undo, r.Undo
			at.next, at.begun, at.generation = 0, false, r.Generation
			continue
		}
		if r.Step < 0 || r.Step >= len(steps) || steps[r.Step].ID() != r.ID {
			return position{}, fmt.Errorf("record %d is about step %d, %q, which the plan does not have: the journal "+
				"is another plan's", i+1, r.Step, r.ID)
		}
		switch r.Event {
		case EventBegin:
			at.next, at.begun = r.Step, true
		case EventDone:
			at.next, at.begun = r.Step+1, false
			at.generation = r.Generation
			at.reached(steps[r.Step], r, p.Grace.Duration)
		}
	}
	return at, nil
}

// reached takes over what later steps need of one that is done.
func (at *position) reached(s Step, r Record, grace time.Duration) {
	switch s.Action {
	case ActionSwitch:
		at.switchedAt, at.proof, at.base = r.Time, nil, ""
	case ActionSettle:
		at.base = r.Base
		if !at.switchedAt.IsZero() && r.Time.Before(at.switchedAt.Add(grace)) {
			at.base = "" // of a journal in which it was noted without the grace
		}
		if at.switchedAt.IsZero() {
			at.switchedAt = r.Time
		}
	case ActionProve:
		at.proof = r.Proof
	case ActionUnserve:
		at.unservedAt = r.Time
	}
}

// Position is how far a plan is, as its journal says.
type Position struct {
	Done    int  // steps
	Begun   bool // the next one may have had an effect
	Undoing bool
	Undone  bool // going back is finished
}

// Locate says how far a plan is.
// Errors: a journal of another plan.
func Locate(p *Plan, records []Record) (Position, error) {
	at, err := locate(p, records)
	if err != nil {
		return Position{}, err
	}
	return Position{Done: at.next, Begun: at.begun, Undoing: at.undoing != nil, Undone: at.undoing != nil &&
		at.next == len(at.undoing)}, nil
}

// Undo plans the way back. Shape: to is "" for the last safe step before the present one, "start" for how everything
// was, or the ID of a safe step. Errors: nothing to go back from; a step that is not safe, or was not reached.
func Undo(p *Plan, records []Record, to string) ([]Step, error) {
	at, err := locate(p, records)
	switch {
	case err != nil:
		return nil, err
	case at.undoing != nil && at.next < len(at.undoing):
		return at.undoing, nil // it goes on
	case at.undoing != nil:
		return nil, errors.New("it is undone already; plan again from how things are now")
	}
	reached := at.next // steps that may have had an effect
	if at.begun {
		reached++
	}
	if reached == 0 {
		return nil, errors.New("nothing was done yet")
	}
	target, err := safePoint(p, reached, to)
	if err != nil {
		return nil, err
	}
	back := p.inverse(p.Steps[target:reached])
	if len(back) == 0 {
		return nil, errNothingToUndo
	}
	return back, nil
}

var errNothingToUndo = errors.New("there is nothing to undo: objects were written again as they are, and every " +
	"version that is stored is read")

// safePoint is how many steps stay done.
func safePoint(p *Plan, reached int, to string) (int, error) {
	if to == "start" {
		return 0, nil
	}
	for i := reached - 2; i >= 0; i-- { // the last step that was reached is undone in any case
		if s := p.Steps[i]; s.Safe && (to == "" || to == s.ID()) {
			return i + 1, nil
		}
	}
	if to == "" {
		return 0, nil
	}
	if slices.ContainsFunc(p.Steps, func(s Step) bool { return s.ID() == to }) {
		return 0, fmt.Errorf("step %q is not safe to stay at, or was not reached", to)
	}
	return 0, fmt.Errorf("the plan has no step %q", to)
}

// inverse lists the steps that undo others, the last one first.
func (p *Plan) inverse(steps []Step) []Step {
	var back []Step
	for _, s := range slices.Backward(steps) {
		switch s.Action {
		case ActionAdd:
			back = append(back, Step{Action: ActionRemove, Version: s.Version, Does: "remove the version from the " +
				"CRD", Check: "the CRD says so"})
		case ActionConvert:
			back = append(back, Step{Action: ActionConvert, Before: true, Does: "the conversion from before",
				Check: "the CRD says so"})
		case ActionServe:
			back = append(back, Step{Action: ActionUnserve, Version: s.Version, Does: "stop serving the version",
				Check: "the CRD says so"})
		case ActionSwitch:
			back = append(back, Step{Action: ActionSwitch, Version: p.From, Does: "write objects in the version " +
				"again", Check: "the CRD says so"})
			// also when nothing was rewritten: others wrote objects in the new version meanwhile
			back = append(back, p.storing(p.From)...)
		case ActionUnserve:
			back = append(back, Step{Action: ActionServe, Version: s.Version, Does: "serve the version again",
				Check: "an object can be read in every served version"})
		case ActionRemove:
			back = append(back, Step{Action: ActionAdd, Version: s.Version, Does: "put the version back as it was, " +
				"not served", Check: "the server kept every field of it"})
		}
	}
	return back
}
