package rules

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// addressRules are about the addresses of the API servers and those that services are given.
func addressRules() []rule {
	reconcile := func(value string) string { return args("endpoint-reconciler-type=" + value) }
	return []rule{
		{finding.Rule{
			ID: "FUS040", Title: "Endpoint reconcilers of two types write the endpoints of service kubernetes",
			Why: "Each API server reconciles the endpoints of the service kubernetes. The master-count reconciler " +
				"removes addresses beyond its --apiserver-count; the lease reconciler writes exactly the addresses " +
				"for which it finds leases. Two of different types, or two master-count reconcilers that each expect " +
				"one server, revert each other for ever.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "1.36.3 with the master-count reconciler and 1.15.12 with the lease " +
				"reconciler wrote the endpoints alternately, every ten seconds; with --endpoint-reconciler-type=none " +
				"1.36.3 writes no master leases, endpoints or slices for the service kubernetes",
				Damage: []string{"TestWatchTellsAFight"},
				Read:   "pkg/master/controller.go of 1.6.13; reconcilers/instancecount.go and lease.go of 1.36.3"},
			Bad:  example{legacy: "1.6.13", modernServer: reconcile("lease")}.String(),
			Good: example{legacy: "1.6.13"}.String(),
		}, fightingReconcilers},
		{finding.Rule{
			ID: "FUS041", Title: "Lease reconcilers do not see each other's leases",
			Why: "A lease reconciler writes exactly the addresses for which it finds leases. With shared " +
				"endpoints and leases in two stores each reconciler removes the other's address.",
			Legacy: kubever.Range{From: 9, To: kubever.Newest}, Modern: kubever.Range{From: 9, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "1.15.12 and 1.36.3 with leases in two stores wrote the endpoints " +
				"alternately, each with its own address alone",
				Damage: []string{"TestLeasesInTwoStores"},
				Read:   "reconcilers/lease.go of 1.15.12 and 1.36.3; pkg/master/master.go of 1.10.13"},
			Bad:  example{modernServer: reconcile("lease")}.String(),
			Good: example{}.String(),
		}, splitMasterLeases},
		{finding.Rule{
			ID: "FUS042", Title: "The restart of one API server removes the address of the other",
			Why: "An API server removes its own address from the endpoints of the service kubernetes when it " +
				"starts and stops. Where both sides advertise one address, each restart of the modern API server " +
				"makes the legacy API server unreachable for pods.",
			Legacy: anyVersion, Modern: kubever.Range{From: 14, To: kubever.Newest}, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "a 1.36.3 that advertises the address of 1.15.12 was started again: the " +
				"endpoints had no address while 1.15.12 served",
				Damage: []string{"TestRestartTakesTheCommonAddress"},
				Read: "pkg/master/controller.go of 1.13 to 1.17, kubernetesservice/controller.go of 1.36.3; absent " +
					"in 1.6 and 1.8"},
			Bad:  example{modernServer: reconcile("lease")}.String(),
			Good: example{}.String(),
		}, oneAdvertisedAddress},
		{finding.Rule{
			ID: "FUS043", Title: "One port list for API servers on different ports",
			Why: "All addresses in the endpoints of the service kubernetes share one list of ports. When both " +
				"sides add their address and serve on different ports, clients connect to a port on which no server " +
				"listens.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "1.15.12 and 1.36.3 with leases in one store: the endpoints had both " +
				"addresses and one port",
				Damage: []string{"TestAddressesShareOnePort"},
				Read:   "pkg/master/controller.go of 1.6.13 and 1.15.12, kubernetesservice/controller.go of 1.36.3"},
			Bad:  example{modernServer: reconcile("lease")}.String(),
			Good: example{}.String(),
		}, differentPorts},
		{finding.Rule{
			ID: "FUS050", Title: "One ClusterIP is allocated twice",
			Why: "Old API servers record allocated ClusterIPs in a bitmap, new ones in IPAddress objects; from " +
				"1.34 on they do not write the bitmap by default, from 1.35 on never. With one range neither side " +
				"sees the other's allocations.",
			Legacy: kubever.Range{From: 6, To: 32}, Modern: kubever.Range{From: 34, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.15.12 and 1.36.3 with shared services and one range: 90 services created through each " +
					"within seconds, 147 distinct addresses among 181 services, 34 allocated twice",
				Damage: []string{"TestServiceAddresses"}, Prevention: []string{"TestServiceAddresses"},
				Read: "registry/core/rest/storage_core.go and service/ipallocator of 1.6.13 and 1.36.3; run: 1.36.3 " +
					"refuses DisableAllocatorDualWrite=false",
			},
			Bad: example{access: toDevelopers("services")}.String(),
			Good: example{access: toDevelopers("services"),
				network: "serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]"}.String(),
		}, doubleAddresses},
		{finding.Rule{
			ID: "FUS051", Title: "The allocators of the two sides use different ranges",
			Why: "The bitmap records its range. An API server that finds another range refuses to allocate, and " +
				"its repair loop rewrites the bitmap to its own range every three minutes: creating services fails " +
				"on the side that did not write last. Node ports have a bitmap in every version. 1.33 writes the " +
				"bitmap beside its objects, and refuses each service that asks for an address where that has " +
				"another range; with DisableAllocatorDualWrite=true, which a plan with a range of its own sets, it " +
				"leaves the bitmap alone. Versions before it allocate from the bitmap alone.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "after 1.15.12 had started with 10.97.0.0/24 over the services of " +
				"1.10.13, which has 10.96.0.0/24, 1.10.13 created none any more; 1.33.13 with 10.97.0.0/24 beside " +
				"1.15.12 refused a service that asks for 10.97.0.50, and with the gate created it",
				Damage:     []string{"TestServersThatTheirPlanForbids", "TestARangeOfItsOwnBesideTheBitmap"},
				Prevention: []string{"TestARangeOfItsOwnBesideTheBitmap"},
				Read: "allocator/bitmap.go and allocator/storage of 1.6.13 and 1.36.3; " +
					"ipallocator/cidrallocator.go of 1.33.13"},
			Bad: example{modern: "1.30.14",
				network: "serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]"}.String(),
			Good: example{modern: "1.30.14", network: "serviceCIDRs: [10.96.0.0/16]"}.String(),
		}, differentRanges},
		{finding.Rule{
			ID: "FUS052", Title: "Two sets of services share one ClusterIP range",
			Why: "When each side has services of its own in one range, both allocators allocate the same " +
				"addresses, and nodes route each address to one service only.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "with services in two stores 1.10.13 and 1.15.12 each created one with " +
				"the ClusterIP 10.96.0.50",
				Damage: []string{"TestControllersThatTheirPlanForbids"},
				Read:   "registry/core/rest/storage_core.go of every minor: the ranges follow the services"},
			Bad: example{more: splitServices}.String(),
			Good: example{more: splitServices,
				network: "serviceCIDRs: [10.96.0.0/16], modernServiceCIDRs: [10.97.0.0/16]"}.String(),
		}, sameRangeTwice},
		{finding.Rule{
			ID: "FUS053", Title: "IPAddress objects are in two stores",
			Why: "Versions that record ClusterIPs in IPAddress objects look only there when they allocate. With " +
				"shared services and IPAddress objects in two stores a side records the other's addresses only " +
				"after it has seen the services: two that are created at one moment get one address.",
			Legacy: kubever.Range{From: 33, To: kubever.Newest}, Modern: kubever.Range{From: 33, To: kubever.Newest},
			Severity: finding.Error,
			Evidence: finding.Evidence{Seen: "two services created at one moment, one through 1.35.4 and one " +
				"through 1.36.3, got one ClusterIP; a moment later 1.36.3 refused the address",
				Damage: []string{"TestAddressObjectsInTwoStores"},
				Read:   "registry/core/service/ipallocator/cidrallocator.go and repairip.go of 1.36.3"},
			Bad: example{legacy: "1.34.4", modern: "1.36.3", access: toDevelopers("services"),
				more: splitAddresses}.String(),
			Good: example{legacy: "1.34.4", modern: "1.36.3", access: toDevelopers("services")}.String(),
		}, addressesApart},
	}
}

const splitAddresses = `owners: [{resources: [ipaddresses.networking.k8s.io], owner: split}]`

const splitServices = `owners: [{resources: [services, endpoints, networkpolicies.networking.k8s.io], owner: split}]`

// reconciler is what keeps the addresses behind the service kubernetes on a side.
func reconciler(p *plan.Plan, side pair.Side) string {
	if value, ok := sideArg(p, side, kubever.APIServer, "endpoint-reconciler-type"); ok {
		return value
	}
	return kubever.EndpointReconcilersIn(p.Side(side).Version.Minor).Default
}

// bothReconcile reports whether both sides write the endpoints of the service kubernetes in one place.
func bothReconcile(p *plan.Plan) bool {
	return visible(p, endpointsKey) && reconciler(p, pair.Modern) != "none" && reconciler(p, pair.Legacy) != "none"
}

const (
	kubernetesService = "endpoints default/kubernetes"
	noReconciler      = "remove --endpoint-reconciler-type of the modern API server from extraArgs; the plan sets none"
)

func fightingReconcilers(p *plan.Plan) []finding.Finding {
	if !bothReconcile(p) {
		return nil
	}
	legacy, modern := reconciler(p, pair.Legacy), reconciler(p, pair.Modern)
	if legacy != modern {
		return []finding.Finding{{Subject: kubernetesService,
			Message: fmt.Sprintf("the legacy side reconciles them by %s, the modern side by %s", legacy, modern),
			Fix:     noReconciler}}
	}
	if legacy != "master-count" {
		return nil
	}
	servers := len(p.ComponentsOf(pair.Legacy, kubever.APIServer)) + len(p.ComponentsOf(pair.Modern, kubever.APIServer))
	var found []finding.Finding
	for _, side := range pair.Sides() {
		if count, err := strconv.Atoi(effective(p, side, "apiserver-count")); err == nil && count < servers {
			found = append(found, finding.Finding{Subject: kubernetesService,
				Message: fmt.Sprintf("the %s side expects %d API servers and removes the addresses of surplus ones; "+
					"there are %d", side, count, servers),
				Fix: fmt.Sprintf("set --apiserver-count=%d on the %s side", servers, side)})
		}
	}
	return found
}

func splitMasterLeases(p *plan.Plan) []finding.Finding {
	if !bothReconcile(p) || reconciler(p, pair.Legacy) != "lease" || reconciler(p, pair.Modern) != "lease" ||
		visible(p, "masterleases") {
		return nil
	}
	return []finding.Finding{{Subject: kubernetesService, Message: "both sides write exactly the addresses for which " +
		"they find master leases, and the leases are in two stores", Fix: noReconciler}}
}

func oneAdvertisedAddress(p *plan.Plan) []finding.Finding {
	if !bothReconcile(p) || !kubever.Behaves(kubever.BehaviourEndpointRemovedAtStop, p.Modern.Version.Minor) {
		return nil
	}
	var shared []string
	for _, m := range p.ComponentsOf(pair.Modern, kubever.APIServer) {
		for _, l := range p.ComponentsOf(pair.Legacy, kubever.APIServer) {
			ours, okOurs := m.Arg("advertise-address")
			theirs, okTheirs := l.Arg("advertise-address")
			if l.Host == m.Host && okOurs && okTheirs && ours == theirs {
				shared = append(shared, ours)
			}
		}
	}
	if len(shared) == 0 {
		return nil
	}
	return []finding.Finding{{Subject: kubernetesService, Message: fmt.Sprintf("both sides advertise %s, and the "+
		"modern API server removes it when it starts and stops", strings.Join(shared, ", ")), Fix: noReconciler}}
}

func differentPorts(p *plan.Plan) []finding.Finding {
	if !bothReconcile(p) || p.Legacy.Port == p.Modern.Port {
		return nil
	}
	return []finding.Finding{{Subject: kubernetesService, Message: fmt.Sprintf("the legacy side serves on port %d, "+
		"the modern side on %d; the addresses of both share one port list", p.Legacy.Port, p.Modern.Port),
		Fix: noReconciler}}
}

// ranges are the service ranges that a side's API server works on.
func ranges(p *plan.Plan, side pair.Side) string {
	value, _ := sideArg(p, side, kubever.APIServer, "service-cluster-ip-range")
	return value
}

// overlap reports whether two lists of ranges have an address in common. What cannot be read counts as overlapping:
// doubt is no safety.
func overlap(a, b string) bool {
	for x := range strings.SplitSeq(a, ",") {
		for y := range strings.SplitSeq(b, ",") {
			first, errFirst := netip.ParsePrefix(strings.TrimSpace(x))
			second, errSecond := netip.ParsePrefix(strings.TrimSpace(y))
			if errFirst != nil || errSecond != nil || first.Overlaps(second) {
				return true
			}
		}
	}
	return false
}

// doubleAddresses reports a legacy side that finds a free address in a bitmap which the modern side does not write. A
// side that notes addresses in objects and in the bitmap takes neither for free when it is in the other's record.
func doubleAddresses(p *plan.Plan) []finding.Finding {
	services := p.Resource("services/specs")
	if services == nil || !services.VisibleToBoth() || !userWrites(p, services) ||
		!overlap(ranges(p, pair.Legacy), ranges(p, pair.Modern)) {
		return nil
	}
	if kubever.AllocatorsIn(p.Legacy.Version.Minor).FromObjects || p.Allocators(pair.Modern).Bitmap {
		return nil
	}
	on := ""
	if writes, leaves := p.BitmapWriters(pair.Modern); len(writes) > 0 {
		on = " on " + strings.Join(leaves, ", ")
	}
	fix := "give the modern side another range, spec.network.modernServiceCIDRs: [RANGE], outside of " +
		ranges(p, pair.Legacy) + ", or leave services out of spec.access"
	if gate := kubever.AllocatorsIn(p.Modern.Version.Minor).KeepBitmap; gate != "" {
		fix = "add " + gate + " to --feature-gates of the modern API server, or leave services out of spec.access"
	}
	return []finding.Finding{{Subject: "services",
		Message: fmt.Sprintf("%s records ClusterIPs in a bitmap that %s%s does not write, and both allocate from %s",
			p.Legacy.Version.Minor, p.Modern.Version.Minor, on, ranges(p, pair.Legacy)),
		Fix: fix}}
}

func addressesApart(p *plan.Plan) []finding.Finding {
	services := p.Resource("services/specs")
	if services == nil || !services.VisibleToBoth() || !userWrites(p, services) ||
		!overlap(ranges(p, pair.Legacy), ranges(p, pair.Modern)) {
		return nil
	}
	if !kubever.AllocatorsIn(p.Legacy.Version.Minor).Objects || !kubever.AllocatorsIn(p.Modern.Version.Minor).Objects ||
		!apartOnBoth(p, "ipaddresses") {
		return nil
	}
	return []finding.Finding{{Subject: "ipaddresses", Message: fmt.Sprintf("services are shared, and each side "+
		"records the addresses of %s that it allocates in another store", ranges(p, pair.Legacy)),
		Fix: "remove ipaddresses.networking.k8s.io from spec.owners: they must be in the store of services"}}
}

func differentRanges(p *plan.Plan) []finding.Finding {
	if !visible(p, "services/specs") {
		return nil
	}
	var found []finding.Finding
	legacy, modern := ranges(p, pair.Legacy), ranges(p, pair.Modern)
	of, some := bitmapOn(p, pair.Legacy)
	other, also := bitmapOn(p, pair.Modern)
	if legacy != modern && some && also {
		found = append(found, finding.Finding{Subject: "--service-cluster-ip-range",
			Message: fmt.Sprintf("the legacy side%s has %q, the modern side%s %q, and both write one bitmap", of,
				legacy, other, modern), Fix: "use one range: remove spec.network.modernServiceCIDRs"})
		if gate := kubever.AllocatorsIn(p.Modern.Version.Minor).EndBitmap; gate != "" {
			found[0].Fix = "set " + gate + " among --feature-gates of the modern API server"
		}
	}
	ports := "service-node-port-range"
	if a, b := effective(p, pair.Legacy, ports), effective(p, pair.Modern, ports); a != b {
		found = append(found, finding.Finding{Subject: "--" + ports, Message: fmt.Sprintf("the legacy side has %q, "+
			"the modern side %q, and both write one bitmap", a, b), Fix: "set spec.network.nodePortRange: " + a})
	}
	return found
}

// bitmapOn reports whether an API server of a side writes the bitmap, and on which hosts, where it is not all of them.
func bitmapOn(p *plan.Plan, side pair.Side) (on string, some bool) {
	writes, leaves := p.BitmapWriters(side)
	if len(writes) > 0 && len(leaves) > 0 {
		on = " on " + strings.Join(writes, ", ")
	}
	return on, len(writes) > 0
}

func sameRangeTwice(p *plan.Plan) []finding.Finding {
	services := p.Resource("services/specs")
	if services == nil || services.VisibleToBoth() || services.Legacy.Store == "" || services.Modern.Store == "" ||
		!overlap(ranges(p, pair.Legacy), ranges(p, pair.Modern)) {
		return nil
	}
	return []finding.Finding{{Subject: "services",
		Message: fmt.Sprintf("each side has services of its own, and both allocate from %s", ranges(p, pair.Legacy)),
		Fix:     "share the services, or give the modern side another range: spec.network.modernServiceCIDRs"}}
}
