package policy_test

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubefusion/fusionctl/pkg/policy"
)

const file = `# developers
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","apiGroup":"apps","resource":"deployments","namespace":"a"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","resource":"configmaps","namespace":"*","readonly":true}}
`

// A policy is read as the API server reads it, and decides requests as the server would.
func Example() {
	rules, err := policy.Parse("policy.jsonl", strings.NewReader(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	decide := policy.NewAuthorizer(rules)
	rule, ok := decide.Match(authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "alice", Groups: []string{"devs"}},
		Verb: "create", ResourceRequest: true, APIGroup: "apps", Resource: "deployments", Namespace: "a",
	})
	fmt.Println(ok, rule.Line)
	// Output: true 2
}

// A line without apiVersion is the worst of the traps: the server takes it for a rule that allows everything.
func ExampleValidate() {
	report, err := policy.Validate("policy.jsonl",
		strings.NewReader(`{"kind":"Policy","spec":{"user":"alice","resource":"configmaps","namespace":"a"}}`),
		policy.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		fmt.Printf("%s:%d:%d: %s %s\n", f.File, f.Line, f.Column, f.Severity, f.Rule)
	}
	os.Stdout.Write(report.Fixed)
	// Output: policy.jsonl:1:1: error FUS150
	// policy.jsonl:1:1: warning FUS216
	// {"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","apiGroup":"","resource":"configmaps","namespace":"a"}}
}

func ExampleGenerate() {
	sections, err := policy.Generate(policy.Intent{Grants: []policy.Grant{{
		Subjects:  []policy.Subject{{Kind: policy.KindServiceAccount, Namespace: "ci", Name: "bot"}},
		APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Namespaces: []string{"a"},
		Why: "The delivery deploys.",
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Stdout.Write(policy.Format(sections))
	// Output:
	// # The delivery deploys.
	// {"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"system:serviceaccount:ci:bot","apiGroup":"apps","resource":"deployments","namespace":"a"}}
	// {"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"system:serviceaccount:ci:bot","apiGroup":"apps","resource":"statefulsets","namespace":"a"}}
}

// The difference of two policies is a few sentences, however many requests they are about.
func ExampleCompare() {
	before := []policy.Rule{{Group: "devs", APIGroup: "apps", Resource: "deployments", Namespace: "*", Readonly: true}}
	after := []policy.Rule{{Group: "devs", APIGroup: "apps", Resource: "*", Namespace: "*", Readonly: true}}
	for _, e := range policy.Compare(before, after).Gained {
		fmt.Println(e)
	}
	// Output: group "devs" may read every resource of group apps, except: read deployments.apps
}

func ExampleProveDenied() {
	rules, err := policy.Parse("policy.jsonl", strings.NewReader(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"any secrets", "write deployments.apps"} {
		claim, err := policy.ParseClaim(policy.WantDeny, text, policy.NewCatalog())
		if err != nil {
			fmt.Println(err)
			return
		}
		violations := policy.ProveDenied(rules, claim)
		fmt.Println(text, len(violations) == 0)
		for _, v := range violations {
			fmt.Printf("line %d: %s\n", v.Line, v.Example)
		}
	}
	// Output:
	// any secrets true
	// write deployments.apps false
	// line 2: user "somebody" in "devs", "system:authenticated": create deployments.apps in namespace "a"
}
