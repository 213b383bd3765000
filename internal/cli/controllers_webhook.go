package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/controllers"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// podsWebhookRequest is where the webhook answers about pods, where that is not what the plan says.
type podsWebhookRequest struct {
	listen, url, cert, key, ca string
	clientCA                   string
	clientNames                []string
}

func (q *podsWebhookRequest) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.listen, "webhook-listen", "",
		"address of the admission webhook for pods (default the plan's port on loopback)")
	f.StringVar(&q.url, "webhook-url", "", "its URL for the modern API server (default the address)")
	f.StringVar(&q.cert, "webhook-cert", "",
		"serving certificate of the webhook, reloaded when it changes (default the plan's)")
	f.StringVar(&q.key, "webhook-key", "", "its key (default the plan's)")
	f.StringVar(&q.clientCA, "webhook-client-ca", "",
		"CA of the client certificate of the modern API server (default the plan's; required beyond loopback)")
	f.StringArrayVar(&q.clientNames, "webhook-client-name", nil,
		"common name of that certificate (default the plan's); repeat for more")
	f.StringVar(&q.ca, "webhook-ca", "", "CA bundle with which the modern API server verifies it (default the plan's)")
}

// webhook is how the plan's webhook is served; nil when the plan has none.
func (q podsWebhookRequest) webhook(ctx context.Context, p *plan.Runtime) (*controllers.Webhook, error) {
	if p.Pods == nil || p.Pods.Admission.By != plan.ByWebhook {
		return nil, nil
	}
	a := p.Pods.Admission
	listen := cmp.Or(q.listen, fmt.Sprintf("127.0.0.1:%d", a.Port))
	if q.clientCA == "" && len(q.clientNames) == 0 && a.ClientName != "" {
		q.clientCA, q.clientNames = a.ClientCA, []string{a.ClientName}
	}
	switch {
	case (q.clientCA == "") != (len(q.clientNames) == 0):
		return nil, usagef("--webhook-client-ca and --webhook-client-name: want both, or neither")
	case q.clientCA == "" && !loopback(listen):
		return nil, badInput(fmt.Errorf("--webhook-listen %q is not on loopback", listen),
			"--webhook-client-ca and --webhook-client-name restrict its clients")
	}
	files := webserver.Certificates{Cert: cmp.Or(q.cert, a.Cert), Key: cmp.Or(q.key, a.Key), ClientCA: q.clientCA,
		ClientNames: q.clientNames, Kept: keptCertificate(ctx, cmp.Or(q.cert, a.Cert))}
	config, err := files.Config()
	if err != nil {
		return nil, badInput(fmt.Errorf("the admission webhook for pods: %w", err),
			"fusionctl pki issues its certificate")
	}
	measured := &webserver.CertificateMetrics{}
	measured.Add(&files)
	older := rules.LegacyOf(p)
	older.Minor = admission.Older(p)
	return &controllers.Webhook{
		Listen: listen, URL: cmp.Or(q.url, "https://"+listen+controllers.WebhookPath), TLS: config,
		CAFile: cmp.Or(q.ca, a.CA), Losses: older.Losses,
		Metrics: measured,
	}, nil
}
