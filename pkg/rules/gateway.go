package rules

import (
	"fmt"
	"strings"

	"github.com/kubefusion/fusionctl/pkg/finding"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func gatewayRules() []rule {
	running := func(more ...string) string {
		server := args(append([]string{"etcd-servers=http://10.0.0.11:2379", "insecure-port=0",
			"authorization-mode=RBAC", "client-ca-file=/etc/kubernetes/pki/ca.crt", "allow-privileged=true"},
			more...)...)
		return example{legacySide: "existing: true", legacyServer: server, more: "gateway: {}"}.String()
	}
	return []rule{{finding.Rule{
		ID: "FUS256", Title: "An API server does not believe the gateway",
		Why: "The gateway tells each API server who its client is in the headers of a front proxy, with a " +
			"certificate of its CA. An API server believes them when it has that CA as " +
			"--requestheader-client-ca-file and the headers as --requestheader-username-headers and " +
			"--requestheader-group-headers, which have no default. Without the first two it answers 401 to every " +
			"request, and the gateway 503; without the third its clients are in no group there.",
		Legacy: anyVersion, Modern: anyVersion, Severity: finding.Warning,
		Evidence: finding.Evidence{Read: "authentication/request/headerrequest and " +
			"server/options/authentication.go of apiserver 1.6 and 1.36"},
		Bad: running(),
		Good: running("requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
			"requestheader-username-headers=X-Remote-User", "requestheader-group-headers=X-Remote-Group",
			"requestheader-extra-headers-prefix=X-Remote-Extra-",
			"proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt",
			"proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key"),
	}, unknownProxy}}
}

// unknownProxy reports API servers that lack an argument without which they do not believe the plan's front proxy.
func unknownProxy(p *plan.Plan) []finding.Finding {
	if !p.Gateway.Serves() {
		return nil
	}
	var found []finding.Finding
	for _, side := range p.RunningSides() {
		var lacks []string
		for _, want := range [][2]string{{"requestheader-client-ca-file", p.PKI.RequestHeaderCA},
			{"requestheader-username-headers", "X-Remote-User"}, {"requestheader-group-headers", "X-Remote-Group"}} {
			value, _ := sideArg(p, side, kubever.APIServer, want[0])
			if value == "" || want[0] == "requestheader-client-ca-file" && onHost(p, side, value) != want[1] {
				lacks = append(lacks, "--"+want[0]+"="+want[1])
			}
		}
		if len(lacks) == 0 {
			continue
		}
		f := finding.Finding{Subject: fmt.Sprintf("the %s API server", side),
			Message: fmt.Sprintf("runs without %s: it does not believe the gateway who its clients are",
				strings.Join(lacks, " ")),
			Fix: "set them in spec.legacy.apiServer.changeArgs, or leave spec.gateway out"}
		if side == pair.Modern {
			f.Fix = fmt.Sprintf("name a CA of front proxies that is not %s, with a certificate of it: "+
				"spec.pki.requestHeaderCA, proxyClientCert and proxyClientKey", p.PKI.CA)
		}
		found = append(found, f)
	}
	return found
}

// onHost is where a file that a side's API server names lies on its host.
func onHost(p *plan.Plan, side pair.Side, file string) string {
	if servers := p.ComponentsOf(side, kubever.APIServer); len(servers) > 0 {
		return servers[0].OnHost(file)
	}
	return file
}
