// Package discovery is what an API server says of itself, as plain data: which version it is, which resources it
// serves, which groups it could not list; and the paths that lead to what it serves. Package apiserver asks a server
// for it.
package discovery

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path leads to something on an API server: a page, a collection, or an object. Every segment of it has been validated
// and is escaped, so a name from an object leads nowhere but to an object of that name. A path that cannot be built
// holds the reason and is refused when a request is sent to it.
type Path struct {
	text string
	err  error

	groupVersion    schema.GroupVersion // of the answer; empty when it is not the resource's
	kind            string
	namespace, name string
}

// Page is the path of what is not an object: Page("version"), Page("apis", "apps", "v1").
func Page(segments ...string) Path {
	var p Path
	for _, segment := range segments {
		p.append(segment)
	}
	return p
}

func (p *Path) append(segment string) {
	if p.err != nil {
		return
	}
	problems := content.IsPathSegmentName(segment)
	if segment == "" {
		problems = []string{"is empty"}
	}
	if len(problems) > 0 {
		p.err = fmt.Errorf("%q cannot be part of a path: %s: %w", segment, strings.Join(problems, ", "), ErrInvalidPath)
		return
	}
	p.text += "/" + url.PathEscape(segment)
}

// ErrInvalidPath is wrapped by the error of a path with a segment that is empty, a dot, two dots, or has a slash or a
// percent sign.
var ErrInvalidPath = errors.New("invalid path")

// String is the path as a URL has it, escaped.
func (p Path) String() string { return p.text }

// Err is why the path leads nowhere: it wraps ErrInvalidPath. nil for a good one.
func (p Path) Err() error {
	if p.err == nil && p.text == "" {
		return fmt.Errorf("the path is empty: %w", ErrInvalidPath)
	}
	return p.err
}

// GroupVersion and Kind are those of the objects at the path; empty for pages, and for subresources that speak another
// kind.
func (p Path) GroupVersion() schema.GroupVersion { return p.groupVersion }
func (p Path) Kind() string                      { return p.kind }

// Namespace is that of the object or the collection; "" for cluster-scoped ones and for all namespaces.
func (p Path) Namespace() string { return p.namespace }

// Name is that of the object; "" for collections and pages.
func (p Path) Name() string { return p.name }

// IsPage reports whether the path leads to a page: something that is no object and no collection of a resource.
func (p Path) IsPage() bool { return p.groupVersion.Version == "" && p.name == "" }
