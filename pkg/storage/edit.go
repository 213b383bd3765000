package storage

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Edits are changes of a stored object in place: all else of it stays byte for byte in protobuf, fields that no version
// known here has among it.
type Edits struct {
	// APIVersions replaces API versions in owner references, and in managedFields for those of the object's own kind:
	// kind -> old -> new.
	APIVersions map[string]map[string]string
	// ScaleTarget replaces them in spec.scaleTargetRef, too.
	ScaleTarget bool
	// DropManagedFields removes metadata.managedFields.
	DropManagedFields bool
	// Unobserved is the number of status.observedGeneration in the object's status, which becomes 0: whatever
	// controller acts for the object next has to write it again. 0: the object has no such field.
	Unobserved protowire.Number
}

func (e *Edits) apiVersion(kind, old string) string {
	if replaced, ok := e.APIVersions[kind][old]; ok {
		return replaced
	}
	return old
}

// Field numbers. Source: generated.proto of apimachinery meta/v1, of autoscaling and of apps in every version.
const (
	fieldMetadata, fieldSpec, fieldStatus = 1, 2, 3

	fieldOwnerReferences, fieldManagedFields     = 13, 17
	fieldOwnerKind, fieldOwnerAPIVersion         = 1, 5
	fieldManagedAPIVersion, fieldScaleTargetRef  = 3, 1
	fieldScaleTargetKind, fieldScaleTargetAPIVer = 1, 3
)

// Apply returns the value with the edits; the value itself where they change nothing. Errors: ErrUnreadable, wrapped; a
// value that is encrypted, or in CBOR, in which no built-in object is stored.
func (e *Edits) Apply(value []byte) ([]byte, error) {
	envelope, err := ReadEnvelope(value)
	if err != nil {
		return nil, err
	}
	switch envelope.Encoding {
	case Protobuf:
		return e.protobuf(value, string(envelope.Kind))
	case JSON:
		return e.json(value, string(envelope.Kind))
	}
	return nil, fmt.Errorf("%w: %s cannot be edited", ErrUnreadable, envelope.Encoding)
}

// editing rewrites messages; the first damage that it meets ends it.
type editing struct{ err error }

// each calls change with every length-delimited field of the number, and puts what it returns in its place; false
// leaves the field out.
func (d *editing) each(message []byte, number protowire.Number, change func([]byte) ([]byte, bool)) []byte {
	out := make([]byte, 0, len(message)+16)
	w := WalkProto(message)
	for w.Next() {
		if w.Number != number || w.Type != protowire.BytesType {
			out = append(out, w.Raw...)
			continue
		}
		if changed, keep := change(w.Bytes); keep {
			out = protowire.AppendTag(out, number, protowire.BytesType)
			out = protowire.AppendBytes(out, changed)
		}
	}
	if err := w.Err(); err != nil && d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return out
}

// apiVersion replaces a field of a message whose other field names the kind.
func (d *editing) apiVersion(e *Edits, message []byte, kind string, number protowire.Number) ([]byte, bool) {
	return d.each(message, number, func(old []byte) ([]byte, bool) {
		return []byte(e.apiVersion(kind, string(old))), true
	}), true
}

func (e *Edits) protobuf(value []byte, kind string) ([]byte, error) {
	d := new(editing)
	// a runtime.Unknown has the object in field 2
	out := d.each(value[len(protobufMagic):], 2, func(body []byte) ([]byte, bool) {
		body = d.each(body, fieldMetadata, func(meta []byte) ([]byte, bool) { return e.metadata(d, meta, kind), true })
		if e.ScaleTarget {
			body = d.each(body, fieldSpec, func(spec []byte) ([]byte, bool) {
				return d.each(spec, fieldScaleTargetRef, func(ref []byte) ([]byte, bool) {
					return d.apiVersion(e, ref, string(ProtoBytes(ref, fieldScaleTargetKind)), fieldScaleTargetAPIVer)
				}), true
			})
		}
		if e.Unobserved != 0 {
			body = d.each(body, fieldStatus, func(status []byte) ([]byte, bool) {
				return d.without(status, e.Unobserved), true
			})
		}
		return body, true
	})
	return append(slices.Clone(protobufMagic), out...), d.err
}

func (e *Edits) metadata(d *editing, meta []byte, kind string) []byte {
	meta = d.each(meta, fieldOwnerReferences, func(ref []byte) ([]byte, bool) {
		return d.apiVersion(e, ref, string(ProtoBytes(ref, fieldOwnerKind)), fieldOwnerAPIVersion)
	})
	return d.each(meta, fieldManagedFields, func(entry []byte) ([]byte, bool) {
		if e.DropManagedFields {
			return nil, false
		}
		return d.apiVersion(e, entry, kind, fieldManagedAPIVersion)
	})
}

// without leaves a number out of a message.
func (d *editing) without(message []byte, number protowire.Number) []byte {
	out := make([]byte, 0, len(message))
	w := WalkProto(message)
	for w.Next() {
		if w.Number != number {
			out = append(out, w.Raw...)
		}
	}
	if err := w.Err(); err != nil && d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return out
}

func (e *Edits) json(value []byte, kind string) ([]byte, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(value, &object); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	changed := false
	replace := func(of any, kind string) {
		holder, _ := of.(map[string]any)
		old, _ := holder["apiVersion"].(string)
		if replaced := e.apiVersion(kind, old); holder != nil && replaced != old {
			holder["apiVersion"], changed = replaced, true
		}
	}
	kindOf := func(of any) string {
		holder, _ := of.(map[string]any)
		text, _ := holder["kind"].(string)
		return text
	}
	meta, _ := object["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	for _, owner := range owners {
		replace(owner, kindOf(owner))
	}
	managed, has := meta["managedFields"].([]any)
	if has && e.DropManagedFields {
		delete(meta, "managedFields")
		managed, changed = nil, true
	}
	for _, entry := range managed {
		replace(entry, kind)
	}
	if spec, _ := object["spec"].(map[string]any); e.ScaleTarget {
		replace(spec["scaleTargetRef"], kindOf(spec["scaleTargetRef"]))
	}
	if status, _ := object["status"].(map[string]any); e.Unobserved != 0 && status["observedGeneration"] != nil {
		delete(status, "observedGeneration")
		changed = true
	}
	if !changed {
		return value, nil
	}
	return json.Marshal(object)
}
