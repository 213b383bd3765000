package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/report"
)

// checkSheet is an answer of check as a page.
func checkSheet(w io.Writer, subject string, found finding.Report, incomplete []string) error {
	return (&report.Sheet{Title: "Check of " + subject, Verdict: report.VerdictOf(found.Findings, incomplete),
		Incomplete: incomplete, Report: &found, Rules: catalog.Rules()}).HTML(asData(w))
}

// preflightSheet is an answer of preflight as a page.
func preflightSheet(w io.Writer, title string, document preflightDocument) error {
	return (&report.Sheet{Title: title, Verdict: report.VerdictOf(document.Findings, document.Incomplete),
		Incomplete: document.Incomplete, Report: &document.Report, Rules: catalog.Rules()}).HTML(asData(w))
}

// policySheet is an answer of policy validate as a page; findings begin with their place.
func policySheet(w io.Writer, document policyValidateDocument) error {
	found := finding.Report{Accepted: document.Accepted}
	for _, f := range document.Findings {
		f.Subject = strings.TrimSpace(placeOf(f) + " " + f.Subject)
		found.Findings = append(found.Findings, f)
	}
	return (&report.Sheet{Title: "Validation of policies", Report: &found, Rules: catalog.Rules(),
		Lead: []string{prose.Counted(document.Summary.Files, "file") + ", " +
			prose.Counted(document.Summary.Rules, "rule") +
			"."},
		Verdict: report.VerdictOf(document.Findings, nil)}).HTML(asData(w))
}

// etcdSheet is an answer of etcd check as a page.
func etcdSheet(w io.Writer, document etcdCheckDocument) error {
	stores := report.Table{Title: "Stores", Head: []string{"Store", "Revision", "Keys", "Bytes", "Outside"}}
	for _, s := range document.Stores {
		stores.Rows = append(stores.Rows, report.Cells(s.Name, fmt.Sprint(s.Revision), fmt.Sprint(s.Keys),
			size(s.Bytes, document.Depth), fmt.Sprint(s.Outside)))
	}
	resources := report.Table{Title: "Resources", Choose: 3,
		Head: []string{"Resource", "Store", "Owner", "Keys", "Bytes", "Stored as", "Verdict"}}
	var linked []string
	for _, r := range document.Resources {
		var types []string
		for _, s := range r.Types {
			types = append(types, storedType(s, r.Kind, len(r.Types) > 1))
		}
		linked = append(linked, r.Rules...)
		resources.Rows = append(resources.Rows, report.Cells(r.Resource, r.Store, string(r.Owner), fmt.Sprint(r.Keys),
			size(r.Bytes, document.Depth), strings.Join(types, " "),
			strings.TrimSpace(r.Verdict+" "+strings.Join(r.Rules, ", "))))
	}
	return (&report.Sheet{Title: "What the stores hold",
		Lead: []string{prose.Counted(int(document.Summary.Keys), "key") + ", read to depth " + string(document.Depth) +
			"."},
		Verdict:    report.VerdictOf(document.Findings, document.Incomplete),
		Incomplete: document.Incomplete, Linked: linked, Rules: catalog.Rules(),
		Report: &finding.Report{Findings: document.Findings, Accepted: document.Accepted},
		Tables: []report.Table{stores, resources}}).HTML(asData(w))
}

// matrixSheet is the matrix as a page: a cell that is not possible leads to the rule that stands in the way.
func matrixSheet(w io.Writer, document matrixDocument) error {
	table := report.Table{Title: "Layout " + string(document.Layout), Class: "matrix", Head: []string{"legacy"}}
	minors := kubever.Minors()
	for _, modern := range minors {
		table.Head = append(table.Head, strings.TrimPrefix(modern.String(), "1"))
	}
	var linked, notes []string
	for _, pair := range document.Pairs {
		row := slices.Index(minors, pair.Legacy)
		for len(table.Rows) <= row {
			empty := make([]report.Cell, len(table.Head))
			empty[0].Text = minors[len(table.Rows)].String()
			table.Rows = append(table.Rows, empty)
		}
		cell := &table.Rows[row][1+slices.Index(minors, pair.Modern)]
		switch {
		case pair.Possible && pair.Proven:
			*cell = report.Cell{Text: "run", Class: "ok",
				Title: "real servers of both versions did what a plan promises"}
		case pair.Possible:
			*cell = report.Cell{Text: "ok", Class: "ok"}
		case pair.Rule == "":
			*cell = report.Cell{Text: "no", Class: "no"}
			notes = append(notes, fmt.Sprintf("no, for %s and %s: %s", pair.Legacy, pair.Modern, pair.Reason))
		default:
			*cell = report.Cell{Text: strings.TrimPrefix(pair.Rule, "FUS"), Class: "no", Href: "#rule-" + pair.Rule,
				Title: pair.Reason}
			linked = append(linked, pair.Rule)
		}
	}
	verdict := report.Verdict{Severity: finding.Info,
		Text: fmt.Sprintf("%d of %d pairs have a default plan without errors.", document.Summary.Possible,
			document.Summary.Pairs)}
	return (&report.Sheet{Title: "Which versions can live together", Verdict: verdict, Linked: linked,
		Notes: notes,
		Lead: []string{"Rows are legacy versions, columns modern ones. A number is the rule that stands in the way " +
			"of the plan that fusionctl init starts from; your spec may need less, or more.",
			"ok: the facts about both versions allow it; run: real servers of both versions did it, too."},
		Rules: catalog.Rules(), Tables: []report.Table{table}}).HTML(asData(w))
}

// htmlRows gathers rows for a page. Unlike the other forms it holds all of them.
type htmlRows struct {
	w      io.Writer
	title  string
	rows   string // what the rows are
	choose string // the column whose values can be chosen
	// finish fills in what stands around the rows, by the tail of the answer
	finish func(sheet *report.Sheet, tail any)
	table  report.Table
}

func (r *htmlRows) row(_ any, header, cells []string) error {
	if r.table.Head == nil {
		for i, name := range header {
			r.table.Head = append(r.table.Head, name[:1]+strings.ToLower(name[1:]))
			if name == r.choose {
				r.table.Choose = i + 1
			}
		}
	}
	r.table.Rows = append(r.table.Rows, report.Cells(cells...))
	return nil
}

func (r *htmlRows) close(tail any) error {
	sheet := &report.Sheet{Title: r.title, Verdict: report.Verdict{Severity: finding.Info, Text: "Nothing to show."}}
	if r.table.Rows != nil {
		r.table.Title = r.rows
		if r.table.Head[len(r.table.Head)-1] == "Why" {
			r.table.Class = "why"
		}
		sheet.Tables = []report.Table{r.table}
	}
	if early, ok := tail.(incomplete); ok {
		sheet.Incomplete = []string{early.Incomplete}
		sheet.Verdict = report.VerdictOf(nil, sheet.Incomplete)
	} else {
		r.finish(sheet, tail)
	}
	return sheet.HTML(asData(r.w))
}

// severityOf is an error where something is, a warning where something may be.
func severityOf(is, may int) finding.Severity {
	switch {
	case is > 0:
		return finding.Error
	case may > 0:
		return finding.Warning
	}
	return finding.Info
}
