package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Intent is what a policy should allow, independent of how ABAC spells it.
type Intent struct {
	Grants []Grant `json:"grants"`
}

// Grant allows every subject every combination of the API groups, resources and namespaces, and every path. It reads
// like an RBAC rule, less what ABAC cannot say: single verbs, object names, subresources.
type Grant struct {
	Subjects  []Subject `json:"subjects"`
	APIGroups []string  `json:"apiGroups,omitempty"` // "" is the core group, "*" all
	// plural names without group; "*" all. A resource always includes its subresources
	Resources []string `json:"resources,omitempty"`
	// "*" all and cluster-scoped; "" cluster-scoped objects and lists over all namespaces
	Namespaces       []string `json:"namespaces,omitempty"`
	NonResourcePaths []string `json:"nonResourcePaths,omitempty"` // "/healthz", "/apis/*" or "*"
	ReadOnly         bool     `json:"readOnly,omitempty"`         // get, list and watch
	Purpose          Purpose  `json:"purpose,omitempty"`          // what the grant is for; rules about users go by it
	// one sentence, printed as a comment above the rules; grants with the same one stand together
	Why string `json:"why"`
}

// Purpose is what a grant is for.
type Purpose string

// The purposes of the grants of a plan.
const (
	ForUsers       Purpose = "users"       // what the spec allows; the others are the modern side's own
	ForClients     Purpose = "clients"     // what every client needs: discovery, probes, reviews of its own access
	ForControllers Purpose = "controllers" // what controllers need, those of the manager and of fusionctl
	ForNodes       Purpose = "nodes"       // what nodes at this API server need beside what the Node authorizer allows
)

// SubjectKind is the kind of a grant's subject.
type SubjectKind string

// The subject kinds, spelled as in RBAC.
const (
	KindUser           SubjectKind = "User"
	KindGroup          SubjectKind = "Group"
	KindServiceAccount SubjectKind = "ServiceAccount"
)

// Subject is a user, a group or a service account.
type Subject struct {
	Kind      SubjectKind `json:"kind"`
	Name      string      `json:"name"`
	Namespace string      `json:"namespace,omitempty"` // of a service account
}

// Section is a run of rules under one comment.
type Section struct {
	Comment string // without "#"; "" for none
	Rules   []Rule
}

// Rules returns the rules of all sections in order.
func Rules(sections []Section) []Rule {
	var rules []Rule
	for _, s := range sections {
		rules = append(rules, s.Rules...)
	}
	return rules
}

// Generate computes the smallest policy that allows the intent and nothing else. A rule that another one covers is left
// out; what is left is sorted within its section, sections stand in the order of the grants. The same intent gives the
// same bytes.
//
// All resources of the core group are written out one by one where they could be written outside of namespaces: a "*"
// would include the verb impersonate on users and groups, and with it permission to act as group system:masters.
//
// Errors: every grant that ABAC cannot express or that cannot work is reported, joined, as "grant N: ...": a
// subresource, a pattern, an API version instead of a group, group system:masters (its members pass without any
// policy), a missing dimension.
func Generate(intent Intent) ([]Section, error) {
	var problems []error
	var sections []Section
	var rules []Rule
	var sectionOf []int // of each rule
	for i, grant := range intent.Grants {
		expanded, err := grant.rules()
		if err != nil {
			problems = append(problems, fmt.Errorf("grant %d (%s): %w", i+1, grant.label(), err))
			continue
		}
		section := slices.IndexFunc(sections, func(s Section) bool { return s.Comment == grant.Why })
		if section < 0 {
			section = len(sections)
			sections = append(sections, Section{Comment: grant.Why})
		}
		for _, rule := range withoutImpersonation(expanded) {
			rules = append(rules, rule)
			sectionOf = append(sectionOf, section)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	for _, i := range minimal(rules) {
		section := &sections[sectionOf[i]]
		section.Rules = append(section.Rules, rules[i])
	}
	sections = slices.DeleteFunc(sections, func(s Section) bool { return len(s.Rules) == 0 })
	for _, section := range sections {
		slices.SortFunc(section.Rules, compareRules)
	}
	return sections, nil
}

// withoutImpersonation replaces "*" in the core group by the resources that versions have, where it matters.
func withoutImpersonation(rules []Rule) []Rule {
	var out []Rule
	for _, rule := range rules {
		names := []string{rule.Resource}
		if rule.Resource == "*" && rule.APIGroup == "" && !rule.Readonly &&
			(rule.Namespace == "*" || rule.Namespace == "") {
			names = coreResources()
		}
		for _, rule.Resource = range names {
			out = append(out, rule)
		}
	}
	return out
}

// coreResources lists the resources of the core group in any version. Those that only exist for authorizers are not
// among them.
var coreResources = sync.OnceValue(func() []string {
	names := map[string]bool{}
	for _, m := range kubever.Minors() {
		for _, a := range kubever.APIResources(m) {
			if a.Group == "" {
				names[a.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
})

// compareRules orders rules for reading: by subject, then paths after resources, then object; read-only last.
func compareRules(a, b Rule) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.User, b.User),
		cmp.Compare(a.NonResourcePath, b.NonResourcePath),
		cmp.Compare(a.APIGroup, b.APIGroup),
		cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace),
		boolCompare(a.Readonly, b.Readonly),
	)
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// label names a grant in an error.
func (g Grant) label() string {
	if g.Why != "" {
		return fmt.Sprintf("%q", g.Why)
	}
	names := make([]string, len(g.Subjects))
	for i, s := range g.Subjects {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// rules expands the grant into one rule per combination.
func (g Grant) rules() ([]Rule, error) {
	var problems []error
	note := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	if len(g.Subjects) == 0 {
		note(errors.New("no subject"))
	}
	for _, s := range g.Subjects {
		note(s.check())
	}
	resourceDimensions := []struct {
		name   string
		values []string
		check  func(string) error
	}{
		{"API group", g.APIGroups, checkAPIGroup},
		{"resource", g.Resources, checkResource},
		{"namespace", g.Namespaces, checkNamespace},
	}
	given := 0
	for _, d := range resourceDimensions {
		if len(d.values) > 0 {
			given++
		}
		for _, value := range d.values {
			note(d.check(value))
		}
	}
	for _, d := range resourceDimensions {
		if given > 0 && len(d.values) == 0 {
			note(fmt.Errorf("no %s; \"*\" matches all", d.name))
		}
	}
	if given == 0 && len(g.NonResourcePaths) == 0 {
		note(errors.New("neither resources nor paths"))
	}
	for _, path := range g.NonResourcePaths {
		note(checkPath(path))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}

	var rules []Rule
	for _, s := range g.Subjects {
		rule := Rule{Readonly: g.ReadOnly}
		switch s.Kind {
		case KindGroup:
			rule.Group = s.Name
		case KindServiceAccount:
			rule.User = "system:serviceaccount:" + s.Namespace + ":" + s.Name
		default:
			rule.User = s.Name
		}
		for _, rule.APIGroup = range g.APIGroups {
			for _, rule.Resource = range g.Resources {
				for _, rule.Namespace = range g.Namespaces {
					rules = append(rules, rule)
				}
			}
		}
		rule.APIGroup, rule.Resource, rule.Namespace = "", "", ""
		for _, rule.NonResourcePath = range g.NonResourcePaths {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

func (s Subject) check() error {
	if err := checkWord("subject", s.Name); err != nil {
		return err
	}
	switch s.Kind {
	case KindUser:
		if s.Name == "*" {
			return fmt.Errorf("user \"*\": want a name; every authenticated user is group %s", GroupAuthenticated)
		}
	case KindGroup:
		switch s.Name {
		case "*":
			return fmt.Errorf("group \"*\": want a name; every authenticated user is group %s", GroupAuthenticated)
		case GroupMasters:
			return fmt.Errorf("group %q: its members bypass the policy, so no rule can grant or limit their "+
				"permissions", s.Name)
		}
	case KindServiceAccount:
		return checkWord("namespace of service account "+s.Name, s.Namespace)
	default:
		return fmt.Errorf("subject kind %q: want User, Group or ServiceAccount", s.Kind)
	}
	return nil
}

// checkWord refuses what no request can carry or no file can hold.
func checkWord(what, value string) error {
	const limitBytes = 1024 // far above any name, and a whole rule stays below the server's 64 KiB per line
	switch {
	case value == "":
		return fmt.Errorf("empty %s", what)
	case len(value) > limitBytes:
		return fmt.Errorf("%s of %d bytes: want at most %d", what, len(value), limitBytes)
	case !utf8.ValidString(value):
		return fmt.Errorf("%s %q: not UTF-8", what, value)
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%s %q: has a control character", what, value)
	}
	return nil
}

func checkAPIGroup(group string) error {
	if group == "" || group == "*" {
		return nil
	}
	if err := checkWord("API group", group); err != nil {
		return err
	}
	switch {
	case group == "core" || group == "v1":
		return fmt.Errorf("API group %q: the core group is \"\"", group)
	case strings.Contains(group, "/"):
		return fmt.Errorf("API group %q: want the group without its version", group)
	}
	return checkLiteral("API group", group)
}

func checkResource(resource string) error {
	if err := checkWord("resource", resource); err != nil || resource == "*" {
		return err
	}
	if base, _, ok := strings.Cut(resource, "/"); ok {
		return fmt.Errorf("resource %q: ABAC cannot grant a subresource alone; %q includes all of them", resource, base)
	}
	return checkLiteral("resource", resource)
}

func checkNamespace(namespace string) error {
	if namespace == "" || namespace == "*" {
		return nil
	}
	if err := checkWord("namespace", namespace); err != nil {
		return err
	}
	return checkLiteral("namespace", namespace)
}

// checkLiteral refuses what is compared byte by byte and can never be equal to a name of the API.
func checkLiteral(what, value string) error {
	switch {
	case strings.Contains(value, "*"):
		return fmt.Errorf("%s %q: ABAC has no patterns here, only \"*\" alone", what, value)
	case strings.ToLower(value) != value:
		return fmt.Errorf("%s %q: want lower case, as in the request", what, value)
	case strings.ContainsFunc(value, unicode.IsSpace):
		return fmt.Errorf("%s %q: has a space", what, value)
	}
	return nil
}

func checkPath(path string) error {
	if err := checkWord("path", path); err != nil || path == "*" {
		return err
	}
	switch star := strings.IndexByte(path, '*'); {
	case path[0] != '/':
		return fmt.Errorf("path %q: want / at its start, or \"*\"", path)
	case star >= 0 && star != len(path)-1:
		return fmt.Errorf("path %q: \"*\" works only at the end", path)
	}
	return nil
}
