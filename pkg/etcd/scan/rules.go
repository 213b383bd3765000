package scan

import (
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
)

// Rules lists what the stores can show, by ID.
func Rules() []finding.Rule {
	const bad, warn = finding.Error, finding.Warning
	return finding.Of(finding.Stores, []finding.Rule{
		{
			ID: "FUS000", Title: "A value that no API server can decode", Severity: bad,
			Why: "An API server decodes every object of a resource to list it. One value that it cannot decode, " +
				"because it is damaged or of another kind, makes every list and watch of the resource fail.",
		},
		{
			ID: "FUS001", Title: "Stored fields that a side drops", Severity: warn,
			Why: "A side that writes an object back writes only the fields that its version knows, even when it " +
				"changes nothing but the status. Depth objects finds the objects that have other fields now.",
		},
		{
			ID: "FUS002", Title: "A stored version that an API server cannot decode", Severity: bad,
			Why: "Objects are stored in a group and version that a side which reads the store does not have: its " +
				"lists and watches of the resource fail.",
		},
		{
			ID: "FUS003", Title: "A stored version that breaks watches", Severity: bad,
			Why: "The API server decodes the version in lists, where the expected kind is known, but not in watches: " +
				"every write to such an object closes all watches of the resource. Source: kubernetes#73478.",
		},
		{
			ID: "FUS004", Title: "Keys of a built-in resource in the wrong store", Severity: bad,
			Why: "Each side keeps the resource in one store, as the plan says. Keys elsewhere were written through " +
				"the wrong API server or with an override that had no effect, or were there before an override was " +
				"set: overrides move nothing.",
		},
		{
			ID: "FUS010", Title: "CRDs, custom resources or APIServices in the wrong store", Severity: bad,
			Why: "They are always in a side's default store, whatever its overrides say. Keys in the other store " +
				"were written by the other API server.",
		},
		{
			ID: "FUS030", Title: "APIServices that an API server does not serve", Severity: bad,
			Why: "When it starts, an API server deletes the APIServices of built-in groups that it does not know. It " +
				"announces the groups of the others and answers 404 for them, which keeps namespaces from being " +
				"deleted.",
		},
		{
			ID: "FUS031", Title: "CRDs that lost fields, or versions that a CRD does not list", Severity: bad,
			Why: "All versions store CRDs in one format, so an old API server reads them and writes them back " +
				"without the fields that it does not know: versions, conversion, schemas, the list of stored " +
				"versions. Custom resources in a version that the CRD does not have cannot be read.",
		},
		{
			ID: "FUS040", Title: "Two reconcilers overwrite the endpoints of service kubernetes", Severity: bad,
			Why: "Two endpoint reconcilers that do not know of each other alternately write their own list of API " +
				"servers.",
		},
		{
			ID: "FUS050", Title: "Addresses or ports allocated twice, or allocators that disagree", Severity: bad,
			Why: "The allocators of the two versions keep their records in different objects. An address that a " +
				"service has and one allocator's record does not is allocated again.",
		},
		{
			ID: "FUS051", Title: "Ranges in the store that differ from the spec's", Severity: bad,
			Why: "An allocator refuses to work with a recorded range other than its own; with two ranges each repair " +
				"loop overwrites the other side's record.",
		},
		{
			ID: "FUS052", Title: "One address in two sets of services", Severity: bad,
			Why: "The sides keep services in different stores and allocate addresses from one range.",
		},
		{
			ID: "FUS053", Title: "The default ServiceCIDR differs from the spec's range", Severity: bad,
			Why: "It was written by an API server with another --service-cluster-ip-range.",
		},
		{
			ID: "FUS060", Title: "Dependents that a garbage collector deletes", Severity: bad,
			Why: "The garbage collector of a side serves the kinds of an object's owners and finds none of the " +
				"owners in its own store. The finding says how many dependents, and whether the collector runs.",
		},
		{
			ID: "FUS061", Title: "Dependents that an old garbage collector deletes by mistake", Severity: bad,
			Why: gc.Mistaken,
		},
		{
			ID: "FUS062", Title: "Mirror pods that an old garbage collector deletes", Severity: bad,
			Why: gc.MirrorPods,
		},
		{
			ID: "FUS065", Title: "A leader-election lock that both sides use", Severity: bad,
			Why: "Components of both sides elect on one object, so only one of the two runs. The finding names the " +
				"holder.",
		},
		{
			ID: "FUS070", Title: "Encrypted values", Severity: warn,
			Why: "Every API server that reads the store needs the key. API servers 1.7 to 1.12 that have other keys " +
				"silently omit from lists what they cannot decrypt; without keys, and from 1.13 on, lists fail. The " +
				"content of these values was not checked.",
		},
		{
			ID: "FUS072", Title: "Values in CBOR", Severity: bad,
			Why: "Only API servers since 1.32 read CBOR, behind a feature gate.",
		},
		{
			ID: "FUS088", Title: "Service account tokens marked invalid", Severity: bad,
			Why: "The legacy token cleaner goes by the use that API servers since 1.27 record. The modern side " +
				"refuses marked tokens, and deletes them a year later, also when they are in use through the legacy " +
				"side.",
		},
		{
			ID: "FUS090", Title: "Objects that one API server writes at its start and the other cannot decode",
			Severity: bad,
			Why: "An API server writes some objects when it starts, without any authorization. In a store that the " +
				"other side reads, in a version that the other side does not have, they make the other side's lists " +
				"fail.",
		},
		{
			ID: "FUS100", Title: "Tokens of service accounts that do not exist", Severity: warn,
			Why: "An API server accepts a token only when it finds the token's secret and service account, and a " +
				"token controller deletes secrets whose service account it does not find.",
		},
		{
			ID: "FUS130", Title: "Objects in namespaces that do not exist", Severity: warn,
			Why: "A namespace is deleted as soon as one side's namespace controller has deleted what it can list. " +
				"Objects in the other side's store remain, and reappear when a namespace of that name is created.",
		},
		{
			ID: "FUS230", Title: "One key in two stores", Severity: bad,
			Why: "With the same UID the values are copies of one object, from a move or a backup, which diverge. " +
				"With different UIDs they are two objects of one name.",
		},
		{
			ID: "FUS231", Title: "Keys that no API server reads", Severity: warn,
			Why: "Neither version knows the resource, or the key cannot be that of an object: it was written by an " +
				"older version, or by a vendor's API server for which there are no facts. Keys outside the prefix " +
				"belong to another cluster or program.",
		},
		{
			ID: "FUS232", Title: "Custom resources without a CRD", Severity: warn,
			Why: "Without their CRD in the same store no API server serves them. They reappear when it is created " +
				"again.",
		},
		{
			ID: "FUS233", Title: "An empty store", Severity: warn,
			Why: "It holds no key below the prefix: no API server has written to it yet, or the API servers use " +
				"another one.",
		},
		{
			ID: "FUS234", Title: "Two writers overwrite each other's value of a key", Severity: bad,
			Why: "A value that was replaced is written again, repeatedly: two writers both treat the key as theirs.",
		},
		{
			ID: "FUS235", Title: "Objects on the legacy side of what is handed over", Severity: warn,
			Why: "The modern side has taken over the objects of the resource, or of the namespace. These were " +
				"created through the legacy API server since, or have not gone yet. Where the resource is handed " +
				"over as a whole, no controller acts for them. Where single namespaces are, those of the legacy side " +
				"do, and a client of one API server sees a part of the namespace's objects.",
		},
	})
}
