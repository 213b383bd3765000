// Package packages lists the programs of the system that tests with nodes need, and Debian's packages that have them.
package packages

import (
	"maps"
	"os/exec"
	"slices"
)

// Of are the programs, by name or file, and the package of each.
var Of = map[string]string{
	"ansible-playbook":        "ansible-core",
	"conntrack":               "conntrack",
	"containerd":              "containerd",
	"containerd-shim-runc-v2": "containerd",
	"ctr":                     "containerd",
	"curl":                    "curl",
	"ip":                      "iproute2",
	"iptables":                "iptables",
	"jq":                      "jq",
	"mount":                   "mount",
	"openssl":                 "openssl",
	"runc":                    "runc",
	"/lib/systemd/systemd":    "systemd",
	"/usr/lib/cni/bridge":     "containernetworking-plugins",
	"/usr/lib/cni/portmap":    "containernetworking-plugins",
}

// Missing are the packages of the programs that this machine does not have, sorted.
func Missing() []string {
	missing := map[string]bool{}
	for program, of := range Of {
		if _, err := exec.LookPath(program); err != nil {
			missing[of] = true
		}
	}
	return slices.Sorted(maps.Keys(missing))
}
