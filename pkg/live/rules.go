package live

import "github.com/kubefusion/fusionctl/pkg/finding"

// Rules lists what Check finds, by ID. What it shares with a rule about plans has that rule's ID.
func Rules() []finding.Rule {
	const bad, warn = finding.Error, finding.Warning
	return finding.Of(finding.Servers, []finding.Rule{
		{ID: "FUS060", Title: "Objects whose owners a side looks for in vain", Severity: bad, Why: "A side serves the kind of an object's owner and does not have the owner, which is the other side's: its garbage collector deletes the object. The server was asked again before this was said. Where the collector is off it is a remark."},
		{ID: "FUS061", Title: "Owners that an old garbage collector overlooks", Severity: bad, Why: "Collectors before 1.10 take a 404 for a version that is not served, or for a cluster-scoped owner that they looked for in a namespace, for an absent owner."},
		{ID: "FUS062", Title: "Mirror pods that an old garbage collector deletes", Severity: bad, Why: "Mirror pods of kubelets since 1.17 are owned by their node, which collectors before 1.9 look for in the pod's namespace."},
		{ID: "FUS065", Title: "One lock that two holders hold at once", Severity: bad, Why: "A lock is an object, and what elects on objects of different kinds or in different stores does not see the other's: endpoints of an old version, leases of a new one. Two that elect under one name are the same program on both sides, and both act."},
		{ID: "FUS135", Title: "Dependents of owners that are gone from both sides", Severity: warn, Why: "No collector runs that would delete them: those of both sides are off, since neither sees all owners, and nobody holds the lock of fusionctl's own controllers, which look for owners on both sides."},
		{ID: "FUS240", Title: "A selector that selects the other side's pods", Severity: bad, Why: "Pods of both sides lie in one store. A workload of one side whose selector matches pods, or the pod template, of the other side's in the same namespace adopts those that have lost their controller and deletes those that are too many; a Service leads clients of one to the other; a PodDisruptionBudget counts pods whose controller its side does not see, and blocks their eviction."},
		{ID: "FUS241", Title: "Pods without the label of their side, or with the wrong one", Severity: warn, Why: "The spec names a label by which selectors tell the pods of the two sides apart (spec.pods.sideLabel). Pods and templates of the modern side that do not carry it are selected as the legacy side's are; a pod of the legacy side that carries it is taken for the modern side's."},
		{ID: "FUS242", Title: "A component that does not run as planned", Severity: bad, Why: "What check says of a spec holds for components that run with the arguments of its plan. The static pods in kube-system show how they were started, /flagz and the metrics of an API server show some of it. It is an error where the argument is one that keeps the two sides apart."},
	})
}
