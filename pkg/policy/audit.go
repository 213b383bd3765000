package policy

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// AuditEvent is what is read of an event of an API server's audit log.
// Source: k8s.io/apiserver pkg/apis/audit/v1; v1beta1 and v1alpha1 have the same names, but for the times and for the
// group of an object of v1alpha1.
type AuditEvent struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	Stage            string            `json:"stage"`
	RequestURI       string            `json:"requestURI"`
	Verb             string            `json:"verb"`
	UserAgent        string            `json:"userAgent"` // of servers since 1.12
	RequestTime      time.Time         `json:"requestReceivedTimestamp"`
	StageTime        time.Time         `json:"stageTimestamp"`
	Timestamp        time.Time         `json:"timestamp"` // in place of both in v1alpha1 and v1beta1 of 1.8
	User             AuditUser         `json:"user"`
	ImpersonatedUser *AuditUser        `json:"impersonatedUser"`
	ObjectRef        *AuditObject      `json:"objectRef"`
	ResponseStatus   *AuditStatus      `json:"responseStatus"`
	Annotations      map[string]string `json:"annotations"`
	Items            json.RawMessage   `json:"items"` // of an EventList; as text, since many short ones fit into a line
}

// events hands the event, or each event of an EventList, to visit.
func (e AuditEvent) events(visit func(AuditEvent) error) error {
	if e.Kind != "EventList" {
		return visit(e)
	}
	decoder := json.NewDecoder(bytes.NewReader(e.Items))
	if start, err := decoder.Token(); len(e.Items) == 0 || err == nil && start == nil {
		return nil // no items
	} else if start != json.Delim('[') {
		return errors.New("items: want a list")
	}
	for decoder.More() {
		var item AuditEvent
		if err := decoder.Decode(&item); err != nil {
			return fmt.Errorf("items: %w", brief(err))
		}
		if err := visit(item); err != nil {
			return err
		}
	}
	return nil
}

// AuditUser is who made the request.
type AuditUser struct {
	Username string              `json:"username"`
	Groups   []string            `json:"groups"`
	Extra    map[string][]string `json:"extra"`
}

// AuditObject is what the request was for; a request for a path has none.
type AuditObject struct {
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"` // without the group, which v1alpha1 has before it
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
}

// AuditStatus is how the request ended.
type AuditStatus struct {
	Code int `json:"code"`
}

// auditBlankLines bounds blank lines in a row: three megabytes of gzip may be three gigabytes of line breaks.
const auditBlankLines = 1_000_000

// auditLineBytes bounds one event. Servers limit requests to 3 MiB, and an event holds a request and a response at
// most.
const auditLineBytes = 16 << 20

// ReadAudit reads the audit log of an API server, one JSON event per line, gzip or not, and hands each event to visit.
// Units:  one line is held at a time, and one event of those that it lists; a line may be 16 MiB.
// Errors: a line that is no audit event, or a million blank ones, as FILE:LINE: ...; the error of visit as it is.
// Nothing else is skipped silently.
func ReadAudit(name string, r io.Reader, visit func(AuditEvent) error) error {
	reader := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := reader.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(reader)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		reader = bufio.NewReaderSize(unzipped, 64<<10)
	}
	scanner := bufio.NewScanner(reader)
	scanner.Buffer(make([]byte, 0, 64<<10), auditLineBytes)
	number, blank := 0, 0
	for scanner.Scan() {
		number++
		if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
			if blank++; blank > auditBlankLines {
				return fmt.Errorf("%s:%d: more than %d blank lines in a row: no audit log", name, number,
					auditBlankLines)
			}
			continue
		}
		blank = 0
		var event AuditEvent
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			return fmt.Errorf("%s:%d: not an audit event in JSON: %w", name, number, brief(err))
		}
		if !strings.HasPrefix(event.APIVersion, "audit.k8s.io/") {
			return fmt.Errorf("%s:%d: not an audit event: apiVersion %q, want audit.k8s.io/v1", name, number,
				event.APIVersion)
		}
		var failed error
		err := event.events(func(e AuditEvent) error {
			e.splitAlpha(event.APIVersion)
			failed = visit(e)
			return failed
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			return fmt.Errorf("%s:%d: not an audit event in JSON: %w", name, number, err)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%s:%d: an event of more than %d bytes", name, number+1, auditLineBytes)
	} else if err != nil {
		return fmt.Errorf("reading %s after line %d: %w", name, number, err)
	}
	return nil
}

// splitAlpha takes the group from the version of an object, where v1alpha1 has both: servers of 1.7 write nothing else.
// Source: k8s.io/apiserver v0.17 pkg/apis/audit/v1alpha1/conversion.go.
func (e *AuditEvent) splitAlpha(apiVersion string) {
	o := e.ObjectRef
	if apiVersion != "audit.k8s.io/v1alpha1" || o == nil || o.APIGroup != "" {
		return
	}
	if i := strings.LastIndexByte(o.APIVersion, '/'); i >= 0 {
		o.APIGroup, o.APIVersion = o.APIVersion[:i], o.APIVersion[i+1:]
	}
}

// Requests returns what had to be authorized for the event, and whether the server allowed it: the request itself, and
// with impersonation first the right to act as each user and group. An event from before the decision has none.
func (e AuditEvent) Requests() (requests []Request, allowed bool) {
	if e.Stage == "RequestReceived" {
		return nil, false
	}
	allowed = e.ResponseStatus == nil || e.ResponseStatus.Code != 401 && e.ResponseStatus.Code != 403
	if decision, ok := e.Annotations["authorization.k8s.io/decision"]; ok {
		allowed = decision == "allow" // a 403 may come from admission, after authorization
	}
	q := Request{User: e.User.Username, Groups: e.User.Groups, Verb: e.Verb}
	if as := e.ImpersonatedUser; as != nil {
		requests = impersonation(q, *as)
		q.User, q.Groups = as.Username, as.Groups
	}
	if o := e.ObjectRef; o != nil {
		q.APIGroup, q.Resource, q.Subresource, q.Namespace, q.ObjectName = o.APIGroup, o.Resource, o.Subresource,
			o.Namespace, o.Name
		return append(requests, q), allowed
	}
	q.Path = e.RequestURI
	if parsed, err := url.ParseRequestURI(e.RequestURI); err == nil {
		q.Path = parsed.Path
	}
	return append(requests, q), allowed
}

// impersonation lists the permissions to impersonate.
func impersonation(who Request, as AuditUser) []Request {
	who.Verb = "impersonate"
	act := func(apiGroup, resource, namespace, name string) Request {
		q := who
		q.APIGroup, q.Resource, q.Namespace, q.ObjectName = apiGroup, resource, namespace, name
		return q
	}
	var requests []Request
	if namespace, name, ok := splitServiceAccount(as.Username); ok {
		requests = append(requests, act("", "serviceaccounts", namespace, name))
	} else {
		requests = append(requests, act("", "users", "", as.Username))
	}
	for _, group := range as.Groups {
		switch {
		case group == GroupAuthenticated || group == GroupUnauthenticated: // added by the server
		// as well
		case strings.HasPrefix(as.Username, serviceAccountPrefix) && strings.HasPrefix(group, "system:serviceaccounts"):
		default:
			requests = append(requests, act("", "groups", "", group))
		}
	}
	if len(as.Extra) > 0 {
		requests = append(requests, act("authentication.k8s.io", "userextras", "", ""))
	}
	return requests
}

func splitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}

// UsageOptions say how what was used becomes rules.
type UsageOptions struct {
	// Groups get the permissions of their members: a request of a user in one of them counts for the first that has
	// them.
	Groups []string
	// MaxNamespaces is how many namespaces a right may have before it is given in all of them; 0 is no limit.
	MaxNamespaces int
	// Unless it is nil, requests that this policy allows do not count: what is left is what it would have refused.
	Unless *Authorizer
}

// Usage collects what was used. Its memory grows with the number of different rights, not with that of the requests.
type Usage struct {
	options UsageOptions
	rights  map[part]int // requests

	Requests    int      // that count: they were allowed and need a policy
	Allowed     int      // that UsageOptions.Unless allows
	Refused     int      // that the server refused
	Privileged  int      // by members of group system:masters, who need no policy
	Undecided   int      // events from before the decision
	Unspeakable []string // what no rule can allow alone, such as user "*": at most a few examples
}

// maxRights bounds the memory of a Usage: far more than a policy that people could read.
const maxRights = 1_000_000

// NewUsage starts with nothing used.
func NewUsage(options UsageOptions) *Usage {
	return &Usage{options: options, rights: map[part]int{}}
}

// Add counts an event. The error tells that there are too many different rights to hold.
func (u *Usage) Add(e AuditEvent) error {
	requests, allowed := e.Requests()
	if len(requests) == 0 {
		u.Undecided++
		return nil
	}
	for _, q := range requests {
		switch {
		case !allowed:
			u.Refused++
		case slices.Contains(q.Groups, GroupMasters):
			u.Privileged++
		case u.allowedAlready(q):
			u.Allowed++
		case !q.speakable():
			if len(u.Unspeakable) < maxUnspeakable {
				u.Unspeakable = append(u.Unspeakable, q.String())
			}
		case e.Stage == "ResponseStarted": // a watch; it is counted at its end
			u.rights[u.right(q)] += 0
		default:
			u.Requests++
			u.rights[u.right(q)]++
		}
	}
	if len(u.rights) > maxRights {
		return fmt.Errorf("more than %d different permissions were used; grant them to groups, or limit the namespaces",
			maxRights)
	}
	return nil
}

func (u *Usage) allowedAlready(q Request) bool {
	if u.options.Unless == nil {
		return false
	}
	_, ok := u.options.Unless.Match(q.Attributes())
	return ok
}

const maxUnspeakable = 10

// speakable reports whether a rule can allow the request and no other: a "*" in its words would allow more.
func (q Request) speakable() bool {
	for _, word := range append([]string{q.User, q.APIGroup, q.Resource, q.Namespace}, q.Groups...) {
		if word == "*" {
			return false
		}
	}
	return q.User != "" && (q.Resource != "" || q.Path != "") && !strings.HasSuffix(q.Path, "*")
}

// right is the smallest part that allows the request.
func (u *Usage) right(q Request) part {
	p := part{user: equals(q.User), group: anything, write: !isRead(q.Verb)}
	for _, group := range u.options.Groups {
		if slices.Contains(q.Groups, group) {
			p.user, p.group = anything, equals(group)
			break
		}
	}
	if q.Path == "" {
		p.object = object{apiGroup: equals(q.APIGroup), resource: equals(q.Resource), namespace: equals(q.Namespace)}
		return p
	}
	p.object = object{isPath: true, path: q.Path}
	for _, prefix := range discoveryPrefixes {
		if !p.write && strings.HasPrefix(q.Path, prefix) {
			p.object = object{isPath: true, path: prefix, pathIsPrefix: true}
		}
	}
	return p
}

// discoveryPrefixes are the paths below which every client looks around; a rule for each of them would say nothing.
var discoveryPrefixes = []string{"/api/", "/apis/", "/openapi/", "/swaggerapi/"}

// Policy is the smallest policy that allows what was used, one section per subject with the number of its requests.
func (u *Usage) Policy() []Section {
	rights := u.widened()
	var rules []Rule
	counts := map[Rule]int{}
	for p, n := range rights {
		rule := p.rule()
		rules = append(rules, rule)
		counts[rule] += n
	}
	slices.SortFunc(rules, compareRules)

	bySubject := map[[2]string][]Rule{}
	requests := map[[2]string]int{}
	for _, rule := range rules {
		requests[[2]string{rule.Group, rule.User}] += counts[rule]
	}
	var subjects [][2]string
	for _, i := range minimal(rules) {
		subject := [2]string{rules[i].Group, rules[i].User}
		if bySubject[subject] == nil {
			subjects = append(subjects, subject)
		}
		bySubject[subject] = append(bySubject[subject], rules[i])
	}
	slices.SortFunc(subjects, func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	var sections []Section
	for _, subject := range subjects {
		mine := bySubject[subject]
		sections = append(sections, Section{Comment: fmt.Sprintf("%s: requests: %d.", mine[0].who(), requests[subject]),
			Rules: mine})
	}
	return sections
}

// widened gives rights that were used in too many namespaces in all of them.
func (u *Usage) widened() map[part]int {
	if u.options.MaxNamespaces == 0 {
		return u.rights
	}
	namespaces := map[part]int{}
	everywhere := func(p part) part {
		p.namespace = anything
		return p
	}
	for p := range u.rights {
		if !p.isPath {
			namespaces[everywhere(p)]++
		}
	}
	widened := map[part]int{}
	for p, n := range u.rights {
		if !p.isPath && namespaces[everywhere(p)] > u.options.MaxNamespaces {
			p = everywhere(p)
		}
		widened[p] += n
	}
	return widened
}

// rule is the rule that allows exactly the part.
func (p part) rule() Rule {
	rule := Rule{User: p.user.word, Group: p.group.word, Readonly: !p.write}
	if p.isPath {
		rule.NonResourcePath = p.path
		if p.pathIsPrefix {
			rule.NonResourcePath += "*"
		}
		return rule
	}
	rule.APIGroup, rule.Resource, rule.Namespace = p.apiGroup.String(), p.resource.String(), p.namespace.String()
	return rule
}
