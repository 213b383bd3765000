package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Request is an authorization request: a user and a verb on a resource, or on a path. Shape:
// {"user":"alice","groups":["devs"],"verb":"get","apiGroup":"","resource":"pods","namespace":"a"} or
// {...,"path":"/healthz"}
type Request struct {
	User        string   `json:"user"`
	Groups      []string `json:"groups,omitempty"`
	Verb        string   `json:"verb"`
	APIGroup    string   `json:"apiGroup,omitempty"`
	Resource    string   `json:"resource,omitempty"`
	Subresource string   `json:"subresource,omitempty"`
	Namespace   string   `json:"namespace,omitempty"`
	ObjectName  string   `json:"objectName,omitempty"`
	Path        string   `json:"path,omitempty"` // not empty: the request is for this path and not for a resource
}

// Attributes is the request as an authorizer wants it.
func (r Request) Attributes() authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: r.User, Groups: r.Groups}, Verb: r.Verb, ResourceRequest: r.Path == "",
		Path:     r.Path,
		APIGroup: r.APIGroup, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace,
		Name: r.ObjectName,
	}
}

// Authenticated is the request with the groups that an API server adds to authenticated users, and that tools such as
// kubectl's --as therefore need not name: system:authenticated, the groups of a service account, and
// system:unauthenticated for system:anonymous. A request that is in one of the first and the last already stays as it
// is.
func (r Request) Authenticated() Request {
	groups := slices.Clone(r.Groups)
	add := func(group string) {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	if rest, ok := strings.CutPrefix(r.User, serviceAccountPrefix); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok && namespace != "" && name != "" && len(r.Groups) == 0 {
			add("system:serviceaccounts")
			add("system:serviceaccounts:" + namespace)
		}
	}
	switch {
	case slices.Contains(groups, GroupAuthenticated), slices.Contains(groups, GroupUnauthenticated):
	case r.User == UserAnonymous:
		add(GroupUnauthenticated)
	default:
		add(GroupAuthenticated)
	}
	r.Groups = groups
	return r
}

const serviceAccountPrefix = "system:serviceaccount:"

// String prints the request in words: `user "alice" in group "devs" may not ...` needs only the verb put before it.
func (r Request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "user %q", r.User)
	if len(r.Groups) > 0 {
		fmt.Fprintf(&b, " in %s", quoted(r.Groups))
	}
	fmt.Fprintf(&b, ": %s ", r.Verb)
	if r.Path != "" {
		b.WriteString(r.Path)
		return b.String()
	}
	b.WriteString(qualified(r.Resource, r.APIGroup))
	if r.Subresource != "" {
		b.WriteString("/" + r.Subresource)
	}
	if r.ObjectName != "" {
		fmt.Fprintf(&b, " %q", r.ObjectName)
	}
	if r.Namespace != "" {
		fmt.Fprintf(&b, " in namespace %q", r.Namespace)
	}
	return b.String()
}

func quoted(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, ", ")
}

// qualified prints a resource with its group, "deployments.apps"; the core group has no name.
func qualified(resource, apiGroup string) string {
	if apiGroup == "" {
		return resource
	}
	return resource + "." + apiGroup
}
