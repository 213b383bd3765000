package stream

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/discovery"
)

// fakeCluster has objects by the version and name of their resource, and by the selector that chooses them.
type fakeCluster struct {
	resources []discovery.Resource
	objects   map[string][]*unstructured.Unstructured
	broken    string // the resource that cannot be listed
}

func (f *fakeCluster) Listable(context.Context) ([]discovery.Resource, error) {
	return f.resources, nil
}

func (f *fakeCluster) Objects(_ context.Context, r discovery.Resource, selector string) iter.Seq2[
	*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		key := r.GroupVersion.String() + " " + r.Name
		if key == f.broken {
			yield(nil, errBroken)
			return
		}
		if selector != "" {
			key += " " + selector
		}
		for _, object := range f.objects[key] {
			if !yield(object, nil) {
				return
			}
		}
	}
}

var errBroken = errors.New("cannot be listed")

func resourceOf(group, version, name, kind string) discovery.Resource {
	return discovery.Resource{GroupVersion: schema.GroupVersion{Group: group, Version: version}, Name: name, Kind: kind,
		Namespaced: true, Verbs: []string{"list"}}
}

// objectIn is an Ingress as a server returns it in a version, written by a client in another.
func objectIn(version, uid, name, writtenIn string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": "Ingress",
		"metadata": map[string]any{"name": name, "namespace": "shop", "uid": uid, "managedFields": []any{map[string]any{
			"manager": "kubectl", "apiVersion": writtenIn, "operation": "Update"}}}}}
}

func clusterCheck(t *testing.T) (*Check, *[]string) {
	t.Helper()
	c, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	rows := &[]string{}
	return NewCheck(c, 36, func(v Verdict) error {
		*rows = append(*rows, v.Place+": "+v.APIVersion+" "+v.Name+" "+v.Status)
		return nil
	}), rows
}

// An object is judged once, by the version in which it was written, however often the server lists it; kinds that the
// release does not concern are not read.
func TestClusterJudgesEachObjectOnce(t *testing.T) {
	cluster := &fakeCluster{resources: []discovery.Resource{
		resourceOf("extensions", "v1beta1", "ingresses", "Ingress"),
		resourceOf("networking.k8s.io", "v1", "ingresses", "Ingress"),
		resourceOf("", "v1", "secrets", "Secret"),
	}, objects: map[string][]*unstructured.Unstructured{
		"extensions/v1beta1 ingresses": {objectIn("extensions/v1beta1", "1", "web", "extensions/v1beta1")},
		"networking.k8s.io/v1 ingresses": {objectIn("networking.k8s.io/v1", "1", "web", "extensions/v1beta1"),
			objectIn("networking.k8s.io/v1", "2", "new", "networking.k8s.io/v1")},
	}, broken: "v1 secrets"}
	check, rows := clusterCheck(t)
	problems, err := check.Cluster(t.Context(), cluster)
	want := []string{"written by kubectl: extensions/v1beta1 web removed",
		"written by kubectl: networking.k8s.io/v1 new ok"}
	if err != nil || len(problems) > 0 || !slices.Equal(*rows, want) {
		t.Errorf("judged %q, problems %v, %v; want %q", *rows, problems, err, want)
	}
	cluster.broken = "networking.k8s.io/v1 ingresses"
	if _, err := check.Cluster(t.Context(), cluster); !errors.Is(err, errBroken) {
		t.Errorf("a resource that cannot be listed: %v, want %v", err, errBroken)
	}
}

// An object that does not convert is a problem, and those behind it are judged.
func TestClusterGoesOnAfterAnObjectThatDoesNotConvert(t *testing.T) {
	broken := objectIn("networking.k8s.io/v1", "1", "broken", "extensions/v1beta1")
	broken.Object["spec"] = "none"
	check, rows := clusterCheck(t)
	problems, err := check.Cluster(t.Context(), &fakeCluster{
		resources: []discovery.Resource{resourceOf("networking.k8s.io", "v1", "ingresses", "Ingress")},
		objects: map[string][]*unstructured.Unstructured{"networking.k8s.io/v1 ingresses": {broken,
			objectIn("networking.k8s.io/v1", "2", "web", "extensions/v1beta1")}}})
	want := []string{"written by kubectl: extensions/v1beta1 web removed"}
	if err != nil || len(problems) != 1 || !slices.Equal(*rows, want) {
		t.Errorf("judged %q, problems %v, %v; want %q and one problem", *rows, problems, err, want)
	}
}

// What the components of a release wrote, they write in another version after the upgrade: nobody has to do anything.
// What a person or a kubelet wrote in the same version counts, also in an object of theirs.
func TestClusterLeavesOutWhatComesWithTheRelease(t *testing.T) {
	written := func(uid, name string, managers ...string) *unstructured.Unstructured {
		var fields []any
		for _, manager := range managers {
			fields = append(fields, map[string]any{"manager": manager, "operation": "Update",
				"apiVersion": "flowcontrol.apiserver.k8s.io/v1beta2"})
		}
		return &unstructured.Unstructured{Object: map[string]any{"kind": "FlowSchema",
			"apiVersion": "flowcontrol.apiserver.k8s.io/v1beta2",
			"metadata":   map[string]any{"name": name, "uid": uid, "managedFields": fields}}}
	}
	const producer = "api-priority-and-fairness-config-producer-v1"
	cluster := &fakeCluster{resources: []discovery.Resource{
		resourceOf("flowcontrol.apiserver.k8s.io", "v1beta2", "flowschemas", "FlowSchema"),
	}, objects: map[string][]*unstructured.Unstructured{"flowcontrol.apiserver.k8s.io/v1beta2 flowschemas": {
		written("1", "exempt", producer), written("2", "probes", "kube-apiserver", "kube-controller-manager"),
		written("3", "edited", "kubectl-edit", producer), written("4", "node", "kubelet"),
	}}}
	check, rows := clusterCheck(t)
	problems, err := check.Cluster(t.Context(), cluster)
	want := []string{"written by kubectl-edit: flowcontrol.apiserver.k8s.io/v1beta2 edited removed",
		"written by kubelet: flowcontrol.apiserver.k8s.io/v1beta2 node removed"}
	if err != nil || len(problems) > 0 || !slices.Equal(*rows, want) {
		t.Errorf("judged %q, problems %v, %v; want %q", *rows, problems, err, want)
	}
}

// With Helm only what records releases is read, and a record that cannot be read does not keep the others from it.
func TestClusterReadsReleases(t *testing.T) {
	record := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"type": "helm.sh/release.v1", "data": map[string]any{"release": "!"},
			"metadata": map[string]any{"name": name, "namespace": "shop",
				"labels": map[string]any{"owner": "helm"}}}}
	}
	plain := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "settings", "namespace": "shop"}}}
	cluster := &fakeCluster{resources: []discovery.Resource{
		resourceOf("extensions", "v1beta1", "ingresses", "Ingress"),
		resourceOf("", "v1", "secrets", "Secret"),
		resourceOf("", "v1", "configmaps", "ConfigMap"),
	}, objects: map[string][]*unstructured.Unstructured{
		"v1 secrets owner=helm":      {record("a"), record("b")},
		"v1 configmaps OWNER=TILLER": {plain},
	}, broken: "extensions/v1beta1 ingresses"}
	check, rows := clusterCheck(t)
	check.Helm = true
	problems, err := check.Cluster(t.Context(), cluster)
	if want := []string{"ConfigMap: v1 settings ok"}; err != nil || len(problems) != 2 || !slices.Equal(*rows, want) {
		t.Errorf("judged %q, problems %v, %v; want %q and a problem of each record", *rows, problems, err, want)
	}
}

// A record of releases within a release is an object like others: one that is unpacked could have more of them in it.
func TestReleasesWithinReleasesAreNotUnpacked(t *testing.T) {
	record := func(name, manifest string) *unstructured.Unstructured {
		t.Helper()
		release, err := json.Marshal(map[string]any{"name": name, "version": 1, "namespace": "shop",
			"info": map[string]any{"status": "deployed"}, "manifest": manifest})
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(release); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "namespace": "shop", "labels": map[string]any{"owner": "helm"}},
			"data":     map[string]any{"release": base64.StdEncoding.EncodeToString(packed.Bytes())}}}
	}
	inner, err := json.Marshal(record("inner", "apiVersion: v1\nkind: Secret\nmetadata: {name: innermost}\n").Object)
	if err != nil {
		t.Fatal(err)
	}
	check, rows := clusterCheck(t)
	check.Helm = true
	problems, err := check.Object(t.Context(), "ConfigMap", record("outer", string(inner)))
	if err != nil || len(problems) > 0 || len(*rows) != 1 || !strings.Contains((*rows)[0], "inner") ||
		strings.Contains((*rows)[0], "innermost") {
		t.Errorf("judged %q, problems %v, %v; want the record within alone", *rows, problems, err)
	}
}
