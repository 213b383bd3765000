package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

const garbageCollector = "garbage-collector-controller"

// collectorRules are about garbage collection and what ends with a namespace.
func collectorRules() []rule {
	return []rule{
		{finding.Rule{
			ID: "FUS060", Title: "A garbage collector deletes the other side's objects",
			Why: "A garbage collector looks up the owner of every object at its own API server. When the object is " +
				"shared and the owner is in the other side's store, that API server answers 404, and the collector " +
				"deletes the object: every pod of the other side's Deployments, within seconds, again after each " +
				"recreation.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "split store, 1.36.3 with its default controllers: within 6 seconds all pods of a Deployment " +
					"of 1.15.12 were deleted, and again each time they were recreated; with whitelisted controllers " +
					"on 1.36.3 the collectors of 1.15.12 and 1.10.13 do the same to its pods",
				Damage:     []string{"TestModernCollectorDeletesLegacyPods", "TestLegacyCollectorDeletesModernPods"},
				Prevention: []string{"TestPairs"},
				Read:       "pkg/controller/garbagecollector of 1.6.13, 1.8.15, 1.10.13, 1.15.12 and 1.36.3",
			},
			Bad:  example{modernManager: args("controllers=*")}.String(),
			Good: example{}.String(),
		}, func(p *plan.Plan) []finding.Finding { return collecting(p, absentOwner) }},
		{finding.Rule{
			ID: "FUS061", Title: "An old garbage collector takes an unserved version for an absent owner",
			Why: "From 1.6 to 1.9 the garbage collector checks that the kind exists without looking at the " +
				"version, and then gets the owner in the version of the reference. Where the server has the kind in " +
				"another version only, the answer is 404, and the object is deleted. What clients write as owners is " +
				"not in a plan: checks of stores and servers report other mistakes by this ID, up to 1.19.",
			Legacy: kubever.Range{From: 6, To: 9}, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.6.13 with its default controllers beside 1.36.3: the pods of a Deployment created " +
					"through 1.36.3 survive (1.6 has no kind ReplicaSet in apps), those of a StatefulSet are deleted " +
					"every few seconds",
				Damage:     []string{"TestLegacyCollectorDeletesModernPods"},
				Prevention: []string{"TestLegacyCollectorOf1_6SparesDeployments", "TestPairs"},
				Read:       "apimachinery/meta/priority.go and garbagecollector/operations.go of 1.6 to 1.10",
			},
			Bad:  example{legacy: "1.6.13", legacyManager: "-"}.String(),
			Good: example{legacy: "1.6.13"}.String(),
		}, func(p *plan.Plan) []finding.Finding { return collecting(p, misled) }},
		{finding.Rule{
			ID: "FUS062", Title: "An old garbage collector deletes mirror pods",
			Why: "Since 1.17 kubelets set their node as the owner of mirror pods. Garbage collectors up to 1.8 " +
				"look up the node in the pod's namespace, do not find it and delete the mirror pod, again after each " +
				"recreation.",
			Legacy: kubever.Range{From: 6, To: 8}, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Read: "garbagecollector/operations.go of 1.6.13, 1.8.15 and 1.9.11; " +
				"kubelet mirror_client.go of 1.17.17"},
			Bad:  example{legacy: "1.8.15", kubelet: "1.17.17", legacyManager: "-"}.String(),
			Good: example{legacy: "1.8.15", kubelet: "1.13.12"}.String(),
		}, mirrorPods},
		{finding.Rule{
			ID: "FUS226", Title: "An API server reads from an etcd member that may be stale",
			Why: "Up to 1.8 an API server reads from the one etcd member to which it is connected, unless " +
				"--etcd-quorum-read=true; 1.9 to 1.12 do so when the flag is false. A member that is partitioned or " +
				"catching up does not have the newest objects: the API server answers 404 for an owner that exists, " +
				"and a garbage collector deletes its dependents.",
			Legacy: kubever.Range{From: 6, To: 12}, Modern: kubever.Range{From: 6, To: 12}, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "with two of three etcd members gone 1.6.13, and 1.10.13 with the flag off, answer 404 for an " +
					"object that exists; 1.10.13 with its default does not answer",
				Damage: []string{"TestReadsOfAStaleMember"},
				Read: "storage/etcd3/store.go and server/options/etcd.go of apiserver 1.6.13, 1.8.15, 1.9.11, " +
					"1.10.13 and 1.15.12",
			},
			Bad:  example{legacy: "1.10.13", legacyServer: args("etcd-quorum-read=false")}.String(),
			Good: example{legacy: "1.10.13"}.String(),
		}, staleReads},
		{finding.Rule{
			ID: "FUS227", Title: "A garbage collector deletes what the other side's custom resources own",
			Why: "Custom resources are in each side's default store. Where both sides have a CRD of one kind, as " +
				"when an operator is being moved, the garbage collector of one side sees the shared objects that " +
				"custom resources of the other side own, its API server serves the kind of the owner and answers 404 " +
				"for its name, and the collector deletes the objects. The same happens to what objects of a " +
				"ThirdPartyResource of 1.6 or 1.7 own, once the modern side has a CRD of its group, version and " +
				"kind: no version reads the objects of the other's. No controller of either side needs to run for " +
				"that: a pair without a modern controller manager is as exposed. From 1.8 to 1.9 a CRD of the same " +
				"kind in another version suffices. The garbage collector of 1.6 knows compiled-in kinds alone and " +
				"leaves such objects be. fusionctl controllers, which every plan includes unless the spec disables " +
				"them, run a garbage collector that looks up owners on both sides.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Error,
			Evidence: finding.Evidence{
				Seen: "1.15.12 with its default controllers beside 1.36.3 without a controller manager: the pods of " +
					"custom resources of 1.36.3 are deleted within seconds, once 1.15.12 has a CRD of their kind",
				Damage:     []string{"TestCollectorDeletesPodsOfCustomResources"},
				Prevention: []string{"TestPlansKeepPodsOfCustomResources"},
				Read: "pkg/controller/garbagecollector of 1.6.13, 1.7.16, 1.8.15, 1.10.13, 1.15.12 and 1.36.3, " +
					"kube-controller-manager/app/core.go and registry/extensions/thirdpartyresourcedata of 1.6.13",
			},
			Bad:  example{modernManager: "-", legacyManager: "-"}.String(),
			Good: example{modernManager: "-"}.String(),
		}, func(p *plan.Plan) []finding.Finding { return collecting(p, plan.CollectorDanger.Custom) }},
		{finding.Rule{
			ID: "FUS130", Title: "Deleting a namespace orphans the other side's objects",
			Why: "A namespace is deleted as soon as one namespace controller has finalized it. That controller " +
				"cannot list what the other side keeps in another store: those objects stay for ever, and reappear " +
				"when a namespace of that name is created again. fusionctl controllers, which every plan includes " +
				"unless the spec disables them, finalize a namespace when it is empty on both sides.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Prevention: []string{"TestControllers"},
				Read: "namespaced_resources_deleter.go of 1.6.13 and 1.36.3"},
			Bad:  example{more: "controllers: {disabled: true}"}.String(),
			Good: example{}.String(),
		}, orphansOfNamespaces},
		{finding.Rule{
			ID: "FUS135", Title: "No garbage collector runs on a side",
			Why: "With the garbage collector of a side off, the dependents of a deleted owner stay, and " +
				"foreground and orphaning deletions wait for a finalizer that no component removes. fusionctl " +
				"controllers, which every plan includes unless the spec disables them, run a garbage collector for " +
				"both sides.",
			Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
			Evidence: finding.Evidence{Seen: "both garbage collectors off: deleting a Deployment left its ReplicaSet " +
				"and its pods", Prevention: []string{"TestControllers"},
				Read: "registry/generic/registry/store.go of 1.15.12 and 1.36.3"},
			Bad:  example{more: "controllers: {disabled: true}"}.String(),
			Good: example{}.String(),
		}, uncollected},
	}
}

// absentOwner and misled part the dangers by built-in owners, as checks of stores and servers do: the owner is in the
// other store, or the collector takes it for absent without having looked where it is.
func absentOwner(d plan.CollectorDanger) bool {
	return !d.Custom() && d.Seen.Rule(d.Dependent, d.Owner) == "FUS060"
}

func misled(d plan.CollectorDanger) bool {
	return !d.Custom() && d.Seen.Rule(d.Dependent, d.Owner) == "FUS061"
}

func collecting(p *plan.Plan, of func(plan.CollectorDanger) bool) []finding.Finding {
	var found []finding.Finding
	for _, side := range pair.Sides() {
		if !runs(p, side, garbageCollector) {
			continue
		}
		var owners, clauses []string
		for _, d := range p.CollectorDangers(side) {
			if !of(d) {
				continue
			}
			if !d.Custom() {
				owners = append(owners, d.Owner+" of "+d.Reference)
			}
			clauses = append(clauses, d.String())
		}
		if len(clauses) == 0 {
			continue
		}
		name := p.Controller(side, garbageCollector).Name
		fix := gc.TurnOff(string(side), name)
		if len(p.ComponentsOf(side, kubever.ControllerManager)) == 0 {
			fix += fmt.Sprintf(", and add that to spec.%s.controllerManager", side)
		}
		found = append(found, finding.Finding{Subject: string(side) + " " + name, Message: clauses[0], Fix: fix,
			Related: slices.Compact(owners)})
	}
	return found
}

func ownsMirrorPods(kubelet kubever.Minor) bool {
	return kubever.Behaves(kubever.BehaviourMirrorPodsOwned, kubelet)
}

func mirrorPods(p *plan.Plan) []finding.Finding {
	minor := p.Legacy.Version.Minor
	if !runs(p, pair.Legacy, garbageCollector) || kubever.GarbageCollectorIn(minor).ClusterOwner != gc.Deleted ||
		!slices.ContainsFunc(p.KubeletMinors(), ownsMirrorPods) {
		return nil
	}
	kubelets := p.KubeletMinors()
	return []finding.Finding{{Subject: "mirror pods", Message: fmt.Sprintf("kubelets of %s set their node as the "+
		"owner, which the garbage collector of %s does not find", kubelets[slices.IndexFunc(kubelets, ownsMirrorPods)],
		minor),
		Fix: "keep the kubelets below 1.17, or run the legacy controller manager without its garbage collector"}}
}

// orphansOfNamespaces reports what a namespace controller cannot list in a shared namespace that it ends.
func orphansOfNamespaces(p *plan.Plan) []finding.Finding {
	if p.Joint != nil {
		return nil
	}
	var found []finding.Finding
	for _, side := range pair.Sides() {
		ending := side.Other()
		if !runs(p, ending, "namespace-controller") {
			continue
		}
		own := p.UnseenInNamespaces(side)
		if len(own) == 0 {
			continue
		}
		found = append(found, finding.Finding{Subject: fmt.Sprintf("namespaces, %s objects", side),
			Message: fmt.Sprintf("namespaces are shared, and the %s side keeps %d kinds of objects in them that the "+
				"%s side's namespace controller cannot list", side, len(own), ending),
			Fix: fmt.Sprintf("remove spec.controllers.disabled: fusionctl controllers finalize a namespace when both "+
				"sides are empty. Or delete the objects of the %s side before the namespace: %s",
				side, strings.Join(first(own, 6), ", ")),
			Related: own})
	}
	return found
}

// first is the beginning of a list, with a word for the rest.
func first(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), fmt.Sprintf("and %d more", len(list)-n))
}

func uncollected(p *plan.Plan) []finding.Finding {
	if p.Joint != nil {
		return nil
	}
	var found []finding.Finding
	for _, side := range pair.Sides() {
		c := p.Controller(side, garbageCollector)
		if c == nil || c.On || p.Side(side).Retired {
			continue
		}
		fix := fmt.Sprintf("delete dependents along with their owners on the %s side (kubectl delete by label), "+
			"without foreground deletion", side)
		if len(p.CollectorDangers(side)) > 0 {
			fix = "remove spec.controllers.disabled: the garbage collector of fusionctl controllers serves both " +
				"sides. Or " + fix
		}
		found = append(found,
			finding.Finding{Subject: string(side) + " " + c.Name,
				Message: fmt.Sprintf("is off: %s. The dependents that it would delete stay", c.Why), Fix: fix})
	}
	return found
}

// staleReads reports API servers without quorum reads: an error where the plan leaves them so, a warning where one that
// runs so has to be restarted with what the plan needs.
func staleReads(p *plan.Plan) []finding.Finding {
	var found []finding.Finding
	for _, side := range p.StaleReaders() {
		found = append(found, finding.Finding{
			Subject: fmt.Sprintf("--etcd-quorum-read of the %s API server", side),
			Message: fmt.Sprintf("%s reads from one etcd member, which may be stale: objects that exist may seem "+
				"absent", p.Side(side).Version.Minor),
			Fix: "set --etcd-quorum-read=true on every API server of that side",
		})
	}
	for _, c := range p.ComponentsOf(pair.Legacy, kubever.APIServer) {
		for _, arg := range c.Args {
			if !p.Legacy.Existing || kubever.FlagName(arg.Name) != "etcd-quorum-read" || arg.Origin == plan.FromSpec {
				continue
			}
			found = append(found, finding.Finding{
				Severity: finding.Warning, Subject: "--etcd-quorum-read of " + c.Name + " on " + c.Host,
				Message: fmt.Sprintf("runs without quorum reads: until it is restarted, %s may answer 404 for "+
					"objects that exist", p.Legacy.Version.Minor),
				Fix: "restart it with --etcd-quorum-read=true, and add that to spec.legacy.apiServer.extraArgs",
			})
		}
	}
	return found
}
