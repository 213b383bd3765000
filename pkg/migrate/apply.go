package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

var (
	// ErrConflict is the error of Definitions and Objects after a write by another client.
	ErrConflict = errors.New("another client has written it meanwhile")
	// ErrGone is what Objects say of an object that does not exist any more.
	ErrGone = errors.New("it does not exist any more")
	// ErrUnreachable is wrapped by errors of a server that does not answer, however often it was asked.
	ErrUnreachable = errors.New("the server cannot be reached")
	// ErrChanged says that the CRD is not as the plan left it: another client has changed it.
	ErrChanged = errors.New("the CRD was changed by another client")
	// ErrConversion says that objects are not converted between versions at present, and that nothing was begun because
	// of it.
	ErrConversion = errors.New("conversion is broken")
	// ErrRefused says that objects could not be rewritten. The rest was; nothing is pruned while one of them is left.
	ErrRefused = errors.New("objects were refused")
	// ErrWaiting says that a version may not be removed yet.
	ErrWaiting = errors.New("not yet")
)

// Definitions reads and writes CustomResourceDefinitions.
type Definitions interface {
	Definition(ctx context.Context, name string) (*Definition, error)
	// Update writes the definition, or its status alone, if no other client has since it was read. Errors: ErrConflict.
	Update(ctx context.Context, d *Definition, status bool) (*Definition, error)
}

// Objects reads and writes the objects of a resource through an API server. It repeats by itself what may be repeated.
type Objects interface {
	// Page lists objects, a page of them.
	Page(ctx context.Context, list List) (Page, error)
	// Read reads an object, from the store, in an apiVersion.
	Read(ctx context.Context, apiVersion string, o Object) error
	// Patch writes an object with changed metadata, or unchanged for nil, if no client has written it since. It returns
	// the resource version that it has then, which is the old one when the store holds exactly these bytes already.
	// Errors: ErrConflict, ErrGone, ErrUnreachable; any other is the server's about this object.
	Patch(ctx context.Context, apiVersion string, o Object, metadata map[string]any) (resourceVersion string, err error)
}

// Servers tells how API servers behave.
type Servers interface {
	// StorageHashes are what discovery of each API server says of the resource; "" from servers that do not say.
	StorageHashes(ctx context.Context, apiVersion string) (byServer map[string]string, err error)
	// WebhookProblem says why a webhook cannot be reached as far as that can be seen without calling it; "" for no
	// reason.
	WebhookProblem(ctx context.Context, w Webhook) (string, error)
	// Sight is what the store of the resource shows of itself through an API server. What cannot be seen is left out.
	Sight(ctx context.Context, apiVersion string) (witness.Sight, error)
}

// List says which page of which list.
type List struct {
	APIVersion string
	Token      string // after which the page begins; "" for the beginning
	Limit      int    // objects at most
	// Managed asks for the managedFields of the objects in which the text occurs; "" for none. They may be as large as
	// objects are, and many times that when they are decoded.
	Managed string
}

// Page is a part of a list.
type Page struct {
	Objects         []Object
	ManagedFields   [][]byte // in JSON, by object, where they were asked for
	ResourceVersion string   // of the list
	Next            string   // token; "" at the end
	Remaining       int64    // objects behind this page; 0 when the server does not say
}

// Requests counts requests that audit logs show.
type Requests struct {
	From, To time.Time // which time the logs cover
	Last     time.Time // the newest request for the version
	Count    int       // of requests for the version since the time asked about
	Who      string    // the newest
}

// World is what Apply acts through.
type World struct {
	Definitions Definitions
	Objects     Objects
	Servers     Servers
	Store       *Store // where the objects lie; nil: not to be read
	Journal     Journal
	Now         func() time.Time
	Sleep       func(context.Context, time.Duration) error
	Progress    func(Progress)                          // nil: no listener
	Pace        func(context.Context) error             // waits until the next object may be written; nil: no limit
	Audit       func(since time.Time) (Requests, error) // for the versions to retire; nil: no audit log
	Workers     int                                     // objects written at a time; default 16
	PageObjects int                                     // objects listed at a time; default 500
}

// Progress is one step of a rewriting. Its counts are differences.
type Progress struct {
	Step    string
	Walk    int   // number of the walk over the objects; a step may need several
	Total   int64 // objects to be looked at, as far as that is known; 0 otherwise
	Objects int64 // that are dealt with
	Refused int64
}

// Report is what Apply did in this run.
type Report struct {
	Steps     []string  `json:"steps"`     // that were done
	Stopped   string    `json:"stopped"`   // the step at which it stopped; "" for the end
	Rewritten int64     `json:"rewritten"` // by this run
	Unchanged int64     `json:"unchanged"` // found to be stored as the server would write them
	Others    int64     `json:"others"`    // written by another client meanwhile
	Gone      int64     `json:"gone"`      // deleted meanwhile
	Cleaned   int64     `json:"cleaned"`   // objects whose managedFields were changed
	Refused   int64     `json:"refused"`   // still
	Refusals  []Refusal `json:"refusals,omitempty"`
	Proofs    []Proof   `json:"proofs,omitempty"`
	Notes     []string  `json:"notes,omitempty"`
}

// Refusal is an object that could not be written, and what the server says of it.
type Refusal struct {
	Object
	Error string `json:"error"`
}

// Proof says why nothing is stored in another version.
type Proof struct {
	How        ProofKind `json:"how"`
	APIVersion string    `json:"apiVersion"`
	Objects    int64     `json:"objects"`
	Store      string    `json:"store,omitempty"` // of ProofStore, and the revision at which it was read
	Revision   int64     `json:"revision,omitempty"`
	Base       string    `json:"base,omitempty"`    // of ProofWritten: the resource version after the switch
	Written    int64     `json:"written,omitempty"` // objects that were written after it
	Unchanged  int64     `json:"unchanged,omitempty"`
}

// ProofKind is what a proof rests on.
type ProofKind string

// The proofs.
const (
	ProofStore ProofKind = "store" // every key was read at one revision
	// every object was written after the switch, or the server found nothing to write
	ProofWritten ProofKind = "written"
)

func (p Proof) String() string {
	if p.How == ProofStore {
		return fmt.Sprintf("proved by the store: at revision %d of store %s, each of %s is stored as %s", p.Revision,
			p.Store, prose.Counted(p.Objects, "object"), p.APIVersion)
	}
	return fmt.Sprintf("proved by the API server, without a look into the store: of %s, %d were written after "+
		"resource version %s, when it wrote %s, and for %d it found nothing to write",
		prose.Counted(p.Objects, "object"), p.Written, p.Base, p.APIVersion, p.Unchanged)
}

const (
	settleWithin   = 2 * time.Minute
	settleInterval = 200 * time.Millisecond
	rewriteRounds  = 6 // of a prove step, against late writes in the old version
	editAttempts   = 8
)

// run is one run of a plan, or of the way back from it.
type run struct {
	*World
	plan   *Plan
	steps  []Step
	at     position
	report Report
	step   string
	walks  int
	gone   witness.Vanishings
	proved bool // by this run
	// refusals are the server's words by object, as the journal has them; guarded by the lock of a pass.
	refusals map[string]string
	total    int64 // objects in the store, when it was looked at
}

// Apply carries out the plan from where its journal says that it stands. It may be stopped at any moment, in any way,
// and called again. Errors: ErrChanged, ErrConversion, ErrOtherStore, ErrRefused, ErrWaiting, wrapped; those of World.
// The report is of what was done until then.
func Apply(ctx context.Context, p *Plan, w *World) (*Report, error) {
	at, err := locate(p, w.Journal.Records())
	if err == nil && at.undoing != nil {
		err = errors.New("the plan was undone, or that was begun; plan again from how things are now")
	}
	if err != nil {
		return nil, err
	}
	return (&run{World: w, plan: p, steps: p.Steps, at: at}).all(ctx)
}

// ApplyUndo carries out the way back, as Undo planned it.
// Errors: as those of Apply.
func ApplyUndo(ctx context.Context, p *Plan, steps []Step, w *World) (*Report, error) {
	at, err := locate(p, w.Journal.Records())
	if err == nil && len(steps) == 0 {
		err = errNothingToUndo
	}
	if err != nil {
		return nil, err
	}
	if at.undoing == nil {
		if at.begun { // the step's edit may have been made
			if at.generation, err = afterBegun(ctx, p, w, at); err != nil {
				return nil, err
			}
		}
		record := Record{Event: EventUndo, Time: w.Now(), Undo: steps, Generation: at.generation}
		if err := w.Journal.Append(record); err != nil {
			return nil, err
		}
		at.undoing, at.next, at.begun = steps, 0, false
	}
	return (&run{World: w, plan: p, steps: at.undoing, at: at}).all(ctx)
}

// afterBegun is the generation of a CRD of which one change more may have been made than the journal says is done.
func afterBegun(ctx context.Context, p *Plan, w *World, at position) (int64, error) {
	if p.Before == nil {
		return 0, nil
	}
	d, err := w.Definitions.Definition(ctx, p.Resource.Name)
	if err != nil {
		return 0, err
	}
	r := &run{World: w, plan: p, steps: p.Steps, at: at}
	if change := r.change(p.Steps[at.next]); change != nil {
		if err := r.unchanged(d, change); err != nil {
			return 0, err
		}
		return d.Generation(), nil
	}
	return at.generation, nil
}

func (r *run) all(ctx context.Context) (*Report, error) {
	if r.Workers == 0 {
		r.Workers = 16
	}
	r.gone.Limit = vanishing
	if r.PageObjects == 0 {
		r.PageObjects = 500
	}
	if r.at.next == len(r.steps) {
		return &r.report, nil
	}
	r.step = r.steps[r.at.next].ID()
	if err := r.prepare(ctx); err != nil {
		r.report.Stopped = r.step
		return &r.report, err
	}
	for ; r.at.next < len(r.steps); r.at.next++ {
		s := r.steps[r.at.next]
		r.step = s.ID()
		if !r.at.begun {
			if err := r.record(Record{Event: EventBegin, Seen: r.at.seen}); err != nil {
				return &r.report, err
			}
			r.at.begun = true
		}
		done, err := r.do(ctx, s)
		if err == nil { // what was done, or proved, is so of this store
			err = r.look(ctx)
		}
		if err != nil {
			r.report.Stopped = s.ID()
			return &r.report, fmt.Errorf("%s: %w", s.ID(), err)
		}
		done.Event, done.Generation, done.Seen = EventDone, r.at.generation, r.at.seen
		if err := r.record(done); err != nil {
			return &r.report, err
		}
		r.at.begun = false
		done.Time = r.Now()
		r.at.reached(s, done, r.plan.Grace.Duration)
		r.report.Steps = append(r.report.Steps, s.ID())
	}
	return &r.report, nil
}

func (r *run) record(record Record) error {
	record.Time, record.Step, record.ID = r.Now(), r.at.next, r.steps[r.at.next].ID()
	return r.Journal.Append(record)
}

// prepare looks before anything is changed: at the store, at the CRD, at the conversion, and whether the store can
// prove anything.
func (r *run) prepare(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	if !r.plan.Resource.BuiltIn {
		d, err := r.Definitions.Definition(ctx, r.plan.Resource.Name)
		if err != nil {
			return err
		}
		if err := r.unchanged(d, r.change(r.steps[r.at.next])); err != nil {
			return err
		}
		if health := CheckConversion(ctx, d, r.Objects, r.Servers); health.State == HealthBad && r.needsConversion() {
			return fmt.Errorf("%w: %s", ErrConversion, health.Detail)
		}
		if err := r.plannedWebhook(ctx); err != nil {
			return err
		}
	}
	if r.Store == nil {
		return nil
	}
	if err := Confirm(ctx, *r.Store, r.plan.Resource, r.Definitions, r.Objects); err != nil {
		return err
	}
	stored, err := ReadStored(ctx, *r.Store, r.plan.Resource, nil)
	if err != nil {
		return err
	}
	r.total = stored.Objects()
	if stored.Encrypted > 0 {
		r.note("%s encrypted in the store, which can prove nothing then",
			prose.Plural(stored.Encrypted, "object is", "objects are"))
		r.Store = nil
	}
	return nil
}

// plannedWebhook looks for the webhook of a conversion that a step is left to put into the CRD.
func (r *run) plannedWebhook(ctx context.Context) error {
	if !slices.ContainsFunc(r.steps[r.at.next:], func(s Step) bool {
		return s.Action == ActionConvert && !s.Before
	}) {
		return nil
	}
	strategy, webhook := r.plan.With.Conversion()
	if strategy != StrategyWebhook {
		return nil
	}
	problem, err := r.Servers.WebhookProblem(ctx, webhook)
	if err != nil {
		r.note("%v", err) // the convert step will show whether it works
	} else if problem != "" {
		return fmt.Errorf("%w: %s", ErrConversion, problem)
	}
	return nil
}

// needsConversion reports whether a step is left that conversion must work for, and none before it that exchanges the
// conversion.
func (r *run) needsConversion() bool {
	for _, s := range r.steps[r.at.next:] {
		switch s.Action {
		case ActionConvert:
			return false
		case ActionAdd, ActionServe, ActionSwitch, ActionRewrite, ActionRemove:
			return true
		}
	}
	return false
}

func (r *run) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

// do carries out one step. It has no effect when the step is done already.
func (r *run) do(ctx context.Context, s Step) (Record, error) {
	switch s.Action {
	case ActionSwitch, ActionUnserve, ActionRemove:
		return Record{}, r.edit(ctx, r.change(s))
	case ActionAdd:
		if err := r.edit(ctx, r.change(s)); err != nil {
			return Record{}, err
		}
		return Record{}, r.added(ctx, s.Version)
	case ActionConvert, ActionServe:
		if err := r.edit(ctx, r.change(s)); err != nil {
			return Record{}, err
		}
		return Record{}, r.converts(ctx)
	case ActionSettle:
		return r.settle(ctx, s.Version)
	case ActionRewrite:
		return Record{}, r.rewrite(ctx, s.Version)
	case ActionProve:
		proof, err := r.prove(ctx, s.Version)
		r.proved = err == nil
		return Record{Proof: proof}, err
	case ActionPrune:
		return Record{}, r.prune(ctx, s.Version)
	case ActionWait:
		return Record{}, r.wait(ctx)
	case ActionClean:
		return Record{}, r.clean(ctx, s.Version)
	}
	return Record{}, fmt.Errorf("migrate: internal error: no action %q", s.Action)
}

// change is what a step does to the CRD; nil for a step that leaves it alone.
func (r *run) change(s Step) func(*Definition) error {
	switch s.Action {
	case ActionAdd:
		return func(d *Definition) error { return d.addVersion(r.plan.source(s.Version), s.Version) }
	case ActionConvert:
		from := r.plan.With
		if s.Before {
			from = r.plan.Before
		}
		return func(d *Definition) error { d.setConversion(from); return nil }
	case ActionServe:
		return func(d *Definition) error { return d.setServed(s.Version, true) }
	case ActionUnserve:
		return func(d *Definition) error { return d.setServed(s.Version, false) }
	case ActionSwitch:
		return func(d *Definition) error { return d.setStorage(s.Version) }
	case ActionRemove:
		return func(d *Definition) error { d.removeVersion(s.Version); return nil }
	}
	return nil
}

// source is the CRD that has the version that a step adds: the one from before on the way back.
func (p *Plan) source(version string) *Definition {
	if _, ok := p.Before.Version(version); ok {
		return p.Before
	}
	return p.With
}

// added makes sure that the server kept every field of a version, whichever run added it.
func (r *run) added(ctx context.Context, version string) error {
	d, err := r.Definitions.Definition(ctx, r.plan.Resource.Name)
	if err != nil {
		return err
	}
	wanted := d.Clone()
	wanted.removeVersion(version)
	if err := wanted.addVersion(r.plan.source(version), version); err != nil {
		return err
	}
	want, err := wanted.entry(version)
	if err != nil {
		return err
	}
	got, err := d.entry(version)
	if err != nil {
		return err
	}
	if missing, ok := holds(got, want, "spec.versions["+version+"]"); !ok {
		return dropped(missing)
	}
	return nil
}

func dropped(path string) error {
	return fmt.Errorf("the server dropped %s from the CRD: its version does not know it", path)
}

// unchanged reports whether the CRD is as the plan left it: of the generation that the journal names or, when a step
// was begun, with that step's change made to it.
func (r *run) unchanged(d *Definition, change func(*Definition) error) error {
	if d.UID() != r.plan.Before.UID() {
		return fmt.Errorf("%w: it was deleted and created again", ErrChanged)
	}
	if d.Generation() == r.at.generation {
		return nil
	}
	if r.at.begun && change != nil && d.Generation() == r.at.generation+1 {
		changed := d.Clone()
		if err := change(changed); err == nil && d.says(changed) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is at generation %d, want %d", ErrChanged, d.Generation(), r.at.generation)
}

// edit makes the change to the CRD, unless it is made already.
func (r *run) edit(ctx context.Context, change func(*Definition) error) error {
	for range editAttempts {
		d, err := r.Definitions.Definition(ctx, r.plan.Resource.Name)
		if err != nil {
			return err
		}
		if err := r.unchanged(d, change); err != nil {
			return err
		}
		want := d.Clone()
		if err := change(want); err != nil {
			return err
		}
		if d.says(want) {
			r.at.generation = d.Generation()
			return nil
		}
		got, err := r.Definitions.Update(ctx, want, false)
		if errors.Is(err, ErrConflict) {
			continue // the status was written, or the generation is another one now
		}
		if err != nil {
			return err
		}
		r.at.generation = got.Generation()
		if missing, ok := holds(got.spec(), want.spec(), "spec"); !ok {
			return dropped(missing)
		}
		return nil
	}
	return fmt.Errorf("writing the CRD %d times: %w", editAttempts, ErrConflict)
}

// converts waits until objects can be read in every served version. A server takes a moment to serve what the CRD says.
func (r *run) converts(ctx context.Context) error {
	var health Health
	for start := r.Now(); r.Now().Sub(start) < conversionWithin; {
		d, err := r.Definitions.Definition(ctx, r.plan.Resource.Name)
		if err != nil {
			return err
		}
		if health = CheckConversion(ctx, d, r.Objects, r.Servers); health.State != HealthBad {
			return nil
		}
		if err := r.Sleep(ctx, settleInterval); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s", ErrConversion, health.Detail)
}

const conversionWithin = 10 * time.Second

// settle waits until every API server that is queried writes in the version, and returns what the objects' resource
// version is then.
func (r *run) settle(ctx context.Context, version string) (Record, error) {
	want := StorageHash(r.plan.apiVersion(version), r.plan.Resource.Kind)
	for start := r.Now(); ; {
		hashes, err := r.Servers.StorageHashes(ctx, r.plan.access(version))
		if err != nil {
			return Record{}, err
		}
		behind, silent := "", false
		for _, server := range sortedKeys(hashes) {
			switch hashes[server] {
			case want:
			case "":
				silent = true
			default:
				behind = server
			}
		}
		if behind == "" {
			if silent {
				r.note("the API server does not tell in which version it stores: it was given %s", r.plan.Grace)
			}
			return r.settled(ctx, version, silent)
		}
		if r.Now().Sub(start) > settleWithin {
			return Record{}, fmt.Errorf("%s does not write in %s after %s", behind, version, settleWithin)
		}
		if err := r.Sleep(ctx, settleInterval); err != nil {
			return Record{}, err
		}
	}
}

// settled waits for requests that a server began before it knew, unless the store will show what they wrote, and notes
// from where on everything is written in the version.
func (r *run) settled(ctx context.Context, version string, silent bool) (Record, error) {
	if r.Store != nil && !silent {
		return Record{}, nil // without the grace, what is written after this moment may be in the old version
	}
	base, err := r.newBase(ctx, version)
	if err != nil && r.Store != nil {
		return Record{}, nil // an object that cannot be converted fails the list; the store names the others
	}
	return Record{Base: base}, err
}

// newBase is a resource version from which on everything is written in the version: the grace is over.
func (r *run) newBase(ctx context.Context, version string) (string, error) {
	if err := r.sleepUntil(ctx, r.switched().Add(r.plan.Grace.Duration)); err != nil {
		return "", err
	}
	page, err := r.Objects.Page(ctx, List{APIVersion: r.plan.access(version), Limit: 1})
	return page.ResourceVersion, err
}

func (r *run) switched() time.Time {
	if r.at.switchedAt.IsZero() {
		return r.Now()
	}
	return r.at.switchedAt
}

func (r *run) sleepUntil(ctx context.Context, t time.Time) error {
	if d := t.Sub(r.Now()); d > 0 {
		return r.Sleep(ctx, d)
	}
	return nil
}

// prune leaves one version in status.storedVersions.
func (r *run) prune(ctx context.Context, version string) error {
	if r.at.proof == nil || r.at.proof.APIVersion != r.plan.apiVersion(version) {
		return errors.New("nothing proves that no other version is stored")
	}
	if !r.proved { // by an earlier run: the store may have been restored from a backup since
		proof, err := r.prove(ctx, version)
		if err != nil {
			return err
		}
		r.at.proof = proof
	}
	for range editAttempts {
		d, err := r.Definitions.Definition(ctx, r.plan.Resource.Name)
		if err != nil {
			return err
		}
		if err := r.unchanged(d, nil); err != nil {
			return err
		}
		if slices.Equal(d.StoredVersions(), []string{version}) {
			return nil
		}
		d.setStored(version)
		if _, err = r.Definitions.Update(ctx, d, true); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("writing the CRD's status %d times: %w", editAttempts, ErrConflict)
}

// wait returns when the versions that are not served any more may be removed.
func (r *run) wait(ctx context.Context) error {
	if r.plan.Wait.Duration == 0 && r.Audit == nil {
		return fmt.Errorf("%w: neither a time to wait nor an audit log says when the version may be removed",
			ErrWaiting)
	}
	since := r.at.unservedAt
	if since.IsZero() {
		since = r.started()
	}
	if err := r.sleepUntil(ctx, since.Add(r.plan.Wait.Duration)); err != nil {
		return err
	}
	if r.Audit == nil {
		return nil
	}
	requests, err := r.Audit(since)
	switch {
	case err != nil:
		return err
	case requests.Count > 0:
		return fmt.Errorf("%w: since %s the audit log has %s for the version, the last by %s at %s", ErrWaiting,
			since.UTC().Format(time.RFC3339),
			prose.Counted(requests.Count, "request"), requests.Who,
			requests.Last.UTC().Format(time.RFC3339))
	case requests.From.IsZero() || requests.From.After(since) || !requests.To.After(since) ||
		requests.To.Before(r.Now().Add(-auditLag)):
		return fmt.Errorf("%w: the audit log covers %s to %s, and not all of the time since %s, when the version was "+
			"not served any more", ErrWaiting,
			requests.From.UTC().Format(time.RFC3339), requests.To.UTC().Format(time.RFC3339),
			since.UTC().Format(time.RFC3339))
	}
	return nil
}

// auditLag is how old the newest event of an audit log may be: servers write them in batches, and are seldom silent for
// longer.
const auditLag = 10 * time.Minute

// started is when the present step was begun for the first time.
func (r *run) started() time.Time {
	for _, record := range slices.Backward(r.Journal.Records()) {
		if record.Event == EventBegin && record.Step == r.at.next {
			return record.Time
		}
	}
	return r.Now()
}

// access is the apiVersion through which objects are read and written when they are to be stored in the version.
func (p *Plan) access(version string) string {
	if p.Resource.BuiltIn {
		return p.Resource.Access
	}
	return p.Resource.APIVersion(version)
}

// CheckConversion finds out whether objects of the definition are converted: it reads one in every served version, and
// looks for the endpoints of a webhook's service. It changes nothing.
func CheckConversion(ctx context.Context, d *Definition, objects Objects, servers Servers) Health {
	strategy, webhook := d.Conversion()
	served := d.Served()
	if strategy != StrategyWebhook || len(d.Versions()) < 2 {
		return Health{State: HealthUnused}
	}
	problem, unseen := servers.WebhookProblem(ctx, webhook)
	if problem != "" {
		return Health{State: HealthBad, Detail: problem}
	}
	resource := d.Resource()
	samples, err := sampleObjects(ctx, resource, served, objects)
	if err != nil {
		return Health{State: HealthBad, Detail: err.Error()}
	}
	var first error
	for _, sample := range samples {
		err := readEverywhere(ctx, resource, served, objects, sample)
		if err == nil {
			if len(served) == 1 {
				return Health{State: HealthUnknown,
					Detail: fmt.Sprintf("%s is the only version that is served", served[0])}
			}
			return Health{State: HealthGood,
				Detail: fmt.Sprintf("%s was read in %s", sample, strings.Join(served, ", "))}
		}
		if first == nil && !errors.Is(err, ErrGone) {
			first = err
		}
	}
	if first != nil {
		return Health{State: HealthBad, Detail: first.Error()}
	}
	if unseen != nil { // the user may not have permission to read services
		return Health{State: HealthUnknown, Detail: "there is no object to try it on; " + unseen.Error()}
	}
	return Health{State: HealthUnknown, Detail: "there is no object to try it on"}
}

// sampleCount is how many objects are tried: one that cannot be converted does not mean that none can.
const sampleCount = 5

// sampleObjects lists a few objects, in whichever version they can be listed.
func sampleObjects(ctx context.Context, r Resource, served []string, objects Objects) ([]Object, error) {
	var first error
	for _, version := range served {
		page, err := objects.Page(ctx, List{APIVersion: r.APIVersion(version), Limit: sampleCount})
		if err == nil {
			return page.Objects, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func readEverywhere(ctx context.Context, r Resource, served []string, objects Objects, o Object) error {
	for _, version := range served {
		if err := objects.Read(ctx, r.APIVersion(version), o); err != nil {
			return fmt.Errorf("reading %s in %s: %w", o, version, err)
		}
	}
	return nil
}
