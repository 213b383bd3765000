package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// Diff lists what a change of a CRD breaks, for clients or for what is stored. Changes that allow more than before are
// silent.
func Diff(from, to *Definition) []finding.Finding {
	d := &differ{name: to.Name(), storage: to.Storage()}
	d.identity(from, to)
	for _, v := range from.Versions() {
		d.version(from, to, v)
	}
	d.conversion(from, to)
	finding.Sort(d.findings)
	return d.findings
}

// Removed is what is found when a CRD is not there any more.
func Removed(from *Definition) finding.Finding {
	d := &differ{name: from.Name()}
	d.find("FUS300", "", "", "the CRD is removed, and all of its objects with it")
	d.findings[0].Fix = "keep the CRD while there are objects or clients of it"
	return d.findings[0]
}

type differ struct {
	storage  string // the version that stores from now on
	name     string
	findings []finding.Finding
}

// find adds a finding about a part of the CRD: "v1", or "v1 .spec.size". which tells it from others of the rule about
// the part.
func (d *differ) find(id, part, which, format string, args ...any) {
	d.findAs(ruleOf(id).Severity, id, part, which, format, args...)
}

// findAs is find where a case of the rule is less severe than the rule.
func (d *differ) findAs(severity finding.Severity, id, part, which, format string, args ...any) {
	subject := d.name
	if part != "" {
		subject += " " + part
	}
	d.findings = append(d.findings, finding.Finding{Rule: id, Severity: severity, Subject: subject,
		Message: fmt.Sprintf(format, args...),
		Fix:     d.named(ruleOf(id).Fix, part), Key: finding.Key(id, subject, which)})
}

// named puts the names of the CRD and its versions into a fix.
func (d *differ) named(fix, part string) string {
	version, _, _ := strings.Cut(part, " ")
	words := []string{"NAME", d.name}
	if version != "" && !strings.HasPrefix(version, "spec.") {
		words = append(words, "--storage VERSION", "--storage "+cmp.Or(d.storage, version), "VERSION", version, "OLD",
			version)
	}
	return strings.NewReplacer(words...).Replace(fix)
}

// identity compares what all versions have in common.
func (d *differ) identity(from, to *Definition) {
	for _, path := range [][]string{{"group"}, {"scope"}, {"names", "plural"}, {"names", "kind"}} {
		if a, b := text(from.spec(), path...), text(to.spec(), path...); a != b {
			d.find("FUS303", "spec."+strings.Join(path, "."), "", "it changes from %q to %q", a, b)
		}
	}
	if a, b := text(from.spec(), "names", "listKind"), text(to.spec(), "names", "listKind"); a != "" && b != "" &&
		a != b {
		d.find("FUS303", "spec.names.listKind", "", "it changes from %q to %q", a, b)
	}
	if a, b := text(from.spec(), "names", "singular"), text(to.spec(), "names", "singular"); a != "" && a != b {
		d.find("FUS318", "spec.names.singular", "", "the name %q is removed", a)
	}
	for _, field := range []string{"shortNames", "categories"} {
		for _, name := range missing(list(from.spec(), "names", field), list(to.spec(), "names", field)) {
			d.find("FUS318", "spec.names."+field, fmt.Sprint(name), "the name %v is removed",
				quote(name))
		}
	}
	if from.preserves() && !to.preserves() {
		d.find("FUS309", "spec.preserveUnknownFields", "",
			"fields that no schema names were preserved, and are now pruned")
	}
	if a, b := from.Storage(), to.Storage(); a != b {
		d.find("FUS316", "", "", "the storage version changes from %s to %s", a, b)
	}
}

// version compares one version that was there.
func (d *differ) version(from, to *Definition, v Version) {
	now, ok := to.Version(v.Name)
	if !ok {
		if d.find("FUS300", v.Name, "", "the version is removed"); !v.Served { // it has no clients
			last := &d.findings[len(d.findings)-1]
			last.Message, last.Fix = "the version, which was not served, is removed", ""
		}
		if v.Storage || slices.Contains(from.StoredVersions(), v.Name) {
			d.find("FUS301", v.Name, "", "objects may be stored in the version that is removed")
		}
		return
	}
	if v.Served && !now.Served {
		d.find("FUS302", v.Name, "", "the version is no longer served")
	}
	before, _ := from.entry(v.Name)
	after, _ := to.entry(v.Name)
	d.subresources(v.Name, before, after)
	old, isOld := at(before, "schema", "openAPIV3Schema").(map[string]any)
	schema, isNew := at(after, "schema", "openAPIV3Schema").(map[string]any)
	if !isOld && from.preserves() && !to.preserves() || !isOld && !isNew {
		return // said of the whole, or nothing to compare
	}
	c := &comparison{differ: d, version: v.Name, prunes: !to.preserves()}
	c.schema("", old, schema)
}

func (d *differ) subresources(version string, before, after map[string]any) {
	for _, name := range []string{"status", "scale"} {
		a, b := at(before, "subresources", name), at(after, "subresources", name)
		switch {
		case a != nil && b == nil:
			d.find("FUS314", version, name, "the subresource %s is removed", name)
		case a == nil && b != nil && name == "status":
			d.findAs(finding.Warning, "FUS314", version, "status",
				"the subresource status is added: writes to the object itself no longer change its status")
		case name == "scale" && a != nil && !reflect.DeepEqual(a, b):
			d.findAs(finding.Warning, "FUS314", version, "scale", "the subresource scale uses other fields")
		}
	}
}

// conversion compares how versions become each other.
func (d *differ) conversion(from, to *Definition) {
	a, webhook := from.Conversion()
	b, now := to.Conversion()
	several := len(to.Versions()) > 1
	switch {
	case a == StrategyWebhook && b == StrategyNone && several:
		d.find("FUS312", "spec.conversion", "",
			"a webhook converted objects; now only apiVersion changes")
	case a == StrategyNone && b == StrategyWebhook && several:
		d.findAs(finding.Warning, "FUS312", "spec.conversion", "",
			"every read and write in a version other than the stored one now needs %s", now)
	case a == b && webhook != now && several:
		d.findAs(finding.Warning, "FUS312", "spec.conversion", "", "the conversion webhook changes from %s to %s",
			webhook, now)
	}
	reviewed, reviews := list(from.spec(), "conversion", "webhook", "conversionReviewVersions"),
		list(to.spec(), "conversion", "webhook", "conversionReviewVersions")
	if a == b && len(reviewed) > 0 && len(missing(reviewed, reviews)) == len(reviewed) {
		d.findAs(finding.Warning, "FUS312", "spec.conversion", "reviews",
			"conversionReviewVersions changes from %v to %v", reviewed, reviews)
	}
	if b != StrategyNone {
		return
	}
	for _, v := range to.Versions() {
		for _, other := range to.Versions() {
			if !inUse(to, v) && !slices.Contains(from.StoredVersions(), v.Name) || !inUse(to, other) {
				continue // no object is written in the one, or read in the other
			}
			lost := prunedFields(to, v.Name, other.Name)
			known := prunedFields(from, v.Name, other.Name)
			_, before := from.Version(v.Name)
			_, had := from.Version(other.Name)
			if a == StrategyNone && before && had {
				lost = slices.DeleteFunc(lost, func(field string) bool { return slices.Contains(known, field) })
			}
			if len(lost) > 0 {
				d.find("FUS317", v.Name+" as "+other.Name, "", "an object that is read as %s loses %s",
					other.Name, strings.Join(lost, ", "))
			}
		}
	}
}

// inUse reports whether clients or the store have objects in a version.
func inUse(d *Definition, v Version) bool {
	return v.Served || v.Storage || slices.Contains(d.StoredVersions(), v.Name)
}

// comparison compares the schemas of a version.
type comparison struct {
	*differ
	version string
	prunes  bool
}

func (c *comparison) find(id, path, which, format string, args ...any) {
	c.findAs(ruleOf(id).Severity, id, path, which, format, args...)
}

// findAs is find where a case of the rule is less severe than the rule.
func (c *comparison) findAs(severity finding.Severity, id, path, which, format string, args ...any) {
	c.differ.findAs(severity, id, strings.TrimSpace(c.version+" "+path), which, format, args...)
}

// schema compares two schemas of one place. nil allows anything.
func (c *comparison) schema(path string, from, to map[string]any) {
	switch {
	case to == nil:
		return // anything is allowed, and without a schema nothing is pruned
	case from == nil && !c.prunes:
		c.find("FUS305", path, "", "a schema is added: values that it does not allow are refused")
		return
	case from == nil:
		c.find("FUS309", path, "",
			"a schema is added: values that it does not allow are refused, fields that it does not name are pruned")
		return
	}
	c.types(path, from, to)
	c.limits(path, from, to)
	c.values(path, from, to)
	c.merging(path, from, to)
	for _, field := range []string{"allOf", "anyOf", "oneOf", "not"} {
		if b := to[field]; b != nil && !reflect.DeepEqual(from[field], b) && !flag(to, "x-kubernetes-int-or-string") {
			c.find("FUS319", path, field, "%s changes", field)
		}
	}
	c.rules(path, from, to)
	c.fields(path, from, to)
	items, _ := to["items"].(map[string]any)
	if old, ok := from["items"].(map[string]any); ok {
		c.schema(path+"[]", old, items)
	}
	values, _ := to["additionalProperties"].(map[string]any)
	if old, ok := from["additionalProperties"].(map[string]any); ok && values != nil {
		c.schema(path+"{}", old, values)
	}
}

func (c *comparison) types(path string, from, to map[string]any) {
	a, b := typeOf(from), typeOf(to)
	widened := b == "" || a == b || a == "integer" && b == "number" ||
		b == "int-or-string" && (a == "integer" || a == "string")
	switch {
	case widened:
	case a == "" && path == "": // an object is one
	case a == "":
		c.find("FUS305", path, "", "any type was allowed, now only %s", b)
	default:
		c.find("FUS305", path, "", "its type changes from %s to %s", a, b)
	}
	if flag(from, "nullable") && !flag(to, "nullable") && b != "" {
		c.find("FUS315", path, "", "null was allowed, and is no longer")
	}
}

func typeOf(schema map[string]any) string {
	if flag(schema, "x-kubernetes-int-or-string") {
		return "int-or-string"
	}
	return text(schema, "type")
}

// limits compares what bounds a value. A bound that is added is tighter than none.
func (c *comparison) limits(path string, from, to map[string]any) {
	for _, field := range []string{"maximum", "maxLength", "maxItems", "maxProperties"} {
		if b, ok := number(to[field]); ok {
			if a, had := number(from[field]); !had || b < a {
				c.find("FUS308", path, field, "%s is %v%s", field, to[field], was(from[field]))
			}
		}
	}
	for _, field := range []string{"minimum", "minLength", "minItems", "minProperties"} {
		if b, ok := number(to[field]); ok {
			a, had := number(from[field])
			trivial := field != "minimum" && b <= 0
			if !trivial && (!had || b > a) {
				c.find("FUS308", path, field, "%s is %v%s", field, to[field], was(from[field]))
			}
		}
	}
	for _, field := range []string{"exclusiveMinimum", "exclusiveMaximum", "uniqueItems"} {
		if flag(to, field) && !flag(from, field) {
			c.find("FUS308", path, field, "%s is added", field)
		}
	}
	for _, field := range []string{"pattern", "format", "multipleOf"} {
		if b := to[field]; b != nil && !reflect.DeepEqual(from[field], b) {
			severity := ruleOf("FUS308").Severity
			if field == "format" { // most formats are not validated
				severity = finding.Warning
			}
			c.findAs(severity, "FUS308", path, field, "%s is %v%s", field, quote(b), was(from[field]))
		}
	}
	required := missing(list(to, "required"), list(from, "required"))
	for _, name := range required {
		field, _ := name.(string)
		if at(to, "properties", field, "default") == nil {
			c.find("FUS306", path+"."+field, "", "it becomes required")
		}
	}
}

func was(value any) string {
	if value == nil {
		return ", and was not set"
	}
	return fmt.Sprintf(", and was %v", quote(value))
}

func quote(value any) any {
	if s, ok := value.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return value
}

func number(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

func (c *comparison) values(path string, from, to map[string]any) {
	if enum := list(to, "enum"); len(enum) > 0 {
		old := list(from, "enum")
		if len(old) == 0 {
			c.find("FUS307", path, "", "any value was allowed, now only one of %v", enum)
		}
		for _, value := range missing(old, enum) {
			c.find("FUS307", path, fmt.Sprint(value), "the value %v is no longer allowed", quote(value))
		}
	}
	a, had := from["default"]
	switch b, has := to["default"]; {
	case had && has && !reflect.DeepEqual(a, b):
		c.find("FUS310", path, "", "the default changes from %v to %v", quote(a), quote(b))
	case had && !has:
		c.find("FUS310", path, "", "the default %v is removed", quote(a))
	}
}

// merging compares how server-side apply joins lists and maps.
func (c *comparison) merging(path string, from, to map[string]any) {
	for _, field := range []struct{ name, otherwise string }{{"x-kubernetes-list-type", "atomic"},
		{"x-kubernetes-map-type", "granular"}} {
		a, b := cmp.Or(text(from, field.name), field.otherwise), cmp.Or(text(to, field.name), field.otherwise)
		if a != b {
			c.find("FUS311", path, field.name, "%s changes from %s to %s", field.name, a, b)
		}
	}
	if a, b := list(from, "x-kubernetes-list-map-keys"), list(to, "x-kubernetes-list-map-keys"); len(a)+len(b) > 0 &&
		!reflect.DeepEqual(a, b) &&
		text(from, "x-kubernetes-list-type") == text(to, "x-kubernetes-list-type") {
		c.find("FUS311", path, "x-kubernetes-list-map-keys",
			"x-kubernetes-list-map-keys changes from %v to %v", a, b)
	}
}

func (c *comparison) rules(path string, from, to map[string]any) {
	known := map[string]bool{}
	for _, rule := range list(from, "x-kubernetes-validations") {
		known[text(rule, "rule")] = true
	}
	for _, rule := range list(to, "x-kubernetes-validations") {
		if expression := text(rule, "rule"); !known[expression] {
			c.find("FUS313", path, expression, "the rule %q is added", expression)
		}
	}
}

// fields compares the fields of an object, and what happens to others.
func (c *comparison) fields(path string, from, to map[string]any) {
	open := flag(to, "x-kubernetes-preserve-unknown-fields") || to["additionalProperties"] != nil &&
		to["additionalProperties"] != false
	wasOpen := flag(from, "x-kubernetes-preserve-unknown-fields") || from["additionalProperties"] != nil &&
		from["additionalProperties"] != false
	kind := text(to, "type")
	if wasOpen && !open && c.prunes && (kind == "" || kind == "object") {
		c.find("FUS309", path, "",
			"fields that the schema does not name were preserved, and are now pruned")
	}
	old, _ := from["properties"].(map[string]any)
	now, _ := to["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if path == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		before, _ := old[name].(map[string]any)
		after, ok := now[name].(map[string]any)
		switch {
		case ok:
			c.schema(path+"."+name, before, after)
		case !open && c.prunes:
			c.find("FUS304", path+"."+name, "",
				"the field is removed: it is pruned from objects that have it")
		}
	}
}

// missing lists the elements of a list that another one does not have.
func missing(of, in []any) []any {
	var lacking []any
	for _, value := range of {
		if !slices.ContainsFunc(in, func(other any) bool { return reflect.DeepEqual(value, other) }) {
			lacking = append(lacking, value)
		}
	}
	return lacking
}
