package storage_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

// keyMap has the scopes of a few resources, as a plan would give them.
func keyMap() *pair.Map {
	return &pair.Map{Prefix: "/registry", Resources: []pair.Resource{
		{Key: "pods", Namespaced: true}, {Key: "minions"}, {Key: "services/specs", Namespaced: true},
		{Key: "services/endpoints", Namespaced: true},
		{Key: "ingress", Namespaced: true}, {Key: "podsecuritypolicy"}, {Key: "controllers", Namespaced: true},
		{Key: "events", Namespaced: true},
		{Key: "namespaces"}, {Key: "clusterroles"}, {Key: "ranges"}, {Key: "masterleases"}, {Key: "peerserverleases"},
		{Key: "ipaddresses"},
		{Key: "thirdpartyresources"}, {Key: "kubeflow.org/*"},
	}}
}

func TestClassify(t *testing.T) {
	c := storage.NewClassifier(keyMap())
	object := func(resource, namespace, name string) storage.Key {
		return storage.Key{storage.FormObject, resource, "", namespace, name}
	}
	grouped := func(group, plural, namespace, name string) storage.Key {
		return storage.Key{storage.FormGrouped, group + "/" + plural, group, namespace, name}
	}
	for key, want := range map[string]storage.Key{
		"/registry/pods/default/web-0": object("pods", "default",
			"web-0"),
		"/registry/minions/node-1": object("minions", "",
			"node-1"),
		"/registry/services/specs/default/kubernetes": object("services/specs",
			"default", "kubernetes"),
		"/registry/services/endpoints/kube-system/kube-scheduler": object("services/endpoints",
			"kube-system", "kube-scheduler"),
		"/registry/controllers/default/rc": object("controllers",
			"default", "rc"),
		"/registry/ingress/default/web": object("ingress", "default",
			"web"),
		"/registry/podsecuritypolicy/restricted": object("podsecuritypolicy",
			"", "restricted"),
		"/registry/ranges/serviceips": object("ranges", "",
			"serviceips"),
		"/registry/ranges/servicenodeports": object("ranges", "",
			"servicenodeports"),
		"/registry/ranges/secondaryserviceips": object("ranges", "",
			"secondaryserviceips"),
		"/registry/masterleases/10.0.0.11": object("masterleases", "",
			"10.0.0.11"),
		"/registry/peerserverleases/apiserver-abc": object("peerserverleases",
			"", "apiserver-abc"),
		"/registry/ipaddresses/2001:db8::1": object("ipaddresses", "",
			"2001:db8::1"),
		"/registry/events/default/web-0.14e4c6a1": object("events", "default",
			"web-0.14e4c6a1"),
		"/registry/clusterroles/system:controller:job-controller": object("clusterroles", "",
			"system:controller:job-controller"),
		"/registry/thirdpartyresources/cron-tab.example.com": object("thirdpartyresources",
			"", "cron-tab.example.com"),
		"/registry/apiregistration.k8s.io/apiservices/v1.apps": grouped(
			"apiregistration.k8s.io", "apiservices", "", "v1.apps"),
		"/registry/apiextensions.k8s.io/customresourcedefinitions/notebooks.kubeflow.org": grouped(
			"apiextensions.k8s.io", "customresourcedefinitions", "", "notebooks.kubeflow.org"),
		"/registry/kubeflow.org/notebooks/team-a/nb": grouped("kubeflow.org", "notebooks",
			"team-a", "nb"),
		"/registry/kubeflow.org/profiles/team-a": grouped("kubeflow.org", "profiles", "",
			"team-a"),
		"/registry/ThirdPartyResourceData/example.com/crontabs/default/nightly": {storage.FormThirdParty,
			"ThirdPartyResourceData/example.com/crontabs", "example.com", "default", "nightly"},
		// of a vendor's server
		"/registry/widgets/default/w":   object("widgets", "default", "w"),
		"/registry/widgets/w":           object("widgets", "", "w"),
		"/registry/services/other/x":    object("services", "other", "x"),
		"compact_rev_key":               {Form: storage.FormCompaction},
		"/registry":                     {Form: storage.FormForeign},
		"/k8s/pods/default/web-0":       {Form: storage.FormForeign},
		"/registry2/pods/default/web-0": {Form: storage.FormForeign},
		"":                              {Form: storage.FormForeign},
		"/registry/":                    {Form: storage.FormUnshaped},
		"/registry/health":              {Form: storage.FormUnshaped},
		"/registry/pods/default/\xff":   {Form: storage.FormUnshaped},
		// namespaced
		"/registry/pods/web-0":                {Form: storage.FormUnshaped, Resource: "pods"},
		"/registry/minions/default/node-1":    {Form: storage.FormUnshaped, Resource: "minions"},
		"/registry/pods//web-0":               {Form: storage.FormUnshaped, Resource: "pods"},
		"/registry/pods/default/":             {Form: storage.FormUnshaped, Resource: "pods"},
		"/registry/pods/default/web-0/status": {Form: storage.FormUnshaped, Resource: "pods"},
		"/registry/kubeflow.org/notebooks": {Form: storage.FormUnshaped,
			Resource: "kubeflow.org/notebooks"},
		"/registry/apiregistration.k8s.io/apiservices/default/v1.apps": {Form: storage.FormUnshaped,
			Resource: "apiregistration.k8s.io/apiservices"},
		"/registry/ThirdPartyResourceData/example.com/crontabs": {Form: storage.FormUnshaped,
			Resource: "ThirdPartyResourceData"},
	} {
		if diff := cmp.Diff(want, c.Classify(key)); diff != "" {
			t.Errorf("Classify(%q) (-want +got):\n%s", key, diff)
		}
	}
}

func TestClassifyBelowOtherPrefixes(t *testing.T) {
	for prefix, key := range map[string]string{
		"registry": "/registry/pods/default/web", "/registry/": "/registry/pods/default/web",
		"/a/b": "/a/b/pods/default/web", "/": "/pods/default/web",
	} {
		got := storage.NewClassifier(&pair.Map{Prefix: prefix}).Classify(key)
		if want := (storage.Key{storage.FormObject, "pods", "", "default", "web"}); got != want {
			t.Errorf("prefix %q: Classify(%q) = %+v, want %+v", prefix, key, got, want)
		}
	}
}

func TestPlainName(t *testing.T) {
	for resource, want := range map[string]string{
		"minions": "nodes", "services/specs": "services", "services/endpoints": "endpoints", "ingress": "ingresses",
		"controllers":       "replicationcontrollers",
		"podsecuritypolicy": "podsecuritypolicies", "pods": "pods", "kubeflow.org/notebooks": "notebooks",
	} {
		if got := storage.PlainName(resource); got != want {
			t.Errorf("PlainName(%q) = %q, want %q", resource, got, want)
		}
	}
}

func TestRowPrefersTheExactEntry(t *testing.T) {
	m := &pair.Map{Resources: []pair.Resource{{Key: "kubeflow.org/*", Owner: pair.OwnerModern},
		{Key: "kubeflow.org/notebooks", Owner: pair.OwnerLegacy}},
		CustomResources: pair.Resource{Owner: pair.OwnerSplit}}
	c := storage.NewClassifier(m)
	for key, want := range map[string]pair.Owner{
		"/kubeflow.org/notebooks/ns/a": pair.OwnerLegacy, "/kubeflow.org/profiles/a": pair.OwnerModern,
		"/istio.io/rules/ns/a": pair.OwnerSplit,
	} {
		if got := storage.RowOf(m, c.Classify(key)); got == nil || got.Owner != want {
			t.Errorf("Row(%q) = %+v, want owner %s", key, got, want)
		}
	}
	if got := storage.RowOf(m, c.Classify("/widgets/a")); got != nil {
		t.Errorf("Row of an unknown resource = %+v, want none", got)
	}
}

func FuzzClassify(f *testing.F) {
	for _, key := range []string{
		"/registry/pods/default/web", "/registry/services/specs/default/kubernetes",
		"/registry/kubeflow.org/notebooks/a/b", "compact_rev_key",
		"/registry/ThirdPartyResourceData/a.b/cs/d/e", "/registry/a.b//c", "/registry//", "/registry/services",
		"/registry/services//x/y",
	} {
		f.Add(key)
	}
	storetest.RealEntries(f, "../etcd/snapshot/testdata", func(key string, _ []byte) { f.Add("/registry/" + key) })
	c := storage.NewClassifier(keyMap())
	f.Fuzz(func(t *testing.T, key string) {
		k := c.Classify(key)
		joined, err := c.Join(k)
		switch k.Form {
		case storage.FormForeign, storage.FormUnshaped:
			if err == nil {
				t.Errorf("Join(Classify(%q)) = %q, want an error: %s names no object", key, joined, k.Form)
			}
		case storage.FormCompaction, storage.FormObject, storage.FormGrouped, storage.FormThirdParty:
			if err != nil || joined != key {
				t.Errorf("Join(Classify(%q)) = %q, %v; want the key", key, joined, err)
			}
		default:
			t.Errorf("Classify(%q) has the form %q", key, k.Form)
		}
	})
}
