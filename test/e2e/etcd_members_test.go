//go:build e2e

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestEtcdMembersJoinAndLeave: a store of one real member becomes one of three, then one of the two that joined, by
// transitions, and back over both, while a client writes. fusionctl is killed after every record, and a member with it:
// what was written is there, and at the end those vote that the plan has, and no others.
func TestEtcdMembersJoinAndLeave(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"3.4.21", "3.6.8"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := startMinorsStore(t, release, 1)
			one, three, others := s.setup(release, 1), s.setup(release, 1, 2, 3), s.setup(release, 2, 3)
			writes := s.writer()
			join, leave := s.ofMembers(one, three), s.ofMembers(three, others)
			joined, left := &memoryJournal{}, &memoryJournal{}
			points := s.goes(&join, joined, true, "cp-1")
			s.votes(three)
			points += s.goes(&leave, left, true, "cp-2")
			s.votes(others)
			points += s.goes(&leave, left, false, "cp-3")
			s.votes(three)
			points += s.goes(&join, joined, false, "cp-1")
			s.votes(one)
			written := writes()
			s.holds(written)
			t.Logf("killed at %d points; all %d keys that were acknowledged are there", points, written)
		})
	}
}

// TestALostMemberIsReplaced: the machine of one of three real members is gone for good, with its data. A transition
// leaves it out, refused while something answers there, and another one has a new member join in its place, while a
// client writes; fusionctl is killed after every record, and a member with it.
func TestALostMemberIsReplaced(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"3.4.21", "3.6.8"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := startMinorsStore(t, release, 1, 2, 3)
			three, others := s.setup(release, 1, 2, 3), s.setup(release, 2, 3)
			writes := s.writer()
			leave, join := s.ofMembers(three, others, "cp-1"), s.ofMembers(others, three)
			left := &memoryJournal{left: -1}
			err := transition.Apply(t.Context(), &leave, s, left, nil)
			if err == nil || !strings.Contains(err.Error(), "it is not lost") {
				t.Fatalf("apply beside a host that answers = %v, want it refused", err)
			}
			s.votes(three)
			s.lose("cp-1")
			points := s.goes(&leave, left, true, "cp-2")
			s.votes(others)
			points += s.goes(&leave, left, false, "cp-3") // what was put on the others is taken back
			s.votes(others)
			points += s.goes(&leave, left, true, "cp-2")
			points += s.goes(&join, &memoryJournal{}, true, "cp-3")
			s.votes(three)
			written := writes()
			s.holds(written)
			t.Logf("killed at %d points; all %d keys that were acknowledged are there", points, written)
		})
	}
}

// lose takes a host away, with its member and everything that is on its disk.
func (s *minorsStore) lose(host string) {
	s.running[host+"/"+unitOfStore].Kill()
	delete(s.running, host+"/"+unitOfStore)
	for _, dir := range []string{filepath.Join(s.root, host), filepath.Join(s.store.Managed.DataDir, host)} {
		must(s.t, os.RemoveAll(dir))
	}
}

// ofMembers are the steps about the members of the store: the other components do not run here.
func (s *minorsStore) ofMembers(from, to transition.Setup, lost ...string) transition.Transition {
	s.t.Helper()
	tr := s.way(from, to, lost...)
	tr.Steps = slices.DeleteFunc(tr.Steps, func(step transition.Step) bool {
		for _, a := range []*transition.Action{step.Do, step.Undo} {
			if a == nil {
				continue
			}
			if a.Joining != nil || a.Unit == unitOfStore || a.File != nil &&
				a.File.Path == "/etc/systemd/system/"+unitOfStore {
				return false
			}
			if slices.ContainsFunc(a.Before, func(c transition.Check) bool {
				return c.Kind == transition.NoData || c.Kind == transition.Silent ||
					c.Kind == transition.OneCluster && c.Stores[0].Name == "modern"
			}) {
				return false
			}
		}
		return true
	})
	return tr
}

// goes does a transition, or takes it back: fusionctl is killed after every second or third record, and every third
// time a member with it, which starts again.
func (s *minorsStore) goes(tr *transition.Transition, j *memoryJournal, forth bool, member string) (points int) {
	t := s.t
	t.Helper()
	run := transition.Undo
	if forth {
		run = transition.Apply
	}
	for j.left = 2; ; j.left = 2 + points%2 {
		err := run(t.Context(), tr, s, j, nil)
		if err == nil {
			return points
		}
		if points++; !errors.Is(err, errKilled) {
			t.Fatalf("forth %t, killed at %d points: %v", forth, points, err)
		}
		if points%3 == 0 {
			s.kill(member, unitOfStore)
		}
	}
}

// votes: the members are those of the plan, and none is a learner.
func (s *minorsStore) votes(setup transition.Setup) {
	t := s.t
	t.Helper()
	list, err := s.client.MemberList(t.Context())
	must(t, err)
	var got, want []string
	for _, m := range list.Members {
		if m.IsLearner {
			t.Errorf("%s is a learner", m.Name)
		}
		got = append(got, m.ClientURLs...)
	}
	for _, c := range setup.Plan.Components {
		if c.Kind == plan.Etcd {
			url, _ := c.Arg("advertise-client-urls")
			want = append(want, url)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the members are %q, want %q", got, want)
	}
}
