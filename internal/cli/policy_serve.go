package cli

import (
	"context"
	"net/http"

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
		Short: "Answer the authorization webhook of API servers by a policy, and reload it when it changes",
		Long: `serve answers SubjectAccessReviews (authorization.k8s.io v1 and v1beta1) on POST /authorize by a policy
file. When the file changes it is read again; a file that is missing, broken, or has a finding of severity error does
not replace the one in use, and the log and the metrics say so.

On the API server: --authorization-mode=Webhook (or Webhook before others),
--authorization-webhook-config-file=KUBECONFIG whose cluster is https://HOST:PORT/authorize, and
--authorization-webhook-version=v1 where there is that flag. A request that no rule allows is no opinion, so authorizers
behind this one are asked; with --deny it is denied.

Only clients with a certificate that --client-ca has signed for a --client-name may call: the API servers, by the user
of that kubeconfig. With --any-client whoever reaches the port may ask what anybody may do. /healthz, /readyz and
/metrics are served beside /authorize, and with --metrics-listen on an address of their own: without TLS on loopback,
elsewhere to certificates of --client-ca for a --metrics-client-name.

A file without a rule is refused: it would allow nothing.

Exit codes: 0 ended by a signal, 1 could not serve, 2 bad usage or a bad file.`,
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
	flags.BoolVar(&req.deny, "deny", false, "deny what no rule allows, instead of having no opinion")
	flags.BoolVar(&req.lenient, "lenient", false,
		"take into use whatever the API server would, also a policy with errors")
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
			" shows what is wrong; --lenient serves what the API server would")
	}
	log := serverLog(ctx, streams)
	mux := http.NewServeMux()
	handler := &webhook.Handler{Policy: source.Current, Deny: req.deny, Metrics: metrics, Logger: log}
	mux.Handle("/authorize", webserver.Limit(webserver.DefaultRequests, handler))
	return req.server.serve(ctx, service{mux: mux, registry: registry, log: log, about: []any{"policy", req.file},
		follow: func(ctx context.Context) {
			source.Watch(ctx, req.server.interval, func(err error) {
				if err != nil {
					log.Error("the policy file is not loaded, the one of before stays in use", "file", req.file,
						"error", err)
					return
				}
				log.Info("loaded the policy file", "file", req.file)
			})
		}})
}

// check refuses what would serve decisions to the world without protection.
func (req *policyServeRequest) check() error {
	if req.file == "-" {
		return usagef("standard input cannot be read again; want a file")
	}
	return req.server.check()
}
