// Package agent does on a host of a control plane what the operator of a management cluster wants of it: steps of
// transitions, by pkg/transition/local, and the upkeep of what a plan has there. It reads one object and one Secret, of
// its own host, and reports in the status of the object.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/internal/registry"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
)

// Options say for which host an agent works, and how.
type Options struct {
	Config      *rest.Config // of the management cluster
	Plane, Host string
	State       string        // directory in which files that were put back are kept as they were
	Snapshots   string        // directory of the snapshots of stores
	Lock        string        // file that is locked while something is changed on this machine
	Credentials string        // file with those of registries that have programs; "" for none
	Every       time.Duration // how often what is there is compared with the plan
	Program     string        // version of this program
	Log         *slog.Logger
	// IsHere reports whether an address is one of this machine.
	IsHere func(address string) (bool, error)
	// Rehearsal is that of local.Host: a directory for files of a machine; "" for this machine.
	Rehearsal string
}

// Run works until ctx ends. What cannot be reached is tried again.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(o)
	if err != nil {
		return err
	}
	selected := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", o.Host),
		Namespaces: map[string]cache.Config{o.Plane: {}}, Transform: cache.TransformStripManagedFields()}
	objects, err := cache.New(o.Config, cache.Options{Scheme: a.client.Scheme(), Mapper: a.client.RESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&api.ControlPlaneHost{}: selected}})
	if err != nil {
		return fmt.Errorf("setting up the agent: %w", err)
	}
	a.objects = objects
	informer, err := objects.GetInformer(ctx, &api.ControlPlaneHost{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("setting up the agent: %w", err)
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { a.wake() },
		UpdateFunc: func(any, any) { a.wake() }, DeleteFunc: func(any) { a.wake() }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("setting up the agent: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- objects.Start(ctx) }()
	o.Log.Info("started", "controlPlane", o.Plane, "host", o.Host)
	if !objects.WaitForCacheSync(ctx) {
		return errors.Join(ctx.Err(), <-failed)
	}
	a.work(ctx)
	return errors.Join(ctx.Err(), <-failed)
}

// agent is one that runs. Its fields are the loop's alone, but for changed.
type agent struct {
	Options
	objects client.Reader // of a cache: its own object
	client  client.Client
	changed chan struct{}

	keeper *local.Keeper
	memory *memory
	uid    types.UID // of the object that status is about
	status api.HostStatus
	stored api.HostStatus // as it was last written
	wrote  time.Time
	doing  *doing
	kept   *kept
	looked time.Time // at what is kept

	saving     *saving
	savesSince time.Time // when this process was first told to save
}

// doing is a task that is done.
type doing struct {
	uid    types.UID
	number int64
	cancel context.CancelFunc
	done   chan remote.Answer // nothing where it was broken off
}

// kept is what is looked after.
type kept struct {
	digest string
	parts  []transition.Upkeep
}

func newAgent(o Options) (*agent, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil) // of what is read here: no discovery is needed
	own := schema.GroupVersion{Group: api.Group, Version: api.Version}
	mapper.AddSpecific(own.WithKind(api.HostKind), own.WithResource(api.HostPlural), own.WithResource(api.HostSingular),
		meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	c, err := client.New(o.Config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("setting up the agent: %w", err)
	}
	return agentOf(o, c), nil
}

func agentOf(o Options, c client.Client) *agent {
	a := &agent{Options: o, client: c, changed: make(chan struct{}, 1)}
	a.keeper = &local.Keeper{Host: &local.Host{Rehearsal: o.Rehearsal, Wait: 2 * time.Second,
		Images: &registry.Client{Credentials: o.Credentials}},
		Aside: filepath.Join(o.State, "replaced"),
		Now:   time.Now}
	return a
}

// wake has the loop look.
func (a *agent) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// again is after which time what failed is tried again.
const again = 10 * time.Second

// work looks at the object of the host whenever it changes, when a task ends, and now and then, until ctx ends.
func (a *agent) work(ctx context.Context) {
	for ctx.Err() == nil {
		wait := a.look(ctx)
		var done chan remote.Answer
		if a.doing != nil {
			done = a.doing.done
		}
		var saved chan *backup.Result
		if a.saving != nil {
			saved = a.saving.done
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.changed:
		case answer, whole := <-done:
			if whole {
				a.answered(answer)
			}
			a.doing = nil
		case result, whole := <-saved:
			if whole {
				a.saved(result)
			}
			a.saving = nil
		}
		timer.Stop()
	}
	a.breakOff()
	a.stopSaving()
}

// look does what is to be done now, and returns when to look again at the latest.
func (a *agent) look(ctx context.Context) time.Duration {
	h := &api.ControlPlaneHost{}
	err := a.objects.Get(ctx, types.NamespacedName{Namespace: a.Plane, Name: a.Host}, h)
	if apierrors.IsNotFound(err) { // not yet, or no more
		a.breakOff()
		a.stopSaving()
		return api.AgentPulse
	}
	if err != nil {
		a.Log.Error("reading the object of this host failed", "err", err)
		return again
	}
	if a.uid != h.UID {
		a.breakOff()
		a.stopSaving()
		a.uid, a.status, a.stored, a.kept, a.wrote = h.UID, h.Status.DeepCopy(), h.Status.DeepCopy(), nil, time.Time{}
	}
	a.status.Agent, a.status.Problem = a.Program, ""
	if err := a.remember(ctx, h); err != nil {
		a.breakOff()
		a.stopSaving()
		a.status.Problem = err.Error()
		return min(again, a.report(ctx, api.AgentPulse))
	}
	if here, err := a.IsHere(h.Spec.Address); err != nil || !here {
		a.breakOff()
		a.stopSaving()
		a.status.Problem = fmt.Sprintf("%s, the address of this host, is none of the machine's on which the agent runs",
			h.Spec.Address)
		if err != nil {
			a.status.Problem = err.Error()
		}
		return a.report(ctx, api.AgentPulse)
	}
	a.follow(ctx, h)
	next := a.saves(ctx, h.Spec.Backup)
	if a.doing != nil {
		return min(next, a.report(ctx, api.TaskPulse))
	}
	next = min(next, a.Every)
	if u := h.Spec.Upkeep; u == nil {
		a.kept = nil
	} else if a.kept == nil || a.kept.digest != u.Digest || time.Since(a.looked) >= a.Every {
		if err := a.upkeep(ctx, u); err != nil {
			a.status.Problem = err.Error()
			next = min(next, again)
		}
	} else {
		next = min(next, a.Every-time.Since(a.looked))
	}
	return min(next, a.report(ctx, api.AgentPulse))
}

// breakOff ends the task that is done, and waits for its end. It is done again from its beginning, if at all.
func (a *agent) breakOff() {
	if a.doing == nil {
		return
	}
	a.doing.cancel()
	for range a.doing.done { //nolint:revive // until it is closed
	}
	a.doing = nil
}

// follow begins the task of the object, unless it is done, or is being done.
func (a *agent) follow(ctx context.Context, h *api.ControlPlaneHost) {
	t := h.Spec.Task
	if d := a.doing; d != nil {
		if t != nil && d.uid == h.UID && d.number == t.Number {
			return
		}
		a.Log.Info("breaking off a task", "number", d.number)
		a.breakOff()
	}
	if s := a.status.Task; t == nil || s != nil && s.Number == t.Number && s.Ended != nil {
		return
	}
	a.Log.Info("beginning a task", "number", t.Number, "title", visible.Text(t.Title))
	a.status.Task = &api.HostTaskStatus{Number: t.Number, Started: now()}
	within, cancel := context.WithCancel(ctx)
	d := &doing{uid: h.UID, number: t.Number, cancel: cancel, done: make(chan remote.Answer, 1)}
	a.doing = d
	task := *t
	go func() {
		defer close(d.done)
		defer cancel()
		answer := a.do(within, &task)
		if within.Err() == nil {
			d.done <- answer
		}
	}()
}

func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// limitAnswerBytes bounds the answer that the status has, and an error in it.
const (
	limitAnswerBytes = 256 << 10
	limitErrorBytes  = 16 << 10
)

// answered puts the answer of a task into the status.
func (a *agent) answered(answer remote.Answer) {
	s := a.status.Task
	ended := now()
	s.Ended = &ended
	if len(answer.Error) > limitErrorBytes {
		answer.Error = strings.ToValidUTF8(answer.Error[:limitErrorBytes], "") + " ..."
	}
	data, err := json.Marshal(answer)
	if err != nil || len(data) > limitAnswerBytes {
		data = []byte(`{}`)
		s.Error = fmt.Sprintf("the answer has %d bytes, more than %d: %s", len(data), limitAnswerBytes, answer.Error)
	}
	s.Answer = string(data)
	if s.Error == "" {
		s.Error = answer.Error
	}
	if s.Error != "" {
		a.Log.Error("a task could not be done", "number", s.Number, "err", visible.Text(s.Error))
		return
	}
	a.Log.Info("a task is done", "number", s.Number)
}

// do does a task. What cannot be read is read again: its content was written before the object.
func (a *agent) do(ctx context.Context, t *api.HostTask) remote.Answer {
	var r remote.Request
	refused := func(err error) remote.Answer { return remote.Answer{Error: err.Error()} }
	if err := pause.Until(ctx, 2*time.Second, func() (bool, error) {
		err := a.entry(ctx, api.TaskKey(t.Digest), t.Digest, &r)
		if err != nil {
			a.Log.Info("the task cannot be read yet", "number", t.Number, "err", err)
		}
		return err == nil, nil
	}); err != nil {
		return refused(err)
	}
	if err := validate(&r); err != nil {
		return refused(fmt.Errorf("it is no task of an operator: %w", err))
	}
	wait := time.Duration(t.WaitSeconds) * time.Second
	held, err := local.Lock(ctx, a.Lock, wait)
	if err != nil {
		return refused(err)
	}
	defer held.Close()
	limit := r.Limit(wait)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it is still at work after %s", limit))
	defer cancel()
	here := &local.Host{Rehearsal: a.Rehearsal, Snapshots: a.Snapshots, Wait: wait,
		Images: &registry.Client{Credentials: a.Credentials}}
	here.ByHand = func(text, found string) error {
		if t.ByHand && t.Found == found {
			return nil
		}
		return &transition.ByHandError{Text: text, Found: found}
	}
	answer := r.Answer(limited, here, a.Host)
	if limited.Err() != nil && ctx.Err() == nil {
		answer.Error = context.Cause(limited).Error() + ": " + answer.Error
	}
	return answer
}

// entry reads an entry of the Secret of this host.
func (a *agent) entry(ctx context.Context, key, digest string, into any) error {
	secret := &corev1.Secret{}
	at := types.NamespacedName{Namespace: a.Plane, Name: api.TasksOf(a.Host)}
	if err := a.client.Get(ctx, at, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", at, err)
	}
	if err := api.Unpack(secret.Data[key], digest, into); err != nil {
		return fmt.Errorf("reading Secret %s, %s: %w", at, key, err)
	}
	return nil
}

// validate checks that a request is about what transitions have.
func validate(r *remote.Request) error {
	for _, a := range []*transition.Action{r.Do, r.Perform} {
		if a == nil {
			continue
		}
		if err := a.Validate(); err != nil {
			return err
		}
	}
	var checks []transition.Check
	if r.Check != nil {
		checks = append(checks, *r.Check)
	}
	if r.Digest != "" {
		checks = append(checks, transition.Check{Kind: transition.FileIs, Path: r.Digest}) // an absolute and clean path
	}
	if r.Keep != nil {
		checks = append(checks, transition.Check{Kind: transition.MayGo, Objects: r.Keep})
	}
	return (&transition.Action{Kind: transition.RunChecks, Before: checks}).Validate()
}

// report writes the status when it says something new, and otherwise as often as the pulse. It returns when to report
// again at the latest.
func (a *agent) report(ctx context.Context, pulse time.Duration) time.Duration {
	if reflect.DeepEqual(a.status, a.stored) && time.Since(a.wrote) < pulse {
		return pulse - time.Since(a.wrote)
	}
	a.status.Seen = now()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		h := &api.ControlPlaneHost{}
		if err := a.client.Get(ctx, types.NamespacedName{Namespace: a.Plane, Name: a.Host}, h); err != nil {
			return err
		}
		if h.UID != a.uid {
			return errors.New("the object of this host is another one")
		}
		h.Status = a.status.DeepCopy()
		return a.client.Status().Update(ctx, h)
	})
	if err != nil {
		a.Log.Error("reporting failed", "err", err)
		return again
	}
	a.stored, a.wrote = a.status.DeepCopy(), time.Now()
	return pulse
}

// upkeep compares what is on this machine with what the plan has, and puts it back where it is told to.
func (a *agent) upkeep(ctx context.Context, u *api.HostUpkeep) error {
	if a.kept == nil || a.kept.digest != u.Digest {
		k := &kept{digest: u.Digest}
		if err := a.entry(ctx, api.UpkeepKey, u.Digest, &k.parts); err != nil {
			return err
		}
		for i := range k.parts {
			if err := k.parts[i].Validate(); err != nil {
				return fmt.Errorf("the upkeep of this host: %w", err)
			}
		}
		a.kept = k
	}
	held, err := local.Lock(ctx, a.Lock, time.Second)
	if err != nil {
		return err
	}
	defer held.Close()
	a.looked = time.Now()
	var components []api.HostComponent
	for i := range a.kept.parts {
		components = append(components, a.component(ctx, &a.kept.parts[i], u.Repair))
	}
	if ctx.Err() == nil {
		a.status.Upkeep, a.status.Components = u.Digest, components
	}
	return ctx.Err()
}

// component is the record of a component, after it was put back where that is wanted.
func (a *agent) component(ctx context.Context, u *transition.Upkeep, repair bool) api.HostComponent {
	c := api.HostComponent{Name: u.Name, Version: u.Version, Unit: u.Unit, Image: u.Image, Program: u.Program,
		Args: u.Args}
	at := slices.IndexFunc(a.status.Components, func(o api.HostComponent) bool { return o.Name == u.Name })
	if at >= 0 {
		was := a.status.Components[at]
		c.Repaired, c.RepairedAt = was.Repaired, was.RepairedAt
		if was.Version == u.Version && was.Program == u.Program {
			c.RecordedDigest = was.RecordedDigest
		}
	}
	found := a.keeper.Look(ctx, a.Host, u)
	if repair && (len(found.Differs()) > 0 || found.Stopped || found.ProgramDiffers != "") {
		done, err := a.keeper.Mend(ctx, a.Host, u, &found)
		if len(done) > 0 {
			a.Log.Info("repaired", "component", u.Name, "done", done)
			at := now()
			c.Repaired, c.RepairedAt = done, &at
		}
		found = a.keeper.Look(ctx, a.Host, u)
		if err != nil {
			found.Problem = strings.TrimPrefix(found.Problem+"; repairing: "+err.Error(), "; ")
		}
	}
	for _, f := range found.Files {
		c.Files = append(c.Files, api.HostFile{Path: f.Path, SHA256: f.SHA256})
	}
	c.Drift = found.Differs()
	c.ProgramDigest = found.Program
	if found.ProgramDiffers != "" {
		c.Drift = append(c.Drift, found.ProgramDiffers)
	}
	if c.RecordedDigest == "" {
		c.RecordedDigest = c.ProgramDigest
	} else if u.ProgramSHA256 == "" && u.Version != "" && c.ProgramDigest != "" && c.ProgramDigest != c.RecordedDigest {
		c.Drift = append(c.Drift, fmt.Sprintf("%s: is another program of the same version than the recorded one",
			u.Program))
	}
	c.Ready, c.Problem = found.Problem == "", visible.Text(found.Problem)
	return c
}
