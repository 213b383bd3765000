package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

type checkRequest struct {
	file   string
	output string
	failOn string
}

// checkDocument is the answer of check as JSON and YAML show it.
type checkDocument struct {
	Schema   string            `json:"schema"`
	Findings []finding.Finding `json:"findings"`
	Accepted []rules.Accepted  `json:"accepted,omitempty"`
	Summary  finding.Summary   `json:"summary"`
}

func newCheckCmd(streams Streams) *cobra.Command {
	var req checkRequest
	cmd := &cobra.Command{
		Use:   "check SPEC",
		Short: "Find every known way in which the two versions of a spec damage each other",
		Long: `check plans a spec and applies every rule to the plan. Each finding comes with what to do about it; fusionctl explain RULE
tells more. Findings that the spec accepts are listed and do not count.

Exit codes: 0 nothing at or above --fail-on, 2 bad spec, 3 findings at or above --fail-on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			req.file = args[0]
			return runCheck(req, streams)
		},
	}
	enumFlag(cmd, &req.output, "output", "o", "how to print", "table", "json", "yaml", "sarif")
	enumFlag(cmd, &req.failOn, "fail-on", "", "the severity from which on findings make the exit code 3", "error", "warning")
	return cmd
}

func runCheck(req checkRequest, streams Streams) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	report := rules.Check(p)
	if err := printReport(streams.Out, req, report); err != nil {
		return err
	}
	var threshold finding.Severity
	if err := threshold.UnmarshalText([]byte(req.failOn)); err != nil {
		return err
	}
	if finding.Worst(report.Findings) >= threshold {
		return errAttention
	}
	return nil
}

func printReport(w io.Writer, req checkRequest, report rules.Report) error {
	document := checkDocument{Schema: "fusionctl/check/v1", Findings: report.Findings, Accepted: report.Accepted, Summary: finding.Summarize(report.Findings)}
	if document.Findings == nil {
		document.Findings = []finding.Finding{}
	}
	switch req.output {
	case "json":
		return printJSON(w, document)
	case "yaml":
		return printYAML(w, document)
	case "sarif":
		return printSARIF(w, req.file, report.Findings)
	}
	for i, f := range report.Findings {
		if i == 0 || report.Findings[i-1].Severity != f.Severity {
			fmt.Fprintf(w, "%sS\n", strings.ToUpper(f.Severity.String()))
		}
		fmt.Fprintf(w, "  %s  %s: %s\n", f.Rule, f.Subject, f.Message)
		if f.Fix != "" {
			fmt.Fprintf(w, "          fix: %s\n", f.Fix)
		}
	}
	if len(report.Accepted) > 0 {
		fmt.Fprintln(w, "ACCEPTED")
		for _, a := range report.Accepted {
			fmt.Fprintf(w, "  %s  %s: %s\n          accepted: %s\n", a.Rule, a.Subject, a.Message, a.Reason)
		}
	}
	s := document.Summary
	_, err := fmt.Fprintf(w, "%d errors, %d warnings, %d infos, %d accepted\n", s.Errors, s.Warnings, s.Infos, len(report.Accepted))
	return err
}
