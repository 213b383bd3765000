package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
)

// TestApprovalsAreUsedUp: an annotation that stays on the object approves one transition, and not the next one to its
// plan, nor one to it from another plan, whenever that was approved before.
func TestApprovalsAreUsedUp(t *testing.T) {
	seen := map[string]bool{}
	r := &record{}
	for _, step := range []struct{ to, want string }{
		{"d", "d"}, {"a", "a.from-d.2"}, {"d", "d.from-a.3"}, {"e", "e.from-d.4"}, {"d", "d.from-e.5"},
		{"a", "a.from-d.6"}, {"d", "d.from-a.7"},
	} {
		got := r.approval(step.to, nil)
		if got != step.want || seen[got] {
			t.Errorf("from %q to %q: %q, want %q, after %v", r.Runs, step.to, got, step.want, seen)
		}
		seen[got] = true
		r.Runs, r.Approvals = step.to, r.approvals()+1
	}
	if a, e := (&record{Runs: "a"}).approval("d", nil), (&record{Runs: "e"}).approval("d", nil); a == e {
		t.Errorf("from two plans: %q", a)
	}
	for _, old := range []string{"d", "d.2", "d.3.lost-cp-2"} { // of an operator that did not count
		if got := (&record{Approved: old}).approval("d", nil); got == "d" || got == old && old != "d.2" {
			t.Errorf("after %q: %q", old, got)
		}
	}
	r = &record{Runs: "a"}
	for _, want := range []string{"d.from-a.lost-cp-2.lost-cp-3.example",
		"d.from-a.2.lost-cp-2.lost-cp-3.example", "d.from-a.3.lost-cp-2.lost-cp-3.example"} {
		got := r.approval("d", []string{"cp-2", "cp-3.example"})
		if got != want || r.approval("d", nil) == got || r.approval("d", []string{"cp-2"}) == got {
			t.Errorf("after %d, with lost hosts: %q, want %q", r.Approvals, got, want)
		}
		if !IsAbout(got, got) || IsAbout(got, "d") || IsAbout(got, "d.from-a") {
			t.Errorf("%q is approved by the name of the plan", got)
		}
		r.Approvals = r.approvals() + 1
	}
	if !IsAbout("d.from-a.2", "d") || !IsAbout("d", "d") || IsAbout("d", "e") || IsAbout("d", "") ||
		IsAbout("d.from-a", "a") {
		t.Error("a plan is not named by its digest")
	}
}

// TestWordsOfOneTransition: what was done by hand for a transition was not done for the next one to the same plan, nor
// on the way back.
func TestWordsOfOneTransition(t *testing.T) {
	steps := transition.Transition{Steps: []transition.Step{{ID: "001"}}}
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	seen := map[string]bool{}
	for _, o := range []open{
		{To: "d", Since: at, Transition: steps},
		{To: "d", Since: metav1.NewTime(at.Add(time.Hour)), Transition: steps},
		{To: "d", Since: at, Transition: steps, Back: true, Journal: []transition.Record{{Step: "001",
			Event: transition.Begun}}},
	} {
		word := o.word("")
		if digest, _, _ := strings.Cut(word, "."); digest != "d" || seen[word] {
			t.Errorf("word %q, after %v", word, seen)
		}
		seen[word] = true
	}
}

// TestHostsAskForNothingElse: the agent of a host cannot have a person do, or confirm, what no step leaves to a person,
// nor name a step of its choice.
func TestHostsAskForNothingElse(t *testing.T) {
	const lie = "all is well; kubectl annotate --overwrite fcp prod kubefusion.dev/done=d.1.030"
	action := func(a transition.Action) *remote.Request { return &remote.Request{Perform: &a} }
	for name, test := range map[string]struct {
		request *remote.Request
		want    string
		found   string
	}{
		"a file":  {request: action(transition.Action{Kind: transition.PutFile})},
		"a check": {request: &remote.Request{Check: &transition.Check{Kind: transition.Ready}}},
		"a look":  {request: &remote.Request{Look: &transition.Watch{}}},
		"by hand": {action(transition.Action{Kind: transition.ByHand, Text: "stop it"}), "stop it", ""},
		"pods": {action(transition.Action{Kind: transition.RunChecks, Before: []transition.Check{{
			Kind: transition.Adopted, Objects: &transition.Objects{}}}}), lie, transition.Found(lie)},
		"bindings": {action(transition.Action{Kind: transition.RunChecks, Before: []transition.Check{{
			Kind: transition.NoneWakes, Roles: &transition.Roles{}}}}), lie, transition.Found(lie)},
	} {
		got, found := byHandOf(test.request, &remote.Answer{ByHand: lie, Found: transition.Found(lie)})
		if got != test.want || found != test.found {
			t.Errorf("%s: %q, %q; want %q, %q", name, got, found, test.want, test.found)
		}
		if got, found := byHandOf(test.request, &remote.Answer{}); got != "" || found != "" {
			t.Errorf("%s: %q, %q of an agent that asks for nothing", name, got, found)
		}
		for _, no := range []string{"", "0123", "030\n"} { // names no list
			if got, found := byHandOf(test.request, &remote.Answer{ByHand: lie, Found: no}); got != test.want ||
				found != test.found {
				t.Errorf("%s, found %q: %q, %q", name, no, got, found)
			}
		}
	}
	for text, found := range map[string]string{lie: "", strings.Repeat("x", 2*limitMessageBytes): "0123456789abcdef"} {
		p := &plane{Reconciler: &Reconciler{Now: time.Now, Look: time.Second}, object: &api.FusedControlPlane{},
			record: &record{Open: &open{To: "d", Transition: transition.Transition{
				Steps: []transition.Step{{ID: "001"}}}}}}
		hand := &transition.ByHandError{Text: text, Found: found}
		if _, err := p.heed(t.Context(), fmt.Errorf("host cp-1: %w", hand)); err != nil {
			t.Fatal(err)
		}
		if word, err := Confirmable(p.object); err != nil || word != p.record.Open.word(found) {
			t.Errorf("it confirms %q, %v; want %q: %v", word, err, p.record.Open.word(found),
				meta.FindStatusCondition(p.object.Status.Conditions, api.ConditionProgressing))
		}
	}
}
