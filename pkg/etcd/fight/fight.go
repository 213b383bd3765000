// Package fight notices keys that two writers overwrite in turn, as when two API servers both treat a key as theirs. It
// is pure: its caller passes every change, and the time of it.
package fight

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Fight is a key that is overwritten repeatedly, as by two API servers that both own it.
type Fight struct {
	Store   string    `json:"store"`
	Key     string    `json:"key"` // below the prefix
	Writes  int       `json:"writes"`
	Returns int       `json:"returns"` // how often a value came back that had just been replaced
	Since   time.Time `json:"since"`
}

// Finding is the finding of a fight.
func (f *Fight) Finding() finding.Finding {
	result := finding.Finding{Rule: "FUS234", Severity: finding.Error, Subject: f.Store + ":" + f.Key,
		Message: fmt.Sprintf("two writers overwrite each other: %d writes, %d of which wrote back a value that had "+
			"just been replaced", f.Writes, f.Returns),
		Fix: "let one side write the key"}
	if known := knownFight(f.Key); known != nil {
		result.Rule, result.Fix = known.rule, known.fix
	}
	result.Key = finding.Key(result.Rule, result.Subject, "fight")
	return result
}

// fights are the keys about which two API servers are known to fight, and why.
var fights = []fightAbout{
	{key: "services/endpoints/default/kubernetes", writes: 6, rule: "FUS040",
		fix: "set --endpoint-reconciler-type=none on the modern API server, or the same reconciler on both, with " +
			"endpoints and master leases in one store"},
	{key: "endpointslices/default/kubernetes", writes: 6, rule: "FUS040",
		fix: "set --endpoint-reconciler-type=none on the modern API server"},
	// Each service that is created is a write. API servers repair ranges every three minutes.
	{key: "ranges/", window: 15 * time.Minute, rule: "FUS051",
		fix: "set the same --service-cluster-ip-range and --service-node-port-range on both API servers"},
	{key: storage.CRDResource + "/", writes: 10, rule: "FUS031",
		fix: "use layout split: the legacy side does not write the CRDs of the modern one"},
	{key: storage.APIServiceResource + "/", writes: 10, rule: "FUS030",
		fix: "use layout split, which gives each side its own default store"},
}

type fightAbout struct {
	key       string        // or, with a slash at the end, what keys begin with
	writes    int           // that make a fight, whatever is written; 0: writing alone is none
	window    time.Duration // 0: as with other keys
	rule, fix string
}

// knownFight is what is known of fights about the key below the prefix; nil for nothing.
func knownFight(key string) *fightAbout {
	for i := range fights {
		if about := &fights[i]; key == about.key ||
			(strings.HasSuffix(about.key, "/") && strings.HasPrefix(key, about.key)) {
			return about
		}
	}
	return nil
}

// Rules are the thresholds of a fight.
type Rules struct {
	Window  time.Duration // that is looked back on; default 2 minutes
	Returns int           // of any key to a value that had just been replaced; default 3
	Keys    int           // that are followed at a time; default 20000, those written last
}

func (r Rules) orDefaults() Rules {
	return Rules{cmp.Or(r.Window, 2*time.Minute), cmp.Or(r.Returns, 3), cmp.Or(r.Keys, 20_000)}
}

// Referee follows the keys written last and notices fights. Memory is bounded by Rules.Keys. Not safe for
// concurrent use.
type Referee struct {
	rules  Rules
	seed   maphash.Seed
	prefix string
	locks  map[string]bool
	keys   map[storeKey]*bout
	order  []storeKey // by first write since the bout began, for forgetting
}

type storeKey struct{ store, key string }

// bout is what is known about the writes to one key.
type bout struct {
	about    *fightAbout // nil: nothing is known
	window   time.Duration
	last     time.Time   // write
	writes   []time.Time // within the window, as many as matter
	returns  []time.Time
	values   [2]uint64 // substances of the last two values, the newest last; 0 when it was deleted
	total    Fight
	reported bool
}

// NewReferee returns a referee for the stores of a map. Lock objects are renewed all the time and are not followed.
func NewReferee(m *pair.Map, rules Rules) *Referee {
	r := &Referee{rules: rules.orDefaults(), seed: maphash.MakeSeed(), prefix: storage.NormalPrefix(m.Prefix) + "/",
		locks: map[string]bool{}, keys: map[storeKey]*bout{}}
	for i := range m.Locks {
		r.locks[m.Locks[i].Key()] = true
	}
	return r
}

// See records a change, and returns the fight that it reveals; nil when there is none, or it was returned already.
func (r *Referee) See(now time.Time, store string, c etcd.Change) *Fight {
	rest, ok := strings.CutPrefix(string(c.Key), r.prefix)
	if !ok || r.locks[rest] || strings.HasPrefix(rest, "events/") {
		return nil
	}
	id := storeKey{store, rest}
	b, ok := r.keys[id]
	if !ok {
		b = &bout{about: knownFight(rest), window: r.rules.Window,
			total: Fight{Store: store, Key: storage.Printable(rest), Since: now}}
		if b.about != nil {
			b.window = cmp.Or(b.about.window, b.window)
		}
		r.keys[id] = b
		r.order = append(r.order, id)
		r.forget()
	}
	var value uint64
	if !c.Deleted {
		value = storage.Substance(r.seed, c.Value)
	}
	b.last = now
	b.total.Writes++
	if value == b.values[0] && value != b.values[1] && b.total.Writes > len(b.values) {
		b.total.Returns++
		b.returns = b.recent(append(b.returns, now), r.rules.Returns)
	}
	b.values = [2]uint64{b.values[1], value}
	fights := len(b.returns) >= r.rules.Returns
	if b.about != nil && b.about.writes > 0 {
		b.writes = b.recent(append(b.writes, now), b.about.writes)
		fights = fights || len(b.writes) >= b.about.writes
	}
	if b.reported || !fights {
		return nil
	}
	b.reported = true
	fight := b.total
	return &fight
}

// recent keeps the times within the window, and no more of them than matter.
func (b *bout) recent(times []time.Time, matter int) []time.Time {
	times = slices.DeleteFunc(times, func(t time.Time) bool { return b.last.Sub(t) > b.window })
	return times[max(0, len(times)-matter):]
}

// Over returns the fights in which nothing was written for the length of the window, and forgets them.
func (r *Referee) Over(now time.Time) []Fight {
	var over []Fight
	for id, b := range r.keys {
		if now.Sub(b.last) > b.window {
			if b.reported {
				over = append(over, b.total)
			}
			delete(r.keys, id)
		}
	}
	r.order = slices.DeleteFunc(r.order, func(id storeKey) bool { return r.keys[id] == nil })
	slices.SortFunc(over, func(a, b Fight) int {
		return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Key, b.Key))
	})
	return over
}

// Fights is the number of present fights.
func (r *Referee) Fights() int {
	n := 0
	for _, b := range r.keys {
		if b.reported {
			n++
		}
	}
	return n
}

// forget drops keys when there are too many: those followed longest first, but no present fight.
func (r *Referee) forget() {
	if len(r.keys) <= r.rules.Keys {
		return
	}
	kept := r.order[:0]
	excess := len(r.keys) - r.rules.Keys*9/10
	for _, id := range r.order {
		if b := r.keys[id]; b != nil && (excess <= 0 || (b.reported && len(kept) < r.rules.Keys/2)) {
			kept = append(kept, id)
			continue
		}
		delete(r.keys, id)
		excess--
	}
	r.order = kept
}

// Following is the number of keys that are followed.
func (r *Referee) Following() int { return len(r.keys) }
