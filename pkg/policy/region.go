package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// Verbs is a set of verbs as far as the language tells them apart.
type Verbs string

const (
	ReadVerbs  Verbs = "read"  // get, list and watch
	WriteVerbs Verbs = "write" // all others
	AllVerbs   Verbs = "all"
)

func (v Verbs) reads() bool  { return v != WriteVerbs }
func (v Verbs) writes() bool { return v != ReadVerbs }

// verbsOf are the verbs of a part.
func verbsOf(p part) Verbs {
	if p.write {
		return AllVerbs
	}
	return ReadVerbs
}

// Region is a set of requests: those that meet every one of its conditions. It is what can be said about a rule's
// requests, and a little more: several groups at once, and writes without reads. Shape:
// {"user":"*","groups":["devs"],"verbs":"write","apiGroup":"apps","resource":"*","namespace":"a"} or
// {...,"path":"/api/*"}
type Region struct {
	User      string   `json:"user"`             // "*": any
	Groups    []string `json:"groups,omitempty"` // the request is in all of them; sorted
	Verbs     Verbs    `json:"verbs"`
	APIGroup  string   `json:"apiGroup"`       // "*": any, as the next two; "" is the core group
	Resource  string   `json:"resource"`       // "" for paths
	Namespace string   `json:"namespace"`      // "" is a request without a namespace
	Path      string   `json:"path,omitempty"` // a trailing "*" stands for anything that follows; "" for resources
}

// regionOf is the region of a part, narrowed to some verbs.
func regionOf(p part, verbs Verbs) Region {
	r := Region{User: p.user.String(), Verbs: verbs}
	if !p.group.any {
		r.Groups = []string{p.group.word}
	}
	r.setObject(p.object)
	return r
}

func (r *Region) setObject(o object) {
	if o.isPath {
		r.APIGroup, r.Resource, r.Namespace, r.Path = "", "", "", o.path
		if o.pathIsPrefix {
			r.Path += "*"
		}
		return
	}
	r.APIGroup, r.Resource, r.Namespace, r.Path = o.apiGroup.String(), o.resource.String(), o.namespace.String(), ""
}

func (r Region) object() object {
	if r.Path != "" {
		return pathObject(r.Path)
	}
	return object{apiGroup: star(r.APIGroup), resource: star(r.Resource), namespace: star(r.Namespace)}
}

// isRead reports whether the language counts the verb among the reads.
func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// Contains reports whether the request is in the region.
func (r Region) Contains(q Request) bool {
	if !star(r.User).covers(equals(q.User)) {
		return false
	}
	for _, group := range r.Groups {
		if !slices.Contains(q.Groups, group) {
			return false
		}
	}
	if read := isRead(q.Verb); read && !r.Verbs.reads() || !read && !r.Verbs.writes() {
		return false
	}
	asked := object{isPath: true, path: q.Path}
	if q.Path == "" {
		asked = object{apiGroup: equals(q.APIGroup), resource: equals(q.Resource), namespace: equals(q.Namespace)}
	}
	return r.object().covers(asked)
}

// String prints the region as a sentence without its end: `group "devs" may write deployments.apps in namespace "a"`.
func (r Region) String() string { return r.Who() + " may " + r.What() }

// Who prints the subjects of the region.
func (r Region) Who() string {
	var in string
	switch n := len(r.Groups); n {
	case 0:
	case 1:
		in = fmt.Sprintf("group %q", r.Groups[0])
	default:
		in = "groups " + quoted(r.Groups[:n-1]) + fmt.Sprintf(" and %q", r.Groups[n-1])
	}
	switch {
	case r.User == "*" && in == "":
		return "everybody"
	case r.User == "*" && len(r.Groups) == 1:
		return in
	case r.User == "*":
		return "members of " + in
	case in == "":
		return fmt.Sprintf("user %q", r.User)
	}
	return fmt.Sprintf("user %q in %s", r.User, in)
}

// What prints the verbs and the objects of the region.
func (r Region) What() string {
	verbs := string(r.Verbs)
	if r.Verbs == AllVerbs {
		verbs = "read and write"
	}
	switch r.Path {
	case "":
		return verbs + " " + r.resources()
	case "*":
		return verbs + " every path"
	default:
		return fmt.Sprintf("%s path %q", verbs, r.Path)
	}
}

// resources prints the objects of a region that has no path.
func (r Region) resources() string {
	what := qualified(r.Resource, r.APIGroup)
	switch {
	case r.Resource == "*" && r.APIGroup == "*":
		what = "every resource"
	case r.Resource == "*" && r.APIGroup == "":
		what = "every resource of the core group"
	case r.Resource == "*":
		what = "every resource of group " + r.APIGroup
	case r.APIGroup == "*":
		what = r.Resource + " of every group"
	}
	switch r.Namespace {
	case "*":
		return what
	case "":
		return what + " without a namespace"
	default:
		return fmt.Sprintf("%s in namespace %q", what, r.Namespace)
	}
}

func compareRegions(a, b Region) int {
	return cmp.Or(
		cmp.Compare(a.User, b.User),
		slices.Compare(a.Groups, b.Groups),
		cmp.Compare(a.Path, b.Path),
		cmp.Compare(a.APIGroup, b.APIGroup),
		cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Verbs, b.Verbs),
	)
}
