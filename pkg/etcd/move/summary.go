package move

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Totals are the moves of one resource between two stores.
type Totals struct {
	Resource  string `json:"resource"`
	From      string `json:"from"`
	To        string `json:"to"`
	Keys      int64  `json:"keys"`
	Bytes     int64  `json:"bytes"`
	Leased    int64  `json:"leased"`
	Conflicts int64  `json:"conflicts"`
	Example   string `json:"example,omitempty"` // of a conflict, or else of a key
}

// Summary sums up the moves of a plan.
type Summary struct {
	classifier *storage.Classifier
	totals     map[[3]string]*Totals
	encrypted  map[encryptedFor]int64
}

// encryptedFor is a store to which encrypted values are moved, and the provider and key that they need there.
type encryptedFor struct{ store, with string }

// NewSummary sums up moves of nothing yet.
func NewSummary(m *pair.Map) *Summary {
	return &Summary{storage.NewClassifier(m), map[[3]string]*Totals{}, map[encryptedFor]int64{}}
}

// Add counts a move.
func (s *Summary) Add(m Move) {
	k := s.classifier.Classify(m.Key)
	id := [3]string{strings.Clone(k.Resource), m.From, m.To}
	totals, ok := s.totals[id]
	if !ok {
		totals = &Totals{Resource: id[0], From: m.From, To: m.To, Example: m.Key}
		s.totals[id] = totals
	}
	totals.Keys++
	totals.Bytes += int64(m.Bytes)
	if m.Leased {
		totals.Leased++
	}
	if m.Encryption != "" {
		s.encrypted[encryptedFor{m.To, m.Encryption}]++
	}
	if m.Conflict != "" {
		if totals.Conflicts++; totals.Conflicts == 1 {
			totals.Example = m.Key + ": " + m.Conflict
		}
	}
}

// Totals are those of each resource, by store and name.
func (s *Summary) Totals() []Totals {
	all := []Totals{}
	for _, totals := range s.totals {
		all = append(all, *totals)
	}
	slices.SortFunc(all, func(a, b Totals) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// Notes are what the operator should know about these keys in particular.
func (s *Summary) Notes(options Options) []string {
	var notes []string
	byStore := func(a, b encryptedFor) int { return cmp.Or(cmp.Compare(a.store, b.store), cmp.Compare(a.with, b.with)) }
	for _, e := range slices.SortedFunc(maps.Keys(s.encrypted), byStore) {
		values := "1 value"
		if n := s.encrypted[e]; n != 1 {
			values = fmt.Sprintf("%d values", n)
		}
		notes = append(notes, fmt.Sprintf("%s encrypted with %s: the API server that reads store %s must have this "+
			"provider and key in its --encryption-provider-config", values, e.with, e.store))
	}
	if slices.Contains(options.Resources, "services/specs") && !slices.Contains(options.Resources, "ranges") {
		notes = append(notes, "the allocators of addresses and node ports do not go with the services: --resource "+
			"ranges moves them")
	}
	return notes
}

// StoresOf names the stores that keys are moved from or to.
func StoresOf(totals []Totals) []string {
	var stores []string
	for _, t := range totals {
		stores = append(stores, t.From, t.To)
	}
	slices.Sort(stores)
	return slices.Compact(stores)
}

// RunningServer is an API server that renewed the record of its address in a store a short time ago.
type RunningServer struct {
	Store      string
	Address    string
	SecondsAgo int64 // since it renewed the record
}

// addressSeconds is how long the record of an API server's address lasts, in every version that has one.
const addressSeconds = 15

// RunningServers finds the API servers that use the stores of a plan. Not every version has a record of its address, so
// none found does not prove that none runs. Errors: a store cannot be read; what was found before is returned too.
func RunningServers(ctx context.Context, header Header, stores map[string]Store) ([]RunningServer, error) {
	var servers []RunningServer
	prefix := header.Prefix + "/masterleases/"
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		request := etcd.Request{From: prefix, To: prefix[:len(prefix)-1] + "0", LimitKeys: 100, KeysOnly: true}
		page, err := stores[name].Page(ctx, request)
		if err != nil {
			return servers, fmt.Errorf("store %s: looking for API servers: %w", name, err)
		}
		for _, e := range page.Entries {
			if e.Lease == 0 {
				continue
			}
			seconds, err := stores[name].TimeToLive(ctx, e.Lease)
			if err != nil {
				return servers, fmt.Errorf("store %s: looking for API servers: %w", name, err)
			}
			if seconds > 0 {
				servers = append(servers, RunningServer{
					Store: name, Address: strings.TrimPrefix(string(e.Key), prefix),
					SecondsAgo: addressSeconds - min(seconds, addressSeconds),
				})
			}
		}
	}
	return servers, nil
}
