package controllers

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A catalog is believed when the server is ready and lists every resource of its version; what is defined and not
// listed is a group about which nothing is known.
func TestCompleteCatalogs(t *testing.T) {
	listed := func(failed map[string]error, gvrs ...schema.GroupVersionResource) *catalog {
		c := &catalog{failed: failed, versions: map[schema.GroupVersion]bool{}}
		for _, gvr := range gvrs {
			c.resources = append(c.resources, resource{GroupVersionResource: gvr})
			c.versions[gvr.GroupVersion()] = true
		}
		return c
	}
	v1 := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	pods, sets, widgets := v1("", "pods"), v1("apps", "replicasets"), v1("example.test", "widgets")
	builtIn := []schema.GroupResource{pods.GroupResource(), sets.GroupResource()}
	crd := func(unserved error, local bool) []definition {
		serves := schema.GroupVersionResource{Group: "example.test", Resource: "widgets"}
		return []definition{{kind: "CustomResourceDefinition", name: "widgets.example.test", serves: serves,
			unserved: unserved, local: local}}
	}
	service := func(local bool) []definition {
		serves := schema.GroupVersionResource{Group: "example.test", Version: "v1"}
		return []definition{{kind: "APIService", name: "v1.example.test", serves: serves, local: local}}
	}
	thirdParty := []definition{{kind: "ThirdPartyResource", name: "widget.example.test",
		serves: schema.GroupVersionResource{Group: "example.test"}}}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		catalog     *catalog
		ready       error
		definitions []definition
		incomplete  bool
		failed      []string // groups about which nothing may be said
		dormant     []string
	}{
		"everything is listed": {catalog: listed(nil, pods, sets, widgets),
			definitions: slices.Concat(crd(nil, false), service(false), thirdParty)},
		"nothing is defined": {catalog: listed(nil, pods, sets)},
		"the server is not ready": {catalog: listed(nil, pods, sets, widgets), ready: broken,
			incomplete: true},
		"the core is missing":               {catalog: listed(nil, sets), incomplete: true},
		"a group of the version is missing": {catalog: listed(nil, pods), incomplete: true},
		"everything is missing":             {catalog: listed(nil), incomplete: true},
		"another resource of the group":     {catalog: listed(nil, pods, v1("apps", "deployments")), incomplete: true},
		"a group of the version failed": {catalog: listed(map[string]error{"apps": broken}, pods),
			failed: []string{"apps"}},
		"a definition is not listed": {catalog: listed(nil, pods, sets), definitions: crd(nil, false),
			failed: []string{"example.test"}},
		"another kind of the group is": {catalog: listed(nil, pods, sets, v1("example.test", "gadgets")),
			definitions: crd(nil, false),
			failed:      []string{"example.test"}},
		"its group failed": {catalog: listed(map[string]error{"example.test": broken}, pods, sets),
			definitions: crd(nil, false),
			failed:      []string{"example.test"}},
		"it was never established": {catalog: listed(nil, pods, sets), definitions: crd(errDormant, false),
			dormant: []string{"example.test"}},
		"none of its versions is served": {catalog: listed(nil, pods, sets), definitions: crd(broken, false),
			failed: []string{"example.test"}},
		"an extension API server is not listed": {catalog: listed(nil, pods, sets), definitions: service(false),
			failed: []string{"example.test"}},
		"another version of it is": {catalog: listed(nil, pods, sets,
			schema.GroupVersionResource{Group: "example.test", Version: "v2", Resource: "widgets"}),
			definitions: service(false), failed: []string{"example.test"}},
		"what the server says of itself is stale": {catalog: listed(nil, pods, sets), definitions: service(true)},
		"a third-party resource is not listed yet": {catalog: listed(nil, pods, sets), definitions: thirdParty,
			failed: []string{"example.test"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.catalog.failed)
			judged, err := complete(test.catalog, test.ready, builtIn, test.definitions)
			if errors.Is(err, errIncomplete) != test.incomplete || (err != nil) != test.incomplete {
				t.Fatalf("complete = %v, want incomplete %t", err, test.incomplete)
			}
			if !maps.Equal(before, test.catalog.failed) {
				t.Error("complete changes the catalog that it judges")
			}
			if err != nil {
				return
			}
			if got := slices.Sorted(maps.Keys(judged.failed)); !slices.Equal(got, test.failed) {
				t.Errorf("failed groups %q, want %q", got, test.failed)
			}
			if got := slices.Sorted(maps.Keys(judged.dormant)); !slices.Equal(got, test.dormant) {
				t.Errorf("dormant groups %q, want %q", got, test.dormant)
			}
			for _, group := range slices.Concat(test.failed, test.dormant) {
				if judged.failure(group) == nil {
					t.Errorf("failure(%q) = nil, want a doubt", group)
				}
			}
		})
	}
}

// unservedCRD reads definitions of both versions.
func TestUnservedDefinitions(t *testing.T) {
	condition := func(kind, status string) any { return map[string]any{"type": kind, "status": status} }
	established := map[string]any{
		"conditions": []any{condition("NamesAccepted", "True"), condition("Established", "True")}}
	refused := map[string]any{"conditions": []any{condition("Established", "False")}}
	served := func(answers ...any) map[string]any {
		var versions []any
		for _, answer := range answers {
			versions = append(versions, map[string]any{"name": "v1", "served": answer})
		}
		return map[string]any{"versions": versions}
	}
	for name, test := range map[string]struct {
		crd             map[string]any
		served, dormant bool
	}{
		"served": {map[string]any{"spec": served(false, true), "status": established}, true, false},
		"before 1.11": {map[string]any{"spec": map[string]any{"version": "v1"}, "status": established},
			true, false},
		"no version is served": {map[string]any{"spec": served(false, false), "status": established}, false, false},
		"without status":       {map[string]any{"spec": served(true)}, false, true},
		"its names are taken":  {map[string]any{"spec": served(true), "status": refused}, false, true},
		"conditions of no meaning": {
			map[string]any{"spec": served(true), "status": map[string]any{"conditions": []any{"x"}}}, false, true},
	} {
		err := unservedCRD(test.crd)
		if (err == nil) != test.served || errors.Is(err, errDormant) != test.dormant {
			t.Errorf("%s: unservedCRD = %v, want served %t, dormant %t", name, err, test.served, test.dormant)
		}
	}
}

// What --runtime-config takes away is not waited for.
func TestBuiltInResourcesWithoutWhatArgumentsTurnOff(t *testing.T) {
	gr := func(text string) schema.GroupResource { return schema.ParseGroupResource(text) }
	for setting, want := range map[string]struct{ has, hasNot []string }{
		"": {has: []string{"pods", "replicasets.apps", "replicasets.extensions", "cronjobs.batch"},
			hasNot: []string{"mutatingadmissionpolicies.admissionregistration.k8s.io"}},
		"extensions/v1beta1=false": {has: []string{"replicasets.apps"},
			hasNot: []string{"replicasets.extensions"}},
		"extensions/v1beta1/replicasets=false": {has: []string{"ingresses.extensions"},
			hasNot: []string{"replicasets.extensions"}},
		"api/beta=false,batch/v1beta1=true": {has: []string{"cronjobs.batch", "pods"},
			hasNot: []string{"replicasets.extensions"}},
		"api/all=false,api/v1=true,apps/v1=true": {has: []string{"pods", "replicasets.apps"},
			hasNot: []string{"cronjobs.batch"}},
	} {
		p := testPlan(t)
		p.Legacy.RuntimeConfig = map[string]bool{}
		for setting := range strings.SplitSeq(setting, ",") {
			key, value, _ := strings.Cut(setting, "=")
			p.Legacy.RuntimeConfig[key] = value == "true"
		}
		got := layout{p}.builtIn(legacy)
		for _, has := range want.has {
			if !slices.Contains(got, gr(has)) {
				t.Errorf("--runtime-config=%s: %s is not expected", setting, has)
			}
		}
		for _, has := range want.hasNot {
			if slices.Contains(got, gr(has)) {
				t.Errorf("--runtime-config=%s: %s is expected", setting, has)
			}
		}
	}
}
