package fight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

func referee(rules Rules) (*Referee, func(key string, value string) *Fight, *time.Time) {
	m := storetest.SplitMap()
	m.Locks = []pair.Lock{
		{Side: pair.Legacy, Component: "kcm", Resource: "services/endpoints", Namespace: "kube-system", Name: "kcm"}}
	r := NewReferee(m, rules)
	now := time.Unix(1000, 0)
	return r, func(key, value string) *Fight {
		now = now.Add(10 * time.Second)
		return r.See(now, "core", etcd.Change{Entry: etcd.Entry{Key: []byte("/registry/" + key), Value: []byte(value)},
			Deleted: value == ""})
	}, &now
}

func TestRefereeNoticesAValueThatKeepsComingBack(t *testing.T) {
	r, see, now := referee(Rules{})
	var fight *Fight
	for i := range 8 {
		if f := see("configmaps/default/c", []string{"a", "b"}[i%2]); f != nil {
			if fight != nil {
				t.Error("the fight is told twice")
			}
			fight = f
		}
	}
	if fight == nil || fight.Returns != 3 || fight.Finding().Rule != "FUS234" {
		t.Fatalf("fight = %+v, want one after 3 returns", fight)
	}
	if over := r.Over(*now); len(over) > 0 {
		t.Errorf("over already: %+v", over)
	}
	if over := r.Over(now.Add(3 * time.Minute)); len(over) != 1 || over[0].Writes != 8 {
		t.Errorf("over = %+v, want the fight of 8 writes", over)
	}
	if r.Following() != 0 {
		t.Errorf("%d keys are still followed", r.Following())
	}
}

// TestRefereeOverlooksBookkeeping: two controllers that undo each other's changes never bring back the very bytes.
func TestRefereeOverlooksBookkeeping(t *testing.T) {
	protobuf := func(data string, generation uint64) string {
		meta := storetest.Field(nil, 1, []byte("web"))
		meta = protowire.AppendVarint(protowire.AppendTag(meta, 7, protowire.VarintType), generation)
		meta = storetest.Field(meta, 17, fmt.Appendf(nil, "managed at %d", generation))
		unknown := storetest.Field(storetest.Field(
			nil, 1, storetest.Field(storetest.Field(nil, 1, []byte("apps/v1")), 2, []byte("Deployment"))), 2,
			storetest.Field(storetest.Field(nil, 1, meta), 2, []byte(data)))
		return "k8s\x00" + string(unknown)
	}
	json := func(data string, generation uint64) string {
		return fmt.Sprintf(`{"apiVersion":"a.b/v1","kind":"C","metadata":{"name":"web","generation":%d,"managedFields":[{"time":"%d"}]},"spec":{"x":%q}}`, generation, generation, data)
	}
	for name, value := range map[string]func(string, uint64) string{"protobuf": protobuf, "json": json} {
		for _, test := range []struct {
			say   func(i int) string
			fight bool
		}{
			{func(i int) string { return []string{"a", "b"}[i%2] }, true},
			{func(i int) string { return "a" }, false},
			{func(i int) string { return fmt.Sprint(i) }, false},
		} {
			_, see, _ := referee(Rules{})
			told := 0
			for i := range 10 {
				if see("deployments/default/web", value(test.say(i), uint64(i))) != nil {
					told++
				}
			}
			if (told == 1) != test.fight || told > 1 {
				t.Errorf("%s %s, %s, ...: told %d times, want %v", name, test.say(0), test.say(1), told, test.fight)
			}
		}
	}
}

func TestRefereeNoticesDeletionAndCreationByTurns(t *testing.T) {
	_, see, _ := referee(Rules{})
	for i := range 8 {
		if f := see(storage.APIServiceResource+"/v1.x", []string{"a", ""}[i%2]); f != nil {
			if f.Finding().Rule != "FUS030" {
				t.Errorf("rule %s, want FUS030", f.Finding().Rule)
			}
			return
		}
	}
	t.Error("no fight")
}

func TestRefereeKnowsWhatIsFoughtAbout(t *testing.T) {
	for key, rule := range map[string]string{
		"services/endpoints/default/kubernetes": "FUS040", storage.CRDResource + "/a.b": "FUS031",
		// Each service that somebody makes rewrites the ranges, and the name only begins as the fought one does.
		"ranges/serviceips": "", "services/endpoints/default/kubernetes-dashboard": "",
		"configmaps/default/counter": "", "services/endpoints/kube-system/kcm": "", "events/default/e": "",
		"minions/n1": "",
	} {
		_, see, _ := referee(Rules{})
		got := ""
		for i := range 12 {
			if f := see(key, fmt.Sprint("another value each time ", i)); f != nil {
				got = f.Finding().Rule
			}
		}
		if got != rule {
			t.Errorf("12 writes to %s are told as %q, want %q", key, got, rule)
		}
	}
}

// TestRefereeSeesRepairsOfRanges, which API servers make every three minutes.
func TestRefereeSeesRepairsOfRanges(t *testing.T) {
	_, see, now := referee(Rules{})
	for i := range 8 {
		*now = now.Add(90 * time.Second)
		if f := see("ranges/serviceips", []string{"ours", "theirs"}[i%2]); f != nil {
			if got := f.Finding().Rule; got != "FUS051" || f.Returns != 3 {
				t.Errorf("%s after %d returns, want FUS051 after 3", got, f.Returns)
			}
			return
		}
	}
	t.Error("no fight")
}

func TestRefereeForgivesSlowChanges(t *testing.T) {
	_, see, now := referee(Rules{Window: time.Minute})
	for i := range 20 {
		*now = now.Add(2 * time.Minute)
		if f := see("services/endpoints/default/kubernetes", []string{"a", "b"}[i%2]); f != nil {
			t.Fatalf("a change every two minutes is called a fight: %+v", f)
		}
	}
}

func TestRefereeHoldsFewKeys(t *testing.T) {
	r, see, _ := referee(Rules{Keys: 100})
	told := 0
	for i := range 5000 {
		see(fmt.Sprintf("configmaps/default/c-%d", i), "x")
		if f := see("configmaps/default/fought", strings.Repeat("a", i%2+1)); f != nil {
			told++
		}
		if r.Following() > 100 {
			t.Fatalf("%d keys are followed, want at most 100", r.Following())
		}
	}
	if told != 1 {
		t.Errorf("the fight is told %d times, want once", told)
	}
}
