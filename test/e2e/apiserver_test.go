//go:build e2e

package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// One client asks servers of every age: 1.6 refuses the forms of today, 1.10 does not know them, 1.36 has them.
func TestOneClientForServersOfEveryAge(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		minor := release.Minor
		t.Run(minor.String(), func(t *testing.T) {
			r := rig.New(t)
			server := r.StartAPIServer("apiserver", minor, r.APIServerArgs(minor, r.StartEtcd("core")))
			server.WaitReady()
			must(t, server.Client("admin", "system:masters").Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
				object{"metadata": object{"name": "demo"}}, nil))
			client, err := apiserver.New(server.RESTConfig("reader", "system:masters"), apiserver.Options{QPS: -1})
			must(t, err)
			askServer(t, client, minor)
			askForConversions(t, r, server)
		})
	}
}

// askServer makes each kind of request that the client has.
func askServer(t *testing.T, client *apiserver.Server, minor kubever.Minor) {
	identity, err := client.Identify(t.Context(), false)
	must(t, err)
	if identity.Version.Minor != minor || identity.Date.IsZero() {
		t.Errorf("the server is %+v, want %s", identity, minor)
	}
	served, err := client.Discover(t.Context())
	must(t, err)
	if err := served.Gaps(); err != nil {
		t.Errorf("discovery is incomplete: %v", err)
	}
	for _, api := range kubever.APIResources(minor) {
		if api.DefaultOn.Has(minor) && served.State(api.GroupVersion) != discovery.Served {
			t.Errorf("%s is not found", api.GroupVersion)
		}
	}
	if absent := (schema.GroupVersion{Group: "absent.test", Version: "v1"}); served.State(absent) != discovery.Absent {
		t.Errorf("%s is %d", absent, served.State(absent))
	}
	for _, resource := range served.Resources {
		if !resource.Can("list") {
			continue
		}
		for _, metadata := range []bool{false, true} {
			for _, err := range client.List(t.Context(), resource.Objects(""),
				discovery.ListOptions{Metadata: metadata, Limit: 1}) {
				if err != nil {
					t.Errorf("listing %s of %s, metadata alone %v: %v", resource, resource.GroupVersion, metadata, err)
				}
			}
		}
	}
	namespaces := served.Named(schema.GroupResource{Resource: "namespaces"})[0]
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { return client.Read(t.Context(), namespaces.Object("", "demo")) },
		func() ([]byte, error) { return client.ReadMetadata(t.Context(), namespaces.Object("", "demo")) },
	} {
		if text, err := read(); err != nil || !strings.Contains(string(text), `"demo"`) {
			t.Errorf("reading a namespace: %s, %v", text, err)
		}
	}
	pods := served.Named(schema.GroupResource{Resource: "pods"})[0]
	unserved := discovery.Resource{GroupVersion: schema.GroupVersion{Group: "absent.test", Version: "v1"},
		Name: "widgets", Namespaced: true}
	for what, test := range map[string]struct {
		at   discovery.Path
		want error
	}{
		"an absent object":    {pods.Object("demo", "web"), discovery.ErrNotFound},
		"an absent namespace": {namespaces.Object("", "none"), discovery.ErrNotFound},
		"an unserved kind":    {unserved.Object("demo", "web"), discovery.ErrNotServed},
		"an unserved page":    {discovery.Page("none"), discovery.ErrNotServed},
		"an impossible name":  {pods.Object("demo", "../../x"), discovery.ErrInvalidPath},
	} {
		if _, err := client.Read(t.Context(), test.at); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
	watchNamespaces(t, client, namespaces)
}

// watchNamespaces sees a namespace come.
func watchNamespaces(t *testing.T, client *apiserver.Server, namespaces discovery.Resource) {
	meta, err := client.ReadPage(t.Context(), namespaces.Objects(""), discovery.ListOptions{}, nil, func([]byte) error {
		return nil
	})
	must(t, err)
	events, err := client.Watch(t.Context(), namespaces.Objects(""),
		apiserver.WatchOptions{ResourceVersion: meta.ResourceVersion})
	must(t, err)
	defer events.Close()
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"watched"}}`)
	_, err = client.Send(t.Context(), apiserver.Write{Verb: http.MethodPost, Path: namespaces.Objects(""), Body: body})
	must(t, err)
	for {
		event, err := events.Next()
		must(t, err)
		if strings.Contains(string(event.Object), `"watched"`) {
			return
		}
	}
}

// askForConversions asks by the command line: discovery decides what is converted to what.
func askForConversions(t *testing.T, r *rig.Rig, server *rig.APIServer) {
	kubeconfig, err := r.PKI.Kubeconfig("convert", server.URL, "admin", "system:masters")
	must(t, err)
	manifest := filepath.Join(t.TempDir(), "deployment.yaml")
	must(t, os.WriteFile(manifest, []byte(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: demo}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "example.test/web:1"}]}
`), 0o600))
	want := "apiVersion: apps/v1\n"
	if server.Minor == 6 {
		want = "apiVersion: apps/v1beta1\n"
	}
	if out := runFusionctl(t, 0, "convert", "-f", manifest, "--for-server", kubeconfig); !strings.Contains(out, want) {
		t.Errorf("convert --for-server of a %s server:\n%s\nwant %s", server.Minor, out, want)
	}
	runFusionctl(t, 0, "convert", "check", "--kubeconfig", kubeconfig, "--for", "1.36")
}
