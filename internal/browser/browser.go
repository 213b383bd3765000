// Package browser starts a Chromium for tests of pages, and asks it what people see.
package browser

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kubefusion/fusionctl/internal/debian"
)

// Start starts a browser for a test, with a window of this width, and gathers what its console says. It ends with the
// test, or after the time limit.
func Start(t *testing.T, width int, limit time.Duration) (context.Context, func() []string) {
	t.Helper()
	program := debian.Program(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	directory := profile(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.WindowSize(width, 1000), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(directory),
		chromedp.Env("TMPDIR="+directory))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	root, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		cancel()
		stop()
		if c := chromedp.FromContext(root); c.Allocator != nil {
			c.Allocator.Wait()
		}
	})
	ctx, cancel := context.WithTimeout(root, limit)
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
	return ctx, func() []string {
		mutex.Lock()
		defer mutex.Unlock()
		return said
	}
}

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

// Scheme has pages shown light or dark, as their reader's system would be.
func Scheme(dark bool) chromedp.Action {
	value := "light"
	if dark {
		value = "dark"
	}
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: value}})
}

// Contrasts is a script that lists the texts of a page that are hard to read: below 4.5 to 1 against what is behind
// them (WCAG 2, level AA). Texts of pictures are not looked at.
const Contrasts = `(() => {
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

// Dark is a script that reports whether the page has a dark background.
const Dark = `(getComputedStyle(document.body).backgroundColor.match(/\d+/g) || [255]).every((v) => v < 60)`
