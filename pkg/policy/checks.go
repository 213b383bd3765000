package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/internal/spelling"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// checkSpelling judges how a line is written, and what that makes of it.
func (v *validation) checkSpelling(line *checkedLine, unversioned bool) {
	before := len(v.findings)
	all, isJSON := membersOf(line.text)
	if !isJSON && !unversioned {
		line.repair = line.explicit()
		v.add("FUS214", place{line.number, 1}, line.rule.who(), line.repair.fix(),
			"the line is not JSON, perhaps because of a byte order mark; the server reads it as YAML, other tools do "+
				"not")
	}
	if isJSON || unversioned || len(all) > 0 { // otherwise it is of an encoding without fields by name
		v.checkVersion(line, unversioned, all)
	}
	if !isJSON {
		line.spec = nil
		for i := range v.findings[before:] {
			v.findings[before+i].Column = 1
		}
	}
}

func (v *validation) checkVersion(line *checkedLine, unversioned bool, all []member) {
	version, hasVersion := findFold(all, "apiVersion")
	if !unversioned && string(version.value) == `"`+APIVersion+`"` {
		v.checkFields(line, all)
		return
	}
	at := place{line.number, skip(line.text, " \t\r\n") + 1}
	if hasVersion {
		at.column = version.valueAt + 1
	}
	line.repair = line.explicit()
	if strings.Contains(string(version.value), "__internal") {
		v.add("FUS151", at, line.rule.who(), line.repair.fix(),
			"apiVersion %s is the server's internal one: its fields are spelled differently, and a \"*\" "+
				"includes anonymous requests", version.value)
		return
	}
	if rule, ok := repairObject(all); ok && hasMember(all, "spec") && line.rule.includes(rule) {
		line.repair = &repaired{}
		line.repair.addRule(rule)
	}
	v.add("FUS150", at, line.rule.who(), line.repair.fix(),
		"without apiVersion %q the server reads the line as a rule of version 0, which allows %s to %s",
		APIVersion, line.rule.who(), line.rule.what())
}

// includes reports whether a rule allows all that the other one does to subjects of servers, which put every user but
// the anonymous one into group system:authenticated.
func (r Rule) includes(other Rule) bool {
	return !slices.ContainsFunc(Compare([]Rule{r}, []Rule{other}).Gained, func(e Excess) bool { return !e.Unlikely })
}

// explicit writes out what the server makes of the line. A line that allows every request by default, without a
// subject, becomes a comment: it is never intended.
func (line *checkedLine) explicit() *repaired {
	everything := Rule{Group: GroupAuthenticated, APIGroup: "*", Resource: "*", Namespace: "*", NonResourcePath: "*"}
	if line.rule.bare() == everything && !bytes.Contains(line.text, []byte(GroupAuthenticated)) {
		return &repaired{lines: []string{"# allowed everything to everybody: " + strings.TrimSpace(string(line.text))}}
	}
	r := &repaired{}
	r.addRule(line.rule.authenticated())
	return r
}

// authenticated is the rule without the literal "*" of the internal version: who is everybody becomes who is
// authenticated.
func (r Rule) authenticated() Rule {
	if r.everybody() {
		r.User, r.Group = "", GroupAuthenticated
	}
	if r.User == "*" {
		r.User = ""
	}
	if r.Group == "*" {
		r.Group = ""
	}
	return r
}

func hasMember(all []member, key string) bool {
	_, ok := findFold(all, key)
	return ok
}

// checkFields looks for fields that the server ignores or merges, in a line of the right version.
func (v *validation) checkFields(line *checkedLine, all []member) {
	before := len(v.findings)
	allBefore, twiceBefore := v.counted()
	for _, m := range all {
		switch {
		case m.key == "spec", strings.EqualFold(m.key, "apiVersion"), strings.EqualFold(m.key, "kind"):
		case strings.EqualFold(m.key, "spec"):
			v.add("FUS151", place{line.number, m.column()}, line.rule.who(), "",
				"field %q is ignored: the server knows only \"spec\"", m.key)
		default:
			message := fmt.Sprintf("field %q is ignored: the server reads only apiVersion, kind and spec", m.key)
			if name, ok := fieldNamed(m.key); ok {
				message = fmt.Sprintf("field %q beside spec is ignored, so %s; it belongs inside spec", m.key,
					consequence[name])
			}
			v.add("FUS151", place{line.number, m.column()}, line.rule.who(), "", "%s", message)
		}
	}
	v.checkTwice(line, all)
	line.spec = inside(all, "spec")
	v.checkSpec(line)
	counted, twice := v.counted()
	if counted == allBefore {
		return
	}
	rule, ok := repairObject(all)
	if counted-allBefore == twice-twiceBefore {
		rule, ok = line.rule, true // the server reads every field
	}
	found := v.findings[before:]
	if ok {
		line.repair = &repaired{}
		line.repair.addRule(rule)
		for i := range found {
			found[i].Fix = line.repair.fix()
		}
	}
}

// consequence says what a rule does that lacks a field because the server ignored it.
var consequence = map[string]string{
	"user":            "the rule does not ask for it",
	"group":           "the rule does not ask for it",
	"readonly":        "the rule allows writes, too",
	"apiGroup":        "the rule matches the core group",
	"resource":        "the rule matches no resource",
	"namespace":       "the rule matches only requests without a namespace",
	"nonResourcePath": "the rule matches no path",
}

func (v *validation) checkSpec(line *checkedLine) {
	for _, m := range line.spec {
		if slices.Contains(specFields, m.key) {
			continue
		}
		name, ok := fieldNamed(m.key)
		if !ok {
			v.add("FUS151", place{line.number, m.column()}, line.rule.who(), "",
				"field %q is ignored: the server knows %s", m.key, strings.Join(specFields, ", "))
			continue
		}
		so := consequence[name]
		if _, given := find(line.spec, name); given {
			so = fmt.Sprintf("the field %q beside it counts", name)
		}
		v.add("FUS151", place{line.number, m.column()}, line.rule.who(), "",
			"field %q is ignored, so %s; did you mean %q?", m.key, so, name)
	}
	v.checkTwice(line, line.spec)

	user, group := rawString(line.spec, "user"), rawString(line.spec, "group")
	if (user == "*" && group != "" && group != "*") || (group == "*" && user != "" && user != "*") {
		star, other := "user", "group "+group
		if group == "*" {
			star, other = "group", "user "+user
		}
		m, _ := find(line.spec, star)
		v.add("FUS208", place{line.number, m.column()}, line.rule.who(), "",
			"%s \"*\" makes the server ignore %s: the rule matches every authenticated user", star, other)
	}
}

// rawString is the value of a string field as it is written.
func rawString(all []member, key string) string {
	m, _ := find(all, key)
	var text string
	if err := json.Unmarshal(m.value, &text); err != nil {
		return ""
	}
	return text
}

// checkTwice finds fields of one object that stand in it twice.
func (v *validation) checkTwice(line *checkedLine, all []member) {
	first := map[string]member{}
	for _, m := range all {
		before, seen := first[m.key]
		if !seen {
			first[m.key] = m
			continue
		}
		severity, what := v.severities["FUS213"], ""
		counts, _ := find(all, m.key)
		switch {
		case m.key == "spec":
			what = "merges all of them: the rule allows " + line.rule.who() + " to " + line.rule.what()
		case bytes.Equal(m.value, before.value):
			severity, what = finding.Warning, "takes one, "+excerpt(counts.value)
		case m.isNull():
			what = "takes the last one that is not null, " + excerpt(counts.value)
		default:
			what = "takes the last one, " + excerpt(counts.value)
		}
		v.addSeverity(severity, "FUS213", place{line.number, m.column()}, line.rule.who(), "",
			"%q is a duplicate field in the line; the server %s", m.key, what)
	}
}

// column is where the value of a field stands, 1 for a field that does not.
func (line *checkedLine) column(field string) place {
	if m, ok := find(line.spec, field); ok {
		return place{line.number, m.valueAt + 1}
	}
	return place{line.number, 1}
}

// explicit writes out what the server makes of the line. A line that comes to allow every request everything without a
// subject becomes a comment: it is never intended.
func (r Rule) suggest(change func(*Rule)) string {
	rule := r
	change(&rule)
	return rule.authenticated().String()
}

// checkMeaning judges a rule by what it says.
func (v *validation) checkMeaning(line *checkedLine, rule Rule) {
	v.checkSubject(line, rule)
	v.checkWords(line, rule)
	v.checkKnown(line, rule)
	v.checkReach(line, rule)
	v.checkForbidden(line, rule)
}

// checkSubject finds rules without a subject, for anonymous requests, and for subjects that need no rule.
func (v *validation) checkSubject(line *checkedLine, rule Rule) {
	switch {
	case rule.User == "" && rule.Group == "":
		v.add("FUS203", line.column("user"), rule.who(), "",
			"the rule names neither a user nor a group, so it matches no request")
		return
	case rule.Resource == "" && rule.NonResourcePath == "":
		v.add("FUS203", line.column("resource"), rule.who(), "",
			"the rule names neither a resource nor a path, so it allows nothing")
		return
	case isGroupName(rule.User):
		v.add("FUS203", line.column("user"), rule.who(), rule.suggest(func(r *Rule) {
			r.User, r.Group = "", rule.User
		}), "%q is a group; no user has this name", rule.User)
	case isUserName(rule.Group):
		v.add("FUS203", line.column("group"), rule.who(), rule.suggest(func(r *Rule) {
			r.User, r.Group = rule.Group, ""
		}), "%q is a user; no group has this name", rule.Group)
	}
	if rule.Group == GroupMasters {
		v.add("FUS153", line.column("group"), rule.who(), "",
			"members of %s bypass the policy: the rule has no effect, and removing it denies nothing", GroupMasters)
	}
	if rule.everybody() || rule.User == UserAnonymous || rule.Group == GroupUnauthenticated {
		v.checkAnonymous(line, rule)
	}
}

var systemGroups = []string{GroupAuthenticated, GroupUnauthenticated, GroupMasters, "system:serviceaccounts",
	"system:nodes", "system:bootstrappers"}

func isGroupName(word string) bool {
	return slices.Contains(systemGroups, word) || strings.HasPrefix(word, "system:serviceaccounts:")
}

func isUserName(word string) bool {
	return word == UserAnonymous || strings.HasPrefix(word, serviceAccountPrefix) ||
		strings.HasPrefix(word, "system:node:") || strings.HasPrefix(word, "system:kube-")
}

// harmless are the paths that API servers themselves show to everybody.
var harmless = []string{"/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*", "/version", "/version/"}

func (v *validation) checkAnonymous(line *checkedLine, rule Rule) {
	for _, p := range rule.realParts() {
		switch {
		case !p.isPath:
			r := regionOf(p, verbsOf(p))
			v.addSeverity(finding.Error, "FUS209", line.column("resource"), rule.who(), "",
				"requests without any credentials may %s", r.What())
		case p.write:
			v.addSeverity(finding.Error, "FUS209", line.column("nonResourcePath"), rule.who(),
				rule.suggest(func(r *Rule) {
					r.Readonly = true
				}), "requests without any credentials have permission for every method on path %q",
				rule.NonResourcePath)
		case !slices.ContainsFunc(harmless, func(path string) bool { return pathObject(path).covers(p.object) }):
			v.add("FUS209", line.column("nonResourcePath"), rule.who(), rule.suggest(func(r *Rule) {
				r.NonResourcePath = "/healthz"
			}),
				"requests without any credentials have permission to get path %q, which shows more than the "+
					"server's health: discovery, metrics, perhaps logs and profiles", rule.NonResourcePath)
		}
	}
}

// checkWords finds values that no request ever has.
func (v *validation) checkWords(line *checkedLine, rule Rule) {
	for _, field := range []struct {
		name  string
		value string
		set   func(*Rule, string)
	}{
		{"user", rule.User, func(r *Rule, s string) { r.User = s }},
		{"group", rule.Group, func(r *Rule, s string) { r.Group = s }},
		{"apiGroup", rule.APIGroup, func(r *Rule, s string) { r.APIGroup = s }},
		{"resource", rule.Resource, func(r *Rule, s string) { r.Resource = s }},
		{"namespace", rule.Namespace, func(r *Rule, s string) { r.Namespace = s }},
		{"nonResourcePath", rule.NonResourcePath, func(r *Rule, s string) { r.NonResourcePath = s }},
	} {
		why, better := unmatched(field.name, field.value)
		if why == "" {
			continue
		}
		fix := ""
		if better != field.value {
			fix = rule.suggest(func(r *Rule) { field.set(r, better) })
		}
		v.add("FUS204", line.column(field.name), rule.who(), fix, "%s %q matches no request: %s", field.name,
			field.value, why)
	}
}

// unmatched says why a value can equal nothing in a request, and what was probably meant; "" for a value that can.
func unmatched(field, value string) (why, better string) {
	trimmed := strings.TrimFunc(value, unicode.IsSpace)
	switch {
	case value == "" || value == "*":
		return "", ""
	case trimmed != value:
		return "it has a space at its start or end", trimmed
	case strings.ContainsRune(value, unicode.ReplacementChar):
		return "it is not valid UTF-8", value
	}
	switch field {
	case "user", "group":
		if strings.HasSuffix(value, "*") {
			return "unless its name is exactly this, since \"*\" is no pattern", value
		}
		return "", ""
	case "nonResourcePath":
		switch star := strings.IndexByte(value, '*'); {
		case value[0] != '/':
			return "paths start with /", "/" + value
		case star >= 0 && strings.TrimRight(value, "*") != value[:star]:
			return "\"*\" is a pattern only at the end", value[:star] + "*"
		}
		return "", ""
	}
	if field == "resource" {
		if base, _, ok := strings.Cut(value, "/"); ok {
			return "rules are compared without the subresource, which the resource always includes", base
		}
		if base, group, ok := strings.Cut(value, "."); ok && group != "" {
			return "the group belongs in apiGroup", base
		}
	}
	if field == "apiGroup" {
		if value == "core" || value == "v1" {
			return "the core group is \"\"", ""
		}
		if group, _, ok := strings.Cut(value, "/"); ok {
			return "groups are compared without their version", group
		}
	}
	switch {
	case strings.Contains(value, "*"):
		return "\"*\" is no pattern; it must stand alone", value
	case strings.ToLower(value) != value:
		return "requests have it in lower case", strings.ToLower(value)
	}
	return "", ""
}

// checkKnown compares groups, resources and scopes with what exists.
func (v *validation) checkKnown(line *checkedLine, rule Rule) {
	catalog := v.options.Catalog
	if rule.Resource == "" || slices.Contains(openGroups, rule.APIGroup) {
		return
	}
	if why, _ := unmatched("resource", rule.Resource); why != "" {
		return
	}
	if why, _ := unmatched("apiGroup", rule.APIGroup); why != "" {
		return
	}
	if rule.APIGroup == "*" {
		v.checkResourceOfAnyGroup(line, rule)
		return
	}
	resources, known := catalog.groups[rule.APIGroup]
	if !known {
		v.checkUnknownGroup(line, rule)
		return
	}
	if rule.Resource == "*" {
		return
	}
	entry, known := resources[rule.Resource]
	if !known {
		v.checkUnknownResource(line, rule)
		return
	}
	switch {
	case entry.namespaced && rule.Namespace == "":
		v.add("FUS207", line.column("namespace"), rule.who(), rule.suggest(func(r *Rule) { r.Namespace = "*" }),
			"%s are namespaced; without a namespace the rule allows only lists and watches over all namespaces",
			rule.Resource)
	case !entry.namespaced && rule.Namespace != "" && rule.Namespace != "*" && rule.Resource != "namespaces":
		v.add("FUS207", line.column("namespace"), rule.who(), rule.suggest(func(r *Rule) { r.Namespace = "" }),
			"%s are cluster-scoped, so the rule for namespace %q matches nothing", rule.Resource, rule.Namespace)
	}
}

func (v *validation) checkUnknownGroup(line *checkedLine, rule Rule) {
	catalog := v.options.Catalog
	near, ok := strings.CutSuffix(rule.APIGroup, ".k8s.io")
	if _, known := catalog.groups[near]; !ok || !known {
		near, ok = catalog.nearGroup(rule.APIGroup)
	}
	switch {
	case ok:
		v.add("FUS205", line.column("apiGroup"), rule.who(), rule.suggest(func(r *Rule) { r.APIGroup = near }),
			"no Kubernetes version and no preset has API group %q; did you mean %q?", rule.APIGroup, near)
	case catalog.complete:
		v.add("FUS205", line.column("apiGroup"), rule.who(), "", "no Kubernetes version, no preset and none of the "+
			"given CustomResourceDefinitions has API group %q", rule.APIGroup)
	default:
		v.addSeverity(finding.Info, "FUS205", line.column("apiGroup"), rule.who(), "",
			"API group %q is not known; give its CustomResourceDefinitions to have it checked", rule.APIGroup)
	}
}

func (v *validation) checkUnknownResource(line *checkedLine, rule Rule) {
	catalog := v.options.Catalog
	group := "the core group"
	if rule.APIGroup != "" {
		group = "API group " + rule.APIGroup
	}
	if elsewhere := catalog.groupsOf(rule.Resource); len(elsewhere) > 0 && catalog.builtin(rule.APIGroup) {
		better := elsewhere[0]
		if resolved, _, _, err := catalog.ResolveResource(rule.Resource); err == nil &&
			slices.Contains(elsewhere, resolved) {
			better = resolved
		}
		v.add("FUS206", line.column("resource"), rule.who(), rule.suggest(func(r *Rule) { r.APIGroup = better }),
			"%s has no resource %q; it is in %s", group, rule.Resource, strings.Join(groupWords(elsewhere), ", "))
		return
	}
	near, ok := catalog.nearResource(rule.APIGroup, rule.Resource)
	switch {
	case ok:
		v.add("FUS206", line.column("resource"), rule.who(), rule.suggest(func(r *Rule) {
			r.Resource = near
		}), "%s has no resource %q; did you mean %q?", group, rule.Resource, near)
	case catalog.complete || catalog.builtin(rule.APIGroup):
		v.add("FUS206", line.column("resource"), rule.who(), "", "%s has no resource %q", group, rule.Resource)
	default:
		v.addSeverity(finding.Info, "FUS206", line.column("resource"), rule.who(), "",
			"resource %q of %s is not known; give its CustomResourceDefinition to have it checked", rule.Resource,
			group)
	}
}

func (v *validation) checkResourceOfAnyGroup(line *checkedLine, rule Rule) {
	catalog := v.options.Catalog
	if rule.Resource == "*" || len(catalog.groupsOf(rule.Resource)) > 0 {
		return
	}
	names := map[string]bool{}
	for _, resources := range catalog.groups {
		for name := range resources {
			names[name] = true
		}
	}
	if near, ok := spelling.Nearest(rule.Resource, slices.Sorted(maps.Keys(names))); ok {
		v.add("FUS206", line.column("resource"), rule.who(), rule.suggest(func(r *Rule) {
			r.Resource = near
		}), "no known group has a resource %q; did you mean %q?", rule.Resource, near)
		return
	}
	v.addSeverity(finding.Info, "FUS206", line.column("resource"), rule.who(), "", "no known group has a resource %q",
		rule.Resource)
}

func groupWords(groups []string) []string {
	words := slices.Clone(groups)
	for i, g := range words {
		if g == "" {
			words[i] = "the core group"
		}
	}
	return words
}

// UserControllers is the user of fusionctl's own controllers, which look for owners of every kind.
const UserControllers = "fusionctl-controllers"

// component reports whether a rule is for one of Kubernetes' own controllers, or for fusionctl's, which need to read
// far, and whether that one writes everything: the garbage collector and the namespace controller delete what they do
// not know.
func component(rule Rule) (is, writesAll bool) {
	if rule.User == "system:kube-controller-manager" || rule.User == "system:kube-scheduler" ||
		rule.User == UserControllers {
		return true, false
	}
	name, ok := strings.CutPrefix(rule.User, serviceAccountPrefix+metav1.NamespaceSystem+":")
	if !ok {
		return false, false
	}
	writesAll, is = controllerAccounts()[name]
	return is, writesAll
}

// controllerAccounts tells, for the account of each controller of any version, whether it writes everything.
var controllerAccounts = sync.OnceValue(func() map[string]bool {
	accounts := map[string]bool{}
	for _, m := range kubever.Minors() {
		for _, c := range kubever.Controllers(m) {
			if c.ServiceAccount != "" {
				accounts[c.ServiceAccount] = accounts[c.ServiceAccount] || slices.Contains(c.Writes, "*") ||
					slices.Contains(c.Deletes, "*")
			}
		}
	}
	return accounts
})

// checkReach names what a rule opens besides what it says.
func (v *validation) checkReach(line *checkedLine, rule Rule) {
	isComponent, writesAll := component(rule)
	if writesAll {
		return
	}
	for _, p := range rule.realParts() {
		if p.isPath {
			continue
		}
		if p.write && p.object == (object{apiGroup: anything, resource: anything, namespace: anything}) {
			v.add("FUS216", line.column("resource"), rule.who(), "",
				"the rule allows everything, including secrets, exec and impersonation of any user")
			continue
		}
		in := func(resource string) bool {
			return p.apiGroup.covers(equals("")) && p.resource.covers(equals(resource))
		}
		broad := p.resource.any
		if opened := openedByReads(in); len(opened) > 0 && (broad || !p.write) && !isComponent {
			v.add("FUS152", line.column("resource"), rule.who(), "", "permission to read %s includes %s",
				readWord(rule),
				strings.Join(opened, "; "))
		}
		if broad && in("secrets") && !isComponent {
			v.add("FUS210", line.column("resource"), rule.who(), "", "the rule includes secrets: service account "+
				"tokens, passwords and keys of %s", namespaceWord(rule.Namespace))
		}
		if p.write && p.namespace.covers(equals("")) && (in("users") || in("groups")) {
			v.add("FUS211", line.column("resource"), rule.who(), "",
				"the rule includes the verb impersonate on users and groups: any member of %s can act as any user, "+
					"also as group %s, which bypasses the policy",
				rule.who(), GroupMasters)
		}
	}
}

func readWord(rule Rule) string {
	if rule.Resource == "*" {
		return "every core resource"
	}
	return rule.Resource
}

func namespaceWord(namespace string) string {
	switch namespace {
	case "*":
		return "all namespaces"
	case "":
		return "all namespaces, by a list over them"
	}
	return fmt.Sprintf("namespace %q", namespace)
}

// openedByReads says what a GET on subresources does, for the resources that the rule includes.
func openedByReads(in func(string) bool) []string {
	var opened []string
	if in("pods") {
		opened = append(opened, "exec, attach and port-forward into pods over a websocket")
		opened = append(opened, "GET through the proxy of pods")
	}
	if in("nodes") {
		opened = append(opened, "the kubelet's API through the proxy of nodes")
	}
	if in("services") {
		opened = append(opened, "GET through the proxy of services")
	}
	return opened
}

// checkForbidden compares the writes that a rule allows with those that the plan forbids.
func (v *validation) checkForbidden(line *checkedLine, rule Rule) {
	isComponent, _ := component(rule)
	for _, p := range rule.realParts() {
		if p.isPath || !p.write || isComponent && v.expected.covers(p) {
			continue
		}
		var hit []Forbidden
		for _, f := range v.options.Forbidden {
			if p.apiGroup.covers(equals(f.APIGroup)) && p.resource.covers(equals(f.Resource)) {
				hit = append(hit, f)
			}
		}
		if len(hit) == 0 {
			continue
		}
		names := make([]string, len(hit))
		for i, f := range hit {
			names[i] = qualified(f.Resource, f.APIGroup)
		}
		v.add("FUS212", line.column("resource"), rule.who(), rule.suggest(func(r *Rule) { r.Readonly = true }),
			"the rule lets %s write %s: %s", rule.who(), prose.First(names, 4), hit[0].Why).Related = names
	}
}

// jsonErrorColumn is where a line stops being JSON, 1 if that is not known.
func jsonErrorColumn(text []byte, start int) int {
	var value any
	err := json.Unmarshal(text[start:], &value)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return start + int(syntax.Offset)
	}
	return 1
}
