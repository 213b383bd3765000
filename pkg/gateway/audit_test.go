package gateway

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

// lines is an audit log in memory, which fails when it is told to. Events may be written after their answers were read.
type lines struct {
	failing atomic.Bool
	of      chan string // "" for one that failed
}

func (l *lines) Write(p []byte) (int, error) {
	if l.failing.Load() {
		l.of <- ""
		return 0, errors.New("the disk is full")
	}
	l.of <- string(p)
	return len(p), nil
}

// events takes the next events, and their text.
func (l *lines) events(t *testing.T, count int) ([]auditv1.Event, string) {
	t.Helper()
	var list []auditv1.Event
	all := ""
	for range count {
		line := ""
		select {
		case line = <-l.of:
		case <-time.After(time.Minute):
			t.Fatalf("%d events, want %d: %s", len(list), count, all)
		}
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); line != "" && err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if line != "" && (e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" || e.AuditID == "" ||
			e.RequestURI == "" || !strings.HasSuffix(line, "}\n")) {
			t.Errorf("an event is %s", line)
		}
		list, all = append(list, e), all+line
	}
	return list, all
}

const auditRules = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, resources: [{resources: [configmaps]}]}
- {level: Metadata, resources: [{resources: [secrets]}], omitStages: [RequestReceived]}
- {level: Request, resources: [{group: apps}], omitStages: [RequestReceived]}
- {level: RequestResponse, resources: [{resources: [pods]}], omitStages: [RequestReceived], omitManagedFields: true}
- {level: Metadata}
`

// audited is a fixture with an audit log, and Secrets beside the other resources.
func audited(t *testing.T, more func(*Audit)) (*fixture, *lines) {
	t.Helper()
	rules, err := policy.LoadPolicyFromBytes([]byte(auditRules))
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{of: make(chan string, 100)}
	a := &Audit{Policy: policy.NewPolicyRuleEvaluator(rules), Log: log}
	if more != nil {
		more(a)
	}
	x := newFixture(t, func(o *Options) { o.Audit = a })
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET /api/v1", http.StatusOK, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"pods","kind":"Pod","namespaced":true,`+verbsJSON+`},
			{"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]},
			{"name":"configmaps","kind":"ConfigMap","namespaced":true,`+verbsJSON+`},
			{"name":"secrets","kind":"Secret","namespaced":true,`+verbsJSON+`},
			{"name":"namespaces","kind":"Namespace",`+verbsJSON+`}]}`)
	}
	x.gateway.refresh(t.Context())
	return x, log
}

// last is the next event, the only one of its request.
func last(t *testing.T, l *lines) (auditv1.Event, string) {
	t.Helper()
	events, text := l.events(t, 1)
	if e := events[0]; e.Stage == auditv1.StageRequestReceived {
		t.Errorf("want the end of a request: %s", text)
	}
	return events[0], text
}

// What a policy says of Secrets alone holds for all that is in them, however a request ends.
func TestAuditHasNoMoreOfSecretsThanThePolicySays(t *testing.T) {
	x, log := audited(t, nil)
	const path, hidden = "/api/v1/namespaces/a/secrets", "c2VjcmV0"
	secret := `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","uid":"u"},"data":{"a":"` + hidden + `"}}`
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET "+path, http.StatusOK, `{"kind":"SecretList","items":[`+secret+`]}`)
		side.say("GET "+path+"/s", http.StatusOK, secret)
		side.say("POST "+path, http.StatusCreated, secret)
		side.say("PUT "+path+"/s", http.StatusUnprocessableEntity, `{"kind":"Status","apiVersion":"v1",
			"status":"Failure","reason":"Invalid","message":"wrong","details":{"name":"s"},"code":422}`)
		side.say("PATCH "+path+"/s", http.StatusOK, secret)
		side.say("DELETE "+path+"/s", http.StatusOK, secret)
	}
	for _, view := range []string{"", "/sides/legacy", "/sides/modern"} {
		for _, request := range [][]string{{"GET", path, ""}, {"GET", path + "/s", ""}, {"POST", path, secret},
			{"POST", path, "{" + secret}, {"PUT", path + "/s", secret}, {"PATCH", path + "/s", secret},
			{"DELETE", path + "/s", secret}} {
			x.ask(request[0], view+request[1], request[2], "Content-Type: application/json")
			e, text := last(t, log)
			if strings.Contains(text, hidden) || e.RequestObject != nil || e.ResponseObject != nil ||
				e.Level != auditv1.LevelMetadata || e.ObjectRef.Resource != "secrets" ||
				e.RequestURI != view+request[1] {
				t.Errorf("%s %s: %s", request[0], request[1], text)
			}
			if request[0] == "PUT" && (e.ResponseStatus.Reason != "Invalid" || e.ResponseStatus.Code != 422) {
				t.Errorf("the answer of %s is %+v", request[0], e.ResponseStatus)
			}
			if request[0] == "POST" && request[2] == secret && (e.ObjectRef.Name != "s" || e.ObjectRef.UID != "u") {
				t.Errorf("the object of %s is %+v", request[0], e.ObjectRef)
			}
		}
	}
}

func TestAuditHasWhoAskedWhatAndWhoAnswered(t *testing.T) {
	x, log := audited(t, nil)
	x.old()
	const pods = "/api/v1/namespaces/a/pods"
	x.modern.page("GET "+pods, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		out := gzip.NewWriter(w)
		io.WriteString(out, `{"kind":"PodList","items":[{"metadata":{"name":"p","managedFields":[{"manager":"m"}]}}]}`)
		out.Close()
	})
	code, header, _ := x.ask("GET", pods, "", "Accept-Encoding: gzip", "Impersonate-User: bob", "Impersonate-Group: g",
		"Impersonate-Extra-A%2fb: c", "User-Agent: agent/1", "Audit-Id: mine")
	e, text := last(t, log)
	if code != http.StatusOK || header.Get("Audit-Id") != "mine" || e.AuditID != "mine" || e.Verb != "list" ||
		e.User.Username != "alice" || !slices.Contains(e.User.Groups, "system:authenticated") ||
		e.ImpersonatedUser.Username != "bob" || e.ImpersonatedUser.Groups[0] != "g" ||
		e.ImpersonatedUser.Extra["a/b"][0] != "c" || e.UserAgent != "agent/1" || len(e.SourceIPs) == 0 ||
		e.Annotations[AuditSideAnnotation] != "modern" || e.Annotations[AuditRouteAnnotation] != "modern" ||
		e.ResponseStatus.Code != http.StatusOK || e.Stage != auditv1.StageResponseComplete {
		t.Errorf("%d %v, %s", code, header, text)
	}
	if got := string(e.ResponseObject.Raw); got != `{"items":[{"metadata":{"name":"p"}}],"kind":"PodList"}` {
		t.Errorf("the list is %s", got)
	}
	if r, _ := x.modern.last(pods); r.Header.Get("Audit-Id") != "mine" {
		t.Errorf("the side is told of %v", r.Header)
	}

	// Merged, converted, and by name; the bodies are those of the client.
	const older = "/apis/extensions/v1beta1/namespaces/a/deployments"
	x.legacy.say("GET "+older, http.StatusOK,
		`{"kind":"DeploymentList","apiVersion":"extensions/v1beta1","metadata":{"resourceVersion":"7"},"items":[]}`)
	x.modern.say("GET "+collection, http.StatusOK, emptyList)
	x.wants("GET", collection, "", http.StatusOK, "l7m1")
	if e, text := last(t, log); e.Annotations[AuditSideAnnotation] != "legacy,modern" ||
		e.Annotations[AuditRouteAnnotation] != "both" || e.ResponseObject != nil {
		t.Errorf("a merged list: %s", text)
	}
	x.modern.say("POST "+collection, http.StatusCreated, deployment("new", "u"))
	sent, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": "new"}})
	x.wants("POST", collection, "metadata: {name: new}", http.StatusCreated, "", "Content-Type: application/yaml")
	if e, text := last(t, log); e.Annotations[AuditSideAnnotation] != "modern" || e.ObjectRef.Name != "new" ||
		e.RequestObject == nil || string(e.RequestObject.Raw) != string(sent) {
		t.Errorf("a creation: %s", text)
	}
	x.legacy.say("GET "+older+"/o", http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","reason":"Forbidden",
		"message":"not yours","status":"Failure","code":403}`)
	x.modern.say("GET "+collection+"/o", http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`)
	x.wants("GET", collection+"/o", "", http.StatusForbidden, "not yours")
	if e, text := last(t, log); e.Annotations[AuditSideAnnotation] != "legacy" ||
		e.ResponseStatus.Message != "not yours" || e.ResponseStatus.Code != http.StatusForbidden {
		t.Errorf("a refusal of a side: %s", text)
	}
	x.wants("DELETE", collection+"?limit=1", "", http.StatusBadRequest, "")
	if e, text := last(t, log); e.Annotations[AuditSideAnnotation] != "" || e.Verb != "deletecollection" ||
		e.ResponseStatus.Reason != "BadRequest" {
		t.Errorf("a refusal of the gateway: %s", text)
	}
	x.ask("GET", "/api/v1/namespaces/a/configmaps", "") // which the policy does not want
	x.wants("GET", pods, "", http.StatusUnauthorized, "", "Test-Certificate: ")
	if e, text := last(t, log); e.User.Username != "" || e.ResponseStatus.Code != http.StatusUnauthorized ||
		e.Stage != auditv1.StageResponseStarted || !strings.Contains(e.ResponseStatus.Message, "no credentials") {
		t.Errorf("a client that is not known: %s", text)
	}
}

func TestAuditReadsTheFormsOfBodies(t *testing.T) {
	x, log := audited(t, func(a *Audit) { a.LimitBytes = 4 << 10 })
	const pods = "/api/v1/namespaces/a/pods"
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("POST "+pods, http.StatusCreated, `{"kind":"Pod","apiVersion":"v1"}`)
	}
	for _, test := range []struct{ kind, body, want, note string }{
		{"application/vnd.kubernetes.protobuf", "k8s\x00\n\t\n\x02v1\x12\x03Pod\x12\x05\n\x03\n\x01p\x1a\x00\"\x00",
			`"name":"p"`, ""},
		{"application/json", `{"metadata":{"name":"p","managedFields":[1]},"n":12345678901234567890}`,
			`{"metadata":{"name":"p"},"n":12345678901234567890}`, ""},
		{"application/yaml", "metadata: {name: p}", `{"metadata":{"name":"p"}}`, ""},
		{"application/cbor", "\xd9\xd9\xf7\xa1hmetadata\xa1dnameap", `{"metadata":{"name":"p"}}`, ""},
		{"application/json", "{", "", "request: not JSON"},
		{"application/vnd.kubernetes.protobuf", "k8s", "",
			"request: a message of protobuf of an unknown kind, or with an unknown field"},
		{"text/plain", "p", "", `request: of content type "text/plain"`},
		{"application/json", `{"a":"` + strings.Repeat("x", 8<<10) + `"}`, "", "true"},
		{"application/json", `{"a":"` + strings.Repeat("x", 4000) + `"}`, "", "true"}, // within, but not with the rest
	} {
		x.ask("POST", pods, test.body, "Content-Type: "+test.kind)
		e, text := last(t, log)
		got := ""
		if e.RequestObject != nil {
			got = string(e.RequestObject.Raw)
		}
		if note := e.Annotations[auditUnread] + e.Annotations[auditTruncated]; note != test.note ||
			!strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s %.40q: noted %q, %s", test.kind, test.body, note, text)
		}
	}
}

func TestAuditHasTheStagesOfStreams(t *testing.T) {
	x, log := audited(t, nil)
	const path = "/api/v1/namespaces/a/secrets"
	began := make(chan struct{})
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush()
			<-began
		})
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url+path+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-Certificate", "alice")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if e, text := last(t, log); e.Stage != auditv1.StageResponseStarted || e.Verb != "watch" {
		t.Errorf("a watch begins: %s", text)
	}
	close(began)
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if e, text := last(t, log); e.Stage != auditv1.StageResponseComplete || e.Verb != "watch" {
		t.Errorf("a watch ends: %s", text)
	}
}

func TestAuditThatFailsIsCounted(t *testing.T) {
	for _, strict := range []bool{false, true} {
		x, log := audited(t, func(a *Audit) {
			if strict {
				a.Mode = AuditStrict
			}
		})
		x.modern.say("GET /api/v1/namespaces", http.StatusOK, "{}")
		log.failing.Store(true)
		code, _, text := x.ask("GET", "/api/v1/namespaces", "")
		if strict != (code == http.StatusInternalServerError) || strict != strings.Contains(text, "audit event") {
			t.Errorf("strict %v: %d %s", strict, code, text)
		}
		if r, _ := x.modern.last("/api/v1/namespaces"); strict == (r != nil) {
			t.Errorf("strict %v: the side was asked for %v", strict, r)
		}
		want := 2
		if strict {
			want = 1
		}
		log.events(t, want)
		log.failing.Store(false)
		x.wants("GET", "/api/v1/namespaces", "", http.StatusOK, "")
		if events, text := log.events(t, 2); events[0].Stage != auditv1.StageRequestReceived ||
			events[1].Stage != auditv1.StageResponseComplete {
			t.Errorf("strict %v: %s", strict, text)
		}
		families, err := x.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				got[family.GetName()] += metric.GetCounter().GetValue()
			}
		}
		if got["fusionctl_gateway_audit_errors_total"] != float64(want) ||
			got["fusionctl_gateway_audit_events_total"] != 2 {
			t.Errorf("strict %v: counted are %v", strict, got)
		}
	}
}

// TestAuditIsNotAvoidedByHeaders: a request that says that it upgrades its connection, and creates an object, is
// recorded with what it creates.
func TestAuditIsNotAvoidedByHeaders(t *testing.T) {
	x, log := audited(t, nil)
	x.legacy.say("GET "+collection+"/web", http.StatusNotFound, "{}")
	x.modern.say("POST "+collection, http.StatusCreated, deployment("web", "u"))
	x.wants("POST", collection, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web",
		"labels":{"a":"recorded"}}}`,
		http.StatusCreated, "web", "Connection: Upgrade", "Upgrade: websocket")
	if e, text := last(t, log); e.RequestObject == nil || !strings.Contains(text, "recorded") {
		t.Errorf("the body is not in %s", text)
	}
}

// TestAuditedBodiesThatAreBombs: what a client sends is decoded for the log before a side has refused it.
func TestAuditedBodiesThatAreBombs(t *testing.T) {
	x, log := audited(t, nil)
	const pods = "/api/v1/namespaces/a/pods"
	const head = "k8s\x00\n\t\n\x02v1\x12\x03Pod\x12" // what follows is the length of the object
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("POST "+pods, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
	}
	deep := ""
	for range 3000 {
		deep = "\n" + string(binary.AppendUvarint(nil, uint64(len(deep)))) + deep
	}
	many := strings.Repeat("\x12\x00", 1<<20)
	many = "\x12" + string(binary.AppendUvarint(nil, uint64(len(many)))) + many
	for _, test := range []struct{ object, note string }{{deep, "nested"}, {many, "memory"}} {
		body := head + string(binary.AppendUvarint(nil, uint64(len(test.object)))) + test.object
		x.ask("POST", pods, body, "Content-Type: application/vnd.kubernetes.protobuf")
		if e, _ := last(t, log); e.RequestObject != nil || !strings.Contains(e.Annotations[auditUnread], test.note) {
			t.Errorf("want a note about %q: %q", test.note, e.Annotations)
		}
	}
}

// In batch mode no request waits for the log. What there is no room for is dropped and counted, and what is buffered is
// written at the end.
func TestAuditInBatchesWaitsForNothing(t *testing.T) {
	slow := &lines{of: make(chan string)} // each event waits until it is taken
	x, _ := audited(t, func(a *Audit) {
		a.Log, a.Mode = slow, AuditBatch
		a.Batch = buffered.BatchConfig{BufferSize: 3, MaxBatchSize: 1}
	})
	const path = "/api/v1/namespaces/a/secrets"
	x.modern.say("GET "+path, http.StatusOK, `{"kind":"SecretList","items":[]}`)
	x.legacy.say("GET "+path, http.StatusOK, `{"kind":"SecretList","items":[]}`)
	for range 5 {
		x.wants("GET", path, "", http.StatusOK, "SecretList")
	}
	// Events are recorded behind answers.
	dropped := func() float64 { return testutil.ToFloat64(x.gateway.metrics.unaudited) }
	for deadline := time.Now().Add(time.Minute); dropped() < 2 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if dropped() != 2 {
		t.Errorf("%g events are dropped, want 2 of 5", dropped())
	}
	closed := make(chan bool)
	go func() {
		x.gateway.Close()
		close(closed)
	}()
	events, text := slow.events(t, 3)
	for _, e := range events {
		if e.RequestURI != path || e.Stage != auditv1.StageResponseComplete {
			t.Errorf("an event is %s", text)
		}
	}
	<-closed
	if written := testutil.ToFloat64(x.gateway.metrics.audited); written != 3 {
		t.Errorf("%g events are written, want 3", written)
	}
}

// Bodies that are buffered are bounded: an event without room for its bodies is written without them.
func TestAuditInBatchesHoldsFewBodies(t *testing.T) {
	slow := &lines{of: make(chan string)}
	x, _ := audited(t, func(a *Audit) {
		a.Log, a.Mode = slow, AuditBatch
		a.Batch = buffered.BatchConfig{BufferSize: 100, MaxBatchSize: 1}
	})
	const path = "/api/v1/namespaces/a/pods"
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"` +
		strings.Repeat("x", 9<<20) + `"}}}`
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET "+path+"/p", http.StatusOK, pod)
	}
	const requests = 10
	for range requests {
		x.wants("GET", path+"/p", "", http.StatusOK, "Pod")
	}
	whole := 0
	for range requests {
		events, _ := slow.events(t, 1)
		if e := events[0]; e.ResponseObject != nil {
			whole++
		} else if e.Annotations["audit.k8s.io/truncated"] != "true" {
			t.Errorf("an event without a body has %v", e.Annotations)
		}
	}
	x.gateway.Close()
	if most := limitQueuedBytes/len(pod) + 1; whole == 0 || whole > most {
		t.Errorf("%d of %d bodies of 9 MiB are buffered, want at most %d", whole, requests, most)
	}
}

// gated is a log whose lines wait until it is opened.
type gated chan struct{}

func (g gated) Write(p []byte) (int, error) { <-g; return len(p), nil }

// So is what clients say in their headers, of which an event has kilobytes.
func TestAuditInBatchesHoldsFewTexts(t *testing.T) {
	log := make(gated)
	x, _ := audited(t, func(a *Audit) {
		a.Log, a.Mode = log, AuditBatch
		a.Batch = buffered.BatchConfig{BufferSize: 10_000, MaxBatchSize: 1}
	})
	a, text, sent := x.gateway.audit, strings.Repeat("x", 30<<10), int64(0)
	for range 300 {
		a.enqueue(&auditinternal.Event{RequestURI: text, UserAgent: text})
		a.enqueue(&auditinternal.Event{AuditID: types.UID(text), Verb: text})
		a.enqueue(&auditinternal.Event{SourceIPs: slices.Repeat([]string{"10.0.0.1"}, 3000)})
		a.enqueue(&auditinternal.Event{User: authenticationv1.UserInfo{Groups: []string{text, text}}})
		a.enqueue(&auditinternal.Event{ObjectRef: &auditinternal.ObjectReference{Name: text, Resource: text}})
		a.enqueue(&auditinternal.Event{ResponseStatus: &metav1.Status{Message: text,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: text}}}}})
		sent++
		if held := a.queuedBytes.Load(); held < min(10*sent*int64(len(text)), limitQueuedBytes) {
			t.Fatalf("%d bytes are held of %d events", a.queuedBytes.Load(), 6*sent)
		}
	}
	for range 3000 {
		a.enqueue(&auditinternal.Event{RequestURI: text, UserAgent: text})
	}
	held, dropped := a.queuedBytes.Load(), testutil.ToFloat64(x.gateway.metrics.unaudited)
	if most := int64(2*limitQueuedBytes + len(text)*2); held > most || dropped == 0 {
		t.Errorf("%d bytes are held, want at most %d; %g events are dropped", held, most, dropped)
	}
	close(log)
	x.gateway.Close()
	if held := a.queuedBytes.Load(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}
