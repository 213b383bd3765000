package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubefusion/fusionctl/internal/webserver"
)

// TestSharesAreOfNamespaces: who may create service accounts has no share for each.
func TestSharesAreOfNamespaces(t *testing.T) {
	for name, want := range map[string]string{
		"alice":                                "alice",
		"system:node:n1":                       "system:node:n1",
		"system:serviceaccount:shop:web":       "system:serviceaccounts:shop",
		"system:serviceaccount:shop:db":        "system:serviceaccounts:shop",
		"system:serviceaccount:kube-system:gc": "system:serviceaccount:kube-system:gc",
	} {
		if got := shareOf(&user.DefaultInfo{Name: name}); got != want {
			t.Errorf("shareOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestNobodyHoldsAllMemory: with all of its share in use a user waits, and nobody else does.
func TestNobodyHoldsAllMemory(t *testing.T) {
	x := newFixture(t)
	x.legacy.say("GET "+collection, http.StatusOK, emptyList)
	x.modern.say("GET "+collection, http.StatusOK, emptyList)
	x.modern.say("GET /openapi/v2", http.StatusOK, `{"swagger":"2.0","info":{"title":"K","version":"1"},"paths":{}}`)
	own, left := x.gateway.shares.of(&user.DefaultInfo{Name: "alice"})
	for of, budget := range map[*webserver.Budget]int64{own.memory: limitShare, own.bodies: limitBodies} {
		held := of.Reserve()
		if err := held.Grow(t.Context(), budget); err != nil {
			t.Fatal(err)
		}
		defer held.Release()
	}
	for _, path := range []string{collection, "/openapi/v2"} {
		x.wants("GET", path, "", http.StatusServiceUnavailable, "other requests hold")
		x.wants("GET", path, "", http.StatusOK, "", "Test-Certificate: bob")
	}
	left()
	if len(x.gateway.shares.by) != 0 {
		t.Errorf("shares without requests: %v", x.gateway.shares.by)
	}
	// A body of a megabyte takes a gigabyte when it is decoded. Nobody has to have permission to send it.
	x.wants("POST", collection, "a: ["+strings.Repeat("1,", limitBodies/512)+"1]", http.StatusRequestEntityTooLarge,
		"takes more than 268435456 bytes", "Content-Type: application/yaml")
}

// TestAFewSharesHoldNotAllMemory: a developer has a share for each namespace. Others have what these leave, and
// components what they have alone.
func TestAFewSharesHoldNotAllMemory(t *testing.T) {
	x := newFixture(t)
	const object = `{"metadata":{"generateName":"web"}}`
	for _, side := range []*fakeSide{x.legacy, x.modern} {
		side.say("GET "+collection, http.StatusOK, emptyList)
		side.say("POST "+collection, http.StatusCreated, deployment("web", "u"))
	}
	works := func(name string) {
		t.Helper()
		x.wants("POST", collection, object, http.StatusCreated, "", "Test-Certificate: "+name)
		x.wants("GET", collection, "", http.StatusOK, "", "Test-Certificate: "+name)
	}
	left := int64(limitMemory)
	for i := range 8 {
		own, _ := x.gateway.shares.of(&user.DefaultInfo{Name: fmt.Sprintf("system:serviceaccount:dev-%d:a", i)})
		if err := own.memory.Reserve().Grow(t.Context(), left/partsOfUsers); err != nil {
			t.Fatal(err)
		}
		left -= left / partsOfUsers
	}
	if left < 64<<20 {
		t.Errorf("eight namespaces leave %d bytes", left)
	}
	works("bob")
	// What nobody can hold: the budget of all.
	if err := x.gateway.shares.users.Reserve().Grow(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	works("system:kube-controller-manager")
	x.wants("GET", collection, "", http.StatusServiceUnavailable, "other requests hold", "Test-Certificate: bob")
}

// TestPathsOfBodiesCount: names on the way to values are paths of each of them when something is lost.
func TestPathsOfBodiesCount(t *testing.T) {
	for text, want := range map[string]int64{
		`{}`: 0, `"a"`: 0, `}]`: 0, `[1,[2]]`: 16 + 16 + 32,
		`{"a":1,"b\"":{"c":[1,"x:,"]}}`:  17 + 19 + 36 + 2*52,
		`{"a":{"b":1},"c":2}`:            17 + 34 + 17,
		`{"a":[{"b":1},{"c":2}],"d":{}}`: 17 + 33 + 50 + 33 + 50 + 17,
		`{"` + strings.Repeat("n", 1<<20) + `":[` + strings.Repeat("1,", 100) + `1]}`: 64 << 20,
	} {
		if got := pathBytes([]byte(text)); got != want {
			t.Errorf("pathBytes(%.50s) = %d, want %d", text, got, want)
		}
	}
}
