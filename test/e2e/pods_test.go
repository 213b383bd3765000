//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pki"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// podsAccess is what the policy lets the pods' account do, beside what the tests do as others.
const podsAccess = access +
	`  - {subjects: [{kind: ServiceAccount, namespace: demo, name: operator}], apiGroups: [example.test], resources: [widgets], namespaces: [demo]}
  - {subjects: [{kind: ServiceAccount, namespace: demo, name: operator}], apiGroups: ["", events.k8s.io], resources: [configmaps, events], namespaces: [demo]}
`

// reconcilerEnv names the controller to tests in a sandbox.
const reconcilerEnv = "FUSIONCTL_E2E_RECONCILER"

// reconciler builds the controller of ./reconciler once for all tests.
var reconciler = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(reconcilerEnv); program != "" {
		return program, nil
	}
	dir, err := programDir("fusionctl-reconciler-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "reconciler")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = "reconciler"
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // it runs in a root of its own
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the reconciler: %w\n%s", err, out)
	}
	return path, nil
})

// TestPods: pods that are created through the modern API server are read through the legacy one, as a kubelet reads
// them, and what it would start from them finds the modern API server and is known to it.
func TestPods(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		legacy, modern, unknownFields string
		tokens                        plan.Tokens
		by                            plan.AdmissionBy
	}{
		{"1.6.13", "1.36.3", "warn", plan.TokensSecret, plan.ByWebhook},
		{"1.10.13", "1.36.3", "refuse", plan.TokensSecret, plan.ByWebhook},
		{"1.15.12", "1.36.3", "ignore", plan.TokensProjected, plan.ByPolicy},
		{"1.6.13", "1.10.13", "warn", plan.TokensSecret, plan.ByWebhook},
	} {
		t.Run(test.legacy+" "+test.modern, func(t *testing.T) {
			t.Parallel()
			f := startPods(t, test.legacy, test.modern, test.unknownFields)
			if p := f.Plan.Pods; p.Tokens != test.tokens || p.Admission.By != test.by {
				t.Fatalf("tokens %s, admission by %s: want %s, %s", p.Tokens, p.Admission.By, test.tokens, test.by)
			}
			f.service()
			f.workloads()
			f.updates()
			f.dryRun()
			f.unknownFields(test.unknownFields)
			f.account()
			f.reconciler()
			claims := []string{
				"pods of Deployments, StatefulSets, Jobs, CronJobs and of users, created through the modern API " +
					"server and read through the legacy one as by a kubelet, have the address of the modern API " +
					"server and a token that the kubelet can mount",
				"that token is accepted by the modern API server for what the policy allows, and refused for the rest",
				"a controller of controller-runtime with exactly the environment and files of such a pod reconciles " +
					"a custom resource",
			}
			if test.by == plan.ByWebhook {
				f.outages()
				f.many()
				claims = append(claims, "with the webhook gone, hung or started again, and with its certificate "+
					"replaced, no pod is made that was not changed; 500 pods at once are; the webhook serves the API "+
					"server alone, which presents the rendered certificate")
			}
			f.goodPods("cronjob") // a schedule takes a minute
			proved(t, spec.LayoutSplit, test.legacy, test.modern, claims...)
		})
	}
}

// podsPair is a pair whose pods are changed.
type podsPair struct {
	*rig.Rig
	*rig.Pair
	t           *testing.T
	admin, user *rig.Client
	controllers *rig.Process
	health      string
	proxy       string // stands for the network of a node
	webhook     string // address
}

func startPods(t *testing.T, legacy, modern, unknownFields string) *podsPair {
	t.Helper()
	f := &podsPair{Rig: rig.New(t), t: t}
	port := f.Port()
	f.Pair = f.StartPair(
		rig.PairSpec{Layout: spec.LayoutSplit, Legacy: legacy, Modern: modern, ControllersArgs: []string{"qps=400"},
			More: podsAccess + fmt.Sprintf("  pods: {unknownFields: %s, admission: {port: %d}}\n", unknownFields,
				port)})
	binary, err := fusionctl()
	must(t, err)
	f.admin, f.user = f.Legacy.Client("admin", "system:masters"), f.Modern.Client("alice", "developers")
	f.proxy = f.nodeNetwork()
	f.webhook = fmt.Sprintf("127.0.0.1:%d", port)
	f.controllers, f.health = f.StartControllers(binary, "HTTPS_PROXY="+f.proxy)
	f.await()
	must(t, f.admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "demo"}},
		nil))
	must(t, f.admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/serviceaccounts",
		object{"metadata": object{"name": "operator"}}, nil))
	awaitServiceAccount(f.Rig, f.admin)
	return f
}

// await waits until pods are changed.
func (f *podsPair) await() {
	f.t.Helper()
	modern := f.Modern.Client("fusionctl-controllers")
	group := "/apis/admissionregistration.k8s.io/" + f.registrationVersion()
	f.controllers.Wait("register", func(ctx context.Context) error {
		if f.Plan.Pods.Admission.By == plan.ByPolicy {
			return modern.Call(ctx, http.MethodGet, group+"/mutatingadmissionpolicybindings/pods.pods.kubefusion.dev",
				nil, nil)
		}
		return modern.Call(ctx, http.MethodGet, group+"/mutatingwebhookconfigurations/pods.kubefusion.dev", nil, nil)
	})
	f.controllers.Wait("act", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.health+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("readyz answers %s", response.Status)
			}
		}
		return err
	})
	// A server takes a moment to know of a registration, and of several policies it knows one after the other.
	type labelled struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			Template struct {
				Metadata struct{ Labels map[string]string }
			}
		}
	}
	probe := func(path string, body object, labels func(labelled) map[string]string) {
		f.Eventually("changed: "+path, func(ctx context.Context) error {
			var made labelled
			if err := f.user.Call(ctx, http.MethodPost, path, body, &made); err != nil {
				return err
			}
			if labels(made)["kubefusion.dev/side"] == "modern" {
				return nil
			}
			options := object{"gracePeriodSeconds": 0}
			if err := f.user.Call(ctx, http.MethodDelete, path+"/probe", options, nil); err != nil {
				return err
			}
			return fmt.Errorf("made without a label: %w", errNotYet)
		})
	}
	probe("/api/v1/namespaces/default/pods", object{"metadata": object{"name": "probe"}, "spec": podSpec()},
		func(made labelled) map[string]string { return made.Metadata.Labels })
	probe("/apis/"+f.version("deployments")+"/namespaces/default/deployments",
		object{"metadata": object{"name": "probe"}, "spec": object{"replicas": 0,
			"selector": object{"matchLabels": object{"workload": "probe"}},
			"template": object{"metadata": object{"labels": object{"workload": "probe"}}, "spec": podSpec()}}},
		func(made labelled) map[string]string { return made.Spec.Template.Metadata.Labels })
}

func (f *podsPair) registrationVersion() string {
	if slices.ContainsFunc(kubever.APIResources(f.Plan.Modern.Version.Minor), func(a kubever.APIResource) bool {
		return a.Name == "mutatingwebhookconfigurations" && a.GroupVersion.Version == "v1" &&
			a.DefaultOn.Has(f.Plan.Modern.Version.Minor)
	}) {
		return "v1"
	}
	return "v1beta1"
}

// nodeNetwork is a proxy that leads as the service proxy of a node does: from the address of a service to one of its
// endpoints, both as the legacy API server says. The address that the API servers advertise is nobody's on this
// machine; it stands for loopback.
func (f *podsPair) nodeNetwork() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(f.t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "want CONNECT", http.StatusMethodNotAllowed)
			return
		}
		target, err := f.backend(r.Context(), r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", target)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		done := make(chan struct{}, 2)
		go func() { _, _ = io.Copy(to, buffered); done <- struct{}{} }()
		go func() { _, _ = io.Copy(from, to); done <- struct{}{} }()
		<-done
	})}
	go func() { _ = server.Serve(listener) }()
	f.t.Cleanup(func() { server.Close() })
	return "http://" + listener.Addr().String()
}

// backend is where a connection to an address goes.
func (f *podsPair) backend(ctx context.Context, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if host == f.Plan.Hosts[0].Address {
		return net.JoinHostPort("127.0.0.1", port), nil
	}
	var services struct {
		Items []struct {
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				ClusterIP string
				Ports     []struct {
					Name string
					Port int
				}
			}
		}
	}
	if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/services", nil, &services); err != nil {
		return "", err
	}
	for _, s := range services.Items {
		for _, p := range s.Spec.Ports {
			if s.Spec.ClusterIP != host || fmt.Sprint(p.Port) != port {
				continue
			}
			endpoints, err := f.endpoints(ctx, f.admin, s.Metadata.Namespace, s.Metadata.Name)
			if err != nil {
				return "", err
			}
			for _, subset := range endpoints.Subsets {
				for _, of := range subset.Ports {
					if of.Name == p.Name && len(subset.Addresses) > 0 {
						return f.backend(ctx, net.JoinHostPort(subset.Addresses[0].IP, fmt.Sprint(of.Port)))
					}
				}
			}
		}
	}
	return "", fmt.Errorf("%s: no service has this address and an endpoint", address)
}

type seenEndpoints struct {
	Subsets []struct {
		Addresses, NotReadyAddresses []struct{ IP string }
		Ports                        []struct {
			Name string
			Port int
		}
	}
}

func (f *podsPair) endpoints(ctx context.Context, client *rig.Client, namespace, name string) (found seenEndpoints,
	err error) {
	return found, client.Call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/endpoints/"+name, nil, &found)
}

// service: it is there on both sides, with the address of the plan, which no allocator gives out again, and endpoints.
func (f *podsPair) service() {
	t := f.t
	t.Helper()
	s := f.Plan.Pods.Service
	f.Eventually("the service of the modern API server", func(ctx context.Context) error {
		for _, client := range []*rig.Client{f.admin, f.user} {
			var found struct {
				Spec struct {
					ClusterIP string
					Selector  map[string]string
				}
			}
			if err := client.Call(ctx, http.MethodGet, "/api/v1/namespaces/default/services/kubernetes-modern", nil,
				&found); err != nil {
				return err
			}
			if found.Spec.ClusterIP != s.ClusterIP || len(found.Spec.Selector) > 0 {
				return fmt.Errorf("%+v, want the address %s and no selector", found, s.ClusterIP)
			}
		}
		endpoints, err := f.endpoints(ctx, f.admin, "default", "kubernetes-modern")
		if err != nil {
			return err
		}
		if len(endpoints.Subsets) != 1 || len(endpoints.Subsets[0].Addresses) != 1 ||
			endpoints.Subsets[0].Ports[0].Port != f.Plan.Modern.Port {
			return fmt.Errorf("endpoints %+v", endpoints)
		}
		return nil
	})
	if row := f.Plan.Resource("endpointslices"); row != nil && len(row.Modern.Serves) > 0 {
		var slices struct {
			Items []struct {
				Endpoints []struct{ Addresses []string }
			}
		}
		must(t, f.Modern.Client("fusionctl-controllers").Call(t.Context(), http.MethodGet,
			"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector="+
				"kubernetes.io/service-name=kubernetes-modern", nil, &slices))
		if len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 1 {
			t.Errorf("slices of the service: %+v, want one with one address", slices)
		}
	}
	if err := f.admin.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/default/services",
		object{"metadata": object{"name": "thief"},
			"spec": object{"clusterIP": s.ClusterIP, "ports": []object{{"port": 80}}}}, nil); rig.Code(
		err) != http.StatusUnprocessableEntity {
		t.Errorf("another service with the address %s: %v, want 422", s.ClusterIP, err)
	}
}

// seenPod is what a kubelet reads of a pod, whatever its version.
type seenPod struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		ServiceAccountName string
		InitContainers     []seenContainer
		Containers         []seenContainer
		Volumes            []seenVolume
	}
}

type seenContainer struct {
	Name         string
	Env          []struct{ Name, Value string }
	VolumeMounts []struct{ Name, MountPath string }
}

type seenVolume struct {
	Name   string
	Secret *struct {
		SecretName string
		Items      []struct{ Key, Path string }
	}
	Projected *struct {
		Sources []struct {
			ServiceAccountToken *struct {
				Audience, Path    string
				ExpirationSeconds int
			}
			ConfigMap *struct {
				Name  string
				Items []struct{ Key, Path string }
			}
			DownwardAPI *struct {
				Items []struct {
					Path     string
					FieldRef struct{ FieldPath string }
				}
			}
		}
	}
}

const accountDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// environment is what a kubelet gives to a container: the service of the legacy API server, and over it what the
// container says.
func (f *podsPair) environment(c seenContainer) map[string]string {
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}

// files are what a kubelet of the plan's version mounts as the account of a pod.
func (f *podsPair) files(ctx context.Context, pod seenPod, c seenContainer) (map[string][]byte, error) {
	i := slices.IndexFunc(c.VolumeMounts, func(m struct{ Name, MountPath string }) bool {
		return m.MountPath == accountDirectory
	})
	if i < 0 {
		return nil, fmt.Errorf("container %s mounts nothing at %s", c.Name, accountDirectory)
	}
	j := slices.IndexFunc(pod.Spec.Volumes, func(v seenVolume) bool { return v.Name == c.VolumeMounts[i].Name })
	if j < 0 {
		return nil, fmt.Errorf("container %s mounts volume %s, which the pod does not have", c.Name,
			c.VolumeMounts[i].Name)
	}
	volume, files := pod.Spec.Volumes[j], map[string][]byte{}
	switch {
	case volume.Secret != nil:
		var secret struct{ Data map[string]string }
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/secrets/"+volume.Secret.SecretName, nil,
			&secret); err != nil {
			return nil, err
		}
		items := volume.Secret.Items
		if len(items) == 0 {
			for key := range secret.Data {
				items = append(items, struct{ Key, Path string }{key, key})
			}
		}
		for _, item := range items {
			data, err := base64.StdEncoding.DecodeString(secret.Data[item.Key])
			if err != nil || len(data) == 0 {
				return nil, fmt.Errorf("secret %s has no key %s: the kubelet waits", volume.Secret.SecretName, item.Key)
			}
			files[item.Path] = data
		}
	case volume.Projected != nil:
		if !kubever.Behaves(kubever.BehaviourTokenProjectionMountable, f.Plan.Kubelet.Minor) {
			return nil, fmt.Errorf("kubelets of %s cannot mount the projected volume %s", f.Plan.Kubelet.Minor,
				volume.Name)
		}
		for _, source := range volume.Projected.Sources {
			if err := f.project(ctx, pod, source.ServiceAccountToken != nil, files); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("volume %s has neither a secret nor projections", volume.Name)
	}
	return files, nil
}

// project does what a kubelet does for the sources of the volume that servers inject.
func (f *podsPair) project(ctx context.Context, pod seenPod, token bool, files map[string][]byte) error {
	if token {
		var request struct{ Status struct{ Token string } }
		err := f.admin.Call(ctx, http.MethodPost,
			"/api/v1/namespaces/demo/serviceaccounts/"+pod.Spec.ServiceAccountName+"/token",
			object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
				"spec": object{"expirationSeconds": 3607, "audiences": []string{},
					"boundObjectRef": object{"apiVersion": "v1", "kind": "Pod", "name": pod.Metadata.Name}}}, &request)
		files["token"] = []byte(request.Status.Token)
		return err
	}
	var root struct{ Data map[string]string }
	if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/configmaps/kube-root-ca.crt", nil,
		&root); err != nil {
		return err
	}
	files["ca.crt"], files["namespace"] = []byte(root.Data["ca.crt"]), []byte("demo")
	return nil
}

// podLike is a pod's spec with all that is to be changed.
func podLike() object {
	return object{"serviceAccountName": "operator",
		"initContainers": []object{{"name": "init", "image": "example.test/sample:1"}},
		"containers": []object{
			{"name": "main", "image": "example.test/sample:1", "env": []object{{"name": "MINE", "value": "1"}}},
			{"name": "own", "image": "example.test/sample:1",
				"env": []object{{"name": "KUBERNETES_SERVICE_HOST", "value": "api.example.test"}}},
		}}
}

// workloads of every kind, made as a user of the modern side.
func (f *podsPair) workloads() {
	t := f.t
	t.Helper()
	labelled := func(name string) object {
		return object{"metadata": object{"labels": object{"workload": name}}, "spec": podLike()}
	}
	job := labelled("job")
	job["spec"].(object)["restartPolicy"] = "Never"
	minutely := labelled("cronjob")
	minutely["spec"].(object)["restartPolicy"] = "Never"
	selector := func(name string) object { return object{"matchLabels": object{"workload": name}} }
	batch := f.version("cronjobs")
	for path, body := range map[string]object{
		"/apis/" + batch + "/namespaces/demo/cronjobs": {"metadata": object{"name": "cronjob"},
			"spec": object{"schedule": "* * * * *", "jobTemplate": object{"spec": object{"template": minutely}}}},
		"/apis/batch/v1/namespaces/demo/jobs": {"metadata": object{"name": "job"},
			"spec": object{"template": job}},
		"/apis/" + f.version("deployments") +
			"/namespaces/demo/deployments": {"metadata": object{"name": "deployment"},
			"spec": object{"replicas": 2, "selector": selector("deployment"), "template": labelled("deployment")}},
		"/apis/" + f.version("statefulsets") +
			"/namespaces/demo/statefulsets": {"metadata": object{"name": "statefulset"},
			"spec": object{"serviceName": "statefulset", "selector": selector("statefulset"),
				"template": labelled("statefulset")}},
		"/api/v1/namespaces/demo/pods": {"metadata": object{"name": "pod", "labels": object{"workload": "pod"}},
			"spec": podLike()},
	} {
		// "retry after the token is automatically created", says the server of a new account
		f.Eventually("made: "+path, func(ctx context.Context) error {
			return f.user.Call(ctx, http.MethodPost, path, body, nil)
		})
	}
	var template struct {
		Spec struct {
			Template struct {
				Metadata struct{ Labels map[string]string }
			}
		}
	}
	must(t, f.user.Call(t.Context(), http.MethodGet,
		"/apis/"+f.version("deployments")+"/namespaces/demo/deployments/deployment", nil, &template))
	if template.Spec.Template.Metadata.Labels["kubefusion.dev/side"] != "modern" {
		t.Errorf("the template of the Deployment has the labels %v, want the side label",
			template.Spec.Template.Metadata.Labels)
	}
	for _, name := range []string{"pod", "deployment", "statefulset", "job"} {
		f.goodPods(name)
	}
	var sets struct{ Items []any }
	must(t, f.user.Call(t.Context(), http.MethodGet,
		"/apis/"+f.version("replicasets")+"/namespaces/demo/replicasets?labelSelector=workload=deployment", nil, &sets))
	if len(sets.Items) != 1 {
		t.Errorf("the Deployment has %d ReplicaSets, want 1: a changed template makes another", len(sets.Items))
	}
}

// goodPods waits for pods of a workload that are as they should be.
func (f *podsPair) goodPods(workload string) {
	f.t.Helper()
	f.Eventually("good pods of "+workload, func(ctx context.Context) error {
		var list struct{ Items []seenPod }
		if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/pods?labelSelector=workload="+workload,
			nil, &list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errNotYet
		}
		for _, pod := range list.Items {
			if err := f.judge(ctx, pod); err != nil {
				return fmt.Errorf("pod %s: %w", pod.Metadata.Name, err)
			}
		}
		return nil
	})
}

// version is the group and version in which the modern side serves a resource, the newest one.
func (f *podsPair) version(key string) string {
	fact, _ := kubever.ResourceByKey(key)
	served := fact.Served(f.Plan.Modern.Version.Minor)
	for _, gv := range served {
		if gv.Version == "v1" {
			return gv.String()
		}
	}
	return served[0].String()
}

// judge reads a pod as the kubelet does.
func (f *podsPair) judge(ctx context.Context, pod seenPod) error {
	s := f.Plan.Pods.Service
	if pod.Metadata.Labels["kubefusion.dev/side"] != "modern" {
		return fmt.Errorf("labels %v", pod.Metadata.Labels)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		host := s.ClusterIP
		if c.Name == "own" {
			host = "api.example.test"
		}
		if env := f.environment(c); env["KUBERNETES_SERVICE_HOST"] != host || env["KUBERNETES_SERVICE_PORT"] != "443" {
			return fmt.Errorf("container %s is led to %s:%s, want %s:443", c.Name, env["KUBERNETES_SERVICE_HOST"],
				env["KUBERNETES_SERVICE_PORT"], host)
		}
		files, err := f.files(ctx, pod, c)
		if err != nil {
			return err
		}
		if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, []string{"ca.crt", "namespace", "token"}) ||
			len(files["token"]) == 0 || string(files["namespace"]) != "demo" {
			return fmt.Errorf("container %s has the files %v", c.Name, names)
		}
	}
	return nil
}

// updates: a template keeps its label, a container that is added to a running pod is led like the others, and who does
// not want it is left alone.
func (f *podsPair) updates() {
	t := f.t
	t.Helper()
	path := "/apis/" + f.version("deployments") + "/namespaces/demo/deployments/deployment"
	f.Eventually("an update of the Deployment", func(ctx context.Context) error { // its controller writes it too
		var d object
		if err := f.user.Call(ctx, http.MethodGet, path, nil, &d); err != nil {
			return err
		}
		metadata := d["spec"].(object)["template"].(object)["metadata"].(object)
		delete(metadata["labels"].(object), "kubefusion.dev/side")
		if err := f.user.Call(ctx, http.MethodPut, path, d, &d); err != nil {
			return err
		}
		labels := d["spec"].(object)["template"].(object)["metadata"].(object)["labels"].(object)
		if labels["kubefusion.dev/side"] != "modern" {
			t.Errorf("an update without the label leaves the template with %v", labels)
		}
		return nil
	})
	off := object{"metadata": object{"name": "off", "annotations": object{"kubefusion.dev/admission": "off"}},
		"spec": podLike()}
	var left seenPod
	must(t, f.user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/pods", off, &left))
	if len(left.Metadata.Labels) > 0 || len(left.Spec.Containers[0].Env) != 1 {
		t.Errorf("a pod that is to be left alone has the labels %v and the variables %v", left.Metadata.Labels,
			left.Spec.Containers[0].Env)
	}
	if f.Plan.Modern.Version.Minor < 23 { // pods take no containers later on by default
		return
	}
	f.Eventually("a container that is added to a running pod", func(ctx context.Context) error {
		var pod object
		if err := f.user.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/pods/pod", nil, &pod); err != nil {
			return err
		}
		pod["spec"].(object)["ephemeralContainers"] = []object{{"name": "debug", "image": "example.test/debug:1"}}
		var made struct {
			Spec struct{ EphemeralContainers []seenContainer }
		}
		if err := f.user.Call(ctx, http.MethodPut, "/api/v1/namespaces/demo/pods/pod/ephemeralcontainers", pod,
			&made); err != nil {
			return err
		}
		if env := f.environment(
			made.Spec.EphemeralContainers[0]); env["KUBERNETES_SERVICE_HOST"] != f.Plan.Pods.Service.ClusterIP {
			t.Errorf("the added container is led to %s", env["KUBERNETES_SERVICE_HOST"])
		}
		return nil
	})
}

// dryRun leaves nothing behind, and shows the same pod.
func (f *podsPair) dryRun() {
	t := f.t
	t.Helper()
	if f.Plan.Modern.Version.Minor < 13 { // the server knows no dry run that is on by default
		return
	}
	secrets := func() (names []string) {
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		must(t, f.admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/secrets", nil, &list))
		for _, item := range list.Items {
			names = append(names, item.Metadata.Name)
		}
		return names
	}
	before := secrets()
	var shown seenPod
	must(t, f.user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/pods?dryRun=All",
		object{"metadata": object{"name": "dry"}, "spec": podLike()}, &shown))
	if shown.Metadata.Labels["kubefusion.dev/side"] != "modern" {
		t.Errorf("a dry run shows a pod with the labels %v, want the side label", shown.Metadata.Labels)
	}
	if after := secrets(); !slices.Equal(before, after) {
		t.Errorf("a dry run leaves the secrets %v, want %v", after, before)
	}
}

// unknownFields: the author of a pod hears what the legacy side drops.
func (f *podsPair) unknownFields(what string) {
	t := f.t
	t.Helper()
	if !kubever.Field("v1.PodSpec", "topologySpreadConstraints").Has(f.Plan.Modern.Version.Minor) {
		return
	}
	body := object{"metadata": object{"name": "spread"}, "spec": podLike()}
	body["spec"].(object)["topologySpreadConstraints"] = []object{
		{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": object{}}}
	response := f.post(f.user, "/api/v1/namespaces/demo/pods", body)
	warnings := strings.Join(response.Header.Values("Warning"), "\n")
	said := strings.Contains(warnings, "spec.topologySpreadConstraints") &&
		strings.Contains(warnings, "pods are scheduled without being spread")
	if wantCode := map[string]int{"warn": 201, "refuse": 422, "ignore": 201}[what]; response.StatusCode != wantCode ||
		said != (what == "warn") {
		t.Errorf("unknownFields %s: a pod with topologySpreadConstraints is answered %s with the warnings %q; want "+
			"%d", what, response.Status, warnings, wantCode)
	}
	// What servers themselves add is no reason to warn or to refuse.
	response = f.post(f.user, "/api/v1/namespaces/demo/pods",
		object{"metadata": object{"name": "plain"}, "spec": podLike()})
	if warnings := response.Header.Values("Warning"); response.StatusCode != http.StatusCreated || len(warnings) > 0 {
		t.Errorf("unknownFields %s: a plain pod is answered %s with the warnings %q; want 201 and none", what,
			response.Status, warnings)
	}
}

func (f *podsPair) post(client *rig.Client, path string, body object) *http.Response {
	f.t.Helper()
	data, err := json.Marshal(body)
	must(f.t, err)
	response, err := client.Do(f.t.Context(), http.MethodPost, path, bytes.NewReader(data))
	must(f.t, err)
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response
}

// inPod are the environment and the files of the container main of a pod, as its kubelet would make them.
func (f *podsPair) inPod(name string) (env map[string]string, files map[string][]byte) {
	f.t.Helper()
	var pod seenPod
	must(f.t, f.admin.Call(f.t.Context(), http.MethodGet, "/api/v1/namespaces/demo/pods/"+name, nil, &pod))
	c := pod.Spec.Containers[0]
	files, err := f.files(f.t.Context(), pod, c)
	must(f.t, err)
	return f.environment(c), files
}

// account: the token is good on the modern API server for what the policy allows it and for nothing else.
func (f *podsPair) account() {
	t := f.t
	t.Helper()
	customResources(t, f.Rig, f.Pair, f.user)
	env, files := f.inPod("pod")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(files["ca.crt"]) {
		t.Fatal("the pod's ca.crt holds no certificate")
	}
	proxy, err := url.Parse(f.proxy)
	must(t, err)
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}}}
	base := "https://" + net.JoinHostPort(env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"])
	for path, want := range map[string]int{
		"/apis/example.test/v1/namespaces/demo/widgets":    200,
		"/api/v1/namespaces/demo/configmaps":               200,
		"/api/v1/namespaces/demo/secrets":                  403,
		"/api/v1/namespaces/kube-system/configmaps":        403,
		"/apis/apps/v1/namespaces/demo/deployments":        403,
		"/apis/example.test/v1/namespaces/default/widgets": 403,
		"/api/v1/nodes": 403,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+string(files["token"]))
		response, err := client.Do(request)
		must(t, err)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("the pod asks for %s and is answered %s, want %d", path, response.Status, want)
		}
	}
}

// reconciler: a controller with what the pod has makes a config map for every widget.
func (f *podsPair) reconciler() {
	t := f.t
	t.Helper()
	binary, err := reconciler()
	must(t, err)
	env, files := f.inPod("pod")
	root := filepath.Join(f.Dir(), "pod")
	must(t, os.MkdirAll(filepath.Join(root, accountDirectory), 0o755))
	for name, data := range files {
		must(t, os.WriteFile(filepath.Join(root, accountDirectory, name), data, 0o644))
	}
	program, err := os.ReadFile(binary)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "reconciler"), program, 0o755))
	log, err := os.Create(filepath.Join(f.Dir(), "reconciler.log"))
	must(t, err)
	defer log.Close()
	start := func(path string, attributes *syscall.SysProcAttr, args ...string) (*exec.Cmd, error) {
		command := exec.Command(path, args...)
		command.Dir, command.Stdout, command.Stderr, command.SysProcAttr = "/", log, log, attributes
		command.Env = []string{"HTTPS_PROXY=" + f.proxy} // the network of the node, not of the pod
		for name, value := range env {
			command.Env = append(command.Env, name+"="+value)
		}
		if _, known := kubever.Gate("WatchList").At(f.Plan.Modern.Version.Minor); !known {
			// what its author has to say for so old a server
			command.Env = append(command.Env, "KUBE_FEATURE_WatchListClient=false")
		}
		return command, command.Start()
	}
	command, err := start("/reconciler", &syscall.SysProcAttr{Chroot: root})
	if errors.Is(err, os.ErrPermission) {
		command, err = start(binary, nil, "-root", root)
	}
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	must(t, f.user.Call(t.Context(), http.MethodPost, "/apis/example.test/v1/namespaces/demo/widgets",
		object{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": object{"name": "two"}}, nil))
	f.Eventually("the controller makes a config map for each widget", func(ctx context.Context) error {
		for _, name := range []string{"one", "two"} {
			if err := f.admin.Call(ctx, http.MethodGet, "/api/v1/namespaces/demo/configmaps/"+name, nil,
				nil); err != nil {
				text, _ := os.ReadFile(log.Name())
				return fmt.Errorf("%w\n%s", err, text)
			}
		}
		return nil
	})
}

// outages: while the webhook does not answer no pod is made, and afterwards they are changed as before.
func (f *podsPair) outages() {
	t := f.t
	t.Helper()
	tryPod := func(name string) error {
		return f.user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/pods",
			object{"metadata": object{"name": name}, "spec": podLike()}, nil)
	}
	f.controllers.Kill()
	if err := tryPod("while-down"); rig.Code(err) < 400 {
		t.Errorf("a pod while the webhook is gone: %v, want an error", err)
	}
	if err := f.user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/kube-system/pods",
		object{"metadata": object{"name": "system"}, "spec": podSpec()}, nil); err != nil {
		t.Errorf("a pod of the control plane's own namespace while the webhook is gone: %v, want none", err)
	}
	f.controllers.StartAgain()
	f.Eventually("the webhook answers again", func(context.Context) error { return tryPod("after-down") })

	f.controllers.Signal(syscall.SIGSTOP)
	f.Eventually("the webhook hangs", func(context.Context) error { return f.controllers.Hangs() })
	start := time.Now()
	err := tryPod("while-hung")
	span := time.Since(start)
	f.controllers.Signal(syscall.SIGCONT)
	if rig.Code(err) < 400 {
		t.Errorf("a pod while the webhook hangs: %v, want an error", err)
	}
	if kubever.Field("admissionregistration.v1.MutatingWebhook", "timeoutSeconds").Has(f.Plan.Modern.Version.Minor) &&
		span > 25*time.Second {
		t.Errorf("a pod while the webhook hangs is answered after %s, want about the 5s of the registration", span)
	}
	f.Eventually("the webhook answers again", func(context.Context) error { return tryPod("after-hung") })

	serial := func() string {
		// only the serial number matters
		connection, err := tls.Dial("tcp", f.webhook, &tls.Config{InsecureSkipVerify: true})
		must(t, err)
		defer connection.Close()
		return connection.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	if response,
		err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}).
		Post("https://"+f.webhook+"/pods", "application/json", strings.NewReader("{}")); err == nil {
		response.Body.Close()
		t.Errorf("the webhook serves a process that is not the API server: %s", response.Status)
	}
	before := serial()
	f.replaceCertificate()
	f.Eventually("the webhook shows its new certificate", func(context.Context) error {
		if serial() == before {
			return errNotYet
		}
		return nil
	})
	must(t, tryPod("after-rotation"))
	for _, name := range []string{"after-down", "after-hung", "after-rotation"} {
		var pod seenPod
		must(t, f.admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/pods/"+name, nil, &pod))
		must(t, f.judge(t.Context(), pod))
	}
}

// replaceCertificate issues the webhook's certificate again, as `fusionctl pki` does.
func (f *podsPair) replaceCertificate() {
	t := f.t
	t.Helper()
	certificate, err := os.ReadFile(f.PKI.File("ca.crt"))
	must(t, err)
	key, err := os.ReadFile(f.PKI.File("ca.key"))
	must(t, err)
	authority, err := pki.ParseAuthority(certificate, key)
	must(t, err)
	a := f.Plan.Pods.Admission
	i := slices.IndexFunc(f.Plan.Certificates, func(c plan.Certificate) bool { return c.Cert == a.Cert })
	pair, err := authority.Issue(f.Plan.Certificates[i], pki.LifetimeOf(time.Now(), time.Hour))
	must(t, err)
	for path, data := range map[string][]byte{a.Key: pair.Key, a.Cert: pair.Certificate} {
		must(t, os.WriteFile(path+".new", data, 0o600))
		must(t, os.Rename(path+".new", path))
	}
}

// manyReviewed is how many pods are made at once.
const manyReviewed = 500

func (f *podsPair) many() {
	t := f.t
	t.Helper()
	start := time.Now()
	var wait sync.WaitGroup
	failures := make(chan error, 16)
	for worker := range 16 {
		wait.Go(func() {
			for i := worker; i < manyReviewed; i += 16 {
				p := object{"metadata": object{"name": fmt.Sprintf("many-%d", i), "labels": object{"many": "yes"}},
					"spec": podLike()}
				if err := f.user.Call(t.Context(), http.MethodPost, "/api/v1/namespaces/demo/pods", p,
					nil); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(failures)
	for err := range failures {
		t.Fatal(err)
	}
	t.Logf("%d pods in %s", manyReviewed, time.Since(start).Round(time.Millisecond))
	var list struct{ Items []seenPod }
	must(t, f.admin.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/demo/pods?labelSelector=many=yes", nil,
		&list))
	if len(list.Items) != manyReviewed {
		t.Fatalf("%d pods, want %d", len(list.Items), manyReviewed)
	}
	must(t, f.judge(t.Context(), list.Items[0]))
	for _, pod := range list.Items {
		if pod.Metadata.Labels["kubefusion.dev/side"] != "modern" || len(pod.Spec.Containers[0].Env) != 3 ||
			len(pod.Spec.Volumes) != len(list.Items[0].Spec.Volumes) {
			t.Errorf("pod %s is not changed like the others: %+v", pod.Metadata.Name, pod)
		}
	}
	for _, line := range strings.Split(f.metrics(), "\n") {
		if strings.HasPrefix(line, "fusionctl_controllers_review_seconds") && strings.Contains(line, `"changed"`) {
			t.Log(line)
		}
	}
}

func (f *podsPair) metrics() string {
	f.t.Helper()
	response, err := http.Get("http://" + f.health + "/metrics")
	must(f.t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	must(f.t, err)
	return string(data)
}
