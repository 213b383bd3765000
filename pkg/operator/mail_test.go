package operator

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/transition/remote"
)

// TestAPersonAgreesToWhatWasFound: the word is about the bindings that were shown. An agent that finds others is not
// told that a person has seen them.
func TestAPersonAgreesToWhatWasFound(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	o := &open{To: "d", Since: metav1.NewTime(now), Transition: transition.Transition{
		Steps: []transition.Step{{ID: "001"}}}}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	h := &api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{Namespace: "p", Name: "cp-1"}}
	mark(h, "p")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).Build()
	r := &Reconciler{Client: c, Reader: c, Now: func() time.Time { return now }, StepLimit: time.Hour}
	check := &transition.Check{Kind: transition.NoneWakes, Roles: &transition.Roles{}}
	// look asks the agent with what the annotation says, and returns the task that it has then.
	look := func(word string) (*api.HostTask, error) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(h), h); err != nil {
			t.Fatal(err)
		}
		m := &mailbox{Reconciler: r, name: "p", hosts: map[string]*api.ControlPlaneHost{"cp-1": h}, open: o,
			word: word, note: func(string) {}}
		err := m.Check(t.Context(), "cp-1", check)
		return h.Spec.Task, err
	}
	answers := func(a remote.Answer) {
		t.Helper()
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		ended := metav1.NewTime(now)
		h.Status.Task = &api.HostTaskStatus{Number: h.Spec.Task.Number, Ended: &ended, Answer: string(text)}
		if err := c.Update(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(found string) {
		t.Helper()
		hand := (*transition.ByHandError)(nil)
		if _, err := look(""); !errors.As(err, &hand) || hand.Found != found {
			t.Fatalf("a person is asked: %v, want about %s", err, found)
		}
	}
	if task, err := look(""); !errors.Is(err, errWaiting) || task == nil || task.ByHand {
		t.Fatalf("the agent is asked: %+v, %v", task, err)
	}
	first, second := transition.Found("a"), transition.Found("b")
	answers(remote.Answer{Error: "x", ByHand: "see a", Found: first})
	asks(first)
	number := h.Spec.Task.Number
	for _, word := range []string{o.word(""), o.word(second), o.word(first) + "0"} {
		if task, err := look(word); err == nil || task.Number != number {
			t.Errorf("word %q: %+v, %v", word, task, err)
		}
	}
	if task, err := look(o.word(first)); !errors.Is(err, errWaiting) || !task.ByHand || task.Found != first {
		t.Fatalf("a person has agreed: %+v, %v", task, err)
	}
	answers(remote.Answer{Error: "x", ByHand: "see b", Found: second})
	asks(second)
	number = h.Spec.Task.Number
	if task, err := look(o.word(first)); err == nil || task.Number != number {
		t.Errorf("a person has agreed to what was there before: %+v, %v", task, err)
	}
	if task, err := look(o.word(second)); !errors.Is(err, errWaiting) || !task.ByHand || task.Found != second {
		t.Fatalf("a person has agreed to this, too: %+v, %v", task, err)
	}
	answers(remote.Answer{})
	if _, err := look(o.word(second)); err != nil {
		t.Error(err)
	}
}
