package operator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// Reconciler brings control planes to what their objects say.
type Reconciler struct {
	Client client.Client
	Reader client.Reader // past the cache
	Events events.EventRecorder
	Now    func() time.Time

	StepLimit time.Duration // how long a step may wait before its transition goes back
	Repair    time.Duration // how often everything is applied again
	Look      time.Duration // how often a transition looks whether a step is done
	// Within bounds a look at the stores, and at the API servers, of a control plane; Reading bounds reading its stores
	// as a whole.
	Within, Reading time.Duration
	// MaxConcurrent is how many transitions go on at a time; 0 for any number.
	MaxConcurrent int
	// Sights looks at stores that can be reached from here.
	Sights func(context.Context, *transition.Watch) (map[string]witness.Sight, error)

	mu      sync.Mutex
	applied map[string]time.Time // when all of a control plane was applied
	answers map[string]*answersOf
	pulses  map[string]pulse // by host
	unready map[string]bool  // to which that was done since they are not ready
	waiting map[string]wait  // for the open step, by control plane
	began   map[string]bool  // whose transition began in the last look, which the status may not say yet
}

// Reconcile looks at one control plane, and does at most what leads to the next wait.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	f := &api.FusedControlPlane{}
	err := r.Client.Get(ctx, request.NamespacedName, f)
	if apierrors.IsNotFound(err) { // its namespace may be kept, and agents in it be denied
		f.Name = request.Name
		r.mu.Lock()
		delete(r.waiting, f.Name)
		r.mu.Unlock()
		return reconcile.Result{}, (&plane{Reconciler: r, object: f}).shutOut(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.mu.Lock()
	delete(r.began, f.Name)
	r.mu.Unlock()
	was := f.Status.DeepCopy()
	after, err := r.look(ctx, f)
	if f.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(f, api.Finalizer) {
		return reconcile.Result{}, err
	}
	f.Status.ObservedGeneration = f.Generation
	if !reflect.DeepEqual(was, f.Status) {
		if told := r.Client.Status().Update(ctx, f); told != nil && !apierrors.IsConflict(told) {
			err = errors.Join(err, client.IgnoreNotFound(told))
		} else if told != nil {
			after = time.Second
		}
	}
	if err != nil {
		return reconcile.Result{}, err // with backoff
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// look does one reconcile, and writes to the status what it saw.
func (r *Reconciler) look(ctx context.Context, f *api.FusedControlPlane) (time.Duration, error) {
	p := &plane{Reconciler: r, object: f, verdict: judge(f)}
	err := p.shutOut(ctx)
	if f.DeletionTimestamp != nil {
		after, deleted := p.delete(ctx)
		return after, errors.Join(err, deleted)
	}
	p.describe()
	if err != nil {
		p.degraded("Hosts", err)
		return 0, err
	}
	if p.record, err = readRecord(ctx, r.Reader, f.Name); err != nil {
		p.degraded("Unreadable", err)
		return 0, err
	}
	if lost, err := p.lost(ctx); err != nil || lost {
		return time.Minute, err
	}
	defer p.recorded()
	after, err := p.act(ctx)
	soon, backedUp := p.backups(ctx)
	if after == 0 || soon > 0 && soon < after {
		after = soon
	}
	return after, errors.Join(err, backedUp)
}

// lost reports a control plane whose record is gone, although its status says that a plan runs: nothing is changed
// then. What runs by the plan that the spec leads to is recorded again.
func (p *plane) lost(ctx context.Context) (bool, error) {
	s, v, name := &p.object.Status, &p.verdict, p.object.Name
	if p.record.secret != nil || s.Runs == "" {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	err := p.Reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil:
		p.degraded("Lost", fmt.Errorf("namespace %s is gone, and the control plane with it: delete the object, and "+
			"apply it again with the Secret %s and the volume of its backups where they were kept", name, PKIName))
		return true, nil
	case err != nil:
		return true, fmt.Errorf("namespace %s: %w", name, err)
	case s.Runs == v.digest && s.Transition == nil && v.plan != nil && ours(namespace, name):
		p.record.Runs, p.record.Plan, p.record.History = v.digest, v.plan, s.History
		if onHosts(v.target) {
			p.record.Target = v.target
		}
		if err := p.record.write(ctx, p.Client, name); err != nil {
			return true, err
		}
		p.event(corev1.EventTypeWarning, "Recovered", "Secret %s was gone; plan %s is recorded again, which ran, "+
			"and to which the spec leads", RecordName, v.digest)
		return false, nil
	}
	p.degraded("Lost", fmt.Errorf("the Secret %s/%s is gone, without which nothing is changed: put it back from a "+
		"copy, or edit the spec to what it was: plan %s ran, and it leads to %s", name, RecordName, s.Runs, v.digest))
	return true, nil
}

// current reports whether the object is in its store what it is here: the cache of an operator that starts may be that
// of an API server which lags behind, and have the spec or the annotations of before, or the object of before.
func (p *plane) current(ctx context.Context) (bool, error) {
	now, f := &api.FusedControlPlane{}, p.object
	err := p.Reader.Get(ctx, client.ObjectKeyFromObject(f), now)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return now.UID == f.UID && now.Generation == f.Generation && maps.Equal(now.Annotations, f.Annotations) &&
		now.DeletionTimestamp.IsZero() == f.DeletionTimestamp.IsZero(), nil
}

// act does at most what leads to the next wait.
func (p *plane) act(ctx context.Context) (time.Duration, error) {
	if p.verdict.file != nil && p.verdict.file.Spec.Paused {
		if p.record.Plan != nil && p.record.Open == nil && onHosts(p.record.target()) {
			if after, err := p.steadyHosts(ctx); err != nil { // which repairs nothing meanwhile
				return after, err
			}
		}
		p.phase(api.Paused)
		return p.Repair, nil
	}
	if p.record.Open != nil {
		return p.proceed(ctx)
	}
	if refusal := p.verdict.refusal(); refusal != "" {
		p.refuse("Findings", refusal)
		return p.steady(ctx)
	}
	if p.record.Restored != "" && p.object.Annotations[api.AnnotationRestore] == "" { // it may be named again
		p.record.Restored = ""
		if err := p.record.write(ctx, p.Client, p.object.Name); err != nil {
			return 0, err
		}
	}
	switch v := &p.verdict; {
	case p.record.Runs == v.digest && p.restores() != "":
		return p.beginRestore(ctx, p.restores())
	case p.record.Runs == v.digest:
		return p.steady(ctx)
	case p.record.Failed == v.digest:
		p.degraded("WentBack", errors.New(p.record.Why+"; edit the spec to try again"))
		return p.steady(ctx)
	case p.backed() == v.digest:
		p.refuse("WentBack", "the annotation "+api.AnnotationBack+" names this plan: edit the spec, or remove it")
		return p.steady(ctx)
	}
	return p.begin(ctx)
}

// plane is one control plane during one look.
type plane struct {
	*Reconciler
	object  *api.FusedControlPlane
	verdict verdict
	record  *record
	without []string // hosts of what runs that are lost, in the transition that would begin
	repairs bool     // everything is applied again in this look
	own     bool     // the namespace is the control plane's, as this look has seen
	denied  []string // hosts of the open transition that are, and those without which it goes on
}

// inOwn is namespace, once in a look.
func (p *plane) inOwn(ctx context.Context) error {
	if p.own {
		return nil
	}
	err := p.namespace(ctx, p.object.Name)
	p.own = err == nil
	return err
}

// backed is the digest of the plan that a person wants undone.
func (p *plane) backed() string { return p.object.Annotations[api.AnnotationBack] }

// begin computes the transition to the plan and records it; the next reconcile executes it.
func (p *plane) begin(ctx context.Context) (time.Duration, error) {
	v := &p.verdict
	var err error
	if p.without, err = lostOf(ctx, p.Client, p.record, v.plan); err != nil {
		p.degraded("Hosts", err)
		return 0, err
	}
	t, err := p.record.next(v, p.without)
	if refused, ok := errors.AsType[*transition.RefusedError](err); ok {
		p.refuse("NoTransition", strings.Join(refused.Reasons, "; "))
		return p.steady(ctx)
	}
	if err != nil {
		p.degraded("NoTransition", err)
		return 0, err
	}
	var hosts map[string]*api.ControlPlaneHost
	if onHosts(v.target) { // agents come before the approval
		if err := p.finalizer(ctx); err != nil {
			return 0, err
		}
		err := p.namespace(ctx, v.plan.Name)
		if err == nil {
			hosts, err = p.hosts(ctx, v.plan.Name, machines(p.record.Plan, v.plan))
		}
		for _, name := range p.without { // nothing is done there
			delete(hosts, name)
		}
		if err != nil {
			p.degraded("Hosts", err)
			return 0, err
		}
	}
	if p.waits(&t) {
		p.phase(api.Waiting)
		without := ""
		if len(p.without) > 0 {
			without = ", without " + prose.First(p.without, mostNamed) + ", lost for good,"
		}
		if said := p.object.Annotations[api.AnnotationApprove]; said != "" { // used before, or wrong
			without += fmt.Sprintf(" (the annotation says %q, and approves another transition)", cut(said, 80))
		}
		p.condition(api.ConditionProgressing, metav1.ConditionFalse, reasonApproval, fmt.Sprintf(
			"%d steps to plan %s%s need approval: kubectl annotate --overwrite %s %s %s=%s", len(t.Steps), v.digest,
			without, api.Short, p.object.Name, api.AnnotationApprove, p.record.approval(v.digest, p.without)))
		return p.steady(ctx)
	}
	if len(t.Steps) > 0 {
		wait, err := p.later(ctx)
		if err != nil {
			return 0, err
		}
		if wait > 0 {
			after, err := p.steady(ctx)
			return min(wait, after), err
		}
	}
	if hosts != nil {
		if len(t.Steps) > 0 && !p.agents(hosts) { // an agent may wait for the address that the plan brings
			return p.Look * 5, nil
		}
		if err := p.relieve(ctx, hosts); err != nil {
			return 0, err
		}
		return p.opens(ctx, t)
	}
	if err := p.finalizer(ctx); err != nil {
		return 0, err
	}
	if err := p.namespace(ctx, v.plan.Name); err != nil {
		p.degraded("Namespace", err)
		return 0, err
	}
	if err := p.secrets(ctx, v.plan); err != nil {
		p.degraded("Certificates", err)
		return 0, err
	}
	return p.opens(ctx, t)
}

// later reports when to look again at a transition that may not begin yet, since no window is open, or since others go
// on; 0: it may begin.
func (p *plane) later(ctx context.Context) (time.Duration, error) {
	first := p.record.Plan == nil && !onHosts(p.verdict.target) // there is nothing yet that a window would spare
	if open, next, err := spec.WindowAt(p.verdict.file.Spec.Windows, p.Now()); err != nil || !open && !first {
		p.phase(api.Waiting)
		message, wait := "no window of spec.windows opens any more", p.Repair
		if err != nil {
			message = err.Error()
		} else if !next.IsZero() {
			message = "the next window of spec.windows opens at " + next.Format(time.RFC3339)
			wait = min(wait, next.Sub(p.Now()))
		}
		p.condition(api.ConditionProgressing, metav1.ConditionFalse, "OutsideOfWindows", message)
		return wait, nil
	}
	others, err := p.others(ctx)
	if err != nil || len(others) < p.MaxConcurrent || p.MaxConcurrent == 0 {
		return 0, err
	}
	p.phase(api.Waiting)
	p.condition(api.ConditionProgressing, metav1.ConditionFalse, "OthersGoOn", fmt.Sprintf("%d at a time, and %s go on",
		p.MaxConcurrent, prose.First(others, mostNamed)))
	return 10 * p.Look, nil
}

// others are the control planes whose transitions go on. Those that wait for something do not count: they would keep
// every other one from its own.
func (p *plane) others(ctx context.Context) ([]string, error) {
	list := &api.FusedControlPlaneList{}
	if err := p.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %s: %w", api.Plural, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for i := range list.Items {
		f := &list.Items[i]
		moves := f.Status.Phase == api.Progressing || f.Status.Phase == api.GoingBack
		if f.Name != p.object.Name && (moves && f.Status.Transition != nil || p.began[f.Name]) {
			names = append(names, f.Name)
		}
	}
	if p.MaxConcurrent == 0 || len(names) < p.MaxConcurrent {
		if p.began == nil {
			p.began = map[string]bool{}
		}
		p.began[p.object.Name] = true // the status of this one says so only when it has been written
	}
	return names, nil
}

// finalizer keeps the object until what its deletionPolicy says is done.
func (p *plane) finalizer(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(p.object, api.Finalizer) {
		return nil
	}
	before := p.object.DeepCopy()
	controllerutil.AddFinalizer(p.object, api.Finalizer)
	status := p.object.Status
	if err := p.Client.Patch(ctx, p.object, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	p.object.Status = status
	return nil
}

// opens begins the transition to the plan of the verdict.
func (p *plane) opens(ctx context.Context, t transition.Transition) (time.Duration, error) {
	v := &p.verdict
	if len(t.Steps) == 0 { // the plans differ in what no object shows
		p.record.Runs, p.record.Plan, p.record.Target, p.record.Failed, p.record.Why = v.digest, v.plan,
			v.target, "", ""
		return time.Second, p.record.write(ctx, p.Client, v.plan.Name)
	}
	t.Watch.Seen = p.record.Seen
	if p.approved() { // whether it was needed or not: it is not left for another transition
		p.record.Approvals, p.record.Approved = p.record.approvals()+1, ""
	}
	return p.open(ctx, t, v.digest, v.plan, v.target)
}

// open records a transition to a plan, and begins it.
func (p *plane) open(ctx context.Context, t transition.Transition, to string, of *plan.Plan,
	target render.Target) (time.Duration, error) {
	if is, err := p.current(ctx); err != nil || !is {
		return p.Look, err
	}
	now := p.now()
	p.record.Open = &open{To: to, Plan: of, Target: target, Transition: t, Since: now, StepSince: now}
	if err := p.record.fits(); err != nil {
		p.record.Open = nil
		p.refuse("TooLarge", err.Error())
		return p.Repair, nil
	}
	if err := p.record.write(ctx, p.Client, p.object.Name); err != nil {
		return 0, err
	}
	p.event(corev1.EventTypeNormal, "Begun", "%d steps from %s to %s", len(t.Steps), t.From, t.To)
	return p.proceed(ctx)
}

// next is the transition from what runs to the plan of a verdict, without hosts that are lost. Errors:
// *transition.RefusedError.
func (r *record) next(v *verdict, lost []string) (transition.Transition, error) {
	with := func(facts transition.Facts) (transition.Transition, error) {
		facts.Lost = lost
		if onHosts(v.target) || onHosts(r.target()) { // from pods to hosts there is none
			return transition.New(transition.Setup{Plan: r.Plan, Target: r.target()},
				transition.Setup{Plan: v.plan, Target: v.target}, facts)
		}
		return transition.NewHosted(r.Plan, v.plan, facts)
	}
	t, err := with(transition.Facts{})
	if refused, ok := errors.AsType[*transition.RefusedError](err); ok && r.Plan != nil {
		// What is stored may allow it: a step of the transition reads the stores before anything stops.
		t, err = with(transition.Facts{StoresAgree: true})
		if err != nil {
			err = refused
		}
	}
	return t, err
}

// final reports a step that has no way back. Controllers that start again mark again what was released; a step by hand
// waits for a person by itself.
func final(s *transition.Step) bool {
	changesNothing := []transition.Kind{transition.RunChecks, transition.Release, transition.Snapshot,
		transition.ByHand}
	return s.Do != nil && s.Undo == nil && !slices.Contains(changesNothing, s.Do.Kind)
}

// restarts reports a step that may restart containers of workloads.
func restarts(s *transition.Step) bool {
	return s.Do != nil && (s.Do.Kind == transition.ChangeKubelet || s.Do.Kind == transition.RestoreKubelet)
}

// waits reports whether a person has to approve a transition that has not begun. On hosts one that begins with nothing
// changes a cluster that serves, too.
func (p *plane) waits(t *transition.Transition) bool {
	if p.record.Plan == nil && !onHosts(p.verdict.target) || p.approved() {
		return false
	}
	if p.verdict.file.Spec.Approval == spec.ApprovalManual {
		return true
	}
	return slices.ContainsFunc(t.Steps, func(s transition.Step) bool { return final(&s) || restarts(&s) })
}

// approved reports whether a person lets the transition to the plan begin.
func (p *plane) approved() bool {
	return p.object.Annotations[api.AnnotationApprove] == p.record.approval(p.verdict.digest, p.without)
}

// proceed advances the open transition, forward or back.
func (p *plane) proceed(ctx context.Context) (time.Duration, error) {
	o := p.record.Open
	name := p.object.Name
	// A refused spec changes nothing: the transition continues.
	replaced := p.verdict.digest != o.To && p.verdict.refusal() == ""
	if !o.Back && (p.backed() == o.To || replaced) {
		if is, err := p.current(ctx); err != nil || !is {
			return p.Look, err
		}
		why := "the spec was changed during the transition"
		if p.backed() == o.To {
			why = "rollback was requested by annotation"
		}
		if err := p.goBack(ctx, why); err != nil {
			return 0, err
		}
	}
	p.phase(api.Progressing)
	if o.Back {
		p.phase(api.GoingBack)
	}
	if err := p.namespace(ctx, name); err != nil {
		p.degraded("Namespace", err)
		return 0, err
	}
	wanted := o.Plan
	if o.Back {
		wanted = p.record.Plan
	}
	if onHosts(o.Target) {
		return p.proceedOnHosts(ctx)
	}
	if wanted != nil {
		if err := p.secrets(ctx, wanted); err != nil {
			p.degraded("Certificates", err)
			return 0, err
		}
	}
	run := &runner{Reconciler: p.Reconciler, name: name, plan: wanted, note: p.note}
	if p.verdict.file != nil {
		run.backup = p.verdict.file.Spec.Backup
	}
	return p.carry(ctx, run)
}

// carry has a runner do what is next of the open transition, forward or back.
func (p *plane) carry(ctx context.Context, run transition.Runner) (time.Duration, error) {
	o := p.record.Open
	book := &journal{ctx: ctx, client: p.Client, name: p.object.Name, record: p.record, now: p.now}
	if err := p.acknowledge(book); err != nil {
		return 0, err
	}
	carry := transition.Apply
	if o.Back {
		carry = transition.Undo
	}
	t := &o.Transition
	if len(o.Lost) > 0 {
		var err error
		if t, err = t.Without(o.Journal, o.Lost, o.Back); err != nil {
			return p.heed(ctx, err)
		}
	}
	err := carry(ctx, t, run, book, nil)
	if err == nil {
		return time.Second, p.end(ctx)
	}
	return p.heed(ctx, err)
}

// heed says in the status why the open transition does not go on, and has it go back where a step was not verified for
// too long.
func (p *plane) heed(ctx context.Context, err error) (time.Duration, error) {
	o := p.record.Open
	p.condition(api.ConditionProgressing, metav1.ConditionTrue, "Waiting", err.Error())
	if o.StepSince.After(p.Now()) { // the clock was ahead: the step would wait until it is there again
		o.StepSince = p.now()
		if err := p.record.write(ctx, p.Client, p.object.Name); err != nil {
			return 0, err
		}
	}
	late := p.late()
	hand, byHand := errors.AsType[*transition.ByHandError](err)
	switch {
	case byHand:
		p.phase(api.Waiting)
		p.condition(api.ConditionProgressing, metav1.ConditionFalse, reasonByHand, fmt.Sprintf("%s; then kubectl "+
			"annotate --overwrite %s %s %s=%s", cut(hand.Text, limitMessageBytes*3/4), api.Short, p.object.Name,
			api.AnnotationDone, o.word(hand.Found)))
		return p.Look * 5, nil
	case errors.Is(err, errSilent): // nothing failed
		if len(p.denied) > len(o.Lost) {
			p.condition(api.ConditionProgressing, metav1.ConditionFalse, reasonApproval, fmt.Sprintf("%s; where %s is "+
				"off, and lost for good, the transition goes on without it: kubectl annotate --overwrite %s %s %s=%s",
				cut(err.Error(), limitMessageBytes/2), prose.First(p.denied, mostNamed), api.Short, p.object.Name,
				api.AnnotationApprove, p.record.approval(o.To, p.denied)))
		}
		p.degraded("AgentSilent", err)
		return p.Look * 5, nil
	case errors.Is(err, errAtWork):
		return p.Look, nil
	case errors.Is(err, transition.ErrOtherStore):
		p.degraded("StoreChanged", fmt.Errorf("%w: look whether each store has the data that it should have; where it "+
			"is right as it is, kubectl annotate --overwrite %s %s %s=%s", err, api.Short, p.object.Name,
			api.AnnotationAcknowledge, stopID(transition.Stopped(o.Journal))))
		return lookAgain, nil
	case errors.Is(err, transition.ErrUnseen): // on the way back it could not be seen either
		p.degraded("StoreUnreadable", err)
		return lookAgain, nil
	case !late && errors.Is(err, errWaiting):
		return p.Look, nil
	case !late && onHosts(o.Target): // its agent is asked again
		p.degraded("StepFailed", err)
		return p.Look, nil
	case !late:
		p.degraded("StepFailed", err)
		return 0, err
	case o.Back || p.record.Plan == nil && !onHosts(o.Target):
		// nothing to roll back to, or rolling back already: retry
		p.degraded("StepFailed", err)
		return p.Look, nil
	}
	return p.Look, p.goBack(ctx, fmt.Sprintf("%v, after %v", err, p.StepLimit))
}

// wait is since when this process sees a transition where it stands.
type wait struct {
	position string
	written  int64 // when that was recorded
	since    time.Time
}

// late reports whether the open step has waited too long: by what is recorded, and by what this process has seen, whose
// clock may be set while it runs, and which may have begun with one that was ahead.
func (p *plane) late() bool {
	o, now := p.record.Open, p.Now()
	w := wait{positionOf(o), o.StepSince.Unix(), now}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.waiting[p.object.Name]; was.position == w.position && was.written == w.written {
		w = was
	}
	if p.waiting == nil {
		p.waiting = map[string]wait{}
	}
	p.waiting[p.object.Name] = w
	return now.Sub(o.StepSince.Time) > p.StepLimit && now.Sub(w.since) > p.StepLimit
}

// The reasons of the condition Progressing while a person is waited for. The last word of its message is what the
// annotation has to say.
const (
	reasonByHand   = "ByHand"
	reasonApproval = "WaitingForApproval"
)

// lookAgain is after which time a store that stopped a transition is looked at again.
const lookAgain = time.Minute

// acknowledge records a person's word, by an annotation, that the stores are right as they were seen at a stop.
func (p *plane) acknowledge(book *journal) error {
	stop, word := transition.Stopped(book.Records()), p.object.Annotations[api.AnnotationAcknowledge]
	if stop == nil || word == "" || word != stopID(stop) {
		return nil
	}
	if err := transition.Acknowledge(book, stop, "annotation "+api.AnnotationAcknowledge, ""); err != nil {
		return err
	}
	p.event(corev1.EventTypeNormal, "Acknowledged", "the stores are right as they were seen before step %s", stop.Step)
	return nil
}

func (p *plane) goBack(ctx context.Context, why string) error {
	o := p.record.Open
	o.Back, o.Why, o.StepSince = true, brief(why), p.now()
	if err := p.record.write(ctx, p.Client, p.object.Name); err != nil {
		return err
	}
	p.event(corev1.EventTypeWarning, "GoingBack", "%s", why)
	return nil
}

// mostHistory bounds what is remembered of transitions.
const mostHistory = 10

// end closes the open transition.
func (p *plane) end(ctx context.Context) error {
	r, o := p.record, p.record.Open
	past := api.PastTransition{From: o.Transition.From, To: o.Transition.To, Plan: o.To, Ended: p.now()}
	r.Failed, r.Why = "", ""
	if o.Back {
		past.Plan, past.Error = r.Runs, o.Why
		if p.verdict.digest == o.To && r.Runs != o.To { // not one that another spec has replaced, nor a restore
			r.Failed, r.Why = o.To, "the transition to plan "+o.To+" went back: "+o.Why
		}
	} else {
		r.Runs, r.Plan, r.Target = o.To, o.Plan, o.Target
	}
	r.History = append([]api.PastTransition{past}, r.History...)
	r.History = r.History[:min(len(r.History), mostHistory)]
	r.Seen = transition.KnownStores(&o.Transition, o.Journal)
	maps.DeleteFunc(r.Seen, func(name string, _ witness.Sight) bool {
		return r.Plan == nil || r.Plan.Store(name) == nil
	})
	r.Open = nil
	if err := p.begun(ctx); err != nil {
		return err
	}
	if err := r.write(ctx, p.Client, p.object.Name); err != nil {
		return err
	}
	if past.Error != "" {
		p.event(corev1.EventTypeWarning, "WentBack", "%s", past.Error)
	} else {
		p.event(corev1.EventTypeNormal, "Ended", "%s runs", o.Transition.To)
	}
	p.phase(api.Running)
	return nil
}

// steady looks at what runs by the plan of the record, and applies it again where it is not what was applied.
func (p *plane) steady(ctx context.Context) (time.Duration, error) {
	if p.record.Plan == nil {
		return p.Repair, nil
	}
	if onHosts(p.record.target()) {
		return p.steadyHosts(ctx)
	}
	components, ready, err := p.components(ctx, p.record.Plan)
	if err != nil {
		p.degraded("Unreadable", err)
		return 0, err
	}
	if p.repairs = p.due(ready); p.repairs {
		err := p.inOwn(ctx)
		if err == nil {
			err = p.secrets(ctx, p.record.Plan)
		}
		if err == nil {
			err = p.begun(ctx)
		}
		if err == nil {
			err = p.reapply(ctx)
		}
		if err != nil {
			p.degraded("Repair", err)
			return 0, err
		}
	}
	p.object.Status.Components = components
	if !ready {
		var missing []string
		for _, c := range components {
			if c.Ready < c.Wanted || c.Wanted == 0 && !c.Existing {
				text := fmt.Sprintf("%s has %d of %d pods", c.Name, c.Ready, c.Wanted)
				if why := p.whyNotReady(ctx, p.object.Name, c.Name); why != "" {
					text += ", " + brief(why)
				}
				missing = append(missing, text)
			}
		}
		p.condition(api.ConditionReady, metav1.ConditionFalse, "NotReady", prose.First(missing, mostNamed))
		p.degraded("NotReady", errors.New(prose.First(missing, mostNamed)))
		if !p.repairs {
			return unreadyFirst, nil
		}
		return unreadyEvery, nil
	}
	p.condition(api.ConditionReady, metav1.ConditionTrue, "Ready", "every component is ready")
	if p.object.Status.Phase == "" || p.object.Status.Phase == api.Pending {
		p.phase(api.Running)
	}
	return p.Repair, nil
}

// due reports whether everything is applied again: now and then, and where something is not ready, since what it needs
// may have been deleted.
func (p *plane) due(ready bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied == nil {
		p.applied = map[string]time.Time{}
	}
	name, now := p.object.Name, p.Now()
	last, known := p.applied[name]
	if !known && ready {
		p.applied[name] = now // an operator that starts does not write everything at once
		return false
	}
	every := p.Repair
	switch {
	case ready:
		delete(p.unready, name)
	case p.unready[name]:
		every = unreadyEvery
	default:
		every = unreadyFirst
	}
	if known && now.Sub(last) < every {
		return false
	}
	p.applied[name] = now
	if !ready {
		if p.unready == nil {
			p.unready = map[string]bool{}
		}
		p.unready[name] = true
	}
	return true
}

// How often everything is applied again where something is not ready: soon after that was seen, then each minute.
const (
	unreadyFirst = 10 * time.Second
	unreadyEvery = time.Minute
)

func (p *plane) reapply(ctx context.Context) error {
	all, err := transition.NewHosted(nil, p.record.Plan, transition.Facts{})
	if err != nil {
		return err
	}
	for _, s := range all.Steps {
		if s.Do != nil && s.Do.Kind == transition.ApplyObjects {
			if err := p.applyWorkload(ctx, s.Do.Workload); err != nil {
				return err
			}
		}
	}
	return nil
}

// begun notes the stores that have begun, where members read it: they never begin again with nothing.
func (p *plane) begun(ctx context.Context) error {
	stores, data := map[string]string{}, map[string]any{}
	if p.record.Plan != nil {
		for i := range p.record.Plan.Components {
			if c := &p.record.Plan.Components[i]; c.ReadsBegunStores() {
				stores[c.Store], data[c.Store] = "existing", "existing"
			}
		}
	}
	if len(stores) == 0 {
		return nil
	}
	there := &corev1.ConfigMap{}
	err := p.Reader.Get(ctx, types.NamespacedName{Namespace: p.object.Name, Name: plan.BegunStores}, there)
	if err == nil && ours(there, p.object.Name) && maps.Equal(there.Data, stores) {
		return nil
	}
	return p.apply(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": p.object.Name, "name": plan.BegunStores},
		"data":     data}}, p.object.Name)
}

// components are those of a plan, as they are.
func (p *plane) components(ctx context.Context, of *plan.Plan) (list []api.ComponentStatus, ready bool, err error) {
	ready = true
	for i := range of.Components {
		c := &of.Components[i]
		status := api.ComponentStatus{Name: c.Name, Host: c.Host, Side: string(c.Side), Version: c.Version,
			Image: c.Image}
		if c.Host != plan.HostedName {
			status.Existing = true
			list = append(list, status)
			continue
		}
		state, _, err := podsOf(ctx, p.Client, render.HostedKind(c), of.Name, c.Name)
		if err != nil {
			return nil, false, err
		}
		status.Wanted, status.Ready = state.wanted, state.ready
		ready = ready && state.wanted > 0 && state.ready >= state.wanted
		list = append(list, status)
	}
	return list, ready, nil
}

// delete does what the deletion policy says, and lets the object go.
func (p *plane) delete(ctx context.Context) (time.Duration, error) {
	f := p.object
	if !controllerutil.ContainsFinalizer(f, api.Finalizer) {
		return 0, nil
	}
	if is, err := p.current(ctx); err != nil || !is { // namespace, hosts and name may be another one's by now
		return p.Look, err
	}
	p.phase(api.Deleting)
	if err := p.dismiss(ctx); err != nil {
		return 0, err
	}
	policy := spec.DeletionKeep // a spec that cannot be read keeps everything
	if p.verdict.file != nil && p.verdict.file.Spec.DeletionPolicy != "" {
		policy = p.verdict.file.Spec.DeletionPolicy
	}
	if policy == spec.DeletionDelete {
		namespace := &corev1.Namespace{}
		err := p.Reader.Get(ctx, types.NamespacedName{Name: f.Name}, namespace)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return 0, fmt.Errorf("namespace %s: %w", f.Name, err)
		case !ours(namespace, f.Name):
			p.event(corev1.EventTypeWarning, "Kept", "namespace %v", foreign(namespace, f.Name))
		default:
			uid := namespace.UID
			err := p.Client.Delete(ctx, namespace, client.Preconditions{UID: &uid})
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("deleting namespace %s: %w", f.Name, err)
			}
			p.condition(api.ConditionProgressing, metav1.ConditionTrue, "Deleting",
				"namespace "+f.Name+" is being deleted")
			return p.Look, nil
		}
	} else {
		p.event(corev1.EventTypeNormal, "Kept", "namespace %s and its objects are kept, see Secret %s; "+
			"deletionPolicy Delete would have deleted it", f.Name, RecordName)
	}
	before := f.DeepCopy()
	controllerutil.RemoveFinalizer(f, api.Finalizer)
	forgetBackup(f.Name)
	if err := p.Client.Patch(ctx, f, client.MergeFrom(before)); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return 0, nil
}

func (r *Reconciler) now() metav1.Time { return metav1.NewTime(r.Now().Truncate(time.Second)) }

// limitNoteBytes is what the API server takes as the note of an event.
const limitNoteBytes = 1024

// note says what a check of the open transition has found that is in no one's way: what an older API server will repair
// by itself, for example.
func (p *plane) note(text string) { p.event(corev1.EventTypeNormal, "Noted", "%s", text) }

// event records an event. The recorder takes one of the same reason and action for the same event again, and drops
// what it says: what says something else is another action.
func (p *plane) event(kind, reason, format string, args ...any) {
	note := brief(fmt.Sprintf(format, args...))
	if len(note) > limitNoteBytes {
		note = strings.ToValidUTF8(note[:limitNoteBytes], "")
	}
	sum := sha256.Sum256([]byte(note))
	p.Events.Eventf(p.object, nil, kind, reason, fmt.Sprintf("Reconcile-%x", sum[:4]), "%s", note)
}
