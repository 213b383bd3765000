package site

import (
	"bytes"
	_ "embed" // of the template
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed style.css
	style []byte
	//go:embed search.js
	search []byte
)

// repository is where links lead that leave the site.
const repository = "https://github.com/kubefusion/fusionctl/blob/main/"

// page is one page of the site. Its path is that of its source, with .html in place of .md.
type page struct {
	Path    string // docs/etcd.html
	Title   string
	Body    template.HTML
	section string
	words   string // text, for the search
	heads   []heading
}

type heading struct{ Title, Anchor string }

// sections are the parts of the menu, in order.
var sections = []string{"Start", "By role", "Concepts", "Guides", "Commands", "Rules", "Decisions", "Project"}

// sectionOf says to which part of the menu a source belongs.
func sectionOf(source string) string {
	start := []string{"docs/answers.md", "docs/tutorial.md", "docs/install.md", "docs/scope.md", "README.md"}
	switch dir := path.Dir(source); {
	case slices.Contains(start, source):
		return "Start"
	case dir == "docs/roles":
		return "By role"
	case dir == "docs/concepts":
		return "Concepts"
	case dir == "docs/rules":
		return "Rules"
	case dir == "docs/adr":
		return "Decisions"
	case dir == "docs":
		return "Guides"
	case dir == "commands":
		return "Commands"
	default:
		return "Project"
	}
}

// Site writes the documentation of a checkout as static pages into a directory, which exists: Markdown of the root, of
// docs and of examples, and a page for each command. Files that pages link to come along.
func Site(checkout, out string) error {
	sources, err := markdown(checkout)
	if err != nil {
		return err
	}
	for name, text := range Commands() {
		sources[name] = text
	}
	var pages []page
	for name, source := range sources {
		p, err := rendered(checkout, out, name, source, sources)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		pages = append(pages, p)
	}
	slices.SortFunc(pages, func(a, b page) int {
		return strings.Compare(a.Path, b.Path)
	})
	if err := write(out, "style.css", style); err != nil {
		return err
	}
	if err := write(out, "search.js", search); err != nil {
		return err
	}
	index, err := indexed(pages)
	if err != nil {
		return err
	}
	if err := write(out, "search-index.js", index); err != nil {
		return err
	}
	shape := template.Must(template.New("page").Parse(pageTemplate))
	for _, p := range append(pages, home(pages)) {
		var text bytes.Buffer
		if err := shape.Execute(&text, show(p, pages)); err != nil {
			return err
		}
		if err := write(out, p.Path, text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// markdown reads the pages of a checkout, by path.
func markdown(checkout string) (map[string][]byte, error) {
	sources := map[string][]byte{}
	err := filepath.WalkDir(checkout, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(checkout, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			top, _, _ := strings.Cut(name, "/")
			if name != "." && top != "docs" && top != "examples" {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		sources[name], err = os.ReadFile(file)
		return err
	})
	return sources, err
}

// htmlName is the path of a source's page.
func htmlName(source string) string { return strings.TrimSuffix(source, ".md") + ".html" }

func rendered(checkout, out, name string, source []byte, sources map[string][]byte) (page, error) {
	converter := goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	context := parser.NewContext(parser.WithIDs(&anchors{seen: map[string]int{}}))
	document := converter.Parser().Parse(text.NewReader(source), parser.WithContext(context))
	p := page{Path: htmlName(name), section: sectionOf(name)}
	var words strings.Builder
	err := ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			title := plain(n, source)
			id, _ := n.AttributeString("id")
			anchor, _ := id.([]byte)
			if p.Title == "" && n.Level == 1 {
				p.Title = title
			} else {
				p.heads = append(p.heads, heading{title, string(anchor)})
			}
		case *ast.Link:
			target, err := follow(checkout, out, name, string(n.Destination), sources)
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(target)
			nameLink(n, name, source, sources)
		case *ast.Image:
			target, err := follow(checkout, out, name, string(n.Destination), sources)
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(target)
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			words.WriteByte(' ')
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for _, line := range n.Lines().Sliced(0, n.Lines().Len()) {
				words.Write(line.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return page{}, err
	}
	if p.Title == "" {
		return page{}, fmt.Errorf("a page wants a title on its first line, # TITLE")
	}
	p.words = words.String()
	var body bytes.Buffer
	err = converter.Renderer().Render(&body, source, document)
	p.Body = template.HTML(body.String()) // goldmark escapes what is not Markdown
	return p, err
}

// plain is the text of a node.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// follow gives the target of a link within the site. Files that are no pages are copied beside them; directories lead
// to their README, or to the repository.
func follow(checkout, out, from, link string, sources map[string][]byte) (string, error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "mailto:") {
		return link, nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	target := path.Join(path.Dir(from), file)
	for _, name := range []string{target, path.Join(target, "README.md")} {
		if _, ok := sources[name]; ok {
			return relative(from, htmlName(name)) + anchor, nil
		}
	}
	info, err := os.Stat(filepath.Join(checkout, target))
	if err != nil {
		return "", fmt.Errorf("%s leads nowhere", link)
	}
	if info.IsDir() {
		return strings.Replace(repository, "/blob/", "/tree/", 1) + target, nil
	}
	data, err := os.ReadFile(filepath.Join(checkout, target))
	if err != nil {
		return "", err
	}
	return relative(from, target), write(out, target, data)
}

// nameLink gives a link whose text is the name of a file the title of its page: readers of the site see no files.
func nameLink(n *ast.Link, from string, source []byte, sources map[string][]byte) {
	if path.Ext(plain(n, source)) != ".md" {
		return
	}
	name := path.Join(path.Dir(from), plain(n, source))
	target, ok := sources[name]
	if !ok {
		return
	}
	title, _, _ := strings.Cut(string(target), "\n")
	text := ast.NewString([]byte(strings.ReplaceAll(strings.TrimPrefix(title, "# "), "`", "")))
	text.SetRaw(true)
	n.RemoveChildren(n)
	n.AppendChild(n, text)
}

// relative is the way from one page to a file, as a link.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}

// notInAnchor is what the repository's host leaves out of the anchors of headings.
var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchors names headings as the host of the repository does, so that links work in both places.
type anchors struct{ seen map[string]int }

func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(string(value)), ""), " ", "-")
	a.seen[id]++
	if n := a.seen[id]; n > 1 {
		id = fmt.Sprintf("%s-%d", id, n-1)
	}
	return []byte(id)
}

func (a *anchors) Put(value []byte) { a.seen[string(value)]++ }

// entry is what the search knows of a page.
type entry struct {
	Path    string      `json:"p"`
	Title   string      `json:"t"`
	Section string      `json:"s"`
	Heads   [][2]string `json:"h"`
	Words   string      `json:"w"`
}

var space = regexp.MustCompile(`\s+`)

// indexed is the search's index, as a script: pages opened from a disk may not fetch others.
func indexed(pages []page) ([]byte, error) {
	var entries []entry
	for _, p := range pages {
		e := entry{Path: p.Path, Title: p.Title, Section: p.section, Heads: [][2]string{},
			Words: strings.ToLower(space.ReplaceAllString(p.words, " "))}
		for _, h := range p.heads {
			e.Heads = append(e.Heads, [2]string{h.Title, h.Anchor})
		}
		entries = append(entries, e)
	}
	text, err := json.Marshal(entries)
	return append(append([]byte("const pages = "), text...), ";\n"...), err
}

// home lists every page by section: whatever there is, is one click away.
func home(pages []page) page {
	var b strings.Builder
	b.WriteString("<h1>fusionctl</h1>\n<p>Two Kubernetes control-plane versions over one set of nodes. " +
		"<a href=\"docs/answers.html\">Which page answers my question?</a></p>\n")
	for _, section := range sections {
		fmt.Fprintf(&b, "<h2 id=%q>%s</h2>\n<ul class=\"all\">\n", anchorOf(section),
			template.HTMLEscapeString(section))
		for _, p := range pages {
			if p.section == section {
				fmt.Fprintf(&b, "<li><a href=\"%s\">%s</a></li>\n", template.HTMLEscapeString(p.Path),
					template.HTMLEscapeString(p.Title))
			}
		}
		b.WriteString("</ul>\n")
	}
	return page{Path: "index.html", Title: "fusionctl", Body: template.HTML(b.String())}
}

func anchorOf(section string) string { return strings.ReplaceAll(strings.ToLower(section), " ", "-") }

// shown is what the template is given.
type shown struct {
	page
	Root string // the way to the start of the site: "" or "../"
	Menu []menu
	Here string // the section
}

type menu struct {
	Title, Anchor string
	Here          bool
	Pages         []item // of the section of the page that is shown
}

type item struct {
	Title, Path string
	Here        bool
}

func show(p page, pages []page) shown {
	s := shown{page: p, Root: strings.Repeat("../", strings.Count(p.Path, "/")), Here: p.section}
	for _, section := range sections {
		m := menu{Title: section, Anchor: anchorOf(section), Here: section == p.section}
		for _, other := range pages {
			if other.section == section && (m.Here || section == "Start") {
				m.Pages = append(m.Pages, item{other.Title, other.Path, other.Path == p.Path})
			}
		}
		s.Menu = append(s.Menu, m)
	}
	return s
}

func write(out, name string, data []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
