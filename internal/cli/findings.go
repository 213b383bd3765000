package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

// attention is errAttention when a finding is as severe as the word of --fail-on or worse.
func attention(findings []finding.Finding, failOn string) error {
	var threshold finding.Severity
	if err := threshold.UnmarshalText([]byte(failOn)); err != nil {
		return err
	}
	if finding.Worst(findings) >= threshold {
		return errAttention
	}
	return nil
}

// printFindings prints findings by severity with the fix under each, and those that are accepted.
func printFindings(w io.Writer, report finding.Report) {
	for i, f := range report.Findings {
		if i == 0 || report.Findings[i-1].Severity != f.Severity {
			visible.Fprintf(w, "%sS\n", strings.ToUpper(f.Severity.String()))
		}
		visible.Fprintf(w, "  %s  %s: %s\n", f.Rule, f.Subject, f.Message)
		if f.File != "" && f.Line > 0 {
			visible.Fprintf(w, "          at: %s:%d\n", f.File, f.Line)
		}
		if f.Fix != "" {
			visible.Fprintf(w, "          fix: %s\n", f.Fix)
		}
	}
	printAccepted(w, report.Accepted)
}

// grouped joins the subjects of findings that are otherwise alike, each at the place of the first: what a plan says of
// several resources in the same words is read once.
func grouped(findings []finding.Finding) []finding.Finding {
	type kind struct {
		severity           finding.Severity
		rule, message, fix string
	}
	var groups []finding.Finding
	at, subjects := map[kind]int{}, map[kind][]string{}
	for _, f := range findings {
		k := kind{f.Severity, f.Rule, f.Message, f.Fix}
		first, seen := at[k]
		if !seen {
			first = len(groups)
			at[k], groups = first, append(groups, f)
		}
		if !slices.Contains(subjects[k], f.Subject) {
			subjects[k] = append(subjects[k], f.Subject)
		}
		groups[first].Subject = strings.Join(subjects[k], ", ")
	}
	return groups
}

// printFinding prints a finding with its severity, what it relates to and the fix.
func printFinding(w io.Writer, f finding.Finding) {
	visible.Fprintf(w, "%s %s %s: %s\n", f.Severity, f.Rule, f.Subject, f.Message)
	for _, related := range f.Related {
		visible.Fprintf(w, "    %s\n", related)
	}
	if f.Fix != "" {
		visible.Fprintf(w, "    fix: %s\n", f.Fix)
	}
}

// printAccepted prints the findings that the spec accepts, with the reason.
func printAccepted(w io.Writer, accepted []finding.Accepted) {
	if len(accepted) > 0 {
		visible.Fprintln(w, "ACCEPTED")
	}
	for _, a := range accepted {
		visible.Fprintf(w, "  %s  %s: %s\n          accepted: %s\n", a.Rule, a.Subject, a.Message, a.Reason)
	}
}

// countsOf sums findings up: 1 error, 2 warnings, 0 infos, 1 accepted.
func countsOf(s finding.Summary, accepted int) string {
	return fmt.Sprintf("%s, %s, %s, %d accepted", prose.Counted(s.Errors, "error"),
		prose.Counted(s.Warnings, "warning"),
		prose.Counted(s.Infos, "info"), accepted)
}

// placeOf prints where a finding is, as editors read it.
func placeOf(f finding.Finding) string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}
