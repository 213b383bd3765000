package cli

import (
	"context"
	"io"
	"time"
)

// NewRootCmd is for tests from outside that look at every verb.
var NewRootCmd = newRootCmd

// PKISpec is a spec of two hosts that needs certificates.
const PKISpec = pkiSpec

// LockMachine does what a transition does before it changes a machine.
func LockMachine(ctx context.Context, name string) (io.Closer, error) {
	return lockMachine(ctx, name, time.Second)
}
