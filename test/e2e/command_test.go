//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/kubefusion/fusionctl/internal/cli"
)

// commandVariable makes this test binary the command line: a process of its own can be killed.
const commandVariable = "FUSIONCTL_E2E_COMMAND"

func runAsCommand() {
	if os.Getenv(commandVariable) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
}

// command is a run of fusionctl in a process of its own.
type command struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func newCommand(ctx context.Context, args ...string) *command {
	c := &command{Cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	c.Env = append(os.Environ(), commandVariable+"=1")
	c.Stdout, c.Stderr = &c.out, &c.err
	return c
}

// code is the exit code of a run that ended, -1 of one that was killed.
func (c *command) code(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// runFusionctl runs the command line to its end, which must be of the exit code.
func runFusionctl(t *testing.T, want int, args ...string) string {
	t.Helper()
	c := newCommand(t.Context(), args...)
	if got := c.code(c.Run()); got != want {
		t.Fatalf("fusionctl %q exits %d, want %d\n%s%s", args, got, want, c.out.String(), c.err.String())
	}
	return c.out.String() + c.err.String()
}
