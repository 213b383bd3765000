package etcdsplit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
)

// findPlacement reports keys that lie where their owner does not want them, and keys that are nobody's.
func (r *reporter) findPlacement() {
	for _, store := range r.stores {
		if store.total.keys == 0 && len(store.incomplete) == 0 {
			r.add(store.Name, "", finding.Finding{Rule: "FUS233", Severity: finding.Warning, Subject: store.Name,
				Message: "the store holds no key below the prefix: no API server has written to it yet, or it is not the one that they use"})
		}
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			if t.unshaped.keys > 0 {
				r.add(store.Name, name, finding.Finding{Rule: "FUS231", Severity: finding.Warning, Related: t.unshaped.samples,
					Message: fmt.Sprintf("%s below the prefix cannot be the key of an object of this resource", nKeys(t.unshaped.keys))})
			}
			r.findMisplaced(store, t)
		}
	}
}

func (r *reporter) findMisplaced(store *storeScan, t *resourceTally) {
	if t.row == nil {
		var all counted
		all.merge(&t.others)
		all.merge(&t.boot)
		if all.keys > 0 {
			r.add(store.Name, t.name, finding.Finding{Rule: "FUS231", Severity: finding.Warning, Related: all.samples,
				Message: fmt.Sprintf("%s of a resource that neither version knows: nobody reads or checks them", nKeys(all.keys)),
				Fix:     "if a vendor's API server adds the resource, no rule of this map covers it; otherwise it is left from an older version"})
		}
		return
	}
	homes, readers := t.row.Homes(), t.row.Readers(store.Name)
	if t.others.keys == 0 || slices.Contains(homes, store.Name) {
		return
	}
	f := finding.Finding{Rule: "FUS004", Severity: finding.Error, Related: t.others.samples}
	if t.form == FormGrouped {
		f.Rule = "FUS010"
	}
	home := "no store: no side that may write them has the resource"
	if len(homes) > 0 {
		home = "store " + strings.Join(homes, " and ")
	}
	if len(readers) == 0 {
		f.Severity = finding.Warning
		f.Message = fmt.Sprintf("%s in a store from which no side reads this resource; they belong in %s", nKeys(t.others.keys), home)
		f.Fix = "fusionctl etcd move copies them to where they belong; an override never moves what exists"
	} else {
		f.Message = fmt.Sprintf("%s written by the %s side, but the owner is %s: they belong in %s", nKeys(t.others.keys), sideList(readers), t.row.Owner, home)
		f.Fix = "check the --etcd-servers-overrides of both API servers (an override that names the wrong group is ignored silently) and the policy of the modern one, then fusionctl etcd move"
	}
	r.add(store.Name, t.name, f)
}

// findDuplicates reports keys that two stores hold.
func (r *reporter) findDuplicates() {
	for i, a := range r.stores {
		for _, b := range r.stores[i+1:] {
			type tally struct{ same, other int64 }
			byResource := map[uint16]*tally{}
			inBoth(&a.index, &b.index, func(x, y objectID) {
				t, ok := byResource[x.resource()]
				if !ok {
					t = &tally{}
					byResource[x.resource()] = t
				}
				switch {
				case x.boot() && y.boot(): // each API server writes its own
				case x.sameObject(y):
					t.same++
				default:
					t.other++
				}
			})
			for _, name := range sortedKeys(a.total.resources) {
				ta, tb := a.total.resources[name], b.total.resources[name]
				t := byResource[ta.number]
				if tb == nil || t == nil {
					continue
				}
				r.addDuplicates(a, b, ta, tb, t.same, t.other)
			}
		}
	}
}

func (r *reporter) addDuplicates(a, b *storeScan, ta, tb *resourceTally, same, other int64) {
	where := fmt.Sprintf("in both stores %s and %s", a.Name, b.Name)
	split := ta.row != nil && ta.row.Owner == OwnerSplit && len(ta.row.Homes()) > 1
	if r.depth == DepthKeys {
		if n := same + other; n > 0 && !split {
			r.add(b.Name, tb.name, finding.Finding{Rule: "FUS230", Severity: finding.Warning, Related: r.sharedSamples(a, b, ta, tb),
				Message: fmt.Sprintf("%s %s; depth envelope tells whether they are the same objects", nKeys(n), where)})
		}
		return
	}
	if same > 0 {
		r.add(b.Name, tb.name, finding.Finding{Rule: "FUS230", Severity: finding.Error, Related: r.sharedSamples(a, b, ta, tb),
			Message: fmt.Sprintf("%s %s with the same UID: copies of one object that drift apart", plural(same, "object"), where),
			Fix:     "keep the copy in the store where the owner keeps the resource; fusionctl etcd move finishes a move that was broken off"})
	}
	if other > 0 {
		severity, message := finding.Error, fmt.Sprintf("%s %s with different UIDs: two objects that claim one name", plural(other, "name"), where)
		if split {
			severity = finding.Info
			message = fmt.Sprintf("%s %s: two objects, one per side, as the owner split allows; what they create in shared resources may collide by name", plural(other, "name"), where)
		}
		r.add(b.Name, tb.name, finding.Finding{Rule: "FUS230", Severity: severity, Related: r.sharedSamples(a, b, ta, tb), Message: message})
	}
}

// sharedSamples are those of the few keys kept of a resource that both stores hold.
func (r *reporter) sharedSamples(a, b *storeScan, ta, tb *resourceTally) []string {
	var shared samples
	for _, pair := range []struct {
		keys samples
		in   *storeScan
	}{{ta.others.samples, b}, {tb.others.samples, a}} {
		for _, key := range pair.keys {
			if pair.in.index.has(keyHash(key, ta.number, r.hasher)) {
				shared.add(key)
			}
		}
	}
	return shared
}

// findTypes reports what the readers of a store cannot decode.
func (r *reporter) findTypes() {
	for _, store := range r.stores {
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			for _, why := range sortedKeys(t.unreadable) {
				c := t.unreadable[why]
				r.add(store.Name, name, finding.Finding{Rule: "FUS000", Severity: finding.Error, Related: c.samples,
					Message: fmt.Sprintf("%s cannot be read: %s; %s", plural(c.keys, "value"), why, r.deadList(store, t)),
					Fix:     "read the key with fusionctl etcd get, restore it from a backup, or delete it with etcdctl"})
			}
			for _, provider := range sortedKeys(t.encrypted) {
				r.findEncrypted(store, t, provider)
			}
			for st, tally := range t.types {
				r.findType(store, t, st, tally)
			}
		}
	}
}

// deadList says whose lists fail because of one value of the resource in the store.
func (r *reporter) deadList(store *storeScan, t *resourceTally) string {
	if t.row == nil {
		return "nobody reads this resource"
	}
	readers := t.row.Readers(store.Name)
	if len(readers) == 0 {
		return "no side reads this resource from this store"
	}
	return fmt.Sprintf("every list and watch of %s through the %s side fails", PlainName(t.name), sideList(readers))
}

func (r *reporter) findEncrypted(store *storeScan, t *resourceTally, provider string) {
	c := t.encrypted[provider]
	f := finding.Finding{Rule: "FUS070", Severity: finding.Info, Related: c.samples}
	name, key, _ := strings.Cut(provider, ":")
	f.Message = fmt.Sprintf("%s encrypted by provider %q with key %q: type and owners were not checked", plural(c.keys, "value"), name, key)
	if t.row != nil {
		if readers := t.row.Readers(store.Name); len(readers) > 1 {
			f.Severity = finding.Warning
			f.Message += "; both sides read them"
			for _, side := range readers {
				if r.m.ControlPlane(side).Undecryptable == UndecryptableOmitted {
					f.Message += fmt.Sprintf(", and without the key the %s side omits them from lists silently", side)
				}
			}
			f.Fix = "give both API servers the same keys in --encryption-provider-config (--experimental-encryption-provider-config before 1.13)"
		}
	}
	r.add(store.Name, t.name, f)
}

// findType reports one stored type of a resource that a reader of the store cannot decode.
func (r *reporter) findType(store *storeScan, t *resourceTally, st stored, tally *storedTally) {
	if t.row == nil {
		return
	}
	if t.row == &r.m.CustomResources || t.row.Kind == "" {
		return // their versions are a matter of their CRD
	}
	if st.Kind != t.row.Kind {
		r.add(store.Name, t.name, finding.Finding{Rule: "FUS000", Severity: finding.Error, Related: tally.samples,
			Message: fmt.Sprintf("%s of kind %s %s where %s belongs; %s", plural(tally.keys, "object"), st.APIVersion, st.Kind, t.row.Kind, r.deadList(store, t))})
		return
	}
	for _, side := range t.row.Readers(store.Name) {
		version := r.m.ControlPlane(side).Version
		f := finding.Finding{Severity: finding.Error, Related: tally.samples}
		switch facts := t.row.Side(side); {
		case st.Encoding == CBOR:
			f.Rule = "FUS072"
			f.Message = fmt.Sprintf("%s stored as CBOR, which versions before 1.32 cannot read and later ones read behind a gate; the %s side (%s) reads them", plural(tally.keys, "object"), side, version)
			f.Fix = "switch the feature gate CBORServingAndStorage off and rewrite the objects"
		case !slices.Contains(facts.Decodes, st.APIVersion):
			f.Rule = undecodableRule(t, tally)
			f.Message = fmt.Sprintf("%s stored as %s, which the %s side (%s) cannot decode: every list and watch of %s through it fails", plural(tally.keys, "object"), st.APIVersion, side, version, PlainName(t.name))
			f.Fix = r.undecodableFix(t, side, f.Rule)
		case slices.Contains(facts.WatchBreaks, st.APIVersion):
			f.Rule = "FUS003"
			f.Message = fmt.Sprintf("%s stored as %s, which the %s side (%s) decodes in lists but not in watches: each write to one of them ends every watch of %s", plural(tally.keys, "object"), st.APIVersion, side, version, PlainName(t.name))
			f.Fix = "keep the resource in separate stores, or run a patch release of that side with the fix of kubernetes#73482"
			if owner := SideName(t.row.Owner); owner != side && slices.Contains(Sides(), owner) && st.APIVersion == t.row.Side(owner).StoredAs {
				// As planned: the other side owns the resource and stores it in its own form. Who only lists is not hurt.
				f.Severity = finding.Info
				f.Fix = fmt.Sprintf("let nobody watch %s through the %s side", PlainName(t.name), side)
			}
		default:
			continue
		}
		r.add(store.Name, t.name, f)
	}
}

func undecodableRule(t *resourceTally, tally *storedTally) string {
	switch {
	case t.name == "apiregistration.k8s.io/apiservices":
		return "FUS030"
	case tally.boot > 0 && tally.boot == tally.keys:
		return "FUS090" // the other API server writes them at each start
	}
	return "FUS002"
}

func (r *reporter) undecodableFix(t *resourceTally, side SideName, rule string) string {
	if rule == "FUS090" {
		return "an API server writes these at its start, past any authorization: give the modern side a default store of its own, or switch the group off with --runtime-config"
	}
	other := Modern
	if side == Modern {
		other = Legacy
	}
	return fmt.Sprintf("keep what the %s side writes in a store of its own (owner: %s or split), move these objects there, and let the %s side store as one of %s",
		other, other, other, strings.Join(t.row.Side(side).Decodes, ", "))
}

// findOrphans reports objects in namespaces that do not exist for a side that reads them.
func (r *reporter) findOrphans() {
	namespaces := r.m.Row(Key{Form: FormObject, Resource: "namespaces"})
	if namespaces == nil {
		return
	}
	for _, store := range r.stores {
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			if t.row == nil {
				continue
			}
			// Two sides that look into one store for namespaces share one finding.
			reported := map[string]bool{}
			for _, side := range t.row.Readers(store.Name) {
				home := r.store(namespaces.Side(side).Store)
				if home == nil || reported[home.Name] || len(home.incomplete) > 0 {
					continue // what was not read cannot be missed
				}
				reported[home.Name] = true
				r.addOrphans(store, t, home)
			}
		}
	}
}

func (r *reporter) addOrphans(store *storeScan, t *resourceTally, home *storeScan) {
	var orphans counted
	var absent []string
	for _, namespace := range sortedKeys(t.namespaces) {
		if !home.total.facts.namespaces[namespace] {
			orphans.merge(t.namespaces[namespace])
			absent = append(absent, namespace)
		}
	}
	if orphans.keys == 0 {
		return
	}
	r.add(store.Name, t.name, finding.Finding{Rule: "FUS130", Severity: finding.Warning, Related: orphans.samples,
		Message: fmt.Sprintf("%s in %s that store %s does not have (%s): when one is created again they reappear in it",
			plural(orphans.keys, "object"), plural(int64(len(absent)), "namespace"), home.Name, abbreviate(absent)),
		Fix: "delete them, or create the namespace; a namespace controller cleans only what it can list through its own API server"})
}

// abbreviate prints the first few of a list.
func abbreviate(words []string) string {
	if len(words) > sampleKeys {
		return strings.Join(words[:sampleKeys], ", ") + ", ..."
	}
	return strings.Join(words, ", ")
}

// findDropped reports the fields that a side would lose.
func (r *reporter) findDropped() {
	for _, store := range r.stores {
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			bySide := map[SideName][]string{}
			for _, sidePath := range sortedKeys(t.dropped) {
				side, path, _ := strings.Cut(sidePath, " ")
				bySide[SideName(side)] = append(bySide[SideName(side)], path)
			}
			for _, side := range Sides() {
				paths := bySide[side]
				if len(paths) == 0 {
					continue
				}
				var objects counted
				details := make([]string, 0, len(paths))
				for _, path := range paths {
					c := t.dropped[string(side)+" "+path]
					objects.samples.merge(c.samples)
					details = append(details, fmt.Sprintf("%s (%d)", path, c.keys))
				}
				severity := finding.Warning
				if len(paths) == 1 && paths[0] == "metadata.managedFields" {
					severity = finding.Info // nothing that runs depends on it
				}
				r.add(store.Name, name, finding.Finding{Rule: "FUS001", Severity: severity, Related: objects.samples,
					Message: fmt.Sprintf("objects hold fields that the %s side (%s) does not know and drops whenever it rewrites one, even its status: %s",
						side, r.m.ControlPlane(side).Version, strings.Join(details, ", ")),
					Fix: "let one version write these objects: its controllers, and the kubelets that report their status"})
			}
		}
	}
}
