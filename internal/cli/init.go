package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type initRequest struct {
	layout string
	legacy string
	modern string
	out    string
}

func newInitCmd(streams Streams) *cobra.Command {
	var request initRequest
	cmd := &cobra.Command{
		Use:   "init shared|split [--legacy VERSION] [--modern VERSION] [-o FILE]",
		Short: "Write a commented spec to start from",
		Long: `init writes a spec with comments, for a pair of versions and one of two layouts:

  shared   both sides keep everything in one store; safe for few pairs of versions
  split    the modern side has a store of its own and shares the core resources

A version without a patch, such as 1.6, stands for a release of that minor.

Exit codes: 0 written, 1 could not write, 2 bad usage, an unknown version, or the file exists.`,
		Example: `  fusionctl init split -o spec.yaml
  fusionctl init shared --legacy 1.6 --modern 1.10`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: spec.Layouts,
		RunE: func(_ *cobra.Command, args []string) error {
			request.layout = args[0]
			return runInit(request, streams)
		},
	}
	cmd.Flags().StringVar(&request.legacy, "legacy", "1.6", "version of the legacy side")
	cmd.Flags().StringVar(&request.modern, "modern", "", "version of the modern side (default 1.36 for split, 1.10 for shared)")
	cmd.Flags().StringVarP(&request.out, "out", "o", "-", "file to write; it must not exist; - is standard output")
	return cmd
}

func runInit(request initRequest, streams Streams) error {
	layout := spec.Layout(request.layout)
	if request.modern == "" {
		request.modern = defaultModern(layout)
	}
	legacy, err := parseVersionFlag("legacy", request.legacy)
	if err != nil {
		return err
	}
	modern, err := parseVersionFlag("modern", request.modern)
	if err != nil {
		return err
	}
	text, err := spec.Skeleton(layout, legacy, modern)
	if err != nil {
		return badInput(err, "")
	}
	return writeAnswer(request.out, text, streams)
}

// defaultModern is the pair that each layout is explained with: 1.6 can share its store with 1.10.
func defaultModern(layout spec.Layout) string {
	if layout == spec.LayoutShared {
		return "1.10"
	}
	return kubever.Newest.String()
}

func parseVersionFlag(flag, value string) (kubever.Version, error) {
	version, err := kubever.Parse(value)
	if err != nil {
		return version, badInput(fmt.Errorf("--%s: %w", flag, err), "fusionctl versions lists the known ones")
	}
	return version, nil
}

// writeAnswer writes to standard output for "-", otherwise to a file that must not exist yet.
func writeAnswer(file string, text []byte, streams Streams) error {
	if file == "-" {
		_, err := streams.Out.Write(text)
		return err
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
		return badInput(fmt.Errorf("%s: exists already", file), "give -o another name, or move the file away")
	}
	return writeFile(file, text, 0o644)
}
