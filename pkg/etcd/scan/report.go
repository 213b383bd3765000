package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/internal/prose"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Report is what a scan saw.
// Shape:  {"complete":true,"depth":"envelope","stores":[...],"resources":[...],"findings":[...],"incomplete":[...]}
// Units:  Bytes counts values, not keys, and is 0 at depth keys.
type Report struct {
	Complete   bool              `json:"complete"` // false: do not take an absent finding for a clean store
	Depth      Depth             `json:"depth"`
	Stores     []StoreReport     `json:"stores"`
	Resources  []ResourceReport  `json:"resources"`
	Findings   []finding.Finding `json:"findings"`
	Incomplete []string          `json:"incomplete,omitempty"` // what could not be read, one sentence each
	// the errors behind Incomplete, joined; nil when there are none
	Cause error `json:"-"`
}

// StoreReport is one store as a whole.
type StoreReport struct {
	Name     string   `json:"name"`
	Revision int64    `json:"revision"` // at which it was read
	Keys     int64    `json:"keys"`     // below the prefix
	Bytes    int64    `json:"bytes"`
	Outside  int64    `json:"outside"` // keys outside the prefix, compact_rev_key among them
	Notes    []string `json:"notes,omitempty"`
}

// ResourceReport is one resource in one store.
type ResourceReport struct {
	Resource string         `json:"resource"` // its part of the key
	Name     string         `json:"name"`     // its name in URLs
	Store    string         `json:"store"`
	Owner    pair.Owner     `json:"owner,omitempty"` // "" when the map does not know the resource
	Kind     string         `json:"kind,omitempty"`  // of its objects; "" when the map does not say
	Keys     int64          `json:"keys"`
	Bytes    int64          `json:"bytes"`
	Types    []StoredReport `json:"types,omitempty"`
	// "ok", the severity of its worst finding, "accepted" where all of them are, or "unknown" where nothing could be
	// compared
	Verdict string   `json:"verdict"`
	Rules   []string `json:"rules,omitempty"` // of the findings behind the verdict

	findings []finding.Finding // that concern it
}

// Accept sets aside the findings that the entries accept, as finding.Accept does: no verdict rests on them.
func (r *Report) Accept(entries []finding.Acceptance) []finding.Accepted {
	judged, _ := finding.Accept(r.Findings, entries)
	r.Findings = judged.Findings
	for i := range r.Resources {
		row := &r.Resources[i]
		about, _ := finding.Accept(row.findings, entries)
		switch {
		case len(about.Accepted) == 0:
		case len(about.Findings) == 0:
			row.Verdict = "accepted"
		default:
			row.findings = about.Findings
			row.judge()
		}
	}
	return judged.Accepted
}

// judge sums up the findings about the resource.
func (r *ResourceReport) judge() {
	r.Verdict, r.Rules = "ok", nil
	for _, f := range r.findings {
		r.Rules = append(r.Rules, f.Rule)
	}
	slices.Sort(r.Rules)
	r.Rules = slices.Compact(r.Rules)
	if worst := finding.Worst(r.findings); worst > 0 {
		r.Verdict = worst.String()
	}
}

// StoredReport is one stored type of a resource.
type StoredReport struct {
	APIVersion string           `json:"apiVersion,omitempty"`
	Kind       string           `json:"kind,omitempty"`
	Encoding   storage.Encoding `json:"encoding"`
	Keys       int64            `json:"keys"`
}

// reporter collects findings, and which resources they concern.
type reporter struct {
	*scan
	findings []finding.Finding
	about    map[[2]string][]finding.Finding // by store and resource
	looks    int                             // by reading single keys again
}

// add records a finding about a resource in a store, "" for the store itself. Its Key distinguishes it from the other
// findings of its rule there.
func (r *reporter) add(store, resource string, f finding.Finding) {
	if f.Subject == "" {
		f.Subject = store + ":" + resource
	}
	f.Subject, f.Message = printableText(f.Subject), printableText(f.Message)
	f.Key = printableText(finding.Key(f.Rule, f.Subject, f.Key))
	for i, related := range f.Related {
		f.Related[i] = storage.Printable(related)
	}
	r.findings = append(r.findings, f)
	key := [2]string{store, resource}
	r.about[key] = append(r.about[key], f)
}

func (s *scan) report(ctx context.Context) *Report {
	r := &reporter{scan: s, about: map[[2]string][]finding.Finding{}}
	report := &Report{Depth: s.depth, Findings: []finding.Finding{}, Resources: []ResourceReport{},
		Stores: []StoreReport{}}
	for _, store := range s.stores {
		if len(s.stores) > 1 { // to compare them
			store.index.Sort()
		}
		store.checkPrefix()
	}
	r.findPlacement()
	r.findDuplicates(ctx)
	r.findTypes()
	r.findOrphans(ctx)
	if s.depth != DepthKeys {
		r.findCRDs()
		r.findAPIServices()
		r.findAllocations(ctx)
		r.findLocks()
		r.findSecrets()
		r.findDangling(ctx)
		r.findDropped()
	}
	finding.Sort(r.findings)
	report.Findings = append(report.Findings, r.findings...)
	for _, store := range s.stores {
		if noter, ok := store.Pager.(etcd.Noter); ok {
			store.notes = append(store.notes, noter.Notes()...)
		}
		slices.Sort(store.notes)
		report.Stores = append(report.Stores, StoreReport{
			Name: store.Name, Revision: store.revision, Keys: store.total.keys, Bytes: store.total.bytes,
			Outside: store.outside.keys, Notes: store.notes,
		})
		slices.SortFunc(store.incomplete, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		for _, err := range store.incomplete {
			report.Incomplete = append(report.Incomplete, "store "+store.Name+": "+err.Error())
		}
		report.Cause = errors.Join(report.Cause, errors.Join(store.incomplete...))
		for _, name := range sortedKeys(store.total.resources) {
			report.Resources = append(report.Resources, r.resourceReport(store, store.total.resources[name]))
		}
	}
	for _, name := range s.m.Stores {
		if s.store(name) == nil {
			report.Incomplete = append(report.Incomplete, "store "+name+": it was not read")
		}
	}
	if s.moreKinds {
		report.Incomplete = append(report.Incomplete, fmt.Sprintf("more than %d kinds of owners, most of them of %s: "+
			"objects with other ones were not judged", len(s.kinds)-1,
			storage.Printable(storage.PlainName(s.mostKinds()))))
	}
	slices.SortStableFunc(report.Resources, func(a, b ResourceReport) int {
		return cmp.Compare(a.Resource, b.Resource)
	})
	report.Complete = len(report.Incomplete) == 0
	return report
}

// mostKinds is the resource whose objects name the most kinds of owners.
func (s *scan) mostKinds() (most string) {
	kinds := map[string]int{}
	for i := range s.kinds {
		kinds[s.kinds[i].Dependent]++
	}
	for _, resource := range sortedKeys(kinds) {
		if kinds[resource] > kinds[most] {
			most = resource
		}
	}
	return most
}

// store returns the scan of the store, nil when it was not read.
func (s *scan) store(name string) *storeScan {
	for _, store := range s.stores {
		if store.Name == name {
			return store
		}
	}
	return nil
}

// checkPrefix reports a store that holds keys, but none below the prefix: such a store is never clean.
func (s *storeScan) checkPrefix() {
	if s.total.keys > 0 || len(s.incomplete) > 0 {
		return
	}
	if s.outsideHidden {
		s.incomplete = append(s.incomplete,
			fmt.Errorf("it holds no keys below the prefix %q, and whether it holds others may not be read: %w",
				storage.NormalPrefix(s.scan.m.Prefix), etcd.ErrDenied))
		return
	}
	outside := slices.DeleteFunc(slices.Clone(s.outside.samples), func(key string) bool {
		return key == storage.CompactRevisionKey
	})
	if len(outside) > 0 {
		s.incomplete = append(s.incomplete, fmt.Errorf(
			"it holds %d keys and none below the prefix %q; the first is %q: its API server runs with another "+
				"--etcd-prefix, or it is not the store of one",
			s.outside.keys, storage.NormalPrefix(s.scan.m.Prefix), outside[0]))
	}
}

func (r *reporter) resourceReport(store *storeScan, t *resourceTally) ResourceReport {
	report := ResourceReport{Resource: storage.Printable(t.name), Name: storage.Printable(storage.PlainName(t.name)),
		Store: store.Name,
		Keys:  t.keys, Bytes: t.bytes, findings: r.about[[2]string{store.Name, t.name}]}
	if t.row != nil {
		report.Owner, report.Kind = t.row.Owner, t.row.Kind
	}
	for key, st := range t.types {
		report.Types = append(report.Types, StoredReport{storage.Printable(key.APIVersion), storage.Printable(key.Kind),
			key.Encoding,
			st.keys})
	}
	for _, c := range sortedKeys(t.encrypted) {
		report.Types = append(report.Types, StoredReport{Encoding: storage.Encrypted, Keys: t.encrypted[c].keys})
	}
	slices.SortFunc(report.Types, func(a, b StoredReport) int {
		return cmp.Or(-cmp.Compare(a.Keys, b.Keys), cmp.Compare(a.APIVersion, b.APIVersion),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Encoding, b.Encoding))
	})
	report.judge()
	return report
}

func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// nKeys prints a number of keys.
func nKeys(n int64) string { return prose.Counted(n, "key") }

// sideList prints sides: "legacy", "legacy and modern".
func sideList(sides []pair.Side) string {
	words := make([]string, len(sides))
	for i, side := range sides {
		words[i] = string(side)
	}
	return strings.Join(words, " and ")
}

// printableText is Printable for a sentence, without the quotes.
func printableText(sentence string) string {
	if quoted := storage.Printable(sentence); quoted != sentence {
		return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	}
	return sentence
}
