package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/operator"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// world is a management cluster in memory, with an operator and the agents of a control plane, whose hosts are
// directories.
type world struct {
	t        *testing.T
	client   client.WithWatch
	stored   client.WithWatch // behind what an API server does
	operator *operator.Reconciler
	agents   map[string]*agent
	dir      string
	hosts    []string
	plan     *plan.Plan
	target   render.Target
	now      time.Time
	clusters map[string]string // what stores say that they are, by name; nil where no agent reaches one
}

// silent takes events, and keeps none.
type silent struct{}

func (silent) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

const planeName = "split"

// created and updated count the generations of hosts, as API servers do.
func created(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
	if h, is := o.(*api.ControlPlaneHost); is {
		h.Generation = 1
	}
	return c.Create(ctx, o, options...)
}

func updated(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
	if h, is := o.(*api.ControlPlaneHost); is {
		there := &api.ControlPlaneHost{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
			return err
		}
		if h.Generation = there.Generation; !equality.Semantic.DeepEqual(h.Spec, there.Spec) {
			h.Generation++
		}
	}
	return c.Update(ctx, o, options...)
}

// newWorld has the example as an object, with more fields.
func newWorld(t *testing.T, target render.Target, more map[string]any) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: t.TempDir(), target: target, now: time.Now()}
	w.stored = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&api.FusedControlPlane{}, &api.ControlPlaneHost{}).Build()
	w.client = interceptor.NewClient(w.stored, interceptor.Funcs{Create: created, Update: updated})
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	of := string(text)
	for _, further := range []struct{ was, is string }{
		{"- {name: cp-1, address: 10.0.0.11}",
			"- {name: cp-1, address: 10.0.0.11}\n  - {name: cp-2, address: 10.0.0.12}"},
		{`["https://10.0.0.11:2479"]`, `["https://10.0.0.11:2479", "https://10.0.0.12:2479"]`},
	} {
		if !strings.Contains(of, further.was) {
			t.Fatalf("the example has no %s", further.was)
		}
		of = strings.Replace(of, further.was, further.is, 1)
	}
	f := &api.FusedControlPlane{}
	if err := yaml.Unmarshal([]byte(of), f); err != nil {
		t.Fatal(err)
	}
	f.Name = planeName
	if err := w.client.Create(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	more["target"] = target
	w.edit(more)
	w.restart()
	w.agents = map[string]*agent{}
	for _, h := range w.plan.Hosts {
		w.hosts = append(w.hosts, h.Name)
		w.startAgent(h.Name)
	}
	return w
}

// edit changes fields of the spec; nil removes one.
func (w *world) edit(more map[string]any) {
	w.t.Helper()
	f := w.object()
	spec := map[string]any{}
	if err := json.Unmarshal(f.Spec, &spec); err != nil {
		w.t.Fatal(err)
	}
	for field, value := range more {
		if spec[field] = value; value == nil {
			delete(spec, field)
		}
	}
	var err error
	if f.Spec, err = json.Marshal(spec); err != nil {
		w.t.Fatal(err)
	}
	f.Generation++
	if err := w.client.Update(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
	file, err := f.File()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.plan, err = plan.New(file, plan.OnHosts); err != nil {
		w.t.Fatal(err)
	}
	parts, err := render.Parts(w.plan, w.target)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range parts { // the programs are there already
		if p.Program == "" {
			continue
		}
		file := filepath.Join(w.dir, p.Component.Host, p.Program)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(p.Component.Version), 0o755)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) object() *api.FusedControlPlane {
	w.t.Helper()
	f := &api.FusedControlPlane{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Name: planeName}, f); err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *world) host(name string) *api.ControlPlaneHost {
	w.t.Helper()
	h := &api.ControlPlaneHost{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: planeName, Name: name}, h); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// restart is a new operator, which remembers nothing.
func (w *world) restart() {
	w.operator = &operator.Reconciler{Client: w.client, Reader: w.client, Events: silent{}, StepLimit: time.Minute,
		Now: func() time.Time { return w.now }, Repair: time.Hour, Look: time.Second}
}

// startAgent is a new agent of a host.
func (w *world) startAgent(host string) {
	root := filepath.Join(w.dir, "state", host)
	if err := os.MkdirAll(root, 0o700); err != nil {
		w.t.Fatal(err)
	}
	a := agentOf(Options{Plane: planeName, Host: host, State: root, Snapshots: root, Lock: filepath.Join(root, "lock"),
		Every: time.Minute, Program: "v1", Log: slog.New(slog.DiscardHandler), Rehearsal: w.dir,
		IsHere: func(string) (bool, error) { return true, nil }}, w.client)
	a.objects = w.client
	w.agents[host] = a
}

// reconcile has the operator look once.
func (w *world) reconcile() {
	w.t.Helper()
	w.now = w.now.Add(time.Second)
	_, err := w.operator.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{
		Name: planeName}})
	if err != nil {
		w.t.Logf("reconcile: %v", err)
	}
}

// turn has an agent look, and do its task to the end.
func (w *world) turn(host string) {
	w.t.Helper()
	a := w.agents[host]
	a.looked = time.Time{} // as if it were long ago
	a.look(w.t.Context())
	if a.doing == nil {
		return
	}
	if answer, whole := <-a.doing.done; whole {
		w.seen(a, &answer)
		a.answered(answer)
	}
	a.doing = nil
	a.report(w.t.Context(), api.AgentPulse)
}

// seen puts what stores say of themselves into the answer of an agent that was told to look at them.
func (w *world) seen(a *agent, answer *remote.Answer) {
	w.t.Helper()
	r, digest := remote.Request{}, w.host(a.Host).Spec.Task.Digest
	err := a.entry(w.t.Context(), api.TaskKey(digest), digest, &r)
	if err != nil || r.Look == nil || w.clusters == nil {
		return
	}
	answer.Seen = map[string]witness.Sight{}
	for _, s := range r.Look.Stores {
		answer.Seen[s.Name] = witness.Sight{At: w.now, Cluster: w.clusters[s.Name], Revision: w.now.Unix()}
	}
}

// until has the operator and the agents look by turns, until the phase is that; between tells what happens between.
func (w *world) until(phase api.Phase, between func(turn int)) *api.FusedControlPlane {
	w.t.Helper()
	for n := range 400 {
		w.reconcile()
		if f := w.object(); f.Status.Phase == phase && f.Status.ObservedGeneration == f.Generation &&
			(phase != api.Running || f.Status.Runs == f.Status.Plan &&
				meta.IsStatusConditionTrue(f.Status.Conditions, api.ConditionReady)) {
			return f
		}
		if between != nil {
			between(n)
		}
		for _, host := range w.hosts {
			w.turn(host)
		}
	}
	w.t.Fatalf("the phase does not become %s: %+v", phase, w.object().Status)
	return nil
}

// approve says that a step was done by hand, or that the plan may be carried out, whatever waits.
func (w *world) approve() {
	w.t.Helper()
	f := w.object()
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	if word, err := operator.Approvable(f); err == nil {
		f.Annotations[api.AnnotationApprove] = word
	}
	if word, err := operator.Confirmable(f); err == nil {
		f.Annotations[api.AnnotationDone] = word
	}
	if err := w.client.Update(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

// runs has the control plane come to its end, and a person approve what waits.
func (w *world) runs(between func(turn int)) *api.FusedControlPlane {
	w.t.Helper()
	return w.until(api.Running, func(n int) {
		if w.object().Status.Phase == api.Waiting {
			w.approve()
		}
		if between != nil {
			between(n)
		}
	})
}

// wanted are the files of the plan, by their places in the directory.
func (w *world) wanted() map[string]string {
	w.t.Helper()
	parts, err := render.Parts(w.plan, w.target)
	if err != nil {
		w.t.Fatal(err)
	}
	files := map[string]string{}
	for _, p := range parts {
		for _, f := range slices.Concat(p.Start, p.Beside) {
			files[filepath.Join(w.dir, p.Component.Host, f.Path)] = string(f.Data)
		}
	}
	return files
}

// compare holds what is in the directories of the hosts against the plan.
func (w *world) compare(want map[string]string) {
	w.t.Helper()
	found := 0
	for _, host := range w.hosts {
		err := filepath.WalkDir(filepath.Join(w.dir, host), func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(name, "/opt/") || strings.Contains(name, "/bin/") {
				return err
			}
			found++
			data, err := os.ReadFile(name)
			if text, ok := want[name]; !ok || text != string(data) {
				w.t.Errorf("%s is none of the plan's, or another one", name)
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
	if found != len(want) {
		w.t.Errorf("%d files, want %d", found, len(want))
	}
}

// TestAPlaneOnHosts: the files of a plan come to each host, and to no other; an edit changes them, and a second look
// nothing; each host has a record of its components, by which the control plane is ready.
func TestAPlaneOnHosts(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		t.Run(string(target), func(t *testing.T) {
			w := newWorld(t, target, map[string]any{})
			f := w.runs(nil)
			w.compare(w.wanted())
			if len(f.Status.Components) == 0 || f.Status.Transition != nil {
				t.Errorf("status %+v", f.Status)
			}
			for _, host := range w.hosts {
				h := w.host(host)
				if h.Spec.Upkeep == nil || h.Status.Agent != "v1" || len(h.Status.Components) == 0 {
					t.Errorf("host %s: %+v, %+v", host, h.Spec, h.Status)
				}
				for _, c := range h.Status.Components {
					if len(c.Files) == 0 || len(c.Args) == 0 ||
						(target == render.StaticPod) != (c.Image != "") ||
						(target == render.Systemd) != (c.Unit != "" && c.Program != "") {
						t.Errorf("host %s has a record without what runs: %+v", host, c)
					}
				}
			}
			w.edit(map[string]any{"approval": "Manual"})
			w.runs(nil)
			f = w.object()
			modern := map[string]any{}
			spec := map[string]json.RawMessage{}
			if err := errors.Join(json.Unmarshal(f.Spec, &spec), json.Unmarshal(spec["modern"], &modern)); err != nil {
				t.Fatal(err)
			}
			was := modern["version"]
			modern["version"] = "1.36.4"
			w.edit(map[string]any{"modern": modern})
			w.until(api.Waiting, nil)
			f = w.runs(nil)
			w.compare(w.wanted())
			if len(f.Status.History) != 2 || !strings.Contains(f.Status.History[0].To, "1.36.4") {
				t.Errorf("history %+v", f.Status.History)
			}
			// The approval is still on the object, and was for that transition.
			modern["version"] = was
			w.edit(map[string]any{"modern": modern, "approval": "Automatic"})
			approved := w.runs(nil).Annotations[api.AnnotationApprove]
			modern["version"] = "1.36.4"
			w.edit(map[string]any{"modern": modern, "approval": "Manual"})
			f = w.until(api.Waiting, nil)
			if word, err := operator.Approvable(f); err != nil || word == approved ||
				!strings.HasPrefix(word, f.Status.Plan) {
				t.Errorf("approved with %q, and it waits for %q, %v", approved, word, err)
			}
			c := meta.FindStatusCondition(f.Status.Conditions, api.ConditionProgressing)
			if !strings.Contains(c.Message, fmt.Sprintf("(the annotation says %q, and approves another transition)",
				approved)) {
				t.Errorf("of an approval that was used nothing is said: %s", c.Message)
			}
			// One that was given and not used is from the plan that ran then.
			w.approve()
			modern["version"] = "1.36.2"
			w.edit(map[string]any{"modern": modern, "approval": "Automatic"})
			unused := w.runs(nil).Annotations[api.AnnotationApprove]
			modern["version"] = "1.36.4"
			w.edit(map[string]any{"modern": modern, "approval": "Manual"})
			f = w.until(api.Waiting, nil)
			if word, err := operator.Approvable(f); err != nil || word == unused ||
				!strings.HasPrefix(word, f.Status.Plan+".from-"+f.Status.Runs) {
				t.Errorf("approved with %q, and it waits for %q, %v", unused, word, err)
			}
			w.runs(nil)
			w.compare(w.wanted())
		})
	}
}

// TestKilledWhereverItIs: operator and agents are killed once after each turn, and the transition comes to its end.
func TestKilledWhereverItIs(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	turns := 0
	w.runs(func(int) { turns++ })
	if turns < 30 {
		t.Fatalf("%d turns", turns)
	}
	for at := 1; at < turns; at += turns / 3 {
		w := newWorld(t, render.Systemd, map[string]any{})
		w.runs(func(n int) {
			if n%turns != at {
				return
			}
			w.restart()
			for _, host := range w.hosts {
				if a := w.agents[host]; at%2 == 1 { // in the middle of its task
					a.look(t.Context())
					a.breakOff()
				}
				w.startAgent(host)
			}
		})
		w.compare(w.wanted())
	}
}

// TestWhatOthersChangeIsReportedOrPutBack: a file that was changed on a host is named, and left; with Repair it is put
// back, and what was there is kept.
func TestWhatOthersChangeIsReportedOrPutBack(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	w.runs(nil)
	var file string
	for name := range w.wanted() {
		if strings.Contains(name, w.hosts[0]+"/") && (file == "" || name < file) {
			file = name
		}
	}
	if err := os.WriteFile(file, []byte("by hand"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := w.until(api.Degraded, nil)
	message := ""
	for _, c := range f.Status.Conditions {
		if c.Type == api.ConditionDegraded {
			message = c.Reason + ": " + c.Message
		}
	}
	if !strings.HasPrefix(message, "Drift: ") || !strings.Contains(message, filepath.Base(file)) {
		t.Errorf("Degraded says %q", message)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "by hand" {
		t.Errorf("%s is %q, %v", file, data, err)
	}
	w.edit(map[string]any{"repair": "Repair"})
	w.runs(nil)
	w.compare(w.wanted())
	kept, err := filepath.Glob(filepath.Join(w.dir, "state", w.hosts[0], "replaced", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	if data, err := os.ReadFile(kept[0]); err != nil || string(data) != "by hand" {
		t.Errorf("kept %q, %v", data, err)
	}
	files := 0
	if err := filepath.WalkDir(filepath.Join(w.dir, "state", w.hosts[0]), func(name string, d os.DirEntry,
		err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v; it is the agent's alone", name, info.Mode())
		}
		files++
		return err
	}); err != nil || files < 5 { // two directories, what was put back, what is remembered, the lock
		t.Errorf("%d files and directories: %v", files, err)
	}
}

// ends has a transition come to its end, or go back, while the operator's clock goes on.
func (w *world) ends() *api.FusedControlPlane {
	w.t.Helper()
	past := len(w.object().Status.History)
	for n := 0; n < 500 && len(w.object().Status.History) == past; n++ {
		w.reconcile()
		if w.object().Status.Phase == api.Waiting {
			w.approve()
		}
		w.now = w.now.Add(4 * time.Second)
		for _, host := range w.hosts {
			w.turn(host)
			h := w.host(host) // as if its clock were the operator's
			h.Status.Seen = metav1.NewTime(w.now)
			if h.Status.Task != nil && h.Status.Task.Ended != nil {
				at := metav1.NewTime(w.now)
				h.Status.Task.Ended = &at
			}
			if err := w.client.Status().Update(w.t.Context(), h); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	f := w.object()
	if len(f.Status.History) == past {
		w.t.Fatalf("the transition does not end: %+v", f.Status)
	}
	return f
}

// TestAFileOfAnotherIsNoStep: a host that is not as the transition begins stops it before anything changes, and it goes
// back by itself; the status says which file of which host.
func TestAFileOfAnotherIsNoStep(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	var file string
	for name := range w.wanted() {
		if strings.HasSuffix(name, ".service") && (file == "" || name < file) {
			file = name
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := w.ends()
	if len(f.Status.History) != 1 || !strings.Contains(f.Status.History[0].Error, filepath.Base(file)) {
		t.Fatalf("history %+v", f.Status.History)
	}
	w.compare(map[string]string{file: "another"})
}

// TestAgentsReadTheirOwnAlone: the role of each agent names its own object and Secret, and its user alone has it; what
// is in objects that all may list has no contents of files.
func TestAgentsReadTheirOwnAlone(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	w.runs(nil)
	for _, host := range w.hosts {
		role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
		at := types.NamespacedName{Namespace: planeName, Name: "fusionctl-agent-" + host}
		if err := errors.Join(w.client.Get(t.Context(), at, role), w.client.Get(t.Context(), at, binding)); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			want := host
			if slices.Contains(rule.Resources, "secrets") {
				want = api.TasksOf(host)
				if !slices.Equal(rule.Verbs, []string{"get"}) {
					t.Errorf("host %s: Secrets: %v", host, rule.Verbs)
				}
			}
			if !slices.Equal(rule.ResourceNames, []string{want}) {
				t.Errorf("host %s: %v", host, rule)
			}
		}
		if len(role.Rules) != 3 || len(binding.Subjects) != 1 ||
			binding.Subjects[0].Name != api.AgentUser(planeName, host) || binding.RoleRef.Name != at.Name {
			t.Errorf("host %s: %+v, %+v", host, role.Rules, binding)
		}
		secret := &corev1.Secret{}
		if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: planeName, Name: api.TasksOf(host)},
			secret); err != nil || len(secret.Data) < 2 || len(secret.Data) > 3 {
			t.Errorf("the Secret of host %s has %d entries: %v", host, len(secret.Data), err)
		}
		shown, err := json.Marshal(w.host(host))
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range w.wanted() {
			if len(text) > 40 && strings.Contains(string(shown), text[:40]) {
				t.Errorf("the object of host %s has contents of %s", host, file)
			}
		}
	}
}

// TestAnotherMachineRefuses: an agent on a machine that does not have the host's address does nothing.
func TestAnotherMachineRefuses(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	first := w.hosts[0]
	w.agents[first].IsHere = func(string) (bool, error) { return false, nil }
	for range 20 {
		w.reconcile()
		if w.object().Status.Phase == api.Waiting {
			w.approve()
		}
		for _, host := range w.hosts {
			w.turn(host)
		}
	}
	if h := w.host(first); !strings.Contains(h.Status.Problem, "is none of the machine's") || h.Spec.Task != nil {
		t.Errorf("host %s: %+v, %+v", first, h.Spec, h.Status)
	}
	if message := fmt.Sprint(w.object().Status.Conditions); !strings.Contains(message, "is none of the machine's") {
		t.Errorf("the status says %s", message)
	}
	w.compare(map[string]string{})
}

// TestTasksOfOthersAreRefused: what is in the Secret counts by the digest of the task, and when it is what transitions
// have.
func TestTasksOfOthersAreRefused(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	w.reconcile()
	w.reconcile()
	first := w.hosts[0]
	task := func(number int64, request remote.Request, digest string) {
		data, of, err := api.Pack(request)
		if err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = planeName, api.TasksOf(first)
		if digest != "" {
			of = digest
		}
		secret.Data = map[string][]byte{api.TaskKey(of): data}
		if number == 1 {
			err = w.client.Create(t.Context(), secret)
		} else {
			err = w.client.Update(t.Context(), secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		h := w.host(first)
		h.Spec.Task = &api.HostTask{Number: number, Request: "x", Digest: of, WaitSeconds: 1}
		if err := w.client.Update(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	file := &transition.File{Path: "/etc/passwd/../shadow", Mode: 0o600, Data: []byte("x")}
	for n, bad := range []remote.Request{{}, {Perform: &transition.Action{Kind: transition.PutFile, File: file}},
		{Do: &transition.Action{Kind: transition.StartUnit, Unit: "../../tmp/x"}},
		{Check: &transition.Check{Kind: transition.StoresAgree}}, {Keep: &transition.Objects{Record: "../x"}}} {
		task(int64(n+1), bad, "")
		w.turn(first)
		if s := w.host(first).Status.Task; s == nil || s.Number != int64(n+1) || s.Ended == nil || s.Error == "" {
			t.Errorf("task %d: %+v", n+1, s)
		}
	}
	good := remote.Request{Perform: &transition.Action{Kind: transition.RunChecks}}
	task(6, good, strings.Repeat("0", 64))
	w.agents[first].look(t.Context())
	w.agents[first].breakOff()
	if s := w.host(first).Status.Task; s.Number == 6 && s.Ended != nil {
		t.Errorf("a task of another digest was done: %+v", s)
	}
	task(7, good, "")
	w.turn(first)
	if s := w.host(first).Status.Task; s.Number != 7 || s.Ended == nil || s.Error != "" {
		t.Errorf("task 7: %+v", s)
	}
	w.compare(map[string]string{})
}

// TestAnswersAreBounded: the status of a host takes what an API server takes, whatever a step says.
func TestAnswersAreBounded(t *testing.T) {
	a := agentOf(Options{Log: slog.New(slog.DiscardHandler)}, nil)
	for _, answer := range []remote.Answer{{Error: strings.Repeat("e", 10<<20)},
		{ByHand: strings.Repeat("b", 10<<20), Error: "e"}} {
		a.status.Task = &api.HostTaskStatus{Number: 1}
		a.answered(answer)
		if s := a.status.Task; len(s.Answer)+len(s.Error) > limitAnswerBytes+2*limitErrorBytes || s.Error == "" {
			t.Errorf("%d bytes, an error of %d", len(s.Answer), len(s.Error))
		}
	}
}

// TestAClusterThatWasRestored: a management cluster that is put back to a backup of yesterday wants yesterday's files,
// with an operator that puts them back, and steps that were done since. An agent does neither, nor one that was killed,
// until a person has removed what it remembers; and a cache that is behind is no such cluster.
func TestAClusterThatWasRestored(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{"repair": "Repair"})
	w.runs(nil)
	first := w.hosts[0]
	behind := w.host(first)
	yesterday := behind.Spec.DeepCopy()
	if behind.Generation < 3 || yesterday.Upkeep == nil {
		t.Fatalf("generation %d, %+v", behind.Generation, yesterday)
	}
	was := w.wanted()

	modern := map[string]any{}
	spec := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(w.object().Spec, &spec), json.Unmarshal(spec["modern"], &modern)); err != nil {
		t.Fatal(err)
	}
	modern["version"] = "1.36.4"
	w.edit(map[string]any{"modern": modern})
	w.runs(nil)
	last := w.host(first).Generation
	if last <= behind.Generation {
		t.Fatalf("generation %d after %d", last, behind.Generation)
	}
	is := w.wanted()
	if fmt.Sprint(was) == fmt.Sprint(is) {
		t.Fatal("the two plans have the same files")
	}

	// A cache that is behind: what the cluster has counts.
	cache := &cached{Reader: w.client, object: behind}
	w.agents[first].objects = cache
	w.turn(first)
	if problem := w.host(first).Status.Problem; problem != "" {
		t.Errorf("a cache that is behind: %s", problem)
	}
	w.agents[first].objects = w.client

	secret := &corev1.Secret{}
	data, digest := []byte(nil), yesterday.Upkeep.Digest
	kept, err := transition.UpkeepOf(transition.Setup{Plan: planWithVersion(t, w, "1.36.3"), Target: w.target})
	if err == nil {
		data, digest, err = api.Pack(kept[first])
	}
	if err == nil {
		err = w.client.Get(t.Context(), types.NamespacedName{Namespace: planeName, Name: api.TasksOf(first)}, secret)
	}
	if err != nil || digest != yesterday.Upkeep.Digest {
		t.Fatalf("upkeep %s, want %s: %v", digest, yesterday.Upkeep.Digest, err)
	}
	secret.Data[api.UpkeepKey] = data
	if err := w.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("generation %d after %d", behind.Generation, last)
	for n, generation := range []int64{behind.Generation, last - 1, last + 10} { // the operator writes, too
		h := w.host(first)
		h.Generation, h.Spec = generation, yesterday
		if err := w.stored.Update(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			w.startAgent(first)
		}
		w.turn(first)
		if problem := w.host(first).Status.Problem; !strings.Contains(problem, want) {
			t.Errorf("generation %d: the agent says %q", generation, problem)
		}
		w.compare(is)
	}
	if err := os.Remove(filepath.Join(w.dir, "state", first, memoryFile)); err != nil {
		t.Fatal(err)
	}
	w.turn(first)
	if problem := w.host(first).Status.Problem; problem != "" {
		t.Errorf("after a person has decided: %s", problem)
	}
	w.turn(first)
	if got := w.host(first).Status.Upkeep; got != yesterday.Upkeep.Digest {
		t.Errorf("it looks after %s", got)
	}
}

// TestAnotherStoreStopsAPlaneOnHosts: what agents see of the stores counts as what transition apply sees of them. One
// that was replaced since stops the next transition before it does anything, until a person has acknowledged it.
func TestAnotherStoreStopsAPlaneOnHosts(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	w.clusters = map[string]string{"core": "first", "modern": "first"}
	w.runs(nil)
	was := w.wanted()
	modern, spec := map[string]any{}, map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(w.object().Spec, &spec), json.Unmarshal(spec["modern"], &modern)); err != nil {
		t.Fatal(err)
	}
	modern["version"] = "1.36.4"
	w.edit(map[string]any{"modern": modern})
	w.clusters["core"] = "second"
	stops, message := 0, ""
	for n := 0; n < 60 && stops < 5; n++ {
		w.reconcile()
		if w.object().Status.Phase == api.Waiting {
			w.approve()
		}
		c := meta.FindStatusCondition(w.object().Status.Conditions, api.ConditionDegraded)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason == "StoreChanged" {
			message = c.Message
			stops++
		}
		for _, host := range w.hosts {
			w.turn(host)
		}
	}
	if stops < 5 || !strings.Contains(message, "store core: its etcd cluster has the id second") {
		t.Fatalf("%d stops, %q; %+v", stops, message, w.object().Status)
	}
	w.compare(was)
	_, word, _ := strings.Cut(message, api.AnnotationAcknowledge+"=")
	f := w.object()
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	f.Annotations[api.AnnotationAcknowledge] = word
	if err := w.client.Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	w.runs(nil)
	w.compare(w.wanted())
}

// TestAnObjectOfThePastIsNoNewOne: the backup may be older than the object that the agent knew, and have the one before
// it, with a UID of its own. One that was created since is a new one.
func TestAnObjectOfThePastIsNoNewOne(t *testing.T) {
	object := func(uid types.UID, created, generation int64) *api.ControlPlaneHost {
		h := &api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation}}
		if created != 0 {
			h.CreationTimestamp = metav1.Unix(created, 0)
		}
		return h
	}
	known, _ := memory{}.of(object("second", 2000, 5))
	for _, c := range []struct {
		h    *api.ControlPlaneHost
		says string
	}{
		{object("first", 1000, 9), "UID first of 1970-01-01T00:16:40Z after one of 1970-01-01T00:33:20Z"},
		{object("third", 3000, 1), ""},
		{object("third", 2000, 1), ""}, // within a second
		{object("second", 2000, 6), ""},
		{object("second", 2000, 4), "generation 4 after 5"},
		{object("first", 0, 1), "UID first"},
	} {
		if _, why := known.of(c.h); (c.says == "") != (why == "") || !strings.Contains(why, c.says) {
			t.Errorf("UID %s of %v: %q, want %q", c.h.UID, c.h.CreationTimestamp, why, c.says)
		}
	}
	if _, why := (memory{UID: "second", Generation: 5}).of(object("first", 1000, 9)); why != "" {
		t.Errorf("a memory of a program that kept no time: %q", why)
	}
}

// cached is a cache that is behind.
type cached struct {
	client.Reader
	object *api.ControlPlaneHost
}

func (c *cached) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*into.(*api.ControlPlaneHost) = *c.object.DeepCopy()
	return nil
}

// planWithVersion is the plan of the object with another version of the modern side.
func planWithVersion(t *testing.T, w *world, version string) *plan.Plan {
	t.Helper()
	f := w.object()
	spec := map[string]any{}
	if err := json.Unmarshal(f.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	spec["modern"].(map[string]any)["version"] = version
	var err error
	if f.Spec, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	file, err := f.File()
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(file, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestADeniedHostIsShutOut: the agent of a host that a person has denied loses its permissions at once, and is given
// nothing to do; so does one whose host leaves the spec.
func TestADeniedHostIsShutOut(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{})
	w.runs(nil)
	first := w.hosts[0]
	bound := func() bool {
		t.Helper()
		err := w.client.Get(t.Context(), types.NamespacedName{Namespace: planeName, Name: "fusionctl-agent-" + first},
			&rbacv1.RoleBinding{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	deny := func(h *api.ControlPlaneHost) {
		t.Helper()
		if err := w.client.Update(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	if !bound() {
		t.Fatal("the agent has no role")
	}
	h := w.host(first)
	h.Annotations = map[string]string{api.AnnotationDenied: "stolen"}
	deny(h)
	before := h.Spec.DeepCopy()
	w.reconcile()
	if bound() {
		t.Error("the agent of a host that is denied has its role")
	}
	w.now = w.now.Add(2 * time.Hour) // everything is applied again
	w.edit(map[string]any{"repair": "Repair"})
	for range 3 {
		w.reconcile()
	}
	if bound() {
		t.Error("the agent of a host that is denied was given its role again")
	}
	if message := fmt.Sprint(w.object().Status.Conditions); !strings.Contains(message, first+" is denied") {
		t.Errorf("the status says %s", message)
	}
	if h = w.host(first); !equality.Semantic.DeepEqual(h.Spec, before) {
		t.Errorf("it is given %+v, after %+v", h.Spec, before)
	}
	delete(h.Annotations, api.AnnotationDenied)
	deny(h)
	w.now = w.now.Add(2 * time.Hour)
	w.reconcile()
	if !bound() {
		t.Error("a host that is not denied any more has no role")
	}

	// Whatever keeps the operator from all else.
	secret := &corev1.Secret{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: planeName, Name: operator.RecordName},
		secret); err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{"record.json.zst": []byte("damaged")}
	if err := w.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	h = w.host(first)
	h.Annotations = map[string]string{api.AnnotationDenied: "stolen"}
	deny(h)
	w.reconcile()
	if bound() {
		t.Error("the agent of a host that is denied has its role while the record cannot be read")
	}

	h = w.host(first)
	delete(h.Annotations, api.AnnotationDenied)
	deny(h)
	f := w.object()
	f.Finalizers = nil
	if err := errors.Join(w.client.Update(t.Context(), f), w.client.Delete(t.Context(), f),
		w.client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: planeName,
			Name: "fusionctl-agent-" + first}})); err != nil {
		t.Fatal(err)
	}
	h.Annotations = map[string]string{api.AnnotationDenied: "stolen"}
	deny(h)
	w.reconcile()
	if bound() {
		t.Error("the agent of a host that is denied has its role when the control plane was deleted, and kept")
	}
}

// TestALostHostLeaves: a host that is gone for good is denied, and taken out of the spec. Its agent does nothing any
// more, and nothing waits for it; a person approves it first, for its member does not come back by itself. Who approved
// that it leaves, while it was there, has not approved that.
func TestALostHostLeaves(t *testing.T) {
	w := newWorld(t, render.StaticPod, map[string]any{})
	w.runs(nil)
	const gone = "cp-2"
	before := w.wanted()
	maps.DeleteFunc(before, func(file, _ string) bool { return !strings.HasPrefix(file, filepath.Join(w.dir, gone)) })
	spec := map[string]any{}
	if err := json.Unmarshal(w.object().Spec, &spec); err != nil {
		t.Fatal(err)
	}
	stores := spec["stores"].([]any)
	stores[len(stores)-1].(map[string]any)["endpoints"] = []any{"https://10.0.0.11:2479"}
	w.edit(map[string]any{"hosts": spec["hosts"].([]any)[:1], "stores": stores, "approval": "Manual"})
	w.until(api.Waiting, nil)
	w.approve()
	ordinary := w.object().Annotations[api.AnnotationApprove]
	w.hosts = []string{"cp-1"} // the agent of the other one is gone
	h := w.host(gone)
	h.Annotations = map[string]string{api.AnnotationDenied: "its disk is gone"}
	if err := w.client.Update(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	word, err := operator.Approvable(w.object())
	if err != nil || !strings.HasPrefix(word, ordinary+".") || !strings.HasSuffix(word, gone) {
		t.Fatalf("approved with %q, and it waits for %q, %v", ordinary, word, err)
	}
	asked := false
	w.until(api.Running, func(int) {
		c := meta.FindStatusCondition(w.object().Status.Conditions, api.ConditionProgressing)
		if c != nil && c.Reason == "WaitingForApproval" {
			asked = true
			w.approve()
		}
	})
	if !asked {
		t.Error("what has no way back was not approved")
	}
	want := w.wanted()
	maps.Copy(want, before)
	w.hosts = []string{"cp-1", gone}
	w.compare(want)
}

// TestAHostIsLostInAnOpenTransition, forth and back: it goes on without it once a person has denied it and approved
// that, and another host has seen that it is off. The files of the other are those of the plan.
func TestAHostIsLostInAnOpenTransition(t *testing.T) {
	const gone = "cp-2"
	for _, back := range []bool{false, true} {
		w := newWorld(t, render.StaticPod, map[string]any{})
		w.runs(nil)
		want := w.wanted()
		spec := map[string]any{}
		if err := json.Unmarshal(w.object().Spec, &spec); err != nil {
			t.Fatal(err)
		}
		for _, side := range []string{"legacy", "modern"} {
			server := spec[side].(map[string]any)["apiServer"].(map[string]any)
			server["extraArgs"] = []any{map[string]any{"name": "max-requests-inflight", "value": "401"}}
		}
		w.edit(map[string]any{"legacy": spec["legacy"], "modern": spec["modern"]})
		if !back {
			want = w.wanted()
		}
		maps.DeleteFunc(want, func(file, _ string) bool { return strings.HasPrefix(file, filepath.Join(w.dir, gone)) })
		ended := func() bool { return w.object().Status.Transition == nil }
		turns := func(until func() bool) {
			t.Helper()
			for n := 0; n < 400; n++ {
				w.reconcile()
				if until() {
					return
				}
				for _, host := range w.hosts {
					w.turn(host)
				}
			}
			t.Fatalf("back %t: it stays %+v", back, w.object().Status.Conditions)
		}
		waits := func() bool { _, err := operator.Approvable(w.object()); return err == nil }
		turns(func() bool { tr := w.object().Status.Transition; return tr != nil && tr.Done > 5 })
		w.hosts = []string{"cp-1"}
		if back {
			f := w.object()
			f.Annotations = map[string]string{api.AnnotationBack: f.Status.Plan}
			if err := w.client.Update(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		h := w.host(gone)
		h.Annotations = map[string]string{api.AnnotationDenied: "its disk is gone"}
		if err := w.client.Update(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		turns(waits)
		done, looks := w.object().Status.Transition.Done, 0
		turns(func() bool { looks++; return looks > 70 }) // longer than a step may take
		if now := w.object().Status.Transition; now == nil || now.Done != done || now.Back != back {
			t.Errorf("back %t: it goes on without approval: %+v", back, now)
		}
		turns(waits)
		w.approve()
		before := w.host(gone).Spec.DeepCopy()
		turns(ended)
		if back != (w.object().Status.Runs != w.object().Status.Plan) {
			t.Errorf("back %t: %+v", back, w.object().Status)
		}
		if after := w.host(gone).Spec; !equality.Semantic.DeepEqual(before.Task, after.Task) {
			t.Errorf("back %t: it was given %+v", back, after.Task)
		}
		w.compare(want)
	}
}

// TestProgramsComeFromADirectory: those of an edit are put before anything stops, and recorded by their digest; one
// that others change is reported, and never replaced; one of another digest goes back, and leaves nothing behind.
// Operator and agents are killed now and then.
func TestProgramsComeFromADirectory(t *testing.T) {
	w := newWorld(t, render.Systemd, map[string]any{"repair": "Repair"})
	w.runs(nil)
	const wanted = "the program of 1.36.4"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(wanted)))
	at := func(host, version string) string {
		return filepath.Join(w.dir, host, "opt/kubernetes", version, "bin/kube-apiserver")
	}
	for _, host := range w.hosts {
		for _, version := range []string{"1.36.4", "1.36.5"} {
			source := filepath.Join(w.dir, host, "srv", version, "kube-apiserver")
			if err := errors.Join(os.MkdirAll(filepath.Dir(source), 0o755),
				os.WriteFile(source, []byte(wanted), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	upgrade := func(version, sum string) {
		spec, modern := map[string]json.RawMessage{}, map[string]any{}
		if err := errors.Join(json.Unmarshal(w.object().Spec, &spec),
			json.Unmarshal(spec["modern"], &modern)); err != nil {
			t.Fatal(err)
		}
		modern["version"] = version
		w.edit(map[string]any{"modern": modern, "programs": []any{map[string]any{"sha256": sum,
			"path": "/opt/kubernetes/" + version + "/bin/kube-apiserver",
			"file": "/srv/" + version + "/kube-apiserver"}}})
		for _, host := range w.hosts {
			if err := os.Remove(at(host, version)); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := func(turn int) {
		if turn%5 != 3 {
			return
		}
		w.restart()
		for _, host := range w.hosts {
			w.agents[host].breakOff()
			w.startAgent(host)
		}
	}
	upgrade("1.36.4", sum)
	w.runs(killed)
	looks := func() {
		for range 3 {
			w.reconcile()
			for _, host := range w.hosts {
				w.turn(host)
			}
		}
		w.reconcile()
	}
	looks()
	for _, host := range w.hosts {
		info, err := os.Stat(at(host, "1.36.4"))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Fatalf("the program on %s: %v, %v", host, info, err)
		}
		if !slices.ContainsFunc(w.host(host).Status.Components, func(c api.HostComponent) bool {
			return c.Name == "kube-apiserver-modern" && c.ProgramDigest == sum && len(c.Drift) == 0
		}) {
			t.Errorf("the record on %s: %+v", host, w.host(host).Status.Components)
		}
	}
	changed := at(w.hosts[0], "1.36.4")
	if err := os.WriteFile(changed, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	looks()
	if data, err := os.ReadFile(changed); string(data) != wanted {
		t.Errorf("another program in its place is %q, %v: it was not put back", data, err)
	}
	if !slices.ContainsFunc(w.host(w.hosts[0]).Status.Components, func(c api.HostComponent) bool {
		return c.Name == "kube-apiserver-modern" && c.ProgramDigest == sum && len(c.Drift) == 0 &&
			slices.Contains(c.Repaired, "put program "+c.Program)
	}) {
		t.Errorf("the record says %+v", w.host(w.hosts[0]).Status.Components)
	}
	other := strings.Repeat("0", 64)
	upgrade("1.36.5", other)
	f := w.ends()
	if !strings.Contains(f.Status.History[0].Error, "has the SHA-256 "+sum+", want "+other) {
		t.Errorf("history %+v, want the digests", f.Status.History)
	}
	for _, host := range w.hosts {
		if entries, err := os.ReadDir(filepath.Dir(at(host, "1.36.5"))); err != nil || len(entries) > 4 ||
			slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "apiserver") }) {
			t.Errorf("left on %s: %v, %v", host, entries, err)
		}
	}
}
