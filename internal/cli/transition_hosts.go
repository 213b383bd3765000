package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/registry"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/local"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
)

const (
	// otherSnapshots is where an agent puts snapshots of stores.
	otherSnapshots = "/var/lib/fusionctl/snapshots"
	// machineLock is held while steps are done on a machine.
	machineLock = "/run/fusionctl-transition.lock"
)

func newTransitionAgentCmd(streams Streams) *cobra.Command {
	lock := machineLock
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Execute steps for transition apply on another host",
		Long: `agent does the actions and checks that it reads from standard input, a line of JSON each, and answers
on standard output. "fusionctl transition apply --ssh" runs it on other hosts; it ends when its input does.

It does what it is told, as the user that runs it: a client that may run it as root on a host is root there. It refuses
steps of a host whose address is none of this machine's, and works only when no other transition does.

Exit codes: 0 its input ended, 1 it could not work, 2 bad usage, 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limitMemory(cmd.Context())
			var held io.Closer
			err := remote.Serve(cmd.Context(), streams.In, streams.Out,
				func(hello remote.Hello) (transition.Runner, error) {
					here, err := local.IsHere(hello.Host.Address)
					if err == nil && !here {
						err = fmt.Errorf("%s, the address of host %s, is none of this machine's", hello.Host.Address,
							hello.Host.Name)
					}
					if err == nil {
						held, err = local.Lock(cmd.Context(), lock, hello.Wait)
					}
					return &local.Host{Snapshots: cmp.Or(hello.Snapshots, otherSnapshots), Wait: hello.Wait,
						Images: &registry.Client{Credentials: hello.Credentials},
						ByHand: func(text, found string) error {
							return &transition.ByHandError{Text: text, Found: found}
						}}, err
				})
			if held != nil {
				err = errors.Join(err, held.Close())
			}
			return err
		},
	}
	cmd.Flags().StringVar(&lock, "lock", lock, "file that is locked while steps are done")
	return cmd
}

// othersOf lists the hosts of a transition that are not this machine.
func othersOf(t *transition.Transition, req transitionRequest) ([]transition.Host, error) {
	if req.rehearse != "" {
		return nil, nil
	}
	others, err := remote.Away(t.Hosts, local.IsHere)
	if err == nil && len(others) > 0 && req.ssh == "" {
		return nil, usagef("host %s, %s: is not this machine: --ssh does the steps of other hosts over ssh",
			others[0].Name, others[0].Address)
	}
	return others, err
}

// runnerOf does the steps of this machine itself, and those of others through their agents. Close ends the agents and
// lets other transitions change this machine.
func runnerOf(ctx context.Context, t *transition.Transition, req transitionRequest, here *local.Host,
	others []transition.Host) (runner *remote.Both, end func() error, err error) {
	away := &remote.Hosts{Hosts: others, Snapshots: req.snapshots, Wait: req.wait, Credentials: req.credentials}
	if req.ssh != "" {
		if away.Connect, err = remote.Over(req.ssh, req.sshProgram); err != nil {
			return nil, nil, usagef("--ssh %q: is no command line", req.ssh)
		}
	}
	both := &remote.Both{Here: here, Away: away}
	if req.rehearse != "" || len(others) == len(t.Hosts) {
		return both, away.Close, nil
	}
	held, err := local.Lock(ctx, req.lock, req.wait)
	return both, func() error { return errors.Join(away.Close(), held.Close()) }, err
}
