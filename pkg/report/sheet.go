package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
)

//go:embed sheet.html.tmpl
var sheetText string

// Sheet is a page about one answer of a verb: what was found, and tables.
type Sheet struct {
	Title      string
	Lead       []string // paragraphs below the title
	Verdict    Verdict
	Incomplete []string // what could not be looked at; such an answer is not clean
	Notes      []string
	Report     *finding.Report // nil where the verb has no findings
	Rules      []finding.Rule  // those of the findings are explained, and those that Tables link to
	Linked     []string        // IDs of rules that Tables link to, as #rule-ID
	Tables     []Table
}

// Table is a part of a page.
type Table struct {
	Title  string
	Class  string
	Head   []string
	Rows   [][]Cell
	Choose int // the column whose values can be chosen, counted from 1; 0 for none
}

// Cell is a text of a table. Where it leads somewhere, Title says where.
type Cell struct {
	Text        string
	Class       string
	Href, Title string
}

// Cells are cells of texts alone.
func Cells(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// Filter is the value of data-filter, "" for none.
func (t Table) Filter() string {
	if t.Choose == 0 {
		return ""
	}
	return strconv.Itoa(t.Choose - 1)
}

// sheetPage is what the skeleton ranges over.
type sheetPage struct {
	*Sheet
	Style       template.CSS
	Script      template.JS
	HasFindings bool
	Findings    []findingGroup
	Accepted    []finding.Accepted
	Rules       []finding.Rule
}

// HTML writes the page: like HTML of a plan one file that loads nothing, and is whole without scripts.
// Errors: what the writer says.
func (s *Sheet) HTML(w io.Writer) error {
	s = s.shown()
	p := sheetPage{Sheet: s, Style: template.CSS(styleText), Script: template.JS(scriptText)}
	in := Input{Rules: s.Rules}
	if s.Report != nil {
		in.Check = *s.Report
	}
	linked := in.Check
	for _, id := range s.Linked {
		linked.Accepted = append(linked.Accepted, finding.Accepted{Finding: finding.Finding{Rule: id}})
	}
	p.Findings, p.Accepted = in.groups(), in.accepted()
	p.Rules = (&Input{Rules: s.Rules, Check: linked}).explained()
	p.HasFindings = s.Report != nil
	var out bytes.Buffer
	if err := sheetSkeleton.Execute(&out, p); err != nil {
		return fmt.Errorf("report: internal error: %w", err)
	}
	return writePage(w, visible.Text(out.String()), nil)
}

// shown is the sheet with each text on one line, whatever names of others bring along.
func (s *Sheet) shown() *Sheet {
	lines := func(texts []string) []string {
		var shown []string
		for _, text := range texts {
			shown = append(shown, visible.Line(text))
		}
		return shown
	}
	show := *s
	show.Title, show.Verdict.Text = visible.Line(s.Title), visible.Line(s.Verdict.Text)
	show.Lead, show.Incomplete, show.Notes = lines(s.Lead), lines(s.Incomplete), lines(s.Notes)
	if s.Report != nil {
		report := finding.Report{}
		for _, f := range s.Report.Findings {
			report.Findings = append(report.Findings, shownFinding(f))
		}
		for _, a := range s.Report.Accepted {
			report.Accepted = append(report.Accepted,
				finding.Accepted{Finding: shownFinding(a.Finding), Reason: visible.Line(a.Reason)})
		}
		show.Report = &report
	}
	show.Tables = nil
	for _, t := range s.Tables {
		t.Title, t.Head = visible.Line(t.Title), lines(t.Head)
		rows := t.Rows
		t.Rows = make([][]Cell, len(rows))
		for i, row := range rows {
			for _, c := range row {
				c.Text, c.Title = visible.Line(c.Text), visible.Line(c.Title)
				t.Rows[i] = append(t.Rows[i], c)
			}
		}
		show.Tables = append(show.Tables, t)
	}
	return &show
}

// shownFinding has each of its texts on one line; a fix of several lines has spaces between them.
func shownFinding(f finding.Finding) finding.Finding {
	f.Subject, f.Message = visible.Line(f.Subject), visible.Line(f.Message)
	f.Fix = visible.Line(strings.Join(strings.FieldsFunc(f.Fix, func(r rune) bool { return r == '\n' }), " "))
	return f
}

// VerdictOf sums findings up; what could not be looked at makes it an error.
func VerdictOf(findings []finding.Finding, incomplete []string) Verdict {
	s := finding.Summarize(findings)
	text := prose.Counted(s.Errors, "error") + ", " + prose.Counted(s.Warnings, "warning") + ", " +
		prose.Counted(s.Infos, "info") + "."
	switch {
	case len(incomplete) > 0:
		return Verdict{finding.Error, "Incomplete, not to be taken for clean. " + text}
	case len(findings) == 0:
		return Verdict{finding.Info, "Nothing was found."}
	}
	return Verdict{finding.Worst(findings), text}
}
