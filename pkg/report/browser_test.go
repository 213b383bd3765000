package report

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kubefusion/fusionctl/internal/browser"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// shown starts a browser on a page about a plan, and gathers what its console says.
func shown(t *testing.T, width int, dark bool, in *Input) (context.Context, func() []string) {
	t.Helper()
	var page bytes.Buffer
	if err := HTML(&page, in); err != nil {
		t.Fatal(err)
	}
	return shownPage(t, width, dark, page.Bytes())
}

// shownPage starts a browser on a page.
func shownPage(t *testing.T, width int, dark bool, page []byte) (context.Context, func() []string) {
	t.Helper()
	ctx, said := browser.Start(t, width, 2*time.Minute)
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	var isDark bool
	if err := chromedp.Run(ctx, browser.Scheme(dark), chromedp.Navigate("file://"+file),
		chromedp.Evaluate(browser.Dark, &isDark)); err != nil {
		t.Fatal(err)
	}
	if isDark != dark {
		t.Errorf("the page is dark: %v, want %v", isDark, dark)
	}
	return ctx, said
}

func TestPageInABrowser(t *testing.T) {
	in := everything(inputOf(t, "../../examples/ha-three-hosts-1.15-1.36.yaml"), 200, 5)
	for _, view := range []struct {
		width int
		dark  bool
	}{{400, false}, {800, true}, {1400, false}} {
		ctx, said := shown(t, view.width, view.dark, in)
		var wide, open bool
		var rows, shown, chosen int
		var bad, cut []string
		const visibleRows = `document.querySelectorAll("main tbody tr:not([hidden])").length`
		err := chromedp.Run(ctx,
			chromedp.Evaluate(`document.documentElement.scrollWidth > window.innerWidth`, &wide),
			chromedp.Evaluate(browser.Contrasts, &bad),
			chromedp.Evaluate(`["resources", "controllers", "policy"].filter((id) => {
				const table = document.querySelector("#" + id + " table");
				return table.scrollWidth > table.clientWidth;
			})`, &cut),
			chromedp.Evaluate(visibleRows, &rows),
			chromedp.SendKeys("#query", "etcd-servers-overrides", chromedp.ByID),
			chromedp.Evaluate(visibleRows, &shown),
			chromedp.Evaluate(`[...document.querySelectorAll("#components details")].some((d) => d.open)`, &open),
			chromedp.Evaluate(`(() => {
				const select = document.querySelector("#resources select");
				select.value = "shared";
				document.getElementById("query").value = "";
				document.getElementById("query").dispatchEvent(new Event("input"));
				select.dispatchEvent(new Event("change"));
				return [...document.querySelectorAll("#resources tbody tr:not([hidden])")]
					.filter((row) => row.cells[2].textContent === "shared").length;
			})()`, &chosen),
		)
		if err != nil {
			t.Fatalf("width %d: %v", view.width, err)
		}
		if wide {
			t.Errorf("width %d: the page scrolls sideways", view.width)
		}
		if view.width >= 800 && len(cut) > 0 {
			t.Errorf("width %d: tables of %q are wider than the page", view.width, cut)
		}
		if len(bad) > 0 {
			t.Errorf("width %d, dark %v: hard to read: %q", view.width, view.dark, bad)
		}
		if shown == 0 || shown >= rows || !open {
			t.Errorf("width %d: the search shows %d of %d rows, components open: %v", view.width, shown, rows, open)
		}
		if want := sharedIn(in); chosen != want {
			t.Errorf("width %d: the choice of an owner shows %d shared resources, want %d", view.width, chosen, want)
		}
		if words := said(); len(words) > 0 {
			t.Errorf("width %d: the console says %q", view.width, words)
		}
	}
}

// What is printed has everything that the page has, and nothing is cut off at the margin: also what is closed, and what
// a search hides on the screen. It needs no script.
func TestPageOnPaper(t *testing.T) {
	in := inputOf(t, "../../examples/ha-three-hosts-1.15-1.36.yaml")
	for _, scripts := range []bool{true, false} {
		ctx, said := shown(t, 700, false, in) // a sheet of A4, in its margins
		var cut []string
		var hidden, rows int
		var prints bool
		actions := []chromedp.Action{emulation.SetScriptExecutionDisabled(!scripts), chromedp.Reload()}
		if scripts {
			actions = append(actions, chromedp.SendKeys("#query", "etcd-servers-overrides", chromedp.ByID))
		}
		err := chromedp.Run(ctx, append(actions, emulation.SetEmulatedMedia().WithMedia("print"),
			chromedp.Evaluate(`[...document.querySelectorAll("table, pre, p, svg")]
				.filter((e) => e.scrollWidth > e.clientWidth + 1 && e.tagName !== "svg" ||
					e.getBoundingClientRect().right > innerWidth + 1)
				.map((e) => e.tagName + " " + e.textContent.trim().slice(0, 60))`, &cut),
			chromedp.Evaluate(`document.querySelectorAll("main tbody tr").length`, &rows),
			chromedp.Evaluate(`[...document.querySelectorAll("main tbody tr")]
				.filter((row) => row.getBoundingClientRect().height === 0).length`, &hidden),
			chromedp.Evaluate(`getComputedStyle(document.querySelector("nav")).display !== "none"`, &prints))...)
		if err != nil {
			t.Fatalf("scripts %v: %v", scripts, err)
		}
		if len(cut) > 0 {
			t.Errorf("scripts %v: cut off at the margin: %q", scripts, cut)
		}
		if hidden > 0 || rows < 300 || prints {
			t.Errorf("scripts %v: %d of %d rows are not printed; the menu is: %v", scripts, hidden, rows, prints)
		}
		if words := said(); len(words) > 0 {
			t.Errorf("scripts %v: the console says %q", scripts, words)
		}
	}
}

// A reader without a mouse comes to the verdict, the search, boxes of the picture and closed parts; one without a
// screen is told what they are.
func TestPageWithoutMouseOrScreen(t *testing.T) {
	ctx, said := shown(t, 1200, false, inputOf(t, "../../examples/split-1.15-1.36.yaml"))
	var hash string
	var reached []string
	type value struct {
		Value any `json:"value"`
	}
	var tree struct {
		Nodes []struct {
			Ignored bool  `json:"ignored"`
			Role    value `json:"role"`
			Name    value `json:"name"`
		} `json:"nodes"`
	}
	const here = `(() => {
		const e = document.activeElement;
		return e.closest("#picture") ? "box" : e.tagName === "SUMMARY" && e.closest("#components") ? "part" : e.tagName;
	})()`
	err := chromedp.Run(ctx,
		chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.Evaluate(`location.hash`, &hash),
		chromedp.ActionFunc(func(ctx context.Context) error {
			for range 200 {
				var at string
				if err := chromedp.Run(ctx, chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(here, &at)); err != nil {
					return err
				}
				if !slices.Contains(reached, at) {
					reached = append(reached, at)
				}
				if at == "part" {
					return chromedp.Run(ctx, chromedp.KeyEvent(kb.Enter))
				}
			}
			return nil
		}),
		chromedp.ActionFunc(func(ctx context.Context) error {
			return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, accessibility.GetFullAXTree(), &tree)
		}))
	if err != nil {
		t.Fatal(err)
	}
	if hash != "#verdict" || !slices.Contains(reached, "box") || !slices.Contains(reached, "part") {
		t.Errorf("the first link leads to %q; by Tab are reached %q", hash, reached)
	}
	boxes, unnamed := 0, 0
	named := []string{"link", "searchbox", "combobox", "button", "heading", "navigation"}
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if n.Ignored {
			continue
		}
		if role == "link" && strings.Contains(name, "kube-apiserver") {
			boxes++
		}
		if slices.Contains(named, role) && strings.TrimSpace(name) == "" {
			unnamed++
		}
	}
	if boxes != 2 || unnamed > 0 {
		t.Errorf("%d boxes of API servers are links, want 2; %d parts have no name", boxes, unnamed)
	}
	if words := said(); len(words) > 0 {
		t.Errorf("the console says %q", words)
	}
}

// The pages of other verbs fit a screen: what somebody wrote in one word is broken, and the matrix has all minors.
func TestSheetsOnAScreen(t *testing.T) {
	long := "/etc/kubernetes/" + strings.Repeat("policy", 20) + ".jsonl"
	found := finding.Report{Findings: []finding.Finding{{Rule: "FUS209", Severity: finding.Warning, Subject: long,
		Message: "requests without any credentials may read path \"*\"", Fix: "{" + strings.Repeat(long, 5) + "}"}}}
	matrix := Table{Title: "m", Class: "matrix", Head: []string{"legacy"}}
	var row []Cell
	for _, m := range kubever.Minors() {
		matrix.Head = append(matrix.Head, strings.TrimPrefix(m.String(), "1"))
		row = append(row, Cell{Text: "043", Class: "no", Href: "#rule-FUS209"})
	}
	for _, m := range kubever.Minors() {
		matrix.Rows = append(matrix.Rows, append(Cells(m.String()), row...))
	}
	for _, dark := range []bool{false, true} {
		var page bytes.Buffer
		if err := (&Sheet{Title: "t", Verdict: VerdictOf(found.Findings, nil), Report: &found, Rules: catalog.Rules(),
			Tables: []Table{matrix}}).HTML(&page); err != nil {
			t.Fatal(err)
		}
		ctx, said := shownPage(t, 1200, dark, page.Bytes())
		var wide, bad []string
		err := chromedp.Run(ctx,
			chromedp.Evaluate(`[...document.querySelectorAll("table")]
				.filter((e) => e.scrollWidth > e.clientWidth + 1)
				.map((e) => e.className + " " + e.scrollWidth + " in " + e.clientWidth)`, &wide),
			chromedp.Evaluate(browser.Contrasts, &bad))
		if err != nil {
			t.Fatal(err)
		}
		if len(wide) > 0 || len(bad) > 0 {
			t.Errorf("dark %v: wider than the screen: %q; hard to read: %q", dark, wide, bad)
		}
		if words := said(); len(words) > 0 {
			t.Errorf("the console says %q", words)
		}
	}
}

func sharedIn(in *Input) int {
	for _, o := range in.owners() {
		if o.Owner == pair.OwnerShared {
			return o.Count
		}
	}
	return 0
}

// Boxes of the picture lead to their rows; large pages still answer.
func TestLargePageInABrowser(t *testing.T) {
	ctx, said := shown(t, 1200, false, everything(inputOf(t, "../../examples/split-1.15-1.36.yaml"), 10_000, 2_000))
	var took float64
	var hidden []string
	var open bool
	err := chromedp.Run(ctx,
		chromedp.Evaluate(`(() => {
			const begin = performance.now();
			const query = document.getElementById("query");
			query.value = "r99";
			query.dispatchEvent(new Event("input"));
			document.body.getBoundingClientRect();
			return performance.now() - begin;
		})()`, &took),
		chromedp.Evaluate(`(() => {
			query.value = "";
			query.dispatchEvent(new Event("input"));
			const bad = [];
			for (const box of document.querySelectorAll("#picture a")) {
				box.dispatchEvent(new MouseEvent("click", {bubbles: true}));
				dispatchEvent(new Event("hashchange"));
				const row = document.getElementById(location.hash.slice(1));
				if (!row || row.getBoundingClientRect().height === 0 || row.tagName === "DETAILS" && !row.open) {
					bad.push(box.textContent + " " + location.hash);
				}
			}
			return bad;
		})()`, &hidden),
		chromedp.Evaluate(`(() => {
			location.hash = "#rule-FUS060";
			dispatchEvent(new Event("hashchange"));
			return document.getElementById("rule-FUS060").open;
		})()`, &open),
	)
	if err != nil {
		t.Fatal(err)
	}
	if took > 5_000 { // it takes some 100 ms; the machine may be busy
		t.Errorf("a search in 12,000 rows took %.0f ms", took)
	}
	t.Logf("a search in 12,000 rows took %.0f ms", took)
	if len(hidden) > 0 || !open {
		t.Errorf("clicks on the picture lead to nothing: %q; a linked rule is open: %v", hidden, open)
	}
	if words := said(); len(words) > 0 {
		t.Errorf("the console says %q", words)
	}
}
