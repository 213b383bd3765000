package diff

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// TestDiffMatchesAComparisonOfMaps compares random stores, live and offline, with what comparing maps says.
func TestDiffMatchesAComparisonOfMaps(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	m := storetest.SplitMap()
	for range 20 {
		left, right := storetest.Contents{}, storetest.Contents{}
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
		want := map[string]Kind{}
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
		for name, stores := range map[string][2]etcd.Store{
			"live":    {{Name: "l", Pager: left.Pager(t)}, {Name: "r", Pager: right.Pager(t)}},
			"offline": {{Name: "l", Walker: left}, {Name: "r", Walker: right}},
		} {
			report, err := Stores(t.Context(), m, stores[0], stores[1], "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]Kind{}
			for _, d := range report.Differences {
				got[d.Key] = d.Kind
			}
			if !maps.Equal(got, want) || report.OnlyLeft+report.OnlyRight+report.Changed != int64(len(want)) {
				t.Errorf("%s: Diff names %d differences of %d", name, len(got), len(want))
			}
			short, err := Stores(t.Context(), m, stores[0], stores[1], "", 7)
			if err != nil {
				t.Fatal(err)
			}
			if keys := slices.Sorted(maps.Keys(want))[:7]; !slices.EqualFunc(short.Differences, keys,
				func(d Difference, key string) bool {
					return d.Key == key
				}) {
				t.Errorf("%s: Diff with limit 7 does not name the first 7 keys", name)
			}
			none, err := Stores(t.Context(), m, stores[0], stores[1], "nodes/", 7)
			if err != nil || none.Differs() || none.Same != 0 {
				t.Errorf("%s: Diff under nodes/ = %+v, %v; want nothing", name, none, err)
			}
		}
	}
}

// TestEachDifferenceComparesTheValuesOfItsKey: in the order of keys, however many values are read at a time.
func TestEachDifferenceComparesTheValuesOfItsKey(t *testing.T) {
	left, right := storetest.Contents{"pods/a/only": []byte("l")}, storetest.Contents{"pods/a/same": []byte("s")}
	left["pods/a/same"] = []byte("s")
	var want []string
	for i := range 7 {
		key := fmt.Sprintf("pods/b/%d", i)
		left[key] = []byte(key + strings.Repeat("l", i%3*(comparedBytes/3)))
		right[key] = []byte(key + "r")
		want = append(want, fmt.Sprintf("changed %s %s %d %dr", key, key, len(left[key]), len(right[key])))
	}
	want = append([]string{"left pods/a/only "}, want...)
	for name, stores := range map[string][2]etcd.Store{
		"live":    {{Name: "l", Pager: left.Pager(t)}, {Name: "r", Pager: right.Pager(t)}},
		"offline": {{Name: "l", Walker: left}, {Name: "r", Walker: right}},
	} {
		report, err := Stores(t.Context(), storetest.SplitMap(), stores[0], stores[1], "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		compare := func(path string, l, r []byte) string {
			return fmt.Sprintf("%s %d %d%c", l[:len(path)], len(l), len(r), r[len(r)-1])
		}
		var got []string
		if err := Each(t.Context(), storetest.SplitMap(), stores[0], stores[1], report, compare,
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
		left, right := storetest.Contents{"pods/a/x": []byte("v")}, storetest.Contents{"pods/a/x": []byte("v")}
		pager := right.Pager(t)
		begun := map[int64]int{} // by revision: how often it was read from the start
		pager.OnPage = func(f *storetest.Pager, r etcd.Request) error {
			if r.From != "/registry/" || r.Revision == 0 {
				return nil
			}
			if begun[r.Revision]++; begun[r.Revision] == 2 && (always || r.Revision == 42) {
				f.Revision, f.CompactBefore = f.Revision+10, f.Revision+5
			}
			return nil
		}
		report, err := Stores(t.Context(), storetest.SplitMap(), etcd.Store{Name: "l", Pager: left.Pager(t)},
			etcd.Store{Name: "r", Pager: pager}, "", 10)
		if always {
			if !errors.Is(err, etcd.ErrCompacted) {
				t.Errorf("%s: Diff = %+v, %v; want %v", name, report, err, etcd.ErrCompacted)
			}
			continue
		}
		if err != nil || report.Differs() || report.RightRevision != 52 {
			t.Errorf("%s: Diff = %+v, %v; want the same at revision 52", name, report, err)
		}
	}
}
