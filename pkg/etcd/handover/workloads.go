package handover

import (
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/storage/objects"
)

// observed are the numbers of status.observedGeneration. Source: generated.proto of apps and extensions, every version.
var observed = map[string]protowire.Number{"Deployment": 1, "ReplicaSet": 3, "StatefulSet": 1, "DaemonSet": 5}

const scaler = "HorizontalPodAutoscaler"

// rolling reports whether a controller is at work on an object: its pods go and come.
func rolling(kind string, object map[string]any) bool {
	meta, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	status, _ := object["status"].(map[string]any)
	if observed[kind] == 0 || spec["paused"] == true {
		return false
	}
	wanted := int64(1)
	if spec["replicas"] != nil {
		wanted = number(spec["replicas"])
	}
	switch {
	case number(status["observedGeneration"]) < number(meta["generation"]):
		return true
	case kind == "DaemonSet":
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
	if !known || i.resource.Kind != "StatefulSet" && i.resource.Kind != "DaemonSet" {
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

func unobserved(key string, value []byte) error {
	object, err := objects.Decode(value)
	if err != nil {
		return fmt.Errorf("%s: %w", storage.Printable(key), err)
	}
	meta, _ := object["metadata"].(map[string]any)
	status, _ := object["status"].(map[string]any)
	if meta["deletionTimestamp"] == nil && number(status["observedGeneration"]) < number(meta["generation"]) {
		return fmt.Errorf("%s: no controller has looked at it yet", storage.Printable(key))
	}
	return nil
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
