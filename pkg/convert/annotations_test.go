package convert

import (
	"cmp"
	"reflect"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Each annotation and its field say the same: there and back through a minor that heeds the other one.
func TestSpellThereAndBack(t *testing.T) {
	c := newConverter(t)
	for _, s := range []struct {
		what               string
		old, new           kubever.Minor
		asAnnotation, asIs string
	}{
		{"seccomp", 18, 27,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p",
				"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"runtime/default"}},
				"spec":{"containers":[]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[],
				"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}}}`},
		{"seccomp before it had its name", 10, 36,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p",
				"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"docker/default"}},
				"spec":{"containers":[]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[],
				"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}}}`},
		{"seccomp of a container, in a template", 6, 36,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"p"},
				"spec":{"template":{"metadata":{"annotations":
				{"container.seccomp.security.alpha.kubernetes.io/a":"localhost/x.json"}},"spec":{"containers"
				:[{"name":"a"}]}}}}`,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"p"},
				"spec":{"template":{"metadata":{},"spec":{"containers":[{"name":"a",
				"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"x.json"}}}]}}}}`},
		{"sysctls", 10, 11,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p",
				"annotations":{"security.alpha.kubernetes.io/sysctls":"net.ipv4.tcp_syncookies=1",
				"security.alpha.kubernetes.io/unsafe-sysctls":"kernel.msgmax=1,net.core.somaxconn=2"}},
				"spec":{"containers":[]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[],
				"securityContext":{"sysctls":[{"name":"kernel.msgmax",
				"value":"1"},{"name":"net.core.somaxconn","value":"2"},{"name":"net.ipv4.tcp_syncookies",
				"value":"1"}]}}}`},
		{"critical", 6, 16,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"kube-system",
				"annotations":{"scheduler.alpha.kubernetes.io/critical-pod":""}},"spec":{"containers":[]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"kube-system"},"spec":{"containers":[],
				"priorityClassName":"system-cluster-critical"}}`},
		{"external traffic", 6, 7,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"p",
				"annotations":{"service.beta.kubernetes.io/external-traffic":"OnlyLocal",
				"service.beta.kubernetes.io/healthcheck-nodeport":"30000"}},"spec":{}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"p"},
				"spec":{"externalTrafficPolicy":"Local","healthCheckNodePort":30000}}`},
		{"addresses of pods that are not ready", 8, 36,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"p",
				"annotations":{"service.alpha.kubernetes.io/tolerate-unready-endpoints":"true"}},"spec":{}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"p"},
				"spec":{"publishNotReadyAddresses":true}}`},
		{"nodes of a volume", 9, 15,
			`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"p",
				"annotations":
				{"volume.alpha.kubernetes.io/node-affinity":"{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[]}}"}},"spec":{}}`,
			`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"p"},
				"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[]}}}}`},
		{"labels of nodes", 10, 36,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
				"spec":{"nodeSelector":{"node-role.kubernetes.io/master":""},"containers":[],
				"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution"
				:[{"podAffinityTerm":{"topologyKey":"node-role.kubernetes.io/master","labelSelector":
				{"matchExpressions":[{"key":"node-role.kubernetes.io/master"}]}}}]}}}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},
				"spec":{"nodeSelector":{"node-role.kubernetes.io/control-plane":""},"containers":[],
				"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution"
				:[{"podAffinityTerm":{"topologyKey":"node-role.kubernetes.io/control-plane","labelSelector":
				{"matchExpressions":[{"key":"node-role.kubernetes.io/master"}]}}}]}}}}`},
	} {
		for _, way := range []struct {
			minor    kubever.Minor
			from, to string
		}{{s.new, s.asAnnotation, s.asIs}, {s.old, s.asIs, s.asAnnotation}} {
			got := parse(t, []byte(way.from))
			changed, losses := c.Spell(got, way.minor)
			if diff := gocmp.Diff(parse(t, []byte(way.to)).Object, got.Object); diff != "" || !changed ||
				len(losses) > 0 {
				t.Errorf("%s for %s: changed %v, losses %v (-want +got):\n%s", s.what, way.minor, changed, losses, diff)
			}
			if changed, _ := c.Spell(got, way.minor); changed {
				t.Errorf("%s for %s: a second time changes it again", s.what, way.minor)
			}
		}
	}
}

// annotated is how a row of the table of annotations says something, and what its field says then.
type annotated struct{ text, field string }

var spelledForms = map[string]annotated{
	"pod.alpha.kubernetes.io/init-containers":   {`[{"name":"i"}]`, `[{"name":"i"}]`},
	"pod.beta.kubernetes.io/init-containers":    {`[{"name":"i"}]`, `[{"name":"i"}]`},
	"scheduler.alpha.kubernetes.io/affinity":    {`{"nodeAffinity":{}}`, `{"nodeAffinity":{}}`},
	"scheduler.alpha.kubernetes.io/taints":      {`[{"effect":"NoExecute"}]`, `[{"effect":"NoExecute"}]`},
	"scheduler.alpha.kubernetes.io/tolerations": {`[{"key":"a"}]`, `[{"key":"a"}]`},
	"security.alpha.kubernetes.io/sysctls": {"kernel.shm_rmid_forced=1",
		`[{"name":"kernel.shm_rmid_forced","value":"1"}]`},
	"security.alpha.kubernetes.io/unsafe-sysctls": {"kernel.msgmax=1", `[{"name":"kernel.msgmax","value":"1"}]`},

	"text":     {"a", `"a"`},
	"seccomp":  {"localhost/x.json", `{"type":"Localhost","localhostProfile":"x.json"}`},
	"apparmor": {"localhost/x", `{"type":"Localhost","localhostProfile":"x"}`},
	"critical": {"", `"system-cluster-critical"`},
	"traffic":  {"OnlyLocal", `"Local"`},
	"number":   {"30000", `30000`},
	"flag":     {"true", `true`},
	"commas":   {"ro,soft", `["ro","soft"]`},
	"volume-affinity": {`{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}`,
		`{"required":{"nodeSelectorTerms":[]}}`},
}

// Every row of the table holds in every minor: an annotation stays where it is heeded, becomes the field where that is
// heeded instead, and is lost otherwise; and a field becomes an annotation where that alone is heeded.
func TestEveryAnnotationIsSpelled(t *testing.T) {
	c := newConverter(t)
	apiVersions := map[string]string{"Ingress": "networking.k8s.io/v1", "HorizontalPodAutoscaler": "autoscaling/v1"}
	carriers := map[string]string{"pod": "Pod"}
	rows := 0
	for _, of := range []string{"pod", "HorizontalPodAutoscaler", "Ingress", "Node", "PersistentVolume",
		"PersistentVolumeClaim", "Service"} {
		kind := cmp.Or(carriers[of], of)
		for _, row := range kubever.AnnotationsOf(of) {
			rows++
			name, ofContainer := strings.CutSuffix(row.Name, "*")
			if ofContainer {
				name += "c"
			}
			says, ok := spelledForms[row.Name]
			if !ok {
				says = spelledForms[row.Form]
			}
			if says.field == "" && row.Field != "" {
				t.Fatalf("%s: no example of the form %q", row.Name, row.Form)
			}
			// empty is an object of the kind, and who has the field in it.
			empty := func() (object, owner map[string]any) {
				object = parse(t, []byte(`{"apiVersion":"`+cmp.Or(apiVersions[of], "v1")+`","kind":"`+kind+
					`","metadata":{"name":"a","namespace":"kube-system"},"spec":{"containers":[{"name":"c"}]}}`)).Object
				if ofContainer {
					return object, elements(object["spec"].(map[string]any), "containers")[0]
				}
				return object, object
			}
			for minor := kubever.Oldest; minor <= kubever.Newest; minor++ {
				heeded, has := row.Heeded.Has(minor), row.Fields.Has(minor)
				object, owner := empty()
				object["metadata"].(map[string]any)["annotations"] = map[string]any{name: says.text}
				_, losses := c.Spell(&unstructured.Unstructured{Object: object}, minor)
				_, there := (&unstructured.Unstructured{Object: object}).GetAnnotations()[name]
				value, set := fieldAt(owner, row.Field)
				lost := len(losses) > 0
				if there != (heeded || !has) || set != (!heeded && has) || lost != (!heeded && !has) {
					t.Errorf("%s of %s for %s, which heeds it: %t, and the field: %t; it stays: %t, "+
						"the field is set: %t, lost: %v", name, kind, minor, heeded, has, there, set, losses)
				}
				if set && !sameJSONValue(value, decoded(t, says.field)) {
					t.Errorf("%s of %s for %s: the field is %v, want %s", name, kind, minor, value, says.field)
				}
				if has || !heeded || row.Field == "" {
					continue
				}
				object, owner = empty()
				putFieldAt(owner, row.Field, decoded(t, says.field))
				c.Spell(&unstructured.Unstructured{Object: object}, minor)
				if _, still := fieldAt(owner, row.Field); still {
					t.Errorf("%s of %s for %s: still a field, which it does not heed", row.Field, kind, minor)
				}
				c.Spell(&unstructured.Unstructured{Object: object}, kubever.Newest)
				// Some stay annotations, and one names no class.
				if value, _ := fieldAt(owner, row.Field); row.Form != "critical" && !row.Heeded.Has(kubever.Newest) &&
					!sameJSONValue(value, decoded(t, says.field)) {
					t.Errorf("%s of %s comes back from %s as %v, want %s", row.Field, kind, minor, value, says.field)
				}
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d annotations, want all of the table", rows)
	}
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	if err := kjson.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// Outside of kube-system the annotation was without effect, and no class is made of it.
func TestCriticalPodsAreThoseOfTheSystem(t *testing.T) {
	c := newConverter(t)
	for namespace, want := range map[string]string{
		"shop": "without effect",
		"":     "in kube-system it was heeded: write spec.priorityClassName: system-cluster-critical",
	} {
		in := parse(t, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{
			"scheduler.alpha.kubernetes.io/critical-pod":""}},"spec":{"containers":[]}}`))
		in.SetNamespace(namespace)
		before := in.DeepCopy()
		_, losses := c.Spell(in, 16)
		if len(losses) != 1 || !strings.Contains(losses[0].Meaning, want) ||
			!reflect.DeepEqual(before.Object, in.Object) {
			t.Errorf("in %q: %v, %v; want it as it was, with a loss that says %q", namespace, in.Object, losses, want)
		}
	}
}

// The namespace of what helm template writes is often not there: only what depends on it is left to the reader.
func TestCriticalPodsWithoutANamespace(t *testing.T) {
	c := newConverter(t)
	for _, tc := range []struct{ annotation, class, loss, at string }{
		{"", "", "write spec.template.spec.priorityClassName: system-cluster-critical there", "spec.template."},
		{"", "mine", "", ""}, // which counts in every namespace
		{"true", "", "no release heeds it", "spec.template."},
	} {
		spec := map[string]any{"containers": []any{}}
		if tc.class != "" {
			spec["priorityClassName"] = tc.class
		}
		in := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet",
			"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"template": map[string]any{"spec": spec,
				"metadata": map[string]any{"annotations": map[string]any{criticalPod: tc.annotation}}}}}}
		_, losses := c.Spell(in, 36)
		switch class := spec["priorityClassName"]; {
		case tc.class != "" && class != tc.class, tc.class == "" && class != nil:
			t.Errorf("%+v: class %v", tc, class)
		case tc.loss == "" && len(losses) > 0, tc.loss != "" && (len(losses) != 1 ||
			!strings.HasSuffix(losses[0].Meaning, tc.loss) || !strings.HasPrefix(losses[0].Path, tc.at)):
			t.Errorf("%+v: losses %v", tc, losses)
		}
	}
}

const criticalPod = "scheduler.alpha.kubernetes.io/critical-pod"

// Nodes may have a taint by either name, or by both.
func TestTolerationsAreOfTaintsByBothNames(t *testing.T) {
	c := newConverter(t)
	const master, controlPlane = "node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"
	pod := func(keys ...string) *unstructured.Unstructured {
		list := []any{map[string]any{"operator": "Exists", "effect": "NoExecute"}}
		for _, key := range keys {
			list = append(list, map[string]any{"key": key, "effect": "NoSchedule"})
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"tolerations": list}}}
	}
	for _, test := range []struct {
		minor      kubever.Minor
		have, want []string
	}{
		{24, []string{master}, []string{master, controlPlane}},
		{36, []string{master, controlPlane}, []string{master, controlPlane}},
		{6, []string{controlPlane}, []string{controlPlane, master}},
		{6, []string{master}, []string{master}},
	} {
		in, want := pod(test.have...), pod(test.want...)
		changed, _ := c.Spell(in, test.minor)
		if !reflect.DeepEqual(in.Object, want.Object) || changed != (len(test.have) < len(test.want)) {
			t.Errorf("%v for %s: %v, changed %t; want %v", test.have, test.minor, in.Object, changed, want.Object)
		}
	}
}

func TestSpellNamesWhatCannotBeSaid(t *testing.T) {
	c := newConverter(t)
	in := parse(t, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{
		"seccomp.security.alpha.kubernetes.io/pod":"mine","scheduler.alpha.kubernetes.io/affinity":"{"}},
				"spec":{"schedulerName":"x"}}`))
	changed, losses := c.Spell(in, 36)
	var paths []string
	for _, loss := range losses {
		paths = append(paths, loss.Path)
	}
	const want = `metadata.annotations["seccomp.security.alpha.kubernetes.io/pod"] ` +
		`metadata.annotations["scheduler.alpha.kubernetes.io/affinity"]`
	if got := strings.Join(paths, " "); changed || got != want {
		t.Errorf("Spell loses %s, changed %v; want %s", got, changed, want)
	}
	claim := parse(t, []byte(`{"apiVersion":"v1","kind":"PersistentVolumeClaim",
				"metadata":{"annotations":{"volume.alpha.kubernetes.io/storage-class":"x"}}}`))
	if _, losses := c.Spell(claim, 6); len(losses) != 1 {
		t.Errorf("Spell of an annotation that nothing heeds: %v, want a loss", losses)
	}
	custom := parse(t, []byte(`{"apiVersion":"g.example/v1","kind":"Pod",
				"metadata":{"annotations":{"scheduler.alpha.kubernetes.io/name":"x"}},"spec":{}}`))
	if changed, losses := c.Spell(custom, 36); changed || len(losses) > 0 {
		t.Errorf("Spell of a custom resource: changed %v, %v", changed, losses)
	}
}

// Releases before 1.11 refuse runtime/default in an annotation, and have docker/default for the same.
func TestSpellNamesProfilesAsTheReleaseDoes(t *testing.T) {
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for minor, want := range map[kubever.Minor]string{
		6: "docker/default", 10: "docker/default", 11: "runtime/default"} {
		const ofPod, ofContainer = "seccomp.security.alpha.kubernetes.io/pod",
			"container.seccomp.security.alpha.kubernetes.io/a"
		pod := parse(t, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"`+ofPod+
			`":"runtime/default","`+ofContainer+`":"runtime/default"}},"spec":{"containers":[{"name":"a"}]}}`))
		changed, losses := c.Spell(pod, minor)
		said := pod.GetAnnotations()
		if said[ofPod] != want || said[ofContainer] != want || changed != (minor < 11) || len(losses) > 0 {
			t.Errorf("%s: annotations %v, changed %v, losses %v; want %s", minor, said, changed, losses, want)
		}
		const allowed = "seccomp.security.alpha.kubernetes.io/allowedProfileNames"
		policy := parse(t, []byte(`{"apiVersion":"extensions/v1beta1","kind":"PodSecurityPolicy","metadata":{"name":"p",`+
			`"annotations":{"`+allowed+`":"localhost/a,runtime/default"}},"spec":{}}`))
		changed, losses = c.Spell(policy, minor)
		if said := policy.GetAnnotations()[allowed]; said != "localhost/a,"+want || changed != (minor < 11) ||
			len(losses) > 0 {
			t.Errorf("%s: a policy allows %s, changed %v, losses %v; want %s", minor, said, changed, losses, want)
		}
	}
}

// A field whose annotation would be refused stays, and is lost.
func TestUnconfinedIsNotSpelledWhereItIsRefused(t *testing.T) {
	c := newConverter(t)
	for minor, lost := range map[kubever.Minor]bool{6: true, 8: true, 9: false, 29: false, 30: false} {
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"containers": []any{map[string]any{
				"name": "c", "securityContext": map[string]any{
					"appArmorProfile": map[string]any{"type": "Unconfined"}}}}}}}
		c.Spell(pod, minor)
		losses := c.LossesIn(pod, minor)
		annotation := pod.GetAnnotations()["container.apparmor.security.beta.kubernetes.io/c"]
		if (len(losses) > 0) != lost || (annotation == "unconfined") != (!lost && minor < 30) {
			t.Errorf("%s: annotation %q, losses %v; want lost: %t", minor, annotation, losses, lost)
		}
	}
}

// Where a release has the older field for the source of a claim's data alone, that says it, in claims and in templates
// of them; what it cannot say stays, and is a loss.
func TestDataSourcesAreSpelled(t *testing.T) {
	c := newConverter(t)
	volume := map[string]any{"kind": "PersistentVolumeClaim", "name": "x"}
	snapshot := map[string]any{"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "x"}
	populator := map[string]any{"apiGroup": "g.example", "kind": "Populator", "name": "x"}
	elsewhere := map[string]any{"kind": "PersistentVolumeClaim", "name": "x", "namespace": "b"}
	for _, test := range []struct {
		source, reference map[string]any
		minor             kubever.Minor
		spelled           bool
		lost              string
	}{
		{nil, volume, 15, false, "dataSourceRef"},
		{nil, volume, 16, true, ""},
		{nil, volume, 23, true, ""},
		{nil, volume, 24, false, ""},
		{nil, snapshot, 16, false, "dataSourceRef"},
		{nil, snapshot, 17, true, ""},
		{snapshot, snapshot, 20, true, ""}, // as servers of later releases answer
		{map[string]any{"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "x"}, volume, 20, true, ""},
		{volume, snapshot, 20, false, "dataSourceRef"},
		{populator, populator, 23, false, "dataSource dataSourceRef"},
		{nil, elsewhere, 20, false, "dataSourceRef"},
		{nil, elsewhere, 25, false, "dataSourceRef.namespace"},
	} {
		spec := map[string]any{"dataSourceRef": test.reference}
		if test.source != nil {
			spec["dataSource"] = test.source
		}
		for at, object := range map[string]map[string]any{
			"spec": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec},
			"spec.volumeClaimTemplates[0].spec": {"apiVersion": "apps/v1", "kind": "StatefulSet",
				"spec": map[string]any{"volumeClaimTemplates": []any{map[string]any{"spec": spec}}}},
		} {
			u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
			changed, losses := c.Spell(u, test.minor)
			var lost []string
			for _, loss := range append(losses, c.LossesIn(u, test.minor)...) {
				lost = append(lost, strings.TrimPrefix(loss.Path, at+"."))
			}
			if changed != test.spelled || strings.Join(lost, " ") != test.lost {
				t.Errorf("%s of %v and %v for %s: changed %t, lost %q; want %t and %q", at, test.source,
					test.reference, test.minor, changed, lost, test.spelled, test.lost)
			}
			if again, _ := c.Spell(u, test.minor); again {
				t.Errorf("%v for %s is spelled twice", test.reference, test.minor)
			}
		}
	}
}

// What an autoscaler scales keeps its group where the release has the kind there, in whatever version.
func TestScaleTargetsAreOfGroupsThatAreServed(t *testing.T) {
	c := newConverter(t)
	for _, test := range []struct {
		minor          kubever.Minor
		kind, of, want string
	}{
		{36, "Deployment", "extensions/v1beta1", "apps/v1"},
		{16, "ReplicaSet", "extensions/v1beta1", "apps/v1"},
		{15, "Deployment", "extensions/v1beta1", "extensions/v1beta1"},
		{36, "Deployment", "apps/v1beta1", "apps/v1beta1"},
		{6, "Deployment", "apps/v1", "apps/v1"},
		{6, "ReplicaSet", "apps/v1", "extensions/v1beta1"},
		{36, "ReplicationController", "v1", "v1"},
		{36, "ReplicationController", "", ""},
		{36, "Deployment", "apps/v7", "apps/v7"},
		{36, "Rollout", "argoproj.io/v1alpha1", "argoproj.io/v1alpha1"},
	} {
		scaler := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1",
			"kind": "HorizontalPodAutoscaler", "spec": map[string]any{"scaleTargetRef": map[string]any{
				"apiVersion": test.of, "kind": test.kind, "name": "web"}}}}
		changed, losses := c.Spell(scaler, test.minor)
		got, _, err := unstructured.NestedString(scaler.Object, "spec", "scaleTargetRef", "apiVersion")
		if err != nil || got != test.want || changed != (test.want != test.of) || len(losses) > 0 {
			t.Errorf("%s %s for %s: %q, changed %t, losses %v, %v; want %q", test.of, test.kind, test.minor, got,
				changed, losses, err, test.want)
		}
		if again, _ := c.Spell(scaler, test.minor); again {
			t.Errorf("%s %s for %s is spelled twice", test.of, test.kind, test.minor)
		}
	}
}
