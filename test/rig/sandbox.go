package rig

import (
	"fmt"
	"os"
	"os/exec"
)

// Bridge is the address, within a sandbox, at which API servers and nodes reach each other.
const Bridge = "10.88.0.1"

// sandboxEnv tells the process in a sandbox its name, which is that of a folder, in which it leaves its results.
const sandboxEnv = "FUSIONCTL_RIG_SANDBOX"

// Sandboxed reports whether this process is in a sandbox, and where it leaves results. Only Linux has sandboxes.
func Sandboxed() (dir string, inside bool) { return os.LookupEnv(sandboxEnv) }

// bridgeName is the bridge of a sandbox, which has the address Bridge.
const bridgeName = "rig0"

// bridgeAddresses gives the sandbox's bridge further addresses, below those of nodes; the same ones at each call.
func (r *Rig) bridgeAddresses(n int) (addresses []string) {
	r.t.Helper()
	if _, inside := Sandboxed(); !inside {
		r.t.Fatal("addresses on the bridge need a sandbox: see RunSandboxed")
	}
	for i := range n {
		address := fmt.Sprintf("10.88.0.%d", 2+i)
		command := exec.CommandContext(r.t.Context(), "ip", "address", "replace", address+"/24", "dev", bridgeName)
		if out, err := command.CombinedOutput(); err != nil {
			r.t.Fatalf("giving the bridge the address %s: %v: %s", address, err, out)
		}
		addresses = append(addresses, address)
	}
	return addresses
}
