package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

func podsPlan(t *testing.T, legacy, modern, layout, network, pods, more string) (*plan.Plan, error) {
	t.Helper()
	text := `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: pods}
spec:
  layout: ` + layout + `
  hosts: [{name: cp-1, address: 10.0.0.11}, {name: cp-2, address: 10.0.0.12}]
  network: ` + network + `
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"]}
  legacy: {version: ` + legacy + `, store: core, apiServer: {` + more + `}}
  modern: {version: ` + modern + `, store: ` + map[string]string{"shared": "core", "split": "modern"}[layout] + `, apiServer: {}}
  pods: ` + pods + `
  access:
  - {subjects: [{kind: User, name: alice}], apiGroups: [""], resources: [pods]}
`
	f, err := spec.Load("pods.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return plan.New(f, plan.OnHosts)
}

const twoRanges = "{serviceCIDRs: [10.96.0.0/24], modernServiceCIDRs: [10.97.0.0/24]}"

func TestPodsOfOldKubeletsGetSecretTokens(t *testing.T) {
	for _, test := range []struct {
		name, legacy, modern, pods, more string
		tokens                           plan.Tokens
		by                               plan.AdmissionBy
	}{
		{"no token source", "1.6.13", "1.36.3", "{}", "", plan.TokensSecret, plan.ByWebhook},
		{"no token source, nothing to say", "1.10.13", "1.36.3", "{unknownFields: ignore}", "", plan.TokensSecret,
			plan.ByWebhook},
		{"all known", "1.15.12", "1.36.3", "{unknownFields: ignore}", "", plan.TokensProjected, plan.ByPolicy},
		{"policy not on by default", "1.15.12", "1.35.4", "{unknownFields: ignore}", "", plan.TokensProjected,
			plan.ByWebhook},
		{"warnings", "1.15.12", "1.36.3", "{}", "", plan.TokensProjected, plan.ByWebhook},
		{"another issuer", "1.20.15", "1.36.3", "{}", "extraArgs: [{name: service-account-issuer, value: " +
			"https://old.example}]", plan.TokensSecret, plan.ByWebhook},
		{"before projected volumes", "1.6.13", "1.10.13", "{}", "", plan.TokensSecret, plan.ByWebhook},
	} {
		p, err := podsPlan(t, test.legacy, test.modern, "split", twoRanges, test.pods, test.more)
		if test.modern == "1.10.13" {
			p, err = podsPlan(t, test.legacy, test.modern, "split", "{serviceCIDRs: [10.96.0.0/24]}", test.pods,
				test.more)
		}
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if p.Pods.Tokens != test.tokens || p.Pods.Admission.By != test.by {
			t.Errorf("%s: tokens %s (%s), admission by %s (%s); want %s, %s", test.name, p.Pods.Tokens,
				p.Pods.TokensWhy, p.Pods.Admission.By, p.Pods.Admission.Why, test.tokens, test.by)
		}
	}
}

func TestPodServiceIsMadeWhereItsAddressIsGivenOut(t *testing.T) {
	for _, test := range []struct {
		network, pods, ip string
		side              pair.Side
	}{
		{twoRanges, "{}", "10.97.0.2", pair.Modern},
		{twoRanges, "{service: {clusterIP: 10.96.0.9}}", "10.96.0.9", pair.Legacy},
		{"{serviceCIDRs: [10.96.0.0/24]}", "{}", "10.96.0.2", pair.Legacy},
	} {
		p, err := podsPlan(t, "1.15.12", "1.36.3", "split", test.network, test.pods, "")
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Pods.Service; s.ClusterIP != test.ip || s.Side != test.side ||
			!slices.Equal(s.Addresses, []string{"10.0.0.11", "10.0.0.12"}) {
			t.Errorf("%s, %s: service %+v, want %s of the %s side", test.network, test.pods, s, test.ip, test.side)
		}
		for _, c := range p.Certificates {
			named := slices.Contains(c.IPs, test.ip) && slices.Contains(c.DNSNames, "kubernetes-modern.default.svc")
			if serving := strings.HasSuffix(c.Cert, "/modern/apiserver.crt"); serving != named {
				t.Errorf("%s on %s names the service: %v, want %v", c.Cert, c.Host, named, serving)
			}
		}
	}
}

func TestPodsNeedAServerThatAsks(t *testing.T) {
	if _, err := podsPlan(t, "1.6.13", "1.8.15", "split", "{serviceCIDRs: [10.96.0.0/24]}", "{}", ""); err == nil ||
		!strings.Contains(err.Error(), "does not support admission webhooks") {
		t.Errorf("pods with a modern server of 1.8: %v, want an error", err)
	}
	if _, err := podsPlan(t, "1.15.12", "1.18.20", "shared", "{serviceCIDRs: [10.96.0.0/24]}", "{}", ""); err == nil ||
		!strings.Contains(err.Error(), "would see the webhook configuration") {
		t.Errorf("pods with shared webhook registrations: %v, want an error", err)
	}
	if _, err := podsPlan(t, "1.6.13", "1.10.13", "shared", "{serviceCIDRs: [10.96.0.0/24]}", "{}", ""); err != nil {
		t.Errorf("pods in a store shared with a server that knows no webhooks: %v", err)
	}
}

func TestPodsBringTheControllersThatTheyNeed(t *testing.T) {
	p, err := podsPlan(t, "1.15.12", "1.36.3", "split", "{serviceCIDRs: [10.96.0.0/24]}", "{}", "")
	if err != nil {
		t.Fatal(err)
	}
	components := p.ComponentsOf("", plan.JointControllers)
	if p.Joint == nil || len(components) != 2 || len(p.Joint.Why) == 0 {
		t.Fatalf("%d controllers of both sides, because %q; want one on each host", len(components), p.Joint.Why)
	}
	cert, _ := components[0].Arg("webhook-cert")
	if i := slices.IndexFunc(p.Certificates, func(c plan.Certificate) bool {
		return c.Cert == cert && c.Host == "cp-1"
	}); i < 0 || !slices.Contains(p.Certificates[i].IPs, "127.0.0.1") {
		t.Errorf("--webhook-cert=%s is no certificate of the plan that is good for loopback", cert)
	}
	rights := map[string]string{}
	for _, r := range p.Joint.Legacy.Rules {
		for _, resource := range r.Resources {
			rights[resource] += r.Namespace + ":" + strings.Join(r.Verbs, ",") + " "
		}
	}
	for _, resource := range []string{"services", "endpoints"} { // one range: the legacy server gives out the address
		if !strings.Contains(rights[resource], "default:create,update") {
			t.Errorf("rights on the legacy side to %s: %q, want create and update in default", resource,
				rights[resource])
		}
	}
	p, err = podsPlan(t, "1.15.12", "1.36.3", "split", twoRanges, "{}", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Joint.Legacy.Rules {
		if slices.Contains(r.Resources, "services") && slices.Contains(r.Verbs, "create") {
			t.Errorf("the service is made through the modern server, and the legacy one has to allow %+v", r)
		}
	}
}
