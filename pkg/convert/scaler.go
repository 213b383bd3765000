package convert

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubefusion/fusionctl/internal/quantity"
)

// behaviorAnnotation is where servers of 1.18 and later keep spec.behavior in the versions of the autoscaler that lack
// the field: as JSON of their internal type, whose fields start with capitals.
const behaviorAnnotation = "autoscaling.alpha.kubernetes.io/behavior"

// metricSources are the kinds of metrics of an autoscaler, and what each calls the metric's selector in v2beta1.
var metricSources = map[string]string{"object": "selector", "pods": "selector", "resource": "", "containerResource": "",
	"external": "metricSelector"}

// scalerUp turns autoscaling/v2beta1 into v2beta2, which puts a metric's name and selector in one object and its goal
// in another.
func scalerUp(scaler map[string]any) (map[string]any, error) {
	spec := object(scaler, "spec")
	for _, metric := range elements(spec, "metrics") {
		for source, selector := range metricSources {
			if s := object(metric, source); s != nil {
				target := map[string]any{}
				move(s, "targetAverageUtilization", target, "averageUtilization")
				move(s, "targetAverageValue", target, "averageValue")
				move(s, "averageValue", target, "averageValue") // of an object metric
				move(s, "targetValue", target, "value")
				if len(target) > 0 {
					target["type"] = targetType(source, target)
				}
				metricUp(s, source, selector, "target", target)
			}
		}
	}
	for _, metric := range elements(object(scaler, "status"), "currentMetrics") {
		for source, selector := range metricSources {
			if s := object(metric, source); s != nil {
				current := map[string]any{}
				move(s, "currentAverageUtilization", current, "averageUtilization")
				move(s, "currentAverageValue", current, "averageValue")
				move(s, "averageValue", current, "averageValue")
				move(s, "currentValue", current, "value")
				metricUp(s, source, selector, "current", current)
			}
		}
	}
	behaviorUp(scaler)
	return scaler, nil
}

// targetType is what a goal is compared with. An object metric may state both of its goals: then the average one
// counts.
func targetType(source string, target map[string]any) string {
	switch {
	case target["averageUtilization"] != nil:
		return "Utilization"
	case target["value"] != nil && (source == "external" || target["averageValue"] == nil):
		return "Value"
	default:
		return "AverageValue"
	}
}

// metricUp gathers what names a metric, and puts its goal or its value beside it.
func metricUp(s map[string]any, source, selector, field string, values map[string]any) {
	if source == "object" {
		move(s, "target", s, "describedObject")
	}
	if selector != "" {
		metric := map[string]any{}
		move(s, "metricName", metric, "name")
		move(s, selector, metric, "selector")
		s["metric"] = metric
	}
	if len(values) > 0 {
		s[field] = values
	}
}

// scalerDown turns autoscaling/v2beta2 into v2beta1.
func scalerDown(scaler map[string]any) (map[string]any, error) {
	spec := object(scaler, "spec")
	for _, metric := range elements(spec, "metrics") {
		for source, selector := range metricSources {
			if s := object(metric, source); s != nil {
				target := object(s, "target")
				delete(s, "target")
				metricDown(s, source, selector)
				move(target, "averageUtilization", s, "targetAverageUtilization")
				move(target, "value", s, "targetValue")
				if source == "object" {
					move(target, "averageValue", s, "averageValue")
				} else {
					move(target, "averageValue", s, "targetAverageValue")
				}
			}
		}
	}
	for _, metric := range elements(object(scaler, "status"), "currentMetrics") {
		for source, selector := range metricSources {
			if s := object(metric, source); s != nil {
				current := object(s, "current")
				delete(s, "current")
				metricDown(s, source, selector)
				move(current, "averageUtilization", s, "currentAverageUtilization")
				move(current, "value", s, "currentValue")
				if source == "object" {
					move(current, "averageValue", s, "averageValue")
				} else {
					move(current, "averageValue", s, "currentAverageValue")
				}
			}
		}
	}
	return scaler, behaviorDown(scaler)
}

func metricDown(s map[string]any, source, selector string) {
	if source == "object" {
		move(s, "describedObject", s, "target")
	}
	if metric := object(s, "metric"); metric != nil && selector != "" {
		delete(s, "metric")
		move(metric, "name", s, "metricName")
		move(metric, "selector", s, selector)
	}
}

// behaviorUp leaves the annotation where it is none that can be read: servers do, too, and one object is not to fail
// the list that it is in.
func behaviorUp(scaler map[string]any) {
	metadata := object(scaler, "metadata")
	annotations := object(metadata, "annotations")
	text, ok := annotations[behaviorAnnotation].(string)
	spec := object(scaler, "spec")
	if !ok || spec == nil || strings.Count(text, "{") > limitAnnotated || quantity.InText(text) != nil {
		return
	}
	var behavior map[string]any
	if json.Unmarshal([]byte(text), &autoscalingv2.HorizontalPodAutoscalerBehavior{}) != nil ||
		utiljson.Unmarshal([]byte(text), &behavior) != nil {
		return
	}
	spec["behavior"] = renamed(behavior, unicode.ToLower)
	delete(annotations, behaviorAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

func behaviorDown(scaler map[string]any) error {
	spec := object(scaler, "spec")
	behavior := object(spec, "behavior")
	if behavior == nil {
		return nil
	}
	text, err := json.Marshal(renamed(behavior, unicode.ToUpper))
	if err != nil {
		return err
	}
	delete(spec, "behavior")
	metadata := object(scaler, "metadata")
	if metadata == nil {
		metadata = map[string]any{}
		scaler["metadata"] = metadata
	}
	annotations := object(metadata, "annotations")
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[behaviorAnnotation] = string(text)
	return nil
}

// renamed changes the first letter of every field, and leaves out what is null.
func renamed(value any, letter func(rune) rune) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for name, v := range value {
			if v == nil {
				continue
			}
			first, width := utf8.DecodeRuneInString(name)
			out[string(letter(first))+name[width:]] = renamed(v, letter)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = renamed(v, letter)
		}
		return out
	default:
		return value
	}
}
