package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

// serverFlags are where and how a verb serves what it reads from files: the flags of every webhook.
type serverFlags struct {
	listen        string
	metricsListen string
	metricsNames  []string
	certificates  webserver.Certificates
	plain         bool
	anyClient     bool
	interval      time.Duration
	measured      *webserver.CertificateMetrics // gets the certificate when the listener has it; nil for none
}

// bind binds the flags. changed is the end of "whether ...": "the file has changed".
func (s *serverFlags) bind(flags *pflag.FlagSet, listen, changed string) {
	flags.StringVar(&s.listen, "listen", listen, "address to serve on")
	flags.StringVar(&s.metricsListen, "metrics-listen", "",
		"address for /metrics, /healthz and /readyz: without TLS on loopback, with --client-ca elsewhere")
	flags.StringArrayVar(&s.metricsNames, "metrics-client-name", nil,
		"common name of a client with access to metrics beyond loopback; repeat for more")
	flags.StringVar(&s.certificates.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&s.certificates.Key, "tls-key", "", "file of the certificate's key")
	flags.StringVar(&s.certificates.ClientCA, "client-ca", "", "file of the CA that signs the clients' certificates")
	flags.StringArrayVar(&s.certificates.ClientNames, "client-name", nil,
		"common name of a client; repeat for more")
	flags.BoolVar(&s.anyClient, "any-client", false,
		"serve clients without a certificate, instead of --client-ca and --client-name")
	flags.BoolVar(&s.plain, "insecure-http", false, "serve without TLS, on a loopback address only")
	flags.DurationVar(&s.interval, "reload-interval", 2*time.Second,
		"how often to check whether "+changed+"; a change is in use after two checks")
}

// check refuses what would serve to the world without protection.
func (s *serverFlags) check() error {
	c := &s.certificates
	switch {
	case s.interval <= 0:
		return usagef("--reload-interval %v: want more than 0", s.interval)
	case s.plain && (c.Cert != "" || c.Key != "" || c.ClientCA != "" || s.anyClient || len(c.ClientNames) > 0):
		return usagef("--insecure-http: takes no certificates")
	case s.plain && !loopback(s.listen):
		return usagef("--insecure-http: want --listen on a loopback address, such as 127.0.0.1:8088, not %q", s.listen)
	case !s.plain && (c.Cert == "" || c.Key == ""):
		return badInput(errors.New("no certificate to serve with"),
			"--tls-cert and --tls-key name its files; --insecure-http serves without on a loopback address")
	case s.anyClient && (c.ClientCA != "" || len(c.ClientNames) > 0):
		return usagef("--any-client: takes neither --client-ca nor --client-name")
	case !s.plain && !s.anyClient && (c.ClientCA == "" || len(c.ClientNames) == 0):
		return badInput(errors.New("no flag restricts the clients"),
			"--client-ca and --client-name name the API servers' certificates; --any-client serves every client that "+
				"reaches the port")
	}
	return s.checkMetrics()
}

// checkMetrics refuses metrics that every client on the network could read.
func (s *serverFlags) checkMetrics() error {
	switch beyond := s.metricsListen != "" && !loopback(s.metricsListen); {
	case len(s.metricsNames) > 0 && !beyond:
		return usagef("--metrics-client-name: is for --metrics-listen beyond loopback")
	case beyond && s.certificates.ClientCA == "":
		return badInput(fmt.Errorf("--metrics-listen %q is not on loopback", s.metricsListen),
			"--tls-cert, --tls-key and --client-ca protect it there")
	case beyond && len(s.metricsNames) == 0:
		return badInput(fmt.Errorf("--metrics-listen %q: no flag restricts the clients", s.metricsListen),
			"--metrics-client-name names them")
	}
	return nil
}

// metricsFlags are where a verb that is no server serves its metrics.
type metricsFlags struct {
	address             string // "" for nowhere
	cert, key, clientCA string // files
}

func (m *metricsFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&m.address, "metrics", "",
		"serve metrics at :PORT of loopback, or with certificates at HOST:PORT (default not)")
	flags.StringVar(&m.cert, "tls-cert", "", "file of the certificate with which metrics are served")
	flags.StringVar(&m.key, "tls-key", "", "file of the certificate's key")
	flags.StringVar(&m.clientCA, "client-ca", "",
		"file of the CA that signs the certificates of clients of the metrics")
}

// listen listens at the address, if there is one. Metrics are readable by every client on loopback, elsewhere by
// clients with a certificate. measured gets the certificate.
func (m *metricsFlags) listen(ctx context.Context, measured *webserver.CertificateMetrics) (net.Listener, error) {
	given := m.cert != "" || m.key != "" || m.clientCA != ""
	host, port, err := net.SplitHostPort(m.address)
	switch {
	case m.address == "" && given:
		return nil, usagef("--tls-cert, --tls-key and --client-ca: need --metrics")
	case m.address == "":
		return nil, nil
	case err != nil:
		return nil, usagef("--metrics %q: want :PORT or HOST:PORT", m.address)
	case given && (m.cert == "" || m.key == "" || m.clientCA == ""):
		return nil, usagef("--metrics: want all of --tls-cert, --tls-key and --client-ca, or none of them")
	case !given && host != "" && !loopback(m.address):
		return nil, badInput(fmt.Errorf("--metrics %q is not on loopback", m.address),
			"--tls-cert, --tls-key and --client-ca protect it; :PORT is on loopback")
	}
	if host == "" && !given {
		host = "127.0.0.1"
	}
	at := serverFlags{listen: net.JoinHostPort(host, port), plain: !given, measured: measured,
		certificates: webserver.Certificates{Cert: m.cert, Key: m.key, ClientCA: m.clientCA}}
	listener, err := at.listener(ctx)
	if err != nil {
		return nil, badInput(fmt.Errorf("--metrics: %w", err), "want a port that is free")
	}
	return listener, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// serverLog logs what the server does on its own, and with -vv every request.
func serverLog(ctx context.Context, streams Streams) *slog.Logger {
	return slog.New(slog.NewTextHandler(streams.Err, logOptions(serverLevel(ctx))))
}

// limitLoggedBytes bounds a value in a record of a log: a client of a server chooses how long the names in its errors
// are.
const limitLoggedBytes = 8 << 10

// logOptions are those of every log.
func logOptions(level slog.Level) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		text := ""
		switch value := a.Value.Any().(type) {
		case string:
			text = value
		case error:
			text = fmt.Sprint(value)
		}
		if len(text) <= limitLoggedBytes {
			return a
		}
		return slog.String(a.Key, strings.ToValidUTF8(text[:limitLoggedBytes], "")+" ...")
	}}
}

func serverLevel(ctx context.Context) slog.Level {
	if loggerFrom(ctx).Enabled(ctx, slog.LevelDebug) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// newServerRegistry holds the metrics of the process, to which a server adds its own.
func newServerRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// service is what a verb serves, by what it reads from files.
type service struct {
	mux      *http.ServeMux // nil for run
	registry *prometheus.Registry
	log      *slog.Logger
	about    []any                     // what the log says of it at the start: names and values
	begin    func(ctx context.Context) // before anything is served; nil for nothing
	follow   func(ctx context.Context) // reads the files again when they change, until ctx ends
}

// serve serves until ctx ends: the service, and beside it health, and metrics where only clients that may call or the
// host itself read them. --metrics-listen serves those alone.
func (s *serverFlags) serve(ctx context.Context, v service) error {
	health := http.NewServeMux()
	health.HandleFunc("/healthz", ok)
	health.HandleFunc("/readyz", ok)
	metrics := promhttp.HandlerFor(v.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	v.mux.Handle("/", health)
	if !s.anyClient || loopback(s.listen) {
		v.mux.Handle("/metrics", metrics)
	}
	status := http.NewServeMux()
	status.Handle("/", health)
	status.Handle("/metrics", metrics)
	return s.run(ctx, v, v.mux, status)
}

// run serves until ctx ends: the handler, and at --metrics-listen the status alone.
func (s *serverFlags) run(ctx context.Context, v service, handler, status http.Handler) error {
	s.measured = &webserver.CertificateMetrics{}
	v.registry.MustRegister(s.measured)
	listener, err := s.listener(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if v.begin != nil {
		v.begin(ctx)
	}
	if s.metricsListen != "" {
		of := serverFlags{listen: s.metricsListen, plain: loopback(s.metricsListen), measured: s.measured,
			certificates: webserver.Certificates{
				Cert: s.certificates.Cert, Key: s.certificates.Key, ClientCA: s.certificates.ClientCA,
				ClientNames: s.metricsNames,
			}}
		beside, err := of.listener(ctx)
		if err != nil {
			listener.Close()
			return err
		}
		group.Go(func() error { return webserver.Serve(ctx, beside, status, v.log) })
	}
	group.Go(func() error { return webserver.Serve(ctx, listener, handler, v.log) })
	group.Go(func() error { v.follow(ctx); return nil })
	v.log.Info("serving", append(v.about, "address", listener.Addr().String())...)
	return group.Wait()
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

func (s *serverFlags) listener(ctx context.Context) (net.Listener, error) {
	var config *tls.Config
	if !s.plain {
		s.certificates.Kept = keptCertificate(ctx, s.certificates.Cert)
		var err error
		if config, err = s.certificates.Config(); err != nil {
			return nil, badInput(err, "")
		}
		if s.measured != nil {
			s.measured.Add(&s.certificates)
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil || config == nil {
		return listener, err
	}
	return webserver.NewHandshakes(listener, config, loggerFrom(ctx)), nil
}

// keptCertificate logs that changed files do not replace a certificate, and that they do again.
func keptCertificate(ctx context.Context, file string) func(error) {
	log := loggerFrom(ctx)
	return func(err error) {
		if err == nil {
			log.Info("certificate reloaded", "file", file)
			return
		}
		log.Error("certificate reload failed; previous certificate stays in use", "file", file, "err", err)
	}
}

// serveMetrics serves metrics until ctx ends.
func serveMetrics(ctx context.Context, listener net.Listener, metrics prometheus.Gatherer) error {
	if err := webserver.Serve(ctx, listener, statusOf(metrics), loggerFrom(ctx)); err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return ctx.Err()
}

// statusOf serves metrics, and that the process lives.
func statusOf(metrics prometheus.Gatherer) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", ok)
	return mux
}
