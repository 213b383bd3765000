package convert

import (
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// TestAbsenceThatIsAllowedIsNoLoss: objects of each version, with what it requires and only some of the rest, are
// written in each other version without a default that is lost.
func TestAbsenceThatIsAllowedIsNoLoss(t *testing.T) {
	s := newSpecimens(t, 5)
	chance := rand.New(rand.NewSource(5))
	written, told := 0, map[string]bool{}
	s.nativePairs(func(from, to schema.GroupVersionKind) {
		served := kubever.LifecycleOf(to).DefaultOn
		if len(served) == 0 {
			return // alpha versions default in other ways what their own minor alone had
		}
		for range 3 {
			in := s.of(t, from)
			in["apiVersion"], in["kind"] = from.ToAPIVersionAndKind()
			s.reduce(chance, in, from, nil)
			conversion, err := s.c.Begin(&unstructured.Unstructured{Object: in}, to)
			if err != nil {
				continue // what 1.36 does not convert is for other tests
			}
			paths, left, err := conversion.KeepDefaults(served[len(served)-1].To)
			if err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			written += len(paths)
			for _, loss := range left {
				if text := from.String() + " to " + to.String() + ": " + loss.Path; !told[text] {
					told[text] = true
					t.Errorf("%s: %s, want no loss", text, loss.Meaning)
				}
			}
		}
	})
	if written < 50 {
		t.Errorf("%d defaults were written, want more than 50", written)
	}
}

// reduce takes away half of what an object need not say, and less of what holds something.
func (s *specimens) reduce(chance *rand.Rand, of map[string]any, gvk schema.GroupVersionKind, at path) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		here := append(slices.Clone(at), name)
		switch value := of[name].(type) {
		case map[string]any:
			s.reduce(chance, value, gvk, here)
			if chance.Intn(5) == 0 && !s.c.Requires(gvk, here, 0) {
				delete(of, name)
			}
		case []any:
			for i, element := range value {
				if fields, ok := element.(map[string]any); ok {
					s.reduce(chance, fields, gvk, append(slices.Clone(here), i))
				}
			}
			if chance.Intn(5) == 0 && !s.c.Requires(gvk, here, 0) {
				delete(of, name)
			}
		default:
			if chance.Intn(2) == 0 && !s.c.Requires(gvk, here, 0) && (len(at) > 0 || !isKindField(name)) {
				delete(of, name)
			}
		}
	}
}

func isKindField(name string) bool { return name == "apiVersion" || name == "kind" }

// TestDefaultsThatVersionsForget: what Kubernetes does not default and means is no difference, for `fusionctl convert`
// and for clients; what a version requires is one.
func TestDefaultsThatVersionsForget(t *testing.T) {
	c := newConverter(t)
	for _, tc := range []struct{ in, to, lost string }{
		{`{"apiVersion":"extensions/v1beta1","kind":"NetworkPolicy","metadata":{"name":"a"},"spec":{"podSelector":{},
			"ingress":[{"ports":[{"port":80}]}],"egress":[{"ports":[{"port":80}]}]}}`, "networking.k8s.io/v1", ""},
		{`{"apiVersion":"networking.k8s.io/v1beta1","kind":"IngressClass","metadata":{"name":"a"},"spec":{
			"controller":"a.b/c","parameters":{"apiGroup":"a.b","kind":"A","name":"b"}}}`, "networking.k8s.io/v1", ""},
		{`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"a"},"spec":{
			"request":"YQ==","usages":["client auth"]}}`, "certificates.k8s.io/v1beta1", "spec.signerName"},
		{`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"a"},"spec":{
			"request":"YQ==","signerName":"a.b/c"}}`, "certificates.k8s.io/v1beta1", "spec.usages"},
		{`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":
			"a"},"spec":{"policyName":"a","paramRef":{"name":"b"},"validationActions":["Deny"]}}`,
			"admissionregistration.k8s.io/v1alpha1", "spec.paramRef.parameterNotFoundAction"},
	} {
		in := parse(t, []byte(tc.in))
		group, version, _ := strings.Cut(tc.to, "/")
		to := schema.GroupVersionKind{Group: group, Version: version, Kind: in.GetKind()}
		conversion, err := c.Begin(in, to)
		if err != nil {
			t.Fatal(err)
		}
		if tc.lost == "" && conversion.Defaults != nil {
			t.Errorf("%s: differing defaults %v, want none", in.GroupVersionKind(), conversion.Defaults.Losses())
		}
		served := kubever.LifecycleOf(to).Minors
		_, left, err := conversion.KeepDefaults(served[len(served)-1].To)
		if err != nil {
			t.Fatal(err)
		}
		if tc.lost == "" && len(left) > 0 || tc.lost != "" && (len(left) != 1 || left[0].Path != tc.lost) {
			t.Errorf("%s to %s: lost %v, want %q", in.GroupVersionKind(), to, left, tc.lost)
		}
	}
}
