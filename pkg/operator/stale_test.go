package operator

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestObjectsOfThePastChangeNothing: an operator that starts may read its first objects from an API server that lags
// behind: with the spec and the annotations of before, or one that was deleted, and whose name another one has now.
func TestObjectsOfThePastChangeNothing(t *testing.T) {
	more := map[string]any{"deletionPolicy": "Delete", "approval": "Automatic", "backup": map[string]any{
		"schedule": "30 2 * * *", "image": "registry.example.com/fusionctl:v1"}}
	const kept = "20260101T000000Z"
	for name, past := range map[string]func(*api.FusedControlPlane){
		"it was deleted, and its name is another one's": func(f *api.FusedControlPlane) {
			now := metav1.Now()
			f.UID, f.DeletionTimestamp = "another", &now
		},
		"it was deleted, to be kept, and its name is another one's": func(f *api.FusedControlPlane) {
			now := metav1.Now()
			f.UID, f.DeletionTimestamp = "another", &now
			f.Spec = bytes.Replace(f.Spec, []byte(`"Delete"`), []byte(`"Keep"`), 1)
		},
		"its spec was another one": func(f *api.FusedControlPlane) {
			f.Spec = bytes.Replace(f.Spec, []byte(`"1.36.3"`), []byte(`"1.36.2"`), 1)
			f.Generation--
		},
		"its spec was another one, before the transition that goes on": func(f *api.FusedControlPlane) {
			f.Spec = bytes.Replace(f.Spec, []byte(`"1.36.3"`), []byte(`"1.36.2"`), 1)
			f.Generation--
		},
		"it wanted a restore": func(f *api.FusedControlPlane) {
			f.Annotations = map[string]string{api.AnnotationRestore: kept}
			f.Status.Backup = &api.BackupStatus{Kept: []string{kept}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleetWith(t, 1, more)
			of := types.NamespacedName{Name: f.names[0]}
			r, err := readRecord(t.Context(), f.Reader, f.names[0])
			if err == nil && strings.Contains(name, "goes on") {
				r.Open = &open{To: r.Runs, Plan: r.Plan}
				if r.Open.Transition, err = transition.NewHosted(nil, r.Plan, transition.Facts{}); err == nil {
					err = r.write(t.Context(), f.Client, f.names[0])
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			begun := r.Open != nil
			var stale bool
			var read *api.FusedControlPlane
			f.Client = interceptor.NewClient(f.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					err := c.Get(ctx, key, o, opts...)
					if object, is := o.(*api.FusedControlPlane); is && err == nil && stale {
						past(object)
						read = object
					}
					return err
				}})
			for _, stale = range []bool{true, true} {
				if _, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: of}); err != nil {
					t.Fatal(err)
				}
			}
			if read == nil {
				t.Fatal("nothing was read")
			}
			if err := f.Reader.Get(t.Context(), of, &corev1.Namespace{}); err != nil {
				t.Errorf("its namespace: %v", err)
			}
			now := &api.FusedControlPlane{}
			if err := f.Reader.Get(t.Context(), of, now); err != nil || len(now.Finalizers) != 1 {
				t.Errorf("it has the finalizers %q (%v), want its own", now.Finalizers, err)
			}
			r, err = readRecord(t.Context(), f.Reader, f.names[0])
			if err != nil || begun != (r.Open != nil) || begun && r.Open.Back {
				t.Errorf("the record has the transition %+v (%v), and had one: %t", r.Open, err, begun)
			}
			for _, c := range read.Status.Conditions {
				if c.Reason == "Findings" {
					t.Error(c.Message)
				}
			}
		})
	}
}
