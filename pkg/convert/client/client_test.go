package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/convert/negotiate"
)

const (
	oldDeployments = "/apis/apps/v1beta1/namespaces/shop/deployments"
	oldWeb         = oldDeployments + "/web"
	webText        = `{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}}}`
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func dynamicClient(t *testing.T, f *fakeServer, options Options) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(f.config(options))
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(deployments).Namespace("shop")
}

func TestReadsComeInTheAskedVersion(t *testing.T) {
	f := newFakeServer(t, 6)
	f.put(oldWeb, webText)
	client := dynamicClient(t, f, Options{})
	object, err := client.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || object.GetAPIVersion() != "apps/v1" || object.GetResourceVersion() != "1" {
		t.Errorf("get: %v %v", object, err)
	}
	list, err := client.List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || list.GetAPIVersion() != "apps/v1" || list.GetKind() != "DeploymentList" ||
		list.GetContinue() != "token-of-the-server" || list.GetResourceVersion() != "1" {
		t.Fatalf("list: %v %v", list, err)
	}
	if item := list.Items[0]; item.GetAPIVersion() != "apps/v1" || item.GetKind() != "Deployment" {
		t.Errorf("item: %v", item)
	}
	if _, err := client.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: list.GetContinue()}); err != nil {
		t.Error(err)
	}
	want := []string{"GET " + oldWeb, "GET " + oldDeployments + "?limit=1",
		"GET " + oldDeployments + "?continue=token-of-the-server&limit=1"}
	if diff := cmp.Diff(want, f.sent()); diff != "" {
		t.Errorf("requests (-want +sent):\n%s", diff)
	}
}

func TestErrorsSpeakOfTheAskedResource(t *testing.T) {
	f := newFakeServer(t, 6)
	client, err := dynamic.NewForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	ingresses := client.Resource(
		schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}).Namespace("shop")
	_, err = ingresses.Get(t.Context(), "web", metav1.GetOptions{})
	status := &apierrors.StatusError{}
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		t.Fatalf("error %v, want not found", err)
	}
	if details := status.Status().Details; details.Group != "networking.k8s.io" || details.Kind != "ingresses" ||
		details.Name != "web" {
		t.Errorf("details %+v", details)
	}
	if want := `ingresses.networking.k8s.io "web" not found`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestWatchConvertsEvents(t *testing.T) {
	f := newFakeServer(t, 6)
	f.events = []string{
		`{"type":"ADDED","object":` + webText + `}`,
		`{"type":"BOOKMARK","object":{"kind":"Deployment","apiVersion":"apps/v1beta1","metadata":{"resourceVersion":"12"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"too old resource version"}}`,
	}
	watcher, err := dynamicClient(t, f, Options{}).
		Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	var got []string
	for event := range watcher.ResultChan() {
		if object, ok := event.Object.(*unstructured.Unstructured); ok {
			got = append(got, string(event.Type)+" "+object.GetAPIVersion()+" "+object.GetName()+" "+
				object.GetResourceVersion())
		} else {
			got = append(got, string(event.Type)+" "+apierrors.FromObject(event.Object).Error())
		}
	}
	if diff := cmp.Diff([]string{"ADDED apps/v1 web ", "BOOKMARK apps/v1  12", "ERROR too old resource version"},
		got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if sent := f.sent(); len(sent) != 1 || !strings.Contains(sent[0], "resourceVersion=7") {
		t.Errorf("requests %v, want one that resumes at 7", sent)
	}
}

func TestWatchEndsAtAnEventThatDoesNotConvert(t *testing.T) {
	f := newFakeServer(t, 6)
	f.events = []string{`{"type":"MODIFIED","object":{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"web"},"spec":"none"}}`}
	watcher, err := dynamicClient(t, f, Options{}).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	event, open := <-watcher.ResultChan()
	if err := apierrors.FromObject(event.Object); !open || event.Type != "ERROR" || !apierrors.IsInternalError(err) {
		t.Errorf("event %v %v, want an internal error", event.Type, err)
	}
}

func TestWriteThatLosesIsRefused(t *testing.T) {
	f := newFakeServer(t, 6)
	object := &unstructured.Unstructured{}
	text := strings.Replace(strings.Replace(webText, "apps/v1beta1", "apps/v1", 1), `"containers"`,
		`"enableServiceLinks":true,"topologySpreadConstraints":[{"maxSkew":1}],"containers"`, 1)
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	_, err := dynamicClient(t, f, Options{}).Create(t.Context(), object, metav1.CreateOptions{})
	lost := &LossError{}
	if !errors.As(err, &lost) || len(lost.Losses) != 1 ||
		lost.Losses[0].Path != "spec.template.spec.topologySpreadConstraints" {
		t.Fatalf("error %v, want the loss of topologySpreadConstraints alone", err)
	}
	if sent := f.sent(); len(sent) != 0 {
		t.Errorf("requests %v, want none", sent)
	}
	var told []*LossError
	_, err = dynamicClient(t, f, Options{OnLoss: func(e *LossError) {
		told = append(told, e)
	}}).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil || len(told) != 1 || f.at(oldWeb) == nil {
		t.Errorf("error %v, told %v: want the object written and its loss told", err, told)
	}
}

// The server's minor may lack a field of a version that it has.
func TestWriteInTheServersVersionThatLosesIsRefused(t *testing.T) {
	f := newFakeServer(t, 10)
	const web = "/apis/apps/v1/namespaces/shop/deployments/web"
	f.put(web, strings.Replace(webText, "apps/v1beta1", "apps/v1", 1))
	client := dynamicClient(t, f, Options{})
	object, err := client.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spread := []any{map[string]any{"maxSkew": int64(1)}}
	if err := unstructured.SetNestedSlice(object.Object, spread, "spec", "template", "spec",
		"topologySpreadConstraints"); err != nil {
		t.Fatal(err)
	}
	_, updateErr := client.Update(t.Context(), object, metav1.UpdateOptions{})
	_, mergeErr := client.Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"topologySpreadConstraints":[{"maxSkew":1}]}}}}`), metav1.PatchOptions{})
	_, jsonErr := client.Patch(t.Context(), "web", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/template/spec/topologySpreadConstraints/-","value":{"maxSkew":1}}]`),
		metav1.PatchOptions{})
	for name, err := range map[string]error{"update": updateErr, "merge patch": mergeErr, "JSON patch": jsonErr} {
		if lost := (&LossError{}); !errors.As(err, &lost) ||
			!strings.HasPrefix(lost.Losses[0].Path, "spec.template.spec.topologySpreadConstraints") {
			t.Errorf("%s: error %v, want a loss", name, err)
		}
	}
}

// widgets are custom resources of which the older version has a field more.
func widgets(t *testing.T) (*fakeServer, dynamic.ResourceInterface) {
	f := newFakeServer(t, 15)
	f.custom["example.dev/v1beta1"] = []metav1.APIResource{{Name: "widgets", Kind: "Widget", Namespaced: true}}
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	older := schema.GroupVersionKind{Group: "example.dev", Version: "v1beta1", Kind: "Widget"}
	newer := schema.GroupVersionKind{Group: "example.dev", Version: "v1", Kind: "Widget"}
	converter.Register(older, newer, func(object map[string]any) (map[string]any, error) {
		spec, _ := object["spec"].(map[string]any)
		delete(spec, "hidden")
		for _, part := range spec["parts"].([]any) {
			delete(part.(map[string]any), "secret")
		}
		return object, nil
	})
	converter.Register(newer, older, func(object map[string]any) (map[string]any, error) { return object, nil })
	f.put("/apis/example.dev/v1beta1/namespaces/shop/widgets/w",
		`{"apiVersion":"example.dev/v1beta1","kind":"Widget","metadata":{"name":"w","namespace":"shop"},
		"spec":{"size":1,"hidden":"h","parts":[{"name":"a","secret":"s"}]}}`)
	client, err := dynamic.NewForConfig(f.config(Options{Converter: converter}))
	if err != nil {
		t.Fatal(err)
	}
	return f, client.Resource(newer.GroupVersion().WithResource("widgets")).Namespace("shop")
}

func TestUpdateKeepsWhatTheAskedVersionCannotShow(t *testing.T) {
	f, client := widgets(t)
	object, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(object.Object, int64(2), "spec", "size"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"size": 2.0, "hidden": "h", "parts": []any{map[string]any{"name": "a", "secret": "s"}}}
	if diff := cmp.Diff(want, f.at("/apis/example.dev/v1beta1/namespaces/shop/widgets/w")["spec"]); diff != "" {
		t.Errorf("after an update (-want +got):\n%s", diff)
	}
	if _, err := client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"size":3}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	want["size"] = 3.0
	if diff := cmp.Diff(want, f.at("/apis/example.dev/v1beta1/namespaces/shop/widgets/w")["spec"]); diff != "" {
		t.Errorf("after a patch (-want +got):\n%s", diff)
	}
	_, err = client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"parts":[{"name":"b"}]}}`),
		metav1.PatchOptions{})
	if lost := (&LossError{}); !errors.As(err, &lost) || lost.Losses[0].Path != "spec.parts" {
		t.Errorf("error %v, want the loss of what the list hides", err)
	}
}

func TestPatches(t *testing.T) {
	for name, tc := range map[string]struct {
		kind  types.PatchType
		patch string
	}{
		"merge": {types.MergePatchType, `{"spec":{"replicas":5}}`},
		"json": {types.JSONPatchType,
			`[{"op":"test","path":"/apiVersion","value":"apps/v1"},{"op":"replace","path":"/spec/replicas","value":5}]`},
		"strategic": {types.StrategicMergePatchType,
			`{"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t, 6)
			f.put(oldWeb, webText)
			// Somebody else writes between the reading and the writing: the patch is carried out on what is there then.
			f.before["PUT "+oldWeb] = func() { f.put(oldWeb, strings.Replace(webText, "web:1", "web:2", 1)) }
			patched, err := dynamicClient(t, f, Options{}).Patch(t.Context(), "web", tc.kind, []byte(tc.patch),
				metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			deployment := &appsv1.Deployment{}
			convertTo(t, patched, deployment)
			containers := deployment.Spec.Template.Spec.Containers
			if *deployment.Spec.Replicas != 5 || containers[len(containers)-1].Image != "web:2" ||
				patched.GetAPIVersion() != "apps/v1" {
				t.Errorf("patched %v", patched.Object)
			}
			if stored := f.at(oldWeb); stored["apiVersion"] != "apps/v1beta1" ||
				name == "strategic" && len(containers) != 2 {
				t.Errorf("stored %v", stored)
			}
		})
	}
}

func convertTo(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	text, err := from.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

func TestPatchesFailAsOnTheServer(t *testing.T) {
	f := newFakeServer(t, 6)
	f.put(oldWeb, webText)
	client := dynamicClient(t, f, Options{})
	for _, tc := range []struct {
		name, object string
		kind         types.PatchType
		patch        string
		is           func(error) bool
	}{
		{"a test that fails", "web", types.JSONPatchType, `[{"op":"test","path":"/spec/replicas","value":9}]`,
			func(err error) bool {
				return apierrors.ReasonForError(err) == metav1.StatusReasonInvalid || status(err) == 422
			}},
		{"another resource version", "web", types.MergePatchType, `{"metadata":{"resourceVersion":"999"}}`,
			apierrors.IsConflict},
		{"no patch", "web", types.MergePatchType, `{`, apierrors.IsBadRequest},
		{"an absent object", "cart", types.MergePatchType, `{}`, apierrors.IsNotFound},
		{"apply", "web", types.ApplyYAMLPatchType, `{"apiVersion":"apps/v1","kind":"Deployment"}`,
			apierrors.IsUnsupportedMediaType},
	} {
		if _, err := client.Patch(t.Context(), tc.object, tc.kind, []byte(tc.patch),
			metav1.PatchOptions{FieldManager: "test"}); !tc.is(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, sent := range f.sent() {
		if !strings.HasPrefix(sent, "GET ") {
			t.Errorf("sent %s", sent)
		}
	}
}

func status(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

func TestUpdateInConflict(t *testing.T) {
	f := newFakeServer(t, 6)
	f.put(oldWeb, webText)
	client := dynamicClient(t, f, Options{})
	object, err := client.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.put(oldWeb, webText)
	if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	object.SetName("cart")
	if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
}

func TestDeletionMeansWhatTheAskedVersionMeans(t *testing.T) {
	f := newFakeServer(t, 6)
	client := dynamicClient(t, f, Options{})
	for _, tc := range []struct {
		options metav1.DeleteOptions
		want    string
	}{
		{metav1.DeleteOptions{}, `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`},
		{metav1.DeleteOptions{OrphanDependents: new(bool)},
			`{"apiVersion":"v1","kind":"DeleteOptions","orphanDependents":false}`},
	} {
		f.put(oldWeb, webText)
		if err := client.Delete(t.Context(), "web", tc.options); err != nil {
			t.Fatal(err)
		}
		if got := f.bodies[len(f.bodies)-1]; got != tc.want {
			t.Errorf("sent %s, want %s", got, tc.want)
		}
	}
	version := "1"
	err := client.Delete(t.Context(), "web",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	if unfaithful := (&UnfaithfulError{}); !errors.As(err, &unfaithful) ||
		!strings.Contains(err.Error(), "preconditions.resourceVersion") {
		t.Errorf("error %v, want a refusal: 1.6 would delete whatever is there", err)
	}
}

// Servers read the options of a deletion in its query only when there is no body: what is said there is not lost by the
// body that the request gets, or dependents that were to stay are deleted, and a dry run deletes.
func TestOptionsOfADeletionInItsQuery(t *testing.T) {
	for query, want := range map[string]string{
		"propagationPolicy=Orphan": `{"propagationPolicy":"Orphan"}`,
		"orphanDependents=true":    `{"orphanDependents":true}`,
		"dryRun=All&gracePeriodSeconds=5&uid=u&pretty=true": `{"dryRun":["All"],"gracePeriodSeconds":5,` +
			`"preconditions":{"uid":"u"},"propagationPolicy":"Orphan"}`,
	} {
		f := newFakeServer(t, 36)
		f.put("/apis/apps/v1/namespaces/shop/deployments/web", strings.Replace(webText, "apps/v1beta1", "apps/v1", 1))
		config := f.config(Options{})
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(query string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete,
				f.URL+"/apis/extensions/v1beta1/namespaces/shop/deployments/web?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			return response.StatusCode
		}
		if code := ask("gracePeriodSeconds=soon"); code != http.StatusBadRequest || len(f.sent()) > 0 {
			t.Errorf("a grace period that is none: %d, want 400 and no request", code)
		}
		if code := ask(query); code != http.StatusOK {
			t.Fatalf("%s: %d", query, code)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(f.bodies[len(f.bodies)-1]), &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "apiVersion")
		delete(got, "kind")
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			t.Errorf("%s: sent %s, want %s", query, text, want)
		}
		if sent := f.sent(); strings.Contains(query, "pretty") != strings.Contains(sent[0], "pretty=true") {
			t.Errorf("%s: sent %s", query, sent)
		}
	}
}

func TestOldServersAreNotMisunderstood(t *testing.T) {
	f := newFakeServer(t, 10)
	const web = "/apis/apps/v1/namespaces/shop/deployments/web"
	f.put(web, strings.Replace(webText, "apps/v1beta1", "apps/v1", 1))
	client := dynamicClient(t, f, Options{})
	_, err := client.Patch(t.Context(), "web", types.MergePatchType, []byte(`{}`),
		metav1.PatchOptions{DryRun: []string{"All"}})
	if unfaithful := (&UnfaithfulError{}); !errors.As(err, &unfaithful) {
		t.Errorf("a dry run: %v, want a refusal", err)
	}
	yes := true
	_, err = client.Watch(t.Context(),
		metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if status(err) != http.StatusUnprocessableEntity {
		t.Errorf("a watch of initial events: %v, want 422, at which informers list", err)
	}
	if sent := f.sent(); len(sent) != 0 {
		t.Errorf("requests %v, want none", sent)
	}
	metadataClient, err := metadata.NewForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	list, err := metadataClient.Resource(deployments).Namespace("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "web" || list.ResourceVersion != "1" {
		t.Errorf("metadata: %v %v", list, err)
	}
}

func TestEvictionInTheServersVersion(t *testing.T) {
	f := newFakeServer(t, 10)
	client, err := kubernetes.NewForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop"}}
	if err := client.PolicyV1().Evictions("shop").Evict(t.Context(), eviction); err != nil {
		t.Fatal(err)
	}
	if body := f.bodies[len(f.bodies)-1]; !strings.Contains(body, `"policy/v1beta1"`) {
		t.Errorf("sent %s, want policy/v1beta1", body)
	}
}

func TestPassIsTheSameBytes(t *testing.T) {
	f := newFakeServer(t, 36)
	client, err := rest.HTTPClientFor(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	const odd = "{ \"apiVersion\":\"v1\", \"kind\":\"ConfigMap\",\n" +
		"\"metadata\":{\"name\":\"a\"},\"data\":{\"z\":\"1\",\"a\":\"2\"}}"
	response, err := client.Post(f.URL+"/api/v1/namespaces/shop/configmaps", "application/json", strings.NewReader(odd))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := f.bodies[0]; got != odd {
		t.Errorf("sent %q, want %q", got, odd)
	}
	direct, through := body(t, http.DefaultClient, f.URL+"/api/v1/namespaces/shop/configmaps/a"),
		body(t, client, f.URL+"/api/v1/namespaces/shop/configmaps/a")
	if !bytes.Equal(direct, through) {
		t.Errorf("read %q, want %q", through, direct)
	}
}

func body(t *testing.T, client *http.Client, url string) []byte {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDiscoveryShowsWhatConverts(t *testing.T) {
	f := newFakeServer(t, 6)
	client, err := discovery.NewDiscoveryClientForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ServerResourcesForGroupVersion("apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	want := "daemonsets daemonsets/status deployments deployments/rollback deployments/scale deployments/status " +
		"replicasets replicasets/scale replicasets/status statefulsets statefulsets/status"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("apps/v1 has %s, want %s", got, want)
	}
	groups, err := client.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Groups {
		if group.Name == "apps" && group.PreferredVersion.Version != "v1beta1" {
			t.Errorf("apps prefers %s, the server v1beta1", group.PreferredVersion.Version)
		}
		if group.Name == "coordination.k8s.io" {
			t.Errorf("1.6 shows %v, and nothing there converts", group)
		}
	}
}

func TestNoAnswerWithoutDiscovery(t *testing.T) {
	f := newFakeServer(t, 6)
	f.put(oldWeb, webText)
	f.failing["extensions/v1beta1"] = true
	_, err := dynamicClient(t, f, Options{}).Get(t.Context(), "web", metav1.GetOptions{})
	if incomplete := (&negotiate.IncompleteError{}); !errors.As(err, &incomplete) ||
		incomplete.Failed.Group != "extensions" {
		t.Errorf("error %v, want one that says that extensions was not listed", err)
	}
	client, err := kubernetes.NewForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(
		err) {
		t.Errorf("error %v, want not found: config maps have nothing to do with it", err)
	}
	if _, err := client.CoordinationV1().Leases("shop").Get(t.Context(), "a", metav1.GetOptions{}); !errors.As(
		err, new(*UnsupportedError)) {
		t.Errorf("error %v, want that 1.6 has no leases", err)
	}
}

// A server that is upgraded while a program runs serves the kind elsewhere.
func TestDiscoveryIsForgottenWhenItIsWrong(t *testing.T) {
	f := newFakeServer(t, 6)
	converter, err := convert.New()
	if err != nil {
		t.Fatal(err)
	}
	live, err := NewLive(&rest.Config{Host: f.URL, QPS: -1}, converter)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	live.now = func() time.Time { return now }
	client := &http.Client{Transport: &transport{next: http.DefaultTransport, live: live, converter: converter}}
	get := func() string {
		return string(body(t, client, f.URL+"/apis/apps/v1/namespaces/shop/deployments/web"))
	}
	f.put(oldWeb, webText)
	if got := get(); !strings.Contains(got, `"apps/v1"`) {
		t.Fatalf("before: %s", got)
	}
	f.mu.Lock()
	f.minor = 36
	f.mu.Unlock()
	f.put("/apis/apps/v1/namespaces/shop/deployments/web", strings.Replace(webText, "apps/v1beta1", "apps/v1", 1))
	f.sent()
	now = now.Add(trustFor)
	if got := get(); !strings.Contains(got, `"apps/v1"`) {
		t.Errorf("after: %s", got)
	}
	want := []string{"GET " + oldWeb, "GET /apis/apps/v1/namespaces/shop/deployments/web"}
	if diff := cmp.Diff(want, f.sent()); diff != "" {
		t.Errorf("requests (-want +sent):\n%s", diff)
	}
}

func TestCancelledWatchEnds(t *testing.T) {
	f := newFakeServer(t, 6)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dynamicClient(t, f, Options{}).Watch(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
}

// What cannot be read could hold what the asked version does not show: it is not written over.
func TestUpdateNeedsToRead(t *testing.T) {
	f, client := widgets(t)
	object, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.forbid = http.MethodGet
	f.sent()
	if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want forbidden", err)
	}
	if sent := f.sent(); len(sent) != 1 || !strings.HasPrefix(sent[0], "GET ") {
		t.Errorf("requests %v, want one that reads", sent)
	}
}

func TestProxiesAreLeftAlone(t *testing.T) {
	f := newFakeServer(t, 6)
	client, err := rest.HTTPClientFor(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Post(f.URL+"/api/v1/namespaces/shop/services/web/proxy/submit", "text/csv",
		strings.NewReader("a,b"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "a,b" {
		t.Errorf("answer %q %v, want what was sent", text, err)
	}
}
