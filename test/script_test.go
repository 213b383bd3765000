// Package test proves what spans packages: the command line as a user sees it, and which package may import which.
package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/internal/golden"
)

// TestMain makes this test binary answer to the name fusionctl: the scripts run the command line without building it
// first.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"fusionctl": func() {
			os.Exit(cli.Main(context.Background(), os.Args[1:],
				cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
		},
	})
}

// TestScript runs every script/*.txtar in a folder of its own that holds the files of the archive. The commands are
// testscript's, and exits; $EXAMPLES is the folder of the examples, $CORE and $MODERN are stores that real API servers
// wrote.
func TestScript(t *testing.T) {
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	stores, err := filepath.Abs("../pkg/etcd/snapshot/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                "script",
		RequireUniqueNames: true,
		UpdateScripts:      golden.Updating(),
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("CORE", filepath.Join(stores, "split-1.10-1.36-core.db"))
			env.Setenv("MODERN", filepath.Join(stores, "split-1.10-1.36-modern.db"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and asserts its exact exit code, which testscript itself cannot: exits 3 fusionctl check
// spec.yaml. What it printed can be matched as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...], never negated")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits: %q: want an exit code", args[0])
	}
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("exits: running %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("%s exits %d, want %d", args[1], got, want)
	}
}
