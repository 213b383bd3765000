package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestProveSaysWhatRefutesAClaim(t *testing.T) {
	rules, err := Parse("p.jsonl", strings.NewReader(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1",`+
		`"kind":"Policy","spec":{"user":"alice","resource":"pods","namespace":"*","readonly":true}}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		want           Want
		text           string
		proved         bool
		violations     int
		refusedRequest bool
	}{
		{WantDeny, "write pods", true, 0, false},
		{WantDeny, "read pods", false, 1, false},
		{WantDeny, `read pods except user alice`, true, 0, false},
		{WantAllow, "read pods in a by user alice", true, 0, false},
		{WantAllow, "read pods in a by user bob", false, 0, true},
	} {
		claim, err := ParseClaim(test.want, test.text, NewCatalog())
		if err != nil {
			t.Fatal(err)
		}
		proof := Prove(rules, test.want, test.text, claim)
		if proof.Proved != test.proved || len(proof.Violations) != test.violations ||
			(proof.Refused != nil) != test.refusedRequest || proof.Claim != test.text || len(proof.Regions) == 0 {
			t.Errorf("%s %s: %+v", test.want, test.text, proof)
		}
	}
}

// TestProofsNameWhoImpersonates: whoever acts as an excepted subject, or as system:masters, is not in the proof.
func TestProofsNameWhoImpersonates(t *testing.T) {
	rules := []Rule{{User: "bot", Resource: "groups", Line: 1},
		{User: "bot", Resource: "users", Namespace: "*", Line: 2},
		{User: "bot", Resource: "serviceaccounts", Namespace: "a", Line: 3},
		{User: "bot", APIGroup: "authentication.k8s.io", Resource: "*", Line: 4},
		{Group: "admins", APIGroup: "*", Resource: "*", Namespace: "*", Line: 5},
		{User: "viewer", Resource: "*", Readonly: true, Line: 6},
		{User: "bot", Resource: "groups", Namespace: "a", Line: 7},
		{User: "bot", APIGroup: "apps", Resource: "users", Line: 8}}
	for text, want := range map[string][]int{
		"write secrets except group admins":                 {1, 2, 3, 4},
		"write secrets except group admins except user bot": nil,
		"write /metrics except user x":                      {1, 2, 3, 4, 5},
		"write secrets by user alice except group admins":   nil,
		"write secrets": nil, // refuted
	} {
		claim, err := ParseClaim(WantDeny, text, NewCatalog())
		if err != nil {
			t.Fatal(err)
		}
		proof := Prove(rules, WantDeny, text, claim)
		var got []int
		for _, v := range proof.Impersonation {
			got = append(got, v.Line)
			if v.Example.Verb != "impersonate" {
				t.Errorf("%s: shown by %v", text, v.Example)
			}
		}
		if !slices.Equal(got, want) || proof.Proved == (text == "write secrets") {
			t.Errorf("%s: proved %v, impersonation by lines %v, want %v", text, proof.Proved, got, want)
		}
	}
}

func TestCompleteReadsAResourceAsKubectlDoes(t *testing.T) {
	for _, test := range []struct {
		q       Request
		written string
		all     bool
		want    string // the request, and the notes
	}{
		{Request{}, "pods", false, "pods in default"},
		{Request{Namespace: "a"}, "pods/exec", false, "pods/exec in a"},
		{Request{Namespace: "a"}, "pods", true, "pods in "},
		{Request{}, "deployments", false, "apps deployments in default; deployments is read as deployments.apps"},
		{Request{}, "deployments.apps", false, "apps deployments in default"},
		{Request{Namespace: "a"}, "nodes", false, "nodes in ; nodes are cluster-scoped; -n has no effect"},
		{Request{ObjectName: "a"}, "namespaces", false, "namespaces in a"},
		{Request{}, "widgets.example.com", false,
			"example.com widgets in default; no Kubernetes version and no preset has widgets.example.com"},
		{Request{Subresource: "log"}, "pods/exec", false, `two subresources, "exec" and "log"`},
		{Request{}, "", false, "want RESOURCE"},
	} {
		q, notes, err := NewCatalog().Complete(test.q, test.written, test.all)
		got := strings.TrimSpace(q.APIGroup + " " + q.Resource)
		if q.Subresource != "" {
			got += "/" + q.Subresource
		}
		got = strings.Join(append([]string{got + " in " + q.Namespace}, notes...), "; ")
		if err == nil && got != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("Complete(%+v, %q) = %s, %v; want %s", test.q, test.written, got, err, test.want)
		}
	}
}
