package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kubefusion/fusionctl/internal/visible"
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
		running, notes, err := place.Running(p)
		for _, note := range notes {
			visible.Fprintln(streams.Err, note)
		}
		if err != nil {
			return document, badInput(err, "")
		}
		found += len(running)
		document.Components = append(document.Components, render.Diff(p, place.Host, running)...)
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

// hostDirectories says which directory is whose.
func hostDirectories(p *plan.Plan, directory, only string) ([]files.Tree, error) {
	var hosts []string
	for _, h := range p.Hosts {
		hosts = append(hosts, h.Name)
	}
	trees, err := files.ByHost(directory, hosts, only)
	if errors.Is(err, files.ErrWhichHost) {
		return nil, badInput(err, "--host HOST names it; a directory with a subdirectory for each host is compared as "+
			"a whole")
	}
	return trees, badInput(err, "")
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
