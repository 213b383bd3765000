// Package negotiate answers how a client that wants a kind in one version is served by a server that may have it in
// others: as it is, in a version to convert to, or not at all. It decides by group and kind, and says when it could not
// look.
package negotiate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Server is what an API server serves. FromFacts makes one of a minor version; an adapter makes one of a server's
// discovery.
type Server struct {
	Name  string        // how answers and errors call it: "1.15", "https://10.0.0.1:6443"
	Minor kubever.Minor // 0 when no facts are known about its version
	// Served holds the resources of each group and version, without subresources.
	Served map[schema.GroupVersion][]Resource
	// Preferred names the version of each group that the server itself prefers.
	Preferred map[string]string
	// Failed holds what discovery could not list, and why; a version "" stands for all of the group. Questions that
	// touch it have no answer.
	Failed map[schema.GroupVersion]error
}

// Resource is one resource of a group and version.
type Resource struct {
	Name         string // plural, as in URLs
	Kind         string
	Namespaced   bool
	Verbs        []string
	Subresources []Subresource
}

// Subresource is one subresource and the kind that is sent to it: {eviction policy/v1beta1 Eviction}. The kind is empty
// where the server does not tell.
type Subresource struct {
	Name string
	Kind schema.GroupVersionKind
}

// Subresource finds a subresource by its name.
func (r Resource) Subresource(name string) (Subresource, bool) {
	i := slices.IndexFunc(r.Subresources, func(s Subresource) bool { return s.Name == name })
	if i < 0 {
		return Subresource{}, false
	}
	return r.Subresources[i], true
}

// Verdict is the kind of an answer.
type Verdict string

// The verdicts.
const (
	Pass        Verdict = "pass"        // the server serves the kind in this version
	Convert     Verdict = "convert"     // it serves the kind in another version
	Unsupported Verdict = "unsupported" // it serves nothing that the kind converts to
)

// Answer says how a kind is served.
type Answer struct {
	Asked   schema.GroupVersionKind
	Verdict Verdict
	// As and Resource are what the server serves; zero when it is unsupported.
	As       schema.GroupVersionKind
	Resource Resource
	// Reason is a sentence about why this version, or why none.
	Reason string
	// Unknown lists the fields of the asked version for which the served one has no field of the same name at the
	// server's minor. A conversion may carry them elsewhere; which are lost of one object only a conversion of that
	// object tells.
	Unknown []string
}

// OfList is the answer for the list of the kind.
func (a Answer) OfList() Answer {
	for _, kind := range []*schema.GroupVersionKind{&a.Asked, &a.As} {
		if kind.Kind != "" {
			kind.Kind += "List"
		}
	}
	return a
}

// IncompleteError says that a question cannot be answered, because the server did not list what the answer depends on.
type IncompleteError struct {
	Asked  schema.GroupVersionKind
	Server string
	Failed schema.GroupVersion // Version "" for all of a group
	Err    error
}

func (e *IncompleteError) Error() string {
	failed := e.Failed.String()
	if e.Failed.Version == "" {
		failed = "the group " + e.Failed.Group
	}
	return fmt.Sprintf("negotiating %s with %s: incomplete: the server did not list %s: %v", kindName(e.Asked),
		e.Server, failed, e.Err)
}

func (e *IncompleteError) Unwrap() error { return e.Err }

// kindName prints a kind as people write it: apps/v1 Deployment.
func kindName(gvk schema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + " " + gvk.Kind
}

// Negotiate answers for one kind. Equivalents are the kinds that the asked one converts to and from, in any order:
// other versions, and other groups through which the kind moved. What has the same name in a group that is not among
// them is another kind.
//
// Of several served versions it takes the one that knows most of the asked version's fields; then one of the same
// group, the one that the server prefers, the newest, and the first by name: one server and one question have one
// answer. Errors: *IncompleteError.
func (s *Server) Negotiate(asked schema.GroupVersionKind, equivalents []schema.GroupVersionKind) (Answer, error) {
	if resource, ok := s.find(asked); ok {
		return Answer{Asked: asked, Verdict: Pass, As: asked, Resource: resource, Reason: s.Name + " serves it"}, nil
	}
	var candidates []candidate
	for _, kind := range append([]schema.GroupVersionKind{asked}, equivalents...) {
		if failure := s.failure(kind); failure != nil {
			failure.Asked = asked
			return Answer{}, failure
		}
		if resource, ok := s.find(kind); ok {
			candidates = append(candidates, candidate{kind, resource, s.unknown(asked, kind)})
		}
	}
	if len(candidates) == 0 {
		return Answer{Asked: asked, Verdict: Unsupported, Reason: s.whyNot(asked, equivalents)}, nil
	}
	best := slices.MinFunc(candidates, func(a, b candidate) int { return s.compare(asked, a, b) })
	return Answer{
		Asked: asked, Verdict: Convert, As: best.kind, Resource: best.resource,
		Reason: s.why(asked, best, candidates), Unknown: best.unknown.paths,
	}, nil
}

// failure is why it is not known whether a kind is served; nil when it is known.
func (s *Server) failure(kind schema.GroupVersionKind) *IncompleteError {
	for _, failed := range []schema.GroupVersion{kind.GroupVersion(), {Group: kind.Group}} {
		if err, ok := s.Failed[failed]; ok {
			return &IncompleteError{Asked: kind, Server: s.Name, Failed: failed, Err: err}
		}
	}
	return nil
}

// find looks a kind up among what is served. A kind may be served under several names, as jobs and their templates are;
// the one with most verbs is the resource itself.
func (s *Server) find(gvk schema.GroupVersionKind) (Resource, bool) {
	var found Resource
	ok := false
	for _, resource := range s.Served[gvk.GroupVersion()] {
		if resource.Kind == gvk.Kind && (!ok || len(resource.Verbs) > len(found.Verbs)) {
			found, ok = resource, true
		}
	}
	return found, ok
}

type candidate struct {
	kind     schema.GroupVersionKind
	resource Resource
	unknown  unknown
}

func (s *Server) compare(asked schema.GroupVersionKind, a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.unknown.fields, b.unknown.fields),
		first(a.kind.Group == asked.Group, b.kind.Group == asked.Group),
		first(s.Preferred[a.kind.Group] == a.kind.Version, s.Preferred[b.kind.Group] == b.kind.Version),
		version.CompareKubeAwareVersionStrings(b.kind.Version, a.kind.Version),
		cmp.Compare(a.kind.String(), b.kind.String()),
	)
}

// first orders what holds before what does not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func (s *Server) why(asked schema.GroupVersionKind, best candidate, candidates []candidate) string {
	reason := fmt.Sprintf("%s does not serve %s", s.Name, asked.GroupVersion())
	if len(candidates) == 1 {
		return reason + "; this is the only version that it has"
	}
	others := make([]string, 0, len(candidates)-1)
	for _, c := range candidates {
		if c.kind != best.kind {
			others = append(others, fmt.Sprintf("%s %d", c.kind.GroupVersion(), c.unknown.fields))
		}
	}
	slices.Sort(others)
	return fmt.Sprintf("%s; of the asked fields this one lacks %d, %s", reason, best.unknown.fields,
		strings.Join(others, ", "))
}

// whyNot explains an unsupported kind by the facts, where there are some.
func (s *Server) whyNot(asked schema.GroupVersionKind, equivalents []schema.GroupVersionKind) string {
	kinds := append([]schema.GroupVersionKind{asked}, equivalents...)
	if s.Minor.Known() {
		var off schema.GroupVersion // the newest that is off
		for _, api := range kubever.APIResources(s.Minor) {
			if slices.Contains(kinds, api.WithKind(api.Kind)) &&
				(off.Empty() || version.CompareKubeAwareVersionStrings(api.Version, off.Version) > 0) {
				off = api.GroupVersion
			}
		}
		if !off.Empty() {
			return fmt.Sprintf("%s has it as %s, which is off: --runtime-config=%s=true turns it on", s.Name, off, off)
		}
	}
	var minors []kubever.Minor
	for _, m := range kubever.Minors() {
		if slices.ContainsFunc(kinds, func(kind schema.GroupVersionKind) bool { return kubever.ServesGVK(kind, m) }) {
			minors = append(minors, m)
		}
	}
	if len(minors) > 0 {
		return fmt.Sprintf("%s has no version of it; Kubernetes serves it in %s", s.Name, kubever.Spans(minors))
	}
	if versions := s.versionsOf(asked.GroupKind()); len(versions) > 0 {
		return fmt.Sprintf("%s serves it as %s, and no conversion is known", s.Name, strings.Join(versions, ", "))
	}
	return fmt.Sprintf("%s does not serve the kind %s in the group %q, and no version of Kubernetes does by default",
		s.Name, asked.Kind, asked.Group)
}

func (s *Server) versionsOf(gk schema.GroupKind) []string {
	var versions []string
	for gv := range maps.Keys(s.Served) {
		if _, ok := s.find(gv.WithKind(gk.Kind)); ok && gv.Group == gk.Group {
			versions = append(versions, gv.String())
		}
	}
	slices.Sort(versions)
	return versions
}

// FromFacts is a server of the minor that serves what it does by default.
func FromFacts(minor kubever.Minor) *Server {
	s := &Server{Name: minor.String(), Minor: minor, Served: map[schema.GroupVersion][]Resource{},
		Preferred: map[string]string{}}
	for _, api := range kubever.APIResources(minor) {
		if !api.DefaultOn.Has(minor) {
			continue
		}
		resource := Resource{Name: api.Name, Kind: api.Kind, Namespaced: api.Namespaced}
		for _, name := range api.Subresources(minor) {
			resource.Subresources = append(resource.Subresources, Subresource{Name: name})
		}
		s.Served[api.GroupVersion] = append(s.Served[api.GroupVersion], resource)
		if preferred := s.Preferred[api.Group]; preferred == "" ||
			version.CompareKubeAwareVersionStrings(api.Version, preferred) > 0 {
			s.Preferred[api.Group] = api.Version
		}
	}
	return s
}

// Of is a server as its discovery shows it. What it could not list is in Failed.
func Of(name string, result *discovery.Result) *Server {
	s := &Server{
		// 0 when it is newer than the facts, which leaves nothing out that they know
		Name: name, Minor: result.Identity.Version.Minor,
		Served: map[schema.GroupVersion][]Resource{}, Preferred: result.Preferred, Failed: result.Failed,
	}
	for gv := range result.Announced {
		if result.State(gv) == discovery.Served {
			s.Served[gv] = []Resource{}
		}
	}
	for _, r := range result.Resources {
		resource := Resource{Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs}
		for _, sub := range r.Subresources {
			resource.Subresources = append(resource.Subresources, Subresource{Name: sub.Name, Kind: sub.Kind})
		}
		s.Served[r.GroupVersion] = append(s.Served[r.GroupVersion], resource)
	}
	return s
}

// InAnotherVersion finds a resource by which a kind that the server lacks is served after all; false when it has the
// kind itself, has no version of it, or did not list what would decide that. It is Negotiate without a choice among
// versions, for callers with many kinds.
func (s *Server) InAnotherVersion(asked schema.GroupVersionKind, equivalents []schema.GroupVersionKind) (
	Resource, bool) {
	if _, ok := s.find(asked); ok {
		return Resource{}, false
	}
	var found Resource
	ok := false
	for _, kind := range append([]schema.GroupVersionKind{asked}, equivalents...) {
		if s.failure(kind) != nil {
			return Resource{}, false
		}
		if resource, served := s.find(kind); served && !ok {
			found, ok = resource, true
		}
	}
	return found, ok
}
