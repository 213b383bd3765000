package migrate

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Rules lists what Diff finds, by ID.
func Rules() []finding.Rule {
	const bad, warn, info = finding.Error, finding.Warning, finding.Info
	return finding.Of(finding.CRDs, []finding.Rule{
		{
			ID: "FUS300", Title: "A version or a CRD is removed", Severity: bad,
			Why: "Clients of the version get 404. Deleting a CRD deletes all of its objects.",
			Fix: "find the clients with fusionctl crd clients, stop serving the version first; fusionctl crd plan " +
				"NAME --retire OLD does both in order",
		},
		{
			ID: "FUS301", Title: "A version is removed in which objects may be stored", Severity: bad,
			Why: "An object that is stored in a version which the CRD does not have can be neither read nor deleted. " +
				"API servers refuse the change as long as status.storedVersions lists the version; emptying that " +
				"list by hand circumvents it.",
			Fix: "fusionctl crd plan NAME --storage VERSION --retire OLD",
		},
		{
			ID: "FUS302", Title: "A version is no longer served", Severity: bad,
			Why: "Clients of the version get 404. Nothing is lost, and serving the version again restores them.",
			Fix: "fusionctl crd clients NAME --version VERSION --audit-log FILE lists the clients",
		},
		{
			ID: "FUS303", Title: "The identity of the resource changes", Severity: bad,
			Why: "Group, plural, kind and scope are part of every URL, key and object. API servers refuse to change " +
				"them, and deleting and creating the CRD deletes its objects.",
			Fix: "create a new CRD and copy the objects",
		},
		{
			ID: "FUS304", Title: "A field is removed from a schema", Severity: bad,
			Why: "The API server prunes fields that the schema does not have, from requests and from stored objects " +
				"when they are read. The next write makes the loss permanent.",
			Fix: "keep the field in this version, and leave it out of a new version with a conversion",
		},
		{
			ID: "FUS305", Title: "A field changes its type", Severity: bad,
			Why: "Stored values fail validation and clients fail to decode them. The object cannot be updated before " +
				"its value is corrected.",
			Fix: "add a field, or a version with a conversion",
		},
		{
			ID: "FUS306", Title: "A field becomes required", Severity: bad,
			Why: "Objects without it can no longer be updated; before 1.30 not even by a controller that only " +
				"changes their status or a finalizer.",
			Fix: "give it a default, or require it in a new version",
		},
		{
			ID: "FUS307", Title: "Values are removed from an enum", Severity: bad,
			Why: "Objects with such a value can no longer be updated.",
			Fix: "keep the values in this version",
		},
		{
			ID: "FUS308", Title: "A validation limit becomes stricter", Severity: bad,
			Why: "Objects outside the limit can no longer be updated: patterns, formats, minimum and maximum, " +
				"lengths, numbers of items and properties, uniqueness.",
			Fix: "put the limit into a new version, or correct the objects first",
		},
		{
			ID: "FUS309", Title: "Unknown fields are no longer preserved", Severity: bad,
			Why: "The API server prunes fields that the schema does not name, from stored objects too.",
			Fix: "name the fields in the schema first",
		},
		{
			ID: "FUS310", Title: "A default changes", Severity: warn,
			Why: "Objects without the field get another value when they are read, without having been written.",
			Fix: "write the old value into the objects first, or set the default in a new version",
		},
		{
			ID: "FUS311", Title: "Lists or maps merge differently", Severity: bad,
			Why: "Server-side apply and stored managedFields depend on the list type and its keys: with others, " +
				"appliers own other elements than they wrote.",
			Fix: "change it in a new version",
		},
		{
			ID: "FUS312", Title: "Conversion changes", Severity: bad,
			Why: "With the strategy None an object keeps its fields and gets another apiVersion: fields that only a " +
				"webhook converted are pruned or refused.",
			Fix: "keep the webhook as long as more than one version is served or stored",
		},
		{
			ID: "FUS313", Title: "A validation rule is added", Severity: warn,
			Why: "Objects for which the rule is false can no longer be updated.",
			Fix: "find such objects first: kubectl replace --dry-run=server validates each",
		},
		{
			ID: "FUS314", Title: "A subresource is added or removed", Severity: bad,
			Why: "Without the status subresource its URL is a 404 for controllers; with it, writes to the object " +
				"itself ignore the status. Without scale, autoscalers and kubectl scale fail.",
			Fix: "change it in a new version",
		},
		{
			ID: "FUS315", Title: "A field is no longer nullable", Severity: bad,
			Why: "A stored null is dropped or refused.",
			Fix: "keep nullable in this version",
		},
		{
			ID: "FUS316", Title: "The storage version changes", Severity: info,
			Why: "Stored objects stay in the old version until they are written again.",
			Fix: "fusionctl crd plan NAME plans the rewrite, with proof",
		},
		{
			ID: "FUS317", Title: "Versions convert by apiVersion alone and have different fields", Severity: bad,
			Why: "The strategy None changes apiVersion and nothing else. Fields that the other version's schema does " +
				"not have are pruned when an object is read in it, and are lost when it is written back.",
			Fix: "convert through a webhook, or have the same fields in both versions",
		},
		{
			ID: "FUS318", Title: "A singular, short name or category is removed", Severity: warn,
			Why: "kubectl commands that use the name fail.",
			Fix: "keep the name",
		},
		{
			ID: "FUS319", Title: "Validation changes in a way that is not compared", Severity: warn,
			Why: "Combinations of schemas with allOf, anyOf, oneOf or not may allow less than before. They are " +
				"compared as text only.",
			Fix: "compare them by hand",
		},
	})
}

// ruleOf is the rule of an ID.
func ruleOf(id string) finding.Rule {
	list := Rules()
	at := slices.IndexFunc(list, func(r finding.Rule) bool { return r.ID == id })
	if at < 0 {
		panic("migrate: internal error: no rule " + id)
	}
	return list[at]
}
