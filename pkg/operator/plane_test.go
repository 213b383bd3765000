package operator

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

func example(t testing.TB) *api.FusedControlPlane {
	t.Helper()
	text, err := examples.FS.ReadFile("hosted-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := &api.FusedControlPlane{}
	if err := yaml.Unmarshal(text, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAPlanOfTheRecordIsThePlan: what the record gives back renders as what was written, and has its digest.
func TestAPlanOfTheRecordIsThePlan(t *testing.T) {
	v := judge(example(t))
	if refusal := v.refusal(); refusal != "" {
		t.Fatal(refusal)
	}
	data, err := json.Marshal(v.plan)
	if err != nil {
		t.Fatal(err)
	}
	read := &plan.Plan{}
	if err := json.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	was, err := render.HostedParts(v.plan)
	if err != nil {
		t.Fatal(err)
	}
	is, err := render.HostedParts(read)
	if err != nil {
		t.Fatal(err)
	}
	if len(was) != len(is) || len(was) < 7 {
		t.Fatalf("%d parts, and %d of the record", len(was), len(is))
	}
	for i := range was {
		if !bytes.Equal(was[i].Manifest, is[i].Manifest) {
			t.Errorf("%s is another one", was[i].Component.Name)
		}
	}
	if digest, err := digestOf(read, v.target); err != nil || digest != v.digest {
		t.Errorf("digest %s, %v; want %s", digest, err, v.digest)
	}
}

// TestEveryFileIsIssued: a control plane of which nothing runs elsewhere has every file that its pods read, from
// nothing; a second look changes none of them, and one when a third of their lives is left all but the authorities.
func TestEveryFileIsIssued(t *testing.T) {
	v := judge(example(t))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &Reconciler{Now: func() time.Time { return now }}
	files := map[string][]byte{}
	if err := r.issue(v.plan, files); err != nil {
		t.Fatal(err)
	}
	parts, err := render.HostedParts(v.plan)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, part := range parts {
		for _, s := range part.Secrets {
			for _, path := range s.Files {
				read++
				if len(files[pkiKey(path)]) == 0 {
					t.Errorf("%s reads %s, and nothing made it", part.Component.Name, path)
				}
			}
		}
	}
	if read < 20 {
		t.Errorf("%d files are read", read)
	}
	issued := map[string]string{}
	for key, data := range files {
		issued[key] = string(data)
	}
	if err := r.issue(v.plan, files); err != nil {
		t.Fatal(err)
	}
	for key, data := range files {
		if issued[key] != string(data) {
			t.Errorf("%s was issued again", key)
		}
	}
	now = now.Add(leafLife - renewBefore + time.Hour)
	if err := r.issue(v.plan, files); err != nil {
		t.Fatal(err)
	}
	for _, c := range v.plan.Certificates {
		if renewed := issued[pkiKey(c.Cert)] != string(files[pkiKey(c.Cert)]); renewed == c.Authority {
			t.Errorf("%s: issued again: %v", c.Cert, renewed)
		}
	}
	if key := pkiKey(v.plan.PKI.CA); issued[key] != string(files[key]) {
		t.Error("the authority is another one")
	}
}

// TestCertificatesOfAClockThatWasAhead: once it is put back, they are issued anew, for they are not good yet; while it
// is behind, nothing is.
func TestCertificatesOfAClockThatWasAhead(t *testing.T) {
	v := judge(example(t))
	right := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := right
	r := &Reconciler{Now: func() time.Time { return now }}
	files := map[string][]byte{}
	for _, now = range []time.Time{right, right.AddDate(3, 0, 0), right.Add(time.Hour)} {
		if err := r.issue(v.plan, files); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range v.plan.Certificates {
		list, err := pki.ParseCertificates(files[pkiKey(c.Cert)])
		if err != nil || list[0].NotBefore.After(now) {
			t.Errorf("%s: is good from %v on, %v", c.Cert, list, err)
		}
	}
	was := maps.Clone(files)
	now = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := r.issue(v.plan, files); err != nil || !maps.EqualFunc(files, was, bytes.Equal) {
		t.Errorf("while the clock is behind, certificates are issued; %v", err)
	}
}

// TestEachFileHasAKeyOfItsOwn: a certificate that lay under the key of another one would be used for it.
func TestEachFileHasAKeyOfItsOwn(t *testing.T) {
	if key := pkiKey("/etc/kubernetes/pki/etcd_ca.crt"); key != "etc__kubernetes__pki__etcd_ca.crt" {
		t.Error(key)
	}
	if key := pkiKey("/etc//kubernetes/./pki/ca.crt"); key != "etc__kubernetes__pki__ca.crt" {
		t.Error(key)
	}
	long := "/" + strings.Repeat("a", 300)
	paths := map[string]string{}
	for _, path := range []string{"/a/b", "/a__b", "/a_/b", "/a/_b", "/a___b", "/a-b", "/a b", "/a*b", "/a\u00e9b",
		"/a-b/c", "/a b/c", long, long + "b", "/" + strings.Repeat("\u00e9", 300)} {
		key := pkiKey(path)
		if other, taken := paths[key]; taken {
			t.Errorf("%s has the key of %s, %s", path, other, key)
		}
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			t.Errorf("%s: key %q: %q", path, key, problems)
		}
		paths[key] = path
	}
}
