//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/kubefusion/fusionctl/test/rig/packages"
)

// installPackages installs what tests with nodes need of Debian's packages, where that can be done: as root, with
// apt-get. Elsewhere, and when it fails, it says so and goes on: the tests without nodes do not need them, and those
// with nodes say what is missing.
func installPackages(ctx context.Context, out io.Writer) {
	missing := packages.Missing()
	if len(missing) == 0 {
		return
	}
	list := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		fmt.Fprintf(out, "rig: tests with nodes will not run: they need Debian's packages %s, which only root can "+
			"install\n", list)
		return
	}
	fmt.Fprintf(out, "rig: installing %s\n", list)
	if err := aptInstall(ctx, missing); err != nil {
		fmt.Fprintf(out, "rig: tests with nodes will not run: %v\n", err)
	}
}

// servicePolicy is what packages ask whether they may start services. Nodes start their own.
const servicePolicy = "/usr/sbin/policy-rc.d"

func aptInstall(ctx context.Context, list []string) (err error) {
	policy, err := os.OpenFile(servicePolicy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, os.Remove(servicePolicy)) }()
		_, err = io.WriteString(policy, "#!/bin/sh\nexit 101\n")
		if err := errors.Join(err, policy.Close()); err != nil {
			return err
		}
	case !os.IsExist(err): // one that is there already is the machine's own
		return err
	}
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"},
		list...)} {
		command := exec.CommandContext(ctx, "apt-get", args...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, text)
		}
	}
	return nil
}
