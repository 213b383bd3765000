package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubefusion/fusionctl/internal/visible"
	"github.com/kubefusion/fusionctl/pkg/hub"
	"github.com/kubefusion/fusionctl/pkg/hub/webhook"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pki"
)

type crdWebhookManifestsRequest struct {
	deployment hub.Deployment
	rules      string
	ca         string
	version    string
	only       string
}

func newCRDWebhookManifestsCmd(streams Streams) *cobra.Command {
	req := &crdWebhookManifestsRequest{}
	cmd := &cobra.Command{
		Use:   "manifests --rules DIR --image IMAGE --ca FILE --for VERSION",
		Short: "Print the manifests of a conversion webhook, and the CRDs that use it",
		Long: `manifests prints a ConfigMap with the rules and their CRDs, a Deployment and a Service, and then each CRD
of the directory with the conversion through the webhook, in the format of the API server of --for.

The webhook's certificate is not printed: a Secret of type kubernetes.io/tls, named NAME-tls, holds it for
NAME.NAMESPACE.svc, signed by the CA of --ca. Install the server first (--only server), wait until it is ready, then the
CRDs (--only crd): an API server that cannot reach the webhook of a CRD cannot read its objects.

Exit codes: 0 printed, 2 bad usage or bad rules.`,
		Example: `  fusionctl crd webhook manifests --rules examples/pizza --image registry.example/fusionctl:1 --ca ca.crt --for 1.36 | kubectl apply -f -`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runCRDWebhookManifests(req, streams) },
	}
	flags := cmd.Flags()
	flags.StringVar(&req.rules, "rules", "", "directory of the rules files and their CRDs")
	flags.StringVar(&req.deployment.Image, "image", "", "image whose entry point is fusionctl")
	flags.StringVar(&req.ca, "ca", "", "file of the CA that has signed the webhook's certificate")
	flags.StringVar(&req.version, "for", "", "version of the API server, such as 1.36")
	flags.StringVar(&req.deployment.Name, "name", "fusionctl-conversion", "of everything")
	flags.StringVarP(&req.deployment.Namespace, "namespace", "n", metav1.NamespaceSystem, "of the server")
	flags.IntVar(&req.deployment.Replicas, "replicas", 2, "of the server")
	enumFlag(cmd, &req.only, "only", "", "what to print", "all", "server", "crd")
	return cmd
}

func runCRDWebhookManifests(req *crdWebhookManifestsRequest, streams Streams) error {
	for _, flag := range []struct{ name, value string }{{"rules", req.rules}, {"image", req.deployment.Image},
		{"ca", req.ca}, {"for", req.version}} {
		if flag.value == "" {
			return usagef("--%s is required", flag.name)
		}
	}
	d := &req.deployment
	for _, label := range []struct{ flag, value string }{{"name", d.Name}, {"namespace", d.Namespace}} {
		if problems := validation.IsDNS1035Label(label.value); len(problems) > 0 {
			return usagef("--%s %q: %s", label.flag, label.value, strings.Join(problems, "; "))
		}
	}
	if d.Replicas < 1 {
		return usagef("--replicas %d: want at least 1", d.Replicas)
	}
	version, err := parseVersionFlag("for", req.version)
	if err != nil {
		return err
	}
	d.For = version.Minor
	if d.CABundle, err = readInput(streams, req.ca, keyLimitBytes); err != nil {
		return err
	}
	if _, err := pki.ParseCertificates(d.CABundle); err != nil {
		return badInput(fmt.Errorf("%s: %w", req.ca, err), "")
	}
	if d.Files, err = webhook.ReadDirectory(req.rules); err != nil {
		return badInput(err, "")
	}
	crds, err := d.CRDs()
	if err != nil {
		return badInput(err, "")
	}
	server, err := d.Server()
	if err != nil {
		return badInput(err, "")
	}
	if req.only != "crd" {
		if err := printDocuments(streams.Out, server); err != nil {
			return err
		}
	}
	if req.only != "server" {
		if gate, ok := kubever.Gate("CustomResourceWebhookConversion").At(d.For); ok && !gate.Default {
			visible.Fprintf(streams.Out, "# The API server of %s accepts this with "+
				"--feature-gates=CustomResourceWebhookConversion=true only.\n", d.For)
		}
		return printDocuments(streams.Out, crds)
	}
	return nil
}
