package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/kubever"
)

var (
	pods  = Resource{GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "pods", Kind: "Pod", Namespaced: true}
	nodes = Resource{GroupVersion: schema.GroupVersion{Version: "v1"}, Name: "nodes", Kind: "Node"}
	webs  = Resource{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1"}, Name: "deployments",
		Kind: "Deployment", Namespaced: true}
)

func TestPathsLeadToWhatTheyName(t *testing.T) {
	for want, path := range map[string]Path{
		"/version":                     Page("version"),
		"/apis/apps/v1":                GroupVersionPage(webs.GroupVersion),
		"/api/v1":                      GroupVersionPage(pods.GroupVersion),
		"/api/v1/pods":                 pods.Objects(""),
		"/api/v1/namespaces/shop/pods": pods.Objects("shop"),
		// the namespace of an owner's dependent is no matter of a node's
		"/api/v1/nodes/n1": nodes.Object("shop", "n1"),
		"/apis/apps/v1/namespaces/shop/deployments/a":  webs.Object("shop", "a"),
		"/api/v1/namespaces/shop/pods/web/status":      pods.Object("shop", "web", "status"),
		"/api/v1/nodes/system:node:a@b":                nodes.Object("", "system:node:a@b"),
		"/api/v1/nodes/a%3Fwatch=1%23b":                nodes.Object("", "a?watch=1#b"),
		"/api/v1/nodes/%00%0D%0AHost:%20x":             nodes.Object("", "\x00\r\nHost: x"),
		"/api/v1/nodes/%E2%80%AE%F0%9F%92%A9%EF%BC%8F": nodes.Object("", "\u202e💩／"),
	} {
		if path.Err() != nil || path.String() != want {
			t.Errorf("the path is %s (%v), want %s", path, path.Err(), want)
		}
	}
}

// An owner's name came from an object that anybody may write.
func TestPathsLeadNowhereElse(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", "../../kube-system/pods/http:victim:8080/proxy/admin/shutdown", "a/b", "/a", "a/", "%2e%2e",
		"a%2fb", "..%2f", "%",
	} {
		for what, path := range map[string]Path{
			"a name":        pods.Object("shop", name),
			"a namespace":   pods.Object(name, "web"),
			"a collection":  pods.Objects(name),
			"a subresource": pods.Object("shop", "web", name),
			"a resource":    Resource{GroupVersion: pods.GroupVersion, Name: name}.Objects(""),
			"a group": Resource{GroupVersion: schema.GroupVersion{Group: name, Version: "v1"}, Name: "x"}.Objects(
				""),
			"a version": Resource{GroupVersion: schema.GroupVersion{Group: "g", Version: name}, Name: "x"}.Objects(""),
			"a page":    Page(name),
		} {
			if name == "" && (what == "a namespace" || what == "a collection" || what == "a group") {
				continue // all namespaces; the core group
			}
			if !errors.Is(path.Err(), ErrInvalidPath) {
				t.Errorf("%q as %s: %s, %v, want no path", name, what, path, path.Err())
			}
		}
	}
	if !errors.Is(Path{}.Err(), ErrInvalidPath) {
		t.Error("the empty path leads somewhere")
	}
}

func FuzzPath(f *testing.F) {
	f.Add("shop", "web")
	f.Add("..", "a/b")
	f.Fuzz(func(t *testing.T, namespace, name string) {
		p := pods.Object(namespace, name)
		if p.Err() != nil {
			return
		}
		segments := strings.Split(p.String(), "/")
		want := 7
		if namespace == "" {
			want = 5
		}
		if len(segments) != want || slices.Contains(segments, "..") || slices.Contains(segments, ".") ||
			strings.ContainsAny(p.String(), "?#\r\n ") {
			t.Errorf("%q and %q lead to %q", namespace, name, p)
		}
	})
}

func TestResultTellsFailureFromAbsence(t *testing.T) {
	down := errors.New("the API service is down")
	metrics := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	beta := webs
	beta.Version = "v1beta1"
	announced := map[schema.GroupVersion]bool{metrics: true, webs.GroupVersion: true}
	r := &Result{Announced: announced, Resources: []Resource{pods, webs, beta},
		Failed: map[schema.GroupVersion]error{metrics: down}}
	for gv, want := range map[schema.GroupVersion]State{metrics: Failed, webs.GroupVersion: Served,
		{Group: "apps", Version: "v2"}: Absent} {
		if got := r.State(gv); got != want {
			t.Errorf("State(%s) = %d, want %d", gv, got, want)
		}
	}
	if err := r.Failure("apps", ""); err != nil {
		t.Errorf("Failure of groups that were listed: %v", err)
	}
	if err := r.Failure("apps", "metrics.k8s.io"); !errors.Is(err, down) {
		t.Errorf("Failure = %v, want the reason", err)
	}
	if err := r.Gaps(); !errors.Is(err, down) {
		t.Errorf("Incomplete = %v, want the reason", err)
	}
	starting := errors.New("starting")
	if err := (&Result{Unready: starting}).Gaps(); !errors.Is(err, starting) {
		t.Errorf("a server that starts is complete: %v", err)
	}
	for reason, whole := range map[error]bool{starting: false, ErrForbidden: true} {
		if err := (&Result{Unready: reason}).Gaps(); (err == nil) != whole {
			t.Errorf("Gaps of a server that answers %q about its readiness: %v", reason, err)
		}
	}
	if got := r.OfKind(schema.GroupKind{Group: "apps", Kind: "Deployment"}); len(got) != 2 || got[0].Version != "v1" {
		t.Errorf("OfKind = %v, want both versions, the preferred one first", got)
	}
	if got := r.Named(schema.GroupResource{Resource: "pods"}); len(got) != 1 ||
		got[0].GroupVersionKind() != pods.GroupVersionKind() {
		t.Errorf("Named = %v, want pods", got)
	}
}

func TestIdentityIsThatOfThePlan(t *testing.T) {
	version, err := kubever.Parse("1.6.13")
	if err != nil {
		t.Fatal(err)
	}
	is := Identity{GitVersion: "v1.6.4-acme.1", Version: kubever.Version{Minor: 6, Patch: 4, HasPatch: true},
		SystemUID: "u1"}
	if err := errors.Join(is.Is(version, ""), is.Is(version, "u1")); err != nil {
		t.Errorf("Is = %v, want the planned server", err)
	}
	if err := is.Is(version, "u2"); !errors.Is(err, ErrWrongServer) {
		t.Errorf("Is another cluster: %v", err)
	}
	if err := (Identity{GitVersion: "v1.37.0", Newer: true}).Is(version, ""); !errors.Is(err, ErrWrongServer) ||
		!strings.Contains(err.Error(), "v1.37.0") {
		t.Errorf("Is another version: %v", err)
	}
	if !(Identity{Newer: true}).Behaves(kubever.BehaviourReadyzServed) || is.Behaves(kubever.BehaviourReadyzServed) {
		t.Error("Behaves: want a newer server to behave as the newest, and 1.6 as itself")
	}
}
