package cli

import "github.com/spf13/cobra"

func newConvertCheckCmd(streams Streams) *cobra.Command { return &cobra.Command{Use: "check"} }
