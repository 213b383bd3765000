package render

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/pkg/adopt"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// The reader of manifests and units is another package's: what it reads from what is rendered must be the plan again.
func TestWhatIsRenderedReadsAsThePlan(t *testing.T) {
	plans := examples(t)
	odd := handmade(36)
	c := &odd.Components[2]
	for i, value := range hostile {
		c.Args = append(c.Args, plan.Arg{Name: "oidc-username-prefix", Value: value, Why: value, Origin: plan.FromPlan})
		c.Env = append(c.Env, spec.EnvVar{Name: fmt.Sprintf("V%d", i), Value: value})
	}
	plans["odd"] = odd
	for name, p := range plans {
		for _, target := range []Target{StaticPod, Systemd} {
			files, err := Files(p, Options{Target: target})
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Components {
				c := &p.Components[i]
				if c.Host == p.Hosts[0].Name {
					compareWithAdopted(t, name, p, c, files, target)
				}
			}
		}
	}
}

func compareWithAdopted(t *testing.T, name string, p *plan.Plan, c *plan.Component, files []File, target Target) {
	t.Helper()
	directory, ending := ManifestDirectory, ".yaml"
	if target == Systemd {
		directory, ending = unitDirectory, ".service"
	}
	tree := fstest.MapFS{}
	for _, file := range []string{treePath(p, c, directory, ending), treePath(p, c, "/etc/kubernetes", ".env")} {
		if f := find(files, file); f != nil {
			root := c.Host + "/"
			if runsAlready(p, c) {
				root = c.Host + existingDirectory + "/"
			}
			tree[file[len(root):]] = &fstest.MapFile{Data: f.Data}
		}
	}
	running, err := adopt.ReadAll(tree, nil)
	if err != nil || len(running.Processes) != 1 {
		t.Fatalf("%s: %s as %s: %d processes, %v, %v", name, c.Name, target, len(running.Processes), running.Notes, err)
	}
	process := running.Processes[0]
	args, _ := process.Args(36)
	var want []spec.Arg
	for _, a := range c.Args {
		want = append(want, spec.Arg{Name: kubever.FlagName(a.Name), Value: a.Value})
	}
	if diff := cmp.Diff(want, args); diff != "" {
		t.Errorf("%s: %s as %s: arguments (-plan +read):\n%s", name, c.Name, target, diff)
	}
	if process.Name != c.Name || process.Component != c.Kind {
		t.Errorf("%s: %s as %s reads as %s %s", name, c.Name, target, process.Component, process.Name)
	}
	if target == StaticPod {
		if diff := cmp.Diff(c.Env, process.Env); diff != "" {
			t.Errorf("%s: %s: environment (-plan +read):\n%s", name, c.Name, diff)
		}
	}
}
