package policy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGenerateLeavesOutWhatIsCovered(t *testing.T) {
	devs := []Subject{{Kind: KindGroup, Name: "devs"}}
	intent := Intent{Grants: []Grant{
		{Subjects: devs, APIGroups: []string{"", "apps"}, Resources: []string{"pods"}, Namespaces: []string{"b", "a"},
			ReadOnly: true, Why: "Developers look."},
		{Subjects: []Subject{{Kind: KindUser, Name: "alice"},
			{Kind: KindServiceAccount, Namespace: "kube-system", Name: "job-controller"}},
			APIGroups: []string{"batch"}, Resources: []string{"jobs", "*"}, Namespaces: []string{"*"},
			Why: "Jobs are run."},
		{Subjects: devs, APIGroups: []string{""}, Resources: []string{"*"}, Namespaces: []string{"a", "b"},
			Why: "Developers write."},
		{Subjects: devs, NonResourcePaths: []string{"/api", "/api/*", "/api/v1", "/healthz"}, ReadOnly: true,
			Why: "Developers look."},
		{Subjects: devs, NonResourcePaths: []string{"/healthz"}, ReadOnly: true, Why: "Covered by an earlier one."},
	}}
	sections, err := Generate(intent)
	if err != nil {
		t.Fatal(err)
	}
	want := `# Developers look.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","apiGroup":"apps","resource":"pods","namespace":"a","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","apiGroup":"apps","resource":"pods","namespace":"b","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","nonResourcePath":"/api","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","nonResourcePath":"/api/*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","nonResourcePath":"/healthz","readonly":true}}

# Jobs are run.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","apiGroup":"batch","resource":"*","namespace":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"system:serviceaccount:kube-system:job-controller","apiGroup":"batch","resource":"*","namespace":"*"}}

# Developers write.
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","apiGroup":"","resource":"*","namespace":"a"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","apiGroup":"","resource":"*","namespace":"b"}}
`
	got := Format(sections)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Generate (-want +got):\n%s", diff)
	}
	again, err := Parse("generated", bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Rules(sections), bares(again)); diff != "" {
		t.Errorf("Parse of what Format printed (-want +got):\n%s", diff)
	}
}

func TestGenerateRefusesWhatABACCannotSay(t *testing.T) {
	alice := []Subject{{Kind: KindUser, Name: "alice"}}
	pods := Grant{Subjects: alice, APIGroups: []string{""}, Resources: []string{"pods"}, Namespaces: []string{"*"}}
	with := func(change func(*Grant)) Grant {
		g := pods
		change(&g)
		return g
	}
	tests := []struct {
		name  string
		grant Grant
		want  string
	}{
		{"subresource", with(func(g *Grant) {
			g.Resources = []string{"pods/log"}
		}), `ABAC cannot grant a subresource alone; "pods" includes all of them`},
		{"pattern", with(func(g *Grant) { g.Resources = []string{"pod*"} }), `resource "pod*": ABAC has no patterns`},
		{"upper case", with(func(g *Grant) { g.Resources = []string{"Pods"} }), "want lower case"},
		{"version in group", with(func(g *Grant) { g.APIGroups = []string{"apps/v1"} }), "without its version"},
		{"core by name", with(func(g *Grant) { g.APIGroups = []string{"core"} }), `the core group is ""`},
		{"no namespace", with(func(g *Grant) { g.Namespaces = nil }), `no namespace; "*" matches all`},
		{"no subject", with(func(g *Grant) { g.Subjects = nil }), "no subject"},
		{"nothing", Grant{Subjects: alice}, "neither resources nor paths"},
		{"masters", with(func(g *Grant) {
			g.Subjects = []Subject{{Kind: KindGroup, Name: GroupMasters}}
		}), "bypass the policy"},
		{"everybody", with(func(g *Grant) {
			g.Subjects = []Subject{{Kind: KindUser, Name: "*"}}
		}), "group system:authenticated"},
		{"kind", with(func(g *Grant) { g.Subjects = []Subject{{Kind: "Robot", Name: "r"}} }), `kind "Robot"`},
		{"service account without namespace", with(func(g *Grant) {
			g.Subjects = []Subject{{Kind: KindServiceAccount, Name: "r"}}
		}), "namespace of service account r"},
		{"long name", with(func(g *Grant) {
			g.Subjects = []Subject{{Kind: KindUser, Name: strings.Repeat("x", 70_000)}}
		}), "70000 bytes"},
		{"bytes", with(func(g *Grant) { g.Subjects = []Subject{{Kind: KindUser, Name: "a\xff"}} }), "not UTF-8"},
		{"line break", with(func(g *Grant) {
			g.Subjects = []Subject{{Kind: KindUser, Name: "a\nb"}}
		}), "control character"},
		{"relative path", Grant{Subjects: alice, NonResourcePaths: []string{"healthz"}}, "want / at its start"},
		{"star inside a path", Grant{Subjects: alice, NonResourcePaths: []string{"/*/x"}}, "only at the end"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Generate(Intent{Grants: []Grant{pods, test.grant}})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "grant 2 (") {
				t.Errorf("Generate = %v, want grant 2 with %q", err, test.want)
			}
		})
	}
}

func TestFormatWrapsComments(t *testing.T) {
	long := strings.Repeat("word ", 40) + "\n" + strings.Repeat("x", 200_000)
	rule := Rule{User: "a", Resource: "pods"}
	printed := Format([]Section{{Comment: long, Rules: []Rule{rule}}})
	rules, err := Parse("printed", bytes.NewReader(printed))
	if err != nil || len(rules) != 1 || rules[0].bare() != rule {
		t.Errorf("Parse = %v, %v, want the rule", rules, err)
	}
}

// TestGenerateNeverGrantsImpersonation: all resources of the core group must not include users and groups.
func TestGenerateNeverGrantsImpersonation(t *testing.T) {
	devs := []Subject{{Kind: KindGroup, Name: "devs"}}
	sections, err := Generate(Intent{Grants: []Grant{
		{Subjects: devs, APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Namespaces: []string{"*"}},
		{Subjects: devs, APIGroups: []string{""}, Resources: []string{"pods"}, Namespaces: []string{"a"},
			ReadOnly: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	index := NewAuthorizer(Rules(sections))
	for _, resource := range []string{"users", "groups"} {
		q := Request{User: "mallory", Groups: []string{"devs"}, Verb: "impersonate", Resource: resource,
			ObjectName: GroupMasters}
		if rule, ok := index.Match(q.Attributes()); ok {
			t.Errorf("%v is allowed by %v, want no rule for it", q, rule)
		}
	}
	for _, resource := range []string{"pods", "nodes", "services", "secrets"} {
		q := Request{User: "mallory", Groups: []string{"devs"}, Verb: "create", Resource: resource}
		if _, ok := index.Match(q.Attributes()); !ok {
			t.Errorf("%v is not allowed, want every core resource to be", q)
		}
	}
	if report := validate(t, string(Format(sections)), Options{}); len(report.Findings) > 0 {
		t.Errorf("Validate of a generated policy = %+v, want no findings", report.Findings)
	}
}
