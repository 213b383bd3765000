package handover_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/etcd/handover"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

const gold, system = "/registry/priorityclasses/gold", "/registry/priorityclasses/system-node-critical"

func class(uid string, value int) string {
	return fmt.Sprintf(`{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"x","uid":%q},`+
		`"value":%d}`, uid, value)
}

// classes is a world with PriorityClasses, of which API servers write some by themselves.
func classes() *world {
	w := newWorld()
	clear(w.core.entries)
	clear(w.modern.entries)
	w.core.put(gold, class("g1", 1000))
	w.core.put(system, class("s1", 2000001000))
	w.modern.put(system, class("s2", 2000001000))
	return w
}

func (w *world) keeping(back bool) *handover.Job {
	j := w.job(back)
	const v1 = "scheduling.k8s.io/v1"
	j.Aggregated, j.Absent, j.Kept, j.Copy = nil, nil, true, !back
	j.Boot = []pair.BootKey{{Key: "priorityclasses/system-*"}}
	j.Resources = []handover.Resource{{Key: "priorityclasses", Kind: "PriorityClass", Reads: []string{v1},
		StoredAs: v1, Compared: v1, Subject: true}}
	return j
}

// TestBothSidesHaveWhatIsKept: the modern side gets a copy, what API servers write stays, and back nothing is taken
// that was no copy.
func TestBothSidesHaveWhatIsKept(t *testing.T) {
	const own = "/registry/priorityclasses/own"
	w := classes()
	w.modern.put(own, class("o1", 5))
	for range 2 { // it may be repeated
		if err := w.keeping(false).Move(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.keeping(false).Adopted(t.Context()); err != nil {
		t.Error(err)
	}
	if keys(w.core) != gold+" "+system || keys(w.modern) != gold+" "+own+" "+system {
		t.Errorf("copied, there are %s and %s", keys(w.core), keys(w.modern))
	}
	if string(w.modern.entries[system].Value) != class("s2", 2000001000) {
		t.Errorf("an API server's own is %s", w.modern.entries[system].Value)
	}
	w.core.put("/registry/priorityclasses/since", class("g2", 7))
	err := w.keeping(false).Adopted(t.Context())
	if err == nil || !strings.Contains(err.Error(), "since: has no copy") {
		t.Errorf("what was created since: %v", err)
	}
	w.modern.put(gold, class("g1", 1001))
	for _, do := range []error{w.keeping(true).Check(t.Context()), w.keeping(true).Move(t.Context())} {
		if do == nil || !strings.Contains(do.Error(), "was changed since it was copied") {
			t.Errorf("back, changed: %v", do)
		}
	}
	w.core.put(gold, class("g1", 1001))
	w.modern.put(own, strings.Replace(class("o1", 5), `"name"`, ownedBy("scheduling.k8s.io/v1", "PriorityClass", "g1")+
		`"name"`, 1))
	if err := w.keeping(true).Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys(w.modern) != own+" "+system || !strings.Contains(keys(w.core), gold) {
		t.Errorf("back, there are %s and %s", keys(w.core), keys(w.modern))
	}
}

// TestKeptOfBothSidesAlready: people created it on both; where the two differ, that is named.
func TestKeptOfBothSidesAlready(t *testing.T) {
	w := classes()
	w.modern.put(gold, class("g9", 1000))
	if err := w.keeping(false).Move(t.Context()); err != nil {
		t.Error(err)
	}
	if err := w.keeping(true).Move(t.Context()); err != nil || w.modern.entries[gold].Key == nil {
		t.Errorf("back: %v, %s", err, keys(w.modern))
	}
	w.modern.put(gold, class("g9", 1))
	before := maps.Clone(w.modern.entries)
	err := w.keeping(false).Move(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another object of this name") {
		t.Errorf("another one = %v", err)
	}
	if len(before) != len(w.modern.entries) {
		t.Errorf("there are %s", keys(w.modern))
	}
}

// TestPodsHaveTheirPriorityClassThere: without it the other side admits none of them.
func TestPodsHaveTheirPriorityClassThere(t *testing.T) {
	w := newWorld()
	w.edit(w.core, replicas, `"replicas":2}`, `"replicas":2,"template":{"spec":{"priorityClassName":"gold"}}}`)
	j := w.job(false)
	if err := j.Check(t.Context()); err != nil {
		t.Errorf("neither side has the class: %v", err)
	}
	w.core.put(gold, class("g1", 1000))
	err := j.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "of the PriorityClass gold, which is not there") {
		t.Errorf("the legacy side alone has the class: %v", err)
	}
	j.Comes = []string{"priorityclasses"}
	if err := j.Check(t.Context()); err != nil {
		t.Errorf("with a class that comes before: %v", err)
	}
	j.Comes = nil
	w.modern.put(gold, class("g1", 1000))
	if err := j.Check(t.Context()); err != nil {
		t.Errorf("with the class: %v", err)
	}
}
