package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

var (
	//go:embed page.html.tmpl
	pageText string
	//go:embed parts.html.tmpl
	partsText string
	//go:embed style.css
	styleText string
	//go:embed script.js
	scriptText string
)

// page is what the skeleton ranges over.
type page struct {
	*Input
	Style         template.CSS
	Script        template.JS
	Facts         string
	Sections      []section
	Verdict       Verdict
	Short         []point
	Summary       finding.Summary
	AcceptedCount int
	Picture       template.HTML
	Treemap       template.HTML
	Runbook       template.HTML
	Findings      []findingGroup
	Accepted      []finding.Accepted
	Rules         []finding.Rule
	Owners        []ownerCount
	Stores        []storeRow
	Controllers   []controllerRow
	Processes     []process
	Grants        []grant
	Proofs        []proof
}

type section struct{ ID, Title string }

// findingGroup are the findings of one severity.
type findingGroup struct {
	Severity finding.Severity
	Title    string
	Items    []finding.Finding
}

// groupsOf are the counts of restarts by something.
type groupsOf struct {
	Title  string
	Groups []restart.Group
}

var skeleton, sheetSkeleton = parsed("page", pageText), parsed("sheet", sheetText)

func parsed(name, text string) *template.Template {
	return template.Must(template.Must(template.New(name).Funcs(functions).Parse(partsText)).Parse(text))
}

var functions = template.FuncMap{
	"join": strings.Join, "unchanged": unchanged, "counted": prose.Counted[int], "size": size,
	"parts":  func(key string) []string { return strings.Split(key, "/") },
	"what":   func(g grant) string { return what(g.Grant) },
	"groups": func(title string, groups []restart.Group) groupsOf { return groupsOf{title, groups} },
}

// HTML writes the page: one file that loads nothing, runs no script but its own, and is whole without any.
// Errors: what the writer says; a runbook that is no Markdown.
func HTML(w io.Writer, in *Input) error {
	runbook, err := runbookHTML(in.Runbook)
	if err != nil {
		return err
	}
	p := page{Input: in, Style: template.CSS(styleText), Script: template.JS(scriptText), Facts: kubever.FactsOf,
		Sections: in.sections(), Verdict: in.verdict(), Short: in.short(), Summary: finding.Summarize(in.allFindings()),
		Accepted: in.accepted(), AcceptedCount: len(in.accepted()), Rules: in.explained(), Owners: in.owners(),
		Stores: in.stores(), Controllers: in.controllers(), Processes: in.processes(),
		Grants: in.grants(), Proofs: in.proofs(), Findings: in.groups(),
		Picture: template.HTML(in.Picture), Runbook: runbook}
	if in.Contents != nil {
		p.Treemap = template.HTML(treemap(in.Contents.Resources))
	}
	var out bytes.Buffer
	if err := skeleton.Execute(&out, p); err != nil {
		return fmt.Errorf("report: internal error: %w", err)
	}
	return writePage(w, visible.Text(out.String()), in.Picture)
}

// writePage writes a page with the policy that it wants with its picture, nil for none.
func writePage(w io.Writer, text string, picture []byte) error {
	_, err := io.WriteString(w, strings.Replace(text, "@POLICY@", contentPolicy(picture), 1))
	return err
}

func (in *Input) groups() []findingGroup {
	var groups []findingGroup
	all := in.allFindings()
	for _, severity := range []finding.Severity{finding.Error, finding.Warning, finding.Info} {
		g := findingGroup{Severity: severity, Title: strings.ToUpper(severity.String()[:1]) + severity.String()[1:] +
			"s"}
		for _, f := range all {
			if f.Severity == severity {
				g.Items = append(g.Items, f)
			}
		}
		if len(g.Items) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// sections are the parts that the page has.
func (in *Input) sections() []section {
	list := []section{{"verdict", "Verdict"}, {"short", "In short"}}
	add := func(there bool, id, title string) {
		if there {
			list = append(list, section{id, title})
		}
	}
	add(len(in.Picture) > 0, "picture", "Picture")
	add(true, "findings", "Findings")
	add(true, "resources", "Resources")
	add(true, "controllers", "Controllers")
	add(true, "components", "Components")
	add(in.DiffOf != "", "changes", "Changes")
	add(true, "policy", "Policy")
	add(in.Contents != nil, "contents", "Stores")
	add(in.Restarts != nil, "restarts", "Restarts")
	add(len(in.Runbook) > 0, "runbook", "Runbook")
	add(true, "evidence", "Evidence")
	return list
}

// what a grant is about: resources with their groups, or paths.
func what(g policy.Grant) string {
	var parts []string
	for _, group := range g.APIGroups {
		if group == "" {
			group = "core"
		}
		parts = append(parts, strings.Join(g.Resources, ", ")+" of "+group)
	}
	if len(g.NonResourcePaths) > 0 {
		parts = append(parts, "paths "+strings.Join(g.NonResourcePaths, ", "))
	}
	return strings.Join(parts, "; ")
}

// runbookHTML turns the runbook into a part of the page: its headings are two levels below the page's own, and it
// cannot bring markup of its own.
func runbookHTML(markdown []byte) (template.HTML, error) {
	converter := goldmark.New(goldmark.WithExtensions(extension.Table))
	document := converter.Parser().Parse(text.NewReader(markdown))
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if heading, ok := node.(*ast.Heading); ok && entering {
			heading.Level = min(heading.Level+1, 6)
			if heading.Level == 2 { // the title of the runbook, which the section has
				heading.Level = 3
			}
		}
		return ast.WalkContinue, nil
	})
	var out bytes.Buffer
	if err == nil {
		err = converter.Renderer().Render(&out, markdown, document)
	}
	if err != nil {
		return "", fmt.Errorf("the runbook: %w", err)
	}
	return template.HTML(out.String()), nil
}

var pictureStyle = regexp.MustCompile(`(?s)<style>(.*?)</style>`)

// contentPolicy allows a page its own styles, its picture's and its own script, by their hashes, and nothing else: what
// else came to stand in it does nothing.
func contentPolicy(picture []byte) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	styles := hash(styleText)
	for _, m := range pictureStyle.FindAllStringSubmatch(string(picture), -1) {
		styles += hash(m[1])
	}
	return "default-src 'none'; base-uri 'none'; form-action 'none'; style-src" + styles + "; script-src" +
		hash(scriptText)
}
