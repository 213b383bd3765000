//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/transition"
)

// A file of steps of which the titles or the hosts hide what is done is refused before anything is asked or begun.
func TestTransitionFilesSayWhatTheyDo(t *testing.T) {
	for name, host := range map[string]transition.Host{
		"an option":    {Name: "cp-1", Address: "-oProxyCommand=id"},
		"a path above": {Name: "../cp-1", Address: "127.0.0.1"},
	} {
		steps, put := stepsFile(t, host)
		for _, args := range [][]string{{"--ssh=false"}, {"--rehearse", filepath.Join(t.TempDir(), "hosts")}} {
			code, _, stderr := run(t, append([]string{"transition", "apply", steps, "--yes"}, args...)...)
			if code != 2 || !strings.Contains(stderr, "want a DNS label") {
				t.Errorf("%s, %s: %d, %s", name, args[0], code, stderr)
			}
		}
		if _, err := os.Stat(put); !os.IsNotExist(err) {
			t.Errorf("%s: a step was done: %v", name, err)
		}
	}
	steps, _ := stepsFile(t, transition.Host{Name: "cp-1", Address: "127.0.0.1"})
	if err := os.Chmod(steps, 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, "transition", "apply", steps, "--yes"); code != 2 ||
		!strings.Contains(stderr, "other users can change it") {
		t.Errorf("a file that others can change: %d, %s", code, stderr)
	}
}
