// Package facts is what the programs beside it say about their release, as JSON on standard output.
package facts

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
)

// Component is what a program accepts on its command line.
type Component struct {
	Flags []Flag
	Gates []Gate
}

// Flag is a flag as its parser has it.
type Flag struct {
	Name, Default, Deprecated string
	SaysDeprecated            bool
}

// Gate is a feature gate at the version of the release.
type Gate struct {
	Name, Stage     string
	Default, Locked bool
}

// Of reads a command as it is before it is executed.
func Of(cmd *cobra.Command) Component {
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc) // as k8s.io/component-base/cli does
	logs.AddFlags(cmd.PersistentFlags())
	cmd.InitDefaultHelpFlag()
	cmd.LocalFlags() // merges those of the process
	var c Component
	seen := map[string]bool{}
	take := func(f *pflag.Flag) {
		if seen[f.Name] {
			return
		}
		seen[f.Name] = true
		c.Flags = append(c.Flags, Flag{Name: f.Name, Default: f.DefValue, Deprecated: f.Deprecated,
			SaysDeprecated: strings.HasPrefix(f.Usage, "DEPRECATED")})
	}
	cmd.Flags().VisitAll(take)
	cmd.PersistentFlags().VisitAll(take)
	slices.SortFunc(c.Flags, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		stage := string(spec.PreRelease)
		if spec.PreRelease == featuregate.GA {
			stage = "GA"
		}
		c.Gates = append(c.Gates, Gate{string(name), stage, spec.Default, spec.LockToDefault})
	}
	slices.SortFunc(c.Gates, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// Print writes JSON to the file that is the program's first argument: programs write what they like elsewhere.
func Print(value any) {
	data, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(os.Args[1], data, 0o600)
	}
	Stop(err)
}

// Stop ends the program when something went wrong.
func Stop(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
