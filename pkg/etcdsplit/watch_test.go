package etcdsplit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

func TestTurnsGoByKeysAndNotByWords(t *testing.T) {
	of := func(key, message string) finding.Finding {
		rule, _, _ := strings.Cut(key, "|")
		return finding.Finding{Rule: rule, Subject: "core:pods", Key: key, Message: message}
	}
	one, other := of("FUS004|core:pods", "1 key in the wrong store"),
		of("FUS130|core:pods|core", "1 object in 1 namespace")
	two := of("FUS004|core:pods", "2 keys, told in other words")
	var got []string
	for _, turned := range Turns([]finding.Finding{one, other}, []finding.Finding{two, of("FUS000|core:pods|x", "x")}) {
		got = append(got, fmt.Sprint(turned.Turn, " ", turned.Finding.Rule))
	}
	if want := []string{"changed FUS004", "appeared FUS000", "disappeared FUS130"}; !slices.Equal(got, want) {
		t.Errorf("Turns = %q, want %q", got, want)
	}
	if turned := Turns([]finding.Finding{one}, []finding.Finding{one}); len(turned) > 0 {
		t.Errorf("Turns of the same findings = %+v", turned)
	}

	// Words alone do not make two findings one.
	a, b, c := of("FUS060|a", "3 pods"), of("FUS060|b", "3 pods"), of("FUS060|c", "3 pods")
	all := []finding.Finding{a, b, c}
	for i := range all {
		left := slices.Delete(slices.Clone(all), i, i+1)
		if turned := Turns(all, left); len(turned) != 1 || turned[0].Turn != Disappeared ||
			turned[0].Finding.Key != all[i].Key {
			t.Errorf("Turns when %q is over = %+v", all[i].Key, turned)
		}
	}
}

func TestGlanceSeesWhatOneKeyShows(t *testing.T) {
	change := func(key string, value []byte) Change {
		return Change{Entry: Entry{Key: []byte("/registry/" + key), Value: value}}
	}
	stray := put("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "", "x", "u", nil)
	deleted := change("deployments/default/gone", nil)
	deleted.Deleted = true
	findings, err := Glance(t.Context(), splitMap(), map[string][]Change{
		"modern": {change("deployments/default/api", put("apps/v1", "Deployment", "default", "api", "u", nil)),
			change("deployments/default/gone", []byte("x")), deleted},
		"core": {change("pods/default/bad", []byte("k8s\x00\x0a\xff")), change("flowschemas/x", stray)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		got = append(got, f.Rule+" "+f.Subject+" "+f.Message[:5])
		// its home may have held it for years
		if f.Subject == "core:flowschemas" &&
			!strings.HasSuffix(f.Message, "is not known, because it was not read, or not to its end") {
			t.Errorf("%s says more than changes can show", f.Message)
		}
	}
	if want := []string{"FUS000 core:pods 1 val", "FUS004 core:flowschemas 1 key",
		"FUS004 modern:deployments 1 key"}; !slices.Equal(got, want) {
		t.Errorf("Glance = %q, want %q", got, want)
	}
}

func referee(rules FightRules) (*Referee, func(key string, value string) *Fight, *time.Time) {
	m := splitMap()
	m.Locks = []pair.Lock{
		{Side: pair.Legacy, Component: "kcm", Resource: "services/endpoints", Namespace: "kube-system", Name: "kcm"}}
	r := NewReferee(m, rules)
	now := time.Unix(1000, 0)
	return r, func(key, value string) *Fight {
		now = now.Add(10 * time.Second)
		return r.See(now, "core", Change{Entry: Entry{Key: []byte("/registry/" + key), Value: []byte(value)},
			Deleted: value == ""})
	}, &now
}

func TestRefereeNoticesAValueThatKeepsComingBack(t *testing.T) {
	r, see, now := referee(FightRules{})
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
		meta := field(nil, 1, []byte("web"))
		meta = protowire.AppendVarint(protowire.AppendTag(meta, 7, protowire.VarintType), generation)
		meta = field(meta, 17, fmt.Appendf(nil, "managed at %d", generation))
		unknown := field(field(nil, 1, field(field(nil, 1, []byte("apps/v1")), 2, []byte("Deployment"))), 2,
			field(field(nil, 1, meta), 2, []byte(data)))
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
			_, see, _ := referee(FightRules{})
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
	_, see, _ := referee(FightRules{})
	for i := range 8 {
		if f := see(apiServiceResource+"/v1.x", []string{"a", ""}[i%2]); f != nil {
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
		"services/endpoints/default/kubernetes": "FUS040", crdResource + "/a.b": "FUS031",
		// Each service that somebody makes rewrites the ranges, and the name only begins as the fought one does.
		"ranges/serviceips": "", "services/endpoints/default/kubernetes-dashboard": "",
		"configmaps/default/counter": "", "services/endpoints/kube-system/kcm": "", "events/default/e": "",
		"minions/n1": "",
	} {
		_, see, _ := referee(FightRules{})
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
	_, see, now := referee(FightRules{})
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
	_, see, now := referee(FightRules{Window: time.Minute})
	for i := range 20 {
		*now = now.Add(2 * time.Minute)
		if f := see("services/endpoints/default/kubernetes", []string{"a", "b"}[i%2]); f != nil {
			t.Fatalf("a change every two minutes is called a fight: %+v", f)
		}
	}
}

func TestRefereeHoldsFewKeys(t *testing.T) {
	r, see, _ := referee(FightRules{Keys: 100})
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
