package scan

import (
	"context"
	"errors"
	"slices"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/gc"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Stores are read at the same time but not at one moment: what is compared over two stores, or over two ranges of one
// that was compacted meanwhile, may have changed in between. Before such a finding is reported, what it is about is
// read once more.

// lookAgain objects of a kind are read again at most. More of them are not a transient state.
const lookAgain = 1000

// mostLooks bounds the time for all of them: about 10 s.
const mostLooks = 10 * lookAgain

var errEnough = errors.New("enough was looked at")

// name reads the dangling objects a second time: to name some of them and, in a live store, to leave out those that
// only seemed to dangle because their owner was read at another moment.
func (d *danglingIn) name(ctx context.Context) {
	byResource := map[string]map[dangling]*counted{}
	for group, c := range d.found {
		resource := d.kinds[group.kind].Dependent
		if byResource[resource] == nil {
			byResource[resource] = map[dangling]*counted{}
		}
		byResource[resource][group] = c
	}
	if d.store.Pager == nil {
		d.nameInFile(ctx, byResource)
		return
	}
	for _, resource := range sortedKeys(byResource) {
		d.nameBelow(ctx, d.classifier.Prefix()+resource+"/", byResource[resource])
	}
}

// nameInFile names some of the objects that dangle in a file, which has no order, so that it is read as a whole, and in
// which nothing has changed.
func (d *danglingIn) nameInFile(ctx context.Context, byResource map[string]map[dangling]*counted) {
	if len(byResource) == 0 {
		return
	}
	for _, set := range d.uids {
		set.SortAll()
	}
	var all []map[dangling]*samples
	// An error was reported by the scan. What could not be read again is counted and not named.
	_, _ = d.store.Walker.Walk(ctx, d.options.Parallel, func() func(etcd.Entry) error {
		named := make(map[dangling]*samples, len(d.found))
		for group := range d.found {
			named[group] = &samples{}
		}
		all = append(all, named)
		var envelope storage.Envelope
		var meta storage.Meta
		return func(e etcd.Entry) error {
			if !d.classifier.Below(e.Key) {
				return nil
			}
			k := d.classifier.Classify(storage.Text(e.Key))
			rest := storage.Text(e.Key[len(d.classifier.Prefix()):])
			wanted := false
			for group := range byResource[k.Resource] {
				wanted = wanted || named[group].wants(rest)
			}
			if !wanted || !readWith(&envelope, e.Value, &meta) {
				return nil
			}
			for _, side := range pair.Sides() {
				d.eachDangling(side, k, &envelope, &meta, func(group dangling, owners []ownerRef) {
					if into := named[group]; into != nil {
						into.add(d.dependent(&e, owners))
					}
				})
			}
			return nil
		}
	})
	for _, named := range all {
		for group, some := range named {
			d.found[group].samples.merge(*some)
		}
	}
}

// dependent names an object and the first of its owners.
func (d *danglingIn) dependent(e *etcd.Entry, owners []ownerRef) string {
	return storage.Text(e.Key[len(d.classifier.Prefix()):]) + " (owner " + string(owners[0].name) + ")"
}

// keyIn is a key in a store.
type keyIn struct{ store, key string }

// ownerNow is the UID of an owner that was looked up again, "" where there is none.
type ownerNow struct {
	uid   string
	known bool
}

// second is the result of reading a group of objects again.
type second struct {
	looked    int64
	confirmed counted
}

// nameBelow reads objects of a live store, which all lie below the prefix.
func (d *danglingIn) nameBelow(ctx context.Context, prefix string, groups map[dangling]*counted) {
	looks := map[dangling]*second{}
	for group := range groups {
		looks[group] = &second{}
	}
	open := len(groups) // groups of which more are to be read
	d.owners = map[keyIn]ownerNow{}
	var envelope storage.Envelope
	var meta storage.Meta
	_, err := etcd.Entries(ctx, d.store.Store, etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix)},
		func(e etcd.Entry) error {
			k := d.classifier.Classify(storage.Text(e.Key))
			if !readWith(&envelope, e.Value, &meta) {
				return nil // reported already
			}
			for _, side := range pair.Sides() {
				d.eachDangling(side, k, &envelope, &meta, func(group dangling, owners []ownerRef) {
					look := looks[group]
					if look == nil || look.looked == lookAgain {
						return
					}
					if look.looked++; look.looked == lookAgain {
						open--
					}
					if !d.anyThere(ctx, side, k, owners) {
						look.confirmed.add(d.dependent(&e, owners))
					}
				})
			}
			if open == 0 {
				return errEnough
			}
			return nil
		})
	for group, look := range looks {
		c := groups[group]
		c.samples = look.confirmed.samples
		switch {
		case err != nil && !errors.Is(err, errEnough):
		case look.looked < lookAgain && err == nil:
			c.keys = look.confirmed.keys // all of them were read
		default:
			c.keys -= look.looked - look.confirmed.keys
		}
		if c.keys <= 0 {
			delete(d.found, group)
		}
	}
}

// nameOrphans names objects in absent namespaces. In a live store it leaves out namespaces that are there by now, and
// objects that are not.
func (r *reporter) nameOrphans(ctx context.Context, store *storeScan, all []*orphans) {
	if len(all) == 0 {
		return
	}
	prefix := r.classifier.Prefix()
	if store.Pager == nil {
		// An error was reported by the scan. Keys that could not be read again are counted and not named.
		_, _ = etcd.Entries(ctx, store.Store, etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix), KeysOnly: true},
			func(e etcd.Entry) error {
				k := r.classifier.Classify(storage.Text(e.Key))
				for _, o := range all {
					if c := o.absent[k.Namespace]; c != nil && o.name == k.Resource {
						c.samples.add(storage.Text(e.Key[len(prefix):]))
					}
				}
				return nil
			})
		return
	}
	for _, o := range all {
		r.nameInNamespaces(ctx, store, o)
	}
	// Namespaces are looked for after the objects in them: one that is there by now explains all that was seen. One
	// list of them serves every resource.
	there := map[*storeScan]map[string]bool{}
	for _, o := range all {
		if there[o.home] == nil {
			there[o.home] = r.namespacesNow(ctx, o.home)
		}
		for namespace := range o.absent {
			if there[o.home][namespace] {
				delete(o.absent, namespace)
			}
		}
	}
}

// nameInNamespaces counts and names the objects of a resource that are in absent namespaces now, with the fewer
// requests: one for each namespace, or all keys of the resource, of which a page has pageKeys at least.
func (r *reporter) nameInNamespaces(ctx context.Context, store *storeScan, o *orphans) {
	const pageKeys = 100
	prefix := r.classifier.Prefix()
	now := map[string]*counted{}
	for namespace := range o.absent {
		now[namespace] = &counted{}
	}
	read := func(from string) error {
		_, err := etcd.Entries(ctx, store.Store, etcd.Request{From: from, To: etcd.PrefixEnd(from), KeysOnly: true},
			func(e etcd.Entry) error {
				k := r.classifier.Classify(storage.Text(e.Key))
				if c := now[k.Namespace]; c != nil && k.Resource == o.name {
					c.add(storage.Text(e.Key[len(prefix):]))
				}
				return nil
			})
		return err
	}
	if int64(len(o.absent)) > o.keys/pageKeys {
		if read(prefix+o.name+"/") != nil {
			return // they stay as the scan saw them
		}
	} else {
		for _, namespace := range sortedKeys(o.absent) {
			if read(r.classifier.ObjectKey(o.name, namespace, "")) != nil {
				delete(now, namespace)
			}
		}
	}
	for namespace, c := range now {
		if o.absent[namespace] = c; c.keys == 0 {
			delete(o.absent, namespace)
		}
	}
}

// namespacesNow lists the namespaces that a live store holds at its newest revision; what could not be read is not
// among them.
func (r *reporter) namespacesNow(ctx context.Context, home *storeScan) map[string]bool {
	there := map[string]bool{}
	if home.Pager == nil {
		return there // a file does not change
	}
	from := r.classifier.ObjectKey("namespaces", "", "")
	_, _ = etcd.Entries(ctx, home.Store, etcd.Request{From: from, To: etcd.PrefixEnd(from), KeysOnly: true},
		func(e etcd.Entry) error {
			there[string(e.Key[len(from):])] = true
			return nil
		})
	return there
}

// ownerRef is one owner of an object that is read a second time.
type ownerRef struct {
	reference
	id, name []byte
}

// eachDangling calls visit with the group of the object, if the side deletes it, and with the owners for which it does.
func (d *danglingIn) eachDangling(side pair.Side, k storage.Key, e *storage.Envelope, m *storage.Meta,
	visit func(group dangling, owners []ownerRef)) {
	var o owned
	var owners []ownerRef
	namespace := d.hasher.NamespaceHash(k.Namespace)
	references(k, e, m, func(kind referenceKind, uid, name []byte, more bool) {
		n, known := d.kindOf[kind]
		owners = append(owners,
			ownerRef{reference{uid: keyindex.UIDHash(uid, storage.Text(name), d.hasher), namespace: namespace, kind: n,
				more: more}, uid,
				name})
		group, dangles := d.see(&o, side, owners[len(owners)-1].reference)
		o.held = o.held || !known // new since the scan
		if dangles && known {
			visit(group, owners)
		}
		if !more {
			owners = owners[:0]
		}
	})
}

// anyThere reports whether one of the owners exists now.
func (d *danglingIn) anyThere(ctx context.Context, side pair.Side, k storage.Key, owners []ownerRef) bool {
	for _, owner := range owners {
		v := d.verdicts[side][owner.kind]
		if v == nil || v.lookup == nil || v.see(owner.reference, d.uids) != gc.Absent {
			continue
		}
		namespace := k.Namespace
		if !v.OwnerNamespaced {
			namespace = ""
		}
		key := keyIn{v.lookup.Name, d.classifier.ObjectKey(v.resource, namespace, string(owner.name))}
		seen, looked := d.owners[key]
		if !looked {
			seen.uid, seen.known = d.uidNow(ctx, v.lookup, key.key)
			d.owners[key] = seen
		}
		if seen.known && seen.uid == string(owner.id) {
			return true
		}
	}
	return false
}

// readWith reads a value with its metadata, and reports whether that is possible.
func readWith(e *storage.Envelope, value []byte, m *storage.Meta) bool {
	return e.Read(value) == nil && e.Encoding != storage.Encrypted && e.ReadMeta(m) == nil
}

// now reads a key of a live store at its newest revision; false when that could not be seen.
func (r *reporter) now(ctx context.Context, store *storeScan, key string) (entry *etcd.Entry, known bool) {
	if store == nil || store.Pager == nil || ctx.Err() != nil || r.looks == mostLooks {
		return nil, false
	}
	r.looks++
	page, err := store.Pager.Page(ctx, etcd.Request{From: key, To: key + "\x00", LimitKeys: 1})
	if err != nil {
		return nil, false
	}
	if len(page.Entries) == 0 {
		return nil, true
	}
	return &page.Entries[0], true
}

// uidNow is the UID of the object under a key of a live store, "" when there is none.
func (r *reporter) uidNow(ctx context.Context, store *storeScan, key string) (uid string, known bool) {
	entry, known := r.now(ctx, store, key)
	if !known || entry == nil {
		return "", known
	}
	var envelope storage.Envelope
	var meta storage.Meta
	if !readWith(&envelope, entry.Value, &meta) {
		return "", false
	}
	return string(meta.UID), true
}

// nameDuplicates names keys that two stores hold, and leaves out those that one of them does not hold any more.
func (r *reporter) nameDuplicates(ctx context.Context, found []*duplicates) {
	// an info
	found = slices.DeleteFunc(slices.Clone(found), func(d *duplicates) bool { return d.same.keys == 0 && d.split() })
	if len(found) == 0 {
		return
	}
	prefix := r.classifier.Prefix()
	if b := found[0].b; b.Pager == nil {
		r.nameDuplicatesBelow(ctx, prefix, found)
		return
	}
	for _, d := range found {
		r.nameDuplicatesBelow(ctx, prefix+d.tb.name, []*duplicates{d})
	}
}

func (r *reporter) nameDuplicatesBelow(ctx context.Context, prefix string, found []*duplicates) {
	b := found[0].b
	looked := map[*duplicates]int{}
	// An error was reported by the scan. What could not be read again stays as the scan saw it.
	_, _ = etcd.Entries(ctx, b.Store, etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix), KeysOnly: true},
		func(e etcd.Entry) error {
			rest := storage.Text(e.Key[len(r.classifier.Prefix()):])
			k := r.classifier.Classify(storage.Text(e.Key))
			for _, d := range found {
				if d.tb.name != k.Resource && d.tb.name != rest {
					continue
				}
				hash := keyindex.KeyHash(rest, d.ta.number, r.hasher)
				x, inA := d.a.index.Find(hash)
				y, inB := b.index.Find(hash)
				if !inA || !inB {
					continue
				}
				c := d.counted(x, y)
				if c == nil {
					continue
				}
				if looked[d]++; looked[d] <= lookAgain &&
					(r.isGone(ctx, d.a, string(e.Key)) || r.isGone(ctx, b, string(e.Key))) {
					c.keys--
					continue
				}
				c.samples.add(rest)
			}
			return nil
		})
}

// isGone reports whether a live store does not hold the key any more.
func (r *reporter) isGone(ctx context.Context, store *storeScan, key string) bool {
	entry, known := r.now(ctx, store, key)
	return known && entry == nil
}

// isThere reports whether a live store holds the cluster-scoped object by now.
func (r *reporter) isThere(ctx context.Context, store *storeScan, resource, name string) bool {
	entry, _ := r.now(ctx, store, r.classifier.ObjectKey(resource, "", name))
	return entry != nil
}

// stillClaims reports whether a service still has the address or the port. What cannot be seen is taken for unchanged.
func (r *reporter) stillClaims(ctx context.Context, store *storeScan, ref objectRef, claims func(*service) bool) bool {
	entry, known := r.now(ctx, store, r.classifier.ObjectKey("services/specs", ref.Namespace, ref.Name))
	if !known {
		return true
	}
	if entry == nil {
		return false
	}
	envelope, err := storage.ReadEnvelope(entry.Value)
	if err != nil || envelope.Encoding == storage.Encrypted {
		return true
	}
	s, err := readService(&envelope)
	return err != nil || claims(&s)
}
