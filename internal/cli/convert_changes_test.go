package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manyDeployments are old Deployments, each with the same five defaults that changed, and behind them Ingresses with
// two paths each.
func manyDeployments(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `---
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: web-%d}
spec:
  rollbackTo: {revision: 2}
  template: {metadata: {labels: {app: web}}, spec: {topologySpreadConstraint: [], containers: [{name: web, image: "web:1"}]}}
`, i)
	}
	for i := range n {
		fmt.Fprintf(&b, `---
apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: in-%d}
spec: {rules: [{http: {paths: [{path: /a, backend: {serviceName: w, servicePort: 80}}, {path: /b, backend: {serviceName: w, servicePort: 80}}]}}]}
`, i)
	}
	return b.String()
}

func convertText(t *testing.T, text string, args ...string) []string {
	t.Helper()
	var stderr bytes.Buffer
	code := Main(context.Background(), append([]string{"convert", "-f", "-", "--for", "1.36"}, args...),
		Streams{In: strings.NewReader(text), Out: io.Discard, Err: &stderr})
	if code != exitDone {
		t.Fatalf("convert exits %d: %s", code, stderr.String())
	}
	return strings.Split(strings.TrimSpace(stderr.String()), "\n")
}

func containing(lines []string, text string) []string {
	var found []string
	for _, line := range lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func TestConvertSumsUpDefaultsAndNamesEveryLoss(t *testing.T) {
	const n = 50
	lines := convertText(t, manyDeployments(n))
	if got := containing(lines, "topologySpreadConstraint is lost"); len(got) != n {
		t.Errorf("%d losses are named, want each of %d:\n%s", len(got), n, strings.Join(got, "\n"))
	}
	if got := len(containing(lines, " changes: ")) + len(containing(lines, " is written: ")); got != changesShown+7 {
		t.Errorf("%d lines about defaults, want %d and one for each of seven fields", got, changesShown)
	}
	// Three Deployments with six fields are told one by one. An Ingress counts once, however many paths it has.
	for _, want := range []string{
		"-:23: extensions/v1beta1 Deployment web-3 and 46 objects more: spec.progressDeadlineSeconds changes: not " +
			"set, which is 2147483647 in extensions/v1beta1 and 600 in apps/v1",
		"-:352: extensions/v1beta1 Ingress in-0 and 49 objects more: spec.rules[0].http.paths[0].pathType is " +
			"written: ",
	} {
		if len(containing(lines, want)) != 1 {
			t.Errorf("no line %q in\n%s", want, strings.Join(containing(lines, "changes"), "\n"))
		}
	}
}

func TestConvertNamesFewDefaultsOneByOne(t *testing.T) {
	lines := convertText(t, manyDeployments(2)) // six fields of each Deployment, two of each Ingress
	if got := append(containing(lines, " changes: "), containing(lines, " is written: ")...); len(got) != 16 ||
		len(containing(lines, "further fields")) > 0 {
		t.Errorf("%d lines about defaults, want 16 and nothing summed up:\n%s", len(got), strings.Join(lines, "\n"))
	}
	if got := containing(convertText(t, manyDeployments(50), "--defaults"), "changes"); len(got) > 0 {
		t.Errorf("with --defaults %q, want nothing about defaults", got)
	}
}

// What has no room in the annotation of kubectl apply is named, once, and is good all the same.
func TestWhatIsTooLargeToApplyIsNamed(t *testing.T) {
	for bytes, want := range map[int]int{1 << 10: 0, 300 << 10: 1} {
		file := filepath.Join(t.TempDir(), "large.yaml")
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata: {a: " +
			strings.Repeat("x", bytes) + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(t, "convert", "-f", file, "--for", "1.36", "--fail-on-loss")
		if code != 0 || stdout != text || strings.Count(stderr, "kubectl apply --server-side") != want {
			t.Errorf("%d bytes: exit %d, %d bytes out, %q; want it named %d times",
				bytes, code, len(stdout), stderr, want)
		}
	}
}
