package cli

import "github.com/spf13/cobra"

func newPolicyCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, compare and prove ABAC policies",
		Long: `The policy verbs work on the files of --authorization-policy-file, which Kubernetes reads with
--authorization-mode=ABAC: one rule per line, in JSON. They read a file exactly as the server does, traps included;
"policy validate" names the traps.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newPolicyValidateCmd(streams),
		newPolicyGenerateCmd(streams),
		newPolicyPresetsCmd(streams),
		newPolicyCanICmd(streams),
		newPolicyTestCmd(streams),
		newPolicyDiffCmd(streams),
		newPolicyProveCmd(streams),
		newPolicyToRBACCmd(streams),
		newPolicyFromAuditCmd(streams),
		newPolicyServeCmd(streams),
	)
	return cmd
}
