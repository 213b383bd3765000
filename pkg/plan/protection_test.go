package plan_test

import (
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// running is a legacy side that runs already, on one host, with some arguments and mounts of its API server.
const running = `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: running}
spec:
  layout: split
  hosts: [{name: cp-1, address: 10.0.0.11}]
  network: {serviceCIDRs: [10.96.0.0/16]}
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"]}
  legacy:
    version: 1.24.17
    existing: true
    store: core
    apiServer:
      extraArgs:
      - {name: etcd-servers, value: "http://10.0.0.11:2379"}
      - {name: client-ca-file, value: /etc/kubernetes/pki/ca.crt}
      - {name: audit-log-path, value: /srv/audit/audit.log}
      - {name: audit-policy-file, value: /etc/kubernetes/pki/audit.yaml}
      ARGS
      extraMounts:
      - {name: pki, hostPath: /etc/kubernetes/pki, readOnly: true}
      - {name: audit, hostPath: /srv/audit}
      - {name: log, hostPath: /var/log/kube-apiserver.log}
      - {name: sockets, hostPath: /var/run/plugins}
  modern:
    version: 1.36.3
    store: modern
    apiServer: {port: 7443}
  access:
  - {subjects: [{kind: Group, name: developers}], apiGroups: [example.org], resources: ["*"]}
`

// TestSocketsOfTheLegacyServerAreSeen: files name the sockets of a KMS plugin or of a proxy, and these lie where legacy
// servers may write. What they write there, such as logs, is no socket.
func TestSocketsOfTheLegacyServerAreSeen(t *testing.T) {
	for arg, want := range map[string]bool{
		"encryption-provider-config":  true,
		"egress-selector-config-file": true,
		"token-auth-file":             false,
	} {
		p := plantest.Of(t, strings.Replace(running, "ARGS",
			"- {name: "+arg+", value: /etc/kubernetes/pki/file}", 1))
		server := p.ComponentsOf(pair.Modern, kubever.APIServer)[0]
		if value, _ := server.Arg(arg); value != "/etc/kubernetes/pki/file" {
			t.Errorf("--%s=%s of the modern API server, want that of the legacy one", arg, value)
		}
		seen := map[string]bool{}
		for _, m := range server.Mounts {
			if seen[m.Path] = true; m.Path == "/var/run/plugins" && !m.ReadOnly ||
				m.Path == "/srv/audit" && m.ReadOnly {
				t.Errorf("--%s: %s is mounted read-only: %t", arg, m.Path, m.ReadOnly)
			}
		}
		if seen["/var/run/plugins"] != want || seen["/var/log/kube-apiserver.log"] || !seen["/srv/audit"] {
			t.Errorf("--%s: mounts %v, want /srv/audit, and /var/run/plugins: %t", arg, seen, want)
		}
	}
}
