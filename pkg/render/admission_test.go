package render_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
)

// The API server of either form of the configuration presents the certificate to the webhook at its address, and to no
// other.
func TestAPIServersPresentACertificateToTheWebhook(t *testing.T) {
	const pods = "  pods: {}\n"
	for modern, want := range map[string][3]string{
		"1.10.13": {"apiserver.k8s.io/v1alpha1", "apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"},
		"1.36.3":  {"apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"},
	} {
		p := plantest.Of(t, admissionSpec(modern, "")+pods)
		files, err := render.Files(p, render.Options{Target: render.StaticPod})
		if err != nil {
			t.Fatal(err)
		}
		var admission struct {
			APIVersion, Kind string
			Plugins          []struct {
				Name          string
				Configuration struct{ APIVersion, Kind, KubeConfigFile string }
			}
		}
		read(t, files, "cp-1/etc/kubernetes/modern/admission.yaml", &admission)
		if len(admission.Plugins) != 1 || admission.Plugins[0].Name != "MutatingAdmissionWebhook" ||
			admission.Kind != "AdmissionConfiguration" {
			t.Fatalf("%s: %+v, want the plugin of mutating webhooks", modern, admission)
		}
		of := admission.Plugins[0].Configuration
		if got := [3]string{admission.APIVersion, of.APIVersion, of.Kind}; got != want {
			t.Errorf("%s: versions %v, want %v", modern, got, want)
		}
		var config struct {
			Users []struct {
				Name string
				User map[string]string
			}
			CurrentContext string `json:"current-context"`
		}
		read(t, files, "cp-1"+of.KubeConfigFile, &config)
		a := p.Pods.Admission
		if len(config.Users) != 1 || config.Users[0].Name != "127.0.0.1:10271" || config.CurrentContext != "" ||
			config.Users[0].User["client-certificate"] == "" {
			t.Errorf("%s: %+v, want one user, by the address of the webhook", modern, config)
		}
		issued := false
		for _, c := range p.Certificates {
			issued = issued || c.Cert == config.Users[0].User["client-certificate"] && c.CommonName == a.ClientName
		}
		if !issued {
			t.Errorf("%s: pki does not issue %s", modern, config.Users[0].User["client-certificate"])
		}
		if c := p.ComponentsOf("", plan.JointControllers)[0]; a.ClientName == "" ||
			!has(c, "webhook-client-name", a.ClientName) || !has(c, "webhook-client-ca", a.ClientCA) {
			t.Errorf("%s: the controllers are started without the name of their client", modern)
		}
	}
	own := plantest.Of(t, admissionSpec("1.36.3", "extraArgs: [{name: admission-control-config-file, value: "+
		"/etc/own.yaml}]")+pods)
	files, err := render.Files(own, render.Options{Target: render.StaticPod})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Path, "/admission.yaml") || strings.HasSuffix(f.Path, "/pods-webhook.conf") {
			t.Errorf("%s is rendered beside a configuration of the spec", f.Path)
		}
	}
	if own.Pods.Admission.ClientName != "" {
		t.Error("the webhook wants a certificate that the spec's configuration may not have")
	}
}

func has(c plan.Component, name, value string) bool {
	got, _ := c.Arg(name)
	return got == value
}

func read(t *testing.T, files []render.File, path string, into any) {
	t.Helper()
	for _, f := range files {
		if f.Path == path {
			if err := yaml.Unmarshal(f.Data, into); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			return
		}
	}
	t.Fatalf("%s is not rendered", path)
}

func admissionSpec(modern, server string) string {
	return `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: admission}
spec:
  layout: split
  hosts: [{name: cp-1, address: 10.0.0.11}]
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"]}
  legacy: {version: 1.6.13, apiServer: {}, controllerManager: {}}
  modern: {version: ` + modern + `, apiServer: {` + server + `}, controllerManager: {}}
  access: [{subjects: [{kind: Group, name: developers}], apiGroups: [""], resources: [pods]}]
`
}
