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

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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
	subject := func(name string, groups ...string) x509.CertificateRequest {
		return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}
	}
	client := []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}
	server := []certificates.KeyUsage{certificates.UsageServerAuth}
	left := api.AgentUser("prod", "cp-9")
	const signer = certificates.KubeAPIServerClientSignerName
	withAddress := subject(user, api.AgentGroup)
	withAddress.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)}
	more := subject(user, api.AgentGroup)
	more.Subject.Country = []string{"DE"}
	for name, test := range map[string]struct {
		request
		approved bool
	}{
		"its own": {request{user, signer, client, subject(user, api.AgentGroup), false}, true},
		"of another host": {request{user, signer, client, subject(api.AgentUser("prod", "cp-2"), api.AgentGroup),
			false}, false},
		"by a bootstrap token": {request{"system:bootstrap:abcdef", signer, client, subject(user, api.AgentGroup),
			false}, false},
		"of another group":  {request{user, signer, client, subject(user, "system:nodes"), false}, false},
		"of two groups":     {request{user, signer, client, subject(user, api.AgentGroup, "x"), false}, false},
		"with an address":   {request{user, signer, client, withAddress, false}, false},
		"with another name": {request{user, signer, client, more, false}, false},
		"of a server": {request{user, certificates.KubeletServingSignerName, client, subject(user, api.AgentGroup),
			false}, false},
		"for servers":         {request{user, signer, server, subject(user, api.AgentGroup), false}, false},
		"of a host that left": {request{left, signer, client, subject(left, api.AgentGroup), false}, false},
		"denied already":      {request{user, signer, client, subject(user, api.AgentGroup), true}, false},
		"more than one colon": {request{user + ":x", signer, client, subject(user+":x", api.AgentGroup), false}, false},
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
		if test.denied {
			csr.Status.Conditions = []certificates.CertificateSigningRequestCondition{{
				Type: certificates.CertificateDenied}}
		}
		cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(csr,
			&api.ControlPlaneHost{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp-1"}}).Build()
		at := types.NamespacedName{Name: "csr"}
		requests := &Requests{Client: cluster}
		if _, err := requests.Reconcile(t.Context(), reconcile.Request{NamespacedName: at}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := cluster.Get(t.Context(), at, csr); err != nil {
			t.Fatal(err)
		}
		approved := len(csr.Status.Conditions) == 1 && csr.Status.Conditions[0].Type == certificates.CertificateApproved
		if approved != test.approved {
			t.Errorf("%s: approved %v, want %v", name, approved, test.approved)
		}
	}
}
