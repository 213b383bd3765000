package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/licenses"
)

func newLicensesCmd(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "licenses",
		Short: "Print the licenses of the modules in this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(streams.Out, licenses.Text)
			return err
		},
	}
}
