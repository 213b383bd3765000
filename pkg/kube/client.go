// Package kube holds the reads of a cluster that verbs need: in pages, with retries that are safe, and never in one piece.
package kube

import (
	"context"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubefusion/fusionctl/internal/rawapi"
)

// Client reads one API server. It is safe for concurrent use.
type Client struct {
	rest       *rest.RESTClient
	parameters runtime.ParameterCodec
	backoff    wait.Backoff
}

// NewClient connects to the server that a kubeconfig file names; context chooses one of its contexts, "" the current one.
// Errors: a kubeconfig that cannot be read, or that names no server. The server is not asked yet.
func NewClient(kubeconfig, context string) (*Client, error) {
	config, err := Config(kubeconfig, context)
	if err != nil {
		return nil, err
	}
	return newClient(config)
}

// Config reads a kubeconfig file; context chooses one of its contexts, "" the current one.
// Errors: as those of NewClient.
func Config(kubeconfig, context string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	return config, nil
}

func newClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion)
	config.APIPath = "/api"
	config.GroupVersion = &v1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON // every server speaks it
	config.QPS, config.Burst = 50, 50            // one reader, one page at a time: the server paces it
	config.WarningHandler = rest.NoWarnings{}    // old versions are read on purpose
	config.Wrap(func(t http.RoundTripper) http.RoundTripper { return datedTransport{t} })
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{
		rest:       client,
		parameters: runtime.NewParameterCodec(scheme),
		backoff:    wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 10 * time.Second},
	}, nil
}

// retry repeats a read while its failure is one that passes, with growing pauses that end with ctx.
func (c *Client) retry(ctx context.Context, read func() error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, c.backoff, func(context.Context) (bool, error) {
		last = read()
		switch {
		case last == nil:
			return true, nil
		case passes(last):
			return false, nil
		default:
			return false, last
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if wait.Interrupted(err) { // out of steps
		return last
	}
	return err
}

// passes reports whether the same read may succeed a little later.
func passes(err error) bool {
	code := rawapi.Code(err)
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError && code != http.StatusNotImplemented || rawapi.Unanswered(err)
}
