package render

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
)

// hostedObjects are the objects of a hosted tree, decoded as strictly as an API server that is asked to.
type hostedObjects struct {
	templates  map[string]corev1.PodTemplateSpec
	services   map[string]corev1.Service
	configMaps map[string]corev1.ConfigMap
	claims     map[string]int
	budgets    map[string]policyv1.PodDisruptionBudget
	namespaces int
}

func decodeHosted(t *testing.T, files []File) hostedObjects {
	t.Helper()
	o := hostedObjects{map[string]corev1.PodTemplateSpec{}, map[string]corev1.Service{}, map[string]corev1.ConfigMap{},
		map[string]int{}, map[string]policyv1.PodDisruptionBudget{}, 0}
	for _, f := range files {
		if !strings.HasPrefix(f.Path, hostedName+"/") {
			continue
		}
		for _, document := range bytes.Split(f.Data, []byte("\n---\n")) {
			var kind struct {
				Kind string `json:"kind"`
			}
			if err := yaml.Unmarshal(document, &kind); err != nil {
				t.Fatal(err)
			}
			var err error
			switch kind.Kind {
			case "Namespace":
				err = yaml.UnmarshalStrict(document, &corev1.Namespace{})
				o.namespaces++
			case "Service":
				var s corev1.Service
				err = yaml.UnmarshalStrict(document, &s)
				o.services[s.Name] = s
			case "ConfigMap":
				var c corev1.ConfigMap
				err = yaml.UnmarshalStrict(document, &c)
				o.configMaps[c.Name] = c
			case "PodDisruptionBudget":
				var b policyv1.PodDisruptionBudget
				err = yaml.UnmarshalStrict(document, &b)
				o.budgets[b.Name] = b
			case "Deployment":
				var d appsv1.Deployment
				err = yaml.UnmarshalStrict(document, &d)
				o.templates[d.Name] = d.Spec.Template
			case "StatefulSet":
				var s appsv1.StatefulSet
				err = yaml.UnmarshalStrict(document, &s)
				o.templates[s.Name] = s.Spec.Template
				o.claims[s.Name] = len(s.Spec.VolumeClaimTemplates)
			default:
				t.Errorf("%s holds a %s", f.Path, kind.Kind)
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", f.Path, err, document)
			}
		}
	}
	return o
}

func renderHosted(t *testing.T, p *plan.Plan) ([]File, hostedObjects) {
	t.Helper()
	files, err := Files(p, Options{Target: Hosted})
	if err != nil {
		t.Fatal(err)
	}
	return files, decodeHosted(t, files)
}

func TestHostedRunsWhatThePlanSays(t *testing.T) {
	for name, p := range examplesFor(t, Hosted) {
		_, o := renderHosted(t, p)
		wanted := 0
		for _, c := range p.Components {
			if c.Host != hostedName {
				continue
			}
			wanted++
			template, ok := o.templates[c.Name]
			if !ok {
				t.Errorf("%s: nothing runs %s", name, c.Name)
				continue
			}
			args := template.Spec.Containers[0].Args
			if len(args) != len(c.Args) {
				t.Errorf("%s: %s has %d arguments, want %d", name, c.Name, len(args), len(c.Args))
			}
			for i, a := range c.Args {
				if a.Origin == plan.FromSpec && !strings.HasPrefix(a.Name, "etcd-servers") && args[i] != a.String() {
					t.Errorf("%s: %s: the spec's %s became %s", name, c.Name, a, args[i])
				}
				if !strings.HasPrefix(args[i], "--"+a.Name+"=") {
					t.Errorf("%s: %s: argument %d is %s, want --%s", name, c.Name, i, args[i], a.Name)
				}
			}
		}
		if len(o.templates) != wanted || o.namespaces != 1 {
			t.Errorf("%s: %d workloads and %d namespaces, want %d and 1", name, len(o.templates), o.namespaces, wanted)
		}
	}
}

// A pod is at no address of a host, and nothing of it is asked there.
func TestHostedArgumentsNameNoHost(t *testing.T) {
	p := examplesFor(t, Hosted)["ha-three-hosts-1.15-1.36"]
	_, o := renderHosted(t, p)
	for name, template := range o.templates {
		for _, arg := range template.Spec.Containers[0].Args {
			for _, h := range p.Hosts {
				if strings.Contains(arg, h.Address) {
					t.Errorf("%s: %s", name, arg)
				}
			}
		}
		for _, probe := range []*corev1.Probe{template.Spec.Containers[0].LivenessProbe,
			template.Spec.Containers[0].ReadinessProbe} {
			if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Host != "" {
				t.Errorf("%s: a probe asks %s", name, probe.HTTPGet.Host)
			}
		}
	}
	server := o.templates["kube-apiserver-modern"].Spec.Containers[0].Args
	for _, want := range []string{
		"--etcd-servers=https://etcd-modern-0.etcd-modern.ha.svc:2479," +
			"https://etcd-modern-1.etcd-modern.ha.svc:2479,https://etcd-modern-2.etcd-modern.ha.svc:2479",
		"--advertise-address=$(POD_IP)",
	} {
		if !slices.Contains(server, want) {
			t.Errorf("kube-apiserver-modern lacks %s", want)
		}
	}
	if got := o.configMaps["kube-controller-manager-modern"].Data["kubeconfig"]; !strings.Contains(
		got, "server: https://kube-apiserver-modern.ha.svc:7443\n") {
		t.Errorf("the controller manager asks\n%s", got)
	}
}

// Every file that an argument or a kubeconfig names is there under its path, from the component's own Secret or
// ConfigMap.
func TestHostedPodsFindTheirFiles(t *testing.T) {
	for name, p := range examplesFor(t, Hosted) {
		files, o := renderHosted(t, p)
		commands := strings.Join(commandsOf(t, string(find(files, RunbookFile).Data)), "\n")
		components := hostedComponents(p)
		for i := range components {
			c := &components[i]
			template := o.templates[c.Name]
			provided := providedFiles(t, c, template, o, commands)
			for _, f := range secretFiles(p, c) {
				if !slices.Contains(provided, f.Path) {
					t.Errorf("%s: %s: nothing provides %s", name, c.Name, f.Path)
				}
			}
			for _, k := range p.Kubeconfigs {
				if k.Component == c.Name && !slices.Contains(provided, k.Path) {
					t.Errorf("%s: %s: nothing provides its kubeconfig %s", name, c.Name, k.Path)
				}
			}
			for _, a := range c.Args {
				if strings.HasSuffix(a.Name, "-file") && strings.HasPrefix(a.Value, "/") &&
					!slices.Contains(provided, a.Value) {
					t.Errorf("%s: %s: nothing provides %s", name, c.Name, a)
				}
			}
		}
	}
}

// providedFiles are the paths at which a pod finds files of Secrets and ConfigMaps; the Secrets must be made by the
// runbook, with the key.
func providedFiles(t *testing.T, c *plan.Component, template corev1.PodTemplateSpec, o hostedObjects,
	commands string) []string {
	t.Helper()
	var provided []string
	for _, m := range template.Spec.Containers[0].VolumeMounts {
		at := slices.IndexFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if at < 0 {
			if o.claims[c.Name] == 0 {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
			continue
		}
		volume := template.Spec.Volumes[at]
		if volume.Secret != nil && !strings.Contains(commands, "create secret generic "+volume.Secret.SecretName+" ") {
			t.Errorf("%s: the runbook does not make Secret %s", c.Name, volume.Secret.SecretName)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				for _, item := range source.Secret.Items {
					made := regexp.MustCompile("create secret generic " + source.Secret.Name + ` .*--from-file='?` +
						regexp.QuoteMeta(item.Key) + "=")
					if !made.MatchString(commands) {
						t.Errorf("%s: the runbook does not put %s into Secret %s", c.Name, item.Key, source.Secret.Name)
					}
					provided = append(provided, m.MountPath+"/"+item.Path)
				}
			}
			if source.ConfigMap != nil {
				for _, item := range source.ConfigMap.Items {
					if o.configMaps[source.ConfigMap.Name].Data[item.Key] == "" {
						t.Errorf("%s: ConfigMap %s has no %s", c.Name, source.ConfigMap.Name, item.Key)
					}
					provided = append(provided, m.MountPath+"/"+item.Path)
				}
			}
		}
	}
	return provided
}

// A pod has the files that its arguments name and no others: the key of the cluster's CA is not the API server's.
func TestHostedPodsHaveOnlyTheirOwnFiles(t *testing.T) {
	h := examplesFor(t, Hosted)["split-1.15-1.36"]
	for i := range h.Components {
		c := &h.Components[i]
		for _, f := range secretFiles(h, c) {
			named := slices.ContainsFunc(c.Args, func(a plan.Arg) bool { return a.Value == f.Path })
			for _, k := range h.Kubeconfigs {
				named = named || k.Component == c.Name && slices.Contains([]string{k.CA, k.Cert, k.Key}, f.Path)
			}
			if !named {
				t.Errorf("%s has %s", c.Name, f.Path)
			}
			if c.Kind == kubever.APIServer && f.Path == h.PKI.CAKey {
				t.Errorf("%s has the key of the CA", c.Name)
			}
		}
	}
}

func TestHostedCertificatesHaveTheNamesThatAreAsked(t *testing.T) {
	p := examplesFor(t, Hosted)["ha-three-hosts-1.15-1.36"]
	for _, c := range p.Certificates {
		for _, host := range p.Hosts {
			if slices.Contains(c.IPs, host.Address) || slices.Contains(c.DNSNames, host.Name) {
				t.Errorf("%s names host %s", c.Cert, host.Name)
			}
		}
		var want []string
		switch c.Cert {
		case "/etc/kubernetes/pki/modern/apiserver.crt":
			want = []string{"kubernetes.default.svc", "kube-apiserver-modern.ha.svc", "localhost"}
		case "/etc/kubernetes/pki/etcd-modern/server.crt", "/etc/kubernetes/pki/etcd-modern/peer.crt":
			want = []string{"etcd-modern-0.etcd-modern.ha.svc", "etcd-modern-2.etcd-modern.ha.svc"}
		}
		for _, name := range want {
			if !slices.Contains(c.DNSNames, name) {
				t.Errorf("%s lacks %s: %q", c.Cert, name, c.DNSNames)
			}
		}
	}
}

func TestSecretKeysAreDistinct(t *testing.T) {
	h := examplesFor(t, Hosted)["split-1.15-1.36"]
	c := &h.Components[0]
	c.Args, c.Mounts = nil, []plan.Mount{{Name: "pki", Path: "/pki", ReadOnly: true, Directory: true}}
	for _, file := range []string{"/pki/ca.crt", "/pki/a/ca.crt", "/pki/b/a/ca.crt", "/pki/a b/ca.crt", "/pki/ä/ca.crt",
		"/pki/ö/ca.crt"} {
		c.Args = append(c.Args, plan.Arg{Name: "trusted-ca-file", Value: file})
	}
	valid := regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
	seen := map[string]bool{}
	for _, f := range secretFiles(h, c) {
		if seen[f.Key] || !valid.MatchString(f.Key) {
			t.Errorf("key %q of %s", f.Key, f.Path)
		}
		seen[f.Key] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d keys, want 6", len(seen))
	}
}

func TestChecksumIsOfWhatServersRead(t *testing.T) {
	of := func(policy string) string { return checksum([]configText{{policyKey, "/policy", policy}}) }
	if of("# why\n{}\n") != of("# because\n{}\n") {
		t.Error("another comment changes the checksum, so that pods restart")
	}
	if of("# why\n{}\n") == of("# why\n{} \n") {
		t.Error("another line does not change the checksum")
	}
}

// TestADrainLeavesAServerAndAMajority: of three pods one at a time is evicted; one pod alone does not keep its node
// from being drained. Every pod of a component is spread over zones.
func TestADrainLeavesAServerAndAMajority(t *testing.T) {
	for name, p := range examplesFor(t, Hosted) {
		_, o := renderHosted(t, p)
		for _, c := range hostedComponents(p) {
			b, found := o.budgets[c.Name]
			if want := len(p.Hosts) > 1 && (c.Kind == plan.Etcd || c.Kind == kubever.APIServer ||
				c.Kind == plan.JointGateway); found != want {
				t.Errorf("%s: %s has a disruption budget: %v, want %v", name, c.Name, found, want)
			}
			template := o.templates[c.Name]
			if found && (b.Spec.MaxUnavailable.IntValue() != 1 ||
				!maps.Equal(b.Spec.Selector.MatchLabels, map[string]string{componentLabel: c.Name})) {
				t.Errorf("%s: %s: %+v", name, c.Name, b.Spec)
			}
			spread := template.Spec.TopologySpreadConstraints
			if len(spread) != 1 || !maps.Equal(spread[0].LabelSelector.MatchLabels,
				map[string]string{componentLabel: c.Name}) || template.Labels[componentLabel] != c.Name {
				t.Errorf("%s: %s is spread by %+v", name, c.Name, spread)
			}
		}
	}
}

// TestServicesAreOfTheTypeOfTheSpec: a load balancer is where the spec wants one alone, and the certificate is for its
// name.
func TestServicesAreOfTheTypeOfTheSpec(t *testing.T) {
	text, err := os.ReadFile("../../examples/hosted-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := spec.Load("hosted.yaml", bytes.Replace(text, []byte("  modern:\n    version: 1.36.3\n    apiServer: {}"),
		[]byte("  modern:\n    version: 1.36.3\n    apiServer: {service: LoadBalancer, certSANs: [kube.example.com, "+
			"192.0.2.7]}"), 1))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.Hosted)
	if err != nil {
		t.Fatal(err)
	}
	_, o := renderHosted(t, p)
	for name, s := range o.services {
		want := corev1.ServiceType("")
		if name == "kube-apiserver-modern" {
			want = corev1.ServiceTypeLoadBalancer
		}
		if s.Spec.Type != want {
			t.Errorf("%s is of type %q, want %q", name, s.Spec.Type, want)
		}
	}
	for _, c := range p.Certificates {
		want := c.Cert == f.Spec.Modern.APIServer.Cert
		if slices.Contains(c.DNSNames, "kube.example.com") != want || slices.Contains(c.IPs, "192.0.2.7") != want {
			t.Errorf("%s is for %q and %q", c.Cert, c.DNSNames, c.IPs)
		}
	}
	if len(o.services) != 4 {
		t.Errorf("%d services", len(o.services))
	}
}

// TestWhatSeesBothSidesRunsAsPods: the controllers keep what they remember of the stores when their pods are replaced,
// the gateway is reached by a name that its certificate has, and both ask the Services of the API servers.
func TestWhatSeesBothSidesRunsAsPods(t *testing.T) {
	p := seesBoth(t)
	files, o := renderHosted(t, p)
	controllers := o.templates[plan.JointControllers].Spec.Containers
	if len(controllers) != 1 || o.claims[plan.JointControllers] != 1 {
		t.Fatalf("%d containers, %d claims", len(controllers), o.claims[plan.JointControllers])
	}
	state := slices.IndexFunc(controllers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == dataVolume && slices.Contains(controllers[0].Args, "--state-dir="+m.MountPath)
	})
	if state < 0 {
		t.Errorf("the claim is not what --state-dir names: %+v", controllers[0].VolumeMounts)
	}
	probe := controllers[0].ReadinessProbe
	at := fmt.Sprintf("--health-listen=0.0.0.0:%d", probe.HTTPGet.Port.IntValue())
	if probe.HTTPGet.Path != "/healthz" || !slices.Contains(controllers[0].Args, at) ||
		!slices.Contains(controllers[0].Args, "--listen=") {
		t.Errorf("the kubelet asks %+v of %q", probe.HTTPGet, controllers[0].Args)
	}
	if name := "fusionctl-gateway.hosted.svc"; o.services[plan.JointGateway].Spec.Ports[0].Port != 8443 ||
		p.Gateway.Component.Server != "https://"+name+":8443" {
		t.Errorf("the gateway is %s, its Service %+v", p.Gateway.Component.Server, o.services[plan.JointGateway].Spec)
	} else if at := slices.IndexFunc(p.Certificates, func(c plan.Certificate) bool {
		return slices.Contains(o.templates[plan.JointGateway].Spec.Containers[0].Args, "--tls-cert="+c.Cert)
	}); at < 0 || !slices.Contains(p.Certificates[at].DNSNames, name) {
		t.Errorf("no certificate of the gateway has the name %s", name)
	}
	for component, prefix := range map[string]string{plan.JointControllers: "controllers",
		plan.JointGateway: "gateway"} {
		for side, server := range map[string]string{"legacy": "https://kube-apiserver.hosted.svc:6443",
			"modern": "https://kube-apiserver-modern.hosted.svc:7443"} {
			if text := o.configMaps[component].Data[prefix+"-"+side+".conf"]; !strings.Contains(text, server+"\n") {
				t.Errorf("%s reaches the %s side by\n%s", component, side, text)
			}
		}
		read, err := plan.ParseRuntime([]byte(o.configMaps[component].Data[planKey]))
		if err != nil || read.Name != "hosted" || (read.Gateway != nil) != (component == plan.JointGateway) {
			t.Errorf("the plan of %s: %+v, %v", component, read, err)
		}
	}
	book := string(find(files, RunbookFile).Data)
	for _, want := range []string{"## 7. ", "## 8. ", "Undo step 8, then 7", "kubefusion.dev/both-sides",
		"legacy apply -f legacy-access.yaml"} {
		if !strings.Contains(book, want) {
			t.Errorf("the runbook has no %q", want)
		}
	}
}
