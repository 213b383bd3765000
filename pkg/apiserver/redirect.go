package apiserver

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// NoRedirects returns a copy of the configuration whose clients, of whatever library, follow no redirect: client-go
// sends the bearer token along to the other host. API servers answer with none.
func NoRedirects(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRedirects{next} })
	return config
}

type noRedirects struct{ http.RoundTripper }

func (t noRedirects) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err != nil {
		return response, err
	}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusUseProxy,
		http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		response.Body.Close()
		to := "an address that cannot be read"
		if location, err := response.Location(); err == nil {
			to = fmt.Sprintf("%q", location.Scheme+"://"+location.Host)
		}
		return nil, fmt.Errorf("answered %d, a redirect to %s, which is not followed: %w", response.StatusCode, to,
			discovery.ErrNotKubernetes)
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find what is below.
func (t noRedirects) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
