package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// uid is the hash of an object's UID.
type uid [16]byte

func hashed(text string) (u uid) {
	h := fnv.New128a()
	h.Write([]byte(text))
	h.Sum(u[:0])
	return u
}

// sideSet is a set of sides.
type sideSet uint8

func setOf(sides ...pair.Side) (set sideSet) {
	for _, side := range sides {
		set |= 1 << slices.Index(pair.Sides(), side)
	}
	return set
}

func (s sideSet) has(side pair.Side) bool { return s&setOf(side) != 0 }

// owners knows which objects each side has, and what refers to objects that a side may look for in vain.
type owners struct {
	plain   func(side pair.Side, r *reference) bool // whether a side finds an owner of the kind when it has it
	present map[uid]sideSet
	kinds   map[reference]uint32
	byIndex []reference
	waiting map[waiting]*dependents
	several []dependent // objects with more than one owner: they stay as long as one of these does
}

// reference is a kind of reference: from objects of a collection to a kind of owner.
type reference struct {
	collection string
	kind       schema.GroupVersionKind
	namespaced bool    // whether the dependents are
	seen       sideSet // by whom the dependents are
	plain      bool    // every side that sees them finds such an owner when it has it
}

type waiting struct {
	owner uid
	kind  uint32
}

// dependents are those of one owner.
type dependents struct {
	namespace, owner, ownerUID string
	count                      int
	example                    dependent
}

// dependent is an object and its owners.
type dependent struct {
	namespace, name, uid string
	in                   *collection
	owners               []ownerOf
}

type ownerOf struct {
	kind      uint32
	name, uid string
}

func newOwners(plain func(pair.Side, *reference) bool) *owners {
	return &owners{plain: plain, present: map[uid]sideSet{}, kinds: map[reference]uint32{},
		waiting: map[waiting]*dependents{}}
}

// alone returns the one side that has the object.
func (w *owners) alone(id string) (pair.Side, bool) {
	switch w.present[hashed(id)] {
	case setOf(pair.Legacy):
		return pair.Legacy, true
	case setOf(pair.Modern):
		return pair.Modern, true
	}
	return "", false
}

// meet notes that the object is there, and what it refers to.
func (w *owners) meet(in *collection, o *object) {
	seen := setOf(in.seen...)
	w.present[hashed(o.Metadata.UID)] |= seen
	references := o.Metadata.OwnerReferences
	if len(references) == 0 || o.Metadata.DeletionTimestamp != "" {
		return
	}
	d := dependent{namespace: o.Metadata.Namespace, name: o.Metadata.Name, uid: o.Metadata.UID, in: in}
	for _, r := range references {
		d.owners = append(d.owners, ownerOf{kind: w.kindOf(in, schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)),
			name: r.Name, uid: string(r.UID)})
	}
	if len(references) > 1 {
		w.several = append(w.several, d)
		return
	}
	of := waiting{hashed(d.owners[0].uid), d.owners[0].kind}
	if w.byIndex[of.kind].plain && w.present[of.owner]&seen == seen {
		return
	}
	if w.waiting[of] == nil {
		w.waiting[of] = &dependents{namespace: d.namespace, owner: d.owners[0].name, ownerUID: d.owners[0].uid,
			example: d}
	}
	w.waiting[of].count++
}

func (w *owners) kindOf(in *collection, gvk schema.GroupVersionKind) uint32 {
	r := reference{collection: in.name, kind: gvk, namespaced: in.Namespaced, seen: setOf(in.seen...)}
	index, known := w.kinds[r]
	if !known {
		index = uint32(len(w.byIndex))
		w.kinds[r] = index
		r.plain = !slices.ContainsFunc(in.seen, func(side pair.Side) bool { return !w.plain(side, &r) })
		w.byIndex = append(w.byIndex, r)
	}
	return index
}

// finds reports whether a side that has an owner of the kind finds it, as the reference names it.
func (c *checker) finds(side pair.Side, r *reference) bool {
	return slices.ContainsFunc(c.catalogs[side].OfKind(r.kind.GroupKind()), func(k discovery.Resource) bool {
		return k.Version == r.kind.Version && k.Namespaced == r.namespaced
	})
}

// see is what the garbage collector of a side sees of the owner of a kind of reference, and the kind that it looks the
// owner up in.
func (c *checker) see(side pair.Side, r *reference, owner uid) (gc.Sight, discovery.Resource) {
	catalog := c.catalogs[side]
	reference := gc.Reference{Namespaced: r.namespaced}
	found := catalog.OfKind(r.kind.GroupKind())
	if len(found) == 0 {
		if catalog.Failure(r.kind.Group) != nil {
			return gc.Undecided, discovery.Resource{}
		}
		facts := c.plan.Side(side)
		reference.KnownKind = facts.Facts.Collector.KnowsUnserved &&
			kubever.GarbageCollectorKnows(r.kind.GroupKind(), facts.Version.Minor)
		return reference.Sight(), discovery.Resource{}
	}
	reference.KnownKind = true
	at := slices.IndexFunc(found, func(k discovery.Resource) bool { return k.Version == r.kind.Version })
	if at < 0 {
		return reference.Sight(), discovery.Resource{}
	}
	k := found[at]
	name := k.Name + "." + k.Group
	if row := c.plan.Row(k.GroupResource()); row != nil {
		name = row.Key
	}
	reference.ServedVersion, reference.OwnerNamespaced = true, k.Namespaced
	switch {
	case c.failed[place{side, name}] || !k.Can("list"):
		reference.Owner = gc.Unsure
	case c.owners.present[owner].has(side):
		reference.Owner = gc.Present
	default:
		reference.Owner = gc.Missing
	}
	return reference.Sight(), k
}

// outcome is what the collector of a side does with an object whose owner it sees so.
func (c *checker) outcome(side pair.Side, seen gc.Sight) gc.Outcome {
	collector := c.plan.Side(side).Facts.Collector
	return collector.Outcome(seen)
}

// dangling groups what is found: one finding for each.
type dangling struct {
	side       pair.Side // that looks for the owner in vain; "" when no side that could have it does
	collection string
	kind       schema.GroupVersionKind
	seen       gc.Sight
}

// dangle is what a finding is about.
type dangle struct {
	count    int
	partly   bool // not all were read again
	examples []string
	reads    int
}

// limitReads is how many owners of a group are read again; the rest is not counted.
const limitReads = 200

// judgeOwners reports objects whose owners a side looks for in vain, after reading again what the lists said.
func (c *checker) judgeOwners(ctx context.Context) {
	found := map[dangling]*dangle{}
	keys := make([]waiting, 0, len(c.owners.waiting))
	for of := range c.owners.waiting {
		keys = append(keys, of)
	}
	slices.SortFunc(keys, func(a, b waiting) int { // what is named must not depend on the order of a map
		x, y := c.owners.waiting[a], c.owners.waiting[b]
		return cmp.Or(cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.owner, y.owner), cmp.Compare(a.kind, b.kind),
			cmp.Compare(x.ownerUID, y.ownerUID))
	})
	for _, of := range keys {
		d := c.owners.waiting[of]
		c.judgeDependents(ctx, found, &d.example, d.count)
	}
	for i := range c.owners.several {
		c.judgeDependents(ctx, found, &c.owners.several[i], 1)
	}
	for of, d := range found {
		if d.count > 0 {
			c.add(c.dangling(of, d))
		}
	}
}

// judgeDependents judges objects with the same owners by one of them.
func (c *checker) judgeDependents(ctx context.Context, found map[dangling]*dangle, d *dependent, count int) {
	if ctx.Err() != nil {
		return
	}
	first := &c.owners.byIndex[d.owners[0].kind]
	anywhere, doubt, collected, served := false, false, false, false
	var lookers []dangling
	for _, side := range pair.Sides() {
		if !first.seen.has(side) {
			continue
		}
		held, worst := false, gc.Undecided
		for _, o := range d.owners {
			r := &c.owners.byIndex[o.kind]
			seen, _ := c.see(side, r, hashed(o.uid))
			anywhere = anywhere || c.owners.present[hashed(o.uid)] != 0
			doubt = doubt || seen == gc.Undecided
			served = served || seen == gc.Absent
			if c.outcome(side, seen) != gc.Deleted {
				held = true
			} else if worst == gc.Undecided {
				worst = seen
			}
		}
		if held {
			continue
		}
		collected = collected || c.collects(side)
		lookers = append(lookers, dangling{side, first.collection, first.kind, worst})
	}
	switch {
	case !anywhere && (doubt || collected || !served || c.jointLead()):
		return // a collector does its work, or nothing can be said
	case !anywhere:
		c.confirm(ctx, found, dangling{"", first.collection, first.kind, gc.Absent}, d, count)
	default:
		for _, of := range lookers {
			c.confirm(ctx, found, of, d, count)
		}
	}
}

// collects reports whether the garbage collector of a side runs: as its arguments say where they were seen, else as
// planned.
func (c *checker) collects(side pair.Side) bool {
	if on, seen := c.components.collectors[side]; seen {
		return on
	}
	return c.plan.Side(side).Facts.Collector.Runs
}

// confirm reads again what the lists said: that the object is there and refers to its owners, and that the owners are
// not.
func (c *checker) confirm(ctx context.Context, found map[dangling]*dangle, of dangling, d *dependent, count int) {
	group := found[of]
	if group == nil {
		group = &dangle{}
		found[of] = group
	}
	if group.reads++; group.reads > limitReads {
		group.partly = true
		return
	}
	still, err := c.stillDangles(ctx, of, d)
	if err != nil {
		c.incomplete("reading %s %s again: %v", d.in.Name, title(d.namespace, d.name), err)
		return
	}
	if !still {
		return
	}
	group.count += count
	if len(group.examples) < samples {
		group.examples = append(group.examples, fmt.Sprintf("%s %s (owner %s)", d.in.Kind, title(d.namespace, d.name),
			d.owners[0].name))
	}
}

func (c *checker) stillDangles(ctx context.Context, of dangling, d *dependent) (bool, error) {
	sides := []pair.Side{of.side}
	if of.side == "" {
		sides = pair.Sides()
	}
	for _, side := range sides {
		for _, o := range d.owners {
			seen, k := c.see(side, &c.owners.byIndex[o.kind], hashed(o.uid))
			if k.Name == "" || seen == gc.NamespacedOwner {
				continue // the side does not serve it, or it has no path without a namespace: there is nothing to read
			}
			owner, err := c.object(ctx, side, k.Object(d.namespace, o.name), o.uid)
			if err != nil {
				return false, err
			}
			if owner != nil && of.seen == gc.Absent {
				return false, nil
			}
		}
	}
	now, err := c.object(ctx, d.in.side, d.in.Object(d.namespace, d.name), d.uid)
	if now == nil || now.Metadata.DeletionTimestamp != "" {
		return false, err
	}
	return slices.EqualFunc(now.Metadata.OwnerReferences, d.owners, func(r metav1.OwnerReference, o ownerOf) bool {
		return string(r.UID) == o.uid
	}), nil
}

// object reads what is at the path now, nil when it is not the object with the UID.
func (c *checker) object(ctx context.Context, side pair.Side, path discovery.Path, uid string) (*object, error) {
	body, err := c.servers[side].Read(ctx, path)
	if errors.Is(err, discovery.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := decode(body)
	if err != nil || o.Metadata.UID != uid {
		return nil, err
	}
	return &o, nil
}

// dangling words a finding.
func (c *checker) dangling(of dangling, d *dangle) finding.Finding {
	objects := fmt.Sprintf("%d of them are", d.count)
	if d.count == 1 {
		objects = "1 of them is"
	}
	if d.partly {
		objects = "at least " + objects
	}
	f := finding.Finding{Rule: of.seen.Rule(of.collection, of.kind.Kind), Severity: finding.Error,
		Subject: of.collection,
		Related: d.examples}
	if row := c.plan.Resource(of.collection); row != nil {
		f.Subject = row.Name
	}
	owner := of.kind.Kind + " of " + of.kind.GroupVersion().String()
	f.Key, f.Count = finding.Key(string(of.side), owner, of.seen.Key()), finding.Count(d.count)
	if of.side == "" {
		f.Rule, f.Severity = "FUS135", finding.Warning
		f.Message = fmt.Sprintf("%s owned by a %s that neither side has; no garbage collector runs that deletes them",
			objects, owner)
		f.Fix = "start fusionctl controllers, whose garbage collector looks up owners on both sides, or delete the " +
			"objects"
		return f
	}
	why := of.seen.Why()
	if of.seen == gc.Absent {
		why += ", which the other side has"
	}
	collector := "its garbage collector deletes them"
	f.Fix = gc.TurnOff(string(of.side), kubever.GarbageCollectorName(c.plan.Side(of.side).Version.Minor))
	if !c.collects(of.side) {
		f.Severity = finding.Info
		collector = "its garbage collector, which is off, would delete them"
		f.Fix = "keep the garbage collector off"
	}
	f.Message = fmt.Sprintf("%s owned by a %s; the %s side (%s) %s: %s",
		objects, owner, of.side, c.plan.Side(of.side).Version.Minor, why, collector)
	return f
}
