//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// A program of another module, with clients, a reader and a cache that exist, and with a kind of its own, works on
// servers that have other versions: what a user of the library can reach is enough for that.
func TestProgramsOfOtherModulesConvert(t *testing.T) {
	t.Parallel()
	program := buildOutside(t)
	for _, test := range []struct {
		minor kubever.Minor
		want  []string
	}{
		{6, []string{
			"greeting Deployment convert apps/v1beta1", "greeting DeploymentList convert apps/v1beta1",
			"greeting PodDisruptionBudget convert policy/v1beta1", "greeting deployments convert apps/v1beta1",
			"own 2", "created true", "read 0 yes", "listed 1 outside", "loss refused true", "not found true",
			"event outside", "cached yes", "own kind true unsupported",
		}},
		{15, []string{
			"greeting Deployment pass apps/v1", "greeting DeploymentList pass apps/v1",
			"greeting PodDisruptionBudget convert policy/v1beta1", "greeting deployments pass apps/v1",
			"own 2", "created true", "read 0 yes", "listed 1 outside", "loss refused true", "not found true",
			"event outside", "cached yes", "own kind true convert", "own object large 9",
		}},
	} {
		t.Run(test.minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			server := startForConverting(r, test.minor)
			if test.minor > 6 {
				defineSizes(t, r, server)
			}
			kubeconfig, err := r.PKI.Kubeconfig("outside", server.URL, "program", "system:masters")
			must(t, err)
			run := exec.CommandContext(t.Context(), program, kubeconfig)
			var problems strings.Builder
			run.Stderr = &problems
			out, err := run.Output()
			if err != nil {
				t.Fatalf("the program: %v\n%s%s", err, out, problems.String())
			}
			if diff := cmp.Diff(test.want, strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
				t.Errorf("the program saw something else (-want +seen):\n%s", diff)
			}
		})
	}
}

// defineSizes makes the kind of the program's own, in its old version.
func defineSizes(t *testing.T, r *rig.Rig, server *rig.APIServer) {
	t.Helper()
	client := server.Client("admin", "system:masters")
	must(t, client.Call(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions",
		object{"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
			"metadata": object{"name": "sizes.outside.example"},
			"spec": object{"group": "outside.example", "version": "v1alpha1", "scope": "Namespaced",
				"names": object{"plural": "sizes", "singular": "size", "kind": "Size", "listKind": "SizeList"}}}, nil))
	r.Eventually("the custom resources are served", func(ctx context.Context) error {
		return client.Call(ctx, http.MethodGet, "/apis/outside.example/v1alpha1/sizes", nil, nil)
	})
}

// buildOutside builds the program in a module of its own, which requires what this module does.
func buildOutside(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	dir := t.TempDir()
	required, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	_, rest, found := strings.Cut(string(required), "\n")
	if !found {
		t.Fatal("go.mod has one line")
	}
	const module = "github.com/kubefusion/fusionctl"
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module outside\n"+rest+
		"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n"), 0o600))
	for name, from := range map[string]string{"go.sum": filepath.Join(root, "go.sum"),
		"main.go": "testdata/outside.go.txt"} {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	program := filepath.Join(dir, "outside")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, text)
	}
	return program
}
