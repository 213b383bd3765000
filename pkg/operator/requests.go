package operator

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// Requests approves the requests of agents for their next certificate: those that an agent makes with the one that it
// has, for the same user. The first one of an agent is approved by a person.
type Requests struct{ Client client.Client }

// Reconcile judges one CertificateSigningRequest. One that is none of an agent's is left alone.
func (r *Requests) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	csr := &certificates.CertificateSigningRequest{}
	if err := r.Client.Get(ctx, request.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(csr.Status.Conditions) > 0 || len(csr.Status.Certificate) > 0 {
		return reconcile.Result{}, nil
	}
	plane, host, ok := renewal(&csr.Spec)
	if !ok {
		return reconcile.Result{}, nil
	}
	h := &api.ControlPlaneHost{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: plane, Name: host}, h); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // a host that is no more gets no certificate
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: certificates.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AgentRenews",
		Message: "the agent of a host renews its own certificate", LastUpdateTime: metav1.Now()})
	if err := r.Client.SubResource("approval").Update(ctx, csr); err != nil {
		return reconcile.Result{}, fmt.Errorf("approving %s: %w", csr.Name, err)
	}
	return reconcile.Result{}, nil
}

// renewal reports whether a request is one of an agent for its own user, and of which host.
func renewal(s *certificates.CertificateSigningRequestSpec) (plane, host string, ok bool) {
	words := strings.Split(s.Username, ":")
	if s.SignerName != certificates.KubeAPIServerClientSignerName || len(words) != 4 ||
		s.Username != api.AgentUser(words[2], words[3]) {
		return "", "", false
	}
	allowed := []certificates.KeyUsage{certificates.UsageClientAuth, certificates.UsageDigitalSignature,
		certificates.UsageKeyEncipherment}
	if slices.ContainsFunc(s.Usages, func(u certificates.KeyUsage) bool { return !slices.Contains(allowed, u) }) {
		return "", "", false
	}
	block, rest := pem.Decode(s.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return "", "", false
	}
	wanted, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || wanted.CheckSignature() != nil {
		return "", "", false
	}
	subject := wanted.Subject
	if subject.CommonName != s.Username || !slices.Equal(subject.Organization, []string{api.AgentGroup}) ||
		len(subject.Names) != 2 || len(wanted.DNSNames)+len(wanted.EmailAddresses)+len(wanted.IPAddresses)+
		len(wanted.URIs) > 0 {
		return "", "", false
	}
	return words[2], words[3], true
}
