// Package abacdiff holds pkg/policy against the API server's own ABAC authorizer: the same files are read, the same
// requests decided. Run it with "make diff"; FUSIONCTL_DIFF_DECISIONS sets how many decisions are compared.
package abacdiff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/auth/authorizer/abac"

	"github.com/kubefusion/fusionctl/pkg/policy"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false) // the server warns about every unversioned line
	klog.SetOutput(discard{})
	os.Exit(m.Run())
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// readBoth reads one file with both readers. It fails the test when they disagree about whether it is a policy, or
// about its rules; nil, nil means that both refuse it.
func readBoth(t testing.TB, file string, data []byte) (abac.PolicyList, []policy.Rule) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, theirErr := abac.NewFromFile(file)
	ours, ourErr := policy.Parse("policy", bytes.NewReader(data))
	if (theirErr == nil) != (ourErr == nil) {
		t.Fatalf("server: %v\nParse: %v\nfile:\n%q", theirErr, ourErr, data)
	}
	if theirErr != nil {
		return nil, nil
	}
	if want, got := rulesOf(theirs), withoutLines(ours); !slices.Equal(want, got) {
		t.Fatalf("rules (-server +Parse):\n%s\nfile:\n%q", cmp.Diff(want, got), data)
	}
	return theirs, ours
}

func rulesOf(list abac.PolicyList) []policy.Rule {
	rules := make([]policy.Rule, len(list))
	for i, p := range list {
		s := p.Spec
		rules[i] = policy.Rule{
			User: s.User, Group: s.Group, Readonly: s.Readonly,
			APIGroup: s.APIGroup, Resource: s.Resource, Namespace: s.Namespace, NonResourcePath: s.NonResourcePath,
		}
	}
	return rules
}

func withoutLines(rules []policy.Rule) []policy.Rule {
	bare := make([]policy.Rule, len(rules))
	for i, r := range rules {
		r.Line = 0
		bare[i] = r
	}
	return bare
}

// chance builds random files and requests from few words, so that they meet.
type chance struct{ *rand.Rand }

func (c chance) pick(words ...string) string { return words[c.IntN(len(words))] }

// line is mostly a well-formed rule, and otherwise something that people or broken tools write.
func (c chance) line() string {
	field := func(name string, words ...string) string {
		word := c.pick(words...)
		if word == "" && c.IntN(4) > 0 {
			return ""
		}
		return fmt.Sprintf("%q:%q,", name, word)
	}
	spec := field("user", "", "", "alice", "bob", "*") +
		field("group", "", "devs", "ops", "system:authenticated", "*") +
		field("apiGroup", "", "apps", "*") +
		field("resource", "", "pods", "secrets", "pods/log", "*") +
		field("namespace", "", "a", "b", "*") +
		field("nonResourcePath", "", "", "/", "/api", "/api/*", "/api/v1*", "/api/v1/**", "*", "**", "/*", "*/x") +
		c.pick("", `"readonly":true,`, `"readonly":false,`, `"readonly":null,`)
	if c.IntN(15) == 0 {
		spec += c.pick(`"readOnly":true,`, `"Readonly":true,`, `"apigroup":"x",`, `"user":"carol",`, `"extra":{},`,
			`"user":7,`, `"readonly":"true",`, `"namespace":null,`, "\"user\":\"\xff\",")
	}
	spec = "{" + strings.TrimSuffix(spec, ",") + "}"
	version := `"apiVersion":"abac.authorization.kubernetes.io/v1beta1"`
	kind := `"kind":"Policy"`
	if c.IntN(10) == 0 {
		version = c.pick(`"apiVersion":"abac.authorization.kubernetes.io/v0"`,
			`"apiVersion":"abac.authorization.kubernetes.io/__internal"`,
			`"apiVersion":"abac.authorization.kubernetes.io/"`, `"apiVersion":"/"`, `"apiVersion":""`,
			`"apiVersion":"v1beta1"`, `"apiVersion":"a/b/c"`,
			`"apiVersion":"abac.authorization.kubernetes.io/v1"`,
			`"apiversion":"abac.authorization.kubernetes.io/v1beta1"`, `"apiVersion":7`, `"x":1`)
	}
	if c.IntN(15) == 0 {
		kind = c.pick(`"kind":"policy"`, `"kind":""`, `"Kind":"Policy"`, `"kind":"PolicyList"`, `"kind":null`, `"x":1`)
	}
	text := fmt.Sprintf("{%s,%s,%q:%s}", version, kind,
		c.pick("spec", "spec", "spec", "spec", "spec", "spec", "spec", "Spec"), spec)
	if c.IntN(20) == 0 { // a line of version 0 has its fields at the top
		text = strings.Replace(spec, "{", "{"+c.pick("", version+",", kind+","), 1)
		text = strings.Replace(text, ",}", "}", 1)
	}
	if c.IntN(20) == 0 { // the internal version has the names of Go
		for _, name := range []string{"spec", "user", "group", "apiGroup", "resource", "namespace", "nonResourcePath",
			"readonly"} {
			text = strings.ReplaceAll(text, `"`+name+`"`, `"`+strings.ToUpper(name[:1])+name[1:]+`"`)
		}
		text = strings.ReplaceAll(text, `"ApiGroup"`, `"APIGroup"`)
		text = strings.Replace(text, "v1beta1", "__internal", 1)
	}
	if c.IntN(25) == 0 {
		text = c.pick("{}", "null", "[]", "{", "user: alice", "- a", "user: [", `"text"`, "7", "true", "---",
			"\uFEFF"+text, text+text, text+" # why",
			text+"\x00", "// "+text, "\x00", "k8s\x00", "\uFEFF# comment", " "+text+"\t", "\v"+text, "\u00a0",
			"\u2028# x", "{"+text+"}", text[:len(text)/2])
	}
	return text
}

func (c chance) file() []byte {
	var b bytes.Buffer
	for range c.IntN(12) {
		b.WriteString(c.pick("", "", "", "", "", "\n", "# comment\n", "  \t\n", "\r\n"))
		b.WriteString(c.line())
		b.WriteString(c.pick("\n", "\n", "\n", "\r\n"))
	}
	if c.IntN(5) == 0 {
		b.WriteString(c.line()) // no line break at the end
	}
	return b.Bytes()
}

func (c chance) request() authorizer.Attributes {
	info := &user.DefaultInfo{Name: c.pick("", "alice", "bob", "carol", "*", "\uFFFD")}
	for range c.IntN(4) {
		info.Groups = append(info.Groups, c.pick("devs", "ops", "system:authenticated", "system:unauthenticated", "*",
			""))
	}
	a := &authorizer.AttributesRecord{User: info,
		Verb: c.pick("get", "list", "watch", "create", "update", "delete", "post", "head", "GET", "")}
	if c.IntN(40) == 0 {
		a.User = nil
	}
	if a.ResourceRequest = c.IntN(3) > 0; a.ResourceRequest || c.IntN(10) == 0 {
		a.APIGroup, a.Resource, a.Namespace = c.pick("", "apps", "x", "*"),
			c.pick("", "pods", "secrets", "pods/log", "*"), c.pick("", "a", "b", "c", "*")
		a.Subresource, a.Name = c.pick("", "log", "exec"), c.pick("", "x")
	}
	if !a.ResourceRequest || c.IntN(10) == 0 {
		a.Path = c.pick("", "/", "/api", "/api/", "/api/v1", "/api/v1/x", "/api/v1/**", "/apis", "*", "**", "/*", "api",
			"*/x")
	}
	return a
}

// TestReaderAgreesWithTheServer compares the two readers on files, most of them with something wrong.
func TestReaderAgreesWithTheServer(t *testing.T) {
	c := chance{rand.New(rand.NewPCG(1, 1))}
	file := filepath.Join(t.TempDir(), "policy")
	accepted, refused := 0, 0
	for range decisions(t) / 100 {
		if theirs, _ := readBoth(t, file, c.file()); theirs != nil {
			accepted++
		} else {
			refused++
		}
	}
	t.Logf("%d files read alike, %d refused by both", accepted, refused)
	if accepted < 100 || refused < 100 {
		t.Error("the files are too much alike to show anything")
	}
}

// TestReaderAgreesWithTheServerOnLongLines walks around the limit of 64 KiB.
func TestReaderAgreesWithTheServerOnLongLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy")
	for length := 65_536 - 6; length <= 65_536+6; length++ {
		line := strings.Repeat(" ", length-2) + "{}"
		for _, text := range []string{line, line + "\n", line + "\r\n", "{}\n" + line + "\n{}\n"} {
			readBoth(t, file, []byte(text))
		}
	}
}

// TestAuthorizerAgreesWithTheServer compares decisions and the rules that a user is told about.
func TestAuthorizerAgreesWithTheServer(t *testing.T) {
	c := chance{rand.New(rand.NewPCG(2, 2))}
	file := filepath.Join(t.TempDir(), "policy")
	want := decisions(t)
	compared, allowed := 0, 0
	for compared < want {
		theirs, ours := readBoth(t, file, c.file())
		if theirs == nil {
			continue
		}
		index := policy.NewAuthorizer(ours)
		for range 300 {
			a := c.request()
			if decide(t, theirs, index, a) {
				allowed++
			}
			compared++
		}
		info, namespace := c.request().GetUser(), c.pick("", "a", "b", "*")
		sameRules(t, theirs, index, info, namespace)
	}
	t.Logf("%d decisions, %d of them allow", compared, allowed)
	if allowed < compared/20 || allowed > compared/20*19 {
		t.Error("the requests are too much alike to show anything")
	}
}

func decide(t testing.TB, theirs abac.PolicyList, ours *policy.Authorizer, a authorizer.Attributes) bool {
	t.Helper()
	theirDecision, theirReason, _ := theirs.Authorize(t.Context(), a)
	ourDecision, ourReason, err := ours.Authorize(t.Context(), a)
	if theirDecision != ourDecision || theirReason != ourReason || err != nil {
		t.Fatalf("server: %v %q, ours: %v %q %v\nrequest: %+v of %+v\nrules: %+v", theirDecision, theirReason,
			ourDecision, ourReason, err, a, a.GetUser(), rulesOf(theirs))
	}
	return ourDecision == authorizer.DecisionAllow
}

func sameRules(t testing.TB, theirs abac.PolicyList, ours *policy.Authorizer, info user.Info, namespace string) {
	t.Helper()
	theirResources, theirPaths, theirIncomplete, theirErr := theirs.RulesFor(t.Context(), info, namespace)
	resources, paths, incomplete, err := ours.RulesFor(t.Context(), info, namespace)
	if diff := cmp.Diff([]any{theirResources, theirPaths, theirIncomplete, theirErr},
		[]any{resources, paths, incomplete, err}); diff != "" {
		t.Fatalf("RulesFor(%+v, %q) (-server +ours):\n%s", info, namespace, diff)
	}
}

// FuzzAgainstServer looks for a file that the two read differently, and for a request that they decide differently by
// it. Run it with: go test -fuzz FuzzAgainstServer
func FuzzAgainstServer(f *testing.F) {
	c := chance{rand.New(rand.NewPCG(3, 3))}
	for range 200 {
		f.Add(c.file(), uint64(c.IntN(1000)))
	}
	file := filepath.Join(f.TempDir(), "policy") // the calls of one process do not overlap
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		theirs, ours := readBoth(t, file, data)
		if theirs == nil {
			return
		}
		index := policy.NewAuthorizer(ours)
		c := chance{rand.New(rand.NewPCG(seed, seed))}
		for range 50 {
			decide(t, theirs, index, c.request())
			decide(t, theirs, index, requestNear(c, ours))
		}
	})
}

// requestNear is a request made of the words of the rules.
func requestNear(c chance, rules []policy.Rule) authorizer.Attributes {
	if len(rules) == 0 {
		return c.request()
	}
	rule := func() policy.Rule { return rules[c.IntN(len(rules))] }
	a := &authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: rule().User, Groups: []string{rule().Group, rule().Group}},
		Verb: c.pick("get", "create"), ResourceRequest: c.IntN(2) == 0,
		APIGroup: rule().APIGroup, Resource: rule().Resource, Namespace: rule().Namespace,
		Path: strings.TrimSuffix(rule().NonResourcePath, "*") + c.pick("", "x", "*"),
	}
	return a
}

// decisions is how many decisions the random tests compare.
func decisions(t testing.TB) int {
	text := os.Getenv("FUSIONCTL_DIFF_DECISIONS")
	if text == "" {
		return 2_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("FUSIONCTL_DIFF_DECISIONS: %q: want a number of decisions", text)
	}
	return n
}

// bulk is a policy of n lines in the usual proportions, and requests all over it.
func bulk(n int) (lines []byte, requests []authorizer.Attributes) {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b,
			`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"user-%d","namespace":"team-%d","resource":"things%d","apiGroup":"g%d.example.com"}}`+"\n", i, i/10, i%100, i%50)
	}
	for k := range 200 {
		i := k * 7919 % n
		requests = append(requests,
			&authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: fmt.Sprintf("user-%d", i),
					Groups: []string{"devs", "system:authenticated"}}, Verb: "get", ResourceRequest: true,
				APIGroup: fmt.Sprintf("g%d.example.com", i%50), Resource: fmt.Sprintf("things%d", i%100),
				Namespace: fmt.Sprintf("team-%d", i/10),
			},
			&authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "stranger", Groups: []string{"system:authenticated"}}, Verb: "get",
				ResourceRequest: true, Resource: "pods", Namespace: "default",
			})
	}
	return b.Bytes(), requests
}

// BenchmarkIndexAgainstTheServersWalk reports how much the index gains over the server's walk through all lines, and
// holds it to gaining something at 1,000 lines and a lot at 100,000. Only ratios within this run are compared.
func BenchmarkIndexAgainstTheServersWalk(b *testing.B) {
	want := map[int]float64{10: 0, 1_000: 4, 100_000: 400}
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("lines=%d", n), func(b *testing.B) {
			data, requests := bulk(n)
			theirs, ours := readBoth(b, filepath.Join(b.TempDir(), "policy"), data)
			index := policy.NewAuthorizer(ours)
			walk, lookup := time.Hour, time.Hour // of all requests, the best round
			for b.Loop() {
				walk, lookup = min(walk, cost(b, theirs, requests)), min(lookup, cost(b, index, requests))
			}
			ratio := float64(walk) / float64(lookup)
			b.ReportMetric(ratio, "times")
			if ratio < want[n] {
				b.Errorf("the index is %.1f times as fast as the walk, want at least %.0f times", ratio, want[n])
			}
		})
	}
}

func cost(b *testing.B, by authorizer.Authorizer, requests []authorizer.Attributes) time.Duration {
	start := time.Now()
	for _, a := range requests {
		if _, _, err := by.Authorize(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

func BenchmarkDecision(b *testing.B) {
	for _, n := range []int{10, 1_000, 100_000} {
		data, requests := bulk(n)
		theirs, ours := readBoth(b, filepath.Join(b.TempDir(), "policy"), data)
		for name, by := range map[string]authorizer.Authorizer{"server": theirs, "index": policy.NewAuthorizer(ours)} {
			b.Run(fmt.Sprintf("lines=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					if _, _, err := by.Authorize(b.Context(), requests[i%len(requests)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
