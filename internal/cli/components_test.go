package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/cli"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// TestComponentsHaveFlagsOfTheirVerbs: what plans give to components of fusionctl, and what a spec may give to them,
// are flags of their verbs.
func TestComponentsHaveFlagsOfTheirVerbs(t *testing.T) {
	given := map[string][]string{"controllers": spec.ControllersFlags, "gateway": spec.GatewayFlags}
	for _, example := range []string{"gateway-1.15-1.36.yaml", "pods-1.10-1.36.yaml"} {
		data, err := os.ReadFile("../../examples/" + example)
		if err != nil {
			t.Fatal(err)
		}
		f, err := spec.Load(example, data)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(f, plan.OnHosts)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Components {
			if !plan.SeesBoth(c.Kind) {
				continue
			}
			verb := c.Command[1]
			if given[verb] == nil {
				t.Errorf("%s on %s starts fusionctl %s", c.Name, c.Host, verb)
			}
			for _, a := range c.Args {
				if !slices.Contains(given[verb], a.Name) {
					given[verb] = append(slices.Clone(given[verb]), a.Name)
				}
			}
		}
	}
	root := cli.NewRootCmd(cli.Streams{})
	for verb, flags := range given {
		cmd, _, err := root.Find([]string{verb})
		if err != nil {
			t.Fatal(err)
		}
		if len(flags) < 12 {
			t.Errorf("fusionctl %s is given %s, want those of a plan, too", verb, strings.Join(flags, ", "))
		}
		for _, name := range flags {
			if cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
				t.Errorf("fusionctl %s has no --%s", verb, name)
			}
		}
	}
}
