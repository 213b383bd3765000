package stream

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Chooser names the kind that an object is to become; the kind itself when it is to stay.
// Errors: *convert.UnsupportedError.
type Chooser func(schema.GroupVersionKind) (schema.GroupVersionKind, error)

// ForMinor takes for every kind what stands in for it in a release, and leaves kinds that Kubernetes does not have.
func ForMinor(c *convert.Converter, minor kubever.Minor) Chooser {
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		if why := c.Misnamed(gvk); why != "" {
			return gvk, &convert.UnsupportedError{From: gvk, Reason: why}
		}
		s := c.StandingIn(gvk, minor)
		if s.Target.Empty() && (s.Known || c.Knows(gvk)) {
			return gvk, &convert.UnsupportedError{
				From: gvk, Reason: fmt.Sprintf("nothing for it in %s: %s", minor, s.Reason)}
		}
		if s.Target.Empty() {
			return gvk, nil
		}
		return s.Target, nil
	}
}

// ToVersion turns every kind that has the version into it, and leaves the others.
func ToVersion(c *convert.Converter, gv schema.GroupVersion) Chooser {
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		if why := c.Misnamed(gvk); why != "" {
			return gvk, &convert.UnsupportedError{From: gvk, Reason: why}
		}
		if gvk.GroupVersion() == gv {
			return gvk, nil
		}
		for _, equivalent := range c.Equivalents(gvk) {
			if equivalent.GroupVersion() == gv {
				return equivalent, nil
			}
		}
		if gvk.Group == gv.Group && c.Knows(gvk) {
			return gvk, c.Supports(gvk, gv.WithKind(gvk.Kind))
		}
		return gvk, nil
	}
}

// remembered asks once for each kind. Workers ask at the same time.
func remembered(choose Chooser) Chooser {
	type choice struct {
		kind schema.GroupVersionKind
		err  error
	}
	var choices sync.Map
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		if made, ok := choices.Load(gvk); ok {
			return made.(choice).kind, made.(choice).err
		}
		kind, err := choose(gvk)
		choices.Store(gvk, choice{kind, err})
		return kind, err
	}
}

// ForServer takes for every kind what negotiation with a server answers: the kind itself where the server has it,
// otherwise the equivalent of which it has most. Errors: *negotiate.IncompleteError, too.
func ForServer(c *convert.Converter, server *negotiate.Server) Chooser {
	return func(gvk schema.GroupVersionKind) (schema.GroupVersionKind, error) {
		answer, err := server.Negotiate(gvk, c.Equivalents(gvk))
		switch {
		case err != nil:
			return gvk, err
		case answer.Verdict == negotiate.Unsupported:
			if why := c.Misnamed(gvk); why != "" {
				return gvk, &convert.UnsupportedError{From: gvk, Reason: why}
			}
			return gvk, &convert.UnsupportedError{From: gvk, Reason: answer.Reason}
		}
		return answer.As, nil
	}
}
