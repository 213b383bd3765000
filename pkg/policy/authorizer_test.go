package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows is the language in its plainest form, rule by rule; the index must agree with it. test/abacdiff compares the
// index with the server's own authorizer.
func allows(r Rule, a authorizer.Attributes) bool {
	if !r.matchesSubject(a.GetUser()) || (r.Readonly && !a.IsReadOnly()) {
		return false
	}
	if a.IsResourceRequest() {
		return (r.Namespace == "*" || r.Namespace == a.GetNamespace()) &&
			(r.Resource == "*" || r.Resource == a.GetResource()) &&
			(r.APIGroup == "*" || r.APIGroup == a.GetAPIGroup())
	}
	return r.NonResourcePath == a.GetPath() ||
		(strings.HasSuffix(r.NonResourcePath, "*") &&
			strings.HasPrefix(a.GetPath(), strings.TrimRight(r.NonResourcePath, "*")))
}

func randomRequest(r *rand.Rand) authorizer.AttributesRecord {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	info := &user.DefaultInfo{Name: pick("", "alice", "bob", "carol", "*")}
	for range r.IntN(4) {
		info.Groups = append(info.Groups, pick("devs", "ops", GroupAuthenticated, "others", "*"))
	}
	a := authorizer.AttributesRecord{User: info,
		Verb: pick("get", "list", "watch", "create", "delete", "post", "head", "")}
	if a.ResourceRequest = r.IntN(3) > 0; a.ResourceRequest {
		a.APIGroup, a.Resource, a.Namespace = pick("", "apps", "other", "*"), pick("", "pods", "secrets", "other", "*"),
			pick("", "a", "b", "other", "*")
		a.Subresource, a.Name = pick("", "log"), pick("", "x")
	} else {
		a.Path = pick("", "/", "/api", "/api/", "/api/v1", "/api/v1/x", "/apis", "*", "/*", "api", "/api/v1*")
	}
	return a
}

func TestAuthorizerAgreesWithThePlainReading(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		rules := randomRules(r, r.IntN(8))
		index := NewAuthorizer(rules)
		for range 50 {
			a := randomRequest(r)
			var want Rule
			for _, rule := range rules {
				if allows(rule, a) {
					want = rule
					break
				}
			}
			if got, ok := index.Match(a); got != want || ok != (want != Rule{}) {
				t.Fatalf("Match(%+v, %+v) = %v, %v, want %v of\n%s", a.User, a, got, ok, want,
					Format([]Section{{Rules: rules}}))
			}
		}
	}
}

func TestAuthorizerHasNoOpinionWithoutAUser(t *testing.T) {
	index := NewAuthorizer([]Rule{{User: "*", APIGroup: "*", Resource: "*", Namespace: "*"}})
	decision, reason, err := index.Authorize(t.Context(), authorizer.AttributesRecord{ResourceRequest: true})
	if decision != authorizer.DecisionNoOpinion || reason == "" || err != nil {
		t.Errorf("Authorize without a user = %v, %q, %v, want no opinion", decision, reason, err)
	}
}

func TestPrefixTreeFindsEveryPrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	word := func() string {
		b := make([]byte, r.IntN(7))
		for i := range b {
			b[i] = "ab/"[r.IntN(3)]
		}
		return string(b)
	}
	for range 2000 {
		ids := wordIDs{}
		for range r.IntN(12) {
			ids.add(word())
		}
		tree := newPrefixTree(ids)
		path := word() + word()
		var want, got []uint32
		for end := range len(path) + 1 {
			if id := ids[path[:end]]; id != 0 {
				want = append(want, id)
			}
		}
		for walk := tree.walk(path); walk.next(); {
			got = append(got, walk.id)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("walk(%q) found %v, want %v of %v", path, got, want, ids)
		}
	}
}

// manyRules is a policy of n rules of every shape: users, groups, both; words and stars; whole paths and prefixes.
func manyRules(n int) []Rule {
	rules := make([]Rule, n)
	for i := range rules {
		rule := Rule{Readonly: i%2 == 0, APIGroup: fmt.Sprintf("group-%d.example.com", i%50),
			Resource: fmt.Sprintf("things%d", i%100), Namespace: fmt.Sprintf("team-%d", i)}
		switch i % 4 {
		case 0:
			rule.User = fmt.Sprintf("user-%d", i)
		case 1:
			rule.Group = fmt.Sprintf("group-%d", i%1000)
		case 2:
			rule.User, rule.Group = fmt.Sprintf("user-%d", i), GroupAuthenticated
		default:
			rule.Group = GroupAuthenticated
		}
		switch i % 7 {
		case 0:
			rule.Namespace = "*"
		case 1:
			rule.Resource = "*"
		case 2:
			rule.APIGroup = "*"
		case 3:
			rule = Rule{User: rule.User, Group: rule.Group, Readonly: true,
				NonResourcePath: fmt.Sprintf("/apis/group-%d.example.com/*", i)}
		}
		rules[i] = rule
	}
	return rules
}

// benchRequests are requests all over a policy of n manyRules, allowed and refused, with as many groups as real users
// have.
func benchRequests(n int) []authorizer.Attributes {
	var requests []authorizer.Attributes
	for k := range 500 {
		i := k * 7919 % n
		info := func(name string) user.Info {
			return &user.DefaultInfo{Name: name,
				Groups: []string{fmt.Sprintf("group-%d", i%1000), "group-5", "group-without-rules", GroupAuthenticated}}
		}
		resource := authorizer.AttributesRecord{
			User: info(fmt.Sprintf("user-%d", i)), Verb: "get", ResourceRequest: true,
			APIGroup: fmt.Sprintf("group-%d.example.com", i%50), Resource: fmt.Sprintf("things%d", i%100),
			Namespace: fmt.Sprintf("team-%d", i),
		}
		refused := resource
		refused.Verb, refused.APIGroup, refused.Resource = "delete", "", "pods"
		stranger := resource
		stranger.User = info("stranger")
		requests = append(requests, resource, refused, stranger,
			authorizer.AttributesRecord{User: info("stranger"), Verb: "get",
				Path: fmt.Sprintf("/apis/group-%d.example.com/v1", i)},
			authorizer.AttributesRecord{User: info("stranger"), Verb: "get", Path: "/healthz"})
	}
	return requests
}

func TestAuthorizeAllocatesNothing(t *testing.T) {
	for _, n := range []int{10, 1000, 100_000} {
		index := NewAuthorizer(manyRules(n))
		requests := benchRequests(n)
		got := testing.AllocsPerRun(10, func() {
			for _, a := range requests {
				index.Authorize(t.Context(), a)
			}
		})
		if got != 0 {
			t.Errorf("%d decisions by %d rules allocate %v times, want 0", len(requests), n, got)
		}
	}
}

// BenchmarkAuthorizeCostsTheSameForAnySize compares the sizes within one run, so that a slow machine does not matter,
// and takes the best of many rounds, so that a busy one does not. A linear walk would be thousands of times slower with
// 100,000 rules; that they do not fit into the processor's caches is why the bound is not 1.
func BenchmarkAuthorizeCostsTheSameForAnySize(b *testing.B) {
	best := [2]time.Duration{time.Hour, time.Hour}
	var indices [2]*Authorizer
	var requests [2][]authorizer.Attributes
	for i, n := range []int{10, 100_000} {
		indices[i], requests[i] = NewAuthorizer(manyRules(n)), benchRequests(n)
	}
	for b.Loop() {
		for i, index := range indices {
			start := time.Now()
			for _, a := range requests[i] {
				index.Authorize(b.Context(), a)
			}
			best[i] = min(best[i], time.Since(start)/time.Duration(len(requests[i])))
		}
	}
	ratio := float64(best[1]) / float64(best[0])
	b.ReportMetric(ratio, "times")
	if ratio > 12 || best[1] > 10*time.Microsecond {
		b.Errorf("a decision by 100,000 rules takes %v, by 10 rules %v; want about the same, and a microsecond",
			best[1], best[0])
	}
}

func BenchmarkAuthorize(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			index := NewAuthorizer(manyRules(n))
			requests := benchRequests(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				index.Authorize(b.Context(), requests[i%len(requests)])
			}
		})
	}
}

func BenchmarkNewAuthorizer(b *testing.B) {
	rules := manyRules(100_000)
	b.ReportAllocs()
	for b.Loop() {
		NewAuthorizer(rules)
	}
}
