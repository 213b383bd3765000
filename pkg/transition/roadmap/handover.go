package roadmap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// handedOver is what can be handed over in a state, whole.
type handedOver struct {
	state state // with all of it in its list
	plan  *plan.Plan
	stays []staying // in the order of the table
}

// staying is a set that the legacy side has and that cannot be handed over.
type staying struct {
	set kubever.HandOver
	why string
}

func (s *staying) names() string {
	var names []string
	for _, key := range s.set.Subjects {
		names = append(names, subject(key))
	}
	return strings.Join(names, ", ")
}

// handOver hands over all that can be, and completes what single namespaces have handed over.
func (w *way) handOver(kubever.Version) error {
	h := w.handedOver(w.at, w.last)
	if h == nil {
		return nil
	}
	if slices.Equal(h.state.handed, w.at.handed) {
		return nil
	}
	stage, err := w.stage(HandOver, w.last, h.plan)
	if err != nil {
		return err
	}
	stage.Change = []string{"spec.handedOver: [" + strings.Join(h.state.handed, ", ") + "]"}
	for _, s := range h.stays {
		stage.Stays = append(stage.Stays, fmt.Sprintf("%s: %s; delete their objects, and create them again through "+
			"the modern API server, before the legacy side is retired", s.names(), s.why))
	}
	w.reach(stage, h.state, h.plan)
	return nil
}

// handedOver adds to the list of a state all for which there is a plan and a transition to it from the plan of the
// state: at once, and where that is refused, set by set. Nil where nothing can be handed over.
func (r *router) handedOver(at state, from *plan.Plan) *handedOver {
	if at.retired || from.Layout == spec.LayoutShared {
		return nil
	}
	h := &handedOver{state: at, plan: from}
	var sets []kubever.HandOver
	for _, set := range kubever.HandOvers() {
		if len(subjectsOf(set, from)) == 0 || slices.ContainsFunc(at.handed, func(entry string) bool {
			return spec.HandOverNames(entry, set)
		}) {
			continue
		}
		if why := plan.Stays(set, at.legacy.Minor, at.modern.Minor); why != "" {
			h.stays = append(h.stays, staying{set, why})
			continue
		}
		sets = append(sets, set)
	}
	if r.add(h, from, sets...) == "" {
		return h
	}
	for _, set := range sets {
		if why := r.add(h, from, set); why != "" {
			h.stays = append(h.stays, staying{set, why})
		}
	}
	return h
}

// allResources stands for all that can be handed over of a namespace.
const allResources = "*"

// add hands sets over in addition, or says why they stay.
func (r *router) add(h *handedOver, from *plan.Plan, sets ...kubever.HandOver) string {
	next := h.state
	next.handed = slices.Clone(next.handed)
	for _, set := range sets {
		next.handed = append(slices.DeleteFunc(next.handed, func(entry string) bool {
			namespace, resource := spec.SplitHandOver(entry)
			return namespace != "" && resource != allResources && spec.HandOverNames(resource, set)
		}), subjectsOf(set, from)...)
	}
	next.handed = withoutNamespaces(next.handed, from)
	if slices.Equal(next.handed, h.state.handed) {
		return ""
	}
	p, err := r.plan(next)
	if err != nil {
		return err.Error()
	}
	_, refused, err := r.transition(from, p, false)
	switch {
	case err != nil:
		return err.Error()
	case len(refused) > 0:
		return strings.Join(refused, "; ")
	}
	h.state, h.plan = next, p
	return ""
}

// withoutNamespaces leaves out what is about all of a namespace once all that goes of single ones has gone of all.
func withoutNamespaces(entries []string, p *plan.Plan) []string {
	for _, set := range kubever.HandOvers() {
		if set.ByNamespace() && len(subjectsOf(set, p)) > 0 && !slices.ContainsFunc(entries, func(entry string) bool {
			return spec.HandOverNames(entry, set)
		}) {
			return entries
		}
	}
	return slices.DeleteFunc(entries, func(entry string) bool {
		namespace, _ := spec.SplitHandOver(entry)
		return namespace != ""
	})
}

// subjectsOf are the resources of a set that both sides have, as specs name them.
func subjectsOf(set kubever.HandOver, p *plan.Plan) (names []string) {
	for _, key := range set.Subjects {
		if row := p.Resource(key); row != nil && row.Legacy.Store != "" && row.Modern.Store != "" {
			names = append(names, subject(key))
		}
	}
	return names
}

func subject(key string) string {
	fact, _ := kubever.ResourceByKey(key)
	stored, _ := fact.StoredAs(kubever.Newest)
	return fact.Name + "." + stored.Group
}
