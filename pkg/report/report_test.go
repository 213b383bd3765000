package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"golang.org/x/net/html"

	"github.com/kubefusion/fusionctl/docs"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/graph"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/restart"
)

// inputOf is what fusionctl report makes of an example.
func inputOf(t *testing.T, file string) *Input {
	t.Helper()
	p := plantest.Example(t, filepath.Base(file))
	in, err := New(p, filepath.Base(file), render.StaticPod, catalog.Check(p))
	if err != nil {
		t.Fatal(err)
	}
	in.Rules, in.Evidence = catalog.Rules(), docs.Evidence
	if in.Picture, err = graph.SVG(context.Background(), Graph(p)); err != nil {
		t.Fatal(err)
	}
	return in
}

// everything adds the parts that are read from a cluster, with names that want out of the page.
func everything(in *Input, keys, findings int) *Input {
	const hostile = `<script>alert(1)</script>"'&\|![x](https://example.com/x.png)` + "`\u202e\x1b[2J"
	in.DiffOf = "/etc/" + hostile
	in.Differences = []render.Difference{{Component: hostile, Host: "cp-1", State: render.Changed,
		Changes: []render.Change{
			{What: "--audit-log-path", Old: []string{hostile}, New: []string{"/a"}, Why: hostile}}}}
	in.Restarts = &Restarts{Totals: restart.Totals{Pods: 3, Nodes: []restart.Group{{Name: hostile}},
		Notes: []string{hostile}, Order: []restart.Wave{{Nodes: []string{hostile}, Breaks: []string{hostile}}}}}
	in.Contents = &Contents{Incomplete: nil}
	owners := []pair.Owner{pair.OwnerLegacy, pair.OwnerModern, pair.OwnerShared, pair.OwnerSplit, ""}
	for i := range keys {
		in.Contents.Resources = append(in.Contents.Resources, Stored{Store: []string{"core", hostile}[i%2],
			Resource: fmt.Sprintf("r%d%s", i, hostile), Owner: owners[i%len(owners)], Keys: int64(i),
			Bytes: int64(i * i % 9973)})
	}
	for i := range findings {
		in.Contents.Findings = append(in.Contents.Findings, finding.Finding{Rule: "FUS060", Severity: finding.Warning,
			Subject: fmt.Sprintf("core:%d %s", i, hostile), Message: hostile, Fix: hostile})
	}
	return in
}

func rendered(t *testing.T, in *Input) (string, *html.Node) {
	t.Helper()
	var out bytes.Buffer
	if err := HTML(&out, in); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), root
}

// attribute is the value of an attribute, "" for none.
func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestComponentsThatAreNotComparedSayWhy(t *testing.T) {
	in := inputOf(t, "../../examples/split-1.15-1.36.yaml")
	in.DiffOf = "/etc/kubernetes"
	in.Differences = []render.Difference{
		{Component: "kube-scheduler", Host: "cp-1", State: render.Same},
		{Component: "kube-apiserver-modern", Host: "cp-1", State: render.New},
		{Component: "kube-controller-manager", Host: "cp-1", State: render.Missing},
		{Component: "kube-apiserver", Host: "cp-1", State: render.Changed, Changes: []render.Change{
			{What: "--etcd-quorum-read", New: []string{"true"}}, {What: "--profiling", Old: []string{"false"}}}},
	}
	page, _ := rendered(t, in)
	var markdown bytes.Buffer
	if err := Markdown(&markdown, in); err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string]string{"HTML": page, "Markdown": markdown.String()} {
		for want, times := range map[string]int{"No flag differs.": 1, "Nothing starts it today": 1,
			"nothing there starts it": 1, "not set": 2} {
			if got := strings.Count(text, want); got != times {
				t.Errorf("%s has %q %d times, want %d", form, want, got, times)
			}
		}
	}
}

func TestPagesAreWhole(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		for name, in := range map[string]*Input{
			"plan alone": inputOf(t, file), "everything": everything(inputOf(t, file), 30, 3),
		} {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				text, root := rendered(t, in)
				checkPage(t, text, root)
			})
		}
	}
}

// checkPage holds a page to what makes it usable: its links lead to its own parts, it loads nothing, its headings have
// no gaps, its tables have heads, and nothing in it came from a name.
func checkPage(t *testing.T, text string, root *html.Node) {
	t.Helper()
	if len(text) > 1<<20 {
		t.Errorf("%d bytes, want at most 1 MiB", len(text))
	}
	ids, links, scripts, level := map[string]int{}, []string{}, 0, 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if id := attribute(n, "id"); id != "" {
			ids[id]++
		}
		if href := attribute(n, "href"); href != "" {
			links = append(links, href)
		}
		for _, a := range n.Attr {
			if a.Key == "src" || a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s %s=%q>: the page's policy refuses it", n.Data, a.Key, a.Val)
			}
		}
		switch n.Data {
		case "script":
			scripts++
		case "link", "img", "iframe", "object", "form":
			t.Errorf("<%s> loads something", n.Data)
		case "h1", "h2", "h3", "h4", "h5", "h6":
			now := int(n.Data[1] - '0')
			if now > level+1 {
				t.Errorf("a heading of level %d follows one of level %d", now, level)
			}
			level = now
		case "table":
			head := false
			for inner := range n.Descendants() {
				head = head || inner.Data == "th"
			}
			if !head {
				t.Error("a table has no head")
			}
		}
	}
	if scripts != 1 {
		t.Errorf("%d scripts, want the page's own", scripts)
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("id %s stands %d times", id, n)
		}
	}
	for _, link := range links {
		if id, own := strings.CutPrefix(link, "#"); !own || ids[id] == 0 {
			t.Errorf("link %s leads nowhere in the page", link)
		}
	}
	for _, m := range regexp.MustCompile(`(?s)<(?:style|script)>(.*?)</(?:style|script)>`).FindAllStringSubmatch(
		text, -1) {
		sum := sha256.Sum256([]byte(m[1]))
		if !strings.Contains(text, "sha256-"+base64.StdEncoding.EncodeToString(sum[:])) {
			t.Errorf("the policy of the page refuses %.40q", m[1])
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("a name moves what stands beside it")
	}
}

func TestSheetsAreWhole(t *testing.T) {
	const hostile = `<script>alert(1)</script>"'&|` + "\u202e\x1b[2J\nforged"
	found := finding.Report{Findings: []finding.Finding{{Rule: "FUS060", Severity: finding.Error, Subject: hostile,
		Message: hostile, Fix: hostile}}}
	for name, sheet := range map[string]*Sheet{
		"findings": {Title: hostile, Lead: []string{hostile}, Verdict: VerdictOf(found.Findings, nil), Report: &found,
			Rules: catalog.Rules(), Notes: []string{hostile}},
		"incomplete": {Title: "t", Verdict: VerdictOf(nil, []string{hostile}), Incomplete: []string{hostile}},
		"tables": {Title: "t", Verdict: VerdictOf(nil, nil), Rules: catalog.Rules(), Linked: []string{"FUS043"},
			Tables: []Table{{Title: hostile, Head: []string{"a", hostile}, Choose: 2, Rows: [][]Cell{
				Cells("x", hostile), {{Text: "043", Href: "#rule-FUS043", Title: hostile}, {}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := sheet.HTML(&out); err != nil {
				t.Fatal(err)
			}
			root, err := html.Parse(bytes.NewReader(out.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			checkPage(t, out.String(), root)
			if strings.Contains(out.String(), "\nforged") {
				t.Error("a name begins a line")
			}
			if clean := strings.Contains(out.String(), "Nothing was found"); clean != (name == "tables") {
				t.Errorf("says that nothing was found: %v", clean)
			}
		})
	}
}

func TestManyFindingsAndKeys(t *testing.T) {
	text, root := rendered(t, everything(inputOf(t, "../../examples/split-1.15-1.36.yaml"), 10_000, 2_000))
	rows := 0
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == "tr" {
			rows++
		}
	}
	if rows < 12_000 || len(text) > 12<<20 {
		t.Errorf("%d rows in %d bytes", rows, len(text))
	}
}

func TestMarkdownKeepsItsTables(t *testing.T) {
	var out bytes.Buffer
	in := everything(inputOf(t, "../../examples/split-1.15-1.36.yaml"), 5, 2)
	if err := Markdown(&out, in); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := goldmark.New(goldmark.WithExtensions(extension.GFM)).Convert(out.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(&page)
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Data == "img" || n.Data == "a" && n.FirstChild.Data != attribute(n, "href") {
			t.Fatalf("a name becomes <%s %v>", n.Data, n.Attr)
		}
	}
	columns := 0
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := strings.Count(strings.NewReplacer(`\\`, "", `\|`, "").Replace(line), "|")
		if columns != 0 && n != columns {
			t.Errorf("%d columns after %d: %s", n, columns, line)
		}
		columns = n
	}
	if strings.Contains(out.String(), "<script") || strings.ContainsAny(out.String(), "\x1b\u202e") {
		t.Error("a name acts in the page")
	}
}

func TestVerdict(t *testing.T) {
	in := inputOf(t, "../../examples/shared-1.15-1.36-refused.yaml")
	if v := in.verdict(); v.Severity != finding.Error || !strings.Contains(v.Text, "Do not") {
		t.Errorf("a plan with errors: %+v", v)
	}
	in = inputOf(t, "../../examples/split-1.15-1.36.yaml")
	if v := in.verdict(); v.Severity != finding.Warning {
		t.Errorf("a plan with warnings: %+v", v)
	}
	in.Check.Findings = nil
	if v := in.verdict(); v.Severity != finding.Info {
		t.Errorf("a clean plan: %+v", v)
	}
	in.Contents = &Contents{Incomplete: []string{"store core: no quorum"}}
	if v := in.verdict(); v.Severity != finding.Error || !strings.Contains(v.Text, "Not decided") {
		t.Errorf("stores that were not read: %+v", v)
	}
}

func TestTreemapFillsItsArea(t *testing.T) {
	list := []Stored{{"core", "pods", pair.OwnerShared, 3, 700}, {"core", "secrets", pair.OwnerShared, 1, 200},
		{"core", "empty", pair.OwnerShared, 0, 0}, {"modern", "deployments", pair.OwnerSplit, 1, 100}}
	drawn := treemap(list)
	area := 0.0
	for _, m := range regexp.MustCompile(`width="([\d.]+)" height="([\d.]+)"/>`).FindAllStringSubmatch(drawn, -1) {
		var width, height float64
		if _, err := fmt.Sscan(m[1], &width); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(m[2], &height); err != nil {
			t.Fatal(err)
		}
		area += width * height
	}
	if whole := mapWidth * (mapHeight - mapHead); area < whole*0.99 || area > whole*1.01 {
		t.Errorf("the rectangles cover %.0f of %.0f", area, whole)
	}
	if strings.Count(drawn, "<rect") != 3 || treemap(nil) == "" {
		t.Errorf("drawn: %s", drawn)
	}
}

func TestEvidenceOfThePair(t *testing.T) {
	in := inputOf(t, "../../examples/split-1.15-1.36.yaml")
	proofs := in.proofs()
	if len(proofs) == 0 {
		t.Fatal("docs/evidence.md says nothing of 1.15 and 1.36, or is not read")
	}
	for _, p := range proofs {
		if !strings.HasPrefix(p.Legacy, "1.15") || !strings.HasPrefix(p.Modern, "1.36") || p.Claim == "" ||
			p.Test == "" {
			t.Errorf("%+v", p)
		}
	}
}

// TestPolicyAllowsNothingElse: what came into a page by a way that nobody thought of does nothing there.
func TestPolicyAllowsNothingElse(t *testing.T) {
	in := inputOf(t, "../../examples/split-1.15-1.36.yaml")
	in.Runbook = nil
	const injected = `alert(1)`
	in.Picture = append(in.Picture, "<script>"+injected+"</script>"...)
	text, _ := rendered(t, in)
	sum := sha256.Sum256([]byte(injected))
	if strings.Contains(text, base64.StdEncoding.EncodeToString(sum[:])) {
		t.Error("the policy of the page allows a script that is not its own")
	}
}
