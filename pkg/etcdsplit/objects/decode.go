package objects

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubefusion/fusionctl/pkg/etcdsplit"
)

// Decode decodes a stored value whole, into what its JSON would be.
// Errors: etcdsplit.ErrUnreadable, wrapped, for what is no object; an encrypted value, with its provider and key; a value in protobuf of a type that the
// newest version no longer has (settings.k8s.io, PodSecurityPolicy), which nobody can decode without its definition.
func Decode(value []byte) (map[string]any, error) {
	e, err := etcdsplit.ReadEnvelope(value)
	if err != nil {
		return nil, err
	}
	switch e.Encoding {
	case etcdsplit.Protobuf:
		return decodeProtobuf(&e, value)
	case etcdsplit.JSON:
		var object map[string]any
		if err := json.Unmarshal(e.Body, &object); err != nil {
			return nil, fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
		}
		return object, nil
	case etcdsplit.CBOR:
		var object map[string]any
		mode, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any]()}.DecMode()
		if err == nil {
			err = mode.Unmarshal(e.Body, &object)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
		}
		return object, nil
	}
	return nil, fmt.Errorf("encrypted by provider %q with key %q: only an API server that has the key can decode it", e.Provider, e.KeyName)
}

func decodeProtobuf(e *etcdsplit.Envelope, value []byte) (map[string]any, error) {
	gv, err := schema.ParseGroupVersion(string(e.APIVersion))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", etcdsplit.ErrUnreadable, err)
	}
	gvk := gv.WithKind(string(e.Kind))
	if !scheme.Scheme.Recognizes(gvk) {
		return nil, fmt.Errorf("decoding %s %s from protobuf: its definition is gone from the newest version", gv, e.Kind)
	}
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), value)
	if err != nil {
		return nil, fmt.Errorf("%w: decoding %s %s: %w", etcdsplit.ErrUnreadable, gv, e.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("printing %s %s: %w", gv, e.Kind, err)
	}
	dropNulls(tree)
	return tree, nil
}

// dropNulls removes the creationTimestamp: null that typed objects print where they have none.
func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if inner == nil {
				delete(value, key)
			} else {
				dropNulls(inner)
			}
		}
	case []any:
		for _, inner := range value {
			dropNulls(inner)
		}
	}
}
