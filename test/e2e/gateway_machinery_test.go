//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"

	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/test/rig"
)

// machinery is a client of the gateway that relies on what API servers promise: the behaviours that the tests of
// Kubernetes' own suite (test/e2e/apimachinery) hold a cluster to, for what is passed on and for what is merged.
type machinery struct {
	*gatewayed
	t       *testing.T
	client  *dynamic.DynamicClient
	objects []tried
}

// tried is a resource, and how one of its objects is created: that of a merged one on the side that it names.
type tried struct {
	schema.GroupVersionResource
	body  object
	sides []pair.Side // on which objects are created, by turns; none for through the gateway
}

func (m *machinery) of(tr tried) dynamic.ResourceInterface {
	return m.client.Resource(tr.GroupVersionResource).Namespace("default")
}

// create creates object number i of a resource.
func (m *machinery) create(tr tried, i int, name string, labels object) {
	m.t.Helper()
	body := maps.Clone(tr.body)
	body["metadata"] = object{"name": name, "labels": labels}
	if len(tr.sides) == 0 {
		_, err := m.of(tr).Create(m.t.Context(), &unstructured.Unstructured{Object: asJSON(m.t, body)},
			metav1.CreateOptions{})
		must(m.t, err)
		return
	}
	m.must(tr.sides[i%len(tr.sides)], http.MethodPost,
		"/apis/"+tr.GroupVersion().String()+"/namespaces/default/"+tr.Resource, body)
}

// asJSON is a value as JSON has it.
func asJSON(t *testing.T, value any) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	must(t, json.Unmarshal(text, &out))
	return out
}

func (m *machinery) label(tr tried, name, value string) *unstructured.Unstructured {
	m.t.Helper()
	o, err := m.of(tr).Patch(m.t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"watch":"`+value+`"}}}`), metav1.PatchOptions{})
	must(m.t, err)
	return o
}

// watches begins a watch and returns what reads its next event: "ADDED name".
func (m *machinery) watches(tr tried, options metav1.ListOptions) (next func() string, last *string) {
	m.t.Helper()
	w, err := m.of(tr).Watch(m.t.Context(), options)
	must(m.t, err)
	m.t.Cleanup(w.Stop)
	last = new(string)
	return func() string {
		m.t.Helper()
		for {
			select {
			case e, ok := <-w.ResultChan():
				if !ok {
					return "the end"
				}
				if e.Type == watch.Error {
					return fmt.Sprint(apierrors.FromObject(e.Object))
				}
				o := e.Object.(*unstructured.Unstructured)
				*last = o.GetResourceVersion()
				if e.Type != watch.Bookmark {
					return string(e.Type) + " " + o.GetName()
				}
			case <-time.After(time.Minute):
				return "nothing in a minute"
			}
		}
	}, last
}

func (m *machinery) sees(next func() string, want ...string) {
	m.t.Helper()
	for _, each := range want {
		if got := next(); got != each {
			m.t.Fatalf("the watch says %q, want %q", got, each)
		}
	}
}

// with runs a test for each resource.
func (m *machinery) with(what string, test func(*machinery, tried)) {
	for _, tr := range m.objects {
		m.once(what+" "+tr.Resource, func(m *machinery) { test(m, tr) })
	}
}

func (m *machinery) once(what string, test func(*machinery)) {
	m.t.Run(what, func(t *testing.T) {
		inner := *m
		inner.t = t
		test(&inner)
	})
}

// TestGatewayIsAnAPIServer holds the gateway over a real pair to the behaviours of the machinery of the API.
func TestGatewayIsAnAPIServer(t *testing.T) {
	t.Parallel()
	g := startGateway(t, rig.PairSpec{Layout: spec.LayoutSplit, Legacy: "1.15.12", Modern: "1.36.3",
		NoControllers: true})
	kubeconfig, err := g.PKI.Kubeconfig("machinery", g.url, "admin", "system:masters")
	must(t, err)
	g.kubeconfig = kubeconfig
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	m := &machinery{gatewayed: g, t: t, client: client, objects: []tried{
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			body: object{"apiVersion": "v1", "kind": "ConfigMap", "data": object{"a": "b"}}},
		{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1",
			Resource: "controllerrevisions"},
			body: object{"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
				"data": object{"a": "b"}},
			sides: pair.Sides()},
	}}
	m.with("watch by labels", (*machinery).watchesByLabels)
	m.with("watch from a version", (*machinery).watchesFromVersions)
	m.with("chunks", (*machinery).chunks)
	// Of what is passed on, it is the side's own.
	m.once("an expired list", func(m *machinery) { m.expires(m.objects[1]) })
	m.with("tables", (*machinery).tables)
	m.with("field selectors", (*machinery).fieldSelectors)
	m.once("discovery", func(m *machinery) { m.discovers(discovery.NewDiscoveryClientForConfigOrDie(config)) })
	m.once("definitions", (*machinery).definitions)
	m.once("a definition that the other side gets and loses", (*machinery).definitionsOfBoth)
}

// watchesByLabels: watch.go, "should observe add, update, and delete watch notifications", "should observe an object
// deletion if it stops meeting the requirements of the selector".
func (m *machinery) watchesByLabels(tr tried) {
	a, _ := m.watches(tr, metav1.ListOptions{LabelSelector: "watch=a"})
	b, _ := m.watches(tr, metav1.ListOptions{LabelSelector: "watch=b"})
	either, _ := m.watches(tr, metav1.ListOptions{LabelSelector: "watch in (a,b)"})
	for i, name := range []string{"labelled-0", "labelled-1"} {
		m.create(tr, i, name, object{"watch": "a"})
		m.sees(a, "ADDED "+name)
		m.sees(either, "ADDED "+name)
		m.label(tr, name, "b")
		m.sees(a, "DELETED "+name)
		m.sees(b, "ADDED "+name)
		m.sees(either, "MODIFIED "+name)
		m.label(tr, name, "c")
		m.sees(b, "DELETED "+name)
		m.sees(either, "DELETED "+name)
		m.label(tr, name, "b")
		m.sees(b, "ADDED "+name)
		must(m.t, m.of(tr).Delete(m.t.Context(), name, metav1.DeleteOptions{}))
		m.sees(b, "DELETED "+name)
		m.sees(either, "ADDED "+name, "DELETED "+name)
	}
}

// watchesFromVersions: watch.go, "should be able to start watching from a specific resource version", "should be able
// to restart watching from the last resource version observed by the previous watch", "should receive events on
// concurrent watches in same order" (of one side: between two there is no order).
func (m *machinery) watchesFromVersions(tr tried) {
	list, err := m.of(tr).List(m.t.Context(), metav1.ListOptions{LabelSelector: "from=here"})
	must(m.t, err)
	from := metav1.ListOptions{LabelSelector: "from=here", ResourceVersion: list.GetResourceVersion()}
	for i, name := range []string{"from-0", "from-1"} {
		m.create(tr, i, name, object{"from": "here"})
		first := m.label(tr, name, "1").GetResourceVersion()
		m.label(tr, name, "2")
		later, _ := m.watches(tr, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: first})
		m.sees(later, "MODIFIED "+name)
		must(m.t, m.of(tr).Delete(m.t.Context(), name, metav1.DeleteOptions{}))
		m.sees(later, "DELETED "+name)
		whole, last := m.watches(tr, from)
		m.sees(whole, "ADDED "+name, "MODIFIED "+name)
		again, end := m.watches(tr, metav1.ListOptions{LabelSelector: "from=here", ResourceVersion: *last})
		m.sees(again, "MODIFIED "+name, "DELETED "+name)
		m.sees(whole, "MODIFIED "+name, "DELETED "+name)
		from.ResourceVersion = *end
	}
}

// chunks: chunking.go, "should return chunks of results for list calls".
func (m *machinery) chunks(tr tried) {
	const count, limit = 30, 7
	for i := range count {
		m.create(tr, i, fmt.Sprintf("chunk-%02d", i), object{"chunk": "yes"})
	}
	seen := map[string]bool{}
	version := ""
	options := metav1.ListOptions{LabelSelector: "chunk=yes", Limit: limit}
	for pages := 1; ; pages++ {
		list, err := m.of(tr).List(m.t.Context(), options)
		must(m.t, err)
		if version == "" {
			version = list.GetResourceVersion()
			m.create(tr, 1, "chunk-later", object{"chunk": "yes"}) // is not part of what the first page began
		}
		if list.GetResourceVersion() != version || len(list.Items) > limit+1 {
			m.t.Errorf("page %d has %d objects at version %q, want at most %d at %q", pages, len(list.Items),
				list.GetResourceVersion(), limit+1, version)
		}
		for _, o := range list.Items {
			if seen[o.GetName()] {
				m.t.Errorf("%s is on two pages", o.GetName())
			}
			seen[o.GetName()] = true
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			break
		}
	}
	if len(seen) != count || seen["chunk-later"] {
		m.t.Errorf("the pages have %d objects, want %d", len(seen), count)
	}
	whole, err := m.of(tr).List(m.t.Context(), metav1.ListOptions{LabelSelector: "chunk=yes"})
	must(m.t, err)
	if len(whole.Items) != count+1 {
		m.t.Errorf("the whole list has %d objects, want %d", len(whole.Items), count+1)
	}
	m.create(tr, 1, "not-a-chunk", object{"chunk": "no"})
	must(m.t, m.of(tr).DeleteCollection(m.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "chunk=yes"}))
	m.Eventually("the collection is gone", func(ctx context.Context) error {
		rest, err := m.of(tr).List(ctx, metav1.ListOptions{LabelSelector: "chunk"})
		if err == nil && (len(rest.Items) != 1 || rest.Items[0].GetName() != "not-a-chunk") {
			err = fmt.Errorf("%d objects are left", len(rest.Items))
		}
		return err
	})
	must(m.t, m.of(tr).Delete(m.t.Context(), "not-a-chunk", metav1.DeleteOptions{}))
}

// expires: a token and a version that no API server has any more are 410, and a client that lists in pages lists all.
func (m *machinery) expires(tr tried) {
	for i := range 4 {
		m.create(tr, i, fmt.Sprintf("expiring-%d", i), object{"expiring": "yes"})
	}
	options := metav1.ListOptions{LabelSelector: "expiring=yes", Limit: 2}
	list, err := m.of(tr).List(m.t.Context(), options)
	must(m.t, err)
	for i := range 4 {
		m.label(tr, fmt.Sprintf("expiring-%d", i), "later")
	}
	for _, store := range m.Stores {
		client := store.Client()
		now, err := client.Get(m.t.Context(), "/")
		must(m.t, err)
		_, err = client.Compact(m.t.Context(), now.Header.Revision)
		must(m.t, err)
	}
	options.Continue = list.GetContinue()
	if _, err := m.of(tr).List(m.t.Context(), options); !apierrors.IsResourceExpired(err) {
		m.t.Errorf("a token of what is compacted: %v, want 410 Expired", err)
	}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Continue != "" {
			options.Continue = list.GetContinue() // as though the first page had been read before
		}
		return m.of(tr).List(ctx, options)
	})
	pages.PageSize = 2
	all, _, err := pages.List(m.t.Context(), metav1.ListOptions{LabelSelector: "expiring=yes"})
	must(m.t, err)
	if got := len(all.(*unstructured.UnstructuredList).Items); got != 4 {
		m.t.Errorf("a client that lists in pages has %d objects, want 4", got)
	}
}

// tables: table_conversion.go.
func (m *machinery) tables(tr tried) {
	for i := range 2 {
		m.create(tr, i, fmt.Sprintf("shown-%d", i), object{"shown": "yes"})
	}
	path := "/api/v1"
	if tr.Group != "" {
		path = "/apis/" + tr.GroupVersion().String()
	}
	path += "/namespaces/default/" + tr.Resource
	ask := func(method, path, accept, body string) (int, []byte) {
		m.t.Helper()
		r, err := http.NewRequestWithContext(m.t.Context(), method, m.url+path, strings.NewReader(body))
		must(m.t, err)
		r.Header.Set("Accept", accept)
		r.Header.Set("Content-Type", "application/json")
		response, err := httpClient(m.t, m.kubeconfig).Do(r)
		must(m.t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(m.t, err)
		return response.StatusCode, text
	}
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	code, text := ask(http.MethodGet, path+"?labelSelector=shown%3Dyes", table, "")
	var shown metav1.Table
	must(m.t, json.Unmarshal(text, &shown))
	if code != http.StatusOK || len(shown.Rows) != 2 || len(shown.ColumnDefinitions) < 2 ||
		shown.ColumnDefinitions[0].Name != "Name" {
		m.t.Errorf("a Table: %d %s", code, text)
	}
	for _, row := range shown.Rows {
		if len(row.Cells) != len(shown.ColumnDefinitions) {
			m.t.Errorf("a row has %d cells of %d columns", len(row.Cells), len(shown.ColumnDefinitions))
		}
	}
	code, text = ask(http.MethodGet, path+"?labelSelector=shown%3Dyes",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "")
	if code != http.StatusOK || !strings.Contains(string(text), `"shown-1"`) || strings.Contains(string(text), `"data"`) {
		m.t.Errorf("metadata alone: %d %s", code, text)
	}
	if code, text = ask(http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", table,
		`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{
		"verb":"get","resource":"pods"}}}`); code != http.StatusNotAcceptable {
		m.t.Errorf("a review as a Table: %d %s, want 406", code, text)
	}
}

// fieldSelectors: what an object is called selects it, and a field that the kind has not is refused.
func (m *machinery) fieldSelectors(tr tried) {
	for i := range 3 {
		m.create(tr, i, fmt.Sprintf("selected-%d", i), object{"selected": "yes"})
	}
	for selector, want := range map[string][]string{
		"metadata.name=selected-1":                             {"selected-1"},
		"metadata.name!=selected-1,metadata.namespace=default": {"selected-0", "selected-2"},
		"metadata.namespace=kube-system":                       nil,
	} {
		list, err := m.of(tr).List(m.t.Context(), metav1.ListOptions{LabelSelector: "selected=yes",
			FieldSelector: selector})
		must(m.t, err)
		var got []string
		for _, o := range list.Items {
			got = append(got, o.GetName())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			m.t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	_, err := m.of(tr).List(m.t.Context(), metav1.ListOptions{FieldSelector: "spec.nonsense=1"})
	if !apierrors.IsBadRequest(err) {
		m.t.Errorf("a field that there is not: %v, want 400", err)
	}
}

// definitions: custom_resource_definition.go and crd_watch.go: a definition that is created is served within seconds,
// its objects can be watched, their status is written apart, and what is deleted is not served any more.
func (m *machinery) definitions() {
	crds := m.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	gvr := schema.GroupVersionResource{Group: "machinery.example.test", Version: "v1", Resource: "parts"}
	name := gvr.GroupResource().String()
	crd := asJSON(m.t, object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": name}, "spec": object{"group": gvr.Group, "scope": "Namespaced",
			"names": object{"plural": "parts", "singular": "part", "kind": "Part", "listKind": "PartList"},
			"versions": []object{{"name": "v1", "served": true, "storage": true,
				"subresources": object{"status": object{}}, "schema": object{"openAPIV3Schema": object{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}})
	_, err := crds.Create(m.t.Context(), &unstructured.Unstructured{Object: crd}, metav1.CreateOptions{})
	must(m.t, err)
	parts := m.client.Resource(gvr).Namespace("default")
	m.Eventually("the definition is served", func(ctx context.Context) error {
		_, err := parts.List(ctx, metav1.ListOptions{})
		return err
	})
	tr := tried{GroupVersionResource: gvr, body: object{"apiVersion": "machinery.example.test/v1", "kind": "Part",
		"spec": object{"size": 1}}}
	next, _ := m.watches(tr, metav1.ListOptions{})
	m.create(tr, 0, "bolt", object{})
	m.sees(next, "ADDED bolt")
	for _, patch := range []struct{ body, subresource string }{{`{"spec":{"size":2},"status":{"state":"ignored"}}`, ""},
		{`{"spec":{"size":3},"status":{"state":"good"}}`, "status"}} {
		var of []string
		if patch.subresource != "" {
			of = append(of, patch.subresource)
		}
		_, err := parts.Patch(m.t.Context(), "bolt", types.MergePatchType, []byte(patch.body), metav1.PatchOptions{},
			of...)
		must(m.t, err)
		m.sees(next, "MODIFIED bolt")
	}
	bolt, err := parts.Get(m.t.Context(), "bolt", metav1.GetOptions{})
	must(m.t, err)
	size, _, _ := unstructured.NestedInt64(bolt.Object, "spec", "size")
	state, _, _ := unstructured.NestedString(bolt.Object, "status", "state")
	if size != 2 || state != "good" {
		m.t.Errorf("the object is %v, want size 2 and the state good", bolt.Object)
	}
	must(m.t, parts.Delete(m.t.Context(), "bolt", metav1.DeleteOptions{}))
	m.sees(next, "DELETED bolt")
	must(m.t, crds.Delete(m.t.Context(), name, metav1.DeleteOptions{}))
	m.Eventually("the definition is served no more", func(ctx context.Context) error {
		if _, err := parts.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%w, want 404", errors.Join(err, errors.New("listed")))
		}
		return nil
	})
}

// definitionsOfBoth: an informer of custom resources of one side has those of the other side, too, when that gets their
// definition, and has them no more when it is deleted there.
func (m *machinery) definitionsOfBoth() {
	gvr := schema.GroupVersionResource{Group: "both.example.test", Version: "v1", Resource: "parts"}
	name := gvr.GroupResource().String()
	names := object{"plural": "parts", "singular": "part", "kind": "Part", "listKind": "PartList"}
	definitions := map[pair.Side]object{
		pair.Legacy: {"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
			"metadata": object{"name": name}, "spec": object{"group": gvr.Group, "version": "v1", "scope": "Namespaced",
				"names": names}},
		pair.Modern: {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": object{"name": name}, "spec": object{"group": gvr.Group, "scope": "Namespaced", "names": names,
				"versions": []object{{"name": "v1", "served": true, "storage": true, "schema": object{
					"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}},
	}
	at := func(side pair.Side) string {
		return "/apis/" + definitions[side]["apiVersion"].(string) + "/customresourcedefinitions"
	}
	const objects = "/apis/both.example.test/v1/namespaces/default/parts"
	serve := func(side pair.Side, part string) {
		m.t.Helper()
		m.must(side, http.MethodPost, at(side), definitions[side])
		m.Eventually("the "+string(side)+" side has a part", func(ctx context.Context) error {
			return m.admin[side].Call(ctx, http.MethodPost, objects, object{"apiVersion": "both.example.test/v1",
				"kind": "Part", "metadata": object{"name": part}}, nil)
		})
	}
	serve(pair.Modern, "new")
	m.Eventually("the gateway has parts", func(ctx context.Context) error {
		_, err := m.client.Resource(gvr).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	})
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(m.client, 0, "default", nil)
	informer := factory.ForResource(gvr).Informer()
	lost := make(chan string, 100)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		lost <- fmt.Sprint(key, err)
	}})
	must(m.t, err)
	stop := make(chan struct{})
	defer factory.Shutdown()
	defer close(stop)
	factory.Start(stop)
	has := func(what string, want ...string) {
		m.t.Helper()
		m.Eventually("the informer, "+what, func(context.Context) error {
			if got := informer.GetStore().ListKeys(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				return fmt.Errorf("has %q, want %q", got, want)
			}
			return nil
		})
	}
	has("of the modern side", "default/new")
	serve(pair.Legacy, "old")
	has("of both sides", "default/new", "default/old")
	// A side that starts has no definitions in its discovery at first: its objects are not gone.
	for _, side := range pair.Sides() {
		m.RestartServer(side)
		part := "during-" + string(side)
		m.Eventually("a part of the "+string(side)+" side", func(ctx context.Context) error {
			return m.admin[side].Call(ctx, http.MethodPost, objects, object{"apiVersion": "both.example.test/v1",
				"kind": "Part", "metadata": object{"name": part}}, nil)
		})
		m.Eventually(part+" in the informer", func(context.Context) error {
			if got := informer.GetStore().ListKeys(); !slices.Contains(got, "default/"+part) {
				return fmt.Errorf("has %q", got)
			}
			return nil
		})
		if len(lost) > 0 {
			m.t.Errorf("when the %s side starts again, an informer loses %s", side, <-lost)
		}
		m.must(side, http.MethodDelete, objects+"/"+part, nil)
		has("of both sides", "default/new", "default/old")
		<-lost // what was deleted
	}
	// A definition comes again on the modern side alone: on 1.15 requests may hang for minutes then.
	m.must(pair.Modern, http.MethodDelete, at(pair.Modern)+"/"+name, nil)
	has("of the legacy side", "default/old")
	m.Eventually("the definition is gone", func(ctx context.Context) error { // after its objects
		err := m.admin[pair.Modern].Call(ctx, http.MethodGet, at(pair.Modern)+"/"+name, nil, nil)
		if rig.Code(err) != http.StatusNotFound {
			return fmt.Errorf("it is still there: %v", err)
		}
		return nil
	})
	serve(pair.Modern, "newer")
	has("of both sides again", "default/newer", "default/old")
	m.must(pair.Legacy, http.MethodDelete, at(pair.Legacy)+"/"+name, nil)
	has("of the modern side again", "default/newer")
	m.must(pair.Modern, http.MethodDelete, at(pair.Modern)+"/"+name, nil)
}

// discovers: discovery.go and aggregated_discovery.go: each group has a preferred version that it serves, each version
// its resources, and both forms of discovery say the same.
func (m *machinery) discovers(client *discovery.DiscoveryClient) {
	groups, aggregated, failed, err := client.GroupsAndMaybeResources()
	must(m.t, err)
	if aggregated == nil || len(failed) > 0 {
		m.t.Fatalf("there is no aggregated discovery, or some fails: %v", failed)
	}
	legacy := client.WithLegacy()
	alone, err := legacy.ServerGroups()
	must(m.t, err)
	if len(alone.Groups) != len(groups.Groups) {
		m.t.Errorf("%d groups, aggregated %d", len(alone.Groups), len(groups.Groups))
	}
	for _, group := range groups.Groups {
		var versions []string
		for _, v := range group.Versions {
			versions = append(versions, v.GroupVersion)
			gv, err := schema.ParseGroupVersion(v.GroupVersion)
			must(m.t, err)
			one, err := legacy.ServerResourcesForGroupVersion(v.GroupVersion)
			must(m.t, err)
			names := func(list []metav1.APIResource) (all []string) {
				for _, r := range list {
					all = append(all, r.Name+" "+r.Kind)
				}
				slices.Sort(all)
				return all
			}
			if got, want := names(aggregated[gv].APIResources), names(one.APIResources); !slices.Equal(got, want) {
				m.t.Errorf("%s: aggregated %q, alone %q", gv, got, want)
			}
			for _, r := range one.APIResources {
				if slices.Contains(r.Verbs, "list") && !strings.Contains(r.Name, "/") {
					if _, err := m.client.Resource(gv.WithResource(r.Name)).List(m.t.Context(),
						metav1.ListOptions{Limit: 1}); err != nil {
						m.t.Errorf("%s %s is shown with list, and is not listed: %v", gv, r.Name, err)
					}
				}
			}
		}
		if !slices.Contains(versions, group.PreferredVersion.GroupVersion) {
			m.t.Errorf("%s prefers %s, and has %q", group.Name, group.PreferredVersion.GroupVersion, versions)
		}
	}
}
