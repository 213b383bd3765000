package report

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kubefusion/fusionctl/internal/debian"
	"github.com/kubefusion/fusionctl/pkg/catalog"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// profile is a directory for a browser's own files. The browser's helper processes end after the browser and still
// write, so that removing the directory may take several attempts.
func profile(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "fusionctl-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		deadline := time.Now().Add(30 * time.Second)
		for err := os.RemoveAll(directory); err != nil; err = os.RemoveAll(directory) {
			if time.Now().After(deadline) {
				t.Errorf("the browser's directory stays: %v", err)
				return
			}
		}
	})
	return directory
}

// browser starts a Chromium on a page about a plan, and gathers what its console says.
func browser(t *testing.T, width int64, dark bool, in *Input) (context.Context, func() []string) {
	t.Helper()
	var page bytes.Buffer
	if err := HTML(&page, in); err != nil {
		t.Fatal(err)
	}
	return browserOn(t, width, dark, page.Bytes())
}

// browserOn starts a Chromium on a page.
func browserOn(t *testing.T, width int64, dark bool, page []byte) (context.Context, func() []string) {
	t.Helper()
	program := debian.Program(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	directory := profile(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.WindowSize(int(width), 1000), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(directory),
		chromedp.Env("TMPDIR="+directory))
	if dark {
		options = append(options, chromedp.Flag("blink-settings", "preferredColorScheme=0"))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	root, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		cancel()
		stop()
		chromedp.FromContext(root).Allocator.Wait()
	})
	ctx, cancel := context.WithTimeout(root, 2*time.Minute)
	t.Cleanup(cancel)
	var mutex sync.Mutex
	var said []string
	chromedp.ListenTarget(ctx, func(event any) {
		mutex.Lock()
		defer mutex.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			said = append(said, string(e.Type))
		case *runtime.EventExceptionThrown:
			said = append(said, e.ExceptionDetails.Text)
		}
	})
	if err := chromedp.Run(ctx, chromedp.Navigate("file://"+file)); err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mutex.Lock()
		defer mutex.Unlock()
		return said
	}
}

// contrasts lists texts that are hard to read: below 4.5 to 1 against what is behind them (WCAG 2, level AA).
const contrasts = `(() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const text = getComputedStyle(e).backgroundColor;
      const color = parse(text);
      if (text.startsWith("rgb") && (color.length === 3 || color[3] === 1)) return color;
    }
    return [255, 255, 255];
  };
  const bad = new Set();
  for (const element of document.querySelectorAll("body :not(svg, svg *, script)")) {
    if (![...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(element.tagName + "." + element.className + " " + ratio.toFixed(2));
  }
  return [...bad];
})()`

func TestPageInABrowser(t *testing.T) {
	in := everything(inputOf(t, "../../examples/ha-three-hosts-1.15-1.36.yaml"), 200, 5)
	for _, view := range []struct {
		width int64
		dark  bool
	}{{400, false}, {900, true}, {1400, false}} {
		ctx, said := browser(t, view.width, view.dark, in)
		var wide, open bool
		var rows, shown, chosen int
		var bad []string
		const visibleRows = `document.querySelectorAll("main tbody tr:not([hidden])").length`
		err := chromedp.Run(ctx,
			chromedp.Evaluate(`document.documentElement.scrollWidth > window.innerWidth`, &wide),
			chromedp.Evaluate(contrasts, &bad),
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
		ctx, said := browser(t, 700, false, in) // a sheet of A4, in its margins
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
	ctx, said := browser(t, 1200, false, inputOf(t, "../../examples/split-1.15-1.36.yaml"))
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
		ctx, said := browserOn(t, 1200, dark, page.Bytes())
		var wide, bad []string
		err := chromedp.Run(ctx,
			chromedp.Evaluate(`[...document.querySelectorAll("table")]
				.filter((e) => e.scrollWidth > e.clientWidth + 1)
				.map((e) => e.className + " " + e.scrollWidth + " in " + e.clientWidth)`, &wide),
			chromedp.Evaluate(contrasts, &bad))
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
	ctx, said := browser(t, 1200, false, everything(inputOf(t, "../../examples/split-1.15-1.36.yaml"), 10_000, 2_000))
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
