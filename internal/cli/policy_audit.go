package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

type policyFromAuditRequest struct {
	logs          []string
	policy        string
	groups        []string
	maxNamespaces int
	output        string
}

type policyFromAuditDocument struct {
	Schema   string           `json:"schema"`
	Sections []policySection  `json:"sections"`
	Summary  fromAuditSummary `json:"summary"`
}

type policySection struct {
	Comment string   `json:"comment"`
	Rules   []string `json:"rules"`
}

type fromAuditSummary struct {
	Requests    int      `json:"requests"`
	Allowed     int      `json:"allowed"`
	Refused     int      `json:"refused"`
	Privileged  int      `json:"privileged"`
	Undecided   int      `json:"undecided"`
	Unspeakable []string `json:"unspeakable,omitempty"`
}

func newPolicyFromAuditCmd(streams Streams) *cobra.Command {
	var req policyFromAuditRequest
	cmd := &cobra.Command{
		Use:   "from-audit LOG...",
		Short: "Print the smallest policy that allows the requests of an audit log",
		Long: `from-audit reads the audit logs of an API server, JSON lines of audit.k8s.io, also compressed with gzip,
and prints the smallest policy that allows every request that was allowed. It reads as a stream; its memory grows with
the number of different permissions.

With --policy FILE it prints instead what that policy would have denied, as the rules that are missing from it.

Requests by members of system:masters need no policy and are left out. An impersonation is a permission of the
impersonating user, and the request itself one of the impersonated user. Reads below /api/, /apis/ and /openapi/ become
one rule each.

Exit codes: 0 done, 1 could not finish, 2 bad usage, or a file that is not an audit log to its end, 3 with --policy, a
request would have been denied, or a request cannot be expressed by a rule.`,
		Example: `  fusionctl policy from-audit audit.log audit-*.log.gz --group system:nodes > policy.jsonl
  fusionctl policy from-audit audit.log --policy policy.jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.logs = args
			return runPolicyFromAudit(cmd.Context(), req, streams)
		},
	}
	cmd.Flags().StringVar(&req.policy, "policy", "", "print what this policy would have denied")
	cmd.Flags().StringArrayVar(&req.groups, "group", nil,
		"grant the permissions of this group's members to the group; repeat for more")
	cmd.Flags().IntVar(&req.maxNamespaces, "max-namespaces", 0,
		"grant a permission that was used in more namespaces than this in all of them; 0 never does")
	enumFlag(cmd, &req.output, "output", "o", "output format", "policy", "json")
	return cmd
}

func runPolicyFromAudit(ctx context.Context, req policyFromAuditRequest, streams Streams) error {
	if req.maxNamespaces < 0 {
		return usagef("--max-namespaces %d: want 0 or more", req.maxNamespaces)
	}
	options := policy.UsageOptions{Groups: req.groups, MaxNamespaces: req.maxNamespaces}
	if req.policy != "" {
		rules, err := readPolicy(streams, req.policy)
		if err != nil {
			return err
		}
		options.Unless = policy.NewAuthorizer(rules)
	}
	usage := policy.NewUsage(options)
	for _, log := range req.logs {
		if err := readAuditLog(ctx, streams, log, usage.Add); err != nil {
			return err
		}
	}
	sections := usage.Policy()
	if err := printFromAudit(req, usage, sections, streams); err != nil {
		return err
	}
	if req.policy != "" && len(sections) > 0 || len(usage.Unspeakable) > 0 {
		return errAttention
	}
	return nil
}

func printFromAudit(req policyFromAuditRequest, usage *policy.Usage, sections []policy.Section, streams Streams) error {
	summary := fromAuditSummary{
		Requests: usage.Requests, Allowed: usage.Allowed, Refused: usage.Refused, Privileged: usage.Privileged,
		Undecided: usage.Undecided, Unspeakable: usage.Unspeakable,
	}
	if req.output == "json" {
		document := policyFromAuditDocument{Schema: "fusionctl/policy-from-audit/v1", Sections: []policySection{},
			Summary: summary}
		for _, s := range sections {
			section := policySection{Comment: s.Comment}
			for _, r := range s.Rules {
				section.Rules = append(section.Rules, r.String())
			}
			document.Sections = append(document.Sections, section)
		}
		return printJSON(streams.Out, document)
	}
	what := "allowed by these rules"
	if req.policy != "" {
		what = "denied by " + req.policy
		visible.Fprintf(streams.Err, "%s allowed by %s\n", prose.Counted(summary.Allowed, "request"), req.policy)
	}
	visible.Fprintf(streams.Err, "%s %s; left out: %d that the server denied, %d of %s, %s from before a decision\n",
		prose.Counted(summary.Requests, "request"), what, summary.Refused, summary.Privileged, policy.GroupMasters,
		prose.Counted(summary.Undecided, "event"))
	for _, text := range summary.Unspeakable {
		visible.Fprintf(streams.Err, "no rule can allow exactly this: %s\n", text)
	}
	_, err := streams.Out.Write(policy.Format(sections))
	return err
}
