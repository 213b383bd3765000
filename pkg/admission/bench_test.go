package admission_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/rules"
)

// largePod is a pod of ten kilobytes, as an API server hands it to a webhook.
func largePod() json.RawMessage {
	mount := map[string]any{"name": "kube-api-access-x7x9z",
		"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}
	var containers []any
	for i := range 6 {
		var env []any
		for j := range 20 {
			env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j), "value": strings.Repeat("x", 12)})
		}
		containers = append(containers,
			map[string]any{"name": fmt.Sprintf("c%d", i), "image": "example.org/team/service:1.2.3", "env": env,
				"volumeMounts": []any{mount},
				"livenessProbe": map[string]any{
					"httpGet": map[string]any{"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
				"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}}})
	}
	annotations := map[string]any{}
	for i := range 20 {
		annotations[fmt.Sprintf("example.org/annotation-%d", i)] = strings.Repeat("y", 80)
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "large", "namespace": "demo", "annotations": annotations},
		"spec": map[string]any{
			"containers": containers, "serviceAccountName": "web", "enableServiceLinks": true, "priority": 0,
			"topologySpreadConstraints": []any{
				map[string]any{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}},
			"volumes": []any{
				map[string]any{"name": "kube-api-access-x7x9z", "projected": map[string]any{"sources": []any{
					map[string]any{
						"serviceAccountToken": map[string]any{"path": "token", "expirationSeconds": 3607}}}}}},
		}})
	if err != nil {
		panic(err)
	}
	return data
}

func reviewLarge(b testing.TB) func() {
	p := planOf(b, "1.6.13", "1.36.3", "{}")
	change, losses := admission.For(p), rules.Older{Minor: admission.Older(p), Sees: rules.LegacyOf(p).Sees}.Losses
	r := admission.Request{Operation: admission.Create, Kind: podKind, Namespace: "demo", Object: largePod()}
	if len(r.Object) < 10_000 {
		b.Fatalf("the pod has %d bytes, want ten kilobytes", len(r.Object))
	}
	return func() {
		answer, err := change.Review(b.Context(), r, fixedTokens{}, losses)
		if err != nil || len(answer.Patch) != 14 || len(answer.Warnings) != 1 {
			b.Fatalf("Review: %s", show(answer, err))
		}
	}
}

// BenchmarkReview: a pod of ten kilobytes takes less than the five milliseconds that admission may add.
func BenchmarkReview(b *testing.B) {
	const bound = 5 * time.Millisecond
	review := reviewLarge(b)
	b.ReportAllocs()
	for b.Loop() {
		review()
	}
	if took := b.Elapsed() / time.Duration(b.N); took > bound {
		b.Errorf("a review of ten kilobytes takes %s, want less than %s", took, bound)
	}
}
