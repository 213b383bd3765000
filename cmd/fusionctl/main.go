// Command fusionctl runs two Kubernetes control-plane versions over one set of nodes: it plans, checks, renders and
// watches them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubefusion/fusionctl/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program as it ends others
	code := cli.Main(ctx, cli.Arguments(os.Args), cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
