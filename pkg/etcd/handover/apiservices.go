package handover

import (
	"cmp"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// unserved says why controllers find no aggregated group there.
func (j *Job) unserved(group string) string {
	if reason := j.away[group]; reason != "" {
		return "whose APIService on the other side is not available: " + storage.Printable(reason) +
			"; see to what serves it"
	}
	return "which no APIService of the other side serves: create one there"
}

// unavailable is why the API servers reach nothing that serves an APIService, as its condition Available says; "" where
// they do. One that no API server has looked at yet, and one that the API servers serve by themselves, have no such
// condition that is False.
func unavailable(value []byte) (reason string, err error) {
	envelope, err := storage.ReadEnvelope(value)
	if err != nil {
		return "", err
	}
	type condition struct{ Type, Status, Reason, Message string }
	var conditions []condition
	if envelope.Encoding == storage.Protobuf {
		// Source: generated.proto of pkg/apis/apiregistration of kube-aggregator, v1beta1 and v1: the same numbers.
		w := storage.WalkProto(storage.ProtoBytes(envelope.Body, fieldStatus))
		for w.Next() {
			if w.Number != 1 {
				continue
			}
			text := func(number int32) string {
				return string(storage.ProtoBytes(w.Bytes, protowire.Number(number)))
			}
			conditions = append(conditions, condition{text(1), text(2), text(4), text(5)})
		}
		err = w.Err()
	} else {
		var object struct {
			Status struct{ Conditions []condition }
		}
		err = json.Unmarshal(envelope.Body, &object)
		conditions = object.Status.Conditions
	}
	for _, c := range conditions {
		if c.Type == "Available" && c.Status == "False" {
			reason = cmp.Or(c.Reason, "False")
			if c.Message != "" {
				reason += ", " + c.Message
			}
		}
	}
	return reason, err
}

const fieldStatus = 3
