package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/prose"
)

const (
	refusalsKept     = 1000 // of a walk, in the journal and in memory; the others are counted
	refusalsToGiveUp = 20   // when nothing else has happened until then, it is not the objects' fault
	passes           = 10
)

// pass is one walk over the objects that must be written. Its counts are guarded by mu.
type pass struct {
	mu                                        sync.Mutex
	rewritten, unchanged, others, gone, fresh int64 // fresh: written after the switch, and left alone
	refused                                   int64
	refusals                                  []Refusal
	witness                                   *Object // one that was written
}

func (p *pass) moved() bool { return p.rewritten+p.others+p.gone > 0 }

// rewrite has every object written again, but those that the server refuses. A server writes an object that is sent to
// it unchanged if, and only if, it would store other bytes than are there: seen with 1.15 and 1.36. Whether one was
// missed is for the proof to find out.
func (r *run) rewrite(ctx context.Context, version string) error {
	for range passes {
		p, err := r.rewriteOnce(ctx, version)
		idle := p.unchanged > 0 && r.Store != nil // the store has them in another version
		switch {
		case err != nil:
			return err
		case p.refused == 0 && !idle:
			return nil
		case p.moved(): // a refused object may have been in use by another client
		case p.refused > 0:
			return p.refusal()
		default:
			return fmt.Errorf("%s stored in another version, and the server finds nothing to write: it stores in "+
				"that one, or it does not use store %s",
				prose.Plural(p.unchanged, "object is", "objects are"), r.Store.Name)
		}
	}
	return fmt.Errorf("objects are left after %d walks: something writes them in another version", passes)
}

// refusal names what was refused.
func (p *pass) refusal() error {
	return fmt.Errorf("%w: %s, the first is %s: %s", ErrRefused, prose.Counted(p.refused, "object"),
		p.refusals[0].Object, p.refusals[0].Error)
}

// rewriteOnce walks over the objects once.
func (r *run) rewriteOnce(ctx context.Context, version string) (*pass, error) {
	p := &pass{}
	r.walks++
	group, workers := errgroup.WithContext(ctx)
	queue := make(chan Object)
	group.Go(func() error {
		defer close(queue)
		return r.pending(workers, version, p, func(o Object) error {
			if r.Pace != nil {
				if err := r.Pace(workers); err != nil {
					return err
				}
			}
			select {
			case queue <- o:
				return nil
			case <-workers.Done():
				return workers.Err()
			}
		})
	})
	for range r.Workers {
		group.Go(func() error {
			for o := range queue {
				if err := r.rewriteObject(workers, version, p, o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	r.report.Rewritten += p.rewritten
	r.report.Others += p.others
	r.report.Gone += p.gone
	r.report.Unchanged = p.unchanged
	r.report.Refused, r.report.Refusals = p.refused, p.refusals
	return p, err
}

// pending visits the objects that may be stored in another version: those that are, when the store can be read, or
// those that were not written since the switch.
func (r *run) pending(ctx context.Context, version string, p *pass, visit func(Object) error) error {
	want := r.plan.apiVersion(version)
	if r.Store != nil {
		r.progress(Progress{Total: r.total})
		_, err := ReadStored(ctx, *r.Store, r.plan.Resource, func(o Object, apiVersion string) error {
			if apiVersion == want || apiVersion == "" {
				r.progress(Progress{Objects: 1})
				return nil
			}
			return visit(o)
		})
		return err
	}
	if r.at.base == "" { // settled with the store, or nothing had to settle
		var err error
		if r.at.base, err = r.newBase(ctx, version); err != nil {
			return err
		}
	}
	base, err := parseVersion(r.at.base)
	if err != nil {
		return err
	}
	list := List{APIVersion: r.listVersion(version), Limit: r.PageObjects}
	return r.list(ctx, list, func(page Page, i int) error {
		written, err := parseVersion(page.Objects[i].ResourceVersion)
		if err != nil {
			return err
		}
		if written > base {
			p.mu.Lock()
			p.fresh++
			p.mu.Unlock()
			r.progress(Progress{Objects: 1})
			return nil
		}
		return visit(page.Objects[i])
	})
}

// listVersion is the apiVersion in which objects are listed: the one in which most of them are stored, which costs no
// conversion and works although one of them cannot be converted.
func (r *run) listVersion(version string) string {
	if !r.plan.Resource.BuiltIn && version == r.plan.Storage {
		if v, ok := r.plan.Before.Version(r.plan.From); ok && v.Served && !r.unserved() {
			return r.plan.Resource.APIVersion(r.plan.From)
		}
	}
	return r.plan.access(version)
}

// list visits every object, a page at a time.
func (r *run) list(ctx context.Context, list List, visit func(page Page, i int) error) error {
	for seen := map[string]bool{"": true}; ; {
		page, err := r.Objects.Page(ctx, list)
		if err != nil {
			return err
		}
		if list.Token == "" {
			r.progress(Progress{Total: int64(len(page.Objects)) + page.Remaining})
		}
		for i := range page.Objects {
			if err := visit(page, i); err != nil {
				return err
			}
		}
		if list.Token = page.Next; list.Token == "" {
			return nil
		}
		if seen[list.Token] {
			return fmt.Errorf("listing %s in %s: the server repeats a continue token: the list does not end",
				r.plan.Resource.Name, list.APIVersion)
		}
		seen[list.Token] = true
	}
}

func (r *run) progress(p Progress) {
	if r.Progress != nil {
		p.Step, p.Walk = r.step, r.walks
		r.Progress(p)
	}
}

// rewriteObject has one object written. What the server says of this object alone does not end the pass.
func (r *run) rewriteObject(ctx context.Context, version string, p *pass, o Object) error {
	resourceVersion, err := r.Objects.Patch(ctx, r.plan.access(version), o, nil)
	step := Progress{Objects: 1}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil && resourceVersion == o.ResourceVersion:
		p.unchanged++
	case err == nil:
		p.rewritten++
		p.witness = &o
	case errors.Is(err, ErrConflict):
		p.others++
	case errors.Is(err, ErrGone):
		p.gone++
		alive := int(p.rewritten + p.unchanged + p.others + p.fresh)
		if why := r.gone.Add(r.plan.Resource.Name, o.Namespace, alive, r.Now()); why != "" {
			return fmt.Errorf("%w: %s", ErrOtherStore, why)
		}
	case errors.Is(err, ErrUnreachable), ctx.Err() != nil:
		return err
	default:
		step.Refused = 1
		p.refused++
		if err := r.refused(ctx, p, o, err); err != nil {
			return err
		}
	}
	r.progress(step)
	return nil
}

// unserved reports whether a version was taken out of service already.
func (r *run) unserved() bool {
	return slices.ContainsFunc(r.steps[:r.at.next], func(s Step) bool { return s.Action == ActionUnserve })
}

// refused takes an object aside, unless nothing can be written at all at present.
func (r *run) refused(ctx context.Context, p *pass, o Object, cause error) error {
	if p.witness != nil {
		if err := r.Objects.Read(ctx, r.otherVersion(), *p.witness); err != nil && !errors.Is(err, ErrGone) {
			return fmt.Errorf("%w: %s was refused, and now %s, which was written before, cannot be read either: %w",
				ErrConversion, o, *p.witness, err)
		}
	} else if p.refused >= refusalsToGiveUp && !p.moved() {
		return fmt.Errorf("all of the first %d objects were refused, the last with: %w", p.refused, cause)
	}
	if len(p.refusals) >= refusalsKept {
		return nil
	}
	refusal := Refusal{o, shortened(cause.Error())}
	p.refusals = append(p.refusals, refusal)
	if r.noted(refusal) {
		return nil
	}
	return r.record(Record{Event: EventRefused, Object: &o, Error: refusal.Error})
}

// refusalBytes bounds what is kept of the server's words, which may repeat what is in the object.
const refusalBytes = 2 << 10

func shortened(text string) string {
	if len(text) <= refusalBytes {
		return text
	}
	return strings.ToValidUTF8(text[:refusalBytes], "") + fmt.Sprintf(" ... and %d bytes more", len(text)-refusalBytes)
}

// noted reports whether the journal has the refusal of an object with these words already: a walk is repeated, and so
// is a run.
func (r *run) noted(refusal Refusal) bool {
	if r.refusals == nil {
		r.refusals = map[string]string{}
		for _, record := range r.Journal.Records() {
			if record.Event == EventRefused && record.Object != nil {
				r.refusals[record.Object.String()] = record.Error
			}
		}
	}
	words, known := r.refusals[refusal.Object.String()]
	r.refusals[refusal.Object.String()] = refusal.Error
	return known && words == refusal.Error
}

// otherVersion is one in which an object that was just written must be converted to be read, where there is one.
func (r *run) otherVersion() string {
	if !r.plan.Resource.BuiltIn {
		for _, name := range r.plan.Before.Served() {
			if name != r.plan.Storage {
				return r.plan.Resource.APIVersion(name)
			}
		}
	}
	return r.plan.access(r.plan.Storage)
}

// prove shows that nothing is stored in another version, or that this is not so.
func (r *run) prove(ctx context.Context, version string) (*Proof, error) {
	want := r.plan.apiVersion(version)
	if r.Store == nil {
		return r.proveWritten(ctx, version)
	}
	if err := r.sleepUntil(ctx, r.switched().Add(r.plan.Grace.Duration)); err != nil {
		return nil, err
	}
	for range rewriteRounds {
		stored, err := ReadStored(ctx, *r.Store, r.plan.Resource, nil)
		if err != nil {
			return nil, err
		}
		if stored.Unreadable+stored.Encrypted > 0 {
			return nil, fmt.Errorf("store %s at revision %d: %s, in an unknown version; the first unreadable one is "+
				"%q", stored.Store, stored.Revision,
				prose.Plural(stored.Unreadable+stored.Encrypted, "value is unreadable or encrypted",
					"values are unreadable or encrypted"), stored.Example)
		}
		if _, others := stored.Others(want); others == 0 {
			proof := Proof{How: ProofStore, APIVersion: want, Objects: stored.Objects(), Store: stored.Store,
				Revision: stored.Revision}
			r.report.Proofs = append(r.report.Proofs, proof)
			return &proof, nil
		}
		// A request that was begun before the switch, or a server that learned of it late.
		if err := r.rewrite(ctx, version); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("after %d rounds store %s still has objects in another version: something writes them",
		rewriteRounds, r.Store.Name)
}

// proveWritten walks over the objects until a walk finds none that the server would write otherwise.
func (r *run) proveWritten(ctx context.Context, version string) (*Proof, error) {
	for range rewriteRounds {
		p, err := r.rewriteOnce(ctx, version)
		switch {
		case err != nil:
			return nil, err
		case p.refused > 0:
			return nil, p.refusal()
		case !p.moved():
			proof := Proof{How: ProofWritten, APIVersion: r.plan.apiVersion(version), Objects: p.fresh + p.unchanged,
				Base: r.at.base, Written: p.fresh, Unchanged: p.unchanged}
			r.report.Proofs = append(r.report.Proofs, proof)
			return &proof, nil
		}
	}
	return nil, fmt.Errorf("after %d rounds there are still objects to rewrite: something writes them in another "+
		"version", rewriteRounds)
}

// parseVersion reads a resource version. They are revisions of the store, and so they can be compared.
func parseVersion(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q: want a number", s)
	}
	return n, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
