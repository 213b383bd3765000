package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubefusion/fusionctl/pkg/apiserver"
	"github.com/kubefusion/fusionctl/pkg/pair"
)

// A pod of a custom resource that is there, and that no watch has seen; both sides have its kind. Whatever the server
// that has the resource answers instead of properly, the pod stays, and the answer is known to be none, in time.
func TestHostileServersNeverDelete(t *testing.T) {
	const owner, definitions = "/gadgets/gadget", "/customresourcedefinitions"
	const elsewhere = "elsewhere.test"
	text := func(code int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(code)
			fmt.Fprint(rw, body)
		}
	}
	page := func(token func(*http.Request) string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(rw, `{"kind":"CustomResourceDefinitionList","apiVersion":"apiextensions.k8s.io/v1","metadata":`+
				`{"resourceVersion":"9","continue":%q},"items":[]}`, token(r))
		}
	}
	pages := 0
	slowly := func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, `{"kind":`)
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,` +
		`"details":{"name":"gadget","retryAfterSeconds":86400}}`
	says := func(code int, reason string) http.HandlerFunc { return text(code, fmt.Sprintf(status, reason, code)) }
	for name, test := range map[string]struct {
		at   string // part of the paths that are answered so
		lies http.HandlerFunc
	}{
		"its owner is of another kind": {at: owner, lies: text(200,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"gadget","namespace":"demo","uid":"x"}}`)},
		"its owner has another name": {at: owner, lies: text(200,
			`{"kind":"Gadget","apiVersion":"both.test/v1","metadata":{"name":"other","namespace":"demo","uid":"x"}}`)},
		"there is something behind its owner": {at: owner, lies: text(200,
			`{"kind":"Gadget","apiVersion":"both.test/v1","metadata":{"name":"gadget","namespace":"demo"}} {}`)},
		"another object is not found": {at: owner, lies: text(404,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,`+
				`"details":{"name":"other"}}`)},
		"its owner's group is down": {at: "/apis/both.test/v1", lies: text(404, "404 page not found")},
		"its owner's API service is not available": {at: "/apis/both.test/v1",
			lies: says(503, "ServiceUnavailable")},
		"it may not be read any more": {at: owner, lies: says(403, "Forbidden")},
		"it is expired":               {at: owner, lies: says(410, "Expired")},
		"the server is busy for a day": {at: owner, lies: func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Retry-After", "86400")
			says(429, "TooManyRequests")(rw, r)
		}},
		"it is elsewhere": {at: owner, lies: func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://"+elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
		}},
		"everything is elsewhere": {at: "/", lies: func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://"+elsewhere+r.URL.Path, http.StatusMovedPermanently)
		}},
		"it comes slowly":         {at: owner, lies: slowly},
		"definitions come slowly": {at: definitions, lies: slowly},
		"definitions repeat a token": {at: definitions, lies: page(func(*http.Request) string {
			return "again"
		})},
		"definitions do not end": {at: definitions, lies: page(func(*http.Request) string {
			pages++
			return fmt.Sprint(pages)
		})},
		"definitions are something else": {at: definitions,
			lies: text(200, `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`)},
		"definitions break off": {at: definitions,
			lies: text(200, `{"kind":"CustomResourceDefinitionList","items":[`)},
		"definitions are expired":           {at: definitions, lies: says(410, "Expired")},
		"definitions may not be read":       {at: definitions, lies: says(403, "Forbidden")},
		"the group is left out by the side": {at: "/apis", lies: nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c, m := w.collector(Options{})
				ref := w.put(modern, "gadgets", "demo", "gadget")
				w.put("", "pods", "demo", "one", ref)
				w.see(t.Context(), m)
				if err := c.guard.since(t.Context(), c.now()); err != nil {
					t.Fatal(err)
				}
				unsee(m.graph, ref.UID)
				forget(m)
				w.refuse = func(side pair.Side, r *http.Request) int {
					return code(test.lies == nil && side == modern && r.URL.Path == test.at, withoutBoth)
				}
				server := serverOf(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.URL.Host == elsewhere {
						t.Errorf("a redirect was followed: %s, authorization %q", r.URL, r.Header.Get("Authorization"))
					}
					if test.lies != nil && strings.Contains(r.URL.Path, test.at) {
						test.lies(rw, r)
						return
					}
					w.serve(modern, rw, r)
				}))
				server.BearerToken = "secret"
				hasty, err := apiserver.New(server,
					apiserver.Options{Attempts: 1, Timeout: 300 * time.Millisecond, QPS: -1})
				if err != nil {
					t.Fatal(err)
				}
				c.clients[modern].server = hasty
				begin := time.Now()
				if err := c.process(t.Context(), "uid-3"); err == nil {
					t.Error("process = nil: the pod is left without a second look")
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				if len(w.deletions) > 0 {
					t.Fatalf("deleted %q, whose owner is there", w.deletions)
				}
			})
		})
	}
}
