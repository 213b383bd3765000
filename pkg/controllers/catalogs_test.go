package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubefusion/fusionctl/pkg/pair"
)

// TestKindsThatAreSilentAreBounded: whoever writes an owner reference names any kind. What is forgotten is silent anew,
// and so decides later.
func TestKindsThatAreSilentAreBounded(t *testing.T) {
	now := time.Now()
	known := &catalog{failed: map[string]error{}, asked: now}
	c := &catalogs{side: pair.Modern, now: func() time.Time { return now }, last: known,
		fetch: func(context.Context, []schema.GroupResource) (*catalog, error) { return known, nil }}
	first := schema.GroupKind{Kind: "First"}
	begun := c.listen(known, first, nil)
	for n := range 3 * limitSilent {
		c.listen(known, schema.GroupKind{Kind: fmt.Sprint("Kind", n)}, nil)
		if len(c.silent) > limitSilent {
			t.Fatalf("%d kinds are known to be silent, want at most %d", len(c.silent), limitSilent)
		}
	}
	now = now.Add(time.Minute)
	known.asked = now
	if again := c.listen(known, first, nil); !again.After(begun) {
		t.Errorf("%s is silent since %s, as before it was forgotten", first, again)
	}
}

// TestKindsThatNoServerHas are no reason to delete anything, and nothing of them is kept.
func TestKindsThatNoServerHas(t *testing.T) {
	c := &collector{cluster: &cluster{}, graph: newGraph(time.Now, nil)}
	for _, ref := range []metav1.OwnerReference{
		{APIVersion: "v1", Kind: strings.Repeat("K", 1<<20), Name: "a", UID: "u"},
		{APIVersion: strings.Repeat("g", 1<<20) + "/v1", Kind: "Kind", Name: "a", UID: "u"},
	} {
		_, err := c.find(t.Context(), ref, "demo", time.Now())
		if !errors.Is(err, errUnserved) || len(err.Error()) > 500 {
			t.Errorf("a kind of %d bytes: %v", len(ref.Kind), errors.Is(err, errUnserved))
		}
	}
}
