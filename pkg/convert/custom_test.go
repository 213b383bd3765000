package convert

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// boatOld and boatNew are two versions of a kind as a program has them.
type boatOld struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Sail string `json:"sail,omitempty"`
	Oars int    `json:"oars,omitempty"`
}

type boatNew struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Sails []string `json:"sails,omitempty"`
}

func (b *boatOld) DeepCopyObject() runtime.Object { c := *b; return &c }
func (b *boatNew) DeepCopyObject() runtime.Object { c := *b; return &c }

var (
	oldBoat = schema.GroupVersionKind{Group: "boats.example", Version: "v1alpha1", Kind: "Boat"}
	newBoat = schema.GroupVersionKind{Group: "boats.example", Version: "v1", Kind: "Boat"}
)

// boats is a Scheme as AddToScheme fills it, without an internal version or with one.
func boats(t *testing.T, internal bool) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(oldBoat, &boatOld{})
	scheme.AddKnownTypeWithName(newBoat, &boatNew{})
	up := func(a, b any, _ conversion.Scope) error {
		from, to := a.(*boatOld), b.(*boatNew)
		to.ObjectMeta = from.ObjectMeta
		if from.Sail == "torn" {
			panic("a torn sail")
		}
		if from.Sail != "" {
			to.Sails = []string{from.Sail}
		}
		return nil
	}
	down := func(a, b any, _ conversion.Scope) error {
		from, to := a.(*boatNew), b.(*boatOld)
		to.ObjectMeta = from.ObjectMeta
		if len(from.Sails) > 0 {
			to.Sail = from.Sails[0]
		}
		return nil
	}
	if internal {
		type hub struct{ boatNew } // the internal version
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: oldBoat.Group, Version: runtime.APIVersionInternal,
			Kind: "Boat"}, &hub{})
		for _, add := range []error{
			scheme.AddConversionFunc((*boatOld)(nil), (*hub)(nil), func(a, b any, s conversion.Scope) error {
				return up(a, &b.(*hub).boatNew, s)
			}),
			scheme.AddConversionFunc((*hub)(nil), (*boatOld)(nil), func(a, b any, s conversion.Scope) error {
				return down(&a.(*hub).boatNew, b, s)
			}),
			scheme.AddConversionFunc((*boatNew)(nil), (*hub)(nil), func(a, b any, _ conversion.Scope) error {
				b.(*hub).boatNew = *a.(*boatNew)
				return nil
			}),
			scheme.AddConversionFunc((*hub)(nil), (*boatNew)(nil), func(a, b any, _ conversion.Scope) error {
				*b.(*boatNew) = a.(*hub).boatNew
				return nil
			}),
		} {
			if add != nil {
				t.Fatal(add)
			}
		}
		return scheme
	}
	if err := errors.Join(scheme.AddConversionFunc((*boatOld)(nil), (*boatNew)(nil), up),
		scheme.AddConversionFunc((*boatNew)(nil), (*boatOld)(nil), down)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func TestRegisterScheme(t *testing.T) {
	for _, internal := range []bool{false, true} {
		c, err := New()
		if err != nil {
			t.Fatal(err)
		}
		added, err := c.RegisterScheme(boats(t, internal))
		if diff := cmp.Diff([]schema.GroupVersionKind{newBoat, oldBoat}, added); diff != "" || err != nil {
			t.Fatalf("added: %s, %v", diff, err)
		}
		in := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "boats.example/v1alpha1", "kind": "Boat",
			"metadata": map[string]any{"name": "b"}, "sail": "white", "oars": int64(2)}}
		out, losses, err := c.Convert(in, newBoat)
		if err != nil {
			t.Fatal(err)
		}
		sails, _, _ := unstructured.NestedStringSlice(out.Object, "sails")
		if out.GroupVersionKind() != newBoat || len(sails) != 1 || sails[0] != "white" || out.GetName() != "b" {
			t.Errorf("converted to %v", out.Object)
		}
		if len(losses) != 1 || losses[0].Path != "oars" {
			t.Errorf("losses %v, want oars", losses)
		}
		in.Object["sail"] = "torn"
		if _, _, err := c.Convert(in, newBoat); err == nil {
			t.Error("a conversion that panics passed")
		}
		again, err := c.RegisterScheme(boats(t, internal))
		if len(again) > 0 || err != nil {
			t.Errorf("added once more: %v, %v", again, err)
		}
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(oldBoat, &boatOld{})
	scheme.AddKnownTypeWithName(newBoat, &boatNew{})
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if added, err := c.RegisterScheme(scheme); err == nil || len(added) > 0 {
		t.Errorf("versions without a conversion: added %v, %v", added, err)
	}
}

// A custom resource may tell false, 0 and "" from nothing: what is left out of them is lost as much as true is.
func TestWhatIsEmptyIsLostToo(t *testing.T) {
	c := newConverter(t)
	c.Register(oldBoat, newBoat, func(in map[string]any) (map[string]any, error) {
		return map[string]any{"apiVersion": "boats.example/v1", "kind": "Boat", "metadata": in["metadata"]}, nil
	})
	in := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "boats.example/v1alpha1", "kind": "Boat",
		"metadata": map[string]any{"name": "b", "creationTimestamp": nil},
		"spec": map[string]any{"afloat": false, "oars": int64(0), "flag": "", "crew": []any{}, "mast": map[string]any{},
			"cook": nil}}}
	_, losses, err := c.Convert(in, newBoat)
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, loss := range losses {
		lost = append(lost, loss.Path)
	}
	if diff := cmp.Diff([]string{"spec"}, lost); diff != "" {
		t.Errorf("lost without its spec (-want +got):\n%s", diff)
	}

	c = newConverter(t)
	c.Register(oldBoat, newBoat, func(in map[string]any) (map[string]any, error) {
		return map[string]any{"apiVersion": "boats.example/v1", "kind": "Boat", "metadata": in["metadata"],
			"spec": map[string]any{}}, nil
	})
	if _, losses, err = c.Convert(in, newBoat); err != nil {
		t.Fatal(err)
	}
	lost = nil
	for _, loss := range losses {
		lost = append(lost, loss.Path)
	}
	want := []string{"spec.afloat", "spec.crew", "spec.flag", "spec.mast", "spec.oars"}
	if diff := cmp.Diff(want, lost); diff != "" {
		t.Errorf("lost of its spec (-want +got):\n%s", diff)
	}
}
