package rig

import "os"

// Bridge is the address, within a sandbox, at which API servers and nodes reach each other.
const Bridge = "10.88.0.1"

// sandboxEnv tells the process in a sandbox its name, which is that of a folder, in which it leaves its results.
const sandboxEnv = "FUSIONCTL_RIG_SANDBOX"

// Sandboxed reports whether this process is in a sandbox, and where it leaves results. Only Linux has sandboxes.
func Sandboxed() (dir string, inside bool) { return os.LookupEnv(sandboxEnv) }
