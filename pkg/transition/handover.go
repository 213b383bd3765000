package transition

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// handedSet is a set that goes, or has gone.
type handedSet struct {
	kubever.HandOver
	namespace string // whose objects go; "" for those of all
}

// has reports whether a plan has handed over a resource, as far as the set goes.
func (h *handedSet) has(row *plan.Resource) bool {
	_, inOne := slices.BinarySearch(row.HandedOverIn, h.namespace)
	return row.HandedOver || inOne
}

// handedOver are the sets that a plan has handed over.
func handedOver(p *plan.Plan) (sets []handedSet) {
	if p == nil {
		return nil
	}
	for _, set := range kubever.HandOvers() {
		var namespaces []string
		for _, key := range set.Keys {
			row := p.Resource(key)
			switch {
			case row == nil:
			case row.HandedOver || set.Kept && row.Copied:
				namespaces = []string{""}
			case len(row.HandedOverIn) > 0:
				namespaces = row.HandedOverIn
			}
		}
		for _, namespace := range namespaces {
			sets = append(sets, handedSet{set, namespace})
		}
	}
	return sets
}

// sameHandedOver reports whether two plans have handed over the same.
func sameHandedOver(a, b *plan.Plan) bool {
	return len(without(handedOver(a), handedOver(b)))+len(without(handedOver(b), handedOver(a))) == 0
}

// without are the sets of the first list that are not in the second.
func without(sets, others []handedSet) []handedSet {
	return slices.DeleteFunc(slices.Clone(sets), func(set handedSet) bool {
		return slices.ContainsFunc(others, func(o handedSet) bool {
			return o.Keys[0] == set.Keys[0] && (o.namespace == set.namespace || o.namespace == "")
		})
	})
}

// refuseHandOver lists what stands against handing over what only one of two plans has handed over.
func refuseHandOver(from, to Setup) []string {
	back := without(handedOver(from.Plan), handedOver(to.Plan))
	forth := without(handedOver(to.Plan), handedOver(from.Plan))
	var reasons []string
	if len(back) > 0 {
		reasons = append(reasons, fmt.Sprintf("spec.handedOver: %s: only the steps that handed them over have "+
			"recorded which objects these were: fusionctl transition undo brings them back",
			strings.Join(namesOf(to.Plan, from.Plan, back), ", ")))
	}
	if len(forth) == 0 {
		return reasons
	}
	if from.Plan == nil {
		return append(reasons, "spec.handedOver: nothing can be handed over to a side that does not run yet: install "+
			"without it, then hand over")
	}
	if slices.ContainsFunc(forth, func(set handedSet) bool { return set.Defines }) {
		for _, side := range pair.Sides() {
			if collects(side, from.Plan, to.Plan) {
				reasons = append(reasons, fmt.Sprintf("spec.handedOver: the garbage collector of the %s side runs: it "+
					"would find what custom resources own without them, and delete it", side))
			}
		}
	}
	for _, side := range pair.Sides() {
		if from.Plan.Side(side).Version != to.Plan.Side(side).Version {
			reasons = append(reasons, fmt.Sprintf("spec.handedOver: the %s version changes at the same time: hand "+
				"over before, or afterwards", side))
		}
	}
	if from.Target != to.Target {
		reasons = append(reasons,
			"spec.handedOver: the target changes at the same time: hand over before, or afterwards")
	}
	if pods := to.Plan.Resource("pods"); pods == nil || !pods.VisibleToBoth() {
		reasons = append(reasons, "spec.handedOver: the sides do not share pods: they would be recreated")
	}
	return reasons
}

// namesOf are the resources of sets, as URLs have them.
func namesOf(p, otherwise *plan.Plan, sets []handedSet) (names []string) {
	if p == nil {
		p = otherwise
	}
	for _, set := range sets {
		for _, key := range set.Keys {
			row := p.Resource(key)
			switch {
			case row == nil:
			case set.namespace != "":
				names = append(names, set.namespace+"/"+row.Name)
			default:
				names = append(names, row.Name)
			}
		}
	}
	return names
}

// readHandOver finds what is handed over. Whatever acts for these objects, or collects what they own, stops meanwhile:
// the controllers of the modern side and those of both sides, though their files stay; and those of the legacy side,
// where they go on to act for other namespaces.
func (b *builder) readHandOver(was, is []render.Part) {
	for _, set := range without(handedOver(b.to.Plan), handedOver(b.from.Plan)) {
		switch {
		case set.Defines:
			b.defining = append(b.defining, set)
		case set.Kept:
			b.kept = append(b.kept, set)
		case set.Programs != "":
			b.served = append(b.served, set)
		default:
			b.sets = append(b.sets, set)
		}
	}
	if !b.handsOver() {
		return
	}
	for i := range is {
		c := is[i].Component
		at := slices.IndexFunc(was, func(p render.Part) bool { return same(&p, &is[i]) })
		changed := slices.ContainsFunc(b.changes, func(o change) bool {
			return o.component().Host == c.Host && o.component().Name == c.Name
		})
		stops := joint(c) || daemon(pair.Modern)(c) ||
			b.pauses() && c.Side == pair.Legacy && c.Kind == kubever.ControllerManager
		if at >= 0 && !changed && stops {
			b.changes = append(b.changes, change{was: &was[at], is: &is[i]})
		}
	}
}

// handsOver reports whether objects go while no controller acts for them.
func (b *builder) handsOver() bool { return len(b.sets)+len(b.defining) > 0 }

// pauses reports whether the legacy controllers stop while objects go, and start afterwards as they were: they act for
// other namespaces.
func (b *builder) pauses() bool {
	return slices.ContainsFunc(b.sets, func(set handedSet) bool { return set.namespace != "" })
}

// pauseExisting has a person stop those that run from files of their own.
func (b *builder) pauseExisting(pauses bool) {
	if !b.pauses() {
		return
	}
	for _, h := range b.to.Plan.Hosts {
		names, stop, start := b.byHand(h.Name, kubever.ControllerManager)
		if names == "" {
			continue
		}
		s := Step{Phase: Stop, Host: h.Name, Title: "stop " + names + " while objects go", Do: stop, Undo: start}
		p := b.from.Plan
		if !pauses {
			s = Step{Phase: LegacyMgr, Host: h.Name, Title: "start " + names + " again", Do: start, Undo: stop}
			p = b.to.Plan
		}
		for _, c := range existingOf(p) {
			if args := neededArgs(c); c.Host == h.Name && c.Kind == kubever.ControllerManager && len(args) > 0 {
				start.After = append(start.After, b.runs(c, args).Before...)
			}
		}
		b.add(s)
	}
}

// beforeHandOver are the steps before anything stops, in the order of the way back its last: the legacy controllers
// give these objects up first, and have them again at the end of all.
func (b *builder) beforeHandOver() {
	if !b.handsOver() {
		return
	}
	for _, set := range b.sets {
		b.addAdopted(set, true)
	}
	b.beforeDefinitions() // operators are scaled down while the controllers of Deployments run
	b.existing()
}

// handOverServed hands over what programs of the cluster act for, while all of the control plane runs: first the
// objects are in both stores, then a person sees that the programs of the other side serve them, then the originals go.
// On the way back the same in the other direction.
func (b *builder) handOverServed() {
	for _, set := range b.served {
		forth, back := b.objects(set, false), b.objects(set, true)
		names := forth.what()
		add := func(title string, do, undo *Action) {
			b.add(Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Title: title, Do: do, Undo: undo})
		}
		copied := func(o *Objects) *Objects {
			c := *o
			c.Plan.Copy = true
			return &c
		}
		there := func(o *Objects) *Action {
			return &Action{Kind: RunChecks, Before: []Check{{Kind: Adopted, Objects: o,
				Hint: "fusionctl etcd ls shows them"}}}
		}
		add("on the way back: "+names+" are where they were", nil, there(back))
		copies := &Action{Kind: HandOver, Objects: copied(forth)}
		add(copies.changes(), copies, b.handBack(b.from.Plan, back))
		add("the "+set.Programs+" of the other side serve "+names, programs(set, names, pair.Modern),
			programs(set, names, pair.Legacy))
		goes := &Action{Kind: HandOver, Objects: forth}
		add(goes.changes(), goes, b.handBack(b.from.Plan, copied(back)))
		add(names+" are with the modern side", there(forth), b.mayGoBack(b.from.Plan, copied(back)))
	}
}

// handOverKept gives the modern side what API servers of both sides act for.
func (b *builder) handOverKept() {
	for _, set := range b.kept {
		forth, back := b.objects(set, false), b.objects(set, true)
		names, host := forth.what(), b.to.Plan.Hosts[0].Name
		forth.Plan.Copy = true
		copies := &Action{Kind: HandOver, Objects: forth}
		b.add(Step{Phase: HandingOver, Host: host, Title: copies.changes(), Do: copies,
			Undo: b.handBack(b.from.Plan, back)})
		b.add(Step{Phase: HandingOver, Host: host, Title: "both sides have " + names,
			Do:   &Action{Kind: RunChecks, Before: []Check{{Kind: Adopted, Objects: forth}}},
			Undo: b.mayGoBack(b.from.Plan, back)})
	}
}

func programs(set handedSet, names string, side pair.Side) *Action {
	return &Action{Kind: ByHand, Text: fmt.Sprintf("%s are in both stores now, and the next step removes those of the "+
		"%s side: see that %s that read them through the %s API server, or through the gateway, serve all of them "+
		"and get the traffic, and that those that read them through the %s API server are stopped or have no "+
		"traffic: they drop the routes of what is removed", names, side.Other(), set.Programs, side, side.Other())}
}

func (b *builder) addAdopted(set handedSet, back bool) {
	objects := b.objects(set, back)
	side := pair.Modern
	if back {
		side = pair.Legacy
	}
	a := &Action{Kind: RunChecks, Before: []Check{{Kind: Adopted, Objects: objects,
		Hint: fmt.Sprintf("the log of the %s controller manager says what it does with them", side)}}}
	names := objects.what()
	s := Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Do: a,
		Title: fmt.Sprintf("the %s controllers act for %s, and their pods stay", side, names)}
	shows := func(r handover.Resource) bool { return handover.Observed(r.Kind) }
	if !slices.ContainsFunc(objects.Plan.Resources, shows) {
		s.Title = fmt.Sprintf("the pods of %s stay; the objects do not show whether the %s controllers act", names,
			side)
	}
	if back {
		s.Do, s.Undo, s.Title = nil, a, "on the way back: "+s.Title
	}
	b.add(s)
}

// handOver moves the objects, when no controller of either side acts for them.
func (b *builder) handOver() {
	b.handOverDefinitions()
	for _, set := range b.sets {
		forth := &Action{Kind: HandOver, Objects: b.objects(set, false)}
		back := b.handBack(b.to.Plan, b.objects(set, true))
		b.add(Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Title: forth.changes(), Do: forth, Undo: back})
	}
	if !b.handsOver() || b.pauses() {
		return
	}
	for _, c := range existingOf(b.to.Plan) {
		if needed := neededArgs(c); c.Kind == kubever.ControllerManager && len(needed) > 0 {
			b.add(Step{Phase: HandingOver, Host: c.Host, Title: "on the way back: " + c.Name +
				" does not act for them yet", Undo: b.runs(c, needed)})
		}
	}
}

// afterHandOver verifies that the modern side acts for them. On the way back it is the first of all: what stands
// against it is found while everything serves.
func (b *builder) afterHandOver() {
	for _, set := range b.sets {
		b.addAdopted(set, false)
	}
	for _, set := range b.sets {
		objects := b.objects(set, true)
		b.add(Step{Phase: HandingOver, Host: b.to.Plan.Hosts[0].Name, Title: "on the way back: " +
			objects.what() + " can be handed back", Undo: b.mayGoBack(b.to.Plan, objects)})
	}
	b.afterDefinitions()
}

// mayGo looks before anything changes whether the objects can be handed over.
func (b *builder) mayGo() {
	for _, set := range slices.Concat(b.kept, b.sets, b.served) {
		objects := b.objects(set, false)
		objects.Plan.Copy = set.Programs != "" || set.Kept
		b.add(Step{Phase: Prepare, Host: b.to.Plan.Hosts[0].Name,
			Title: objects.what() + " can be handed over", Do: b.mayGoOne(objects)})
	}
	b.definitionsMayGo()
}

func (b *builder) mayGoOne(objects *Objects) *Action {
	return &Action{Kind: RunChecks, Before: []Check{{Kind: MayGo, Objects: objects,
		Hint: "nothing was changed; fix it and run this again"}}}
}

// objects is what goes of a set, to the modern side or back to the legacy one.
func (b *builder) objects(set handedSet, back bool) *Objects {
	p := b.to.Plan
	to := pair.Modern
	if back {
		to = pair.Legacy
	}
	o := &Objects{Record: "hand-over-" + path.Base(set.Subjects[0]), Plan: handover.Plan{Prefix: p.Prefix, Back: back,
		Namespace: set.namespace, Pods: "pods", APIVersions: map[string]map[string]string{},
		Aggregated: set.Aggregated, Kept: set.Kept, Collects: collects(to.Other(), b.from.Plan, b.to.Plan),
		Custom: len(b.defining) > 0}}
	if set.namespace != "" {
		o.Record += "." + set.namespace
	}
	if kubever.Behaves(kubever.BehaviourCronJobsMissed, p.Side(to).Version.Minor) {
		o.Plan.MostMissed = mostMissed
	}
	for _, key := range set.Keys {
		row := p.Resource(key)
		if row == nil || !set.has(row) && !row.Copied {
			continue
		}
		o.From, o.To = *p.Store(row.View(to.Other()).Store), *p.Store(row.View(to).Store)
		o.Names = append(o.Names, row.Name)
		resource := b.resourceOf(row, to, set)
		switch {
		case set.Defines:
			resource.By = handover.ByMetadata
			o.Plan.Words = p.Side(to).Version.Minor
		case set.Programs != "", set.Kept:
			resource.Compared = row.Modern.StoredAs
		}
		o.Plan.Resources = append(o.Plan.Resources, resource)
		o.Plan.DropManagedFields = o.Plan.DropManagedFields ||
			slices.ContainsFunc(resource.Drops, func(path string) bool {
				return strings.HasPrefix(path, pair.ManagedFields)
			})
	}
	for _, kept := range b.kept {
		o.Plan.Comes = append(o.Plan.Comes, kept.Keys...)
	}
	for _, key := range p.StartupWrites {
		if set.Kept && key.Side == to.Other() {
			o.Plan.Boot = append(o.Plan.Boot, key)
		}
	}
	for i := range p.Resources {
		row := &p.Resources[i]
		switch {
		case set.has(row):
			o.Plan.Kinds = append(o.Plan.Kinds, groupKinds(row)...)
			if renamed := unserved(row, to); len(renamed) > 0 { // a scale target may be of another set
				o.Plan.APIVersions[row.Kind] = renamed
			}
		case slices.Contains(set.References, row.Key) && row.Legacy.Store != "" && !back:
			o.Plan.Absent = append(o.Plan.Absent, row.Key)
		}
	}
	o.Pods = p.Resource("pods").View(to).Store
	if in := p.Resource("namespaces").Legacy.Store; in == o.From.Name || in == o.To.Name {
		o.Plan.NamespacesIn = in
	}
	return o
}

// mostMissed is after how many missed times old controllers start a CronJob no more. Source: that of the behaviour.
const mostMissed = 100

// collects reports whether the garbage collector of a side runs in one of the plans.
func collects(side pair.Side, plans ...*plan.Plan) bool {
	return slices.ContainsFunc(plans, func(p *plan.Plan) bool {
		c := p.Controller(side, "garbage-collector-controller")
		return c != nil && c.On
	})
}

// groupKinds is the kind of a resource with each group that ever served it.
func groupKinds(row *plan.Resource) (kinds []string) {
	fact, _ := kubever.ResourceByKey(row.Key)
	for _, gv := range fact.GroupVersions() {
		if kind := gv.WithKind(row.Kind).GroupKind().String(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// resourceOf is the same for every namespace.
func (b *builder) resourceOf(row *plan.Resource, to pair.Side, set handedSet) handover.Resource {
	if r, known := b.resources[to][row.Key]; known {
		return r
	}
	view := row.View(to)
	r := handover.Resource{Key: row.Key, Kind: row.Kind, StoredAs: view.StoredAs,
		Subject: slices.Contains(set.Subjects, row.Key), Ended: slices.Contains(set.Ended, row.Key)}
	for _, gv := range view.Decodes {
		if view.Reads(gv) {
			r.Reads = append(r.Reads, gv)
		}
	}
	r.Drops, r.Implied = b.to.Plan.Drops(row.Key, to)
	if b.resources == nil {
		b.resources = map[pair.Side]map[string]handover.Resource{pair.Legacy: {}, pair.Modern: {}}
	}
	b.resources[to][row.Key] = r
	return r
}

// unserved are the group/versions of a resource that a side does not serve, each with the one that takes its place.
func unserved(row *plan.Resource, side pair.Side) map[string]string {
	view := row.View(side)
	if len(view.Serves) == 0 {
		return nil
	}
	instead := view.StoredAs
	if !slices.Contains(view.Serves, instead) {
		instead = view.Serves[0]
	}
	fact, _ := kubever.ResourceByKey(row.Key)
	renamed := map[string]string{}
	for _, gv := range fact.GroupVersions() {
		if !slices.Contains(view.Serves, gv.String()) {
			renamed[gv.String()] = instead
		}
	}
	return renamed
}
