//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/test/rig"
)

// handedOver are the kinds of legacyWorkloads, by key, and what goes with them.
var handedOver = []string{"deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions", "jobs",
	"cronjobs", "horizontalpodautoscalers"}

// TestTransitionHandsWorkloadsOver: workloads of every kind of a cluster as kubeadm makes it, with pods on a real node,
// go to the modern side and back by `fusionctl transition`, killed meanwhile: the same objects, the same pods and
// containers, for which the controllers of the other side act then.
func TestTransitionHandsWorkloadsOver(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyCluster(t)
		f.jobs()
		f.intoFusion()
		before, objects := f.started(), f.objects(pair.Legacy)
		w := f.planHandOver("deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch",
			"horizontalpodautoscalers.autoscaling")

		w.fails("apply", "kube-controller-manager runs without")
		f.run("cp", manager, "/root/manager.fused")
		f.edit(manager, manager, "s|-garbagecollector|-cronjob,-daemonset,-deployment,-garbagecollector,"+
			"-horizontalpodautoscaling,-job,-replicaset,-statefulset|")
		f.Eventually("the manager has its argument", f.legacyManager("-replicaset,-statefulset "))
		w.killed("apply", "hand replicasets, deployments over to the modern side")
		w.killed("apply", "hand controllerrevisions, statefulsets, daemonsets over to the modern side")
		w.killed("apply", "put /etc/kubernetes/manifests/kube-controller-manager-modern.yaml")
		w.run("apply")
		f.same(before, "handed over")
		f.are(pair.Modern, objects)
		f.are(pair.Legacy, nil)
		f.acts(pair.Modern)
		if out := f.run("fusionctl", "etcd", "check", "/root/spec.yaml"); !strings.Contains(out, "0 errors") {
			t.Errorf("the stores afterwards: %s", out)
		}

		before, objects = f.started(), f.objects(pair.Modern)
		w.killed("undo", "hand replicasets, deployments over to the modern side")
		w.fails("undo", "kube-controller-manager runs without")
		f.are(pair.Legacy, objects)
		f.are(pair.Modern, nil)
		f.edit("/root/manager.fused", manager, "")
		f.Eventually("the manager has its arguments of before", f.legacyManager("tokencleaner,-garbagecollector "))
		w.run("undo")
		maps.DeleteFunc(before, func(pod, _ string) bool { // their templates were changed by the other side
			return strings.HasPrefix(pod, "set-") || strings.HasPrefix(pod, "daemon-")
		})
		f.same(before, "handed back")
		f.awaitReady("set", 2)
		f.awaitReady("daemon", len(f.nodes))
		f.acts(pair.Legacy)
		provedOnNodes(t, "1.15.12", "1.36.3",
			"fusionctl transition hands Deployments, StatefulSets, DaemonSets, Jobs, CronJobs and their autoscalers "+
				"of a cluster as kubeadm makes it over to the modern side and back, killed meanwhile: the same UIDs, "+
				"pods and containers; the controllers of the other side scale them and replace their pods")
	}, fusionctlEnv)
}

// TestTransitionHandsANamespaceOver: all that can go of one namespace goes to the modern side and back, killed
// meanwhile. What another namespace has of the same stays, with its pods, and the legacy controllers act for it.
func TestTransitionHandsANamespaceOver(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyCluster(t)
		f.jobs()
		const neighbour = "team-b"
		must(t, f.admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
			object{"metadata": object{"name": neighbour}}, nil))
		f.in(neighbour).legacyWorkloads()
		f.in(neighbour).jobs()
		f.intoFusion()
		other := f.in(neighbour)
		before, objects := f.started(), f.objects(pair.Legacy)
		beside, others := other.started(), other.objects(pair.Legacy)
		w := f.planHandOver("demo/*")
		const moves, stop, start = "hand replicasets, deployments of namespace demo over to the modern side",
			"stop kube-controller-manager while objects go", "start kube-controller-manager again"
		const ingresses = "the ingress controllers of the other side serve ingresses of namespace demo"
		is := func(side pair.Side, when string) {
			t.Helper()
			f.same(before, when)
			f.are(side, objects)
			f.are(side.Other(), nil)
			other.same(beside, when)
			other.are(pair.Legacy, others)
			other.are(pair.Modern, nil)
			f.scales(side)
		}

		w.asks("apply", "ingresses of namespace demo are in both stores now")
		w.asks("apply", "stop kube-controller-manager on", ingresses)
		f.run("mv", manager, "/root/manager.yaml")
		w.killed("apply", moves, stop)
		w.asks("apply", "start kube-controller-manager on")
		f.run("mv", "/root/manager.yaml", manager)
		w.run("apply", start)
		is(pair.Modern, "handed over")
		other.scales(pair.Legacy)
		if out := f.run("fusionctl", "etcd", "check", "/root/handed.yaml"); !strings.Contains(out, "0 errors") {
			t.Errorf("the stores afterwards: %s", out)
		}

		before, objects = f.started(), f.objects(pair.Modern)
		beside, others = other.started(), other.objects(pair.Legacy)
		f.run("mv", manager, "/root/manager.yaml")
		w.killed("undo", moves, start)
		w.asks("undo", "start kube-controller-manager on")
		f.run("mv", "/root/manager.yaml", manager)
		w.run("undo", stop, ingresses)
		is(pair.Legacy, "handed back")
		provedOnNodes(t, "1.15.12", "1.36.3",
			"fusionctl transition hands one namespace over to the modern side and back, killed meanwhile: the same "+
				"UIDs, pods and containers; another namespace with the same workloads stays, and each side's "+
				"controllers scale those that it has")
	}, fusionctlEnv)
}

// intoFusion installs the pair by `fusionctl transition`, with a policy for all workloads.
func (f *nodesPair) intoFusion() {
	t := f.t
	t.Helper()
	text, err := os.ReadFile(f.SpecFile)
	must(t, err)
	const few = "apiGroups: [apps], resources: [deployments, replicasets], namespaces: [default, demo]"
	if !strings.Contains(string(text), few) {
		t.Fatalf("the spec has no %s", few)
	}
	legacy, modern := f.Legacy, f.Modern
	f.plan(strings.Replace(string(text), few, `apiGroups: [apps, batch, autoscaling], resources: ["*"]`, 1))
	f.Legacy, f.Modern = legacy, modern
	steps := f.planTransition()
	f.edit(manager, manager, "s|^    - --controllers=.*|&,-garbagecollector|")
	f.Eventually("the manager has its argument", f.hasArgument("-garbagecollector"))
	f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f",
		filepath.Join(f.runbook(render.StaticPod), "legacy-access.yaml"))
	f.transition("apply", steps["permissions on the legacy side"])
}

// legacyManager returns nil when a controller manager runs beside the modern one, and none without what the text says:
// the one before may end after the new one has started.
func (f *nodesPair) legacyManager(text string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		out, err := f.nodes[0].Run(ctx, "pgrep", "-af", "kube-controller-manager")
		found := 0
		for line := range strings.Lines(out) {
			if strings.Contains(line, "/etc/kubernetes/modern/") {
				continue
			}
			if found++; !strings.Contains(line, text) {
				return fmt.Errorf("a process runs without %s: %s", text, line)
			}
		}
		if err == nil && found == 0 {
			err = fmt.Errorf("no such process: %s", out)
		}
		return err
	}
}

// planHandOver plans the steps that hand resources over.
func (f *nodesPair) planHandOver(resources ...string) *stepsOnHost {
	t := f.t
	t.Helper()
	text, err := os.ReadFile(f.SpecFile)
	must(t, err)
	file := filepath.Join(f.Dir(), "handed.yaml")
	handed := "spec:\n  handedOver: [" + strings.Join(resources, ", ") + "]\n"
	must(t, os.WriteFile(file, []byte(strings.Replace(string(text), "spec:\n", handed, 1)), 0o600))
	f.install(file, "/root/handed.yaml", "0600")
	return f.planSteps("handover", "/root/spec.yaml", "/root/handed.yaml")
}

// objects are the UIDs of what is handed over, as a side has them, by resource and name.
func (f *nodesPair) objects(side pair.Side) map[string]string {
	t := f.t
	t.Helper()
	uids := map[string]string{}
	for _, resource := range handedOver {
		var list struct {
			Items []struct{ Metadata struct{ Name, UID string } }
		}
		must(t, f.client(side).Call(t.Context(), http.MethodGet, f.path(side, resource), nil, &list))
		for _, o := range list.Items {
			uids[resource+"/"+o.Metadata.Name] = o.Metadata.UID
		}
	}
	return uids
}

// are: a side has exactly these objects, but for revisions that its controllers write when they see a DaemonSet in
// their version: these keep the pods, by the generation of the template.
func (f *nodesPair) are(side pair.Side, want map[string]string) {
	f.t.Helper()
	got := f.objects(side)
	seen := maps.Clone(got)
	maps.DeleteFunc(seen, func(name, _ string) bool {
		return want[name] == "" && len(want) > 0 && strings.HasPrefix(name, "controllerrevisions/daemon-")
	})
	if !maps.Equal(seen, want) {
		f.t.Errorf("the %s side has %v, want %v", side, got, want)
	}
}

// acts: the controllers of a side act for the workloads, and those of the other one do not.
func (f *nodesPair) acts(side pair.Side) {
	t := f.t
	t.Helper()
	f.scales(side)
	f.rolls(side, "deployment", "deployment", 3)
	f.rolls(side, "daemonset", "daemon", len(f.nodes))
	f.rolls(side, "statefulset", "set", 2)
	f.schedules(side)
}

// scales: the controllers of a side bring pods, and take them away.
func (f *nodesPair) scales(side pair.Side) {
	t := f.t
	t.Helper()
	scale := func(resource, name string, replicas int) {
		t.Helper()
		_, err := f.kubectl(t.Context(), side, "", "scale", "--replicas", fmt.Sprint(replicas), resource+"/"+name)
		must(t, err)
		f.awaitReady(name, replicas)
	}
	scale("deployment", "deployment", 4)
	scale("deployment", "deployment", 3)
	scale("statefulset", "set", 3)
	scale("statefulset", "set", 2)
}

// jobs creates what runs to its end, what creates such, and what scales a Deployment, and waits for the end of the
// first.
func (f *nodesPair) jobs() {
	f.t.Helper()
	template := func() object { return labelled("once", once(runs("echo", "done"))) }
	f.create(pair.Legacy, f.path(pair.Legacy, "jobs"), object{"metadata": object{"name": "once"},
		"spec": object{"template": template()}})
	f.create(pair.Legacy, f.path(pair.Legacy, "cronjobs"), object{
		"metadata": object{"name": "minutely"}, "spec": object{"schedule": "* * * * *", "suspend": true,
			"jobTemplate": object{"spec": object{"template": template()}}}})
	f.create(pair.Legacy, f.path(pair.Legacy, "horizontalpodautoscalers"), object{
		"metadata": object{"name": "deployment"}, "spec": object{"minReplicas": 2, "maxReplicas": 5,
			"targetCPUUtilizationPercentage": 80, "scaleTargetRef": object{
				"apiVersion": f.served(pair.Legacy, "deployments")[0].String(), "kind": "Deployment",
				"name": "deployment"}}})
	f.succeeded(pair.Legacy, "once")
}

// succeeded waits for a Job's end.
func (f *nodesPair) succeeded(side pair.Side, name string) {
	f.t.Helper()
	f.Eventually("the end of Job "+name, func(ctx context.Context) error {
		var job struct{ Status struct{ Succeeded int } }
		err := f.client(side).Call(ctx, http.MethodGet, f.path(side, "jobs")+"/"+name, nil, &job)
		if err == nil && job.Status.Succeeded != 1 {
			err = errNotYet
		}
		return err
	})
}

// schedules: a schedule of every minute makes one Job, which ends.
func (f *nodesPair) schedules(side pair.Side) {
	t := f.t
	t.Helper()
	set := func(spec string) {
		t.Helper()
		_, err := f.kubectl(t.Context(), side, "", "patch", "cronjob", "minutely", "--type=merge", "-p", `{"spec":`+spec+`}`)
		must(t, err)
	}
	names := func(ctx context.Context) (names []string, err error) {
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		err = f.client(side).Call(ctx, http.MethodGet, f.path(side, "jobs"), nil, &list)
		for _, o := range list.Items {
			names = append(names, o.Metadata.Name)
		}
		return names, err
	}
	before, err := names(t.Context())
	must(t, err)
	set(`{"suspend":false}`)
	var made string
	f.Eventually("a Job of the CronJob", func(ctx context.Context) error {
		now, err := names(ctx)
		at := slices.IndexFunc(now, func(name string) bool { return !slices.Contains(before, name) })
		if err != nil || at < 0 {
			return errors.Join(err, errNotYet)
		}
		made = now[at]
		return nil
	})
	set(`{"suspend":true}`)
	f.succeeded(side, made)
}

// rolls: a new template of a workload replaces its pods.
func (f *nodesPair) rolls(side pair.Side, kind, name string, replicas int) {
	t := f.t
	t.Helper()
	before := f.awaitReady(name, replicas)
	_, err := f.kubectl(t.Context(), side, "", "patch", kind, name, "--type=json", "-p",
		`[{"op":"add","path":"/spec/template/metadata/annotations","value":{"rolled":"by `+string(side)+`"}}]`)
	must(t, err)
	f.Eventually("the "+kind+" has rolled", func(ctx context.Context) error {
		now, err := f.pods(ctx, name)
		ready := 0
		for _, p := range now {
			old := slices.ContainsFunc(before, func(b seenOnNode) bool { return b.Metadata.UID == p.Metadata.UID })
			if !old && p.ready() {
				ready++
			}
		}
		if err == nil && (ready != replicas || len(now) != replicas) {
			err = fmt.Errorf("%d of %d pods are new and ready", ready, len(now))
		}
		return err
	})
}

// handingOver is the transition by which the modern side of a pair takes over resources.
func handingOver(t *testing.T, p *rig.Pair, resources ...string) transition.Transition {
	t.Helper()
	text, err := os.ReadFile(p.SpecFile)
	must(t, err)
	setup := func(text string) transition.Setup {
		f, err := spec.Load(p.SpecFile, []byte(text))
		must(t, err)
		of, err := plan.New(f, plan.OnHosts)
		must(t, err)
		return transition.Setup{Plan: of, Target: render.Systemd}
	}
	handed := strings.Replace(string(text), "\nspec:\n",
		"\nspec:\n  handedOver: ["+strings.Join(resources, ", ")+"]\n", 1)
	tr, err := transition.New(setup(string(text)), setup(handed), transition.Facts{})
	must(t, err)
	must(t, tr.Validate())
	for _, step := range tr.Steps { // the API servers are those of the rig, which none of these steps starts
		for _, action := range []*transition.Action{step.Do, step.Undo} {
			if action != nil {
				action.Before = slices.DeleteFunc(action.Before, func(c transition.Check) bool {
					return c.Kind == transition.Ready
				})
			}
		}
	}
	return tr
}
