package operator

import (
	"slices"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// TestEventsThatDifferAreNotOne: the recorder adds an event to one of the same reason and action, and drops what it
// says.
func TestEventsThatDifferAreNotOne(t *testing.T) {
	sink, created := fake.NewClientset(), make(chan string, 3)
	sink.PrependReactor("create", "events", func(a kubetesting.Action) (bool, runtime.Object, error) {
		event := a.(kubetesting.CreateAction).GetObject().(*eventsv1.Event)
		created <- event.Note
		return true, event, nil
	})
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: sink.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &plane{Reconciler: &Reconciler{Events: broadcaster.NewRecorder(scheme.Scheme, "fusionctl-operator")},
		object: &api.FusedControlPlane{TypeMeta: metav1.TypeMeta{APIVersion: "kubefusion.dev/v1alpha1",
			Kind: "FusedControlPlane"}, ObjectMeta: metav1.ObjectMeta{Name: "p"}}}
	want := []string{"store core: 3 addresses", "store core: 4 addresses"}
	for _, note := range want {
		p.note(note)
	}
	said := []string{<-created, <-created}
	if slices.Sort(said); !slices.Equal(said, want) {
		t.Errorf("the events say %q, want %q", said, want)
	}
}
