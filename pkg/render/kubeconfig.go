package render

import (
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// kubeconfig prints a kubeconfig that refers to its certificate and key by path: it holds no secret itself.
func kubeconfig(k *plan.Kubeconfig) ([]byte, error) {
	if k.Webhook != "" {
		return webhookKubeconfig(k)
	}
	const name = "default"
	return document(fmt.Sprintf("Written by fusionctl render: kubeconfig of %s on %s for its API server.", k.Component,
		k.Host), object(
		field{"apiVersion", text("v1")},
		field{"kind", text("Config")},
		field{"clusters", list(object(
			field{"name", text(name)},
			field{"cluster", object(
				field{"certificate-authority", text(k.CA)},
				field{"server", text(k.Server)},
			)},
		))},
		field{"users", list(object(
			field{"name", text(k.User)},
			field{"user", object(
				field{"client-certificate", text(k.Cert)},
				field{"client-key", text(k.Key)},
			)},
		))},
		field{"contexts", list(object(
			field{"name", text(name)},
			field{"context", object(
				field{"cluster", text(name)},
				field{"user", text(k.User)},
			)},
		))},
		field{"current-context", text(name)},
	))
}

// webhookKubeconfig has the one user as whom the API server calls a webhook, by the webhook's address. No context is
// current: the certificate would be presented to every webhook then.
func webhookKubeconfig(k *plan.Kubeconfig) ([]byte, error) {
	return document(fmt.Sprintf("Written by fusionctl render: the certificate of %s on %s for the webhook at %s.",
		k.Component, k.Host, k.Webhook), object(
		field{"apiVersion", text("v1")},
		field{"kind", text("Config")},
		field{"users", list(object(
			field{"name", text(k.Webhook)},
			field{"user", object(
				field{"client-certificate", text(k.Cert)},
				field{"client-key", text(k.Key)},
			)},
		))},
	))
}

// admissionConfiguration names the file of the certificate for the admission plugin that calls the webhook for pods.
func admissionConfiguration(p *plan.Plan, file string) ([]byte, error) {
	version, webhooks, kind := "apiserver.k8s.io/v1alpha1", "apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"
	if kubever.Behaves(kubever.BehaviourAdmissionConfigV1, p.Modern.Version.Minor) {
		version, webhooks, kind = "apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1",
			"WebhookAdmissionConfiguration"
	}
	return document("Written by fusionctl render: which certificate the API server presents to the admission webhook "+
		"for pods.\nFor a configuration of your own set admission-control-config-file in the extraArgs of "+
		"spec.modern.apiServer.\n", object(
		field{"apiVersion", text(version)},
		field{"kind", text("AdmissionConfiguration")},
		field{"plugins", list(object(
			field{"name", text("MutatingAdmissionWebhook")},
			field{"configuration", object(
				field{"apiVersion", text(webhooks)},
				field{"kind", text(kind)},
				field{"kubeConfigFile", text(file)},
			)},
		))},
	))
}

// admissionFile is the configuration of a component's admission plugins that render writes; "" for none, with the
// kubeconfig that it names.
func admissionFile(p *plan.Plan, c *plan.Component) (file, config string) {
	if p.Pods == nil || p.Pods.Admission.ConfigFile == "" || c.Side != pair.Modern || c.Kind != kubever.APIServer {
		return "", ""
	}
	if value, _ := c.Arg("admission-control-config-file"); value != p.Pods.Admission.ConfigFile {
		return "", ""
	}
	for _, k := range p.Kubeconfigs {
		if k.Host == c.Host && k.Webhook != "" {
			return p.Pods.Admission.ConfigFile, k.Path
		}
	}
	return "", ""
}
