package adopted

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/pki"
)

// TestEveryFileIsThere takes every control plane through init --from, check, pki and render. Each file that a component
// to be started names is one of the host's own, issued or rendered.
func TestEveryFileIsThere(t *testing.T) {
	names := Names(t)
	if len(names) < 15 {
		t.Errorf("%d control planes, want 15 of different shapes", len(names))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			_, pair, err := pki.NewAuthority("cluster", pki.LifetimeOf(time.Now(), time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			cert, key := filepath.Join(directory, "ca.crt"), filepath.Join(directory, "ca.key")
			write(t, cert, pair.Certificate)
			write(t, key, pair.Key)
			c := Make(t, name, directory, cert, key, true)
			for _, file := range c.Missing() {
				t.Errorf("%s", file)
			}
			for _, rule := range []string{"FUS087", "FUS102", "FUS250", "FUS251"} {
				if strings.Contains(c.Check, rule+" ") {
					t.Errorf("check finds %s:\n%s", rule, c.Check)
				}
			}
		})
	}
}
