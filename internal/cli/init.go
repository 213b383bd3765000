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
	"github.com/kubefusion/fusionctl/internal/spelling"
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
or systemd units (/etc/systemd/system) and their environment files, with what docker inspect prints, or with the
argument files of a snap; or a file of these, or a list of processes with their arguments (ps -ww -eo args). For a
control plane of several hosts give one DIR for each, called after the host, or the directory that has them. Nothing is
made up: what the files do not say is left empty, and stderr lists what to fill in. The layout is split unless another
is given.

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
		"version of the modern side (default "+kubever.Newest.String()+" for split, 1.10 for shared)")
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

// draftFrom reads the files of every host, and takes from the mode what one of them does not have. Whatever is wrong
// with them is the fault of what was given.
func draftFrom(from []string, options adopt.Options, mode *fs.FileMode) (*adopt.Draft, error) {
	directories, err := hostsBelow(from)
	if err != nil {
		return nil, err
	}
	hosts, err := readHosts(directories, mode)
	if err != nil {
		return nil, err
	}
	draft, err := adopt.DraftHosts(hosts, options)
	if err == nil {
		if len(hosts) == 1 {
			for i := range draft.Notes {
				if note := &draft.Notes[i]; note.Place != "" && isDirectory(directories[0]) {
					note.Place = filepath.Join(directories[0], note.Place)
				} else if note.Place != "" {
					note.Place = filepath.Join(filepath.Dir(directories[0]), note.Place)
				}
			}
		}
		return draft, nil
	}
	hint := ""
	if errors.Is(err, adopt.ErrVersion) {
		hint = "pass --legacy VERSION, such as --legacy 1.6.13"
	}
	return nil, badInput(fmt.Errorf("reading %s: %w", strings.Join(directories, ", "), err), hint)
}

// hostsBelow are the directories of the hosts: those that were given, or, of one that starts no API server, the ones in
// it that do.
func hostsBelow(from []string) ([]string, error) {
	if len(from) > 1 {
		return from, nil
	}
	entries, err := os.ReadDir(from[0])
	if err != nil {
		return from, nil // a file, or an error for the reader to report
	}
	if _, err := adopt.Read(os.DirFS(from[0]), nil); err == nil {
		return from, nil
	}
	var below []string
	for _, entry := range entries {
		directory := filepath.Join(from[0], entry.Name())
		if len(entries) > limitHosts || !isDirectory(directory) {
			continue
		}
		if _, err := adopt.Read(os.DirFS(directory), nil); err == nil {
			below = append(below, directory)
		}
	}
	if len(below) < 2 {
		return from, nil
	}
	return below, nil
}

// limitHosts is far above the hosts of a control plane.
const limitHosts = 64

// readHosts reads one directory, or file, for each host. Of several each is called after its directory.
func readHosts(directories []string, mode *fs.FileMode) ([]adopt.Host, error) {
	var hosts []adopt.Host
	for _, directory := range directories {
		files, err := filesOf(directory)
		if err != nil {
			return nil, err
		}
		host := hostOf(directory)
		if host != nil {
			host = strictest{host, mode}
		}
		running, err := adopt.Read(strictest{files, mode}, host)
		if err != nil {
			return nil, badInput(fmt.Errorf("reading %s: %w", directory, err), "")
		}
		h := adopt.Host{Running: running}
		if len(directories) > 1 {
			if h.Name, err = hostName(directory); err != nil {
				return nil, err
			}
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// hostName is the name of the directory of a host.
func hostName(directory string) (string, error) {
	absolute, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	name := filepath.Base(absolute)
	if !spec.IsLabel(name) {
		return "", usagef("%s: of several directories each is called after its host; want lower-case letters, digits "+
			"and dashes, at most 63", directory)
	}
	return name, nil
}

// filesOf is a directory, or one file as if it were alone in one.
func filesOf(name string) (fs.FS, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, badInput(err, "")
	}
	if info.IsDir() {
		return os.DirFS(name), nil
	}
	return oneFile{os.DirFS(filepath.Dir(name)), filepath.Base(name)}, nil
}

// oneFile is a directory of which only one file is seen.
type oneFile struct {
	fs.FS
	name string
}

func (o oneFile) Open(name string) (fs.File, error) {
	if name != o.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return o.FS.Open(name)
}

// Stat does not open the file, which may be a pipe.
func (o oneFile) Stat(name string) (fs.FileInfo, error) {
	if name != o.name && name != "." {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return fs.Stat(o.FS, name)
}

func (o oneFile) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	info, err := fs.Stat(o.FS, o.name)
	if err != nil {
		return nil, err
	}
	return []fs.DirEntry{fs.FileInfoToDirEntry(info)}, nil
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

// Stat does not open the file: opening a pipe waits for its other end.
func (s strictest) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.FS, name) }

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

// ReadDir reads what the files are read from.
func (s strictest) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(s.FS, name) }

// modernOf is the version that was given, or the one of the pair that each layout is explained with: 1.6 can share its
// store with 1.10.
func modernOf(request initRequest) string {
	switch {
	case request.modern != "":
		return request.modern
	case request.layout == spec.LayoutShared && len(request.from) == 0:
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
		return badInput(fmt.Errorf("%s: exists already", file), "use another name for -o, or move the file away")
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return filetree.WriteFile(file, text, mode)
}
