package local

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/kubefusion/fusionctl/pkg/etcd"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/etcd/move"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// MayMove looks for what stands against moving keys: one that API servers cannot read where it goes, one that is
// encrypted or ends by itself, another one of the same name there. Errors: *KeysError with each of them.
func MayMove(ctx context.Context, c *transition.Check, tell Telling) error {
	return eachMoving(ctx, c.Moving, c.Hint, tell, func(_, _ *etcdv3.Writer, _ etcd.Entry) error { return nil })
}

// moveKeys moves keys: each is created in the other store, read back, and deleted where it was if it is still what was
// copied. Killed and run again, it goes on.
func moveKeys(ctx context.Context, m *transition.Moving) error {
	nothing := func(_, _ *etcdv3.Writer, _ etcd.Entry) error { return nil }
	if err := eachMoving(ctx, m, "", Telling{}, nothing); err != nil {
		return err
	}
	return eachMoving(ctx, m, "", Telling{}, func(from, to *etcdv3.Writer, e etcd.Entry) error {
		if _, err := to.Create(ctx, []etcd.Entry{e}); err != nil { // there already is as good, where it is the same
			return err
		}
		copied, err := to.Read(ctx, []string{string(e.Key)})
		if err != nil {
			return err
		}
		if copied[0] == nil || !bytes.Equal(copied[0].Value, e.Value) {
			return fmt.Errorf("%s: is another one in store %s meanwhile", storage.Printable(string(e.Key)), m.To.Name)
		}
		deleted, err := from.Delete(ctx, []move.KeyAt{{Key: string(e.Key), ModRevision: e.ModRevision}})
		if err == nil && !deleted {
			err = fmt.Errorf("%s: was written in store %s meanwhile: an API server that looks for it there runs",
				storage.Printable(string(e.Key)), m.From.Name)
		}
		return err
	})
}

// eachMoving visits all keys to be moved of which none cannot be.
func eachMoving(ctx context.Context, m *transition.Moving, hint string, tell Telling,
	visit func(from, to *etcdv3.Writer, e etcd.Entry) error) error {
	source, err := open(m.From, tell.Failover)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := open(m.To, tell.Failover)
	if err != nil {
		return err
	}
	defer target.Close()
	from, to := &etcdv3.Writer{Client: source}, &etcdv3.Writer{Client: target}
	stays := &KeysError{hint: hint}
	for _, row := range m.Resources {
		prefix := m.Prefix + "/" + row.Key + "/"
		_, err := etcd.Entries(ctx, etcd.Store{Name: m.From.Name, Pager: from},
			etcd.Request{From: prefix, To: etcd.PrefixEnd(prefix)}, func(e etcd.Entry) error {
				there, err := to.Read(ctx, []string{string(e.Key)})
				if err != nil {
					return err
				}
				why := whyStays(&e, there[0], row.Reads)
				switch {
				case why == "":
					e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
					return visit(from, to, e)
				case len(stays.Found) < mostObjects:
					stays.Found = append(stays.Found, fmt.Sprintf("store %s: %s: %s", m.From.Name,
						storage.Printable(string(e.Key)), why))
				}
				return nil
			})
		if err != nil {
			return fmt.Errorf("store %s: %w", m.From.Name, err)
		}
	}
	if len(stays.Found) > 0 {
		return stays
	}
	return nil
}

// whyStays says why a key cannot be moved; "" where it can.
func whyStays(e, there *etcd.Entry, reads []string) string {
	envelope, err := storage.ReadEnvelope(e.Value)
	switch {
	case err != nil:
		return err.Error()
	case envelope.Encoding == storage.Encrypted:
		return "is encrypted"
	case !slices.Contains(reads, string(envelope.APIVersion)):
		return fmt.Sprintf("is stored as %s, which not every API server reads where it goes; want one of %q",
			envelope.APIVersion, reads)
	case e.Lease != 0:
		return "ends by itself"
	case there != nil && !bytes.Equal(there.Value, e.Value):
		return "the other store has another one"
	}
	return ""
}
