package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// runDemoIn runs the demo with its folder below dir, and returns what it printed.
func runDemoIn(t *testing.T, ctx context.Context, out *bytes.Buffer) int {
	t.Helper()
	var messages bytes.Buffer
	code := Main(ctx, []string{"demo"}, Streams{In: strings.NewReader(""), Out: out, Err: &messages})
	if code == exitDone && messages.Len() > 0 {
		t.Errorf("the demo prints on stderr: %s", messages.String())
	}
	if code == exitFailed {
		t.Log(messages.String())
	}
	return code
}

// wantEmpty fails when the demo left something behind.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("the demo left %s behind", e.Name())
	}
}

func TestDemoTellsItsStory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var first, second bytes.Buffer
	other := make(chan int)
	go func() { other <- runDemoIn(t, t.Context(), &second) }() // two at a time disturb each other nowhere
	code := runDemoIn(t, t.Context(), &first)
	if otherCode := <-other; code != exitDone || otherCode != exitDone {
		t.Fatalf("two demos exit %d and %d, want 0:\n%s", code, otherCode, first.String())
	}
	wantEmpty(t, dir)
	for _, want := range []string{
		`\| +kube-apiserver +\|`,
		`\n0 errors, \d+ warnings`, `\n  FUS002  cronjobs: 1\.36 stores them as batch/v1`, `\n[1-9]\d* errors, `,
		`\$ fusionctl render \$DEMO/examples/split-1\.6-1\.10\.yaml --out \$DEMO/split-1\.6-1\.10`,
		`"group":"platform:developers"`,
		`\ndeployments\.apps +v1 +both +- +- +each side has objects of its own`,
		`\npods +v1 +owner +modern +`,
		`\ndeployments +core .* extensions/v1beta1 +ok\n`, `\ndeployments +modern .* apps/v1 +ok\n`,
		`\nkubeflow\.org/notebooks +modern .* ok\n`,
		`\d+ keys: 0 errors, 0 warnings, \d infos?, 0 accepted; complete\n`,
		`error FUS004 modern:pods: 1 key in a store from which no side reads`,
		`error FUS002 core:ingress: 1 object stored as networking\.k8s\.io/v1`,
		`warning FUS232 modern:finance.example.com/budgets: 1 custom resource without a CRD`,
	} {
		for _, out := range []*bytes.Buffer{&first, &second} {
			if !regexp.MustCompile(want).MatchString(strings.ReplaceAll(out.String(), "\n  ", "\n")) {
				t.Errorf("the demo does not print %q:\n%s", want, out.String())
			}
		}
	}
	_, accidents, _ := strings.Cut(first.String(), "\n8. ")
	if n := strings.Count(accidents, "fix: "); n != 3 {
		t.Errorf("the demo prints %d ways out of three accidents:\n%s", n, accidents)
	}
}

// stopper ends a context when a text is written through it.
type stopper struct {
	bytes.Buffer
	at   string
	stop func() error
}

func (s *stopper) Write(p []byte) (int, error) {
	n, _ := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.at) {
		return n, s.stop()
	}
	return n, nil
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, chapter := range []string{"1. ", "5. ", "6. ", "8.2 "} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &stopper{at: "\n" + chapter, stop: func() error { cancel(); return nil }}
		if code := Main(ctx, []string{"demo"},
			Streams{In: strings.NewReader(""), Out: out, Err: &bytes.Buffer{}}); code != exitInterrupted {
			t.Errorf("interrupted at %q the demo exits %d, want %d:\n%s", chapter, code, exitInterrupted, out.String())
		}
		wantEmpty(t, dir)
	}
}

// TestDemoWithClosedOutputLeavesNothing is `fusionctl demo | head`.
func TestDemoWithClosedOutputLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	out := &stopper{at: "\n6. ", stop: func() error { return errors.New("closed") }}
	var messages bytes.Buffer
	code := Main(t.Context(), []string{"demo"}, Streams{In: strings.NewReader(""), Out: out, Err: &messages})
	if code != exitFailed || !strings.Contains(messages.String(), "closed") {
		t.Errorf("with its output closed the demo exits %d and says %q, want %d and the cause", code, messages.String(),
			exitFailed)
	}
	wantEmpty(t, dir)
}
