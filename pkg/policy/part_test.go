package policy

import (
	"math/rand/v2"
	"testing"
)

// randomRule draws from few words, so that rules meet, cover and equal each other.
func randomRule(r *rand.Rand) Rule {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	return Rule{
		User:            pick("", "", "", "alice", "bob", "*"),
		Group:           pick("", "devs", "ops", GroupAuthenticated, "*"),
		Readonly:        r.IntN(2) == 0,
		APIGroup:        pick("", "apps", "*"),
		Resource:        pick("", "pods", "secrets", "*"),
		Namespace:       pick("", "a", "b", "*"),
		NonResourcePath: pick("", "", "/", "/api", "/api/*", "/api/v1*", "/api/v1/**", "*", "/*"),
	}
}

func randomRules(r *rand.Rand, n int) []Rule {
	rules := make([]Rule, n)
	for i := range rules {
		rules[i] = randomRule(r)
		rules[i].Line = i + 1
	}
	return rules
}

func TestPartSetKnowsWhatItsPartsCover(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		rules := randomRules(r, r.IntN(6))
		set := newPartSet(rules)
		for _, p := range randomRule(r).parts() {
			want := false
			for _, rule := range rules {
				for _, q := range rule.parts() {
					want = want || q.covers(p)
				}
			}
			if got := set.covers(p); got != want {
				t.Fatalf("covers(%+v) = %v, want %v, by %v", p, got, want, rules)
			}
		}
	}
}
