package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

type initRequest struct {
	layout spec.Layout
	legacy string // "" when not given
	modern string
	from   string // directory of a running control plane, "" for none
	out    string
}

func newInitCmd(streams Streams) *cobra.Command {
	var request initRequest
	cmd := &cobra.Command{
		Use:   "init shared|split | init [shared|split] --from DIR",
		Short: "Write a commented spec to start from",
		Long: `init writes a spec with comments, for a pair of versions and one of two layouts:

  shared   both sides keep everything in one store; safe for few pairs of versions
  split    the modern side has a store of its own and shares the core resources

With --from it reads how a legacy control plane runs, from its static pod manifests (/etc/kubernetes/manifests) or its
systemd units (/etc/systemd/system), and writes the spec for it: version, stores, certificates, ports, and every
argument as it is. DIR may be a copy, with the environment files of units beside them or under their full paths. Nothing
is made up: what the files do not say is left empty, and stderr lists what to fill in. The layout is split unless
another is given.

A version without a patch, such as 1.6, stands for a release of that minor. Where the two versions cannot live together
in the layout, stderr names the rules that forbid it; fusionctl explain tells more.

Exit codes: 0 written, 1 could not write, 2 bad usage, an unknown version, files that cannot be understood, or FILE
exists.`,
		Example: `  fusionctl init split -o spec.yaml
  fusionctl init shared --legacy 1.6 --modern 1.10
  fusionctl init --from /etc/kubernetes/manifests -o spec.yaml`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: spec.Layouts,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				request.layout = spec.Layout(args[0])
			} else if request.from == "" {
				return badInput(errors.New("which layout? want init shared, init split or init --from DIR"),
					cmd.CommandPath()+" --help explains them")
			}
			return runInit(request, streams)
		},
	}
	cmd.Flags().StringVar(&request.legacy, "legacy", "",
		"version of the legacy side (default 1.6, with --from that of its image)")
	cmd.Flags().StringVar(&request.modern, "modern", "",
		"version of the modern side (default 1.36 for split, 1.10 for shared)")
	cmd.Flags().StringVar(&request.from, "from", "",
		"directory with the manifests or units of a running legacy control plane")
	cmd.Flags().StringVarP(&request.out, "out", "o", "-", "file to write; it must not exist; - is standard output")
	return cmd
}

func runInit(request initRequest, streams Streams) error {
	if request.from != "" {
		return runInitFrom(request, streams)
	}
	if request.legacy == "" {
		request.legacy = "1.6"
	}
	legacy, err := parseVersionFlag("legacy", request.legacy)
	if err != nil {
		return err
	}
	modern, err := parseVersionFlag("modern", modernOf(request))
	if err != nil {
		return err
	}
	text, err := spec.Skeleton(request.layout, legacy, modern)
	if err != nil {
		return badInput(err, "")
	}
	if err := writeNew(request.out, text, 0o644, streams); err != nil {
		return err
	}
	printForbidden(streams.Err, request, text)
	return nil
}

// printForbidden says by which rules a pair cannot live together in the layout: the file is only good for reading then.
func printForbidden(w io.Writer, request initRequest, text []byte) {
	f, err := spec.Load(request.out, text)
	if err != nil {
		visible.Fprintln(w, "this pair cannot be planned:", err)
		return
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		visible.Fprintln(w, "this pair cannot be planned:", err)
		return
	}
	for _, f := range catalog.Check(p).Findings {
		if f.Severity == finding.Error {
			visible.Fprintf(w, "%s forbids this pair in layout %s: %s: %s\n  way out: %s\n", f.Rule, request.layout,
				f.Subject, f.Message, f.Fix)
		}
	}
}

func runInitFrom(request initRequest, streams Streams) error {
	options := adopt.Options{Layout: request.layout}
	if options.Layout == "" {
		options.Layout = spec.LayoutSplit
	}
	var err error
	if request.legacy != "" {
		if options.Legacy, err = parseVersionFlag("legacy", request.legacy); err != nil {
			return err
		}
	}
	if options.Modern, err = parseVersionFlag("modern", modernOf(request)); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	draft, err := draftFrom(request.from, options, &mode)
	if err != nil {
		return err
	}
	text, err := draft.Text()
	if err != nil {
		return err
	}
	if err := writeNew(request.out, text, mode, streams); err != nil {
		return err
	}
	for _, note := range draft.Notes {
		if note.Place != "" {
			note.Place = filepath.Join(request.from, note.Place)
		}
		visible.Fprintln(streams.Err, note)
	}
	name := request.out
	if name == "-" {
		name = "<stdout>"
	}
	printToDo(streams.Err, name, draft.Missing, text)
	return nil
}

// printToDo lists what has to be filled in, and what else keeps the draft from being a good spec.
func printToDo(w io.Writer, name string, missing []adopt.Note, text []byte) {
	_, lines, _ := spec.Parse(name, text)
	for _, note := range missing {
		visible.Fprintf(w, "fill in %s:%d: %s\n", name, lines.Line(note.Place), note)
	}
	_, err := spec.Load(name, text)
	if err == nil {
		return
	}
	for problem := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.ContainsFunc(missing, func(note adopt.Note) bool {
			return strings.Contains(problem, " "+note.Place+":")
		}) {
			visible.Fprintln(w, "correct", problem)
		}
	}
}

// draftFrom reads the directory, and takes from the mode what one of its files does not have. Whatever is wrong with
// the directory is the fault of what was given.
func draftFrom(from string, options adopt.Options, mode *fs.FileMode) (*adopt.Draft, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, badInput(err, "")
	}
	if !info.IsDir() {
		return nil, usagef("%s: is a file, want the directory that it is in", from)
	}
	host := hostOf(from)
	if host != nil {
		host = strictest{host, mode}
	}
	running, err := adopt.Read(strictest{os.DirFS(from), mode}, host)
	if err != nil {
		return nil, badInput(fmt.Errorf("reading %s: %w", from, err), "")
	}
	draft, err := running.Draft(options)
	if err == nil {
		return draft, nil
	}
	hint := ""
	if errors.Is(err, adopt.ErrVersion) {
		hint = "give it as --legacy VERSION, such as --legacy 1.6.13"
	}
	return nil, badInput(fmt.Errorf("reading %s: %w", from, err), hint)
}

// hostOf is the root of this machine for systemd's own folders: their units refer to files elsewhere on it. For a copy
// of such a folder the files of this machine would be the wrong ones.
func hostOf(from string) fs.FS {
	absolute, err := filepath.Abs(from)
	if err != nil {
		return nil
	}
	own := []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
	if !slices.Contains(own, absolute) {
		return nil
	}
	return os.DirFS("/")
}

// strictest takes from a mode what the files that are read do not have: a spec shows what they hold, and who may not
// read one of them may not read that. Their owner may.
type strictest struct {
	fs.FS
	mode *fs.FileMode
}

func (s strictest) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		*s.mode &= info.Mode().Perm() | 0o600
	}
	return f, nil
}

// modernOf is the version that was given, or the one of the pair that each layout is explained with: 1.6 can share its
// store with 1.10.
func modernOf(request initRequest) string {
	switch {
	case request.modern != "":
		return request.modern
	case request.layout == spec.LayoutShared && request.from == "":
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

// writeNew writes to standard output for "-", otherwise to a file that must not exist yet.
func writeNew(file string, text []byte, mode fs.FileMode, streams Streams) error {
	if file == "-" {
		_, err := asData(streams.Out).Write(text)
		return err
	}
	switch _, err := os.Lstat(file); {
	case err == nil:
		return badInput(fmt.Errorf("%s: exists already", file), "give -o another name, or move the file away")
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return filetree.WriteFile(file, text, mode)
}
