//go:build unix

package cli

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// A verb that waits for a pipe to which no process writes ends with the signal, whether it is one that ends in an
// orderly way or not.
func TestSignalsEndVerbsThatReadPipes(t *testing.T) {
	const spec = "../../examples/pods-1.10-1.36.yaml"
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"controllers", "--spec", spec, "--legacy-kubeconfig", pipe, "--modern-kubeconfig", pipe},
		{"etcd", "check", spec, "--user", "u", "--password-file", pipe},
		{"etcd", "watch", spec, "--user", "u", "--password-file", pipe},
		{"crd", "status", "a.b", "--kubeconfig", pipe},
		{"check", spec, "--live", "--legacy-kubeconfig", pipe, "--modern-kubeconfig", pipe},
		{"policy", "validate", "-"},
		{"check", "-"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			silent, end := io.Pipe()
			defer end.Close()
			done, stderr := make(chan int, 1), &bytes.Buffer{}
			go func() { done <- Main(ctx, args, Streams{In: silent, Out: io.Discard, Err: stderr}) }()
			timer := time.AfterFunc(200*time.Millisecond, cancel) // it reads by then, or finds out before it does
			defer timer.Stop()
			select {
			case code := <-done:
				if code != exitInterrupted {
					t.Errorf("exit code %d: %s", code, stderr)
				}
			case <-time.After(time.Minute):
				t.Error("it reads on after the signal")
			}
		})
	}
}

// The verbs that come to an end in an orderly way are verbs.
func TestOrderlyVerbsExist(t *testing.T) {
	root := newRootCmd(Streams{})
	for path := range orderly {
		cmd, _, err := root.Find(strings.Fields(path)[1:])
		if err != nil || cmd.CommandPath() != path {
			t.Errorf("%s is no verb: %v", path, err)
		}
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if changes := cmd.Name() == "apply" || cmd.Name() == "undo" || cmd.Flags().Lookup("listen") != nil; changes &&
			!orderly[cmd.CommandPath()] {
			t.Errorf("%s changes something or serves, and is left behind after a signal", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
}

// A password in the URL of an endpoint is printed nowhere.
func TestPasswordsInURLsAreNotPrinted(t *testing.T) {
	const spec = "../../examples/split-1.15-1.36.yaml"
	for _, endpoint := range []string{"core=https://u:hunter2@127.0.0.1:1", "core=u:hunter2@127.0.0.1:1",
		"nowhere=https://u:hunter2@127.0.0.1:1", "https://u:hunter2@127.0.0.1:1",
		"core=https://127.0.0.1:1,https://u:hunter2@127.0.0.1:2"} {
		for _, args := range [][]string{{"etcd", "check", spec, "--endpoints", endpoint},
			{"etcd", "ls", spec, "--endpoints", endpoint, "core"},
			{"etcd", "check", spec, "-v", "--endpoints", endpoint},
			{"crd", "status", "a.b", "--kubeconfig", "/nowhere", "--endpoints",
				strings.TrimPrefix(endpoint, "core=")}} {
			var out bytes.Buffer
			code := Main(t.Context(), args, Streams{In: strings.NewReader(""), Out: &out, Err: &out})
			if code != exitUsage || strings.Contains(out.String(), "hunter2") {
				t.Errorf("%q: %d, %s; want 2, without the password", args, code, out.String())
			}
		}
	}
}

// A cell that begins as a formula does is text.
func TestCellsAreNoFormulas(t *testing.T) {
	var out bytes.Buffer
	rows := newCSVRows(&out)
	cells := []string{"=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "-5", "-", "plain", "", "a=b"}
	if err := rows.row(nil, make([]string, len(cells)), cells); err != nil {
		t.Fatal(err)
	}
	if err := rows.close(nil); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
	const want = `'=cmd|' /C calc'!A0,'+1+1,'-2+3,'@SUM(1),`
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "-5,-,plain,,a=b") {
		t.Errorf("%s, want %s...", got, want)
	}
}
