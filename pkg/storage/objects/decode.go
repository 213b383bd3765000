package objects

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/storage"
)

// Decode decodes a stored value whole, into what its JSON would be in the version in which it is stored, whichever of
// 1.6 to 1.36 wrote it. In protobuf a field may have no name that is known, being a vendor's or of a version in
// between: it goes by its number, as does all of an object of an unknown type but its metadata. Shape:
// {"apiVersion":"v1","kind":"Pod","metadata":{...},"spec":{...,"#99":"a vendor's field"}} Errors:
// storage.ErrUnreadable, wrapped, for what is no object; an encrypted value, with its provider and key.
func Decode(value []byte) (map[string]any, error) {
	e, err := storage.ReadEnvelope(value)
	if err != nil {
		return nil, err
	}
	switch e.Encoding {
	case storage.Protobuf:
		return decodeProtobuf(&e)
	case storage.Encrypted:
		return nil, fmt.Errorf("encrypted by provider %q with key %q: only an API server that has the key can decode "+
			"it", e.Provider, e.KeyName)
	}
	object, err := decodeTree(&e)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrUnreadable, err)
	}
	return object, nil
}

// decodeTree decodes JSON and CBOR. Whole numbers stay whole, as in an API server.
func decodeTree(e *storage.Envelope) (object map[string]any, err error) {
	if e.Encoding == storage.CBOR {
		err = cbor.Unmarshal(e.Body, &object)
	} else {
		err = utiljson.Unmarshal(e.Body, &object)
	}
	return object, err
}

// limitDecodedBytes bounds what a stored message takes decoded: far more than any that an API server validates.
const limitDecodedBytes = 512 << 20

func decodeProtobuf(e *storage.Envelope) (map[string]any, error) {
	apiVersion, kind := string(e.APIVersion), string(e.Kind)
	switch size, err := storage.DecodedProtoBytes(e.Body); {
	case err != nil:
		return nil, fmt.Errorf("%w: decoding %s %s: %w", storage.ErrUnreadable, apiVersion, kind, err)
	case size > limitDecodedBytes:
		return nil, fmt.Errorf("%w: decoding %s %s: takes more than %d MiB", storage.ErrUnreadable, apiVersion, kind,
			limitDecodedBytes>>20)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrUnreadable, err)
	}
	var tree any
	if t, ok := scheme.Scheme.AllKnownTypes()[gv.WithKind(kind)]; ok {
		tree, err = goValue(t, e.Body)
	} else if typ, ok := goneLayouts().kinds[apiVersion+" "+kind]; ok {
		tree, err = goneLayouts().value(typ, e.Body)
	} else {
		tree, err = withoutType(e.Body)
	}
	object, ok := tree.(map[string]any)
	if err == nil && !ok {
		err = fmt.Errorf("it is no object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: decoding %s %s: %w", storage.ErrUnreadable, apiVersion, kind, err)
	}
	object["apiVersion"], object["kind"] = apiVersion, kind
	dropNulls(object)
	return object, nil
}

// dropNulls removes the creationTimestamp: null that typed objects print where they have none. A pod of disruptedPods,
// the one map whose values may be null, stays.
func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			switch {
			case key == "disruptedPods":
			case inner == nil:
				delete(value, key)
			default:
				dropNulls(inner)
			}
		}
	case []any:
		for _, inner := range value {
			dropNulls(inner)
		}
	}
}
