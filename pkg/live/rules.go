package live

import (
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
)

// Rules lists what Check finds, by ID. What it shares with a rule about plans has that rule's ID.
func Rules() []finding.Rule {
	const bad, warn = finding.Error, finding.Warning
	return finding.Of(finding.Servers, []finding.Rule{
		{
			ID: "FUS060", Title: "Dependents whose owner a garbage collector does not find", Severity: bad,
			Why: "A side serves the kind of an object's owner and does not have the owner, which is stored on the " +
				"other side: its garbage collector deletes the dependent. The owner was read again before this was " +
				"reported. Where the collector is off, the finding is an info.",
		},
		{
			ID: "FUS061", Title: "Owners that an old garbage collector takes for absent", Severity: bad,
			Why: gc.Mistaken,
		},
		{
			ID: "FUS062", Title: "Mirror pods that an old garbage collector deletes", Severity: bad,
			Why: gc.MirrorPods,
		},
		{
			ID: "FUS065", Title: "One leader-election lock with two holders", Severity: bad,
			Why: "A lock is an object. Candidates that use objects of different kinds (endpoints in old versions, " +
				"leases in new ones) or in different stores do not see each other's lock. Two candidates of one name " +
				"are the same program on both sides, and both act as the leader.",
		},
		{
			ID: "FUS135", Title: "Dependents of owners that neither side has", Severity: warn,
			Why: "The garbage collectors of both sides are off, because neither sees all owners, and no process " +
				"holds the lock of fusionctl controllers, which look for owners on both sides: no component deletes " +
				"these dependents.",
		},
		{
			ID: "FUS240", Title: "A selector that matches the other side's pods", Severity: bad,
			Why: "Pods of both sides are in one store. A workload whose selector matches pods of the other side, or " +
				"the pod template of the other side's workload, in the same namespace adopts pods without a " +
				"controller and deletes surplus ones. A Service routes traffic to the other side's pods. A " +
				"PodDisruptionBudget counts pods whose controller its side does not see, and blocks their eviction.",
		},
		{
			ID: "FUS241", Title: "Pods without the label of their side, or with the other side's", Severity: warn,
			Why: "spec.pods.sideLabel names the label by which selectors distinguish the pods of the two sides. Pods " +
				"and pod templates of the modern side without it match selectors of the legacy side; a pod of the " +
				"legacy side with it matches those of the modern side.",
		},
		{
			ID: "FUS242", Title: "A component that does not run as planned", Severity: bad,
			Why: "What check reports about a spec holds for components that run with the arguments of its plan. The " +
				"static pods in kube-system show the arguments of components; /flagz and the metrics of an API " +
				"server show some of them. A difference is an error where the argument keeps the two sides apart.",
		},
		{
			ID: "FUS251", Title: "Front proxies that extension API servers do not admit", Severity: bad,
			Why: "Extension API servers believe a front proxy whose certificate has a name that the ConfigMap " +
				"kube-system/extension-apiserver-authentication admits, and that the CA there has signed. Both API " +
				"servers write it: up to 1.16 a server overwrites it at its start, since 1.17 servers add to it. " +
				"What is published may be less, or more, than what both are told to admit.",
			Evidence: finding.Evidence{Read: "pkg/master/client_ca_hook.go of 1.6.13 to 1.16.15; " +
				"clusterauthenticationtrust of 1.17.17 and 1.36.3"},
		},
	})
}
