package cli

import (
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// release is the version that the linker of a release sets; "" in every other build, which knows its module's version.
var release string

// versionDocument says which program this is, and of which Kubernetes versions it has facts.
type versionDocument struct {
	Schema   string `json:"schema"`
	Program  string `json:"program"`            // version
	Commit   string `json:"commit,omitempty"`   // of the source; its first 12 digits where only a module is known
	Date     string `json:"date,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // the source was not as it was committed
	Go       string `json:"go"`
	Platform string `json:"platform"` // linux/amd64
	Oldest   string `json:"oldest"`   // Kubernetes minor with facts
	Newest   string `json:"newest"`
}

func newVersionCmd(streams Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program, and the Kubernetes versions that it has facts of",
		Long: `version prints which build this is, from which commit, and which minor versions of Kubernetes it knows;
fusionctl versions browses what it knows of them.

Exit codes: 0 done.`,
		Example: "  fusionctl version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			document := newVersionDocument(release, info)
			if printed, err := printDocument(streams.Out, output, document); printed {
				return err
			}
			_, err := visible.Fprintf(streams.Out, "fusionctl %s (%s, %s)\ncommit %s\nKubernetes %s to %s\n",
				document.Program, document.Go, document.Platform, document.source(), document.Oldest, document.Newest)
			return err
		},
	}
	enumFlag(cmd, &output, "output", "o", "output format", "table", "json", "yaml")
	return cmd
}

// source says which commit was built. go install of a release knows the release's tag and no more.
func (d versionDocument) source() string {
	switch {
	case d.Commit == "" && strings.HasPrefix(d.Program, "v"):
		return "that of the tag " + d.Program
	case d.Commit == "":
		return "unknown"
	case d.Modified:
		return strings.TrimSpace(d.Commit + ", modified " + d.Date)
	}
	return strings.TrimSpace(d.Commit + " " + d.Date)
}

// pseudo is the end of a module version that is no release: the time and the first digits of its commit.
var pseudo = regexp.MustCompile(`[-.](\d{14})-([0-9a-f]{12})(\+|$)`)

// newVersionDocument says what a build knows of itself. Without info nothing is known.
func newVersionDocument(release string, info *debug.BuildInfo) versionDocument {
	document := versionDocument{Schema: "fusionctl/version/v1", Program: "unknown", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Oldest: kubever.Oldest.String(),
		Newest: kubever.Newest.String()}
	if info != nil {
		if info.Main.Version != "" {
			document.Program = info.Main.Version
		}
		if found := pseudo.FindStringSubmatch(info.Main.Version); found != nil {
			document.Commit = found[2]
			if at, err := time.Parse("20060102150405", found[1]); err == nil {
				document.Date = at.Format(time.RFC3339)
			}
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				document.Commit = s.Value
			case "vcs.time":
				document.Date = s.Value
			case "vcs.modified":
				document.Modified = s.Value == "true"
			}
		}
	}
	if release != "" {
		document.Program = release
	}
	return document
}
