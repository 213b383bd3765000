package storage_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// message is a protobuf field of bytes.
func message(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), bytes.Join(parts, nil))
}

func text(number protowire.Number, value string) []byte { return message(number, []byte(value)) }

func varint(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// unknown is what API servers store: k8s, and a runtime.Unknown.
func unknown(apiVersion, kind string, body ...[]byte) []byte {
	return append([]byte("k8s\x00"), bytes.Join([][]byte{message(1, text(1, apiVersion), text(2, kind)),
		message(2, body...), text(3, ""), text(4, "")}, nil)...)
}

const older, newer = "extensions/v1beta1", "apps/v1"

// edited is a ReplicaSet with an owner, managed fields, fields that nothing knows, and a status.
func edited(apiVersion string, managed, observed bool) []byte {
	meta := [][]byte{text(1, "web-1"), text(99, "a vendor's"),
		message(13, text(1, "Deployment"), text(3, "web"), text(4, "d1"), text(5, apiVersion), varint(6, 1), text(98,
			"x")),
		message(13, text(1, "Deployment"), text(3, "other"), text(4, "d2"), text(5, "example.com/v1"))}
	if managed {
		meta = append(meta, message(17, text(1, "kubectl"), text(3, apiVersion)))
	}
	status := [][]byte{varint(1, 2)}
	if observed {
		status = append(status, varint(3, 7))
	}
	return unknown(newer, "ReplicaSet", message(1, meta...), message(2, varint(1, 2)), message(3, append(status,
		varint(97, 1))...))
}

func renamed() map[string]map[string]string {
	return map[string]map[string]string{"Deployment": {older: newer}, "ReplicaSet": {older: newer}}
}

// TestEditsLeaveAllElse: byte for byte, fields that nothing knows among it.
func TestEditsLeaveAllElse(t *testing.T) {
	for name, test := range map[string]struct {
		edits       storage.Edits
		value, want []byte
	}{
		"nothing": {storage.Edits{}, edited(older, true, true), edited(older, true, true)},
		"owners and managed fields": {storage.Edits{APIVersions: renamed()}, edited(older, true, true),
			edited(newer, true, true)},
		"without managed fields": {storage.Edits{APIVersions: renamed(), DropManagedFields: true},
			edited(older, true, true), edited(newer, false, true)},
		"unobserved": {storage.Edits{APIVersions: renamed(), Unobserved: 3}, edited(older, true, true),
			edited(newer, true, false)},
		"scale target": {storage.Edits{APIVersions: renamed(), ScaleTarget: true},
			unknown("autoscaling/v1", "HorizontalPodAutoscaler", message(2, message(1, text(1, "Deployment"),
				text(2, "web"), text(3, older)), varint(2, 1))),
			unknown("autoscaling/v1", "HorizontalPodAutoscaler", message(2, message(1, text(1, "Deployment"),
				text(2, "web"), text(3, newer)), varint(2, 1)))},
		"JSON": {storage.Edits{APIVersions: renamed(), DropManagedFields: true, ScaleTarget: true, Unobserved: 1},
			[]byte(`{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"managedFields":[{"apiVersion":"a/v1"}],` +
				`"ownerReferences":[{"apiVersion":"extensions/v1beta1","kind":"Deployment"},{"apiVersion":"e/v1",` +
				`"kind":"X"}]},"spec":{"scaleTargetRef":{"apiVersion":"extensions/v1beta1","kind":"ReplicaSet"}},` +
				`"status":{"observedGeneration":9007199254740993,"replicas":9007199254740993}}`),
			[]byte(`{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{` +
				`"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment"},{"apiVersion":"e/v1",` +
				`"kind":"X"}]},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"ReplicaSet"}},` +
				`"status":{"replicas":9007199254740993}}`)},
		"JSON that stays": {storage.Edits{APIVersions: renamed()}, []byte(`{ "kind":"Pod", "apiVersion":"v1" }`),
			[]byte(`{ "kind":"Pod", "apiVersion":"v1" }`)},
	} {
		got, err := test.edits.Apply(test.value)
		if err != nil || !bytes.Equal(got, test.want) {
			t.Errorf("%s:\n got %q, %v\nwant %q", name, got, err, test.want)
		}
	}
}

func TestEditsOfDamageAreErrors(t *testing.T) {
	whole := edited(older, true, true)
	for name, value := range map[string][]byte{
		"empty": nil, "encrypted": []byte("k8s:enc:aescbc:v1:key1:x"), "cut off": whole[:len(whole)-8],
		"damaged metadata": unknown(newer, "ReplicaSet", text(1, "\xff")),
	} {
		edits := storage.Edits{APIVersions: renamed()}
		if got, err := edits.Apply(value); err == nil {
			t.Errorf("%s: %q, want an error", name, got)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
