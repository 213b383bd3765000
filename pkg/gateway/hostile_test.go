package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubefusion/fusionctl/pkg/kubever"
	"github.com/kubefusion/fusionctl/pkg/pair"
	"github.com/kubefusion/fusionctl/pkg/plan"
)

// TestRefusedUpgradesLeaveNoConnection: an old API server goes on to pass what comes on a connection whose upgrade was
// refused to the kubelet, as itself. No request of another client is sent on it.
func TestRefusedUpgradesLeaveNoConnection(t *testing.T) {
	x := newFixture(t)
	const exec = "/api/v1/namespaces/a/pods/p/exec"
	var mu sync.Mutex
	seen := map[string]bool{}
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.page("GET "+exec, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if seen[r.RemoteAddr] {
				t.Errorf("a second request on the connection from %s", r.RemoteAddr)
			}
			seen[r.RemoteAddr] = true
			status(w, http.StatusBadRequest, "BadRequest")
		})
	}
	for _, user := range []string{"alice", "bob", "alice"} {
		for _, view := range []string{"", "/sides/legacy", "/sides/modern"} {
			x.wants("GET", view+exec, "", http.StatusBadRequest, "of the side", "Connection: Upgrade",
				"Upgrade: SPDY/3.1", "Test-Certificate: "+user)
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d connections, want 9", len(seen))
	}
}

// TestNetworksAreClients: who has one address of a network of IPv6 has them all.
func TestNetworksAreClients(t *testing.T) {
	for address, want := range map[string]string{
		"2001:db8::1": "2001:db8::/64", "2001:db8::ffff:1:2:3": "2001:db8::/64", "::1": "::/64",
		"2001:db8:0:1::1": "2001:db8:0:1::/64", "fe80::1%eth0": "fe80::/64", "::ffff:10.0.0.1": "10.0.0.1",
		"10.0.0.1": "10.0.0.1", "": "", "@": "@",
	} {
		if got := network(address); got != want {
			t.Errorf("%q is of %q, want %q", address, got, want)
		}
	}
	x := newFixture(t)
	begun, end := make(chan struct{}), make(chan struct{})
	x.modern.page(reviews, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	x.legacy.vouch(nil)
	ask := func(i int) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
		r.RemoteAddr = fmt.Sprintf("[2001:db8::%x]:1", i+1)
		r.Header.Set("Authorization", fmt.Sprintf("Bearer %d", i))
		w := httptest.NewRecorder()
		x.gateway.ServeHTTP(w, r)
		return w.Code
	}
	answers := make(chan int)
	for i := range limitStrangers {
		go func() { answers <- ask(i) }()
		<-begun
	}
	if code := ask(limitStrangers); code != http.StatusTooManyRequests {
		t.Errorf("one more address of the network is answered %d", code)
	}
	close(end)
	for range limitStrangers {
		<-answers
	}
}

// TestReadsAreNoStreams: a list that says that it upgrades its connection is one of the requests that its user may have
// in flight, and no stream, of which there may be thousands that wait for no turn.
func TestReadsAreNoStreams(t *testing.T) {
	for _, path := range []string{"/api/v1/namespaces/a/pods", collection, collection + "/web", "/apis", "/version",
		"/sides/modern/api/v1/pods", collection + "/web/scale"} {
		x := newFixture(t, func(o *Options) { o.Requests = 1 })
		begun, end := make(chan struct{}), make(chan struct{})
		x.modern.page("GET /api/v1/namespaces/a/pods", func(http.ResponseWriter, *http.Request) {
			begun <- struct{}{}
			<-end
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.ask("GET", "/api/v1/namespaces/a/pods", "")
		}()
		<-begun
		code, _, text := x.ask("GET", path, "", "Connection: Upgrade", "Upgrade: websocket")
		if code != http.StatusTooManyRequests || !strings.Contains(text, "in flight") {
			t.Errorf("%s: %d %s", path, code, text)
		}
		close(end)
		<-done
	}
	x := newFixture(t)
	x.modern.say("GET /api/v1/pods", http.StatusOK, "{}")
	x.wants("GET", "/sides/modern/api/v1/pods", "", http.StatusOK, "{}", "Connection: Upgrade", "Upgrade: websocket")
	if r, _ := x.modern.last("/api/v1/pods"); r.Header.Get("Upgrade") != "" {
		t.Error("a list is sent on as an upgrade, whose answer may take as long as it wants")
	}
}

// TestWatchesOfAllAreBounded: service accounts are as many users as somebody wants.
func TestWatchesOfAllAreBounded(t *testing.T) {
	x := newFixture(t, func(o *Options) { o.Watches = 1 })
	const pods = "/api/v1/namespaces/a/pods"
	begun := make(chan struct{})
	x.modern.page("GET "+pods, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watches := func(name string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url+pods+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Test-Certificate", name)
		go func() {
			if response, err := http.DefaultClient.Do(r); err == nil {
				defer response.Body.Close()
				<-ctx.Done()
			}
		}()
		<-begun
	}
	const account = "system:serviceaccount:shop:web-%d"
	for i := range limitAccounts {
		watches(fmt.Sprintf(account, i))
	}
	x.wants("GET", pods+"?watch=true", "", http.StatusTooManyRequests, "of system:serviceaccounts:shop",
		"Test-Certificate: "+fmt.Sprintf(account, limitAccounts))
	for i := range limitWatchers + limitWatchers/4 - limitAccounts {
		watches(fmt.Sprintf("user-%d", i))
	}
	x.wants("GET", pods+"?watch=true", "", http.StatusTooManyRequests, "of all users", "Test-Certificate: one-more")
	watches("system:kube-controller-manager")
	x.modern.say("GET "+pods, http.StatusOK, `{"kind":"PodList"}`)
	x.wants("GET", pods, "", http.StatusOK, "PodList", "Test-Certificate: one-more")
}

// TestAFewNamespacesTakeNotAllWatches: a developer has a share for each namespace.
func TestAFewNamespacesTakeNotAllWatches(t *testing.T) {
	const each, few = 100, 100 / fewWatches
	x := newFixture(t, func(o *Options) { o.Watches = each })
	watches := func(name string, want int) (got int) {
		u := &user.DefaultInfo{Name: name}
		own, _ := x.gateway.shares.of(u)
		for got < want {
			c := &exchange{id: &identity{Info: u}, own: own, took: &took{}}
			if err := x.gateway.watches(c, isComponent(u)); err != nil {
				for _, end := range c.took.ends {
					end()
				}
				break
			}
			got++
		}
		return got
	}
	total := 0
	for i := range 30 {
		total += watches(fmt.Sprintf("system:serviceaccount:dev-%d:a", i), 2*limitAccounts*each)
	}
	if total < limitWatchers*each {
		t.Errorf("all have %d, want %d and a few", total, limitWatchers*each)
	}
	if got := watches("bob", each); got != few {
		t.Errorf("beside 30 namespaces of another a user has %d, want %d", got, few)
	}
	if got := watches("system:kube-controller-manager", each); got != each {
		t.Errorf("beside them a component has %d, want %d", got, each)
	}
	for i := range 2 * limitWatchers * each {
		total += watches(fmt.Sprintf("user-%d", i), 1)
	}
	if most := limitWatchers*each + limitWatchers*each/4; total+few != most {
		t.Errorf("all users have %d, want %d", total+few, most)
	}
}

// TestRequestsOfANamespaceAreBounded: each request that waits holds memory, and service accounts are as many users as
// somebody wants.
func TestRequestsOfANamespaceAreBounded(t *testing.T) {
	x := newFixture(t, func(o *Options) { o.Requests = 1 })
	const pods = "/api/v1/namespaces/a/pods"
	begun, end := make(chan struct{}), make(chan struct{})
	x.modern.page("GET "+pods, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	const account = "system:serviceaccount:shop:web-%d"
	var asked sync.WaitGroup
	for i := range limitAccounts {
		asked.Go(func() { x.ask("GET", pods, "", "Test-Certificate: "+fmt.Sprintf(account, i)) })
		<-begun
	}
	x.modern.say("GET "+pods, http.StatusOK, `{"kind":"PodList"}`)
	x.wants("GET", pods, "", http.StatusTooManyRequests, "2 requests of system:serviceaccounts:shop",
		"Test-Certificate: "+fmt.Sprintf(account, limitAccounts))
	for _, other := range []string{"alice", "system:serviceaccount:bar:web", "system:serviceaccount:kube-system:gc"} {
		x.wants("GET", pods, "", http.StatusOK, "PodList", "Test-Certificate: "+other)
	}
	close(end)
	asked.Wait()
	x.wants("GET", pods, "", http.StatusOK, "PodList", "Test-Certificate: "+fmt.Sprintf(account, limitAccounts))
}

// TestServiceAccountsOfANamespaceTakeTurnsAsOne: who creates a thousand of them is as often next as anyone.
func TestServiceAccountsOfANamespaceTakeTurnsAsOne(t *testing.T) {
	x := newFixture(t)
	const pods = "/api/v1/namespaces/a/pods"
	x.modern.page("GET "+pods, func(w http.ResponseWriter, _ *http.Request) {
		x.gateway.seats.mu.Lock()
		defer x.gateway.seats.mu.Unlock()
		fmt.Fprint(w, x.gateway.seats.of)
	})
	x.wants("GET", pods, "", http.StatusOK, "map[system:serviceaccounts:shop:1]",
		"Test-Certificate: system:serviceaccount:shop:web")
}

// TestAuditNamesWhatWasCreated: a name in another case is one to encoding/json, and none to API servers.
func TestAuditNamesWhatWasCreated(t *testing.T) {
	x, log := audited(t, nil)
	x.legacy.say("GET "+collection+"/evil", http.StatusNotFound, "{}")
	x.modern.say("POST "+collection, http.StatusCreated, deployment("evil", "u"))
	x.wants("POST", collection, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"evil","Name":"harmless",
		"UID":"other"},"Metadata":{"name":"harmless"}}`, http.StatusCreated, "evil")
	if e, text := last(t, log); e.ObjectRef.Name != "evil" || e.ObjectRef.UID != "" {
		t.Errorf("the event is about %q: %s", e.ObjectRef.Name, text)
	}
}

// TestHugeLimitsAreShared: what each side is asked for is no negative number.
func TestHugeLimitsAreShared(t *testing.T) {
	x := newFixture(t)
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET "+collection, http.StatusOK, emptyList)
	}
	for limit, want := range map[int64]string{math.MaxInt64: "4611686018427387904", 3: "2", 2: "1", 1: "1"} {
		x.wants("GET", fmt.Sprintf("%s?limit=%d", collection, limit), "", http.StatusOK, "")
		if r, _ := x.legacy.last(collection); r.URL.Query().Get("limit") != want {
			t.Errorf("limit=%d: the side is asked for %s", limit, r.URL.RawQuery)
		}
	}
}

// isOld lets the legacy side be of a release that knows neither dry runs nor Tables.
func (x *fixture) isOld() {
	x.t.Helper()
	old, err := kubever.Parse("1.10.13")
	if err != nil {
		x.t.Fatal(err)
	}
	x.gateway.at(pair.Legacy).says(old)
}

// TestDryRunsOfTheOtherSide: what an old side would not understand is refused there alone: kubectl diff works with
// objects of the other one.
func TestDryRunsOfTheOtherSide(t *testing.T) {
	x := newFixture(t)
	x.isOld()
	x.legacy.say("GET "+collection+"/old", http.StatusOK, deployment("old", "u-old"))
	x.modern.say("GET "+collection+"/new", http.StatusOK, deployment("new", "u-new"))
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("POST "+collection, http.StatusCreated, deployment("made", "u"))
		for _, name := range []string{"old", "new"} {
			for _, method := range []string{"PATCH", "PUT", "DELETE"} {
				side.say(method+" "+collection+"/"+name, http.StatusOK, deployment(name, "u"))
			}
		}
	}
	for name, code := range map[string]int{"old": http.StatusBadRequest, "new": http.StatusOK} {
		at := collection + "/" + name
		x.wants("PATCH", at+"?dryRun=All", `{}`, code, "", "Content-Type: application/merge-patch+json")
		x.wants("PUT", at+"?dryRun=All", `{}`, code, "")
		x.wants("DELETE", at+"?dryRun=All", "", code, "")
		x.wants("DELETE", at+"?dryRun=All&fieldSelector=metadata.uid%3Du-"+name, "", code, "")
		x.wants("DELETE", at+"?resourceVersion=l5m5", "", code, "")
		x.wants("DELETE", at, `{"dryRun":["All"]}`, code, "")
		x.wants("DELETE", at, `{"dr\u0079Run":["\u0041ll"]}`, code, "")
	}
	x.wants("POST", collection+"?dryRun=All", `{"metadata":{"name":"made"}}`, http.StatusCreated, "made")
	x.gateway.options.Create = pair.Legacy
	x.wants("POST", collection+"?dryRun=All", `{"metadata":{"name":"made"}}`, http.StatusBadRequest, "does not know dryRun")
	x.legacy.mu.Lock()
	defer x.legacy.mu.Unlock()
	for _, r := range x.legacy.asked {
		if r.Method != http.MethodGet {
			t.Errorf("the legacy side is asked to %s %s", r.Method, r.URL)
		}
	}
}

// TestSubresourcesAreReadOfOneSide: that the other side does not answer is in the way of writes alone, as for objects.
func TestSubresourcesAreReadOfOneSide(t *testing.T) {
	x := newFixture(t)
	x.modern.say("GET "+collection+"/new", http.StatusOK, deployment("new", "u-new"))
	x.modern.say("GET "+collection+"/new/scale", http.StatusOK, `{"kind":"Scale","apiVersion":"autoscaling/v1",
		"metadata":{"name":"new","resourceVersion":"5"}}`)
	x.legacy.page("GET "+collection+"/new", func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	})
	x.wants("GET", collection+"/new", "", http.StatusOK, "new")
	x.wants("GET", collection+"/new/scale", "", http.StatusOK, `"m5"`)
	x.wants("PUT", collection+"/new/scale", `{}`, http.StatusServiceUnavailable, "legacy")
}

// TestOptionsOfADeletionInItsQuery: API servers read no option in the query of a deletion that has a body, as the
// gateway may write one, and old ones no precondition there at all.
func TestOptionsOfADeletionInItsQuery(t *testing.T) {
	x := newFixture(t)
	x.modern.say("GET "+collection+"/new", http.StatusOK, deployment("new", "u"))
	x.modern.say("DELETE "+collection+"/new", http.StatusOK, deployment("new", "u"))
	const tied = "fieldSelector=metadata.uid%3Du"
	for query, want := range map[string]struct{ body, query string }{
		"":                           {"", ""},
		"pretty=true":                {"", "pretty=true"},
		"dryRun=All":                 {`{"dryRun":["All"]}`, ""},
		"gracePeriodSeconds=0":       {`{"gracePeriodSeconds":0}`, ""},
		"uid=u&resourceVersion=l1m5": {`{"preconditions":{"resourceVersion":"5","uid":"u"}}`, ""},
		tied + "&uid=u":              {`{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u"}}`, ""},
		tied + "&dryRun=All&pretty=true": {`{"apiVersion":"v1","dryRun":["All"],"kind":"DeleteOptions",` +
			`"preconditions":{"uid":"u"}}`, "pretty=true"},
		tied + "&propagationPolicy=Orphan&gracePeriodSeconds=600": {`{"apiVersion":"v1","gracePeriodSeconds":600,` +
			`"kind":"DeleteOptions","preconditions":{"uid":"u"},"propagationPolicy":"Orphan"}`, ""},
		tied + "&resourceVersion=m5": {`{"apiVersion":"v1","kind":"DeleteOptions",` +
			`"preconditions":{"resourceVersion":"5","uid":"u"}}`, ""},
	} {
		x.wants("DELETE", collection+"/new?"+query, "", http.StatusOK, "new",
			"Content-Type: application/vnd.kubernetes.protobuf")
		r, body := x.modern.last(collection + "/new")
		if r.Method != http.MethodDelete || body != want.body || r.URL.RawQuery != want.query ||
			body != "" && r.Header.Get("Content-Type") != jsonType {
			t.Errorf("DELETE ?%s: the side gets %s ?%s with %q of %q, want ?%s with %q", query, r.Method,
				r.URL.RawQuery, body, r.Header.Get("Content-Type"), want.query, want.body)
		}
	}
	n := x.modern.deletions()
	for query, code := range map[string]int{"uid=another": http.StatusNotFound, tied + "&uid=v": http.StatusBadRequest,
		"resourceVersion=5": http.StatusConflict, "gracePeriodSeconds=x": http.StatusBadRequest} {
		x.wants("DELETE", collection+"/new?"+query, "", code, "")
	}
	if x.modern.deletions() != n {
		t.Error("a deletion that is refused reaches the side")
	}
}

// TestDryRunsAreNotDone: an old API server deletes, and evicts, whatever the options in the body say.
func TestDryRunsAreNotDone(t *testing.T) {
	x := newFixture(t)
	x.isOld()
	const pod = "/api/v1/namespaces/a/pods/p"
	message := func(object map[string]any) string {
		body, err := x.gateway.messages.EncodeProtobuf(&unstructured.Unstructured{Object: object})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	tied := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"resourceVersion": "5"}}
	evicts := map[string]any{"apiVersion": "policy/v1beta1", "kind": "Eviction", "deleteOptions": tied}
	for _, c := range []struct{ method, path, subresource, body, kind string }{
		{http.MethodDelete, pod, "", `{"dryRun":["All"]}`, ""},
		{http.MethodDelete, pod + "?dryRun=All", "", "", ""},
		{http.MethodPatch, pod + "?dryRun=All", "", "", ""},
		{http.MethodDelete, pod, "", `{"preconditions":{"resourceVersion":"5"}}`, ""},
		{http.MethodDelete, pod, "", message(tied), runtime.ContentTypeProtobuf},
		{http.MethodDelete, pod, "", `preconditions: {"resource\x56ersion": "5"}`, "application/yaml"},
		{http.MethodPost, pod + "/eviction", "eviction", message(evicts), runtime.ContentTypeProtobuf},
		{http.MethodPost, pod + "/eviction", "eviction", `{"metadata":{"name":"p"},"deleteOptions":{"dryRun":["All"]}}`,
			""},
		{http.MethodPost, pod + "/eviction", "eviction", `{"deleteOptions":{"dr\u0079Run":["\u0041ll"]}}`, ""},
	} {
		for _, side := range pair.Sides() {
			memory := x.gateway.shares.users.Reserve()
			r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			err := x.gateway.heeds(r, c.subresource, &exchange{own: &share{workers: newWorkers()}}, memory, side)
			memory.Release()
			if side == pair.Legacy && (err == nil || !strings.Contains(err.Error(), "which does not know")) {
				t.Errorf("%s %s %s is done: %v", c.method, c.path, c.body, err)
			}
			if side == pair.Modern && err != nil {
				t.Errorf("%s %s %s: %v", c.method, c.path, c.body, err)
			}
		}
	}
}

// TestCertificatesExpire: TLS verifies a certificate when a connection begins, and a connection may last.
func TestCertificatesExpire(t *testing.T) {
	x := newFixture(t)
	x.modern.say("GET /api/v1/namespaces/a/pods", http.StatusOK, "{}")
	for ends, want := range map[time.Duration]int{time.Hour: http.StatusOK, -time.Second: http.StatusUnauthorized} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/a/pods", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Raw: []byte{1},
			Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(ends)}}}}
		w := httptest.NewRecorder()
		x.gateway.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a certificate that ends in %v is answered %d, want %d", ends, w.Code, want)
		}
	}
}

// TestCredentialsBesideACertificateReachNoSide: a side would believe the token before the front proxy.
func TestCredentialsBesideACertificateReachNoSide(t *testing.T) {
	x := newFixture(t)
	const pods = "/api/v1/namespaces/a/pods"
	x.modern.say("GET "+pods, http.StatusOK, "{}")
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET "+collection, http.StatusOK, emptyList)
	}
	for _, credential := range []string{"Bearer of-another", "Basic cm9vdDpyb290"} {
		x.wants("GET", pods, "", http.StatusOK, "{}", "Authorization: "+credential)
		x.wants("GET", collection, "", http.StatusOK, "", "Authorization: "+credential)
		for path, sides := range map[string][]*fakeSide{pods: {x.modern}, collection: {x.legacy, x.modern}} {
			for _, side := range sides {
				if r, _ := side.last(path); r.Header.Get("Authorization") != "" ||
					r.Header.Get("X-Remote-User") != "alice" {
					t.Errorf("%s: a side is told of %v", path, r.Header)
				}
			}
		}
	}
}

// TestHeadersThatEitherSideBelievesAreNotTheClients: those of one side reach the other one neither, which may come to
// believe them; a UID is as much of an identity as a name.
func TestHeadersThatEitherSideBelievesAreNotTheClients(t *testing.T) {
	x := newFixture(t)
	const pods = "/api/v1/namespaces/a/pods"
	modern := x.gateway.sides[pair.Modern]
	modern.headers = plan.ProxyHeaders{UID: []string{"X-Uid"}}
	modern.claims = claimsOf(modern.headers, plan.ProxyHeaders{User: []string{"X-Name"}, Group: []string{"X-Team"},
		Extra: []string{"X-More-"}})
	x.modern.say("GET "+pods, http.StatusOK, "{}")
	x.wants("GET", pods, "", http.StatusOK, "{}", "X-Uid: 0", "X-Name: root", "X-Team: system:masters",
		"X-More-Scopes: all")
	r, _ := x.modern.last(pods)
	for _, name := range []string{"X-Uid", "X-Name", "X-Team", "X-More-Scopes"} {
		if got := r.Header.Values(name); got != nil {
			t.Errorf("the side is told %s: %q", name, got)
		}
	}
}

// TestReviewsThatAreNotAuthenticated: a side may name a user of whom it does not say that the token is theirs.
func TestReviewsThatAreNotAuthenticated(t *testing.T) {
	x := newFixture(t)
	const pods = "/api/v1/namespaces/a/pods"
	x.modern.say("GET "+pods, http.StatusOK, "{}")
	x.legacy.vouch(nil)
	for status, want := range map[string]int{
		`{"authenticated":false,"user":{"username":"root"}}`: http.StatusUnauthorized,
		`{"user":{"username":"root"}}`:                       http.StatusUnauthorized,
		`{"authenticated":true,"user":{}}`:                   http.StatusUnauthorized,
		`{"authenticated":true,"user":{"username":"robot"}}`: http.StatusOK,
	} {
		x.modern.say(reviews, http.StatusCreated, `{"kind":"TokenReview","status":`+status+`}`)
		x.wants("GET", pods, "", want, "", "Test-Certificate: ", "Authorization: Bearer "+status[:20]+fmt.Sprint(want,
			len(status)))
	}
}

// TestLossesAreSaidInShort: what a write would lose is as long as a client makes it.
func TestLossesAreSaidInShort(t *testing.T) {
	x, _ := withCluster(t)
	fields := ""
	for i := range 10_000 {
		fields += fmt.Sprintf(`,"unknown%d":1`, i)
	}
	text := x.wants("POST", "/clusters/far"+collection, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{
		"name":"web"},"spec":{"replicas":1`+fields+`}}`, http.StatusUnprocessableEntity, "spec.unknown0")
	if len(text) > 8<<10 {
		t.Errorf("the answer has %d bytes", len(text))
	}
}
