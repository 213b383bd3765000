package operator

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// Requests approves the requests of agents for their next certificate: those that an agent makes with the one that it
// has, for the same user. The first one of an agent is approved by a person. It denies those of a host that is denied,
// that is none of a control plane any more, or whose control plane is gone: one that waited would be approved later.
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
	why, err := r.refuses(ctx, plane, host)
	if err != nil {
		return reconcile.Result{}, err
	}
	judged := certificates.CertificateSigningRequestCondition{Type: certificates.CertificateApproved,
		Status: corev1.ConditionTrue, Reason: "AgentRenews", Message: "the agent of a host renews its own certificate",
		LastUpdateTime: metav1.Now()}
	if why != "" {
		judged.Type, judged.Reason, judged.Message = certificates.CertificateDenied, "NoAgent", why
	}
	csr.Status.Conditions = append(csr.Status.Conditions, judged)
	if err := r.Client.SubResource("approval").Update(ctx, csr); err != nil {
		return reconcile.Result{}, fmt.Errorf("judging %s: %w", csr.Name, err)
	}
	return reconcile.Result{}, nil
}

// refuses says why a host gets no certificate, "" where it does.
func (r *Requests) refuses(ctx context.Context, plane, host string) (why string, err error) {
	f, h := &api.FusedControlPlane{}, &api.ControlPlaneHost{}
	err = r.Client.Get(ctx, types.NamespacedName{Name: plane}, f)
	switch {
	case apierrors.IsNotFound(err) || err == nil && f.DeletionTimestamp != nil:
		return "the control plane is gone", nil
	case err != nil:
		return "", err
	}
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: plane, Name: host}, h)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (h.DeletionTimestamp != nil || !ours(h, plane)):
		return "it is no host of the control plane", nil
	case err != nil:
		return "", err
	case denied(h):
		return "the host is denied by annotation " + api.AnnotationDenied, nil
	}
	return "", nil
}

// denied reports whether a person has shut out the agent of a host.
func denied(h *api.ControlPlaneHost) bool {
	_, is := h.Annotations[api.AnnotationDenied]
	return is
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
	// Without a time the signer gives what it gives to all, mostly a year.
	if life := s.ExpirationSeconds; life == nil || time.Duration(*life)*time.Second > api.AgentCertificateLife {
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
