//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// object is the JSON of an API object of any version.
type object = map[string]any

// sample is an object that the test writes, and what the releases make of it in etcd.
type sample struct {
	resource schema.GroupResource // any of its groups
	key      string               // below the prefix
	stored   map[kubever.Minor]string
	body     object
}

var labels = object{"app": "sample"}

func podTemplate() object {
	return object{"metadata": object{"labels": labels},
		"spec": object{"containers": []object{{"name": "main", "image": "example.test/sample:1"}}}}
}

// What a release stores was looked up in etcd once, release by release; these are not copies of the facts but a check
// of them. A release that the table does not have is held against the facts alone.
var samples = []sample{
	{schema.GroupResource{Resource: "nodes"}, "minions/sample",
		map[kubever.Minor]string{6: "v1", 10: "v1", 15: "v1", 36: "v1"}, object{}},
	{schema.GroupResource{Resource: "replicationcontrollers"}, "controllers/sample/sample",
		map[kubever.Minor]string{6: "v1", 10: "v1", 15: "v1", 36: "v1"},
		object{"spec": object{"replicas": 0, "selector": labels, "template": podTemplate()}}},
	{schema.GroupResource{Resource: "services"}, "services/specs/sample/sample",
		map[kubever.Minor]string{6: "v1", 10: "v1", 15: "v1", 36: "v1"},
		object{"spec": object{"ports": []object{{"port": 80}}, "selector": labels}}},
	{schema.GroupResource{Group: "apps", Resource: "deployments"}, "deployments/sample/sample",
		map[kubever.Minor]string{6: "extensions/v1beta1", 10: "apps/v1", 15: "apps/v1", 36: "apps/v1"},
		object{"spec": object{"replicas": 2, "selector": object{"matchLabels": labels}, "template": podTemplate()}}},
	{schema.GroupResource{Group: "apps", Resource: "statefulsets"}, "statefulsets/sample/sample",
		map[kubever.Minor]string{6: "apps/v1beta1", 10: "apps/v1", 15: "apps/v1", 36: "apps/v1"},
		object{"spec": object{"replicas": 0, "serviceName": "sample", "selector": object{"matchLabels": labels},
			"template": podTemplate()}}},
	{schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "daemonsets/sample/sample",
		map[kubever.Minor]string{6: "extensions/v1beta1", 10: "apps/v1", 15: "apps/v1", 36: "apps/v1"},
		object{"spec": object{"selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": object{
				"nodeSelector": object{"no": "node"},
				"containers":   []object{{"name": "main", "image": "example.test/sample:1"}}}}}}},
	{schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}, "ingress/sample/sample",
		map[kubever.Minor]string{6: "extensions/v1beta1", 10: "extensions/v1beta1", 15: "networking.k8s.io/v1beta1",
			36: "networking.k8s.io/v1"},
		object{"spec": object{ // both shapes: each release reads its own and drops the other
			"backend":        object{"serviceName": "sample", "servicePort": 80},
			"defaultBackend": object{"service": object{"name": "sample", "port": object{"number": 80}}}}}},
	{schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"}, "networkpolicies/sample/sample",
		map[kubever.Minor]string{6: "extensions/v1beta1", 10: "networking.k8s.io/v1", 15: "networking.k8s.io/v1",
			36: "networking.k8s.io/v1"},
		object{"spec": object{"podSelector": object{}}}},
	{schema.GroupResource{Group: "policy", Resource: "podsecuritypolicies"}, "podsecuritypolicy/sample",
		map[kubever.Minor]string{6: "extensions/v1beta1", 10: "extensions/v1beta1", 15: "policy/v1beta1"},
		object{"spec": object{"seLinux": object{"rule": "RunAsAny"}, "runAsUser": object{"rule": "RunAsAny"},
			"supplementalGroups": object{"rule": "RunAsAny"}, "fsGroup": object{"rule": "RunAsAny"}}}},
	{schema.GroupResource{Group: "batch", Resource: "cronjobs"}, "cronjobs/sample/sample",
		map[kubever.Minor]string{6: "batch/v2alpha1", 10: "batch/v1beta1", 15: "batch/v1beta1", 36: "batch/v1"},
		object{"spec": object{"schedule": "0 0 1 1 *", "jobTemplate": object{"spec": object{"template": object{
			"spec": object{"restartPolicy": "Never",
				"containers": []object{{"name": "main", "image": "example.test/sample:1"}}}}}}}}},
	{schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"}, "roles/sample/sample",
		map[kubever.Minor]string{6: "rbac.authorization.k8s.io/v1beta1", 10: "rbac.authorization.k8s.io/v1",
			15: "rbac.authorization.k8s.io/v1", 36: "rbac.authorization.k8s.io/v1"},
		object{"rules": []object{
			{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get"}}}}},
	{schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "leases/sample/sample",
		map[kubever.Minor]string{15: "coordination.k8s.io/v1beta1", 36: "coordination.k8s.io/v1"},
		object{"spec": object{"holderIdentity": "sample", "leaseDurationSeconds": 15}}},
}

// Every release of the rig runs: its controllers turn a Deployment into pods, and what it keeps in etcd, key by key, is
// what the facts say about it.
func TestReleaseServesAndStoresWhatTheFactsSay(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		minor := release.Minor
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			etcd := r.StartEtcd("core")
			args := r.APIServerArgs(minor, etcd)
			if minor == 6 {
				// its only version of cron jobs is off by default
				args = append(args, "--runtime-config=batch/v2alpha1=true")
			}
			server := r.StartAPIServer("apiserver", minor, args)
			server.WaitReady()
			manager := r.StartControllerManager("controller-manager", minor, r.ControllerManagerArgs(minor, server))
			manager.WaitReady()
			client := server.Client("rig", "system:masters")

			checkVersion(t, client, release.Version)
			if err := client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
				object{"metadata": object{"name": "sample"}}, nil); err != nil {
				t.Fatal(err)
			}
			for _, s := range samples {
				s.create(t, client, minor)
			}
			pods := awaitPods(r, client, 2)
			checkStore(t, etcd, minor)

			server.Restart()
			if after := awaitPods(r, client, 2); !slices.Equal(pods, after) {
				t.Errorf("the pods are %q after a restart of the server, want %q as before", after, pods)
			}
		})
	}
}

// checkVersion: the server says that it is the release that was built, of whatever patch the facts are.
func checkVersion(t *testing.T, client *rig.Client, built kubever.Version) {
	t.Helper()
	var version struct{ GitVersion, Major, Minor string }
	if err := client.Call(t.Context(), http.MethodGet, "/version", nil, &version); err != nil {
		t.Fatal(err)
	}
	if got, want := version.GitVersion, "v"+built.String(); got != want {
		t.Errorf("the server calls itself %s, want %s", got, want)
	}
	if got, want := version.Major+"."+version.Minor, built.Minor.String(); got != want {
		t.Errorf("the server calls itself %s, want %s", got, want)
	}
}

// create writes the sample through the first version that the release serves, unless the release does not know it.
func (s sample) create(t *testing.T, client *rig.Client, minor kubever.Minor) {
	t.Helper()
	resource, ok := kubever.ResourceFor(s.resource)
	if !ok {
		t.Fatalf("the facts have no %s", s.resource)
	}
	served := resource.Served(minor)
	if minor == 6 && resource.Name == "cronjobs" {
		served = []schema.GroupVersion{{Group: "batch", Version: "v2alpha1"}}
	}
	if len(served) == 0 {
		return
	}
	version := served[0]
	body := object{"apiVersion": version.String(), "kind": resource.Kind, "metadata": object{"name": "sample"}}
	for field, value := range s.body {
		body[field] = value
	}
	base := "/apis/" + version.String()
	if version.Group == "" {
		base = "/api/" + version.Version
	}
	if resource.Namespaced {
		base += "/namespaces/sample"
	}
	if err := client.Call(t.Context(), http.MethodPost, base+"/"+resource.Name, body, nil); err != nil {
		t.Fatal(err)
	}
}

// awaitPods waits until the Deployment has its pods, all of one ReplicaSet, and returns their UIDs.
func awaitPods(r *rig.Rig, client *rig.Client, want int) []string {
	var uids []string
	r.Eventually("waiting for the pods of the Deployment", func(ctx context.Context) error {
		var pods struct {
			Items []struct{ Metadata metav1.ObjectMeta }
		}
		if err := client.Call(ctx, http.MethodGet, "/api/v1/namespaces/sample/pods", nil, &pods); err != nil {
			return err
		}
		uids = nil
		owners := map[string]bool{}
		for _, pod := range pods.Items {
			uids = append(uids, string(pod.Metadata.UID))
			for _, owner := range pod.Metadata.OwnerReferences {
				owners[owner.Kind+" "+owner.Name] = true
			}
		}
		if len(uids) != want || len(owners) != 1 {
			return fmt.Errorf("%d pods of %d owners, want %d pods of one ReplicaSet", len(uids), len(owners), want)
		}
		for owner := range owners {
			if !strings.HasPrefix(owner, "ReplicaSet sample-") {
				return fmt.Errorf("the pods belong to %s, want a ReplicaSet of the Deployment", owner)
			}
		}
		slices.Sort(uids)
		return nil
	})
	return uids
}

// checkStore reads all that is in etcd: the samples where they were seen when this was first tried, and every key,
// those that the server and its controllers wrote by themselves too, at a place and in a version that the facts name.
func checkStore(t *testing.T, etcd *rig.Etcd, minor kubever.Minor) {
	t.Helper()
	const prefix = "/registry/"
	response, err := etcd.Client().Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]schema.GroupVersionKind{}
	for _, kv := range response.Kvs {
		kind, err := storedKind(kv.Value)
		if err != nil {
			t.Errorf("%s: %v", kv.Key, err)
		}
		stored[strings.TrimPrefix(string(kv.Key), prefix)] = kind
	}
	if _, looked := samples[0].stored[minor]; looked {
		for _, s := range samples {
			if got, want := stored[s.key].GroupVersion().String(), s.stored[minor]; got != want {
				t.Errorf("%s is stored as %q, want %q", s.key, got, want)
			}
		}
	}
	for key, got := range stored {
		resource, ok := resourceOf(key)
		if !ok {
			t.Errorf("%s: the facts know no resource of this key", key)
			continue
		}
		if want, ok := resource.StoredAs(minor); !ok || got != want {
			t.Errorf("%s is stored as %s, the facts say %s", key, got, want)
		}
	}
	t.Logf("%d keys", len(stored))
}

// resourceOf finds the resource whose place in etcd the key is in.
func resourceOf(key string) (kubever.Resource, bool) {
	for place := key; place != "."; place = path.Dir(place) {
		if resource, ok := kubever.ResourceByKey(place); ok {
			return resource, true
		}
	}
	return kubever.Resource{}, false
}

// storedKind reads the type of a value: protobuf in the envelope of the API machinery, or JSON.
func storedKind(value []byte) (schema.GroupVersionKind, error) {
	var meta struct{ APIVersion, Kind string }
	if protobuf, ok := strings.CutPrefix(string(value), "k8s\x00"); ok {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal([]byte(protobuf)); err != nil {
			return schema.GroupVersionKind{}, err
		}
		meta.APIVersion, meta.Kind = envelope.APIVersion, envelope.Kind
	} else if err := json.Unmarshal(value, &meta); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind), nil
}
