package cli

import "github.com/spf13/cobra"

func newEtcdCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Check and inspect the stores",
		Long: `The etcd verbs read the stores of a fused control plane, live or from files, and compare them with the
plan of a spec: the location of every key, which side may write it and which sides read it.

Stores and their TLS files come from the spec; flags override them. A password is read from a file or from the
environment variable FUSIONCTL_ETCD_PASSWORD, and is never printed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEtcdCheckCmd(streams), newEtcdLsCmd(streams), newEtcdGetCmd(streams), newEtcdDiffCmd(streams),
		newEtcdWatchCmd(streams), newEtcdMoveCmd(streams), newEtcdBackupCmd(streams), newEtcdRestoreCmd(streams))
	return cmd
}
