package cli

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// versionDocument says which program this is, and of which Kubernetes versions it has facts.
type versionDocument struct {
	Schema  string `json:"schema"`
	Program string `json:"program"`
	Go      string `json:"go"`
	Oldest  string `json:"oldest"` // Kubernetes minor with facts
	Newest  string `json:"newest"`
}

func newVersionCmd(streams Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program, and the Kubernetes versions that it has facts of",
		Long: `version prints which build this is and which minor versions of Kubernetes it knows; fusionctl versions
browses what it knows of them.

Exit codes: 0 done.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			document := newVersionDocument()
			if printed, err := printDocument(streams.Out, output, document); printed {
				return err
			}
			_, err := visible.Fprintf(streams.Out, "fusionctl %s (%s)\nKubernetes %s to %s\n", document.Program,
				document.Go,
				document.Oldest, document.Newest)
			return err
		},
	}
	enumFlag(cmd, &output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

func newVersionDocument() versionDocument {
	document := versionDocument{Schema: "fusionctl/version/v1", Program: "unknown", Go: "unknown",
		Oldest: kubever.Oldest.String(), Newest: kubever.Newest.String()}
	if info, ok := debug.ReadBuildInfo(); ok {
		document.Go = info.GoVersion
		if info.Main.Version != "" {
			document.Program = info.Main.Version
		}
	}
	return document
}
