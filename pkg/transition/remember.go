package transition

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
)

// remind gives the objects of an action what the journal knows of their hand-over, and a program what was in its place.
func remind(t *Transition, records []Record, s *Step, a *Action) *Action {
	if a == nil {
		return nil
	}
	informed := *a
	informed.Objects = about(t, records, a.Objects)
	if a.Program != nil {
		p := *a.Program
		p.Before = before(records, s.ID)
		informed.Program = &p
	}
	informed.Before, informed.After = slices.Clone(a.Before), slices.Clone(a.After)
	for _, checks := range [][]Check{informed.Before, informed.After} {
		for i := range checks {
			checks[i].Objects = about(t, records, checks[i].Objects)
		}
	}
	return &informed
}

// before is what was in the place of a program when its step began for the first time since it was undone.
func before(records []Record, step string) *string {
	var known *string
	for _, r := range records {
		switch {
		case r.Step != step:
		case r.Event == Undone:
			known = nil
		case r.Event == Begun && known == nil:
			known = r.Before
		}
	}
	return known
}

func about(t *Transition, records []Record, o *Objects) *Objects {
	if o == nil {
		return nil
	}
	informed := *o
	informed.Known = knownOf(t, records, o)
	return &informed
}

// knownOf is what the journal knows of a hand-over; nil when it was not begun. From before it begins there is a record.
// The journal says what was handed over from when that is done, until it begins anew.
func knownOf(t *Transition, records []Record, o *Objects) *handover.Known {
	var steps []string // the first of them begins it
	for _, s := range t.Steps {
		if s.Do != nil && s.Do.Kind == HandOver && s.Do.Objects.Record == o.Record {
			steps = append(steps, s.ID)
		}
	}
	var known *handover.Known
	for _, r := range records {
		switch {
		case r.Event == Acknowledged && known != nil && r.Looked.Gone[o.Record] != "":
			known.Gone = r.Looked.Gone[o.Record]
		case !slices.Contains(steps, r.Step):
		case r.Event == Begun && r.Kept == nil: // of a program that kept no record before, or of a rehearsal
		case r.Event == Begun, r.Event == Done:
			known = new(handover.Known)
			if r.Kept != nil {
				*known = *r.Kept
			}
		case r.Event == Undone && !o.Plan.Back && r.Step == steps[0]:
			known = nil // all of it is back: it begins anew
		}
	}
	return known
}

// doubt is an error that wraps ErrOtherStore, and its record, when an action found so little of what was handed over
// that a person has to look.
func doubt(j Journal, s *Step, a *Action, err error) error {
	gone, is := errors.AsType[*handover.GoneError](err)
	if !is {
		return nil
	}
	name := ""
	for _, o := range a.allObjects() {
		name = o.Record
	}
	return errors.Join(fmt.Errorf("%w, or most was deleted", ErrOtherStore), j.Append(Record{Step: s.ID, Event: Halted,
		Looked: &Looked{Why: []string{gone.Error()}, Gone: map[string]string{name: gone.Digest}}}))
}

// allObjects are those that an action and its checks are about.
func (a *Action) allObjects() (all []*Objects) {
	if a.Objects != nil {
		all = append(all, a.Objects)
	}
	for _, c := range slices.Concat(a.Before, a.After) {
		if c.Objects != nil {
			all = append(all, c.Objects)
		}
	}
	return all
}
