//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// pizzaVersions are those in which each side has pizzas, and pizzaFiles the CRDs of examples in the side's format.
var (
	pizzaVersions = map[pair.Side]string{pair.Legacy: "v1alpha1", pair.Modern: "v1"}
	pizzaFiles    = map[pair.Side]string{pair.Legacy: "v1beta1/crd.yaml", pair.Modern: "crd.yaml"}
)

func pizzasOf(version string) string {
	return "/apis/" + pizzaGroup + "/" + version + "/namespaces/default/pizzas"
}

// serve lets the side have pizzas in its version alone.
func (g *gatewayed) serve(t *testing.T, side pair.Side) {
	t.Helper()
	text, err := os.ReadFile("../../examples/pizza/" + pizzaFiles[side])
	must(t, err)
	var crd object
	must(t, yaml.Unmarshal(text, &crd))
	spec := crd["spec"].(map[string]any)
	spec["versions"] = slices.DeleteFunc(spec["versions"].([]any), func(v any) bool {
		return v.(map[string]any)["name"] != pizzaVersions[side]
	})
	version := spec["versions"].([]any)[0].(map[string]any)
	version["storage"] = true
	if side == pair.Legacy { // one schema of all versions has another place there
		spec["validation"] = version["schema"]
		delete(version, "schema")
	}
	delete(spec, "conversion")
	g.must(side, http.MethodPost, "/apis/"+crd["apiVersion"].(string)+"/customresourcedefinitions", crd)
	g.Eventually("the "+string(side)+" side has pizzas", func(ctx context.Context) error {
		return g.admin[side].Call(ctx, http.MethodGet, pizzasOf(pizzaVersions[side]), nil, nil)
	})
}

// customResources: each side has a CRD with a version of its own, and kubectl and an informer have the objects of both
// in either version, by the rules of the example.
func (g *gatewayed) customResources(t *testing.T) {
	for _, side := range pair.Sides() {
		g.serve(t, side)
	}
	g.must(pair.Legacy, http.MethodPost, pizzasOf("v1alpha1"), object{"apiVersion": pizzaGroup + "/v1alpha1",
		"kind": "Pizza", "metadata": object{"name": "margherita"},
		"spec": object{"size": "M", "remark": "not too hot", "toppings": []string{"tomato"}}})
	const old, new = "pizzas.v1alpha1." + pizzaGroup, "pizzas.v1." + pizzaGroup
	g.Eventually("kubectl has pizzas of both versions", func(context.Context) error {
		_, err := g.kubectl("", "get", new, "margherita")
		if err == nil {
			_, err = g.kubectl("", "get", old, "margherita")
		}
		return err
	})
	says(t, g.ok("", "get", new, "margherita", "-o", "yaml"), "kubefusion.dev/side: legacy", "size: Medium",
		"apiVersion: "+pizzaGroup+"/v1\n")

	seen := g.pizzas(t, "v1alpha1")
	for _, client := range kubectls {
		g := g.with(t, client)
		name := "funghi-" + client.String()
		// Of a version that the modern side does not have, where new ones go.
		g.ok(fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: Pizza\nmetadata: {name: %q}\nspec: {size: L, remark: hot}\n",
			pizzaGroup, name), "apply", "-f", "-")
		read := func(side pair.Side, name string) (p struct {
			metav1.ObjectMeta `json:"metadata"`
			Spec              map[string]any
		}) {
			t.Helper()
			must(t, g.admin[side].Call(t.Context(), http.MethodGet, pizzasOf(pizzaVersions[side])+"/"+name, nil, &p))
			if p.Annotations["kubefusion.dev/side"] != "" {
				t.Errorf("the annotation is stored: %v", p.Annotations)
			}
			return p
		}
		if p := read(pair.Modern, name); p.Spec["size"] != "Large" || p.Spec["oven"] != "Stone" {
			t.Errorf("the modern side has %v", p.Spec)
		}
		says(t, g.ok("", "get", old, name, "-o", "yaml"), "size: L", "remark: hot")
		says(t, g.ok("", "get", old), "margherita", name)
		says(t, g.ok("", "describe", new, "margherita"), "Stone")
		for _, size := range []string{"Large", "Medium"} {
			g.ok("", "patch", new, "margherita", "--type=merge", "-p", `{"spec":{"size":"`+size+`"}}`)
			if p := read(pair.Legacy, "margherita"); p.Spec["size"] != size[:1] || p.Spec["remark"] != "not too hot" {
				t.Errorf("the legacy side has %v, want the size %s and the remark", p.Spec, size)
			}
		}
		// What the version of a manifest has no field for stays.
		g.ok(fmt.Sprintf("apiVersion: %s/v1\nkind: Pizza\nmetadata: {name: margherita}\n"+
			"spec: {size: Small, oven: Stone}\n", pizzaGroup), "replace", "--validate=false", "-f", "-")
		if p := read(pair.Legacy, "margherita"); p.Spec["size"] != "S" || p.Spec["remark"] != "not too hot" {
			t.Errorf("replaced, and the legacy side has %v", p.Spec)
		}
		g.Eventually("the informer", func(context.Context) error { return seen("margherita S", name+" L") })
		g.ok("", "delete", old, name)
		g.Eventually("the informer", func(context.Context) error { return seen("margherita S") })
	}
	g.ok("", "delete", new, "--all")
	var left metav1.PartialObjectMetadataList
	must(t, g.admin[pair.Legacy].Call(t.Context(), http.MethodGet, pizzasOf("v1alpha1"), nil, &left))
	if len(left.Items) > 0 {
		t.Errorf("%d pizzas are left", len(left.Items))
	}
}

// pizzas are what an informer has of a version: names and sizes.
func (g *gatewayed) pizzas(t *testing.T, version string) (seen func(want ...string) error) {
	config, err := clientcmd.BuildConfigFromFlags("", g.kubeconfig)
	must(t, err)
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "default", nil)
	informer := factory.ForResource(schema.GroupVersionResource{Group: pizzaGroup, Version: version,
		Resource: "pizzas"}).Informer()
	var mu sync.Mutex
	sizes := map[string]string{}
	record := func(o any) {
		mu.Lock()
		defer mu.Unlock()
		p := o.(*unstructured.Unstructured)
		size, _, _ := unstructured.NestedString(p.Object, "spec", "size")
		sizes[p.GetName()] = p.GetName() + " " + size
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: record,
		UpdateFunc: func(_, o any) { record(o) }, DeleteFunc: func(o any) {
			mu.Lock()
			defer mu.Unlock()
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			delete(sizes, o.(*unstructured.Unstructured).GetName())
		}})
	must(t, err)
	factory.Start(t.Context().Done())
	return func(want ...string) error {
		mu.Lock()
		defer mu.Unlock()
		for _, each := range want {
			name := each[:len(each)-2]
			if sizes[name] != each {
				return fmt.Errorf("%q, want %q", sizes, want)
			}
		}
		if len(sizes) != len(want) {
			return fmt.Errorf("%q, want %q", sizes, want)
		}
		return nil
	}
}
