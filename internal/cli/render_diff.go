package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/adopt/files"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// diffDocument is the answer of render --diff as JSON shows it.
type diffDocument struct {
	Schema     string              `json:"schema"`
	Components []render.Difference `json:"components"`
	Summary    diffSummary         `json:"summary"`
}

type diffSummary struct {
	Components int `json:"components"`
	Differ     int `json:"differ"`
	Changes    int `json:"changes"`
}

func runRenderDiff(req renderRequest, streams Streams) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	document, err := diffOf(p, req, streams)
	if err != nil {
		return err
	}
	printed := false
	if printed, err = printDocument(streams.Out, req.output, document); !printed {
		err = printDifferences(streams.Out, document, len(p.Hosts) > 1)
	}
	if err == nil && document.Summary.Differ > 0 {
		return errAttention
	}
	return err
}

// diffOf compares the plan with what the files of its hosts start.
func diffOf(p *plan.Plan, req renderRequest, streams Streams) (diffDocument, error) {
	document := diffDocument{Schema: "fusionctl/render-diff/v1"}
	places, err := hostDirectories(p, req.diff, req.host)
	if err != nil {
		return document, err
	}
	found := 0
	for _, place := range places {
		running, err := runningOn(p, place, streams)
		if err != nil {
			return document, err
		}
		found += len(running)
		document.Components = append(document.Components, render.Diff(p, place.host, running)...)
	}
	if found == 0 {
		return document, badInput(fmt.Errorf("%s: no component of a control plane among its files", req.diff),
			"want static pod manifests, such as those of /etc/kubernetes/manifests, or systemd units")
	}
	document.Summary.Components = len(document.Components)
	for _, d := range document.Components {
		document.Summary.Changes += len(d.Changes)
		if d.State != render.Same {
			document.Summary.Differ++
		}
	}
	return document, nil
}

// hostDirectory are the directories that hold the files of one host.
type hostDirectory struct {
	host        string
	directories []string
}

// hostDirectories says which directory is whose: DIR/HOST where there is one, as render writes them, and else DIR
// itself.
func hostDirectories(p *plan.Plan, directory, only string) ([]hostDirectory, error) {
	info, err := os.Stat(directory)
	if err != nil {
		return nil, badInput(err, "")
	}
	if !info.IsDir() {
		return nil, usagef("%s: is a file, want the directory that it is in", directory)
	}
	var hosts, below []string
	for _, h := range p.Hosts {
		hosts = append(hosts, h.Name)
		if filetree.IsDir(filepath.Join(directory, h.Name)) {
			below = append(below, h.Name)
		}
	}
	wanted := hosts
	if only != "" {
		if !slices.Contains(hosts, only) {
			return nil, usagef("host %q: the plan has %s", only, strings.Join(hosts, ", "))
		}
		wanted = []string{only}
	}
	if len(below) == 0 {
		if len(wanted) > 1 {
			return nil, badInput(
				fmt.Errorf("%s: of which host are these files? the plan has %s", directory, strings.Join(hosts, ", ")),
				"--host HOST names it; a directory with a subdirectory for each host is compared as a whole")
		}
		return []hostDirectory{{wanted[0], []string{directory}}}, nil
	}
	var places []hostDirectory
	for _, host := range wanted {
		root := filepath.Join(directory, host)
		places = append(places,
			hostDirectory{host, slices.DeleteFunc([]string{root, filepath.Join(root, "existing")}, func(d string) bool {
				return !filetree.IsDir(d)
			})})
	}
	return places, nil
}

// runningOn reads what the files of a host start. What a person should know about them goes to stderr.
func runningOn(p *plan.Plan, place hostDirectory, streams Streams) ([]render.Running, error) {
	var running []render.Running
	for _, directory := range place.directories {
		dir, err := files.Open(directory)
		if err != nil {
			return nil, badInput(err, "")
		}
		found, err := adopt.ReadAll(dir.Files, dir.Host)
		if err != nil {
			return nil, badInput(fmt.Errorf("reading %s: %w", directory, err), "")
		}
		notes := found.Notes
		for i := range found.Processes {
			process := &found.Processes[i]
			args, more := process.Args(render.MinorOf(p, process.Name))
			notes = append(notes, more...)
			running = append(running,
				render.Running{Name: process.Name, Kind: process.Component,
					Place: filepath.Join(directory, process.Place),
					Image: process.Image, Args: args, Env: process.Env})
		}
		for _, note := range notes {
			if note.Place != "" {
				note.Place = filepath.Join(directory, note.Place)
			}
			visible.Fprintln(streams.Err, note)
		}
	}
	return running, nil
}

// printDifferences prints each component that differs, and each of its differences with the reason below it.
func printDifferences(w io.Writer, document diffDocument, hosts bool) error {
	var out strings.Builder
	for _, d := range document.Components {
		name := d.Component
		if hosts {
			name += " on " + d.Host
		}
		switch d.State {
		case render.Same:
			visible.Fprintf(&out, "%s (%s): the same\n", name, d.Place)
		case render.New:
			visible.Fprintf(&out, "%s: is new\n", name)
		case render.Missing:
			visible.Fprintf(&out, "%s: runs already according to the spec, but no file starts it\n", name)
		default:
			visible.Fprintf(&out, "%s (%s):\n", name, d.Place)
		}
		for _, c := range d.Changes {
			out.WriteString(changeLines(c))
		}
	}
	visible.Fprintf(&out, "%d of %d components differ\n", document.Summary.Differ, document.Summary.Components)
	_, err := io.WriteString(w, out.String())
	return err
}

// changeLines are the old lines, the new ones, and why. Of two long lists only the entries that one of them lacks are
// shown.
func changeLines(c render.Change) string {
	var out strings.Builder
	if removed, added, ok := c.Entries(); ok {
		visible.Fprintf(&out, "  ~ %s\n", c.What)
		for _, entry := range removed {
			visible.Fprintf(&out, "    - %s\n", entry)
		}
		for _, entry := range added {
			visible.Fprintf(&out, "    + %s\n", entry)
		}
	} else {
		for _, value := range c.Old {
			visible.Fprintf(&out, "  - %s=%s\n", c.What, value)
		}
		for _, value := range c.New {
			visible.Fprintf(&out, "  + %s=%s\n", c.What, value)
		}
	}
	if c.Why != "" {
		visible.Fprintf(&out, "      %s\n", c.Why)
	}
	return out.String()
}
