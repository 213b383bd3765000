package hub

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/crdfile"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// Deployment says how the webhook runs in a cluster.
type Deployment struct {
	Name      string // of everything; the certificate is in the Secret NAME-tls
	Namespace string
	Image     string // whose entry point is fusionctl
	Replicas  int
	CABundle  []byte        // PEM: what has signed the webhook's certificate
	For       kubever.Minor // of the API server
	Files     []File        // the rules and their CRDs
}

// limitConfigMapBytes is what an API server takes of a ConfigMap.
const limitConfigMapBytes = 1 << 20

// Server lists the objects that run the webhook: a ConfigMap with the files, a Deployment and a Service.
// Errors: files that no ConfigMap holds.
func (d Deployment) Server() ([]map[string]any, error) {
	files := map[string]any{}
	size := 0
	for _, file := range d.Files {
		name := file.Name[strings.LastIndex(file.Name, "/")+1:]
		files[name] = string(file.Data)
		size += len(name) + len(file.Data)
	}
	if size > limitConfigMapBytes {
		return nil, fmt.Errorf("the files have %d bytes, a ConfigMap may have %d; build them into the image", size,
			limitConfigMapBytes)
	}
	labels := map[string]any{"app.kubernetes.io/name": d.Name}
	metadata := func() map[string]any {
		return map[string]any{"name": d.Name, "namespace": d.Namespace, "labels": labels}
	}
	const port = 9443
	probe := map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": "https", "scheme": "HTTPS"}}
	container := map[string]any{
		"name": "webhook", "image": d.Image,
		"args": []any{
			"crd", "webhook", "--rules=/rules", fmt.Sprintf("--listen=:%d", port), "--tls-cert=/tls/tls.crt",
			"--tls-key=/tls/tls.key",
			"--any-client", // API servers present no certificate to conversion webhooks
		},
		"ports":          []any{map[string]any{"name": "https", "containerPort": port}},
		"readinessProbe": probe, "livenessProbe": probe,
		"resources": map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "64Mi"},
			"limits": map[string]any{"memory": "1Gi"}},
		"securityContext": map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
			"capabilities": map[string]any{"drop": []any{"ALL"}},
		},
		"volumeMounts": []any{
			map[string]any{"name": "rules", "mountPath": "/rules", "readOnly": true},
			map[string]any{"name": "tls", "mountPath": "/tls", "readOnly": true},
		},
	}
	pod := map[string]any{
		"automountServiceAccountToken": false,
		"containers":                   []any{container},
		"volumes": []any{
			map[string]any{"name": "rules", "configMap": map[string]any{"name": d.Name}},
			map[string]any{"name": "tls", "secret": map[string]any{"secretName": d.Name + "-tls"}},
		},
	}
	return []map[string]any{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(), "data": files},
		{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(), "spec": map[string]any{
			"replicas": d.Replicas, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod},
		}},
		{"apiVersion": "v1", "kind": "Service", "metadata": metadata(), "spec": map[string]any{
			"selector": labels, "ports": []any{map[string]any{"name": "https", "port": 443, "targetPort": "https"}},
		}},
	}, nil
}

// CRDs lists the CRDs among the files that there are rules for, as they stand, with the conversion that asks the
// webhook. Errors: a version without conversion webhooks, or without the API version in which a CRD is written.
func (d Deployment) CRDs() ([]map[string]any, error) {
	converters, err := Load(d.Files)
	if err != nil {
		return nil, err
	}
	converted := map[string]bool{}
	for _, c := range converters {
		converted[c.Definition.Name] = true
	}
	var crds []map[string]any
	for _, file := range d.Files {
		if err := crdfile.Read(file.Data, func(text []byte) error {
			var object map[string]any
			if err := utiljson.Unmarshal(text, &object); err != nil {
				return err
			}
			found, _ := lookup(object, path{"metadata", "name"})
			name, _ := found.(string)
			if !converted[name] {
				return nil
			}
			object, err := d.withConversion(object)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			crds = append(crds, object)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
	}
	return crds, nil
}

func (d Deployment) withConversion(object map[string]any) (map[string]any, error) {
	client := map[string]any{
		"caBundle": base64.StdEncoding.EncodeToString(d.CABundle),
		"service":  map[string]any{"namespace": d.Namespace, "name": d.Name, "path": "/convert"},
	}
	apiVersion, _ := object["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || !kubever.ServesGVK(gv.WithKind(crdfile.Kind), d.For) {
		return nil, fmt.Errorf("%s does not serve %s %q", d.For, crdfile.Kind, apiVersion)
	}
	conversion := map[string]any{"strategy": "Webhook"}
	if apiVersion == crdV1 {
		conversion["webhook"] = map[string]any{"clientConfig": client,
			"conversionReviewVersions": []any{"v1", "v1beta1"}}
	} else {
		if !kubever.Field("apiextensions.v1beta1.CustomResourceConversion", "webhookClientConfig").Has(d.For) {
			return nil, fmt.Errorf("%s has no conversion webhooks", d.For)
		}
		conversion["webhookClientConfig"] = client
		if kubever.Field("apiextensions.v1beta1.CustomResourceConversion", "conversionReviewVersions").Has(d.For) {
			conversion["conversionReviewVersions"] = []any{"v1beta1"}
		}
		preserve, _ := lookup(object, path{"spec", "preserveUnknownFields"})
		if kubever.Field("apiextensions.v1beta1.CustomResourceDefinitionSpec", "preserveUnknownFields").Has(d.For) &&
			preserve != false {
			return nil, errors.New("spec.preserveUnknownFields: want false, without which API servers take no " +
				"conversion webhook")
		}
	}
	e := newEditor(object)
	if err := e.set(path{"spec", "conversion"}, conversion); err != nil {
		return nil, err
	}
	e.remove(path{"status"})
	return e.root, nil
}
