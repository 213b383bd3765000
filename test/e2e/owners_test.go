//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// workloads make controllers of every kind create something with an owner.
var workloads = map[schema.GroupResource]object{
	{Resource: "replicationcontrollers"}: {
		"spec": object{"replicas": 1, "selector": labels, "template": podTemplate()}},
	{Resource: "services"}: {"spec": object{"ports": []object{{"port": 80}}, "selector": labels}},
	{Group: "apps", Resource: "deployments"}: {
		"spec": object{"replicas": 1, "selector": object{"matchLabels": labels}, "template": podTemplate()}},
	{Group: "apps", Resource: "statefulsets"}: {"spec": object{"replicas": 1, "serviceName": "sample",
		"selector": object{"matchLabels": labels}, "template": podTemplate()}},
	{Group: "apps", Resource: "daemonsets"}: {
		"spec": object{"selector": object{"matchLabels": labels}, "template": podTemplate()}},
	{Group: "batch", Resource: "jobs"}: {"spec": object{"template": neverRestarted()}},
}

func neverRestarted() object {
	return object{"spec": object{"restartPolicy": "Never",
		"containers": []object{{"name": "main", "image": "example.test/sample:1"}}}}
}

// unprovoked are the references for which these workloads give no cause: there is no node, no schedule, no claim, and
// no Endpoints without a Service.
var unprovoked = []string{
	"pods of DaemonSet", "jobs of CronJob", "endpointslices of Endpoints", "persistentvolumeclaims of Pod",
	"persistentvolumeclaims of StatefulSet", "resourceclaims of Pod",
}

// The owner references that a release's controllers write name their owners as the facts say: a garbage collector of
// another release looks them up by exactly that.
func TestControllersReferToOwnersAsTheFactsSay(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		minor := release.Minor
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			server := r.StartAPIServer("apiserver", minor, r.APIServerArgs(minor, r.StartEtcd("core")))
			server.WaitReady()
			manager := r.StartControllerManager("controller-manager", minor, r.ControllerManagerArgs(minor, server))
			manager.WaitReady()
			client := server.Client("rig", "system:masters")
			if err := client.Call(t.Context(), http.MethodPost, "/api/v1/namespaces",
				object{"metadata": object{"name": "sample"}}, nil); err != nil {
				t.Fatal(err)
			}
			for resource, body := range workloads {
				sample{resource: resource, stored: map[kubever.Minor]string{minor: "any"}, body: body}.create(
					t, client, minor)
			}
			awaitReferences(r, client, minor)
		})
	}
}

// awaitReferences waits until the objects of the namespace refer to every owner that the facts name and the workloads
// have, and to no other.
func awaitReferences(r *rig.Rig, client *rig.Client, minor kubever.Minor) {
	want := map[string]bool{}
	for _, o := range kubever.OwnerReferences(minor) {
		controller, ok := kubever.ControllerByName(o.Controller)
		reference := o.Dependent + " of " + o.APIVersion + " " + o.Owner.Kind
		if ok && controller.DefaultOn(minor) && !slices.Contains(unprovoked, o.Dependent+" of "+o.Owner.Kind) {
			want[reference] = true
		}
	}
	r.Eventually("waiting for what the controllers create", func(ctx context.Context) error {
		got := map[string]bool{}
		for _, dependent := range []string{"pods", "replicasets", "controllerrevisions", "endpointslices"} {
			resource, _ := kubever.ResourceByKey(dependent)
			served := resource.Served(minor)
			if len(served) == 0 {
				continue
			}
			var list struct {
				Items []struct{ Metadata metav1.ObjectMeta }
			}
			if err := client.Call(ctx, http.MethodGet, "/"+apiPath(served[0])+"/namespaces/sample/"+resource.Name, nil,
				&list); err != nil {
				return err
			}
			for _, item := range list.Items {
				for _, owner := range item.Metadata.OwnerReferences {
					got[dependent+" of "+owner.APIVersion+" "+owner.Kind] = true
				}
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("references %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		return nil
	})
}

func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}
