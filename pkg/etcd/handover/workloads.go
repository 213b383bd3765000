package handover

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// observed are the numbers of status.observedGeneration. Source: generated.proto of apps, extensions and policy, every
// version.
var observed = map[string]protowire.Number{"Deployment": 1, "ReplicaSet": 3, "StatefulSet": 1, daemonSet: 5,
	budget: 1}

// Observed reports whether objects of a kind show that a controller acts for them.
func Observed(kind string) bool { return observed[kind] != 0 }

const (
	scaler    = "HorizontalPodAutoscaler"
	daemonSet = "DaemonSet"
	budget    = "PodDisruptionBudget"
)

// rolling reports whether a controller is at work on an object: its pods go and come.
func rolling(kind string, object map[string]any) bool {
	meta, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	status, _ := object["status"].(map[string]any)
	if observed[kind] == 0 || kind == budget || spec["paused"] == true {
		return false
	}
	wanted := int64(1)
	if spec["replicas"] != nil {
		wanted = number(spec["replicas"])
	}
	switch {
	case number(status["observedGeneration"]) < number(meta["generation"]):
		return true
	case kind == daemonSet:
		desired := number(status["desiredNumberScheduled"])
		return number(status["currentNumberScheduled"]) != desired ||
			strategy(spec) == "RollingUpdate" && status["updatedNumberScheduled"] != nil &&
				number(status["updatedNumberScheduled"]) != desired
	case kind == "StatefulSet" && strategy(spec) == "RollingUpdate" && partition(spec) == 0 &&
		status["currentRevision"] != status["updateRevision"]:
		return true
	case kind == "Deployment" && number(status["updatedReplicas"]) != wanted:
		return true
	}
	return number(status["replicas"]) != wanted
}

func strategy(spec map[string]any) any {
	update, _ := spec["updateStrategy"].(map[string]any)
	return update["type"]
}

func partition(spec map[string]any) int64 {
	update, _ := spec["updateStrategy"].(map[string]any)
	rolling, _ := update["rollingUpdate"].(map[string]any)
	return number(rolling["partition"])
}

// revised reports whether the pods of an object have a revision that the controllers to which it goes back did not
// write: its template is another one than theirs was. They find none that equals it in their own version, write one,
// and replace the pods by the strategy of the object. Deployments find their ReplicaSets by what the templates mean.
// Source: run, 1.36.3 to 1.15.12, templates changed meanwhile; pkg/controller/history of both.
func revised(i *item, rec *Record, object map[string]any) bool {
	at, known := rec.at(i.uid)
	if !known || i.resource.Kind != "StatefulSet" && i.resource.Kind != daemonSet {
		return false
	}
	before, err := objects.Decode(rec.Objects[at].Value)
	return err != nil || !reflect.DeepEqual(template(before), template(object))
}

func template(object map[string]any) any {
	spec, _ := object["spec"].(map[string]any)
	return spec["template"]
}

// ended reports whether a Job is complete or has failed.
func ended(object map[string]any) bool {
	status, _ := object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
	})
}

// unobserved is the generation of an object, and an error when no controller has written that it has seen it.
func unobserved(kind, key string, value []byte) (generation int64, _ error) {
	object, err := objects.Decode(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", storage.Printable(key), err)
	}
	meta, _ := object["metadata"].(map[string]any)
	status, _ := object["status"].(map[string]any)
	generation = number(meta["generation"])
	if observed[kind] != 0 && meta["deletionTimestamp"] == nil &&
		number(status["observedGeneration"]) < generation {
		return generation, fmt.Errorf("%s: no controller has looked at it yet", storage.Printable(key))
	}
	return generation, nil
}

// number is a whole number, however it was decoded; 0 for none.
func number(value any) int64 {
	switch value := value.(type) {
	case int64:
		return value
	case int32:
		return int64(value)
	case uint64:
		return int64(value)
	case float64:
		return int64(value)
	}
	return 0
}

// metricsOf are the aggregated groups that the controller there has to read for an autoscaler. Without a metric that is
// the use of CPU. One for which no metric is read today, as its status says, loses none. Source: pkg/apis/autoscaling
// of every version; v1 has the metrics of the others in annotations.
func metricsOf(autoscaler map[string]any) (groups []string) {
	meta, _ := autoscaler["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	annotated := func(name string) (list []any) {
		if text, is := annotations["autoscaling.alpha.kubernetes.io/"+name].(string); is {
			_ = json.Unmarshal([]byte(text), &list) // what is none, controllers leave out too
		}
		return list
	}
	status, _ := autoscaler["status"].(map[string]any)
	current, _ := status["currentMetrics"].([]any)
	current = append(slices.Clone(current), annotated("current-metrics")...)
	if status["currentCPUUtilizationPercentage"] == nil && !slices.ContainsFunc(current, func(m any) bool {
		return metricType(m) != ""
	}) {
		return nil
	}
	const resources = "metrics.k8s.io"
	spec, _ := autoscaler["spec"].(map[string]any)
	metrics, _ := spec["metrics"].([]any)
	metrics = append(slices.Clone(metrics), annotated("metrics")...)
	if len(metrics) == 0 || spec["targetCPUUtilizationPercentage"] != nil {
		groups = append(groups, resources)
	}
	for _, m := range metrics {
		group := map[string]string{"Resource": resources, "ContainerResource": resources,
			"Pods": "custom.metrics.k8s.io", "Object": "custom.metrics.k8s.io",
			"External": "external.metrics.k8s.io"}[metricType(m)]
		if group != "" && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

func metricType(metric any) string {
	m, _ := metric.(map[string]any)
	text, _ := m["type"].(string)
	return text
}

// overdue says that a CronJob has missed more of its times than the controllers there start it after; "" when not. A
// limit of 0 is none. The times are those of the zone of now, as for the controllers of that machine.
func overdue(cronJob map[string]any, limit int, now time.Time) string {
	meta, _ := cronJob["metadata"].(map[string]any)
	spec, _ := cronJob["spec"].(map[string]any)
	status, _ := cronJob["status"].(map[string]any)
	text, _ := spec["schedule"].(string)
	if limit == 0 {
		return ""
	}
	since, there := moment(status["lastScheduleTime"])
	if !there {
		since, _ = moment(meta["creationTimestamp"])
	}
	if spec["startingDeadlineSeconds"] != nil {
		seconds := min(number(spec["startingDeadlineSeconds"]), longestDeadline) // or it would be a time to come
		deadline := now.Add(-time.Duration(seconds) * time.Second)
		since = slices.MaxFunc([]time.Time{since, deadline}, time.Time.Compare)
	}
	since = since.In(now.Location())
	if strings.Contains(text, "TZ=") && !strings.Contains(text, " ") { // for which the parser ends the program
		return fmt.Sprintf("has the schedule %q: a time zone alone", text)
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return fmt.Sprintf("has the schedule %q: %v", text, err)
	}
	for range limit {
		if since = schedule.Next(since); since.IsZero() || since.After(now) {
			return ""
		}
	}
	if since = schedule.Next(since); since.IsZero() || since.After(now) {
		return ""
	}
	return fmt.Sprintf("has missed more than %d of its times, after which the controllers there start it no more: set "+
		"or decrease spec.startingDeadlineSeconds, to 200 for example", limit)
}

// longestDeadline is beyond the age of any CronJob, in seconds.
const longestDeadline = 100 * 365 * 24 * 3600

// moment is a time, however it was decoded.
func moment(value any) (time.Time, bool) {
	text, is := value.(string)
	if !is {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}
