package storage

import "hash/maphash"

// What an API server counts or notes in the metadata at every write, whatever is written. Source: generated.proto of
// apimachinery meta/v1.
var (
	bookkeepingFields  = map[int32]bool{4: true, 6: true, 7: true, 17: true} // by number, in protobuf
	bookkeepingMembers = map[string]bool{"selfLink": true, "resourceVersion": true, "generation": true,
		"managedFields": true}
)

// Substance is a number that two values share when they are equal in all but the bookkeeping of the API server that
// wrote them (resourceVersion, generation, managedFields and the like). It is never 0. Values that cannot be read stand
// for themselves.
func Substance(seed maphash.Seed, value []byte) uint64 {
	var e Envelope
	var h maphash.Hash
	h.SetSeed(seed)
	err := e.Read(value)
	switch {
	case err == nil && e.Encoding == Protobuf:
		err = protobufSubstance(&h, &e)
	case err == nil && e.Encoding == JSON:
		err = jsonSubstance(&h, &e)
	default:
		h.Write(value)
	}
	if err != nil {
		h.Reset()
		h.Write(value)
	}
	return h.Sum64() | 1
}

func protobufSubstance(h *maphash.Hash, e *Envelope) error {
	h.Write(e.APIVersion)
	h.Write(e.Kind)
	w := WalkProto(e.Body)
	for w.Next() {
		if w.Number != 1 {
			h.Write(w.Raw)
		} else if err := protobufMetaSubstance(h, w.Bytes); err != nil {
			return err
		}
	}
	return w.Err()
}

func protobufMetaSubstance(h *maphash.Hash, meta []byte) error {
	w := WalkProto(meta)
	for w.Next() {
		if !bookkeepingFields[int32(w.Number)] {
			h.Write(w.Raw)
		}
	}
	return w.Err()
}

func jsonSubstance(h *maphash.Hash, e *Envelope) error {
	var inner error
	member := func(key, value []byte) bool {
		h.Write(key)
		h.WriteByte(0)
		h.Write(value)
		h.WriteByte(0)
		return true
	}
	err := JSONMembers(e.Body, func(key, value []byte) bool {
		if string(key) != "metadata" {
			return member(key, value)
		}
		inner = JSONMembers(value, func(key, value []byte) bool {
			return bookkeepingMembers[string(key)] || member(key, value)
		})
		return inner == nil
	})
	if err == nil {
		err = inner
	}
	return err
}
