package snapshot

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubefusion/fusionctl/pkg/etcd"
)

// revision is the key of an item: which write it was.
type revision struct{ main, sub uint64 }

const (
	revisionBytes = 17 // main 8, '_', sub 8; a deletion has a 't' behind it
	tombstone     = 't'
)

// parseRevision takes the key of an item apart.
// Source: etcd v3.6.8 server/storage/mvcc/revision.go.
func parseRevision(key []byte) (r revision, deleted bool, err error) {
	deleted = len(key) == revisionBytes+1 && key[revisionBytes] == tombstone
	if (len(key) != revisionBytes && !deleted) || key[8] != '_' {
		return r, false, damaged("%q is not a revision", key)
	}
	return revision{binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[9:])}, deleted, nil
}

func (r revision) before(other revision) bool {
	return r.main < other.main || (r.main == other.main && r.sub < other.sub)
}

// The fields of an mvccpb.KeyValue, with their wire types.
// Source: etcd v3.6.8 api/mvccpb/kv.proto.
const (
	keyTag     = 1<<3 | byte(protowire.BytesType)
	createTag  = 2<<3 | byte(protowire.VarintType)
	modTag     = 3<<3 | byte(protowire.VarintType)
	versionTag = 4<<3 | byte(protowire.VarintType)
	valueTag   = 5<<3 | byte(protowire.BytesType)
	leaseTag   = 6<<3 | byte(protowire.VarintType)
)

// parseKeyValue reads an mvccpb.KeyValue into e without copying, and without looking at the value: that may not be in
// memory.
func parseKeyValue(data []byte, e *etcd.Entry) error {
	*e = etcd.Entry{}
	for len(data) > 0 {
		tag := data[0]
		switch tag {
		case keyTag, createTag, modTag, versionTag, valueTag, leaseTag:
		default: // of another version
			number, wireType, n := protowire.ConsumeTag(data)
			if n > 0 {
				data = data[n:]
				n = protowire.ConsumeFieldValue(number, wireType, data)
			}
			if n < 0 {
				return errors.New("a field of it is damaged")
			}
			data = data[n:]
			continue
		}
		v, n := binary.Uvarint(data[1:])
		if n <= 0 {
			return errors.New("a number in it is damaged")
		}
		data = data[1+n:]
		switch tag {
		case createTag:
			e.CreateRevision = int64(v)
		case modTag:
			e.ModRevision = int64(v)
		case versionTag:
			e.Version = int64(v)
		case leaseTag:
			e.Lease = int64(v)
		default:
			if v > uint64(len(data)) {
				return errors.New("it is cut off")
			}
			if tag == keyTag {
				e.Key = data[:v:v]
			} else {
				e.Value = data[:v:v]
			}
			data = data[v:]
		}
	}
	if len(e.Key) == 0 {
		return errors.New("it has no key")
	}
	return nil
}
