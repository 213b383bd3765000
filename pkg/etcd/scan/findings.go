package scan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/keyindex"
	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// findPlacement reports keys in stores where their owner does not keep them, and keys that no API server reads.
func (r *reporter) findPlacement() {
	for _, store := range r.stores {
		if store.total.keys == 0 && len(store.incomplete) == 0 {
			r.add(store.Name, "", finding.Finding{Rule: "FUS233", Severity: finding.Warning, Subject: store.Name,
				Message: "the store holds no key below the prefix: no API server has written to it yet, or the API " +
					"servers use another store"})
		}
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			if t.unshaped.keys > 0 {
				f := finding.Finding{Rule: "FUS231", Severity: finding.Warning, Key: "shape", Count: t.unshaped.count(),
					Related: t.unshaped.samples,
					Message: fmt.Sprintf("%s below the prefix cannot be the key of an object of this resource",
						nKeys(t.unshaped.keys))}
				if name == "" {
					f.Subject, f.Message = store.Name, nKeys(t.unshaped.keys)+" below the prefix without a resource"
				}
				r.add(store.Name, name, f)
			}
			r.findMisplaced(store, t)
			r.findLeft(store, t)
		}
		r.findOutside(store)
	}
}

// findOutside reports keys outside the prefix, of which one is every API server's.
func (r *reporter) findOutside(store *storeScan) {
	others, samples := store.outside.keys, slices.Clone(store.outside.samples)
	if i := slices.Index(samples, storage.CompactRevisionKey); i >= 0 {
		samples = slices.Delete(samples, i, i+1)
		others--
	}
	if store.total.keys > 0 && others > 0 {
		r.add(store.Name, "", finding.Finding{Rule: "FUS231", Severity: finding.Info, Subject: store.Name,
			Key: "outside", Count: finding.Count(others), Related: samples[:min(len(samples), sampleKeys)],
			Message: fmt.Sprintf("%s outside the prefix %q: of a cluster with another --etcd-prefix, or of another "+
				"program; they were not checked", nKeys(others), storage.NormalPrefix(r.m.Prefix))})
	}
}

func (r *reporter) findMisplaced(store *storeScan, t *resourceTally) {
	if t.name == storage.MarksResource { // of what transitions handed over, beside the objects
		return
	}
	if t.row == nil {
		var all counted
		all.merge(&t.others)
		all.merge(&t.boot)
		if all.keys > 0 {
			r.add(store.Name, t.name, finding.Finding{Rule: "FUS231", Severity: finding.Warning, Key: "resource",
				Count: all.count(), Related: all.samples,
				Message: fmt.Sprintf("%s of a resource that neither version knows: no API server reads them, and "+
					"they were not checked", nKeys(all.keys)),
				Fix: "keep them if a vendor's API server serves the resource, for which there are no facts; " +
					"otherwise delete them with etcdctl"})
		}
		return
	}
	homes, readers := t.row.Homes(), t.row.Readers(store.Name)
	if t.others.keys == 0 || slices.Contains(homes, store.Name) {
		return
	}
	f := finding.Finding{Rule: "FUS004", Severity: finding.Error, Count: t.others.count(), Related: t.others.samples}
	if t.form == storage.FormGrouped {
		f.Rule = "FUS010"
	}
	home := "no store: no side that may write them has the resource"
	if len(homes) > 0 {
		home = "store " + strings.Join(homes, " and ")
	}
	if len(readers) == 0 {
		f.Message = fmt.Sprintf("%s in a store from which no side reads this resource; they belong in %s",
			nKeys(t.others.keys), home)
		f.Fix = "fusionctl etcd move plan SPEC plans moving them; an override moves no existing keys"
		copies, unread := r.copies(store, t, homes)
		switch lost := t.others.keys - copies; {
		case lost <= 0 || len(homes) == 0:
			f.Severity = finding.Warning
		case len(unread) > 0: // unknown counts as lost
			f.Message += fmt.Sprintf("; whether store %s holds them is not known, because it was not read, or not to "+
				"its end", strings.Join(unread, " and "))
		case lost == t.others.keys:
			f.Message += ", which does not hold them: no API server serves these objects"
		default:
			f.Message += fmt.Sprintf(", which does not hold %d of them: no API server serves these", lost)
		}
	} else {
		f.Message = fmt.Sprintf("%s written by the %s side, but the owner is %s: they belong in %s",
			nKeys(t.others.keys), sideList(readers), t.row.Owner, home)
		f.Fix = "correct the --etcd-servers-overrides of both API servers (an override with the wrong group is " +
			"silently ignored) and the policy of the modern one, then fusionctl etcd move plan SPEC"
	}
	r.add(store.Name, t.name, f)
}

// findLeft reports what the legacy side has of a resource that is handed over, and in namespaces that have handed it
// over.
func (r *reporter) findLeft(store *storeScan, t *resourceTally) {
	if t.row == nil || t.row.Legacy.Store != store.Name {
		return
	}
	f := finding.Finding{Rule: "FUS235", Severity: finding.Warning,
		Fix: "create them through the modern API server, and delete them through the legacy one; fusionctl " +
			"transition hands over what has not gone yet"}
	if t.row.HandedOver && t.others.keys > 0 {
		f.Count, f.Related = t.others.count(), t.others.samples
		f.Message = nKeys(t.others.keys) + " of a resource that is handed over: no controller of the legacy side " +
			"acts for them"
		r.add(store.Name, t.name, f)
	}
	for _, namespace := range t.row.HandedOverIn {
		if in := t.namespaces[namespace]; in != nil {
			f.Key, f.Count = namespace, finding.Count(in.keys)
			f.Message = fmt.Sprintf("%s in namespace %s, which has handed the resource over: the legacy side acts for "+
				"them, and the modern side for the others of the namespace", nKeys(in.keys), namespace)
			r.add(store.Name, t.name, f)
		}
	}
}

// copies is how many keys of the resource in the store are held by one of its homes as well, as far as homes were read
// to their end, and which were not.
func (r *reporter) copies(store *storeScan, t *resourceTally, homes []string) (copies int64, unread []string) {
	for _, name := range homes {
		home := r.whole(name)
		if home == nil {
			unread = append(unread, name)
			continue
		}
		keyindex.InBoth(&store.index, &home.index, func(a, _ keyindex.ID) {
			if a.Resource() == t.number && !a.Boot() {
				copies++
			}
		})
	}
	return copies, unread
}

// duplicates are the keys of a resource that two stores hold: with the same UID, and with different ones.
type duplicates struct {
	a, b        *storeScan
	ta, tb      *resourceTally
	same, other counted
}

// split reports whether two objects of one name are as planned: one per side.
func (d *duplicates) split() bool {
	return d.ta.row != nil && d.ta.row.Owner == pair.OwnerSplit && len(d.ta.row.Homes()) > 1
}

// findDuplicates reports keys that two stores hold.
func (r *reporter) findDuplicates(ctx context.Context) {
	for i, a := range r.stores {
		for _, b := range r.stores[i+1:] {
			byNumber := map[uint16]*duplicates{}
			keyindex.InBoth(&a.index, &b.index, func(x, y keyindex.ID) {
				d, ok := byNumber[x.Resource()]
				if !ok {
					d = &duplicates{a: a, b: b}
					byNumber[x.Resource()] = d
				}
				if c := d.counted(x, y); c != nil {
					c.keys++
				}
			})
			var found []*duplicates
			for _, name := range sortedKeys(a.total.resources) {
				ta, tb := a.total.resources[name], b.total.resources[name]
				if d := byNumber[ta.number]; d != nil && tb != nil && d.same.keys+d.other.keys > 0 {
					d.ta, d.tb = ta, tb
					found = append(found, d)
				}
			}
			r.nameDuplicates(ctx, found)
			for _, d := range found {
				r.addDuplicates(d)
			}
		}
	}
}

// counted is the count to which a key in both stores belongs; nil for keys that each API server writes for itself.
func (d *duplicates) counted(x, y keyindex.ID) *counted {
	switch {
	case x.Boot() && y.Boot():
		return nil
	case x.SameObject(y):
		return &d.same
	}
	return &d.other
}

func (r *reporter) addDuplicates(d *duplicates) {
	where := fmt.Sprintf("in both stores %s and %s", d.a.Name, d.b.Name)
	add := func(severity finding.Severity, which string, c counted, message, fix string) {
		r.add(d.b.Name, d.tb.name, finding.Finding{Rule: "FUS230", Severity: severity, Key: which + " " + d.a.Name,
			Count: c.count(), Related: c.samples, Message: message, Fix: fix})
	}
	if r.depth == DepthKeys {
		if d.other.keys > 0 && !d.split() { // without UIDs they cannot be the same object
			add(finding.Warning, "key", d.other,
				fmt.Sprintf("%s %s; --depth envelope compares their UIDs", nKeys(d.other.keys), where), "")
		}
		return
	}
	switch {
	case d.same.keys == 0:
	case d.ta.row != nil && d.ta.row.Copied:
		add(finding.Info, "object", d.same, fmt.Sprintf("%s %s: copies of what the legacy side keeps, as "+
			"spec.handedOver wants them", prose.Counted(d.same.keys, "object"), where), "")
	default:
		add(finding.Error, "object", d.same, fmt.Sprintf("%s %s with the same UID: copies of one object, which "+
			"diverge", prose.Counted(d.same.keys, "object"), where),
			"keep the copy in the store where the owner keeps the resource; fusionctl etcd move apply resumes an "+
				"interrupted move")
	}
	switch {
	case d.other.keys == 0:
	case d.split():
		add(finding.Info, "name", d.other, fmt.Sprintf("%s %s: two objects, one per side, as owner split allows; "+
			"objects that they create in shared resources may collide by name", prose.Counted(d.other.keys, "name"),
			where),
			"")
	default:
		add(finding.Error, "name", d.other, fmt.Sprintf("%s %s with different UIDs: two objects of one name",
			prose.Counted(d.other.keys, "name"), where), "")
	}
}

// findTypes reports what the readers of a store cannot decode.
func (r *reporter) findTypes() {
	for _, store := range r.stores {
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			for _, why := range sortedKeys(t.unreadable) {
				c := t.unreadable[why]
				r.add(store.Name, name, finding.Finding{Rule: "FUS000", Severity: r.deadly(store, t), Key: why,
					Count: c.count(), Related: c.samples,
					Message: fmt.Sprintf("%s cannot be read: %s; %s", prose.Counted(c.keys, "value"), why,
						r.deadList(store, t)),
					Fix: "read the key with fusionctl etcd get -o raw, restore it from a backup, or delete it with " +
						"etcdctl"})
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

// deadList names the sides whose lists fail because of one value of the resource in the store.
func (r *reporter) deadList(store *storeScan, t *resourceTally) string {
	if t.row == nil {
		return "no side reads this resource"
	}
	readers := t.row.Readers(store.Name)
	if len(readers) == 0 {
		return "no side reads this resource from this store"
	}
	return fmt.Sprintf("every list and watch of %s through the %s fails", t.listed(readers), sides(readers))
}

// deadly is the severity of a value that cannot be read: info where no side reads it.
func (r *reporter) deadly(store *storeScan, t *resourceTally) finding.Severity {
	if t.row == nil || len(t.row.Readers(store.Name)) == 0 {
		return finding.Warning
	}
	return finding.Error
}

// listed names the lists of a resource through the sides: "ingresses (extensions/v1beta1, networking.k8s.io/v1beta1)".
func (t *resourceTally) listed(readers []pair.Side) string {
	var versions []string
	for _, side := range readers {
		versions = append(versions, t.row.View(side).Serves...)
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) == 0 {
		return storage.PlainName(t.name)
	}
	return fmt.Sprintf("%s (%s)", storage.PlainName(t.name), strings.Join(versions, ", "))
}

// sides prints "legacy side", "legacy side and the modern side".
func sides(names []pair.Side) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = string(name) + " side"
	}
	return strings.Join(words, " and the ")
}

func (r *reporter) findEncrypted(store *storeScan, t *resourceTally, provider string) {
	c := t.encrypted[provider]
	f := finding.Finding{Rule: "FUS070", Severity: finding.Info, Key: provider, Count: c.count(), Related: c.samples}
	name, key, _ := strings.Cut(provider, ":")
	f.Message = fmt.Sprintf("%s encrypted by provider %q with key %q: their types, owners and dependents were not "+
		"checked", prose.Counted(c.keys, "value"), name, key)
	if t.row != nil {
		if readers := t.row.Readers(store.Name); len(readers) > 1 {
			f.Severity = finding.Warning
			f.Message += "; both sides read them"
			for _, side := range readers {
				switch r.m.ControlPlane(side).Undecryptable {
				case pair.UndecryptableOmitted:
					f.Message += fmt.Sprintf(", and with other keys the %s side silently omits them from lists; "+
						"without any, every list of %s through it fails", side, storage.PlainName(t.name))
				case pair.UndecryptableFails:
					f.Message += fmt.Sprintf(", and without the key every list of %s through the %s side fails, and "+
						"its API server may not become ready", storage.PlainName(t.name), side)
				}
			}
			f.Fix = "give both API servers the same keys in --encryption-provider-config " +
				"(--experimental-encryption-provider-config before 1.13)"
		} else if r.hidesFindings(t, readers) {
			f.Severity = finding.Warning
			f.Message += "; findings about other objects, or about what a garbage collector deletes, may be missing"
		}
	}
	r.add(store.Name, t.name, f)
}

// hidesFindings reports whether what is in values of the resource decides more than how they are stored. Secrets do not
// count: many clusters encrypt them, and few have owners.
func (r *reporter) hidesFindings(t *resourceTally, readers []pair.Side) bool {
	return t.name != "secrets" && (tells(t.name) || slices.ContainsFunc(readers, func(side pair.Side) bool {
		collector := r.m.ControlPlane(side).Collector
		return collector.Runs && collector.Deletes()
	}))
}

// findType reports one stored type of a resource that a reader of the store cannot decode.
func (r *reporter) findType(store *storeScan, t *resourceTally, st stored, tally *storedTally) {
	if t.row == nil {
		return
	}
	if t.row == &r.m.CustomResources || t.row.Kind == "" {
		return // versions of custom resources are judged by their CRD
	}
	if st.Kind != t.row.Kind {
		r.add(store.Name, t.name, finding.Finding{Rule: "FUS000", Severity: finding.Error,
			Key: st.key(), Count: tally.count(), Related: tally.samples,
			Message: fmt.Sprintf("%s of kind %s %s where %s belongs; %s", prose.Counted(tally.keys, "object"),
				st.APIVersion,
				st.Kind, t.row.Kind, r.deadList(store, t)),
			Fix: "delete the key with etcdctl, or restore the object from a backup"})
		return
	}
	for _, side := range t.row.Readers(store.Name) {
		version := r.m.ControlPlane(side).Version
		f := finding.Finding{Severity: finding.Error, Key: finding.Key(st.key(), string(side)), Count: tally.count(),
			Related: tally.samples}
		switch facts := t.row.View(side); {
		case st.Encoding == storage.CBOR:
			f.Rule = "FUS072"
			f.Message = fmt.Sprintf("%s stored as CBOR, which versions before 1.32 cannot read and later ones read "+
				"behind a feature gate; the %s side (%s) reads this store", prose.Counted(tally.keys, "object"), side,
				version)
			f.Fix = "set --feature-gates=CBORServingAndStorage=false and rewrite the objects"
		case !slices.Contains(facts.Decodes, st.APIVersion):
			f.Rule = undecodableRule(t, tally)
			f.Message = fmt.Sprintf("%s stored as %s, which the %s side (%s) cannot decode: every list and watch of "+
				"%s through it fails", prose.Counted(tally.keys, "object"), st.APIVersion, side, version,
				t.listed([]pair.Side{side}))
			f.Fix = r.undecodableFix(t, side, f.Rule)
			if len(facts.Serves) == 0 {
				f.Severity = finding.Warning
				f.Message = fmt.Sprintf("%s stored as %s, which the %s side (%s) cannot decode: it serves no %s as "+
					"it is configured, and could not list them if it did", prose.Counted(tally.keys, "object"),
					st.APIVersion,
					side, version, storage.PlainName(t.name))
			}
		case slices.Contains(facts.WatchBreaks, st.APIVersion):
			f.Rule = "FUS003"
			f.Message = fmt.Sprintf("%s stored as %s, which the %s side (%s) decodes in lists but not in watches: "+
				"each write to one of them closes every watch of %s", prose.Counted(tally.keys, "object"),
				st.APIVersion, side,
				version, storage.PlainName(t.name))
			f.Fix = "use owner split for the resource, or a patch release of that side with the fix of kubernetes#73482"
			if owner := pair.Side(t.row.Owner); owner != side && slices.Contains(pair.Sides(), owner) &&
				st.APIVersion == t.row.View(owner).StoredAs {
				// As planned: the other side owns the resource and stores it in its own form. Clients that only list
				// are not affected.
				f.Severity = finding.Info
				f.Fix = fmt.Sprintf("let no client watch %s through the %s side", storage.PlainName(t.name), side)
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

func (r *reporter) undecodableFix(t *resourceTally, side pair.Side, rule string) string {
	if rule == "FUS090" {
		return "use layout split, which gives the modern side its own default store, or disable the group with " +
			"--runtime-config; an API server writes these at its start, without authorization"
	}
	other := side.Other()
	return fmt.Sprintf("set owner %[2]s or split, which keeps what the %[1]s side writes in its own store, move "+
		"these objects there, or make the %[3]s side store one of %[4]s",
		other, other, other, strings.Join(t.row.View(side).Decodes, ", "))
}

// orphans are the objects of a resource in namespaces that a side which reads them does not have.
type orphans struct {
	*resourceTally
	home    *storeScan          // where the namespaces are looked for
	absent  map[string]*counted // by namespace
	objects counted
}

// findOrphans reports objects in namespaces that do not exist for a side that reads them.
func (r *reporter) findOrphans(ctx context.Context) {
	namespaces := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: "namespaces"})
	if namespaces == nil {
		return
	}
	for _, store := range r.stores {
		var all []*orphans
		for _, name := range sortedKeys(store.total.resources) {
			t := store.total.resources[name]
			if t.row == nil {
				continue
			}
			// Two sides that look into one store for namespaces share one finding.
			looked := map[string]bool{}
			for _, side := range t.row.Readers(store.Name) {
				home := r.whole(namespaces.View(side).Store)
				if home == nil || looked[home.Name] {
					continue // what was not read is not absent
				}
				looked[home.Name] = true
				o := &orphans{resourceTally: t, home: home, absent: map[string]*counted{}}
				for namespace := range t.namespaces {
					if !home.total.facts.namespaces[namespace] {
						o.absent[namespace] = &counted{keys: t.namespaces[namespace].keys}
					}
				}
				if len(o.absent) > 0 {
					all = append(all, o)
				}
			}
		}
		r.nameOrphans(ctx, store, all)
		for _, o := range all {
			r.addOrphans(store, o)
		}
	}
}

func (r *reporter) addOrphans(store *storeScan, o *orphans) {
	for _, c := range o.absent {
		o.objects.merge(c)
	}
	if o.objects.keys == 0 {
		return
	}
	r.add(store.Name, o.name, finding.Finding{Rule: "FUS130", Severity: finding.Warning, Key: o.home.Name,
		Count: o.objects.count(), Related: o.objects.samples,
		Message: fmt.Sprintf("%s in %s that store %s does not have (%s): they reappear when a namespace of that name "+
			"is created",
			prose.Counted(o.objects.keys, "object"), prose.Counted(int64(len(o.absent)), "namespace"), o.home.Name,
			abbreviate(sortedKeys(o.absent))),
		Fix: "create the namespace, or delete them where the running cluster does not have it either; a namespace " +
			"controller deletes only what it can list through its own API server"})
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
			for _, side := range pair.Sides() {
				r.addDropped(store, t, side)
			}
		}
	}
}

func (r *reporter) addDropped(store *storeScan, t *resourceTally, side pair.Side) {
	lost, idle := t.droppedFields(side, true), t.droppedFields(side, false)
	if len(lost)+len(idle) == 0 {
		return
	}
	objects := t.dropped[dropped{side: side, matters: true}]
	f := finding.Finding{Rule: "FUS001", Severity: finding.Warning,
		Fix: "let one version write these objects: its controllers, and its kubelets"}
	if objects == nil {
		objects = t.dropped[dropped{side: side}]
		f.Severity, f.Fix = finding.Info, ""
	}
	if t.name == "events" {
		f.Severity, f.Fix = finding.Info, "" // events, which expire after an hour
	}
	f.Key, f.Count, f.Related = string(side), objects.count(), objects.samples
	holds := "hold"
	if objects.keys == 1 {
		holds = "holds"
	}
	var fields []string
	if len(lost) > 0 {
		fields = append(fields, strings.Join(lost, ", "))
	}
	if len(idle) > 0 {
		fields = append(fields, "without effect: "+strings.Join(idle, ", "))
	}
	f.Message = fmt.Sprintf("%s %s fields that the %s side (%s) does not know and drops with every write, even of "+
		"the status: %s",
		prose.Counted(objects.keys, "object"), holds, side, r.m.ControlPlane(side).Version, strings.Join(fields, "; "))
	r.add(store.Name, t.name, f)
}

// droppedFields lists the fields that objects hold and the side drops, with the number of objects.
func (t *resourceTally) droppedFields(side pair.Side, matters bool) []string {
	var fields []string
	for d, c := range t.dropped {
		if d.side == side && d.matters == matters && d.path != "" {
			fields = append(fields, fmt.Sprintf("%s (%d)", d.path, c.keys))
		}
	}
	slices.Sort(fields)
	return fields
}
