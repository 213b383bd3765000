package convert

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// What annotations have is not counted among the objects of a text, and may be long: a word of them is no object of its
// own, and is not looked for among all others.
func TestAnnotationsThatAreBombs(t *testing.T) {
	c := newConverter(t)
	pod := func(annotation, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "p", "annotations": map[string]any{annotation: value}},
			"spec":     map[string]any{"containers": []any{}}}}
	}
	const containers = "pod.beta.kubernetes.io/init-containers"
	bomb := pod(containers, "["+strings.Repeat("{},", 200_000)+"{}]")
	if _, losses := c.Spell(bomb, 36); len(losses) != 1 || !strings.Contains(losses[0].Meaning, "objects") {
		t.Errorf("losses %.200v, want one: too many objects", losses)
	}
	if spec := object(bomb.Object, "spec"); len(spec) != 1 {
		t.Error("the objects of the annotation became fields")
	}
	few := pod(containers, "["+strings.Repeat(`{"name":"a"},`, 99)+`{"name":"a"}]`)
	_, losses := c.Spell(few, 36)
	if len(losses) > 0 || len(elements(object(few.Object, "spec"), "initContainers")) != 100 {
		t.Errorf("losses %.200v of a hundred containers", losses)
	}

	scaler := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1",
		"kind": "HorizontalPodAutoscaler", "metadata": map[string]any{"name": "p", "annotations": map[string]any{
			metricsAnnotation: "[" + strings.Repeat(`{"type":"External"},`, 9999) + "{}]"}}}}
	if _, losses := c.Spell(scaler, 9); len(losses) != 1 {
		t.Errorf("%d losses of one text, want one", len(losses))
	}

	var words []string
	for i := range 300_000 {
		words = append(words, fmt.Sprintf("a%d=1", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan int, 1)
	go func() {
		slow := pod("security.alpha.kubernetes.io/unsafe-sysctls", strings.Join(words, ","))
		_, losses := c.Spell(slow, 36)
		done <- len(losses)
	}()
	select {
	case n := <-done:
		if n > 1 {
			t.Errorf("%d losses", n)
		}
	case <-ctx.Done():
		t.Error("300,000 sysctls take more than a minute")
	}
}

// What has another type than the field is no panic.
func TestFieldsOfOtherTypesAreNoAnnotations(t *testing.T) {
	c := newConverter(t)
	for _, value := range []any{"x", int64(1), true, []any{"x"}, []any{map[string]any{"name": int64(1)}}} {
		for kind, path := range map[string][]string{"PersistentVolume": {"spec", "nodeAffinity"},
			"Service": {"spec", "externalTrafficPolicy"}, "Pod": {"spec", "securityContext", "sysctls"}} {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind,
				"metadata": map[string]any{"name": "p"}, "spec": map[string]any{}}}
			putFieldAt(u.Object, strings.Join(path, "."), value)
			for _, minor := range []int{6, 9, 10, 36} {
				c.Spell(u.DeepCopy(), kubever.Minor(minor))
			}
		}
	}
}

// One autoscaler with an annotation that nothing reads does not fail the list that it is in.
func TestAutoscalersWithUnreadableAnnotationsConvert(t *testing.T) {
	c := newConverter(t)
	huge := `"` + strings.Repeat("9", 4000) + "e999999999" + `"`
	for name, annotations := range map[string]map[string]any{
		"no JSON":      {behaviorAnnotation: "x"},
		"other fields": {behaviorAnnotation: `{"ScaleUp":5}`},
		"many":         {behaviorAnnotation: "[" + strings.Repeat("{},", 20_000) + "{}]"},
		"quantities": {metricsAnnotation: `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":` + huge +
			`}}]`},
		"a tolerance": {behaviorAnnotation: `{"ScaleUp":{"Tolerance":` + huge + `}}`},
	} {
		for from, to := range map[string]string{"v1": "v2", "v2beta1": "v2", "v2beta2": "v1", "v2": "v1"} {
			one := func(annotations map[string]any) any {
				return map[string]any{"metadata": map[string]any{"name": "a", "annotations": annotations},
					"spec": map[string]any{"maxReplicas": int64(3),
						"scaleTargetRef": map[string]any{"name": "a", "kind": "A"}}}
			}
			list := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/" + from,
				"kind": "HorizontalPodAutoscalerList", "metadata": map[string]any{},
				"items": []any{one(map[string]any{"a": "b"}), one(annotations)}}}
			kind := schema.GroupVersionKind{Group: "autoscaling", Version: to, Kind: "HorizontalPodAutoscalerList"}
			out, losses, err := c.Convert(list, kind)
			if err != nil {
				t.Errorf("%s, %s to %s: %v", name, from, to, err)
				continue
			}
			items := elements(out.Object, "items")
			of, _ := items[1]["metadata"].(map[string]any)
			for key, text := range annotations {
				if object(of, "annotations")[key] != text && len(losses) == 0 {
					t.Errorf("%s, %s to %s: the annotation is gone without a loss", name, from, to)
				}
			}
			alone := &unstructured.Unstructured{Object: one(annotations).(map[string]any)}
			alone.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling", Version: from,
				Kind: "HorizontalPodAutoscaler"})
			if _, err := c.Begin(alone, kind.GroupVersion().WithKind("HorizontalPodAutoscaler")); err != nil {
				t.Errorf("%s, %s to %s: %v", name, from, to, err)
			}
		}
	}
}
