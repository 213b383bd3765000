package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseClaim(t *testing.T) {
	anything := Region{User: "*", Verbs: WriteVerbs, APIGroup: "*", Resource: "*", Namespace: "*"}
	with := func(change func(*Claim)) Claim {
		c := Claim{Region: anything}
		change(&c)
		return c
	}
	tests := map[string]Claim{
		"write *":                with(func(*Claim) {}),
		"write deployments.apps": with(func(c *Claim) { c.Region.APIGroup, c.Region.Resource = "apps", "deployments" }),
		"delete deployments":     with(func(c *Claim) { c.Region.APIGroup, c.Region.Resource = "apps", "deployments" }),
		"write deployments.":     with(func(c *Claim) { c.Region.APIGroup, c.Region.Resource = "", "deployments" }),
		"list *.apps in a":       with(func(c *Claim) { c.Region.Verbs, c.Region.APIGroup, c.Region.Namespace = ReadVerbs, "apps", "a" }),
		`any nodes in ""`: with(func(c *Claim) {
			c.Region.Verbs, c.Region.APIGroup, c.Region.Resource, c.Region.Namespace = AllVerbs, "", "nodes", ""
		}),
		"create pods/exec":                  with(func(c *Claim) { c.Region.Verbs, c.Region.APIGroup, c.Region.Resource = AllVerbs, "", "pods" }),
		"create pods/log":                   with(func(c *Claim) { c.Region.APIGroup, c.Region.Resource = "", "pods" }),
		"read /debug/*":                     {Region: Region{User: "*", Verbs: ReadVerbs, Path: "/debug/*"}},
		"write * by user al":                with(func(c *Claim) { c.Region.User = "al" }),
		`write * by group "D U" by group a`: with(func(c *Claim) { c.Region.Groups = []string{"D U", "a"} }),
		"write * by serviceaccount ns:sa except group ops except user bob": with(func(c *Claim) {
			c.Region.User = "system:serviceaccount:ns:sa"
			c.Except = []Subject{{Kind: KindGroup, Name: "ops"}, {Kind: KindUser, Name: "bob"}}
		}),
	}
	for text, want := range tests {
		got, err := ParseClaim(text, NewCatalog())
		if err != nil {
			t.Errorf("ParseClaim(%q): %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseClaim(%q) (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"":                               "want VERB WHAT",
		"write":                          "want VERB WHAT",
		"Write pods":                     `verb "Write"`,
		"write pods on a":                `"on": want in, by or except`,
		"write pods in":                  `nothing after "in"`,
		"write /x in a":                  "is in no namespace",
		"write pods by alice":            `after "by": want user NAME`,
		"write pods by team devs":        `"team": want user, group or serviceaccount`,
		"write pods by user a by user b": "a request has one",
		"write pods by serviceaccount x": "want NAMESPACE:NAME",
		`write "pods`:                    "a quote is not closed",
		"write .apps":                    "want RESOURCE[.GROUP]",
	} {
		if _, err := ParseClaim(text, NewCatalog()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseClaim(%q) = %v, want an error with %q", text, err, want)
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
	c := Claim{Region: regionOf(parts[r.IntN(len(parts))], []Verbs{ReadVerbs, WriteVerbs, AllVerbs}[r.IntN(3)])}
	c.Region.User = []string{"*", "*", "alice", "bob"}[r.IntN(4)]
	c.Region.Groups = [][]string{nil, nil, {"devs"}, {"devs", "ops"}}[r.IntN(4)]
	switch r.IntN(4) {
	case 0:
		c.Except = append(c.Except, Subject{Kind: KindGroup, Name: "devs"})
	case 1:
		c.Except = append(c.Except, Subject{Kind: KindUser, Name: "alice"}, Subject{Kind: KindGroup, Name: "ops"})
	}
	return c
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
			if !claim.Region.Contains(q) {
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
			if _, ok := index.Match(v.Example.Attributes()); !ok || !claim.Region.Contains(v.Example) || claim.excludes(v.Example) {
				t.Fatalf("ProveDenied shows %v, which is no counter-example of %s", v.Example, text)
			}
		}
		example, proved := ProveAllowed(rules, claim)
		if proved != (len(refused) == 0) {
			t.Fatalf("ProveAllowed = %v, %v, refused are %v, by %s", example, proved, refused, text)
		}
		if _, ok := index.Match(example.Attributes()); ok != proved || !claim.Region.Contains(example) {
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
	claim, err := ParseClaim("write deployments.apps", NewCatalog())
	if err != nil {
		t.Fatal(err)
	}
	got := ProveDenied(rules, claim)
	want := Request{User: "somebody", Groups: []string{"devs", GroupAuthenticated}, Verb: "create", APIGroup: "apps", Resource: "deployments", Namespace: "some-namespace"}
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
		{Request{Verb: "get", Resource: "pods", Namespace: "a"}, []string{`group "devs"`, `user "alice"`, `user "bob" in group "ops"`}},
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
