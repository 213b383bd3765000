package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// errWaiting is wrapped when a check looked, and what it wants is not there yet.
var errWaiting = errors.New("not yet")

// runner carries out the steps of hosted transitions: *transition.Runner. It looks once, and does not wait.
type runner struct {
	*Reconciler
	name string
	plan *plan.Plan // whose stores are read
	// note is told what checks have found that is in no one's way.
	note func(text string)
	// backup is how members are put back; nil where the spec does not say it
	backup *spec.Backup
}

// Do applies or removes the objects of a component.
func (r *runner) Do(ctx context.Context, _ string, a *transition.Action) error {
	switch a.Kind {
	case transition.ApplyObjects:
		return r.applyWorkload(ctx, a.Workload)
	case transition.RemoveObjects:
		return r.removeWorkload(ctx, a.Workload)
	case transition.RestoreMember, transition.PutBackMember:
		return r.member(ctx, a.Member, a.Kind == transition.PutBackMember)
	case transition.Release:
		return r.withMarks(ctx, a.Marks, func(ctx context.Context, m *transition.Marks) error {
			return new(local.Host).Do(ctx, r.name, &transition.Action{Kind: a.Kind, Marks: m})
		})
	}
	return fmt.Errorf("operator: internal error: action %q", a.Kind)
}

// Check looks at what a check is about.
func (r *runner) Check(ctx context.Context, _ string, c *transition.Check) error {
	switch c.Kind {
	case transition.RolledOut:
		p, found, err := podsOf(ctx, r.Reader, c.Workload.Kind, c.Workload.Namespace, c.Workload.Name)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("%s %s is gone: %w", c.Workload.Kind, c.Workload.Name, errWaiting)
		case !p.settled || p.ready < p.wanted:
			err := fmt.Errorf("%s: %d of %d pods are ready: %w", c.Workload.Name, p.ready, p.wanted, errWaiting)
			if why := r.whyNotReady(ctx, c.Workload.Namespace, c.Workload.Name); why != "" {
				err = fmt.Errorf("%w: %s", err, why)
			} else if p.why != "" {
				err = fmt.Errorf("%w: %s", err, p.why)
			}
			return fmt.Errorf("%w; %s", err, c.Hint)
		}
		return nil
	case transition.NoPods:
		list := &corev1.PodList{}
		if err := r.Reader.List(ctx, list, client.InNamespace(c.Workload.Namespace),
			client.MatchingLabels{nameLabel: c.Workload.Name, partOfLabel: r.name}, client.Limit(1)); err != nil {
			return fmt.Errorf("listing the pods of %s: %w", c.Workload.Name, err)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("pod %s is still there: %w", list.Items[0].Name, errWaiting)
		}
		return nil
	case transition.MemberIs:
		return r.memberIs(ctx, c)
	case transition.StoresAgree:
		return r.storesAgree(ctx, c)
	case transition.Settled, transition.Released:
		return r.withMarks(ctx, c.Marks, func(ctx context.Context, m *transition.Marks) error {
			there := *c
			there.Marks = m
			return new(local.Host).Check(ctx, r.name, &there)
		})
	}
	return fmt.Errorf("operator: internal error: check %q", c.Kind)
}

// withMarks has the API servers of marks asked with the certificates of the control plane.
func (r *runner) withMarks(ctx context.Context, m *transition.Marks, ask func(context.Context,
	*transition.Marks) error) error {
	p, err := r.place(ctx, r.name)
	if err != nil {
		return err
	}
	defer p.remove()
	there := *m
	for _, access := range []**transition.Access{&there.Namespaces, &there.Modern} {
		if *access == nil {
			continue
		}
		a := **access
		if err := p.files(&a.CA, &a.Cert, &a.Key); err != nil {
			return err
		}
		*access = &a
	}
	return answered(ctx, r.Within, func(ctx context.Context) error { return ask(ctx, &there) })
}

// answered bounds how long something may take that a control plane answers.
func answered(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	slow := fmt.Errorf("no answer of it all within %s", limit)
	limited, cancel := context.WithTimeoutCause(ctx, limit, slow)
	defer cancel()
	err := do(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return errors.Join(slow, err)
	}
	return err
}

// storesAgree reads the stores with the client certificate of the control plane.
func (r *runner) storesAgree(ctx context.Context, c *transition.Check) error {
	stores, done, err := r.reachable(ctx, r.name, c.Stores)
	if err != nil {
		return err
	}
	defer done()
	there := *c
	there.Stores = stores
	return answered(ctx, r.Reading, func(ctx context.Context) error {
		return local.StoresAgree(ctx, &there, local.Telling{Note: r.note})
	})
}

// Keep keeps no record: hosted transitions hand nothing over.
func (r *runner) Keep(context.Context, string, *transition.Objects) (*handover.Known, error) {
	return nil, errors.New("operator: internal error: a hand-over")
}

// Digest is of programs of hosts, and hosted transitions have none.
func (r *runner) Digest(context.Context, string, string) (string, error) {
	return "", errors.New("operator: internal error: a program of a host")
}

// Look looks at the stores with the client certificate of the control plane.
func (r *runner) Look(ctx context.Context, _ string, w *transition.Watch) (map[string]witness.Sight, error) {
	stores, done, err := r.reachable(ctx, r.name, w.Stores)
	if err != nil {
		return nil, err
	}
	defer done()
	there := *w
	there.Stores = stores
	var seen map[string]witness.Sight
	err = answered(ctx, r.Within, func(ctx context.Context) (err error) {
		seen, err = r.Sights(ctx, &there)
		return err
	})
	return seen, err
}
