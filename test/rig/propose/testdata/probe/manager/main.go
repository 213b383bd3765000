// Command manager prints what kube-controller-manager says about itself.
package main

import (
	"slices"
	"strings"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"probe/facts"
)

type controller struct {
	Name           string
	Aliases, Gates []string
	Off, Cloud     bool
}

func main() {
	var out struct {
		facts.Component
		Controllers []controller
	}
	out.Component = facts.Of(app.NewControllerManagerCommand())
	for name, d := range app.NewControllerDescriptors() {
		c := controller{Name: name, Aliases: d.GetAliases(), Off: d.IsDisabledByDefault()}
		// 1.37 has no controllers of cloud providers any more, and cannot be asked which they are.
		if cloud, ok := any(d).(interface{ IsCloudProviderController() bool }); ok {
			c.Cloud = cloud.IsCloudProviderController()
		}
		for _, gate := range d.GetRequiredFeatureGates() {
			c.Gates = append(c.Gates, string(gate))
		}
		out.Controllers = append(out.Controllers, c)
	}
	slices.SortFunc(out.Controllers, func(a, b controller) int { return strings.Compare(a.Name, b.Name) })
	facts.Print(out)
}
