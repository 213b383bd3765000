package preflight

import (
	"slices"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// TestGatewayNeedsItsFilesAndPorts: each file of the gateway is looked for on its host, and both of its ports.
func TestGatewayNeedsItsFilesAndPorts(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		n := needsOf(t, "gateway-1.15-1.36", target, same)
		need := func(file string) FileNeed {
			i := slices.IndexFunc(n.Files, func(f FileNeed) bool { return f.Path == file })
			if i < 0 {
				t.Fatalf("%s: %s is not needed", target, file)
			}
			return n.Files[i]
		}
		for file, certificate := range map[string]bool{"/etc/kubernetes/pki/modern/gateway.crt": true,
			"/etc/kubernetes/pki/modern/gateway.key": false, "/etc/kubernetes/pki/front-proxy-client.crt": true,
			"/etc/kubernetes/pki/front-proxy-client.key":       false,
			"/etc/kubernetes/pki/modern/fusionctl-gateway.key": false, "/etc/kubernetes/pki/ca.crt": true} {
			if f := need(file); f.Certificate != certificate {
				t.Errorf("%s: %+v, want a certificate: %v", target, f, certificate)
			}
		}
		if !need("/usr/local/bin/fusionctl").Program || need("/etc/kubernetes/modern/gateway.json").Rendered == nil {
			t.Errorf("%s: its program or its plan is not looked for", target)
		}
		var ports []Listener
		for _, l := range n.Listeners {
			if l.Component.Kind == plan.JointGateway {
				l.Component = nil
				ports = append(ports, l)
			}
		}
		if want := []Listener{{Port: 8443}, {Address: "127.0.0.1", Port: 10272}}; !slices.Equal(ports, want) {
			t.Errorf("%s: it listens on %+v, want %+v", target, ports, want)
		}
	}
}

func TestARunningGatewayIsItself(t *testing.T) {
	n := needsOf(t, "gateway-1.15-1.36", render.Systemd, same)
	for _, l := range n.Listeners {
		if l.Component.Kind != plan.JointGateway {
			continue
		}
		process := append([]string{"/usr/local/bin/fusionctl", "gateway"}, arguments(l.Component)...)
		if !isComponent(process, l.Component) || isComponent([]string{"/usr/bin/haproxy"}, l.Component) {
			t.Errorf("port %d: the gateway is not known by its own command line", l.Port)
		}
	}
}
