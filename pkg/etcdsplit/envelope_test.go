package etcdsplit

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// object is what the tests store, in whichever encoding.
type object struct {
	APIVersion, Kind, Name, Namespace, UID string
	Owners                                 [][4]string // apiVersion, kind, name, uid
	Annotations                            map[string]string
	Raw                                    []byte // protobuf: further fields of the message
}

func field(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func (o object) protobuf() []byte {
	meta := field(nil, 1, []byte(o.Name))
	meta = field(meta, 3, []byte(o.Namespace))
	meta = field(meta, 5, []byte(o.UID))
	meta = protowire.AppendVarint(protowire.AppendTag(meta, 7, protowire.VarintType), 3)
	for _, entry := range protoEntries(o.Annotations) {
		meta = field(meta, 12, entry)
	}
	for _, owner := range o.Owners {
		ref := field(nil, 1, []byte(owner[1]))
		ref = field(ref, 3, []byte(owner[2]))
		ref = field(ref, 4, []byte(owner[3]))
		ref = field(ref, 5, []byte(owner[0]))
		meta = field(meta, 13, ref)
	}
	body := append(field(nil, 1, meta), o.Raw...)
	unknown := field(nil, 1, field(field(nil, 1, []byte(o.APIVersion)), 2, []byte(o.Kind)))
	unknown = field(unknown, 2, body)
	unknown = field(field(unknown, 3, nil), 4, nil)
	return append([]byte("k8s\x00"), unknown...)
}

func (o object) tree() map[string]any {
	owners := []any{}
	for _, owner := range o.Owners {
		owners = append(owners, map[string]any{"apiVersion": owner[0], "kind": owner[1], "name": owner[2],
			"uid": owner[3]})
	}
	return map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "spec": map[string]any{"a": []any{1, "}\"", nil}},
		"metadata": map[string]any{
			"name": o.Name, "namespace": o.Namespace, "uid": o.UID, "generation": 3, "ownerReferences": owners,
			"annotations": o.Annotations,
		}}
}

func (o object) json() []byte {
	data, err := json.Marshal(o.tree())
	if err != nil {
		panic(err)
	}
	return data
}

func (o object) cbor() []byte {
	data, err := cbor.Marshal(o.tree())
	if err != nil {
		panic(err)
	}
	return append([]byte{0xd9, 0xd9, 0xf7}, data...)
}

var replicaSetPod = object{
	APIVersion: "v1", Kind: "Pod", Name: "web-1", Namespace: "default", UID: "u-1",
	Owners:      [][4]string{{"apps/v1", "ReplicaSet", "web", "u-0"}, {"v1", "Node", "n", "u-9"}},
	Annotations: map[string]string{"a": "1", "quoted": "\"\\\n"},
}

func TestEnvelopeReadsEveryEncodingAlike(t *testing.T) {
	for encoding, value := range map[Encoding][]byte{Protobuf: replicaSetPod.protobuf(), JSON: replicaSetPod.json(),
		CBOR: replicaSetPod.cbor()} {
		e, err := ReadEnvelope(value)
		if err != nil {
			t.Errorf("%s: %v", encoding, err)
			continue
		}
		if e.Encoding != encoding || string(e.APIVersion) != "v1" || string(e.Kind) != "Pod" {
			t.Errorf("%s: ReadEnvelope = %s %s %s", encoding, e.Encoding, e.APIVersion, e.Kind)
		}
		var m Meta
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
		e, err := ReadEnvelope([]byte(value))
		if err != nil || e.Encoding != Encrypted || string(e.Provider) != want[0] || string(e.KeyName) != want[1] {
			t.Errorf("ReadEnvelope(%q) = %s %q %q, %v; want %q", value, e.Encoding, e.Provider, e.KeyName, err, want)
		}
		if err := e.ReadMeta(&Meta{}); !errors.Is(err, ErrUnreadable) {
			t.Errorf("ReadMeta of an encrypted value = %v, want %v", err, ErrUnreadable)
		}
	}
}

func TestEnvelopeRefusesWhatIsNoObject(t *testing.T) {
	pod := string(replicaSetPod.protobuf())
	for name, value := range map[string]string{
		"empty": "", "a number": "1234", "text": "hello", "cut-off protobuf": pod[:20], "only the magic": "k8s\x00",
		"cut-off JSON":        `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"`,
		"JSON without a kind": `{"apiVersion":"v1"}`,
		"JSON array":          `[]`, "cut-off encryption": "k8s:enc:aescbc", "cut-off CBOR": "\xd9\xd9\xf7\xa1",
		"CBOR of a number": "\xd9\xd9\xf7\x01",
	} {
		if e, err := ReadEnvelope([]byte(value)); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: ReadEnvelope = %+v, %v; want %v", name, e, err, ErrUnreadable)
		}
	}
}

func TestEnvelopeAllocatesNothing(t *testing.T) {
	plain := replicaSetPod
	plain.Annotations = map[string]string{"a": "1"}
	for encoding, value := range map[Encoding][]byte{Protobuf: plain.protobuf(), JSON: plain.json()} {
		var m Meta
		allocations := testing.AllocsPerRun(100, func() {
			e, err := ReadEnvelope(value)
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
	f.Add(replicaSetPod.protobuf())
	f.Add(replicaSetPod.json())
	f.Add(replicaSetPod.cbor())
	f.Add([]byte("k8s:enc:aescbc:v1:key1:xx"))
	realEntries(f, func(_ string, value []byte) { f.Add(value) })
	f.Add([]byte(`{"kind":"A","apiVersion":"v1","metadata":{"ownerReferences":null}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := ReadEnvelope(value)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) {
				t.Errorf("ReadEnvelope(%q) = %v, want it to wrap ErrUnreadable", value, err)
			}
			return
		}
		if e.Encoding != Encrypted && (len(e.APIVersion) == 0 || len(e.Kind) == 0) {
			t.Errorf("ReadEnvelope(%q) has no type", value)
		}
		var m Meta
		if e.ReadMeta(&m) == nil {
			m.Annotation("a")
			m.Label("a")
		}
		// None of the readers of contents may fall over, whatever kind the value claims to be.
		_, _ = readService(&e)
		_, _ = readAllocation(&e)
		_, _ = readAddress(&e)
		_, _ = readServiceCIDRs(&e)
		_, _ = readSecretType(&e)
		_, _ = readCRD(&e)
		_, _ = readAPIService(&e)
		readHolder(&e, &m)
		memberNames(e.Body)
	})
}

func FuzzJSONMembers(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":["}",{}]},"d":"\"","e":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			// must only not fall over
			_ = jsonMembers(data, func(_, value []byte) bool { jsonString(value); return true })
			return
		}
		got := map[string]string{}
		if err := jsonMembers(data, func(key, value []byte) bool {
			got[string(key)] = string(value)
			return true
		}); err != nil {
			t.Fatalf("jsonMembers(%q) = %v, and encoding/json reads it", data, err)
		}
		for key, value := range want {
			if got[key] != string(value) && !strings.Contains(string(data), `\u`) &&
				strings.ToValidUTF8(string(data), "") == string(data) {
				t.Errorf("jsonMembers(%q)[%q] = %q, want %q", data, key, got[key], value)
			}
		}
	})
}
