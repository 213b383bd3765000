package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	dns "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubefusion/fusionctl/internal/spelling"
)

// Claim is a set of requests about which something is to be proved: some regions, less the requests of some subjects.
type Claim struct {
	Regions []Region  // one for each API group of the resource, and one for its lists over all namespaces
	Except  []Subject // users and groups; a request by one of the users, or with one of the groups, does not count
	// ClusterScoped are resources, such as nodes or clusterroles.rbac.authorization.k8s.io, of which a request without
	// a namespace does not count: it lists nothing that is in one. nodes.* are those of every group.
	ClusterScoped []string
}

// ParseClaim reads a claim:
//
//	VERB WHAT [in NAMESPACE] [by SUBJECT]... [except SUBJECT]...
//
// VERB is read, write, any, or a verb of the API, which counts as a read or a write. WHAT is RESOURCE[.GROUP], *.GROUP,
// * or a path (/metrics, /debug/*). RESOURCE is a name, a singular, a kind or a short name; without a group it is in
// every group that has it, for WantAllow only in that of the newest version. Without "in", any namespace and none. With
// it, a denial is also about lists and watches over all namespaces, which show what is in the namespace.
// SUBJECT is "user NAME", "group NAME" or "serviceaccount NAMESPACE:NAME"; several after "by" hold at once. Words with
// spaces stand in double quotes; in "" is a request without a namespace. A subresource is allowed and means its
// resource: rules cannot tell them apart. Of exec, attach, portforward and proxy even a get is meant, since they do
// things through one. Example: write deployments.apps in kube-system except group admins Errors: words that no API has,
// since whatever is claimed of them is true, and claims that leave no request.
func ParseClaim(want Want, text string, catalog *Catalog) (Claim, error) {
	words, err := splitWords(text)
	if err != nil {
		return Claim{}, fmt.Errorf("claim %q: %w", text, err)
	}
	claim, err := parseClaim(want, words, catalog)
	if err != nil {
		return Claim{}, fmt.Errorf("claim %q: %w", text, err)
	}
	return claim, nil
}

// apiVerbs are the verbs of requests, those that only authorizers see, and the methods of requests for
// paths.
var apiVerbs = []string{"approve", "attest", "bind", "connect", "create", "delete", "deletecollection", "escalate",
	"get", "head", "impersonate", "list",
	"options", "patch", "post", "proxy", "put", "redirect", "sign", "update", "use", "watch"}

func parseVerb(verb string) (Verbs, error) {
	switch {
	case verb == "read" || isRead(verb):
		return ReadVerbs, nil
	case verb == "any" || verb == "all" || verb == "*":
		return AllVerbs, nil
	case strings.ToLower(verb) != verb:
		return "", fmt.Errorf("verb %q: want read, write, any or a verb in lower case", verb)
	case verb == "write" || slices.Contains(apiVerbs, verb):
		return WriteVerbs, nil
	}
	if near, ok := spelling.Nearest(verb, append([]string{"read", "write", "any"}, apiVerbs...)); ok {
		return "", fmt.Errorf("no request has the verb %q; did you mean %q?", verb, near)
	}
	return "", fmt.Errorf("no request has the verb %q: want read, write, any or a verb of the API", verb)
}

func parseClaim(want Want, words []string, catalog *Catalog) (Claim, error) {
	if len(words) < 2 {
		return Claim{}, errors.New("want VERB WHAT, then any of: in NAMESPACE, by SUBJECT, except SUBJECT")
	}
	r := Region{User: "*", APIGroup: "*", Resource: "*", Namespace: "*"}
	var err error
	if r.Verbs, err = parseVerb(words[0]); err != nil {
		return Claim{}, err
	}
	groups, subresource, err := r.setWhat(want, words[1], catalog)
	if err != nil {
		return Claim{}, err
	}
	var claim Claim
	words = words[2:]
	for len(words) > 0 {
		if len(words) < 2 {
			return Claim{}, fmt.Errorf("nothing after %q", words[0])
		}
		switch words[0] {
		case "in":
			if err := r.setNamespace(words[1], groups, catalog); err != nil {
				return Claim{}, err
			}
			words = words[2:]
		case "by", "except":
			if len(words) < 3 {
				return Claim{}, fmt.Errorf("after %q: want user NAME, group NAME or serviceaccount NAMESPACE:NAME",
					words[0])
			}
			subject, err := parseSubject(words[1], words[2])
			if err != nil {
				return Claim{}, err
			}
			switch {
			case words[0] == "except" && subject.Name == "*":
				return Claim{}, fmt.Errorf("except %s %q: excepts every subject, and leaves nothing to prove", words[1],
					words[2])
			case words[0] == "except":
				claim.Except = append(claim.Except, subject)
			case subject.Kind == KindGroup:
				r.Groups = slices.Compact(slices.Sorted(slices.Values(append(r.Groups, subject.Name))))
			case r.User != "*":
				return Claim{}, fmt.Errorf("two users, %q and %q: a request has one", r.User, subject.user())
			default:
				r.User = subject.user()
			}
			words = words[3:]
		default:
			return Claim{}, fmt.Errorf("%q: want in, by or except", words[0])
		}
	}
	if err := claim.leavesSomebody(r); err != nil {
		return Claim{}, err
	}
	for _, group := range groups {
		r.APIGroup = group
		claim.Regions = append(claim.Regions, r)
		if want == WantDeny && subresource == "" {
			claim.addLists(r, catalog)
		}
	}
	return claim, nil
}

// addLists adds the lists and watches over all namespaces to a claim about one namespace, whose objects they show. A
// server has nothing else over all namespaces, and nothing of subresources. Source: k8s.io/apiserver v0.36
// pkg/endpoints/installer.go, RequestInfo: such a request has no namespace.
func (c *Claim) addLists(r Region, catalog *Catalog) {
	if r.Path != "" || r.Namespace == "" || r.Namespace == "*" || !r.Verbs.reads() ||
		catalog.clusterWide(r.APIGroup, r.Resource) {
		return
	}
	r.Namespace, r.Verbs = "", ReadVerbs
	c.Regions = append(c.Regions, r)
	if r.Resource == "*" {
		c.ClusterScoped = append(c.ClusterScoped, catalog.allClusterWide(r.APIGroup)...)
	}
}

// leavesSomebody refuses exceptions that all requests of the region meet.
func (c Claim) leavesSomebody(r Region) error {
	unauthenticated := func(s Subject) bool { return s.Kind == KindGroup && s.Name == GroupUnauthenticated }
	authenticated := func(s Subject) bool { return s.Kind == KindGroup && s.Name == GroupAuthenticated }
	if c.excludes(Request{User: r.User, Groups: r.Groups}) || slices.ContainsFunc(c.Except, authenticated) &&
		slices.ContainsFunc(c.Except, unauthenticated) {
		return errors.New("except: excepts every subject of the claim, and leaves nothing to prove")
	}
	return nil
}

// setNamespace narrows a claim about the groups to a namespace.
func (r *Region) setNamespace(namespace string, groups []string, catalog *Catalog) error {
	if r.Path != "" {
		return fmt.Errorf("path %q has no namespace", r.Path)
	}
	if namespace == "" || namespace == "*" {
		r.Namespace = namespace
		return nil
	}
	if problems := dns.IsDNS1123Label(namespace); len(problems) > 0 {
		return fmt.Errorf("namespace %q: %s", namespace, strings.Join(problems, "; "))
	}
	if !slices.ContainsFunc(groups, func(group string) bool { return !catalog.clusterWide(group, r.Resource) }) {
		return fmt.Errorf("%s are cluster-scoped; want in \"\", or nothing", r.Resource)
	}
	r.Namespace = namespace
	return nil
}

// setWhat reads the object of a claim, and returns the API groups in which it is, and its subresource.
func (r *Region) setWhat(want Want, what string, catalog *Catalog) (groups []string, subresource string, err error) {
	if strings.HasPrefix(what, "/") {
		if isOfResources(what) {
			return nil, "", fmt.Errorf("path %q: servers take it for a request of a resource, of which rules for "+
				"paths decide nothing: name the resource", what)
		}
		r.Resource, r.Namespace, r.Path = "", "", what
		return []string{""}, "", nil
	}
	groups, r.Resource, subresource, err = catalog.claimed(what, want == WantAllow)
	if err != nil {
		return nil, "", err
	}
	if slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, subresource) {
		r.Verbs = AllVerbs
	}
	return groups, subresource, nil
}

// isOfResources reports whether a server takes a path for that of a resource. Source: k8s.io/apiserver RequestInfo.
func isOfResources(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "api" && len(parts) >= 3 || parts[0] == "apis" && len(parts) >= 4
}

func parseSubject(kind, name string) (Subject, error) {
	if name == "" {
		return Subject{}, fmt.Errorf("%s %q: want a name", kind, name)
	}
	switch kind {
	case "user":
		return Subject{Kind: KindUser, Name: name}, nil
	case "group":
		return Subject{Kind: KindGroup, Name: name}, nil
	case "serviceaccount":
		namespace, name, ok := strings.Cut(name, ":")
		if !ok || namespace == "" || name == "" {
			return Subject{}, fmt.Errorf("service account %q: want NAMESPACE:NAME", name)
		}
		return Subject{Kind: KindServiceAccount, Namespace: namespace, Name: name}, nil
	}
	return Subject{}, fmt.Errorf("%q: want user, group or serviceaccount", kind)
}

// user is the user name of a user or a service account.
func (s Subject) user() string {
	if s.Kind == KindServiceAccount {
		return serviceAccountPrefix + s.Namespace + ":" + s.Name
	}
	return s.Name
}

// splitWords splits at spaces, except in double quotes. A quoted word may be empty.
func splitWords(text string) ([]string, error) {
	var words []string
	for {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		if text == "" {
			return words, nil
		}
		if text[0] == '"' {
			end := strings.IndexByte(text[1:], '"')
			if end < 0 {
				return nil, errors.New("a quote is not closed")
			}
			words = append(words, text[1:1+end])
			text = text[end+2:]
			continue
		}
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		words = append(words, text[:end])
		text = text[end:]
	}
}

// Violation is a rule that breaks a claim, and a request that shows it.
type Violation struct {
	Rule    Rule    `json:"-"`
	Line    int     `json:"line"`
	Text    string  `json:"rule"` // as a policy line
	Example Request `json:"example"`
}

// ProveDenied looks for rules that allow a request of the claim. None: no request of the claim is allowed, of any user
// and with any attributes; that is a proof and no sample, as every rule has been asked. What stands outside of the
// policy does not count, such as the privileges of group system:masters; impersonation is a request of its own.
func ProveDenied(rules []Rule, claim Claim) []Violation {
	fresh := newNames(rules)
	for _, s := range claim.Except {
		fresh[s.Name], fresh[s.user()] = true, true
	}
	var violations []Violation
	for _, rule := range rules {
		for _, p := range rule.realParts() {
			if region, ok := claim.meets(p); ok {
				example := fresh.example(region, NewAuthorizer(nil))
				if authenticated := example.Authenticated(); !claim.excludes(authenticated) {
					example = authenticated // as a server would ask
				}
				violations = append(
					violations, Violation{Rule: rule, Line: rule.Line, Text: rule.String(), Example: example})
				break
			}
		}
	}
	return violations
}

// meets returns the requests of the claim that the part allows, and whether there are any.
func (c Claim) meets(p part) (Region, bool) {
	for _, r := range c.Regions {
		if met, ok := c.meetsIn(r, p); ok {
			return met, true
		}
	}
	return Region{}, false
}

func (c Claim) meetsIn(r Region, p part) (Region, bool) {
	user, ok := star(r.User).meet(p.user)
	if !ok || !r.Verbs.reads() && !p.write {
		return Region{}, false
	}
	object, ok := r.object().meet(p.object)
	if !ok {
		return Region{}, false
	}
	group := object.apiGroup.word
	if object.apiGroup.any {
		group = "*"
	}
	if r.Namespace == "" && slices.Contains(c.ClusterScoped, qualified(object.resource.word, group)) {
		return Region{}, false
	}
	if !p.write {
		r.Verbs = ReadVerbs
	}
	r.User = user.String()
	if !p.group.any {
		r.Groups = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(r.Groups), p.group.word))))
	}
	r.setObject(object)
	// Only a part, or a claim, that asks for an excepted subject has nothing left: all others allow requests without
	// it.
	return r, !c.excludes(Request{User: r.User, Groups: r.Groups})
}

// excludes reports whether the subject of the request is one of those that do not count.
func (c Claim) excludes(q Request) bool {
	return slices.ContainsFunc(c.Except, func(s Subject) bool {
		if s.Kind == KindGroup {
			return slices.Contains(q.Groups, s.Name)
		}
		return q.User == s.user()
	})
}

// ProveAllowed checks that every request of the claim is allowed. The second result is false when some are not, and the
// first one of those. Excepted subjects are not supported: rules cannot name who is not meant.
func ProveAllowed(rules []Rule, claim Claim) (Request, bool) {
	index := NewAuthorizer(rules)
	var example Request
	for _, region := range claim.Regions {
		example = newNames(rules).example(region, index)
		if _, allowed := index.Match(example.Attributes()); !allowed {
			return example, false
		}
	}
	return example, true
}

// Reach is a subject that may make a request, by a rule.
type Reach struct {
	Who  string `json:"who"` // group "devs"
	May  string `json:"may"` // read pods in namespace "a"
	Line int    `json:"line"`
	Text string `json:"rule"` // as a policy line
}

// ReachOf puts a rule into words.
func ReachOf(rule Rule) Reach {
	return Reach{Who: rule.who(), May: rule.what(), Line: rule.Line, Text: rule.String()}
}

// Who lists the rules that allow the request to some user, and, where it reads what is in a namespace, those that allow
// to list it over all namespaces. The list is complete for the policy; group system:masters may do everything besides.
func Who(rules []Rule, q Request) []Reach {
	asked := object{isPath: true, path: q.Path}
	if q.Path == "" {
		asked = object{apiGroup: equals(q.APIGroup), resource: equals(q.Resource), namespace: equals(q.Namespace)}
	}
	everywhere := asked
	if q.Subresource == "" && isRead(q.Verb) {
		everywhere.namespace = equals("")
	}
	var all []Reach
	for _, rule := range rules {
		for _, p := range rule.parts() {
			if (p.object.covers(asked) || p.object.covers(everywhere)) && (p.write || isRead(q.Verb)) {
				all = append(all, ReachOf(rule))
				break
			}
		}
	}
	return all
}

// RulesOf lists the rules that allow the user something in the namespace, in their order; "*" as the namespace is any.
func RulesOf(rules []Rule, q Request) []Rule {
	info := q.Attributes().GetUser()
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool {
		inNamespace := q.Namespace == "*" || r.Resource == "" || star(r.Namespace).covers(equals(q.Namespace))
		return !r.matchesSubject(info) || len(r.realParts()) == 0 || !inNamespace && r.NonResourcePath == ""
	})
}

// Proof is a claim with its proof or what refutes it.
type Proof struct {
	Want  Want   `json:"want"`
	Claim string `json:"claim"`
	// what the words mean: the claim is about the requests of all of them
	Regions []Region  `json:"regions"`
	Except  []Subject `json:"except,omitempty"`
	// cluster-scoped resources, which do not count where a region has no namespace
	ClusterScoped []string    `json:"clusterScoped,omitempty"`
	Proved        bool        `json:"proved"`
	Violations    []Violation `json:"violations,omitempty"` // of a claim that something is denied
	Refused       *Request    `json:"refused,omitempty"`    // of a claim that everything is allowed
	// of a denial that is proved: rules by which its subjects may impersonate others, for whom it was not proved
	Impersonation []Violation `json:"impersonation,omitempty"`
}

// Prove decides a claim that was read from the text, by ProveDenied or by ProveAllowed.
func Prove(rules []Rule, want Want, text string, claim Claim) Proof {
	proof := Proof{Want: want, Claim: text, Regions: claim.Regions, Except: claim.Except,
		ClusterScoped: claim.ClusterScoped}
	if want == WantDeny {
		proof.Violations = ProveDenied(rules, claim)
		if proof.Proved = len(proof.Violations) == 0; proof.Proved {
			proof.Impersonation = impersonators(rules, claim)
		}
		return proof
	}
	example, proved := ProveAllowed(rules, claim)
	if proof.Proved = proved; !proved {
		proof.Refused = &example
	}
	return proof
}

// impersonators looks for rules that allow the subjects of a claim to impersonate: an excepted subject, or group
// system:masters, may do what is denied to them. For ABAC that is any write of these resources, of whatever name.
// Source: k8s.io/apiserver v0.36 pkg/endpoints/filters/impersonation.
func impersonators(rules []Rule, claim Claim) []Violation {
	as := Claim{Except: claim.Except}
	for _, resource := range []string{"users", "groups", "serviceaccounts", "uids.authentication.k8s.io",
		"userextras.authentication.k8s.io"} {
		name, group, _ := strings.Cut(resource, ".")
		r := claim.Regions[0]
		r.Verbs, r.APIGroup, r.Resource, r.Namespace, r.Path = WriteVerbs, group, name, "", ""
		if name == "serviceaccounts" {
			r.Namespace = "*"
		}
		as.Regions = append(as.Regions, r)
	}
	found := ProveDenied(rules, as)
	for i := range found {
		found[i].Example.Verb = "impersonate"
	}
	return found
}
