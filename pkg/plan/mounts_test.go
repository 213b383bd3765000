package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestMountsWithinOthersAreFound: a mount lies in the first one that holds it, of however many.
func TestMountsWithinOthersAreFound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/", "/etc", "/etc/", "/etc/kubernetes", "/etc/kubernetes/pki", "/etcetera", "/a", "/a/b",
		"/a/b/c", "/ab", ""}
	for range 5000 {
		var mounts []Mount
		for range 8 {
			m := Mount{Path: paths[random.IntN(len(paths))], ReadOnly: random.IntN(2) == 0}
			if random.IntN(4) == 0 {
				m.At = paths[random.IntN(len(paths))]
			}
			mounts = append(mounts, m)
		}
		slices.SortStableFunc(mounts, func(a, b Mount) int { return strings.Compare(a.Seen(), b.Seen()) })
		var kept []Mount
		at := map[string]int{}
		for _, m := range mounts {
			want := slices.IndexFunc(kept, func(outer Mount) bool {
				return m.Seen() == outer.Seen() || m.Seen() == m.Path && (m.ReadOnly || !outer.ReadOnly) &&
					strings.HasPrefix(m.Path, strings.TrimSuffix(outer.Seen(), "/")+"/")
			})
			got, within := holder(m, kept, at)
			if within != (want >= 0) || within && got != want {
				t.Fatalf("%+v lies in %d, %t of %+v, want %d", m, got, within, kept, want)
			}
			if !within {
				at[m.Seen()] = len(kept)
				kept = append(kept, m)
			}
		}
	}
	var many []Mount
	for i := range 20_000 { // a spec of a MiB has as many
		many = append(many, Mount{Path: fmt.Sprintf("/data/%d", i)})
	}
	if kept := named(many); len(kept) != len(many) {
		t.Errorf("%d of %d mounts are left", len(kept), len(many))
	}
}
