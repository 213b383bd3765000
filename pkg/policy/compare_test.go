package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyRequest lists one request of every class that rules made by randomRule can tell apart: each word that they use
// and a fresh one in every field, every set of groups, a read and a write.
func everyRequest() []Request {
	var requests []Request
	groups := []string{"devs", "ops", GroupAuthenticated, "others"}
	for _, user := range []string{"alice", "bob", "carol"} {
		for set := range 1 << len(groups) {
			var in []string
			for i, group := range groups {
				if set&(1<<i) != 0 {
					in = append(in, group)
				}
			}
			for _, verb := range []string{"get", "create"} {
				q := Request{User: user, Groups: in, Verb: verb}
				for _, q.APIGroup = range []string{"", "apps", "other"} {
					for _, q.Resource = range []string{"pods", "secrets", "others"} {
						for _, q.Namespace = range []string{"", "a", "b", "other"} {
							requests = append(requests, q)
						}
					}
				}
				q.APIGroup, q.Resource, q.Namespace = "", "", ""
				for _, q.Path = range []string{"/", "/x", "/api", "/api/", "/api/x", "/api/v1", "/api/v1/", "/api/v1x",
					"/api/v1/x", "x", "*"} {
					requests = append(requests, q)
				}
			}
		}
	}
	return requests
}

// TestCompareIsExact checks, for every class of requests, that the comparison says "gained" or "lost" exactly where the
// two policies decide differently.
func TestCompareIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	requests := everyRequest()
	for range 60 {
		before, after := randomRules(r, r.IntN(6)), randomRules(r, r.IntN(6))
		if r.IntN(2) == 0 { // policies that are mostly the same
			after = append(after, before...)
		}
		comparison := Compare(before, after)
		was, is := NewAuthorizer(before), NewAuthorizer(after)
		for _, q := range requests {
			_, allowedBefore := was.Match(q.Attributes())
			_, allowedAfter := is.Match(q.Attributes())
			if got, want := contains(comparison.Gained, q), allowedAfter && !allowedBefore; got != want {
				t.Fatalf("%v: gained = %v, want %v\n%s", q, got, want, explain(before, after, comparison))
			}
			if got, want := contains(comparison.Lost, q), allowedBefore && !allowedAfter; got != want {
				t.Fatalf("%v: lost = %v, want %v\n%s", q, got, want, explain(before, after, comparison))
			}
		}
		for _, e := range comparison.Gained {
			_, allowedBefore := was.Match(e.Example.Attributes())
			_, allowedAfter := is.Match(e.Example.Attributes())
			if allowedBefore || !allowedAfter {
				t.Fatalf("example %v of %v: allowed before: %v, after: %v\n%s", e.Example, e, allowedBefore,
					allowedAfter, explain(before, after, comparison))
			}
		}
	}
}

func contains(excesses []Excess, q Request) bool {
	in := func(r Region) bool { return r.Contains(q) }
	return slices.ContainsFunc(excesses, func(e Excess) bool {
		return in(e.Region) && !slices.ContainsFunc(e.Except, in) && !slices.ContainsFunc(e.Others, in)
	})
}

func explain(before, after []Rule, c Comparison) string {
	text, _ := json.MarshalIndent(c, "", "  ")
	return fmt.Sprintf("before:\n%safter:\n%s%s", Format([]Section{{Rules: before}}), Format([]Section{{Rules: after}}),
		text)
}

func TestCompareSaysItInFewWords(t *testing.T) {
	everything := Rule{Group: "devs", APIGroup: "*", Resource: "*", Namespace: "*", NonResourcePath: "*", Line: 1}
	tests := []struct {
		name          string
		before, after []Rule
		gained, lost  []string
	}{
		{"nothing", []Rule{everything}, []Rule{everything, {Group: "devs", Resource: "pods", Line: 2}}, nil, nil},
		{"a rule", nil, []Rule{{User: "alice", Resource: "pods", Namespace: "a", Readonly: true}},
			[]string{`user "alice" may read pods in namespace "a"`}, nil},
		{"writes", []Rule{{Group: "devs", APIGroup: "apps", Resource: "deployments", Namespace: "*", Readonly: true}},
			[]Rule{{Group: "devs", APIGroup: "apps", Resource: "*", Namespace: "*"}},
			[]string{`group "devs" may read and write every resource of group apps, except: read deployments.apps`},
			nil},
		{"readonly fixed", []Rule{{Group: "devs", Resource: "pods", Namespace: "*"}},
			[]Rule{{Group: "devs", Resource: "pods", Namespace: "*", Readonly: true}},
			nil, []string{`group "devs" may write pods`}},
		{"narrowed", []Rule{everything}, []Rule{{Group: "devs", APIGroup: "apps", Resource: "*", Namespace: "*"}},
			nil, []string{`group "devs" may read and write every resource, except: read and write every resource of group apps`, `group "devs" may read and write every path`}},
		{"paths", []Rule{{Group: "devs", NonResourcePath: "/api/*"}}, []Rule{{Group: "devs", NonResourcePath: "/api*"}},
			[]string{`group "devs" may read and write path "/api*", except: read and write path "/api/*"`}, nil},
		{"another group", []Rule{{Group: "ops", Resource: "pods", Namespace: "*"}},
			[]Rule{{Group: "devs", Resource: "pods", Namespace: "*"}},
			[]string{`group "devs" may read and write pods`}, []string{`group "ops" may read and write pods`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Compare(test.before, test.after)
			if diff := cmp.Diff([][]string{test.gained, test.lost},
				[][]string{sentences(c.Gained), sentences(c.Lost)}); diff != "" {
				t.Errorf("Compare (-want +got):\n%s", diff)
			}
		})
	}
}

func sentences(excesses []Excess) []string {
	var sentences []string
	for _, e := range excesses {
		sentences = append(sentences, e.String())
	}
	return sentences
}

// TestCompareMarksWhatAuthenticationRulesOut: alice is always in system:authenticated, so a rule of her own adds
// nothing.
func TestCompareMarksWhatAuthenticationRulesOut(t *testing.T) {
	everyone := Rule{Group: GroupAuthenticated, Resource: "pods", Namespace: "*"}
	alice := Rule{User: "alice", Resource: "pods", Namespace: "*"}
	anonymous := Rule{User: UserAnonymous, Resource: "pods", Namespace: "*"}
	c := Compare([]Rule{everyone}, []Rule{everyone, alice, anonymous})
	got := map[string]bool{}
	for _, e := range c.Gained {
		got[e.Region.User] = e.Unlikely
	}
	if diff := cmp.Diff(map[string]bool{"alice": true, UserAnonymous: false}, got); diff != "" {
		t.Errorf("Unlikely (-want +got):\n%s", diff)
	}
}

func TestCompareOfLargePoliciesIsQuick(t *testing.T) {
	before := manyRules(5_000)
	after := slices.Concat(before[:4_500], []Rule{{User: "alice", APIGroup: "*", Resource: "*", Namespace: "*"}})
	c := Compare(before, after)
	if len(c.Gained) == 0 || len(c.Lost) == 0 {
		t.Errorf("Compare: %d gained, %d lost, want some of each", len(c.Gained), len(c.Lost))
	}
}

func TestRegionsReadAsSentences(t *testing.T) {
	for want, r := range map[string]Region{
		`everybody may read every path`: {User: "*", Verbs: ReadVerbs,
			Path: "*"},
		`group "a" may read and write pods without a namespace`: {
			User: "*", Groups: []string{"a"}, Verbs: AllVerbs, Resource: "pods"},
		`members of groups "a", "b" and "c" may write every resource in namespace "n"`: {User: "*",
			Groups: []string{"a", "b", "c"}, Verbs: WriteVerbs, APIGroup: "*", Resource: "*", Namespace: "n"},
		`user "u" in groups "a" and "b" may read every resource of the core group`: {
			User: "u", Groups: []string{"a", "b"}, Verbs: ReadVerbs, Resource: "*", Namespace: "*"},
		`user "u" in group "a" may write deployments of every group`: {User: "u", Groups: []string{"a"},
			Verbs: WriteVerbs, APIGroup: "*", Resource: "deployments", Namespace: "*"},
		`user "u" may write path "/x*"`: {User: "u", Verbs: WriteVerbs, Path: "/x*"},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v = %s, want %s", r, got, want)
		}
	}
}
