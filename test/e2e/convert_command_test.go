//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/test/rig"
)

// todaysManifests are what somebody wrote for a release of today.
const todaysManifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: new, namespace: demo} # stays
spec:
  selector: {matchLabels: {app: new}}
  template:
    metadata: {labels: {app: new}}
    spec: {containers: [{name: main, image: "example.test/new:1"}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: new, namespace: demo}
spec:
  rules:
  - host: new.example.test
    http:
      paths:
      - {path: /, pathType: ImplementationSpecific, backend: {service: {name: new, port: {number: 80}}}}
`

// The command line asks a real server which versions it has, and looks at what was applied to it, by kubectl and by
// Helm.
func TestConvertCommandAsksServers(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	server := r.StartAPIServer("apiserver", 15, r.APIServerArgs(15, r.StartEtcd("core")))
	server.WaitReady()
	client := server.Client("admin", "system:masters")
	kubeconfig, err := r.PKI.Kubeconfig("convert", server.URL, "admin", "system:masters")
	must(t, err)
	must(t, client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))

	applied := `{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"old","namespace":"demo"}}`
	old := deployment("old")
	old["metadata"].(object)["annotations"] = object{"kubectl.kubernetes.io/last-applied-configuration": applied}
	must(t, client.Call(t.Context(), http.MethodPost, "/apis/extensions/v1beta1/namespaces/demo/deployments", old, nil))
	must(t, client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/secrets",
		helmRelease(t, `apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: shop}
spec: {backend: {serviceName: shop, servicePort: 80}}
`), nil))

	for _, test := range []struct {
		arguments       []string
		wanted, unknown []string
	}{
		{nil, []string{"old", "extensions/v1beta1", "apps/v1"}, []string{"networking.k8s.io"}},
		{[]string{"--helm"}, []string{"shop", "networking.k8s.io/v1"}, nil},
	} {
		out := runFusionctl(t, 3, append([]string{"convert", "check", "--kubeconfig", kubeconfig, "--for", "1.36"},
			test.arguments...)...)
		for _, word := range test.wanted {
			if !strings.Contains(out, word) {
				t.Errorf("convert check %q does not say %q:\n%s", test.arguments, word, out)
			}
		}
		for _, word := range test.unknown {
			if strings.Contains(out, word) {
				t.Errorf("convert check %q says %q:\n%s", test.arguments, word, out)
			}
		}
	}

	file := filepath.Join(r.Dir(), "today.yaml")
	must(t, os.WriteFile(file, []byte(todaysManifests), 0o600))
	c := newCommand(t.Context(), "convert", "-f", file, "--for-server", kubeconfig)
	if code := c.code(c.Run()); code != 0 {
		t.Fatalf("convert exits %d\n%s%s", code, c.out.String(), c.err.String())
	}
	out := c.out.String() // what is lost is on stderr
	if !strings.Contains(out, "namespace: demo} # stays") {
		t.Errorf("the comment of what needs no change is gone:\n%s", out)
	}
	for i, resource := range []string{"apps/v1/namespaces/demo/deployments",
		"networking.k8s.io/v1beta1/namespaces/demo/ingresses"} {
		var body object
		must(t, yaml.Unmarshal([]byte(strings.Split(out, "\n---\n")[i]), &body))
		if version := strings.Join(strings.Split(resource, "/")[:2], "/"); body["apiVersion"] != version {
			t.Errorf("converted to %s, want %s, which 1.15 serves", body["apiVersion"], version)
		}
		must(t, client.Call(t.Context(), http.MethodPost, "/apis/"+resource, body, nil))
	}
}

// helmRelease is the record of a release as Helm 3 keeps it.
func helmRelease(t *testing.T, manifest string) object {
	t.Helper()
	data, err := json.Marshal(object{"name": "shop", "namespace": "demo", "version": 1,
		"info": object{"status": "deployed"}, "manifest": manifest})
	must(t, err)
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	_, err = zipped.Write(data)
	must(t, err)
	must(t, zipped.Close())
	return object{
		"metadata": object{"name": "sh.helm.release.v1.shop.v1",
			"labels": object{"owner": "helm", "name": "shop", "status": "deployed", "version": "1"}},
		"type": "helm.sh/release.v1",
		"data": object{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))},
	}
}
