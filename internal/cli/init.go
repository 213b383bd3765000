package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/adopt/files"
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
	from   []string // directories of a running control plane, one for each host; empty for none
	name   string   // of the spec that is drafted, "" where the files tell
	out    string
}

func newInitCmd(streams Streams) *cobra.Command {
	var request initRequest
	cmd := &cobra.Command{
		Use:   "init shared|split | init [shared|split] --from DIR [DIR...]",
		Short: "Write a commented spec to start from",
		Long: `init writes a spec with comments, for a pair of versions and one of two layouts:

  shared   both sides keep everything in one store; safe for few pairs of versions
  split    the modern side has another default store and shares the core resources

With --from it reads how a legacy control plane runs and writes the spec for it: version, stores, certificates, ports,
and every argument as it is. DIR is a directory, or a copy of one, with static pod manifests (/etc/kubernetes/manifests)
or systemd units (/etc/systemd/system) and their environment files, with what docker inspect, crictl inspect, systemctl
cat or kubectl describe pods prints, with the argument files of a snap, with jobs of upstart or scripts of other init
systems, or with a docker-compose file; a document that a machine is made from (user data of cloud-init, Ignition or
what it is compiled from, a script that writes its files); one of these files alone; or a list of processes with their
arguments (ps -ww -eo args). For a control plane of several hosts give one DIR for each, called after the host, or the
directory that has them. Nothing is made up: what the files do not say is left empty, and stderr lists what to fill in.
The layout is split unless another is given.

A version without a patch, such as 1.6, stands for a release of that minor. Where the two versions cannot live together
in the layout, stderr names the rules that forbid it; fusionctl explain describes them.

Exit codes: 0 written, 1 could not write, 2 bad usage, an unknown version, files that cannot be parsed, or FILE exists.`,
		Example: `  fusionctl init split -o spec.yaml
  fusionctl init shared --legacy 1.6 --modern 1.10
  fusionctl init --from /etc/kubernetes/manifests -o spec.yaml
  fusionctl init --from cp-1/ cp-2/ cp-3/ --name production -o spec.yaml`,
		ValidArgs: spec.Layouts,
		Args:      cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := request.arguments(args, cmd.CommandPath()); err != nil {
				return err
			}
			return runInit(request, streams)
		},
	}
	cmd.Flags().StringVar(&request.legacy, "legacy", "",
		"version of the legacy side (default 1.6, with --from that of its image)")
	cmd.Flags().StringVar(&request.modern, "modern", "",
		"version of the modern side (default "+kubever.Suggested.String()+" for split, 1.10 for shared)")
	cmd.Flags().StringArrayVar(&request.from, "from", nil,
		"directory with the manifests or units of a running legacy control plane, for each of its hosts")
	cmd.Flags().StringVar(&request.name, "name", "", "with --from: name of the control plane (default: the files tell)")
	cmd.Flags().StringVarP(&request.out, "out", "o", "-", "file to write; it must not exist; - is standard output")
	return cmd
}

// arguments takes the layout, and the directories that follow --from.
func (r *initRequest) arguments(args []string, command string) error {
	if len(args) > 0 && slices.Contains(spec.Layouts, args[0]) {
		r.layout, args = spec.Layout(args[0]), args[1:]
	}
	hint := command + " --help explains them"
	switch {
	case len(r.from) > 0:
		r.from = append(r.from, args...)
	case r.name != "":
		return usagef("--name goes with --from")
	case len(args) > 0 && r.layout == "":
		err := fmt.Errorf("%q: want a layout, shared or split, or --from DIR", args[0])
		if near, ok := spelling.Nearest(args[0], spec.Layouts); ok {
			err = fmt.Errorf("%w; did you mean %q?", err, near)
		}
		return badInput(err, hint)
	case len(args) > 0:
		return badInput(fmt.Errorf("%q: want one layout; directories follow --from", args[0]), hint)
	case r.layout == "":
		return badInput(errors.New("which layout? want init shared, init split or init --from DIR"), hint)
	}
	return nil
}

func runInit(request initRequest, streams Streams) error {
	if len(request.from) > 0 {
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
			visible.Fprintf(w, "%s forbids this pair in layout %s: %s: %s\n  fix: %s\n", f.Rule, request.layout,
				f.Subject, f.Message, f.Fix)
		}
	}
}

func runInitFrom(request initRequest, streams Streams) error {
	options := adopt.Options{Layout: request.layout, Name: request.name}
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
	hosts, err := files.Read(request.from)
	if err != nil {
		return badInput(err, "")
	}
	draft, err := adopt.DraftHosts(hosts.Hosts, options)
	if err != nil {
		hint := ""
		if errors.Is(err, adopt.ErrVersion) {
			hint = "pass --legacy VERSION, such as --legacy 1.6.13"
		}
		return badInput(fmt.Errorf("reading %s: %w", strings.Join(hosts.Names, ", "), err), hint)
	}
	text, err := draft.Text()
	if err != nil {
		return err
	}
	if err := writeNew(request.out, text, hosts.Mode, streams); err != nil {
		return err
	}
	for i := range draft.Notes {
		draft.Notes[i].Place = hosts.Place(draft.Notes[i].Place)
	}
	printNotes(streams.Err, draft.Notes)
	name := request.out
	if name == "-" {
		name = "<stdout>"
	}
	printToDo(streams.Err, name, draft.Missing, text)
	return nil
}

// printNotes prints what a person should know. One thing about many places is said once.
func printNotes(w io.Writer, notes []adopt.Note) {
	const few = 3
	places := map[string][]string{}
	for _, note := range notes {
		places[note.Text] = append(places[note.Text], note.Place)
	}
	for _, note := range notes {
		at := places[note.Text]
		switch {
		case len(at) <= few:
			visible.Fprintln(w, note)
		case at[0] == note.Place:
			visible.Fprintf(w, "%s, and %d more: %s\n", note.Place, len(at)-1, note.Text)
			places[note.Text] = append([]string{""}, at...) // said
		}
	}
}

// printToDo lists what has to be filled in, and what else keeps the draft from being a good spec, once and last.
func printToDo(w io.Writer, name string, missing []adopt.Note, text []byte) {
	_, lines, _ := spec.Parse(name, text)
	slices.SortStableFunc(missing, func(a, b adopt.Note) int {
		return cmp.Compare(lines.Line(a.Place), lines.Line(b.Place))
	})
	for _, note := range missing {
		visible.Fprintf(w, "fill in %s:%d: %s\n", name, lines.Line(note.Place), note)
	}
	file, err := spec.Load(name, text)
	if err == nil {
		_, err = plan.New(file, plan.OnHosts)
	}
	if err == nil {
		return
	}
	for problem := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.ContainsFunc(missing, func(note adopt.Note) bool {
			return strings.Contains(problem, " "+note.Place+":")
		}) {
			visible.Fprintln(w, "to correct:", problem)
		}
	}
}

// modernOf is the version that was given, or the one of the pair that each layout is explained with: 1.6 can share its
// store with 1.10.
func modernOf(request initRequest) string {
	switch {
	case request.modern != "":
		return request.modern
	case request.layout == spec.LayoutShared && len(request.from) == 0:
		return "1.10"
	}
	return kubever.Suggested.String()
}
