package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEtcdVerbsExplainThemselves: each says what it does, how it is used, and which exit codes it has.
func TestEtcdVerbsExplainThemselves(t *testing.T) {
	verbs := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			visit(child)
		}
		if cmd.HasSubCommands() {
			return
		}
		verbs++
		if !strings.Contains(cmd.Example, cmd.CommandPath()+" ") {
			t.Errorf("%s has no example of itself: %q", cmd.CommandPath(), cmd.Example)
		}
		long := strings.Join(strings.Fields(cmd.Long), " ")
		if !strings.Contains(long, "Exit codes:") || !strings.Contains(long, "130 interrupted") {
			t.Errorf("%s does not say its exit codes", cmd.CommandPath())
		}
	}
	root := newRootCmd(Streams{})
	etcd, _, err := root.Find([]string{"etcd"})
	if err != nil {
		t.Fatal(err)
	}
	visit(etcd)
	if verbs < 8 {
		t.Errorf("%d verbs of etcd, want check, ls, get, diff, watch and those of move", verbs)
	}
}
