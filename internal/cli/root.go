// Package cli is the command line: one file per verb. Verbs parse flags into a request, run it, and print; what they
// know about Kubernetes stands in the packages below.
package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/internal/visible"
)

// Streams are the standard input and outputs of a verb. Out is the answer; Err is everything else.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Main runs the command line and returns the exit code: 0 done, 1 could not finish, 2 bad usage or bad input file, 3
// done and findings were reported, 130 interrupted. Errors are printed on streams.Err, one line each, a hint on a line
// of its own.
func Main(ctx context.Context, args []string, streams Streams) int {
	releaseProgram()
	out, errs := visible.NewWriter(streams.Out), visible.NewWriter(streams.Err)
	whole := true
	defer func() {
		if whole {
			_ = errors.Join(out.Flush(), errs.Flush())
		}
	}()
	stderr := streams.Err
	streams.Out, streams.Err = out, errs
	root := newRootCmd(streams)
	root.SetArgs(args)
	ended, err := execute(ctx, root, args)
	if whole = ended; !ended { // it may still be printing
		visible.Fprintln(stderr, "interrupted")
		return exitInterrupted
	}
	code := exitCode(ctx, err)
	switch code {
	case exitDone, exitAttention:
	case exitInterrupted:
		visible.Fprintln(streams.Err, "interrupted")
	default:
		for _, line := range errorLines(err) {
			visible.Fprintln(streams.Err, line)
		}
		if hint := hintOf(err); hint != "" {
			visible.Fprintln(streams.Err, "hint: "+hint)
		}
	}
	return code
}

// Tree is the tree of commands, for what documents them.
func Tree() *cobra.Command {
	root := newRootCmd(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	root.InitDefaultCompletionCmd()
	return root
}

// lingers is how long a verb may go on after a signal that has nothing to put in order. It may be reading a pipe to
// which no process writes, or comparing what takes hours.
const lingers = 2 * time.Second

// orderly are the verbs that have: what they serve, or have begun to change, comes to its end.
var orderly = map[string]bool{
	"fusionctl policy serve": true, "fusionctl crd webhook": true, "fusionctl controllers": true,
	"fusionctl gateway": true, "fusionctl operator": true, "fusionctl agent": true,
	"fusionctl etcd watch": true, "fusionctl etcd move apply": true, "fusionctl etcd move undo": true,
	"fusionctl etcd backup": true, "fusionctl etcd restore": true,
	"fusionctl crd apply": true, "fusionctl crd undo": true, "fusionctl transition apply": true,
	"fusionctl transition undo": true, "fusionctl render": true, "fusionctl pki": true, "fusionctl demo": true,
}

// execute runs the verb. ended is false for one that went on after a signal, and is left behind.
func execute(ctx context.Context, root *cobra.Command, args []string) (ended bool, err error) {
	cmd, _, unknown := root.Find(args) // before the verb runs, which changes the tree of commands
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
	}
	if unknown == nil && orderly[cmd.CommandPath()] {
		return true, <-done
	}
	timer := time.NewTimer(lingers)
	defer timer.Stop()
	select {
	case err := <-done:
		return true, err
	case <-timer.C:
		return false, ctx.Err()
	}
}

func newRootCmd(streams Streams) *cobra.Command {
	var verbosity int
	root := &cobra.Command{
		Use:   "fusionctl",
		Short: "Run two Kubernetes control-plane versions over one set of nodes",
		Long: `fusionctl plans, checks and renders a control plane of two versions over one set of nodes: a legacy API
server that keeps its nodes and workloads, and a modern one beside it for new software.

Exit codes: 0 done, 1 could not finish, 2 bad usage or bad input file, 3 findings were reported, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			level := slog.LevelWarn - slog.Level(4*verbosity)
			logger := slog.New(slog.NewTextHandler(streams.Err, logOptions(level)))
			cmd.SetContext(withLogger(cmd.Context(), logger))
		},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.PersistentFlags().CountVarP(&verbosity, "verbose", "v", "log more on stderr; repeat for debugging")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return badInput(err, cmd.CommandPath()+" --help lists its flags")
	})
	root.AddCommand(verbs(streams)...)
	markArgumentErrors(root)
	return root
}

// verbs lists the commands in the order of a user's work.
func verbs(streams Streams) []*cobra.Command {
	return []*cobra.Command{
		newInitCmd(streams),
		newCheckCmd(streams),
		newPlanCmd(streams),
		newGatewayCmd(streams),
		newGraphCmd(streams),
		newReportCmd(streams),
		newExplainCmd(streams),
		newPKICmd(streams),
		newRenderCmd(streams),
		newPreflightCmd(streams),
		newTransitionCmd(streams),
		newRoadmapCmd(streams),
		newOperatorCmd(streams),
		newAgentCmd(streams),
		newPolicyCmd(streams),
		newVersionCmd(streams),
		newVersionsCmd(streams),
		newDemoCmd(streams),
		newEtcdCmd(streams),
		newConvertCmd(streams),
		newRestartsCmd(streams),
		newControllersCmd(streams),
		newCRDCmd(streams),
		newMonitoringCmd(streams),
		newLicensesCmd(streams),
	}
}

// markArgumentErrors makes a wrong number of arguments, or an unknown subcommand, bad usage for every command of the
// tree.
func markArgumentErrors(cmd *cobra.Command) {
	validate := cmd.Args
	if validate == nil {
		validate = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		hint := "want " + cmd.UseLine() + "; " + cmd.CommandPath() + " --help lists its arguments"
		if cmd.HasSubCommands() {
			hint = cmd.CommandPath() + " --help lists what it accepts"
			if near := nearestCommand(cmd, args); near != "" {
				hint = "did you mean " + near + "? " + hint
			}
		}
		return badInput(validate(cmd, args), hint)
	}
	for _, child := range cmd.Commands() {
		markArgumentErrors(child)
	}
}

// nearestCommand is the subcommand that was probably meant, with those above it; "" for none.
func nearestCommand(cmd *cobra.Command, args []string) string {
	if len(args) == 0 {
		return ""
	}
	var names []string
	for _, child := range cmd.Commands() {
		names = append(names, child.Name())
	}
	if near, ok := spelling.Nearest(args[0], names); ok {
		return cmd.CommandPath() + " " + near
	}
	return ""
}

type loggerKey struct{}

func withLogger(ctx context.Context, logger *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, logger)
}

// loggerFrom is the logger of the context; verbs hand it to the adapters that log.
func loggerFrom(ctx context.Context) *slog.Logger {
	if logger, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return logger
	}
	return slog.New(slog.DiscardHandler)
}
