package storage_test

import (
	"errors"
	"testing"

	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/storage"
)

var replicaSetPod = storetest.Object{
	APIVersion: "v1", Kind: "Pod", Name: "web-1", Namespace: "default", UID: "u-1",
	Owners:      [][4]string{{"apps/v1", "ReplicaSet", "web", "u-0"}, {"v1", "Node", "n", "u-9"}},
	Annotations: map[string]string{"a": "1", "quoted": "\"\\\n"},
}

func TestEnvelopeReadsEveryEncodingAlike(t *testing.T) {
	for encoding, value := range map[storage.Encoding][]byte{storage.Protobuf: replicaSetPod.Protobuf(),
		storage.JSON: replicaSetPod.JSON(),
		storage.CBOR: replicaSetPod.CBOR()} {
		e, err := storage.ReadEnvelope(value)
		if err != nil {
			t.Errorf("%s: %v", encoding, err)
			continue
		}
		if e.Encoding != encoding || string(e.APIVersion) != "v1" || string(e.Kind) != "Pod" {
			t.Errorf("%s: ReadEnvelope = %s %s %s", encoding, e.Encoding, e.APIVersion, e.Kind)
		}
		var m storage.Meta
		if err := e.ReadMeta(&m); err != nil {
			t.Errorf("%s: %v", encoding, err)
			continue
		}
		if string(m.Name) != "web-1" || string(m.Namespace) != "default" || string(m.UID) != "u-1" ||
			len(m.Owners) != 2 {
			t.Errorf("%s: ReadMeta = %s/%s uid %s, %d owners", encoding, m.Namespace, m.Name, m.UID, len(m.Owners))
			continue
		}
		if o := m.Owners[0]; string(o.APIVersion) != "apps/v1" || string(o.Kind) != "ReplicaSet" ||
			string(o.Name) != "web" || string(o.UID) != "u-0" {
			t.Errorf("%s: first owner = %s %s %s %s", encoding, o.APIVersion, o.Kind, o.Name, o.UID)
		}
		if got, ok := m.Annotation("quoted"); !ok || string(got) != "\"\\\n" {
			t.Errorf("%s: Annotation(quoted) = %q, %v", encoding, got, ok)
		}
		if _, ok := m.Annotation("b"); ok {
			t.Errorf("%s: Annotation(b) is there", encoding)
		}
	}
}

func TestEnvelopeNamesTheEncryption(t *testing.T) {
	for value, want := range map[string][2]string{
		"k8s:enc:aescbc:v1:key1:\x00\x01:\x02": {"aescbc", "key1"},
		"k8s:enc:kms:v2:vault:xx":              {"kms", "vault"},
		"k8s:enc:secretbox:v1:k:":              {"secretbox", "k"},
	} {
		e, err := storage.ReadEnvelope([]byte(value))
		if err != nil || e.Encoding != storage.Encrypted || string(e.Provider) != want[0] ||
			string(e.KeyName) != want[1] {
			t.Errorf("ReadEnvelope(%q) = %s %q %q, %v; want %q", value, e.Encoding, e.Provider, e.KeyName, err, want)
		}
		if err := e.ReadMeta(&storage.Meta{}); !errors.Is(err, storage.ErrUnreadable) {
			t.Errorf("ReadMeta of an encrypted value = %v, want %v", err, storage.ErrUnreadable)
		}
	}
}

func TestEnvelopeRefusesWhatIsNoObject(t *testing.T) {
	pod := string(replicaSetPod.Protobuf())
	for name, value := range map[string]string{
		"empty": "", "a number": "1234", "text": "hello", "cut-off protobuf": pod[:20], "only the magic": "k8s\x00",
		"cut-off JSON":        `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"`,
		"JSON without a kind": `{"apiVersion":"v1"}`,
		"JSON array":          `[]`, "cut-off encryption": "k8s:enc:aescbc", "cut-off CBOR": "\xd9\xd9\xf7\xa1",
		"CBOR of a number": "\xd9\xd9\xf7\x01",
	} {
		if e, err := storage.ReadEnvelope([]byte(value)); !errors.Is(err, storage.ErrUnreadable) {
			t.Errorf("%s: ReadEnvelope = %+v, %v; want %v", name, e, err, storage.ErrUnreadable)
		}
	}
}

func TestEnvelopeAllocatesNothing(t *testing.T) {
	plain := replicaSetPod
	plain.Annotations = map[string]string{"a": "1"}
	for encoding, value := range map[storage.Encoding][]byte{storage.Protobuf: plain.Protobuf(),
		storage.JSON: plain.JSON()} {
		var m storage.Meta
		allocations := testing.AllocsPerRun(100, func() {
			e, err := storage.ReadEnvelope(value)
			if err == nil {
				err = e.ReadMeta(&m)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if allocations > 3 { // closures that capture results
			t.Errorf("%s: %v allocations to read type and metadata, want at most 3", encoding, allocations)
		}
	}
}

func FuzzReadEnvelope(f *testing.F) {
	f.Add(replicaSetPod.Protobuf())
	f.Add(replicaSetPod.JSON())
	f.Add(replicaSetPod.CBOR())
	f.Add([]byte("k8s:enc:aescbc:v1:key1:xx"))
	storetest.RealEntries(f, "../etcd/snapshot/testdata", func(_ string, value []byte) { f.Add(value) })
	f.Add([]byte(`{"kind":"A","apiVersion":"v1","metadata":{"ownerReferences":null}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := storage.ReadEnvelope(value)
		if err != nil {
			if !errors.Is(err, storage.ErrUnreadable) {
				t.Errorf("ReadEnvelope(%q) = %v, want it to wrap ErrUnreadable", value, err)
			}
			return
		}
		if e.Encoding != storage.Encrypted && (len(e.APIVersion) == 0 || len(e.Kind) == 0) {
			t.Errorf("ReadEnvelope(%q) has no type", value)
		}
		var m storage.Meta
		if e.ReadMeta(&m) == nil {
			m.Annotation("a")
			m.Label("a")
		}
	})
}
