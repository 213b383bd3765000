package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubefusion/fusionctl/internal/golden"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

func planOf(t testing.TB, legacy, modern, pods string) *plan.Runtime {
	t.Helper()
	return plantest.Of(t, `apiVersion: kubefusion.dev/v1alpha1
kind: FusedControlPlane
metadata: {name: pods}
spec:
  hosts: [{name: cp-1, address: 10.0.0.11}]
  network: {serviceCIDRs: [10.96.0.0/24]}
  stores:
  - {name: core, endpoints: ["http://10.0.0.11:2379"]}
  - {name: modern, endpoints: ["http://10.0.0.11:2479"]}
  legacy: {version: `+legacy+`, apiServer: {}}
  modern: {version: `+modern+`, apiServer: {}}
  pods: `+pods+`
  access:
  - {subjects: [{kind: User, name: alice}], apiGroups: [""], resources: [pods]}
`).Runtime()
}

// fixedTokens has a Secret for every account.
type fixedTokens struct{}

func (fixedTokens) Secret(_ context.Context, namespace, account string, dryRun bool) (string, string, error) {
	switch {
	case account == "broken":
		return "", "", errors.New("no answer")
	case account == "new":
		return "new-token", fmt.Sprintf("the Secret of %s/%s has no token yet", namespace, account), nil
	}
	return account + "-token-x2x4z", "", nil
}

// request is the section of that name.
type request struct {
	Legacy, Modern, Pods string // the pair
	Operation            string
	Subresource          string
	Namespace            string
}

// TestReview makes a patch of every case, applies it as an API server does, and asks again: nothing is left to change.
func TestReview(t *testing.T) {
	golden.Cases(t, "testdata/*.txtar", func(t *testing.T, c *golden.Case) {
		var q request
		if err := yaml.UnmarshalStrict(c.Input("request.yaml"), &q); err != nil {
			t.Fatal(err)
		}
		p := planOf(t, q.Legacy, q.Modern, q.Pods)
		toJSON := func(text []byte) json.RawMessage {
			data, err := yaml.YAMLToJSON(text)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		object := toJSON(c.Input("object.yaml"))
		r := requestOf(t, q, object)
		if old, ok := c.Optional("old.yaml"); ok {
			r.Old = toJSON(old)
		}
		change, losses := admission.For(p), rules.Older{Minor: admission.Older(p), Sees: rules.LegacyOf(p).Sees}.Losses
		answer, err := change.Review(t.Context(), r, fixedTokens{}, losses)
		c.Want("answer", show(answer, err))
		if err != nil || answer.Refusal != "" || len(answer.Patch) == 0 {
			return
		}
		text, err := json.Marshal(answer.Patch)
		if err != nil {
			t.Fatal(err)
		}
		operations, err := jsonpatch.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		if r.Object, err = operations.Apply(object); err != nil {
			t.Fatalf("the patch does not apply: %v", err)
		}
		changed, err := yaml.JSONToYAML(r.Object)
		if err != nil {
			t.Fatal(err)
		}
		c.Want("changed.yaml", changed)
		again, err := change.Review(t.Context(), r, fixedTokens{}, losses)
		if err != nil || len(again.Patch) > 0 {
			t.Errorf("what was changed is changed again, want no patch: %s", show(again, err))
		}
	})
}

func requestOf(t *testing.T, q request, object json.RawMessage) admission.Request {
	t.Helper()
	var head struct{ APIVersion, Kind string }
	if err := json.Unmarshal(object, &head); err != nil {
		t.Fatal(err)
	}
	return admission.Request{Operation: q.Operation, Kind: schema.FromAPIVersionAndKind(head.APIVersion, head.Kind),
		Subresource: q.Subresource, Namespace: q.Namespace, Object: object}
}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// TestReviewKnowsWhatAnObjectIs: servers before 1.12 send objects without apiVersion and kind.
func TestReviewKnowsWhatAnObjectIs(t *testing.T) {
	p := planOf(t, "1.6.13", "1.10.13", "{}")
	r := admission.Request{Operation: admission.Create, Kind: podKind, Namespace: "demo",
		Object: json.RawMessage(`{"metadata":{"name":"web"},"spec":{"dnsConfig":{},"containers":[{"name":"web"}]}}`)}
	answer, err := admission.For(p).Review(t.Context(), r, fixedTokens{}, rules.LegacyOf(p).Losses)
	if err != nil || len(answer.Patch) != 2 || len(answer.Warnings) != 1 {
		t.Errorf("Review: %s; want a label, variables, and a warning about dnsConfig", show(answer, err))
	}
}

// show prints an answer for a golden file.
func show(a admission.Answer, err error) []byte {
	var b bytes.Buffer
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	if a.Refusal != "" {
		fmt.Fprintf(&b, "refused: %s\n", a.Refusal)
	}
	for _, w := range a.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	for _, o := range a.Patch {
		line, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	if b.Len() == 0 {
		b.WriteString("as it is\n")
	}
	return b.Bytes()
}

// TestReviewRefusesNonsense: what is not an object is an error, and never a panic or a verdict.
func TestReviewRefusesNonsense(t *testing.T) {
	change := admission.For(planOf(t, "1.6.13", "1.36.3", "{}"))
	for _, text := range []string{"", "null", "[]", `"pod"`, "{", "7"} {
		r := admission.Request{Operation: admission.Create, Kind: podKind, Namespace: "demo",
			Object: json.RawMessage(text)}
		if answer, err := change.Review(t.Context(), r, fixedTokens{}, nil); err == nil {
			t.Errorf("Review(%q) = %+v, want an error", text, answer)
		}
	}
}

// FuzzReview: whatever an object is, Review does not panic, what it makes applies, and asking again changes nothing.
func FuzzReview(f *testing.F) {
	change := admission.For(planOf(f, "1.6.13", "1.36.3", "{}"))
	for _, seed := range []string{
		`{"metadata":{"labels":null},"spec":{"containers":[{"name":"a","env":[{"name":"KUBERNETES_SERVICE_HOST"}]}],"volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]}}`,
		`{"spec":{"containers":[null,7],"initContainers":{},"volumes":[{"projected":{"sources":[null,{"serviceAccountToken":{}}]}}]}}`,
		`{"metadata":[],"spec":{"template":{"metadata":7}}}`,
	} {
		f.Add(seed, "Pod")
		f.Add(seed, "Deployment")
	}
	f.Fuzz(func(t *testing.T, text, kind string) {
		gvk := schema.GroupVersionKind{Group: map[string]string{"Deployment": "apps"}[kind], Version: "v1", Kind: kind}
		r := admission.Request{Operation: admission.Create, Kind: gvk, Namespace: "demo", Object: json.RawMessage(text)}
		answer, err := change.Review(context.Background(), r, fixedTokens{}, nil)
		if err != nil || len(answer.Patch) == 0 {
			return
		}
		patch, err := json.Marshal(answer.Patch)
		if err != nil {
			t.Fatal(err)
		}
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if r.Object, err = operations.Apply(r.Object); err != nil {
			t.Fatalf("%s: %s does not apply: %v", text, patch, err)
		}
		if again, err := change.Review(context.Background(), r, fixedTokens{}, nil); err != nil ||
			len(again.Patch) > 0 {
			t.Fatalf("%s: changed again: %s", text, show(again, err))
		}
	})
}
