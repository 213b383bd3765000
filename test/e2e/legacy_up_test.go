//go:build e2e && linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/test/rig"
)

// TestLegacyGoesUp: the legacy side of a pair whose node and pods go on becomes 1.15.12 from 1.10.13 at once, and
// comes back, by `fusionctl transition`, killed meanwhile. All objects of before are served by each version as they
// were; what 1.15 wrote and 1.10 cannot read is written again, or named, object by object.
func TestLegacyGoesUp(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startRendered(t, "systemd", "1.10.13")
		f.installTools()
		u := &legacyUp{nodesPair: f}
		u.older = u.spec("older", f.SpecFile, "")
		u.newer = u.spec("newer", f.SpecFile, "  legacy: {version: 1.15.12,")
		u.forthAndBack(nil)
		provedOnNodes(t, "1.10.13", "1.36.3",
			"the legacy side, rendered, becomes 1.15.12 in one transition and comes back by undo, killed meanwhile: "+
				"no pod of either side is lost and no container restarts, each version serves every object, and what "+
				"1.10 cannot read is written again, or named")
	}, fusionctlEnv)
}

// TestExistingLegacyGoesUp: the same of a legacy side that runs from files of its own, which a person stops and starts
// when apply and undo ask for it.
func TestExistingLegacyGoesUp(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T) {
		f := startLegacyUnits(t, 10, 1)
		u := &legacyUp{nodesPair: f}
		u.older = u.spec("older", f.SpecFile, "")
		f.issueCertificates(filepath.Join(f.Dir(), "legacy", f.nodes[0].Name))
		f.installPrograms()
		install := f.planSteps("install", "none", u.older, "--to-target", "systemd")
		f.editManager("-garbagecollector")
		f.kubectlMust(pair.Legacy, "--namespace=default", "apply", "-f",
			filepath.Join(f.runbook(render.Systemd), "legacy-access.yaml"))
		install.run("apply", "permissions on the legacy side")
		u.newer = u.spec("newer", f.SpecFile, "version: 1.15.12")
		u.forthAndBack(func(minor kubever.Minor) {
			for _, name := range strings.Fields(legacyUnits) {
				program, err := rig.Binary(name, minor)
				must(t, err)
				f.run("ln", "-sfn", program, "/usr/local/bin/"+name)
			}
			f.run("sh", "-c", "systemctl enable --now --no-block "+legacyUnits)
		})
		provedOnNodes(t, "1.10.13", "1.36.3",
			"a legacy side that runs from files of its own becomes 1.15.12 and comes back: apply and undo stop for a "+
				"person who stops and starts it, and look whether the right version runs; no pod is lost and no "+
				"container restarts")
	}, fusionctlEnv)
}

// legacyUp is a pair whose legacy side changes its minor.
type legacyUp struct {
	*nodesPair
	older, newer string // specs, on the machine
	objects      map[string]string
}

const movedKeys = "move csidrivers, csinodes, leases, runtimeclasses from store modern to store core"

// spec puts a spec on the machine, that of a file with another version of the legacy side.
func (u *legacyUp) spec(name, file, version string) string {
	t := u.t
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	text := string(data)
	if old := strings.Replace(version, "1.15.12", "1.10.13", 1); version != "" {
		_, legacy, found := strings.Cut(text, "\n  legacy:")
		if !found || !strings.Contains("\n  legacy:"+legacy, old) {
			t.Fatalf("the spec has no %q:\n%s", old, text)
		}
		before := strings.TrimSuffix(text, "\n  legacy:"+legacy)
		text = before + strings.Replace("\n  legacy:"+legacy, old, version, 1)
	}
	local := filepath.Join(u.Dir(), name+".yaml")
	must(t, os.WriteFile(local, []byte(text), 0o600))
	u.install(local, "/root/"+name+".yaml", "0600")
	return "/root/" + name + ".yaml"
}

// forthAndBack goes up and back. changes is what a person does to a legacy side that runs from files of its own.
func (u *legacyUp) forthAndBack(changes func(minor kubever.Minor)) {
	t := u.t
	t.Helper()
	u.creates()
	pods, files := u.started(), u.run("sh", "-c", unitSums)
	u.installNewer(changes == nil)
	flags := []string{"--from-target", "systemd", "--to-target", "systemd", "--read-stores"}

	words := append([]string{"fusionctl", "transition", "plan", u.older, u.newer}, flags...)
	out, err := u.nodes[0].Run(t.Context(), words...)
	if err == nil || !strings.Contains(out, "/registry/leases/kube-system/") || !strings.Contains(out, "--prepare") {
		t.Errorf("planning it with leases in the modern store = %v, want them named, and --prepare:\n%s", err, out)
	}
	up := u.planSteps("up", u.older, u.newer, append(flags, "--prepare")...)
	stop, start := []string(nil), []string(nil)
	if changes == nil {
		up.killed("apply", "stop kube-apiserver")
	} else {
		stop = []string{"stop the legacy side of cp-1"}
		start = append(stop, "start the legacy side of cp-1")
		up.asks("apply", "stop kube-apiserver, kube-controller-manager, kube-scheduler on cp-1")
		u.run("sh", "-c", "systemctl disable --now "+legacyUnits)
	}
	up.killed("apply", movedKeys, stop...)
	if changes == nil {
		up.killed("apply", "start kube-apiserver")
	} else {
		up.asks("apply", "start kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 in version 1.15.12",
			stop...)
		changes(10)
		u.Eventually("the version of before serves", func(ctx context.Context) error {
			return u.admin.Call(ctx, http.MethodGet, "/version", nil, nil)
		})
		words := up.doing("apply", start...)
		words[slices.Index(words, "--wait")+1] = "40s"
		out, err = u.nodes[0].Run(t.Context(), words...)
		if err == nil || !strings.Contains(out, "is of version v1.10.13, want 1.15.12") {
			t.Fatalf("with the version of before started again, apply = %v:\n%s", err, out)
		}
		u.run("sh", "-c", "systemctl disable --now "+legacyUnits)
		changes(15)
	}
	up.killed("apply", "start kube-apiserver-modern", start...)
	up.run("apply", start...)
	u.runsMinor(15)
	u.same(pods, "with legacy 1.15")
	u.serves("with legacy 1.15")
	u.works("1.15")
	u.clean(u.newer)
	if _, there := u.leases("modern"); there > 0 {
		t.Errorf("%d leases are left in the modern store", there)
	}

	u.writesNewer()
	pods = u.started()
	up.fails("undo", "podsecuritypolicy/newer")
	must(t, u.admin.Call(t.Context(), http.MethodDelete, "/apis/policy/v1beta1/podsecuritypolicies/newer", nil, nil))
	if changes == nil {
		up.killed("undo", movedKeys)
		up.killed("undo", "stop kube-apiserver-modern")
		up.killed("undo", "stop kube-controller-manager")
		up.run("undo")
	} else {
		up.asks("undo", "stop kube-apiserver, kube-controller-manager, kube-scheduler of version 1.15.12 on cp-1")
		u.run("sh", "-c", "systemctl disable --now "+legacyUnits)
		up.killed("undo", movedKeys, start...)
		up.asks("undo", "start kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 again", start[1])
		changes(10)
		up.run("undo", start...)
	}
	u.runsMinor(10)
	u.same(pods, "with legacy 1.10 again")
	u.serves("with legacy 1.10 again")
	u.works("back")
	u.clean(u.older)
	if left := u.run("sh", "-c", unitSums); left != files {
		t.Errorf("the files are\n%s\nwant as before\n%s", left, files)
	}
}

// installNewer puts the programs of the newer plan into their places.
func (u *legacyUp) installNewer(rendered bool) {
	if !rendered {
		return
	}
	u.t.Helper()
	older, newer := u.Pair, filepath.Join(u.Dir(), "newer.yaml")
	text, err := os.ReadFile(newer)
	must(u.t, err)
	u.replan(string(text))
	for i := range u.Plan.Components {
		c := &u.Plan.Components[i]
		if c.Side != pair.Legacy {
			continue
		}
		program, err := u.ProgramOf(c)
		must(u.t, err)
		u.install(program, "/opt/kubernetes/1.15.12/bin/"+filepath.Base(c.Kind), "0755")
	}
	u.Pair = older
}

// legacyObjects are of every kind that people have on a legacy side, each with its path in 1.10 and in 1.15.
var legacyObjects = []struct {
	paths [2]string
	body  object
}{
	{[2]string{"/api/v1/namespaces/demo/configmaps", "/api/v1/namespaces/demo/configmaps"},
		object{"data": object{"a": "1"}}},
	{[2]string{"/apis/extensions/v1beta1/namespaces/demo/deployments", "/apis/apps/v1/namespaces/demo/deployments"},
		object{"spec": object{"replicas": 2, "template": labelled("old", serves())}}},
	{[2]string{"/apis/extensions/v1beta1/namespaces/demo/daemonsets", "/apis/apps/v1/namespaces/demo/daemonsets"},
		object{"spec": object{"template": labelled("each", serves())}}},
	{[2]string{"/apis/apps/v1beta1/namespaces/demo/statefulsets", "/apis/apps/v1/namespaces/demo/statefulsets"},
		object{"spec": object{"serviceName": "x", "replicas": 1, "template": labelled("stateful", serves())}}},
	{[2]string{"/apis/batch/v1beta1/namespaces/demo/cronjobs", "/apis/batch/v1beta1/namespaces/demo/cronjobs"},
		object{"spec": object{"schedule": "* * * * *", "suspend": true, "jobTemplate": object{"spec": object{
			"template": labelled("once", once(runs("echo", "done")))}}}}},
	{[2]string{"/apis/extensions/v1beta1/namespaces/demo/ingresses",
		"/apis/networking.k8s.io/v1beta1/namespaces/demo/ingresses"},
		object{"spec": object{"backend": object{"serviceName": "old", "servicePort": 80}}}},
	{[2]string{"/apis/policy/v1beta1/namespaces/demo/poddisruptionbudgets",
		"/apis/policy/v1beta1/namespaces/demo/poddisruptionbudgets"},
		object{"spec": object{"minAvailable": 0, "selector": object{"matchLabels": object{"workload": "old"}}}}},
	{[2]string{"/apis/autoscaling/v2beta1/namespaces/demo/horizontalpodautoscalers",
		"/apis/autoscaling/v2beta2/namespaces/demo/horizontalpodautoscalers"},
		object{"spec": object{"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": object{
			"apiVersion": "extensions/v1beta1", "kind": "Deployment", "name": "kept"}, "metrics": []object{
			{"type": "Resource", "resource": object{"name": "memory", "targetAverageUtilization": 80}}}}}},
	{[2]string{"/apis/rbac.authorization.k8s.io/v1beta1/namespaces/demo/roles",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/demo/roles"},
		object{"rules": []object{{"apiGroups": []string{""}, "resources": []string{"configmaps"},
			"verbs": []string{"get"}}}}},
	{[2]string{"/apis/rbac.authorization.k8s.io/v1beta1/namespaces/demo/rolebindings",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/demo/rolebindings"},
		object{"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kept"},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}}}},
	{[2]string{"/apis/extensions/v1beta1/podsecuritypolicies", "/apis/policy/v1beta1/podsecuritypolicies"},
		object{"spec": restricted}},
	{[2]string{widgets, widgets}, object{"apiVersion": "example.test/v1", "kind": "Widget"}},
}

var restricted = object{"seLinux": object{"rule": "RunAsAny"}, "runAsUser": object{"rule": "RunAsAny"},
	"supplementalGroups": object{"rule": "RunAsAny"}, "fsGroup": object{"rule": "RunAsAny"}, "volumes": []string{"*"}}

// creates creates them, and a Deployment of the modern side.
func (u *legacyUp) creates() {
	t := u.t
	t.Helper()
	u.create(pair.Legacy, "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions", object{
		"metadata": object{"name": "widgets.example.test"}, "spec": object{"group": "example.test", "version": "v1",
			"scope": "Namespaced", "names": object{"plural": "widgets", "kind": "Widget"}}})
	u.objects = map[string]string{}
	for _, o := range legacyObjects {
		body := object{"metadata": object{"name": "kept"}}
		for key, value := range o.body {
			body[key] = value
		}
		u.create(pair.Legacy, o.paths[0], body)
	}
	u.deploy(pair.Modern, "modern", 2, serves())
	for name, replicas := range map[string]int{"old": 2, "each": 1, "stateful": 1, "modern": 2} {
		u.awaitReady(name, replicas)
	}
	u.objects = u.uids(0)
}

// uids are those of all objects, as a version serves them: of 1.10, or of 1.15.
func (u *legacyUp) uids(at int) map[string]string {
	t := u.t
	t.Helper()
	uids := map[string]string{}
	for _, o := range legacyObjects {
		var got struct{ Metadata struct{ UID string } }
		must(t, u.admin.Call(t.Context(), http.MethodGet, o.paths[at]+"/kept", nil, &got))
		must(t, u.admin.Call(t.Context(), http.MethodGet, o.paths[at], nil, nil)) // one that cannot be read breaks it
		uids[o.paths[0]] = got.Metadata.UID
	}
	return uids
}

// runsMinor: the legacy API server is of a minor.
func (u *legacyUp) runsMinor(minor kubever.Minor) {
	t := u.t
	t.Helper()
	file := map[kubever.Minor]string{10: "older", 15: "newer"}[minor]
	text, err := os.ReadFile(filepath.Join(u.Dir(), file+".yaml"))
	must(t, err)
	u.replan(string(text))
	var version struct{ Minor string }
	must(t, u.admin.Call(t.Context(), http.MethodGet, "/version", nil, &version))
	if got := strings.TrimSuffix(version.Minor, "+"); got != fmt.Sprint(int(minor)) {
		t.Errorf("the legacy API server is of 1.%s, want %s", got, minor)
	}
}

// serves: every object is there, under each version in which this API server has it, and its list can be read.
func (u *legacyUp) serves(when string) {
	t := u.t
	t.Helper()
	versions := []int{0}
	if u.Plan.Legacy.Version.Minor == 15 {
		versions = []int{0, 1}
	}
	for _, at := range versions {
		for path, uid := range u.uids(at) {
			if uid != u.objects[path] {
				t.Errorf("%s, the object at %s has UID %q, want %q", when, path, uid, u.objects[path])
			}
		}
	}
	bob := u.Legacy.Client("bob", "x")
	must(t, bob.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/configmaps/kept", nil, nil))
	if err := bob.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/secrets", nil, nil); rig.Code(err) != 403 {
		t.Errorf("%s, bob lists secrets: %v, want 403", when, err)
	}
}

// works: controllers and schedulers of both sides do their work.
func (u *legacyUp) works(name string) {
	u.t.Helper()
	label := strings.ReplaceAll(name, ".", "-")
	for _, side := range pair.Sides() {
		u.deploy(side, string(side)+"-"+label, 1, serves())
		u.awaitReady(string(side)+"-"+label, 1)
	}
}

// clean: the stores are those of the plan.
func (u *legacyUp) clean(spec string) {
	u.t.Helper()
	if out := u.run("fusionctl", "etcd", "check", spec); !strings.Contains(out, "0 errors") {
		u.t.Errorf("the stores: %s", out)
	}
}

// leases are those of a store.
func (u *legacyUp) leases(store string) (out string, count int) {
	u.t.Helper()
	var endpoint string
	for _, s := range u.Plan.Stores {
		if s.Name == store {
			endpoint = s.Endpoints[0]
		}
	}
	out = u.run("etcdctl", "--endpoints", endpoint, "--cacert", "/etc/kubernetes/pki/etcd/ca.crt", "--cert",
		"/etc/kubernetes/pki/apiserver-etcd-client.crt", "--key", "/etc/kubernetes/pki/apiserver-etcd-client.key",
		"get", "--prefix", "--keys-only", "/registry/leases/")
	return out, strings.Count(out, "/registry/leases/")
}

// writesNewer has objects that 1.15 stores in versions that 1.10 does not read: of an Ingress and a PriorityClass
// nothing is lost in an older one; for a PodSecurityPolicy there is none.
func (u *legacyUp) writesNewer() {
	u.t.Helper()
	u.create(pair.Legacy, "/apis/networking.k8s.io/v1beta1/namespaces/demo/ingresses", object{
		"metadata": object{"name": "newer"}, "spec": object{"backend": object{"serviceName": "x", "servicePort": 80}}})
	u.create(pair.Legacy, "/apis/scheduling.k8s.io/v1/priorityclasses", object{
		"metadata": object{"name": "newer"}, "value": 1000})
	spec := object{"runAsGroup": object{"rule": "RunAsAny"}}
	for key, value := range restricted {
		spec[key] = value
	}
	u.create(pair.Legacy, "/apis/policy/v1beta1/podsecuritypolicies", object{"metadata": object{"name": "newer"},
		"spec": spec})
	u.Eventually("leases of the modern side are in the store of both", func(context.Context) error {
		if out, count := u.leases("core"); count == 0 {
			return fmt.Errorf("there are none: %s", out)
		}
		return nil
	})
}
