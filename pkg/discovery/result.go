package discovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Result is what a server said that it serves. An absence in it is a fact only where nothing of the group failed and
// the server was ready.
type Result struct {
	// Identity is without the UID of kube-system.
	Identity Identity
	// Resources are what is served: in the order in which the server announces its groups, the preferred version of
	// each first.
	Resources []Resource
	// Announced are the versions of groups that the server names, whether it lists any resource in them or not.
	Announced map[schema.GroupVersion]bool
	// Preferred names the version of each announced group that the server itself prefers.
	Preferred map[string]string
	// Failed holds what was announced and could not be listed, and why. It may hold anything.
	Failed map[schema.GroupVersion]error
	// Unready is why the server did not call itself ready both before and after it was asked: one that starts announces
	// few of its groups, and says nothing of the others. nil when it was ready.
	Unready error
	// Asked is when the question began, by the clock of this process.
	Asked time.Time
}

// State is what is known about a group's version on a server.
type State int

const (
	Absent State = iota // not announced
	Served              // announced, and its resources were listed
	Failed              // announced, and its resources could not be listed
)

// State looks a group's version up.
func (r *Result) State(gv schema.GroupVersion) State {
	if _, failed := r.Failed[gv]; failed {
		return Failed
	}
	if r.Announced[gv] {
		return Served
	}
	return Absent
}

// Failure is why nothing can be said about what the groups lack; nil when something can.
func (r *Result) Failure(groups ...string) error {
	for _, gv := range r.failed() {
		if slices.Contains(groups, gv.Group) {
			return fmt.Errorf("listing the resources of %s: %w", gv, r.Failed[gv])
		}
	}
	return nil
}

// Gaps joins all reasons for which the result may lack something that the server has; nil when there is none. A server
// that does not permit the question whether it is ready counts as ready.
func (r *Result) Gaps() error {
	var problems []error
	if r.Unready != nil && !errors.Is(r.Unready, ErrForbidden) {
		problems = append(problems, r.Unready)
	}
	for _, gv := range r.failed() {
		problems = append(problems, fmt.Errorf("listing the resources of %s: %w", gv, r.Failed[gv]))
	}
	return errors.Join(problems...)
}

func (r *Result) failed() []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(r.Failed), func(a, b schema.GroupVersion) int {
		return strings.Compare(a.String(), b.String())
	})
}

// OfKind lists the versions of the resources that hold objects of a kind, the group's preferred one first.
func (r *Result) OfKind(gk schema.GroupKind) []Resource {
	return r.where(func(found Resource) bool { return found.GroupKind() == gk })
}

// Named lists the versions of a resource, the group's preferred one first.
func (r *Result) Named(gr schema.GroupResource) []Resource {
	return r.where(func(found Resource) bool { return found.GroupResource() == gr })
}

func (r *Result) where(wanted func(Resource) bool) []Resource {
	var found []Resource
	for _, resource := range r.Resources {
		if wanted(resource) {
			found = append(found, resource)
		}
	}
	return found
}
