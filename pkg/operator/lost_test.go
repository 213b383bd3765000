package operator

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// loses deletes a Secret of the control plane.
func (s *saved) loses(name string) {
	s.t.Helper()
	at := s.at(name)
	if err := s.Client.Delete(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace,
		Name: at.Name}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *saved) entries(name string) map[string][]byte {
	s.t.Helper()
	secret := &corev1.Secret{}
	if err := s.Client.Get(s.t.Context(), s.at(name), secret); err != nil {
		s.t.Fatal(err)
	}
	return secret.Data
}

// applies has everything applied again.
func (s *saved) applies() error {
	s.t.Helper()
	s.now = s.now.Add(s.Repair)
	p := &plane{Reconciler: s.Reconciler, object: s.object(), verdict: judge(s.object())}
	var err error
	if p.record, err = readRecord(s.t.Context(), s.Client, s.names[0]); err != nil {
		s.t.Fatal(err)
	}
	_, err = p.steady(s.t.Context())
	return err
}

// TestLostCertificatesAreThoseOfBefore: authorities are never made a second time. Where the Secret of all certificates
// is gone, those of the components have them; where these are gone, too, nothing is issued.
func TestLostCertificatesAreThoseOfBefore(t *testing.T) {
	s := newSaved(t)
	s.looked()
	if err := s.applies(); err != nil { // makes the Secrets of the components
		t.Fatal(err)
	}
	before := s.entries(PKIName)
	s.loses(PKIName)
	if err := s.applies(); err != nil {
		t.Fatal(err)
	}
	after := s.entries(PKIName)
	for key, data := range after {
		if !bytes.Equal(data, before[key]) {
			t.Errorf("%s is another one", key)
		}
	}
	if len(after) < len(before)-2 || after["etc__kubernetes__pki__ca.key"] == nil {
		t.Errorf("of %d entries %d are there", len(before), len(after))
	}
	for _, name := range []string{"kube-apiserver-files", "kube-apiserver-modern-files", "etcd-core-files",
		"etcd-modern-files", "kube-controller-manager-files", "kube-controller-manager-modern-files",
		"kube-scheduler-files"} {
		s.loses(name)
	}
	s.loses(PKIName)
	err := s.applies()
	if err == nil || !strings.Contains(err.Error(), "put it back from a copy") {
		t.Errorf("with no certificate left: %v", err)
	}
	if err := s.Client.Get(t.Context(), s.at(PKIName), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("certificates were issued: %v", err)
	}
	// What a person decides.
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.names[0], Name: PKIName}}
	mark(empty, s.names[0])
	if err := s.Client.Create(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	if err := s.applies(); err != nil {
		t.Fatal(err)
	}
	if now := s.entries(PKIName); maps.EqualFunc(now, before, bytes.Equal) || len(now) < len(before) {
		t.Errorf("after an empty Secret there are %d entries", len(now))
	}
}

// TestALostRecord: it is written again where the spec leads to what ran, and what ran is left alone where it does not.
func TestALostRecord(t *testing.T) {
	s := newSaved(t)
	status, _ := s.looked()
	ran := status.Runs
	s.loses(RecordName)
	if status, _ = s.looked(); status.Runs != ran || status.Transition != nil || status.Phase != api.Running {
		t.Errorf("with its record lost: %+v", status)
	}
	if r, err := readRecord(t.Context(), s.Client, s.names[0]); err != nil || r.Runs != ran || r.Plan == nil {
		t.Errorf("the record is %+v, %v", r, err)
	}
	s.loses(RecordName)
	s.edit(func(spec map[string]any) { spec["modern"].(map[string]any)["version"] = "1.36.4" })
	status, _ = s.looked()
	degraded := meta.FindStatusCondition(status.Conditions, api.ConditionDegraded)
	if status.Runs != ran || status.Phase != api.Degraded || degraded.Reason != "Lost" ||
		!strings.Contains(degraded.Message, ran) {
		t.Errorf("with its record lost and another spec: %+v", status)
	}
	if err := s.Client.Get(t.Context(), s.at(RecordName), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("a record was written: %v", err)
	}
	s.edit(func(spec map[string]any) { spec["modern"].(map[string]any)["version"] = "1.36.3" })
	if status, _ = s.looked(); status.Runs != ran || status.Phase != api.Running {
		t.Errorf("with the spec of before: %+v", status)
	}
}

// TestStoresThatHaveBegunAreNoted: where the only member of a store reads it, so that it never begins again.
func TestStoresThatHaveBegunAreNoted(t *testing.T) {
	s := newSaved(t)
	s.looked()
	if err := s.applies(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range s.object().Status.Components {
		if name, of := strings.CutPrefix(s.object().Status.Components[i].Name, "etcd-"); of {
			want = append(want, name)
		}
	}
	noted := &corev1.ConfigMap{}
	if err := s.Client.Get(t.Context(), s.at(plan.BegunStores), noted); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(noted.Data)); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("noted are %v, want %v", got, want)
	}
	for store, state := range noted.Data {
		if state != "existing" {
			t.Errorf("%s is %q", store, state)
		}
	}
}

// TestALostNamespace: nothing is installed in its place, with stores that have nothing.
func TestALostNamespace(t *testing.T) {
	s := newSaved(t)
	status, _ := s.looked()
	ran := status.Runs
	s.loses(RecordName)
	s.loses(PKIName)
	if err := s.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.names[0]}}); err !=
		nil {
		t.Fatal(err)
	}
	status, _ = s.looked()
	if status.Runs != ran || status.Phase != api.Degraded ||
		!strings.Contains(meta.FindStatusCondition(status.Conditions, api.ConditionDegraded).Message, "is gone") {
		t.Errorf("with its namespace gone: %+v", status)
	}
	if err := s.Client.Get(t.Context(), types.NamespacedName{Name: s.names[0]}, &corev1.Namespace{}); !apierrors.
		IsNotFound(err) {
		t.Errorf("it was made again: %v", err)
	}
}
