package witness_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/witness"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func objects(uids ...string) map[string]witness.Object {
	m := map[string]witness.Object{}
	for i, uid := range uids {
		m["apiservices.apiregistration.k8s.io/v"+string(rune('1'+i))] = witness.Object{UID: uid, Revision: 10}
	}
	return m
}

func TestChanges(t *testing.T) {
	before := witness.Sight{At: start, Cluster: "a", Revision: 1000, Objects: objects("1", "2", "3")}
	before.Objects[witness.KubeSystem] = witness.Object{UID: "system", Revision: 5}
	for name, test := range map[string]struct {
		change func(*witness.Sight)
		want   string // "" for none
	}{
		"the same": {func(*witness.Sight) {}, ""},
		"it went on": {func(s *witness.Sight) {
			s.Revision += 100_000
			s.Objects[witness.KubeSystem] = witness.Object{UID: "system", Revision: 900}
		}, ""},
		"one old object was deleted": {func(s *witness.Sight) {
			s.Objects["apiservices.apiregistration.k8s.io/v1"] = witness.Object{}
		}, ""},
		"objects were not looked for":  {func(s *witness.Sight) { s.Objects = nil }, ""},
		"nothing is known of its etcd": {func(s *witness.Sight) { s.Cluster, s.Revision = "", 0 }, ""},
		"a month of writes": {func(s *witness.Sight) {
			s.At, s.Revision = start.Add(30*24*time.Hour), 2e9
		}, ""},
		"the clock went back":  {func(s *witness.Sight) { s.At = start.Add(-time.Hour) }, ""},
		"another etcd":         {func(s *witness.Sight) { s.Cluster = "b" }, "the id b, and had a"},
		"an older state":       {func(s *witness.Sight) { s.Revision = 999 }, "newest revision is 999, and was 1000"},
		"restored with a bump": {func(s *witness.Sight) { s.Revision += 1e9 }, "it was set"},
		"another kube-system": {func(s *witness.Sight) {
			s.Objects[witness.KubeSystem] = witness.Object{UID: "other", Revision: 7}
		}, `its UID is "other", and was "system"`},
		"no kube-system": {func(s *witness.Sight) {
			s.Objects[witness.KubeSystem] = witness.Object{}
		}, "another object"},
		"emptied": {func(s *witness.Sight) {
			for path := range s.Objects {
				s.Objects[path] = witness.Object{}
			}
		}, "3 of 4 objects"},
		"an object is older than it was": {func(s *witness.Sight) {
			s.Objects["apiservices.apiregistration.k8s.io/v2"] = witness.Object{UID: "2", Revision: 9}
		}, "was written at revision 10, and is as it was at 9"},
	} {
		t.Run(name, func(t *testing.T) {
			now := before
			now.At, now.Objects = start.Add(10*time.Second), map[string]witness.Object{}
			for path, o := range before.Objects {
				now.Objects[path] = o
			}
			test.change(&now)
			got := strings.Join(before.Changes(&now), "; ")
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("Changes = %q, want %q", got, test.want)
			}
			if first := (&witness.Sight{}).Changes(&now); len(first) > 0 {
				t.Errorf("what is seen for the first time has changed: %q", first)
			}
		})
	}
}

// What is gone is not remembered any more, and what is seen for the first time is.
func TestMerge(t *testing.T) {
	before := witness.Sight{At: start, Cluster: "a", Revision: 7, Objects: objects("1", "2")}
	now := witness.Sight{At: start.Add(time.Minute), Revision: 9, Objects: objects("1", "", "3")}
	got := before.Merge(&now)
	if len(got.Objects) != 2 || got.Objects["apiservices.apiregistration.k8s.io/v3"].UID != "3" || got.Revision != 9 ||
		got.Cluster != "a" || !got.At.Equal(now.At) {
		t.Errorf("Merge = %+v", got)
	}
}

func TestVanishings(t *testing.T) {
	limit := witness.Limit{Share: 20, Least: 10, Within: time.Minute}
	for name, test := range map[string]struct {
		of, gone int
		every    time.Duration
		want     bool
	}{
		"all of few":            {9, 9, 0, false},
		"all of ten":            {10, 10, 0, true},
		"a fifth":               {50, 10, 0, false},
		"more than a fifth":     {49, 10, 0, true},
		"slowly":                {20, 20, 7 * time.Second, false},
		"ten of a thousand":     {1000, 10, 0, false},
		"a quarter of many":     {10_000, 2500, 0, true},
		"within the minute all": {20, 10, 6 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			v, got := witness.Vanishings{Limit: limit}, false
			for i := range test.gone {
				got = v.Add("sets", "", test.of-i-1, start.Add(time.Duration(i)*test.every)) != "" || got
				v.Add("others", "", 1000, start.Add(time.Duration(i)*test.every))
			}
			if got != test.want {
				t.Errorf("%d of %d: too many = %t, want %t", test.gone, test.of, got, test.want)
			}
		})
	}
}

// TestVanishingsNameNamespaces: a person sees whether a stop is one tenant's doing, however many namespaces there are
// and whatever an extension API server says that they are called.
func TestVanishingsNameNamespaces(t *testing.T) {
	limit := witness.Limit{Share: 20, Least: 10, Within: time.Minute}
	for name, test := range map[string]struct {
		namespace func(i int) string
		want      string
	}{
		"one tenant": {func(int) string { return "dev" }, `10 of 10 sets that own something vanished within 1m0s: ` +
			`10 in namespace "dev"`},
		"two": {func(i int) string { return []string{"prod", "dev", "dev"}[i%3] },
			`10 of 10 sets that own something vanished within 1m0s: 6 in namespace "dev", 4 in namespace "prod"`},
		"many": {func(i int) string { return fmt.Sprint("n", i) }, `10 of 10 sets that own something vanished within ` +
			`1m0s: 1 in namespace "n0", 1 in namespace "n1", 1 in namespace "n2", 1 in namespace "n3", ` +
			`1 in namespace "n4", and others in 5 more`},
		"in none": {func(int) string { return "" }, `10 of 10 sets that own something vanished within 1m0s`},
		"a long name": {func(int) string { return strings.Repeat("<\n", 5000) },
			`10 of 10 sets that own something vanished within 1m0s: 10 in namespace "` +
				strings.Repeat(`<\n`, 31) + `<"`},
	} {
		t.Run(name, func(t *testing.T) {
			v, got := witness.Vanishings{Limit: limit}, ""
			for i := range 10 {
				got = v.Add("sets", test.namespace(i), 9-i, start)
			}
			if got != test.want {
				t.Errorf("Add = %s\nwant %s", got, test.want)
			}
		})
	}
}
