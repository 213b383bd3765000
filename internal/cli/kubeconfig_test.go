package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServersAreVerified: what changes hosts and objects by the word of a server does not begin with one that whoever
// is on the way could be.
func TestServersAreVerified(t *testing.T) {
	dir := t.TempDir()
	file := func(name, cluster string) string {
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{%s}}],`+
			`"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`, cluster)
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("good", `"server":"https://192.0.2.1"`)
	for name, want := range map[string]string{
		file("skips", `"server":"https://127.0.0.1:1","insecure-skip-tls-verify":true`): "insecure-skip-tls-verify",
		file("plain", `"server":"http://192.0.2.1"`):                                    "want https",
		file("bare", `"server":"192.0.2.1:8080"`):                                       "want https",
		file("proxy", `"server":"http://127.0.0.1:1","proxy-url":"http://192.0.2.1"`):   "want https",
	} {
		spec := "../../examples/split-1.15-1.36.yaml"
		for _, args := range [][]string{
			{"agent", "--plane", "p", "--host", "h", "--state-dir", dir, "--kubeconfig", name},
			{"agent", "--plane", "p", "--host", "h", "--state-dir", dir, "--bootstrap-kubeconfig", name},
			{"operator", "--metrics-listen", "", "--health-listen", "", "--kubeconfig", name},
			{"controllers", "--spec", spec, "--listen", "", "--legacy-kubeconfig", name, "--modern-kubeconfig", good},
			{"controllers", "--spec", spec, "--listen", "", "--legacy-kubeconfig", good, "--modern-kubeconfig", name},
			{"gateway", spec, "--legacy-kubeconfig", name, "--modern-kubeconfig", good, "--proxy-cert", "a",
				"--proxy-key", "a", "--tls-cert", "a", "--tls-key", "a", "--client-ca", "a"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it does not begin
			var said bytes.Buffer
			code := Main(ctx, args, Streams{In: strings.NewReader(""), Out: &said, Err: &said})
			cancel()
			if code != exitUsage || !strings.Contains(said.String(), want) {
				t.Errorf("%q: %d %s, want %d and %q", args, code, &said, exitUsage, want)
			}
		}
	}
	for _, cluster := range []string{`"server":"https://192.0.2.1"`, `"server":"http://127.0.0.1:8080"`,
		`"server":"http://[::1]:8080"`, `"server":"http://localhost:8080"`} {
		if _, err := verifiedKubeconfig(t.Context(), file("verified", cluster), ""); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
	}
}
