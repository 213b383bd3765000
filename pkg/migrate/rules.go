package migrate

import (
	"slices"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Rules lists what Diff finds, by ID.
func Rules() []finding.Rule {
	const bad, warn, info = finding.Error, finding.Warning, finding.Info
	return finding.Of(finding.CRDs, []finding.Rule{
		{ID: "FUS300", Title: "A version or a CRD is removed", Severity: bad, Why: "Its clients are answered 404. A CRD that is deleted takes all of its objects with it.", Fix: "Stop serving it first, and look with crd clients who asks for it; crd plan --retire does it in order."},
		{ID: "FUS301", Title: "A version is removed that objects may be stored in", Severity: bad, Why: "Objects that are stored in a version which the CRD does not have can be neither read nor deleted. Servers refuse the change as long as status.storedVersions names the version, which is why people empty that list by hand.", Fix: "fusionctl crd plan NAME --storage VERSION --retire OLD"},
		{ID: "FUS302", Title: "A version is not served any more", Severity: bad, Why: "Its clients are answered 404. Nothing is lost, and serving it again mends it.", Fix: "fusionctl crd clients NAME --version VERSION --audit-log FILE tells who they are"},
		{ID: "FUS303", Title: "The identity of the resource changes", Severity: bad, Why: "Group, plural, kind and scope are in every URL, key and object. Servers refuse to change them, and a CRD that is deleted and created again has lost its objects.", Fix: "Make a new CRD, and copy the objects."},
		{ID: "FUS304", Title: "A field is removed from a schema", Severity: bad, Why: "The server prunes what the schema does not have: from what clients send, and from what is stored when an object is read. The next write makes that last.", Fix: "Keep the field in this version, and leave it out of a new one with a conversion."},
		{ID: "FUS305", Title: "A field changes its type", Severity: bad, Why: "What is stored does not pass validation any more, and clients do not decode it. The object cannot be written before it is mended.", Fix: "Add a field, or a version with a conversion."},
		{ID: "FUS306", Title: "A field becomes required", Severity: bad, Why: "Objects without it cannot be written any more, not even by a controller that only changes their status or a finalizer, in servers before 1.30.", Fix: "Give it a default, or require it in a new version."},
		{ID: "FUS307", Title: "Values are taken out of an enum", Severity: bad, Why: "Objects with such a value cannot be written any more.", Fix: "Keep the values in this version."},
		{ID: "FUS308", Title: "A limit becomes tighter", Severity: bad, Why: "Objects outside of it cannot be written any more: patterns, formats, minimum and maximum, lengths, numbers of items and properties, uniqueness.", Fix: "Put the limit into a new version, or mend the objects first."},
		{ID: "FUS309", Title: "Unknown fields are not kept any more", Severity: bad, Why: "The server prunes what the schema does not name, from what is stored too.", Fix: "Name the fields in the schema first."},
		{ID: "FUS310", Title: "A default changes", Severity: warn, Why: "Objects that do not say otherwise change their meaning when they are read, without having been written.", Fix: "Write the old value into the objects first, or set the default in a new version."},
		{ID: "FUS311", Title: "Lists or maps merge differently", Severity: bad, Why: "Server-side apply and stored managedFields follow the list type and its keys: with another one, appliers own other elements than they wrote.", Fix: "Change it in a new version."},
		{ID: "FUS312", Title: "Conversion changes", Severity: bad, Why: "With the strategy None an object keeps its fields and gets another apiVersion: what only a webhook translated is pruned or refused.", Fix: "Keep the webhook as long as more than one version is served or stored."},
		{ID: "FUS313", Title: "A validation rule is added", Severity: warn, Why: "Objects for which the rule is false cannot be written any more.", Fix: "Look for such objects first: every one can be read, and checked with a dry run."},
		{ID: "FUS314", Title: "A subresource is added or removed", Severity: bad, Why: "Without the status subresource its URL is a 404 for controllers; with it, writes to the object itself ignore the status. Without scale, autoscalers and kubectl scale fail.", Fix: "Change it in a new version."},
		{ID: "FUS315", Title: "A field cannot be null any more", Severity: bad, Why: "A null that is stored is dropped or refused.", Fix: "Keep nullable in this version."},
		{ID: "FUS316", Title: "Objects are written in another version", Severity: info, Why: "What is stored stays in the old version until it is written again.", Fix: "fusionctl crd plan NAME rewrites it, with proof"},
		{ID: "FUS317", Title: "Versions convert by name alone, and have different fields", Severity: bad, Why: "The strategy None changes apiVersion and nothing else. Fields that the other version's schema does not have are pruned when an object is read in it, and are gone when it is written back.", Fix: "Convert through a webhook, or have the same fields in both."},
		{ID: "FUS318", Title: "Names by which people call the resource are removed", Severity: warn, Why: "Scripts with kubectl fail that use the singular, a short name or a category.", Fix: "Keep them."},
		{ID: "FUS319", Title: "Validation changes in a way that is not compared", Severity: warn, Why: "Combinations of schemas with allOf, anyOf, oneOf or not may allow less than before. They are compared as text only.", Fix: "Compare them by hand."},
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
