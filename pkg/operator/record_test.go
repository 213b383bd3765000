package operator

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/spec"
	"github.com/kubefusion/fusionctl/pkg/transition"
	"github.com/kubefusion/fusionctl/pkg/witness"
)

// onManyHosts is the record of an installation on hosts, with an etcd member on each.
func onManyHosts(t *testing.T, hosts int, target render.Target) *record {
	t.Helper()
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list, members strings.Builder
	for i := range hosts {
		fmt.Fprintf(&list, "\n  - {name: cp-%d, address: 10.0.0.%d}", i+1, i+11)
		fmt.Fprintf(&members, `"https://10.0.0.%d:2479", `, i+11)
	}
	of := strings.Replace(string(text), "\n  - {name: cp-1, address: 10.0.0.11}", list.String(), 1)
	of = strings.Replace(of, `"https://10.0.0.11:2479"`, strings.TrimSuffix(members.String(), ", "), 1)
	f, err := spec.Load("spec.yaml", []byte(of))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(f, plan.OnHosts)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := transition.New(transition.Setup{}, transition.Setup{Plan: p, Target: target}, transition.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	return &record{Open: &open{To: "digest", Plan: p, Target: target, Transition: tr}}
}

// TestTheRecordOfManyHostsFits: with the journal of every step there and back, and with all that is known of stores.
func TestTheRecordOfManyHostsFits(t *testing.T) {
	for _, target := range []render.Target{render.StaticPod, render.Systemd} {
		r := onManyHosts(t, 60, target)
		if err := r.fits(); err != nil {
			t.Fatal(err)
		}
		for _, events := range [][2]transition.Event{{transition.Begun, transition.Done},
			{transition.Undoing, transition.Undone}} {
			for _, s := range r.Open.Transition.Steps {
				for _, event := range events {
					r.Open.Journal = append(r.Open.Journal, transition.Record{Step: s.ID, Event: event})
				}
				sights := map[string]witness.Sight{"core": {Cluster: s.ID, Revision: 1 << 40, At: time.Now()}}
				r.Open.Journal = append(r.Open.Journal, transition.Record{Step: s.ID, Event: transition.Seen,
					Looked: &transition.Looked{Stores: sights}})
			}
		}
		data, err := r.pack()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d steps, %d KiB", target, len(r.Open.Transition.Steps), len(data)>>10)
		if len(data) > corev1.MaxSecretSize/4 {
			t.Errorf("%s: %d bytes, want at most a quarter of a Secret", target, len(data))
		}
		again := &record{}
		if err := again.unpack(map[string][]byte{recordKey: data}); err != nil || again.validate("split") != nil ||
			len(again.Open.Journal) != len(r.Open.Journal) {
			t.Errorf("%s: read again: %v, %v", target, err, again.validate("split"))
		}
	}
}

// TestRecordsOfOlderOperatorsAreRead, which wrote another entry.
func TestRecordsOfOlderOperatorsAreRead(t *testing.T) {
	want := &record{Runs: "digest", Why: "because"}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var old bytes.Buffer
	z := gzip.NewWriter(&old)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	anew, err := want.pack()
	if err != nil {
		t.Fatal(err)
	}
	for name, entries := range map[string]map[string][]byte{
		"old":  {oldRecordKey: old.Bytes()},
		"new":  {recordKey: anew},
		"both": {recordKey: anew, oldRecordKey: []byte("of before")},
	} {
		got := &record{}
		if err := got.unpack(entries); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for name, entries := range map[string]map[string][]byte{
		"none": {}, "cut": {recordKey: anew[:len(anew)-4]}, "of another kind": {recordKey: old.Bytes()},
	} {
		if err := new(record).unpack(entries); err == nil {
			t.Errorf("%s = nil", name)
		}
	}
}

// TestATransitionWhoseRecordDoesNotFitDoesNotBegin: nothing is written, and the status says why.
func TestATransitionWhoseRecordDoesNotFitDoesNotBegin(t *testing.T) {
	f := newFleet(t, 1)
	object := f.object(t, "plane-000")
	p := &plane{Reconciler: f.Reconciler, object: object, record: &record{}}
	secret := func() *corev1.Secret {
		s := &corev1.Secret{}
		at := types.NamespacedName{Namespace: object.Name, Name: RecordName}
		if err := f.Client.Get(t.Context(), at, s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	was := secret()
	noise := make([]byte, limitOpenBytes)
	source := rand.NewChaCha8([32]byte{1})
	if _, err := source.Read(noise); err != nil {
		t.Fatal(err)
	}
	tr := transition.Transition{Steps: []transition.Step{{ID: "001", Do: &transition.Action{Kind: transition.PutFile,
		File: &transition.File{Path: "/x", Data: noise}}}}}
	after, err := p.open(t.Context(), tr, "digest", nil, render.Systemd)
	if err != nil || after <= 0 || p.record.Open != nil || object.Status.Phase != api.Refused {
		t.Errorf("open = %s, %v, phase %s; want a refusal", after, err, object.Status.Phase)
	}
	condition := object.Status.Conditions
	if len(condition) == 0 || condition[0].Reason != "TooLarge" || condition[0].Status != metav1.ConditionFalse ||
		!strings.Contains(condition[0].Message, "the record of 1 steps needs") {
		t.Errorf("conditions %+v", condition)
	}
	if is := secret(); is.ResourceVersion != was.ResourceVersion {
		t.Errorf("the record was written: %q, and before %q", is.ResourceVersion, was.ResourceVersion)
	}
}
