package scan

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// findCRDs reports CRDs that lost fields or will lose them, and custom resources stored in versions that their CRD does
// not account for.
func (r *reporter) findCRDs() {
	for _, store := range r.stores {
		if len(store.incomplete) == 0 && !store.legible(storage.CRDResource) {
			store.note("some CRDs are encrypted or damaged: custom resources and APIServices without a CRD were not " +
				"looked for")
		}
		r.findTruncated(store)
		r.findDoomedCRDs(store)
		for _, name := range sortedKeys(store.total.resources) {
			if t := store.total.resources[name]; t.form == storage.FormGrouped && t.row != nil && t.row.Kind == "" {
				r.findCustomVersions(store, t)
			}
		}
	}
}

// findTruncated compares CRDs with what their newest reader always writes.
func (r *reporter) findTruncated(store *storeScan) {
	row := storage.RowOf(r.m, storage.Key{Form: storage.FormGrouped, Resource: storage.CRDResource})
	if row == nil {
		return
	}
	truncated, unread := map[string]*counted{}, map[string]*counted{}
	for _, c := range store.total.facts.crds {
		key := storage.CRDResource + "/" + c.name
		if lost := r.lostOf(&c.crd, row, row.Readers(store.Name)); len(lost) > 0 {
			addTo(truncated, strings.Join(lost, ","), key)
		}
		var unserved []string
		for _, version := range c.Status.StoredVersions {
			if !c.has(version) {
				unserved = append(unserved, version)
			}
		}
		if len(unserved) > 0 {
			addTo(unread, abbreviate(unserved), key)
		}
	}
	for _, lost := range sortedKeys(truncated) {
		c, have := truncated[lost], "have"
		if c.keys == 1 {
			have = "has"
		}
		r.add(store.Name, storage.CRDResource,
			finding.Finding{Rule: "FUS031", Severity: finding.Error, Key: "lost " + lost,
				Count: c.count(), Related: c.samples,
				Message: fmt.Sprintf("%s %s lost %s: an API server that does not know these fields has rewritten "+
					"them, or created them", prose.Counted(c.keys, "CRD"), have, lostText(lost)),
				Fix: "apply the CRDs again through the modern API server; use layout split, in which the legacy side " +
					"does not write them"})
	}
	for _, versions := range sortedKeys(unread) {
		c := unread[versions]
		r.add(store.Name, storage.CRDResource,
			finding.Finding{Rule: "FUS031", Severity: finding.Error, Key: "versions " + versions, Count: c.count(),
				Related: c.samples,
				Message: fmt.Sprintf("%s: objects may be stored as %s, which spec.versions does not list: they "+
					"cannot be read", prose.Counted(c.keys, "CRD"), versions),
				Fix: "restore the version in spec.versions, or rewrite the objects and then remove it from " +
					"status.storedVersions"})
	}
}

// lostOf lists what a CRD would hold if its newest reader had been the last to write it.
func (r *reporter) lostOf(c *crd, row *pair.Resource, readers []pair.Side) []string {
	var lost []string
	preserves := c.Spec.PreserveUnknownFields != nil && *c.Spec.PreserveUnknownFields
	for _, side := range readers {
		plane := r.m.ControlPlane(side)
		// While v1beta1 is served, clients may make CRDs without schemas, which preserve unknown fields; and those
		// that were handed over were made while it was.
		v1beta1 := row.HandedOver || slices.Contains(plane.GroupVersions, "apiextensions.k8s.io/v1beta1")
		// One that a legacy side of 1.10 has written is read by a later one alone as having the version that it names.
		// Source: SetDefaults_CustomResourceDefinition of every minor from 1.11 on, and TestLegacyGoesUp.
		if side == pair.Legacy && len(readers) == 1 && c.Spec.Version != "" && len(c.Spec.Versions) == 0 {
			continue
		}
		if slices.Contains(plane.CRDFields, "spec.versions") && len(c.Spec.Versions) == 0 {
			lost = append(lost, "spec.versions")
		}
		if slices.Contains(plane.CRDFields, "status.storedVersions") && len(c.Status.StoredVersions) == 0 {
			lost = append(lost, "status.storedVersions")
		}
		switch {
		case !preserves || !slices.Contains(plane.CRDFields, crdPruning):
		case !c.hasSchema() && (!v1beta1 || r.truncates(side.Other(), readers)):
			lost = append(lost, crdSchemas)
		case c.hasSchema() && !v1beta1 && r.truncates(side.Other(), readers):
			// Through v1 no client can set that: it is the newer server's default where the field is
			// missing.
			lost = append(lost, crdPruning)
		}
	}
	slices.Sort(lost)
	return slices.Compact(lost)
}

const (
	crdPruning = "spec.preserveUnknownFields"
	crdSchemas = "schemas"
)

// lostText names what CRDs lost, as lostOf lists it.
func lostText(lost string) string {
	fields := strings.Split(lost, ",")
	for i, field := range fields {
		switch field {
		case crdSchemas:
			fields[i] = "every schema"
		case crdPruning:
			fields[i] = crdPruning + "=false, and with it other versions and parts of schemas"
		}
	}
	return strings.Join(fields, " and ")
}

// truncates reports whether one of the readers drops unknown fields when it writes a CRD.
func (r *reporter) truncates(side pair.Side, readers []pair.Side) bool {
	keeps := r.m.ControlPlane(side).CRDFields
	return slices.Contains(readers, side) && len(keeps) > 0 && !slices.Contains(keeps, crdPruning)
}

func (c *crd) has(version string) bool {
	if len(c.Spec.Versions) == 0 {
		return c.Spec.Version == version
	}
	for _, v := range c.Spec.Versions {
		if v.Name == version {
			return true
		}
	}
	return false
}

func (c *crd) hasSchema() bool {
	if c.Spec.Validation {
		return true
	}
	for _, v := range c.Spec.Versions {
		if v.Schema {
			return true
		}
	}
	return false
}

// findDoomedCRDs reports the CRDs that a reader of the store truncates when it next writes them.
func (r *reporter) findDoomedCRDs(store *storeScan) {
	row := storage.RowOf(r.m, storage.Key{Form: storage.FormGrouped, Resource: storage.CRDResource})
	if row == nil {
		return
	}
	if readers := row.Readers(store.Name); len(readers) < 2 {
		r.findHiddenVersions(store, readers)
		return
	}
	for _, side := range row.Readers(store.Name) {
		keeps := r.m.ControlPlane(side).CRDFields
		if len(keeps) == 0 {
			continue
		}
		var doomed counted
		fields := map[string]bool{}
		for _, c := range store.total.facts.crds {
			var lost bool
			for _, field := range c.fields {
				if !slices.Contains(keeps, field) {
					fields[field], lost = true, true
				}
			}
			if lost {
				doomed.add(storage.CRDResource + "/" + c.name)
			}
		}
		if doomed.keys > 0 {
			r.add(store.Name, storage.CRDResource, finding.Finding{Rule: "FUS031", Severity: finding.Error,
				Key: "rewritten " + string(side), Count: doomed.count(), Related: doomed.samples,
				Message: fmt.Sprintf("the controllers of the %s side (%s) write %s back without %s", side,
					r.m.ControlPlane(side).Version, prose.Counted(doomed.keys, "CRD"),
					strings.Join(sortedKeys(fields), ", ")),
				Fix: "use layout split, which gives the modern side its own default store: no override moves CRDs"})
		}
	}
}

// findHiddenVersions reports the CRDs of which the only reader knows one version of several.
func (r *reporter) findHiddenVersions(store *storeScan, readers []pair.Side) {
	for _, side := range readers {
		plane := r.m.ControlPlane(side)
		if len(plane.CRDFields) == 0 || slices.Contains(plane.CRDFields, "spec.versions") {
			continue
		}
		var hidden counted
		for _, c := range store.total.facts.crds {
			if len(c.Spec.Versions) > 1 {
				hidden.add(storage.CRDResource + "/" + c.name)
			}
		}
		if hidden.keys > 0 {
			r.add(store.Name, storage.CRDResource, finding.Finding{Rule: "FUS031", Severity: finding.Error,
				Key: "hidden " + string(side), Count: hidden.count(), Related: hidden.samples,
				Message: fmt.Sprintf("%s of several versions: %s knows spec.version alone, and drops the others when "+
					"it writes them", prose.Counted(hidden.keys, "CRD"), plane.Version),
				Fix: "store all objects in one version, and remove the others from the CRD"})
		}
	}
}

// findCustomVersions compares how custom resources are stored with their CRD.
func (r *reporter) findCustomVersions(store *storeScan, t *resourceTally) {
	c, ok := store.total.facts.crds[t.name]
	if !ok {
		if t.others.keys > 0 && store.legible(storage.CRDResource) {
			r.add(store.Name, t.name,
				finding.Finding{Rule: "FUS232", Severity: finding.Warning, Count: t.others.count(),
					Related: t.others.samples,
					Message: fmt.Sprintf("%s without a CRD in this store: no API server serves them",
						prose.Counted(t.others.keys, "custom resource")),
					Fix: "restore the CRD, or delete the objects"})
		}
		return
	}
	for st, tally := range t.types {
		group, version := splitAPIVersion(st.APIVersion)
		f := finding.Finding{Severity: finding.Error, Key: st.key(), Count: tally.count(), Related: tally.samples}
		switch {
		case group != c.Spec.Group || st.Kind != c.Spec.Names.Kind:
			f.Rule = "FUS000"
			f.Message = fmt.Sprintf("%s of kind %s %s where %s %s belongs", prose.Counted(tally.keys, "object"),
				st.APIVersion,
				st.Kind, c.Spec.Group, c.Spec.Names.Kind)
		case !c.has(version):
			f.Rule = "FUS031"
			f.Message = fmt.Sprintf("%s stored as %s, a version that the CRD does not list: they cannot be read",
				prose.Counted(tally.keys, "object"), st.APIVersion)
			f.Fix = "restore the version in the CRD's spec.versions"
		case len(c.Status.StoredVersions) > 0 && !slices.Contains(c.Status.StoredVersions, version):
			f.Rule, f.Severity = "FUS031", finding.Warning
			f.Message = fmt.Sprintf("%s stored as %s, which status.storedVersions does not list: a storage migration "+
				"would skip them", prose.Counted(tally.keys, "object"), st.APIVersion)
			f.Fix = "add the version to status.storedVersions, then migrate"
		default:
			continue
		}
		r.add(store.Name, t.name, f)
	}
}

// findAPIServices reports announced group/versions that a reader of the store does not serve.
func (r *reporter) findAPIServices() {
	row := storage.RowOf(r.m, storage.Key{Form: storage.FormGrouped, Resource: storage.APIServiceResource})
	if row == nil {
		return
	}
	for _, store := range r.stores {
		readers := row.Readers(store.Name)
		for _, side := range readers {
			served := r.m.ControlPlane(side).GroupVersions
			if len(served) == 0 {
				continue
			}
			var unknown, stale, nobodys counted
			for _, name := range sortedKeys(store.total.facts.apiServices) {
				a := store.total.facts.apiServices[name]
				gv := joinAPIVersion(a.Spec.Group, a.Spec.Version)
				switch {
				case a.Spec.Service != nil || slices.Contains(served, gv) ||
					store.servesCustom(a.Spec.Group, a.Spec.Version):
				case a.automanaged == "onstart" && len(readers) == 1:
					stale.add(storage.APIServiceResource + "/" + name)
				case slices.Contains(r.m.ControlPlane(side.Other()).GroupVersions, gv) || a.automanaged == "onstart":
					unknown.add(storage.APIServiceResource + "/" + name)
				default:
					nobodys.add(storage.APIServiceResource + "/" + name)
				}
			}
			if nobodys.keys > 0 && store.legible(storage.CRDResource) {
				r.add(store.Name, storage.APIServiceResource, finding.Finding{Rule: "FUS030", Severity: finding.Warning,
					Key: "undefined " + string(side), Count: nobodys.count(), Related: nobodys.samples,
					Message: fmt.Sprintf("%s of group/versions that no CRD in this store has: the %s side (%s) "+
						"announces them and answers 404, which blocks its deletion of namespaces, until it removes "+
						"them",
						prose.Counted(nobodys.keys, "APIService"), side, r.m.ControlPlane(side).Version),
					Fix: "restore the CRDs, or delete the APIServices"})
			}
			if stale.keys > 0 { // of its own earlier version, where it was upgraded
				r.add(store.Name, storage.APIServiceResource, finding.Finding{Rule: "FUS030", Severity: finding.Warning,
					Key: "stale " + string(side), Count: stale.count(), Related: stale.samples,
					Message: fmt.Sprintf("%s that an API server of another version has written, of group/versions "+
						"that the %s side (%s) does not serve: it deletes them when it starts, and announces groups "+
						"until then that answer 404, which blocks its deletion of namespaces",
						prose.Counted(stale.keys, "APIService"), side, r.m.ControlPlane(side).Version),
					Fix: fmt.Sprintf("start the API servers of the %s side again, if they run in this version", side)})
			}
			if unknown.keys > 0 {
				r.add(store.Name, storage.APIServiceResource, finding.Finding{Rule: "FUS030", Severity: finding.Error,
					Key: "unserved " + string(side), Count: unknown.count(), Related: unknown.samples,
					Message: fmt.Sprintf("%s of group/versions that the %s side (%s) does not serve: it deletes them "+
						"at its next start, or announces groups that answer 404, which blocks its deletion of "+
						"namespaces",
						prose.Counted(unknown.keys, "APIService"), side, r.m.ControlPlane(side).Version),
					Fix: "use layout split, which gives the modern side its own default store: no override moves " +
						"APIServices"})
			}
		}
	}
}

func (s *storeScan) servesCustom(group, version string) bool {
	for _, c := range s.total.facts.crds {
		if c.Spec.Group == group && c.has(version) {
			return true
		}
	}
	return false
}

// findAllocations reports ClusterIPs and node ports allocated twice, and ranges and allocators that disagree with the
// services.
func (r *reporter) findAllocations(ctx context.Context) {
	r.findSharedAddresses(ctx)
	for _, store := range r.stores {
		r.findRangeStrings(store)
		r.findBitmaps(ctx, store)
		r.findAddresses(ctx, store)
	}
}

// claim is the user of an address or a port.
type claim struct {
	store string
	ref   objectRef
}

func (c claim) String() string { return c.store + ":" + c.ref.String() }

func (r *reporter) findSharedAddresses(ctx context.Context) {
	addresses, ports := map[string][]claim{}, map[string][]claim{}
	for _, store := range r.stores {
		for ref, s := range store.total.facts.services {
			for _, ip := range s.ClusterIPs {
				addClaim(addresses, canonicalIP(ip), claim{store.Name, ref})
			}
			for _, p := range s.NodePorts {
				addClaim(ports, p.String(), claim{store.Name, ref})
			}
		}
	}
	r.addShared("ClusterIP", addresses, func(c claim, ip string) bool {
		return r.stillClaims(ctx, r.store(c.store), c.ref, func(s *service) bool { return s.hasIP(ip) })
	})
	r.addShared("node port", ports, func(c claim, port string) bool {
		return r.stillClaims(ctx, r.store(c.store), c.ref, func(s *service) bool {
			return slices.ContainsFunc(s.NodePorts, func(p nodePort) bool { return p.String() == port })
		})
	})
}

// addClaim adds a claim, unless the same service claims it already: a copy in another store is another finding.
func addClaim(claims map[string][]claim, what string, c claim) {
	if !slices.ContainsFunc(claims[what], func(other claim) bool { return other.ref == c.ref }) {
		claims[what] = append(claims[what], c)
	}
}

func (p nodePort) String() string { return strconv.Itoa(int(p.Port)) + "/" + p.Protocol }

func (s *service) hasIP(canonical string) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(ip string) bool { return canonicalIP(ip) == canonical })
}

func (r *reporter) addShared(what string, claims map[string][]claim, still func(c claim, value string) bool) {
	type group struct{ store, rule string }
	shared := map[group]*counted{}
	for _, value := range sortedKeys(claims) {
		cs := claims[value]
		if len(cs) > 1 {
			cs = slices.DeleteFunc(cs, func(c claim) bool { return !still(c, value) })
		}
		if len(cs) < 2 {
			continue
		}
		slices.SortFunc(cs, func(a, b claim) int {
			if c := strings.Compare(a.store, b.store); c != 0 {
				return c
			}
			return compareRefs(a.ref, b.ref)
		})
		g := group{cs[0].store, "FUS050"}
		if r.inTwoSets(cs) {
			g.rule = "FUS052"
		}
		if shared[g] == nil {
			shared[g] = &counted{}
		}
		words := make([]string, len(cs))
		for i, c := range cs {
			words[i] = c.String()
		}
		shared[g].add(value + ": " + strings.Join(words, ", "))
	}
	for g, c := range shared {
		f := finding.Finding{Rule: g.rule, Severity: finding.Error, Key: what, Count: c.count(), Related: c.samples,
			Message: fmt.Sprintf("%s allocated to more than one service: traffic for one reaches the other",
				prose.Counted(c.keys, what)),
			Fix: "delete and recreate one service of each, and let only one side create services"}
		if g.rule == "FUS052" {
			f.Fix = "the sides keep services in different stores with one range: set owner shared for services, or " +
				"spec.network.modernServiceCIDRs"
		}
		r.add(g.store, "services/specs", f)
	}
}

// inTwoSets reports whether the sides read the claiming services from different stores. Services in a store from which
// no side reads them are misplaced, and no second set.
func (r *reporter) inTwoSets(claims []claim) bool {
	row := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: "services/specs"})
	if row == nil {
		return false
	}
	first := ""
	for _, c := range claims {
		if len(row.Readers(c.store)) == 0 || c.store == first {
			continue
		}
		if first != "" {
			return true
		}
		first = c.store
	}
	return false
}

func canonicalIP(s string) string {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Unmap().String()
	}
	return s
}

func canonicalCIDR(s string) string {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked().String()
	}
	return s
}

// allocates reports whether a side's allocator works on a range with the address. A range that cannot be read counts as
// one with it.
func (r *reporter) allocates(side pair.Side, address string) bool {
	own := r.m.ControlPlane(side).ServiceCIDRs
	ip, err := netip.ParseAddr(address)
	return len(own) == 0 || err != nil || slices.ContainsFunc(own, func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		return err != nil || prefix.Contains(ip)
	})
}

// findRangeStrings compares the ranges in the store with those of the map.
func (r *reporter) findRangeStrings(store *storeScan) {
	var want []string
	for _, cidr := range r.m.ServiceCIDRs {
		want = append(want, canonicalCIDR(cidr))
	}
	check := func(resource, got string, want []string) {
		if got == "" || len(want) == 0 || want[0] == "" || slices.Contains(want, canonicalCIDR(got)) {
			return
		}
		rule := "FUS051"
		if resource == "servicecidrs" {
			rule = "FUS053"
		}
		r.add(store.Name, resource, finding.Finding{Rule: rule, Severity: finding.Error, Key: got,
			Message: fmt.Sprintf("it holds the range %q, want %s: an API server with another range refuses to "+
				"allocate from it", got, strings.Join(want, " or ")),
			Fix: "give both API servers the same --service-cluster-ip-range and --service-node-port-range"})
	}
	for _, name := range sortedKeys(store.total.facts.allocations) {
		a := store.total.facts.allocations[name]
		if name == "servicenodeports" {
			check(storage.RangesResource+"/"+name, a.Range, []string{r.m.NodePortRange})
		} else {
			check(storage.RangesResource+"/"+name, a.Range, want)
		}
	}
	for _, cidr := range store.total.facts.cidrs["kubernetes"] {
		check("servicecidrs", cidr, want)
	}
}

// findBitmaps compares the allocators' bitmaps with the services beside them. Ranges lie where services lie.
func (r *reporter) findBitmaps(ctx context.Context, store *storeScan) {
	for _, name := range sortedKeys(store.total.facts.allocations) {
		a := store.total.facts.allocations[name]
		first, size, isPort := rangeStart(a.Range)
		if size == 0 {
			continue
		}
		used, taken := map[int]bool{}, map[int]bool{}
		var free counted
		for ref, s := range store.total.facts.services {
			for _, offset := range s.offsets(first, size, isPort) {
				used[offset] = true
				if !a.has(offset) && !r.allocatedNow(ctx, store, name, offset) &&
					r.stillClaims(ctx, store, ref, func(s *service) bool {
						return slices.Contains(s.offsets(first, size, isPort), offset)
					}) {
					taken[offset] = true // once, however many services have it
					free.samples.add(ref.String() + " " + offsetName(first, offset, isPort))
				}
			}
		}
		free.keys = int64(len(taken))
		if free.keys > 0 && r.allocatesFrom(store, name, isPort) {
			f := finding.Finding{Rule: "FUS050", Severity: finding.Error, Key: "free", Count: free.count(),
				Related: free.samples,
				Message: fmt.Sprintf("the bitmap lacks %s of services: the allocator that reads it allocates "+
					"them again (it is repaired every 3 minutes)", prose.Counted(free.keys, "allocation")),
				Fix: "let only the side whose allocator keeps the bitmap create services"}
			if who, when := r.completes(store, name, a.Range, isPort); who != "" {
				f.Severity, f.Fix = finding.Warning, "create no services through "+who+" until then"
				f.Message = fmt.Sprintf("the bitmap lacks %s of services: %s adds them %s",
					prose.Counted(free.keys, "allocation"), who, when)
			}
			r.add(store.Name, storage.RangesResource+"/"+name, f)
		}
		if !store.legible("services/specs") {
			continue // one of the others may use it
		}
		var leaked int64
		for offset := range a.highest() {
			if a.has(offset) && !used[offset] {
				leaked++
			}
		}
		if leaked > 0 {
			r.add(store.Name, storage.RangesResource+"/"+name,
				finding.Finding{Rule: "FUS050", Severity: finding.Info, Key: "leaked", Count: finding.Count(leaked),
					Message: fmt.Sprintf("the bitmap holds %s that no service in this store uses",
						prose.Counted(leaked, "allocation"))})
		}
	}
}

// allocatedNow reports whether the bitmap of a live store holds the offset by now.
func (r *reporter) allocatedNow(ctx context.Context, store *storeScan, name string, offset int) bool {
	entry, _ := r.now(ctx, store, r.classifier.ObjectKey(storage.RangesResource, "", name))
	if entry == nil {
		return false
	}
	envelope, err := storage.ReadEnvelope(entry.Value)
	if err != nil || envelope.Encoding == storage.Encrypted {
		return false
	}
	a, err := readAllocation(&envelope)
	return err == nil && a.has(offset)
}

// allocatesFrom reports whether a side that reads ranges from the store allocates from the bitmap. Node ports always
// are.
func (r *reporter) allocatesFrom(store *storeScan, name string, isPort bool) bool {
	row := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: storage.RangesResource, Name: name})
	if row == nil || isPort {
		return true
	}
	for _, side := range row.Readers(store.Name) {
		if r.m.ControlPlane(side).Allocates == pair.AllocatesBitmap { // one that writes both allocates from objects
			return true
		}
	}
	return false
}

// completes says which API server of a pair to come adds what a bitmap lacks, and when; "" for a pair at rest, and for
// one of which a side goes on to allocate from the range without writing the bitmap, and none that reads it starts:
// what such a pair does afterwards is no matter of what is stored now. Every version that allocates from
// a bitmap alone rebuilds it when it starts, before it is ready, and every three minutes: kubever.Allocators.
func (r *reporter) completes(store *storeScan, name, span string, isPort bool) (who, when string) {
	row := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: "services/specs"})
	if len(r.m.Starting) == 0 || row == nil {
		return "", ""
	}
	for _, side := range row.Readers(store.Name) {
		of := r.m.ControlPlane(side)
		if slices.Contains(r.m.Starting, side) && (isPort || of.Allocates == pair.AllocatesBitmap) {
			return of.Version, "when it starts, before it is ready"
		}
	}
	for _, side := range row.Readers(store.Name) {
		of := r.m.ControlPlane(side)
		if !isPort && of.Allocates == pair.AllocatesAddresses && row.WrittenBy(side) && r.allocatesWithin(side, span) {
			return "", ""
		}
		if !isPort && of.Allocates != pair.AllocatesBitmap {
			continue
		}
		if who == "" {
			who, when = of.Version, "within 3 minutes, and may allocate one of them again until then, as it may now"
		}
	}
	return who, when
}

// inBitmap reports whether a bitmap of ClusterIPs has an address. A side that writes both takes for free only what is
// in neither.
func (f *facts) inBitmap(address string) bool {
	for _, a := range f.allocations {
		if bit, in := AddressBit(a.Range, address); in && a.has(bit) {
			return true
		}
	}
	return false
}

// AddressBit is the bit of an address in the bitmap of a range of ClusterIPs, which the bitmap names as "10.96.0.0/16";
// false for an address outside of it, and where one of both is none.
func AddressBit(span, address string) (bit int, in bool) {
	first, size, isPort := rangeStart(span)
	ip, err := netip.ParseAddr(address)
	if err != nil || isPort || size == 0 || ip.BitLen() != first.BitLen() {
		return 0, false
	}
	bit = distance(first, ip)
	return bit, bit >= 0 && bit < size
}

// allocatesWithin reports whether a side's allocator works on a range that has addresses of another one. One that
// cannot be read counts as one.
func (r *reporter) allocatesWithin(side pair.Side, span string) bool {
	own := r.m.ControlPlane(side).ServiceCIDRs
	of, err := netip.ParsePrefix(span)
	return len(own) == 0 || err != nil || slices.ContainsFunc(own, func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		return err != nil || prefix.Overlaps(of)
	})
}

// rangeStart reads "10.96.0.0/16" or "30000-32767". Offset 0 of a range of addresses is the one behind the network's
// own. Source: registry/core/service/{ipallocator,portallocator} of kubernetes 1.6 to 1.36.
func rangeStart(s string) (first netip.Addr, size int, isPort bool) {
	if from, to, ok := strings.Cut(s, "-"); ok {
		low, err := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || low < 0 || high > 65535 || high < low {
			return netip.Addr{}, 0, true
		}
		return netip.AddrFrom4([4]byte{0, 0, byte(low >> 8), byte(low)}), high - low + 1, true
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Addr{}, 0, false
	}
	// Allocators bound a range of IPv6 addresses to 2^16; a larger IPv4 range than 2^20 is refused by the server.
	bits := min(prefix.Addr().BitLen()-prefix.Bits(), 20)
	return prefix.Masked().Addr().Next(), 1 << bits, false
}

// offsets are the places of the service's addresses or ports in a range.
func (s *service) offsets(first netip.Addr, size int, isPort bool) []int {
	var offsets []int
	if isPort {
		low := first.As4()
		for _, p := range s.NodePorts {
			if offset := int(p.Port) - int(low[2])<<8 - int(low[3]); offset >= 0 && offset < size {
				offsets = append(offsets, offset)
			}
		}
		return offsets
	}
	for _, ip := range s.ClusterIPs {
		addr, err := netip.ParseAddr(ip)
		if err != nil || addr.BitLen() != first.BitLen() {
			continue
		}
		if offset := distance(first, addr); offset >= 0 && offset < size {
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

// distance is b-a, -1 when b lies before a or farther than a range can reach.
func distance(a, b netip.Addr) int {
	if b.Less(a) {
		return -1
	}
	x, y := a.As16(), b.As16()
	difference := 0
	for i := range x {
		if difference > 1<<22 {
			return -1
		}
		difference = difference<<8 + int(y[i]) - int(x[i])
	}
	return difference
}

func offsetName(first netip.Addr, offset int, isPort bool) string {
	if isPort {
		low := first.As4()
		return strconv.Itoa(int(low[2])<<8 + int(low[3]) + offset)
	}
	b := first.As16()
	for i := len(b) - 1; i >= 0 && offset > 0; i-- {
		offset += int(b[i])
		b[i] = byte(offset)
		offset >>= 8
	}
	return netip.AddrFrom16(b).Unmap().String()
}

// findAddresses compares IPAddress objects with the services of the sides that allocate from them.
func (r *reporter) findAddresses(ctx context.Context, store *storeScan) {
	row, services := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: "ipaddresses"}),
		storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: "services/specs"})
	if row == nil || services == nil {
		return
	}
	for _, side := range row.Readers(store.Name) {
		home := r.store(services.View(side).Store)
		if home == nil || len(home.incomplete) > 0 || len(store.incomplete) > 0 || !r.usesAddresses(side) {
			continue
		}
		var without, orphaned counted
		claimed, bare := map[string]bool{}, map[string]bool{}
		for ref, s := range home.total.facts.services {
			for _, ip := range s.ClusterIPs {
				name := canonicalIP(ip)
				claimed[name] = true
				if _, ok := store.total.facts.addresses[name]; !ok && r.allocates(side, name) &&
					!(r.m.ControlPlane(side).Allocates == pair.AllocatesBoth && home.total.facts.inBitmap(name)) &&
					!r.isThere(ctx, store, "ipaddresses", name) &&
					r.stillClaims(ctx, home, ref, func(s *service) bool { return s.hasIP(name) }) {
					bare[name] = true // once, however many services have it
					without.samples.add(ref.String() + " " + ip)
				}
			}
		}
		for _, name := range sortedKeys(store.total.facts.addresses) {
			if !claimed[canonicalIP(name)] && !r.isGone(ctx, store, r.classifier.ObjectKey("ipaddresses", "", name)) {
				orphaned.add("ipaddresses/" + name)
			}
		}
		without.keys = int64(len(bare))
		if without.keys > 0 && store.legible("ipaddresses") {
			f := finding.Finding{Rule: "FUS050", Severity: finding.Warning,
				Key: "missing " + string(side), Count: without.count(), Related: without.samples,
				Message: fmt.Sprintf("%s of services without an IPAddress object: the %s side may allocate them "+
					"again until its repair loop runs", prose.Counted(without.keys, "ClusterIP"), side),
				Fix: "let only one side create services"}
			if version := r.m.ControlPlane(side).Version; slices.Contains(r.m.Starting, side) {
				f.Message = fmt.Sprintf("%s of services without an IPAddress object: %s creates them when it starts, "+
					"before it is ready", prose.Counted(without.keys, "ClusterIP"), version)
				f.Fix = "create no services through " + version + " until then"
			}
			r.add(store.Name, "ipaddresses", f)
		}
		if orphaned.keys > 0 && home.legible("services/specs") {
			r.add(store.Name, "ipaddresses", finding.Finding{Rule: "FUS050", Severity: finding.Info,
				Key: "unused " + string(side), Count: orphaned.count(), Related: orphaned.samples,
				Message: fmt.Sprintf("%s that no service uses", prose.Counted(orphaned.keys, "IPAddress object"))})
		}
	}
}

func (r *reporter) usesAddresses(side pair.Side) bool {
	how := r.m.ControlPlane(side).Allocates
	return how == pair.AllocatesAddresses || how == pair.AllocatesBoth
}

// findLocks reports locks on which components of both sides elect: only one of the two runs.
func (r *reporter) findLocks() {
	for i := range r.m.Locks {
		for j := i + 1; j < len(r.m.Locks); j++ {
			a, b := &r.m.Locks[i], &r.m.Locks[j]
			row := storage.RowOf(r.m, storage.Key{Form: storage.FormObject, Resource: a.Resource})
			if a.Side == b.Side || a.Key() != b.Key() || row == nil || row.Legacy.Store != row.Modern.Store {
				continue
			}
			store := r.store(row.Legacy.Store)
			if store == nil {
				continue
			}
			holder := "without a holder"
			if id, ok := store.total.facts.holders[a.Key()]; ok && id != "" {
				holder = "held by " + id
			}
			r.add(store.Name, a.Resource,
				finding.Finding{Rule: "FUS065", Severity: finding.Error, Subject: store.Name + ":" + a.Key(),
					Key: a.Component,
					Message: fmt.Sprintf("the %s of both sides elects on this object (%s): only one of the two runs",
						a.Component, holder),
					Fix: "set --leader-elect-resource-name of the modern side's component to another name"})
		}
	}
}

// findSecrets reports tokens that a cleaner of the modern side marked.
func (r *reporter) findSecrets() {
	for _, store := range r.stores {
		if c := store.total.facts.invalidated; c.keys > 0 {
			r.add(store.Name, "secrets", finding.Finding{Rule: "FUS088", Severity: finding.Error, Count: c.count(),
				Related: c.samples,
				Message: fmt.Sprintf("%s marked invalid by the legacy token cleaner: the modern side refuses them "+
					"now and deletes them a year later, also when they are in use through the legacy side",
					prose.Counted(c.keys, "token secret")),
				Fix: "add -legacy-serviceaccount-token-cleaner-controller to --controllers of the modern side, and " +
					"remove the label kubernetes.io/legacy-token-invalid-since"})
		}
	}
}
