package cli

import (
	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/policy"
)

func newPolicyToRBACCmd(streams Streams) *cobra.Command {
	var output string
	var crds []string
	cmd := &cobra.Command{
		Use:   "to-rbac FILE",
		Short: "Translate a policy to RBAC roles and bindings",
		Long: `to-rbac prints ClusterRoles, Roles and their bindings to replace ABAC. They never allow more than the
policy. Where RBAC cannot express a rule they allow less: each such rule is a comment at the top, with the reason.

Exit codes: 0 done, 2 bad usage or a bad file, 3 done, and some rules are not or not fully expressed.`,
		Example: `  fusionctl policy to-rbac policy.jsonl | kubectl apply --dry-run=server -f -`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return runPolicyToRBAC(args[0], crds, output, streams)
		},
	}
	cmd.Flags().StringArrayVar(&crds, "crd", nil,
		"file with CustomResourceDefinitions, whose resources are known then; repeat for more")
	enumFlag(cmd, &output, "output", "o", "output format", "yaml", "json")
	return cmd
}

func runPolicyToRBAC(file string, crds []string, output string, streams Streams) error {
	catalog, err := catalogWith(streams, crds)
	if err != nil {
		return err
	}
	rules, err := readPolicyBy(streams, file, policy.ParseOneMeaning)
	if err != nil {
		return err
	}
	rbac := policy.ToRBAC(rules, catalog)
	if err := printRBAC(file, output, rbac, streams); err != nil {
		return err
	}
	if len(rbac.Gaps) > 0 {
		return errAttention
	}
	return nil
}

func printRBAC(file, output string, rbac policy.RBAC, streams Streams) error {
	objects := rbac.Objects()
	if output == "json" {
		return printJSON(streams.Out, struct {
			Schema  string       `json:"schema"`
			Objects []any        `json:"objects"`
			Gaps    []policy.Gap `json:"gaps"`
		}{"fusionctl/policy-to-rbac/v1", objects, rbac.Gaps})
	}
	for _, g := range rbac.Gaps {
		visible.Fprintf(streams.Out, "# %s:%d: %s\n#   %s\n", file, g.Line, g.Why, g.Text)
	}
	for _, object := range objects {
		visible.Fprintln(streams.Out, "---")
		if err := printYAML(streams.Out, object); err != nil {
			return err
		}
	}
	return nil
}
