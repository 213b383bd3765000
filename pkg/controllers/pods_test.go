package controllers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/internal/plantest"
	"github.com/kubefusion/fusionctl/internal/webserver"
	"github.com/kubefusion/fusionctl/pkg/admission"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

func podsPlan(t testing.TB, legacy, pods string) *plan.Runtime {
	t.Helper()
	text := strings.Replace(pairSpec, "1.15.12", legacy, 1) + "  pods: " + pods + "\n"
	text = strings.Replace(text, "hosts: [", `hosts: [{name: cp-2, address: 192.0.2.2}, `, 1)
	return plantest.Of(t, text).Runtime()
}

// keeperWorld is one API server that keeps whole objects by their path; both sides ask it.
type keeperWorld struct {
	t        testing.TB
	mutex    sync.Mutex
	version  int
	objects  map[string]map[string]any
	writes   []string // METHOD path, in order
	watchers map[chan []byte]string
	history  []keeperEvent
	fills    bool // a token controller fills Secrets
}

// keeperEvent is what a watch tells that begins before it.
type keeperEvent struct {
	version int
	at      string
	data    []byte
}

func newKeeperWorld(t testing.TB, p *plan.Runtime) (*keeperWorld, *cluster) {
	t.Helper()
	w := &keeperWorld{t: t, objects: map[string]map[string]any{}, watchers: map[chan []byte]string{}}
	configs := map[pair.Side]*rest.Config{pair.Legacy: serverOf(w), pair.Modern: serverOf(w)}
	discard := slog.New(slog.DiscardHandler)
	c, err := newCluster(p, configs, Options{QPS: 1e6, ChangesPerSecond: 1e6, Log: discard, Audit: discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range pair.Sides() {
		known := &catalog{failed: map[string]error{}, asked: time.Now().Add(time.Hour)}
		add := func(group, version, name, kind string) {
			known.resources = append(known.resources,
				resource{side: side, GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version,
					Resource: name}, kind: kind, verbs: "dglw", namespaced: group == "discovery.k8s.io"})
		}
		if side == pair.Modern {
			add("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
			add("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy")
			add("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings",
				"MutatingAdmissionPolicyBinding")
			add("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
		}
		fetch := func(context.Context, []schema.GroupResource) (*catalog, error) { return known, nil }
		c.catalogs[side] = &catalogs{side: side, now: time.Now, last: known, fetch: fetch}
	}
	w.put("/api/v1/namespaces/kube-system", map[string]any{"metadata": map[string]any{"name": "kube-system"}})
	return w, c
}

// put writes an object, as a server does, and tells whoever watches.
func (w *keeperWorld) put(at string, object map[string]any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.putLocked(at, object)
}

func (w *keeperWorld) putLocked(at string, object map[string]any) {
	w.version++
	metadata := object["metadata"].(map[string]any)
	event := "MODIFIED"
	if old := w.objects[at]; old == nil {
		metadata["uid"] = fmt.Sprintf("uid-%d", w.version)
		event = "ADDED"
	} else {
		metadata["uid"] = old["metadata"].(map[string]any)["uid"]
	}
	metadata["resourceVersion"] = fmt.Sprint(w.version)
	w.objects[at] = object
	data, err := json.Marshal(map[string]any{"type": event, "object": object})
	if err != nil {
		w.t.Error(err)
	}
	w.history = append(w.history, keeperEvent{w.version, at, data})
	for watcher, kind := range w.watchers {
		if strings.Contains(at, "/"+kind+"/") {
			watcher <- data
		}
	}
}

func (w *keeperWorld) object(at string) map[string]any {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.objects[at]
}

func (w *keeperWorld) written() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	list := w.writes
	w.writes = nil
	return list
}

func (w *keeperWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "true" {
		w.watch(rw, r)
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	answer := func(code int, object any) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(object)
	}
	status := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
			Details: &metav1.StatusDetails{Name: path.Base(r.URL.Path)}})
	}
	at := r.URL.Path
	var body map[string]any
	if r.Method != http.MethodGet {
		w.writes = append(w.writes, r.Method+" "+at)
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			w.t.Errorf("%s %s: %v", r.Method, at, err)
		}
	}
	found := w.objects[at]
	switch r.Method {
	case http.MethodPost:
		at = path.Join(at, body["metadata"].(map[string]any)["name"].(string))
		if w.objects[at] != nil {
			status(409, metav1.StatusReasonAlreadyExists)
			return
		}
		w.putLocked(at, body)
		answer(201, body)
		if w.fills && body["type"] == tokenSecretType {
			filled := maps.Clone(body)
			filled["data"] = tokenData
			w.putLocked(at, filled)
		}
	case http.MethodPut:
		if found == nil ||
			body["metadata"].(map[string]any)["resourceVersion"] !=
				found["metadata"].(map[string]any)["resourceVersion"] {
			status(409, metav1.StatusReasonConflict)
			return
		}
		w.putLocked(at, body)
		answer(200, body)
	case http.MethodPatch:
		maps.Copy(found["metadata"].(map[string]any), body["metadata"].(map[string]any))
		w.putLocked(at, found)
		answer(200, found)
	case http.MethodDelete:
		delete(w.objects, at)
		answer(200, map[string]any{})
	default:
		if found != nil {
			answer(200, typed(at, found))
			return
		}
		if items := w.below(at); len(items) > 0 || isCollection(at) {
			answer(200, map[string]any{"kind": keeperKinds[path.Base(at)] + "List", "apiVersion": versionAt(at),
				"metadata": map[string]any{"resourceVersion": fmt.Sprint(w.version)}, "items": items})
			return
		}
		status(404, metav1.StatusReasonNotFound)
	}
}

// keeperKinds are those of the objects that these tests keep.
var keeperKinds = map[string]string{
	"secrets": "Secret", "serviceaccounts": "ServiceAccount", "services": "Service", "endpoints": "Endpoints",
	"namespaces":     "Namespace",
	"endpointslices": "EndpointSlice", "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
	"mutatingadmissionpolicies":       "MutatingAdmissionPolicy",
	"mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
}

// typed is an object as a server sends it, with its kind.
func typed(at string, object map[string]any) map[string]any {
	object = maps.Clone(object)
	object["apiVersion"], object["kind"] = versionAt(at), keeperKinds[path.Base(path.Dir(at))]
	return object
}

// versionAt is the group and version of a path.
func versionAt(at string) string {
	parts := strings.Split(at, "/")
	if parts[1] == "api" {
		return parts[2]
	}
	return parts[2] + "/" + parts[3]
}

func isCollection(at string) bool {
	return slices.Contains([]string{"secrets", "serviceaccounts", "mutatingwebhookconfigurations",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, path.Base(at))
}

// below lists the objects of a collection, or of all namespaces.
func (w *keeperWorld) below(collection string) []any {
	items := []any{}
	for _, at := range slices.Sorted(maps.Keys(w.objects)) {
		dir := path.Dir(at)
		if dir == collection || strings.HasPrefix(dir, "/api/v1/namespaces/") &&
			"/api/v1/"+path.Base(dir) == collection {
			items = append(items, w.objects[at])
		}
	}
	return items
}

func (w *keeperWorld) watch(rw http.ResponseWriter, r *http.Request) {
	events, kind := make(chan []byte, 64), path.Base(r.URL.Path)
	w.mutex.Lock()
	w.watchers[events] = kind
	for _, e := range w.history {
		if from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")); e.version > from &&
			strings.Contains(e.at, "/"+kind+"/") {
			events <- e.data
		}
	}
	w.mutex.Unlock()
	defer func() {
		w.mutex.Lock()
		delete(w.watchers, events)
		w.mutex.Unlock()
	}()
	rw.WriteHeader(http.StatusOK)
	rw.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			_, _ = rw.Write(append(event, '\n'))
			rw.(http.Flusher).Flush()
		}
	}
}

// account makes a service account.
func (w *keeperWorld) account(name string) (uid string) {
	w.put("/api/v1/namespaces/demo/serviceaccounts/"+name,
		map[string]any{"metadata": map[string]any{"name": name, "namespace": "demo"}})
	return w.object("/api/v1/namespaces/demo/serviceaccounts/" + name)["metadata"].(map[string]any)["uid"].(string)
}

var tokenData = map[string]any{"token": "dG9rZW4=", "ca.crt": "Y2E=", "namespace": "ZGVtbw=="}

// secret writes the Secret of an account, filled or not.
func (w *keeperWorld) secret(name, account, uid string, filled bool) {
	object := map[string]any{"type": tokenSecretType,
		"metadata": map[string]any{"name": name, "namespace": "demo",
			"annotations": map[string]any{accountAnnotation: account, uidAnnotation: uid}}}
	if filled {
		object["data"] = tokenData
	}
	w.put("/api/v1/namespaces/demo/secrets/"+name, object)
}

// watching starts tokens over the world.
func watching(t *testing.T, c *cluster, within time.Duration) *tokens {
	t.Helper()
	tokens := newTokens(c, within)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tokens.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return tokens
}

func TestTokensTakeTheSecretThatIsFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newKeeperWorld(t, podsPlan(t, "1.10.13", "{}"))
		uid := w.account("web")
		w.secret("web-token-a", "web", uid, false)
		w.secret("web-token-b", "web", uid, true)
		w.secret("web-token-0", "web", "an earlier account of the name", true)
		tokens := watching(t, c, 10*time.Second)
		name, warning, err := tokens.Secret(t.Context(), "demo", "web", false)
		if name != "web-token-b" || warning != "" || err != nil {
			t.Errorf("Secret = %q, %q, %v; want web-token-b", name, warning, err)
		}
		if written := w.written(); len(written) > 0 {
			t.Errorf("written: %q, want nothing", written)
		}
	})
}

func TestTokensMakeASecretAndWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newKeeperWorld(t, podsPlan(t, "1.28.1", "{}"))
		w.account("web")
		tokens := watching(t, c, 10*time.Second)
		tokens.comes = false // no controller makes one by itself, as from 1.24 on
		w.fills = true
		name, warning, err := tokens.Secret(t.Context(), "demo", "web", false)
		if name != "web-token-modern" || warning != "" || err != nil {
			t.Errorf("Secret = %q, %q, %v; want web-token-modern", name, warning, err)
		}
	})
}

func TestTokensThatNobodyFillsHoldThePodOnlyAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newKeeperWorld(t, podsPlan(t, "1.10.13", "{}"))
		w.account("web")
		tokens := watching(t, c, 200*time.Millisecond)
		name, warning, err := tokens.Secret(t.Context(), "demo", "web", false)
		if name != "web-token-modern" || !strings.Contains(warning, "has no token yet") || err != nil {
			t.Errorf("Secret = %q, %q, %v; want web-token-modern and a warning", name, warning, err)
		}
		if made := w.object("/api/v1/namespaces/demo/secrets/web-token-modern"); made == nil ||
			made["type"] != tokenSecretType {
			t.Errorf("the Secret is %v, want one of type %s", made, tokenSecretType)
		}
	})
}

func TestTokensOfADryRunMakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newKeeperWorld(t, podsPlan(t, "1.10.13", "{}"))
		w.account("web")
		tokens := watching(t, c, 10*time.Second)
		start := time.Now()
		name, _, err := tokens.Secret(t.Context(), "demo", "web", true)
		if name != "web-token-modern" || err != nil || time.Since(start) > 0 {
			t.Errorf("Secret = %q, %v after %s; want web-token-modern at once", name, err, time.Since(start))
		}
		if written := w.written(); len(written) > 0 {
			t.Errorf("a dry run has written %q", written)
		}
	})
}

func TestTokensOfAnAccountThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newKeeperWorld(t, podsPlan(t, "1.10.13", "{}"))
		tokens := watching(t, c, 10*time.Second)
		if _, _, err := tokens.Secret(t.Context(), "demo", "nobody", false); !errors.Is(err, errNoAccount) {
			t.Errorf("Secret of nobody: %v, want %v", err, errNoAccount)
		}
	})
}

func TestOwnSecretsHaveDifferentNamesThatAreNotTooLong(t *testing.T) {
	a, b := ownSecret(strings.Repeat("a", 252)+"x"), ownSecret(strings.Repeat("a", 252)+"y")
	if a == b || len(a) > 253 || len(b) > 253 || ownSecret("web") != "web-token-modern" {
		t.Errorf("%q and %q, %q", a, b, ownSecret("web"))
	}
}

// probed answers for the modern API servers, with the page that says that one is ready: a release before 1.16 has no
// /readyz. "" is one that is down.
type probed map[string]string

func (p probed) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	page := p[r.URL.Hostname()]
	switch {
	case page == "":
		return nil, errors.New("connection refused")
	case r.URL.Port() != "7443":
		return nil, fmt.Errorf("asked on port %s", r.URL.Port())
	case r.URL.Path == "/version" && page == "/healthz":
		return answer(http.StatusOK, `{"major":"1","minor":"15","gitVersion":"v1.15.12"}`)
	case r.URL.Path == "/version":
		return answer(http.StatusOK, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
	case r.URL.Path == page:
		return answer(http.StatusOK, "ok")
	case page == unready:
		return answer(http.StatusInternalServerError, "[-]poststarthook/rbac/bootstrap-roles failed")
	}
	return answer(http.StatusNotFound, "404 page not found")
}

// unready is the page of a server that answers, and is not ready.
const unready = "/none"

const (
	serviceAt   = "/api/v1/namespaces/default/services/kubernetes-modern"
	endpointsAt = "/api/v1/namespaces/default/endpoints/kubernetes-modern"
	sliceAt     = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes-modern"
)

func TestPodServiceLeadsToServersThatAreReady(t *testing.T) {
	w, c := newKeeperWorld(t, podsPlan(t, "1.15.12", "{}"))
	servers := probed{"192.0.2.1": "/readyz", "192.0.2.2": "/healthz"}
	s, err := newPodService(c, &rest.Config{Transport: servers})
	if err != nil {
		t.Fatal(err)
	}
	state := func() string {
		t.Helper()
		if err := s.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		subset := w.object(endpointsAt)["subsets"].([]any)[0].(map[string]any)
		var ready, failed int
		if list, ok := subset["addresses"].([]any); ok {
			ready = len(list)
		}
		if list, ok := subset["notReadyAddresses"].([]any); ok {
			failed = len(list)
		}
		var conditions []string
		for _, e := range w.object(sliceAt)["endpoints"].([]any) {
			conditions = append(conditions, fmt.Sprint(e.(map[string]any)["conditions"].(map[string]any)["ready"]))
		}
		return fmt.Sprintf("%d ready, %d not, slice %s", ready, failed, strings.Join(conditions, " "))
	}
	expect := func(want string) {
		t.Helper()
		if got := state(); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	expect("2 ready, 0 not, slice true true")
	if address := w.object(serviceAt)["spec"].(map[string]any)["clusterIP"]; address != "10.97.0.2" {
		t.Errorf("the service has the address %v", address)
	}
	w.written()
	expect("2 ready, 0 not, slice true true")
	if written := w.written(); len(written) > 0 {
		t.Errorf("nothing has changed, and %q is written", written)
	}
	servers["192.0.2.2"] = unready
	expect("2 ready, 0 not, slice true true") // once may be chance
	expect("1 ready, 1 not, slice true false")
	servers["192.0.2.1"] = ""
	state()
	expect("2 ready, 0 not, slice true true") // perhaps it is this process that reaches nobody
	servers["192.0.2.1"] = "/readyz"
	expect("1 ready, 1 not, slice true false")
	servers["192.0.2.2"] = "/readyz"
	expect("2 ready, 0 not, slice true true")
}

func TestPodServiceIsCorrected(t *testing.T) {
	w, c := newKeeperWorld(t, podsPlan(t, "1.15.12", "{}"))
	s, err := newPodService(c, &rest.Config{Transport: probed{"192.0.2.1": "/readyz", "192.0.2.2": "/healthz"}})
	if err != nil {
		t.Fatal(err)
	}
	w.put(serviceAt,
		map[string]any{"metadata": map[string]any{"name": "kubernetes-modern", "namespace": "default",
			"annotations": map[string]any{"kept": "yes"}},
			"spec": map[string]any{"clusterIP": "10.97.0.2", "selector": map[string]any{"app": "other"},
				"ports": []any{map[string]any{"port": 80}}}})
	if err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	service := w.object(serviceAt)
	spec := service["spec"].(map[string]any)
	if _, selects := spec["selector"]; selects || spec["ports"].([]any)[0].(map[string]any)["port"] != 443.0 ||
		service["metadata"].(map[string]any)["annotations"] == nil {
		t.Errorf("the service is %v; want no selector, port 443, and the annotations that it had", service)
	}
	spec["clusterIP"] = "10.97.0.77"
	w.put(serviceAt, service)
	if err := s.sync(t.Context()); err == nil || !strings.Contains(err.Error(), "has the address 10.97.0.77") {
		t.Errorf("a service with another address: %v, want an error that says so", err)
	}
	if got := w.object(serviceAt)["spec"].(map[string]any)["clusterIP"]; got != "10.97.0.77" {
		t.Errorf("the address is %v: it was changed", got)
	}
}

const webhookAt = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/pods.kubefusion.dev"

func TestRegistrationFollowsThePlanAndTheAuthority(t *testing.T) {
	w, c := newKeeperWorld(t, podsPlan(t, "1.10.13", "{}"))
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write := func(text string) {
		if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	foreign := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/example.org"
	w.put(foreign, map[string]any{"metadata": map[string]any{"name": "example.org"}})
	r := &registration{cluster: c, webhook: &Webhook{URL: "https://127.0.0.1:10271/pods", CAFile: ca}}
	sync := func() {
		t.Helper()
		if err := r.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	bundle := func() string {
		of := w.object(webhookAt)["webhooks"].([]any)[0].(map[string]any)["clientConfig"].(map[string]any)["caBundle"]
		text, _ := base64.StdEncoding.DecodeString(of.(string))
		return string(text)
	}
	sync()
	if bundle() != "one" {
		t.Errorf("caBundle %q, want that of the file", bundle())
	}
	if labels := w.object("/api/v1/namespaces/kube-system")["metadata"].(map[string]any)["labels"]; fmt.Sprint(
		labels) != "map[kubefusion.dev/admission:off]" {
		t.Errorf("kube-system has the labels %v", labels)
	}
	w.written()
	// a server's default
	w.object(webhookAt)["webhooks"].([]any)[0].(map[string]any)["objectSelector"] = map[string]any{}
	// what an old server does not know
	delete(w.object(webhookAt)["webhooks"].([]any)[0].(map[string]any), "reinvocationPolicy")
	sync()
	if written := w.written(); len(written) > 0 {
		t.Errorf("nothing has changed, and %q is written", written)
	}
	write("two")
	sync()
	if bundle() != "two" {
		t.Errorf("caBundle %q after the file has changed", bundle())
	}
	w.object(webhookAt)["webhooks"].([]any)[0].(map[string]any)["failurePolicy"] = "Ignore"
	sync()
	if policy := w.object(webhookAt)["webhooks"].([]any)[0].(map[string]any)["failurePolicy"]; policy != "Fail" {
		t.Errorf("failurePolicy %v after somebody has changed it", policy)
	}
	// The plan leaves pods alone from now on: a registration that nobody answers would stop them all.
	c.layout.plan.Pods = nil
	(&registration{cluster: c}).sync(t.Context())
	if w.object(webhookAt) != nil || w.object(foreign) == nil {
		t.Errorf("the registration is still there, or somebody else's is gone")
	}
}

func TestRegistrationByPolicy(t *testing.T) {
	w, c := newKeeperWorld(t, podsPlan(t, "1.15.12", "{unknownFields: ignore}"))
	if by := c.layout.plan.Pods.Admission.By; by != plan.ByPolicy {
		t.Fatalf("admission by %s", by)
	}
	w.put(webhookAt, map[string]any{"metadata": map[string]any{"name": admission.Name}})
	r := &registration{cluster: c}
	if err := r.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.object(webhookAt) != nil {
		t.Error("the registration of the webhook is still there, and nobody answers")
	}
	for _, kind := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		for _, name := range []string{"pods", "ephemeralcontainers", "deployments", "statefulsets", "cronjobs"} {
			if at := "/apis/admissionregistration.k8s.io/v1/" + kind + "/" + name + "." +
				admission.Name; w.object(at) == nil {
				t.Errorf("%s is missing", at)
			}
		}
	}
	w.written()
	if err := r.sync(t.Context()); err != nil || len(w.written()) > 0 {
		t.Errorf("a second look: %v, and something is written", err)
	}
}

// noTokens has a Secret for everybody but "broken".
type noTokens struct{}

func (noTokens) Secret(_ context.Context, _, account string, _ bool) (string, string, error) {
	if account == "broken" {
		return "", "", errors.New("no answer")
	}
	return "secret", "", nil
}

func review(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	v := &reviewer{change: admission.For(podsPlan(t, "1.10.13", "{}")), tokens: noTokens{}, timeout: time.Minute,
		metrics: newMetrics()}
	recorder := httptest.NewRecorder()
	v.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, WebhookPath, strings.NewReader(body)))
	return recorder
}

const question = `{"apiVersion":"admission.k8s.io/%s","kind":"AdmissionReview","request":{"uid":"u-1","kind":{"group":"","version":"v1","kind":"Pod"},"operation":"CREATE","namespace":"demo",
"object":{"metadata":{"name":"web"},"spec":{"serviceAccountName":"%s","containers":[{"name":"web"}],"volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]}}}}`

func TestWebhookAnswersInTheVersionOfTheQuestion(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		recorder := review(t, fmt.Sprintf(question, version, "web"))
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%s: %v: %s", version, err, recorder.Body)
		}
		if answer.APIVersion != "admission.k8s.io/"+version || answer.Request != nil || answer.Response == nil ||
			answer.Response.UID != "u-1" || !answer.Response.Allowed ||
			!bytes.Contains(answer.Response.Patch, []byte("KUBERNETES_SERVICE_HOST")) {
			t.Errorf("%s: answered %s", version, recorder.Body)
		}
	}
}

func TestWebhookHasNoVerdictOnWhatItCannotRead(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		code int
	}{
		"no JSON":           {"{", 400},
		"another version":   {fmt.Sprintf(question, "v2", "web"), 400},
		"no request":        {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400},
		"no namespace":      {strings.Replace(fmt.Sprintf(question, "v1", "web"), `"demo"`, `""`, 1), 400},
		"a path":            {strings.Replace(fmt.Sprintf(question, "v1", "web"), `"demo"`, `"../x"`, 1), 400},
		"no object":         {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},"operation":"CREATE","namespace":"demo"}}`, 500},
		"tokens of nobody":  {fmt.Sprintf(question, "v1", "broken"), 500},
		"too long to be so": {strings.Repeat(" ", limitReviewBytes+1), 413},
	} {
		if recorder := review(t, test.body); recorder.Code != test.code {
			t.Errorf("%s: answered %d %.200s, want %d", name, recorder.Code, recorder.Body, test.code)
		}
	}
}

// Any user may send a pod, before it is validated: a few megabytes of empty objects are hundreds in memory.
func TestWebhookBoundsWhatReviewsTake(t *testing.T) {
	v := &reviewer{change: admission.For(podsPlan(t, "1.10.13", "{}")), tokens: noTokens{}, timeout: time.Minute,
		metrics: newMetrics(), memory: webserver.NewBudget(limitReviewMemory)}
	asks := func(empty int) int {
		pod := strings.Replace(fmt.Sprintf(question, "v1", "web"), `{"name":"web"}],`,
			`{"name":"web","env":[`+strings.Repeat("{},", empty)+`{}]}],`, 1)
		recorder := httptest.NewRecorder()
		v.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, WebhookPath, strings.NewReader(pod)))
		return recorder.Code
	}
	for empty, code := range map[int]int{1000: http.StatusOK, 1_000_000: http.StatusRequestEntityTooLarge} {
		if got := asks(empty); got != code {
			t.Errorf("%d empty objects: %d, want %d", empty, got, code)
		}
	}
}

func TestWebhookDecompressesNothing(t *testing.T) {
	v := &reviewer{change: admission.For(podsPlan(t, "1.10.13", "{}")), tokens: noTokens{}, timeout: time.Minute,
		metrics: newMetrics()}
	for header, code := range map[string]int{"gzip": http.StatusUnsupportedMediaType, "identity": http.StatusOK} {
		request := httptest.NewRequest(http.MethodPost, WebhookPath,
			strings.NewReader(fmt.Sprintf(question, "v1", "web")))
		request.Header.Set("Content-Encoding", header)
		recorder := httptest.NewRecorder()
		v.ServeHTTP(recorder, request)
		if recorder.Code != code {
			t.Errorf("content encoding %s: %d, want %d", header, recorder.Code, code)
		}
	}
}

func TestWebhookSpeaksHTTP1Alone(t *testing.T) {
	inner := &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	config := http1(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return inner, nil
	}})
	chosen, err := config.GetConfigForClient(nil)
	if err != nil || !slices.Equal(config.NextProtos, []string{"http/1.1"}) ||
		!slices.Equal(chosen.NextProtos, []string{"http/1.1"}) || len(inner.NextProtos) != 2 {
		t.Errorf("protocols %q and %q, %v", config.NextProtos, chosen.NextProtos, err)
	}
}
