package local

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// TestKeysMove: they are in one store afterwards, also when a run before was killed after it had copied some; what
// cannot go is named, each, and nothing goes then.
func TestKeysMove(t *testing.T) {
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	lease := func(version, name string) []byte { return stored(version, "Lease", "kube-system", name, "") }
	const at = "/registry/leases/kube-system/"
	modern.Put(t, map[string][]byte{at + "a": lease("coordination.k8s.io/v1", "a"),
		at + "b": lease("coordination.k8s.io/v1beta1", "b"), at + "c": lease("coordination.k8s.io/v1", "c"),
		"/registry/leases-of-others/x": []byte("x")})
	core.Put(t, map[string][]byte{at + "a": lease("coordination.k8s.io/v1", "a")}) // copied before
	m := &transition.Moving{Prefix: "/registry", From: plan.Store{Name: "modern", Endpoints: []string{modern.Endpoint}},
		To: plan.Store{Name: "core", Endpoints: []string{core.Endpoint}}, Resources: []transition.MovingRow{
			{Key: "leases", Reads: []string{"coordination.k8s.io/v1", "coordination.k8s.io/v1beta1"}}}}
	count := func(s *etcdtest.Server) (n int) {
		t.Helper()
		for _, name := range []string{"a", "b", "c", "d"} {
			answer, err := s.Client(t).Get(t.Context(), at+name)
			if err != nil {
				t.Fatal(err)
			}
			n += len(answer.Kvs)
		}
		return n
	}
	modern.Put(t, map[string][]byte{at + "d": lease("coordination.k8s.io/v1alpha1", "d")})
	core.Put(t, map[string][]byte{at + "c": lease("coordination.k8s.io/v1", "another")})
	err := moveKeys(t.Context(), m)
	var keys *KeysError
	if !errors.As(err, &keys) || len(keys.Found) != 2 || !strings.Contains(err.Error(), at+"c: the other store has") ||
		!strings.Contains(err.Error(), at+"d: is stored as coordination.k8s.io/v1alpha1") {
		t.Errorf("moveKeys = %v, want c and d named", err)
	}
	if in, left := count(core), count(modern); in != 2 || left != 4 {
		t.Errorf("%d keys have gone and %d are left, want none gone", in, left)
	}
	check := transition.MayMoveCheck(m)
	if again := MayMove(t.Context(), &check, Telling{}); again == nil {
		t.Error("the check finds nothing")
	}
	for _, s := range []*etcdtest.Server{core, modern} {
		for _, name := range []string{"c", "d"} {
			if _, err := s.Client(t).Delete(t.Context(), at+name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		if err := moveKeys(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if in, left := count(core), count(modern); in != 2 || left != 0 {
		t.Errorf("%d keys are there and %d are left, want 2 and none", in, left)
	}
	answer, err := modern.Client(t).Get(t.Context(), "/registry/leases-of-others/x")
	if err != nil || len(answer.Kvs) != 1 {
		t.Errorf("a key of another resource: %v, %v", answer, err)
	}
}
