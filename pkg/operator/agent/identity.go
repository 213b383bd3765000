package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/internal/pause"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// Identity is how an agent comes to a certificate of its own: it asks the management cluster for one, with a key that
// never leaves the machine, and for the next one before the end, with the one that it has.
type Identity struct {
	Bootstrap   *rest.Config // which may create a CertificateSigningRequest
	Plane, Host string
	Directory   string // of key and certificate
	Log         *slog.Logger
}

// Start waits until there is a certificate, and renews it until ctx ends. It returns how the management cluster is
// reached with it; what it names are files, which are read again when they change.
func (i Identity) Start(ctx context.Context) (*rest.Config, error) {
	if err := filetree.Private(i.Directory); err != nil {
		return nil, err
	}
	store, err := certificate.NewFileStore("agent", i.Directory, i.Directory, "", "")
	if err != nil {
		return nil, fmt.Errorf("the certificate of the agent, in %s: %w", i.Directory, err)
	}
	user, life := api.AgentUser(i.Plane, i.Host), api.AgentCertificateLife
	manager, err := certificate.NewManager(&certificate.Config{
		Name: "agent", Ctx: &ctx, CertificateStore: store, SignerName: certificates.KubeAPIServerClientSignerName,
		RequestedCertificateLifetime: &life,
		GetUsages:                    certificate.DefaultKubeletClientGetUsages,
		GetTemplate: func() *x509.CertificateRequest {
			return &x509.CertificateRequest{Subject: pkix.Name{CommonName: user,
				Organization: []string{api.AgentGroup}}}
		},
		ClientsetFn: func(current *tls.Certificate) (kubernetes.Interface, error) {
			if current == nil {
				return kubernetes.NewForConfig(i.Bootstrap)
			}
			return kubernetes.NewForConfig(i.config(store.CurrentPath()))
		}})
	if err != nil {
		return nil, fmt.Errorf("the certificate of the agent: %w", err)
	}
	manager.Start()
	if manager.Current() == nil {
		i.Log.Info("waiting for a certificate: approve the CertificateSigningRequest of this user", "user", user)
	}
	if err := pause.Until(ctx, time.Second, func() (bool, error) { return manager.Current() != nil, nil }); err != nil {
		return nil, err
	}
	if of := manager.Current().Leaf; of != nil && of.Subject.CommonName != user {
		return nil, fmt.Errorf("%s: the certificate is of %q, want %q: it is another agent's directory", i.Directory,
			of.Subject.CommonName, user)
	}
	return i.config(store.CurrentPath()), nil
}

// config reaches the server of the bootstrap with the certificate and key of a file.
func (i Identity) config(file string) *rest.Config {
	c := rest.AnonymousClientConfig(i.Bootstrap)
	c.CertFile, c.KeyFile = file, file
	return c
}
