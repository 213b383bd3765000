// Package apiserver is a client of an API server of any version from 1.6 on. It speaks plain JSON, without types of the
// objects, and asks for what is in every version; where an old one does not understand a form it is queried in plain
// words.
//
// It trusts no answer further than it must: a path is built from validated segments (discovery.Path), a redirect is not
// followed, bodies are bounded in size and in time, an answer of another kind or about another object than was asked
// for is an error, and a list that breaks off, repeats itself or does not end is never a shorter list. Errors tell the
// server's own "not found" from any other 404, and both from a server that did not answer: see package discovery.
package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options change how a server is queried. The zero value is good for verbs that read a cluster.
type Options struct {
	// Timeout bounds a request about one object, the wait for a page to begin, and each silence within a body. Default:
	// one minute.
	Timeout time.Duration
	// Attempts is how often a request is sent that fails in a way that passes. Default: 6, which takes some seconds.
	Attempts int
	// Pause is the first one between two attempts; it doubles. Default: 200 ms.
	Pause time.Duration
	// QPS is the number of requests in a second; 0 for 50, below 0 for no limit.
	QPS float32
	// Unversioned takes a server that names no version in /version, as some proxies do: its identity is empty then.
	Unversioned bool
	// UserAgent replaces that of the configuration.
	UserAgent string
}

// Server is one API server. Safe for concurrent use.
type Server struct {
	name     string // how errors call it
	base     *url.URL
	http     *http.Client
	limit    *rate.Limiter // nil: none
	timeout  time.Duration
	attempts int
	pause    time.Duration

	unversioned bool

	// whole holds the group versions that have refused to send metadata alone.
	whole sync.Map
}

// New makes a client of the configuration, which stays as it is.
// Errors: an unusable configuration. The server is not asked yet.
func New(config *rest.Config, o Options) (*Server, error) {
	config = NoRedirects(config)
	config.UserAgent = cmp.Or(o.UserAgent, config.UserAgent, "fusionctl")
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", config.Host, err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", config.Host, err)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	base.RawQuery, base.Fragment, base.User = "", "", nil
	s := &Server{
		name:     base.Redacted(),
		base:     base,
		http:     &http.Client{Transport: transport},
		timeout:  cmp.Or(o.Timeout, time.Minute),
		attempts: cmp.Or(o.Attempts, 6), unversioned: o.Unversioned,
		pause: cmp.Or(o.Pause, 200*time.Millisecond),
	}
	if qps := cmp.Or(o.QPS, 50); qps > 0 {
		s.limit = rate.NewLimiter(rate.Limit(qps), max(1, int(2*qps)))
	}
	return s, nil
}

// Open makes a client of the server that a kubeconfig file names; context chooses one of its contexts, "" the current
// one. Errors: a kubeconfig that cannot be read, or that names no server. The server is not asked yet.
func Open(kubeconfig, context string, o Options) (*Server, error) {
	config, err := Kubeconfig(kubeconfig, context)
	if err != nil {
		return nil, err
	}
	return New(config, o)
}

// Kubeconfig reads a kubeconfig file; context chooses one of its contexts, "" the current one. Clients of it, of
// whatever library, follow no redirect. An empty file does not stand for the cluster that a process runs in: it would
// be taken for the server that the caller means.
// Errors: they name the file, and hold no password.
func Kubeconfig(file, context string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	loaded, err := rules.Load()
	if err == nil {
		err = checkURLs(loaded)
	}
	var config *rest.Config
	if err == nil {
		config, err = clientcmd.NewNonInteractiveClientConfig(*loaded, context,
			&clientcmd.ConfigOverrides{CurrentContext: context}, rules).ClientConfig()
	}
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("reading kubeconfig %s: it names no server", file)
	case err != nil:
		return nil, fmt.Errorf("reading kubeconfig %s: %w", file, err)
	}
	return NoRedirects(config), nil
}

// checkURLs refuses URLs that would be printed with the password in them: of servers in what is said of them, of
// proxies where they cannot be used.
func checkURLs(config *clientcmdapi.Config) error {
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		cluster := config.Clusters[name]
		_, authority, found := strings.Cut(cluster.Server, "://")
		if !found {
			authority = cluster.Server
		}
		if end := strings.IndexAny(authority, `/\?#`); end >= 0 {
			authority = authority[:end]
		}
		if strings.Contains(authority, "@") {
			return fmt.Errorf("cluster %q: server: has a user in it; want the user among users", name)
		}
		if cluster.ProxyURL == "" {
			continue
		}
		proxy, err := url.Parse(cluster.ProxyURL)
		if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
			return fmt.Errorf("cluster %q: proxy-url: want a URL of http, https or socks5", name)
		}
	}
	return nil
}

// DefaultKubeconfig reads what kubectl reads when no file is named: those of KUBECONFIG, or ~/.kube/config.
func DefaultKubeconfig(context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	loaded, err := rules.Load()
	if err == nil {
		err = checkURLs(loaded)
	}
	var config *rest.Config
	if err == nil {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
			&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of KUBECONFIG, or ~/.kube/config: %w", err)
	}
	return NoRedirects(config), nil
}

// Name is the server's URL.
func (s *Server) Name() string { return s.name }
