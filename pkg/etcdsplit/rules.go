package etcdsplit

import "github.com/kubefusion/fusionctl/pkg/finding"

// Rules lists what the stores can show, by ID.
func Rules() []finding.Rule {
	const bad, warn = finding.Error, finding.Warning
	return finding.Of(finding.Stores, []finding.Rule{
		{ID: "FUS000", Title: "A value that no reader can decode", Severity: bad, Why: "An API server decodes every object under a resource's keys to list them. One value that it cannot read, because it is damaged or of another kind, makes every list and watch of the whole resource fail."},
		{ID: "FUS001", Title: "Stored fields that a side drops", Severity: warn, Why: "A side that rewrites an object writes only the fields that its version knows, even when it changes nothing but the status. Depth objects finds the objects that have such fields now."},
		{ID: "FUS002", Title: "A stored version that a reader cannot decode", Severity: bad, Why: "Objects were written in a group and version that a side which reads the store does not have: its lists and watches of the resource fail."},
		{ID: "FUS003", Title: "A stored version that breaks watches", Severity: bad, Why: "The reader decodes the version in lists, where it knows what it expects, but not in watches: every write to such an object ends all watches of the resource. Source: kubernetes#73478."},
		{ID: "FUS004", Title: "Keys of a built-in resource in the wrong store", Severity: bad, Why: "Each side keeps the resource in one store, and the plan says whose objects it holds. Keys elsewhere were written past the plan, by an override that had no effect or through the wrong server, or were left behind when an override was set: overrides move nothing."},
		{ID: "FUS010", Title: "CRDs, custom resources or APIServices in the wrong store", Severity: bad, Why: "They lie in a side's default store whatever its overrides say. Keys in the other one come from the other server."},
		{ID: "FUS030", Title: "APIServices that a reader does not serve", Severity: bad, Why: "An API server deletes the built-in APIServices that it does not know when it starts, and lists announced groups that answer 404, which keeps namespaces from being deleted."},
		{ID: "FUS031", Title: "CRDs that lost fields, or versions nobody accounts for", Severity: bad, Why: "Every version stores CRDs in one format, so an old server reads them, and writes them back without what it does not know: versions, conversion, schemas, the list of stored versions. Custom resources in versions that the CRD does not have cannot be read."},
		{ID: "FUS040", Title: "A fight over the endpoints of service kubernetes", Severity: bad, Why: "Two reconcilers that do not know of each other write the list of API servers by turns."},
		{ID: "FUS050", Title: "Addresses or ports given out twice, allocators that disagree", Severity: bad, Why: "The allocators of the two versions keep their records in different objects. An address that one of them takes for free although a service has it is given out again."},
		{ID: "FUS051", Title: "Ranges in the store that differ from the spec's", Severity: bad, Why: "An allocator refuses to work on a range that is not its own; with two ranges each repair takes the record away from the other side."},
		{ID: "FUS052", Title: "One address in two sets of services", Severity: bad, Why: "The sides keep services in different stores and give out addresses of one range."},
		{ID: "FUS053", Title: "The default ServiceCIDR differs from the spec's range", Severity: bad, Why: "It was written by a server with another --service-cluster-ip-range."},
		{ID: "FUS060", Title: "Objects that a garbage collector deletes", Severity: bad, Why: "The collector of a side serves the kind of an object's owners and finds none of them in its own store. The finding says how many objects, and whether the collector runs."},
		{ID: "FUS061", Title: "Objects that an old garbage collector deletes by mistake", Severity: bad, Why: "Collectors before 1.10 take a 404 for a version that is not served, or for a cluster-scoped owner that they looked for in a namespace, for an absent owner."},
		{ID: "FUS062", Title: "Mirror pods that an old garbage collector deletes", Severity: bad, Why: "Mirror pods of kubelets since 1.17 are owned by their node, which collectors before 1.9 look for in the pod's namespace."},
		{ID: "FUS065", Title: "A lock of both sides", Severity: bad, Why: "Components of both sides elect on one object: only one of the two runs. The finding says who holds it."},
		{ID: "FUS070", Title: "Encrypted values", Severity: warn, Why: "Whoever reads the store needs the key. Servers 1.7 to 1.12 leave out what they cannot decrypt, later ones fail. What is inside was not checked."},
		{ID: "FUS072", Title: "Values in CBOR", Severity: bad, Why: "Only servers since 1.32 read CBOR, behind a feature gate."},
		{ID: "FUS088", Title: "Tokens that were marked invalid", Severity: bad, Why: "The cleaner of legacy tokens counts only what servers since 1.27 record as used. The modern side refuses marked tokens, and deletes them a year later."},
		{ID: "FUS090", Title: "What a server writes at start and the other cannot read", Severity: bad, Why: "An API server writes by itself when it starts, past any authorization. In a store that the other side reads, in a version that it does not have, that stops the other side's lists."},
		{ID: "FUS100", Title: "Tokens of service accounts that are gone", Severity: warn, Why: "A server accepts a token only if it finds its secret and its service account, and a token controller deletes secrets whose account it does not find."},
		{ID: "FUS130", Title: "Objects in namespaces that do not exist", Severity: warn, Why: "A namespace is gone as soon as one side's controller has emptied what it sees. What lies in the other side's store stays, and reappears when the namespace is created again."},
		{ID: "FUS230", Title: "One key in two stores", Severity: bad, Why: "With the same UID they are copies of one object, from a move or a backup, and drift apart. With different UIDs two objects claim one name."},
		{ID: "FUS231", Title: "Keys that nobody reads", Severity: warn, Why: "The resource is known to neither version, or the key cannot be that of an object: left from an older version, or from a vendor's API server about which there are no facts. What lies outside of the prefix is somebody else's."},
		{ID: "FUS232", Title: "Custom resources without a CRD", Severity: warn, Why: "Without their definition in the same store no API server serves them. They reappear when it is created again."},
		{ID: "FUS233", Title: "An empty store", Severity: warn, Why: "It holds nothing below the prefix: no API server has written to it yet, or it is not the one that they use."},
		{ID: "FUS234", Title: "A fight over a key", Severity: bad, Why: "A value that had just been replaced keeps coming back: two writers both believe that the key is theirs."},
	})
}
