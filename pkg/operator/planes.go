package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// Planes are the control planes of a management cluster, as a person sees and approves them. It changes annotations
// alone: what they lead to is done by the operator.
type Planes struct{ client client.Client }

// NewPlanes is a client of a management cluster. It sends nothing yet.
func NewPlanes(config *rest.Config) (*Planes, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil) // of what is read here: no discovery is needed
	own := schema.GroupVersion{Group: api.Group, Version: api.Version}
	mapper.AddSpecific(own.WithKind(api.Kind), own.WithResource(api.Plural), own.WithResource(api.Singular),
		meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("setting up a client: %w", err)
	}
	return &Planes{client: c}, nil
}

// limitPage is how many objects one answer has.
const limitPage = 200

// List reads all control planes, in pages, in the order of their names.
func (p *Planes) List(ctx context.Context) ([]api.FusedControlPlane, error) {
	var all []api.FusedControlPlane
	for next := ""; ; {
		list := &api.FusedControlPlaneList{}
		if err := p.client.List(ctx, list, client.Limit(limitPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing %s: %w", api.Plural, err)
		}
		all = append(all, list.Items...)
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

// Get reads a control plane.
func (p *Planes) Get(ctx context.Context, name string) (*api.FusedControlPlane, error) {
	f := &api.FusedControlPlane{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: name}, f); err != nil {
		return nil, fmt.Errorf("reading control plane %q: %w", name, err)
	}
	return f, nil
}

// Preview is what the operator would do for a spec.
type Preview struct {
	Name string `json:"name"`
	Plan string `json:"plan,omitempty"` // digest of the plan that the spec leads to
	Runs string `json:"runs,omitempty"` // digest of the plan by which the components run; "" while none does
	// Refused is why the plan is not carried out; "" where nothing stands against it.
	Refused  string            `json:"refused,omitempty"`
	Waits    bool              `json:"waits"`              // for an approval of this transition
	Approval string            `json:"approval,omitempty"` // the word for which it waits
	From     string            `json:"from,omitempty"`
	To       string            `json:"to,omitempty"`
	Steps    []PreviewStep     `json:"steps"`
	Findings []api.PlanFinding `json:"findings"`
}

// PreviewStep is one step of the transition.
type PreviewStep struct {
	ID    string `json:"id"`
	Phase string `json:"phase"`
	Title string `json:"title"`
	Final bool   `json:"final,omitempty"` // it changes something, and has no way back
}

// Preview computes what the operator would begin, from the spec and the record of what runs, by the facts of this
// program. Errors: a record that cannot be read; it is a Secret.
func (p *Planes) Preview(ctx context.Context, f *api.FusedControlPlane) (*Preview, error) {
	v := judge(f)
	r, err := readRecord(ctx, p.client, f.Name)
	if err != nil {
		return nil, err
	}
	of := &Preview{Name: f.Name, Plan: v.digest, Runs: r.Runs, Refused: v.refusal(), Steps: []PreviewStep{},
		Findings: append([]api.PlanFinding{}, v.findings()...)}
	if of.Refused != "" || r.Runs == v.digest {
		return of, nil
	}
	lost, err := lostOf(ctx, p.client, r, v.plan)
	if err != nil {
		return nil, err
	}
	t, err := r.next(&v, lost)
	if refused, ok := errors.AsType[*transition.RefusedError](err); ok {
		of.Refused = refused.Error()
		return of, nil
	}
	if err != nil {
		return nil, err
	}
	of.From, of.To = t.From, t.To
	for i := range t.Steps {
		s := &t.Steps[i]
		of.Steps = append(of.Steps, PreviewStep{ID: s.ID, Phase: string(s.Phase), Title: s.Title, Final: final(s)})
	}
	pl := &plane{object: f, verdict: v, record: r, without: lost}
	if of.Waits = pl.waits(&t); of.Waits {
		of.Approval = r.approval(v.digest, lost)
	}
	return of, nil
}

// errState is wrapped when an object is not in the state in which a word of a person would mean something.
var errState = errors.New("nothing was changed")

// Approvable reports what the annotation has to say that approves the transition that waits: the digests of the plan to
// which it leads and of the one that runs, which approval this is where it is not the first, and which hosts count as
// lost.
func Approvable(f *api.FusedControlPlane) (word string, err error) {
	s := &f.Status
	if s.ObservedGeneration != f.Generation {
		return "", fmt.Errorf("%s: the operator has not looked at the last edit of the spec: %w", f.Name, errState)
	}
	word, waits := wordFor(f, reasonApproval, api.AnnotationApprove)
	if of, _, _ := strings.Cut(word, "."); !waits || s.Plan == "" || of != s.Plan {
		return "", fmt.Errorf("%s is %s, and waits for no approval: %w", f.Name, s.Phase, errState)
	}
	return word, nil
}

// wordFor is what the condition Progressing asks an annotation to say: the end of its message. What stands before that
// may be another's. A control plane that is degraded may wait as well: for the approval of what mends it.
func wordFor(f *api.FusedControlPlane, reason, annotation string) (word string, waits bool) {
	c := meta.FindStatusCondition(f.Status.Conditions, api.ConditionProgressing)
	waits = f.Status.Phase == api.Waiting || f.Status.Phase == api.Degraded
	if !waits || c == nil || c.Reason != reason {
		return "", false
	}
	at := strings.LastIndex(c.Message, " "+annotation+"=")
	if at < 0 {
		return "", false
	}
	return c.Message[at+len(annotation)+2:], true
}

// Undoable reports the digest of the plan to which a transition goes on, which can be taken back.
func Undoable(f *api.FusedControlPlane) (digest string, err error) {
	t := f.Status.Transition
	switch {
	case t == nil || t.Plan == "":
		return "", fmt.Errorf("%s has no transition that goes on; to leave a plan that runs, edit the spec: %w", f.Name,
			errState)
	case t.Back:
		return "", fmt.Errorf("%s goes back already: %w", f.Name, errState)
	case f.Status.Runs == "" && !installsOnHosts(f):
		return "", fmt.Errorf("%s is being installed, and has nothing to go back to: %w", f.Name, errState)
	}
	return t.Plan, nil
}

// installsOnHosts reports whether an installation of a control plane can be undone: on hosts there was something
// before.
func installsOnHosts(f *api.FusedControlPlane) bool {
	file, err := f.File()
	return err == nil && file.Spec.OnHosts()
}

// Confirmable reports what the annotation has to say that the step was done which waits for a person.
func Confirmable(f *api.FusedControlPlane) (word string, err error) {
	if word, waits := wordFor(f, reasonByHand, api.AnnotationDone); waits {
		return word, nil
	}
	return "", fmt.Errorf("%s is %s, and no step of it waits for a person: %w", f.Name, f.Status.Phase, errState)
}

// Annotate writes one annotation of a control plane, unless the object changed since it was read.
func (p *Planes) Annotate(ctx context.Context, f *api.FusedControlPlane, name, value string) error {
	before := f.DeepCopy()
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	f.Annotations[name] = value
	if err := p.client.Patch(ctx, f, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("annotating control plane %q: %w", f.Name, err)
	}
	return nil
}
