package transition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Runner does what actions and checks say, on a host. Both are repeated after a run was killed. Do is idempotent. Check
// returns nil only when it looked and found what it wants; it waits where that takes time.
type Runner interface {
	Do(ctx context.Context, host string, a *Action) error
	Check(ctx context.Context, host string, c *Check) error
	// Look returns what the stores show of themselves, by name, also beside an error about some of them; nothing where
	// stores are not looked at at all.
	Look(ctx context.Context, host string, w *Watch) (map[string]witness.Sight, error)
	// Keep returns where the record of a hand-over lies and what it says; it begins one where there is none. Nil where
	// none is kept.
	Keep(ctx context.Context, host string, o *Objects) (*handover.Known, error)
	// Digest returns the SHA-256 of a program, "" where there is none at the path.
	Digest(ctx context.Context, host, path string) (string, error)
}

// Performer is a Runner of hosts that are given an action as a whole, with what is checked before and after it: what
// they answer is that of Perform there.
type Performer interface {
	Perform(ctx context.Context, host string, a *Action) error
}

// Event is what a record says of a step.
type Event string

const (
	Begun   Event = "begun"
	Done    Event = "done"
	Undoing Event = "undoing"
	Undone  Event = "undone"

	// About the stores, before a step.
	Seen         Event = "seen"         // they are those that are known
	Halted       Event = "stopped"      // one of them is not
	Acknowledged Event = "acknowledged" // a person's word that they are right
	Unseen       Event = "not seen"     // of progress alone: some could not be looked at
)

// Record is a line of the journal.
type Record struct {
	Step  string `json:"step"`
	Event Event  `json:"event"`
	// Looked is what was seen of the stores: of the events about them.
	Looked *Looked `json:"looked,omitempty"`
	// Kept is the record of what a step hands over.
	Kept *handover.Known `json:"kept,omitempty"`
	// Before is the digest of what a step found in the place of a program, "" for nothing.
	Before *string `json:"before,omitempty"`
	// Lost is the host of the step where that was lost: nothing was done there.
	Lost string `json:"lost,omitempty"`
}

// Journal keeps records: *journal.Journal[Record].
type Journal interface {
	Records() []Record
	Append(Record) error
}

// ErrJournal is wrapped when the records of a journal are not those of the transition.
var ErrJournal = errors.New("the journal belongs to another transition")

// State is how far a transition came.
type State struct {
	Done int  `json:"done"` // steps that are done, from the first
	Open bool `json:"open"` // the step after them was begun, or is being undone: it may be done, in part, or not
}

// StateOf reads the records of a journal. Errors: ErrJournal, wrapped.
func StateOf(t *Transition, records []Record) (State, error) {
	var s State
	for i, r := range records {
		if r.Looked != nil {
			continue
		}
		wrong := func() (State, error) {
			return s, fmt.Errorf("record %d, step %s %s, after %d of %d steps: %w", i+1, r.Step, r.Event, s.Done,
				len(t.Steps), ErrJournal)
		}
		if r.Event == Undoing && !s.Open && s.Done > 0 {
			s.Done--
			s.Open = true
		}
		if s.Done >= len(t.Steps) || t.Steps[s.Done].ID != r.Step {
			return wrong()
		}
		switch {
		case r.Event == Begun:
			s.Open = true
		case r.Event == Done && s.Open:
			s.Done, s.Open = s.Done+1, false
		case r.Event == Undoing && s.Open:
		case r.Event == Undone && s.Open:
			s.Open = false
		default:
			return wrong()
		}
	}
	return s, nil
}

// Progress is told of every record of a step, and of Unseen; nil allowed.
type Progress func(step *Step, event Event)

// Apply does the steps that are not done. Nothing is changed when files are not what the first plan has. After an
// error, and when ctx ends, it can be called again, or Undo.
func Apply(ctx context.Context, t *Transition, r Runner, j Journal, progress Progress) error {
	s, err := StateOf(t, j.Records())
	if err != nil {
		return err
	}
	if !s.touched(t.Steps) {
		if err := unchanged(ctx, t, r, t.Steps[s.Done:], false); err != nil {
			return err
		}
	}
	for begin := s.Done; s.Done < len(t.Steps); s.Done++ {
		step := &t.Steps[s.Done]
		if err := watch(ctx, t, r, j, step, step.Do, s.Done == begin, progress); err != nil {
			return err
		}
		if err := carryOut(ctx, t, r, j, step, step.Do, Begun, Done, progress); err != nil {
			return err
		}
	}
	return nil
}

// Undo takes back the steps that are done, the last one first, and the one that was begun. Nothing is changed when
// files are not what the steps left. After an error, and when ctx ends, it can be called again, or Apply. Errors:
// those of Apply.
func Undo(ctx context.Context, t *Transition, r Runner, j Journal, progress Progress) error {
	s, err := StateOf(t, j.Records())
	if err != nil {
		return err
	}
	last := s.Done - 1
	if s.Open {
		last++
	}
	if done := slices.Clone(t.Steps[:last+1]); s.finished(t.Steps) {
		slices.Reverse(done)
		if err := unchanged(ctx, t, r, done, true); err != nil {
			return err
		}
	}
	for begin := last; last >= 0; last-- {
		step := &t.Steps[last]
		if err := watch(ctx, t, r, j, step, step.Undo, last == begin, progress); err != nil {
			return err
		}
		if err := carryOut(ctx, t, r, j, step, step.Undo, Undoing, Undone, progress); err != nil {
			return err
		}
	}
	return nil
}

// mostPathBytes is the longest path of Linux.
const mostPathBytes = 4096

func carryOut(ctx context.Context, t *Transition, r Runner, j Journal, s *Step, a *Action, before, after Event,
	p Progress) error {
	if p == nil {
		p = func(*Step, Event) {}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	a = remind(t, j.Records(), s, a)
	note := func(event Event) error {
		record := Record{Step: s.ID, Event: event, Lost: s.lost}
		if a != nil && a.Kind == HandOver {
			var err error
			if record.Kept, err = r.Keep(ctx, s.Host, a.Objects); err != nil {
				return fmt.Errorf("step %s, %s on %s: %w", s.ID, s.Title, s.Host, err)
			}
			if k := record.Kept; k != nil {
				if len(k.Directory) > mostPathBytes || len(k.Digest) > mostIDBytes {
					return fmt.Errorf("step %s, %s on %s: the answer about its record has a directory of more than "+
						"%d bytes, or no digest", s.ID, s.Title, s.Host, mostPathBytes)
				}
				record.Kept = &handover.Known{Directory: k.Directory} // what a person acknowledged, no host says
				if event != before {                                  // it changes from here on
					record.Kept.Digest = k.Digest
				}
			}
		}
		if a != nil && a.Kind == PutProgram && event == Begun {
			if record.Before = a.Program.Before; record.Before == nil {
				found, err := r.Digest(ctx, s.Host, a.Program.Path)
				if err != nil {
					return fmt.Errorf("step %s, %s on %s: %w", s.ID, s.Title, s.Host, err)
				}
				record.Before = &found
			}
		}
		return j.Append(record)
	}
	if err := note(before); err != nil {
		return err
	}
	a = remind(t, j.Records(), s, a)
	p(s, before)
	if a != nil {
		if err := performOn(ctx, r, s.Host, a); err != nil {
			return errors.Join(fmt.Errorf("step %s, %s on %s: %w", s.ID, s.Title, s.Host, err), doubt(j, s, a, err))
		}
	}
	if err := note(after); err != nil {
		return err
	}
	p(s, after)
	return nil
}

func performOn(ctx context.Context, r Runner, host string, a *Action) error {
	if p, whole := r.(Performer); whole {
		return p.Perform(ctx, host, a)
	}
	return Perform(ctx, r, host, a)
}

// Perform does one action by a Runner: the checks before it, the action, and those that verify it. Done already, it
// changes nothing; after an error it can be repeated.
func Perform(ctx context.Context, r Runner, host string, a *Action) error {
	if err := checkAll(ctx, r, host, a.Before); err != nil {
		return err
	}
	if a.First != nil {
		if err := Perform(ctx, r, host, a.First); err != nil {
			return err
		}
	}
	if a.Kind != RunChecks {
		if err := r.Do(ctx, host, a); err != nil {
			return err
		}
	}
	return checkAll(ctx, r, host, a.After)
}

// checkAll asks every check, so that one run names all that is missing. What they leave to a person is asked at once:
// one answer is about all of it.
func checkAll(ctx context.Context, r Runner, host string, checks []Check) error {
	var problems []error
	var texts, found []string
	for i := range checks {
		err := r.Check(ctx, host, &checks[i])
		if pods, is := errors.AsType[*handover.PodsError](err); is {
			// what became of pods since, a person may know
			err = &ByHandError{Text: fmt.Sprintf("see what became of these pods, and that the controllers there did "+
				"not replace them because of the hand-over:\n%v", pods)}
		}
		if hand, is := errors.AsType[*ByHandError](err); is {
			texts = append(texts, hand.Text)
			found = append(found, cmp.Or(hand.Found, Found(hand.Text)))
			err = nil
		}
		problems = append(problems, err)
	}
	if len(texts) > 0 {
		problems = append(problems, r.Do(ctx, host, &Action{Kind: ByHand, Text: strings.Join(texts, "\n"),
			Found: Found(strings.Join(found, " "))}))
	}
	return errors.Join(problems...)
}

// touched reports whether a step that touches a file or a unit was begun. What comes before, a check that failed among
// it, leaves the hosts as they were: whatever another transition does meanwhile is found by the next run.
func (s State) touched(steps []Step) bool {
	begun := s.Done
	if s.Open {
		begun++
	}
	return slices.ContainsFunc(steps[:begun], func(s Step) bool { return s.finds(false) != nil })
}

// finished reports whether no step that touches a file or a unit is left to be done, and none was begun to be undone.
func (s State) finished(steps []Step) bool {
	return !slices.ContainsFunc(steps[s.Done:], func(s Step) bool { return s.finds(true) != nil })
}

// finds is the check that the file that a step touches, on the way or on the way back, is as it finds it, or that the
// unit that it stops was not stopped for good; nil for a step that touches neither.
func (s *Step) finds(back bool) *Check {
	a := s.Do
	if back {
		a = s.Undo
	}
	switch {
	case a == nil:
		return nil
	case a.Kind == StartUnit || a.Kind == StopUnit:
		return &Check{Kind: UnitOn, Path: unitDirectory + a.Unit}
	case a.File == nil:
		return nil
	case a.Kind == RemoveFile || a.Kind == RestoreKubelet:
		return &Check{Kind: FileIs, Path: a.File.Path, File: a.File}
	}
	return &Check{Kind: FileIs, Path: a.File.Path, File: a.Was}
}

// unchanged checks that every file that steps touch, in their order, is as the first of them finds it, and that no unit
// that they stop was stopped for good before: each host's at once. A transition that was broken off has stopped units
// before it changed a file, and moves objects meanwhile; one that came later has changed what these have left.
func unchanged(ctx context.Context, t *Transition, r Runner, steps []Step, back bool) error {
	var hosts []string
	checks, seen := map[string][]Check{}, map[place]bool{} // a file and its unit are two
	for _, s := range steps {
		check, other := s.finds(back), s.finds(!back)
		found := cmp.Or(check, other)
		there := slices.ContainsFunc(t.Hosts, func(h Host) bool { return h.Name == s.Host })
		if found == nil || s.lost != "" || !there {
			continue
		}
		at := place{s.Host, string(found.Kind) + found.Path}
		known := seen[at]
		seen[at] = true
		starts := s.Do
		if back {
			starts = s.Undo
		}
		if known || check == nil || starts.Kind == StartUnit {
			continue
		}
		check.Hint = hintChanged(check, back)
		if checks[s.Host] == nil {
			hosts = append(hosts, s.Host)
		}
		checks[s.Host] = append(checks[s.Host], *check)
	}
	var problems []error
	for _, host := range hosts {
		problems = append(problems, performOn(ctx, r, host, &Action{Kind: RunChecks, Before: checks[host]}))
	}
	return errors.Join(problems...)
}

// hintChanged is the way out where a file or a unit is not as steps find it.
func hintChanged(c *Check, back bool) string {
	enable := "where a person has stopped it, systemctl enable " + path.Base(c.Path)
	switch {
	case back && c.Kind == UnitOn:
		return "undo the later transition first, which stopped it; " + enable
	case back:
		return "undo the later transition first, which changed it; where a person has, put it back"
	case c.Kind == UnitOn:
		return "FROM is not what this host runs: another transition stopped it, and has to be finished or undone " +
			"first; " + enable
	}
	return "FROM is not the plan by which this host runs"
}
