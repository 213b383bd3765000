package cli

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyValidateRequest struct {
	files  []string
	spec   string
	crds   []string
	fix    bool
	output string
	failOn string
}

// policyValidateDocument is the outcome as JSON and YAML show it.
type policyValidateDocument struct {
	Schema string `json:"schema"`
	finding.Report
	Summary policyValidateSummary `json:"summary"`
}

type policyValidateSummary struct {
	finding.Summary
	Files int `json:"files"`
	Rules int `json:"rules"`
	Fixed int `json:"fixed"` // lines that differ in the corrected files
}

func newPolicyValidateCmd(streams Streams) *cobra.Command {
	var req policyValidateRequest
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Report what the server refuses, ignores or reads differently, and what allows too much",
		Long: `validate reads policy files as the server does and reports, with the place and a corrected line: lines
that stop the server, lines that allow everything, fields that are ignored, rules that match no request, duplicate and
misspelled rules, and rules that allow more than they seem to. "fusionctl explain RULE" describes a rule.

With --spec a file is also compared with the plan of a spec: writes that the modern side must not do. Findings that the
spec accepts are listed and do not count. With --crd the custom resources of the given definitions are known.

--fix writes FILE.fixed beside each file that it can correct. The server reads a corrected line as a person does;
misspelled groups and resources are only reported. "fusionctl policy diff FILE FILE.fixed" shows what the correction
changes.

Exit codes: 0 nothing found, 1 could not finish, 2 bad usage, 3 findings.`,
		Example: `  fusionctl policy validate /etc/kubernetes/policy.jsonl
  fusionctl policy validate policy.jsonl --spec fused.yaml --crd crds.yaml --fail-on warning
  kubectl get crd -o yaml | fusionctl policy validate policy.jsonl --crd - -o sarif`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.files = args
			return runPolicyValidate(req, streams)
		},
	}
	cmd.Flags().StringVar(&req.spec, "spec", "", "compare with the plan of this spec")
	cmd.Flags().StringArrayVar(&req.crds, "crd", nil,
		"file with CustomResourceDefinitions, whose resources are known then; repeat for more")
	cmd.Flags().BoolVar(&req.fix, "fix", false, "write the corrected file beside each file, as FILE.fixed")
	enumFlag(cmd, &req.failOn, "fail-on", "", "the lowest severity that makes the exit code 3", "error", "warning",
		"info")
	enumFlag(cmd, &req.output, "output", "o", "output format", "table", "json", "yaml", "sarif",
		"html")
	return cmd
}

func runPolicyValidate(req policyValidateRequest, streams Streams) error {
	if req.fix && slices.Contains(req.files, "-") {
		return usagef("--fix: standard input has no file to write beside")
	}
	options, accepted, err := policyOptions(req, streams)
	if err != nil {
		return err
	}
	document := policyValidateDocument{Schema: "fusionctl/policy-validate/v1"}
	var found []finding.Finding
	document.Summary.Files = len(req.files)
	for _, file := range req.files {
		report, err := validatePolicy(streams, file, options)
		if err != nil {
			return err
		}
		found = append(found, report.Findings...)
		document.Summary.Rules += len(report.Rules)
		if req.fix {
			if err := writeFixed(file, report, streams); err != nil {
				return err
			}
			document.Summary.Fixed += report.FixedLines
		}
	}
	document.Report, _ = finding.Accept(found, accepted)
	document.Summary.Summary = finding.Summarize(document.Findings)
	if err := printPolicyValidate(streams.Out, req.output, document); err != nil {
		return err
	}
	return attention(document.Findings, req.failOn)
}

// policyOptions collects what files are judged by, and what the spec accepts.
func policyOptions(req policyValidateRequest, streams Streams) (policy.Options, []finding.Acceptance, error) {
	catalog, err := catalogWith(streams, req.crds)
	if err != nil {
		return policy.Options{}, nil, err
	}
	options := policy.Options{Catalog: catalog}
	if req.spec == "" {
		return options, nil, nil
	}
	p, err := loadPlan(streams, req.spec)
	if err != nil {
		return options, nil, err
	}
	options.Forbidden = p.ForbiddenWrites()
	sections, err := policy.Generate(p.Policy)
	if err != nil {
		return options, nil, badInput(err, "")
	}
	options.Expected = policy.Rules(sections)
	return options, p.Accept, nil
}

func validatePolicy(streams Streams, file string, options policy.Options) (policy.Report, error) {
	in, err := openInput(streams, file)
	if err != nil {
		return policy.Report{}, err
	}
	defer in.Close()
	report, err := policy.Validate(file, &limitedReader{r: in, left: policyLimitBytes, limit: policyLimitBytes},
		options)
	return report, badInput(err, "")
}

// writeFixed writes the corrected file beside the file, if there is anything to correct.
func writeFixed(file string, report policy.Report, streams Streams) error {
	switch {
	case report.Fixed == nil:
		visible.Fprintf(streams.Err, "%s: not corrected, since it could not be read to its end\n", file)
		return nil
	case report.FixedLines == 0:
		visible.Fprintf(streams.Err, "%s: nothing to correct\n", file)
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if err := filetree.WriteFile(file+".fixed", report.Fixed, info.Mode().Perm()); err != nil {
		return err
	}
	visible.Fprintf(streams.Err, "%s.fixed: %s corrected\n", file, prose.Counted(report.FixedLines, "line"))
	// no policy, nothing to compare
	if !slices.ContainsFunc(report.Findings, func(f finding.Finding) bool { return f.Rule == "FUS200" }) {
		visible.Fprintf(streams.Err, "to see what that changes: fusionctl policy diff %s %s.fixed\n", file, file)
	}
	return nil
}

func printPolicyValidate(w io.Writer, output string, document policyValidateDocument) error {
	if printed, err := printDocument(w, output, document); printed {
		return err
	}
	if output == "sarif" {
		return printSARIF(w, finding.Policies, "", document.Findings)
	}
	if output == "html" {
		return policySheet(w, document)
	}
	for _, f := range document.Findings {
		visible.Fprintf(w, "%s: %s %s %s: %s\n", placeOf(f), f.Severity, f.Rule, f.Subject, f.Message)
		for line := range strings.Lines(f.Fix) {
			visible.Fprintf(w, "    fix: %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	printAccepted(w, document.Accepted)
	s := document.Summary
	_, err := visible.Fprintf(w, "%s, %s: %s\n", prose.Counted(s.Files, "file"), prose.Counted(s.Rules, "rule"),
		countsOf(s.Summary, len(document.Accepted)))
	return err
}
