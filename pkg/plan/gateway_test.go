package plan_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/policy"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

func gatewaysOf(p *plan.Plan) (hosts []string) {
	for _, c := range p.ComponentsOf("", plan.JointGateway) {
		hosts = append(hosts, c.Host)
	}
	return hosts
}

func TestGatewayRunsWhereTheSpecSays(t *testing.T) {
	ha := readPlan(t, "../../examples/gateway-1.15-1.36.yaml")
	if got := gatewaysOf(ha); !slices.Equal(got, []string{"cp-1", "cp-2"}) {
		t.Errorf("gateways on %q, want cp-1 and cp-2", got)
	}
	for more, want := range map[string]int{"": 0, "  gateway: {disabled: true}\n": 0, "  gateway: {}\n": 1} {
		p := planOf(t, splitSpec("1.15.12", "1.36.3", more))
		if got := gatewaysOf(p); len(got) != want || p.Gateway.Serves() != (want > 0) {
			t.Errorf("%q: gateways on %q, and Serves = %v; want %d", more, got, p.Gateway.Serves(), want)
		}
		granted := slices.ContainsFunc(p.Policy.Grants, func(g policy.Grant) bool {
			return g.Subjects[0].Name == plan.JointGateway
		})
		if granted != (want > 0) {
			t.Errorf("%q: the policy names the gateway's user: %v", more, granted)
		}
	}
}

// Each file that the gateway is told of is one that the plan issues, renders, or has for the API servers as well.
func TestGatewayHasItsFiles(t *testing.T) {
	p := planOf(t, splitSpec("1.6.13", "1.36.3", "  gateway: {certSANs: [kube.example.com, 10.0.0.100]}\n"))
	c := p.ComponentsOf("", plan.JointGateway)[0]
	arg := func(name string) string { value, _ := c.Arg(name); return value }
	modern := p.ComponentsOf(pair.Modern, "kube-apiserver")[0]
	for flag, of := range map[string]string{"proxy-cert": "proxy-client-cert-file",
		"proxy-key": "proxy-client-key-file", "client-ca": "client-ca-file"} {
		if want, ok := modern.Arg(of); !ok || arg(flag) != want {
			t.Errorf("--%s=%s, want %s, as --%s of the API server", flag, arg(flag), want, of)
		}
	}
	issued := func(cert string) plan.Certificate {
		i := slices.IndexFunc(p.Certificates, func(c plan.Certificate) bool { return c.Cert == cert })
		if i < 0 || p.Certificates[i].Existing {
			t.Fatalf("%s is no certificate that the plan issues", cert)
		}
		return p.Certificates[i]
	}
	serving := issued(arg("tls-cert"))
	if serving.Key != arg("tls-key") || !slices.Equal(serving.Usages, []string{plan.UsageServer}) ||
		!slices.Equal(serving.DNSNames, []string{"localhost", "cp-1", "kube.example.com"}) ||
		!slices.Equal(serving.IPs, []string{"127.0.0.1", "10.0.0.11", "10.0.0.100"}) {
		t.Errorf("the serving certificate: %+v", serving)
	}
	for i, side := range pair.Sides() {
		configs := slices.DeleteFunc(slices.Clone(p.Kubeconfigs), func(k plan.Kubeconfig) bool {
			return k.Component != c.Name
		})
		if len(configs) != 2 || configs[i].Path != arg(string(side)+"-kubeconfig") ||
			configs[i].User != plan.JointGateway {
			t.Fatalf("kubeconfigs %+v, want one of each side", configs)
		}
		if cert := issued(configs[i].Cert); cert.CommonName != plan.JointGateway || len(cert.Organizations) > 0 {
			t.Errorf("the client certificate: %+v", cert)
		}
	}
	if p.Gateway.Component.Server != "https://kube.example.com:8443" || arg("plan") != p.Gateway.Component.PlanFile {
		t.Errorf("clients reach %s, and --plan is %s", p.Gateway.Component.Server, arg("plan"))
	}
	for _, file := range []string{arg("plan"), arg("tls-key"), arg("proxy-key"), arg("client-ca")} {
		if !slices.ContainsFunc(c.Mounts, func(m plan.Mount) bool {
			return file == m.Path || strings.HasPrefix(file, m.Path+"/")
		}) {
			t.Errorf("%s is mounted nowhere", file)
		}
	}
}

// The gateway goes by what the spec says; the plan for a cluster says it for one that is started by hand.
func TestGatewayIsToldItsChoices(t *testing.T) {
	text := splitSpec("1.15.12", "1.36.3", "  gateway: {create: legacy, sharedIdentities: true, clusters: [{name: "+
		"edge, kubeconfig: /etc/edge/config}, {name: far, kubeconfig: /etc/far.conf}]}\n")
	f, err := spec.Load("spec.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []plan.Target{plan.OnHosts, plan.Hosted} {
		p, err := plan.New(f, target)
		if err != nil {
			t.Fatal(err)
		}
		if g := p.Runtime().Gateway; g == nil || g.Create != pair.Legacy || !g.SharedIdentities || g.Component != nil ||
			len(g.Clusters) != 2 || g.Clusters[1] != (spec.GatewayCluster{Name: "far", Kubeconfig: "/etc/far.conf"}) {
			t.Errorf("target %q: a running gateway is told %+v", target, g)
		}
		for _, c := range p.Components {
			if c.Kind != plan.JointGateway {
				continue
			}
			var clusters []string
			for _, a := range c.Args {
				if strings.HasPrefix(a.Name, "cluster") {
					clusters = append(clusters, a.String())
				}
			}
			if want := []string{"--cluster=edge", "--cluster-kubeconfig=/etc/edge/config", "--cluster=far",
				"--cluster-kubeconfig=/etc/far.conf"}; !slices.Equal(clusters, want) {
				t.Errorf("arguments %q, want %q", clusters, want)
			}
			if !plan.ReadsFile("cluster-kubeconfig") || !slices.ContainsFunc(c.Mounts, func(m plan.Mount) bool {
				return strings.HasPrefix("/etc/edge/config", m.Path)
			}) {
				t.Errorf("the kubeconfig of a cluster is mounted nowhere: %+v", c.Mounts)
			}
		}
		if hosted := target == plan.Hosted; p.Gateway.Serves() == hosted || len(gatewaysOf(p)) > 0 == hosted {
			t.Errorf("target %q: gateways on %q", target, gatewaysOf(p))
		}
		for _, c := range p.Certificates {
			if target == plan.Hosted && filepath.Base(c.Cert) == "gateway.crt" {
				t.Errorf("a plan for a cluster issues %s", c.Cert)
			}
		}
	}
}

// In a cluster, what is fusionctl's own runs where it has an image: a pod has no program of a host. What the
// controllers do for pods of the modern side takes hosts, and a plan that wants it has none of them in a cluster.
func TestHostedPlansHaveTheirOwnWithAnImage(t *testing.T) {
	const image = "{image: registry.example.com/fusionctl:v1}"
	for more, want := range map[string][]string{
		"":                nil,
		"  gateway: {}\n": nil,
		"  gateway: {image: registry.example.com/fusionctl:v1, disabled: true}\n": nil,
		"  gateway: " + image + "\n":                               {plan.JointGateway},
		"  controllers: " + image + "\n":                           {plan.JointControllers},
		"  controllers: " + image + "\n  pods: {}\n":               nil,
		"  gateway: " + image + "\n  controllers: " + image + "\n": {plan.JointControllers, plan.JointGateway},
	} {
		f, err := spec.Load("spec.yaml", []byte(splitSpec("1.15.12", "1.36.3", more)))
		if err != nil {
			t.Fatal(err)
		}
		f.Spec.Hosts = append(f.Spec.Hosts, spec.Host{Name: "cp-2", Address: "10.0.0.12"})
		f.Spec.Stores[1].Endpoints = append(f.Spec.Stores[1].Endpoints, "http://10.0.0.12:2479")
		p, err := plan.New(f, plan.Hosted)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range p.Components {
			if plan.SeesBoth(c.Kind) {
				got = append(got, c.Name)
				if c.Host != plan.HostedName {
					t.Errorf("%q: %s is on %s", more, c.Name, c.Host)
				}
			}
		}
		if !slices.Equal(got, want) || (p.Joint != nil) != slices.Contains(want, plan.JointControllers) ||
			p.Gateway.Serves() != slices.Contains(want, plan.JointGateway) {
			t.Errorf("%q: %q, want %q", more, got, want)
		}
	}
}
