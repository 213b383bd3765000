package stream

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/manifest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func checked(t *testing.T, minor kubever.Minor, text string, set func(*Check)) (rows, problems []string, s Summary) {
	t.Helper()
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	check := NewCheck(c, minor, func(v Verdict) error {
		cells := []string{v.APIVersion, v.Kind, v.Status, v.Since, v.Replacement, v.Path}
		rows = append(rows, strings.TrimSpace(strings.Join(cells, " ")))
		return nil
	})
	if set != nil {
		set(check)
	}
	unread, err := check.Text(t.Context(), "f", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range unread {
		problems = append(problems, err.Error())
	}
	return rows, problems, check.Summary()
}

func TestCheckJudges(t *testing.T) {
	for _, test := range []struct {
		minor      kubever.Minor
		text, want string
	}{
		{36, "apiVersion: v1\nkind: Endpoints", "v1 Endpoints deprecated 1.33"},
		{32, "apiVersion: v1\nkind: Endpoints", "v1 Endpoints ok"},
		{19, "apiVersion: v1\nkind: ComponentStatus", "v1 ComponentStatus deprecated 1.19"},
		{36, "apiVersion: apps/v1\nkind: Deploymnet", "apps/v1 Deploymnet unknown"},
		{36, "apiVersion: apps/v3\nkind: Deployment", "apps/v3 Deployment unknown"},
		{36, "apiVersion: v1\nkind: Config", "v1 Config custom"},
		{36, "apiVersion: g.example/v1\nkind: Deployment", "g.example/v1 Deployment custom"},
		{36, "apiVersion: autoscaling/v1\nkind: Scale", "autoscaling/v1 Scale ok"},
		{15, "apiVersion: rbac.authorization.k8s.io/v1alpha1\nkind: Role",
			"rbac.authorization.k8s.io/v1alpha1 Role off  rbac.authorization.k8s.io/v1 Role"},
		{22, "apiVersion: rbac.authorization.k8s.io/v1alpha1\nkind: Role", // deprecated since 1.17, too
			"rbac.authorization.k8s.io/v1alpha1 Role off  rbac.authorization.k8s.io/v1 Role"},
		{36, "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass",
			"resource.k8s.io/v1beta1 DeviceClass off  resource.k8s.io/v1 DeviceClass"},
		{36, "apiVersion: rbac.authorization.k8s.io/v1alpha1\nkind: Role",
			"rbac.authorization.k8s.io/v1alpha1 Role removed 1.23 rbac.authorization.k8s.io/v1 Role"},
		{15, "apiVersion: networking.k8s.io/v1\nkind: Ingress",
			"networking.k8s.io/v1 Ingress later 1.19 networking.k8s.io/v1beta1 Ingress"},
		{15, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy",
			"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy later 1.30"},
		{36, "apiVersion: lifecycle.k8s.io/v1alpha1\nkind: EvictionRequest",
			"lifecycle.k8s.io/v1alpha1 EvictionRequest later 1.37"},
		{36, "apiVersion: cert-manager.io/v1alpha2\nkind: Issuer",
			"cert-manager.io/v1alpha2 Issuer removed cert-manager 1.6 cert-manager.io/v1 Issuer"},
		{23, "apiVersion: audit.k8s.io/v1beta1\nkind: Policy",
			"audit.k8s.io/v1beta1 Policy deprecated kubernetes 1.21 audit.k8s.io/v1 Policy"},
		{24, "apiVersion: audit.k8s.io/v1beta1\nkind: Policy",
			"audit.k8s.io/v1beta1 Policy removed kubernetes 1.24 audit.k8s.io/v1 Policy"},
		{20, "apiVersion: audit.k8s.io/v1beta1\nkind: Policy", "audit.k8s.io/v1beta1 Policy custom"},
		{36, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":` +
			`"{\"apiVersion\":\"extensions/v1beta1\",\"kind\":\"Deployment\"}"}}}`,
			"apps/v1 Deployment ok\nextensions/v1beta1 Deployment removed 1.16 apps/v1 Deployment"},
	} {
		rows, problems, _ := checked(t, test.minor, test.text, nil)
		for i := range rows {
			rows[i] = strings.TrimSpace(rows[i])
		}
		if got := strings.Join(rows, "\n"); got != test.want || len(problems) > 0 {
			t.Errorf("%s for %s: %q, %v; want %q", test.text, test.minor, got, problems, test.want)
		}
	}
	rows, _, _ := checked(t, 36, "apiVersion: mine.example/v1\nkind: X", func(c *Check) {
		gv := kubever.MovedKinds()[0]
		gv.Group, gv.Version, gv.Kind, gv.Project, gv.Removed, gv.Replacement = "mine.example", "v1", "", "mine", "3",
			"mine.example/v2"
		c.Moved = append(c.Moved, gv)
	})
	if got := strings.Join(rows, ""); got != "mine.example/v1 X removed mine 3 mine.example/v2 X" {
		t.Errorf("a kind of the user's table: %q", got)
	}
}

// A reference to an object in a version that the release does not have is found with its path. Controllers look for
// what an autoscaler scales by its group since 1.9, and by its kind before; garbage collectors for owners by their
// version.
func TestCheckJudgesReferences(t *testing.T) {
	scaler := func(version, kind string) string {
		return "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: a, namespace: b}\n" +
			"spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: " + version + ", kind: " + kind + ", name: web}}\n"
	}
	const ok = "autoscaling/v1 HorizontalPodAutoscaler ok"
	for _, test := range []struct {
		minor      kubever.Minor
		text, want string
	}{
		{36, scaler("extensions/v1beta1", "Deployment"),
			ok + "\nextensions/v1beta1 Deployment removed 1.16 apps/v1 Deployment spec.scaleTargetRef"},
		{15, scaler("extensions/v1beta1", "Deployment"), ok},
		{36, scaler("apps/v1beta1", "Deployment"), ok}, // apps has it
		{8, scaler("apps/v1", "ReplicaSet"), ok},
		{8, scaler("apps/v1", "Deployment"), ok},
		{36, scaler("v1", "Deployment"), ok + "\nv1 Deployment unknown   spec.scaleTargetRef"},
		{36, scaler("g.example/v1", "Deployment"), ok},
		{36, scaler("v1", "ReplicationController"), ok},
		{36, strings.Replace(scaler("a", "b"), "scaleTargetRef", "x", 1), ok},
		{36, strings.Replace(scaler("extensions/v1beta1", "Deployment"), "autoscaling/v1", "g.example/v1", 1),
			"g.example/v1 HorizontalPodAutoscaler custom"},
		{36, "apiVersion: v1\nkind: Pod\nmetadata: {name: a, ownerReferences: [" +
			"{apiVersion: apps/v1, kind: ReplicaSet}, {apiVersion: extensions/v1beta1, kind: ReplicaSet, name: r}, " +
			"{apiVersion: g.example/v1, kind: X}]}",
			"v1 Pod ok\nextensions/v1beta1 ReplicaSet removed 1.16 apps/v1 ReplicaSet metadata.ownerReferences[1]"},
		{36, "apiVersion: v1\nkind: Pod\nmetadata: {ownerReferences: " +
			"[{apiVersion: apps/v1beta1, kind: StatefulSet}, 1]}",
			"v1 Pod ok\napps/v1beta1 StatefulSet removed 1.16 apps/v1 StatefulSet metadata.ownerReferences[0]"},
		{8, "apiVersion: v1\nkind: Pod\nmetadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet}]}",
			"v1 Pod ok\napps/v1 ReplicaSet later 1.9 apps/v1beta2 ReplicaSet metadata.ownerReferences[0]"},
	} {
		rows, problems, s := checked(t, test.minor, test.text, nil)
		if got := strings.Join(rows, "\n"); got != test.want || len(problems) > 0 || s.Objects != 1 {
			t.Errorf("%s for %s: %d objects, %q, %v; want one, %q", test.text, test.minor, s.Objects, got, problems,
				test.want)
		}
	}
}

// Every document of a file is judged, however it is separated from the one before.
func TestCheckFindsEveryDocument(t *testing.T) {
	rows, problems, s := checked(t, 36, `%YAML 1.1
--- # Source: a.yaml
apiVersion: extensions/v1beta1
kind: Ingress
--- {apiVersion: policy/v1beta1, kind: PodDisruptionBudget}
...
---
null
--- &a {apiVersion: batch/v1beta1, kind: CronJob}
`, nil)
	want := "extensions/v1beta1 Ingress removed 1.22 networking.k8s.io/v1 Ingress\n" +
		"policy/v1beta1 PodDisruptionBudget removed 1.25 policy/v1 PodDisruptionBudget\n" +
		"batch/v1beta1 CronJob removed 1.25 batch/v1 CronJob"
	if got := strings.Join(rows, "\n"); got != want || len(problems) > 0 || s.Skipped > 0 {
		t.Errorf("%s\nproblems %v, %d skipped; want\n%s", got, problems, s.Skipped, want)
	}
}

// Kinds of other projects that moved are named with what takes their place, which may be another kind; a file of more
// is that of pluto.
func TestCheckKnowsWhatMovedElsewhere(t *testing.T) {
	moved, err := ParseMoved([]byte("deprecated-versions:\n- {version: g.example/v1, kind: Old, removed-in: v3.0.0,\n" +
		"   deprecated-in: v2.0.0, replacement-api: g.example/v2, component: theirs}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, object := range []string{"audit.k8s.io/v1beta1 Policy", "authentication.istio.io/v1alpha1 Policy",
		"cert-manager.io/v1alpha2 Issuer", "certmanager.k8s.io/v1alpha1 Order", "g.example/v1 Old",
		"g.example/v1 Other", "rbac.istio.io/v1alpha1 ServiceRole"} {
		version, kind, _ := strings.Cut(object, " ")
		fmt.Fprintf(&text, "---\napiVersion: %s\nkind: %s\nmetadata: {name: a}\n", version, kind)
	}
	rows, problems, _ := checked(t, 36, text.String(), func(c *Check) { c.Moved = moved })
	want := `audit.k8s.io/v1beta1 Policy removed kubernetes 1.24 audit.k8s.io/v1 Policy
authentication.istio.io/v1alpha1 Policy removed istio 1.6 security.istio.io/v1 PeerAuthentication and ` +
		`RequestAuthentication
cert-manager.io/v1alpha2 Issuer removed cert-manager 1.6 cert-manager.io/v1 Issuer
certmanager.k8s.io/v1alpha1 Order removed cert-manager 0.11 acme.cert-manager.io/v1 Order
g.example/v1 Old removed theirs 3.0.0 g.example/v2 Old
g.example/v1 Other custom
rbac.istio.io/v1alpha1 ServiceRole removed istio 1.6 security.istio.io/v1 AuthorizationPolicy`
	if got := strings.Join(rows, "\n"); got != want || len(problems) > 0 {
		t.Errorf("%s\nproblems %v; want\n%s", got, problems, want)
	}
}

// Files are looked at in their order, and one that cannot be opened does not keep the others from it.
func TestCheckOfFiles(t *testing.T) {
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	check := NewCheck(c, 36, func(v Verdict) error {
		places = append(places, v.Place)
		return nil
	})
	var want []string
	const files = 50
	problems, err := check.Files(t.Context(), func(yield func(File, error) bool) {
		for i := range files {
			name := fmt.Sprint("f", i)
			open := func() (io.ReadCloser, error) {
				if i == 20 {
					return nil, errors.New("f20 is gone")
				}
				return io.NopCloser(strings.NewReader("apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod\n")),
					nil
			}
			if i != 20 {
				want = append(want, name+":1", name+":4")
			}
			if !yield(File{name, open}, nil) {
				return
			}
		}
	})
	if err != nil || len(problems) != 1 || problems[0].Error() != "f20 is gone" || !slices.Equal(places, want) {
		t.Errorf("problems %v, %v; places %v", problems, err, places)
	}
	unlisted := errors.New("the directory cannot be listed")
	if _, err := check.Files(t.Context(), func(yield func(File, error) bool) {
		yield(File{}, unlisted)
	}); err != unlisted {
		t.Errorf("%v, want %v", err, unlisted)
	}
}

// Files of charts are skipped and counted, or refused when that is asked for; broken objects are errors either way.
func TestCheckSkipsWhatIsNoObject(t *testing.T) {
	const foreign = `apiVersion: v2
name: chart
---
image: {repository: a}
replicas: 3
---
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [a.yaml]
---
- op: replace
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Values.name }}}
{{- if .Values.x }}
`
	_, problems, s := checked(t, 36, foreign, nil)
	if len(problems) > 0 || s.Skipped != 5 || s.Objects != 0 {
		t.Errorf("skipped %d of 5, judged %d: %v", s.Skipped, s.Objects, problems)
	}
	if _, problems, _ = checked(t, 36, foreign, func(c *Check) { c.Strict = true }); len(problems) != 4 {
		t.Errorf("strictly: %d problems, want 4: %v", len(problems), problems)
	}
	if _, problems, _ = checked(t, 36, "kind: Pod\nmetadata: {}\n---\na: [\n", nil); len(problems) != 2 {
		t.Errorf("broken objects: %v, want two problems", problems)
	}
	for _, values := range []string{"# fluent-bit\nkind: DaemonSet\nreplicaCount: 1\n",
		"controller:\n  kind: Deployment\n",
		"kind: Foo\napiVersion:\nimage: {tag: a}\n", "{{/* it's \" open */}}\n{{ include \"x\" . }}\n"} {
		if _, problems, s := checked(t, 36, values, nil); len(problems) > 0 || s.Skipped == 0 || s.Objects != 0 {
			t.Errorf("%q: %+v, %v; want it skipped", values, s, problems)
		}
	}
	for _, broken := range []string{"apiVersion: apps/v1\nmetadata: {name: a}\n", "kind: Pod\nspec: {}\n"} {
		if _, problems, _ := checked(t, 36, broken, nil); len(problems) != 1 {
			t.Errorf("%q: %v, want one problem", broken, problems)
		}
	}
	const list = `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` +
		`{"apiVersion":"v1","kind":"Pod"},"a word",null,{"kind":"Pod"}]}]}`
	if rows, problems, _ := checked(t, 36, list, nil); len(rows) != 1 || len(problems) != 1 ||
		!strings.Contains(problems[0], "3 items") {
		t.Errorf("a list in a list: %v, %v, want one object and one problem", rows, problems)
	}
	var twice []manifest.Duplicate
	rows, problems, _ := checked(t, 36, "# x\napiVersion: v1\nkind: Pod\nkind: Service\n", func(c *Check) {
		c.Warn = func(_ string, d manifest.Duplicate) { twice = append(twice, d) }
	})
	if len(problems) > 0 || len(twice) != 1 || twice[0] != (manifest.Duplicate{Line: 4, Field: "kind"}) ||
		rows[0][:10] != "v1 Service" {
		t.Errorf("a field given twice: %v, %v, %v", rows, twice, problems)
	}
}
