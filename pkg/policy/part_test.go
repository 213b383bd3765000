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
		set := newPartSet(realParts(rules))
		for _, p := range randomRule(r).realParts() {
			want := false
			for _, rule := range rules {
				for _, q := range rule.realParts() {
					want = want || q.covers(p)
				}
			}
			if got := set.covers(p); got != want {
				t.Fatalf("covers(%+v) = %v, want %v, by %v", p, got, want, rules)
			}
		}
	}
}

func TestMinimalAllowsTheSameWithFewerRules(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		rules := randomRules(r, r.IntN(10))
		var kept []Rule
		for _, i := range minimal(rules) {
			kept = append(kept, rules[i])
		}
		if c := Compare(rules, kept); len(c.Gained)+len(c.Lost) > 0 {
			t.Fatalf("minimal changes what is allowed: %+v\n%s", c, Format([]Section{{Rules: rules}}))
		}
		for i := range kept {
			without := append(append([]Rule{}, kept[:i]...), kept[i+1:]...)
			if c := Compare(kept, without); len(c.Lost) == 0 {
				t.Fatalf("minimal keeps %v, which the others cover:\n%s", kept[i], Format([]Section{{Rules: rules}}))
			}
		}
	}
}

// covers reports whether p allows every request that q allows.
func (p part) covers(q part) bool {
	return p.user.covers(q.user) && p.group.covers(q.group) && (p.write || !q.write) && p.object.covers(q.object)
}
