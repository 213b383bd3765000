package spec_test

import (
	"testing"

	"github.com/kubefusion/fusionctl/pkg/spec"
)

func TestPlacesKnowTheLinesOfValues(t *testing.T) {
	p := spec.ParsePlaces([]byte(`spec:
  hosts:
  - name: cp-1
    legacy:
      apiServer:
      - {name: advertise-address, value: 10.0.0.11}
  pki:
    directory: /etc/kubernetes/pki
    ca: &ca /etc/kubernetes/pki/ca.crt
    requestHeaderCA: *ca
  stores:
  - {name: core, tls: {ca: /etc/etcd/ca.crt}}
  legacy:
    apiServer:
      extraArgs:
      - {name: tls_cert_file, value: /srv/a.crt}
      - {name: oidc-ca-file, value: "/srv/b.crt,/srv/c.crt"}
      changeArgs:
      - {name: oidc-ca-file, value: /srv/d.crt}
      extraMounts:
      - {name: srv, hostPath: /srv}
  modern:
    apiServer: {extraArgs: [{name: oidc-ca-file, value: /x}]}
  accept:
  - {rule: FUS250, reason: /etc/kubernetes/later}
`))
	for what, lines := range map[string][2]int{
		"an argument":                 {p.Argument("legacy", "apiServer", "tls-cert-file"), 16},
		"the last of two":             {p.Argument("legacy", "apiServer", "oidc-ca-file"), 19},
		"of the modern side":          {p.Argument("modern", "apiServer", "oidc-ca-file"), 23},
		"of a host":                   {p.Argument("legacy", "apiServer", "advertise-address"), 6},
		"of no component":             {p.Argument("legacy", "scheduler", "oidc-ca-file"), 0},
		"no argument":                 {p.Argument("legacy", "apiServer", "srv"), 0},
		"a file":                      {p.File("/etc/kubernetes/pki/ca.crt"), 9},
		"a file of a list":            {p.File("/srv/c.crt"), 17},
		"a file below a directory":    {p.File("/etc/kubernetes/pki/modern/sa.key"), 8},
		"a file below a mount":        {p.File("/srv/kubernetes/a"), 21},
		"a file beside":               {p.File("/srvice"), 0},
		"what is only in a reason":    {p.Value("/etc/kubernetes/later"), 0},
		"a store":                     {p.Named("stores", "core"), 12},
		"a mount is no store":         {p.Named("stores", "srv"), 0},
		"nothing, of what is no YAML": {spec.ParsePlaces([]byte("a: [")).File("/srv/c.crt"), 0},
		"nothing, of nothing":         {spec.ParsePlaces(nil).File("/srv/c.crt"), 0},
	} {
		if lines[0] != lines[1] {
			t.Errorf("%s is at line %d, want %d", what, lines[0], lines[1])
		}
	}
}
