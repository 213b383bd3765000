package api

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

// FusedControlPlane is the object. Its spec stays the text that the API server has: pkg/spec alone reads it.
type FusedControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`
	Spec              json.RawMessage `json:"spec"`
	Status            Status          `json:"status,omitzero"`
}

// FusedControlPlaneList is a list of them.
type FusedControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []FusedControlPlane `json:"items"`
}

// Annotations of a FusedControlPlane.
const (
	// AnnotationApprove has what the condition Progressing says, the digests of two plans: the transition to the first
	// from the second may begin, once, and without the hosts alone that it names as lost.
	AnnotationApprove = Group + "/approve"
	// AnnotationBack has the digest of a plan: the transition to it is undone. An edit of the spec ends that.
	AnnotationBack = Group + "/back"
	// AnnotationAcknowledge has the name of a stop before a step that deletes: the stores are right as they were seen.
	AnnotationAcknowledge = Group + "/acknowledge"
	// AnnotationRestore has the name of a backup: the managed stores are put back to it, once.
	AnnotationRestore = Group + "/restore"
	// AnnotationDone names a step that waits for a person, as the status says: it was done by hand.
	AnnotationDone = Group + "/done"
)

// AnnotationDenied on a ControlPlaneHost shuts out its agent, whatever it says: it loses its permissions, gets no
// certificate, and is given nothing to do.
const AnnotationDenied = Group + "/denied"

// Finalizer keeps an object until the operator has done what its deletionPolicy says.
const Finalizer = Group + "/control-plane"

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	version := schema.GroupVersion{Group: Group, Version: Version}
	s.AddKnownTypes(version, &FusedControlPlane{}, &FusedControlPlaneList{}, &ControlPlaneHost{},
		&ControlPlaneHostList{})
	metav1.AddToGroupVersion(s, version)
	return nil
}

// DeepCopyObject copies the object.
func (f *FusedControlPlane) DeepCopyObject() runtime.Object { return f.DeepCopy() }

// DeepCopy copies the object.
func (f *FusedControlPlane) DeepCopy() *FusedControlPlane {
	c := &FusedControlPlane{TypeMeta: f.TypeMeta, Spec: append(json.RawMessage(nil), f.Spec...),
		Status: f.Status.DeepCopy()}
	f.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return c
}

// DeepCopyObject copies the list.
func (l *FusedControlPlaneList) DeepCopyObject() runtime.Object {
	c := &FusedControlPlaneList{TypeMeta: l.TypeMeta, Items: make([]FusedControlPlane, 0, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopy())
	}
	return c
}

// DeepCopy copies the status.
func (s Status) DeepCopy() Status {
	c := s
	if s.Transition != nil {
		t := *s.Transition
		c.Transition = &t
	}
	c.Findings = append([]PlanFinding(nil), s.Findings...)
	c.Components = append([]ComponentStatus(nil), s.Components...)
	c.Conditions = append([]metav1.Condition(nil), s.Conditions...)
	c.History = append([]PastTransition(nil), s.History...)
	c.Backup = s.Backup.DeepCopy()
	return c
}

// DeepCopy copies the status of backups.
func (b *BackupStatus) DeepCopy() *BackupStatus {
	if b == nil {
		return nil
	}
	c := *b
	if b.Last != nil {
		last := *b.Last
		last.Stores = append([]StoreSaved(nil), b.Last.Stores...)
		c.Last = &last
	}
	if b.Failed != nil {
		failed := *b.Failed
		c.Failed = &failed
	}
	c.Next = b.Next.DeepCopy()
	c.Kept = append([]string(nil), b.Kept...)
	return &c
}

// File is the spec file that the object is. Errors: those of spec.Load, each with the path of its field.
func (f *FusedControlPlane) File() (*spec.File, error) {
	text, err := json.Marshal(map[string]any{"apiVersion": spec.APIVersion, "kind": spec.Kind,
		"metadata": map[string]string{"name": f.Name}, "spec": f.Spec})
	if err != nil {
		return nil, fmt.Errorf("reading the spec of %s: %w", f.Name, err)
	}
	return spec.Load(f.Name, text)
}
