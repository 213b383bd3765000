package convert

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Standing is what a version of a kind is to servers of one minor.
type Standing struct {
	kubever.Lifecycle
	Known  bool                    // the tables know the kind; false for custom resources
	Served bool                    // by default, without --runtime-config
	There  bool                    // compiled in; alpha versions need --runtime-config
	Target schema.GroupVersionKind // what to write instead, the kind itself when it is there; zero when there is nothing
	Reason string                  // why there is nothing
}

// StandingIn tells what a minor makes of a kind. The target is the kind itself while the minor has it, even deprecated; otherwise
// the first of Equivalents that the minor serves by default.
func (c *Converter) StandingIn(gvk schema.GroupVersionKind, minor kubever.Minor) Standing {
	s := Standing{Lifecycle: kubever.LifecycleOf(gvk)}
	s.Known = len(s.Minors) > 0
	s.Served, s.There = s.DefaultOn.Has(minor), s.Minors.Has(minor)
	if s.There {
		s.Target = gvk
		return s
	}
	for _, equivalent := range c.Equivalents(gvk) {
		if kubever.ServesGVK(equivalent, minor) {
			s.Target = equivalent
			return s
		}
	}
	switch {
	case alone[gvk] != "":
		s.Reason = alone[gvk]
	case deadEnds[gvk] != "":
		s.Reason = deadEnds[gvk]
	case s.Known:
		s.Reason = minor.String() + " serves no version of it by default"
	default:
		s.Reason = "the tables do not know this kind; custom resources are up to their definitions"
	}
	return s
}
