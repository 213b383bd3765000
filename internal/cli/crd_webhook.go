package cli

import (
	"context"
	"math"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/hub/webhook"
)

type crdWebhookRequest struct {
	rules        string
	server       serverFlags
	limitBytes   int64
	limitObjects int
	limitMemory  int64
	inFlight     int
	timeout      time.Duration
}

func newCRDWebhookCmd(streams Streams) *cobra.Command {
	req := &crdWebhookRequest{}
	cmd := &cobra.Command{
		Use:   "webhook --rules DIR",
		Short: "Serve a conversion webhook for custom resources from rules files, reloaded on change",
		Long: `webhook serves ConversionReviews (apiextensions.k8s.io v1 and v1beta1) on POST /convert, by the rules
files of a directory, which also has the CRDs of the rules: *.yaml, *.yml and *.json. When a file changes all are read
again; rules that are broken, or that do not fit their CRD, do not replace those in use, and the log and the metrics
report it.

A review with an object that cannot be converted fails as a whole; its message names the object and the rule.

--client-ca and --client-name restrict the clients. No version of the API server presents a certificate to conversion
webhooks, so for API servers use --any-client behind a firewall or a network policy: every client that reaches the port
may have its own objects converted; nothing else is served, and nothing is stored. /healthz and /readyz are served
beside /convert, and /metrics where only named clients or the host itself reach it; with --metrics-listen on another
address.

Exit codes: 0 stopped by a signal, 1 could not serve, 2 bad usage or bad rules.`,
		Example: `  fusionctl crd webhook --rules rules/ --tls-cert tls.crt --tls-key tls.key --listen 0.0.0.0:9443 --any-client
  fusionctl crd webhook --rules examples/pizza --insecure-http --listen 127.0.0.1:8088`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCRDWebhook(cmd.Context(), req, streams)
		},
	}
	cmd.AddCommand(newCRDWebhookManifestsCmd(streams))
	flags := cmd.Flags()
	flags.StringVar(&req.rules, "rules", "", "directory of the rules files and their CRDs")
	req.server.bind(flags, "127.0.0.1:9443", "the files have changed")
	flags.Int64Var(&req.limitBytes, "limit-bytes", 32<<20, "size of a review")
	flags.IntVar(&req.limitObjects, "limit-objects", 100_000, "objects of a review")
	flags.Int64Var(&req.limitMemory, "limit-memory", 512<<20,
		"bytes of memory for all concurrent reviews, about; more wait")
	flags.IntVar(&req.inFlight, "limit-reviews", 64, "concurrent reviews; more wait")
	flags.DurationVar(&req.timeout, "timeout", 10*time.Second, "timeout of one review; API servers wait 30 seconds")
	return cmd
}

// programBytes is what the program takes beside reviews, with room.
const programBytes = 256 << 20

func runCRDWebhook(ctx context.Context, req *crdWebhookRequest, streams Streams) error {
	if err := req.check(); err != nil {
		return err
	}
	registry := newServerRegistry()
	metrics := webhook.NewMetrics(registry)
	source, err := webhook.Open(req.rules, metrics)
	if err != nil {
		return badInput(err, rulesHint)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT says nothing else
		debug.SetMemoryLimit(req.limitMemory + programBytes)
	}
	log := serverLog(ctx, streams)
	handler := &webhook.Handler{
		Converters: source.Current, LimitBytes: req.limitBytes, LimitObjects: req.limitObjects, Timeout: req.timeout,
		Slots: webserver.NewSlots(req.inFlight), Memory: webserver.NewBudget(req.limitMemory), Metrics: metrics,
		Logger: log,
	}
	mux := http.NewServeMux()
	mux.Handle("/convert", handler)
	mux.Handle("/convert/", handler) // the path of a CRD's conversion is its author's choice
	return req.server.serve(ctx, service{mux: mux, registry: registry, log: log, about: []any{"rules", req.rules},
		follow: func(ctx context.Context) {
			source.Watch(ctx, req.server.interval, func(err error) {
				if err != nil {
					log.Error("reload failed; previous rules stay in use", "directory", req.rules, "err",
						err)
					return
				}
				log.Info("rules loaded", "directory", req.rules)
			})
		}})
}

func (req *crdWebhookRequest) check() error {
	switch {
	case req.rules == "":
		return usagef("--rules is required")
	case req.limitBytes <= 0:
		return usagef("--limit-bytes %d: want more than 0", req.limitBytes)
	case req.limitObjects <= 0:
		return usagef("--limit-objects %d: want more than 0", req.limitObjects)
	case req.limitMemory <= 0:
		return usagef("--limit-memory %d: want more than 0", req.limitMemory)
	case req.inFlight <= 0:
		return usagef("--limit-reviews %d: want more than 0", req.inFlight)
	case req.timeout <= 0:
		return usagef("--timeout %v: want more than 0", req.timeout)
	}
	return req.server.check()
}
