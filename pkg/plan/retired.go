package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// retired reports whether the components of the legacy side run no more. What it had stays where it is: its store has
// what both sides read.
func (p *placement) retired() bool { return p.file.Spec.Legacy.Retired }

// runningSides are the sides of which components run.
func (p *placement) runningSides() []pair.Side {
	if p.retired() {
		return []pair.Side{pair.Modern}
	}
	return pair.Sides()
}

// policyFile is "" where the modern API server authorizes by no policy.
func (p *placement) policyFile() string {
	if p.retired() {
		return ""
	}
	return policyFile
}

const whyRetired = "the legacy side is retired"

// withoutLegacy returns the rows as they are when the legacy side reads nothing any more. What it alone had is still
// known as its own: it stays in its store for the way back.
func withoutLegacy(rows []Resource) []Resource {
	left := slices.Clone(rows)
	for i := range left {
		row := &left[i]
		if !row.VisibleToBoth() {
			continue
		}
		row.Legacy, row.Owner, row.Why = pair.View{}, pair.OwnerModern, whyRetired
	}
	return left
}

// onlyControllers are those of the modern controller manager where no other one runs: what its version runs by default,
// and what the legacy one was told to run besides.
func (p *placement) onlyControllers() []Controller {
	var controllers []Controller
	for _, fact := range kubever.Controllers(p.legacy) {
		c := asController(pair.Legacy, fact, p.legacy)
		c.Why = whyRetired
		controllers = append(controllers, c)
	}
	list := []string{"*"}
	if given, ok := lastValue(p.file.Spec.Modern.ControllerManager.ExtraArgs, "controllers"); ok {
		list = splitList(given)
	} else {
		for _, id := range p.besides() {
			fact, _ := kubever.ControllerByName(id)
			name, _ := fact.NameIn(p.modern)
			list = append(list, name)
		}
	}
	for _, fact := range kubever.Controllers(p.modern) {
		c := asController(pair.Modern, fact, p.modern)
		c.On, c.Why = enabled(fact, p.modern, list), "its version runs it by default"
		switch {
		case fact.Name == garbageCollector && c.On && collectorOff(p.file.Spec.Modern.ControllerManager.ExtraArgs):
			c.On, c.Why = false, collectorOffWhy
		case !c.On:
			c.Why = "its version does not run it by default"
		case !fact.DefaultOn(p.modern):
			c.Why = "the legacy controller manager ran it"
		}
		controllers = append(controllers, c)
	}
	return controllers
}

// besides are the controllers, by the name they have since 1.28, that the legacy controller manager was told to run,
// and that the modern version has and does not run by default.
func (p *placement) besides() (ids []string) {
	manager := p.file.Spec.Legacy.ControllerManager
	if manager == nil {
		return nil
	}
	given, _ := lastValue(manager.ExtraArgs, "controllers")
	for _, fact := range kubever.Controllers(p.modern) {
		if !fact.DefaultOn(p.modern) && given != "" && enabled(fact, p.legacy, splitList(given)) {
			ids = append(ids, fact.Name)
		}
	}
	return ids
}

// onlyControllersValue is --controllers where no other controller manager runs.
func (b *basis) onlyControllersValue() string {
	list := []string{"*"}
	for _, id := range b.besides() {
		list = append(list, controllerOf(b.controllers, pair.Modern, id).Name)
	}
	return strings.Join(list, ",")
}

// inherited are the flags of the legacy controller manager whose values say how the cluster is to be run: the only
// manager runs it so, where its version has them.
var inherited = []string{"cloud-config", "cloud-provider", "cluster-name", "cluster-signing-duration",
	"configure-cloud-routes", "flex-volume-plugin-dir", "horizontal-pod-autoscaler-cpu-initialization-period",
	"horizontal-pod-autoscaler-downscale-stabilization", "horizontal-pod-autoscaler-initial-readiness-delay",
	"horizontal-pod-autoscaler-sync-period", "horizontal-pod-autoscaler-tolerance", "large-cluster-size-threshold",
	"max-endpoints-per-slice", "namespace-sync-period", "node-cidr-mask-size", "node-cidr-mask-size-ipv4",
	"node-cidr-mask-size-ipv6", "node-eviction-rate", "node-monitor-grace-period", "node-monitor-period",
	"node-startup-grace-period", "node-sync-period", "pvclaimbinder-sync-period", "resource-quota-sync-period",
	"route-reconciliation-period", "secondary-node-eviction-rate", "terminated-pod-gc-threshold",
	"unhealthy-zone-threshold"}

const asLegacyManager = "as the legacy controller manager ran"

// onlyManagerArgs are what a controller manager needs beside which no other one runs.
func (b *basis) onlyManagerArgs(l *argList) {
	pki, network, legacy := b.file.Spec.PKI, b.file.Spec.Network, &b.file.Spec.Legacy
	ranges, given := legacy.RunsWith(kubever.ControllerManager, "cluster-cidr")
	allocates, _ := legacy.RunsWith(kubever.ControllerManager, "allocate-node-cidrs")
	if allocates == "true" && given || network.PodCIDR != "" {
		if network.PodCIDR != "" {
			ranges = network.PodCIDR
		}
		l.set("allocate-node-cidrs", "true", asLegacyManager)
		l.set("cluster-cidr", ranges, asLegacyManager)
	}
	l.set("service-cluster-ip-range", strings.Join(network.ServiceCIDRs, ","), "the spec's")
	l.set("service-account-private-key-file", pki.ServiceAccountKey, "signs tokens of service accounts")
	if !slices.ContainsFunc(l.args, func(a wantedArg) bool { return a.Name == "root-ca-file" }) {
		l.set("root-ca-file", b.servingCA(pair.Legacy), "what pods trust")
	}
	l.set("cluster-signing-cert-file", pki.CA, "signs the certificate requests of kubelets")
	l.set("cluster-signing-key-file", pki.CAKey, "signs the certificate requests of kubelets")
	for _, flag := range inherited {
		if value, ok := legacy.RunsWith(kubever.ControllerManager, flag); ok {
			l.set(flag, value, asLegacyManager)
		}
	}
}

// onlyServerArgs are what the modern API server needs beside which no legacy one runs.
func (b *basis) onlyServerArgs(l *argList) {
	b.modernAdmission(l)
	if fallback, known := kubever.Flag(kubever.APIServer, reconcilerFlag).Default(l.minor); known &&
		fallback != "lease" {
		l.set(reconcilerFlag, "lease", "API servers that are gone leave the endpoints of the service kubernetes")
	} else if !known {
		l.set("apiserver-count", strconv.Itoa(len(b.file.Spec.Hosts)), "the endpoints of the service kubernetes")
	}
}

// LegacyOnly lists the resources of which the legacy side has objects of its own that no API server would serve any
// more without it: not what was handed over, what the modern side has copies of, and what an API server keeps for
// itself.
func (p *Plan) LegacyOnly() []*Resource {
	var rows []*Resource
	for i := range p.Resources {
		row := &p.Resources[i]
		if row.Legacy.Store == "" || row.Pseudo || row.Copied || row.VisibleToBoth() {
			continue
		}
		rows = append(rows, row)
	}
	return rows
}
