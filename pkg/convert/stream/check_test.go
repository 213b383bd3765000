package stream

import (
	"fmt"
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
		rows = append(rows,
			strings.TrimSpace(fmt.Sprint(v.APIVersion, " ", v.Kind, " ", v.Status, " ", v.Since, " ", v.Replacement)))
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
		{36, "apiVersion: rbac.authorization.k8s.io/v1alpha1\nkind: Role",
			"rbac.authorization.k8s.io/v1alpha1 Role removed 1.23 rbac.authorization.k8s.io/v1 Role"},
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
	var twice []manifest.Duplicate
	rows, problems, _ := checked(t, 36, "# x\napiVersion: v1\nkind: Pod\nkind: Service\n", func(c *Check) {
		c.Warn = func(_ string, d manifest.Duplicate) { twice = append(twice, d) }
	})
	if len(problems) > 0 || len(twice) != 1 || twice[0] != (manifest.Duplicate{Line: 4, Field: "kind"}) ||
		rows[0][:10] != "v1 Service" {
		t.Errorf("a field given twice: %v, %v, %v", rows, twice, problems)
	}
}
