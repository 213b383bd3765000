package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

const (
	podsOfA = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	hookOfA = `"name":"a.b.c","clientConfig":{"url":"https://a"},"rules":[{"operations":["*"],"apiGroups":[""],` +
		`"apiVersions":["v1"],"resources":["pods"]}],"admissionReviewVersions":["v1beta1"],"sideEffects":"None"`
	namesOfA = `"group":"a.b","scope":"Namespaced","names":{"kind":"A","plural":"as"}`
)

// What a program leaves out means what its version says of it, whatever the server's version makes of that.
func TestAbsentFieldsMeanWhatTheAskedVersionSays(t *testing.T) {
	hooks := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingwebhookconfigurations"}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	for name, tc := range map[string]struct {
		asked, as            schema.GroupVersionResource
		kind                 string
		minor                kubever.Minor
		sent, before, sought string // the fields of what is sent, and of what an update overwrites
		want                 any
	}{
		"a daemon set that waits for deletions": {
			asked: schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "daemonsets"},
			as:    schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, kind: "DaemonSet",
			minor: 36, sent: `"spec":{` + podsOfA + `}`, sought: "spec.updateStrategy",
			before: `"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,` +
				`"maxUnavailable":1}},"selector":{"matchLabels":{"a":"b"}},` + podsOfA + `}`,
			want: map[string]any{"type": "OnDelete"},
		},
		"a daemon set that rolls": {
			asked: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"},
			as:    schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "daemonsets"},
			kind:  "DaemonSet", minor: 6, sent: `"spec":{"selector":{"matchLabels":{"a":"b"}},` + podsOfA + `}`,
			sought: "spec.updateStrategy",
			before: `"spec":{"updateStrategy":{"type":"OnDelete"},"selector":{"matchLabels":{"a":"b"}},` + podsOfA + `}`,
			// maxSurge is none that 1.6 has
			want: map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": 1.0}},
		},
		"a stateful set that waits for deletions": {
			asked: schema.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "statefulsets"},
			as:    schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"},
			kind:  "StatefulSet", minor: 36, sought: "spec.updateStrategy",
			sent: `"spec":{"serviceName":"a",` + podsOfA + `}`,
			before: `"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},` +
				`"serviceName":"a","selector":{"matchLabels":{"a":"b"}},` + podsOfA + `}`,
			want: map[string]any{"type": "OnDelete"},
		},
		"a webhook that fails closed": {
			asked: hooks, as: hooks.GroupResource().WithVersion("v1beta1"),
			kind: "ValidatingWebhookConfiguration", minor: 15,
			sent: `"webhooks":[{` + hookOfA + `}]`, sought: "webhooks",
			before: `"webhooks":[{` + hookOfA + `,"failurePolicy":"Ignore","matchPolicy":"Exact","timeoutSeconds":30}]`,
			want:   map[string]any{"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10.0},
		},
		"a webhook that fails open": {
			asked: hooks.GroupResource().WithVersion("v1beta1"), as: hooks,
			kind: "ValidatingWebhookConfiguration", minor: 36,
			sent: `"webhooks":[{` + hookOfA + `}]`, sought: "webhooks",
			before: `"webhooks":[{` + hookOfA +
				`,"failurePolicy":"Fail","matchPolicy":"Equivalent","timeoutSeconds":10}]`,
			want: map[string]any{"failurePolicy": "Ignore", "matchPolicy": "Exact", "timeoutSeconds": 30.0},
		},
		"a definition that prunes": {
			asked: definitions, as: definitions.GroupResource().WithVersion("v1beta1"),
			kind: "CustomResourceDefinition", minor: 15, sought: "spec.preserveUnknownFields", want: false,
			sent: `"spec":{` + namesOfA + `,"versions":[{"name":"v1","served":true,"storage":true,"schema":` +
				`{"openAPIV3Schema":{"type":"object"}}}]}`,
			before: `"spec":{` + namesOfA + `,"preserveUnknownFields":true,"version":"v1"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t, tc.minor)
			client, err := dynamic.NewForConfig(f.config(Options{}))
			if err != nil {
				t.Fatal(err)
			}
			object := func(of schema.GroupVersionResource, fields string) string {
				return `{"apiVersion":"` + of.GroupVersion().String() + `","kind":"` + tc.kind +
					`","metadata":{"name":"web","labels":{"a":"b"}},` + fields + `}`
			}
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON([]byte(object(tc.asked, tc.sent))); err != nil {
				t.Fatal(err)
			}
			var resource dynamic.ResourceInterface = client.Resource(tc.asked)
			path := "/apis/" + tc.as.GroupVersion().String() + "/"
			if strings.HasSuffix(tc.kind, "Set") {
				resource, path = client.Resource(tc.asked).Namespace("shop"), path+"namespaces/shop/"
			}
			path += tc.as.Resource + "/web"
			if _, err := resource.Create(t.Context(), &u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			check := func(what string) {
				t.Helper()
				var got any = f.at(path)
				for _, field := range strings.Split(tc.sought, ".") {
					got = got.(map[string]any)[field]
				}
				if hooks, ok := got.([]any); ok {
					hook := hooks[0].(map[string]any)
					got = map[string]any{"failurePolicy": hook["failurePolicy"], "matchPolicy": hook["matchPolicy"],
						"timeoutSeconds": hook["timeoutSeconds"]}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: %s (-want +stored):\n%s", what, tc.sought, diff)
				}
			}
			check("create")
			f.put(path, object(tc.as, tc.before))
			if _, err := resource.Update(t.Context(), &u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			check("update")

			// What was read is written as it was.
			f.put(path, object(tc.as, tc.before))
			read, err := resource.Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := resource.Update(t.Context(), read, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			var before map[string]any
			if err := json.Unmarshal([]byte(object(tc.as, tc.before)), &before); err != nil {
				t.Fatal(err)
			}
			got := f.at(path)
			delete(got["metadata"].(map[string]any), "resourceVersion")
			if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("what was read and written (-want +stored):\n%s", diff)
			}
		})
	}
}

// A definition of v1beta1 keeps unknown fields where it says nothing. Servers of v1 refuse to create one that says so:
// its schemas do. One that the server has from before goes on saying it as it does.
func TestDefinitionsThatKeepUnknownFieldsSaySo(t *testing.T) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/web"
	const keeps = "x-kubernetes-preserve-unknown-fields"
	for name, tc := range map[string]struct{ schema, want string }{
		"no schema": {``, `{"type":"object","` + keeps + `":true}`},
		"a schema": {`,"validation":{"openAPIV3Schema":{"type":"object","properties":{"metadata":{"type":"object"},
			"spec":{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"type":
			"string"}}}},"m":{"type":"object","additionalProperties":{"type":"object"}}}}}}}`,
			`{"type":"object","` + keeps + `":true,"properties":{"metadata":{"type":"object"},"spec":{"type":"object","` +
				keeps + `":true,"properties":{"a":{"type":"array","items":{"type":"object","` + keeps + `":true,
				"properties":{"b":{"type":"string"}}}},"m":{"type":"object","additionalProperties":{"type":"object","` +
				keeps + `":true}}}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t, 36)
			client, err := dynamic.NewForConfig(f.config(Options{}))
			if err != nil {
				t.Fatal(err)
			}
			definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io",
				Version: "v1beta1", Resource: "customresourcedefinitions"})
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON([]byte(`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":` +
				`"CustomResourceDefinition","metadata":{"name":"web"},"spec":{` + namesOfA + `,"version":"v1"` + tc.schema +
				`}}`)); err != nil {
				t.Fatal(err)
			}
			check := func(what string) {
				t.Helper()
				spec := f.at(path)["spec"].(map[string]any)
				if spec[`preserveUnknownFields`] != nil && spec["preserveUnknownFields"] != false {
					t.Errorf("%s: stored %v, which servers refuse", what, spec)
				}
				var want any
				if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
					t.Fatal(err)
				}
				version := spec["versions"].([]any)[0].(map[string]any)
				if diff := cmp.Diff(want, version["schema"].(map[string]any)["openAPIV3Schema"]); diff != "" {
					t.Errorf("%s (-want +stored):\n%s", what, diff)
				}
			}
			if _, err := definitions.Create(t.Context(), &u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			check("create")
			if _, err := definitions.Update(t.Context(), &u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			check("update")
			f.put(path, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":
				"web"},"spec":{`+namesOfA+`,"preserveUnknownFields":true,"versions":[{"name":"v1","served":true,"storage":
				true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
			if _, err := definitions.Update(t.Context(), &u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if spec := f.at(path)["spec"].(map[string]any); spec["preserveUnknownFields"] != true ||
				strings.Contains(fmt.Sprint(spec), keeps) {
				t.Errorf("update of one that says true: stored %v", spec)
			}
		})
	}
}

// A program that reads a definition of v1 as v1beta1 is not told that it drops unknown fields. What it writes then, or
// its own that says nothing, does not change that, and refuses no change of a schema.
func TestDefinitionsThatDropUnknownFieldsGoOn(t *testing.T) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/web"
	own := func(says, schema string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"web"},` +
			`"spec":{` + namesOfA + says + `,"version":"v1","validation":{"openAPIV3Schema":` + schema + `}}}`
	}
	const before, after = `{"type":"object","properties":{"a":{"type":"string"}}}`,
		`{"type":"object","properties":{"a":{"type":"integer"}}}`
	for name, tc := range map[string]struct{ says, schema string }{
		"false, the same": {`,"preserveUnknownFields":false`, before}, "false, another": {`,"preserveUnknownFields":false`,
			after},
		"nothing, the same": {"", before}, "nothing, another": {"", after},
	} {
		for how, write := range map[string]func(dynamic.ResourceInterface) error{
			"its own": func(of dynamic.ResourceInterface) error {
				var u unstructured.Unstructured
				if err := u.UnmarshalJSON([]byte(own(tc.says, tc.schema))); err != nil {
					return err
				}
				_, err := of.Update(t.Context(), &u, metav1.UpdateOptions{})
				return err
			},
			"what it read": func(of dynamic.ResourceInterface) error {
				u, err := of.Get(t.Context(), "web", metav1.GetOptions{})
				if err != nil {
					return err
				}
				var schema map[string]any
				if err := json.Unmarshal([]byte(tc.schema), &schema); err != nil {
					return err
				}
				err = unstructured.SetNestedMap(u.Object, schema, "spec", "validation", "openAPIV3Schema")
				if err != nil {
					return err
				}
				_, err = of.Update(t.Context(), u, metav1.UpdateOptions{})
				return err
			},
			"a patch": func(of dynamic.ResourceInterface) error {
				_, err := of.Patch(t.Context(), "web", types.MergePatchType,
					[]byte(`{"spec":{"validation":{"openAPIV3Schema":`+tc.schema+`}}}`), metav1.PatchOptions{})
				return err
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				f := newFakeServer(t, 36)
				f.put(path, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":
					"web"},"spec":{`+namesOfA+`,"versions":[{"name":"v1","served":true,"storage":true,"schema":
					{"openAPIV3Schema":`+before+`}}]}}`)
				client, err := dynamic.NewForConfig(f.config(Options{}))
				if err != nil {
					t.Fatal(err)
				}
				if err := write(client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io",
					Version: "v1beta1", Resource: "customresourcedefinitions"})); err != nil {
					t.Fatal(err)
				}
				spec := f.at(path)["spec"].(map[string]any)
				var want any
				if err := json.Unmarshal([]byte(tc.schema), &want); err != nil {
					t.Fatal(err)
				}
				version := spec["versions"].([]any)[0].(map[string]any)
				if diff := cmp.Diff(want, version["schema"].(map[string]any)["openAPIV3Schema"]); diff != "" ||
					spec["preserveUnknownFields"] == true {
					t.Errorf("stored %v, schema (-want +stored):\n%s", spec, diff)
				}
			})
		}
	}
}

// What the asked version requires and the server's defaults is not for the server to make up.
func TestDefaultsThatTheAskedVersionDoesNotHaveAreLosses(t *testing.T) {
	f := newFakeServer(t, 15)
	client, err := dynamic.NewForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON([]byte(strings.ReplaceAll(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":`+
		`"ValidatingWebhookConfiguration","metadata":{"name":"web"},"webhooks":[{`+hookOfA+`}]}`,
		`,"sideEffects":"None"`, ""))); err != nil {
		t.Fatal(err)
	}
	_, err = client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: "validatingwebhookconfigurations"}).Create(t.Context(), &u, metav1.CreateOptions{})
	var loss *LossError
	if !errors.As(err, &loss) || len(loss.Losses) != 1 || loss.Losses[0].Path != "webhooks[0].sideEffects" {
		t.Errorf("error %v, want a loss of webhooks[0].sideEffects", err)
	}
}

// Which versions keep unknown fields, and where in them, stays as the server has it: a program of v1beta1 that reads
// and writes a schema says nothing of it, and one that writes its own means what its version says.
func TestDefinitionsKeepUnknownFieldsWhereTheyDo(t *testing.T) {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/web"
	const keeps = `"x-kubernetes-preserve-unknown-fields":true`
	const whole = `{"type":"object",` + keeps + `,"properties":{"a":{"type":"object","properties":{"b":{"type":` +
		`"string"}}}}}`
	const other = `{"type":"object","properties":{"c":{"type":"object"}}}`
	f := newFakeServer(t, 36)
	f.put(path, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"web"},`+
		`"spec":{`+namesOfA+`,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":`+whole+
		`}},{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":`+other+`}}]}}`)
	client, err := dynamic.NewForConfig(f.config(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1beta1",
		Resource: "customresourcedefinitions"})
	wants := func(what string, want ...string) {
		t.Helper()
		for i, version := range f.at(path)["spec"].(map[string]any)["versions"].([]any) {
			var schema any
			if err := json.Unmarshal([]byte(want[i]), &schema); err != nil {
				t.Fatal(err)
			}
			got := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"]
			if diff := cmp.Diff(schema, got); diff != "" {
				t.Errorf("%s, version %d (-want +stored):\n%s", what, i, diff)
			}
		}
	}
	u, err := definitions.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.Object["spec"].(map[string]any)["versions"].([]any)[1].(map[string]any)["schema"] = map[string]any{
		"openAPIV3Schema": map[string]any{"type": "object"}}
	if u, err = definitions.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wants("read and written", whole, `{"type":"object"}`)

	// Its own: the versions that kept them do, and a new one, of which v1beta1 says so.
	versions := u.Object["spec"].(map[string]any)["versions"].([]any)
	for i, version := range versions { // v1beta1 has no versions with one schema
		version.(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
			"title": []string{"one", "two"}[i]}}
	}
	u.Object["spec"].(map[string]any)["versions"] = append(versions, map[string]any{"name": "v3", "served": true,
		"storage": false, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}})
	if _, err = definitions.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wants("its own", `{"type":"object","title":"one",`+keeps+`}`, `{"type":"object","title":"two"}`, `{"type":"object",`+
		keeps+`}`)
}
