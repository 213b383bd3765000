package etcdsplit

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// TestDiffMatchesAComparisonOfMaps compares random stores, live and offline, with what comparing maps says.
func TestDiffMatchesAComparisonOfMaps(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	m := splitMap()
	for range 20 {
		left, right := contents{}, contents{}
		for i := range 300 {
			key := fmt.Sprintf("pods/default/p-%03d", i)
			switch random.Intn(5) {
			case 0:
				left[key] = []byte("l")
			case 1:
				right[key] = []byte("r")
			case 2:
				left[key], right[key] = []byte("l"), []byte("r")
			default:
				left[key], right[key] = []byte("same"), []byte("same")
			}
		}
		want := map[string]DifferenceKind{}
		for key, value := range left {
			if other, ok := right[key]; !ok {
				want[key] = OnlyLeft
			} else if string(other) != string(value) {
				want[key] = Changed
			}
		}
		for key := range right {
			if _, ok := left[key]; !ok {
				want[key] = OnlyRight
			}
		}
		for name, stores := range map[string][2]Store{
			"live":    {{Name: "l", Pager: left.pager(t)}, {Name: "r", Pager: right.pager(t)}},
			"offline": {{Name: "l", Walker: left}, {Name: "r", Walker: right}},
		} {
			report, err := Diff(t.Context(), m, stores[0], stores[1], "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]DifferenceKind{}
			for _, d := range report.Differences {
				got[d.Key] = d.Kind
			}
			if !maps.Equal(got, want) || report.OnlyLeft+report.OnlyRight+report.Changed != int64(len(want)) {
				t.Errorf("%s: Diff names %d differences of %d", name, len(got), len(want))
			}
			short, err := Diff(t.Context(), m, stores[0], stores[1], "", 7)
			if err != nil {
				t.Fatal(err)
			}
			if keys := slices.Sorted(maps.Keys(want))[:7]; !slices.EqualFunc(short.Differences, keys,
				func(d Difference, key string) bool {
					return d.Key == key
				}) {
				t.Errorf("%s: Diff with limit 7 does not name the first 7 keys", name)
			}
			none, err := Diff(t.Context(), m, stores[0], stores[1], "nodes/", 7)
			if err != nil || none.Differs() || none.Same != 0 {
				t.Errorf("%s: Diff under nodes/ = %+v, %v; want nothing", name, none, err)
			}
		}
	}
}

func TestListSumsUpByResource(t *testing.T) {
	c := contents{"pods/a/x": make([]byte, 10), "pods/a/y": make([]byte, 30), "pods/b/z": make([]byte, 20),
		"namespaces/a": make([]byte, 5)}
	for name, store := range map[string]Store{"live": {Name: "core", Pager: c.pager(t)},
		"offline": {Name: "core", Walker: c}} {
		lines, _, err := List(t.Context(), splitMap(), store, ListOptions{ByNamespace: true, NumberOfKeys: 1})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lines {
			got = append(got, fmt.Sprintf("%s %s %s %d %d %s", l.Resource, l.Namespace, l.Owner, l.Keys, l.Bytes,
				l.Largest[0].Key))
		}
		want := []string{"namespaces  shared 1 5 namespaces/a", "pods a shared 2 40 pods/a/y",
			"pods b shared 1 20 pods/b/z"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: List = %q, want %q", name, got, want)
		}
		below, _, err := List(t.Context(), splitMap(), store, ListOptions{Under: "pods/b/"})
		if err != nil || len(below) != 1 || below[0].Keys != 1 {
			t.Errorf("%s: List under pods/b/ = %+v, %v; want one key", name, below, err)
		}
	}
}

func TestEntriesReadsOnAfterCompaction(t *testing.T) {
	c := contents{}
	for i := range 500 {
		c[fmt.Sprintf("pods/default/p-%03d", i)] = []byte("x")
	}
	pager := c.pager(t)
	pager.onPage = func(f *fakePager, r Request) error {
		if strings.Contains(r.From, "p-06") {
			f.revision, f.compactBefore = 60, 55
		}
		return nil
	}
	seen := map[string]int{}
	revision, err := Entries(t.Context(), Store{Name: "core", Pager: pager},
		Request{From: "/registry/", To: "/registry0"}, func(e Entry) error {
			seen[string(e.Key)]++
			return nil
		})
	if err != nil || revision != 60 || len(seen) != 500 {
		t.Errorf("Entries read %d of 500 keys at revision %d: %v", len(seen), revision, err)
	}
}

// TestEachDifferenceComparesTheValuesOfItsKey: in the order of keys, however many values are read at a time.
func TestEachDifferenceComparesTheValuesOfItsKey(t *testing.T) {
	left, right := contents{"pods/a/only": []byte("l")}, contents{"pods/a/same": []byte("s")}
	left["pods/a/same"] = []byte("s")
	var want []string
	for i := range 7 {
		key := fmt.Sprintf("pods/b/%d", i)
		left[key] = []byte(key + strings.Repeat("l", i%3*(comparedBytes/3)))
		right[key] = []byte(key + "r")
		want = append(want, fmt.Sprintf("changed %s %s %d %dr", key, key, len(left[key]), len(right[key])))
	}
	want = append([]string{"left pods/a/only "}, want...)
	for name, stores := range map[string][2]Store{
		"live":    {{Name: "l", Pager: left.pager(t)}, {Name: "r", Pager: right.pager(t)}},
		"offline": {{Name: "l", Walker: left}, {Name: "r", Walker: right}},
	} {
		report, err := Diff(t.Context(), splitMap(), stores[0], stores[1], "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		compare := func(path string, l, r []byte) string {
			return fmt.Sprintf("%s %d %d%c", l[:len(path)], len(l), len(r), r[len(r)-1])
		}
		var got []string
		if err := EachDifference(t.Context(), splitMap(), stores[0], stores[1], report, compare,
			func(d Difference) error {
				got = append(got, fmt.Sprintf("%s %s %s", d.Kind, d.Key, d.Values))
				return nil
			}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: EachDifference visits %q, want %q", name, got, want)
		}
	}
}

// TestDiffStartsOverWhenARevisionIsGone: what was written between two readings of a store is no difference.
func TestDiffStartsOverWhenARevisionIsGone(t *testing.T) {
	for name, always := range map[string]bool{"once": false, "always": true} {
		left, right := contents{"pods/a/x": []byte("v")}, contents{"pods/a/x": []byte("v")}
		pager := right.pager(t)
		begun := map[int64]int{} // by revision: how often it was read from the start
		pager.onPage = func(f *fakePager, r Request) error {
			if r.From != "/registry/" || r.Revision == 0 {
				return nil
			}
			if begun[r.Revision]++; begun[r.Revision] == 2 && (always || r.Revision == 42) {
				f.revision, f.compactBefore = f.revision+10, f.revision+5
			}
			return nil
		}
		report, err := Diff(t.Context(), splitMap(), Store{Name: "l", Pager: left.pager(t)},
			Store{Name: "r", Pager: pager}, "", 10)
		if always {
			if !errors.Is(err, ErrCompacted) {
				t.Errorf("%s: Diff = %+v, %v; want %v", name, report, err, ErrCompacted)
			}
			continue
		}
		if err != nil || report.Differs() || report.RightRevision != 52 {
			t.Errorf("%s: Diff = %+v, %v; want the same at revision 52", name, report, err)
		}
	}
}
