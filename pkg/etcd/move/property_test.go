package move_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
)

// randomWorld fills two stores with keys of every kind: at home, misplaced, in both stores with the same value, with
// leases, of resources that both sides own or nobody knows, with empty and with large values, and with names that are
// no text.
func randomWorld(random *rand.Rand) *world {
	w := newWorld()
	resources := []string{"deployments/default/", "pods/default/", "events/default/", "configmaps/default/",
		"kubeflow.org/notebooks/default/", "flowschemas/", "widgets/", "deployments/a/b/", "ranges/"}
	stores := []*fakeStore{w.stores["core"], w.stores["modern"]}
	for _, s := range stores {
		for i := range random.Intn(4) {
			s.leases[int64(7+i)] = int64(1 + random.Intn(3000))
		}
		s.put("/elsewhere", "of another prefix", 0)
	}
	for i := range random.Intn(600) {
		key := "/registry/" + resources[random.Intn(len(resources))] +
			fmt.Sprintf("%c-%04d", 'a'+rune(random.Intn(3)), i)
		if random.Intn(50) == 0 {
			key += "\xff\x00"
		}
		value := fmt.Sprintf("%d", i)
		switch random.Intn(20) {
		case 0:
			value = ""
		case 1:
			value = strings.Repeat("x", random.Intn(400_000))
		case 2:
			value = "k8s:enc:aescbc:v1:key1:" + value
		}
		s := stores[random.Intn(2)]
		lease := int64(0)
		if id := int64(7 + random.Intn(8)); s.leases[id] > 0 {
			lease = id
		}
		s.put(key, value, lease)
		if random.Intn(15) == 0 { // a move that was broken off long ago
			other, copied := stores[random.Intn(2)], int64(0)
			if lease != 0 && other == s {
				copied = lease
			} else if lease != 0 {
				copied = 1000 + lease
				other.leases[copied] = s.leases[lease]
			}
			other.put(key, value, copied)
		}
	}
	return w
}

// TestAnyMoveOfAnything: whatever lies where, and however often apply is killed, in the end each key of the plan is in
// its new store and nowhere else, and all others are untouched; however often undo is killed, everything is as it was.
func TestAnyMoveOfAnything(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	moves, kills := 0, 0
	for seed := range rounds {
		random := rand.New(rand.NewSource(int64(seed)))
		w := randomWorld(random)
		options := move.Options{}
		switch random.Intn(4) {
		case 0:
			options.Resources = []string{"deployments", "events"}
		case 1:
			options = move.Options{Resources: []string{"configmaps", "kubeflow.org/notebooks", "events"}, From: "core",
				To: "modern"}
		}
		p := plan(t, w, options)
		before := w.clone()
		moves += len(list(p))
		say := func(what string) string {
			return fmt.Sprintf("seed %d, %d moves with %+v: %s", seed, len(list(p)), options, what)
		}

		run := func(verb func() (move.Result, error)) {
			for {
				w.ops, w.killAt, w.after = 0, 1+random.Intn(60), random.Intn(2) == 0
				if random.Intn(4) == 0 {
					w.killAt = 0
				}
				_, err := verb()
				if err == nil {
					// it was done, and could not release its locks: these end by themselves
					if w.killAt > 0 && w.ops >= w.killAt {
						w.stores["core"].remove(lockKey)
						w.stores["modern"].remove(lockKey)
					}
					break
				}
				if kills++; !errors.Is(err, errKilled) {
					t.Fatal(say(err.Error()))
				}
				for m := range p.Moves() {
					if from, to := w.stores[m.From].entries[m.Key], w.stores[m.To].entries[m.Key]; from.Key == nil &&
						to.Key == nil {
						t.Fatal(say("killed, it lost " + m.Key))
					}
				}
				if random.Intn(10) == 0 {
					w.disk.journal = nil // it only saves time
				}
			}
			w.killAt = 0
		}
		run(func() (move.Result, error) { return move.Apply(t.Context(), w.job(p)) })
		want := before.clone()
		for m := range p.Moves() {
			want.stores[m.From].remove(m.Key)
			want.stores[m.To].entries[m.Key] = before.stores[m.From].entries[m.Key]
		}
		for name, s := range w.stores {
			if problem := differ(s, want.stores[name], false); problem != "" {
				t.Fatal(say("after apply: store " + name + ": " + problem))
			}
		}
		if len(list(p)) == 0 {
			continue
		}
		run(func() (move.Result, error) { return move.Undo(t.Context(), w.job(p)) })
		for name, s := range w.stores {
			if problem := differ(s, before.stores[name], true); problem != "" {
				t.Fatal(say("after undo: store " + name + ": " + problem))
			}
		}
	}
	t.Logf("%d keys were moved to and fro, in spite of %d kills", moves, kills)
	if moves < 1000 || kills < 100 {
		t.Errorf("%d moves and %d kills: that proves little", moves, kills)
	}
}

// differ says in what the contents differ: keys, values, whether they have a lease, and with exact which one.
func differ(got, want *fakeStore, exact bool) string {
	for key, e := range want.entries {
		switch g, ok := got.entries[key]; {
		case !ok:
			return fmt.Sprintf("%q is missing", key)
		case string(g.Value) != string(e.Value):
			return fmt.Sprintf("%q holds %.40q, want %.40q", key, g.Value, e.Value)
		case exact && g.Lease != e.Lease:
			return fmt.Sprintf("%q has the lease %x, want %x", key, g.Lease, e.Lease)
		}
	}
	extra := maps.Clone(got.entries)
	maps.DeleteFunc(extra, func(key string, _ etcd.Entry) bool { _, ok := want.entries[key]; return ok })
	for key := range extra {
		return fmt.Sprintf("%q is too much", key)
	}
	return ""
}
