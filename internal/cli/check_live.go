package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/live"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// liveDocument is the answer of check --live as JSON and YAML show it.
type liveDocument struct {
	Schema     string   `json:"schema"`
	Objects    int64    `json:"objects"`    // that were looked at
	Complete   bool     `json:"complete"`   // false: not to be taken for clean
	Incomplete []string `json:"incomplete"` // what could not be looked at, and why
	finding.Report
	Summary finding.Summary `json:"summary"`
}

func runCheckLive(ctx context.Context, req checkRequest, streams Streams) error {
	p, err := loadPlan(streams, req.file)
	if err != nil {
		return err
	}
	servers := map[pair.Side]live.Server{}
	for side, file := range map[pair.Side]string{pair.Legacy: req.legacyKubeconfig, pair.Modern: req.modernKubeconfig} {
		if servers[side], err = apiserver.Open(file, "", apiserver.Options{}); err != nil {
			return badInput(fmt.Errorf("the %s side: %w", side, err),
				"a kubeconfig names a server, its CA and the client's certificate or token")
		}
	}
	seen, err := live.Check(ctx, p, servers, live.Options{NoFlags: req.noFlags})
	if err != nil {
		return err
	}
	report, _ := finding.Accept(seen.Findings, p.Accept)
	if err := printLive(streams.Out, req, seen, report); err != nil {
		return err
	}
	if len(seen.Incomplete) > 0 {
		return withHint(errors.New("the check is incomplete:\n  "+strings.Join(seen.Incomplete, "\n  ")), "")
	}
	return attention(report.Findings, req.failOn)
}

func printLive(w io.Writer, req checkRequest, seen *live.Report, report finding.Report) error {
	document := liveDocument{Schema: "fusionctl/check-live/v1", Objects: seen.Objects,
		Complete: len(seen.Incomplete) == 0, Incomplete: seen.Incomplete,
		Report: report, Summary: finding.Summarize(report.Findings)}
	if document.Incomplete == nil {
		document.Incomplete = []string{}
	}
	if printed, err := printDocument(w, req.output, document); printed {
		return err
	}
	if req.output == "sarif" {
		return printSARIF(w, finding.Servers, req.file, report.Findings, seen.Incomplete...)
	}
	if req.output == "html" {
		return checkSheet(w, req.file, report, seen.Incomplete)
	}
	printFindings(w, report)
	verdict := "complete"
	if !document.Complete {
		verdict = "INCOMPLETE, which is not clean"
	}
	_, err := visible.Fprintf(w, "%d objects: %s; %s\n", seen.Objects, countsOf(document.Summary, len(report.Accepted)),
		verdict)
	return err
}
