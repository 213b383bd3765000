package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/preflight"
	"github.com/kubefusion/fusionctl/pkg/preflight/host"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// runRenderVerify judges the files of a tree: the root of one host, or a directory with one for each.
func runRenderVerify(ctx context.Context, req renderRequest, streams Streams) error {
	if !slices.Contains(hostTargets, req.target) {
		return usagef("--verify: want --target %s: a cluster has no files", strings.Join(hostTargets, " or "))
	}
	p, text, err := loadPlanAndText(streams, req.file, plan.OnHosts)
	if err != nil {
		return err
	}
	places, err := hostDirectories(p, req.verify, req.host)
	if err != nil {
		return err
	}
	document := preflightDocument{Schema: "fusionctl/render-verify/v1"}
	lines := spec.ParsePlaces(text)
	var found []finding.Finding
	for _, place := range places {
		needs, err := preflight.New(p, place.Host, render.Target(req.target))
		if err != nil {
			return badInput(err, "")
		}
		document.Hosts = append(document.Hosts, place.Host)
		if len(place.Directories) == 0 {
			document.Incomplete = append(document.Incomplete, fmt.Sprintf("%s: no directory of host %s", req.verify,
				place.Host))
			continue
		}
		root, err := filepath.Abs(place.Directories[0])
		if err != nil {
			return err
		}
		seen := host.Read(ctx, needs, host.Options{Root: root})
		for _, text := range seen.Incomplete {
			document.Incomplete = append(document.Incomplete, place.Host+": "+text)
		}
		for _, f := range preflight.Check(needs, seen, req.now) {
			if line := lineOf(&f, lines); line > 0 { // the finding itself is of the file in the tree
				f.Fix += fmt.Sprintf(" (%s:%d leads to it)", req.file, line)
			}
			f.File = filepath.Join(place.Directories[0], filepath.FromSlash(f.Subject))
			if len(places) > 1 {
				f.Subject = place.Host + ":" + f.Subject
			}
			found = append(found, f)
		}
	}
	finding.Sort(found)
	document.Report, _ = finding.Accept(found, p.Accept)
	return reportPreflight(document, req.file, "Files of "+strings.Join(document.Hosts, ", "), req.output, "error",
		streams)
}
