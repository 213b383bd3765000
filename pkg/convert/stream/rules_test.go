package stream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Rules that name what a release serves no more are found, unless they, or others beside them, name what took its
// place.
func TestCheckJudgesRules(t *testing.T) {
	webhook := func(rules ...string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n" +
			"metadata: {name: a}\nwebhooks:\n- rules: [" + strings.Join(rules, ", ") + "]\n"
	}
	rule := func(groups, versions, resources string) string {
		return fmt.Sprintf("{apiGroups: [%s], apiVersions: [%s], resources: [%s], operations: [CREATE]}",
			groups, versions, resources)
	}
	role := func(rules ...string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\nrules: [" +
			strings.Join(rules, ", ") + "]\n"
	}
	grant := func(groups, resources, verbs string) string {
		return fmt.Sprintf("{apiGroups: [%s], resources: [%s], verbs: [%s]}", groups, resources, verbs)
	}
	const deployments = "extensions/v1beta1 Deployment removed 1.16 apps/v1 Deployment "
	for _, test := range []struct {
		minor kubever.Minor
		text  string
		want  []string
	}{
		{36, webhook(rule("extensions", "v1beta1", "deployments")),
			[]string{deployments + "webhooks[0].rules[0].apiGroups"}},
		{15, webhook(rule("extensions", "v1beta1", "deployments")), nil},
		{36, webhook(rule("extensions, apps", "'*'", "deployments/scale")), nil},
		{36, webhook(rule("extensions, apps", "v1beta1", "deployments/scale")),
			[]string{"apps/v1beta1 Deployment removed 1.16 apps/v1 Deployment webhooks[0].rules[0].apiVersions"}},
		{36, webhook(rule("extensions", "v1beta1", "deployments"), rule("apps", "v1", "deployments")), nil},
		{36, webhook(rule("extensions", "v1beta1", "deployments/scale"), rule("apps", "v1", "'*'")), // no subresources
			[]string{deployments + "webhooks[0].rules[0].apiGroups"}},
		{36, webhook(rule("extensions", "v1beta1", "deployments/scale"), rule("apps", "v1", "'*/*'")), nil},
		{36, webhook(rule("extensions", "v1beta1", "deployments/scale"), rule("apps", "v1", "deployments/*")), nil},
		{36, webhook(rule("extensions", "v1beta1", "'*'"), rule("apps", "v1", "'*'")),
			[]string{"extensions/v1beta1 * removed 1.22  webhooks[0].rules[0].apiGroups"}},
		{21, webhook(rule("extensions", "v1beta1", "'*'")), nil}, // ingresses
		{36, webhook(rule("'*'", "v1beta1", "deployments")), nil},
		{36, webhook(rule("extensions, g.example", "v1beta1", "deployments")), nil},
		{36, webhook(rule("extensions", "v1beta1", "things")), nil},
		{15, webhook(rule("networking.k8s.io", "v1", "ingresses")), nil}, // it comes
		{36, role(grant("extensions", "deployments", "get")), []string{deployments + "rules[0].apiGroups"}},
		{36, role(grant("extensions, apps", "deployments", "get")), nil},
		{36, role(grant("extensions", "deployments", "get, create"), grant("apps", "'*'", "get")),
			[]string{deployments + "rules[0].apiGroups"}},
		{36, role(grant("extensions", "deployments/scale", "get, create"), grant("apps", "'*'", "'*'")), nil},
		{36, role(grant("apps", "deployments", "get"), "{nonResourceURLs: [/], verbs: [get]}"), nil},
		{36, strings.Replace(role(grant("extensions", "deployments", "get")), "name: a",
			"name: a, labels: {kubernetes.io/bootstrapping: rbac-defaults}", 1), nil},
		{36, "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: [a, {apiGroups: a, resources: [1]}]", nil},
	} {
		rows, problems, _ := checked(t, test.minor, test.text, nil)
		if len(problems) > 0 || len(rows) == 0 {
			t.Fatalf("%s: %v", test.text, problems)
		}
		if got, want := strings.Join(rows[1:], "\n"), strings.Join(test.want, "\n"); got != want {
			t.Errorf("%s, for %s: found\n%s\nwant\n%s", test.text, test.minor, got, want)
		}
	}
}
