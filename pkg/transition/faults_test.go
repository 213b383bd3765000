package transition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// needStores are the actions and checks that get no answer while stores have no majority: those about stores, and those
// about API servers, which wait for theirs.
var needStores = []string{string(Snapshot), string(Release), string(HandOver), string(HandBack), string(CopyRoles),
	string(RemoveRoles), string(RewriteObjects), string(RaiseStore), string(LowerStore), string(SettleMember),
	string(ChangeKubelet), string(RestoreKubelet), string(Ready), string(StoresAgree), string(MayRewrite),
	string(NoKeys), string(Settled), string(Released), string(NodeRights), string(NodeReady), string(NodePods),
	string(Budgets), string(MayGo), string(RolesMayGo), string(RolesEqual), string(Adopted), string(MembersAre),
	string(Defined), string(NoneWakes)}

var errNoMajority = errors.New("no majority")

// lossy is a cluster whose stores may lose their majorities.
type lossy struct {
	*cluster
	lost    bool
	deleted []Kind // what was done meanwhile that takes away or moves what is stored
}

func (l *lossy) asked(kind string) error {
	if l.lost && slices.Contains(needStores, kind) {
		return fmt.Errorf("%s: %w", kind, errNoMajority)
	}
	return nil
}

func (l *lossy) Do(ctx context.Context, host string, a *Action) error {
	if l.lost && a.deletes() && a.Kind != RestoreKubelet {
		l.deleted = append(l.deleted, a.Kind)
	}
	if err := l.asked(string(a.Kind)); err != nil {
		return err
	}
	return l.cluster.Do(ctx, host, a)
}

func (l *lossy) Check(ctx context.Context, host string, c *Check) error {
	if err := l.asked(string(c.Kind)); err != nil {
		return err
	}
	return l.cluster.Check(ctx, host, c)
}

func (l *lossy) Look(_ context.Context, _ string, w *Watch) (map[string]witness.Sight, error) {
	if l.lost {
		return nil, errNoMajority
	}
	seen := map[string]witness.Sight{}
	for _, s := range w.Stores {
		seen[s.Name] = witness.Sight{Cluster: s.Name, Revision: 7}
	}
	return seen, nil
}

func (l *lossy) copied() *lossy {
	return &lossy{cluster: &cluster{files: maps.Clone(l.files), units: maps.Clone(l.units), left: -1,
		digests: maps.Clone(l.digests),
		records: slices.Clone(l.records)}}
}

// TestMajorityLostAtEveryStep: at every step of every kind of transition, forth and back, the stores lose their
// majorities. Nothing is taken away or moved that cannot be looked at; what cannot be done is not recorded as done; and
// when the stores are back it goes on to the end, or back to where it began.
func TestMajorityLostAtEveryStep(t *testing.T) {
	points, stopped := 0, 0
	pairs := maps.Clone(journeys(t))
	rolesOf := strings.Replace(example(t, splitExample), "\nspec:\n",
		"\nspec:\n  handedOver: ["+strings.Join(rbacResources(), ", ")+"]\n", 1)
	pairs["roles"] = [2]Setup{handing(t, splitExample, "", render.StaticPod),
		{Plan: planOf(t, splitExample, rolesOf), Target: render.StaticPod}}
	pairs["ingresses"] = [2]Setup{handing(t, splitExample, "", render.StaticPod),
		handing(t, splitExample, "ingresses.networking.k8s.io", render.StaticPod)}
	pairs["definitions"] = [2]Setup{handing(t, splitExample, "", render.Systemd),
		handing(t, splitExample, definedAndKept, render.Systemd)}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		if strings.Contains(name, ".yaml") && !strings.Contains(name, splitExample) {
			continue // of the same kind as those of this example
		}
		if strings.HasPrefix(name, "modern") && name != "modern 1.24 to 1.36" && name != "modern 1.36 to 1.24" {
			continue
		}
		from, to := pairs[name][0], pairs[name][1]
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			read := facts()
			read.Prepare = true
			tr, err := New(from, to, read)
			if err != nil {
				t.Fatal(err)
			}
			start, end := newCluster(t, from), newCluster(t, to)
			finished := (&lossy{cluster: start}).copied()
			if err := Apply(t.Context(), &tr, finished, finished, nil); err != nil {
				t.Fatal(err)
			}
			for at := range tr.Steps {
				for _, back := range []bool{false, true} {
					begin := (&lossy{cluster: start}).copied()
					run := Apply
					if back {
						begin, run = finished.copied(), Undo
					}
					lose := func(s *Step, event Event) {
						begin.lost = begin.lost || s.ID == tr.Steps[at].ID && (event == Begun || event == Undoing)
					}
					err := run(t.Context(), &tr, begin, begin, lose)
					if points++; err != nil {
						stopped++
						if !errors.Is(err, errNoMajority) && !errors.Is(err, ErrUnseen) {
							t.Fatalf("lost at step %s, back %t: %v", tr.Steps[at].ID, back, err)
						}
					}
					if len(begin.deleted) > 1 { // that of the step itself had been looked at just before
						t.Errorf("lost at step %s, back %t: %v were done", tr.Steps[at].ID, back, begin.deleted)
					}
					on, again := begin.copied(), begin.copied()
					if err := Apply(t.Context(), &tr, on, on, nil); err != nil || differs(on.cluster, end) != "" {
						t.Fatalf("lost at step %s, back %t, then on: %v %s", tr.Steps[at].ID, back, err,
							differs(on.cluster, end))
					}
					err = Undo(t.Context(), &tr, again, again, nil)
					if err != nil || differs(again.cluster, start) != "" {
						t.Fatalf("lost at step %s, back %t, then back: %v %s", tr.Steps[at].ID, back, err,
							differs(again.cluster, start))
					}
				}
			}
		})
	}
	t.Logf("the majority was lost at %d points, %d of which stopped the run", points, stopped)
	if points < 200 || stopped < 100 {
		t.Errorf("%d points, %d of which stopped the run; want hundreds", points, stopped)
	}
}
