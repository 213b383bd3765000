package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubefusion/fusionctl/pkg/discovery"
	"github.com/kubefusion/fusionctl/pkg/kubever"
)

// of is a client of a fake server.
func of(t *testing.T, f *fakeServer) *Server { return serveWith(t, Options{Attempts: 2}, f.ServeHTTP) }

// What is found is the same in every form that a server may answer in: one that refuses the form of today (1.6), one
// that does not know it, and one that has it.
func TestDiscoverFindsWhatIsServed(t *testing.T) {
	for _, minor := range []kubever.Minor{6, 10, 15, 27, 36} {
		f := &fakeServer{minor: minor, custom: []string{"example.test"}}
		got, err := of(t, f).Discover(t.Context())
		if err != nil {
			t.Errorf("%s: %v", minor, err)
			continue
		}
		if err := got.Gaps(); err != nil || got.Identity.Version.Minor != minor {
			t.Errorf("%s: version %s, incomplete: %v", minor, got.Identity.Version, err)
		}
		var want, have []string
		for _, api := range kubever.APIResources(minor) {
			if api.DefaultOn.Has(minor) {
				want = append(
					want, fmt.Sprint(api.WithKind(api.Kind), api.Name, api.Namespaced, len(api.Subresources(minor))))
			}
		}
		want = append(want, fmt.Sprint(schema.GroupVersionKind{Group: "example.test", Version: "v1", Kind: "Widget"},
			"widgets", true, 0))
		for _, r := range got.Resources {
			have = append(have, fmt.Sprint(r.GroupVersionKind(), r.Name, r.Namespaced, len(r.Subresources)))
		}
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s: %d resources, want %d", minor, len(have), len(want))
		}
		if !got.Named(schema.GroupResource{Group: "example.test", Resource: "widgets"})[0].Can("list") {
			t.Errorf("%s: the verbs are missing", minor)
		}
		if minor >= 27 && len(f.asked) > 5 {
			t.Errorf("%s: %d requests, want /version, /readyz twice and the two roots", minor, len(f.asked))
		}
	}
}

func TestPreferredVersionsComeFirst(t *testing.T) {
	for _, minor := range []kubever.Minor{6, 15, 36} {
		got, err := of(t, &fakeServer{minor: minor}).Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got.OfKind(schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"})[:1] {
			if r.Version != got.Preferred["autoscaling"] {
				t.Errorf("%s: %s comes first, and %s is preferred", minor, r.Version, got.Preferred["autoscaling"])
			}
		}
		if got.Resources[0].Group != "" {
			t.Errorf("%s: %s comes first, want the core group", minor, got.Resources[0])
		}
	}
}

func TestGroupsThatFailAreNotAbsent(t *testing.T) {
	widgets := schema.GroupVersion{Group: "example.test", Version: "v1"}
	for _, minor := range []kubever.Minor{6, 15, 36} {
		for _, code := range []int{503, 404, 403} {
			f := &fakeServer{minor: minor, custom: []string{"example.test"},
				failing: map[string]int{"/apis/example.test/v1": code}}
			got, err := of(t, f).Discover(t.Context())
			if err != nil {
				t.Errorf("%s: %v", minor, err)
				continue
			}
			if got.State(widgets) != discovery.Failed || got.Failure("example.test") == nil ||
				got.Gaps() == nil || got.Failure("apps") != nil {
				t.Errorf("%s, %d: state %d, failure %v, of apps %v", minor, code, got.State(widgets),
					got.Failure("example.test"), got.Failure("apps"))
			}
			if absent := (schema.GroupVersion{Group: "none.test", Version: "v1"}); got.State(
				absent) != discovery.Absent {
				t.Errorf("%s: a group that is not announced is %d", minor, got.State(absent))
			}
		}
	}
}

func TestDiscoveryThatSaysNothingIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		path string
		says http.HandlerFunc
	}{
		"no groups at all":        {"/apis", says(`{}`)},
		"an empty list of groups": {"/apis", says(`{"kind":"APIGroupList","groups":[]}`)},
		"groups without versions": {"/apis", says(`{"kind":"APIGroupList","groups":[{"name":"apps"}]}`)},
		"another form":            {"/apis", says(`{"kind":"APIGroupDiscoveryList","items":[]}`)},
		"no core group":           {"/api", http.NotFound},
		"an empty core group":     {"/api", says(`{"kind":"APIVersions","versions":[]}`)},
		"no core resources":       {"/api/v1", http.NotFound},
		"empty core resources":    {"/api/v1", says(`{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`)},
		"resources of another one": {
			"/api/v1", says(`{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"pods"}]}`)},
		"forbidden":          {"/apis", refusing(403, metav1.StatusReasonForbidden, "")},
		"a portal":           {"/apis", says(`<html>`)},
		"no version":         {"/version", says(`{}`)},
		"an ancient version": {"/version", says(`{"major":"1","minor":"5","gitVersion":"v1.5.2"}`)},
	} {
		f := &fakeServer{minor: 15}
		s := serveWith(t, Options{Attempts: 1}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == test.path {
				test.says(w, r)
				return
			}
			f.ServeHTTP(w, r)
		})
		if got, err := s.Discover(t.Context()); err == nil {
			t.Errorf("%s: %d resources, want an error", name, len(got.Resources))
		}
	}
}

func TestServersThatStartAreNotReady(t *testing.T) {
	for minor, path := range map[kubever.Minor]string{10: "/healthz", 36: "/readyz"} {
		starting := &fakeServer{minor: minor, failing: map[string]int{path: 500},
			without: map[string]bool{"batch": true}}
		got, err := of(t, starting).Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Unready == nil || got.Gaps() == nil || !strings.Contains(got.Unready.Error(), path) {
			t.Errorf("%s: a server that starts is called ready: %v", minor, got.Unready)
		}
	}
	// It was ready and has been started anew while it was asked.
	f, restarted := &fakeServer{minor: 36}, atomic.Bool{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && restarted.Load() {
			fail(w, status(500, metav1.StatusReasonUnknown, ""))
			return
		}
		restarted.CompareAndSwap(false, r.URL.Path == "/apis")
		f.ServeHTTP(w, r)
	})
	if got, err := s.Discover(t.Context()); err != nil || got.Unready == nil {
		t.Errorf("a server that was restarted is called ready (%v)", err)
	}
}

func TestIdentifyReadsVersionsOfAllKinds(t *testing.T) {
	for version, want := range map[string]struct {
		minor kubever.Minor
		newer bool
	}{
		`{"major":"1","minor":"6","gitVersion":"v1.6.13-acme.4"}`:       {6, false},
		`{"major":"1","minor":"99+","gitVersion":"v1.99.0-alpha.1"}`:    {0, true},
		`{"major":"1","minor":"36+","gitVersion":"v1.36.3-eks-abc123"}`: {36, false},
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
				fmt.Fprint(w, version)
				return
			}
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"u1"}}`)
		})
		got, err := s.Identify(t.Context(), true)
		if err != nil || got.Version.Minor != want.minor || got.Newer != want.newer || got.SystemUID != "u1" ||
			got.Date.Unix() != 1136214245 {
			t.Errorf("Identify of %s = %+v, %v", version, got, err)
		}
	}
	f := &fakeServer{minor: 15} // it has no objects
	if _, err := of(t, f).Identify(t.Context(), true); err == nil {
		t.Error("Identify of a server without kube-system: no error")
	}
}

func TestDiscoveryEndsWithItsServer(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	s, err := New(&rest.Config{Host: closed.URL}, Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Discover(t.Context()); !errors.Is(err, discovery.ErrUnreachable) {
		t.Errorf("Discover = %v, want it unreachable", err)
	}
}
