package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kubefusion/fusionctl/pkg/render"
)

// mentioned is a command of ours in a runbook, up to what ends it: a comment, a pipe, a redirection or the quotes
// around it.
var mentioned = regexp.MustCompile("fusionctl ([a-z][^\n`#|>;,]*)")

// A runbook is read at night: every command of ours in it exists, with the flags that it is given.
func TestRunbooksNameCommandsThatExist(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		for _, target := range render.Targets {
			out := filepath.Join(t.TempDir(), "out")
			var stderr bytes.Buffer
			code := Main(t.Context(), []string{"render", file, "--out", out, "--target", target},
				Streams{Out: &bytes.Buffer{}, Err: &stderr})
			if code != exitDone && code != exitAttention {
				t.Fatalf("%s, %s: exit code %d: %s", file, target, code, &stderr)
			}
			runbook, err := os.ReadFile(filepath.Join(out, "RUNBOOK.md"))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mentioned.FindAllStringSubmatch(string(runbook), -1) {
				seen[strings.TrimSpace(m[1])] = true
			}
		}
	}
	for command := range seen {
		root := newRootCmd(Streams{})
		cmd, rest, err := root.Find(strings.Fields(command))
		if err != nil || cmd == root {
			t.Errorf("fusionctl %s: no such command: %v", command, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
			t.Errorf("fusionctl %s: %v", command, err)
		}
		if len(cmd.Commands()) > 0 && !cmd.Runnable() {
			t.Errorf("fusionctl %s: which of its subcommands?", command)
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d commands were found", len(seen))
	}
}
