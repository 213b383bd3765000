package adopt

import (
	"fmt"
	"regexp"
)

// form is a file from which an installer makes a control plane, and that does not say with which arguments it runs.
type form struct {
	pattern *regexp.Regexp
	what    string
	want    string
}

// terraform is a file that Terraform reads, whether the arguments are in it or not.
var terraform = regexp.MustCompile(`(?m)^(resource|module|data|locals|variable|provider|output)\s*("[^"]*"\s*)*\{`)

const (
	wantManifests = "want /etc/kubernetes/manifests of a host of the control plane, or its static pods as " +
		"kubectl -n kube-system get pods -o yaml prints them"
	wantContainers = "want what docker inspect kube-apiserver kube-controller-manager kube-scheduler prints on a " +
		"host of the control plane"
	wantProcesses = "want the components as they run on a host of the control plane: ps -ww -eo args > FILE"
)

// forms are looked for in files that start nothing, in this order.
var forms = []form{
	{regexp.MustCompile(`(?m)^apiVersion:\s*"?kops(\.k8s\.io)?/`), "a spec of kops", wantManifests},
	{regexp.MustCompile(`cluster_spec\.yaml|NODEUP_URL|nodeup/`), "user data of kops, whose nodeup writes the manifests",
		wantManifests},
	{regexp.MustCompile(`(?m)^apiVersion:\s*"?kubeadm\.k8s\.io/`), "a configuration of kubeadm", wantManifests},
	{regexp.MustCompile(`(?m)^apiVersion:\s*"?k0s\.k0sproject\.io/`), "a configuration of k0s", wantProcesses},
	{regexp.MustCompile(`(?m)^version:\s*v1alpha1\s*$[\s\S]*^machine:`), "a machine configuration of Talos",
		"want its static pods as kubectl -n kube-system get pods -o yaml prints them"},
	{regexp.MustCompile(`(?m)^nodes:[\s\S]*\brole:[\s\S]*\bcontrolplane\b`), "a cluster file of RKE", wantContainers},
	{regexp.MustCompile(`"(desired|current)State"\s*:\s*\{[\s\S]*"rkeConfig"|"rkeConfig"`), "a state file of RKE",
		wantContainers},
	{regexp.MustCompile(`"orchestratorType"\s*:\s*"Kubernetes"`), "an API model of acs-engine or aks-engine",
		wantManifests},
	{regexp.MustCompile(`(?m)^hosts:[\s\S]*\brole:\s*"?master\b`), "a cluster file of Pharos", wantManifests},
	{regexp.MustCompile(`(?m)^(KUBE_APISERVER_REQUEST_TIMEOUT|KUBE_MANIFESTS_TAR_URL|SERVER_BINARY_TAR_URL):`),
		"a kube-env of Google's kube-up", wantManifests},
	{regexp.MustCompile(`(?m)^kubeAPIServer:|^(clusterName|keyName):[\s\S]*^hostedZoneId:`),
		"a cluster file of kube-aws or a part of one of kops", wantManifests},
	{regexp.MustCompile(`(?m)^\s*job\s+"[^"]*"\s*\{`), "a job of Nomad", "want what nomad job inspect prints of it"},
	{regexp.MustCompile(`(?im)^start on [\s\S]*apiserver|apiserver[\s\S]*^start on `), "a job of upstart", wantProcesses},
	{regexp.MustCompile(`(?m)^\s*KUBE_[A-Z_]+=.*--etcd[-_]servers`), "the environment of a unit",
		"want the unit that reads it too, such as kube-apiserver.service, beside it"},
}

// known says what a file that starts nothing is, and what is wanted in its place; nil for one that no form fits.
func known(name string, text []byte) error {
	if terraform.Match(text) {
		return fmt.Errorf("%s: is a file of Terraform, which computes what it writes; %s", name, wantManifests)
	}
	for _, f := range forms {
		if f.pattern.Match(text) {
			return fmt.Errorf("%s: is %s, and does not contain the arguments of the components; %s", name, f.what,
				f.want)
		}
	}
	return nil
}
