package controllers

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// TestThousandsOfOwnersThatChange: a client may exchange all owners of an object at each update. An owner that waited
// for the object is attended to.
func TestThousandsOfOwnersThatChange(t *testing.T) {
	const waits = "1b4e28ba-2fa1-11d2-883f-0016d3c00000"
	attended := map[types.UID]int{}
	g := newGraph(time.Now, func(uid types.UID) { attended[uid]++ })
	r, now := &resource{namespaced: true}, metav1.Now()
	g.observe(r, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: waits, Name: "w", Namespace: "a",
		DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerDeleteDependents}}})
	dependent := func(owners func(i int) types.UID) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "d", Name: "d", Namespace: "a"}}
		for i := range 20_000 {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{UID: owners(i)})
		}
		return o
	}
	one := dependent(func(int) types.UID { return waits })
	others := dependent(func(i int) types.UID {
		return types.UID(fmt.Sprintf("1b4e28ba-2fa1-11d2-883f-0016d3d%05d", i))
	})
	if took := cputest.Thread(t, func() {
		g.observe(r, one)
		clear(attended)
		g.observe(r, others)
	}); took > 800*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if attended[waits] == 0 {
		t.Error("the owner that waited is not attended to")
	}
	clear(attended)
	if g.observe(r, others); attended[waits] > 0 {
		t.Error("an owner that it does not have is attended to")
	}
}
