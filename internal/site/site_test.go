package site

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/spf13/cobra"
	"golang.org/x/net/html"

	"github.com/kubefusion/fusionctl/internal/browser"
	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/internal/debian"
	"github.com/kubefusion/fusionctl/pkg/catalog"
)

// parsed is what a test wants to know of a page.
type parsed struct {
	root   *html.Node
	ids    map[string]int
	links  []string
	titles int
	text   string
}

// built writes the site of this checkout, and reads it back, by path.
func built(t *testing.T) (string, map[string]*parsed) {
	t.Helper()
	out := t.TempDir()
	if err := Site("../..", out); err != nil {
		t.Fatal(err)
	}
	pages := map[string]*parsed{}
	err := filepath.WalkDir(out, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		root, err := html.Parse(bytes.NewReader(data))
		if err != nil {
			return err
		}
		name, err := filepath.Rel(out, file)
		p := &parsed{root: root, ids: map[string]int{}}
		pages[filepath.ToSlash(name)] = p
		for n := range root.Descendants() {
			if n.Type == html.TextNode {
				p.text += n.Data
			}
			if n.Type != html.ElementNode {
				continue
			}
			if n.Data == "h1" {
				p.titles++
			}
			for _, a := range n.Attr {
				switch a.Key {
				case "id":
					p.ids[a.Val]++
				case "href", "src":
					p.links = append(p.links, a.Val)
				case "style", "onclick":
					t.Errorf("%s has %s=%q, which the policy of the page forbids", name, a.Key, a.Val)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, pages
}

// TestEveryLink clicks every link: the file exists, and so does the anchor. Nothing is loaded from elsewhere.
func TestEveryLink(t *testing.T) {
	out, pages := built(t)
	clicked := 0
	for name, p := range pages {
		if p.titles != 1 {
			t.Errorf("%s has %d titles, want 1", name, p.titles)
		}
		for id, n := range p.ids {
			if n > 1 {
				t.Errorf("%s has %d places called %s", name, n, id)
			}
		}
		for _, link := range p.links {
			if strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "http://") {
				continue
			}
			clicked++
			file, anchor, _ := strings.Cut(link, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(out, target)); err != nil || strings.HasPrefix(target, "..") {
				t.Errorf("%s: %s leads nowhere", name, link)
			} else if anchor != "" && pages[target] != nil && pages[target].ids[anchor] == 0 {
				t.Errorf("%s: %s has no place %s", name, target, anchor)
			}
		}
	}
	if clicked < 3000 {
		t.Errorf("%d links were clicked, want many more", clicked)
	}
}

// TestAnswersLeadToEveryPage: the page that answers which page answers what knows all of them.
func TestAnswersLeadToEveryPage(t *testing.T) {
	_, pages := built(t)
	linked := map[string]bool{"docs/answers.html": true}
	for _, link := range pages["docs/answers.html"].links {
		linked[path.Join("docs", strings.Split(link, "#")[0])] = true
	}
	for name, p := range pages {
		if strings.HasPrefix(name, "docs/") && !strings.HasPrefix(name, "docs/rules/") &&
			!strings.HasPrefix(name, "docs/adr/") && !linked[name] {
			t.Errorf("docs/answers.md does not lead to %s", name)
		}
		if name == "docs/answers.html" && strings.Contains(p.text, ".md") {
			t.Error("a reader of the site is shown names of files")
		}
	}
}

// TestTwoClicks: every page is at most two clicks away from the first one; every command and every rule has one.
func TestTwoClicks(t *testing.T) {
	_, pages := built(t)
	near := map[string]bool{"index.html": true}
	for range 2 {
		for name := range near {
			for _, link := range pages[name].links {
				target := path.Join(path.Dir(name), strings.Split(link, "#")[0])
				if pages[target] != nil {
					near[target] = true
				}
			}
		}
	}
	for name := range pages {
		if !near[name] {
			t.Errorf("%s is more than two clicks away", name)
		}
	}
	for _, id := range catalog.IDs() {
		if pages["docs/rules/"+id+".html"] == nil {
			t.Errorf("%s has no page", id)
		}
	}
	commands := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		name := "commands/" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".html"
		commands++
		if pages[name] == nil || !strings.Contains(pages[name].text, cmd.Short) {
			t.Errorf("%s has no page with its help", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(cli.Tree())
	if commands < 50 {
		t.Errorf("%d commands, want more", commands)
	}
	for _, want := range []string{"answers", "tutorial", "scope", "install", "roles/platform", "roles/security",
		"roles/on-call", "roles/app-team"} {
		if pages["docs/"+want+".html"] == nil {
			t.Errorf("there is no page about %s", want)
		}
	}
}

// TestHelpIsShownAsItStands: nothing of a command's help is taken for Markdown.
func TestHelpIsShownAsItStands(t *testing.T) {
	_, pages := built(t)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		text := strings.Join(strings.Fields(pages[strings.TrimSuffix(commandPage(cmd), ".md")+".html"].text), " ")
		for _, paragraph := range strings.Split(cmd.Long, "\n\n") {
			if want := strings.Join(strings.Fields(paragraph), " "); !strings.Contains(text, want) {
				t.Errorf("the page of %s lacks %q", cmd.CommandPath(), want)
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(cli.Tree())
}

func TestSearchIndex(t *testing.T) {
	out, pages := built(t)
	text, err := os.ReadFile(filepath.Join(out, "search-index.js"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	data := strings.TrimSuffix(strings.TrimPrefix(string(text), "const pages = "), ";\n")
	if err := json.Unmarshal([]byte(data), &entries); err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(pages)-1 {
		t.Errorf("%d pages are indexed, of %d", len(entries), len(pages)-1)
	}
	for _, e := range entries {
		if pages[e.Path] == nil || e.Title == "" || len(e.Words) < 20 {
			t.Errorf("%+v", e)
		}
		for _, h := range e.Heads {
			if pages[e.Path].ids[h[1]] == 0 {
				t.Errorf("%s has no place %s", e.Path, h[1])
			}
		}
	}
}

// TestSearchInABrowser asks a browser what the search finds.
func TestSearchInABrowser(t *testing.T) {
	program := debian.Program(t, "chromium", "chromium")
	out, _ := built(t)
	for _, test := range []struct{ query, first, link string }{
		{"fus060", "FUS060: A garbage collector", "../docs/rules/FUS060.html"},
		{"etcd move plan", "fusionctl etcd move plan", "../commands/fusionctl-etcd-move-plan.html"},
		{"ten minutes demo", "Ten minutes", "../docs/tutorial.html"},
		{"xyzzy-no-such-word", "No page has all of these words.", ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		directory := t.TempDir()
		command := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu",
			"--user-data-dir="+directory, "--dump-dom",
			"file://"+filepath.Join(out, "docs/etcd.html")+"?q="+url.QueryEscape(test.query))
		command.Env = append(os.Environ(), "TMPDIR="+directory)
		page, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(string(page), `<ul id="found" aria-live="polite">`)
		first, _, _ := strings.Cut(list, "</li>")
		if !strings.Contains(first, test.first) || !strings.Contains(first, test.link) {
			t.Errorf("%q finds first %s, want %s", test.query, first, test.first)
		}
	}
}

// TestPagesFitInABrowser: no page scrolls sideways, and its title is seen first, on a telephone too, and on paper.
func TestPagesFitInABrowser(t *testing.T) {
	ctx, _ := browser.Start(t, 1200, 4*time.Minute)
	out, _ := built(t)
	for _, page := range []string{"index", "docs/answers", "docs/etcd", "docs/rules/FUS060", "commands/fusionctl-check",
		"docs/security", "docs/matrix"} {
		for _, width := range []int64{400, 900, 1400} {
			for _, media := range []string{"screen", "print"} {
				var wide bool
				var top float64
				if err := chromedp.Run(ctx, chromedp.EmulateViewport(width, 900),
					emulation.SetEmulatedMedia().WithMedia(media),
					chromedp.Navigate("file://"+filepath.Join(out, page+".html")),
					chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide),
					chromedp.Evaluate(`document.querySelector("h1").getBoundingClientRect().top`, &top)); err != nil {
					t.Fatalf("%s, %d: %v", page, width, err)
				}
				if wide && (media == "screen" || width > 400) || top < 0 || top > 300 {
					t.Errorf("%s, %s, width %d: scrolls sideways: %v; the title is at %.0f", page, media, width, wide,
						top)
				}
			}
		}
	}
}

// TestPagesAreReadable: on a page of each section, and in the list of what a search found, every text stands out from
// what is behind it, by day and by night, and the console says nothing.
func TestPagesAreReadable(t *testing.T) {
	ctx, said := browser.Start(t, 1200, 4*time.Minute)
	out, _ := built(t)
	pages := []string{"index.html", "docs/etcd.html?q=garbage", "docs/etcd.html?q=xyzzy", "docs/matrix.html"}
	for _, section := range sections {
		pages = append(pages, firstOf(t, out, section))
	}
	for _, page := range pages {
		for _, dark := range []bool{false, true} {
			var bad []string
			var isDark bool
			if err := chromedp.Run(ctx, browser.Scheme(dark), chromedp.Navigate("file://"+filepath.Join(out, page)),
				chromedp.Evaluate(browser.Dark, &isDark), chromedp.Evaluate(browser.Contrasts, &bad)); err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			if isDark != dark || len(bad) > 0 {
				t.Errorf("%s is dark: %v, want %v; hard to read: %q", page, isDark, dark, bad)
			}
		}
	}
	if words := said(); len(words) > 0 {
		t.Errorf("the console says %q", words)
	}
}

// firstOf is a page of a section, as the start of the site lists them.
func firstOf(t *testing.T, out, section string) string {
	t.Helper()
	home, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(home), `<h2 id="`+anchorOf(section)+`">`)
	_, link, _ := strings.Cut(list, `<li><a href="`)
	page, _, found := strings.Cut(link, `"`)
	if !found {
		t.Fatalf("the start of the site lists no page of %s", section)
	}
	return page
}

// TestPagesHaveAStructure: a reader who hears a page finds its parts by headings without gaps, its tables by their
// heads, its pictures by their texts.
func TestPagesHaveAStructure(t *testing.T) {
	_, pages := built(t)
	for name, p := range pages {
		level := 0
		for n := range p.root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			switch n.Data {
			case "h1", "h2", "h3", "h4", "h5", "h6":
				now := int(n.Data[1] - '0')
				if now > level+1 {
					t.Errorf("%s: a heading of level %d follows one of level %d: %s", name, now, level, textOf(n))
				}
				level = now
			case "table":
				if !slices.ContainsFunc(slices.Collect(n.Descendants()), func(n *html.Node) bool {
					return n.Data == "th"
				}) {
					t.Errorf("%s: a table has no head", name)
				}
			case "img":
				if !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "alt" && a.Val != "" }) {
					t.Errorf("%s: a picture has no text", name)
				}
			case "html":
				if !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "lang" }) {
					t.Errorf("%s says no language", name)
				}
			case "a":
				if strings.TrimSpace(textOf(n)) == "" {
					t.Errorf("%s: a link has no text", name)
				}
			}
		}
	}
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

func TestSiteIsTheSameTwice(t *testing.T) {
	one, _ := built(t)
	other, pages := built(t)
	for name := range pages {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(other, name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not the same twice (%v)", name, err)
		}
	}
}

func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	if err := Man(dir, "v1.2.3", time.Unix(1e9, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "fusionctl-etcd-check.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH", "Sep 2001", "fusionctl v1.2.3", "Exit codes:", "endpoints"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("fusionctl-etcd-check(1) lacks %q", want)
		}
	}
	if strings.Contains(string(page), "Auto generated") {
		t.Error("the page names the day of its making")
	}
}
