package cli

import (
	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

func newRestartsCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restarts",
		Short: "Predict which containers a new kubelet restarts",
		Long: `A kubelet records a hash of the container's definition when it starts a container, and restarts the
container when the hash that it computes later differs. The hashed data differs between versions, so that a kubelet
upgrade can restart unchanged containers: all of them from 1.8 to 1.9, from 1.15 to 1.16 and from 1.30 to 1.31, many in
other steps up to 1.15. These verbs compute the hash of any kubelet from ` + kubever.Oldest.String() + " to " +
			kubever.Newest.String() + " and predict the restarts.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRestartsHashCmd(streams), newRestartsPlanCmd(streams), newRestartsAnnotateCmd(streams))
	return cmd
}
