package local

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubefusion/fusionctl/examples"
	"github.com/kubefusion/fusionctl/internal/etcdtest"
	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/internal/storetest"
	"github.com/kubefusion/fusionctl/pkg/etcd/etcdv3"
	"github.com/kubefusion/fusionctl/pkg/plan"
	"github.com/kubefusion/fusionctl/pkg/render"
	"github.com/kubefusion/fusionctl/pkg/storage"
	"github.com/kubefusion/fusionctl/pkg/transition"
)

// stored is an object as API servers store it in JSON.
func stored(apiVersion, kind, namespace, name, rest string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":"u-%s",`+
		`"creationTimestamp":"2026-01-01T00:00:00Z"}%s}`, apiVersion, kind, namespace, name, name, rest)
}

func versionOf(t *testing.T, m *etcdtest.Server, key string) string {
	t.Helper()
	answer, err := m.Client(t).Get(t.Context(), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%s: %d values, %v", key, len(answer.Kvs), err)
	}
	envelope, err := storage.ReadEnvelope(answer.Kvs[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(envelope.APIVersion)
}

// wayBack is what the way back to an older version asks before it begins, and what it writes again.
func wayBack(t *testing.T, newer, older transition.Setup) (gate *transition.Check, again *transition.Action) {
	t.Helper()
	back, err := transition.New(newer, older, transition.Facts{StoresAgree: true, Prepare: true,
		Empty: transition.Moves(newer, older)})
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Validate(); err != nil {
		t.Fatal(err)
	}
	for i := range back.Steps {
		a := back.Steps[i].Do
		switch {
		case a == nil:
		case a.Kind == transition.RewriteObjects && again == nil:
			again = a
		case again == nil && len(a.Before) > 0 && a.Before[0].Kind == transition.MayRewrite:
			gate = &a.Before[0]
		}
	}
	if gate == nil || again == nil {
		t.Fatalf("of %d steps none is a gate before one that writes objects again", len(back.Steps))
	}
	return gate, again
}

// TestBitmapsGetWhatServicesHave: API servers that do not write the bitmap allocated meanwhile what it lacks; what it
// holds stays, and what others write at that moment too.
func TestBitmapsGetWhatServicesHave(t *testing.T) {
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	newer, older := setupAt(t, "1.36.3", core, modern), setupAt(t, "1.33.13", core, modern)
	if r := transition.Rewrites(newer, older); r != nil && r.Bitmaps != nil {
		t.Error("with a range of its own the modern side has left nothing out of the bitmap")
	}
	const own = "    modernServiceCIDRs: [10.97.0.0/16]\n"
	newer, older = setupAt(t, "1.36.3", core, modern, own, ""), setupAt(t, "1.33.13", core, modern, own, "")
	gate, again := wayBack(t, newer, older)
	const key = "/registry/ranges/serviceips"
	b := transition.Bitmap{Key: "ranges/serviceips", Store: "core"}
	if !slices.Contains(again.Rewrite.Bitmaps, b) || !strings.Contains(again.Rewrite.Version, "1.33") {
		t.Fatalf("bitmaps %v, want %v", again.Rewrite.Bitmaps, b)
	}
	span := older.Plan.Network.ServiceCIDRs[0]
	first := netip.MustParsePrefix(span).Addr()
	address := first
	for range 10 {
		address = address.Next() // the tenth: bit 9
	}
	for _, value := range [][]byte{storetest.Allocation(span, 0, 4),
		fmt.Appendf(nil, `{"kind":"RangeAllocation","apiVersion":"v1","metadata":{"creationTimestamp":null},`+
			`"range":%q,"data":"EQ=="}`, span)} { // bits 0 and 4
		core.Put(t, map[string][]byte{key: value,
			"/registry/namespaces/default":          storetest.Put("v1", "Namespace", "", "default", "uid-n", nil),
			"/registry/services/specs/default/a":    storetest.Service("default", "a", address.String(), 0),
			"/registry/services/specs/default/none": storetest.Service("default", "none", "None", 0),
			"/registry/services/specs/default/far":  storetest.Service("default", "far", "192.0.2.1", 0)})
		var notes []string
		tell := Telling{Note: func(text string) { notes = append(notes, text) }}
		lacks := func() bool {
			notes = nil
			if err := MayRewrite(t.Context(), gate, tell); err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, "lacks 1") })
		}
		if !lacks() {
			t.Errorf("notes before: %q", notes)
		}
		for range 2 { // once more changes nothing
			if err := rewrite(t.Context(), again.Rewrite, true); err != nil {
				t.Fatal(err)
			}
		}
		if lacks() {
			t.Errorf("notes after: %q", notes)
		}
		answer, err := core.Client(t).Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		kv := answer.Kvs[0]
		var record corev1.RangeAllocation
		if _, err := decodeStored(kv.Value, &record); err != nil || record.Range != span ||
			!bytes.Equal(record.Data, []byte{0x02, 0x11}) || bytes.HasPrefix(kv.Value, []byte("{")) !=
			bytes.HasPrefix(value, []byte("{")) {
			t.Errorf("bits %x of %s, %v: %q", record.Data, record.Range, err, kv.Value)
		}
		if kv.Version%2 != 0 { // each time put once, and completed once
			t.Errorf("written %d times", kv.Version)
		}
	}
	// One that is encrypted is left to API servers, and so is one that is missing.
	core.Put(t, map[string][]byte{key: []byte("k8s:enc:aescbc:v1:key1:secret")})
	writer := &etcdv3.Writer{Client: clientOf(t, again.Rewrite.Stores, "core")}
	if err := completeBitmap(t.Context(), "/registry", b, writer); err != nil {
		t.Errorf("encrypted: %v", err)
	}
	if err := completeBitmap(t.Context(), "/elsewhere", b, writer); err != nil {
		t.Errorf("missing: %v", err)
	}
}

func clientOf(t *testing.T, stores []plan.Store, name string) *etcdv3.Client {
	t.Helper()
	client, err := open(stores[slices.IndexFunc(stores, func(s plan.Store) bool { return s.Name == name })], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// TestWhatServersWriteAtTheirStartIsWrittenAgain: an older API server writes its own only where it can read what is
// there.
func TestWhatServersWriteAtTheirStartIsWrittenAgain(t *testing.T) {
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	gate, again := wayBack(t, setupAt(t, "1.33.13", core, modern), setupAt(t, "1.24.17", core, modern))
	const probes, exempt = "/registry/flowschemas/probes", "/registry/prioritylevelconfigurations/exempt"
	put := func(key, kind, name, spec string) {
		modern.Put(t, map[string][]byte{key: fmt.Appendf(nil, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1",`+
			`"kind":%q,"metadata":{"name":%q,"uid":"1","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":%s}`, kind,
			name, spec)})
	}
	put(probes, "FlowSchema", "probes", `{"priorityLevelConfiguration":{"name":"exempt"},"matchingPrecedence":2}`)
	put(exempt, "PriorityLevelConfiguration", "exempt", `{"type":"Exempt"}`)
	if err := StoresAgree(t.Context(), gate, Telling{}); err == nil || !strings.Contains(err.Error(), "FUS090") {
		t.Fatalf("the stores agree, or not by FUS090: %v", err)
	}
	if err := MayRewrite(t.Context(), gate, Telling{}); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(t.Context(), again.Rewrite, true); err != nil {
		t.Fatal(err)
	}
	if err := StoresAgree(t.Context(), &again.After[0], Telling{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{probes, exempt} {
		if got := versionOf(t, modern, key); got != "flowcontrol.apiserver.k8s.io/v1beta1" {
			t.Errorf("%s is stored as %s", key, got)
		}
	}
}

// TestObjectsAreWrittenAgainForAnOlderVersion: where nothing is lost, once, and none where one cannot be; what the
// older version reads stays as it is.
func TestObjectsAreWrittenAgainForAnOlderVersion(t *testing.T) {
	core, modern := etcdtest.Start(t), etcdtest.Start(t)
	older := setupAt(t, "1.16.15", core, modern)
	newer := setupAt(t, "1.36.3", core, modern)
	gate, again := wayBack(t, newer, older)
	const budget, cron = "/registry/poddisruptionbudgets/demo/web", "/registry/cronjobs/demo/night"
	modern.Put(t, map[string][]byte{
		budget: stored("policy/v1", "PodDisruptionBudget", "demo", "web",
			`,"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}`),
		"/registry/poddisruptionbudgets/demo/old": stored("policy/v1beta1", "PodDisruptionBudget", "demo", "old",
			`,"spec":{"maxUnavailable":1}`),
		cron: stored("batch/v1", "CronJob", "demo", "night", `,"spec":{"schedule":"0 3 * * *","jobTemplate":{"spec":`+
			`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}`)})
	before := revision(t, modern)
	if err := StoresAgree(t.Context(), gate, Telling{}); err == nil {
		t.Fatal("the stores agree with the older version before anything is written again")
	}
	if err := MayRewrite(t.Context(), gate, Telling{}); err != nil {
		t.Fatal(err)
	}
	if now := revision(t, modern); now != before {
		t.Errorf("the gate wrote: revision %d after %d", now, before)
	}

	// an object of which something would be lost keeps all of them from being written
	const slice = "/registry/endpointslices/demo/web-1"
	modern.Put(t, map[string][]byte{slice: stored("discovery.k8s.io/v1", "EndpointSlice", "demo", "web-1",
		`,"addressType":"IPv4","endpoints":[]`)})
	before = revision(t, modern)
	var stays *RewriteError
	for _, err := range []error{MayRewrite(t.Context(), gate, Telling{}), rewrite(t.Context(), again.Rewrite, true)} {
		if !errors.As(err, &stays) || len(stays.Objects) != 1 || !strings.Contains(err.Error(), slice) {
			t.Fatalf("with a slice in v1: %v, want it named alone", err)
		}
	}
	if now := revision(t, modern); now != before {
		t.Errorf("something was written: revision %d after %d", now, before)
	}
	if _, err := modern.Client(t).Delete(t.Context(), slice); err != nil {
		t.Fatal(err)
	}

	for range 2 { // a process that was killed does it again
		if err := rewrite(t.Context(), again.Rewrite, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := StoresAgree(t.Context(), &again.After[0], Telling{}); err != nil {
		t.Fatal(err)
	}
	if got := versionOf(t, modern, budget) + " " + versionOf(t, modern, cron); got != "policy/v1beta1 batch/v1beta1" {
		t.Errorf("they are stored as %s", got)
	}
	if now := revision(t, modern); now != before+3 { // the deletion, and one write each
		t.Errorf("revision %d after %d, want two writes", now, before+1)
	}
}

func revision(t *testing.T, m *etcdtest.Server) int64 {
	t.Helper()
	answer, err := m.Client(t).Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// setupAt is the example with a version of the modern side, and its stores elsewhere; changes are pairs of text and
// what takes its place.
func setupAt(t *testing.T, modern string, core, own *etcdtest.Server, changes ...string) transition.Setup {
	t.Helper()
	text, err := examples.FS.ReadFile("split-1.15-1.36.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := plantest.Of(t, strings.NewReplacer(append(changes, "version: 1.36.3", "version: "+modern)...).Replace(
		string(text)))
	for i := range p.Stores {
		s := &p.Stores[i]
		s.TLS, s.Endpoints = nil, []string{core.Endpoint}
		if s.Name == "modern" {
			s.Endpoints = []string{own.Endpoint}
		}
	}
	return transition.Setup{Plan: p, Target: render.StaticPod}
}
