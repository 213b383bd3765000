package policy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseClaim(t *testing.T) {
	core, apps := []string{""}, []string{"apps", "extensions"}
	claim := func(verbs Verbs, groups []string, resource string, change ...func(*Region)) Claim {
		var c Claim
		for _, group := range groups {
			r := Region{User: "*", Verbs: verbs, APIGroup: group, Resource: resource, Namespace: "*"}
			for _, f := range change {
				f(&r)
			}
			c.Regions = append(c.Regions, r)
		}
		return c
	}
	in := func(namespace string) func(*Region) { return func(r *Region) { r.Namespace = namespace } }
	lists := func(c Claim) Claim {
		r := c.Regions[0]
		r.Namespace, r.Verbs = "", ReadVerbs
		c.Regions = append(c.Regions, r)
		return c
	}
	except := func(c Claim, subjects ...Subject) Claim { c.Except = subjects; return c }
	tests := map[string]Claim{
		"write *":                claim(WriteVerbs, []string{"*"}, "*"),
		"write deployments.apps": claim(WriteVerbs, []string{"apps"}, "deployments"),
		"delete deployments":     claim(WriteVerbs, apps, "deployments"),
		// Lists over all namespaces show what is in one; of subresources there are none.
		"list *.apps in a":      lists(claim(ReadVerbs, []string{"apps"}, "*", in("a"))),
		"any secrets in a":      lists(claim(AllVerbs, core, "secrets", in("a"))),
		"any namespaces in a":   lists(claim(AllVerbs, core, "namespaces", in("a"))),
		"write secrets in a":    claim(WriteVerbs, core, "secrets", in("a")),
		"get pods/log in a":     claim(ReadVerbs, core, "pods", in("a")),
		`any nodes in ""`:       claim(AllVerbs, core, "nodes", in("")),
		"any nodes":             claim(AllVerbs, core, "nodes"), // those of metrics.k8s.io are no nodes
		"create pods/exec":      claim(AllVerbs, core, "pods"),
		"create pods/log":       claim(WriteVerbs, core, "pods"),
		"write pods.":           claim(WriteVerbs, core, "pods"),
		"any pod":               claim(AllVerbs, core, "pods"),
		"any Pod in a":          lists(claim(AllVerbs, core, "pods", in("a"))),
		"any po":                claim(AllVerbs, core, "pods"),
		"any secret":            claim(AllVerbs, core, "secrets"),
		"write deploy":          claim(WriteVerbs, apps, "deployments"),
		"write Deployment.apps": claim(WriteVerbs, []string{"apps"}, "deployments"),
		"read events":           claim(ReadVerbs, []string{"", "events.k8s.io"}, "events"),
		"write ing": claim(
			WriteVerbs, []string{"extensions", "networking.internal.knative.dev", "networking.k8s.io"}, "ingresses"),
		"write namespaces in a":         claim(WriteVerbs, core, "namespaces", in("a")),
		"get rps.custom.metrics.k8s.io": claim(ReadVerbs, []string{"custom.metrics.k8s.io"}, "rps"),
		"read /debug/*":                 {Regions: []Region{{User: "*", Verbs: ReadVerbs, Path: "/debug/*"}}},
		"write * by user al":            claim(WriteVerbs, []string{"*"}, "*", func(r *Region) { r.User = "al" }),
		`write * by group "D U" by group a`: claim(WriteVerbs, []string{"*"}, "*", func(r *Region) {
			r.Groups = []string{"D U", "a"}
		}),
		"write * by serviceaccount ns:sa except group ops except user bob": except(
			claim(WriteVerbs, []string{"*"}, "*", func(r *Region) { r.User = "system:serviceaccount:ns:sa" }),
			Subject{Kind: KindGroup, Name: "ops"}, Subject{Kind: KindUser, Name: "bob"}),
	}
	for text, want := range tests {
		got, err := ParseClaim(WantDeny, text, NewCatalog())
		if err != nil {
			t.Errorf("ParseClaim(%q): %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseClaim(%q) (-want +got):\n%s", text, diff)
		}
	}
	for text, group := range map[string]string{"read deployments": "apps", "read ev": ""} {
		got, err := ParseClaim(WantAllow, text, NewCatalog())
		if err != nil || len(got.Regions) != 1 || got.Regions[0].APIGroup != group {
			t.Errorf("that all of %q is allowed is about %+v, %v, want the group %q alone", text, got.Regions, err,
				group)
		}
	}
	for text, want := range map[string]string{
		"":                          "want VERB WHAT",
		"write":                     "want VERB WHAT",
		"Write pods":                `verb "Write"`,
		"wirte pods":                `no request has the verb "wirte"; did you mean "write"?`,
		"write pods on a":           `"on": want in, by or except`,
		"write pods in":             `nothing after "in"`,
		"write pods in Kube-System": `namespace "Kube-System"`,
		"write nodes in a":          "nodes are cluster-scoped",
		"any /api/v1/namespaces/kube-system/secrets": "a request of a resource",
		"read /apis/apps/v1/deployments":             "a request of a resource",
		"write /x in a":                              "has no namespace",
		"write pods by alice":                        `after "by": want user NAME`,
		"write pods by team devs":                    `"team": want user, group or serviceaccount`,
		"write pods by user a by user b":             "a request has one",
		"write pods by serviceaccount x":             "want NAMESPACE:NAME",
		`write pods except user ""`:                  "want a name",
		`write "pods`:                                "a quote is not closed",
		"write .apps":                                "want RESOURCE[.GROUP]",
		// Whatever is claimed of what no request is about is true, and proves nothing.
		"any podz":                                      `no API has the resource "podz"; did you mean "pods"?`,
		"any xyzzy":                                     `no API has the resource "xyzzy"; --crd FILE`,
		"any deployments.":                              `no API has the resource "deployments" in the group ""; did you mean deployments.apps?`,
		"any secrets.apps":                              "did you mean secrets?",
		"any deployments.aps":                           `no API has the group "aps"; did you mean "apps"?`,
		"any *.exmaple.org":                             `no API has the group "exmaple.org"`,
		"any x.rbac.k8s.io":                             `no API has the group "rbac.k8s.io"`,
		"create pods/exce":                              `pods has no subresource "exce"; did you mean "exec"?`,
		"any configmaps/status":                         `configmaps has no subresource "status"; it has none`,
		`any pods except user *`:                        `excepts every subject`,
		`any pods except group "*"`:                     `excepts every subject`,
		"any pods by user a except user a":              "leaves nothing to prove",
		"any pods by group a by group b except group b": "leaves nothing to prove",
		"any pods except group system:authenticated except group system:unauthenticated": "leaves nothing to prove",
	} {
		if _, err := ParseClaim(WantDeny, text, NewCatalog()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseClaim(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestClaimsAboutCustomResources(t *testing.T) {
	catalog := NewCatalog()
	err := catalog.AddCRDs("crds.yaml", []byte(`{kind: CustomResourceDefinition, metadata: {name: widgets.example.org},
  spec: {group: example.org, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"widgets", "widget", "Widget", "wd", "wd.example.org", "widgets.example.org"} {
		got, err := ParseClaim(WantDeny, "write "+word, catalog)
		if err != nil || len(got.Regions) != 1 || got.Regions[0].APIGroup != "example.org" ||
			got.Regions[0].Resource != "widgets" {
			t.Errorf("write %s is about %+v, %v, want widgets.example.org", word, got.Regions, err)
		}
	}
}

// TestCustomResourcesTakeNoWordsOver: a custom resource may have any name, and a claim about secrets stays one.
func TestCustomResourcesTakeNoWordsOver(t *testing.T) {
	catalog := NewCatalog()
	for _, plural := range []string{"secret", "po", "deploy", "pods"} {
		err := catalog.AddCRDs("crds.yaml", []byte(`{kind: CustomResourceDefinition, spec: {group: a.example,
			scope: Namespaced, names: {plural: `+plural+`, singular: `+plural+`, kind: X, shortNames: [nodes]}}}`))
		if err != nil {
			t.Fatal(err)
		}
	}
	for word, want := range map[string]string{
		"secret": "want one of secret, secrets", "po": "want one of po, pods",
		"deploy": "want one of deploy, deployments",
		// the name of one of them, or of one of Kubernetes' own
		"secret.a.example": "", "secrets": "", "pods": "", "nodes": "", "deployment": "",
	} {
		claim, err := ParseClaim(WantDeny, "any "+word, catalog)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("any %s: %+v, %v, want an error with %q", word, claim.Regions, err, want)
		}
		if word == "nodes" && claim.Regions[0].Resource != "nodes" {
			t.Errorf("any nodes: %+v", claim.Regions)
		}
	}
	for _, resources := range NewCatalog().groups {
		for name := range resources {
			if _, err := ParseClaim(WantDeny, "any "+name, NewCatalog()); err != nil {
				t.Errorf("any %s: %v, want that it is what it names", name, err)
			}
		}
	}
}

// TestProofsAreAboutEveryGroup: a resource that is writable in one of its groups is writable.
func TestProofsAreAboutEveryGroup(t *testing.T) {
	rules := []Rule{{User: "alice", APIGroup: "extensions", Resource: "deployments", Namespace: "*", Line: 1},
		{User: "alice", Resource: "secrets", Namespace: "*", Line: 2}}
	for text, line := range map[string]int{"write deployments": 1, "any secret": 2, "any Secret": 2,
		"write deployments.apps": 0} {
		claim, err := ParseClaim(WantDeny, text, NewCatalog())
		if err != nil {
			t.Fatal(err)
		}
		got := ProveDenied(rules, claim)
		if line == 0 && len(got) > 0 || line > 0 && (len(got) != 1 || got[0].Line != line) {
			t.Errorf("%s: %+v, want line %d", text, got, line)
		}
	}
}

// TestProofsAboutANamespaceAreAboutListsOverAll: a list or watch over all namespaces has none, and shows those of each.
func TestProofsAboutANamespaceAreAboutListsOverAll(t *testing.T) {
	rules := []Rule{{Group: "devs", Resource: "secrets", Readonly: true, Line: 1},
		{Group: "devs", Resource: "secrets", Namespace: "other", Line: 2},
		{Group: "devs", Resource: "nodes", Line: 3},
		{Group: "devs", APIGroup: "apps", Resource: "*", Line: 4}}
	for text, lines := range map[string][]int{
		"any secrets in kube-system":                     {1},
		"watch secrets in kube-system":                   {1},
		"any secrets in kube-system except group devs":   nil,
		"write secrets in kube-system":                   nil,
		"get pods/log in kube-system":                    nil,
		"any * in kube-system":                           {1, 4}, // nodes are in none
		"any *.apps in kube-system":                      {4},
		"read deployments.apps in kube-system":           {4},
		"read deployments.extensions in kube-system":     nil,
		"any controllerrevisions in a by group somebody": {4},
	} {
		claim, err := ParseClaim(WantDeny, text, NewCatalog())
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, v := range ProveDenied(rules, claim) {
			got = append(got, v.Line)
			if v.Example.Verb != "list" || v.Example.Namespace != "" {
				t.Errorf("%s: shown by %v, want a list over all namespaces", text, v.Example)
			}
		}
		if !slices.Equal(got, lines) {
			t.Errorf("%s: lines %v break it, want %v", text, got, lines)
		}
	}
}

// TestARuleForEveryGroupIsAboutTheNamesakes: nodes are in no namespace, but those of a custom resource may be.
func TestARuleForEveryGroupIsAboutTheNamesakes(t *testing.T) {
	rules := []Rule{{User: "bob", APIGroup: "*", Resource: "nodes", Readonly: true, Line: 1}}
	for _, scope := range []string{"Cluster", "Namespaced"} {
		catalog := NewCatalog()
		err := catalog.AddCRDs("crds.yaml", []byte(`{kind: CustomResourceDefinition, metadata: {name: nodes.longhorn.io},
			spec: {group: longhorn.io, scope: `+scope+`, version: v1, names: {plural: nodes, kind: Node}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"any * in storage", "any *.longhorn.io in storage"} {
			claim, err := ParseClaim(WantDeny, text, catalog)
			if err != nil {
				t.Fatal(err)
			}
			if proved := len(ProveDenied(rules, claim)) == 0; proved != (scope == "Cluster") {
				t.Errorf("%s: proved: %v where nodes.longhorn.io are %s", text, proved, scope)
			}
		}
	}
}

// randomClaim draws from the words of randomRule.
func randomClaim(r *rand.Rand) Claim {
	rule := randomRule(r)
	rule.User, rule.Group = "u", ""
	parts := rule.realParts()
	if len(parts) == 0 {
		return randomClaim(r)
	}
	var c Claim
	user, groups := []string{"*", "*", "alice", "bob"}[r.IntN(4)],
		[][]string{nil, nil, {"devs"}, {"devs", "ops"}}[r.IntN(4)]
	verbs := []Verbs{ReadVerbs, WriteVerbs, AllVerbs}[r.IntN(3)]
	for range 1 + r.IntN(2) {
		region := regionOf(parts[r.IntN(len(parts))], verbs)
		region.User, region.Groups = user, groups
		c.Regions = append(c.Regions, region)
	}
	switch r.IntN(4) {
	case 0:
		c.Except = append(c.Except, Subject{Kind: KindGroup, Name: "devs"})
	case 1:
		c.Except = append(c.Except, Subject{Kind: KindUser, Name: "alice"}, Subject{Kind: KindGroup, Name: "ops"})
	}
	return c
}

func about(c Claim, q Request) bool {
	return slices.ContainsFunc(c.Regions, func(r Region) bool { return r.Contains(q) })
}

// TestProofsAreRight asks, for random policies and claims, one request of every class, and compares with the proofs.
func TestProofsAreRight(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	requests := everyRequest()
	outcomes := map[string]int{}
	for range 60 {
		rules, claim := randomRules(r, r.IntN(4)), randomClaim(r)
		index := NewAuthorizer(rules)
		var allowed, refused []Request
		for _, q := range requests {
			if !about(claim, q) {
				continue
			}
			if _, ok := index.Match(q.Attributes()); !ok {
				refused = append(refused, q)
			} else if !claim.excludes(q) {
				allowed = append(allowed, q)
			}
		}
		text := fmt.Sprintf("%+v\n%s", claim, Format([]Section{{Rules: rules}}))
		violations := ProveDenied(rules, claim)
		if (len(violations) > 0) != (len(allowed) > 0) {
			t.Fatalf("ProveDenied finds %+v, allowed are %v, by %s", violations, allowed, text)
		}
		for _, v := range violations {
			if _, ok := index.Match(v.Example.Attributes()); !ok || !about(claim, v.Example) ||
				claim.excludes(v.Example) {
				t.Fatalf("ProveDenied shows %v, which is no counter-example of %s", v.Example, text)
			}
		}
		example, proved := ProveAllowed(rules, claim)
		if proved != (len(refused) == 0) {
			t.Fatalf("ProveAllowed = %v, %v, refused are %v, by %s", example, proved, refused, text)
		}
		if _, ok := index.Match(example.Attributes()); ok != proved || !about(claim, example) {
			t.Fatalf("ProveAllowed shows %v, which proves nothing about %s", example, text)
		}
		outcomes[fmt.Sprint(len(violations) > 0, proved)]++
	}
	if outcomes["false false"] == 0 || outcomes["true false"] == 0 || outcomes["true true"] == 0 {
		t.Errorf("outcomes %v: want denied, partly allowed and allowed claims", outcomes)
	}
}

func TestProveDeniedShowsRequestsAsServersGetThem(t *testing.T) {
	rules := []Rule{{Group: "devs", APIGroup: "apps", Resource: "*", Namespace: "*", Line: 3}}
	claim, err := ParseClaim(WantDeny, "write deployments.apps", NewCatalog())
	if err != nil {
		t.Fatal(err)
	}
	got := ProveDenied(rules, claim)
	want := Request{User: "somebody", Groups: []string{"devs", GroupAuthenticated}, Verb: "create", APIGroup: "apps",
		Resource: "deployments", Namespace: "some-namespace"}
	if len(got) != 1 || got[0].Line != 3 || !cmp.Equal(got[0].Example, want) {
		t.Errorf("ProveDenied = %+v, want one violation in line 3 with %v", got, want)
	}
}

func TestWhoListsEverySubject(t *testing.T) {
	rules := []Rule{
		{Group: "devs", Resource: "pods", Namespace: "*", Readonly: true, Line: 1},
		{User: "alice", Resource: "*", Namespace: "a", Line: 2},
		{User: "bob", Group: "ops", APIGroup: "*", Resource: "*", Namespace: "*", Line: 3},
		{User: "carol", NonResourcePath: "*", Line: 4},
		{Resource: "*", Namespace: "*", Line: 5},
		{User: "erin", Resource: "pods", Readonly: true, Line: 6},
	}
	who := func(q Request) []string {
		var names []string
		for _, r := range Who(rules, q) {
			names = append(names, r.Who)
		}
		return names
	}
	for _, test := range []struct {
		request Request
		want    []string
	}{
		{Request{Verb: "get", Resource: "pods", Namespace: "a"},
			[]string{`group "devs"`, `user "alice"`, `user "bob" in group "ops"`, `user "erin"`}},
		{Request{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "a"},
			[]string{`group "devs"`, `user "alice"`, `user "bob" in group "ops"`}},
		{Request{Verb: "create", Resource: "pods", Namespace: "b"}, []string{`user "bob" in group "ops"`}},
		{Request{Verb: "get", Path: "/metrics"}, []string{`user "carol"`}},
	} {
		if diff := cmp.Diff(test.want, who(test.request)); diff != "" {
			t.Errorf("Who(%v) (-want +got):\n%s", test.request, diff)
		}
	}
	var lines []int
	for _, r := range RulesOf(rules, Request{User: "alice", Groups: []string{"devs"}, Namespace: "b"}) {
		lines = append(lines, r.Line)
	}
	if !slices.Equal(lines, []int{1}) {
		t.Errorf("RulesOf(alice in devs, namespace b) = lines %v, want 1", lines)
	}
}

// FuzzParseClaim: what can be read of a claim can be claimed of a policy.
func FuzzParseClaim(f *testing.F) {
	for _, text := range []string{`write deployments.apps in kube-system except group admins`, `any secret`, `read /metrics`,
		`get pods in "" by user alice by group "a b" except serviceaccount kube-system:x`, `any *.apps`, `any *`, `"`, ``} {
		f.Add(text, false)
	}
	catalog := NewCatalog()
	f.Fuzz(func(t *testing.T, text string, allow bool) {
		want := WantDeny
		if allow {
			want = WantAllow
		}
		claim, err := ParseClaim(want, text, catalog)
		if err == nil && reflect.DeepEqual(claim, Claim{}) {
			t.Errorf("%q claims nothing", text)
		}
	})
}

// FuzzParseCases: each case that is read has what it needs to be decided.
func FuzzParseCases(f *testing.F) {
	for _, text := range []string{`{"user":"alice","verb":"get","resource":"pods","want":"allow"}`,
		"- {user: alice, verb: get, path: /metrics, want: deny}\n", "{}{}", "[", "- &a [*a, *a]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, err := ParseCases("cases.yaml", data)
		if err != nil {
			return
		}
		if len(cases) == 0 {
			t.Error("no case, and no error")
		}
		for _, c := range cases {
			if c.Want != WantAllow && c.Want != WantDeny {
				t.Errorf("a case that wants %q", c.Want)
			}
		}
	})
}

// FuzzReadAudit: a line that is no event is an error, and none is skipped.
func FuzzReadAudit(f *testing.F) {
	for _, text := range []string{`{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"get"}`,
		"\x1f\x8b", "{}\n{}", "\n\n", `{"kind":"Event"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		events := 0
		err := ReadAudit("audit.log", bytes.NewReader(data), func(AuditEvent) error { events++; return nil })
		if lines := bytes.Count(data, []byte("\n")) + 1; err == nil && events > lines &&
			!bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			t.Errorf("%d events of %d lines", events, lines)
		}
	})
}
