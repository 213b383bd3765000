package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/etcd/backup"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
)

// install is a record of an installation that was begun.
func install(t *testing.T) *record {
	t.Helper()
	v := judge(example(t))
	steps, err := transition.NewHosted(nil, v.plan, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return &record{Runs: v.digest, Plan: v.plan, Open: &open{To: v.digest, Plan: v.plan, Transition: steps}}
}

// applied is the first workload of a kind that a record applies.
func applied(t *testing.T, r *record, kind string) *transition.Workload {
	t.Helper()
	for _, s := range r.Open.Transition.Steps {
		if s.Do != nil && s.Do.Kind == transition.ApplyObjects && s.Do.Workload.Kind == kind {
			return s.Do.Workload
		}
	}
	t.Fatalf("no %s is applied", kind)
	return nil
}

// TestRecordsAreAboutTheirControlPlaneAlone: the operator may create pods in every namespace. Who may write the Secrets
// of one, where the record is, gets nothing of another namespace by it, and nothing of a node.
func TestRecordsAreAboutTheirControlPlaneAlone(t *testing.T) {
	if err := install(t).validate("hosted"); err != nil {
		t.Fatalf("what an operator writes: %v", err)
	}
	replaced := func(old, with string) func(*record) {
		return func(r *record) {
			w := applied(t, r, "Deployment")
			text := strings.Replace(string(w.Manifest), old, with, 1)
			if text == string(w.Manifest) {
				t.Fatalf("the manifest has no %q:\n%s", old, text)
			}
			w.Manifest = []byte(text)
		}
	}
	instead := func(apiVersion, kind string) func(*record) {
		return func(r *record) {
			applied(t, r, "Deployment").Manifest = []byte("apiVersion: " + apiVersion + "\nkind: " + kind +
				"\nmetadata: {name: a, namespace: hosted}\n")
		}
	}
	service := func(spec string) func(*record) {
		return func(r *record) {
			applied(t, r, "Deployment").Manifest = []byte("apiVersion: v1\nkind: Service\nmetadata: {name: a, " +
				"namespace: hosted}\nspec: " + spec + "\n")
		}
	}
	const volumes = "      volumes:\n"
	const podSpec = "      automountServiceAccountToken: false\n"
	for name, change := range map[string]func(*record){
		"the plan of another": func(r *record) { p := *r.Plan; p.Name = "kube-system"; r.Plan = &p },
		"the next plan is another's": func(r *record) {
			p := *r.Open.Plan
			p.Name = "kube-system"
			r.Open.Plan = &p
		},
		"a plan for hosts": func(r *record) { p := *r.Plan; p.Target = "hosts"; r.Plan = &p },
		"a workload of another": func(r *record) {
			w := applied(t, r, "Deployment")
			w.Namespace = "kube-system"
			w.Manifest = bytes.ReplaceAll(w.Manifest, []byte("namespace: hosted"), []byte("namespace: kube-system"))
		},
		"an object of another": replaced("namespace: hosted", "namespace: kube-system"),
		"an action of no kind": func(r *record) { r.Open.Transition.Steps[0].Do = &transition.Action{} },
		"a check of no pods":   func(r *record) { r.Open.Transition.Steps[0].Do.After[0].Workload = nil },
		"the way back": func(r *record) {
			w := *applied(t, r, "Deployment")
			w.Namespace = "x"
			r.Open.Transition.Steps[0].Undo.Workload = &w
		},
		"a RoleBinding":         instead("rbac.authorization.k8s.io/v1", "RoleBinding"),
		"a Secret":              instead("v1", "Secret"),
		"an account":            replaced(podSpec, podSpec+"      serviceAccountName: privileged\n"),
		"a token":               replaced("automountServiceAccountToken: false", "automountServiceAccountToken: true"),
		"the node's network":    replaced(podSpec, podSpec+"      hostNetwork: true\n"),
		"the node's processes":  replaced(podSpec, podSpec+"      hostPID: true\n"),
		"a node":                replaced(podSpec, podSpec+"      nodeName: cp-1\n"),
		"another container":     replaced(podSpec, podSpec+"      initContainers: [{name: a, image: b}]\n"),
		"privileges":            replaced("allowPrivilegeEscalation: false", "privileged: true"),
		"escalation":            replaced("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"),
		"root":                  replaced("runAsNonRoot: true", "runAsNonRoot: false"),
		"capabilities":          replaced("- NET_BIND_SERVICE", "- SYS_ADMIN"),
		"a directory of a node": replaced(volumes, volumes+"      - {name: a, hostPath: {path: /}}\n"),
		"a projected token": replaced(volumes, volumes+"      - {name: a, projected: "+
			"{sources: [{serviceAccountToken: {path: token}}]}}\n"),
		"a port of the node": replaced("- containerPort: ", "- hostPort: 443\n          containerPort: "),
		"a priority":         replaced(podSpec, podSpec+"      priorityClassName: system-node-critical\n"),
		"no pod of another beside its own": replaced("          preferredDuringSchedulingIgnoredDuringExecution:\n",
			"          requiredDuringSchedulingIgnoredDuringExecution:\n          - {namespaceSelector: {}, "+
				"labelSelector: {}, topologyKey: kubernetes.io/hostname}\n"+
				"          preferredDuringSchedulingIgnoredDuringExecution:\n"),
		"every node": replaced(podSpec, podSpec+"      tolerations: [{operator: Exists}]\n"),
		"a probe of another": replaced("          httpGet:\n",
			"          httpGet:\n            host: 169.254.169.254\n"),
		"any system call": replaced("type: RuntimeDefault", "type: Unconfined"),
		"an SELinux type": replaced("        securityContext:\n",
			"        securityContext:\n          seLinuxOptions: {type: spc_t}\n"),
		"an annotation": replaced("    metadata:\n      labels:",
			"    metadata:\n      annotations: {k8s.v1.cni.cncf.io/networks: host}\n      labels:"),
		"addresses of others": service("{externalIPs: [10.0.0.1], ports: [{port: 443}]}"),
		"a port of all nodes": service("{type: NodePort, ports: [{port: 443, nodePort: 30443}]}"),
		"ports of all nodes":  service("{type: NodePort, ports: [{port: 443}]}"),
		"no word of a type":   service("{type: [LoadBalancer], ports: [{port: 443}]}"),
		"another's name":      service("{type: ExternalName, externalName: a.example}"),
		"the address of DNS":  service("{clusterIP: 10.96.0.10, ports: [{port: 53}]}"),
		"another's disk":      replaced(volumes, volumes+"      - {name: a, nfs: {server: s, path: /}}\n"),
		"what is no YAML":     func(r *record) { applied(t, r, "Deployment").Manifest = []byte("\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			r := install(t)
			change(r)
			err := r.validate("hosted")
			if damaged := slices.Contains([]string{"an action of no kind", "a check of no pods", "what is no YAML"},
				name); err == nil || !damaged && !errors.Is(err, errBeyond) {
				t.Errorf("the record is judged %v", err)
			}
		})
	}
}

// TestRecordsThatAreBombs: one operator runs every control plane. Who may write the Secrets of one does not end it.
func TestRecordsThatAreBombs(t *testing.T) {
	const record1, record2 = `{"open":{"transition":{"steps":[`, `{}]}}}`
	for name, text := range map[string]string{
		"empty steps": record1 + strings.Repeat("{},", 1_000_000) + record2,
		"a long text": `{"why":"` + strings.Repeat("x", limitRecordBytes) + `"}`,
	} {
		if err := new(record).decode(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "64 MiB") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, text := range map[string]string{
		"aliases": "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n",
		"larger":  "a: [" + strings.Repeat("[],", 500_000) + "]\n",
	} {
		r := install(t)
		applied(t, r, "Deployment").Manifest = []byte(text)
		if err := r.validate("hosted"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	written, err := json.Marshal(install(t))
	if err == nil {
		err = new(record).decode(bytes.NewReader(written))
	}
	if err != nil {
		t.Errorf("what an operator writes: %v", err)
	}
}

// TestEveryComponentIsConfined: what render writes for a spec, an operator applies.
func TestEveryComponentIsConfined(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range append(files, "../render/testdata/every-field.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := spec.Load(file, text)
		if err != nil {
			continue // no spec
		}
		p, err := plan.New(f, plan.Hosted)
		if err != nil {
			continue // for hosts alone
		}
		steps, err := transition.NewHosted(nil, p, transition.Facts{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, s := range steps.Steps {
			if s.Do == nil || s.Do.Workload == nil {
				continue
			}
			objects, err := objectsOf(s.Do.Workload)
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			looked += len(objects)
		}
	}
	if looked < 30 {
		t.Errorf("%d objects", looked)
	}
}

// mounting is the example with mounts and an environment in every component.
func mounting(t *testing.T, mounts string) *api.FusedControlPlane {
	t.Helper()
	f := example(t)
	spec := map[string]any{}
	var list []any
	if err := errors.Join(json.Unmarshal(f.Spec, &spec), json.Unmarshal([]byte(mounts), &list)); err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"legacy", "modern"} {
		for _, component := range []string{"apiServer", "controllerManager"} {
			of := spec[side].(map[string]any)
			c, _ := of[component].(map[string]any)
			if c == nil {
				c = map[string]any{}
				of[component] = c
			}
			c["extraMounts"] = list
			c["extraEnv"] = []any{map[string]any{"name": "A", "value": "$(POD_IP)\n---\nkind: Pod"}}
		}
	}
	var err error
	if f.Spec, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSpecsGetNothingOfNodes: whatever an object says, its pods are processes of their own.
func TestSpecsGetNothingOfNodes(t *testing.T) {
	const mounts = `[{"name":"all","hostPath":"/stolen"},{"name":"ro","hostPath":"/var/lib/kubelet","readOnly":true},
		{"name":"token","hostPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true}%s]`
	const stolen = `,{"name":"other","secret":"fusionctl-pki","mountPath":"/stolen","readOnly":true}`
	if v := judge(mounting(t, fmt.Sprintf(mounts, stolen))); v.plan != nil ||
		!strings.Contains(v.err.Error(), "want a hostPath") {
		t.Errorf("a Secret of the spec's choice: %v", v.err)
	}
	v := judge(mounting(t, fmt.Sprintf(mounts, "")))
	if v.plan == nil {
		t.Fatal(v.err)
	}
	steps, err := transition.NewHosted(nil, v.plan, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, s := range steps.Steps {
		if s.Do == nil || s.Do.Workload == nil {
			continue
		}
		objects, err := objectsOf(s.Do.Workload)
		if err != nil {
			t.Error(err)
		}
		looked += len(objects)
		if text := string(s.Do.Workload.Manifest); strings.Contains(text, "hostPath:") {
			t.Errorf("%s has a directory of its node:\n%s", s.Do.Workload.Name, text)
		}
	}
	if looked < 10 {
		t.Errorf("%d objects", looked)
	}
}

// filled is what a kubelet makes of an argument, with variables that every pod has.
func filled(arg string) string {
	var out strings.Builder
	for len(arg) > 0 {
		name, rest, closed := strings.Cut(strings.TrimPrefix(arg, "$("), ")")
		value, known := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}[name]
		switch {
		case strings.HasPrefix(arg, "$$"):
			out.WriteByte('$')
			arg = arg[2:]
		case strings.HasPrefix(arg, "$(") && closed && known:
			out.WriteString(value)
			arg = rest
		default:
			out.WriteByte(arg[0])
			arg = arg[1:]
		}
	}
	return out.String()
}

// TestPathsOfSpecsReachPodsAsTheyAre: each component's Secret has under its key the file of that path and of no other,
// and what saves and restores the stores is told the paths, whatever they contain.
func TestPathsOfSpecsReachPodsAsTheyAre(t *testing.T) {
	b := &spec.Backup{Schedule: "30 2 * * *", Image: "example.com/fusionctl:v1", Claim: "backups", Size: "1Gi", Keep: 3}
	tried := 0
	for _, name := range []string{"plain", "a b", "a__b", "-", "..x", "$$", "$$$(A)", "$(KUBERNETES_SERVICE_HOST)",
		"%h", "ünï", "{{ .x }}", "*", "#x", "&a", `"`, `\`, "'", "`x`", strings.Repeat("x", 230)} {
		f := example(t)
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		within := string(quoted[1 : len(quoted)-1])
		f.Spec = []byte(strings.NewReplacer("/etc/kubernetes/pki", "/etc/kubernetes/"+within+"/pki", "/var/lib/etcd",
			"/var/lib/"+within+"/etcd").Replace(string(f.Spec)))
		v := judge(f)
		if v.err != nil {
			if !strings.Contains(v.err.Error(), "spec.") {
				t.Errorf("%q is refused without its field: %v", name, v.err)
			}
			continue
		}
		parts, err := render.HostedParts(v.plan)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		tried++
		files := map[string][]byte{}
		for _, part := range parts {
			for _, s := range part.Secrets {
				for _, at := range s.Files {
					files[pkiKey(at)] = []byte(at)
				}
			}
		}
		scheme := runtime.NewScheme()
		if err := corev1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		c := fake.NewClientBuilder().WithScheme(scheme).Build()
		r := &Reconciler{Client: c, Reader: c}
		for _, part := range parts {
			for _, s := range part.Secrets {
				if err := r.componentSecret(t.Context(), v.plan, &part, s, files); err != nil {
					t.Errorf("%q: %v", name, err)
					continue
				}
				got := &corev1.Secret{}
				if err := c.Get(t.Context(), types.NamespacedName{Namespace: "hosted", Name: s.Name}, got); err != nil {
					t.Fatal(err)
				}
				for key, at := range s.Files {
					if string(got.Data[key]) != at || len(validation.IsConfigMapKey(key)) > 0 ||
						len(validation.IsConfigMapKey(pkiKey(at))) > 0 {
						t.Errorf("%q: %s of Secret %s has %q, want %q", name, key, s.Name, got.Data[key], at)
					}
				}
			}
		}
		objects, _, err := backupObjects(v.plan, b, false)
		if err != nil {
			t.Fatal(err)
		}
		source := &backup.Source{}
		text, _, err := unstructured.NestedString(objects[0].Object, "data", sourceKey)
		if err == nil {
			err = json.Unmarshal([]byte(text), source)
		}
		if err != nil || source.Stores[0].TLS.CA != backupFiles+"/"+pkiKey(v.plan.Stores[0].TLS.CA) {
			t.Errorf("%q: the backup reads %+v, %v", name, source.Stores, err)
		}
		steps, err := transition.NewRestore(v.plan, "20260101T000000Z", "20260102t000000z")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps.Steps {
			if s.Do.Kind != transition.RestoreMember {
				continue
			}
			m := s.Do.Member
			pod, _, err := unstructured.NestedMap(memberJob(m, b, false).Object, "spec", "template", "spec")
			if err != nil {
				t.Fatal(err)
			}
			of := pod["containers"].([]any)[0].(map[string]any)
			mount := of["volumeMounts"].([]any)[0].(map[string]any)["mountPath"]
			if got := filled(of["args"].([]any)[2].(string)); got != "--data-dir="+m.DataDir || mount != m.DataDir ||
				!strings.HasPrefix(m.DataDir, "/var/lib/"+name+"/etcd") {
				t.Errorf("%q: a member is restored with %s to %s, want %s", name, got, mount, m.DataDir)
			}
		}
	}
	if tried < 5 {
		t.Errorf("%d of them are accepted", tried)
	}
}

// TestStatusIsBoundedAndVisible: what a spec or a store makes an error of fits into the object, and into an event.
func TestStatusIsBoundedAndVisible(t *testing.T) {
	long := strings.Repeat("é\x1b[2J", 100_000)
	now := func() time.Time { return time.Unix(0, 0) }
	p := &plane{Reconciler: &Reconciler{Now: now, Events: limited{t}}, object: &api.FusedControlPlane{},
		record: &record{Open: &open{Why: long}}}
	p.verdict.err = errors.New(strings.Repeat(long+"\n", 30))
	p.describe()
	p.refuse("Findings", long)
	p.degraded("Unreadable", errors.New(long))
	p.recorded()
	p.event("Warning", "WentBack", "%s", long)
	data, err := json.Marshal(p.object.Status)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 250_000 || strings.Contains(fmt.Sprintf("%+v", p.object.Status), "\x1b") || !utf8.Valid(data) {
		t.Errorf("a status of %d bytes", len(data))
	}
}

// limited takes the events that an API server takes.
type limited struct{ *testing.T }

func (l limited) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	if text := fmt.Sprintf(note, args...); len(text) > 1024 || strings.Contains(text, "\x1b") {
		l.Errorf("an event of %d bytes", len(text))
	}
}

// TestHugeObjectsAreRefused: one object of the size that an API server takes does not keep the operator from others.
func TestHugeObjectsAreRefused(t *testing.T) {
	f := example(t)
	spec := map[string]any{}
	if err := json.Unmarshal(f.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	const rule = `{"subjects":[{"kind":"User","name":"u%d"}],"apiGroups":["g%d.example.com"],"resources":["r%d"],` +
		`"namespaces":["n"]}`
	var rules []string
	judged := func() verdict {
		var err error
		spec["access"] = json.RawMessage("[" + strings.Join(rules, ",") + "]")
		if f.Spec, err = json.Marshal(spec); err != nil {
			t.Fatal(err)
		}
		return judge(f)
	}
	for i := range 3000 {
		rules = append(rules, fmt.Sprintf(rule, i, i, i))
	}
	if v := judged(); v.err != nil {
		t.Errorf("3000 rules: %v", v.err)
	}
	for i := range 4000 {
		rules = append(rules, fmt.Sprintf(rule, i, i, i))
	}
	if v := judged(); v.plan != nil || !strings.Contains(v.err.Error(), "more than 50000 fields") {
		t.Errorf("7000 rules: %v", v.err)
	}
}

// FuzzManifest: what passes is pods without a node, an account or a privilege, read by the types of the API, not by the
// shapes that let it pass.
func FuzzManifest(f *testing.F) {
	v := judge(example(f))
	steps, err := transition.NewHosted(nil, v.plan, transition.Facts{})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range steps.Steps {
		if s.Do != nil && s.Do.Workload != nil {
			f.Add(s.Do.Workload.Manifest)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := objectsOf(&transition.Workload{Namespace: "hosted", Name: "fuzz", Manifest: data})
		if err != nil {
			return
		}
		for _, o := range objects {
			if o.GetNamespace() != "hosted" || !slices.Contains(workloadKinds, o.GroupVersionKind()) {
				t.Errorf("%s %s of namespace %q", o.GetKind(), o.GetName(), o.GetNamespace())
			}
			var d appsv1.Deployment // a StatefulSet has its pods in the same place
			if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d) != nil {
				continue
			}
			pod := &d.Spec.Template.Spec
			if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.NodeName != "" || pod.ServiceAccountName != "" ||
				pod.DeprecatedServiceAccount != "" || len(pod.InitContainers)+len(pod.EphemeralContainers) > 0 ||
				pod.PriorityClassName != "" || pod.RuntimeClassName != nil || pod.HostUsers != nil {
				t.Errorf("more than a process: %+v", pod)
			}
			for _, volume := range pod.Volumes {
				if volume.HostPath != nil || volume.CSI != nil || volume.NFS != nil ||
					volume.PersistentVolumeClaim != nil ||
					volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources,
						func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
					t.Errorf("a volume %+v", volume)
				}
			}
			for _, c := range pod.Containers {
				if s := c.SecurityContext; s == nil || s.Privileged != nil || s.RunAsUser != nil ||
					s.ProcMount != nil ||
					len(c.VolumeDevices) > 0 || c.Lifecycle != nil ||
					slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
					t.Errorf("a container %+v", c)
				}
			}
		}
	})
}

// FuzzRecord: a record that is valid is so when it was written and is read.
func FuzzRecord(f *testing.F) {
	v := judge(example(f))
	steps, err := transition.NewHosted(nil, v.plan, transition.Facts{})
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(&record{Runs: v.digest, Plan: v.plan, Open: &open{To: v.digest, Plan: v.plan,
		Transition: steps}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"open":{"transition":{"steps":[{"do":{"kind":"restore member"}},null]}}}`))
	f.Add([]byte(`{"plan":{"name":"hosted","target":"hosted"},"open":{"plan":null}}`))
	f.Add([]byte(`{"open":{"transition":{"steps":[{"id":"001"}]},"journal":[{"step":"001","event":"stopped"},` +
		`{"step":"001","event":"seen"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &record{}
		if r.decode(bytes.NewReader(data)) != nil || r.validate("hosted") != nil {
			return
		}
		if r.Open != nil {
			transition.Stopped(r.Open.Journal)
			transition.KnownStores(&r.Open.Transition, r.Open.Journal)
			r.Open.word("")
		}
		once, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again := &record{}
		if again.decode(bytes.NewReader(once)) != nil {
			return // a plan without versions, which no operator writes
		}
		if err := again.validate("hosted"); err != nil {
			t.Errorf("%s becomes %s: %v", data, once, err)
		}
	})
}

// TestNotesOfHostsAreSaid: what an agent's check found that is in no one's way is said, ten at most.
func TestNotesOfHostsAreSaid(t *testing.T) {
	check := &transition.Check{Kind: transition.StoresAgree}
	_, digest, err := api.Pack(&remote.Request{Check: check})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Unix(100, 0))
	o := &open{Since: now}
	answer, err := json.Marshal(remote.Answer{Notes: slices.Repeat([]string{"FUS050: 3 addresses"}, mostNotes+1)})
	if err != nil {
		t.Fatal(err)
	}
	h := &api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}}
	h.Spec.Task = &api.HostTask{Number: 3, Request: positionOf(o) + "/" + digest[:16], Issued: now}
	h.Status.Task = &api.HostTaskStatus{Number: 3, Ended: &now, Answer: string(answer)}
	var said []string
	m := &mailbox{Reconciler: &Reconciler{Now: func() time.Time { return now.Time }}, name: "p", open: o,
		hosts: map[string]*api.ControlPlaneHost{"cp-1": h}, note: func(text string) { said = append(said, text) }}
	if err := m.Check(t.Context(), "cp-1", check); err != nil {
		t.Fatal(err)
	}
	if len(said) != mostNotes || said[0] != "host cp-1: FUS050: 3 addresses" {
		t.Errorf("%d notes, %.1q", len(said), said)
	}
}

// TestWhatIsKeptInMemoryIsSmall: of objects that any account may create, and label, and of requests for certificates
// nothing is kept that is not read; those of agents are kept as they are, for they are written back.
func TestWhatIsKeptInMemoryIsSmall(t *testing.T) {
	const much = 1 << 20
	long := map[string]string{"x": strings.Repeat("x", much), managedByLabel: managedBy, partOfLabel: "p"}
	meta := metav1.ObjectMeta{Namespace: "p", Name: "n", UID: "u", ResourceVersion: "7", Generation: 3, Labels: long,
		Annotations: long, Finalizers: []string{long["x"]}}
	two := int32(2)
	template := corev1.PodTemplateSpec{ObjectMeta: meta}
	request := func(group string, size int) *certificates.CertificateSigningRequest {
		return &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"},
			Spec: certificates.CertificateSigningRequestSpec{Groups: []string{group}, Request: make([]byte, size)}}
	}
	for _, object := range []interface {
		client.Object
		Size() int
	}{
		&appsv1.Deployment{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.DeploymentSpec{Replicas: &two,
			Template: template}},
		&appsv1.StatefulSet{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.StatefulSetSpec{Replicas: &two,
			Template: template}},
		request(api.AgentGroup, much), request("system:nodes", 1000),
	} {
		if _, err := slim(object); err != nil {
			t.Fatal(err)
		}
		if size := object.Size(); size > 500 {
			t.Errorf("%T: %d bytes are kept", object, size)
		}
		set, is := object.(*appsv1.StatefulSet)
		if is && (!ours(set, "p") || set.Name != "n" || set.UID != "u" || set.Generation != 3 ||
			*set.Spec.Replicas != 2) {
			t.Errorf("%+v is kept", set)
		}
	}
	of := request(api.AgentGroup, 1000)
	if kept, err := slim(of.DeepCopy()); err != nil || !reflect.DeepEqual(kept, of) {
		t.Errorf("%+v is kept of a request of an agent, %v", kept, err)
	}
}

// TestHostsAreBounded: a record of a few kilobytes has room for so many hosts that their objects would fill a
// management cluster.
func TestHostsAreBounded(t *testing.T) {
	of := &plan.Plan{}
	for n := range 200_000 {
		of.Nodes = append(of.Nodes, plan.Node{Name: fmt.Sprintf("n%d", n)})
	}
	r := &Reconciler{Client: fake.NewClientBuilder().Build()}
	_, err := r.hosts(t.Context(), "p", machines(of, of))
	if err == nil || !strings.Contains(err.Error(), "has 200000 hosts, and may have 10000") {
		t.Errorf("hosts = %v", err)
	}
}

// TestNamespacesOfOthersGetNothing: who makes a namespace anew of the name of a control plane, and puts a record there,
// gets no keys by it.
func TestNamespacesOfOthersGetNothing(t *testing.T) {
	f := newFleetWith(t, 1, map[string]any{"backup": map[string]any{"schedule": "30 2 * * *",
		"image": "registry.example.com/fusionctl:v1"}})
	namespace := &corev1.Namespace{}
	if err := f.Client.Get(t.Context(), types.NamespacedName{Name: f.names[0]}, namespace); err != nil {
		t.Fatal(err)
	}
	namespace.Labels = nil
	if err := f.Client.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: f.names[0]}})
		if !errors.Is(err, ErrForeign) {
			t.Errorf("Reconcile = %v, want %v", err, ErrForeign)
		}
		f.now = f.now.Add(f.Repair)
	}
	list := &corev1.SecretList{}
	if err := f.Client.List(t.Context(), list, client.InNamespace(f.names[0])); err != nil {
		t.Fatal(err)
	}
	for _, secret := range list.Items {
		if secret.Name != RecordName && secret.Name != PKIName {
			t.Errorf("Secret %s was made there", secret.Name)
		}
	}
}

// FuzzHostStatus: whatever the agent of a host reports, what is said of it is bounded and visible, the step that a
// person is asked to confirm is the operator's, and the answer to a task that it was not given is none.
func FuzzHostStatus(f *testing.F) {
	for _, text := range []string{
		`{"seen":"2026-01-01T00:00:00Z","task":{"number":3,"ended":"2026-01-01T00:00:00Z","answer":"{}"}}`,
		`{"task":{"number":3,"ended":"2026-01-01T00:00:00Z","error":"a\u001b[2J\n",` +
			`"answer":"{\"byHand\":\"do it =d.1.2\"}"}}`,
		`{"task":{"number":3,"ended":"2026-01-01T00:00:00Z","answer":"{\"error\":\"x\",\"byHand\":\"see it\",` +
			`\"found\":\"0123456789abcdef\"}"}}`,
		`{"task":{"number":3,"ended":"2026-01-01T00:00:00Z","answer":"{\"error\":\"x\",\"pods\":{\"Pods\":[\"\\u001b\"]}}"}}`,
		`{"task":{"number":3,"ended":"2026-01-01T00:00:00Z","answer":"{\"notes\":[\"a\\u001b[2J\",\"\"]}"}}`,
		`{"task":{"number":4,"ended":"2026-01-01T00:00:00Z"},"problem":"\u001b]0;x\u0007"}`,
		`{"upkeep":"d","components":[{"name":"etcd","problem":"\u009b1m","drift":["a\u202eb"]}],"backup":{"kept":["../x"]}}`,
		`{"backup":{"last":{"name":"20260101T000000Z","at":"2026-01-01T00:00:00Z","stores":[{"name":"\u001b"}]},` +
			`"failed":{"at":"2026-01-02T00:00:00Z","error":"\u0007"}}}`,
		`{"backup":{"last":{"name":"20360101T000000Z","at":"2036-01-01T00:00:00Z"}}}`,
	} {
		f.Add([]byte(text))
	}
	check := &transition.Check{Kind: transition.Adopted, Objects: &transition.Objects{}}
	_, digest, err := api.Pack(&remote.Request{Check: check})
	if err != nil {
		f.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{Namespace: "p", Name: "cp-1"}}
		if json.Unmarshal(data, &h.Status) != nil {
			return
		}
		o := &open{To: "d", Target: render.StaticPod, Since: metav1.NewTime(now), StepSince: metav1.NewTime(now),
			Transition: transition.Transition{Steps: []transition.Step{{ID: "001"}}}}
		r := &Reconciler{Now: func() time.Time { return now }, StepLimit: time.Hour, Look: time.Second,
			Events: limited{t}}
		r.answers = map[string]*answersOf{"p": {position: positionOf(o), given: map[string]given{},
			done: map[string]int64{}, failed: map[string]error{}, issued: map[string]int64{"cp-1": 3}}}
		h.Spec.Task = &api.HostTask{Number: 3, Request: positionOf(o) + "/" + digest[:16], Issued: metav1.NewTime(now)}
		h.Spec.Upkeep = &api.HostUpkeep{Digest: "d"}
		hosts := map[string]*api.ControlPlaneHost{"cp-1": h}
		p := &plane{Reconciler: r, object: &api.FusedControlPlane{}, record: &record{Open: o}}
		m := &mailbox{Reconciler: r, name: "p", hosts: hosts, open: o, note: p.note}

		err := m.Check(t.Context(), "cp-1", check)
		if s := h.Status.Task; (s == nil || s.Number != 3 || s.Ended == nil) && err == nil {
			t.Errorf("%s answers a task that it did not end", data)
		}
		if err != nil {
			if _, err := p.heed(t.Context(), err); err != nil {
				t.Fatal(err)
			}
			hand, found := (*transition.ByHandError)(nil), ""
			if errors.As(err, &hand) && transition.IsFound(hand.Found) {
				found = hand.Found
			}
			if word, err := Confirmable(p.object); err == nil && word != o.word(found) {
				t.Errorf("%s has a person confirm %q", data, word)
			}
		}
		of := &plan.Plan{Components: []plan.Component{{Name: "etcd", Host: "cp-1"}}}
		components, problems := p.onHosts(of, hosts)
		p.object.Status.Components = components
		said := slices.Concat(problems, driftOf(hosts), r.silent(hosts))
		p.condition(api.ConditionReady, metav1.ConditionFalse, "NotReady", strings.Join(said, "; "))
		p.object.Status.Backup = &api.BackupStatus{}
		if h.Status.Backup != nil {
			p.seenBackup(p.object.Status.Backup, h.Status.Backup)
		}
		text, err := json.Marshal(p.object.Status)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1<<20 || !utf8.Valid(text) {
			t.Errorf("a status of %d bytes", len(text))
		}
		var shown map[string]any
		if err := json.Unmarshal(text, &shown); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(shown); visible.Text(text) != text {
			t.Errorf("%s is shown as %q", data, text)
		}
		if last := p.object.Status.Backup.Last; last != nil && last.At.After(now.Add(grace)) {
			t.Errorf("%s has the last backup made at %s", data, last.At)
		}
		for _, name := range p.object.Status.Backup.Kept {
			if strings.ContainsAny(name, "/.") {
				t.Errorf("a backup %q", name)
			}
		}
	})
}

// FuzzApproval: two transitions that differ in where they come from or lead to, in what was approved before or in the
// hosts that count as lost have two words, and a word is about the one that a person named.
func FuzzApproval(f *testing.F) {
	f.Add("ab", "cd", 0, "cp-1", "ab", "cd", 1, "cp-1")
	f.Add("ab", "", 1, "", "ab", "2", 0, "from-2")
	f.Add("a", "b", 2, "c,d", "a", "b", 2, "c-lost-d")
	f.Fuzz(func(t *testing.T, to, from string, before int, lost, to2, from2 string, before2 int, lost2 string) {
		hosts := func(text string) (list []string, ok bool) {
			for name := range strings.SplitSeq(text, ",") {
				if text != "" && !spec.IsLabel(name) {
					return nil, false
				}
				if text != "" {
					list = append(list, name)
				}
			}
			return list, true
		}
		isDigest := func(text string) bool { return text != "" && strings.Trim(text, "0123456789abcdef") == "" }
		gone, ok := hosts(lost)
		gone2, ok2 := hosts(lost2)
		if !ok || !ok2 || !isDigest(to) || !isDigest(to2) || from != "" && !isDigest(from) ||
			from2 != "" && !isDigest(from2) || before < 0 || before2 < 0 {
			return
		}
		word := (&record{Runs: from, Approvals: before}).approval(to, gone)
		word2 := (&record{Runs: from2, Approvals: before2}).approval(to2, gone2)
		same := to == to2 && from == from2 && before == before2 && slices.Equal(gone, gone2)
		if (word == word2) != same {
			t.Errorf("%q and %q", word, word2)
		}
		if IsAbout(word, word2) != (word == word2 || word2 == to && len(gone) == 0) {
			t.Errorf("%q is about %q: %t", word, word2, IsAbout(word, word2))
		}
	})
}
