package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// A control plane on hosts has an object for each of its machines, a Secret beside it with what the machine's agent
// does and looks after, and a role for the agent: it reads these two and writes the status of the first, and nothing
// else of the cluster.

// onHosts reports whether the components of a target run on hosts.
func onHosts(t render.Target) bool { return t == render.StaticPod || t == render.Systemd }

// machines are the hosts of plans, each once.
func machines(plans ...*plan.Plan) []transition.Host {
	var hosts []transition.Host
	seen := map[string]bool{}
	for _, p := range plans {
		if p == nil {
			continue
		}
		for _, h := range transition.HostsOf(p) {
			if !seen[h.Name] {
				seen[h.Name] = true
				hosts = append(hosts, h)
			}
		}
	}
	return hosts
}

// mostHosts is twice the size of the largest cluster that Kubernetes supports: each host has objects of its own in the
// management cluster.
const mostHosts = 10_000

// hosts reads the objects of the machines of plans, and makes those that are missing, with their roles.
func (r *Reconciler) hosts(ctx context.Context, name string, of []transition.Host) (map[string]*api.ControlPlaneHost,
	error) {
	if len(of) > mostHosts {
		return nil, fmt.Errorf("the control plane has %d hosts, and may have %d", len(of), mostHosts)
	}
	found := map[string]*api.ControlPlaneHost{}
	for _, m := range of {
		h := &api.ControlPlaneHost{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: name, Name: m.Name}, h)
		switch {
		case apierrors.IsNotFound(err):
			if err = r.role(ctx, name, m.Name); err == nil {
				h = &api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: m.Name},
					Spec: api.HostSpec{Address: m.Address}}
				mark(h, name)
				err = r.Client.Create(ctx, h)
			}
		case err == nil && !ours(h, name):
			err = foreign(h, name)
		case err == nil && !denied(h) && h.Spec.Address != m.Address:
			h.Spec.Address = m.Address
			err = r.Client.Update(ctx, h)
		}
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", m.Name, err)
		}
		found[m.Name] = h
	}
	return found, nil
}

// lostOf are the hosts of what runs that a person has denied and taken out of the spec: they are gone for good.
func lostOf(ctx context.Context, reader client.Reader, r *record, to *plan.Plan) ([]string, error) {
	if r.Plan == nil || to == nil || !onHosts(r.target()) {
		return nil, nil
	}
	stay := map[string]bool{}
	for _, m := range transition.HostsOf(to) {
		stay[m.Name] = true
	}
	var lost []string
	for _, m := range transition.HostsOf(r.Plan) {
		if stay[m.Name] {
			continue
		}
		h := &api.ControlPlaneHost{}
		err := reader.Get(ctx, types.NamespacedName{Namespace: r.Plan.Name, Name: m.Name}, h)
		switch {
		case err == nil && denied(h) && ours(h, r.Plan.Name):
			lost = append(lost, m.Name)
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("host %s: %w", m.Name, err)
		}
	}
	return lost, nil
}

// role gives the agent of a host what it needs: its own object and its Secret.
func (r *Reconciler) role(ctx context.Context, name, host string) error {
	const rbac = "rbac.authorization.k8s.io"
	at := roleOf(host)
	object := func(kind string, more map[string]any) *unstructured.Unstructured {
		o := map[string]any{"apiVersion": rbac + "/v1", "kind": kind,
			"metadata": map[string]any{"namespace": name, "name": at}}
		maps.Copy(o, more)
		return &unstructured.Unstructured{Object: o}
	}
	rule := func(group, resource, named string, verbs ...any) any {
		return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "resourceNames": []any{named},
			"verbs": verbs}
	}
	for _, o := range []*unstructured.Unstructured{
		object("Role", map[string]any{"rules": []any{
			rule(api.Group, api.HostPlural, host, "get", "list", "watch"),
			rule(api.Group, api.HostPlural+"/status", host, "get", "update"),
			rule("", "secrets", api.TasksOf(host), "get"),
		}}),
		object("RoleBinding", map[string]any{
			"roleRef": map[string]any{"apiGroup": rbac, "kind": "Role", "name": at},
			"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User",
				"name": api.AgentUser(name, host)}}}),
	} {
		if err := r.apply(ctx, o, name); err != nil {
			return err
		}
	}
	return nil
}

// shutOut takes from the agents of hosts that are denied what they may do, whatever else can be done now.
func (p *plane) shutOut(ctx context.Context) error {
	list := &api.ControlPlaneHostList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.object.Name)); err != nil {
		return fmt.Errorf("listing the hosts of %s: %w", p.object.Name, err)
	}
	var problems []error
	for i := range list.Items {
		if h := &list.Items[i]; denied(h) && ours(h, p.object.Name) {
			problems = append(problems, p.unbind(ctx, p.object.Name, h.Name))
		}
	}
	return errors.Join(problems...)
}

// unbind takes from the agent of a host what it may do: a certificate is good until its end.
func (r *Reconciler) unbind(ctx context.Context, name, host string) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: roleOf(host)}}
	if err := r.Client.Delete(ctx, binding); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking its permissions from the agent of host %s: %w", host, err)
	}
	return nil
}

func roleOf(host string) string { return "fusionctl-agent-" + host }

// put writes entries of the Secret of a host; those that are nil stay as they are, and others of the same kind go.
func (r *Reconciler) put(ctx context.Context, name, host string, kind func(key string) bool,
	entries map[string][]byte) error {
	secret := &corev1.Secret{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: name, Name: api.TasksOf(host)}, secret)
	there := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the Secret of host %s: %w", host, err)
	case there && !ours(secret, name):
		return fmt.Errorf("the tasks: %w", foreign(secret, name))
	case !there:
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: name, Name: api.TasksOf(host)}
		mark(secret, name)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.DeleteFunc(secret.Data, func(key string, _ []byte) bool {
		_, stays := entries[key]
		return kind(key) && !stays
	})
	for key, data := range entries {
		if data != nil {
			secret.Data[key] = data
		}
	}
	if there {
		err = r.Client.Update(ctx, secret)
	} else {
		err = r.Client.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing the Secret of host %s: %w", host, err)
	}
	return nil
}

// agentSilent is after which time an agent that has nothing to do counts as silent: it writes every AgentPulse.
const agentSilent = 2*api.AgentPulse + time.Minute

// pulse is what an agent last wrote of when it was there, and when the operator saw another one before it.
type pulse struct{ seen, at time.Time }

// lately reports whether an agent has written within a time: by its clock, or by that of this machine, since the two
// may differ.
func (r *Reconciler) lately(h *api.ControlPlaneHost, within time.Duration) bool {
	now, seen := r.Now(), h.Status.Seen.Time
	r.mu.Lock()
	defer r.mu.Unlock()
	key := h.Namespace + "/" + h.Name
	last, known := r.pulses[key]
	if r.pulses == nil {
		r.pulses = map[string]pulse{}
	}
	if !known {
		r.pulses[key] = pulse{seen: seen}
	} else if !last.seen.Equal(seen) {
		r.pulses[key] = pulse{seen: seen, at: now}
	}
	return now.Sub(seen).Abs() <= within || now.Sub(r.pulses[key].at) <= within
}

// silent names the hosts whose agents have not written for long, or never.
func (r *Reconciler) silent(hosts map[string]*api.ControlPlaneHost) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		switch h := hosts[name]; {
		case denied(h):
			names = append(names, name+" is denied by annotation "+api.AnnotationDenied)
		case h.Status.Seen.IsZero():
			names = append(names, name+" has no agent yet: fusionctl agent --plane "+h.Namespace+" --host "+name)
		case !r.lately(h, agentSilent):
			names = append(names, name+" was last seen at "+h.Status.Seen.UTC().Format(time.RFC3339))
		case h.Status.Problem != "":
			names = append(names, name+": "+brief(h.Status.Problem))
		}
	}
	return names
}

// upkeep tells the agents what to look after, and to put it back where repair says so. What they have already is not
// written again.
func (p *plane) upkeep(ctx context.Context, hosts map[string]*api.ControlPlaneHost, s transition.Setup,
	repair bool) error {
	kept, err := transition.UpkeepOf(s)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		data, digest, err := api.Pack(kept[name])
		if err != nil {
			return err
		}
		h := hosts[name]
		if denied(h) {
			continue
		}
		if u := h.Spec.Upkeep; u != nil && u.Digest == digest && u.Repair == repair {
			continue
		}
		if err := p.put(ctx, p.object.Name, name, func(key string) bool { return key == api.UpkeepKey },
			map[string][]byte{api.UpkeepKey: data}); err != nil {
			return err
		}
		h.Spec.Upkeep = &api.HostUpkeep{Digest: digest, Repair: repair}
		if err := p.Client.Update(ctx, h); err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
	}
	return nil
}

// relieve ends what agents look after, before a transition changes it.
func (p *plane) relieve(ctx context.Context, hosts map[string]*api.ControlPlaneHost) error {
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		if h.Spec.Upkeep == nil && h.Spec.Backup == nil {
			continue
		}
		h.Spec.Upkeep, h.Spec.Backup = nil, nil
		if err := p.Client.Update(ctx, h); err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
	}
	return nil
}

// steadyHosts looks at what runs on hosts by the plan of the record.
func (p *plane) steadyHosts(ctx context.Context) (time.Duration, error) {
	of := p.record.Plan
	var hosts map[string]*api.ControlPlaneHost
	err := p.inOwn(ctx)
	if err == nil {
		hosts, err = p.hosts(ctx, p.object.Name, machines(of))
	}
	if err == nil {
		repair := p.verdict.file != nil && p.verdict.file.Spec.Repair == spec.RepairMend &&
			!p.verdict.file.Spec.Paused
		err = p.upkeep(ctx, hosts, transition.Setup{Plan: of, Target: p.record.target()}, repair)
	}
	if err == nil && p.due(true) {
		for name, h := range hosts {
			if !denied(h) {
				err = errors.Join(err, p.role(ctx, p.object.Name, name))
			}
		}
	}
	if err == nil {
		err = p.forgetHosts(ctx, hosts)
	}
	if err != nil {
		p.degraded("Hosts", err)
		return 0, err
	}
	components, problems := p.onHosts(of, hosts)
	p.object.Status.Components = components
	silent := p.silent(hosts)
	switch {
	case len(silent) > 0:
		p.condition(api.ConditionReady, metav1.ConditionUnknown, "AgentSilent", prose.First(silent, mostNamed))
		p.degraded("AgentSilent", errors.New(prose.First(silent, mostNamed)))
		return time.Minute, nil
	case len(problems) > 0:
		p.condition(api.ConditionReady, metav1.ConditionFalse, "NotReady", prose.First(problems, mostNamed))
		p.degraded("NotReady", errors.New(prose.First(problems, mostNamed)))
		return time.Minute, nil
	}
	p.condition(api.ConditionReady, metav1.ConditionTrue, "Ready", "every component is ready")
	if drift := driftOf(hosts); len(drift) > 0 {
		p.degraded("Drift", errors.New(prose.First(drift, mostNamed)))
		return min(agentSilent, p.Repair), nil
	}
	if p.object.Status.Phase == "" || p.object.Status.Phase == api.Pending {
		p.phase(api.Running)
	}
	return min(agentSilent, p.Repair), nil
}

// forgetHosts removes the objects of machines that the plan no longer has, and what their agents were told.
func (p *plane) forgetHosts(ctx context.Context, hosts map[string]*api.ControlPlaneHost) error {
	list := &api.ControlPlaneHostList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.object.Name)); err != nil {
		return fmt.Errorf("listing the hosts of %s: %w", p.object.Name, err)
	}
	for i := range list.Items {
		h := &list.Items[i]
		if hosts[h.Name] != nil || !ours(h, p.object.Name) {
			continue
		}
		if err := p.put(ctx, p.object.Name, h.Name, func(string) bool { return true }, nil); err != nil {
			return err
		}
		if err := p.unbind(ctx, p.object.Name, h.Name); err != nil {
			return err
		}
		if err := client.IgnoreNotFound(p.Client.Delete(ctx, h)); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return nil
}

// onHosts are the components of a plan as the agents see them, and what is wrong with those that are not ready.
func (p *plane) onHosts(of *plan.Plan, hosts map[string]*api.ControlPlaneHost) (list []api.ComponentStatus,
	problems []string) {
	for i := range of.Components {
		c := &of.Components[i]
		status := api.ComponentStatus{Name: c.Name, Host: c.Host, Side: string(c.Side), Version: c.Version,
			Image: c.Image}
		if c.Side != "" && of.Side(c.Side).Existing {
			status.Existing = true
			list = append(list, status)
			continue
		}
		status.Wanted = 1
		why := "is not looked after yet"
		if h := hosts[c.Host]; h != nil && h.Spec.Upkeep != nil && h.Status.Upkeep == h.Spec.Upkeep.Digest {
			at := slices.IndexFunc(h.Status.Components, func(o api.HostComponent) bool { return o.Name == c.Name })
			switch {
			case at < 0:
				why = "is not known to the agent"
			case !h.Status.Components[at].Ready:
				why = visible.Text(h.Status.Components[at].Problem)
			default:
				status.Ready = 1
			}
		}
		if status.Ready == 0 {
			problems = append(problems, c.Name+" on "+c.Host+": "+why)
		}
		list = append(list, status)
	}
	return list, problems
}

// driftOf names what is not on hosts as the plan has it.
func driftOf(hosts map[string]*api.ControlPlaneHost) []string {
	var drift []string
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		for _, c := range hosts[name].Status.Components {
			for _, d := range c.Drift {
				drift = append(drift, name+": "+visible.Text(d))
			}
		}
	}
	return drift
}

// errSilent is wrapped when an agent does not take what it is to do.
var errSilent = errors.New("its agent is silent")

// agents reports whether the agents of hosts are there, without which no transition begins; the status says which are
// not.
func (p *plane) agents(hosts map[string]*api.ControlPlaneHost) bool {
	silent := p.silent(hosts)
	if len(silent) == 0 {
		return true
	}
	err := fmt.Errorf("the transition does not begin without its agents: %s", strings.Join(silent, "; "))
	p.condition(api.ConditionProgressing, metav1.ConditionFalse, "AgentSilent", err.Error())
	p.degraded("AgentSilent", err)
	return false
}

// proceedOnHosts advances the open transition of a control plane on hosts.
func (p *plane) proceedOnHosts(ctx context.Context) (time.Duration, error) {
	o := p.record.Open
	hosts, err := p.hosts(ctx, p.object.Name, machines(p.record.Plan, o.Plan))
	if err == nil {
		err = p.relieve(ctx, hosts)
	}
	if err != nil {
		p.degraded("Hosts", err)
		return 0, err
	}
	m := &mailbox{Reconciler: p.Reconciler, name: p.object.Name, hosts: hosts, open: o,
		word: p.object.Annotations[api.AnnotationDone], note: p.note}
	approved := p.approvesLoss(m)
	if err := m.under(); err != nil {
		return p.heed(ctx, err)
	}
	if approved {
		if err := p.leave(ctx, m); errors.Is(err, errWaiting) { // no step is late for it
			p.condition(api.ConditionProgressing, metav1.ConditionTrue, "Waiting", err.Error())
			return p.Look, nil
		} else if err != nil {
			p.degraded("NotLost", err)
			return p.Look * 5, nil
		}
	}
	return p.carry(ctx, m)
}

// approvesLoss reports whether a person has approved by name that the open transition goes on without the hosts that
// are denied. It does not wait for what their agents were at.
func (p *plane) approvesLoss(m *mailbox) bool {
	o := p.record.Open
	p.denied = slices.Clone(o.Lost)
	for _, h := range o.Transition.Hosts {
		if at := m.hosts[h.Name]; at != nil && denied(at) && !slices.Contains(o.Lost, h.Name) {
			p.denied = append(p.denied, h.Name)
		}
	}
	slices.Sort(p.denied)
	m.lost = o.Lost
	if len(p.denied) == len(o.Lost) ||
		p.object.Annotations[api.AnnotationApprove] != p.record.approval(o.To, p.denied) {
		return false
	}
	m.lost = p.denied
	return true
}

// leave has the open transition go on without the hosts that are denied, once others have seen that nothing answers
// there.
func (p *plane) leave(ctx context.Context, m *mailbox) error {
	o := p.record.Open
	if _, err := o.Transition.Without(o.Journal, p.denied, o.Back); err != nil {
		return err
	}
	if err := transition.Silence(ctx, &o.Transition, m, p.denied); err != nil {
		return err
	}
	o.Lost, o.StepSince = p.denied, p.now()
	p.record.Approvals, p.record.Approved = p.record.approvals()+1, ""
	if err := p.record.write(ctx, p.Client, p.object.Name); err != nil {
		return err
	}
	p.event(corev1.EventTypeWarning, "GoesOnWithout", "the transition to %s goes on without %s, lost for good", o.To,
		prose.First(o.Lost, mostNamed))
	return nil
}

// dismiss ends what agents look after and put back: the object is deleted, and what runs goes on as it is.
func (p *plane) dismiss(ctx context.Context) error {
	list := &api.ControlPlaneHostList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.object.Name)); err != nil {
		return fmt.Errorf("listing the hosts of %s: %w", p.object.Name, err)
	}
	hosts := map[string]*api.ControlPlaneHost{}
	for i := range list.Items {
		if h := &list.Items[i]; ours(h, p.object.Name) {
			hosts[h.Name] = h
		}
	}
	return p.relieve(ctx, hosts)
}

// at is the step that is carried out or undone, nil where none is left.
func (o *open) at() *transition.Step {
	state, err := transition.StateOf(&o.Transition, o.Journal)
	if err != nil {
		return nil
	}
	at := state.Done
	if o.Back && !state.Open {
		at--
	}
	if at < 0 || at >= len(o.Transition.Steps) {
		return nil
	}
	return &o.Transition.Steps[at]
}

// word is what the annotation that a step was done by hand says: which one, of which transition, in which direction.
// Another transition to the same plan has other words: what was done for one of them says nothing of the next. So has
// what else checks find, as in transition.ByHandError.
func (o *open) word(found string) string {
	at := o.at()
	if at == nil {
		return ""
	}
	word := fmt.Sprintf("%s.%d.%s", o.To, o.Since.Unix(), at.ID)
	if o.Back {
		word += ".back"
	}
	if found != "" {
		word += "." + found
	}
	return word
}
