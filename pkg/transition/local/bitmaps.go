package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/scan"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// completeBitmap adds to a bitmap of ClusterIPs what Services in its store have and it lacks. It releases none: an
// address that no Service has may be one that another API server has just allocated. What others write meanwhile is not
// overwritten, and read again. One that is missing, or encrypted, is left to the API server that allocates from it.
func completeBitmap(ctx context.Context, prefix string, b transition.Bitmap, w *etcdv3.Writer) error {
	for range rounds {
		key := prefix + "/" + b.Key
		page, err := w.Page(ctx, etcd.Request{From: key, To: key + "\x00", LimitKeys: 1})
		if err != nil || len(page.Entries) == 0 {
			return err
		}
		entry := page.Entries[0]
		var record corev1.RangeAllocation
		if encrypted, err := decodeStored(entry.Value, &record); err != nil || encrypted {
			return err
		}
		if _, err := netip.ParsePrefix(record.Range); err != nil {
			return fmt.Errorf("the range %q: %w", record.Range, err)
		}
		bits := new(big.Int).SetBytes(record.Data)
		from := prefix + "/services/specs/"
		_, err = etcd.Entries(ctx, etcd.Store{Name: b.Store, Pager: w},
			etcd.Request{From: from, To: etcd.PrefixEnd(from)}, func(e etcd.Entry) error {
				var service corev1.Service
				if encrypted, err := decodeStored(e.Value, &service); err != nil || encrypted {
					return err
				}
				for _, address := range append(service.Spec.ClusterIPs, service.Spec.ClusterIP) {
					if i, in := scan.AddressBit(record.Range, address); in {
						bits.SetBit(bits, i, 1)
					}
				}
				return nil
			})
		if err != nil || bytes.Equal(bits.Bytes(), record.Data) {
			return err
		}
		record.Data = bits.Bytes()
		value, err := encodeLike(entry.Value, &record)
		if err != nil {
			return err
		}
		entry.Value = value
		if done, err := w.Replace(ctx, []etcd.Entry{entry}); err != nil || done {
			return err
		}
	}
	return fmt.Errorf("after %d rounds it was changed by others each time: run this again", rounds)
}

// decodeStored reads a stored value of a type of the core group.
func decodeStored(value []byte, into interface{ Unmarshal([]byte) error }) (encrypted bool, err error) {
	envelope, err := storage.ReadEnvelope(value)
	switch {
	case err != nil:
		return false, err
	case envelope.Encoding == storage.Encrypted:
		return true, nil
	case envelope.Encoding == storage.Protobuf:
		return false, into.Unmarshal(envelope.Body)
	}
	return false, json.Unmarshal(envelope.Body, into)
}

// encodeLike writes an object as a stored value of it is encoded.
func encodeLike(value []byte, object interface{ Marshal() ([]byte, error) }) ([]byte, error) {
	envelope, err := storage.ReadEnvelope(value)
	if err != nil {
		return nil, err
	}
	if envelope.Encoding != storage.Protobuf {
		return json.Marshal(object)
	}
	magic := []byte("k8s\x00")
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(bytes.TrimPrefix(value, magic)); err != nil {
		return nil, err
	}
	if unknown.Raw, err = object.Marshal(); err != nil {
		return nil, err
	}
	data, err := unknown.Marshal()
	return append(magic, data...), err
}
