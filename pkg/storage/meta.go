package storage

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Meta is the part of an object's metadata that decides about ownership. Its slices are parts of the value, and are
// valid as long as that is; Owners is overwritten by the next read into the same Meta.
type Meta struct {
	Name      []byte
	Namespace []byte
	UID       []byte
	Owners    []OwnerReference

	encoding    Encoding
	labels      [][]byte // protobuf: map entries; JSON: one object
	annotations [][]byte
}

// OwnerReference is one entry of metadata.ownerReferences.
type OwnerReference struct {
	APIVersion []byte
	Kind       []byte
	Name       []byte
	UID        []byte
}

// ReadMeta reads the metadata of the object into m, replacing what m held.
// Errors: ErrUnreadable, wrapped, when the metadata is damaged or the value is encrypted.
// Source: generated.proto of apimachinery meta/v1; every stored kind has its metadata in field 1.
func (e *Envelope) ReadMeta(m *Meta) error { return e.readMeta(m, true) }

// ReadIdentity is ReadMeta without labels and annotations where leaving them out saves time: the names of the object,
// its UID, and its owners.
func (e *Envelope) ReadIdentity(m *Meta) error { return e.readMeta(m, false) }

// readMeta reads the metadata, and labels and annotations only if they are wanted.
func (e *Envelope) readMeta(m *Meta, wanted bool) error {
	m.Name, m.Namespace, m.UID, m.encoding = nil, nil, nil, e.Encoding
	m.Owners, m.labels, m.annotations = m.Owners[:0], m.labels[:0], m.annotations[:0]
	var err error
	switch e.Encoding {
	case Protobuf:
		err = readProtobufMeta(e.Body, m, wanted)
	case JSON:
		err = readJSONMeta(e.Body, m)
	case CBOR:
		err = readCBORMeta(e.Body, m)
	default:
		return fmt.Errorf("%w: its metadata is %s", ErrUnreadable, e.Encoding)
	}
	if err != nil {
		return fmt.Errorf("%w: its metadata is damaged: %w", ErrUnreadable, err)
	}
	return nil
}

func readProtobufMeta(body []byte, m *Meta, wanted bool) error {
	object := WalkProto(body)
	for object.Next() { // it comes first, and the rest may be large
		if object.Number == 1 {
			break
		}
	}
	if err := object.Err(); err != nil || object.Number != 1 {
		return err
	}
	w := WalkProto(object.Bytes)
	for w.Next() {
		switch w.Number {
		case 1:
			m.Name = w.Bytes
		case 3:
			m.Namespace = w.Bytes
		case 5:
			m.UID = w.Bytes
		case 11:
			if wanted {
				m.labels = append(m.labels, w.Bytes)
			}
		case 12:
			if wanted {
				m.annotations = append(m.annotations, w.Bytes)
			}
		case 13:
			owner, err := readProtobufOwner(w.Bytes)
			if err != nil {
				return err
			}
			m.Owners = append(m.Owners, owner)
		}
	}
	return w.Err()
}

func readProtobufOwner(reference []byte) (owner OwnerReference, err error) {
	w := WalkProto(reference)
	for w.Next() {
		switch w.Number {
		case 1:
			owner.Kind = w.Bytes
		case 3:
			owner.Name = w.Bytes
		case 4:
			owner.UID = w.Bytes
		case 5:
			owner.APIVersion = w.Bytes
		}
	}
	return owner, w.Err()
}

func readJSONMeta(body []byte, m *Meta) error {
	var meta []byte
	err := JSONMembers(body, func(key, value []byte) bool {
		if string(key) == "metadata" {
			meta = value
		}
		return meta == nil
	})
	if err != nil {
		return err
	}
	if meta == nil {
		return nil
	}
	var inner error
	err = JSONMembers(meta, func(key, value []byte) bool {
		switch string(key) {
		case "name":
			m.Name = jsonString(value)
		case "namespace":
			m.Namespace = jsonString(value)
		case "uid":
			m.UID = jsonString(value)
		case "labels":
			m.labels = append(m.labels, value)
		case "annotations":
			m.annotations = append(m.annotations, value)
		case "ownerReferences":
			inner = readJSONOwners(value, m)
		}
		return inner == nil
	})
	if err == nil {
		err = inner
	}
	return err
}

func nullOr(value []byte, read func() error) error {
	if string(value) == "null" {
		return nil
	}
	return read()
}

func readJSONOwners(value []byte, m *Meta) error {
	return nullOr(value, func() error {
		var inner error
		err := JSONElements(value, func(element []byte) bool {
			var owner OwnerReference
			inner = JSONMembers(element, func(key, value []byte) bool {
				switch string(key) {
				case "apiVersion":
					owner.APIVersion = jsonString(value)
				case "kind":
					owner.Kind = jsonString(value)
				case "name":
					owner.Name = jsonString(value)
				case "uid":
					owner.UID = jsonString(value)
				}
				return true
			})
			m.Owners = append(m.Owners, owner)
			return inner == nil
		})
		if err == nil {
			err = inner
		}
		return err
	})
}

// readCBORMeta decodes the metadata into strings: CBOR is stored only behind an alpha gate, so it may be slow.
func readCBORMeta(body []byte, m *Meta) error {
	var object struct {
		Metadata struct {
			Name            string            `cbor:"name"`
			Namespace       string            `cbor:"namespace"`
			UID             string            `cbor:"uid"`
			Labels          map[string]string `cbor:"labels"`
			Annotations     map[string]string `cbor:"annotations"`
			OwnerReferences []struct {
				APIVersion string `cbor:"apiVersion"`
				Kind       string `cbor:"kind"`
				Name       string `cbor:"name"`
				UID        string `cbor:"uid"`
			} `cbor:"ownerReferences"`
		} `cbor:"metadata"`
	}
	if err := cborMode().Unmarshal(body, &object); err != nil {
		return err
	}
	meta := &object.Metadata
	m.Name, m.Namespace, m.UID = []byte(meta.Name), []byte(meta.Namespace), []byte(meta.UID)
	for _, o := range meta.OwnerReferences {
		m.Owners = append(m.Owners, OwnerReference{[]byte(o.APIVersion), []byte(o.Kind), []byte(o.Name), []byte(o.UID)})
	}
	m.labels, m.annotations = protoEntries(meta.Labels), protoEntries(meta.Annotations)
	return nil
}

// protoEntries writes a map as protobuf would, so that Label and Annotation have one form to read.
func protoEntries(values map[string]string) [][]byte {
	entries := make([][]byte, 0, len(values))
	for key, value := range values {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
		entries = append(entries, protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value))
	}
	return entries
}

// Label returns the value of a label, and whether the object has it.
func (m *Meta) Label(name string) ([]byte, bool) { return m.lookup(m.labels, name) }

// Annotation returns the value of an annotation, and whether the object has it.
func (m *Meta) Annotation(name string) ([]byte, bool) { return m.lookup(m.annotations, name) }

func (m *Meta) lookup(entries [][]byte, name string) (found []byte, ok bool) {
	for _, entry := range entries {
		if m.encoding == JSON {
			// A damaged or absent map has no entries; ReadMeta checked its brackets already.
			_ = JSONMembers(entry, func(key, value []byte) bool {
				if string(key) == name {
					found, ok = jsonString(value), true
				}
				return !ok
			})
			return found, ok
		}
		var key, value []byte
		w := WalkProto(entry)
		for w.Next() {
			switch w.Number {
			case 1:
				key = w.Bytes
			case 2:
				value = w.Bytes
			}
		}
		if w.Err() == nil && bytes.Equal(key, []byte(name)) {
			return value, true
		}
	}
	return nil, false
}
