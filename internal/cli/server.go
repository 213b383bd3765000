package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/tlsserver"
)

// serverFlags are where and how a verb serves: the flags of every webhook.
type serverFlags struct {
	listen        string
	metricsListen string
	certificates  tlsserver.Certificates
	plain         bool
}

func (s *serverFlags) bind(flags *pflag.FlagSet, listen string) {
	flags.StringVar(&s.listen, "listen", listen, "address to serve on")
	flags.StringVar(&s.metricsListen, "metrics-listen", "", "address for /metrics, /healthz and /readyz without TLS")
	flags.StringVar(&s.certificates.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&s.certificates.Key, "tls-key", "", "file of the certificate's key")
	flags.StringVar(&s.certificates.ClientCA, "client-ca", "", "file of the CA that signs the clients' certificates; clients need one then")
	flags.StringArrayVar(&s.certificates.ClientNames, "client-name", nil, "common name of a client that may ask; repeat for more; none: all that the CA signed")
	flags.BoolVar(&s.plain, "insecure-http", false, "serve without TLS, on a loopback address only")
}

// check refuses what would serve to the world without protection.
func (s *serverFlags) check() error {
	c := &s.certificates
	switch {
	case s.plain && (c.Cert != "" || c.Key != "" || c.ClientCA != ""):
		return usagef("--insecure-http: takes no certificates")
	case s.plain && !loopback(s.listen):
		return usagef("--insecure-http: want --listen on a loopback address, such as 127.0.0.1:8088, not %q", s.listen)
	case !s.plain && (c.Cert == "" || c.Key == ""):
		return badInput(errors.New("no certificate to serve with"), "--tls-cert and --tls-key name its files; --insecure-http serves without on a loopback address")
	case len(c.ClientNames) > 0 && c.ClientCA == "":
		return usagef("--client-name: needs --client-ca")
	}
	return nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// newServerRegistry holds the metrics of the process, to which a server adds its own.
func newServerRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// serve starts to serve in the group: the handlers of mux, and beside them health and metrics, which --metrics-listen serves alone. It
// returns the address.
func (s *serverFlags) serve(ctx context.Context, group *errgroup.Group, mux *http.ServeMux, registry *prometheus.Registry) (string, error) {
	status := http.NewServeMux()
	status.HandleFunc("/healthz", ok)
	status.HandleFunc("/readyz", ok)
	status.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/", status)
	listener, err := s.listener(ctx)
	if err != nil {
		return "", err
	}
	if s.metricsListen != "" {
		plain, err := new(net.ListenConfig).Listen(ctx, "tcp", s.metricsListen)
		if err != nil {
			listener.Close()
			return "", err
		}
		group.Go(func() error { return tlsserver.Serve(ctx, plain, status) })
	}
	group.Go(func() error { return tlsserver.Serve(ctx, listener, mux) })
	return listener.Addr().String(), nil
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

func (s *serverFlags) listener(ctx context.Context) (net.Listener, error) {
	var config *tls.Config
	if !s.plain {
		var err error
		if config, err = s.certificates.Config(); err != nil {
			return nil, badInput(err, "")
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil || config == nil {
		return listener, err
	}
	return tls.NewListener(listener, config), nil
}
