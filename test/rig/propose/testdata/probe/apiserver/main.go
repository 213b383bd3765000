// Command apiserver prints what kube-apiserver says about itself: about its command line, its admission plugins and
// authorizers, the kinds that it decodes, and what it would store each resource as.
package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"probe/facts"
)

// resource is one of the release's API description: in, and what the server makes of it: out.
type resource struct {
	Group, Version, Name, Kind string
	Stored                     bool

	On       bool   `json:",omitempty"`
	Key      string `json:",omitempty"` // below the prefix
	StoredAs string `json:",omitempty"` // group/version
}

type kind struct {
	GroupVersion, Kind string
	Deprecated         int `json:",omitempty"` // minor
}

func main() {
	var out struct {
		facts.Component
		Admission, AdmissionOn, Authorization, Reconcilers []string
		Resources                                          []resource
		Kinds                                              []kind
		Roles                                              []rbacv1.ClusterRole
	}
	out.Component = facts.Of(app.NewAPIServerCommand())
	out.Admission = options.AllOrderedPlugins
	off := options.DefaultOffAdmissionPlugins()
	for _, plugin := range out.Admission {
		if !off.Has(plugin) {
			out.AdmissionOn = append(out.AdmissionOn, plugin)
		}
	}
	out.Authorization = modes.AuthorizationModeChoices
	for _, reconciler := range reconcilers.AllTypes {
		out.Reconcilers = append(out.Reconcilers, string(reconciler))
	}
	data, err := os.ReadFile(os.Args[2])
	facts.Stop(err)
	facts.Stop(json.Unmarshal(data, &out.Resources))
	served(out.Resources)
	stored(out.Resources)
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, crds.Scheme, aggregatorscheme.Scheme} {
		out.Kinds = append(out.Kinds, kinds(scheme)...)
	}
	slices.SortFunc(out.Kinds, func(a, b kind) int {
		return strings.Compare(a.GroupVersion+" "+a.Kind, b.GroupVersion+" "+b.Kind)
	})
	// The roles of controllers whose gates are off are left out otherwise.
	for _, gate := range out.Gates {
		if gate.Stage == "ALPHA" || gate.Stage == "BETA" {
			_ = utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{gate.Name: true}) // some exclude others
		}
	}
	out.Roles = bootstrappolicy.ControllerRoles()
	facts.Print(out)
}

// served says what is on without any --runtime-config.
func served(resources []resource) {
	sources := []*serverstorage.ResourceConfig{controlplane.DefaultAPIResourceConfigSource(),
		crds.DefaultAPIResourceConfigSource(), aggregator.DefaultAPIResourceConfigSource()}
	for i, r := range resources {
		gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
		resources[i].On = slices.ContainsFunc(sources, func(s *serverstorage.ResourceConfig) bool {
			return s.ResourceEnabled(gvr)
		})
	}
}

// stored encodes an empty object of each resource as the server would for etcd.
func stored(resources []resource) {
	config := kubeapiserver.NewStorageFactoryConfig()
	config.APIResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	etcd := serveroptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	etcd.DefaultStorageMediaType = "application/json"
	factory, err := config.Complete(etcd).New()
	facts.Stop(err)
	for i, r := range resources {
		internal := schema.GroupVersionKind{Group: r.Group, Version: runtime.APIVersionInternal, Kind: r.Kind}
		if !r.Stored || !legacyscheme.Scheme.Recognizes(internal) {
			continue // CustomResourceDefinitions and APIServices have servers of their own
		}
		object, err := legacyscheme.Scheme.New(internal)
		facts.Stop(err)
		gr := schema.GroupResource{Group: r.Group, Resource: r.Name}
		storage, err := factory.NewConfig(gr, object)
		facts.Stop(err)
		encoded, err := runtime.Encode(storage.Codec, object)
		facts.Stop(err)
		var head struct{ APIVersion string }
		facts.Stop(json.Unmarshal(encoded, &head))
		resources[i].Key, resources[i].StoredAs = factory.ResourcePrefix(gr), head.APIVersion
	}
}

func kinds(scheme *runtime.Scheme) []kind {
	var found []kind
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		k := kind{GroupVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
		object, err := scheme.New(gvk)
		facts.Stop(err)
		if life, ok := object.(interface{ APILifecycleDeprecated() (int, int) }); ok {
			_, k.Deprecated = life.APILifecycleDeprecated()
		}
		found = append(found, k)
	}
	return found
}
