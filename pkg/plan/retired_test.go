package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// retiredSpec is an example without its legacy side.
func retiredSpec(t *testing.T, name string) string {
	t.Helper()
	text, err := examples.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	file := strings.Replace(string(text), "\nspec:\n", "\nspec:\n  handedOver: ["+rbacResources+"]\n", 1)
	file = strings.Replace(file, "\n  legacy:\n", "\n  legacy:\n    retired: true\n", 1)
	file = strings.Replace(file, "\n  modern:\n", "\n  modern:\n    scheduler: {}\n", 1)
	return strings.Replace(file, "kubelet: {version: 1.15.12}", "kubelet: {version: 1.15.12, modern: {}}", 1)
}

// TestTheGatewayGoesOnForOldClients: with the modern API server alone, and with nothing that the legacy side has to
// allow.
func TestTheGatewayGoesOnForOldClients(t *testing.T) {
	text := strings.Replace(retiredSpec(t, "split-1.15-1.36.yaml"), "\nspec:\n", "\nspec:\n  gateway: {}\n", 1)
	p := plantest.Of(t, text)
	gateways := p.ComponentsOf("", plan.JointGateway)
	if len(gateways) == 0 || !p.Gateway.Serves() || len(p.Gateway.Component.Legacy.Rules) > 0 {
		t.Fatalf("%d gateways, %+v", len(gateways), p.Gateway)
	}
	for _, c := range gateways {
		_, legacy := c.Arg("legacy-kubeconfig")
		if _, modern := c.Arg("modern-kubeconfig"); legacy || !modern {
			t.Errorf("%s: with a kubeconfig of the legacy side %t, of the modern side %t", c.Host, legacy, modern)
		}
	}
	for _, k := range p.Kubeconfigs {
		if k.Component == plan.JointGateway && strings.Contains(k.Path, "legacy") {
			t.Errorf("%s leads to a side that is gone", k.Path)
		}
	}
	if r := p.Runtime(); !slices.Equal(r.RunningSides(), []pair.Side{pair.Modern}) {
		t.Errorf("the sides that run are %v", r.RunningSides())
	}
}

// TestTheModernSideRunsAlone: nothing of the legacy side runs, the modern one has all controllers, a scheduler, roles
// and the service kubernetes, and keeps its ports, its stores and its certificate.
func TestTheModernSideRunsAlone(t *testing.T) {
	const name = "split-1.15-1.36.yaml"
	text := retiredSpec(t, name)
	p := plantest.Of(t, text)
	fused := plantest.Of(t, strings.Replace(strings.Replace(text, "    retired: true\n", "", 1),
		"    scheduler: {}\n    version: 1.36.3", "    version: 1.36.3", 1))
	for _, c := range p.Components {
		if c.Side == pair.Legacy || plan.SeesBoth(c.Kind) {
			t.Errorf("%s runs", c.Name)
		}
	}
	if p.Joint != nil || p.PolicyFile != "" || len(p.Policy.Grants) > 0 || !p.Legacy.Retired {
		t.Errorf("joint %v, policy %q, %d grants, retired %t", p.Joint, p.PolicyFile, len(p.Policy.Grants),
			p.Legacy.Retired)
	}
	server := p.ComponentsOf(pair.Modern, kubever.APIServer)[0]
	for flag, want := range map[string]string{"authorization-mode": "Node,RBAC", "authorization-policy-file": "",
		"endpoint-reconciler-type": "", "feature-gates": "", "disable-admission-plugins": "",
		"enable-admission-plugins": "NodeRestriction"} {
		if value, _ := server.Arg(flag); value != want {
			t.Errorf("--%s=%s, want %q", flag, value, want)
		}
	}
	before := fused.ComponentsOf(pair.Modern, kubever.APIServer)[0]
	for _, flag := range []string{"etcd-servers", "etcd-servers-overrides", "service-cluster-ip-range", "secure-port",
		"tls-cert-file"} {
		was, _ := before.Arg(flag)
		if is, _ := server.Arg(flag); is != was || is == "" {
			t.Errorf("--%s=%s, and before %s", flag, is, was)
		}
	}
	if server.Liveness.Path != "/healthz" {
		t.Errorf("the probe is %+v", server.Liveness)
	}
	manager := p.ComponentsOf(pair.Modern, kubever.ControllerManager)[0]
	for flag, want := range map[string]string{"controllers": "*", "cluster-cidr": "10.244.0.0/16",
		"service-account-private-key-file": "/etc/kubernetes/pki/sa.key", "root-ca-file": "/etc/kubernetes/pki/ca.crt",
		"cluster-signing-key-file": "/etc/kubernetes/pki/ca.key", "use-service-account-credentials": "true"} {
		if value, _ := manager.Arg(flag); value != want {
			t.Errorf("--%s=%s, want %q", flag, value, want)
		}
	}
	scheduler := p.ComponentsOf(pair.Modern, kubever.Scheduler)
	if len(scheduler) != 1 || scheduler[0].Port == manager.Port || scheduler[0].Name != "kube-scheduler-modern" {
		t.Errorf("the schedulers are %+v", scheduler)
	}
	for _, c := range p.Controllers {
		fact, _ := kubever.ControllerByName(c.ID)
		if want := c.Side == pair.Modern && fact.DefaultOn(p.Modern.Version.Minor); c.On != want {
			t.Errorf("the %s %s: on %t, want %t", c.Side, c.ID, c.On, want)
		}
	}
	for i := range p.Resources {
		row, was := &p.Resources[i], fused.Resource(p.Resources[i].Key)
		switch {
		case row.Modern.Store != was.Modern.Store:
			t.Errorf("%s: the modern side has it in %q, and before in %q", row.Key, row.Modern.Store, was.Modern.Store)
		case was.VisibleToBoth() && (row.Legacy.Store != "" || row.Owner != pair.OwnerModern):
			t.Errorf("%s: is %s, and the legacy side has it in %q", row.Key, row.Owner, row.Legacy.Store)
		case !was.VisibleToBoth() && row.Legacy.Store != was.Legacy.Store:
			t.Errorf("%s: the legacy side has it in %q, and before in %q", row.Key, row.Legacy.Store, was.Legacy.Store)
		}
	}
	names := func(p *plan.Plan) (names []string) {
		for _, c := range p.Certificates {
			if c.Cert == "/etc/kubernetes/pki/modern/apiserver.crt" {
				names = slices.Concat(c.DNSNames, c.IPs)
			}
		}
		return names
	}
	if is, was := names(p), names(fused); !slices.Equal(is, was) || !slices.Contains(is, "10.96.0.1") {
		t.Errorf("the serving certificate is for %q, and before for %q", is, was)
	}
	m := p.Ownership()
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
}

// TestControllersThatTheLegacySideWasTold to run, and that the modern version does not run by itself, run on; so do
// its settings.
func TestControllersThatTheLegacySideWasTold(t *testing.T) {
	text := strings.Replace(retiredSpec(t, "split-1.15-1.36.yaml"), "controllerManager: {}", "controllerManager: "+
		"{extraArgs: [{name: controllers, value: '*,bootstrapsigner,tokencleaner,-ttl'}, {name: node-cidr-mask-size, "+
		"value: '26'}, {name: pod-eviction-timeout, value: 1m}]}", 1)
	p := plantest.Of(t, text)
	manager := p.ComponentsOf(pair.Modern, kubever.ControllerManager)[0]
	value, _ := manager.Arg("controllers")
	if value != "*,bootstrap-signer-controller,token-cleaner-controller" {
		t.Errorf("--controllers=%s", value)
	}
	if size, _ := manager.Arg("node-cidr-mask-size"); size != "26" {
		t.Errorf("--node-cidr-mask-size=%s", size)
	}
	if timeout, ok := manager.Arg("pod-eviction-timeout"); ok { // 1.36 has no such flag
		t.Errorf("--pod-eviction-timeout=%s", timeout)
	}
}

func TestWhatARetiredSpecNeeds(t *testing.T) {
	whole := retiredSpec(t, "split-1.15-1.36.yaml")
	for _, test := range []struct{ old, new, says string }{
		{"    scheduler: {}\n    version: 1.36.3", "    version: 1.36.3", "spec.modern.scheduler: is missing"},
		{", modern: {}}", "}", "spec.kubelet.modern: is missing"},
		{"roles.rbac.authorization.k8s.io, ", "", "want those of the legacy side copied"},
		{"    retired: true\n", "", "spec.modern.scheduler"},
		{"  modern:\n    scheduler: {}", "  modern:\n    retired: true\n    scheduler: {}",
			"only the legacy side may be retired"},
	} {
		text := strings.Replace(whole, test.old, test.new, 1)
		if text == whole {
			t.Fatalf("the spec has no %q", test.old)
		}
		f, err := spec.Load("spec.yaml", []byte(text))
		if err == nil {
			_, err = plan.New(f, plan.OnHosts)
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("without %q: %v, want %q", test.old, err, test.says)
		}
	}
	f, err := spec.Load("spec.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.New(f, plan.Hosted); err == nil || !strings.Contains(err.Error(), "spec.legacy.retired") {
		t.Errorf("as pods of a cluster: %v", err)
	}
}
