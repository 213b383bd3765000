package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyTestRequest struct {
	file        string
	cases       []string
	exactGroups bool
	output      string
}

type policyTestDocument struct {
	Schema  string              `json:"schema"`
	Results []policy.CaseResult `json:"results"`
	Summary policyTestSummary   `json:"summary"`
}

type policyTestSummary struct {
	Cases  int `json:"cases"`
	Failed int `json:"failed"`
}

func newPolicyTestCmd(streams Streams) *cobra.Command {
	var req policyTestRequest
	cmd := &cobra.Command{
		Use:   "test FILE --cases CASES",
		Short: "Test a policy by cases of what it should allow and deny",
		Long: `test evaluates a policy for every case of a file and prints the cases with another result. A case is a
JSON or YAML object; a file has JSON objects one after another, or a YAML list:

  - {name: developers deploy, user: alice, groups: [devs], verb: create, apiGroup: apps, resource: deployments, namespace: a, want: allow}
  - {name: no metrics for alice, user: alice, verb: get, path: /metrics, want: deny}

Fields: name, user, groups, verb, apiGroup, resource, subresource, namespace, objectName or path, want. As a server
does, it adds group system:authenticated to the groups of a case, those of a service account, and system:unauthenticated
for system:anonymous; --exact-groups adds none.

Exit codes: 0 every case passed, 2 bad usage or a bad file, 3 a case failed.`,
		Example: `  fusionctl policy test policy.jsonl --cases cases.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runPolicyTest(req, streams)
		},
	}
	cmd.Flags().StringArrayVar(&req.cases, "cases", nil, "file with cases; repeat for more")
	cmd.Flags().BoolVar(&req.exactGroups, "exact-groups", false, "do not add the groups that a server adds")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

// casesLimitBytes bounds the files with cases.
const casesLimitBytes = 64 << 20

func runPolicyTest(req policyTestRequest, streams Streams) error {
	if len(req.cases) == 0 {
		return badInput(fmt.Errorf("no cases"), "--cases FILE names them")
	}
	rules, err := readPolicy(streams, req.file)
	if err != nil {
		return err
	}
	var cases []policy.Case
	for _, file := range req.cases {
		data, err := readInput(streams, file, casesLimitBytes)
		if err != nil {
			return err
		}
		more, err := policy.ParseCases(file, data)
		if err != nil {
			return badInput(err, "")
		}
		cases = append(cases, more...)
	}
	document := policyTestDocument{Schema: "fusionctl/policy-test/v1",
		Results: policy.RunCases(policy.NewAuthorizer(rules), cases, req.exactGroups)}
	document.Summary.Cases = len(cases)
	for _, r := range document.Results {
		if !r.Passed {
			document.Summary.Failed++
		}
	}
	if err := printPolicyTest(streams.Out, req, document); err != nil {
		return err
	}
	if document.Summary.Failed > 0 {
		return errAttention
	}
	return nil
}

func printPolicyTest(w io.Writer, req policyTestRequest, document policyTestDocument) error {
	if printed, err := printDocument(w, req.output, document); printed {
		return err
	}
	for _, r := range document.Results {
		if r.Passed {
			continue
		}
		by := "no rule allows it"
		if r.Line > 0 {
			by = fmt.Sprintf("by %s:%d", req.file, r.Line)
		}
		visible.Fprintf(w, "%s: %s\n-%s\n+%s (%s)\n", r.Case.Name, r.Case.Request, r.Case.Want, r.Got, by)
	}
	_, err := visible.Fprintf(w, "%s, %d failed\n", prose.Counted(document.Summary.Cases, "case"),
		document.Summary.Failed)
	return err
}
