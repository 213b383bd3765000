package operator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// TestAgentsRenewTheirOwnAlone: a request is approved when an agent makes it for itself, as a client, while its host is
// in the spec; every other one is left to people.
func TestAgentsRenewTheirOwnAlone(t *testing.T) {
	user := api.AgentUser("prod", "cp-1")
	type request struct {
		by, signer string
		usages     []certificates.KeyUsage
		wanted     x509.CertificateRequest
		denied     bool
	}
	lives := map[string]time.Duration{"for a year": 365 * 24 * time.Hour, "for no time": 0}
	subject := func(name string, groups ...string) x509.CertificateRequest {
		return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}
	}
	client := []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}
	server := []certificates.KeyUsage{certificates.UsageServerAuth}
	left, shut := api.AgentUser("prod", "cp-9"), api.AgentUser("prod", "cp-3")
	foreign, gone := api.AgentUser("prod", "cp-4"), api.AgentUser("old", "cp-1")
	const signer = certificates.KubeAPIServerClientSignerName
	withAddress := subject(user, api.AgentGroup)
	withAddress.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)}
	more := subject(user, api.AgentGroup)
	more.Subject.Country = []string{"DE"}
	for name, test := range map[string]struct {
		request
		approved bool
		refused  bool
	}{
		"its own": {request{user, signer, client, subject(user, api.AgentGroup), false}, true, false},
		"of another host": {request{user, signer, client, subject(api.AgentUser("prod", "cp-2"), api.AgentGroup),
			false}, false, false},
		"by a bootstrap token": {request{"system:bootstrap:abcdef", signer, client, subject(user, api.AgentGroup),
			false}, false, false},
		"of another group":  {request{user, signer, client, subject(user, "system:nodes"), false}, false, false},
		"of two groups":     {request{user, signer, client, subject(user, api.AgentGroup, "x"), false}, false, false},
		"with an address":   {request{user, signer, client, withAddress, false}, false, false},
		"with another name": {request{user, signer, client, more, false}, false, false},
		"of a server": {request{user, certificates.KubeletServingSignerName, client, subject(user, api.AgentGroup),
			false}, false, false},
		"for servers":              {request{user, signer, server, subject(user, api.AgentGroup), false}, false, false},
		"of a host that left":      {request{left, signer, client, subject(left, api.AgentGroup), false}, false, true},
		"of a host that is denied": {request{shut, signer, client, subject(shut, api.AgentGroup), false}, false, true},
		"of an object of others": {request{foreign, signer, client, subject(foreign, api.AgentGroup), false}, false,
			true},
		"of a control plane that is gone": {request{gone, signer, client, subject(gone, api.AgentGroup), false}, false,
			true},
		"for a year":     {request{user, signer, client, subject(user, api.AgentGroup), false}, false, false},
		"for no time":    {request{user, signer, client, subject(user, api.AgentGroup), false}, false, false},
		"denied already": {request{user, signer, client, subject(user, api.AgentGroup), true}, false, false},
		"more than one colon": {request{user + ":x", signer, client, subject(user+":x", api.AgentGroup), false}, false,
			false},
	} {
		scheme := apiruntime.NewScheme()
		if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &test.wanted, key)
		if err != nil {
			t.Fatal(err)
		}
		csr := &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"},
			Spec: certificates.CertificateSigningRequestSpec{Username: test.by, SignerName: test.signer,
				Usages:  test.usages,
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
		life, ok := lives[name]
		if !ok {
			life = api.AgentCertificateLife
		}
		if seconds := int32(life.Seconds()); seconds > 0 {
			csr.Spec.ExpirationSeconds = &seconds
		}
		if test.denied {
			csr.Status.Conditions = []certificates.CertificateSigningRequestCondition{{
				Type: certificates.CertificateDenied}}
		}
		host := func(plane, name string, annotations map[string]string) *api.ControlPlaneHost {
			h := &api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{Namespace: plane, Name: name,
				Annotations: annotations}}
			mark(h, plane)
			return h
		}
		others := host("prod", "cp-4", nil)
		mark(others, "other")
		cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(csr,
			&api.FusedControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}, host("prod", "cp-1", nil),
			host("prod", "cp-3", map[string]string{api.AnnotationDenied: ""}), others, host("old", "cp-1", nil)).Build()
		at := types.NamespacedName{Name: "csr"}
		requests := &Requests{Client: cluster}
		if _, err := requests.Reconcile(t.Context(), reconcile.Request{NamespacedName: at}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := cluster.Get(t.Context(), at, csr); err != nil {
			t.Fatal(err)
		}
		approved := len(csr.Status.Conditions) == 1 && csr.Status.Conditions[0].Type == certificates.CertificateApproved
		refused := !test.denied && len(csr.Status.Conditions) == 1 &&
			csr.Status.Conditions[0].Type == certificates.CertificateDenied
		if approved != test.approved || refused != test.refused {
			t.Errorf("%s: approved %v, want %v; denied %v, want %v", name, approved, test.approved, refused,
				test.refused)
		}
	}
}

// TestDenialsAreHeardOf at once: nothing else may change for an hour.
func TestDenialsAreHeardOf(t *testing.T) {
	was := &api.ControlPlaneHost{}
	was.Status.Seen = metav1.NewTime(time.Unix(100, 0))
	seen, shut := was.DeepCopyObject().(*api.ControlPlaneHost), was.DeepCopyObject().(*api.ControlPlaneHost)
	seen.Status.Seen = metav1.NewTime(time.Unix(200, 0))
	shut.Annotations = map[string]string{api.AnnotationDenied: "stolen"}
	for is, want := range map[*api.ControlPlaneHost]bool{seen: false, shut: true} {
		if got := heardOf.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != want {
			t.Errorf("%+v is heard of: %t, want %t", is, got, want)
		}
	}
}
