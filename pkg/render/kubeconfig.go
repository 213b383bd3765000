package render

import (
	"fmt"

	"github.com/kubefusion/fusionctl/pkg/plan"
)

// kubeconfig prints a kubeconfig that refers to its certificate and key by path: it holds no secret itself.
func kubeconfig(k *plan.Kubeconfig) ([]byte, error) {
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
