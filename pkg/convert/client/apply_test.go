package client

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/convert"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// applied sends an apply patch of what is asked to a server of a minor, and returns the body that reaches it.
func (f *fakeServer) applied(t *testing.T, asked schema.GroupVersionResource, kind types.PatchType, part string,
	options Options, subresources ...string) (map[string]any, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(f.config(options))
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.requests, f.bodies = nil, nil
	f.mu.Unlock()
	force := true
	answer, err := client.Resource(asked).Namespace("shop").Patch(t.Context(), "web", kind, []byte(part),
		metav1.PatchOptions{FieldManager: "ci", Force: &force, FieldValidation: "Strict"}, subresources...)
	if err == nil && answer.GroupVersionKind().GroupVersion() != asked.GroupVersion() && len(subresources) == 0 {
		t.Errorf("the answer is of %s, want %s", answer.GroupVersionKind(), asked.GroupVersion())
	}
	requests := f.sent()
	f.mu.Lock()
	defer f.mu.Unlock()
	var body map[string]any
	for i, request := range requests {
		if !strings.HasPrefix(request, "PATCH ") {
			continue
		}
		if !strings.HasSuffix(request, "?fieldManager=ci&fieldValidation=Strict&force=true") {
			t.Errorf("sent %s, without what the client says of it", request)
		}
		if err := json.Unmarshal([]byte(f.bodies[i]), &body); err != nil {
			t.Fatal(err)
		}
	}
	return body, err
}

// What is applied is converted, and the manager owns nothing that it did not say, but for what the asked version
// defaults otherwise than that of the server, where the object is created.
func TestApplyConvertsPartsOfObjects(t *testing.T) {
	resource := func(group, version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
	}
	const deployment, ingress = "Deployment", "Ingress"
	for _, tc := range []struct {
		name             string
		asked            schema.GroupVersionResource
		kind, part, want string
		more             []string
	}{
		{"one field", resource("extensions", "v1beta1", "deployments"), deployment, `{"spec":{"replicas":3}}`,
			`{"apiVersion":"apps/v1","spec":{"replicas":3,"progressDeadlineSeconds":2147483647,
			"revisionHistoryLimit":2147483647,"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}}}`, nil},
		{"fields that say zero", resource("apps", "v1beta1", "deployments"), deployment,
			`{"metadata":{"labels":{"a":""}},"spec":{"replicas":0,"paused":false}}`,
			`{"apiVersion":"apps/v1","metadata":{"labels":{"a":""}},"spec":{"replicas":0,"paused":false,
			"revisionHistoryLimit":2}}`, nil},
		{"null", resource("apps", "v1beta1", "deployments"), deployment, `{"spec":{"replicas":null}}`,
			`{"apiVersion":"apps/v1","spec":{"replicas":null,"revisionHistoryLimit":2}}`, nil},
		{"a selector that its version defaults", resource("extensions", "v1beta1", "deployments"), deployment,
			`{"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			`{"apiVersion":"apps/v1","spec":{"progressDeadlineSeconds":2147483647,"revisionHistoryLimit":2147483647,
			"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}},"selector":{"matchLabels":{"a":"b"}},
			"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, nil},
		{"a backend", resource("extensions", "v1beta1", "ingresses"), ingress,
			`{"spec":{"backend":{"serviceName":"s","servicePort":80}}}`, `{"apiVersion":"networking.k8s.io/v1","spec":{
			"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`, nil},
		{"half a backend", resource("networking.k8s.io", "v1beta1", "ingresses"), ingress,
			`{"spec":{"backend":{"servicePort":"http"}}}`,
			`{"apiVersion":"networking.k8s.io/v1","spec":{"defaultBackend":{"service":{"port":{"name":"http"}}}}}`, nil},
		{"a part of a resource", resource("networking.k8s.io", "v1beta1", "ingresses"), ingress,
			`{"spec":{"backend":{"resource":{"name":"bucket"}}}}`,
			`{"apiVersion":"networking.k8s.io/v1","spec":{"defaultBackend":{"resource":{"name":"bucket"}}}}`, nil},
		{"paths without a type", resource("extensions", "v1beta1", "ingresses"), ingress,
			`{"spec":{"rules":[{"host":"h","http":{"paths":[{"path":"/","backend":{"serviceName":"s",
			"servicePort":80}}]}}]}}`, `{"apiVersion":"networking.k8s.io/v1","spec":{"rules":[{"host":"h","http":{"paths":
			[{"path":"/","pathType":"ImplementationSpecific","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}`,
			nil},
		{"an autoscaler", resource("autoscaling", "v2beta2", "horizontalpodautoscalers"), "HorizontalPodAutoscaler",
			`{"spec":{"maxReplicas":4,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization",
			"averageUtilization":60}}}]}}`, `{"apiVersion":"autoscaling/v2","spec":{"maxReplicas":4,"metrics":[{"type":
			"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}}]}}`, nil},
		{"a cron job", resource("batch", "v1beta1", "cronjobs"), "CronJob", `{"spec":{"suspend":true}}`,
			`{"apiVersion":"batch/v1","spec":{"suspend":true}}`, nil},
		{"a budget", resource("policy", "v1beta1", "poddisruptionbudgets"), "PodDisruptionBudget",
			`{"spec":{"minAvailable":"50%"}}`, `{"apiVersion":"policy/v1","spec":{"minAvailable":"50%"}}`, nil},
		{"a status", resource("apps", "v1beta2", "deployments"), deployment, `{"status":{"replicas":3}}`,
			`{"apiVersion":"apps/v1","status":{"replicas":3}}`, []string{"status"}},
		{"a scale", resource("apps", "v1beta1", "deployments"), "Scale", `{"spec":{"replicas":3}}`,
			`{"apiVersion":"autoscaling/v1","spec":{"replicas":3}}`, []string{"scale"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeServer(t, 36)
			part := `{"apiVersion":"` + tc.asked.GroupVersion().String() + `","kind":"` + tc.kind + `",` + tc.part[1:]
			got, err := f.applied(t, tc.asked, types.ApplyYAMLPatchType, part, Options{}, tc.more...)
			if err != nil {
				t.Fatal(err)
			}
			var want, sent map[string]any
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			want["kind"] = tc.kind
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("applied (-want +sent):\n%s", diff)
			}
			// CBOR says the same.
			if err := json.Unmarshal([]byte(part), &sent); err != nil {
				t.Fatal(err)
			}
			text, err := direct.Marshal(sent)
			if err != nil {
				t.Fatal(err)
			}
			got, err = f.applied(t, tc.asked, types.ApplyCBORPatchType, string(text), Options{}, tc.more...)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("applied as CBOR: %v (-want +sent):\n%s", err, diff)
			}
		})
	}
}

// Of an object that is there, what the server's version requires is written only by the manager that owns it.
func TestApplyTakesNoFieldOfOthers(t *testing.T) {
	const part = "apiVersion: extensions/v1beta1\nkind: Deployment\nspec: {template: {metadata: {labels: {more: x}}}}\n"
	asked := schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
	for manager, want := range map[string]any{"other": nil,
		"ci": map[string]any{"matchLabels": map[string]any{"a": "b"}}} {
		f := newFakeServer(t, 36)
		f.put("/apis/apps/v1/namespaces/shop/deployments/web", strings.NewReplacer("apps/v1beta1", "apps/v1",
			`"name":"web","namespace"`, `"managedFields":[{"manager":"`+manager+`","operation":"Apply","apiVersion":"apps/v1",
			"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:selector":{}}}}],"name":"web","namespace"`).Replace(webText))
		got, err := f.applied(t, asked, types.ApplyYAMLPatchType, part, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got["spec"].(map[string]any)["selector"]); diff != "" {
			t.Errorf("with a selector of %s (-want +sent):\n%s", manager, diff)
		}
	}
}

// Whether the object is there is not known without permission to get it: nothing is taken from other managers, and what
// the server's version requires is said.
func TestApplyWithoutGetAddsWhatIsRequiredAlone(t *testing.T) {
	asked := schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
	for part, want := range map[string]map[string]any{
		`"replicas":3`: {"replicas": 3.0},
		podsOfA: {"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}},
	} {
		f := newFakeServer(t, 36)
		f.put("/apis/apps/v1/namespaces/shop/deployments/web",
			strings.ReplaceAll(webText, "apps/v1beta1", "apps/v1"))
		f.forbid = "GET"
		got, err := f.applied(t, asked, types.ApplyYAMLPatchType,
			`{"apiVersion":"extensions/v1beta1","kind":"Deployment","spec":{`+part+`}}`, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got["spec"]); diff != "" {
			t.Errorf("applied %s (-want +sent):\n%s", part, diff)
		}
	}
}

// Of the elements of a list that are there, too, defaults are left to those that own them. Those that are added have
// the defaults of the asked version.
func TestApplyTakesNoFieldOfOthersInLists(t *testing.T) {
	hooks := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1beta1",
		Resource: "validatingwebhookconfigurations"}
	const ignore = `"failurePolicy":"Ignore","matchPolicy":"Exact","timeoutSeconds":30`
	for name, tc := range map[string]struct {
		there, owner, want string
		forbidden          bool
	}{
		"of another manager":       {"a.b.c", "other", ``, false},
		"of the manager":           {"a.b.c", "ci", `"failurePolicy":"Fail"`, false},
		"beside one that is there": {"d.e.f", "other", ignore, false},
		"there is none":            {"", "", ignore, false},
		"it may not be read":       {"a.b.c", "other", ``, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t, 36)
			hook := strings.ReplaceAll(hookOfA, "a.b.c", tc.there) + `,"failurePolicy":"Fail"`
			if tc.there != "" {
				f.put("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/web",
					`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{
					"name":"web","managedFields":[{"manager":"`+tc.owner+`","operation":"Apply","fieldsType":"FieldsV1",
					"fieldsV1":{"f:webhooks":{"k:{\"name\":\"`+tc.there+`\"}":{".":{},"f:failurePolicy":{},"f:name":{}}}}}]},
					"webhooks":[{`+hook+`}]}`)
			}
			if tc.forbidden {
				f.forbid = "GET"
			}
			client, err := dynamic.NewForConfig(f.config(Options{}))
			if err != nil {
				t.Fatal(err)
			}
			force := true
			answer, err := client.Resource(hooks).Patch(t.Context(), "web", types.ApplyYAMLPatchType, []byte(
				`{"apiVersion":"admissionregistration.k8s.io/v1beta1","kind":"ValidatingWebhookConfiguration","webhooks":[{`+
					hookOfA+`}]}`), metav1.PatchOptions{FieldManager: "ci", Force: &force})
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if err := json.Unmarshal([]byte("{"+strings.Trim(hookOfA+","+tc.want, ",")+"}"), &want); err != nil {
				t.Fatal(err)
			}
			var sent map[string]any // the answer is what was applied
			text, _ := json.Marshal(answer.Object["webhooks"].([]any)[0])
			if err := json.Unmarshal(text, &sent); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Errorf("(-want +sent):\n%s", diff)
			}
		})
	}
}

// What the server's version cannot say, or not of a part of an object, is refused, and nothing is sent.
func TestApplyRefuses(t *testing.T) {
	var loss *LossError
	gone := func(err error) bool { return errors.As(err, &loss) }
	deployments := schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
	autoscalers := schema.GroupVersionResource{Group: "autoscaling", Version: "v2",
		Resource: "horizontalpodautoscalers"}
	for _, tc := range []struct {
		name, says string
		asked      schema.GroupVersionResource
		minor      kubever.Minor
		part       string
		is         func(error) bool
	}{
		{"a field of no version", "spec.strange", deployments, 36,
			`{"apiVersion":"extensions/v1beta1","kind":"Deployment","spec":{"strange":1}}`, gone},
		{"another version", "apps/v1", deployments, 36, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{}}`,
			apierrors.IsBadRequest},
		{"another kind", "DaemonSet", deployments, 36, `{"apiVersion":"extensions/v1beta1","kind":"DaemonSet"}`,
			apierrors.IsBadRequest},
		{"nothing", "apply patch", deployments, 36, ``, apierrors.IsBadRequest},
		{"no YAML", "apply patch", deployments, 36, "a: b: c", apierrors.IsBadRequest},
		{"aliases that are a bomb", "its aliases make more than", deployments, 36,
			"a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 1000) + "]\n",
			apierrors.IsBadRequest},
		{"a key twice", "apply patch", deployments, 36, "kind: Deployment\nkind: Deployment\n", apierrors.IsBadRequest},
		{"what does not convert", "spec.replicas", deployments, 36,
			`{"apiVersion":"extensions/v1beta1","kind":"Deployment","spec":{"replicas":"three"}}`,
			func(err error) bool { content := &convert.ContentError{}; return errors.As(err, &content) }},
		{"a server without it", "server-side apply", deployments, 15,
			`{"apiVersion":"extensions/v1beta1","kind":"Deployment"}`, apierrors.IsUnsupportedMediaType},
		{"a field that the minor does not know", "spec.behavior", autoscalers, 17, `{"apiVersion":"autoscaling/v2","kind":
			"HorizontalPodAutoscaler","spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":1}}}}`, gone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeServer(t, tc.minor)
			sent, err := f.applied(t, tc.asked, types.ApplyYAMLPatchType, tc.part, Options{})
			if err == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want one that says %q", err, tc.says)
			}
			if sent != nil {
				t.Errorf("sent %v", sent)
			}
		})
	}
}

// What the server's version requires, and the asked one defaults, is written into what is created.
func TestCreateWritesWhatIsRequired(t *testing.T) {
	for _, tc := range []struct{ path, at, body, want string }{
		{"/apis/extensions/v1beta1/namespaces/shop/deployments", "/apis/apps/v1/namespaces/shop/deployments/web",
			`{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"metadata":{
			"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, `"selector":{"matchLabels":{"a":"b"}}`},
		{"/apis/extensions/v1beta1/namespaces/shop/ingresses",
			"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/web",
			`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"web"},"spec":{"rules":[{"http":{"paths":[
			{"backend":{"serviceName":"s","servicePort":80}}]}}]}}`, `"pathType":"ImplementationSpecific"`},
	} {
		f := newFakeServer(t, 36)
		client, err := rest.HTTPClientFor(f.config(Options{}))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Post(f.URL+tc.path, "application/json", strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		stored, err := json.Marshal(f.at(tc.at))
		if err != nil || !strings.Contains(string(stored), tc.want) {
			t.Errorf("%s: %s: stored %s, %v, want %s", tc.path, response.Status, stored, err, tc.want)
		}
	}
}
