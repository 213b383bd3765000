package objects_test

import (
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

func TestDiffValuesSaysWhatDiffers(t *testing.T) {
	a, b := modernPod(), modernPod()
	b.Spec.Containers[0].Image = "nginx:2"
	managed := modernPod()
	managed.ManagedFields = append(managed.ManagedFields, metav1.ManagedFieldsEntry{Manager: "another"})
	encode := func(p *corev1.Pod, asJSON bool) []byte { return store(t, asJSON, corev1.SchemeGroupVersion, p) }
	for name, test := range map[string]struct {
		left, right []byte
		want        string
	}{
		"a field": {encode(a, false), encode(b, false),
			"\n   containers:\n-  - name: a\n+  - image: nginx:2\n+    name: a\n"},
		"the encoding":  {encode(a, false), encode(a, true), "the same in other bytes: protobuf and json"},
		"managedFields": {encode(a, false), encode(managed, false), "the same but for managedFields"},
		"encryption": {encode(a, false), []byte("k8s:enc:aescbc:v1:key1:xx"),
			`cannot be compared: right: encrypted by provider "aescbc" with key "key1"`},
		"damage": {encode(a, false)[:50], encode(a, false),
			"cannot be compared: left: not the value of a Kubernetes object"},
	} {
		if got := objects.DiffValues("pods/default/web", test.left, test.right); !strings.Contains(got, test.want) {
			t.Errorf("%s: DiffValues = %q, want it to contain %q", name, got, test.want)
		}
	}
}

// TestDiffValuesShowsNoSecret: neither their data nor what kubectl repeats of it, in any encoding, nor what is stored
// under the key of a Secret and is none.
func TestDiffValuesShowsNoSecret(t *testing.T) {
	secret := func(password string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "s",
				Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"password":"` + password + `"}}`}},
			Data:       map[string][]byte{"password": []byte(password), "user": []byte("the-user")},
			StringData: map[string]string{"more": password},
		}
	}
	for _, asJSON := range []bool{false, true} {
		left, right := store(t, asJSON, corev1.SchemeGroupVersion, secret("hunter1")),
			store(t, asJSON, corev1.SchemeGroupVersion, secret("hunter2"))
		got := objects.DiffValues("secrets/default/s", left, right)
		for _, part := range []string{"hunter", "the-user", base64.StdEncoding.EncodeToString([]byte("hunter1"))[:7],
			base64.StdEncoding.EncodeToString([]byte("the-user"))[:7]} {
			if strings.Contains(got, part) {
				t.Errorf("DiffValues shows %q:\n%s", part, got)
			}
		}
		if !strings.Contains(got, "-  password: (not shown)\n+  password: (another, not shown)\n   user: (not "+
			"shown)\n") {
			t.Errorf("DiffValues does not say which entry differs:\n%s", got)
		}
	}
	odd := []byte(`{"apiVersion":"v1","kind":"Other","password":"hunter1"}`)
	for _, right := range []string{`{"apiVersion":"v1","kind":"Other","password":"hunter2"}`,
		`{"apiVersion":"v1","kind":"Other","password":["hunter2"]}`, "hunter2", `{"hunter2`} {
		if got := objects.DiffValues("secrets/default/s", odd, []byte(right)); strings.Contains(got, "hunter") {
			t.Errorf("DiffValues of what is no Secret shows its contents:\n%s", got)
		}
	}
}
