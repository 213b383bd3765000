package migrate

import "github.com/kubefusion/fusionctl/pkg/finding"

// change is one way in which a change of a CRD breaks clients or stored objects, and the way out.
type change struct {
	finding.Check
	fix string
}

// changes lists what Diff finds, by ID.
func changes() []change {
	const bad, warn, info = finding.Error, finding.Warning, finding.Info
	return []change{
		{finding.Check{ID: "FUS300", Title: "A version or a CRD is removed", Severity: bad, Why: "Its clients are answered 404. A CRD that is deleted takes all of its objects with it."}, "Stop serving it first, and look with crd clients who asks for it; crd plan --retire does it in order."},
		{finding.Check{ID: "FUS301", Title: "A version is removed that objects may be stored in", Severity: bad, Why: "Objects that are stored in a version which the CRD does not have can be neither read nor deleted. Servers refuse the change as long as status.storedVersions names the version, which is why people empty that list by hand."}, "fusionctl crd plan NAME --storage VERSION --retire OLD"},
		{finding.Check{ID: "FUS302", Title: "A version is not served any more", Severity: bad, Why: "Its clients are answered 404. Nothing is lost, and serving it again mends it."}, "fusionctl crd clients NAME --version VERSION --audit-log FILE tells who they are"},
		{finding.Check{ID: "FUS303", Title: "The identity of the resource changes", Severity: bad, Why: "Group, plural, kind and scope are in every URL, key and object. Servers refuse to change them, and a CRD that is deleted and created again has lost its objects."}, "Make a new CRD, and copy the objects."},
		{finding.Check{ID: "FUS304", Title: "A field is removed from a schema", Severity: bad, Why: "The server prunes what the schema does not have: from what clients send, and from what is stored when an object is read. The next write makes that last."}, "Keep the field in this version, and leave it out of a new one with a conversion."},
		{finding.Check{ID: "FUS305", Title: "A field changes its type", Severity: bad, Why: "What is stored does not pass validation any more, and clients do not decode it. The object cannot be written before it is mended."}, "Add a field, or a version with a conversion."},
		{finding.Check{ID: "FUS306", Title: "A field becomes required", Severity: bad, Why: "Objects without it cannot be written any more, not even by a controller that only changes their status or a finalizer, in servers before 1.30."}, "Give it a default, or require it in a new version."},
		{finding.Check{ID: "FUS307", Title: "Values are taken out of an enum", Severity: bad, Why: "Objects with such a value cannot be written any more."}, "Keep the values in this version."},
		{finding.Check{ID: "FUS308", Title: "A limit becomes tighter", Severity: bad, Why: "Objects outside of it cannot be written any more: patterns, formats, minimum and maximum, lengths, numbers of items and properties, uniqueness."}, "Put the limit into a new version, or mend the objects first."},
		{finding.Check{ID: "FUS309", Title: "Unknown fields are not kept any more", Severity: bad, Why: "The server prunes what the schema does not name, from what is stored too."}, "Name the fields in the schema first."},
		{finding.Check{ID: "FUS310", Title: "A default changes", Severity: warn, Why: "Objects that do not say otherwise change their meaning when they are read, without having been written."}, "Write the old value into the objects first, or set the default in a new version."},
		{finding.Check{ID: "FUS311", Title: "Lists or maps merge differently", Severity: bad, Why: "Server-side apply and stored managedFields follow the list type and its keys: with another one, appliers own other elements than they wrote."}, "Change it in a new version."},
		{finding.Check{ID: "FUS312", Title: "Conversion changes", Severity: bad, Why: "With the strategy None an object keeps its fields and gets another apiVersion: what only a webhook translated is pruned or refused."}, "Keep the webhook as long as more than one version is served or stored."},
		{finding.Check{ID: "FUS313", Title: "A validation rule is added", Severity: warn, Why: "Objects for which the rule is false cannot be written any more."}, "Look for such objects first: every one can be read, and checked with a dry run."},
		{finding.Check{ID: "FUS314", Title: "A subresource is added or removed", Severity: bad, Why: "Without the status subresource its URL is a 404 for controllers; with it, writes to the object itself ignore the status. Without scale, autoscalers and kubectl scale fail."}, "Change it in a new version."},
		{finding.Check{ID: "FUS315", Title: "A field cannot be null any more", Severity: bad, Why: "A null that is stored is dropped or refused."}, "Keep nullable in this version."},
		{finding.Check{ID: "FUS316", Title: "Objects are written in another version", Severity: info, Why: "What is stored stays in the old version until it is written again."}, "fusionctl crd plan NAME rewrites it, with proof"},
		{finding.Check{ID: "FUS317", Title: "Versions convert by name alone, and have different fields", Severity: bad, Why: "The strategy None changes apiVersion and nothing else. Fields that the other version's schema does not have are pruned when an object is read in it, and are gone when it is written back."}, "Convert through a webhook, or have the same fields in both."},
		{finding.Check{ID: "FUS318", Title: "Names by which people call the resource are removed", Severity: warn, Why: "Scripts with kubectl fail that use the singular, a short name or a category."}, "Keep them."},
		{finding.Check{ID: "FUS319", Title: "Validation changes in a way that is not compared", Severity: warn, Why: "Combinations of schemas with allOf, anyOf, oneOf or not may allow less than before. They are compared as text only."}, "Compare them by hand."},
	}
}

// Checks lists what Diff finds, by ID.
func Checks() []finding.Check {
	var checks []finding.Check
	for _, c := range changes() {
		checks = append(checks, c.Check)
	}
	return checks
}

// fixOf is the way out of a finding.
func fixOf(id string) string {
	for _, c := range changes() {
		if c.ID == id {
			return c.fix
		}
	}
	panic("migrate: internal error: no check " + id)
}
