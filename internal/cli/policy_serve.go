package cli

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/policy/webhook"
)

type policyServeRequest struct {
	file    string
	server  serverFlags
	deny    bool
	lenient bool
}

func newPolicyServeCmd(streams Streams) *cobra.Command {
	req := &policyServeRequest{}
	cmd := &cobra.Command{
		Use:   "serve FILE",
		Short: "Serve the authorization webhook of API servers from a policy, reloaded on change",
		Long: `serve serves SubjectAccessReviews (authorization.k8s.io v1 and v1beta1) on POST /authorize by a policy
file. When the file changes it is read again; a file that is missing, broken, or has a finding of severity error does
not replace the one in use, and the log and the metrics report it.

On the API server: --authorization-mode=Webhook (or Webhook before others),
--authorization-webhook-config-file=KUBECONFIG whose cluster is https://HOST:PORT/authorize, and
--authorization-webhook-version=v1 where that flag exists. A request that no rule allows is no opinion, so the next
authorizer decides; with --deny it is denied.

Only clients with a certificate of --client-ca for a --client-name are served: the API servers, by the user of that
kubeconfig. With --any-client every client that reaches the port may query the permissions of any user. /healthz,
/readyz and /metrics are served beside /authorize, and with --metrics-listen on another address: without TLS on
loopback, elsewhere to certificates of --client-ca for a --metrics-client-name.

A file without a rule is refused: it would allow no request.

Exit codes: 0 stopped by a signal, 1 could not serve, 2 bad usage or a bad file.`,
		Example: `  fusionctl policy serve policy.jsonl --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --client-name kube-apiserver
  fusionctl policy serve policy.jsonl --insecure-http --listen 127.0.0.1:8088`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.file = args[0]
			return runPolicyServe(cmd.Context(), req, streams)
		},
	}
	flags := cmd.Flags()
	req.server.bind(flags, "127.0.0.1:8443", "the file has changed")
	flags.BoolVar(&req.deny, "deny", false, "deny requests that no rule allows, instead of no opinion")
	flags.BoolVar(&req.lenient, "lenient", false,
		"load every policy that the API server would load, also one with errors")
	return cmd
}

func runPolicyServe(ctx context.Context, req *policyServeRequest, streams Streams) error {
	if err := req.check(); err != nil {
		return err
	}
	if in, err := openInput(streams, req.file); err != nil {
		return err
	} else if err := in.Close(); err != nil {
		return err
	}
	registry := newServerRegistry()
	metrics := webhook.NewMetrics(registry)
	source, err := webhook.Open(req.file, req.lenient, metrics)
	if err != nil {
		return badInput(err, "fusionctl policy validate "+req.file+
			" lists the errors; --lenient serves what the API server would")
	}
	log := serverLog(ctx, streams)
	mux := http.NewServeMux()
	mux.Handle("/authorize", &webhook.Handler{Policy: source.Current, Deny: req.deny, Metrics: metrics, Logger: log,
		Slots: webserver.NewSlots(webserver.DefaultRequests), Memory: webserver.NewBudget(webserver.DefaultBytes)})
	return req.server.serve(ctx, service{mux: mux, registry: registry, log: log, about: []any{"policy", req.file},
		follow: func(ctx context.Context) {
			followPolicy(ctx, source, req.server.interval, log, req.file, func(error) {})
		}})
}

// followPolicy reads the policy of a file again when it changes. read gets the error of each time.
func followPolicy(ctx context.Context, source *webhook.Source, every time.Duration, log *slog.Logger, file string,
	read func(error)) {
	source.Watch(ctx, every, func(err error) {
		read(err)
		if err != nil {
			log.Error("reload failed; previous policy stays in use", "file", file, "err", err)
			return
		}
		log.Info("policy loaded", "file", file)
	})
}

// check refuses what would serve decisions to the world without protection.
func (req *policyServeRequest) check() error {
	if req.file == "-" {
		return usagef("standard input cannot be read again; want a file")
	}
	return req.server.check()
}
