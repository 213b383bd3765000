// Package debian finds programs that some tests need and that Debian's packages have: a browser, Ansible.
package debian

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// requiredEnv makes a test fail that cannot have its program. Without it the test is skipped.
const requiredEnv = "FUSIONCTL_PROGRAMS"

// Program is the path of the first program there is of these names. The package of Debian has one of them.
func Program(t testing.TB, pkg string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	said := "no " + strings.Join(names, ", ") + ": Debian's package " + pkg + " has it"
	if os.Getenv(requiredEnv) == "required" {
		t.Fatalf("%s=required: %s", requiredEnv, said)
	}
	t.Skip(said)
	return ""
}
