//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/test/rig"
)

// What discovery of a release shows, by default and with everything turned on, is what the facts say; and so is what
// its API server writes by itself into an empty store.
func TestReleaseShowsAndWritesWhatTheFactsSay(t *testing.T) {
	t.Parallel()
	for _, release := range releases(t) {
		minor := release.Minor
		t.Run(minor.String(), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			etcd := r.StartEtcd("core")
			server := r.StartAPIServer("apiserver", minor, r.APIServerArgs(minor, etcd))
			server.WaitReady()
			checkDiscovery(t, server, func(a kubever.APIResource) bool { return a.DefaultOn.Has(minor) })
			checkFirstWrites(r, etcd, minor)
		})
		t.Run(minor.String()+" with everything on", func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			args := append(r.APIServerArgs(minor, r.StartEtcd("core")), "--runtime-config="+allVersions(minor),
				"--feature-gates="+allGates(minor))
			server := r.StartAPIServer("apiserver", minor, args)
			server.WaitReady()
			checkDiscovery(t, server, func(a kubever.APIResource) bool { return a.In(minor) })
		})
	}
}

// allVersions turns on every version of the API: by one word, and by its name each that this does not reach.
func allVersions(minor kubever.Minor) string {
	words := []string{"api/all=true"}
	for _, a := range kubever.APIResources(minor) {
		if word := a.GroupVersion.String() + "=true"; kubever.ByNameAlone(a.GroupVersion, minor) &&
			!slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// allGates turns every alpha and beta feature on.
func allGates(minor kubever.Minor) string {
	if kubever.Gate("AllBeta").KnownTo(kubever.APIServer, minor) {
		return "AllAlpha=true,AllBeta=true"
	}
	return "AllAlpha=true"
}

// checkDiscovery compares what the server lists with the resources of its minor that are on.
func checkDiscovery(t *testing.T, server *rig.APIServer, on func(kubever.APIResource) bool) {
	t.Helper()
	describe := func(groupVersion, name, kind string, namespaced bool) string {
		return fmt.Sprintf("%s %s %s namespaced=%v", groupVersion, name, kind, namespaced)
	}
	want := map[string]bool{}
	for _, a := range kubever.APIResources(server.Minor) {
		if on(a) {
			want[describe(a.GroupVersion.String(), a.Name, a.Kind, a.Namespaced)] = true
		}
	}
	client := server.Client("rig", "system:masters")
	var groups metav1.APIGroupList
	if err := client.Call(t.Context(), http.MethodGet, "/apis", nil, &groups); err != nil {
		t.Fatal(err)
	}
	paths := []string{"/api/v1"}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			paths = append(paths, "/apis/"+version.GroupVersion)
		}
	}
	got := map[string]bool{}
	for _, path := range paths {
		var list metav1.APIResourceList
		if err := client.Call(t.Context(), http.MethodGet, path, nil, &list); err != nil {
			t.Errorf("%s: %v", server.Minor, err)
		}
		for _, a := range list.APIResources {
			if !strings.Contains(a.Name, "/") { // not a subresource
				got[describe(list.GroupVersion, a.Name, a.Kind, a.Namespaced)] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !want[name] {
			t.Errorf("%s serves %s, the facts do not", server.Minor, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !got[name] {
			t.Errorf("%s does not serve %s, the facts do", server.Minor, name)
		}
	}
}

// checkFirstWrites waits until the store holds keys of exactly the resources that the facts let the server write by
// itself.
func checkFirstWrites(r *rig.Rig, etcd *rig.Etcd, minor kubever.Minor) {
	const prefix = "/registry/"
	want := map[string]bool{}
	for _, w := range kubever.StartupWrites(minor) {
		// whose status, once there are some
		if !w.OnlyWithRBAC && w.Resource != "apiextensions.k8s.io/customresourcedefinitions" {
			want[w.Resource] = true
		}
	}
	r.Eventually("waiting for what the server writes by itself", func(ctx context.Context) error {
		response, err := etcd.Client().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		got := map[string]bool{}
		for _, kv := range response.Kvs {
			resource, ok := resourceOf(strings.TrimPrefix(string(kv.Key), prefix))
			if !ok {
				return fmt.Errorf("%s: the facts know no resource of this key", kv.Key)
			}
			if resource.Key != "events" { // which may be written about anything
				got[resource.Key] = true
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("keys of %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		return nil
	})
}
